"""Chooses a kernel variant at import. ``PKRNNT_KERNELS=name`` forces one, and fails if it is not there."""

import importlib
import os

from cpython.pycapsule cimport PyCapsule_GetPointer

# Best last. A variant is usable when it was built and this processor can run it.
VARIANTS = ("baseline",)


def _load():
    tables = {}
    for name in VARIANTS:
        try:
            module = importlib.import_module(f"pkrnnt.kernels.{name}")
        except ImportError:
            continue  # not built here: left out, never an error
        tables[name] = module.table
    return tables


_tables = _load()


def available():
    """Names of the kernel variants that can run here, best last (tuple of str)."""
    return tuple(_tables)


def selected():
    """Name of the kernel variant in use (str)."""
    return _selected


def _select():
    forced = os.environ.get("PKRNNT_KERNELS")
    if not forced:
        return available()[-1]
    if forced not in _tables:
        raise ImportError(
            f"PKRNNT_KERNELS is {forced!r}, wanted one of those available here: "
            f"{', '.join(available())}")
    return forced


_selected = _select()


cdef const KernelTable *find_table(name) except NULL:
    # The table of the named variant, or of the one in use for None.
    if name is None:
        name = _selected
    if name not in _tables:
        raise ValueError(f"kernel variant is {name!r}, wanted one of {', '.join(available())}")
    return <const KernelTable *>PyCapsule_GetPointer(_tables[name], "pkrnnt.kernels.table")
