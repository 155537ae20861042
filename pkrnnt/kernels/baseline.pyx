"""Kernel variant for any processor: the loops compiled with the package's plain flags."""

include "elementwise.pxi"
include "row_major.pxi"
include "table.pxi"

_table.name = b"baseline"
