"""NumPy archives of float arrays under NeMo's tensor names.

Beside the weights an archive may hold ``vocabulary`` (array of str, blank left out), ``blank_id``,
``joint_activation``, ``max_symbols`` and ``frame_seconds``.
"""

from __future__ import annotations

import os
import zipfile
import zlib

import numpy as np

from pkrnnt import FloatModel, FormatError

SETTINGS = {
    "vocabulary": lambda value: [str(piece) for piece in value],
    "blank_id": int,
    "joint_activation": str,
    "max_symbols": int,
    "frame_seconds": float,
}


def read(path: str | os.PathLike[str]) -> FloatModel:
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
        raise FormatError(f"{os.fspath(path)}: not a whole .npz archive: {error}") from None
    try:
        settings = {name: read(arrays.pop(name)) for name, read in SETTINGS.items() if name in arrays}
        return FloatModel.from_tensors(arrays, **settings)
    except (ValueError, TypeError) as error:
        raise FormatError(f"{os.fspath(path)}: {error}") from None
