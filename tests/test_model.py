"""Models: what is accepted, what is refused and how the refusal reads."""

import dataclasses
import pickle

import numpy as np
import pytest
from models import quantized, random_enc, random_float_model, random_tensors

from pkrnnt import Config, FloatModel, Int8Model, rnnt_decode_init, rnnt_greedy
from pkrnnt.model import Quantization

EMBED = "decoder.prediction.embed.weight"
LSTM = "decoder.prediction.dec_rnn.lstm."
OUT = "joint.joint_net.2"


@pytest.fixture
def tensors():
    return random_tensors(np.random.default_rng(0))


@pytest.fixture(scope="module")
def int8_model():
    return quantized(random_float_model(0, layers=2))


# Float


def test_sizes_come_from_the_tensors(tensors):
    config = FloatModel.from_tensors(tensors, vocabulary=list("abcdef")).config
    assert (config.vocab_size, config.blank_id, config.max_symbols) == (6, 6, 10)
    assert (config.pred_hidden, config.pred_layers, config.embed_dim) == (5, 1, 5)
    assert (config.joint_hidden, config.enc_hidden) == (7, 4)
    assert config.vocabulary == tuple("abcdef")


def test_the_output_layer_of_a_model_without_dropout(tensors):
    wanted = FloatModel.from_tensors(tensors)
    for part in ("weight", "bias"):
        tensors[f"joint.joint_net.1.{part}"] = tensors.pop(f"{OUT}.{part}")
    assert FloatModel.from_tensors(tensors).digest == wanted.digest


def test_other_float_types_are_taken_as_float32(tensors):
    half = {name: array.astype(np.float16) for name, array in tensors.items()}
    same = {name: array.astype(np.float64) for name, array in half.items()}
    assert FloatModel.from_tensors(half).digest == FloatModel.from_tensors(same).digest


@pytest.mark.parametrize("name", [EMBED, LSTM + "bias_hh_l0", "joint.pred.weight", OUT + ".bias"])
def test_d11_a_missing_tensor_is_named(tensors, name):
    del tensors[name]
    with pytest.raises(ValueError, match=f"missing .*{name}.*unexpected none"):
        FloatModel.from_tensors(tensors)


@pytest.mark.parametrize("name", [LSTM + "weight_hr_l0", "ctc_decoder.weight"])
def test_d04_d11_an_unexpected_tensor_is_named(tensors, name):
    tensors[name] = np.zeros((2, 2), np.float32)
    with pytest.raises(ValueError, match=f"missing none, unexpected .*{name}"):
        FloatModel.from_tensors(tensors)


def test_d03_a_layer_without_all_its_tensors(tensors):
    tensors[LSTM + "weight_ih_l1"] = np.zeros((20, 5), np.float32)
    with pytest.raises(ValueError, match="missing .*bias_ih_l1"):
        FloatModel.from_tensors(tensors)


@pytest.mark.parametrize(("name", "value"), [(OUT + ".bias", np.nan), (EMBED, np.inf)])
def test_d09_weights_that_are_not_finite_are_named(tensors, name, value):
    tensors[name][(2,) * tensors[name].ndim] = value
    with pytest.raises(ValueError, match=rf"tensor {name} holds {value} at index \[2"):
        FloatModel.from_tensors(tensors)


def test_a_weight_beyond_float32_is_refused(tensors):
    tensors[EMBED] = tensors[EMBED].astype(np.float64)
    tensors[EMBED][0, 0] = 1e39
    with pytest.raises(ValueError, match="holds inf at index"):
        FloatModel.from_tensors(tensors)


@pytest.mark.parametrize("entries", [5, 7, 8])
def test_a13_vocabulary_and_joint_that_disagree(tensors, entries):
    with pytest.raises(ValueError, match=f"vocabulary has {entries} entries and the joint 7 output"):
        FloatModel.from_tensors(tensors, vocabulary=["x"] * entries)


def test_a14_rows_of_a_tdt_model_are_refused(tensors):
    tensors[OUT + ".weight"] = np.zeros((12, 7), np.float32)
    tensors[OUT + ".bias"] = np.zeros(12, np.float32)
    with pytest.raises(ValueError, match="embedding has 7 rows and the joint 12 output rows.*TDT"):
        FloatModel.from_tensors(tensors)


