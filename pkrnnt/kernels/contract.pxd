# What a kernel variant provides: one table of functions. Variants differ in how they pack
# operands, never in arithmetic: for the same arguments every variant gives the same integers.

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t

cdef enum:
    # matmul takes its vectors this many at a time, so a caller's scratch holds as many: each
    # SCRATCH_BYTES_PER_COLUMN a column plus SCRATCH_PADDING, the whole 64-byte aligned.
    SCRATCH_VECTORS = 8
    SCRATCH_BYTES_PER_COLUMN = 2  # room for activations widened to int16
    SCRATCH_PADDING = 64

cdef extern from *:
    """
    /* In C, so that verbatim blocks can use them too. */
    typedef enum { RELU_FUNCTION, SIGMOID_FUNCTION, TANH_FUNCTION } pkrnnt_function;

    typedef struct {
        pkrnnt_function function;
        int left_shift; /* sigmoid and tanh: the input's scale is 2^(left_shift - 12) */
        int multiplier; /* from the activation to int8 */
        int shift;
        int zero_point;
    } pkrnnt_activation;

    typedef struct {
        int cell_scale_power;
        int cell_clip; /* 0: none */
        int forget_to_cell_multiplier;
        int forget_to_cell_shift;
        int input_to_cell_multiplier;
        int input_to_cell_shift;
        int output_multiplier;
        int output_shift;
        int hidden_zero_point;
    } pkrnnt_lstm_cell;
    """
    ctypedef enum ActivationFunction "pkrnnt_function":
        RELU_FUNCTION
        SIGMOID_FUNCTION
        TANH_FUNCTION

    ctypedef struct Activation "pkrnnt_activation":
        ActivationFunction function
        int left_shift
        int multiplier
        int shift
        int zero_point

    ctypedef struct LstmCell "pkrnnt_lstm_cell":
        int cell_scale_power
        int cell_clip
        int forget_to_cell_multiplier
        int forget_to_cell_shift
        int input_to_cell_multiplier
        int input_to_cell_shift
        int output_multiplier
        int output_shift
        int hidden_zero_point

cdef struct KernelTable:
    const char *name
    # Bytes of the packed form of a [rows, cols] matrix with its bias.
    int64_t (*packed_bytes)(int rows, int cols) noexcept nogil
    # weight int8 [rows, cols] in [-127, 127], bias int32 [rows] -> packed (64-byte aligned).
    void (*pack)(const int8_t *weight, const int32_t *bias, int rows, int cols,
                 void *packed) noexcept nogil
    # The reverse of pack.
    void (*unpack)(const void *packed, int rows, int cols, int8_t *weight,
                   int32_t *bias) noexcept nogil
    # acc[i, r] = bias[r] + sum over k of weight[r, k] * x[i, k]; x int8 [n, cols], acc int32 [n, rows].
    # The loader has proved |acc| < 2^31; sums on the way may wrap.
    void (*matmul)(const void *packed, int rows, int cols, const int8_t *x, int n,
                   int32_t *acc, void *scratch) noexcept nogil
    # out[r] = R(acc[r], multiplier[r], shift[r]); out may be acc.
    void (*requantize)(const int32_t *acc, const int32_t *multiplier, const int8_t *shift,
                       int rows, int32_t *out) noexcept nogil
    # out[i] = sat16(values[i]); returns how many saturated.
    int64_t (*saturate_s16)(const int32_t *values, int64_t n, int16_t *out) noexcept nogil
    # out[i] = clamp(R(activation(sat16(a[i] + b[i])), ...) + zero_point, -128, 127).
    void (*add_activate_s8)(const int16_t *a, const int16_t *b, int n, const Activation *activation,
                            int8_t *out, int64_t *sums_saturated, int64_t *out_saturated) noexcept nogil
    # One LSTM cell step from gate pre-activations: gates int16 [4, n] in the order i, f, g, o and
    # int32 [4, n] to be added to them, which is overwritten.
    void (*lstm_cell_s8)(const int16_t *gates, int32_t *to_add, int n, const LstmCell *cell,
                         const int16_t *c, int16_t *c_out, int8_t *h_out,
                         int64_t *gates_saturated, int64_t *cells_saturated,
                         int64_t *hiddens_saturated) noexcept nogil
    # The lowest index among equal maxima; n >= 1.
    int (*argmax)(const int32_t *values, int n) noexcept nogil
    # Sum over values within diff_min of top of dpot(exp(dhm((value - top) << shift, multiplier)), 12).
    int64_t (*exp_sum)(const int32_t *values, int n, int32_t top, int32_t multiplier, int shift,
                       int32_t diff_min) noexcept nogil
