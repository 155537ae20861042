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
from pkrnnt import (
    SaturationCounters,
    decoder,
    fixed_point,
    greedy,
    kernels,
    rnnt_decode_frames,
    rnnt_decode_init,
)
from pkrnnt.kernels import vectors
from quant.quantize import quantize_multiplier

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
        for window in (1, 2, 3):
            state = rnnt_decode_init(model)
            decoder.decode_frames(
                model.prediction,
                model.joint,
                model.config.blank_id,
                enc,
                state,
                max_symbols,
                None,
                window,
            )
            assert snapshot(state) == wanted


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
        variant = model.configured(kernels=name)
        state = rnnt_decode_init(variant)
        rnnt_decode_frames(variant, enc, state)
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


# The vector functions, value by value


EXTREMES = np.array(
    [-(2**31), -(2**31) + 1, -(2**30), -65536, -1, 0, 1, 2, 65535, 2**30, 2**31 - 2, 2**31 - 1]
)


@pytest.fixture(params=kernels.available())
def name(request):
    return request.param


def test_requantize_at_its_extremes(name):
    rng = np.random.default_rng(1)
    rows = []
    for shift in range(-31, 32):
        limit = 2**31 >> max(shift, 0)
        values = np.concatenate([EXTREMES, rng.integers(-limit, limit, 40)])
        values = values[(values >= -limit) & (values < limit)]
        for multiplier in (0, 2**30, 2**30 + 1, 1583594044, 2**31 - 1):
            rows += [(int(v), multiplier, shift) for v in values]
    values, multiplier, shift = (np.array(column) for column in zip(*rows, strict=True))
    wanted = [oracle.requantize(*row) for row in rows]
    arrays = values.astype(np.int32), multiplier.astype(np.int32), shift.astype(np.int8)
    assert vectors.requantize(*arrays, name).tolist() == wanted
    for n in range(1, 36):
        short = [array[-n:].copy() for array in arrays]
        assert vectors.requantize(*short, name).tolist() == wanted[-n:]


def test_argmax_takes_the_first_of_every_tie(name):
    rng = np.random.default_rng(2)
    for n in range(1, 70):
        for _ in range(6):
            values = rng.choice([-(2**31), -5, 7, 2**31 - 1], n).astype(np.int32)
            assert vectors.argmax(values, name) == values.tolist().index(values.max())


@pytest.mark.parametrize("scale", [2.0**-24, 1e-4, 0.02, 15.0])
def test_exp_sum_at_its_extremes(name, scale):
    multiplier, shift = quantize_multiplier(min(scale * 2**26, 2**31 - 1))
    softmax = multiplier, shift, -((31 * 2**26) >> shift)
    rng = np.random.default_rng(3)
    for n in (1, 2, 15, 16, 17, 33, 200):
        for values in (
            rng.choice(EXTREMES, n),
            rng.integers(-(2**31), 2**31, n),
            rng.integers(-4000, 4000, n),
            np.full(n, -(2**31)),
            2**31 - 1 + rng.integers(softmax[2] - 3, 1, n),
        ):
            top = int(values.max())
            wanted = sum(
                oracle.dpot(oracle.exp_negative(oracle.dhm((int(v) - top) << shift, multiplier)), 12)
                for v in values
                if v - top >= softmax[2]
            )
            assert vectors.exp_sum(values.astype(np.int32), softmax, name) == wanted


@pytest.mark.parametrize("function", ["relu", "sigmoid", "tanh"])
def test_activation_of_a_sum_on_every_input(name, function, sigmoid_table):
    a = np.arange(-32768, 32768).astype(np.int16)
    zeros = np.zeros_like(a)
    for left_shift in range(-4, 5) if function != "relu" else (0,):
        pair, zero_point = (1518500250, -7), (-128 if function != "tanh" else 3)
        out, sums, outs = vectors.add_activate(a, zeros, function, left_shift, pair, zero_point, name)
        if function == "relu":
            values = np.maximum(a, 0)
        else:
            values = fixed_point.activation(a, left_shift, function)
        wide = fixed_point.requantize(values.astype(np.int32), *pair) + zero_point
        np.testing.assert_array_equal(out, np.clip(wide, -128, 127))
        assert (sums, outs) == (0, int(((wide < -128) | (wide > 127)).sum()))
    rng = np.random.default_rng(4)
    for n in (1, 15, 16, 17, 100):
        x, y = rng.choice([-32768, -20000, -1, 0, 5, 32767], (2, n))
        total = np.clip(x + y, -32768, 32767)
        values = [
            max(int(v), 0)
            if function == "relu"
            else oracle.activation(int(v), 1, function, sigmoid_table)
            for v in total
        ]
        wide = [oracle.requantize(v, 2**30, -6) - 9 for v in values]
        out, sums, outs = vectors.add_activate(
            x.astype(np.int16), y.astype(np.int16), function, 1, (2**30, -6), -9, name
        )
        assert out.tolist() == [oracle.sat8(v) for v in wide]
        assert (sums, outs) == (int((total != x + y).sum()), sum(oracle.sat8(v) != v for v in wide))