@pytest.mark.parametrize("blank_id", [-1, 7, 2.5])
def test_a12_blank_outside_the_rows(tensors, blank_id):
    with pytest.raises(ValueError, match=r"blank_id is .*wanted (0..6|int)"):
        FloatModel.from_tensors(tensors, blank_id=blank_id)


def test_an_embedding_without_a_blank_row_needs_blank_last(tensors):
    tensors[EMBED] = tensors[EMBED][:-1]
    assert len(FloatModel.from_tensors(tensors).embed) == 6
    with pytest.raises(ValueError, match="embedding has 6 rows"):
        FloatModel.from_tensors(tensors, blank_id=0)


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        (LSTM + "weight_ih_l0", (16, 5), r"shape \(16, 5\), wanted \(20, 5\)"),
        (LSTM + "bias_ih_l0", (19,), r"wanted \(20,\)"),
        ("joint.pred.weight", (7, 6), r"wanted \(7, 5\)"),
        ("joint.enc.weight", (6, 4), r"wanted \(7, 4\)"),
        ("joint.enc.bias", (7, 1), "wanted 1 dimensions"),
        (EMBED, (7,), "wanted 2 dimensions"),
        (EMBED, (7, 0), "none empty"),
    ],
)
def test_d11_shapes_that_contradict_each_other(tensors, name, shape, message):
    tensors[name] = np.zeros(shape, np.float32)
    with pytest.raises(ValueError, match=f"tensor {name}.*{message}"):
        FloatModel.from_tensors(tensors)


def test_integer_weights_are_refused(tensors):
    tensors[EMBED] = tensors[EMBED].astype(np.int8)
    with pytest.raises(ValueError, match=f"tensor {EMBED} has dtype int8"):
        FloatModel.from_tensors(tensors)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"joint_activation": "gelu"}, "joint_activation is 'gelu', wanted one of"),
        ({"max_symbols": 0}, "max_symbols is 0"),
        ({"pred_layers": True}, "pred_layers is True"),
        ({"frame_seconds": -0.04}, "frame_seconds is -0.04"),
        ({"vocabulary": [1] * 6}, "not a list of str"),
    ],
)
def test_a_config_that_cannot_be_is_refused(change, message):
    config = random_float_model(0).config
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(config, **change)


def test_config_from_json_names_what_does_not_fit():
    values = random_float_model(0).config.to_json()
    assert Config.from_json(values) == Config(**values)
    with pytest.raises(ValueError, match=r"unknown entries \['beam'\]"):
        Config.from_json({**values, "beam": 4})
    del values["enc_hidden"]
    with pytest.raises(ValueError, match="config is incomplete: .*enc_hidden"):
        Config.from_json(values)


def test_a_token_outside_the_embedding_is_refused():
    for model in (random_float_model(0), quantized(random_float_model(0))):
        with pytest.raises(ValueError, match=r"token is 7, wanted SOS \(-1\) or 0..6"):
            model.prediction.step(7, model.prediction.zero_state())


def test_d03_stacked_layers_equal_float64():
    for layers in (2, 3):
        model = random_float_model(layers, layers=layers)
        h = np.zeros((layers, 5))
        c = np.zeros((layers, 5))
        state = model.prediction.zero_state()
        for token in np.random.default_rng(1).integers(0, 6, 50).tolist():
            x = model.embed[token].astype(np.float64)
            for layer, weights in enumerate(model.lstm):
                gates = weights.input.weight @ x + weights.input.bias
                gates = gates + weights.hidden.weight @ h[layer] + weights.hidden.bias
                i, f, g, o = np.split(gates, 4)
                c[layer] = c[layer] / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
                x = h[layer] = np.tanh(c[layer]) / (1 + np.exp(-o))
            out, state = model.prediction.step(token, state)
            np.testing.assert_allclose(out, x, atol=2e-5)
        np.testing.assert_allclose(state[1], c, atol=2e-5)


# Both


