"""Files of encoder frames: ``.npy`` with one utterance, ``.npz`` with several and their references."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from pkrnnt.frames import check_frames
from pkrnnt.storage import FormatError


@dataclass(frozen=True)
class Utterances:
    """Encoder frames of some utterances, and what was said where that is known."""

    enc: list[NDArray[np.floating]]
    """[T, enc_hidden] each, as stored (float16, float32 or float64)"""
    references: list[str] | None = None

    def __len__(self) -> int:
        return len(self.enc)

    def __iter__(self) -> Iterator[NDArray[np.floating]]:
        return iter(self.enc)

    @property
    def frames(self) -> int:
        return sum(map(len, self.enc))


def _check_expansion(file: IO[bytes]) -> None:
    """Refuses archives that would fill memory; floats hardly shrink, so no honest one does."""
    with zipfile.ZipFile(file) as archive:
        expanded = sum(item.file_size for item in archive.infolist())
    size = os.fstat(file.fileno()).st_size
    if expanded > 50 * size + (16 << 20):
        raise ValueError(f"{size} bytes expand to {expanded}")


def read_arrays(path: str | os.PathLike[str]) -> dict[str, NDArray[Any]]:
    """Every array of a ``.npz`` archive, or the one of a ``.npy`` file under the name ``enc``.

    Raises:
        FormatError: another kind of file, a damaged one, or one with pickled objects.
        OSError: the file cannot be opened.
    """
    with open(path, "rb") as file:
        try:
            if zipfile.is_zipfile(file):
                _check_expansion(file)
            file.seek(0)
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return {"enc": loaded}
            return {name: loaded[name] for name in loaded.files}
        except Exception as error:  # NumPy lets through whatever its parsers meet in a damaged file
            raise FormatError(
                f"{os.fspath(path)}: not a whole .npy or .npz file without pickled objects: {error}"
            ) from None


def load_utterances(path: str | os.PathLike[str], width: int) -> Utterances:
    """Reads encoder frames, every one checked.

    Args:
        path: ``.npy`` [T, width], or ``.npz`` with ``enc`` [frames, width] and, for several
            utterances, ``enc_offsets`` [utterances + 1] into it; optionally ``ref_text``
            [utterances].
        width: the model's encoder width.

    Raises:
        FormatError: another kind of file, offsets that do not fit, or frames as ``check_frames``
            refuses them; the message names file and utterance.
        OSError: the file cannot be opened.
    """
    name = os.fspath(path)
    arrays = read_arrays(path)
    if "enc" not in arrays:
        raise FormatError(f"{name}: holds {sorted(arrays)}, wanted an array named 'enc'")
    enc = arrays["enc"]
    utterances = [enc]
    if "enc_offsets" in arrays and enc.ndim:
        offsets = arrays["enc_offsets"]
        if (
            offsets.dtype.kind not in "iu"
            or offsets.ndim != 1
            or len(offsets) < 1
            or (offsets[0], offsets[-1]) != (0, len(enc))
            or (np.diff(offsets.astype(np.int64)) < 0).any()
        ):
            raise FormatError(
                f"{name}: enc_offsets must be integers that rise from 0 to the number of frames "
                f"({len(enc)}), found {offsets.tolist()}"
            )
        utterances = [enc[a:b] for a, b in pairwise(offsets)]
    for index, utterance in enumerate(utterances):
        try:
            check_frames(utterance, width)
        except ValueError as error:
            raise FormatError(f"{name}: utterance {index}: {error}") from None
    references = arrays.get("ref_text")
    if references is not None and (
        references.shape != (len(utterances),) or references.dtype.kind != "U"
    ):
        raise FormatError(
            f"{name}: ref_text has shape {references.shape} and dtype {references.dtype}, "
            f"wanted ({len(utterances)},), one str per utterance"
        )
    return Utterances(utterances, None if references is None else [str(text) for text in references])


def bundled(name: str) -> Path:
    """Path of a bundled digits file: ``float.safetensors``, ``calibration.npz``, ``evaluation.npz``.

    They stand in examples/digits of a checkout, and in the package of an installed wheel.
    """
    package = Path(__file__).parent
    for folder in (package / "digits", package.parent / "examples" / "digits"):
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(f"the bundled file {name} is not in this installation")
