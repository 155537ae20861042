"""The int8 joint and its confidence against CMSIS-NN's softmax, plain Python integers and float64."""

import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import quantized, random_enc, random_float_model
from tally import agree

from pkrnnt.joint import Int8Joint
from pkrnnt.kernels.linear import Linear
from quant.quantize import quantize_multiplier


def joint_of(classes, softmax, width=2):
    """A joint with a given number of classes; its weights play no part here."""

    def linear(rows, cols):
        return Linear(np.ones((rows, cols)), np.zeros(rows), [2**30] * rows, [0] * rows)

    return Int8Joint(
        linear(3, width),
        linear(3, 2),
        linear(classes, 3),
        enc_inverse_scale=1.0,
        enc_zero_point=0,
        activation="relu",
        activation_left_shift=0,
        hidden=(2**30, 0),
        hidden_zero_point=-128,
        softmax=softmax,
    )


def softmax_of(scale):
    multiplier, shift = quantize_multiplier(min(scale * 2**26, 2**31 - 1))
    return multiplier, shift, -((31 * 2**26) >> shift)


def test_probability_equals_cmsis_nn_softmax(golden):
    """arm_softmax_s8_s16 on int8 rows: our confidence of the best class, worked out from its output."""
    checked = 0
    with np.load(golden / "cmsis_nn/softmax_s8.npz") as z:
        for case in sorted({key.split("/")[0] for key in z if "/" in key}):
            x, y = z[f"{case}/x"].astype(np.int32), z[f"{case}/y_s16"].astype(int)
            n = x.shape[1]
            softmax = tuple(int(z[f"{case}/{key}"]) for key in ("mult", "left_shift", "diff_min"))
            joint = joint_of(n, softmax)
            for row, probabilities in zip(x, y, strict=True):
                best = joint.argmax(row)
                assert best == int(np.argmax(row))
                p16 = int(probabilities[best]) + 32768
                wanted = min(max((n * p16 - 65536) // (2 * (n - 1)), 0), 32767) if n > 1 else 32767
                found = joint.confidence(row, best) * 32768
                agree(golden, "softmax of the best class", "arm_softmax_s8_s16", found, wanted, case)
                checked += 1
    assert checked >= 9


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(-(2**22), 2**22), min_size=1, max_size=40),
    st.floats(2.0**-24, 20),
)
def test_confidence_equals_the_oracle(logits, scale):
    softmax = softmax_of(scale)
    joint = joint_of(len(logits), softmax)
    values = np.array(logits, np.int32)
    best = joint.argmax(values)
    assert best == logits.index(max(logits))
    wanted = oracle.confidence_q15(logits, best, softmax)
    assert joint.confidence(values, best) * 32768 == wanted


def float_confidence(logits):
    p = np.exp(logits - logits.max())
    n = len(logits)
    return (n * (p / p.sum()).max() - 1) / (n - 1)


@pytest.mark.parametrize(("classes", "bound"), [(28, 5e-5), (129, 1e-4), (1025, 5e-4)])
def test_c04_confidence_is_near_the_softmax(classes, bound):
    rng = np.random.default_rng(classes)
    scale = 2.0**-12
    joint = joint_of(classes, softmax_of(scale))
    worst = 0.0
    for spread in rng.uniform(0.1, 12, 400):
        logits = np.rint(rng.normal(0, spread, classes) / scale).astype(np.int32)
        found = joint.confidence(logits, joint.argmax(logits))
        worst = max(worst, abs(found - float_confidence(logits * scale)))
    assert worst < bound


def test_c04_the_logit_scale_matters():
    logits = np.array([4000, 0, 0, 0], np.int32)
    near, far = (joint_of(4, softmax_of(scale)).confidence(logits, 0) for scale in (1e-4, 1e-3))
    assert near < 0.2
    assert far > 0.9


def test_c01_a_common_offset_changes_nothing():
    scale = 2.0**-10
    joint = joint_of(5, softmax_of(scale))
    logits = np.array([10, 0, 0, 0, 0]) / scale
    near = joint.confidence(logits.astype(np.int32), 0)
    far = joint.confidence((logits + 1000 / scale).astype(np.int32), 0)
    assert near == far
    assert abs(near - 0.9997730) < 1e-4


def test_c01_float_confidence_is_nemos():
    joint = random_float_model(0).joint
    logits = np.array([10, 0, 0, 0, 0], np.float32)
    assert joint.confidence(logits, 0) == pytest.approx(0.9997730, abs=1e-6)
    assert joint.confidence(logits + np.float32(1000), 0) == pytest.approx(0.9997730, abs=1e-6)
    assert joint.confidence(logits, 1) == 0.0  # the seed went below zero
    assert joint.confidence(logits[:1], 0) == 1.0  # and divided by zero


