/* Proof on the device: decodes frames that were exported with the model, and compares every byte. */
#ifndef PKRNNT_SELF_TEST_H
#define PKRNNT_SELF_TEST_H

#include "pkrnnt_decoder.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns -1 if all tokens, frames, confidences, h and c are those of pkrnnt on a computer, or else the
 * number of the first utterance that differs. Uses state and scratch, and 12 * PKRNNT_MAX_SYMBOLS bytes of stack. */
int32_t pkrnnt_self_test(pkrnnt_state *state, pkrnnt_scratch *scratch);

#ifdef __cplusplus
}
#endif

#endif
