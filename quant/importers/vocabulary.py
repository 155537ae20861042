"""Lists of token pieces: text files and SentencePiece models."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from pkrnnt import FormatError

BLANK_NAMES = {"<blk>", "<blank>", "<blank_token>"}


def read_vocabulary(path: str | os.PathLike[str]) -> list[str]:
    """Token pieces in the order of their ids, blank left out.

    Args:
        path: a text file with one piece a line, or with ``piece id`` as sherpa-onnx's tokens.txt,
            where the piece itself may be a space and a last ``<blk>`` is blank.

    Raises:
        FormatError: ids that are not 0, 1, 2...; not UTF-8.
        OSError: the file cannot be opened.
    """
    try:
        # Not splitlines, which also splits at characters that pieces may hold, such as U+2028.
        content = Path(path).read_text(encoding="utf-8").removesuffix("\n")
        lines = content.split("\n") if content else []
    except UnicodeDecodeError as error:
        raise FormatError(f"{os.fspath(path)}: not UTF-8: {error}") from None
    if lines and all(re.fullmatch(r"(?s).*\s\d+", line) for line in lines):
        pairs = [re.fullmatch(r"(?s)(.*)\s(\d+)", line) for line in lines]
        numbered = {int(pair[2]): pair[1] for pair in pairs if pair}
        if sorted(numbered) != list(range(len(lines))):
            raise FormatError(f"{os.fspath(path)}: token ids are not 0..{len(lines) - 1}")
        lines = [numbered[index] for index in range(len(lines))]
    if lines and lines[-1] in BLANK_NAMES:
        lines.pop()
    return lines


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A protocol-buffer integer of at most 64 bits, and where it ends."""
    value = 0
    for index, byte in enumerate(data[at : at + 10]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, at + index + 1
    raise FormatError(f"SentencePiece model: no integer at byte {at}")


def _messages(data: bytes, wanted: int) -> Iterator[bytes]:
    """Contents of every length-delimited field with the number ``wanted`` in a protocol buffer."""
    at = 0
    while at < len(data):
        key, start = _varint(data, at)
        kind = key & 7
        if kind == 0:
            at = _varint(data, start)[1]
            continue
        if kind == 2:
            length, start = _varint(data, start)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise FormatError(f"SentencePiece model: field of kind {kind} at byte {at}")
        at = start + length
        if at > len(data):
            raise FormatError(f"SentencePiece model: field ends at byte {at} of {len(data)}")
        if kind == 2 and key >> 3 == wanted:
            yield data[start:at]


def sentencepiece_pieces(data: bytes) -> list[str]:
    """The pieces of a SentencePiece model (sentencepiece_model.proto: pieces = 1, in it piece = 1)."""
    return [piece.decode("utf-8") for entry in _messages(data, 1) for piece in _messages(entry, 1)]
