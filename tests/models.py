"""Models for the tests: NeMo's golden cases, random ones, and ones that do exactly as told."""

import hashlib
import json

import numpy as np

import pkrnnt
from pkrnnt.dataset import Utterances
from quant import observe, quantize_model
from quant.ranges import range_method

PREDICTION = "decoder.prediction."
LSTM = PREDICTION + "dec_rnn.lstm."


def _structured(tensors, enc, rng, vocab, config):
    """The last steps of the recipe of NeMo's large and sparse cases."""
    flip = rng.random(config["T_full"]) < 0.28
    enc[:, 0] = np.where(np.cumsum(flip) % 2 == 0, 1, -1)
    par = np.where(np.arange(vocab) % 2 == 0, 1, -1).astype(np.float32)
    tensors[PREDICTION + "embed.weight"][:vocab, 0] = par
    size = config["pred_hidden"]
    for layer in range(config["pred_rnn_layers"]):
        rows = [0, size, 2 * size, 3 * size]
        for name in ("weight_ih", "weight_hh", "bias_hh"):
            tensors[f"{LSTM}{name}_l{layer}"][rows] = 0
        tensors[f"{LSTM}bias_ih_l{layer}"][rows] = [6, -6, 0, 6]
        tensors[f"{LSTM}weight_ih_l{layer}"][2 * size, 0] = 4
    for part in ("pred", "enc"):
        tensors[f"joint.{part}.weight"][:4] = 0
        tensors[f"joint.{part}.bias"][:4] = 0
    tensors["joint.enc.weight"][:4, 0] = [4, -4, 2, -2]
    tensors["joint.pred.weight"][:2, 0] = [5.25, -5.25]
    tensors["joint.enc.bias"][:2] = -4
    out = tensors["joint.joint_net.2.weight"]
    out[:, :4] = 0
    out[vocab, :2] = 4 if config["activation"] == "tanh" else 2
    out[:vocab, 2] = np.float32(0.75) * par
    out[:vocab, 3] = np.float32(-0.75) * par


def nemo_tensors(name, config):
    """Weights and encoder frames of a NeMo case from its recipe, checked by their sha256."""
    recipe = config["recipe"]
    rng = np.random.Generator(np.random.PCG64(config["seed"]))
    vocab, embed = config["vocab_size"], PREDICTION + "embed.weight"
    tensors = {}
    for tensor, shape, half in recipe["arrays"]:
        if name == "e_blank_as_pad_true" and tensor == embed:
            shape = [vocab, shape[1]]  # the draws of e_blank_as_pad_false, then a zero row
        tensors[tensor] = ((2.0 * rng.random(shape) - 1.0) * half).astype(np.float32)
    if name == "e_blank_as_pad_true":
        tensors[embed] = np.pad(tensors[embed], ((0, 1), (0, 0)))
    linear = f"joint.joint_net.{config['output_linear_index']}"
    weight, bias = tensors[f"{linear}.weight"], tensors[f"{linear}.bias"]
    weight[:, 1::2] = -weight[:, 0::2]
    bias[vocab] += np.float32(config["blank_bias"])
    if config.get("structured"):
        _structured(tensors, tensors["enc"], rng, vocab, config)
    if config["zero_pad_row"] and config["blank_as_pad"]:
        tensors[embed][vocab] = 0
    if name.startswith("g_ties"):
        _make_ties(name, weight, bias)
    for tensor, array in tensors.items():
        found = hashlib.sha256(array.tobytes()).hexdigest()
        assert found == recipe["sha256"][tensor], f"{tensor} does not follow its recipe"
    return tensors


def _make_ties(name, weight, bias):
    """What was done to the output layer after the recipe, as the manifest says."""
    if name == "g_ties_twins":
        weight[12:24] = weight[:12]
        bias[12:24] = bias[:12]
        return
    weight[:] = 0
    bias[:] = 0.75
    if name == "g_ties_5_and_blank":
        bias[:] = -1
        bias[[5, -1]] = 0.75


def nemo_case(folder, name):
    """(model, encoder frames, golden arrays, config) of one NeMo case."""
    with np.load(folder / f"{name}.npz") as data:
        golden = dict(data)
    config = json.loads(str(golden["config"]))
    saved = {key: golden[key] for key in golden if key.startswith(("decoder.", "joint."))}
    tensors = {**saved, "enc": golden["enc"]} if saved else nemo_tensors(name, config)
    enc = tensors.pop("enc")[: int(golden["enc_len"])]
    model = pkrnnt.FloatModel.from_tensors(
        tensors, joint_activation=config["activation"], max_symbols=config["max_symbols"]
    )
    return model, enc, golden, config


