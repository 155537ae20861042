"""Tensors of PyTorch files, without PyTorch and without executing a pickle.

A pickle is a program; this reader walks it symbolically. It knows tensors, storages and dicts; objects
of training frameworks (omegaconf and the like) become ``Inert`` and are never built; any other
callable is refused by its name. Nothing a file names is ever imported or called.
"""

from __future__ import annotations

import io
import pickletools
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from pkrnnt import FormatError

DTYPES = {
    "FloatStorage": "<f4",
    "HalfStorage": "<f2",
    "DoubleStorage": "<f8",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "CharStorage": "|i1",
    "ByteStorage": "|u1",
    "BoolStorage": "|b1",
}
# What training frameworks put beside the weights: read over, never built.
INERT_MODULES = (
    "collections", "lightning", "lightning_fabric", "nemo", "numpy", "omegaconf", "pathlib",
    "pytorch_lightning", "torch", "typing",
)  # fmt: skip
INERT_BUILTINS = {
    "bool", "bytes", "complex", "dict", "float", "frozenset", "int", "list", "long", "object", "set",
    "slice", "str", "tuple", "unicode",
}  # fmt: skip
# The pickle of a large model has a few hundred kilobytes and some ten thousand opcodes.
PICKLE_LIMIT = 16 << 20  # bytes
OPCODE_LIMIT = 500_000
LEGACY_MAGIC, LEGACY_PROTOCOL = 0x1950A86A20F9469CFC6C, 1001


class Inert:
    """Stands for an object that is of no use here."""


@dataclass(frozen=True)
class Global:
    """A name a pickle refers to."""

    module: str
    name: str


@dataclass(frozen=True)
class Storage:
    """A run of numbers in the file."""

    dtype: str
    key: str
    size: int


