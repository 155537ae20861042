"""The exported C on emulated cores: the same bytes, and as many instructions as the cost model says."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mcu import CORES, need_mcu
from models import quantized, random_enc, random_float_model

from pkrnnt.dataset import Utterances
from pkrnnt.device import toolchain
from pkrnnt.device.cores import load_board, load_core
from pkrnnt.device.export import c_sources
from pkrnnt.device.probe import Device, differences
from pkrnnt.device.shape import Shape
from pkrnnt.device.simulation import Setting, decode, simulate
from pkrnnt.device.verify import emulate
from quant import load_checkpoint, observe, quantize_model
from quant.ranges import range_method

FIXTURES = Path(__file__).parent / "fixtures"

# Instructions a multiply-accumulate over the whole decode that each kind of kernels may take.
MOST_INSTRUCTIONS = {"scalar": 5.3, "dsp": 2.1, "mve": 0.40}
EXCEPTION_FRAME = 104  # bytes that SysTick may push onto the stack that is measured, with FPU registers
HARNESS_FRAME = 32


def setting(core, gate_table=True):
    return Setting(load_core(core), load_board(load_core(core).board), 60, "sram", gate_table, 0.04)


@pytest.mark.parametrize("gate_table", [True, False])
@pytest.mark.parametrize("core", CORES)
def test_digit_strings_decode_to_the_same_bytes(core, gate_table, digits_int8, digits_utterances):
    """24 strings; every token, frame, confidence, h and c, and the instructions within 5 %."""
    need_mcu()
    assert len(digits_utterances) >= 20
    found = emulate(digits_int8, gate_table, Utterances(digits_utterances), load_core(core))
    assert found.differences == []
    assert found.tokens > 400
    predicted = simulate(digits_int8, decode(digits_int8, digits_utterances), setting(core, gate_table))
    assert predicted.instructions.sum() == pytest.approx(found.instructions, rel=0.05)
    macs = predicted.work["macs"].sum()
    assert found.instructions / macs <= MOST_INSTRUCTIONS[load_core(core).kernels]


@pytest.mark.parametrize("core", CORES)
def test_other_models_cost_what_is_predicted(tmp_path, core):
    """Sizes that leave every remainder, other activations and depths; small frames within 10 %."""
    need_mcu()
    cases = [
        (40, "tanh", {"hidden": 37, "joint": 50, "enc": 61, "vocab": 33, "embed": 21, "layers": 2}),
        (41, "sigmoid", {"hidden": 64, "joint": 19, "enc": 130, "vocab": 5, "embed": 64, "layers": 1}),
        (42, "relu", {"hidden": 21, "joint": 97, "enc": 40, "vocab": 70, "embed": 30, "layers": 3}),
    ]
    for seed, activation, sizes in cases:
        model = quantized(random_float_model(seed, activation, **sizes))
        enc = random_enc(model, 30, seed) * 1.5
        for gate_table in (True, False):
            folder = tmp_path / f"{seed}{gate_table}"
            folder.mkdir()
            device = Device(
                folder, c_sources(model, gate_table=gate_table), model.config, load_core(core)
            )
            [found] = device.decode([model.joint.quantize_enc(enc)])
            assert differences(model, enc, found) == []
            predicted = simulate(model, decode(model, [enc]), setting(core, gate_table)).instructions
            assert predicted.sum() == pytest.approx(found.instructions.sum(), rel=0.05)
            np.testing.assert_allclose(predicted, found.instructions, rtol=0.10)
            [again] = device.decode([model.joint.quantize_enc(enc)], frames_a_call=8)
            assert differences(model, enc, again) == []


@pytest.mark.parametrize("name", ["bpe", "hybrid"])
@pytest.mark.parametrize("core", CORES)
def test_checkpoints_of_nemo_decode_to_the_same_bytes(core, name):
    """From the .nemo file to the core: a tanh joint over word pieces, and two LSTM layers."""
    need_mcu()
    float_model = load_checkpoint(FIXTURES / f"{name}.nemo")
    with np.load(FIXTURES / f"{name}_expected.npz") as data:
        frames = Utterances([data["enc"]])
    observed = observe(float_model, frames, range_method("minmax"))
    model = quantize_model(float_model, observed.ranges, moments=observed.moments)
    for gate_table in (True, False):
        found = emulate(model, gate_table, frames, load_core(core))
        assert found.differences == []
        assert found.tokens >= 29
        predicted = simulate(model, decode(model, frames), setting(core, gate_table)).instructions.sum()
        assert predicted == pytest.approx(found.instructions, rel=0.05)


@pytest.mark.parametrize("core", CORES)
def test_code_and_stack_are_what_the_description_says(tmp_path, core, digits_int8, digits_utterances):
    need_mcu()
    described = load_core(core)
    device = Device(tmp_path, c_sources(digits_int8), digits_int8.config, described)
    code, stack = toolchain.footprint(device.program)
    assert code == pytest.approx(described.code_bytes.high, rel=0.05)
    assert stack == pytest.approx(described.stack_bytes.high, rel=0.05)
    [found] = device.decode([digits_int8.joint.quantize_enc(digits_utterances[0])])
    assert stack / 2 < found.stack_bytes <= stack + EXCEPTION_FRAME + HARNESS_FRAME


def test_instructions_repeat_exactly(tmp_path, digits_int8, digits_utterances):
    need_mcu()
    device = Device(tmp_path, c_sources(digits_int8), digits_int8.config, load_core("cortex-m4"))
    enc = [digits_int8.joint.quantize_enc(digits_utterances[0])]
    first, second = (device.decode(enc)[0].instructions for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_the_clock_counts_instructions(tmp_path):
    """A loop of a known number of instructions around SysTick, longer than one of its wraps."""
    need_mcu()
    core = load_core("cortex-m4")
    around = toolchain.harness()
    files = {name: around[name] for name in ("harness.h", "cortex_m.c")}
    files["loop.c"] = """
