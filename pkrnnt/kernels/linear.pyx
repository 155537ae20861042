"""``Linear``: an int8 matrix with its bias and requantization, packed for the kernels in use."""

from libc.stdlib cimport free, malloc
from libc.stdint cimport uintptr_t

import numpy as np

from pkrnnt.kernels.contract cimport SCRATCH_BYTES_PER_COLUMN, SCRATCH_PADDING, SCRATCH_VECTORS
from pkrnnt.kernels.dispatch cimport find_table

cdef enum:
    ALIGNMENT = 64


cdef size_t scratch_bytes(int cols) noexcept nogil:
    return SCRATCH_VECTORS * (<size_t>cols * SCRATCH_BYTES_PER_COLUMN + SCRATCH_PADDING)


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


def _exactly(name, values, dtype, ndim):
    """The values as a C-contiguous array of the dtype, refused where the dtype cannot hold them."""
    given = np.asarray(values)
    array = np.ascontiguousarray(given, dtype=dtype)
    if given.dtype == dtype and given.ndim == ndim:
        return array
    if array.ndim != ndim or (array != given).any():
        raise ValueError(
            f"{name} has dtype {given.dtype} and shape {given.shape}, "
            f"wanted {ndim} dimension(s) of values that {np.dtype(dtype)} holds")
    return array


cdef class Linear:
    """``R(bias + W x)``: int8 weights, int32 accumulation, one multiplier and shift per row.

    Weights and biases are kept packed for a kernel variant, and nowhere else.

    Args:
        weight: int8 [rows, cols], values in [-127, 127].
        bias: int32 [rows], effective (offsets of the input folded in).
        multiplier: int32 [rows], Q31 mantissas.
        shift: int8 [rows], -31..30.
        kernels: name of a kernel variant, None for the one in use.

    Attributes:
        weight, bias: copies of what was given; multiplier, shift: read-only arrays.

    Raises:
        ValueError: values or shapes that do not fit, or an unknown variant.

    The caller proves that no accumulator leaves int32 (``pkrnnt.model`` does at load).
    """

    def __cinit__(self, weight, bias, multiplier, shift, kernels=None):
        cdef const int8_t[:, ::1] w = _exactly("weight", weight, np.int8, 2)
        cdef const int32_t[::1] b = _exactly("bias", bias, np.int32, 1)
        self.multiplier = _exactly("multiplier", multiplier, np.int32, 1).copy()
        self.shift = _exactly("shift", shift, np.int8, 1).copy()
        cdef const int32_t[::1] m = self.multiplier
        cdef const int8_t[::1] s = self.shift
        cdef Py_ssize_t rows = w.shape[0], cols = w.shape[1]
        if not (0 < rows < 2**31 and 0 < cols < 2**31):
            raise ValueError(f"weight is {rows} x {cols}, wanted at least 1 x 1")
        for name, length in (("bias", b.shape[0]), ("multiplier", m.shape[0]), ("shift", s.shape[0])):
            if length != rows:
                raise ValueError(f"{name} has {length} values, wanted {rows}, one per weight row")
        if self.shift.min() < -31 or self.shift.max() > 31:
            raise ValueError(
                f"shift holds {self.shift.min()}..{self.shift.max()}, wanted -31..31")
        self.multiplier.flags.writeable = False
        self.shift.flags.writeable = False
        self.c.kernels = find_table(kernels)
        self._packed = allocate_aligned(self.c.kernels.packed_bytes(<int>rows, <int>cols))
        self.c.kernels.pack(&w[0, 0], &b[0], <int>rows, <int>cols, self._packed)
        self.c.packed = self._packed
        self.c.multiplier = &m[0]
        self.c.shift = &s[0]
        self.c.rows = <int>rows
        self.c.cols = <int>cols

    def __dealloc__(self):
        free_aligned(self._packed)

    def __reduce__(self):
        return Linear, (self.weight, self.bias, self.multiplier, self.shift)

    def _unpack(self):
        weight, bias = np.empty(self.shape, np.int8), np.empty(self.c.rows, np.int32)
        cdef int8_t[:, ::1] w = weight
        cdef int32_t[::1] b = bias
        self.c.kernels.unpack(self.c.packed, self.c.rows, self.c.cols, &w[0, 0], &b[0])
        return weight, bias

    @property
    def shape(self):
        """(rows, cols)"""
        return self.c.rows, self.c.cols

    @property
    def weight(self):
        """int8 [rows, cols]"""
        return self._unpack()[0]

    @property
    def bias(self):
        """int32 [rows]"""
        return self._unpack()[1]

    @property
    def packed_bytes(self):
        """Bytes that weights and biases take in memory (int)."""
        return self.c.kernels.packed_bytes(self.c.rows, self.c.cols)

    def _apply(self, x, bint requantized):
        cdef const int8_t[:, ::1] x_view
        cdef int32_t[:, ::1] out_view
        cdef int n
        cdef void *scratch
        x = _exactly("x", x, np.int8, 2)
        if x.shape[1] != self.c.cols:
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
