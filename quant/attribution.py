"""Which tensor costs most: each one quantized alone, everything else float, logits compared."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pkrnnt import SOS, FloatModel, Int8Model
from pkrnnt.dataset import Utterances
from pkrnnt.kernels.linear import Linear as LinearInt8
from pkrnnt.model import EMBED
from pkrnnt.reference import Linear, LstmWeights, product
from quant.calibration import Trace, Wrap, no_progress, trace

# Enough to rank tensors; more would only take longer.
UTTERANCES = 40


@dataclass(frozen=True)
class TensorCost:
    """One weight tensor of an int8 model and what its integers cost."""

    name: str
    dtype: str
    bytes: int
    scale: float
    """largest scale of its rows"""
    scale_min: float
    sqnr_db: float
    """signal to quantization noise of the weights themselves"""
    logit_sqnr_db: float
    """signal to noise of the logits along the float path when this tensor alone is int8"""


def decibels(signal: NDArray[np.floating], noise: NDArray[np.floating]) -> float:
    """10 log10 of the power ratio; at most 200, which stands for no noise at all."""
    power = float(np.square(noise, dtype=np.float64).sum())
    wanted = float(np.square(signal, dtype=np.float64).sum())
    if power == 0 or wanted == 0:
        return 200.0 if power == 0 else -200.0
    return float(min(10 * np.log10(wanted / power), 200.0))


def dequantized(linear: LinearInt8, scale: NDArray[np.float64], input: tuple[float, int]) -> Linear:
    """The float layer whose weights and biases are what the integers stand for."""
    input_scale, zero_point = input
    weight = linear.weight
    bias = linear.bias + zero_point * weight.sum(axis=1, dtype=np.int64)
    return Linear(
        (weight * scale[:, None]).astype(np.float32),
        (bias * (scale * input_scale)).astype(np.float32),
    )


def with_one_tensor(float_model: FloatModel, int8_model: Int8Model, name: str) -> FloatModel:
    """The float model with one tensor (and the bias rounded together with it) replaced."""
    scales = int8_model.weight_scales()
    if name == f"{EMBED}.weight":
        embed = (int8_model.embed * scales[name]).astype(np.float32)
        return replace(float_model, embed=embed)
    linear = dequantized(int8_model.linears()[name], scales[name], int8_model.layer_inputs()[name])
    if name.startswith("joint"):
        part = {"enc": "joint_enc", "pred": "joint_pred"}.get(name.split(".")[1], "joint_out")
        changed: dict[str, Any] = {part: linear}
        return replace(float_model, **changed)
    layer = int(name.rsplit("_l", 1)[1])
    lstm = list(float_model.lstm)
    lstm[layer] = (
        LstmWeights(linear, lstm[layer].hidden)
        if "_ih_" in name
        else LstmWeights(lstm[layer].input, linear)
    )
    return replace(float_model, lstm=tuple(lstm))


def _logits(model: FloatModel, enc: NDArray[np.floating], seen: Trace) -> NDArray[np.float32]:
    """[calls, V + 1] at the joint calls of a trace, with its tokens."""
    state = model.prediction.zero_state()
    projections = []
    for token in [SOS, *seen.hyp.tokens]:
        g, state = model.prediction.step(token, state)
        projections.append(model.joint.project_pred(g))
    enc_proj = model.joint.project_enc(enc)
    hidden = model.joint.hidden(enc_proj[seen.path.frame], np.array(projections)[seen.path.step])
    return product(hidden, model.joint_out.weight.T) + model.joint_out.bias


def tensor_costs(
    float_model: FloatModel,
    int8_model: Int8Model,
    utterances: Utterances,
    progress: Wrap = no_progress,
) -> list[TensorCost]:
    """Every weight tensor, the one that costs most first.

    Args:
        utterances: the first 40 with frames are used.
    """
    chosen = [enc for enc in utterances if len(enc)][:UTTERANCES]
    seen = [(enc, trace(float_model, enc)) for enc in chosen]
    reference = [_logits(float_model, enc, one) for enc, one in seen]
    scales, floats = int8_model.weight_scales(), float_model.tensors()
    integers = {name: linear.weight for name, linear in int8_model.linears().items()}
    integers[f"{EMBED}.weight"] = int8_model.embed
    costs = []
    for name in progress(list(integers), "ranking tensors"):
        weight, scale = integers[name], scales[name]
        variant = with_one_tensor(float_model, int8_model, name)
        noise = [
            _logits(variant, enc, one) - wanted
            for (enc, one), wanted in zip(seen, reference, strict=True)
        ]
        costs.append(
            TensorCost(
                name,
                str(weight.dtype),
                weight.nbytes,
                float(scale.max()),
                float(scale.min()),
                decibels(floats[name], floats[name] - weight * scale[:, None]),
                decibels(np.concatenate(reference), np.concatenate(noise)) if seen else 200.0,
            )
        )
    return sorted(costs, key=lambda cost: cost.logit_sqnr_db)
