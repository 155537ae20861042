#include "pkrnnt_prediction.h"

#include "pkrnnt_model.h"

void pkrnnt_prediction_step(const pkrnnt_prediction *prediction, int32_t token, const int8_t *h,
                            const int16_t *c, int8_t *h_out, int16_t *c_out, int16_t *gates, int32_t *wide)
{
    const int8_t *x = 0;
    const int16_t *input;
    int32_t layer;
    if (prediction->embed != 0) {
        x = prediction->embed + (token + 1) * PKRNNT_EMBED_DIM;
    }
    for (layer = 0; layer < PKRNNT_PRED_LAYERS; layer++) {
        const pkrnnt_lstm_layer *lstm = &prediction->layers[layer];
        if (layer == 0 && prediction->gate_table != 0) {
            input = prediction->gate_table + (token + 1) * 4 * PKRNNT_PRED_HIDDEN;
        } else {
            pkrnnt_matvec_s16(&lstm->input, x, wide, 0, gates);
            input = gates;
        }
        pkrnnt_matvec_s16(&lstm->hidden, h, wide, input, gates);
        pkrnnt_lstm_cell_s8(gates, &lstm->cell, PKRNNT_PRED_HIDDEN, c, c_out, h_out);
        x = h_out;
        h += PKRNNT_PRED_HIDDEN;
        c += PKRNNT_PRED_HIDDEN;
        h_out += PKRNNT_PRED_HIDDEN;
        c_out += PKRNNT_PRED_HIDDEN;
    }
}
