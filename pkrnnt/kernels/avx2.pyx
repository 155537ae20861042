"""Kernel variant for x86-64 with AVX2: the same loops as the baseline under wider flags."""

from libc.stdint cimport int16_t

ctypedef int16_t activation_t

include "elementwise.pxi"
include "row_major.pxi"
include "table.pxi"

_table.name = b"avx2"
