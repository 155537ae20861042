"""What a decode produces, and what a stream carries from one chunk to the next."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray

SOS = -1
"""Start of sequence: the token id before any token. The prediction network is fed a zero vector."""

PredictionState = tuple[NDArray[Any], NDArray[Any]]
"""(h, c), each [layers, H]: float32 for a float model, int8 and int16 for an int8 model."""


class TokenInfo(NamedTuple):
    """One emitted token."""

    id: int
    frame: int
    """Encoder frame on which it was emitted."""
    confidence: float
    """NeMo's max_prob, (N * p - 1) / (N - 1) over the N = V + 1 logits; 0..1."""
    span: int = 1
    """Frames it covers; always 1 for RNN-T."""


@dataclass(slots=True)
class Hypothesis:
    """Emitted tokens in order, as three lists of equal length."""

    tokens: list[int] = field(default_factory=list)
    frames: list[int] = field(default_factory=list)
    confidence: list[float] = field(default_factory=list)

    @property
    def spans(self) -> list[int]:
        """Frames each token covers; always 1 for RNN-T."""
        return [1] * len(self.tokens)

    def append(self, token: int, frame: int, confidence: float) -> None:
        self.tokens.append(token)
        self.frames.append(frame)
        self.confidence.append(confidence)

    def extend(self, other: Hypothesis, frame_offset: int) -> None:
        """Appends another hypothesis whose frames count from ``frame_offset``."""
        self.tokens += other.tokens
        self.frames += [frame + frame_offset for frame in other.frames]
        self.confidence += other.confidence

    def truncate(self, length: int) -> None:
        """Drops every token behind the first ``length``."""
        for values in (self.tokens, self.frames, self.confidence):
            del values[length:]

    def copy(self) -> Hypothesis:
        return Hypothesis(self.tokens.copy(), self.frames.copy(), self.confidence.copy())

    def __len__(self) -> int:
        return len(self.tokens)

    def __iter__(self) -> Iterator[TokenInfo]:
        return map(TokenInfo, self.tokens, self.frames, self.confidence)


class Lookahead(NamedTuple):
    """The prediction step already taken for the last token. Derived from the rest of a state, and
    kept so that a chunk border costs no second step."""

    pred_proj: NDArray[Any]
    """The joint's projection [J] of the prediction network's output."""
    prediction_state: PredictionState
    """(h, c) to adopt when the next token is emitted."""


def _frozen(state: PredictionState) -> PredictionState:
    """The arrays, read-only from now on: states share them."""
    for array in state:
        array.flags.writeable = False
    return state


def _frozen_pair(
    arrays: tuple[PredictionState, Lookahead | None],
) -> tuple[PredictionState, Lookahead | None]:
    """A prediction state and a lookahead, read-only from now on."""
    state, lookahead = arrays
    _frozen(state)
    if lookahead is not None:
        lookahead.pred_proj.flags.writeable = False
        _frozen(lookahead.prediction_state)
    return arrays


class StateMemory(Protocol):
    """Where a fused decoder keeps the arrays of a state between calls."""

    def export(self) -> tuple[PredictionState, Lookahead | None]:
        """Copies of them."""


class RnntDecodeState:
    """The decoder's state between chunks of one stream. Made by ``rnnt_decode_init``.

    Attributes:
        model_digest: digest of the model it belongs to.
        prediction_state: (h, c) adopted with the last emitted token, as NeMo keeps it; read-only.
        last_token: id of the last emitted token, ``SOS`` before the first.
        hyp: every token so far, frames counted from the start of the stream.
        frames_decoded: encoder frames consumed so far.
        lookahead: a cached prediction step, or None; read-only.

    ``copy.copy`` and pickle give an independent state. A state belongs to one thread at a time.
    """

    # A fused decoder leaves h, c and the lookahead in memory of its own (_memory); they become arrays
    # only when somebody looks. Exactly one of _memory and _arrays holds the truth.
    __slots__ = (
        "_arrays",
        "_initial",
        "_lock",
        "_memory",
        "frames_decoded",
        "hyp",
        "last_token",
        "model_digest",
    )

    def __init__(self, model_digest: str, prediction_state: PredictionState) -> None:
        self.model_digest = model_digest
        self._initial = _frozen(prediction_state)
        self._lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        """Back to the start of a stream: everything equals a new state's.

        Raises:
            RuntimeError: another thread is decoding with this state.
        """
        with self:
            self._arrays: tuple[PredictionState, Lookahead | None] | None = (self._initial, None)
            self._memory: StateMemory | None = None
            self.last_token = SOS
            self.hyp = Hypothesis()
            self.frames_decoded = 0

    def _exported(self) -> tuple[PredictionState, Lookahead | None]:
        if self._arrays is None:
            assert self._memory is not None
            return _frozen_pair(self._memory.export())
        return self._arrays

    @property
    def prediction_state(self) -> PredictionState:
        return self._exported()[0]

    @prediction_state.setter
    def prediction_state(self, value: PredictionState) -> None:
        self._arrays, self._memory = (value, self.lookahead), None

    @property
    def lookahead(self) -> Lookahead | None:
        return self._exported()[1]

    @lookahead.setter
    def lookahead(self, value: Lookahead | None) -> None:
        self._arrays, self._memory = (self.prediction_state, value), None

    @property
    def have_token(self) -> bool:
        """Whether a token has been emitted."""
        return self.last_token != SOS

    @property
    def trailing_blank_frames(self) -> int:
        """Whole frames since the last emitting frame: what an endpoint rule looks at."""
        return self.frames_decoded - (self.hyp.frames[-1] + 1 if self.hyp.frames else 0)

    def commit(
        self,
        hyp: Hypothesis,
        frames: int,
        arrays: tuple[PredictionState, Lookahead | None] | None,
        memory: StateMemory | None = None,
    ) -> None:
        """Takes over the outcome of one chunk; called once, when nothing can fail any more.

        Args:
            hyp: its tokens, frames counted from the start of the chunk.
            frames: how many it had.
            arrays: (prediction state, lookahead) after it, or None where ``memory`` holds them.
            memory: of the fused decoder.
        """
        before = len(self.hyp), self.last_token, self.frames_decoded, self._arrays, self._memory
        try:
            if hyp.tokens:
                self.hyp.extend(hyp, self.frames_decoded)
                self.last_token = hyp.tokens[-1]
            self.frames_decoded += frames
            self._arrays, self._memory = arrays and _frozen_pair(arrays), memory
        except BaseException:  # an interrupt: all of it or nothing
            length, self.last_token, self.frames_decoded, self._arrays, self._memory = before
            self.hyp.truncate(length)
            raise

    def __getstate__(self) -> dict[str, Any]:
        with self:
            return {
                "model_digest": self.model_digest,
                "_initial": self._initial,
                "_arrays": self._exported(),
                "last_token": self.last_token,
                "hyp": self.hyp,
                "frames_decoded": self.frames_decoded,
            }

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)
        _frozen(self._initial)  # NumPy does not pickle the flag
        if self._arrays is not None:
            _frozen_pair(self._arrays)
        # Arrays are read-only, so a copy may share them; the lists are appended to.
        self.hyp = self.hyp.copy()
        self._memory = None
        self._lock = threading.Lock()

    def __enter__(self) -> RnntDecodeState:
        """Holds the state for one call; refuses, rather than mixes, a second thread."""
        if not self._lock.acquire(blocking=False):
            raise RuntimeError(
                "this RnntDecodeState is being decoded by another thread; "
                "give each thread a state of its own"
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()