@dataclass(frozen=True)
class Tensor:
    """A strided view of a storage."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


PUSHES = {
    "BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1", "LONG4", "BINFLOAT", "FLOAT", "BINUNICODE",
    "SHORT_BINUNICODE", "BINUNICODE8", "UNICODE", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BINSTRING",
    "SHORT_BINSTRING", "STRING", "BYTEARRAY8",
}  # fmt: skip
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}


# Keys of dicts: hashing and showing anything else may take for ever, or overflow the stack.
SCALARS = (str, int, float, bool, bytes, type(None))


def _shown(value: Any) -> str:
    """A value of a pickle for a message; nested ones may be exponentially long."""
    return repr(value)[:80] if type(value) in SCALARS else f"a {type(value).__name__}"


def _dict(items: list[Any]) -> dict[Any, Any]:
    pairs = zip(items[::2], items[1::2], strict=True)
    return {key: value for key, value in pairs if type(key) in SCALARS}


class _Limited:
    """A file for one pickle, of which no more than a limit is read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._left = PICKLE_LIMIT

    def _take(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise FormatError(f"a pickle has more than {PICKLE_LIMIT} bytes")

    def read(self, size: int) -> bytes:
        self._take(size)
        return self._file.read(size)

    def readline(self) -> bytes:
        line = self._file.readline(self._left + 1)
        self._take(len(line))
        return line


def _global(module: Any, name: Any) -> Global:
    if not isinstance(module, str) or not isinstance(name, str):
        raise FormatError(f"the pickle refers to {_shown(module)}.{_shown(name)}, wanted names")
    root = module.split(".")[0]
    builtin = root in ("__builtin__", "builtins")
    if not (name in INERT_BUILTINS if builtin else root in INERT_MODULES):
        raise FormatError(f"the pickle calls {module}.{name}: refused, and not executed")
    return Global(module, name)


def _integers(values: Any) -> tuple[int, ...]:
    good = isinstance(values, tuple) and len(values) <= 8
    if not good or not all(type(v) is int and 0 <= v < 1 << 48 for v in values):
        raise FormatError("a tensor's shape or strides are other than wanted: at most 8 integers >= 0")
    return tuple(values)


def _reduce(function: Any, arguments: Any) -> Any:
    if not isinstance(function, Global):
        raise FormatError(f"the pickle calls {_shown(function)}, which is not a name")
    called = (function.module, function.name)
    if called == ("torch._utils", "_rebuild_tensor_v2"):
        storage, offset, shape, stride = arguments[:4]
        if not isinstance(storage, Storage) or type(offset) is not int or offset < 0:
            raise FormatError(f"a tensor is made of {_shown(storage)} at {_shown(offset)}")
        shape, stride = _integers(shape), _integers(stride)
        if len(shape) != len(stride):
            raise FormatError(f"a tensor has shape {shape} and strides {stride}")
        last = offset + sum((n - 1) * step for n, step in zip(shape, stride, strict=True))
        if 0 not in shape and last >= storage.size:
            raise FormatError(
                f"a tensor of shape {shape}, strides {stride} and offset {offset} reaches value {last} "
                f"of a storage with {storage.size}"
            )
        return Tensor(storage, offset, shape, stride)
    if called == ("torch._utils", "_rebuild_parameter"):
        return arguments[0]
    if function.name in ("OrderedDict", "dict") and not arguments:
        return {}
    if function.name == "list" and not arguments:
        return []
    return Inert()


def _storage(pid: Any) -> Storage:
    if not (isinstance(pid, tuple) and len(pid) >= 5 and pid[0] == "storage"):
        raise FormatError(f"the pickle refers to {_shown(pid)}, wanted a storage")
    _, kind, key, _, size = pid[:5]
    name = kind.name if isinstance(kind, Global) else _shown(kind)
    if name not in DTYPES:
        raise FormatError(f"a storage has type {name}, wanted one of {', '.join(DTYPES)}")
    if type(size) is not int or size < 0:
        raise FormatError(f"a storage has {_shown(size)} values")
    if type(key) not in (str, int):
        raise FormatError(f"a storage is named by {_shown(key)}, wanted a name or a number")
    return Storage(DTYPES[name], str(key), size)


def read_pickle(file: IO[bytes], opcodes: int = OPCODE_LIMIT) -> Any:
    """The object one pickle describes, in terms of dicts, lists, tuples, scalars and the classes here.

    Raises:
        FormatError: it calls something, or is damaged; other exceptions where it is not a pickle.
    """
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[int, Any] = {}

    def since_mark() -> list[Any]:
        start = marks.pop()
        items = stack[start:]
        del stack[start:]
        return items

    argument: Any
    items: Any
    for index, (opcode, argument, _) in enumerate(pickletools.genops(_Limited(file))):  # type: ignore[arg-type]
        name = opcode.name
        if index == opcodes:
            raise FormatError(f"a pickle has more than {opcodes} opcodes")
        if name in PUSHES:
            stack.append(argument)
        elif name in CONSTANTS:
            stack.append(CONSTANTS[name])
        elif name == "MARK":
            marks.append(len(stack))
        elif name in ("EMPTY_DICT", "EMPTY_LIST", "EMPTY_SET"):
            stack.append({} if name == "EMPTY_DICT" else [])
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            count = int(name[-1])
            items = tuple(stack[-count:])
            del stack[-count:]
            stack.append(items)
        elif name in ("TUPLE", "LIST", "DICT"):
            items = since_mark()
            if name == "DICT":
                stack.append(_dict(items))
            else:
                stack.append(tuple(items) if name == "TUPLE" else items)
        elif name in ("BINPUT", "LONG_BINPUT", "PUT", "MEMOIZE"):
            memo[len(memo) if name == "MEMOIZE" else argument] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            stack.append(memo[argument])
        elif name == "GLOBAL":
            stack.append(_global(*argument.split(" ", 1)))
        elif name == "STACK_GLOBAL":
            attribute, module = stack.pop(), stack.pop()
            stack.append(_global(module, attribute))
        elif name == "BINPERSID":
            stack.append(_storage(stack.pop()))
        elif name == "REDUCE":
            arguments = stack.pop()
            stack.append(_reduce(stack.pop(), arguments))
        elif name in ("NEWOBJ", "NEWOBJ_EX"):
            del stack[-2 if name == "NEWOBJ" else -3 :]
            stack.append(Inert())
        elif name == "BUILD":
            stack.pop()  # the state of an object: dicts and tensors have none that matters
        elif name in ("SETITEM", "SETITEMS"):
            items = since_mark() if name == "SETITEMS" else [stack.pop(-2), stack.pop()]
            if isinstance(stack[-1], dict):
                stack[-1].update(_dict(items))
        elif name in ("APPEND", "APPENDS", "ADDITEMS"):
            items = [stack.pop()] if name == "APPEND" else since_mark()
            if isinstance(stack[-1], list):
                stack[-1].extend(items)
        elif name == "STOP":
            return stack.pop()
        elif name not in ("PROTO", "FRAME"):
            raise FormatError(f"the pickle uses opcode {name}, which no checkpoint needs")
    raise FormatError("the pickle ends before its end")


def state_dict(value: Any) -> dict[str, Tensor]:
    """The tensors of a checkpoint: itself a dict of tensors, or one under ``state_dict``."""
    if isinstance(value, dict) and isinstance(value.get("state_dict"), dict):
        value = value["state_dict"]
    if not isinstance(value, dict):
        raise FormatError("the checkpoint is not a dict of tensors")
    tensors = {k: v for k, v in value.items() if isinstance(k, str) and isinstance(v, Tensor)}
    if not tensors:
        entries = ", ".join(map(_shown, list(value)[:6]))
        raise FormatError(f"the checkpoint holds no tensors; its entries: {entries}")
    return tensors


def bfloat16(raw: NDArray[np.uint16]) -> NDArray[np.float32]:
    """float32 values of bfloat16 bit patterns, exactly."""
    return (raw.astype(np.uint32) << 16).view(np.float32)


def _values(storage: Storage, data: bytes) -> NDArray[Any]:
    bf16 = storage.dtype == "bfloat16"
    dtype = np.dtype("<u2" if bf16 else storage.dtype)
    if len(data) != storage.size * dtype.itemsize:
        raise FormatError(
            f"storage {storage.key} has {len(data)} bytes, wanted {storage.size * dtype.itemsize}"
        )
    values: NDArray[Any] = np.frombuffer(data, dtype)
    return bfloat16(values) if bf16 else values


def _view(tensor: Tensor, values: NDArray[Any]) -> NDArray[Any]:
    if 0 in tensor.shape:
        return np.zeros(tensor.shape, values.dtype)
    strides = tuple(step * values.itemsize for step in tensor.stride)
    view = np.lib.stride_tricks.as_strided(
        values[tensor.offset :], tensor.shape, strides, writeable=False
    )
    return np.array(view)


def _gather(
    tensors: Mapping[str, Tensor], storages: Iterator[tuple[str, Any]]
) -> dict[str, NDArray[Any]]:
    """Arrays of the tensors, one storage in memory at a time."""
    wanted: dict[str, list[str]] = {}
    for name, tensor in tensors.items():
        wanted.setdefault(tensor.storage.key, []).append(name)
    arrays = {}
    for key, read in storages:
        if key in wanted:
            names = wanted.pop(key)
            storage = tensors[names[0]].storage
            for name in names:  # what the views were checked against
                if tensors[name].storage != storage:
                    raise FormatError(f"storage {key} is described as {storage} and otherwise ({name})")
            values = _values(storage, read())
            for name in names:
                arrays[name] = _view(tensors[name], values)
    if wanted:
        raise FormatError(f"storages {sorted(wanted)[:4]} are missing")
    return arrays


class TorchFile:
    """A file written by ``torch.save``: names first, then the arrays that are asked for."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._size = file.seek(0, 2)
        file.seek(0)
        start = file.read(4)
        file.seek(0)
        if start != b"PK\x03\x04" and start[:1] != b"\x80":
            raise FormatError(f"starts with {start!r}, wanted a zip archive or a pickle of torch.save")
        self._zip = zipfile.ZipFile(file) if start == b"PK\x03\x04" else None
        self.tensors = state_dict(self._open_zip() if self._zip else self._open_legacy())

    def _open_zip(self) -> Any:
        assert self._zip is not None
        names = self._zip.namelist()
        if len(set(names)) != len(names):
            raise FormatError("the zip archive has two entries of one name")
        pickles = [name for name in names if name.endswith("/data.pkl") or name == "data.pkl"]
        if len(pickles) != 1:
            raise FormatError(f"the zip archive holds {names[:4]}..., wanted one data.pkl")
        self._prefix = pickles[0][: -len("data.pkl")]
        if f"{self._prefix}byteorder" in names:
            order = self._entry(f"{self._prefix}byteorder", 16)
            if order != b"little":
                raise FormatError(f"endianness is {order!r}, wanted b'little'")
        return read_pickle(io.BytesIO(self._entry(pickles[0], PICKLE_LIMIT)))

    def _entry(self, name: str, limit: int | None = None) -> bytes:
        assert self._zip is not None
        info = self._zip.getinfo(name)
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise FormatError(f"entry {name} is compressed, which torch.save never does")
        if limit is not None and info.file_size > limit:
            raise FormatError(f"entry {name} has {info.file_size} bytes, wanted at most {limit}")
        return self._zip.read(info)

    def _open_legacy(self) -> Any:
        magic, protocol = (read_pickle(self._file, 100) for _ in range(2))
        if magic != LEGACY_MAGIC or protocol != LEGACY_PROTOCOL:
            raise FormatError("not a file written by torch.save")
        system = read_pickle(self._file, 1000)
        if not isinstance(system, dict) or system.get("little_endian") is not True:
            raise FormatError("endianness is big, wanted little")
        value = read_pickle(self._file)
        keys = read_pickle(self._file, 200_000)
        if not isinstance(keys, list) or not all(type(key) in (str, int) for key in keys):
            raise FormatError("the list of storages is not a list of names")
        self._keys = [str(key) for key in keys]
        return value

    def arrays(self, names: list[str]) -> dict[str, NDArray[Any]]:
        """The named tensors; nothing else is read."""
        tensors = {name: self.tensors[name] for name in names}
        values = sum(prod(tensor.shape) for tensor in tensors.values())
        if values > self._size:  # tensors may share a storage, but not any number of times
            raise FormatError(f"the tensors have {values} values, the file {self._size} bytes")
        return _gather(tensors, self._zip_storages(tensors) if self._zip else self._legacy_storages())

    def _zip_storages(self, tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Any]]:
        assert self._zip is not None
        keys = {tensor.storage.key: tensor.storage for tensor in tensors.values()}
        # In the order of the file: a gzipped archive cannot go back cheaply.
        infos = {key: self._zip.getinfo(f"{self._prefix}data/{key}") for key in keys}
        for key in sorted(keys, key=lambda key: infos[key].header_offset):
            yield key, lambda key=key: self._entry(infos[key].filename)

    def _legacy_storages(self) -> Iterator[tuple[str, Any]]:
        sizes = {t.storage.key: t.storage for t in self.tensors.values()}
        for key in self._keys:
            count = int.from_bytes(self._file.read(8), "little")
            storage = sizes.get(key)
            if storage is None or count != storage.size:
                raise FormatError(f"storage {key} has {count} values, wanted {storage}")
            width = 2 if storage.dtype == "bfloat16" else np.dtype(storage.dtype).itemsize
            here = self._file.tell()
            yield key, lambda size=count * width: self._file.read(size)
            self._file.seek(here + count * width)