def random_tensors(rng, *, vocab=6, hidden=5, layers=1, joint=7, enc=4, embed=None, gain=1.5):
    """Weights under NeMo's names, uniform within +-gain."""
    embed = embed or hidden

    def uniform(*shape):
        return rng.uniform(-gain, gain, shape).astype(np.float32)

    tensors = {PREDICTION + "embed.weight": uniform(vocab + 1, embed)}
    for layer in range(layers):
        tensors[f"{LSTM}weight_ih_l{layer}"] = uniform(4 * hidden, hidden if layer else embed)
        tensors[f"{LSTM}weight_hh_l{layer}"] = uniform(4 * hidden, hidden)
        tensors[f"{LSTM}bias_ih_l{layer}"] = uniform(4 * hidden)
        tensors[f"{LSTM}bias_hh_l{layer}"] = uniform(4 * hidden)
    for part, width in (("enc", enc), ("pred", hidden)):
        tensors[f"joint.{part}.weight"] = uniform(joint, width)
        tensors[f"joint.{part}.bias"] = uniform(joint)
    tensors["joint.joint_net.2.weight"] = uniform(vocab + 1, joint)
    tensors["joint.joint_net.2.bias"] = uniform(vocab + 1)
    return tensors


def random_float_model(seed=0, activation="relu", max_symbols=3, **sizes):
    rng = np.random.default_rng(seed)
    return pkrnnt.FloatModel.from_tensors(
        random_tensors(rng, **sizes), joint_activation=activation, max_symbols=max_symbols
    )


def random_enc(model, frames, seed=1):
    shape = (frames, model.config.enc_hidden)
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def quantized(model, enc=None, granularity="row", method="minmax"):
    """The int8 model of a float model, calibrated on ``enc`` (or on random frames)."""
    enc = random_enc(model, 60, seed=99) if enc is None else enc
    observed = observe(model, Utterances([enc, enc[::-1]]), range_method(method))
    return quantize_model(model, observed.ranges, granularity=granularity)


def script_model(rules, kinds, vocab, max_symbols=10, **settings):
    """A model whose argmax is a function of (frame kind, last token), with wide margins.

    Args:
        rules: {(frame kind, last token or SOS): token}; everything else is blank.
        kinds: number of frame kinds; a frame is a one-hot of its kind.
        vocab: number of tokens.

    The LSTM is a one-step buffer (forget closed, input and output open), so h marks the last token;
    each joint unit is an AND gate of one frame kind and one last token (or of none, for SOS).
    """
    hidden = vocab
    tensors = {PREDICTION + "embed.weight": np.zeros((vocab + 1, hidden), np.float32)}
    tensors[PREDICTION + "embed.weight"][:vocab] = np.eye(vocab)
    weight_ih = np.zeros((4 * hidden, hidden))
    weight_ih[2 * hidden : 3 * hidden] = 10 * np.eye(hidden)
    bias_ih = np.repeat([20.0, -20.0, 0.0, 20.0], hidden)
    tensors[LSTM + "weight_ih_l0"] = weight_ih.astype(np.float32)
    tensors[LSTM + "weight_hh_l0"] = np.zeros((4 * hidden, hidden), np.float32)
    tensors[LSTM + "bias_ih_l0"] = bias_ih.astype(np.float32)
    tensors[LSTM + "bias_hh_l0"] = np.zeros(4 * hidden, np.float32)
    units = max(len(rules), 1)
    enc = np.zeros((units, kinds), np.float32)
    pred = np.zeros((units, hidden), np.float32)
    enc_bias = np.full(units, -1.0, np.float32)
    out = np.zeros((vocab + 1, units), np.float32)
    bias = np.zeros(vocab + 1, np.float32)
    bias[vocab] = 4
    for unit, ((kind, last), token) in enumerate(rules.items()):
        enc[unit, kind] = 2
        if last == pkrnnt.SOS:
            pred[unit] = -4  # any token so far closes the gate
        else:
            pred[unit] = -1
            pred[unit, last] = 1
            enc_bias[unit] = -2
        out[token, unit] = 16
    tensors |= {
        "joint.enc.weight": enc,
        "joint.enc.bias": enc_bias,
        "joint.pred.weight": pred,
        "joint.pred.bias": np.zeros(units, np.float32),
        "joint.joint_net.2.weight": out,
        "joint.joint_net.2.bias": bias,
    }
    return pkrnnt.FloatModel.from_tensors(tensors, max_symbols=max_symbols, **settings)


def one_hot(kinds, width):
    """Encoder frames [T, width] of the given frame kinds."""
    return np.eye(width, dtype=np.float32)[np.asarray(kinds, int)]


def snapshot(state):
    """Everything a state carries, as comparable values."""
    lookahead = state.lookahead
    return (
        [array.tobytes() for array in state.prediction_state],
        state.last_token,
        state.have_token,
        state.hyp.tokens,
        state.hyp.frames,
        state.hyp.confidence,
        state.frames_decoded,
        None
        if lookahead is None
        else [a.tobytes() for a in (lookahead.pred_proj, *lookahead.prediction_state)],
    )
