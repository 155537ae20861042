"""The cost model: what it counts, what it makes of it, and what it refuses."""

import math
import re
from dataclasses import replace
from importlib import resources

import numpy as np
import pytest
from mcu import CORES
from models import one_hot, quantized, random_enc, random_float_model, script_model

from pkrnnt import SaturationCounters, rnnt_greedy
from pkrnnt.device import operations, toolchain
from pkrnnt.device.cores import MIX, Figure, Memory, load_board, load_core, names
from pkrnnt.device.shape import Shape
from pkrnnt.device.simulation import Setting, cycles_per_instruction, decode, simulate

BOARDS = names("boards")


def setting(core="cortex-m4", board=None, clock=60.0, weights="sram", gate_table=True, seconds=0.04):
    return Setting(
        load_core(core), load_board(board or load_core(core).board), clock, weights, gate_table, seconds
    )


def cost(model, utterances, where):
    return simulate(model, decode(model, utterances), where)


def exact(figure):
    return Figure(figure, figure, "a test")


# what is counted


def test_events_are_those_of_the_decode(digits_int8, digits_utterances):
    """Joints: one a frame and one a token. Steps: the start's and one a token that a joint follows."""
    for enc in digits_utterances:
        hyp, state, events = operations.watch(digits_int8, enc, 10)
        wanted = rnnt_greedy(digits_int8, enc)
        assert (hyp.tokens, hyp.frames, hyp.confidence) == (
            wanted.tokens,
            wanted.frames,
            wanted.confidence,
        )
        assert state.have_token
        tokens = np.bincount(hyp.frames, minlength=len(enc))
        np.testing.assert_array_equal(events.tokens, tokens)
        np.testing.assert_array_equal(events.joint_steps, 1 + tokens)
        np.testing.assert_array_equal(events.prediction_steps, tokens + (np.arange(len(enc)) == 0))
        np.testing.assert_array_equal(events.exp_terms + events.skipped_terms, 28 * tokens)
        assert (events.exp_terms >= tokens).all()


def test_events_where_max_symbols_ends_the_frames():
    rules = {(0, -1): 0, (0, 0): 1, (0, 1): 0}
    model = quantized(script_model(rules, 1, 2, max_symbols=3), one_hot([0] * 4, 1))
    _, _, events = operations.watch(model, one_hot([0] * 5, 1), 3)
    # No blank is ever seen, and the step for a frame's last token belongs to the next frame.
    assert events.tokens.tolist() == events.joint_steps.tolist() == [3] * 5
    assert events.prediction_steps.tolist() == [3] * 5


def test_work_is_what_the_decode_does(digits_int8, digits_utterances):
    """Counted once more from the digits model's sizes: 27 tokens, 96 units everywhere, 128 inputs."""
    hyps = [rnnt_greedy(digits_int8, enc) for enc in digits_utterances]
    frames, tokens = sum(map(len, digits_utterances)), sum(len(hyp) for hyp in hyps)
    joints, steps = frames + tokens, tokens + len(hyps)
    for gate_table in (True, False):
        work = cost(digits_int8, digits_utterances, setting(gate_table=gate_table)).work
        inputs = 0 if gate_table else 384
        macs = frames * 96 * 128 + joints * 28 * 96 + steps * ((inputs + 384) * 96 + 96 * 96)
        assert work["macs"].sum() == macs
        rows = inputs + 384 + 96
        assert work["requantizes"].sum() == frames * 96 + joints * (28 + 96) + steps * (rows + 3 * 96)
        assert work["lookups"].sum() == steps * 5 * 96
        lookup = 384 * 2 if gate_table else 96
        read = frames * 96 * (128 + 9) + joints * 28 * (96 + 9) + steps * (rows * (96 + 9) + lookup)
        assert work["weight_bytes"].sum() == read
        assert (work["tokens"].sum(), work["joint_steps"].sum()) == (tokens, joints)
        assert work["prediction_steps"].sum() == steps


def test_a_table_joint_looks_up_its_activations():
    model = quantized(random_float_model(3, "tanh", joint=7))
    found = cost(model, [random_enc(model, 12)], setting())
    steps, joints = found.work["prediction_steps"].sum(), found.work["joint_steps"].sum()
    assert found.work["lookups"].sum() == 5 * 5 * steps + 7 * joints


