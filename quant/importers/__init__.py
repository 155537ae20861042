"""Checkpoint readers, one module per file format, behind one door: ``load_checkpoint``."""

from __future__ import annotations

import os
from pathlib import Path

from pkrnnt import FloatModel, FormatError
from quant.importers import npz, safetensors

READERS = {".npz": npz.read, ".safetensors": safetensors.read}


def load_checkpoint(path: str | os.PathLike[str]) -> FloatModel:
    """The float RNN-T decoder of a checkpoint file.

    Args:
        path: ``.safetensors`` written by ``pkrnnt.save``, or ``.npz`` with NeMo's tensor names.

    Raises:
        FormatError: a file of another kind, or one that does not hold a whole RNN-T decoder.
        OSError: the file cannot be opened.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in READERS:
        raise FormatError(
            f"{os.fspath(path)}: file name ends in {suffix!r}, wanted one of {', '.join(READERS)}"
        )
    return READERS[suffix](path)
