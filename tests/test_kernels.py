"""Matrix kernels against CMSIS-NN's fully connected layers and against plain Python integers."""

import os
import pickle
import subprocess
import sys

import numpy as np
import oracle
import pytest
from conftest import need_shared
from tally import agree

from pkrnnt import fixed_point, kernels
from pkrnnt.kernels.linear import Linear

SIZES = [1, 3, 4, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129]


@pytest.fixture(params=kernels.available())
def variant(request):
    return request.param


def cases(data):
    return sorted({key.rsplit("/", 1)[0] for key in data if "/" in key})


def fully_connected(variant, data):
    """(accumulators, int8 outputs) of a CMSIS-NN fully connected case."""
    weight, x = data["w"].astype(int), data["x"]
    bias = data["bias"] if data["has_bias"] else np.zeros(len(weight), int)
    effective = bias + int(data["input_offset"]) * weight.sum(axis=1)
    rows = len(weight)
    multiplier = np.broadcast_to(data["mult"], rows)
    shift = np.broadcast_to(data["shift"], rows)
    linear = Linear(weight, effective, multiplier, shift, variant)
    out = linear(x) + int(data["output_offset"])
    return linear.accumulate(x), np.clip(out, data["act_min"], data["act_max"])


def check_fully_connected(path, variant, case, data):
    acc, y = fully_connected(variant, data)
    operation, reference = f"matrix-vector, {variant}", "arm_fully_connected_s8, _per_channel_s8"
    agree(path, operation, reference, acc, data["acc"], case)
    agree(path, operation, reference, y, data["y"], case)


@pytest.mark.parametrize("name", ["fc_s8_small", "fc_s8_edge", "fc_s8_in640_out65_perch"])
def test_fully_connected_equals_cmsis_nn(golden, variant, name):
    checked = 0
    with np.load(golden / f"cmsis_nn/{name}.npz") as z:
        for case in cases(z):
            data = {key.rsplit("/", 1)[1]: z[key] for key in z if key.startswith(f"{case}/")}
            if data["filter_offset"] != 0:
                continue  # our weights have zero point 0
            check_fully_connected(golden, variant, case, data)
            checked += 1
    assert checked >= 2


def test_fully_connected_640_equals_cmsis_nn(variant):
    path = need_shared() / "golden/cmsis_nn/fc_s8_in640_out640.npz"
    with np.load(path) as z:
        (case,) = cases(z)
        data = {key.rsplit("/", 1)[1]: z[key] for key in z if key.startswith(f"{case}/")}
        check_fully_connected(path, variant, case, data)


@pytest.mark.parametrize(
    "name",
    [
        "fully_connected", "fully_connected_mve_0", "fully_connected_mve_1",
        "fully_connected_null_bias_0", "fully_connected_out_activation", "fc_per_ch",
    ],
)  # fmt: skip
def test_fully_connected_equals_cmsis_nns_own_tests(variant, name):
    """All of upstream's int8 cases but fully_connected_w_zp, whose weights have a zero point."""
    path = need_shared() / f"golden/cmsis_nn/upstream_{name}.npz"
    with np.load(path) as z:
        depth = int(z["p/accumulation_depth"])
        weight = z["a/weights"].reshape(-1, depth)
        bias = z["a/biases"] if "a/biases" in z else z["a/bias"]
        per_channel = "a/output_multiplier" in z
        prefix = "a" if per_channel else "p"
        _, y = fully_connected(
            variant,
            {
                "x": z["a/input"].reshape(-1, depth),
                "w": weight,
                "bias": bias,
                "has_bias": True,
                "input_offset": z["p/input_offset"],
                "output_offset": z["p/output_offset"],
                "mult": z[f"{prefix}/output_multiplier"],
                "shift": z[f"{prefix}/output_shift"],
                "act_min": z["p/out_activation_min"],
                "act_max": z["p/out_activation_max"],
            },
        )
        wanted = z["a/output_ref"] if "a/output_ref" in z else z["a/output"]
        agree(path, f"matrix-vector, {variant}", "CMSIS-NN's own unit tests", y.ravel(), wanted)


def draw(rng, rows, cols, extreme):
    if extreme:
        weight = rng.choice([-127, 127], (rows, cols))
        x = rng.choice([-128, 127], (2, cols))
        bias = rng.choice([-(2**29), 0, 2**29], rows)
    else:
        weight = rng.integers(-127, 128, (rows, cols))
        x = rng.integers(-128, 128, (2, cols))
        bias = rng.integers(-(2**20), 2**20, rows)
    multiplier = rng.integers(2**30, 2**31, rows)
    shift = rng.integers(-20, 1, rows)
    return weight, bias, multiplier, shift, x


@pytest.mark.parametrize("extreme", [False, True], ids=["random", "extreme"])
@pytest.mark.parametrize("cols", SIZES)
def test_odd_sizes_equal_the_oracle(variant, cols, extreme):
    rng = np.random.default_rng(cols)
    for rows in (1, 2, 3, 5, 16, 33):
        weight, bias, multiplier, shift, x = draw(rng, rows, cols, extreme)
        linear = Linear(weight, bias, multiplier, shift, variant)
        wanted = [
            oracle.linear(*(a.tolist() for a in (weight, bias, multiplier, shift, row))) for row in x
        ]
        assert linear(x).tolist() == wanted


