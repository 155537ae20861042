/* What prediction and joint network need of a processor. Weights are row-major, in [-127, 127];
 * the exporter has proved that no sum, shifted as its row says, leaves int32. */
#ifndef PKRNNT_KERNELS_H
#define PKRNNT_KERNELS_H

#include <stdint.h>

#include "pkrnnt_fixed_point.h"
#include "pkrnnt_target.h"

typedef struct {
    const int8_t *weight; /* [rows, cols] */
    const int32_t *bias; /* [rows], the input's zero point folded in */
    const int32_t *multiplier; /* [rows] */
    const int8_t *shift; /* [rows] */
    int32_t rows;
    int32_t cols;
} pkrnnt_matrix;

typedef struct {
    int32_t cell_scale_power;
    int32_t cell_clip; /* 0: none */
    int32_t forget_to_cell[2]; /* multiplier, shift */
    int32_t input_to_cell[2];
    int32_t output[2];
    int32_t hidden_zero_point;
} pkrnnt_lstm_cell;

typedef struct {
    int32_t kind; /* PKRNNT_RELU, PKRNNT_SIGMOID or PKRNNT_TANH */
    int32_t left_shift; /* sigmoid and tanh: the sum's scale is 2^(left_shift - 12) */
    int32_t multiplier;
    int32_t shift;
    int32_t zero_point;
} pkrnnt_activation;

/* R(bias + W x) -> int32 [rows]. wide: room for x widened to int16, PKRNNT_WIDE_SIZE; only DSP kernels use it. */
void pkrnnt_matvec_s32(const pkrnnt_matrix *matrix, const int8_t *x, int32_t *wide, int32_t *out);

/* sat16(add + R(bias + W x)) -> int16 [rows]; add may be 0, and may be out. */
void pkrnnt_matvec_s16(const pkrnnt_matrix *matrix, const int8_t *x, int32_t *wide, const int16_t *add,
                       int16_t *out);

/* R(acc[i]) by the multiplier and shift of each row: int32 [n], out may be acc; and sat16(add + R) -> int16
 * [n], add may be 0 and may be out. */
void pkrnnt_requantize_s32(const int32_t *acc, const int32_t *multiplier, const int8_t *shift, int32_t n,
                           int32_t *out);
void pkrnnt_requantize_s16(const int32_t *acc, const int32_t *multiplier, const int8_t *shift, int32_t n,
                           const int16_t *add, int16_t *out);

/* Pre-activations gates int16 [4, n] in the order i, f, g, o, which may be
 * overwritten, and c int16 [n] -> c' int16 [n], h' int8 [n]. */
void pkrnnt_lstm_cell_s8(int16_t *gates, const pkrnnt_lstm_cell *cell, int32_t n, const int16_t *c,
                         int16_t *c_out, int8_t *h_out);

/* clamp(R(activation(sat16(a + b))) + zero_point) -> int8 [n] */
void pkrnnt_add_activate_s8(const int16_t *a, const int16_t *b, const pkrnnt_activation *activation,
                            int32_t n, int8_t *out);

/* The lowest index among equal largest values; n >= 1. */
int32_t pkrnnt_argmax(const int32_t *values, int32_t n);

#endif
