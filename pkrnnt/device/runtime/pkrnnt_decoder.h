/* Greedy RNN-T decoder over int8 encoder frames: tokens, frames and confidences, the same bytes as
 * pkrnnt on a computer. No allocation, no floating point; state and scratch belong to the caller. */
#ifndef PKRNNT_DECODER_H
#define PKRNNT_DECODER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "pkrnnt_model.h"

typedef struct {
    int32_t id;
    int32_t frame; /* counted from the start of the call's frames */
    int32_t confidence; /* Q0.15 */
} pkrnnt_token;

/* One a stream. After a call, h[current] and c[current] are the state adopted with the last token. */
typedef struct {
    int16_t c[2][PKRNNT_PRED_LAYERS][PKRNNT_PRED_HIDDEN];
    int16_t pred_proj[PKRNNT_JOINT_HIDDEN]; /* of the step taken ahead */
    int8_t h[2][PKRNNT_PRED_LAYERS][PKRNNT_PRED_HIDDEN];
    int32_t last_token; /* -1: none so far */
    uint8_t current;
    uint8_t have_ahead; /* whether the step for last_token stands in h[1 - current], c[1 - current] */
} pkrnnt_state;

/* Working memory of a call; streams that do not run at once may share one. Nothing in it is kept. */
typedef struct {
    int32_t logits[PKRNNT_VOCAB_SIZE + 1];
    int32_t wide[PKRNNT_WIDE_SIZE];
    int16_t gates[4 * PKRNNT_PRED_HIDDEN];
    int16_t enc_proj[PKRNNT_JOINT_HIDDEN];
    int8_t hidden[PKRNNT_JOINT_HIDDEN];
} pkrnnt_scratch;

/* Starts a stream. */
void pkrnnt_decode_init(pkrnnt_state *state);

/* Puts a stream back to its start. */
static inline void pkrnnt_decode_reset(pkrnnt_state *state)
{
    pkrnnt_decode_init(state);
}

/* Decodes the next frames of a stream; any chunking gives the same tokens.
 *
 * enc: int8 [frames, PKRNNT_ENC_HIDDEN]: nearest(x * PKRNNT_ENC_INVERSE_SCALE), ties to even, plus
 *     PKRNNT_ENC_ZERO_POINT, limited to -128..127.
 * max_symbols: most tokens on one frame, at least 1; PKRNNT_MAX_SYMBOLS is the model's.
 * tokens: room for capacity tokens, which must be at least frames * max_symbols.
 *
 * Returns how many tokens it wrote, or -1 for arguments out of range, with state and tokens untouched. */
int32_t pkrnnt_decode_frames(const int8_t *enc, int32_t frames, int32_t max_symbols, pkrnnt_state *state,
                             pkrnnt_scratch *scratch, pkrnnt_token *tokens, int32_t capacity);

#ifdef __cplusplus
}
#endif

#endif
