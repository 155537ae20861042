"""The float path in NumPy: the specification of the mathematics, after NVIDIA NeMo's RNN-T modules.

Everything is float32 except the softmax of the confidence. One frame's or one token's result never
depends on what else is in the call, so any chunking of a stream gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pkrnnt.frames import check_frames
from pkrnnt.hypothesis import SOS, PredictionState

Array = NDArray[np.float32]


def product(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """``a @ b`` of finite values, float32 or float64, without NumPy's floating-point warnings.

    OpenBLAS computes on lanes past the end of small matrices and so reports invalid values where there
    are none (numpy/numpy#24067). A product that truly overflows is refused by ``Joint.argmax``.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        out: NDArray[Any] = np.matmul(a, b)
    return out


@dataclass(frozen=True)
class Linear:
    """``weight @ x + bias``."""

    weight: Array
    """float32 [rows, cols]"""
    bias: Array
    """float32 [rows]"""

    def __call__(self, x: Array) -> Array:
        return product(self.weight, x) + self.bias


@dataclass(frozen=True)
class LstmWeights:
    """One LSTM layer as PyTorch keeps it: 4H rows in the gate order i, f, g, o, two biases."""

    input: Linear
    """weight_ih [4H, I] and bias_ih [4H]"""
    hidden: Linear
    """weight_hh [4H, H] and bias_hh [4H]"""


def sigmoid(x: Array) -> Array:
    # By tanh, so that a large negative x cannot overflow exp.
    half = np.float32(0.5)
    out: Array = half * np.tanh(half * x) + half
    return out


def relu(x: Array) -> Array:
    return np.maximum(x, np.float32(0))


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": relu,
    "sigmoid": sigmoid,
    "tanh": np.tanh,
}


def lstm_cell(gates: Array, c: Array) -> PredictionState:
    """(h, c) float32 [..., H] from pre-activations [..., 4H] (order i, f, g, o) and the old c."""
    i, f, g, o = np.split(gates, 4, axis=-1)
    c_new = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c_new), c_new


class Prediction:
    """Prediction network: embedding and stacked LSTM.

    Args:
        embed: float32 [rows, embed_dim].
        lstm: the layers, bottom first.
    """

    def __init__(self, embed: Array, lstm: Sequence[LstmWeights]) -> None:
        self._embed = embed
        self._lstm = lstm

    def zero_state(self) -> PredictionState:
        """(h, c) before any token: zeros, float32 [layers, H]."""
        shape = (len(self._lstm), self._lstm[0].hidden.weight.shape[1])
        return np.zeros(shape, np.float32), np.zeros(shape, np.float32)

    def step(self, token: int, state: PredictionState) -> tuple[Array, PredictionState]:
        """One step of the network.

        Args:
            token: the last emitted token id, or ``SOS`` for the zero start vector (not the blank row).
            state: (h, c), float32 [layers, H], left as they are.

        Returns:
            (g, (h, c)): the output float32 [H] and the state after the token.

        Raises:
            ValueError: a token outside the embedding.
        """
        rows, width = self._embed.shape
        if not SOS <= token < rows:
            raise ValueError(f"token is {token}, wanted SOS ({SOS}) or 0..{rows - 1}")
        x = self._embed[token] if token != SOS else np.zeros(width, np.float32)
        h_new, c_new = np.empty_like(state[0]), np.empty_like(state[1])
        for layer, (weights, h, c) in enumerate(zip(self._lstm, *state, strict=True)):
            h_new[layer], c_new[layer] = lstm_cell(weights.input(x) + weights.hidden(h), c)
            x = h_new[layer]
        return x, (h_new, c_new)


class Joint:
    """Joint network: two projections, their sum, an activation, the output layer.

    Args:
        enc, pred, out: the linear layers [J, E], [J, H], [V + 1, J].
        activation: ``"relu"``, ``"sigmoid"`` or ``"tanh"``.
    """

    def __init__(self, enc: Linear, pred: Linear, out: Linear, activation: str) -> None:
        self._enc, self._pred, self._out = enc, pred, out
        self._activation = ACTIVATIONS[activation]

    def project_enc(self, enc: ArrayLike) -> Array:
        """float32 [T, J] projections of encoder frames [T, E]; raises ValueError as ``check_frames``."""
        frames = check_frames(enc, self._enc.weight.shape[1])
        # One matrix-vector product a frame: a product of the whole chunk would round a frame's
        # sums differently in different chunks.
        return product(self._enc.weight, frames[:, :, None])[:, :, 0] + self._enc.bias

    def project_pred(self, g: Array) -> Array:
        """float32 [J] projection of the prediction network's output [H]."""
        return self._pred(g)

    def hidden(self, enc_proj: Array, pred_proj: Array) -> Array:
        """float32 [..., J] activations of two projections [..., J]."""
        return self._activation(enc_proj + pred_proj)

    def output(self, enc_proj_t: Array, pred_proj: Array) -> Array:
        """float32 logits [V + 1] of two projections [J]."""
        return self._out(self.hidden(enc_proj_t, pred_proj))

    def logits(self, enc_proj_t: Array, g: Array) -> Array:
        """float32 logits [V + 1] of an encoder projection [J] and a prediction output [H]."""
        return self.output(enc_proj_t, self.project_pred(g))

    def argmax(self, logits: Array) -> int:
        """Index of the largest logit, the lowest index on a tie.

        Raises:
            ValueError: the logits are not finite, so there is no largest.
        """
        token = int(np.argmax(logits))  # the first NaN, where there is one
        if not np.isfinite(logits[token]):
            raise ValueError(f"logit {token} is {logits[token]}, wanted finite logits")
        return token

    def confidence(self, logits: Array, token: int) -> float:
        """NeMo's max_prob confidence of ``token`` from logits [N], N = V + 1.

        (N * p - 1) / (N - 1) with p the softmax probability, clamped to [0, 1]; 1.0 when N is 1.
        """
        n = len(logits)
        if n == 1:
            return 1.0
        weights = np.exp(np.asarray(logits, np.float64) - np.max(logits))
        p = weights[token] / weights.sum()
        return float(min(max((n * p - 1) / (n - 1), 0.0), 1.0))