@pytest.mark.parametrize("kernels", ["scalar", "dsp", "mve"])
def test_operations_cover_every_product(kernels):
    """Each multiply-accumulate belongs to exactly one step, tail, panel or rest."""
    each = {
        "scalar": {"step": 4, "rest": 1},
        "dsp": {"step": 32, "tail": 4, "rest": 1},
        "mve": {"panel_96": 96, "panel_32": 32},
    }[kernels]
    for seed, (hidden, joint, enc, vocab) in enumerate(
        [(24, 96, 128, 27), (5, 7, 33, 2), (97, 31, 95, 130)]
    ):
        model = quantized(random_float_model(seed, hidden=hidden, joint=joint, enc=enc, vocab=vocab))
        shape = Shape.of(model, False)
        _, _, events = operations.watch(model, random_enc(model, 6), 3)
        counts = operations.operations(shape, events, kernels)
        covered = sum(factor * counts[name] for name, factor in each.items())
        macs = operations.work(shape, events)["macs"]
        if kernels == "mve":  # of a last vector, 1 to 16 columns are used
            assert (covered <= macs).all()
            assert (covered + 16 * counts["panel_16"] >= macs).all()
        else:
            np.testing.assert_array_equal(covered, macs)


# what it makes of it


def test_cycles_are_the_rules_over_the_mix():
    core = replace(
        load_core("cortex-m4"),
        mix=dict(zip(MIX, (0.25, 0.05, 0.1, 0.2, 0, 0, 0.4), strict=True)),
        timing={**dict.fromkeys(MIX, exact(1)), "load": Figure(1, 2, ""), "branch": Figure(1, 4, "")},
        below=exact(0.05),
        above=exact(0.1),
    )
    found = cycles_per_instruction(core)
    assert found.low == pytest.approx(0.95)
    assert found.high == pytest.approx((0.25 * 2 + 0.1 * 4 + 0.65) * 1.1)


def test_waits_latency_deadlines_and_energy(digits_int8, digits_utterances):
    """With exact figures everything follows by hand."""
    core = replace(
        load_core("cortex-m4"),
        instructions=dict.fromkeys(load_core("cortex-m4").instructions, 0.0) | {"joint_step": 1000.0},
        timing=dict.fromkeys(MIX, exact(2)),
        mix={**dict.fromkeys(MIX, 0.0), "other": 1.0},
        below=exact(0),
        above=exact(0),
    )
    board = replace(
        load_board("nrf52840"),
        memories={"flash": Memory(8, 512, Figure(0, 4, "")), "sram": Memory(4, 1, exact(0))},
        microamps_per_mhz=Figure(50, 60, ""),
        volts=Figure(2, 3, ""),
    )
    one = cost(digits_int8, digits_utterances, Setting(core, board, 10, "flash", True, 0.05))
    joints = one.work["joint_steps"]
    np.testing.assert_allclose(one.cycles_low, 2000 * joints)
    np.testing.assert_allclose(one.cycles_high, 2000 * joints + one.work["weight_bytes"] / 8 * 4)
    low, high = one.latency_ms()
    np.testing.assert_allclose(low, 2000 * joints / 10e6 * 1e3)
    latency = one.latency()
    assert latency["max"].high == high.max()
    for bound, values in (("low", low), ("high", high)):
        ordered = np.sort(values)  # between the frames that 99 % lie below and the next
        at = 0.99 * (len(ordered) - 1)
        between = ordered[int(at)] + (at - int(at)) * (ordered[int(at) + 1] - ordered[int(at)])
        assert getattr(latency["p99"], bound) == pytest.approx(between)
        assert getattr(one.frame_share(), bound) == pytest.approx(values.mean() / 50)
    assert latency["mean"].low == pytest.approx(low.mean())
    assert one.microjoules_per_second().low == pytest.approx(
        one.cycles_low.sum() * 50e-12 * 2 * 1e6 / (len(joints) * 0.05)
    )
    assert one.microjoules_per_second().high == pytest.approx(
        one.cycles_high.sum() * 60e-12 * 3 * 1e6 / (len(joints) * 0.05)
    )
    assert one.missed_deadlines() == (0, 0)
    slow = replace(one, setting=replace(one.setting, clock_mhz=0.05))
    assert slow.missed_deadlines() == (
        int((2000 * joints / 0.05e3 > 50).sum()), int((one.cycles_high / 0.05e3 > 50).sum())
    )  # fmt: skip
    assert slow.missed_deadlines()[0] > 0


