from libc.stdint cimport int8_t, int16_t, int32_t

from pkrnnt.kernels.contract cimport LstmCell
from pkrnnt.kernels.linear cimport PackedLinear
from pkrnnt.saturation cimport Counters

# arm_lstm_unidirectional_s8 for one time step; gate rows in the order i, f, g, o.
cdef struct Lstm:
    PackedLinear input  # [4H, I], bias already holds in_off * row_sum
    PackedLinear hidden  # [4H, H], bias already holds -out_off * row_sum
    int hidden_size
    LstmCell cell

cdef struct Prediction:
    const int8_t *embed  # [rows, embed_dim]
    const int8_t *start  # [embed_dim] zeros, the start of sequence
    int embed_dim
    int layers
    int hidden_size
    const Lstm *lstm  # [layers]
    const int16_t *gate_table  # [1 + rows, 4H] input part of layer 0's gates, or NULL
    const int32_t *gate_table_saturated  # [1 + rows]

# h, h_out int8 [layers, H]; c, c_out int16 [layers, H]; token < 0 is the start of sequence.
# acc int32 [6H]; scratch for max(embed_dim, H) columns. In and out must not overlap.
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
    cdef object _table
    cdef readonly int embed_rows
    cdef readonly object gate_table_bytes
