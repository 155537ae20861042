"""The vector functions of a kernel variant on whole arrays, so that each can be compared value by value."""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t

import numpy as np

from pkrnnt.kernels.contract cimport (
    RELU_FUNCTION, SIGMOID_FUNCTION, TANH_FUNCTION, Activation, KernelTable, LstmCell)
from pkrnnt.kernels.dispatch cimport find_table

FUNCTIONS = {"relu": RELU_FUNCTION, "sigmoid": SIGMOID_FUNCTION, "tanh": TANH_FUNCTION}


def requantize(const int32_t[::1] values, const int32_t[::1] multiplier, const int8_t[::1] shift, kernels):
    """int32 [n] of R(values, multiplier, shift) for int32, int32 and int8 arrays [n], n >= 1."""
    cdef const KernelTable *table = find_table(kernels)
    out = np.empty(values.shape[0], np.int32)
    cdef int32_t[::1] view = out
    if not 0 < values.shape[0] == multiplier.shape[0] == shift.shape[0]:
        raise ValueError("values, multiplier and shift have different lengths, or none")
    table.requantize(&values[0], &multiplier[0], &shift[0], <int>values.shape[0], &view[0])
    return out


def argmax(const int32_t[::1] values, kernels):
    """Index of the largest of int32 values [n], n >= 1; the lowest on a tie."""
    if values.shape[0] == 0:
        raise ValueError("0 values, wanted at least 1")
    return find_table(kernels).argmax(&values[0], <int>values.shape[0])


def exp_sum(const int32_t[::1] values, softmax, kernels):
    """The integer softmax's sum over int32 values [n], n >= 1; softmax (multiplier, shift, diff_min)."""
    if values.shape[0] == 0:
        raise ValueError("0 values, wanted at least 1")
    multiplier, shift, diff_min = softmax
    return find_table(kernels).exp_sum(
        &values[0], <int>values.shape[0], max(values), multiplier, shift, diff_min)


def add_activate(const int16_t[::1] a, const int16_t[::1] b, function, int left_shift, requantization,
                 int zero_point, kernels):
    """(int8 [n], sums saturated, outputs saturated) of the joint's activation of a + b, int16 [n], n >= 1."""
    cdef Activation activation
    cdef int64_t sums, outs
    out = np.empty(a.shape[0], np.int8)
    cdef int8_t[::1] view = out
    if not 0 < a.shape[0] == b.shape[0]:
        raise ValueError("a and b have different lengths, or none")
    activation.function = FUNCTIONS[function]
    activation.left_shift = left_shift
    activation.multiplier, activation.shift = requantization
    activation.zero_point = zero_point
    find_table(kernels).add_activate_s8(
        &a[0], &b[0], <int>a.shape[0], &activation, &view[0], &sums, &outs)
    return out, sums, outs


def lstm_cell(const int16_t[::1] gates, to_add, const int16_t[::1] c, scalars, kernels):
    """(h int8 [n], c int16 [n], (gates, cells, hiddens saturated)) of one cell step, n >= 1.

    gates int16 [4n], to_add int32 [4n]; scalars as an ``LstmLayer`` takes them, by name.
    """
    cdef LstmCell cell
    cdef int64_t saturated[3]
    cdef Py_ssize_t n = c.shape[0]
    cdef int32_t[::1] adding = np.array(to_add, np.int32)
    if not (0 < n and gates.shape[0] == adding.shape[0] == 4 * n):
        raise ValueError("gates and to_add have other lengths than 4 n, or n is 0")
    cell.cell_scale_power = scalars["cell_scale_power"]
    cell.cell_clip = scalars["cell_clip"]
    cell.hidden_zero_point = scalars["hidden_zero_point"]
    cell.forget_to_cell_multiplier, cell.forget_to_cell_shift = scalars["forget_to_cell"]
    cell.input_to_cell_multiplier, cell.input_to_cell_shift = scalars["input_to_cell"]
    cell.output_multiplier, cell.output_shift = scalars["output"]
    h_new, c_new = np.empty(n, np.int8), np.empty(n, np.int16)
    cdef int8_t[::1] h_view = h_new
    cdef int16_t[::1] c_view = c_new
    find_table(kernels).lstm_cell_s8(
        &gates[0], &adding[0], <int>n, &cell, &c[0], &c_view[0], &h_view[0], &saturated[0],
        &saturated[1], &saturated[2])
    return h_new, c_new, (saturated[0], saturated[1], saturated[2])