def test_a_single_class_is_certain():
    assert joint_of(1, softmax_of(0.01)).confidence(np.array([7], np.int32), 0) == 32767 / 32768


def test_a_sum_beyond_32_bits_is_held():
    classes = 9000  # all alike: the sum of exponentials would reach 9000 * 2^19
    logits = np.zeros(classes, np.int32)
    softmax = softmax_of(0.01)
    found = joint_of(classes, softmax).confidence(logits, 0) * 32768
    assert found == oracle.confidence_q15([0] * classes, 0, softmax)
    assert found <= 1


@pytest.mark.parametrize("activation", ["relu", "tanh", "sigmoid"])
def test_logits_equal_the_oracle(sigmoid_table, activation):
    model = quantized(random_float_model(21, activation, joint=19))
    plain = oracle.plain_model(model)["joint"]
    rng = np.random.default_rng(3)
    for magnitude in (100, 5000, 32767):
        enc_proj, pred_proj = rng.integers(-magnitude, magnitude + 1, (2, 19)).astype(np.int16)
        wanted = oracle.joint_logits(plain, enc_proj.tolist(), pred_proj.tolist(), sigmoid_table)
        assert model.joint.output(enc_proj, pred_proj).tolist() == wanted


def test_projections_equal_the_oracle_and_logits_is_their_composition():
    model = quantized(random_float_model(22))
    plain = oracle.plain_model(model)["joint"]
    enc = random_enc(model, 6)
    projected = model.joint.project_enc(enc)
    frames = model.joint.quantize_enc(enc)
    for frame, row in zip(frames.tolist(), projected.tolist(), strict=True):
        assert [oracle.sat16(v) for v in oracle.linear(*plain["enc"], frame)] == row
    g, _ = model.prediction.step(2, model.prediction.zero_state())
    pred_proj = model.joint.project_pred(g)
    assert pred_proj.tolist() == [oracle.sat16(v) for v in oracle.linear(*plain["pred"], g.tolist())]
    logits = model.joint.logits(projected[0], g)
    np.testing.assert_array_equal(logits, model.joint.output(projected[0], pred_proj))
    assert model.joint.project_enc(enc[:0]).shape == (0, 7)


def test_frames_quantize_to_the_nearest_step_ties_to_even():
    joint = joint_of(4, softmax_of(0.01), width=8)  # inverse scale 1, zero point 0
    enc = np.array([[0.5, 1.5, 2.5, -0.5, -1.5, 126.6, 200, -1000]], np.float32)
    assert joint.quantize_enc(enc).tolist() == [[0, 2, 2, 0, -2, 127, 127, -128]]


def test_what_does_not_fit_is_refused():
    joint = joint_of(4, softmax_of(0.01))
    short = np.zeros(2, np.int16)
    with pytest.raises(ValueError, match="enc_proj_t has 2 values, wanted 3"):
        joint.output(short, np.zeros(3, np.int16))
    with pytest.raises(ValueError, match="pred_proj has 2 values"):
        joint.output(np.zeros(3, np.int16), short)
    with pytest.raises(ValueError, match="input has 5 columns, wanted 2"):
        joint.project_pred(np.zeros(5, np.int8))
    with pytest.raises(ValueError, match="0 logits, wanted 4"):
        joint.argmax(np.zeros(0, np.int32))
    with pytest.raises(ValueError, match="3 logits, wanted 4"):
        joint.confidence(np.zeros(3, np.int32), 0)
    with pytest.raises(ValueError, match="wanted a maximum"):
        joint.confidence(np.array([0, 0, 0, 1], np.int32), 0)
    with pytest.raises(ValueError, match="wanted a maximum"):
        joint.confidence(np.zeros(4, np.int32), 4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"activation": "gelu"}, "joint activation is 'gelu'"),
        ({"activation_left_shift": 5}, "activation_left_shift is 5"),
    ],
)
def test_a_joint_that_cannot_be_is_refused(change, message):
    linear = Linear(np.ones((3, 3)), np.zeros(3), [2**30] * 3, [0] * 3)
    arguments = {
        "enc_inverse_scale": 1.0,
        "enc_zero_point": 0,
        "activation": "relu",
        "activation_left_shift": 0,
        "hidden": (2**30, 0),
        "hidden_zero_point": -128,
        "softmax": softmax_of(0.01),
    }
    with pytest.raises(ValueError, match=message):
        Int8Joint(linear, linear, linear, **{**arguments, **change})
    wide = Linear(np.ones((4, 3)), np.zeros(4), [2**30] * 4, [0] * 4)
    with pytest.raises(ValueError, match="joint.enc has 4 rows, wanted 3"):
        Int8Joint(wide, linear, linear, **arguments)
