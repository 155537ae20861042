"""Model files: one safetensors file a model, written whole or not at all, checked at load.

An int8 file holds every integer; nothing is recomputed when it is read. A float file holds the
weights under NeMo's names. Both carry config, format version and a sha256 over all of it.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pkrnnt.model import Config, FloatModel, Int8Model, Quantization, digest

INT8_FORMAT = "pkrnnt-int8"
FLOAT_FORMAT = "pkrnnt-float"
FORMAT_VERSION = 1
METADATA_KEY = "pkrnnt"
META_ENTRIES = {
    FLOAT_FORMAT: ["config"],
    INT8_FORMAT: ["config", "provenance", "quantization"],
}


class FormatError(ValueError):
    """A file that is not what it should be; the message names the file and what is wrong with it."""


def write_atomically(files: Mapping[str | os.PathLike[str], bytes]) -> None:
    """Writes files so that all appear whole, or none: temporary files first, then renames.

    Raises:
        OSError: a folder is missing or cannot be written, or a path is not a regular file's.
    """
    staged: list[tuple[str, Path]] = []
    try:
        for path, data in files.items():
            target = Path(path).resolve()  # a link stays, and what it points to is replaced
            if target.exists() and not target.is_file():
                raise OSError(f"{os.fspath(path)}: not a regular file")
            if not target.parent.is_dir():
                raise FileNotFoundError(f"{os.fspath(path)}: the folder {target.parent} does not exist")
            handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
            staged.append((temporary, target))
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            mask = os.umask(0)
            os.umask(mask)
            os.chmod(temporary, 0o666 & ~mask)
        for temporary, target in staged:
            os.replace(temporary, target)
    finally:
        for temporary, _ in staged:
            Path(temporary).unlink(missing_ok=True)


def save(model: FloatModel | Int8Model, path: str | os.PathLike[str]) -> None:
    """Writes a model; the same model gives the same bytes. Raises OSError as ``write_atomically``."""
    write_atomically({path: serialize(model)})


def serialize(model: FloatModel | Int8Model) -> bytes:
    """The bytes of a model's file."""
    from safetensors.numpy import save as to_bytes

    entry = {
        "format": INT8_FORMAT if isinstance(model, Int8Model) else FLOAT_FORMAT,
        "format_version": FORMAT_VERSION,
        "sha256": model.digest,
        **model.meta(),
    }
    # One entry: the library writes several in an order that changes from run to run.
    return to_bytes(model.tensors(), metadata={METADATA_KEY: json.dumps(entry, sort_keys=True)})


def read_safetensors(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """(arrays by name, metadata) of any safetensors file.

    Raises:
        FormatError: not a safetensors file, or a damaged one.
        OSError: it cannot be opened.
    """
    from safetensors import SafetensorError, safe_open

    with open(path, "rb"):  # so that a missing file is an OSError that names it
        pass
    try:
        with safe_open(os.fspath(path), framework="numpy") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}
            return tensors, file.metadata() or {}
    except (SafetensorError, TypeError, KeyError, AttributeError) as error:
        raise FormatError(f"{os.fspath(path)}: not a whole safetensors file: {error}") from None


def load(path: str | os.PathLike[str], *, gate_table: bool = True) -> FloatModel | Int8Model:
    """Reads a model file written by ``save``.

    Args:
        path: the file.
        gate_table: whether an int8 model tables layer 0's input gates for every token: more
            memory, fewer multiplies, the same results.

    Raises:
        FormatError: not a pkrnnt model, truncated, altered, or of an unknown format version; a
            subclass of ValueError.
        OSError: the file cannot be opened.
    """
    tensors, strings = read_safetensors(path)
    name = os.fspath(path)
    try:
        entry = json.loads(strings.get(METADATA_KEY, "{}"))
        kind, version = entry.get("format"), entry.get("format_version")
    except (ValueError, AttributeError, RecursionError) as error:
        raise FormatError(f"{name}: metadata are not a JSON object: {error}") from None
    if kind not in (INT8_FORMAT, FLOAT_FORMAT):
        raise FormatError(
            f"{name}: format is {kind!r}, wanted {INT8_FORMAT!r} or {FLOAT_FORMAT!r}; "
            f"`python -m quant` takes checkpoints of other kinds"
        )
    if version != FORMAT_VERSION:
        raise FormatError(
            f"{name}: format version is {version!r}, wanted {FORMAT_VERSION}; "
            f"a file of another version needs another release of pkrnnt"
        )
    meta = {key: value for key, value in entry.items() if key in META_ENTRIES[kind]}
    if not all(isinstance(meta.get(key), dict) for key in META_ENTRIES[kind]):
        raise FormatError(f"{name}: metadata hold {sorted(meta)}, wanted {META_ENTRIES[kind]}")
    found = digest(tensors, meta)
    if found != entry.get("sha256"):
        raise FormatError(
            f"{name}: sha256 of the contents is {found}, wanted {entry.get('sha256')}; "
            f"the file was altered after it was written"
        )
    try:
        config = Config.from_json(meta["config"])
        if kind == INT8_FORMAT:
            quantization = Quantization.from_json(meta["quantization"])
            int8_model = Int8Model.from_tensors(
                tensors, config, quantization, meta["provenance"], gate_table=gate_table
            )
            int8_model.__dict__["digest"] = found  # worked out once is enough
            return int8_model
        model = FloatModel.from_tensors(
            tensors,
            vocabulary=config.vocabulary,
            blank_id=config.blank_id,
            joint_activation=config.joint_activation,
            max_symbols=config.max_symbols,
            frame_seconds=config.frame_seconds,
        )
    except ValueError as error:
        raise FormatError(f"{name}: {error}") from None
    if model.config != config:
        raise FormatError(f"{name}: config {config} contradicts the tensors, wanted {model.config}")
    return model
