"""Kernel variant for any processor: the loops compiled with the package's plain flags."""

include "loops.pxi"

_table.name = b"baseline"
