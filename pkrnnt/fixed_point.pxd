# Scalar integer arithmetic of docs/fixed_point.md, inlined wherever a kernel needs it.
#
# Design: each function is one formula of the specification. Shifts to the left are done on
# unsigned values, so nothing is undefined in C; a shift to the right of a signed value is
# arithmetic (gcc, clang and MSVC all promise it). No floating point.

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

cdef extern from *:
    """
    /* T[u], close to 65536 * sigmoid(u / 24) but fitted to keep the interpolation error small,
       so data rather than a formula. Values: Arm CMSIS-NN 99f736a, sigmoid_table_uint16. */
    static const int pkrnnt_sigmoid_table[256] = {
        32768, 33451, 34133, 34813, 35493, 36169, 36843, 37513, 38180, 38841, 39498, 40149,
        40794, 41432, 42064, 42688, 43304, 43912, 44511, 45102, 45683, 46255, 46817, 47369,
        47911, 48443, 48964, 49475, 49975, 50464, 50942, 51409, 51865, 52311, 52745, 53169,
        53581, 53983, 54374, 54755, 55125, 55485, 55834, 56174, 56503, 56823, 57133, 57433,
        57724, 58007, 58280, 58544, 58800, 59048, 59288, 59519, 59743, 59959, 60168, 60370,
        60565, 60753, 60935, 61110, 61279, 61441, 61599, 61750, 61896, 62036, 62172, 62302,
        62428, 62549, 62666, 62778, 62886, 62990, 63090, 63186, 63279, 63368, 63454, 63536,
        63615, 63691, 63765, 63835, 63903, 63968, 64030, 64090, 64148, 64204, 64257, 64308,
        64357, 64405, 64450, 64494, 64536, 64576, 64614, 64652, 64687, 64721, 64754, 64786,
        64816, 64845, 64873, 64900, 64926, 64950, 64974, 64997, 65019, 65039, 65060, 65079,
        65097, 65115, 65132, 65149, 65164, 65179, 65194, 65208, 65221, 65234, 65246, 65258,
        65269, 65280, 65291, 65301, 65310, 65319, 65328, 65337, 65345, 65352, 65360, 65367,
        65374, 65381, 65387, 65393, 65399, 65404, 65410, 65415, 65420, 65425, 65429, 65433,
        65438, 65442, 65445, 65449, 65453, 65456, 65459, 65462, 65465, 65468, 65471, 65474,
        65476, 65479, 65481, 65483, 65485, 65488, 65489, 65491, 65493, 65495, 65497, 65498,
        65500, 65501, 65503, 65504, 65505, 65507, 65508, 65509, 65510, 65511, 65512, 65513,
        65514, 65515, 65516, 65517, 65517, 65518, 65519, 65520, 65520, 65521, 65522, 65522,
        65523, 65523, 65524, 65524, 65525, 65525, 65526, 65526, 65526, 65527, 65527, 65528,
        65528, 65528, 65529, 65529, 65529, 65529, 65530, 65530, 65530, 65530, 65531, 65531,
        65531, 65531, 65531, 65532, 65532, 65532, 65532, 65532, 65532, 65533, 65533, 65533,
        65533, 65533, 65533, 65533, 65533, 65534, 65534, 65534, 65534, 65534, 65534, 65534,
        65534, 65534, 65534, 65535,
    };
    """
    const int32_t pkrnnt_sigmoid_table[256]

cdef enum ActivationKind:
    SIGMOID = 0
    TANH = 1


cdef inline int32_t shift_left(int32_t value, int exponent) noexcept nogil:
    # Wraps where the result leaves int32; the model loader proves that it never does.
    return <int32_t>(<uint32_t>value << exponent)


cdef inline int32_t doubling_high_mult(int32_t a, int32_t b) noexcept nogil:
    # 64-bit product: only a == b == -2^31 leaves int32, and it wraps (no multiplier is negative).
    return <int32_t>((<int64_t>a * b + (<int64_t>1 << 30)) >> 31)


cdef inline int32_t divide_by_power_of_two(int32_t value, int exponent) noexcept nogil:
    # Rounds to nearest, ties away from zero; exponent 0..31.
    cdef int32_t mask = <int32_t>((<uint32_t>1 << exponent) - 1)
    cdef int32_t threshold = (mask >> 1) + (value < 0)
    return (value >> exponent) + ((value & mask) > threshold)


cdef inline int32_t requantize_s32(int32_t value, int32_t multiplier, int shift) noexcept nogil:
    cdef int left = shift if shift > 0 else 0
    cdef int right = -shift if shift < 0 else 0
    return divide_by_power_of_two(doubling_high_mult(shift_left(value, left), multiplier), right)


