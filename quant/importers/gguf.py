"""``.gguf`` of parakeet.cpp: its names and keys; F32, F16 and Q8_0 tensors.

The reader is our own because a file may be hostile: every count, length and offset is checked against
the size of the file before anything is read.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from math import prod
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from pkrnnt import FloatModel, FormatError
from quant.importers.decoder_half import check_rows, check_sizes, naming, select

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
TYPE_NAMES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 9: "Q8_1", 10: "Q2_K",
    11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 30: "BF16",
}  # fmt: skip
TENSOR_LIMIT, KEY_LIMIT, ITEM_LIMIT = 50_000, 5_000, 1 << 20
BLOCK = np.dtype([("scale", "<f2"), ("values", "i1", 32)])  # Q8_0


@dataclass(frozen=True)
class Info:
    """Where one tensor stands; shape in NumPy's order."""

    kind: int
    shape: tuple[int, ...]
    offset: int


class Reader:
    """Keys and tensors of a GGUF file."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._size = os.fstat(file.fileno()).st_size
        magic = file.read(4)
        version = self._number("I")
        if magic != b"GGUF":
            raise FormatError(f"magic is {magic!r}, wanted b'GGUF'")
        if version not in (2, 3):
            swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
            if swapped in (2, 3):
                raise FormatError("endianness is big, wanted little")
            raise FormatError(f"GGUF version is {version}, wanted 2 or 3")
        tensors, keys = self._count("Q", 24), self._count("Q", 13)
        if tensors > TENSOR_LIMIT or keys > KEY_LIMIT:
            raise FormatError(f"the file has {tensors} tensors and {keys} keys")
        self.keys: dict[str, Any] = {}
        for _ in range(keys):
            name = self._string()
            if name in self.keys:
                raise FormatError(f"key {name!r} stands there twice")
            self.keys[name] = self._value(self._number("I"))
        self.tensors: dict[str, Info] = {}
        for _ in range(tensors):
            name = self._string()
            if name in self.tensors:
                raise FormatError(f"tensor {name!r} stands there twice")
            dims = self._number("I")
            if not 1 <= dims <= 4:
                raise FormatError(f"tensor {name} has {dims} dimensions, wanted 1..4")
            shape = tuple(self._number("Q") for _ in range(dims))[::-1]
            self.tensors[name] = Info(self._number("I"), shape, self._number("Q"))
        alignment = self.keys.get("general.alignment", 32)
        if type(alignment) is not int or not 0 < alignment <= 1 << 20:
            raise FormatError(f"general.alignment is {alignment!r}")
        self._body = -(-file.tell() // alignment) * alignment

    def _read(self, size: int) -> bytes:
        data = self._file.read(size) if size <= self._size else b""
        if len(data) != size:
            raise FormatError(f"the file ends inside its header, {size} bytes wanted")
        return data

    def _number(self, code: str) -> Any:
        return struct.unpack(f"<{code}", self._read(struct.calcsize(f"<{code}")))[0]

    def _count(self, code: str, least: int) -> int:
        """A number of items that take at least so many bytes each."""
        count = self._number(code)
        if count * least > self._size or (least > 1 and count > ITEM_LIMIT):
            raise FormatError(f"the header announces {count} items, more than a file may hold")
        return int(count)

    def _string(self) -> str:
        return self._read(self._count("Q", 1)).decode("utf-8")

    def _value(self, kind: int) -> Any:
        if kind in SCALARS:
            return self._number(SCALARS[kind])
        if kind == STRING:
            return self._string()
        if kind != ARRAY:
            raise FormatError(f"a key has value type {kind}, wanted 0..12")
        inner = self._number("I")
        if inner in SCALARS:
            code = SCALARS[inner]
            count = self._count("Q", struct.calcsize(f"<{code}"))
            if count > ITEM_LIMIT:
                raise FormatError(f"an array of a key has {count} items, wanted {ITEM_LIMIT} at most")
            return list(
                struct.unpack(f"<{count}{code}", self._read(count * struct.calcsize(f"<{code}")))
            )
        if inner != STRING:
            raise FormatError(f"an array has value type {inner}, wanted a scalar's or a string's")
        return [self._string() for _ in range(self._count("Q", 8))]

    def array(self, name: str) -> NDArray[Any]:
        info = self.tensors[name]
        kind = TYPE_NAMES.get(info.kind, str(info.kind))
        count = prod(info.shape)
        sizes = {"F32": 4 * count, "F16": 2 * count, "Q8_0": count // 32 * BLOCK.itemsize}
        if kind not in sizes:
            raise FormatError(f"tensor {name} has type {kind}, wanted F32, F16 or Q8_0")
        if kind == "Q8_0" and info.shape[-1] % 32:
            raise FormatError(f"tensor {name} of type Q8_0 has rows of {info.shape[-1]}, wanted 32s")
        start = self._body + info.offset
        if start + sizes[kind] > self._size:
            raise FormatError(f"tensor {name} of shape {info.shape} ends behind the end of the file")
        self._file.seek(start)
        raw = self._file.read(sizes[kind])
        if kind != "Q8_0":
            return np.frombuffer(raw, "<f4" if kind == "F32" else "<f2").reshape(info.shape)
        blocks = np.frombuffer(raw, BLOCK)
        values = blocks["values"] * blocks["scale"].astype(np.float32)[:, None]
        return values.reshape(info.shape)


def _key(reader: Reader, name: str, kind: type) -> Any:
    value = reader.keys.get(f"parakeet.{name}")
    if value is not None and type(value) is not kind:
        raise FormatError(f"parakeet.{name} is {value!r}, wanted {kind.__name__}")
    return value


def _frame_seconds(reader: Reader) -> float | None:
    names = ("preprocessor.hop_length", "preprocessor.sample_rate", "encoder.subsampling_factor")
    hop, rate, factor = (_key(reader, name, int) for name in names)
    if hop and rate and factor and hop * factor < 10 * rate:
        seconds: float = round(hop / rate * factor, 9)
        return seconds
    return None


def read(path: str | os.PathLike[str], **settings: Any) -> FloatModel:
    with open(path, "rb") as file, naming(path):
        reader = Reader(file)
        names = select(reader.tensors)
        vocab_size = _key(reader, "vocab_size", int)
        if sum(prod(reader.tensors[name].shape) for name in names) > os.fstat(file.fileno()).st_size:
            raise FormatError("the decoder's tensors have more values than the file has bytes")
        durations = reader.keys.get("parakeet.tdt.durations") or []
        for name in names:
            shape = reader.tensors[name].shape
            if name.startswith("joint.joint_net.") and len(shape) == 2 and vocab_size is not None:
                check_rows(shape[0], vocab_size, len(durations))
        given = {
            "vocabulary": _key(reader, "tokenizer.pieces", list),
            "frame_seconds": _frame_seconds(reader),
            "blank_id": _key(reader, "blank_id", int),
            "joint_activation": _key(reader, "joint.activation", str) or "relu",
            "max_symbols": _key(reader, "decoding.max_symbols", int) or 10,
        }
        model = FloatModel.from_tensors(
            {name: reader.array(name) for name in names}, **{**given, **settings}
        )
        return check_sizes(
            model,
            {
                "pred_hidden": _key(reader, "decoder.pred_hidden", int),
                "pred_layers": _key(reader, "decoder.pred_rnn_layers", int),
                "joint_hidden": _key(reader, "joint.joint_hidden", int),
                "vocab_size": vocab_size,
            },
        )
