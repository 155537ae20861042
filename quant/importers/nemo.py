"""``.nemo`` archives: a tar (plain or gzipped) with model_config.yaml and model_weights.ckpt.

Members are read where they stand, never unpacked to disk, and of the weights only the decoder half.
"""

from __future__ import annotations

import gzip
import os
import re
import tarfile
from collections.abc import Mapping
from typing import IO, Any

from pkrnnt import FloatModel, FormatError
from quant.importers.decoder_half import check_rows, check_sizes, naming, select
from quant.importers.torch_pickle import TorchFile
from quant.importers.vocabulary import sentencepiece_pieces

CONFIG, WEIGHTS = "model_config.yaml", "model_weights.ckpt"
CONFIG_LIMIT = 512 << 10  # bytes; 8,192 pieces listed twice take 300 kB
TEXT_LIMIT = 8 << 20  # bytes of a tokenizer


class Expanded(gzip.GzipFile):
    """A gzipped archive, of which no more is expanded than checkpoints have: floats hardly shrink."""

    def __init__(self, file: IO[bytes]) -> None:
        self._limit = 10 * os.fstat(file.fileno()).st_size + (16 << 20)
        super().__init__(fileobj=file, mode="rb")

    def _check(self, position: int) -> None:
        if position > self._limit:
            raise FormatError(f"the gzipped archive expands to more than {self._limit} bytes")

    def read(self, size: int | None = -1) -> bytes:
        self._check(self._limit + 1 if size is None or size < 0 else self.tell() + size)
        return super().read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        self._check(offset)
        return super().seek(offset, whence)


def _members(archive: tarfile.TarFile, size: int | None) -> dict[str, tarfile.TarInfo]:
    """Members by their plain names; anything that could leave a folder is refused."""
    found: dict[str, tarfile.TarInfo] = {}
    for member in archive:
        name = member.name[2:] if member.name.startswith("./") else member.name
        if name.startswith("/") or ".." in name.split("/"):
            raise FormatError(f"archive member {member.name!r} points outside the archive")
        if member.isdir():
            continue
        if not member.isreg():
            raise FormatError(f"archive member {member.name!r} is a link or a device")
        if name in found:
            raise FormatError(f"archive member {member.name!r} stands there twice")
        if size is not None and member.offset_data + member.size > size:
            raise FormatError(f"archive member {member.name!r} ends behind the end of the file")
        found[name] = member
    return found


def _bytes(archive: tarfile.TarFile, member: tarfile.TarInfo, limit: int = TEXT_LIMIT) -> bytes:
    if member.size > limit:
        raise FormatError(
            f"archive member {member.name!r} has {member.size} bytes, at most {limit} wanted"
        )
    file = archive.extractfile(member)
    assert file is not None
    return file.read()


