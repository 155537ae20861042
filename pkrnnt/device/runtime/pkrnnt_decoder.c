#include "pkrnnt_decoder.h"

void pkrnnt_decode_init(pkrnnt_state *state)
{
    int32_t layer, j;
    for (layer = 0; layer < PKRNNT_PRED_LAYERS; layer++) {
        const int32_t zero = pkrnnt_model_prediction.layers[layer].cell.hidden_zero_point;
        for (j = 0; j < PKRNNT_PRED_HIDDEN; j++) {
            state->h[0][layer][j] = (int8_t)zero;
            state->c[0][layer][j] = 0;
        }
    }
    state->last_token = -1;
    state->current = 0;
    state->have_ahead = 0;
}

/* The prediction step for the last token, and its projection. */
static void step_ahead(pkrnnt_state *state, pkrnnt_scratch *scratch)
{
    const int from = state->current;
    const int to = 1 - from;
    pkrnnt_prediction_step(&pkrnnt_model_prediction, state->last_token, &state->h[from][0][0],
                           &state->c[from][0][0], &state->h[to][0][0], &state->c[to][0][0], scratch->gates,
                           scratch->wide);
    pkrnnt_matvec_s16(&pkrnnt_model_joint.pred, state->h[to][PKRNNT_PRED_LAYERS - 1], scratch->wide, 0,
                      state->pred_proj);
    state->have_ahead = 1;
}

int32_t pkrnnt_decode_frames(const int8_t *enc, int32_t frames, int32_t max_symbols, pkrnnt_state *state,
                             pkrnnt_scratch *scratch, pkrnnt_token *tokens, int32_t capacity)
{
    int32_t found = 0;
    int32_t t, symbols;
    if (frames < 0 || max_symbols < 1 || (int64_t)frames * max_symbols > capacity) {
        return -1;
    }
    for (t = 0; t < frames; t++) {
        pkrnnt_matvec_s16(&pkrnnt_model_joint.enc, enc + t * PKRNNT_ENC_HIDDEN, scratch->wide, 0,
                          scratch->enc_proj);
        for (symbols = 0; symbols < max_symbols; symbols++) {
            int32_t best;
            if (!state->have_ahead) {
                step_ahead(state, scratch);
            }
            pkrnnt_joint_logits(&pkrnnt_model_joint, scratch->enc_proj, state->pred_proj, scratch->hidden,
                                scratch->wide, scratch->logits);
            best = pkrnnt_argmax(scratch->logits, PKRNNT_VOCAB_SIZE + 1);
            if (best == PKRNNT_BLANK_ID) {
                break;
            }
            tokens[found].id = best;
            tokens[found].frame = t;
            tokens[found].confidence = pkrnnt_joint_confidence(&pkrnnt_model_joint, scratch->logits, best);
            found++;
            state->last_token = best;
            state->current = (uint8_t)(1 - state->current);
            state->have_ahead = 0;
        }
    }
    return found;
}
