/* What callers may do to the decoder beside decoding: prints the first thing that is not as documented. */
#include <stdio.h>
#include <string.h>

#include "pkrnnt_decoder.h"

enum { FRAMES = 6, CAPACITY = FRAMES * PKRNNT_MAX_SYMBOLS };

static int8_t enc[2][FRAMES * PKRNNT_ENC_HIDDEN];
static pkrnnt_scratch scratch;

#define EXPECT(condition)                          \
    do {                                           \
        if (!(condition)) {                        \
            printf("not so: %s\n", #condition);    \
            return 1;                              \
        }                                          \
    } while (0)

int main(void)
{
    pkrnnt_state state, before, other, whole[2];
    pkrnnt_token tokens[CAPACITY], wanted[2][CAPACITY];
    int32_t n[2], i, t, s;
    for (i = 0; i < FRAMES * PKRNNT_ENC_HIDDEN; i++) {
        enc[0][i] = (int8_t)((i * 37) % 256 - 128);
        enc[1][i] = (int8_t)((i * 101 + 7) % 256 - 128);
    }
    for (s = 0; s < 2; s++) {
        memset(&whole[s], 0x55, sizeof whole[s]);
        pkrnnt_decode_init(&whole[s]);
        n[s] = pkrnnt_decode_frames(enc[s], FRAMES, PKRNNT_MAX_SYMBOLS, &whole[s], &scratch, wanted[s], CAPACITY);
        EXPECT(n[s] >= 0);
    }
    EXPECT(n[0] > 0); /* or this would prove nothing */

    /* Arguments out of range: refused, with everything as it was. */
    before = state = whole[0];
    memset(tokens, 0x33, sizeof tokens);
    EXPECT(pkrnnt_decode_frames(enc[0], -1, 1, &state, &scratch, tokens, CAPACITY) == -1);
    EXPECT(pkrnnt_decode_frames(enc[0], 1, 0, &state, &scratch, tokens, CAPACITY) == -1);
    EXPECT(pkrnnt_decode_frames(enc[0], 1, -5, &state, &scratch, tokens, CAPACITY) == -1);
    EXPECT(pkrnnt_decode_frames(enc[0], 2, 3, &state, &scratch, tokens, 5) == -1);
    EXPECT(pkrnnt_decode_frames(enc[0], 0x40000000, 0x40000000, &state, &scratch, tokens, CAPACITY) == -1);
    EXPECT(memcmp(&before, &state, sizeof state) == 0);
    EXPECT(tokens[0].id == 0x33333333);
    EXPECT(pkrnnt_decode_frames(enc[0], 0, 1, &state, &scratch, tokens, 0) == 0);
    EXPECT(memcmp(&before, &state, sizeof state) == 0);

    /* Two streams a frame at a time, in turns, over one scratch that is overwritten in between. */
    pkrnnt_decode_reset(&state);
    pkrnnt_decode_init(&other);
    {
        int32_t found[2] = {0, 0};
        for (t = 0; t < FRAMES; t++) {
            for (s = 0; s < 2; s++) {
                const int32_t more =
                    pkrnnt_decode_frames(enc[s] + t * PKRNNT_ENC_HIDDEN, 1, PKRNNT_MAX_SYMBOLS,
                                         s == 0 ? &state : &other, &scratch, tokens, PKRNNT_MAX_SYMBOLS);
                for (i = 0; i < more; i++) {
                    EXPECT(tokens[i].id == wanted[s][found[s]].id);
                    EXPECT(tokens[i].frame == 0);
                    EXPECT(wanted[s][found[s]].frame == t);
                    EXPECT(tokens[i].confidence == wanted[s][found[s]].confidence);
                    found[s]++;
                }
                memset(&scratch, 0x77, sizeof scratch);
            }
        }
        EXPECT(found[0] == n[0] && found[1] == n[1]);
    }
    EXPECT(memcmp(state.h[state.current], whole[0].h[whole[0].current], sizeof state.h[0]) == 0);
    EXPECT(memcmp(state.c[state.current], whole[0].c[whole[0].current], sizeof state.c[0]) == 0);
    puts("as documented");
    return 0;
}
