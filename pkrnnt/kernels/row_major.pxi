# Matrix kernels on weights as they stand, row by row, behind their biases. Activations are widened
# to int16 first: int8 weights times int16 activations become multiply-adds of 16-bit pairs.

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t
from libc.string cimport memcpy


cdef int64_t _packed_bytes(int rows, int cols) noexcept nogil:
    return <int64_t>rows * (<int64_t>sizeof(int32_t) + cols)


cdef void _pack(const int8_t *weight, const int32_t *bias, int rows, int cols,
                void *packed) noexcept nogil:
    memcpy(packed, bias, rows * sizeof(int32_t))
    memcpy(<char *>packed + rows * sizeof(int32_t), weight, <size_t>rows * cols)


cdef void _unpack(const void *packed, int rows, int cols, int8_t *weight,
                  int32_t *bias) noexcept nogil:
    memcpy(bias, packed, rows * sizeof(int32_t))
    memcpy(weight, <const char *>packed + rows * sizeof(int32_t), <size_t>rows * cols)


cdef inline int32_t _dot(const int8_t *weight, const int16_t *x, int cols) noexcept nogil:
    cdef int32_t total = 0
    cdef int k
    for k in range(cols):
        total += <int32_t>weight[k] * x[k]
    return total


cdef void _matmul(const void *packed, int rows, int cols, const int8_t *x, int n,
                  int32_t *acc, void *scratch) noexcept nogil:
    cdef const int32_t *bias = <const int32_t *>packed
    cdef const int8_t *weight = <const int8_t *>packed + rows * sizeof(int32_t)
    cdef int16_t *wide = <int16_t *>scratch
    cdef int i, r, k
    for i in range(n):
        for k in range(cols):
            wide[k] = x[k]
        for r in range(rows):
            acc[r] = bias[r] + _dot(weight + <int64_t>r * cols, wide, cols)
        x += cols
        acc += rows
