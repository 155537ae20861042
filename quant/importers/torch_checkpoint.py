"""``.ckpt``, ``.pt``, ``.pth``: weights under NeMo's names, as torch.save or Lightning writes them."""

from __future__ import annotations

import os
from typing import Any

from pkrnnt import FloatModel
from quant.importers.decoder_half import naming, select
from quant.importers.torch_pickle import TorchFile


def read(path: str | os.PathLike[str], **settings: Any) -> FloatModel:
    with open(path, "rb") as file, naming(path):
        source = TorchFile(file)
        return FloatModel.from_tensors(source.arrays(select(source.tensors)), **settings)
