# The kernels on vectors for AVX-512, where the compiler falls short: it widens every operand of a
# 32 x 32 -> 64 bit product and multiplies 64 x 64, three times the work. Here even and odd lanes are
# multiplied where they stand. Tails are masked. Same formulas as elementwise.pxi, which provides what
# is not here.

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t

cdef extern from *:
    """
    /* dhm on 16 lanes. */
    static inline __m512i dhm16(__m512i a, __m512i b) {
        const __m512i half = _mm512_set1_epi64(1 << 30);
        __m512i even = _mm512_add_epi64(_mm512_mul_epi32(a, b), half);
        __m512i odd = _mm512_add_epi64(
            _mm512_mul_epi32(_mm512_srli_epi64(a, 32), _mm512_srli_epi64(b, 32)), half);
        return _mm512_mask_mov_epi32(_mm512_srli_epi64(even, 31), 0xAAAA, _mm512_slli_epi64(odd, 1));
    }

    /* dpot on 16 lanes, an exponent each. */
    static inline __m512i dpot16(__m512i x, __m512i exponent) {
        const __m512i one = _mm512_set1_epi32(1), zero = _mm512_setzero_si512();
        __m512i mask = _mm512_sub_epi32(_mm512_sllv_epi32(one, exponent), one);
        __m512i threshold = _mm512_srli_epi32(mask, 1);
        threshold = _mm512_mask_add_epi32(threshold, _mm512_cmplt_epi32_mask(x, zero), threshold, one);
        __m512i shifted = _mm512_srav_epi32(x, exponent);
        __mmask16 up = _mm512_cmpgt_epi32_mask(_mm512_and_si512(x, mask), threshold);
        return _mm512_mask_add_epi32(shifted, up, shifted, one);
    }

    static inline __m512i requantize16(__m512i x, __m512i multiplier, __m512i shift) {
        const __m512i zero = _mm512_setzero_si512();
        __m512i left = _mm512_max_epi32(shift, zero);
        __m512i right = _mm512_sub_epi32(left, shift);
        return dpot16(dhm16(_mm512_sllv_epi32(x, left), multiplier), right);
    }

    static void requantize_avx512(const int32_t *acc, const int32_t *multiplier, const int8_t *shift,
                                  int rows, int32_t *out) {
        for (int r = 0; r < rows; r += 16) {
            __mmask16 m = rows - r < 16 ? (__mmask16)((1u << (rows - r)) - 1) : (__mmask16)0xFFFF;
            __m512i s = _mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(m, shift + r));
            __m512i y = requantize16(_mm512_maskz_loadu_epi32(m, acc + r),
                                     _mm512_maskz_loadu_epi32(m, multiplier + r), s);
            _mm512_mask_storeu_epi32(out + r, m, y);
        }
    }

    static int argmax_avx512(const int32_t *values, int n) {
        __m512i top = _mm512_set1_epi32(values[0]);
        for (int i = 0; i < n; i += 16) {
            __mmask16 m = n - i < 16 ? (__mmask16)((1u << (n - i)) - 1) : (__mmask16)0xFFFF;
            top = _mm512_max_epi32(top, _mm512_mask_loadu_epi32(top, m, values + i));
        }
        top = _mm512_set1_epi32(_mm512_reduce_max_epi32(top));
        for (int i = 0;; i += 16) {
            __mmask16 m = n - i < 16 ? (__mmask16)((1u << (n - i)) - 1) : (__mmask16)0xFFFF;
            __mmask16 found = _mm512_mask_cmpeq_epi32_mask(
                m, top, _mm512_maskz_loadu_epi32(m, values + i));
            if (found)
                return i + __builtin_ctz(found);
        }
    }

    static inline __m512i exp_factor16(__m512i r, __m512i remainder, int bit, int32_t factor) {
        __mmask16 set = _mm512_test_epi32_mask(remainder, _mm512_set1_epi32(1 << bit));
        return _mm512_mask_mov_epi32(r, set, dhm16(r, _mm512_set1_epi32(factor)));
    }

    static inline __m512i exp_negative16(__m512i v) {
        const __m512i c = _mm512_set1_epi32(1895147668), one = _mm512_set1_epi32(1);
        __m512i w = _mm512_sub_epi32(_mm512_and_si512(v, _mm512_set1_epi32((1 << 24) - 1)),
                                     _mm512_set1_epi32(1 << 24));
        __m512i remainder = _mm512_sub_epi32(w, v);
        __m512i x = _mm512_add_epi32(_mm512_slli_epi32(w, 5), _mm512_set1_epi32(1 << 28));
        __m512i x2 = dhm16(x, x);
        __m512i x4 = dpot16(dhm16(x2, x2), _mm512_set1_epi32(2));
        __m512i sum = _mm512_add_epi32(x4, dhm16(x2, x));
        sum = _mm512_add_epi32(dhm16(sum, _mm512_set1_epi32(715827883)), x2);
        sum = _mm512_add_epi32(x, dpot16(sum, one));
        __m512i r = _mm512_add_epi32(c, dhm16(c, sum));
        r = exp_factor16(r, remainder, 24, 1672461947);
        r = exp_factor16(r, remainder, 25, 1302514674);
        r = exp_factor16(r, remainder, 26, 790015084);
        r = exp_factor16(r, remainder, 27, 290630308);
        r = exp_factor16(r, remainder, 28, 39332535);
        r = exp_factor16(r, remainder, 29, 720401);
        r = exp_factor16(r, remainder, 30, 242);
        __mmask16 zero = _mm512_cmpeq_epi32_mask(v, _mm512_setzero_si512());
        return _mm512_mask_mov_epi32(r, zero, _mm512_set1_epi32(2147483647));
    }

    static int64_t exp_sum_avx512(const int32_t *values, int n, int32_t top, int32_t multiplier, int shift,
                                  int32_t diff_min) {
        __m512i sum = _mm512_setzero_si512();
        const __m512i tops = _mm512_set1_epi32(top), least = _mm512_set1_epi32(diff_min);
        const __m512i m32 = _mm512_set1_epi32(multiplier), twelve = _mm512_set1_epi32(12);
        for (int i = 0; i < n; i += 16) {
            __mmask16 m = n - i < 16 ? (__mmask16)((1u << (n - i)) - 1) : (__mmask16)0xFFFF;
            __m512i v = _mm512_maskz_loadu_epi32(m, values + i);
            /* v <= top, so a difference that leaves int32 wraps to a positive one. */
            __m512i d = _mm512_sub_epi32(v, tops);
            m = _mm512_mask_cmpge_epi32_mask(m, d, least);
            m = _mm512_mask_cmple_epi32_mask(m, d, _mm512_setzero_si512());
            if (!m)
                continue;
            d = _mm512_maskz_mov_epi32(m, d);
            __m512i e = exp_negative16(dhm16(_mm512_sll_epi32(d, _mm_cvtsi32_si128(shift)), m32));
            e = _mm512_maskz_mov_epi32(m, dpot16(e, twelve));
            sum = _mm512_add_epi64(sum, _mm512_cvtepi32_epi64(_mm512_castsi512_si256(e)));
            sum = _mm512_add_epi64(sum, _mm512_cvtepi32_epi64(_mm512_extracti64x4_epi64(e, 1)));
        }
        return _mm512_reduce_add_epi64(sum);
    }

    /* The activation table as 256 16-bit words in eight registers. */
    typedef struct { __m512i part[8]; } table16;

    static inline table16 load_table16(void) {
        table16 t;
        for (int i = 0; i < 8; i++) {
            __m256i low = _mm512_cvtepi32_epi16(_mm512_loadu_si512(pkrnnt_sigmoid_table + 32 * i));
            __m256i high = _mm512_cvtepi32_epi16(_mm512_loadu_si512(pkrnnt_sigmoid_table + 32 * i + 16));
            t.part[i] = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
        }
        return t;
    }

    /* activation_s16 on 16 lanes; kind 0 is sigmoid, 1 tanh, a constant once inlined. */
    static inline __attribute__((always_inline)) __m512i activation16(__m512i x, int left_shift,
                                                                      const int kind, const table16 *t) {
        const __m512i zero = _mm512_setzero_si512();
        const int bits = kind ? 8 : 9, right = left_shift < 0 ? -left_shift : 0;
        __m512i d = _mm512_mullo_epi32(x, _mm512_set1_epi32(left_shift >= 0 ? 3 << left_shift : 3));
        d = _mm512_add_epi32(d, _mm512_set1_epi32((1 << right) >> 1));
        d = _mm512_sra_epi32(d, _mm_cvtsi32_si128(right));
        __m512i a = _mm512_abs_epi32(d), u = _mm512_srli_epi32(a, bits);
        __m512i f = _mm512_and_si512(a, _mm512_set1_epi32((1 << bits) - 1));
        __m512i at = _mm512_min_epi32(u, _mm512_set1_epi32(254));
        /* Both neighbours at once: entry u in the low word of a lane, u + 1 in the high one. */
        at = _mm512_or_si512(at, _mm512_slli_epi32(_mm512_add_epi32(at, _mm512_set1_epi32(1)), 16));
        __mmask32 bit6 = _mm512_movepi16_mask(_mm512_slli_epi16(at, 9));
        __mmask32 bit7 = _mm512_movepi16_mask(_mm512_slli_epi16(at, 8));
        __m512i low = _mm512_permutex2var_epi16(t->part[0], at, t->part[1]);
        low = _mm512_mask_mov_epi16(low, bit6, _mm512_permutex2var_epi16(t->part[2], at, t->part[3]));
        __m512i high = _mm512_permutex2var_epi16(t->part[4], at, t->part[5]);
        high = _mm512_mask_mov_epi16(high, bit6, _mm512_permutex2var_epi16(t->part[6], at, t->part[7]));
        __m512i both = _mm512_mask_mov_epi16(low, bit7, high);
        __m512i here = _mm512_and_si512(both, _mm512_set1_epi32(0xFFFF)), next = _mm512_srli_epi32(both, 16);
        __m512i r = _mm512_add_epi32(_mm512_slli_epi32(here, bits),
                                     _mm512_mullo_epi32(f, _mm512_sub_epi32(next, here)));
        __mmask16 beyond = _mm512_cmpge_epi32_mask(u, _mm512_set1_epi32(255));
        r = _mm512_mask_mov_epi32(r, beyond, _mm512_set1_epi32(kind ? 0xFFFF << 8 : 0x7FFF << 10));
        __mmask16 negative = _mm512_cmplt_epi32_mask(d, zero);
        if (kind == 0) {
            __m512i up = _mm512_add_epi32(r, _mm512_set1_epi32(512));
            __m512i down = _mm512_sub_epi32(_mm512_set1_epi32((1 << 25) + 511), r);
            return _mm512_srai_epi32(_mm512_mask_mov_epi32(up, negative, down), 10);
        }
        __m512i up = _mm512_add_epi32(r, _mm512_set1_epi32(128 - (1 << 23)));
        __m512i down = _mm512_sub_epi32(_mm512_set1_epi32((1 << 23) + 127), r);
        return _mm512_srai_epi32(_mm512_mask_mov_epi32(up, negative, down), 8);
    }

    static inline __m512i clamp16(__m512i x, int32_t low, int32_t high) {
        return _mm512_min_epi32(_mm512_max_epi32(x, _mm512_set1_epi32(low)), _mm512_set1_epi32(high));
    }

    /* Clamps, and counts the lanes of m that it changed. */
    static inline __m512i clamp_count16(__m512i x, int32_t low, int32_t high, __mmask16 m, int64_t *count) {
        __m512i clamped = clamp16(x, low, high);
        *count += __builtin_popcount(_mm512_mask_cmpneq_epi32_mask(m, clamped, x));
        return clamped;
    }

    static inline __m512i requantize_one16(__m512i x, int32_t multiplier, int shift) {
        return requantize16(x, _mm512_set1_epi32(multiplier), _mm512_set1_epi32(shift));
    }

    static inline __m512i load_s16(__mmask16 m, const int16_t *p) {
        return _mm512_cvtepi16_epi32(_mm256_maskz_loadu_epi16(m, p));
    }

    /* The pre-activation of one gate. */
    static inline __m512i gate16(const int16_t *gates, const int32_t *to_add, __mmask16 m, int64_t *count) {
        __m512i sum = _mm512_add_epi32(load_s16(m, gates), _mm512_maskz_loadu_epi32(m, to_add));
        return clamp_count16(sum, -32768, 32767, m, count);
    }

    static void lstm_cell_avx512(const int16_t *gates, const int32_t *to_add, int n,
                                 const pkrnnt_lstm_cell *cell, const int16_t *c, int16_t *c_out,
                                 int8_t *h_out, int64_t *counts) {
        const table16 t = load_table16();
        const int32_t limit = cell->cell_clip;
        const int32_t low = limit > 0 ? -limit : -32768, high = limit > 0 ? limit : 32767;
        counts[0] = counts[1] = counts[2] = 0;
        for (int j = 0; j < n; j += 16) {
            __mmask16 m = n - j < 16 ? (__mmask16)((1u << (n - j)) - 1) : (__mmask16)0xFFFF;
            __m512i i = activation16(gate16(gates + j, to_add + j, m, counts), 0, 0, &t);
            __m512i f = activation16(gate16(gates + n + j, to_add + n + j, m, counts), 0, 0, &t);
            __m512i g = activation16(gate16(gates + 2 * n + j, to_add + 2 * n + j, m, counts), 0, 1, &t);
            __m512i o = activation16(gate16(gates + 3 * n + j, to_add + 3 * n + j, m, counts), 0, 0, &t);
            __m512i carried = requantize_one16(_mm512_mullo_epi32(f, load_s16(m, c + j)),
                                               cell->forget_to_cell_multiplier, cell->forget_to_cell_shift);
            __m512i total = _mm512_add_epi32(
                requantize_one16(_mm512_mullo_epi32(i, g), cell->input_to_cell_multiplier,
                                 cell->input_to_cell_shift),
                clamp16(carried, -32768, 32767));
            total = clamp_count16(total, low, high, m, counts + 1);
            _mm256_mask_storeu_epi16(c_out + j, m, _mm512_cvtepi32_epi16(total));
            __m512i squashed = activation16(total, cell->cell_scale_power + 12, 1, &t);
            __m512i h = requantize_one16(_mm512_mullo_epi32(o, squashed), cell->output_multiplier,
                                         cell->output_shift);
            h = _mm512_add_epi32(h, _mm512_set1_epi32(cell->hidden_zero_point));
            h = clamp_count16(h, -128, 127, m, counts + 2);
            _mm_mask_storeu_epi8(h_out + j, m, _mm512_cvtepi32_epi8(h));
        }
    }

    static inline __attribute__((always_inline)) void add_activate16(
            const int16_t *a, const int16_t *b, int n, const pkrnnt_activation *activation, int8_t *out,
            int64_t *counts, const pkrnnt_function function, const table16 *t) {
        for (int j = 0; j < n; j += 16) {
            __mmask16 m = n - j < 16 ? (__mmask16)((1u << (n - j)) - 1) : (__mmask16)0xFFFF;
            __m512i x = _mm512_add_epi32(load_s16(m, a + j), load_s16(m, b + j));
            x = clamp_count16(x, -32768, 32767, m, counts);
            if (function == RELU_FUNCTION)
                x = _mm512_max_epi32(x, _mm512_setzero_si512());
            else
                x = activation16(x, activation->left_shift, function == TANH_FUNCTION, t);
            x = requantize_one16(x, activation->multiplier, activation->shift);
            x = _mm512_add_epi32(x, _mm512_set1_epi32(activation->zero_point));
            x = clamp_count16(x, -128, 127, m, counts + 1);
            _mm_mask_storeu_epi8(out + j, m, _mm512_cvtepi32_epi8(x));
        }
    }

    static void add_activate_avx512(const int16_t *a, const int16_t *b, int n,
                                    const pkrnnt_activation *activation, int8_t *out, int64_t *counts) {
        counts[0] = counts[1] = 0;
        if (activation->function == RELU_FUNCTION) {
            add_activate16(a, b, n, activation, out, counts, RELU_FUNCTION, NULL);
        } else {
            const table16 t = load_table16();
            if (activation->function == SIGMOID_FUNCTION)
                add_activate16(a, b, n, activation, out, counts, SIGMOID_FUNCTION, &t);
            else
                add_activate16(a, b, n, activation, out, counts, TANH_FUNCTION, &t);
        }
    }
    """
    void requantize_avx512(const int32_t *acc, const int32_t *multiplier, const int8_t *shift,
                           int rows, int32_t *out) noexcept nogil
    int argmax_avx512(const int32_t *values, int n) noexcept nogil
    int64_t exp_sum_avx512(const int32_t *values, int n, int32_t top, int32_t multiplier, int shift,
                           int32_t diff_min) noexcept nogil
    void lstm_cell_avx512(const int16_t *gates, const int32_t *to_add, int n, const LstmCell *cell,
                          const int16_t *c, int16_t *c_out, int8_t *h_out,
                          int64_t *counts) noexcept nogil
    void add_activate_avx512(const int16_t *a, const int16_t *b, int n, const Activation *activation,
                             int8_t *out, int64_t *counts) noexcept nogil


