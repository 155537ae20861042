from libc.stdint cimport int8_t, int32_t

from pkrnnt.kernels.contract cimport KernelTable

cdef struct PackedLinear:
    const KernelTable *kernels
    const void *packed
    const int32_t *multiplier  # [rows]
    const int8_t *shift  # [rows]
    int rows
    int cols

cdef size_t scratch_bytes(int cols) noexcept nogil
cdef void *allocate_aligned(size_t size) except NULL
cdef void free_aligned(void *pointer) noexcept nogil

# x int8 [n, cols] -> out int32 [n, rows]; scratch: scratch_bytes(cols), 64-byte aligned.
cdef void run_linear(const PackedLinear *linear, const int8_t *x, int n, int32_t *out,
                     void *scratch) noexcept nogil

cdef class Linear:
    cdef PackedLinear c
    cdef void *_packed
    cdef readonly object multiplier
    cdef readonly object shift
