/* Vector loops in portable C: for every core without MVE. */
#include "pkrnnt_kernels.h"

int32_t pkrnnt_argmax(const int32_t *values, int32_t n)
{
    int32_t best = 0;
    int32_t top = values[0];
    int32_t i;
    for (i = 1; i < n; i++) {
        if (values[i] > top) {
            top = values[i];
            best = i;
        }
    }
    return best;
}

#if !defined(PKRNNT_MVE)

void pkrnnt_requantize_s32(const int32_t *acc, const int32_t *multiplier, const int8_t *shift, int32_t n,
                           int32_t *out)
{
    int32_t i;
    for (i = 0; i < n; i++) {
        out[i] = pkrnnt_requantize(acc[i], multiplier[i], shift[i]);
    }
}

void pkrnnt_requantize_s16(const int32_t *acc, const int32_t *multiplier, const int8_t *shift, int32_t n,
                           const int16_t *add, int16_t *out)
{
    int32_t i;
    if (add == 0) {
        for (i = 0; i < n; i++) {
            out[i] = (int16_t)pkrnnt_saturate_s16(pkrnnt_requantize(acc[i], multiplier[i], shift[i]));
        }
    } else {
        for (i = 0; i < n; i++) {
            const int32_t value = pkrnnt_requantize(acc[i], multiplier[i], shift[i]) + add[i];
            out[i] = (int16_t)pkrnnt_saturate_s16(value);
        }
    }
}

void pkrnnt_lstm_cell_s8(int16_t *gates, const pkrnnt_lstm_cell *cell, int32_t n, const int16_t *c,
                         int16_t *c_out, int8_t *h_out)
{
    const int32_t high = cell->cell_clip > 0 ? cell->cell_clip : 32767;
    const int32_t low = cell->cell_clip > 0 ? -cell->cell_clip : -32768;
    int32_t j;
    for (j = 0; j < n; j++) {
        const int32_t i_gate = pkrnnt_activation_s16(gates[j], 0, PKRNNT_SIGMOID);
        const int32_t f_gate = pkrnnt_activation_s16(gates[j + n], 0, PKRNNT_SIGMOID);
        const int32_t g_gate = pkrnnt_activation_s16(gates[j + 2 * n], 0, PKRNNT_TANH);
        const int32_t o_gate = pkrnnt_activation_s16(gates[j + 3 * n], 0, PKRNNT_SIGMOID);
        int32_t value = pkrnnt_requantize(f_gate * c[j], cell->forget_to_cell[0], cell->forget_to_cell[1]);
        value = pkrnnt_saturate_s16(value);
        value += pkrnnt_requantize(i_gate * g_gate, cell->input_to_cell[0], cell->input_to_cell[1]);
        value = pkrnnt_clamp(value, low, high);
        c_out[j] = (int16_t)value;
        value = o_gate * pkrnnt_activation_s16(value, cell->cell_scale_power + 12, PKRNNT_TANH);
        value = pkrnnt_requantize(value, cell->output[0], cell->output[1]) + cell->hidden_zero_point;
        h_out[j] = (int8_t)pkrnnt_saturate_s8(value);
    }
}

/* One loop for each kind, which is a constant where this is inlined. */
static inline void add_activate(const int16_t *a, const int16_t *b, const pkrnnt_activation *activation,
                                int32_t n, int8_t *out, int kind)
{
    const pkrnnt_activation local = *activation;
    int32_t j;
    for (j = 0; j < n; j++) {
        int32_t value = pkrnnt_saturate_s16(a[j] + b[j]);
        if (kind == PKRNNT_RELU) {
            value = value > 0 ? value : 0;
        } else {
            value = pkrnnt_activation_s16(value, local.left_shift, kind);
        }
        value = pkrnnt_requantize(value, local.multiplier, local.shift) + local.zero_point;
        out[j] = (int8_t)pkrnnt_saturate_s8(value);
    }
}

void pkrnnt_add_activate_s8(const int16_t *a, const int16_t *b, const pkrnnt_activation *activation,
                            int32_t n, int8_t *out)
{
    if (activation->kind == PKRNNT_RELU) {
        add_activate(a, b, activation, n, out, PKRNNT_RELU);
    } else if (activation->kind == PKRNNT_TANH) {
        add_activate(a, b, activation, n, out, PKRNNT_TANH);
    } else {
        add_activate(a, b, activation, n, out, PKRNNT_SIGMOID);
    }
}

#endif
