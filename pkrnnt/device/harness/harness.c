/* Decodes what stands in input.bin and writes what came out to output.bin; every integer is a
 * little-endian int32 unless said otherwise.
 *
 * input: utterances, frames a call (at most HARNESS_FRAMES), max_symbols (at most HARNESS_SYMBOLS);
 *     for each utterance: frames, then int8 [frames, E].
 * output: uint64 ticks of an empty section, bytes of state and of scratch; for each call: uint64 ticks, bytes of stack,
 *     number of tokens, tokens (id, frame, confidence); after each utterance h int8 [layers, H] and c int16 [layers, H]. */
#include "harness.h"

#include "pkrnnt_decoder.h"

static pkrnnt_state state;
static pkrnnt_scratch scratch;
static pkrnnt_token tokens[HARNESS_FRAMES * HARNESS_SYMBOLS];
static int8_t enc[HARNESS_FRAMES * PKRNNT_ENC_HIDDEN];

static int32_t read_int(void)
{
    int32_t value;
    harness_read(&value, sizeof value);
    return value;
}

static void call(int32_t frames, int32_t max_symbols)
{
    uint64_t start, ticks;
    int32_t found, depth;
    harness_read(enc, (size_t)frames * PKRNNT_ENC_HIDDEN);
    harness_paint();
    start = harness_ticks();
    found = pkrnnt_decode_frames(enc, frames, max_symbols, &state, &scratch, tokens,
                                 (int32_t)(sizeof tokens / sizeof tokens[0]));
    ticks = harness_ticks() - start;
    depth = harness_depth();
    harness_write(&ticks, sizeof ticks);
    harness_write(&depth, sizeof depth);
    harness_write(&found, sizeof found);
    if (found > 0) {
        harness_write(tokens, (size_t)found * sizeof tokens[0]);
    }
}

int harness(void)
{
    static const int32_t sizes[2] = {(int32_t)sizeof state, (int32_t)sizeof scratch};
    uint64_t start, ticks;
    int32_t utterances, most, max_symbols, frames;
    harness_open();
    utterances = read_int();
    most = read_int();
    max_symbols = read_int();
    start = harness_ticks();
    ticks = harness_ticks() - start;
    harness_write(&ticks, sizeof ticks);
    harness_write(sizes, sizeof sizes);
    for (; utterances > 0; utterances--) {
        pkrnnt_decode_init(&state);
        for (frames = read_int(); frames > 0; frames -= most) {
            call(frames < most ? frames : most, max_symbols);
        }
        harness_write(state.h[state.current], sizeof state.h[0]);
        harness_write(state.c[state.current], sizeof state.c[0]);
    }
    return 0;
}
