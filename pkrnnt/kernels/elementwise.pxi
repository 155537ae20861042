# The kernels on vectors, written once: plain loops that the compiler turns into vector code under
# a variant's flags. Each loop does one thing and selects instead of branching, or it would not.

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t

from pkrnnt.fixed_point cimport (
    SIGMOID, TANH, activation_s16, clamp_s32, divide_by_power_of_two, doubling_high_mult,
    exp_on_negative_values, requantize_s32, saturate_s16, shift_left)
from pkrnnt.kernels.contract cimport (
    RELU_FUNCTION, TANH_FUNCTION, Activation, LstmCell)


cdef void _requantize(const int32_t *acc, const int32_t *multiplier, const int8_t *shift,
                      int rows, int32_t *out) noexcept nogil:
    cdef int r
    for r in range(rows):
        out[r] = requantize_s32(acc[r], multiplier[r], shift[r])


cdef int64_t _saturate_s16(const int32_t *values, int64_t n, int16_t *out) noexcept nogil:
    cdef int32_t saturated = 0  # the caller takes fewer than 2^31 values at a time
    cdef int32_t value
    cdef int64_t i
    for i in range(n):
        value = saturate_s16(values[i])
        saturated += value != values[i]
        out[i] = <int16_t>value
    return saturated


cdef inline int32_t _to_s8(int32_t value, const Activation *activation, int8_t *out) noexcept nogil:
    # Stores the int8 output and says whether it saturated.
    cdef int32_t wide = requantize_s32(value, activation.multiplier, activation.shift) + activation.zero_point
    cdef int32_t narrow = clamp_s32(wide, -128, 127)
    out[0] = <int8_t>narrow
    return narrow != wide


cdef void _add_activate_s8(const int16_t *a, const int16_t *b, int n, const Activation *activation,
                           int8_t *out, int64_t *sums_saturated, int64_t *out_saturated) noexcept nogil:
    cdef Activation local = activation[0]  # so that the compiler knows the output does not alias it
    cdef int32_t sums = 0, outs = 0
    cdef int32_t total, clipped
    cdef int i
    if local.function == RELU_FUNCTION:
        for i in range(n):
            total = <int32_t>a[i] + b[i]
            clipped = saturate_s16(total)
            sums += clipped != total
            outs += _to_s8(clipped if clipped > 0 else 0, &local, &out[i])
    elif local.function == TANH_FUNCTION:
        for i in range(n):
            total = <int32_t>a[i] + b[i]
            clipped = saturate_s16(total)
            sums += clipped != total
            outs += _to_s8(activation_s16(clipped, local.left_shift, TANH), &local, &out[i])
    else:
        for i in range(n):
            total = <int32_t>a[i] + b[i]
            clipped = saturate_s16(total)
            sums += clipped != total
            outs += _to_s8(activation_s16(clipped, local.left_shift, SIGMOID), &local, &out[i])
    sums_saturated[0] = sums
    out_saturated[0] = outs


cdef void _lstm_cell_s8(const int16_t *gates, int32_t *to_add, int n, const LstmCell *cell,
                        const int16_t *c, int16_t *c_out, int8_t *h_out,
                        int64_t *gates_saturated, int64_t *cells_saturated,
                        int64_t *hiddens_saturated) noexcept nogil:
    cdef LstmCell local = cell[0]
    cdef int32_t low = -local.cell_clip if local.cell_clip > 0 else -32768
    cdef int32_t high = local.cell_clip if local.cell_clip > 0 else 32767
    cdef int32_t *i_gate = to_add
    cdef int32_t *f_gate = to_add + n
    cdef int32_t *g_gate = to_add + 2 * n
    cdef int32_t *o_gate = to_add + 3 * n
    cdef int32_t saturated = 0
    cdef int32_t total, value
    cdef int j
    # The loader proves |to_add| < 2^31 - 2^16, so the sum stays in int32.
    for j in range(4 * n):
        total = to_add[j] + gates[j]
        value = saturate_s16(total)
        saturated += value != total
        to_add[j] = value
    gates_saturated[0] = saturated
    for j in range(2 * n):
        i_gate[j] = activation_s16(i_gate[j], 0, SIGMOID)
    for j in range(n):
        g_gate[j] = activation_s16(g_gate[j], 0, TANH)
    for j in range(n):
        o_gate[j] = activation_s16(o_gate[j], 0, SIGMOID)
    saturated = 0
    for j in range(n):
        total = requantize_s32(i_gate[j] * g_gate[j], local.input_to_cell_multiplier,
                               local.input_to_cell_shift)
        total += saturate_s16(requantize_s32(f_gate[j] * c[j], local.forget_to_cell_multiplier,
                                             local.forget_to_cell_shift))
        value = clamp_s32(total, low, high)
        saturated += value != total
        c_out[j] = <int16_t>value
    cells_saturated[0] = saturated
    saturated = 0
    for j in range(n):
        total = requantize_s32(
            o_gate[j] * activation_s16(c_out[j], local.cell_scale_power + 12, TANH),
            local.output_multiplier, local.output_shift) + local.hidden_zero_point
        value = clamp_s32(total, -128, 127)
        saturated += value != total
        h_out[j] = <int8_t>value
    hiddens_saturated[0] = saturated


cdef int _argmax(const int32_t *values, int n) noexcept nogil:
    # Two passes, each simple: the maximum, then the first place that holds it.
    cdef int32_t top = values[0]
    cdef int i
    for i in range(1, n):
        top = values[i] if values[i] > top else top
    for i in range(n):
        if values[i] == top:
            return i
    return 0


cdef int64_t _exp_sum(const int32_t *values, int n, int32_t top, int32_t multiplier, int shift,
                      int32_t diff_min) noexcept nogil:
    # A difference beyond diff_min may leave int32: it is compared in 64 bits, and replaced by 0
    # before the exponential, whose result is then not added.
    cdef int64_t total = 0
    cdef int64_t difference
    cdef int32_t near, e
    cdef int i
    for i in range(n):
        difference = <int64_t>values[i] - top
        near = <int32_t>difference if difference >= diff_min else 0
        e = divide_by_power_of_two(
            exp_on_negative_values(doubling_high_mult(shift_left(near, shift), multiplier)), 12)
        total += e if difference >= diff_min else 0
    return total
