"""From float models to integers: scales, multipliers, rounding, ranges."""

import dataclasses
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from models import one_hot, random_enc, random_float_model, script_model
from tally import agree

from pkrnnt import FloatModel, rnnt_greedy
from pkrnnt.dataset import Utterances
from pkrnnt.model import row_factors
from pkrnnt.reference import Linear
from quant import measure_agreement, observe, quantize_model
from quant.quantize import affine, linear_s8, quantize_multiplier, weight_scale
from quant.ranges import RangeObserver, Ranges, range_method
from quant.rounding import InputMoments, round_nearest, round_second_order

MINMAX = range_method("minmax")


def observed(model, enc=None, method="minmax"):
    enc = random_enc(model, 80, 5) if enc is None else enc
    return observe(model, Utterances([enc, enc]), range_method(method))


def test_quantize_multiplier_equals_tflite(golden):
    with np.load(golden / "cmsis_nn/quantize_multiplier.npz") as z:
        checked = 0
        for real, multiplier, shift in zip(z["real"], z["mult"], z["shift"], strict=True):
            if shift <= 31:
                found = quantize_multiplier(float(real))
                agree(
                    golden, "QM", "TFLite QuantizeMultiplier (a model of it)", found, (multiplier, shift)
                )
                checked += 1
        assert checked > 500


@pytest.mark.parametrize(
    ("real", "wanted"),
    [(0.0, (0, 0)), (1.0, (2**30, 1)), (2.0**-15, (2**30, -14)), (2.0**-33, (0, 0))],
)
def test_quantize_multiplier_at_its_edges(real, wanted):
    assert quantize_multiplier(real) == wanted


@pytest.mark.parametrize("real", [-1.0, float("nan"), float("inf"), 2.0**32])
def test_factors_that_no_multiplier_holds_are_refused(real):
    with pytest.raises(ValueError, match="factor is"):
        quantize_multiplier(real)


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
def test_affine_holds_zero_exactly_and_both_ends(a, b):
    low, high = min(a, b, 0.0), max(a, b, 0.0)
    scale, zero_point = affine((a, b) if a < b else (b, a))
    assert scale > 0
    assert -128 <= zero_point <= 127
    if high - low > 1e-30:
        assert low / scale + zero_point >= -128.001
        assert high / scale + zero_point <= 127.001


# Weights


def test_d08_rows_of_zeros_tiny_values_and_one_outlier():
    weight = np.zeros((4, 6), np.float32)
    weight[1] = 1e-30
    weight[2, 3] = 1000.0
    weight[3] = np.linspace(-1, 1, 6)
    linear = Linear(weight, np.array([0, 0, 0, 0.5], np.float32))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scale = weight_scale(linear, 0.01, 2.0**-12)
        found = linear_s8("w", linear, scale, (0.01, 3), 2.0**-12)
    assert np.isfinite(scale).all()
    assert (scale > 0).all()
    assert (found.weight[:2] == 0).all()
    assert found.weight[2].tolist() == [0, 0, 0, 127, 0, 0]
    assert found.multiplier.dtype == np.int32
    assert (row_factors(found) > 0).all()


@pytest.mark.parametrize("bias", [1e3, -1e6, 1e9])
def test_a_bias_that_would_leave_int32_widens_its_rows_scale(bias):
    weight = np.array([[1e-3, -1e-3], [1e-3, 1e-3]], np.float32)
    linear = Linear(weight, np.array([bias, 0.001], np.float32))
    scale = weight_scale(linear, 1e-4, 2.0**-12)
    found = linear_s8("w", linear, scale, (1e-4, 0), 2.0**-12)
    assert abs(found.bias[0] * 1e-4 * scale[0] / bias - 1) < 1e-6
    assert np.abs(found.bias).max() < 2**30
    assert scale[1] == pytest.approx(1e-3 / 127)


def test_an_effective_bias_beyond_int32_is_refused():
    linear = Linear(np.ones((1, 200_000), np.float32), np.zeros(1, np.float32))
    with pytest.raises(ValueError, match="w row 0: effective bias is .*wanted within int32"):
        linear_s8("w", linear, np.array([1 / 127]), (0.01, 127), 1.0)


