"""Calibration: ranges observed along the float path, and argmax agreement of int8 with float.

Both walk the joint calls the float decoder makes. Teacher-forced agreement asks the int8 model at
each of those calls, given the float decoder's own tokens so far; free-running agreement compares
what the two decode alone. Up to its first different argmax an int8 decode has the same history as
the float one, so the first teacher-forced disagreement of an utterance is where a free-running one
leaves it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pkrnnt import SOS, FloatModel, Hypothesis, Int8Model, SaturationCounters, rnnt_greedy
from pkrnnt.dataset import Utterances
from pkrnnt.model import EMBED, JOINT_ENC, JOINT_OUT, JOINT_PRED, LSTM
from pkrnnt.reference import product
from pkrnnt.text import text
from quant.ranges import Interval, RangeMethod, RangeObserver, Ranges
from quant.rounding import InputMoments

Wrap = Callable[[Iterable[Any], str], Iterable[Any]]
"""Shows progress over an iterable, with a label."""

POSITIONS = ((0, 100), (100, 500), (500, None))
"""Joint calls are also counted by how many tokens came before."""


def no_progress(items: Iterable[Any], _: str) -> Iterable[Any]:
    return items


@dataclass(frozen=True)
class Path:
    """The joint calls of one greedy decode, in order."""

    frame: NDArray[np.int64]
    """[calls] encoder frame"""
    step: NDArray[np.int64]
    """[calls] tokens emitted before the call: which prediction step's output it used"""
    label: NDArray[np.int64]
    """[calls] token emitted, or blank"""


def greedy_path(hyp: Hypothesis, frames: int, blank_id: int, max_symbols: int) -> Path:
    """The joint calls behind a hypothesis: its tokens, and a blank on each frame below max_symbols."""
    calls = []
    emitted = 0
    for frame in range(frames):
        symbols = 0
        while emitted < len(hyp) and hyp.frames[emitted] == frame:
            calls.append((frame, emitted, hyp.tokens[emitted]))
            emitted += 1
            symbols += 1
        if symbols < max_symbols:
            calls.append((frame, emitted, blank_id))
    frame_step_label = np.array(calls, np.int64).reshape(-1, 3)
    return Path(*frame_step_label.T)


@dataclass(frozen=True)
class Trace:
    """One utterance along the float path: what each prediction step and joint call held."""

    hyp: Hypothesis
    path: Path
    h: NDArray[np.float32]
    """[tokens + 1, layers, H] after each prediction step"""
    c: NDArray[np.float32]
    """[tokens + 1, layers, H]"""
    enc_proj: NDArray[np.float32]
    """[frames, J]"""
    pred_proj: NDArray[np.float32]
    """[tokens + 1, J]"""
    hidden: NDArray[np.float32]
    """[calls, J], the joint's activation"""


def trace(model: FloatModel, enc: NDArray[np.floating]) -> Trace:
    """Decodes an utterance along the float path and keeps what it went through."""
    hyp = rnnt_greedy(model, enc)
    path = greedy_path(hyp, len(enc), model.config.blank_id, model.max_symbols)
    state = model.prediction.zero_state()
    states, projections = [], []
    for token in [SOS, *hyp.tokens]:
        g, state = model.prediction.step(token, state)
        states.append(state)
        projections.append(model.joint.project_pred(g))
    enc_proj, pred_proj = model.joint.project_enc(enc), np.array(projections)
    hidden = model.joint.hidden(enc_proj[path.frame], pred_proj[path.step])
    h, c = (np.array(part) for part in zip(*states, strict=True))
    return Trace(hyp, path, h, c, enc_proj, pred_proj, hidden)


def _inputs(model: FloatModel, enc: NDArray[np.floating], seen: Trace) -> dict[str, NDArray[np.float32]]:
    """The input vectors of every matrix along a trace, by weight name."""
    before = np.concatenate([np.zeros_like(seen.h[:1]), seen.h[:-1]])
    start = np.zeros((1, model.config.embed_dim), np.float32)
    x = np.concatenate([start, model.embed[seen.hyp.tokens]])
    inputs = {}
    for layer in range(model.config.pred_layers):
        inputs[f"{LSTM}.weight_ih_l{layer}"] = x
        inputs[f"{LSTM}.weight_hh_l{layer}"] = before[:, layer]
        x = seen.h[:, layer]
    inputs[f"{JOINT_ENC}.weight"] = np.asarray(enc, np.float32)
    inputs[f"{JOINT_PRED}.weight"] = x
    inputs[f"{JOINT_OUT}.weight"] = seen.hidden
    return inputs


