"""Offline: from a trained float checkpoint to an int8 model, and the proof of what it costs.

Data flows one way: ``importers`` read a checkpoint, ``calibration`` observes ranges along the float
path (``ranges`` keeps and chooses them), ``quantize`` makes the int8 model, ``calibration`` measures
its agreement with the float decoder, ``report`` prints. ``python -m quant`` runs all of it.
"""

from quant.calibration import Agreement, measure_agreement, observe
from quant.importers import load_checkpoint
from quant.quantize import quantize_model
from quant.ranges import Ranges

__all__ = [
    "Agreement",
    "Ranges",
    "load_checkpoint",
    "measure_agreement",
    "observe",
    "quantize_model",
]
