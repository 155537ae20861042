#include "pkrnnt_joint.h"

void pkrnnt_joint_logits(const pkrnnt_joint *joint, const int16_t *enc_proj, const int16_t *pred_proj,
                         int8_t *hidden, int32_t *wide, int32_t *logits)
{
    pkrnnt_add_activate_s8(enc_proj, pred_proj, &joint->activation, joint->out.cols, hidden);
    pkrnnt_matvec_s32(&joint->out, hidden, wide, logits);
}

static int32_t saturating_shift_left(int32_t value, int32_t exponent)
{
    const int64_t wide = (int64_t)value * ((int64_t)1 << exponent);
    return wide < INT32_MIN ? INT32_MIN : (wide > INT32_MAX ? INT32_MAX : (int32_t)wide);
}

/* exp(v), v <= 0 in Q5.26, result in Q0.31: a 4th-order polynomial on (-1/4, 0] times exp(-2^k) factors. */
static int32_t exp_on_negative_values(int32_t v)
{
    static const int32_t factors[7] = {1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242};
    const int32_t w = (v & ((1 << 24) - 1)) - (1 << 24);
    const int32_t remainder = w - v;
    const int32_t x = w * 32 + (1 << 28);
    const int32_t x2 = pkrnnt_doubling_high_mult(x, x);
    const int32_t x3 = pkrnnt_doubling_high_mult(x2, x);
    const int32_t x4_over_4 = pkrnnt_divide_by_power_of_two(pkrnnt_doubling_high_mult(x2, x2), 2);
    const int32_t tail =
        pkrnnt_divide_by_power_of_two(pkrnnt_doubling_high_mult(x4_over_4 + x3, 715827883) + x2, 1);
    int32_t r = 1895147668 + pkrnnt_doubling_high_mult(1895147668, x + tail);
    int32_t k;
    if (v == 0) {
        return INT32_MAX;
    }
    for (k = 0; k < 7; k++) {
        if (((remainder >> (24 + k)) & 1) != 0) {
            r = pkrnnt_doubling_high_mult(r, factors[k]);
        }
    }
    return r;
}

/* 1 / (1 + v), v >= 0 in Q0.31: three Newton-Raphson steps; result in Q0.31. */
static int32_t one_over_one_plus_x(int32_t v)
{
    const int32_t half = (int32_t)(((int64_t)v + INT32_MAX + 1) >> 1);
    int32_t x = 1515870810 + pkrnnt_doubling_high_mult(half, -1010580540);
    int32_t step;
    for (step = 0; step < 3; step++) {
        const int32_t error = (1 << 29) - pkrnnt_doubling_high_mult(half, x);
        x += saturating_shift_left(pkrnnt_doubling_high_mult(x, error), 2);
    }
    return saturating_shift_left(x, 1);
}

int16_t pkrnnt_joint_confidence(const pkrnnt_joint *joint, const int32_t *logits, int32_t best)
{
    const int32_t n = joint->out.rows;
    const int32_t top = logits[best];
    uint64_t sum = 0;
    uint32_t total;
    int32_t headroom = 0;
    int64_t p16, q15;
    int32_t v;
    if (n == 1) {
        return 32767;
    }
    for (v = 0; v < n; v++) {
        const int64_t difference = (int64_t)logits[v] - top;
        if (difference >= joint->softmax_diff_min) {
            const int32_t near = pkrnnt_shift_left((int32_t)difference, joint->softmax_shift);
            const int32_t e =
                exp_on_negative_values(pkrnnt_doubling_high_mult(near, joint->softmax_multiplier));
            sum += (uint32_t)pkrnnt_divide_by_power_of_two(e, 12);
        }
    }
    /* A term is at most 2^19: only 8,192 equal maxima and more reach the limit, where p is 0 anyway. */
    total = sum < UINT32_MAX ? (uint32_t)sum : UINT32_MAX;
    while ((total & 0x80000000u) == 0) {
        total <<= 1;
        headroom++;
    }
    p16 = pkrnnt_doubling_high_mult(one_over_one_plus_x((int32_t)(total - 0x80000000u)), INT32_MAX);
    p16 = pkrnnt_divide_by_power_of_two((int32_t)p16, 12 - headroom + 15) - 32768;
    p16 = (p16 < -32768 ? -32768 : (p16 > 32767 ? 32767 : p16)) + 32768;
    q15 = n * p16 - 65536;
    if (q15 <= 0) {
        return 0;
    }
    q15 /= 2 * ((int64_t)n - 1);
    return (int16_t)(q15 > 32767 ? 32767 : q15);
}
