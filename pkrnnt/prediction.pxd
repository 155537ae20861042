from libc.stdint cimport int8_t, int16_t, int32_t

from pkrnnt.kernels.linear cimport PackedLinear
from pkrnnt.saturation cimport Counters

# arm_lstm_unidirectional_s8 for one time step; gate rows in the order i, f, g, o.
cdef struct Lstm:
    PackedLinear input  # [4H, I], bias already holds in_off * rowsum
    PackedLinear hidden  # [4H, H], bias already holds -out_off * rowsum
    int hidden_size
    int hidden_zero_point
    int cell_scale_power
    int cell_clip  # 0: none
    int32_t forget_to_cell_multiplier
    int forget_to_cell_shift
    int32_t input_to_cell_multiplier
    int input_to_cell_shift
    int32_t output_multiplier
    int output_shift

cdef struct Prediction:
    const int8_t *embed  # [rows, embed_dim]
    const int8_t *start  # [embed_dim] zeros, the start of sequence
    int embed_dim
    int layers
    int hidden_size
    const Lstm *lstm  # [layers]

# h, h_out int8 [layers, H]; c, c_out int16 [layers, H]; token < 0 is the start of sequence.
# acc int32 [8H]; scratch for max(embed_dim, H) columns. In and out must not overlap.
cdef void step_prediction(const Prediction *prediction, int token, const int8_t *h, const int16_t *c,
                          int8_t *h_out, int16_t *c_out, int32_t *acc, void *scratch,
                          Counters *counters) noexcept nogil

cdef class LstmLayer:
    cdef Lstm c
    cdef object _linears

cdef class Int8Prediction:
    cdef Prediction c
    cdef Lstm *_lstm
    cdef object _arrays
    cdef readonly int embed_rows