cdef void _add_activate_avx512(const int16_t *a, const int16_t *b, int n, const Activation *activation,
                               int8_t *out, int64_t *sums_saturated,
                               int64_t *out_saturated) noexcept nogil:
    cdef int64_t[2] counts
    add_activate_avx512(a, b, n, activation, out, counts)
    sums_saturated[0] = counts[0]
    out_saturated[0] = counts[1]


cdef void _lstm_cell_avx512(const int16_t *gates, int32_t *to_add, int n, const LstmCell *cell,
                            const int16_t *c, int16_t *c_out, int8_t *h_out,
                            int64_t *gates_saturated, int64_t *cells_saturated,
                            int64_t *hiddens_saturated) noexcept nogil:
    cdef int64_t[3] counts
    lstm_cell_avx512(gates, to_add, n, cell, c, c_out, h_out, counts)
    gates_saturated[0] = counts[0]
    cells_saturated[0] = counts[1]
    hiddens_saturated[0] = counts[2]


cdef void _requantize_avx512(const int32_t *acc, const int32_t *multiplier, const int8_t *shift,
                             int rows, int32_t *out) noexcept nogil:
    requantize_avx512(acc, multiplier, shift, rows, out)


cdef int _argmax_avx512(const int32_t *values, int n) noexcept nogil:
    return argmax_avx512(values, n)


cdef int64_t _exp_sum_avx512(const int32_t *values, int n, int32_t top, int32_t multiplier, int shift,
                             int32_t diff_min) noexcept nogil:
    return exp_sum_avx512(values, n, top, multiplier, shift, diff_min)
