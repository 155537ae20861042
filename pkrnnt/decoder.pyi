from collections.abc import Sequence

from numpy.typing import ArrayLike

from pkrnnt.hypothesis import Hypothesis, RnntDecodeState
from pkrnnt.joint import Int8Joint
from pkrnnt.prediction import Int8Prediction
from pkrnnt.saturation import SaturationCounters

def decode_frames(
    prediction: Int8Prediction,
    joint: Int8Joint,
    blank_id: int,
    enc: ArrayLike,
    state: RnntDecodeState,
    max_symbols: int,
    counters: SaturationCounters | None = None,
    window: int = 4,
) -> Hypothesis: ...
def decode_utterances(
    prediction: Int8Prediction,
    joint: Int8Joint,
    blank_id: int,
    utterances: Sequence[ArrayLike],
    state: RnntDecodeState,
    max_symbols: int,
    first: int = 0,
) -> list[Hypothesis]: ...
