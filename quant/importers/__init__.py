"""Checkpoint readers, one module per file format, behind one door: ``load_checkpoint``."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from pkrnnt import FloatModel, FormatError
from quant.importers import gguf, nemo, npz, onnx_graph, safetensors, torch_checkpoint

READERS = {
    ".nemo": nemo.read,
    ".ckpt": torch_checkpoint.read,
    ".pt": torch_checkpoint.read,
    ".pth": torch_checkpoint.read,
    ".safetensors": safetensors.read,
    ".json": safetensors.read,
    ".onnx": onnx_graph.read,
    ".gguf": gguf.read,
    ".npz": npz.read,
}


def load_checkpoint(path: str | os.PathLike[str], **settings: Any) -> FloatModel:
    """The float RNN-T decoder of a checkpoint file; nothing in the file is executed.

    Args:
        path: ``.nemo``; ``.ckpt``, ``.pt`` or ``.pth`` of PyTorch or Lightning; ``.safetensors`` of
            ``pkrnnt.save``, NeMo or Hugging Face, or the ``.json`` index of its shards; ``.onnx`` of
            NeMo's export, fused or with its joiner beside it; ``.gguf`` of parakeet.cpp; ``.npz``.
        settings: ``vocabulary``, ``joint_activation``, ``max_symbols`` or ``frame_seconds``, in place
            of what the file says, as ``FloatModel.from_tensors`` takes them.

    Raises:
        FormatError: a file of another kind, or one that does not hold a whole RNN-T decoder with an
            LSTM; the message says which and why.
        OSError: the file cannot be opened.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in READERS:
        raise FormatError(
            f"{os.fspath(path)}: file name ends in {suffix!r}, wanted one of {', '.join(READERS)}"
        )
    if not stat.S_ISREG(Path(path).stat().st_mode):
        raise FormatError(f"{os.fspath(path)}: not a regular file")
    return READERS[suffix](path, **settings)
