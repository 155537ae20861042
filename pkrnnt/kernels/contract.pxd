# What a kernel variant provides: one table of functions. Variants differ in how they pack
# operands, never in arithmetic: for the same arguments every variant gives the same integers.

from libc.stdint cimport int8_t, int32_t, int64_t

cdef enum:
    # Scratch a caller of matmul provides for each activation vector: this many bytes a column,
    # plus the padding, 64-byte aligned. Room for activations widened to int16.
    SCRATCH_BYTES_PER_COLUMN = 2
    SCRATCH_PADDING = 64

cdef struct KernelTable:
    const char *name
    # Bytes of the packed form of a [rows, cols] matrix with its bias.
    int64_t (*packed_bytes)(int rows, int cols) noexcept nogil
    # weight int8 [rows, cols] in [-127, 127], bias int32 [rows] -> packed (64-byte aligned).
    void (*pack)(const int8_t *weight, const int32_t *bias, int rows, int cols,
                 void *packed) noexcept nogil
    # acc[i, r] = bias[r] + sum over k of weight[r, k] * x[i, k]; x int8 [n, cols], acc int32 [n, rows].
    # The loader has proved |acc| < 2^31.
    void (*matmul)(const void *packed, int rows, int cols, const int8_t *x, int n,
                   int32_t *acc, void *scratch) noexcept nogil
    # out[r] = R(acc[r], multiplier[r], shift[r]); out may be acc.
    void (*requantize)(const int32_t *acc, const int32_t *multiplier, const int8_t *shift,
                       int rows, int32_t *out) noexcept nogil
    # The lowest index among equal maxima; n >= 1.
    int (*argmax)(const int32_t *values, int n) noexcept nogil
