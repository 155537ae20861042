/* Prediction network: embedding and stacked LSTM. */
#ifndef PKRNNT_PREDICTION_H
#define PKRNNT_PREDICTION_H

#include "pkrnnt_kernels.h"

typedef struct {
    pkrnnt_matrix input; /* [4H, I]; rows 0 where layer 0 has a gate table */
    pkrnnt_matrix hidden; /* [4H, H] */
    pkrnnt_lstm_cell cell;
} pkrnnt_lstm_layer;

typedef struct {
    const int8_t *embed; /* [1 + V, D], the start of sequence first; 0 with a gate table */
    const int16_t *gate_table; /* [1 + V, 4H]: layer 0's input part of each token; 0 without one */
    const pkrnnt_lstm_layer *layers;
} pkrnnt_prediction;

/* One step. token: -1 at the start of sequence. h int8 [layers, H], c int16 [layers, H]; gates int16 [4H]. */
void pkrnnt_prediction_step(const pkrnnt_prediction *prediction, int32_t token, const int8_t *h,
                            const int16_t *c, int8_t *h_out, int16_t *c_out, int16_t *gates, int32_t *wide);

#endif
