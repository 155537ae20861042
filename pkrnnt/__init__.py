"""pkrnnt: a microcontroller-style fixed-point RNN-T decoder, beside the float decoder it mirrors."""

from pkrnnt.greedy import decode_batch, rnnt_decode_frames, rnnt_decode_init, rnnt_greedy
from pkrnnt.hypothesis import SOS, Hypothesis, RnntDecodeState, TokenInfo
from pkrnnt.model import Config, FloatModel, Int8Model
from pkrnnt.saturation import SaturationCounters
from pkrnnt.storage import FormatError, load, save

__version__ = "0.1.0"

__all__ = [
    "SOS",
    "Config",
    "FloatModel",
    "FormatError",
    "Hypothesis",
    "Int8Model",
    "RnntDecodeState",
    "SaturationCounters",
    "TokenInfo",
    "decode_batch",
    "load",
    "rnnt_decode_frames",
    "rnnt_decode_init",
    "rnnt_greedy",
    "save",
]