def _text(archive: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    return _bytes(archive, member).decode("utf-8")


def _config(archive: tarfile.TarFile, member: tarfile.TarInfo) -> dict[str, Any]:
    try:
        import yaml
    except ImportError:
        raise FormatError("a .nemo archive needs PyYAML: pip install 'pkrnnt[importers]'") from None

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        """Integers are decimal: base 60, which YAML also has, takes quadratic time."""

    Loader.add_constructor("tag:yaml.org,2002:int", lambda _, node: _integer(node.value))
    text = _bytes(archive, member, CONFIG_LIMIT).decode("utf-8")
    config = yaml.load(text, Loader=Loader)
    if not isinstance(config, dict):
        raise FormatError(f"{CONFIG} is not a mapping")
    return config


def _integer(text: str) -> int | str:
    return int(text) if re.fullmatch(r"[-+]?\d{1,18}", text) else text


def _at(config: Mapping[str, Any], *keys: str) -> Any:
    """The value under a path of keys, None where a part is missing."""
    value: Any = config
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _vocabulary(
    config: Mapping[str, Any], archive: tarfile.TarFile, members: Mapping[str, tarfile.TarInfo]
) -> list[str] | None:
    """Token pieces: the configuration's list, or the tokenizer's among the members."""
    for keys in (("joint", "vocabulary"), ("labels",), ("decoder", "vocabulary")):
        labels = _at(config, *keys)
        if isinstance(labels, list) and labels:
            if not all(isinstance(label, str | int | float) for label in labels):
                raise FormatError(f"{'.'.join(keys)} in {CONFIG} is not a list of pieces")
            return [str(label) for label in labels]
    for name, member in members.items():
        if name.endswith("tokenizer.vocab"):  # SentencePiece: piece, tab, score
            lines = _text(archive, member).split("\n")
            return [line.rsplit("\t", 1)[0] for line in lines if line]
    for name, member in members.items():
        if name.endswith("tokenizer.model"):
            return sentencepiece_pieces(_bytes(archive, member))
    return None


def _frame_seconds(config: Mapping[str, Any]) -> float | None:
    stride = _at(config, "preprocessor", "window_stride")
    factor = _at(config, "encoder", "subsampling_factor")
    if isinstance(stride, float) and type(factor) is int and 0 < stride * factor < 10:
        return round(stride * factor, 9)
    return None


def _refuse_kind(config: Mapping[str, Any]) -> None:
    target = _at(config, "decoder", "_target_")
    if isinstance(target, str) and "Stateless" in target:
        raise FormatError(
            "stateless prediction network (embedding + convolution), not an LSTM "
            f"(decoder._target_ is {target})"
        )
    mode = _at(config, "decoder", "normalization_mode")
    if isinstance(mode, str) and mode:
        raise FormatError(
            f"LSTM with layer normalization inside: pkrnnt decodes plain LSTMs "
            f"(normalization_mode is {mode!r})"
        )
    for keys in (("decoding", "big_blank_durations"), ("loss", "multiblank_rnnt_kwargs")):
        if _at(config, *keys):
            raise FormatError(f"multi-blank transducer ({'.'.join(keys)}): pkrnnt decodes RNN-T")


def read(path: str | os.PathLike[str], **settings: Any) -> FloatModel:
    with open(path, "rb") as file, naming(path):
        zipped = file.read(2) == b"\x1f\x8b"
        size = None if zipped else os.fstat(file.fileno()).st_size
        file.seek(0)
        if file.read(2) == b"PK":
            raise FormatError("a zip archive, wanted a tar; a file of torch.save is named .ckpt")
        file.seek(0)
        source_file = Expanded(file) if zipped else file
        with tarfile.open(fileobj=source_file, mode="r:") as archive:
            members = _members(archive, size)
            for name in (CONFIG, WEIGHTS):
                if name not in members:
                    raise FormatError(f"the archive has no {name}; it holds {sorted(members)[:6]}")
            config = _config(archive, members[CONFIG])
            vocabulary = _vocabulary(config, archive, members)
            weights = archive.extractfile(members[WEIGHTS])
            assert weights is not None
            source = TorchFile(weights)
            names = select(source.tensors)
            _refuse_kind(config)
            _check_joint(config, source, vocabulary)
            activation = _at(config, "joint", "jointnet", "activation")
            most = _at(config, "decoding", "greedy", "max_symbols")
            given = {
                "vocabulary": vocabulary,
                "joint_activation": activation if isinstance(activation, str) else "relu",
                "max_symbols": most if type(most) is int else 10,
                "frame_seconds": _frame_seconds(config),
            }
            model = FloatModel.from_tensors(source.arrays(names), **{**given, **settings})
        return check_sizes(
            model,
            {
                "pred_hidden": _at(config, "decoder", "prednet", "pred_hidden"),
                "pred_layers": _at(config, "decoder", "prednet", "pred_rnn_layers"),
                "joint_hidden": _at(config, "joint", "jointnet", "joint_hidden"),
                "enc_hidden": _at(config, "joint", "jointnet", "encoder_hidden"),
                "vocab_size": _at(config, "decoder", "vocab_size"),
            },
        )


def _check_joint(config: Mapping[str, Any], source: TorchFile, vocabulary: list[str] | None) -> None:
    """Counts the joint's output rows before anything is read."""
    for name, tensor in source.tensors.items():
        if name.startswith("joint.joint_net.") and len(tensor.shape) == 2:
            extra = _at(config, "joint", "num_extra_outputs")
            size = _at(config, "decoder", "vocab_size") or len(vocabulary or ()) or None
            if type(size) is int:
                check_rows(tensor.shape[0], size, extra if type(extra) is int else 0)
