"""Kernel variant for x86-64 with AVX512-VNNI: 16 rows a vector, 32 registers."""

cdef extern from *:
    """
    #include <immintrin.h>
    #define VECTOR __m512i
    #define LOAD(p) _mm512_loadu_si512((const void *)(p))
    #define STORE(p, v) _mm512_storeu_si512((void *)(p), v)
    #define BROADCAST(x) _mm512_set1_epi32(x)
    #define DOT(sum, activations, weights) _mm512_dpbusd_epi32(sum, activations, weights)
    #define BLOCKS 4
    #define VECTORS 4
    """

include "elementwise.pxi"
include "elementwise_avx512.pxi"
include "vnni.pxi"
include "table.pxi"

_table.name = b"avx512vnni"
_table.requantize = _requantize_avx512
_table.argmax = _argmax_avx512
_table.add_activate_s8 = _add_activate_avx512
_table.lstm_cell_s8 = _lstm_cell_avx512
_table.exp_sum = _exp_sum_avx512
