"""The integer primitives against Arm CMSIS-NN's real outputs and against plain Python integers."""

import numpy as np
import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tally import agree

from pkrnnt import fixed_point

INT32 = st.integers(-(2**31), 2**31 - 1)
MULTIPLIER = st.one_of(st.just(0), st.integers(2**30, 2**31 - 1))


def test_requantize_grid_equals_cmsis_nn(golden):
    with np.load(golden / "cmsis_nn/requantize_grid.npz") as z:
        legal = z["lshift_fits"]  # elsewhere C wraps, and the loader refuses such models
        out = fixed_point.requantize(z["val"], z["mult"], z["shift"])
        assert legal.sum() > 5000
        agree(golden, "requantize", "arm_nn_requantize", out[legal], z["out_double"][legal])


@pytest.mark.parametrize("kind", ["rand", "tie"])
def test_requantize_random_equals_cmsis_nn(golden, kind):
    with np.load(golden / "cmsis_nn/requantize_random.npz") as z:
        out = fixed_point.requantize(z[f"{kind}_val"], z[f"{kind}_mult"], z[f"{kind}_shift"])
        agree(golden, "requantize", "arm_nn_requantize", out, z[f"{kind}_out_double"])


def test_e01_double_rounding():
    assert fixed_point.requantize(7984, 1583594044, -9) == 12


def test_e01_million_random_requantizations_equal_the_oracle():
    rng = np.random.default_rng(1)
    shift = rng.integers(-31, 31, 1_000_000)
    limit = (2**31 - 1) >> np.maximum(shift, 0)
    value = (rng.uniform(-1, 1, len(shift)) * limit).astype(np.int64)
    multiplier = rng.integers(2**30, 2**31, len(shift))
    # The oracle's formulas on int64 arrays, where nothing can wrap: |value << shift| < 2^31.
    high = ((value << np.maximum(shift, 0)) * multiplier + 2**30) >> 31
    right = np.maximum(-shift, 0)
    mask = (1 << right) - 1
    wanted = (high >> right) + ((high & mask) > (mask >> 1) + (high < 0))
    np.testing.assert_array_equal(fixed_point.requantize(value, multiplier, shift), wanted)


@given(INT32, MULTIPLIER, st.integers(-31, 30))
def test_requantize_equals_the_oracle(value, multiplier, shift):
    value >>= max(shift, 0)
    wanted = oracle.requantize(value, multiplier, shift)
    assert fixed_point.requantize(value, multiplier, shift) == wanted


@given(INT32, st.integers(0, 31))
def test_e03_rounding_divide_is_arithmetic_and_nearly_odd(value, exponent):
    assert fixed_point.rounding_divide(value, exponent) == oracle.dpot(value, exponent)
    if value > -(2**31):
        both = fixed_point.rounding_divide([value, -value], exponent)
        assert abs(int(both.sum())) <= 1


def test_e03_negative_product():
    assert fixed_point.rounding_divide(-24576 * 1, 2) == -6144


def test_high_mult_and_divide_equal_cmsis_nn(golden):
    with np.load(golden / "cmsis_nn/doubling_high_mult_divide_by_pot.npz") as z:
        operation, reference = "dhm", "arm_nn_doubling_high_mult_no_sat"
        out = fixed_point.high_mult(z["dhm_a"], z["dhm_b"])
        agree(golden, operation, reference, out, z["dhm_nosat_out"])
        out = fixed_point.high_mult(z["dhm_tie_a"], z["dhm_tie_b"])
        agree(golden, operation, reference, out, z["dhm_tie_out"])
        for kind in ("dpot", "dpot_tie"):
            out = fixed_point.rounding_divide(z[f"{kind}_x"], z[f"{kind}_exp"])
            agree(golden, "dpot", "arm_nn_divide_by_power_of_two", out, z[f"{kind}_out"])


@pytest.mark.parametrize("kind", ["sigmoid", "tanh"])
@pytest.mark.parametrize("part", ["m4_m1", "0_p4"])
def test_activation_equals_cmsis_nn_on_every_input(golden, kind, part):
    x = np.arange(-32768, 32768)
    with np.load(golden / f"cmsis_nn/activation_{kind}_s16_ls_{part}.npz") as z:
        for left_shift, wanted in zip(z["left_shift"], z["out"], strict=True):
            out = fixed_point.activation(x, int(left_shift), kind)
            agree(golden, f"activation, {kind}", "arm_nn_activation_s16", out, wanted, str(left_shift))