@pytest.mark.parametrize("kind", ["float", "int8"])
def test_a_model_is_immutable_and_can_be_pickled(kind):
    model = random_float_model(1)
    if kind == "int8":
        model = quantized(model)
    with pytest.raises(dataclasses.FrozenInstanceError):
        model.embed = None
    twin = pickle.loads(pickle.dumps(model))
    assert twin.digest == model.digest
    enc = random_enc(model, 10)
    state = pickle.loads(pickle.dumps(rnnt_decode_init(model)))
    assert state.model_digest == twin.digest
    assert rnnt_greedy(twin, enc) == rnnt_greedy(model, enc)
    for one in (model, twin):
        arrays = [one.embed]
        if kind == "float":
            arrays = list(one.tensors().values())
        else:
            arrays += [
                array for linear in one.linears().values() for array in (linear.multiplier, linear.shift)
            ]
        for array in arrays:
            with pytest.raises(ValueError, match="read-only"):
                array[:] = 0


def test_arrays_given_to_a_model_are_copied():
    model = random_float_model(1)
    enc = random_enc(model, 10)
    tensors = {name: array.copy() for name, array in model.tensors().items()}
    copy = FloatModel.from_tensors(tensors, max_symbols=3)
    provenance = {"a": [1]}
    int8_model = quantized(model)
    int8_copy = dataclasses.replace(int8_model, provenance=provenance)
    for array in tensors.values():
        array[:] = 0
    provenance["a"].append(2)
    assert rnnt_greedy(copy, enc) == rnnt_greedy(model, enc)
    assert int8_copy.provenance == {"a": [1]}
    weight = int8_model.joint_out.weight
    weight[:] = 0  # a copy
    assert int8_model.joint_out.weight.any()


@pytest.mark.parametrize("kind", ["float", "int8"])
def test_parts_that_do_not_fit_each_other_are_refused_by_the_constructor(kind):
    model, other = random_float_model(0, layers=2), random_float_model(0, hidden=6, joint=8)
    if kind == "int8":
        model, other = quantized(model), quantized(other)
    for change, message in (
        ({"embed": model.embed[:1]}, "embedding has 1 rows"),
        ({"embed": model.embed[:, :2]}, r"shape \(7, 2\), wanted \[rows, 5\]"),
        ({"config": dataclasses.replace(model.config, vocab_size=2, blank_id=0)}, r"wanted \(3, 7\)"),
        ({"joint_enc": other.joint_enc}, r"joint.enc.weight has shape \(8, 4\), wanted \(7, 4\)"),
        ({"lstm": model.lstm[:1]}, "has 1 LSTM layers, wanted 2"),
    ):
        with pytest.raises(ValueError, match=message):
            dataclasses.replace(model, **change)


# Int8


def rebuilt(model, *, quantization=None, **tensors):
    """The model with changes, through the door that files come in by."""
    return Int8Model.from_tensors(
        {**model.tensors(), **tensors}, model.config, quantization or model.quantization, {}
    )


def changed(array, index, value, dtype=None):
    array = array.astype(dtype or array.dtype)
    array[index] = value
    return array


OUT_PARTS = [f"{OUT}.{part}" for part in ("weight", "bias", "multiplier", "shift")]