cdef inline int32_t clamp_s32(int32_t value, int32_t low, int32_t high) noexcept nogil:
    return low if value < low else (high if value > high else value)


cdef inline int32_t saturate_s16(int32_t value) noexcept nogil:
    return clamp_s32(value, -32768, 32767)


cdef inline int32_t activation_s16(int32_t x, int left_shift, ActivationKind kind) noexcept nogil:
    # x an int16 value at scale 2^(left_shift - 12), Q0.15 out; left_shift -4..4 keeps |d| < 2^21.
    # Selections instead of branches, so that a loop over it becomes vector code.
    cdef int32_t multiplier = 3 << left_shift if left_shift >= 0 else 3
    cdef int right = -left_shift if left_shift < 0 else 0
    cdef int32_t d = (x * multiplier + ((1 << right) >> 1)) >> right
    cdef int32_t a = -d if d < 0 else d
    cdef int bits = 9 if kind == SIGMOID else 8
    cdef int32_t u = a >> bits
    cdef int32_t inside = u if u < 254 else 254
    cdef int32_t low = pkrnnt_sigmoid_table[inside]
    cdef int32_t r = (low << bits) + (a & ((1 << bits) - 1)) * (pkrnnt_sigmoid_table[inside + 1] - low)
    if kind == SIGMOID:
        r = r if u < 255 else 0x7FFF << 10
        return (r + 512) >> 10 if d >= 0 else ((1 << 25) - r + 511) >> 10
    r = r if u < 255 else 0xFFFF << 8
    return (r - (1 << 23) + 128) >> 8 if d >= 0 else (-r + (1 << 23) + 127) >> 8


cdef inline int32_t saturating_shift_left(int32_t value, int exponent) noexcept nogil:
    cdef int64_t wide = <int64_t>(<uint64_t><int64_t>value << exponent)
    return <int32_t>(-2147483648LL if wide < -2147483648LL else
                     (2147483647 if wide > 2147483647 else wide))


cdef inline int32_t exp_factor(int32_t r, int32_t remainder, int bit, int32_t factor) noexcept nogil:
    cdef int32_t scaled = doubling_high_mult(r, factor)
    return scaled if (remainder >> bit) & 1 else r


cdef inline int32_t exp_on_negative_values(int32_t v) noexcept nogil:
    # v <= 0 in Q5.26, result in Q0.31: a 4th-order polynomial on (-1/4, 0] times exp(-2^k) factors.
    cdef int32_t w = (v & ((1 << 24) - 1)) - (1 << 24)
    cdef int32_t remainder = w - v
    cdef int32_t x = shift_left(w, 5) + (1 << 28)
    cdef int32_t x2 = doubling_high_mult(x, x)
    cdef int32_t x3 = doubling_high_mult(x2, x)
    cdef int32_t x4_over_4 = divide_by_power_of_two(doubling_high_mult(x2, x2), 2)
    cdef int32_t tail = divide_by_power_of_two(doubling_high_mult(x4_over_4 + x3, 715827883) + x2, 1)
    cdef int32_t r = 1895147668 + doubling_high_mult(1895147668, x + tail)
    r = exp_factor(r, remainder, 24, 1672461947)
    r = exp_factor(r, remainder, 25, 1302514674)
    r = exp_factor(r, remainder, 26, 790015084)
    r = exp_factor(r, remainder, 27, 290630308)
    r = exp_factor(r, remainder, 28, 39332535)
    r = exp_factor(r, remainder, 29, 720401)
    r = exp_factor(r, remainder, 30, 242)
    return 2147483647 if v == 0 else r


cdef inline int32_t one_over_one_plus_x(int32_t v) noexcept nogil:
    # v in Q0.31, v >= 0; three Newton-Raphson steps; result in Q0.31.
    cdef int64_t total = <int64_t>v + 2147483647
    cdef int32_t half = <int32_t>((total + 1) >> 1)  # total >= 0: same as truncating division
    cdef int32_t x = 1515870810 + doubling_high_mult(half, -1010580540)
    cdef int _step
    for _step in range(3):
        x += saturating_shift_left(
            doubling_high_mult(x, (1 << 29) - doubling_high_mult(half, x)), 2)
    return saturating_shift_left(x, 1)


cdef inline int count_leading_zeros(uint32_t value) noexcept nogil:
    # value > 0
    cdef int zeros = 0
    while not value & 0x80000000u:
        value <<= 1
        zeros += 1
    return zeros