@pytest.mark.parametrize(
    ("core", "board", "loaded"),
    [("cortex-m0plus", "mspm0g3507", 1), ("cortex-m3", "stm32f103", 1), ("cortex-m4", "nrf52840", 4)],
)
def test_a_read_buffer_waits_for_every_load(core, board, loaded, digits_int8, digits_utterances):
    """Four rows side by side never find a line that one buffer still holds."""
    top = load_board(board).clock_mhz
    one = cost(digits_int8, digits_utterances[:2], setting(core, board, top, "flash"))
    fast = cost(digits_int8, digits_utterances[:2], setting(core, board, top, "sram"))
    waits = one.setting.board.memories["flash"].wait_cycles
    macs, read = one.work["macs"], one.work["weight_bytes"]
    np.testing.assert_allclose(
        one.cycles_high - fast.cycles_high, (macs / loaded + (read - macs) / 2) * waits.high
    )
    odd = quantized(random_float_model(1, hidden=13, enc=9))  # words of which lie across two lines
    enc = random_enc(odd, 3)
    one = cost(odd, [enc], setting(core, board, top, "flash"))
    fast = cost(odd, [enc], setting(core, board, top, "sram"))
    macs, read = one.work["macs"], one.work["weight_bytes"]
    twice = 2 if loaded > 1 else 1
    np.testing.assert_allclose(
        one.cycles_high - fast.cycles_high, (macs / loaded * twice + (read - macs) / 2) * waits.high
    )


def test_below_the_highest_clock_nothing_need_wait(digits_int8, digits_utterances):
    def low(clock, weights):
        where = setting("cortex-m7", clock=clock, weights=weights)
        return cost(digits_int8, digits_utterances[:1], where).cycles_low.sum()

    assert low(480, "flash") > low(480, "sram") == low(60, "sram") == low(60, "flash")


def test_the_longest_frame_is_longer_than_any(digits_int8, digits_utterances):
    """Ten tokens: ten steps, ten joints, and every class in each confidence."""
    one = cost(digits_int8, digits_utterances, setting())
    assert one.max_symbols == 10
    assert one.longest_frame.low > one.cycles_low.max()
    assert one.longest_frame.high > one.cycles_high.max()
    rules = {(0, -1): 0, (0, 0): 1, (0, 1): 0}
    model = quantized(script_model(rules, 1, 2, max_symbols=3), one_hot([0] * 4, 1))
    full = cost(model, [one_hot([0] * 5, 1)], setting())  # such frames only
    assert (full.cycles_low <= full.longest_frame.low).all()
    assert full.longest_frame.low == pytest.approx(full.cycles_low.max(), rel=0.05)
    assert full.longest_latency().high == pytest.approx(full.longest_frame.high / 60e3)


def test_memory_is_added_up(digits_int8, digits_utterances):
    one = cost(digits_int8, digits_utterances[:1], setting(weights="flash"))
    model = Shape.of(digits_int8, True).stored_bytes
    assert one.flash["weights"] + one.flash["tables"] == model
    assert one.flash["tables"] == 28 * 384 * 2
    assert sum(one.flash.values()) <= 140_000
    assert list(one.ram) == ["state", "scratch", "stack"]
    # h, c twice, the projection, the token and two flags; logits, wide x, gates, projection, hidden
    assert one.ram["state"] == 2 * 96 * 3 + 96 * 2 + 4 + 4
    assert one.ram["scratch"] == 28 * 4 + 128 * 2 + 384 * 2 + 96 * 2 + 96
    assert sum(one.ram.values()) <= 6_000
    assert one.misfits() == []
    tiny = replace(one.setting.board, flash_bytes=exact(90_000), ram_bytes=exact(2_000))
    small = replace(one, setting=replace(one.setting, board=tiny))
    flash, ram = sum(one.flash.values()), sum(one.ram.values())
    assert small.misfits() == [
        f"needs {flash} bytes of flash, nrf52840 has 90000",
        f"needs {ram} bytes of RAM, nrf52840 has 2000",
    ]  # fmt: skip
    in_ram = cost(digits_int8, digits_utterances[:1], replace(one.setting, board=tiny, weights="sram"))
    assert in_ram.ram["weights"] == model
    assert in_ram.misfits() == [  # a copy in RAM leaves the original in flash
        f"needs {flash} bytes of flash, nrf52840 has 90000",
        f"needs {ram + model} bytes of RAM, nrf52840 has 2000",
    ]
    both = replace(tiny, memories={**tiny.memories, "qspi": tiny.memories["flash"]})
    outside = replace(one, setting=replace(one.setting, board=both, weights="qspi"))
    assert outside.misfits() == [f"needs {ram} bytes of RAM, nrf52840 has 2000"]


