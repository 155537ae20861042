/* Scalar integer arithmetic; every function is one formula of pkrnnt's docs/fixed_point.md.
 * Shifts to the left are done on unsigned values; shifts of negative values to the right must be
 * arithmetic, and conversions to a signed type must wrap (every compiler for these cores does both). */
#ifndef PKRNNT_FIXED_POINT_H
#define PKRNNT_FIXED_POINT_H

#include <stdint.h>

#include "pkrnnt_target.h"

/* Constants are shifted as int, so it must be wide enough: not so on 8- and 16-bit processors. */
typedef char pkrnnt_int_has_32_bits[sizeof(int) >= 4 ? 1 : -1];

enum { PKRNNT_SIGMOID, PKRNNT_TANH, PKRNNT_RELU };

/* T[u] of section 3 */
extern const uint16_t pkrnnt_sigmoid_table[256];

static inline int32_t pkrnnt_shift_left(int32_t value, int32_t exponent)
{
    return (int32_t)((uint32_t)value << exponent);
}

static inline int32_t pkrnnt_clamp(int32_t value, int32_t low, int32_t high)
{
    return value < low ? low : (value > high ? high : value);
}

#if !defined(PKRNNT_PORTABLE) && defined(__ARM_FEATURE_SAT) && defined(__GNUC__)
static inline int32_t pkrnnt_saturate_s16(int32_t value)
{
    __asm__("ssat %0, #16, %0" : "+r"(value));
    return value;
}

static inline int32_t pkrnnt_saturate_s8(int32_t value)
{
    __asm__("ssat %0, #8, %0" : "+r"(value));
    return value;
}
#else
static inline int32_t pkrnnt_saturate_s16(int32_t value)
{
    return pkrnnt_clamp(value, -32768, 32767);
}

static inline int32_t pkrnnt_saturate_s8(int32_t value)
{
    return pkrnnt_clamp(value, -128, 127);
}
#endif

#if defined(PKRNNT_THUMB1)
/* From 16-bit products, because the library's 64-bit one takes twice as long. Bits below 16 of the product
 * cannot change the rounded result. */
static inline int32_t pkrnnt_doubling_high_mult(int32_t a, int32_t b)
{
    const int32_t a_high = a >> 16, a_low = a & 0xFFFF;
    const int32_t b_high = b >> 16, b_low = b & 0xFFFF;
    const int32_t first = a_high * b_low;
    const int32_t second = a_low * b_high;
    const int32_t low = (int32_t)(((uint32_t)a_low * (uint32_t)b_low) >> 16);
    const int32_t middle = (first & 0xFFFF) + (second & 0xFFFF) + low;
    const int32_t high = a_high * b_high + (first >> 16) + (second >> 16) + (middle >> 16);
    return pkrnnt_shift_left(high, 1) + (((middle & 0xFFFF) + 0x4000) >> 15);
}
#else
static inline int32_t pkrnnt_doubling_high_mult(int32_t a, int32_t b)
{
    return (int32_t)(((int64_t)a * b + ((int64_t)1 << 30)) >> 31);
}
#endif

/* To the nearest, ties away from zero; exponent 0..31, value above -2^31. */
static inline int32_t pkrnnt_divide_by_power_of_two(int32_t value, int32_t exponent)
{
    if (exponent == 0) {
        return value;
    }
    return (((value + (value >> 31)) >> (exponent - 1)) + 1) >> 1;
}

/* R for shifts that are not negative. They are rare: in another file the compiler cannot work out both. */
int32_t pkrnnt_requantize_left(int32_t value, int32_t multiplier, int32_t shift);

static inline int32_t pkrnnt_requantize(int32_t value, int32_t multiplier, int32_t shift)
{
    if (shift >= 0) {
        return pkrnnt_requantize_left(value, multiplier, shift);
    }
    value = pkrnnt_doubling_high_mult(value, multiplier);
    return (((value + (value >> 31)) >> (-1 - shift)) + 1) >> 1;
}

/* x int16 at scale 2^(left_shift - 12), left_shift -4..4; Q0.15 out. */
static inline int32_t pkrnnt_activation_s16(int32_t x, int32_t left_shift, int kind)
{
    const int32_t bits = kind == PKRNNT_SIGMOID ? 9 : 8;
    int32_t d = 3 * x;
    int32_t a, u, r;
    if (left_shift > 0) {
        d = pkrnnt_shift_left(d, left_shift);
    } else if (left_shift < 0) {
        d = (d + (1 << (-left_shift - 1))) >> -left_shift;
    }
    a = d < 0 ? -d : d;
    u = a >> bits;
    if (u >= 255) {
        r = kind == PKRNNT_SIGMOID ? 0x7FFF << 10 : 0xFFFF << 8;
    } else {
        const int32_t low = pkrnnt_sigmoid_table[u];
        r = (low << bits) + (a & ((1 << bits) - 1)) * (pkrnnt_sigmoid_table[u + 1] - low);
    }
    if (kind == PKRNNT_SIGMOID) {
        return d >= 0 ? (r + 512) >> 10 : ((1 << 25) - r + 511) >> 10;
    }
    return d >= 0 ? (r - (1 << 23) + 128) >> 8 : ((1 << 23) - r + 127) >> 8;
}

#endif
