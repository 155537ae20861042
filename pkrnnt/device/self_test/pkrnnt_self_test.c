#include "pkrnnt_self_test.h"

#include "pkrnnt_self_test_data.h"

enum { UNITS = PKRNNT_PRED_LAYERS * PKRNNT_PRED_HIDDEN };

/* Whether an utterance decodes as expected; advances the pointers behind it. */
static int same(int32_t frames, int32_t count, const int8_t **enc, const pkrnnt_token **expected,
                pkrnnt_state *state, pkrnnt_scratch *scratch)
{
    pkrnnt_token tokens[PKRNNT_MAX_SYMBOLS];
    const pkrnnt_token *next = *expected;
    int32_t t, i, found;
    int32_t total = 0;
    int alike = 1;
    pkrnnt_decode_init(state);
    for (t = 0; t < frames; t++) {
        found = pkrnnt_decode_frames(*enc, 1, PKRNNT_MAX_SYMBOLS, state, scratch, tokens, PKRNNT_MAX_SYMBOLS);
        *enc += PKRNNT_ENC_HIDDEN;
        for (i = 0; i < found && total < count; i++, total++, next++) {
            alike &= tokens[i].id == next->id && next->frame == t && tokens[i].confidence == next->confidence;
        }
        alike &= i == found;
    }
    *expected += count;
    return alike && total == count;
}

int32_t pkrnnt_self_test(pkrnnt_state *state, pkrnnt_scratch *scratch)
{
    const int8_t *enc = pkrnnt_self_test_frames;
    const pkrnnt_token *expected = pkrnnt_self_test_tokens;
    const int8_t *h = pkrnnt_self_test_h;
    const int16_t *c = pkrnnt_self_test_c;
    int32_t u, i;
    for (u = 0; u < PKRNNT_SELF_TEST_UTTERANCES; u++) {
        if (!same(pkrnnt_self_test_lengths[u], pkrnnt_self_test_counts[u], &enc, &expected, state, scratch)) {
            return u;
        }
        for (i = 0; i < UNITS; i++, h++, c++) {
            if ((&state->h[state->current][0][0])[i] != *h || (&state->c[state->current][0][0])[i] != *c) {
                return u;
            }
        }
    }
    return -1;
}
