"""Kernel variant for arm64 with the dot-product extension."""

include "elementwise.pxi"
include "row_major.pxi"
include "table.pxi"

_table.name = b"neon_dotprod"
