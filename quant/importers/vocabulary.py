"""Lists of token pieces in text files."""

from __future__ import annotations

import os
import re
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
        lines = Path(path).read_text(encoding="utf-8").splitlines()
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
