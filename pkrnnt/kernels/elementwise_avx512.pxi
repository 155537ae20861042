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
    """
    void requantize_avx512(const int32_t *acc, const int32_t *multiplier, const int8_t *shift,
                           int rows, int32_t *out) noexcept nogil
    int argmax_avx512(const int32_t *values, int n) noexcept nogil
    int64_t exp_sum_avx512(const int32_t *values, int n, int32_t top, int32_t multiplier, int shift,
                           int32_t diff_min) noexcept nogil


cdef void _requantize_avx512(const int32_t *acc, const int32_t *multiplier, const int8_t *shift,
                             int rows, int32_t *out) noexcept nogil:
    requantize_avx512(acc, multiplier, shift, rows, out)


cdef int _argmax_avx512(const int32_t *values, int n) noexcept nogil:
    return argmax_avx512(values, n)


cdef int64_t _exp_sum_avx512(const int32_t *values, int n, int32_t top, int32_t multiplier, int shift,
                             int32_t diff_min) noexcept nogil:
    return exp_sum_avx512(values, n, top, multiplier, shift, diff_min)
