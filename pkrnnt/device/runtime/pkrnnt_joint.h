/* Joint network: logits of a frame and a prediction, and the confidence of the best of them. */
#ifndef PKRNNT_JOINT_H
#define PKRNNT_JOINT_H

#include "pkrnnt_kernels.h"

typedef struct {
    pkrnnt_matrix enc; /* [J, E] */
    pkrnnt_matrix pred; /* [J, H] */
    pkrnnt_matrix out; /* [V + 1, J] */
    pkrnnt_activation activation;
    int32_t softmax_multiplier; /* from logits to Q5.26 */
    int32_t softmax_shift;
    int32_t softmax_diff_min;
} pkrnnt_joint;

/* enc_proj, pred_proj int16 [J] -> logits int32 [V + 1]; hidden int8 [J] */
void pkrnnt_joint_logits(const pkrnnt_joint *joint, const int16_t *enc_proj, const int16_t *pred_proj,
                         int8_t *hidden, int32_t *wide, int32_t *logits);

/* (N p - 1) / (N - 1) in Q0.15, p the softmax probability of logits[best], the largest. */
int16_t pkrnnt_joint_confidence(const pkrnnt_joint *joint, const int32_t *logits, int32_t best);

#endif