@pytest.mark.parametrize("cols", [640, 641])
def test_e06_long_rows_at_their_extremes(variant, cols):
    weight = np.array([[127] * cols, [-127] * cols])
    x = np.full((1, cols), -128)
    linear = Linear(weight, [0, 0], [2**30, 2**30], [1, 1], variant)
    assert linear.accumulate(x).tolist() == [[-128 * 127 * cols, 128 * 127 * cols]]


def test_e06_the_longest_safe_row(variant):
    cols = 131_071  # int8 times int8 stays in int32 up to here, at -128 * -127 with room
    weight = np.full((1, cols), -127)
    linear = Linear(weight, [0], [2**30], [1], variant)
    assert linear.accumulate(np.full((1, cols), -128)).tolist() == [[128 * 127 * cols]]


@pytest.mark.parametrize("zero_point", [-128, -1, 0, 1, 127])
def test_e11_folded_zero_point_equals_the_plain_form(variant, zero_point):
    rng = np.random.default_rng(5)
    weight, bias = rng.integers(-127, 128, (9, 33)), rng.integers(-1000, 1000, 9)
    x = rng.integers(-128, 128, (4, 33))
    folded = bias - zero_point * weight.sum(axis=1)
    linear = Linear(weight, folded, [2**30] * 9, [1] * 9, variant)
    assert linear.accumulate(x).tolist() == ((x - zero_point) @ weight.T + bias).tolist()


def test_e10_multipliers_belong_to_output_rows_of_a_square_matrix(variant):
    rng = np.random.default_rng(6)
    weight, x = rng.integers(-127, 128, (8, 8)), rng.integers(-128, 128, (1, 8))
    multiplier, shift = rng.integers(2**30, 2**31, 8), rng.integers(-9, 0, 8)
    linear = Linear(weight, np.zeros(8, int), multiplier, shift, variant)
    wanted = fixed_point.requantize((x @ weight.T)[0], multiplier, shift)
    np.testing.assert_array_equal(linear(x)[0], wanted)


@pytest.mark.parametrize(
    ("weight", "bias", "message"),
    [
        (np.zeros((2, 3)), [0], "bias has 1 values, wanted 2"),
        (np.zeros((0, 3)), [], "wanted at least 1 x 1"),
        (np.zeros((2, 0)), [0, 0], "wanted at least 1 x 1"),
    ],
)
def test_linear_refuses_sizes_that_do_not_fit(weight, bias, message):
    with pytest.raises(ValueError, match=message):
        Linear(weight, bias, [2**30] * len(weight), [0] * len(weight))


def test_linear_refuses_input_of_another_width_and_takes_none():
    linear = Linear(np.ones((2, 3)), [0, 0], [2**30] * 2, [1, 1])
    with pytest.raises(ValueError, match=r"wanted \[n, 3\]"):
        linear(np.zeros((1, 4)))
    assert linear(np.zeros((0, 3))).shape == (0, 2)
    assert linear.accumulate(np.zeros((0, 3))).shape == (0, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[300]], [0], [2**30], [0]), "weight has dtype int64"),
        (([[1]], [2**31], [2**30], [0]), "bias has dtype int64"),
        (([[1]], [0], [2**30], [100]), "shift holds 100..100, wanted -31..31"),
        (([1], [0], [2**30], [0]), r"wanted 2 dimension\(s\)"),
    ],
)
def test_linear_refuses_values_beyond_their_types(arguments, message):
    with pytest.raises(ValueError, match=message):
        Linear(*arguments)


def test_linear_gives_back_what_it_was_given_and_can_be_pickled(variant):
    rng = np.random.default_rng(8)
    for rows, cols in ((1, 1), (3, 5), (16, 4), (17, 9), (65, 33), (100, 64)):
        weight, bias, multiplier, shift, x = draw(rng, rows, cols, False)
        linear = Linear(weight, bias, multiplier, shift, variant)
        twin = pickle.loads(pickle.dumps(linear))
        for one in (linear, twin):
            assert one.shape == (rows, cols)
            for name, given in (
                ("weight", weight),
                ("bias", bias),
                ("multiplier", multiplier),
                ("shift", shift),
            ):
                np.testing.assert_array_equal(getattr(one, name), given)
            np.testing.assert_array_equal(one(x), linear(x))
        assert linear.packed_bytes >= rows * cols


def test_unknown_variant_is_refused():
    with pytest.raises(ValueError, match="wanted one of"):
        Linear([[1]], [0], [2**30], [1], "sve9")


def run_python(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_selection_is_observable_and_can_be_forced():
    assert kernels.selected() in kernels.available()
    code = "import pkrnnt.kernels as k; print(k.selected())"
    for name in kernels.available():
        assert run_python(code, PKRNNT_KERNELS=name).stdout.strip() == name
    refused = run_python(code, PKRNNT_KERNELS="sve9")
    assert refused.returncode != 0
    assert "PKRNNT_KERNELS is 'sve9', wanted one of" in refused.stderr