@pytest.mark.parametrize(
    ("name", "index", "value", "message"),
    [
        (OUT + ".weight", (1, 2), -128, r"holds -128 at index \[1, 2\], wanted -127..127"),
        (EMBED, (0, 0), -128, "holds -128"),
        (OUT + ".multiplier", 3, 7, "row 3 has multiplier 7"),
        (OUT + ".multiplier", 3, -(2**30), "row 3 has multiplier -1073741824"),
        (OUT + ".shift", 0, 31, "row 0 has multiplier .* and shift 31"),
        (OUT + ".shift", 0, -32, "shift holds -32"),
        (OUT + ".shift", 0, 3, "shift holds 3, wanted 0 or less"),
        ("joint.enc.bias", 2, 2**31 - 1, "joint.enc.weight row 2 may reach 2147"),
        ("joint.enc.bias", 2, -(2**31), "joint.enc.weight row 2 may reach 2147"),
        ("joint.pred.shift", 1, 30, "joint.pred.weight row 1 may reach"),
        (LSTM + "bias_hh_l1", 5, 2**31 - 1, "weight_hh_l1 row 5 may reach"),
    ],
)
def test_bounds_the_kernels_rely_on_are_proved(int8_model, name, index, value, message):
    array = changed(int8_model.tensors()[name], index, value)
    with pytest.raises(ValueError, match=message):
        rebuilt(int8_model, **{name: array})


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        (OUT + ".weight", np.zeros((7, 8), np.int8), r"shape \(7, 8\), wanted \(7, 7\)"),
        (OUT + ".bias", np.zeros(7, np.int64), "dtype int64, wanted int32"),
        (OUT + ".shift", np.zeros(6, np.int8), r"wanted \(7,\)"),
        (EMBED, np.zeros(7, np.int8), "wanted two dimensions"),
        (EMBED, np.zeros((9, 5), np.int8), "embedding has 9 rows"),
        (EMBED, np.zeros((7, 6), np.int8), r"wanted \(7, 5\)"),
        ("extra", np.zeros(1), r"unexpected \['extra'\]"),
    ],
)
def test_int8_tensors_that_do_not_fit_are_named(int8_model, name, array, message):
    with pytest.raises(ValueError, match=message):
        rebuilt(int8_model, **{name: array})


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        (None, {"rounding": "single"}, "rounding is 'single', wanted 'double'"),
        (None, {"granularity": "tensor"}, "granularity is 'tensor'"),
        (None, {"embed_scale": 0.0}, "embed_scale is 0.0"),
        (None, {"lstm": ()}, "quantization has 0 LSTM layers, wanted 2"),
        ("lstm", {"cell_scale_power": -7}, r"cell_scale_power is -7, wanted -16..-8"),
        ("lstm", {"cell_clip": -1}, "cell_clip is -1"),
        ("lstm", {"hidden_zero_point": 128}, "hidden_zero_point is 128"),
        ("lstm", {"hidden_scale": float("nan")}, "hidden_scale is nan"),
        ("lstm", {"output": (2**30, 1)}, r"output shift is 1, wanted -31..0"),
        ("lstm", {"output": (5, -3)}, "output row 0 has multiplier 5"),
        ("joint", {"enc_zero_point": -129}, "enc_zero_point is -129"),
        ("joint", {"enc_inverse_scale": float("inf")}, "enc_inverse_scale is inf"),
        ("joint", {"activation_left_shift": 5}, "activation_left_shift is 5"),
        ("joint", {"hidden": (2**30, 16)}, "joint hidden shift is 16"),
        ("joint", {"softmax": (2**30, 32, 0)}, "softmax shift is 32"),
        ("joint", {"softmax": (2**29, 3, 0)}, "softmax multiplier is"),
        ("joint", {"softmax": (2**30, 3, 1)}, "softmax diff_min is 1"),
    ],
)
def test_scalars_outside_their_range_are_named(int8_model, part, change, message):
    scalars = int8_model.quantization
    if part == "joint":
        change = {"joint": dataclasses.replace(scalars.joint, **change)}
    elif part == "lstm":
        change = {"lstm": (scalars.lstm[0], dataclasses.replace(scalars.lstm[1], **change))}
    with pytest.raises(ValueError, match=message):
        rebuilt(int8_model, quantization=dataclasses.replace(scalars, **change))


def test_quantization_from_json_names_what_does_not_fit(int8_model):
    values = int8_model.quantization.to_json()
    assert Quantization.from_json(values) == int8_model.quantization
    del values["joint"]["hidden"]
    with pytest.raises(ValueError, match="quantization entries do not fit: .*hidden"):
        Quantization.from_json(values)
    with pytest.raises(ValueError, match="quantization entries do not fit"):
        Quantization.from_json({})


def test_d17_everything_but_biases_is_eight_bits(digits_int8):
    sizes = {"int8": 0, "int32": 0}
    for name, array in digits_int8.tensors().items():
        sizes[str(array.dtype)] += array.nbytes
        if "weight" in name:
            assert array.dtype == np.int8
    assert sizes["int8"] + sizes["int32"] <= 101_596 * 1.08 + 4 * 988