#include "harness.h"
int harness(void)
{
    uint32_t n = 20000000u;
    uint64_t ticks = harness_ticks();
    __asm__ volatile("0: subs %0, #1\\n bne 0b" : "+r"(n) : : "cc");
    ticks = harness_ticks() - ticks;
    harness_open();
    harness_write(&ticks, sizeof ticks);
    return 0;
}
"""
    program = toolchain.build_core(tmp_path, files, core)
    (tmp_path / "input.bin").write_bytes(b"")
    toolchain.run_core(program, core)
    [ticks] = np.frombuffer((tmp_path / "output.bin").read_bytes(), "<u8")
    counted = float(ticks) * 1e9 / core.emulator.clock_hz / toolchain.NANOSECONDS_PER_INSTRUCTION
    assert counted == pytest.approx(40_000_000, abs=150)


def test_a_large_model_has_a_memory_of_its_own(tmp_path):
    """More than the 512 kB of flash that the M55's board has."""
    need_mcu()
    model = quantized(random_float_model(1, hidden=260, joint=100, enc=40, vocab=20))
    enc = random_enc(model, 4)
    core = load_core("cortex-m55")
    assert Shape.of(model, False).stored_bytes > core.emulator.flash_bytes
    device = Device(tmp_path, c_sources(model, gate_table=False), model.config, core)
    [found] = device.decode([model.joint.quantize_enc(enc)])
    assert differences(model, enc, found) == []
    predicted = simulate(model, decode(model, [enc]), setting("cortex-m55", False)).instructions.sum()
    assert predicted == pytest.approx(found.instructions.sum(), rel=0.05)


def test_a_model_that_does_not_fit_is_refused(tmp_path, digits_int8):
    need_mcu()
    core = load_core("cortex-m4")
    small = replace(core, emulator=replace(core.emulator, model_bytes=80_000))
    with pytest.raises(
        toolchain.ToolchainError,
        match=r"needs \d+ bytes of MODEL memory on cortex-m4, wanted at most the 80000 of .* mps2-an386",
    ):
        Device(tmp_path, c_sources(digits_int8), digits_int8.config, small)


def test_a_program_that_fails_is_no_result(tmp_path, digits_int8):
    """A fault on the core ends the run with its status."""
    need_mcu()
    sources = c_sources(digits_int8)
    broken = sources["pkrnnt_decoder.c"].replace(
        "    int32_t found = 0;\n", '    int32_t found = 0;\n    __asm__ volatile("udf #0");\n'
    )
    core = load_core("cortex-m4")
    device = Device(tmp_path, {**sources, "pkrnnt_decoder.c": broken}, digits_int8.config, core)
    enc = np.zeros((2, digits_int8.config.enc_hidden), np.int8)
    with pytest.raises(toolchain.ToolchainError, match="mps2-an386 failed with status 99"):
        device.decode([enc])
