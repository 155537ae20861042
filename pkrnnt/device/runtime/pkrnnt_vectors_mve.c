/* Vector loops for MVE, four int32 lanes at a time. Each loop's body is inlined twice: for full vectors, and
 * for the last 1 to 3 elements under a predicate, which costs an instruction an access. */
#include "pkrnnt_kernels.h"

#if defined(PKRNNT_MVE)

#include <arm_mve.h>

/* Always: where count is the constant 4, the predicates must vanish. */
#define INLINE static inline __attribute__((always_inline))

/* dpot by -right, right <= 0: VRSHL rounds ties up, so negative values are lowered by one first. */
INLINE int32x4_t divide_by_powers_of_two(int32x4_t value, int32x4_t right)
{
    const int32x4_t below_zero = vshrq_n_s32(vandq_s32(value, right), 31);
    return vrshlq_s32(vaddq_s32(value, below_zero), right);
}

INLINE int32x4_t requantize(int32x4_t value, const int32_t pair[2])
{
    const int32_t left = pair[1] > 0 ? pair[1] : 0;
    value = vqrdmulhq_n_s32(vshlq_r_s32(value, left), pair[0]);
    return divide_by_powers_of_two(value, vdupq_n_s32(pair[1] - left));
}

/* Elements of a vector; lanes beyond count are not read, and not written. */
INLINE int32x4_t load_s8(const int8_t *from, int32_t count)
{
    return count >= 4 ? vldrbq_s32(from) : vldrbq_z_s32(from, vctp32q((uint32_t)count));
}

INLINE int32x4_t load_s16(const int16_t *from, int32_t count)
{
    return count >= 4 ? vldrhq_s32(from) : vldrhq_z_s32(from, vctp32q((uint32_t)count));
}

INLINE int32x4_t load_s32(const int32_t *from, int32_t count)
{
    return count >= 4 ? vldrwq_s32(from) : vldrwq_z_s32(from, vctp32q((uint32_t)count));
}

INLINE void store_s8(int8_t *to, int32x4_t value, int32_t count)
{
    if (count >= 4) {
        vstrbq_s32(to, value);
    } else {
        vstrbq_p_s32(to, value, vctp32q((uint32_t)count));
    }
}

INLINE void store_s16(int16_t *to, int32x4_t value, int32_t count)
{
    if (count >= 4) {
        vstrhq_s32(to, value);
    } else {
        vstrhq_p_s32(to, value, vctp32q((uint32_t)count));
    }
}

INLINE void store_s32(int32_t *to, int32x4_t value, int32_t count)
{
    if (count >= 4) {
        vstrwq_s32(to, value);
    } else {
        vstrwq_p_s32(to, value, vctp32q((uint32_t)count));
    }
}

INLINE int32x4_t requantize_rows(const int32_t *acc, const int32_t *multiplier, const int8_t *shift,
                                        int32_t count)
{
    const int32x4_t both = load_s8(shift, count);
    const int32x4_t left = vmaxq_s32(both, vdupq_n_s32(0));
    const int32x4_t value = vqrdmulhq_s32(vshlq_s32(load_s32(acc, count), left), load_s32(multiplier, count));
    return divide_by_powers_of_two(value, vsubq_s32(both, left));
}

INLINE int32x4_t clamp(int32x4_t value, int32_t low, int32_t high)
{
    return vmaxq_s32(vminq_s32(value, vdupq_n_s32(high)), vdupq_n_s32(low));
}

INLINE int32x4_t saturate_s16(int32x4_t value)
{
    return clamp(value, -32768, 32767);
}

INLINE int32x4_t activation_s16(int32x4_t x, int32_t left_shift, int kind)
{
    const int32_t bits = kind == PKRNNT_SIGMOID ? 9 : 8;
    const int32_t half = kind == PKRNNT_SIGMOID ? 512 : 128;
    int32x4_t d = vmulq_n_s32(x, 3);
    int32x4_t a, low, step, r, negative;
    uint32x4_t u;
    if (left_shift != 0) {
        d = vrshlq_s32(d, vdupq_n_s32(left_shift)); /* to the right it rounds as the specification does */
    }
    a = vabsq_s32(d);
    u = vreinterpretq_u32_s32(vshlq_r_s32(a, -bits));
    {
        const uint32x4_t inside = vminq_u32(u, vdupq_n_u32(254));
        low = vreinterpretq_s32_u32(vldrhq_gather_shifted_offset_u32(pkrnnt_sigmoid_table, inside));
        step = vreinterpretq_s32_u32(vldrhq_gather_shifted_offset_u32(pkrnnt_sigmoid_table + 1, inside));
        step = vsubq_s32(step, low);
    }
    r = vaddq_s32(vshlq_r_s32(low, bits), vmulq_s32(vandq_s32(a, vdupq_n_s32((1 << bits) - 1)), step));
    r = vpselq_s32(vdupq_n_s32(kind == PKRNNT_SIGMOID ? 0x7FFF << 10 : 0xFFFF << 8), r,
                   vcmpcsq_n_u32(u, 255));
    if (kind == PKRNNT_SIGMOID) {
        negative = vsubq_s32(vdupq_n_s32((1 << 25) + half - 1), r);
        r = vaddq_n_s32(r, half);
    } else {
        negative = vsubq_s32(vdupq_n_s32((1 << 23) + half - 1), r);
        r = vaddq_n_s32(r, half - (1 << 23));
    }
    r = vpselq_s32(r, negative, vcmpgeq_n_s32(d, 0));
    return vshlq_r_s32(r, kind == PKRNNT_SIGMOID ? -10 : -8);
}

