"""Models and frames to measure on: the bundled digits, and random ones that decode like speech."""

from dataclasses import dataclass

import numpy as np

import pkrnnt
from pkrnnt.dataset import Utterances, bundled, load_utterances
from quant import observe, quantize_model
from quant.ranges import range_method


@dataclass(frozen=True)
class Case:
    name: str
    float_model: pkrnnt.FloatModel
    int8_model: pkrnnt.Int8Model
    utterances: list


def digits():
    model = pkrnnt.load(bundled("float.safetensors"))
    width = model.config.enc_hidden
    calibration = load_utterances(bundled("calibration.npz"), width)
    observed = observe(model, calibration, range_method("minmax"))
    int8_model = quantize_model(model, observed.ranges, moments=observed.moments)
    utterances = load_utterances(bundled("evaluation.npz"), width).enc
    return Case("digits", model, int8_model, [enc.astype(np.float32) for enc in utterances])


def speech_like(name, *, hidden, joint, vocab, enc, layers, frames, seed, flips=0.255):
    """Random weights that emit about one token each time frame column 0 changes sign.

    Everything is uniform with NeMo-like gains (numpy PCG64, ``seed``); then a few rows make an emission
    follow each flip: LSTM unit 0 remembers the parity of the last token, joint units 0-3 compare it
    with the sign of frame column 0, and blank wins while they agree. A flip comes with probability
    ``flips`` on each frame, so about 76 % of the frames are blank.
    """
    rng = np.random.Generator(np.random.PCG64(seed))

    def uniform(*shape, half):
        return ((2 * rng.random(shape) - 1) * half).astype(np.float32)

    def weight(rows, cols, gain):
        return uniform(rows, cols, half=gain * np.sqrt(3 / cols))

    parity = np.where(np.arange(vocab) % 2 == 0, 1, -1).astype(np.float32)
    prediction = "decoder.prediction."
    embed = uniform(vocab + 1, hidden, half=1.0)
    embed[:vocab, 0], embed[vocab] = parity, 0
    tensors = {prediction + "embed.weight": embed}
    rows = [0, hidden, 2 * hidden, 3 * hidden]
    for layer in range(layers):
        for suffix, gain in (("ih", 2.0), ("hh", 1.5)):
            matrix = weight(4 * hidden, hidden, gain)
            bias = uniform(4 * hidden, half=0.3)
            matrix[rows], bias[rows] = 0, 0
            if suffix == "ih":
                matrix[2 * hidden, 0], bias[rows] = 4, [6, -6, 0, 6]
            tensors[f"{prediction}dec_rnn.lstm.weight_{suffix}_l{layer}"] = matrix
            tensors[f"{prediction}dec_rnn.lstm.bias_{suffix}_l{layer}"] = bias
    for part, width, gain in (("pred", hidden, 5.0), ("enc", enc, 1.8)):
        matrix, bias = weight(joint, width, gain), uniform(joint, half=0.1)
        matrix[:4], bias[:4] = 0, 0
        tensors[f"joint.{part}.weight"], tensors[f"joint.{part}.bias"] = matrix, bias
    tensors["joint.enc.weight"][:4, 0] = [4, -4, 2, -2]
    tensors["joint.pred.weight"][:2, 0] = [5.25, -5.25]
    tensors["joint.enc.bias"][:2] = -4
    out, bias = weight(vocab + 1, joint, 1.5), uniform(vocab + 1, half=0.5)
    out[:, 1::2] = -out[:, 0::2]
    out[:, :4], out[vocab, :2] = 0, 2
    out[:vocab, 2], out[:vocab, 3] = 0.75 * parity, -0.75 * parity
    bias[vocab] += 4
    tensors["joint.joint_net.2.weight"], tensors["joint.joint_net.2.bias"] = out, bias
    model = pkrnnt.FloatModel.from_tensors(tensors)

    def utterance(count):
        x = uniform(count, enc, half=1.0)
        x[:, 0] = np.where(np.cumsum(rng.random(count) < flips) % 2 == 0, 1, -1)
        return x

    calibration, evaluation = utterance(400), utterance(frames)
    observed = observe(model, Utterances([calibration, evaluation[:100]]), range_method("minmax"))
    return Case(name, model, quantize_model(model, observed.ranges), [evaluation])


def parakeet(layers):
    """The size of NVIDIA's Parakeet: 60 s of 80 ms frames."""
    return speech_like(
        f"parakeet_l{layers}", hidden=640, joint=640, vocab=1024, enc=1024, layers=layers,
        frames=750, seed=7 + layers,
    )  # fmt: skip


def small():
    """Five times smaller in each direction."""
    return speech_like(
        "small", hidden=128, joint=128, vocab=204, enc=204, layers=1, frames=750, seed=5
    )  # fmt: skip