def test_weights_no_accumulator_can_hold_are_refused_by_name():
    model = random_float_model(0)
    tensors = {name: array.copy() for name, array in model.tensors().items()}
    tensors["decoder.prediction.dec_rnn.lstm.weight_hh_l0"][3] = 1e9
    model = FloatModel.from_tensors(tensors)
    with pytest.raises(ValueError, match="weight_hh_l0 row 3 may reach"):
        quantize_model(model, observed(model).ranges)


def test_e10_rows_of_different_size_keep_their_own_precision():
    rng = np.random.default_rng(2)
    weight = rng.normal(size=(6, 16)) * np.logspace(0, -2, 6)[:, None]
    linear = Linear(weight.astype(np.float32), np.zeros(6, np.float32))

    def error(rows_per_scale):
        scale = weight_scale(linear, 0.01, 0.01, rows_per_scale)
        steps, _ = round_nearest(linear.weight, linear.bias, scale)
        return np.abs(steps * scale[:, None] - weight).max(axis=1) / np.abs(weight).max(axis=1)

    assert error(1).max() < 0.005
    assert error(6).max() > 0.1


def test_a10_the_blank_row_does_not_stretch_the_embeddings_scale():
    model = random_float_model(0)
    tensors = {name: array.copy() for name, array in model.tensors().items()}
    tensors["decoder.prediction.embed.weight"][-1] = 1e4
    loud = FloatModel.from_tensors(tensors, max_symbols=3)
    one, other = (
        quantize_model(model, observed(model).ranges),
        quantize_model(loud, observed(loud).ranges),
    )
    assert other.quantization.embed_scale == one.quantization.embed_scale
    np.testing.assert_array_equal(other.embed[:-1], one.embed[:-1])
    assert (other.embed[-1] == 127).all()


@pytest.mark.parametrize("activation", ["relu", "tanh", "sigmoid"])
@pytest.mark.parametrize("factor", [1e-9, 1e-30])
def test_d08_tiny_weights_everywhere_can_be_quantized(activation, factor):
    model = random_float_model(7, activation)
    for part in ("dec_rnn", "joint.enc", "joint.pred", "joint_net"):
        tensors = {
            name: array * np.float32(factor if part in name else 1)
            for name, array in model.tensors().items()
        }
        tiny = FloatModel.from_tensors(tensors, joint_activation=activation, max_symbols=3)
        enc = random_enc(tiny, 20)
        found = rnnt_greedy(quantize_model(tiny, observed(tiny).ranges), enc)
        wanted = rnnt_greedy(tiny, enc)
        assert len(found) == len(wanted) or part == "joint_net"


def test_a_bias_far_beyond_the_gates_range_is_no_reason_to_refuse():
    model = random_float_model(7)
    tensors = {name: array.copy() for name, array in model.tensors().items()}
    tensors["decoder.prediction.dec_rnn.lstm.bias_ih_l0"][:] = 1e6
    tensors["decoder.prediction.dec_rnn.lstm.bias_hh_l0"][:] = 1e9
    model = FloatModel.from_tensors(tensors, max_symbols=2)
    enc = random_enc(model, 30)
    found, wanted = (
        rnnt_greedy(quantize_model(model, observed(model).ranges), enc),
        rnnt_greedy(model, enc),
    )
    assert found.tokens[:8] == wanted.tokens[:8]


def test_calibration_on_frames_that_are_nearly_all_zero():
    model = random_float_model(7)
    enc = np.zeros((2000, 4), np.float32)
    enc[77, 2] = -5
    seen = observe(model, Utterances([enc, enc]), MINMAX)
    assert any("frame 77 of utterance" in warning for warning in seen.warnings)


def test_gate_granularity_keeps_one_multiplier_for_each_gate():
    model = random_float_model(1, layers=2)
    found = quantize_model(model, observed(model).ranges, granularity="gate")
    for input, hidden in found.lstm:
        for linear in (input, hidden):
            pairs = np.stack([linear.multiplier, linear.shift]).reshape(2, 4, 5)
            assert (pairs == pairs[:, :, :1]).all()
    by_row = quantize_model(model, observed(model).ranges)
    assert len(set(by_row.lstm[0][0].multiplier.tolist())) > 4


