"""``Linear``: an int8 matrix with its bias and requantization, packed for the kernels in use."""

from libc.stdlib cimport free, malloc
from libc.stdint cimport uintptr_t

import numpy as np

from pkrnnt.kernels.contract cimport SCRATCH_BYTES_PER_COLUMN, SCRATCH_PADDING
from pkrnnt.kernels.dispatch cimport find_table

cdef enum:
    ALIGNMENT = 64


cdef size_t scratch_bytes(int cols) noexcept nogil:
    return <size_t>cols * SCRATCH_BYTES_PER_COLUMN + SCRATCH_PADDING


cdef void *allocate_aligned(size_t size) except NULL:
    # malloc with the original pointer kept in front, so that it needs no platform function.
    cdef char *raw = <char *>malloc(size + ALIGNMENT + sizeof(void *))
    cdef char *aligned
    if raw == NULL:
        raise MemoryError(f"no memory for a kernel buffer of {size} bytes")
    aligned = raw + sizeof(void *)
    aligned += (ALIGNMENT - <uintptr_t>aligned % ALIGNMENT) % ALIGNMENT
    (<void **>aligned)[-1] = raw
    return aligned


cdef void free_aligned(void *pointer) noexcept nogil:
    if pointer != NULL:
        free((<void **>pointer)[-1])


cdef void run_linear(const PackedLinear *linear, const int8_t *x, int n, int32_t *out,
                     void *scratch) noexcept nogil:
    cdef int _vector
    linear.kernels.matmul(linear.packed, linear.rows, linear.cols, x, n, out, scratch)
    for _vector in range(n):
        linear.kernels.requantize(out, linear.multiplier, linear.shift, linear.rows, out)
        out += linear.rows


cdef class Linear:
    """``R(bias + W x)``: int8 weights, int32 accumulation, one multiplier and shift per row.

    Args:
        weight: int8 [rows, cols], values in [-127, 127].
        bias: int32 [rows], effective (offsets of the input folded in).
        multiplier: int32 [rows], Q31 mantissas.
        shift: int8 [rows], -31..30.
        kernels: name of a kernel variant, None for the one in use.

    Raises:
        ValueError: shapes that do not fit each other, or an unknown variant.

    The caller proves that no accumulator leaves int32 (``pkrnnt.model`` does at load).
    """

    def __cinit__(self, weight, bias, multiplier, shift, kernels=None):
        cdef const int8_t[:, ::1] w = np.ascontiguousarray(weight, dtype=np.int8)
        cdef const int32_t[::1] b = np.ascontiguousarray(bias, dtype=np.int32)
        cdef const int32_t[::1] m = np.ascontiguousarray(multiplier, dtype=np.int32)
        cdef const int8_t[::1] s = np.ascontiguousarray(shift, dtype=np.int8)
        cdef int rows = w.shape[0], cols = w.shape[1]
        if rows == 0 or cols == 0:
            raise ValueError(f"weight is {rows} x {cols}, wanted at least 1 x 1")
        for name, length in (("bias", b.shape[0]), ("multiplier", m.shape[0]), ("shift", s.shape[0])):
            if length != rows:
                raise ValueError(f"{name} has {length} values, wanted {rows}, one per weight row")
        self._arrays = (m.base, s.base)
        self.c.kernels = find_table(kernels)
        self._packed = allocate_aligned(self.c.kernels.packed_bytes(rows, cols))
        self.c.kernels.pack(&w[0, 0], &b[0], rows, cols, self._packed)
        self.c.packed = self._packed
        self.c.multiplier = &m[0]
        self.c.shift = &s[0]
        self.c.rows = rows
        self.c.cols = cols

    def __dealloc__(self):
        free_aligned(self._packed)

    def _apply(self, x, bint requantized):
        cdef const int8_t[:, ::1] x_view
        cdef int32_t[:, ::1] out_view
        cdef int n
        cdef void *scratch
        x = np.ascontiguousarray(x, dtype=np.int8)
        if x.ndim != 2 or x.shape[1] != self.c.cols:
            raise ValueError(f"x has shape {x.shape}, wanted [n, {self.c.cols}]")
        n = x.shape[0]
        out = np.empty((n, self.c.rows), np.int32)
        if n:
            x_view, out_view = x, out
            scratch = allocate_aligned(scratch_bytes(self.c.cols))
            with nogil:
                if requantized:
                    run_linear(&self.c, &x_view[0, 0], n, &out_view[0, 0], scratch)
                else:
                    self.c.kernels.matmul(self.c.packed, self.c.rows, self.c.cols, &x_view[0, 0], n,
                                          &out_view[0, 0], scratch)
                free_aligned(scratch)
        return out

    def accumulate(self, x):
        """int32 accumulators [n, rows] of ``bias + W x`` for int8 ``x`` [n, cols]."""
        return self._apply(x, False)

    def __call__(self, x):
        """int32 [n, rows] of ``R(bias + W x)`` for int8 ``x`` [n, cols]."""
        return self._apply(x, True)
