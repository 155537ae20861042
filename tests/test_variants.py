"""Every kernel variant this processor has gives the same bytes, with every exact short cut on or off."""

import platform
import re
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import one_hot, quantized, random_enc, random_float_model, script_model, snapshot

import pkrnnt
from pkrnnt import SaturationCounters, greedy, kernels, rnnt_decode_frames, rnnt_decode_init

KERNELS = Path(pkrnnt.__file__).parent / "kernels"


def decode(model, chunks, max_symbols=None):
    """(state snapshot, saturation counts) of a stream in chunks."""
    state, counters = rnnt_decode_init(model), SaturationCounters()
    for chunk in chunks:
        rnnt_decode_frames(model, chunk, state, max_symbols, counters)
    return snapshot(state), counters.as_dict()


def plain_decode(model, enc, max_symbols):
    """The same by the plain loop of greedy.py over the int8 networks."""
    state = rnnt_decode_init(model)
    greedy.decode_frames(model.prediction, model.joint, model.config.blank_id, enc, state, max_symbols)
    return snapshot(state)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    activation=st.sampled_from(["relu", "tanh", "sigmoid"]),
    layers=st.integers(1, 2),
    sizes=st.tuples(st.integers(1, 70), st.integers(1, 70), st.integers(1, 40), st.integers(1, 40)),
    frames=st.integers(1, 80),
    cuts=st.lists(st.integers(0, 80), max_size=5),
    max_symbols=st.integers(1, 3),
    gain=st.sampled_from([0.5, 1.5, 4.0]),
)
def test_every_variant_and_short_cut_equals_the_plain_loop(
    seed, activation, layers, sizes, frames, cuts, max_symbols, gain
):
    vocab, joint, enc_width, hidden = sizes
    base = quantized(
        random_float_model(
            seed, activation, layers=layers, vocab=vocab, joint=joint, enc=enc_width,
            hidden=hidden, gain=gain,
        )
    )  # fmt: skip
    enc = random_enc(base, frames, seed) * 1.5
    bounds = [0, *sorted(min(cut, frames) for cut in cuts), frames]
    chunks = [enc[a:b] for a, b in pairwise(bounds)]
    plain = base.configured(kernels="baseline", gate_table=False)
    wanted, counts = decode(plain, [enc], max_symbols)
    assert wanted == plain_decode(plain, enc, max_symbols)
    for name in kernels.available():
        for gate_table in (False, True):
            model = base.configured(kernels=name, gate_table=gate_table)
            assert decode(model, [enc], max_symbols) == (wanted, counts)
            assert decode(model, chunks, max_symbols)[0] == wanted
            assert plain_decode(model, enc, max_symbols) == wanted


@pytest.mark.parametrize("name", kernels.available())
def test_every_variant_equals_the_oracle(sigmoid_table, name):
    for seed, activation in ((20, "relu"), (12, "tanh"), (26, "sigmoid")):
        model = quantized(random_float_model(seed, activation, embed=3)).configured(kernels=name)
        enc = random_enc(model, 25)
        (arrays, _, _, tokens, frames, confidence, *_), _ = decode(model, [enc], 3)
        wanted = oracle.greedy(
            oracle.plain_model(model), model.joint.quantize_enc(enc).tolist(), 6, 3, sigmoid_table
        )
        assert (tokens, frames) == wanted[:2]
        assert [value * 32768 for value in confidence] == wanted[2]
        assert arrays[0] == np.array(wanted[3], np.int8).tobytes()
        assert arrays[1] == np.array(wanted[4], np.int16).tobytes()


@pytest.mark.parametrize("name", kernels.available())
def test_every_variant_decodes_digits_alike(digits_int8, digits_utterances, name):
    baseline = digits_int8.configured(kernels="baseline", gate_table=False)
    model = digits_int8.configured(kernels=name)
    for enc in digits_utterances:
        assert decode(model, [enc]) == decode(baseline, [enc])


@pytest.mark.parametrize("distance", [0, 1, 2, 3, 4, 5, 7, 31, 32, 33])
def test_tokens_at_every_place_of_a_window(distance):
    """Tokens ``distance`` blanks apart, so that they fall on every place of windows and blocks."""
    rules = {(1, -1): 0, **{(1, last): (last + 1) % 3 for last in range(3)}}
    model = quantized(script_model(rules, 2, 3, max_symbols=1), one_hot([0, 1], 2))
    kinds = ([0] * distance + [1]) * (200 // (distance + 1))
    enc = one_hot(kinds, 2)
    for name in kernels.available():
        state = rnnt_decode_init(model.configured(kernels=name))
        rnnt_decode_frames(model, enc, state)
        assert state.hyp.frames == np.flatnonzero(kinds).tolist()
        assert state.hyp.tokens == [i % 3 for i in range(sum(kinds))]


def test_gate_table_size_and_option(tmp_path):
    model = quantized(random_float_model(3, layers=2))
    rows, gates = model.config.vocab_size + 2, 4 * model.config.pred_hidden  # a start, and blank
    assert model.prediction.gate_table_bytes == rows * (gates * 2 + 4)
    assert model.configured(gate_table=False).prediction.gate_table_bytes == 0
    pkrnnt.save(model, tmp_path / "m.safetensors")
    assert pkrnnt.load(tmp_path / "m.safetensors").prediction.gate_table_bytes > 0
    without = pkrnnt.load(tmp_path / "m.safetensors", gate_table=False)
    assert without.prediction.gate_table_bytes == 0
    assert without.digest == model.digest


def test_configuration_survives_nothing_but_results():
    model = quantized(random_float_model(3))
    with pytest.raises(ValueError, match="kernel variant is 'sve9'"):
        model.configured(kernels="sve9")
    for name in kernels.available():
        assert model.configured(kernels=name).digest == model.digest


# What is in the built objects


INSTRUCTIONS = {
    "baseline": r"\bv?pmaddwd\b",
    "avx2": r"\bvpmaddwd\b",
    "avxvnni": r"\bvpdpbusd\b",
    "avx512vnni": r"\bvpdpbusd\b.*%zmm",
    "neon_dotprod": r"\bsdot\b",
}
ON_X86 = platform.machine().lower() in ("x86_64", "amd64")


def built():
    """Every built extension of the package: {module stem: path}."""
    root = KERNELS.parent
    return {path.name.split(".")[0]: path for path in [*root.glob("*.so"), *KERNELS.glob("*.so")]}


def disassembly(path):
    objdump = shutil.which("objdump")
    if objdump is None:
        pytest.skip("objdump (Debian package binutils) is not installed")
    return subprocess.run(
        [objdump, "-d", "--no-show-raw-insn", str(path)], capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_the_expected_instruction_is_in_the_object(name):
    if name == "baseline" and not ON_X86:
        pytest.skip("pmaddwd is an x86 instruction")
    if name not in built():
        assert name not in kernels.available()
        pytest.skip(f"{name} was not built for this machine")
    assert re.search(INSTRUCTIONS[name], disassembly(built()[name]))


def test_no_wide_instruction_outside_a_dispatched_variant():
    if not ON_X86:
        pytest.skip("looks for x86 registers")
    plain = set(built()) - (set(INSTRUCTIONS) - {"baseline"})
    assert plain >= {"baseline", "decoder", "dispatch", "frames", "joint", "linear", "prediction"}
    for name in plain:
        assert not re.search(r"%[yz]mm", disassembly(built()[name])), name
