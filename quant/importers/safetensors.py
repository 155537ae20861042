"""A float model as ``pkrnnt.save`` writes it."""

from __future__ import annotations

import os

from pkrnnt import FloatModel, FormatError, load


def read(path: str | os.PathLike[str]) -> FloatModel:
    model = load(path)
    if not isinstance(model, FloatModel):
        raise FormatError(f"{os.fspath(path)}: holds an int8 model already, wanted a float one")
    return model