def test_granularity_is_checked():
    model = random_float_model(1)
    with pytest.raises(ValueError, match="granularity is 'tensor', wanted one of"):
        quantize_model(model, observed(model).ranges, granularity="tensor")


def test_logits_keep_a_common_scale_without_left_shifts():
    for seed in range(10):
        model = random_float_model(seed)
        found = quantize_model(model, observed(model).ranges)
        assert found.joint_out.shift.max() <= 0


def test_models_of_zero_weights_can_be_quantized():
    model = random_float_model(2)
    tensors = {name: np.zeros_like(array) for name, array in model.tensors().items()}
    model = FloatModel.from_tensors(tensors, max_symbols=2)
    seen = observed(model)
    for moments in (None, seen.moments):
        found = quantize_model(model, seen.ranges, moments=moments)
        assert rnnt_greedy(found, random_enc(model, 3)).tokens == [0] * 6


def test_scripted_models_keep_their_tokens():
    rng = np.random.default_rng(4)
    for _ in range(20):
        rules = {
            (kind, last): int(rng.integers(0, 5))
            for kind in range(1, 4)
            for last in [-1, *range(5)]
            if rng.random() < 0.5
        }
        model = script_model(rules, 4, 5, max_symbols=4)
        kinds = rng.integers(0, 4, 60)
        enc = one_hot(kinds, 4)
        seen = observed(model, enc)
        wanted = rnnt_greedy(model, enc)
        for moments in (None, seen.moments):
            found = rnnt_greedy(quantize_model(model, seen.ranges, moments=moments), enc)
            assert (found.tokens, found.frames) == (wanted.tokens, wanted.frames)


# Second-order rounding


def layer_and_inputs(seed=0):
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(12, 12))
    inputs = np.maximum(rng.normal(size=(4000, 12)) @ mixing, 0)  # rectified, so correlated
    weight, bias = rng.normal(size=(9, 12)), rng.normal(size=9)
    moments = InputMoments(12)
    moments.update(inputs[:2500])
    moments.update(inputs[2500:])
    return weight, bias, inputs, moments


def output_error(weight, bias, scale, inputs, rounded):
    steps, new_bias = rounded
    out = inputs @ (steps * scale[:, None]).T + new_bias
    return float(np.square(out - (inputs @ weight.T + bias)).mean())


def test_second_order_rounding_lowers_the_output_error():
    for seed in range(5):
        weight, bias, inputs, moments = layer_and_inputs(seed)
        scale = np.abs(weight).max(axis=1) / 15  # coarse, so that rounding matters
        nearest = output_error(weight, bias, scale, inputs, round_nearest(weight, bias, scale))
        second = output_error(
            weight, bias, scale, inputs, round_second_order(weight, bias, scale, moments)
        )
        assert second < 0.75 * nearest


def test_second_order_rounding_of_exact_weights_changes_nothing():
    weight, bias, _, moments = layer_and_inputs()
    scale = np.full(9, 0.125)
    steps = np.clip(np.rint(weight / 0.125), -127, 127)
    found, new_bias = round_second_order(steps * 0.125, bias, scale, moments)
    np.testing.assert_array_equal(found, steps)
    np.testing.assert_allclose(new_bias, bias, atol=1e-9)


def test_second_order_rounding_without_data_is_rounding_to_the_nearest():
    weight, bias, _, _ = layer_and_inputs()
    scale = np.abs(weight).max(axis=1) / 127
    found, _ = round_second_order(weight, bias, scale, InputMoments(12))
    np.testing.assert_array_equal(found, round_nearest(weight, bias, scale)[0])


# Ranges


def filled(values, batches=1):
    observer = RangeObserver()
    for part in np.array_split(values, batches):
        observer.update(part)
    return observer


