"""Kernel variant for any processor: the loops compiled with the package's plain flags."""

from libc.stdint cimport int16_t

ctypedef int16_t activation_t

include "elementwise.pxi"
include "row_major.pxi"
include "table.pxi"

_table.name = b"baseline"
