from libc.stdint cimport int8_t, int16_t, int32_t

from pkrnnt.kernels.linear cimport PackedLinear
from pkrnnt.saturation cimport Counters, Site

cdef enum JointActivation:
    JOINT_RELU = 0
    JOINT_SIGMOID
    JOINT_TANH

cdef struct Joint:
    float enc_inverse_scale
    int enc_zero_point
    PackedLinear enc  # [J, E]
    PackedLinear pred  # [J, H]
    PackedLinear out  # [V + 1, J]
    JointActivation activation
    int activation_left_shift
    int32_t hidden_multiplier
    int hidden_shift
    int hidden_zero_point
    int32_t softmax_multiplier
    int softmax_shift
    int32_t softmax_diff_min

# x int8 [n, cols] -> out int16 [n, J]; acc int32 [n, J].
cdef void project(const PackedLinear *linear, const int8_t *x, int n, int16_t *out, int32_t *acc,
                  void *scratch, Site site, Counters *counters) noexcept nogil

# enc_proj, pred_proj int16 [J] -> logits int32 [V + 1]; hidden int8 [J].
cdef void joint_logits(const Joint *joint, const int16_t *enc_proj, const int16_t *pred_proj,
                       int8_t *hidden, int32_t *logits, void *scratch, Counters *counters) noexcept nogil

# Confidence of the token at index best (a maximum of the logits) in Q0.15.
cdef int confidence_q15(const Joint *joint, const int32_t *logits, int best) noexcept nogil

cdef class Int8Joint:
    cdef Joint c
    cdef object _linears
