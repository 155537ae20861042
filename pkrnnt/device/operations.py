"""What decoding does, counted exactly: events of the decode, and the operations they take on a core."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pkrnnt import greedy
from pkrnnt.device.shape import Matrix, Shape
from pkrnnt.hypothesis import Hypothesis, RnntDecodeState
from pkrnnt.model import Int8Model

BLOCK = 32  # rows between sums and requantization in the runtime
LANES = 4  # of a vector of MVE
LOADED_BYTES = {"scalar": 1, "dsp": 4, "mve": 16}  # of weights by a load of each kind of kernels
ROWS = 4  # that the scalar and the DSP kernels take at a time


@dataclass
class Events:
    """What happened in each frame: int64 arrays [frames]."""

    tokens: NDArray[np.int64]
    joint_steps: NDArray[np.int64]
    prediction_steps: NDArray[np.int64]
    exp_terms: NDArray[np.int64]
    """classes near enough to the best to count in a confidence"""
    skipped_terms: NDArray[np.int64]

    @classmethod
    def zeros(cls, frames: int) -> Events:
        return cls(*(np.zeros(frames, np.int64) for _ in fields(cls)))

    @classmethod
    def longest_frame(cls, max_symbols: int, classes: int) -> Events:
        """Those of a frame with as many tokens as may stand on one, every class in each confidence."""
        terms = max_symbols * classes if classes > 1 else 0
        counts = (max_symbols, max_symbols, max_symbols, terms, 0)
        return cls(*(np.array([count], np.int64) for count in counts))

    @classmethod
    def joined(cls, parts: list[Events]) -> Events:
        """Those of several utterances, one after another."""
        return cls(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(cls)))


class _Watched:
    """The prediction and the joint network of a model, which note what is asked of them."""

    def __init__(self, model: Int8Model, events: Events):
        self.model, self.events = model, events
        self.frame = 0
        self.diff_min = model.quantization.joint.softmax[2]

    def zero_state(self) -> Any:
        return self.model.prediction.zero_state()

    def step(self, token: int, state: Any) -> Any:
        self.events.prediction_steps[self.frame] += 1
        return self.model.prediction.step(token, state)

    def project_enc(self, enc: ArrayLike) -> NDArray[Any]:
        return self.model.joint.project_enc(enc)

    def project_pred(self, g: NDArray[Any]) -> NDArray[Any]:
        return self.model.joint.project_pred(g)

    def output(self, enc_proj_t: NDArray[Any], pred_proj: NDArray[Any]) -> NDArray[Any]:
        self.events.joint_steps[self.frame] += 1
        return self.model.joint.output(enc_proj_t, pred_proj)

    def argmax(self, logits: NDArray[Any]) -> int:
        return self.model.joint.argmax(logits)

    def confidence(self, logits: NDArray[Any], token: int) -> float:
        near = int((logits.astype(np.int64) - int(logits[token]) >= self.diff_min).sum())
        if len(logits) > 1:
            self.events.exp_terms[self.frame] += near
            self.events.skipped_terms[self.frame] += len(logits) - near
        self.events.tokens[self.frame] += 1
        return self.model.joint.confidence(logits, token)


def watch(
    model: Int8Model, enc: NDArray[Any], max_symbols: int
) -> tuple[Hypothesis, RnntDecodeState, Events]:
    """Decodes an utterance frame by frame with the loop of ``greedy.py``, and counts.

    Args:
        model: whose decoder it is.
        enc: encoder frames [T, enc_hidden].
        max_symbols: most tokens on one frame.

    Returns:
        The hypothesis and the state, equal to the fused decoder's, and the events of each frame.

    Raises:
        ValueError: as ``greedy.rnnt_decode_frames``.
    """
    events = Events.zeros(len(enc))
    watched = _Watched(model, events)
    state = greedy.rnnt_decode_init(model)
    for watched.frame in range(len(enc)):
        one = enc[watched.frame : watched.frame + 1]
        greedy.decode_frames(watched, watched, model.config.blank_id, one, state, max_symbols)
    return state.hyp, state, events


def _products(matrix: Matrix, kernels: str, whole: bool) -> dict[str, int]:
    """What a matrix-vector product takes of a core; ``whole`` if its rows do not go in blocks."""
    blocks = [min(BLOCK, matrix.rows - row) for row in range(0, matrix.rows, BLOCK)]
    if whole:
        blocks = [matrix.rows]
    if kernels == "mve":
        left = matrix.cols % 96
        tails = -(-(left % 32) // 16)
        panels = matrix.cols // 96 + left // 32 + tails
        return {
            "matvec": 1,
            "block": len(blocks),
            "row": sum(-(-rows // LANES) for rows in blocks),
            "panel": panels * len(blocks),
            "panel_96": matrix.cols // 96 * matrix.rows,
            "panel_32": left // 32 * matrix.rows,
            "panel_16": tails * matrix.rows,
        }
    passes = sum(rows // ROWS for rows in blocks)
    found = {
        "matvec": 1,
        "block": len(blocks),
        "row": matrix.rows,
        "pass": passes,
        "rest": sum(rows % ROWS for rows in blocks) * matrix.cols,
    }
    if kernels == "dsp":
        return {
            **found,
            "step": passes * (matrix.cols // 8),
            "tail": passes * (matrix.cols % 8),
            "widen": matrix.cols // 4,
        }
    return {**found, "step": passes * matrix.cols, "tail": passes * (matrix.cols % 4)}


def work(shape: Shape, events: Events) -> dict[str, NDArray[np.int64]]:
    """What decoding takes on any core: int64 [frames] each.

    ``macs`` multiply-accumulates, ``requantizes``, ``lookups`` in the activation table,
    ``weight_bytes`` read of matrices and tables, ``prediction_steps``, ``joint_steps``, ``tokens``.
    """
    units = shape.config.pred_layers * shape.config.pred_hidden
    table = shape.config.joint_activation != "relu"

    def total(matrices: tuple[Matrix, ...], what: str) -> int:
        return sum(int(getattr(matrix, what)) for matrix in matrices)

    steps = {
        "macs": (total(shape.prediction, "products"), shape.enc.products, shape.out.products),
        "requantizes": (
            total(shape.prediction, "rows") + 3 * units,
            shape.enc.rows,
            shape.out.rows + shape.out.cols,
        ),
        "lookups": (5 * units, 0, shape.out.cols if table else 0),
        "weight_bytes": (
            total(shape.prediction, "stored_bytes") + shape.lookup_bytes,
            shape.enc.stored_bytes,
            shape.out.stored_bytes,
        ),
    }
    found = {
        name: prediction * events.prediction_steps + frame + joint * events.joint_steps
        for name, (prediction, frame, joint) in steps.items()
    }
    return {
        **found,
        "prediction_steps": events.prediction_steps,
        "joint_steps": events.joint_steps,
        "tokens": events.tokens,
    }


def operations(shape: Shape, events: Events, kernels: str) -> dict[str, NDArray[np.int64]]:
    """How often each operation of a core's instruction table occurs: int64 [frames] each.

    Args:
        shape: of the model.
        events: of the decode, one call a frame.
        kernels: the core's, ``"scalar"``, ``"dsp"`` or ``"mve"``.
    """
    config = shape.config
    lanes = LANES if kernels == "mve" else 1
    unit = "relu_unit" if config.joint_activation == "relu" else "table_unit"
    ones = np.ones(len(events.tokens), np.int64)
    found: dict[str, NDArray[np.int64]] = {
        "frame": ones,
        "prediction_step": events.prediction_steps,
        "joint_step": events.joint_steps,
        "token": events.tokens,
        "exp_term": events.exp_terms,
        "skipped_term": events.skipped_terms,
        "logit": events.joint_steps * shape.out.rows,
        "lstm_unit": events.prediction_steps * config.pred_layers * -(-config.pred_hidden // lanes),
        unit: events.joint_steps * -(-config.joint_hidden // lanes),
    }
    for matrix, times, whole in (
        *((matrix, events.prediction_steps, False) for matrix in shape.prediction),
        (shape.enc, ones, False),
        (shape.out, events.joint_steps, True),
    ):
        for name, count in _products(matrix, kernels, whole).items():
            found[name] = found.get(name, 0 * ones) + count * times
    return found


def instructions(
    counts: Mapping[str, NDArray[np.int64]], table: Mapping[str, float]
) -> NDArray[np.float64]:
    """Instructions of each frame by a core's table: float64 [frames]."""
    found = np.zeros(len(counts["frame"]))
    for name, count in counts.items():
        found += table[name] * count
    return found