void pkrnnt_requantize_s32(const int32_t *acc, const int32_t *multiplier, const int8_t *shift, int32_t n,
                           int32_t *out)
{
    for (; n >= 4; n -= 4) {
        store_s32(out, requantize_rows(acc, multiplier, shift, 4), 4);
        acc += 4;
        multiplier += 4;
        shift += 4;
        out += 4;
    }
    if (n > 0) {
        store_s32(out, requantize_rows(acc, multiplier, shift, n), n);
    }
}

void pkrnnt_requantize_s16(const int32_t *acc, const int32_t *multiplier, const int8_t *shift, int32_t n,
                           const int16_t *add, int16_t *out)
{
    for (; n >= 4; n -= 4) {
        int32x4_t value = requantize_rows(acc, multiplier, shift, 4);
        if (add != 0) {
            value = vaddq_s32(value, load_s16(add, 4));
            add += 4;
        }
        store_s16(out, saturate_s16(value), 4);
        acc += 4;
        multiplier += 4;
        shift += 4;
        out += 4;
    }
    if (n > 0) {
        int32x4_t value = requantize_rows(acc, multiplier, shift, n);
        if (add != 0) {
            value = vaddq_s32(value, load_s16(add, n));
        }
        store_s16(out, saturate_s16(value), n);
    }
}

INLINE void activate_vector(int16_t *values, int32_t left_shift, int kind, int32_t count)
{
    store_s16(values, activation_s16(load_s16(values, count), left_shift, kind), count);
}

/* values int16 [n], in place */
INLINE void activate(int16_t *values, int32_t n, int32_t left_shift, int kind)
{
    for (; n >= 4; n -= 4) {
        activate_vector(values, left_shift, kind, 4);
        values += 4;
    }
    if (n > 0) {
        activate_vector(values, left_shift, kind, n);
    }
}

/* i and g -> c', which takes the place of i too, from unit j on */
INLINE void update_cell(int16_t *gates, const pkrnnt_lstm_cell *cell, int32_t n, const int16_t *c,
                        int16_t *c_out, int32_t j, int32_t count)
{
    const int32_t high = cell->cell_clip > 0 ? cell->cell_clip : 32767;
    const int32_t low = cell->cell_clip > 0 ? -cell->cell_clip : -32768;
    int32x4_t carried = vmulq_s32(load_s16(gates + n + j, count), load_s16(c + j, count));
    int32x4_t value = vmulq_s32(load_s16(gates + j, count), load_s16(gates + 2 * n + j, count));
    carried = saturate_s16(requantize(carried, cell->forget_to_cell));
    value = clamp(vaddq_s32(requantize(value, cell->input_to_cell), carried), low, high);
    store_s16(c_out + j, value, count);
    store_s16(gates + j, value, count);
}

/* tanh(c') and o -> h' from unit j on */
INLINE void update_hidden(const int16_t *gates, const pkrnnt_lstm_cell *cell, int32_t n, int8_t *h_out,
                          int32_t j, int32_t count)
{
    int32x4_t value = vmulq_s32(load_s16(gates + j, count), load_s16(gates + 3 * n + j, count));
    value = vaddq_n_s32(requantize(value, cell->output), cell->hidden_zero_point);
    store_s8(h_out + j, clamp(value, -128, 127), count);
}

/* In several loops, because the constants of one fill the vector registers. */
void pkrnnt_lstm_cell_s8(int16_t *gates, const pkrnnt_lstm_cell *cell, int32_t n, const int16_t *c,
                         int16_t *c_out, int8_t *h_out)
{
    const int32_t full = n & ~3;
    int32_t j;
    activate(gates, 2 * n, 0, PKRNNT_SIGMOID);
    activate(gates + 2 * n, n, 0, PKRNNT_TANH);
    activate(gates + 3 * n, n, 0, PKRNNT_SIGMOID);
    for (j = 0; j < full; j += 4) {
        update_cell(gates, cell, n, c, c_out, j, 4);
    }
    if (j < n) {
        update_cell(gates, cell, n, c, c_out, j, n - j);
    }
    activate(gates, n, cell->cell_scale_power + 12, PKRNNT_TANH);
    for (j = 0; j < full; j += 4) {
        update_hidden(gates, cell, n, h_out, j, 4);
    }
    if (j < n) {
        update_hidden(gates, cell, n, h_out, j, n - j);
    }
}

INLINE void joint_units(const int16_t *a, const int16_t *b, const pkrnnt_activation *activation,
                               int8_t *out, int kind, int32_t count)
{
    const int32_t pair[2] = {activation->multiplier, activation->shift};
    int32x4_t value = saturate_s16(vaddq_s32(load_s16(a, count), load_s16(b, count)));
    if (kind == PKRNNT_RELU) {
        value = vmaxq_s32(value, vdupq_n_s32(0));
    } else {
        value = activation_s16(value, activation->left_shift, kind);
    }
    value = vaddq_n_s32(requantize(value, pair), activation->zero_point);
    store_s8(out, clamp(value, -128, 127), count);
}

INLINE void add_activate(const int16_t *a, const int16_t *b, const pkrnnt_activation *activation,
                                int32_t n, int8_t *out, int kind)
{
    for (; n >= 4; n -= 4) {
        joint_units(a, b, activation, out, kind, 4);
        a += 4;
        b += 4;
        out += 4;
    }
    if (n > 0) {
        joint_units(a, b, activation, out, kind, n);
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
