"""Greedy RNN-T decoding: the public functions of the seed header, and its loop.

``decode_frames`` is the specification: readable, slow, over any (prediction, joint) pair. A float
model runs it as it stands; an int8 model runs ``decoder.pyx``, which equals it byte for byte.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pkrnnt.hypothesis import Hypothesis, Lookahead, PredictionState, RnntDecodeState
from pkrnnt.saturation import SaturationCounters


class PredictionNetwork(Protocol):
    """What the loop needs of a prediction network."""

    def zero_state(self) -> PredictionState: ...
    def step(self, token: int, state: PredictionState) -> tuple[NDArray[Any], PredictionState]: ...


class JointNetwork(Protocol):
    """What the loop needs of a joint network."""

    def project_enc(self, enc: ArrayLike) -> NDArray[Any]: ...
    def project_pred(self, g: NDArray[Any]) -> NDArray[Any]: ...
    def output(self, enc_proj_t: NDArray[Any], pred_proj: NDArray[Any]) -> NDArray[Any]: ...
    def argmax(self, logits: NDArray[Any]) -> int: ...
    def confidence(self, logits: NDArray[Any], token: int) -> float: ...


class Model(Protocol):
    """What the public functions need of a model; ``FloatModel`` and ``Int8Model`` have it."""

    @property
    def digest(self) -> str: ...
    @property
    def max_symbols(self) -> int: ...
    @property
    def prediction(self) -> PredictionNetwork: ...
    def decode_frames(
        self,
        enc: ArrayLike,
        state: RnntDecodeState,
        max_symbols: int,
        counters: SaturationCounters | None,
    ) -> Hypothesis: ...
    def decode_utterances(
        self, utterances: Sequence[ArrayLike], max_symbols: int, first: int
    ) -> list[Hypothesis]: ...


def decode_frames(
    prediction: PredictionNetwork,
    joint: JointNetwork,
    blank_id: int,
    enc: ArrayLike,
    state: RnntDecodeState,
    max_symbols: int,
) -> Hypothesis:
    """Decodes a chunk: at each frame, tokens until blank or ``max_symbols``, then one frame on.

    The prediction network's new state is adopted only with a token; a blank leaves it as it was.
    The step for the last token is taken when a joint first needs it, and kept until the next token.
    ``state`` changes at the very end, or not at all.
    """
    enc_proj = joint.project_enc(enc)
    hyp = Hypothesis()
    adopted, last_token, lookahead = state.prediction_state, state.last_token, state.lookahead
    for t, enc_proj_t in enumerate(enc_proj):
        for _ in range(max_symbols):
            if lookahead is None:
                g, after = prediction.step(last_token, adopted)
                lookahead = Lookahead(joint.project_pred(g), after)
            logits = joint.output(enc_proj_t, lookahead.pred_proj)
            try:
                token = joint.argmax(logits)
            except ValueError as error:
                raise ValueError(f"encoder frame {t}: {error}") from None
            if token == blank_id:
                break
            hyp.append(token, t, joint.confidence(logits, token))
            adopted, last_token, lookahead = lookahead.prediction_state, token, None
    state.commit(hyp, len(enc_proj), (adopted, lookahead))
    return hyp


def rnnt_decode_init(model: Model) -> RnntDecodeState:
    """A state at the start of a stream."""
    return RnntDecodeState(model.digest, model.prediction.zero_state())


def _max_symbols(model: Model, given: int | None) -> int:
    """Most tokens on one frame: as given, or the model's."""
    if given is None:
        return model.max_symbols
    if not isinstance(given, int | np.integer) or not 1 <= given < 2**31:
        raise ValueError(f"max_symbols is {given!r}, wanted an integer of at least 1, below 2^31")
    return int(given)


def rnnt_decode_frames(
    model: Model,
    enc_chunk: ArrayLike,
    state: RnntDecodeState,
    max_symbols: int | None = None,
    counters: SaturationCounters | None = None,
) -> Hypothesis:
    """Decodes the next chunk of a stream; any chunking gives the same tokens, frames and state.

    Args:
        model: a float or an int8 model.
        enc_chunk: encoder frames [T, enc_hidden], float16, float32 or float64; T may be 0.
        state: of this stream, from ``rnnt_decode_init``. Updated; untouched if an error is raised.
        max_symbols: most tokens on one frame; None takes the model's (10 unless its file says more).
        counters: adds up what saturates in an int8 model.

    Returns:
        The tokens of this call only, frames counted from the start of this chunk. The whole stream
        so far, frames from its start, is ``state.hyp``.

    Raises:
        ValueError: frames that are not [T, enc_hidden] finite floats, ``max_symbols`` < 1, or a
            state made for another model.
        RuntimeError: another thread is decoding with this state.
    """
    max_symbols = _max_symbols(model, max_symbols)
    if state.model_digest != model.digest:
        raise ValueError(
            f"the state was made for model {state.model_digest[:12]}, "
            f"wanted one for model {model.digest[:12]}"
        )
    with state:
        return model.decode_frames(enc_chunk, state, max_symbols, counters)


def rnnt_greedy(
    model: Model,
    enc: ArrayLike,
    max_symbols: int | None = None,
    counters: SaturationCounters | None = None,
) -> Hypothesis:
    """Decodes one whole utterance; arguments and errors as ``rnnt_decode_frames``.

    Returns:
        Tokens with their frames and confidences; empty for T = 0.
    """
    return rnnt_decode_frames(model, enc, rnnt_decode_init(model), max_symbols, counters)


MOST_TOGETHER = 64  # utterances


def decode_batch(
    model: Model,
    utterances: Sequence[ArrayLike],
    threads: int | None = None,
    max_symbols: int | None = None,
) -> list[Hypothesis]:
    """Decodes many whole utterances on a pool of threads; each result equals ``rnnt_greedy``'s.

    An int8 model decodes without the GIL, so threads run side by side; a float model holds it.

    Args:
        model: shared by all threads.
        utterances: encoder frames [T, enc_hidden] of each.
        threads: None takes one a processor.
        max_symbols: most tokens on one frame; None takes the model's.

    Returns:
        One hypothesis an utterance, in their order.

    Raises:
        ValueError: ``threads`` < 1, or as ``rnnt_greedy``, with the utterance's index.
    """
    if threads is None:
        threads = os.cpu_count() or 1
    if threads < 1:
        raise ValueError(f"threads is {threads}, wanted at least 1")

    max_symbols = _max_symbols(model, max_symbols)

    def decode(indices: range) -> list[Hypothesis]:
        part = [utterances[index] for index in indices]
        return model.decode_utterances(part, max_symbols, indices.start)

    # A few slices a thread: handing out each short utterance alone costs more than decoding it.
    # Not too many together, because their frames are held as float32 meanwhile.
    size = min(max(1, len(utterances) // (4 * threads)), MOST_TOGETHER)
    everything = range(len(utterances))
    slices = [everything[start : start + size] for start in everything[::size]]
    with ThreadPoolExecutor(threads) as pool:
        return [hyp for found in pool.map(decode, slices) for hyp in found]
