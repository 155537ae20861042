from libc.stdint cimport int8_t, int16_t, int32_t

from pkrnnt.kernels.contract cimport Activation
from pkrnnt.kernels.linear cimport PackedLinear
from pkrnnt.saturation cimport Counters, Site

cdef struct Joint:
    float enc_inverse_scale
    int enc_zero_point
    PackedLinear enc  # [J, E]
    PackedLinear pred  # [J, H]
    PackedLinear out  # [V + 1, J]
    Activation activation  # of the sum of the two projections, to the int8 input of out
    int32_t softmax_multiplier
    int softmax_shift
    int32_t softmax_diff_min

# x int8 [n, cols] -> out int16 [n, J]; acc int32 [n, J].
cdef void project(const PackedLinear *linear, const int8_t *x, int n, int16_t *out, int32_t *acc,
                  void *scratch, Site site, Counters *counters) noexcept nogil

# Confidence of the token at index best (a maximum of the logits) in Q0.15.
cdef int confidence_q15(const Joint *joint, const int32_t *logits, int best) noexcept nogil

cdef class Int8Joint:
    cdef Joint c
    cdef object _linears
