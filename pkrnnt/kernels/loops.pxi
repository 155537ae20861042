# The loops of the kernel contract, written once. A variant module includes this file and is
# compiled with its own flags; plain loops that the compiler can turn into vector code.

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t
from libc.string cimport memcpy

from cpython.pycapsule cimport PyCapsule_New

from pkrnnt.fixed_point cimport requantize_s32
from pkrnnt.kernels.contract cimport KernelTable


cdef int64_t _packed_bytes(int rows, int cols) noexcept nogil:
    return <int64_t>rows * (sizeof(int32_t) + cols)


cdef void _pack(const int8_t *weight, const int32_t *bias, int rows, int cols,
                void *packed) noexcept nogil:
    # Row-major as it stands, behind the biases.
    memcpy(packed, bias, rows * sizeof(int32_t))
    memcpy(<char *>packed + rows * sizeof(int32_t), weight, <size_t>rows * cols)


cdef inline int32_t _dot(const int8_t *weight, const int16_t *x, int cols) noexcept nogil:
    # int16 activations times int8 weights become multiply-add instructions of 16-bit pairs.
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


cdef void _requantize(const int32_t *acc, const int32_t *multiplier, const int8_t *shift,
                      int rows, int32_t *out) noexcept nogil:
    cdef int r
    for r in range(rows):
        out[r] = requantize_s32(acc[r], multiplier[r], shift[r])


cdef int _argmax(const int32_t *values, int n) noexcept nogil:
    cdef int best = 0
    cdef int i
    for i in range(1, n):
        if values[i] > values[best]:
            best = i
    return best


cdef KernelTable _table
_table.packed_bytes = _packed_bytes
_table.pack = _pack
_table.matmul = _matmul
_table.requantize = _requantize
_table.argmax = _argmax
table = PyCapsule_New(&_table, "pkrnnt.kernels.table", NULL)
