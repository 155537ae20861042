"""Checkpoints for the tests: where those of the real tools stand, and how to change one."""

import io
import tarfile
from pathlib import Path

FIXTURES = Path(__file__).parent / "fixtures"


def rewritten(path, out, change, without=()):
    """A .nemo archive with its configuration changed, and without members that end so."""
    with tarfile.open(path) as source, tarfile.open(out, "w") as target:
        for member in source:
            if member.name.endswith(tuple(without)):
                continue
            if member.name == "./model_config.yaml":
                data = change(source.extractfile(member).read().decode()).encode()
                member.size = len(data)
                target.addfile(member, io.BytesIO(data))
            elif member.isreg():
                target.addfile(member, source.extractfile(member))
    return out
