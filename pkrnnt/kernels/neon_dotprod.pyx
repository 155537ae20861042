"""Kernel variant for arm64 with the dot-product extension."""

from libc.stdint cimport int8_t

ctypedef int8_t activation_t

include "elementwise.pxi"
include "row_major.pxi"
include "table.pxi"

_table.name = b"neon_dotprod"
