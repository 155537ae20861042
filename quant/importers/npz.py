"""NumPy archives of float arrays under NeMo's tensor names.

Beside the weights an archive may hold ``vocabulary`` (array of str, blank left out), ``blank_id``,
``joint_activation``, ``max_symbols`` and ``frame_seconds``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from pkrnnt import FloatModel, FormatError
from pkrnnt.dataset import read_arrays

SETTINGS: dict[str, Callable[[Any], Any]] = {
    "vocabulary": lambda value: [str(piece) for piece in value],
    "blank_id": int,
    "joint_activation": str,
    "max_symbols": int,
    "frame_seconds": float,
}


def read(path: str | os.PathLike[str]) -> FloatModel:
    arrays: dict[str, Any] = dict(read_arrays(path))
    try:
        settings = {name: read(arrays.pop(name)) for name, read in SETTINGS.items() if name in arrays}
        return FloatModel.from_tensors(arrays, **settings)
    except (ValueError, TypeError) as error:
        raise FormatError(f"{os.fspath(path)}: {error}") from None
