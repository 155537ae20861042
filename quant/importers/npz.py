"""NumPy archives of float arrays under NeMo's tensor names.

Beside the weights an archive may hold ``vocabulary`` (array of str, blank left out), ``blank_id``,
``joint_activation``, ``max_symbols`` and ``frame_seconds``.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from pkrnnt import FloatModel, FormatError
from pkrnnt.dataset import read_arrays


def _strings(value: NDArray[Any]) -> list[str]:
    if value.dtype.kind != "U" or value.ndim != 1:
        raise ValueError(f"dtype is {value.dtype}, wanted one dimension of str")
    return [str(piece) for piece in value]


def _string(value: NDArray[Any]) -> str:
    (piece,) = _strings(value.reshape(-1))
    return piece


def _integer(value: NDArray[Any]) -> int:
    return operator.index(value.item())


def _real(value: NDArray[Any]) -> float:
    return float(value.item())


SETTINGS: dict[str, Callable[[NDArray[Any]], Any]] = {
    "vocabulary": _strings,
    "blank_id": _integer,
    "joint_activation": _string,
    "max_symbols": _integer,
    "frame_seconds": _real,
}


def read(path: str | os.PathLike[str], **settings: Any) -> FloatModel:
    arrays: dict[str, Any] = dict(read_arrays(path))
    given = {}
    for name, convert in SETTINGS.items():
        if name in arrays:
            try:
                given[name] = convert(arrays.pop(name))
            except (ValueError, TypeError) as error:
                raise FormatError(f"{os.fspath(path)}: {name}: {error}") from None
    try:
        return FloatModel.from_tensors(arrays, **{**given, **settings})
    except ValueError as error:
        raise FormatError(f"{os.fspath(path)}: {error}") from None