@dataclass(frozen=True)
class Observation:
    """What calibration saw."""

    ranges: Ranges
    moments: dict[str, InputMoments]
    """second moments of each matrix's input, by weight name"""
    utterances: int
    frames: int
    warnings: list[str]


def observe(
    model: FloatModel, utterances: Utterances, method: RangeMethod, progress: Wrap = no_progress
) -> Observation:
    """Ranges of every activation over calibration frames, in any order the same.

    Args:
        model: decoded along its float path.
        utterances: calibration frames.
        method: how a range is chosen from a histogram, see ``ranges.range_method``.
        progress: shows progress.

    Raises:
        ValueError: no calibration frame.
    """
    if utterances.frames == 0:
        raise ValueError(
            f"calibration has {len(utterances)} utterances with 0 frames, wanted at least one frame"
        )
    layers = range(model.config.pred_layers)
    enc, joint_sum, joint_hidden = RangeObserver(), RangeObserver(), RangeObserver()
    hidden, cell = [RangeObserver() for _ in layers], [RangeObserver() for _ in layers]
    moments = {
        name: InputMoments(weight.shape[1])
        for name, weight in model.tensors().items()
        if weight.ndim == 2 and name != f"{EMBED}.weight"
    }
    loudest = (0.0, 0, 0)
    for index, frames in enumerate(progress(utterances, "observing ranges")):
        seen = trace(model, frames)
        enc.update(np.asarray(frames, np.float32))
        for layer in layers:
            hidden[layer].update(seen.h[:, layer])
            cell[layer].update(seen.c[:, layer])
        joint_sum.update(seen.enc_proj)
        joint_sum.update(seen.pred_proj)
        joint_sum.update(seen.enc_proj[seen.path.frame] + seen.pred_proj[seen.path.step])
        joint_hidden.update(seen.hidden)
        for name, x in _inputs(model, frames, seen).items():
            moments[name].update(x)
        if len(frames):
            peaks = np.abs(np.asarray(frames, np.float32)).max(axis=1)
            loudest = max(loudest, (float(peaks.max()), index, int(peaks.argmax())))
    warnings = []
    if utterances.frames == 1 or len(utterances) == 1:
        warnings.append(
            f"calibration has {len(utterances)} utterance(s), {utterances.frames} frame(s): ranges "
            f"may not hold for others"
        )
    peak, index, frame = loudest
    usual = max(map(abs, enc.percentile(99.9)))
    if peak > 4 * usual:
        warnings.append(
            f"calibration frame {frame} of utterance {index} reaches {peak:.4g}, and 99.9 % of the "
            f"values keep to {usual:.4g}: it stretches the range; --range percentile:99.9 leaves it out"
        )
    ranges = Ranges(
        enc=method(enc, 8),
        hidden=tuple(method(observer, 8) for observer in hidden),
        cell=tuple(_magnitude(method(observer, 16)) for observer in cell),
        joint_sum=_magnitude(method(joint_sum, 16)),
        joint_hidden=method(joint_hidden, 8),
    )
    return Observation(ranges, moments, len(utterances), utterances.frames, warnings)


def _magnitude(interval: Interval) -> float:
    return max(-interval[0], interval[1])


def edit_distance(a: list[Any], b: list[Any]) -> int:
    """Levenshtein distance of two sequences."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (x != y))
    return row[-1]


@dataclass(frozen=True)
class Disagreement:
    """One joint call where the int8 argmax is not the float one."""

    utterance: int
    frame: int
    float_label: int
    int8_label: int
    margin: float
    """float: best logit minus second best"""
    first: bool
    """whether it is the utterance's first"""


