"""``.safetensors``: a float model of ``pkrnnt.save``, NeMo's names, or Hugging Face's Parakeet names.

float32, float16 and bfloat16, in one file or in shards named by ``*.safetensors.index.json`` beside it.
The header is read here, so that of a large file only the decoder half is read, and so that bfloat16,
which NumPy lacks, can be.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pkrnnt import FloatModel, FormatError, load
from pkrnnt.storage import METADATA_KEY
from quant.importers.decoder_half import check_rows, check_sizes, naming, select
from quant.importers.torch_pickle import bfloat16

DTYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "F64": "<f8"}
HEADER_LIMIT = 2 << 20  # bytes; a recogniser of two thousand tensors has some 200 kB

SETTINGS = ("vocabulary", "blank_id", "joint_activation", "max_symbols", "frame_seconds")

# Hugging Face's ParakeetForRNNT -> NeMo
HUGGING_FACE = {
    "decoder.embedding.": "decoder.prediction.embed.",
    "decoder.lstm.": "decoder.prediction.dec_rnn.lstm.",
    "decoder.decoder_projector.": "joint.pred.",
    "encoder_projector.": "joint.enc.",
    "joint.head.": "joint.joint_net.2.",
}


@dataclass(frozen=True)
class Entry:
    """Where one tensor stands."""

    path: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise FormatError("the header names a tensor or a key twice")
    return found


def _entries(path: Path) -> tuple[dict[str, Entry], dict[str, str]]:
    """(tensors, metadata) of one file, every offset checked."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if length > min(HEADER_LIMIT, size - 8):
            raise FormatError(f"the header has {length} bytes, the file {size}")
        header = json.loads(file.read(length), object_pairs_hook=_unique)
    if not isinstance(header, dict):
        raise FormatError("the header is not a JSON object")
    metadata = header.pop("__metadata__", {})
    body, entries = 8 + length, {}
    for name, item in header.items():
        dtype, shape, (start, end) = item["dtype"], tuple(item["shape"]), item["data_offsets"]
        numbers = (*shape[:9], start, end)
        if len(shape) > 8 or not all(type(n) is int and 0 <= n < 1 << 48 for n in numbers):
            raise FormatError(f"tensor {name} has shape {shape[:9]} and offsets {start}..{end}")
        if not start <= end <= size - body:
            raise FormatError(f"tensor {name} stands at {start}..{end} of {size - body} bytes")
        if dtype in DTYPES and end - start != prod(shape) * np.dtype(DTYPES[dtype]).itemsize:
            raise FormatError(f"tensor {name} of shape {shape} has {end - start} bytes")
        entries[name] = Entry(path, dtype, shape, body + start, body + end)
    in_order = sorted(entries.items(), key=lambda item: (item[1].start, item[1].end))
    for (name, entry), (after, following) in pairwise(in_order):
        if following.start < entry.end:
            raise FormatError(f"tensors {name} and {after} overlap")
    return entries, metadata


def _array(name: str, entry: Entry) -> NDArray[Any]:
    if entry.dtype not in DTYPES:
        raise FormatError(f"tensor {name} has dtype {entry.dtype}, wanted {', '.join(DTYPES)}")
    with open(entry.path, "rb") as file:
        file.seek(entry.start)
        raw = np.frombuffer(file.read(entry.end - entry.start), DTYPES[entry.dtype])
    values = bfloat16(raw) if entry.dtype == "BF16" else raw
    return values.reshape(entry.shape)


def _index(path: Path) -> Path | None:
    """The index of a sharded model: the path itself, or the one beside a shard."""
    if path.suffix.lower() == ".json":
        return path
    stem = path.name.split("-00")[0]
    beside = path.with_name(f"{stem.removesuffix('.safetensors')}.safetensors.index.json")
    return beside if beside.is_file() else None


def _all_entries(path: Path) -> dict[str, Entry]:
    index = _index(path)
    if index is None:
        return _entries(path)[0]
    shards = json.loads(index.read_text())["weight_map"]
    entries: dict[str, Entry] = {}
    for shard in sorted(set(shards.values())):
        if Path(shard).name != shard:
            raise FormatError(f"the index names shard {shard!r}, wanted a file beside it")
        with naming(index.with_name(shard)):
            entries |= _entries(index.with_name(shard))[0]
    return entries


def _hugging_face(path: Path, entries: dict[str, Entry]) -> tuple[dict[str, Entry], dict[str, Any]]:
    """Entries under NeMo's names, and the config beside the file."""
    renamed = {}
    for name, entry in entries.items():
        for theirs, ours in HUGGING_FACE.items():
            if name.startswith(theirs):
                renamed[ours + name[len(theirs) :]] = entry
    beside = path.with_name("config.json")
    config = json.loads(beside.read_text()) if beside.is_file() else {}
    if not isinstance(config, dict):
        raise FormatError("config.json beside it is not a JSON object")
    return renamed, config


def read(path: str | os.PathLike[str], **settings: Any) -> FloatModel:
    path = Path(path)
    with open(path, "rb"), naming(path):
        if path.suffix.lower() != ".json" and METADATA_KEY in _entries(path)[1]:
            model = load(path)
            if not isinstance(model, FloatModel):
                raise FormatError("holds an int8 model already, wanted a float one")
            if not settings:
                return model
            said = {name: getattr(model.config, name) for name in SETTINGS}
            return FloatModel.from_tensors(model.tensors(), **{**said, **settings})
        entries, stated = _all_entries(path), {}
        if any(name.startswith("decoder.embedding.") for name in entries):
            entries, config = _hugging_face(path, entries)
            head = entries.get("joint.joint_net.2.weight")
            if head is None or len(head.shape) != 2:
                raise FormatError("Hugging Face names, but no matrix joint.head.weight")
            rows = head.shape[0]
            if type(config.get("vocab_size")) is int:  # theirs counts blank
                durations = config.get("durations")
                check_rows(rows, config["vocab_size"] - 1, len(durations or ()))
            given = {
                "blank_id": config.get("blank_token_id"),
                "joint_activation": config.get("hidden_act", "relu"),
                "max_symbols": config.get("max_symbols_per_step", 10),
            }
            settings = {**given, **settings}
            stated = {
                "pred_hidden": config.get("decoder_hidden_size"),
                "pred_layers": config.get("num_decoder_layers"),
            }
        arrays = {name: _array(name, entries[name]) for name in select(entries)}
        return check_sizes(FloatModel.from_tensors(arrays, **settings), stated)
