"""Kernel variant for x86-64 with AVX-VNNI: 8 rows a vector, 16 registers."""

cdef extern from *:
    """
    #include <immintrin.h>
    #define VECTOR __m256i
    #define LOAD(p) _mm256_loadu_si256((const __m256i *)(p))
    #define STORE(p, v) _mm256_storeu_si256((__m256i *)(p), v)
    #define BROADCAST(x) _mm256_set1_epi32(x)
    #define DOT(sum, activations, weights) _mm256_dpbusd_avx_epi32(sum, activations, weights)
    #define BLOCKS 4
    #define VECTORS 3
    """

include "elementwise.pxi"
include "vnni.pxi"
include "table.pxi"

_table.name = b"avxvnni"