@dataclass
class Agreement:
    """Agreement of an int8 model with its float model on some utterances."""

    utterances: int = 0
    joint_calls: int = 0
    agreeing: int = 0
    nonblank_calls: int = 0
    nonblank_agreeing: int = 0
    disagreements: list[Disagreement] = field(default_factory=list)
    blank_id: int = 0
    utterances_identical: int = 0
    utterances_identical_frames: int = 0
    tokens: int = 0
    token_edits: int = 0
    different_tokens: list[int] = field(default_factory=list)
    """utterances whose free-running tokens differ"""
    by_position: list[list[int]] = field(default_factory=lambda: [[0, 0] for _ in POSITIONS])
    """[calls, agreeing] for each of POSITIONS"""
    words: int | None = None
    """words of the references, None without references"""
    word_errors_float: int = 0
    word_errors_int8: int = 0
    saturation: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def argmax_agreement(self) -> float | None:
        """Of all joint calls; None where there was none."""
        return self.agreeing / self.joint_calls if self.joint_calls else None

    @property
    def argmax_agreement_nonblank(self) -> float | None:
        """Of the calls where the float decoder emits a token; None where there was none."""
        return self.nonblank_agreeing / self.nonblank_calls if self.nonblank_calls else None

    def kinds(self) -> dict[str, list[Disagreement]]:
        """Disagreements by what they do: a lost token, an added one, or another one."""
        kinds: dict[str, list[Disagreement]] = {
            "token_to_blank": [],
            "blank_to_token": [],
            "token_to_token": [],
        }
        for found in self.disagreements:
            if found.int8_label == self.blank_id:
                kinds["token_to_blank"].append(found)
            elif found.float_label == self.blank_id:
                kinds["blank_to_token"].append(found)
            else:
                kinds["token_to_token"].append(found)
        return kinds

    def word_error_rate(self, errors: int) -> float | None:
        return errors / self.words if self.words else None


def _margins(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Best minus second best of float logits [calls, V + 1]."""
    if logits.shape[1] < 2:
        return np.full(len(logits), np.inf, np.float32)
    top = np.partition(logits, -2, axis=1)
    return top[:, -1] - top[:, -2]


def _teacher_forced(model: Int8Model, enc: NDArray[np.floating], seen: Trace) -> NDArray[np.int64]:
    """[calls] int8 argmax at each joint call of the float path, given the float tokens."""
    enc_proj = model.joint.project_enc(enc)
    state = model.prediction.zero_state()
    projections = []
    for token in [SOS, *seen.hyp.tokens]:
        g, state = model.prediction.step(token, state)
        projections.append(model.joint.project_pred(g))
    return np.array(
        [
            model.joint.argmax(model.joint.output(enc_proj[frame], projections[step]))
            for frame, step in zip(seen.path.frame, seen.path.step, strict=True)
        ],
        np.int64,
    )


def measure_agreement(
    float_model: FloatModel,
    int8_model: Int8Model,
    utterances: Utterances,
    progress: Wrap = no_progress,
    label: str = "measuring agreement",
) -> Agreement:
    """Agreement of the int8 model with the float one, teacher-forced and free-running.

    Word error rates are measured where the utterances have references and the model a vocabulary.
    """
    blank_id = float_model.config.blank_id
    result = Agreement(blank_id=blank_id, utterances=len(utterances))
    references = utterances.references
    if references is not None and float_model.config.vocabulary is not None:
        result.words = 0
    counters = SaturationCounters()
    for index, enc in enumerate(progress(utterances, label)):
        seen = trace(float_model, enc)
        path = seen.path
        labels = _teacher_forced(int8_model, enc, seen)
        same = labels == path.label
        nonblank = path.label != blank_id
        result.joint_calls += len(same)
        result.agreeing += int(same.sum())
        result.nonblank_calls += int(nonblank.sum())
        result.nonblank_agreeing += int((same & nonblank).sum())
        for counts, (first, last) in zip(result.by_position, POSITIONS, strict=True):
            there = (path.step >= first) & (path.step < (last or np.inf))
            counts[0] += int(there.sum())
            counts[1] += int((same & there).sum())
        wrong = np.flatnonzero(~same)
        margins = _margins(
            product(seen.hidden[wrong], float_model.joint_out.weight.T) + float_model.joint_out.bias
        )
        result.disagreements += [
            Disagreement(
                index,
                int(path.frame[call]),
                int(path.label[call]),
                int(labels[call]),
                float(margin),
                call == wrong[0],
            )
            for call, margin in zip(wrong, margins, strict=True)
        ]

        hyp = rnnt_greedy(int8_model, enc, counters=counters)
        result.tokens += len(seen.hyp)
        result.token_edits += edit_distance(seen.hyp.tokens, hyp.tokens)
        if hyp.tokens == seen.hyp.tokens:
            result.utterances_identical += 1
            result.utterances_identical_frames += hyp.frames == seen.hyp.frames
        else:
            result.different_tokens.append(index)
        if result.words is not None and references is not None:
            reference = references[index].split()
            result.words += len(reference)
            for name, tokens in (("float", seen.hyp.tokens), ("int8", hyp.tokens)):
                errors = edit_distance(reference, text(float_model.config, tokens).split())
                setattr(result, f"word_errors_{name}", getattr(result, f"word_errors_{name}") + errors)
    result.saturation = counters.as_dict()
    return result