def test_saturation_is_counted(digits_int8, digits_utterances):
    counters = SaturationCounters()
    for enc in digits_utterances:
        rnnt_greedy(digits_int8, enc, counters=counters)
    assert cost(digits_int8, digits_utterances, setting()).saturation == counters.as_dict()


def test_utterances_of_no_frames(digits_int8):
    nothing = np.zeros((0, 128), np.float32)
    one = cost(digits_int8, [nothing, np.zeros((2, 128), np.float32)], setting())
    assert one.lengths == [0, 2]
    with pytest.raises(ValueError, match="0 encoder frames, wanted at least 1"):
        cost(digits_int8, [nothing], setting())
    with pytest.raises(ValueError, match=r"utterance 1: encoder frame 0 holds nan"):
        cost(digits_int8, [nothing, np.full((1, 128), np.nan, np.float32)], setting())


# descriptions


@pytest.mark.parametrize("name", CORES)
def test_core_descriptions_say_where_figures_come_from(name):
    core = load_core(name)
    assert core.name == name
    assert load_board(core.board).core == name
    assert sum(core.mix.values()) == pytest.approx(1, abs=0.001)
    each = cycles_per_instruction(core)
    assert 0.5 < each.low <= each.high < 4
    for figure in (*core.timing.values(), core.below, core.above, core.code_bytes, core.stack_bytes):
        assert len(figure.source) > 5
    assert "tests.benchmarks.cores" in core.instructions_source


@pytest.mark.parametrize("name", BOARDS)
def test_board_descriptions(name):
    board = load_board(name)
    assert board.name == name
    assert board.core in CORES
    assert "sram" in board.memories
    for figure in (
        board.microamps_per_mhz,
        board.volts,
        *(m.wait_cycles for m in board.memories.values()),
    ):
        assert len(figure.source) > 5


def text_of(name, folder="cores"):
    return (resources.files("pkrnnt.device") / folder / f"{name}.toml").read_text()


def test_descriptions_of_ones_own(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(text_of("cortex-m4").replace('name = "cortex-m4"', 'name = "mine"'))
    assert load_core(path).name == "mine"
    path.write_text(text_of("nrf52840", "boards").replace("clock_mhz = 64", "clock_mhz = 32.5"))
    assert load_board(str(path)).clock_mhz == 32.5


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("name = ", "nome = ", r"name is None, wanted str"),
        ('kernels = "dsp"', 'kernels = "fpu"', r"kernels is 'fpu', wanted one of"),
        ("[emulator]", "speed = 3\n[emulator]", r"unknown entries \['speed'\]"),
        ("flash_bytes = 0x400000", "flash_bytes = true", r"emulator: flash_bytes is True, wanted int"),
        ("token = ", "tokens = ", r"instructions: token is None, wanted float"),
        ("token = ", "token = -", r"instructions: token is -[\d.]+, wanted at least 0, below 2\^40"),
        ("token = ", "token = nan # ", r"instructions: token is nan, wanted at least 0, below 2\^40"),
        (
            "low = 1, high = 4",
            "low = 5, high = 4",
            r"timing: branch: low is 5 and high 4, wanted low <= high",
        ),
        ("other = 0.", "other = 1.", r"shares of mix add up to 2"),
        ("assumption = ", "guess = ", r"timing: \w+: source is None, wanted str"),
        (
            'low = 1, high = 2.2, source = "',
            'low = 1, high = 2.2, source = "" } # "',
            r"load: the source is empty",
        ),
        ('"-mcpu=cortex-m4"', '"-o /etc/x"', r"compiler_flags is .*wanted flags that start with -m"),
        ("[mix]", "[mix", r"not a TOML file"),
        ("[timing]", "[[timing]]", r"timing is \[.*wanted a table"),
        ("clock_hz = 25_000_000", "clock_hz = 0", r"emulator: clock_hz is 0, wanted at least 1"),
        ("clock_hz = 25_000_000", "clock_hz = 1" + 400 * "0", r"emulator: clock_hz is 1"),
        ("clock_hz = 25_000_000", "clock_hz = 1" + 5000 * "0", r"not a TOML file: Exceeds the limit"),
    ],
)
def test_bad_core_descriptions_are_refused(tmp_path, old, new, message):
    path = tmp_path / "bad.toml"
    text = text_of("cortex-m4")
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(ValueError, match=message) as error:
        load_core(path)
    assert "bad.toml" in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "line_bytes = 4",
            "line_bytes = 0",
            r"memory: flash: line_bytes is 0, wanted at least 1, below",
        ),
        ("clock_mhz = 64", 'clock_mhz = "64"', r"clock_mhz is '64', wanted float"),
        ("[energy]", "[energie]", r"energy is None, wanted a table"),
        ("lines_held = 1", "lines_held = 0", r"memory: flash: lines_held is 0, wanted at least 1"),
    ],
)
def test_bad_board_descriptions_are_refused(tmp_path, old, new, message):
    path = tmp_path / "bad.toml"
    text = text_of("nrf52840", "boards")
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(ValueError, match=message):
        load_board(path)