@pytest.mark.parametrize("power", [-16, -12, -8])
@pytest.mark.parametrize("clip", [0, 1000])
def test_lstm_cell_at_its_extremes(name, power, clip, sigmoid_table):
    scalars = {
        "hidden_zero_point": -3, "cell_scale_power": power, "cell_clip": clip,
        "forget_to_cell": (2**30, -14), "input_to_cell": (2**30, -29 - power),
        "output": (1998244353, -22),
    }  # fmt: skip
    rng = np.random.default_rng(-power)
    for n in (1, 15, 16, 17, 50):
        gates = rng.choice([-32768, -32767, -9000, -1, 0, 1, 9000, 32767], 4 * n)
        to_add = rng.choice([-(2**31) + 2**16, -40000, -500, 0, 500, 40000, 2**31 - 2**16 - 1], 4 * n)
        c = rng.choice([-32768, -5, 0, 5, 32767], n)
        h, c_new, saturated = vectors.lstm_cell(
            gates.astype(np.int16), to_add, c.astype(np.int16), scalars, name
        )
        pre = [oracle.sat16(int(g) + int(a)) for g, a in zip(gates, to_add, strict=True)]
        counts = [sum(p != g + a for p, g, a in zip(pre, gates, to_add, strict=True)), 0, 0]
        for j in range(n):
            i, f, g, o = (
                oracle.activation(
                    pre[gate * n + j], 0, "tanh" if gate == 2 else "sigmoid", sigmoid_table
                )
                for gate in range(4)
            )
            carried = oracle.sat16(oracle.requantize(f * int(c[j]), 2**30, -14))
            cell = oracle.requantize(i * g, *scalars["input_to_cell"]) + carried
            limit = (-clip, clip) if clip else (-32768, 32767)
            clipped = oracle.clamp(cell, *limit)
            squashed = oracle.activation(clipped, power + 12, "tanh", sigmoid_table)
            hidden = oracle.requantize(o * squashed, *scalars["output"]) - 3
            assert (c_new[j], h[j]) == (clipped, oracle.sat8(hidden))
            counts[1] += clipped != cell
            counts[2] += oracle.sat8(hidden) != hidden
        assert list(saturated) == counts


def test_vectors_of_other_lengths_are_refused(name):
    one, two = np.zeros(1, np.int32), np.zeros(2, np.int32)
    with pytest.raises(ValueError, match="different lengths"):
        vectors.requantize(one, two, np.zeros(1, np.int8), name)
    with pytest.raises(ValueError, match="different lengths"):
        vectors.add_activate(one.astype(np.int16), two.astype(np.int16), "relu", 0, (2**30, 0), 0, name)
    with pytest.raises(ValueError, match="other lengths"):
        vectors.lstm_cell(one.astype(np.int16), one, one.astype(np.int16), {}, name)
    for call in (vectors.argmax, lambda v, k: vectors.exp_sum(v, (2**30, 1, 0), k)):
        with pytest.raises(ValueError, match="wanted at least 1"):
            call(one[:0], name)


# What is in the built objects


INSTRUCTIONS = {
    "baseline": r"\bv?pmaddwd\b",
    "avx2": r"\bvpmaddwd\b",
    "avxvnni": r"\bvpdpbusd\b",
    "avx512vnni": r"\bvpdpbusd\b.*%zmm",
    "neon_dotprod": r"\bsdot\b",
}
ON_X86 = platform.machine().lower() in ("x86_64", "amd64")


# Any AVX encoding, SSE3 to SSE4.2, and the bit-manipulation sets: none of them is in x86-64-v1.
BEYOND_V1 = re.compile(
    r"%[yz]mm|\tv[a-z0-9]+ .*%xmm|\t(p(min|max)(s[bd]|u[wd])|pmulld|pmovsx\w+|pmovzx\w+|blendv?p[sd]|"
    r"pblend\w+|round[sp][sd]|pextr[bdq]|pinsr[bdq]|ptest|pshufb|palignr|pabs[bwd]|ph(add|sub)\w+|"
    r"pmaddubsw|pmulhrsw|psign\w|lddqu|movddup|movs[hl]dup|h(add|sub)p[sd]|crc32\w*|popcnt|lzcnt|tzcnt|"
    r"andn|bextr|bls\w+|bzhi|mulx|pdep|pext|rorx|sarx|shlx|shrx) "
)


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
        found = BEYOND_V1.search(disassembly(built()[name]))
        assert not found, f"{name}: {found}"
