# Matrix kernels on weights as they stand, row by row, behind their biases. The including module says
# as which type activations are multiplied (activation_t): widened to int16, so that the products become
# multiply-adds of 16-bit pairs, or int8 as they are, where the processor has a dot product of bytes.

from libc.stdint cimport int8_t, int32_t, int64_t
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


cdef inline int32_t _dot(const int8_t *weight, const activation_t *x, int cols) noexcept nogil:
    cdef int32_t total = 0
    cdef int k
    for k in range(cols):
        total += <int32_t>weight[k] * x[k]
    return total


cdef inline void _four_vectors(const int8_t *weight, const activation_t *x, int cols, int32_t bias,
                               int32_t *acc, Py_ssize_t stride) noexcept nogil:
    # One row with four vectors: each weight is loaded and widened once for all.
    cdef const activation_t *x1 = x + cols
    cdef const activation_t *x2 = x + 2 * <Py_ssize_t>cols
    cdef const activation_t *x3 = x + 3 * <Py_ssize_t>cols
    cdef int32_t p = 0, q = 0, r = 0, s = 0
    cdef int k
    for k in range(cols):
        p += <int32_t>weight[k] * x[k]
        q += <int32_t>weight[k] * x1[k]
        r += <int32_t>weight[k] * x2[k]
        s += <int32_t>weight[k] * x3[k]
    acc[0] = bias + p
    acc[stride] = bias + q
    acc[2 * stride] = bias + r
    acc[3 * stride] = bias + s


cdef void _matmul(const void *packed, int rows, int cols, const int8_t *x, int n,
                  int32_t *acc, void *scratch) noexcept nogil:
    cdef const int32_t *bias = <const int32_t *>packed
    cdef const int8_t *weight = <const int8_t *>packed + rows * sizeof(int32_t)
    cdef activation_t *taken_x = <activation_t *>scratch
    cdef int taken, r
    cdef Py_ssize_t k
    while n > 0:
        taken = 4 if n >= 4 else 1
        for k in range(taken * <Py_ssize_t>cols):
            taken_x[k] = x[k]
        if taken == 1:
            for r in range(rows):
                acc[r] = bias[r] + _dot(weight + <Py_ssize_t>r * cols, taken_x, cols)
        else:
            for r in range(rows):
                _four_vectors(weight + <Py_ssize_t>r * cols, taken_x, cols, bias[r], acc + r, rows)
        x += taken * <Py_ssize_t>cols
        acc += taken * <Py_ssize_t>rows
        n -= taken