@given(st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=60), st.randoms())
def test_f02_order_and_batches_do_not_matter(values, random):
    shuffled = values.copy()
    random.shuffle(shuffled)
    one, other = filled(np.array(values)), filled(np.array(shuffled), 7)
    np.testing.assert_array_equal(one.counts, other.counts)
    assert (one.low, one.high, one.width) == (other.low, other.high, other.width)
    for method in ("minmax", "mse", "percentile:90"):
        assert range_method(method)(one, 8) == range_method(method)(other, 8)


def test_percentile_leaves_out_the_tails():
    values = np.random.default_rng(0).normal(size=100_000)
    low, high = filled(values).percentile(99)
    wanted = np.percentile(values, [0.5, 99.5])
    np.testing.assert_allclose((low, high), wanted, atol=0.01)
    assert filled(values).percentile(100) == pytest.approx((values.min(), values.max()))


def test_least_square_error_is_the_least_of_a_search():
    values = np.random.default_rng(1).standard_t(3, 20_000)
    low, high = filled(values).least_square_error(256)
    assert values.min() < low < 0 < high < values.max()

    def error(a, b):
        step = (b - a) / 255
        return np.square(np.rint(np.clip(values, a, b) / step) * step - values).mean()

    assert error(low, high) < 1.1 * min(
        error(f * values.min(), f * values.max()) for f in np.linspace(0.05, 1, 96)
    )


@pytest.mark.parametrize(
    "name",
    ["max", "percentile", "percentile:", "percentile:50", "percentile:101", "percentile:1.2.3"],
)
def test_unknown_methods_are_refused(name):
    with pytest.raises(ValueError, match="wanted minmax, mse or percentile:P"):
        range_method(name)


def test_f01_an_outlier_frame_is_named_and_can_be_left_out():
    model = random_float_model(3)
    enc = random_enc(model, 3000, 1)
    held_out = random_enc(model, 200, 2)
    enc[1234] *= 1000
    stretched = observe(model, Utterances([enc[:1000], enc[1000:]]), MINMAX)
    assert any("frame 234 of utterance 1" in warning for warning in stretched.warnings)
    assert stretched.ranges.enc[1] - stretched.ranges.enc[0] > 1000
    agreement = {}
    for method in ("minmax", "percentile:99.9"):
        int8_model = quantize_model(model, observed(model, enc, method).ranges)
        result = measure_agreement(model, int8_model, Utterances([held_out]))
        agreement[method] = result.argmax_agreement
    assert agreement["minmax"] < 0.6
    assert agreement["percentile:99.9"] > 0.95


def test_f02_too_little_calibration():
    model = random_float_model(3)
    with pytest.raises(ValueError, match="0 utterances with 0 frames, wanted at least one"):
        observe(model, Utterances([]), MINMAX)
    with pytest.raises(ValueError, match="2 utterances with 0 frames"):
        observe(model, Utterances([random_enc(model, 0)] * 2), MINMAX)
    one = observe(model, Utterances([random_enc(model, 1)]), MINMAX)
    assert any("1 utterance(s), 1 frame(s)" in warning for warning in one.warnings)
    assert not observed(model).warnings


def test_f02_utterances_in_any_order_give_the_same_ranges():
    model = random_float_model(4)
    utterances = [random_enc(model, n, n) for n in (3, 17, 40, 0, 9)]
    one = observe(model, Utterances(utterances), MINMAX)
    other = observe(model, Utterances(utterances[::-1]), MINMAX)
    assert one.ranges == other.ranges


def test_cells_get_the_least_scale_that_leaves_headroom():
    model = random_float_model(5)
    ranges = observed(model).ranges
    for largest, power in ((0.9, -14), (1.1, -13), (13.9, -10), (1e9, -8), (0.0, -16)):
        changed = dataclasses.replace(ranges, cell=(largest,))
        assert quantize_model(model, changed).quantization.lstm[0].cell_scale_power == power


def test_ranges_of_a_constant_zero_tensor():
    model = random_float_model(6)
    flat = Ranges((0.0, 0.0), ((0.0, 0.0),), (0.0,), 0.0, (0.0, 0.0))
    found = quantize_model(model, flat)
    assert rnnt_greedy(found, random_enc(model, 2)).frames is not None