@given(st.integers(-32768, 32767), st.integers(-4, 4), st.sampled_from(["sigmoid", "tanh"]))
def test_activation_equals_the_oracle(sigmoid_table, x, left_shift, kind):
    wanted = oracle.activation(x, left_shift, kind, sigmoid_table)
    assert fixed_point.activation(x, left_shift, kind) == wanted


@pytest.mark.parametrize(("kind", "bound", "skew"), [("sigmoid", 1.3, 1), ("tanh", 2.5, 3)])
def test_e12_activation_error_order_and_symmetry(kind, bound, skew):
    """The bounds docs/fixed_point.md states, on every input and left shift."""
    x = np.arange(-32768, 32768)
    exact = {"sigmoid": lambda v: 1 / (1 + np.exp(-v)), "tanh": np.tanh}[kind]
    lowest = 0 if kind == "sigmoid" else -32768
    for left_shift in range(-4, 5):
        out = fixed_point.activation(x, left_shift, kind).astype(int)
        assert np.abs(out - exact(x * 2.0 ** (left_shift - 12)) * 32768).max() <= bound
        assert (np.diff(out) >= 0).all()
        mirrored = fixed_point.activation(-x[1:], left_shift, kind).astype(int)
        off = out[1:] + mirrored - (32768 if kind == "sigmoid" else 0)
        # Exactly odd, but where a negative left shift rounds the input.
        assert (off.min(), off.max()) == (0, 0 if left_shift >= 0 else skew)
        if left_shift >= 1:  # +-16 and beyond: both ends are reached
            assert lowest <= out[0] <= lowest + 1
            assert out[-1] == 32767


def test_exp_and_reciprocal_equal_cmsis_nn(golden):
    with np.load(golden / "cmsis_nn/softmax_primitives.npz") as z:
        out = fixed_point.exp_negative(z["exp_in_q5_26"])
        agree(golden, "exp", "arm_nn_exp_on_negative_values", out, z["exp_out_q0_31"])
        out = fixed_point.reciprocal(z["recip_in_q0_31"])
        reference = "arm_nn_one_over_one_plus_x_for_x_in_0_1"
        agree(golden, "recip", reference, out, z["recip_out_q0_31"])


@given(st.integers(-(2**31), 0), st.integers(0, 2**31 - 1))
def test_exp_and_reciprocal_equal_the_oracle(negative, positive):
    assert fixed_point.exp_negative(negative) == oracle.exp_negative(negative)
    assert fixed_point.reciprocal(positive) == oracle.reciprocal(positive)


def test_arrays_broadcast_and_keep_their_shape():
    out = fixed_point.requantize(np.arange(6).reshape(2, 3), 2**30, 1)
    np.testing.assert_array_equal(out, np.arange(6).reshape(2, 3))
    assert fixed_point.activation(np.zeros((2, 2), np.int16), 0, "tanh").shape == (2, 2)


@pytest.mark.parametrize(("shift", "kind"), [(5, "tanh"), (-5, "tanh"), (0, "relu")])
def test_activation_refuses(shift, kind):
    with pytest.raises(ValueError, match="wanted"):
        fixed_point.activation([0], shift, kind)


@pytest.mark.parametrize(
    "call",
    [
        lambda: fixed_point.requantize(1, 2**30, 40),
        lambda: fixed_point.requantize(2**31, 2**30, 0),
        lambda: fixed_point.requantize(1.5, 2**30, 0),
        lambda: fixed_point.rounding_divide(100, 33),
        lambda: fixed_point.reciprocal(-5),
        lambda: fixed_point.exp_negative(1),
        lambda: fixed_point.activation([40000], 0, "tanh"),
        lambda: fixed_point.high_mult(2**40, 1),
    ],
)
def test_values_beyond_a_primitives_range_are_refused(call):
    with pytest.raises(ValueError, match="beyond"):
        call()