def test_a_board_without_memory_and_a_core_without_cycles(tmp_path):
    path = tmp_path / "bad.toml"
    text = re.sub(r"\[memory\.\w+\]\n(.+\n)+", "", text_of("nrf52840", "boards"))
    path.write_text(text + "\n[memory]\n")
    with pytest.raises(ValueError, match=r"memory is empty, wanted at least one memory"):
        load_board(path)
    head, timing = text_of("cortex-m4").split("[timing]")
    path.write_text(
        head + "[timing]" + re.sub(r"(value|low) = [\d.]+(, high = [\d.]+)?", "value = 0", timing)
    )
    with pytest.raises(ValueError, match=r"the instructions of mix take 0 cycles, wanted more"):
        load_core(path)


def test_settings_that_cannot_be(tmp_path):
    with pytest.raises(ValueError, match=r"core is 'cortex-m99', wanted one of \['cortex-m0plus'"):
        load_core("cortex-m99")
    with pytest.raises(ValueError, match=r"board is 'arduino', wanted one of"):
        load_board("arduino")
    with pytest.raises(ValueError, match="board nrf52840 has a cortex-m4, wanted one with a cortex-m55"):
        setting("cortex-m55", "nrf52840")
    with pytest.raises(ValueError, match="clock_mhz is 65, wanted at most the 64 of nrf52840"):
        setting(clock=65.0)
    with pytest.raises(FileNotFoundError, match=r"none\.toml"):
        load_core(tmp_path / "none.toml")
    with pytest.raises(
        ValueError, match=r"'qspi', wanted one of the memories \['flash', 'sram'\] of nrf52840"
    ):
        setting(weights="qspi")
    for wrong in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match=r"clock_mhz is .*, wanted a finite number above 0"):
            setting(clock=wrong)


# stack depth


def graph(**calls):
    """A .ci file: function -> (bytes, callees)."""
    lines = []
    for name, (size, callees) in calls.items():
        lines.append(f'node: {{ title: "{name}" label: "{name}\\nf.c:1:1\\n{size} bytes (static)" }}')
        lines += [
            f'edge: {{ sourcename: "{name}" targetname: "{callee}" label: "x" }}' for callee in callees
        ]
    return "\n".join(lines)


def test_stack_is_that_of_the_deepest_chain():
    text = [
        graph(main=(10, ["a", "b"]), a=(100, ["c"])),
        graph(b=(50, ["c", "__aeabi_lmul"]), c=(7, [])),
    ]
    assert toolchain.stack_depth(text, "main") == 10 + 50 + toolchain.LIBRARY_STACK
    assert toolchain.stack_depth([text[0].replace("100", "160"), text[1]], "main") == 10 + 160 + 7
    with pytest.raises(toolchain.ToolchainError, match="c calls itself"):
        toolchain.stack_depth([graph(main=(10, ["c"]), c=(7, ["c"]))], "main")
    with pytest.raises(toolchain.ToolchainError, match="stack of main is dynamic, wanted static"):
        toolchain.stack_depth([graph(main=(10, [])).replace("static", "dynamic")], "main")


@pytest.mark.parametrize(
    ("tool", "package"),
    [("arm-none-eabi-gcc", "gcc-arm-none-eabi"), ("qemu-system-arm", "qemu-system-arm"), ("cc", "gcc")],
)
def test_a_missing_tool_names_its_package(monkeypatch, tmp_path, tool, package):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        toolchain.ToolchainError, match=re.escape(f"{tool} not found; on Debian: apt-get")
    ):
        toolchain.find(tool)
    with pytest.raises(toolchain.ToolchainError, match=f" {package}$"):
        toolchain.find(tool)
    with pytest.raises(toolchain.ToolchainError, match=r"gcc-arm-none-eabi qemu-system-arm$"):
        toolchain.find("arm-none-eabi-gcc", "qemu-system-arm")
