/* Matrix times vector, the bulk of the work: int8 products in int32 sums. */
#include "pkrnnt_kernels.h"

enum { BLOCK = 32 }; /* rows between sums and requantization */

#if defined(PKRNNT_MVE)

#include <arm_mve.h>

static inline void widen(const int8_t *x, int32_t cols, int32_t *wide)
{
    (void)x;
    (void)cols;
    (void)wide;
}

/* Sixteen products of a row, a load and a multiply-accumulate. In assembly, because gcc 12 spills the x of six
 * vectors and adds moves to two. */
#define DOT_VECTOR(offset, x)                                                                           \
    "vldrb.8 %q[w], [%[at], #" offset "]\n"                                                             \
    "vmladava.s8 %[sum], %q[" x "], %q[w]\n"

/* acc = from + W x over a panel of 96 columns, whose x stays in vector registers while the rows go by. */
static void panel_96(const int8_t *weight, int32_t cols, const int8_t *x, const int32_t *from, int32_t n,
                     int32_t *acc)
{
    const int8x16_t v0 = vldrbq_s8(x), v1 = vldrbq_s8(x + 16), v2 = vldrbq_s8(x + 32);
    const int8x16_t v3 = vldrbq_s8(x + 48), v4 = vldrbq_s8(x + 64), v5 = vldrbq_s8(x + 80);
    for (; n > 0; n--) {
        int32_t sum = *from++;
        int8x16_t w;
        __asm__(DOT_VECTOR("0", "v0") DOT_VECTOR("16", "v1") DOT_VECTOR("32", "v2")
                DOT_VECTOR("48", "v3") DOT_VECTOR("64", "v4") DOT_VECTOR("80", "v5")
                : [sum] "+&Te"(sum), [w] "=&w"(w)
                : [at] "r"(weight), [v0] "w"(v0), [v1] "w"(v1), [v2] "w"(v2), [v3] "w"(v3), [v4] "w"(v4),
                  [v5] "w"(v5), "m"(*(const int8_t(*)[96])weight));
        *acc++ = sum;
        weight += cols;
    }
}

/* The same for 32 columns, */
static void panel_32(const int8_t *weight, int32_t cols, const int8_t *x, const int32_t *from, int32_t n,
                     int32_t *acc)
{
    const int8x16_t v0 = vldrbq_s8(x), v1 = vldrbq_s8(x + 16);
    for (; n > 0; n--) {
        int32_t sum = *from++;
        int8x16_t w;
        __asm__(DOT_VECTOR("0", "v0") DOT_VECTOR("16", "v1")
                : [sum] "+&Te"(sum), [w] "=&w"(w)
                : [at] "r"(weight), [v0] "w"(v0), [v1] "w"(v1), "m"(*(const int8_t(*)[32])weight));
        *acc++ = sum;
        weight += cols;
    }
}

/* and for 16 or the last 1 to 15. */
static void panel_16(const int8_t *weight, int32_t cols, const int8_t *x, mve_pred16_t p, const int32_t *from,
                     int32_t n, int32_t *acc)
{
    const int8x16_t v = vldrbq_z_s8(x, p);
    for (; n > 0; n--) {
        *acc++ = vmladavaq_s8(*from++, v, vldrbq_z_s8(weight, p));
        weight += cols;
    }
}

static void sum_rows(const int8_t *weight, int32_t cols, const int8_t *x, const int32_t *wide,
                     const int32_t *bias, int32_t n, int32_t *acc)
{
    const int32_t *from = bias; /* then the panels before */
    int32_t k = 0;
    (void)wide;
    for (; k + 96 <= cols; k += 96, from = acc) {
        panel_96(weight + k, cols, x + k, from, n, acc);
    }
    for (; k + 32 <= cols; k += 32, from = acc) {
        panel_32(weight + k, cols, x + k, from, n, acc);
    }
    for (; k < cols; k += 16, from = acc) {
        panel_16(weight + k, cols, x + k, vctp8q((uint32_t)(cols - k)), from, n, acc);
    }
}

#else

/* Rows that go side by side, so that a value of x is loaded once for all of them. */
enum { ROWS = 4 };

#if defined(PKRNNT_DSP)

/* x as pairs of halves in the order 0, 2 | 1, 3 in which SXTB16 unpacks weights. */
static void widen(const int8_t *x, int32_t cols, int32_t *wide)
{
    for (; cols >= 4; cols -= 4) {
        *wide++ = (uint16_t)x[0] | pkrnnt_shift_left(x[2], 16);
        *wide++ = (uint16_t)x[1] | pkrnnt_shift_left(x[3], 16);
        x += 4;
    }
}

/* Four products of a row: bytes 0 and 2, then 1 and 3, two 16-bit products an instruction. */
#define DOT_WORD(load, sum)                                                                             \
    load "sxtb16 %[w02], %[w13]\n"                                                                      \
         "sxtb16 %[w13], %[w13], ror #8\n"                                                              \
         "smlad %[" sum "], %[w02], %[v02], %[" sum "]\n"                                               \
         "smlad %[" sum "], %[w13], %[v13], %[" sum "]\n"

/* Four columns of four rows; loads need no alignment but ldrd's, which wide has. */
#define DOT_WORDS                                                                                       \
    "ldrd %[v02], %[v13], [%[v]], #8\n"                                                                 \
    DOT_WORD("ldr %[w13], [%[w], %[cols3]]\n", "a3")                                                    \
    DOT_WORD("ldr %[w13], [%[w], %[cols], lsl #1]\n", "a2")                                             \
    DOT_WORD("ldr %[w13], [%[w], %[cols]]\n", "a1")                                                     \
    DOT_WORD("ldr %[w13], [%[w]], #4\n", "a0")

/* In assembly, because gcc spills sums and pointers in this loop whatever its shape in C. */
static inline void sum_group(const int8_t *weight, int32_t cols, const int8_t *x, const int32_t *wide,
                            const int32_t *bias, int32_t *acc)
{
    const int8_t *w = weight;
    const int8_t *end = w + (cols & ~7);
    const int32_t cols3 = 3 * cols;
    int32_t a0 = bias[0], a1 = bias[1], a2 = bias[2], a3 = bias[3];
    if (w != end) {
        int32_t v02, v13, w02, w13;
        __asm__ volatile("0:\n" DOT_WORDS DOT_WORDS "cmp %[w], %[end]\n"
                         "bne 0b\n"
                         : [w] "+&r"(w), [v] "+&r"(wide), [a0] "+&r"(a0), [a1] "+&r"(a1), [a2] "+&r"(a2),
                           [a3] "+&r"(a3), [v02] "=&r"(v02), [v13] "=&r"(v13), [w02] "=&r"(w02),
                           [w13] "=&r"(w13)
                         : [end] "r"(end), [cols] "r"(cols), [cols3] "r"(cols3)
                         : "cc", "memory");
    }
    for (x += cols & ~7; w != weight + cols; x++) {
        a0 += *w * *x;
        a1 += w[cols] * *x;
        a2 += w[2 * cols] * *x;
        a3 += w[cols3] * *x;
        w++;
    }
    acc[0] = a0;
    acc[1] = a1;
    acc[2] = a2;
    acc[3] = a3;
}

#else

static inline void widen(const int8_t *x, int32_t cols, int32_t *wide)
{
    (void)x;
    (void)cols;
    (void)wide;
}

#if defined(PKRNNT_THUMB1)

#define DOT_WEIGHT(weight, sum)                                                                         \
    "ldrsb %[w], [%[" weight "], %[k]]\n"                                                               \
    "muls %[w], %[v]\n"                                                                                 \
    "add %[" sum "], %[w]\n"

/* One column of four rows, counted up from -4n to 0. */
#define DOT_COLUMN                                                                                      \
    "ldrsb %[v], [%[x], %[k]]\n"                                                                        \
    DOT_WEIGHT("w0", "a0") DOT_WEIGHT("w1", "a1") DOT_WEIGHT("w2", "a2") DOT_WEIGHT("w3", "a3")         \
    "adds %[k], #1\n"

/* In assembly, because gcc does not keep sums in the high registers, which additions can use, and the rest in
 * the eight low ones, which is all of them: hence no frame pointer, and the portable kernel without -O. */
static __attribute__((noinline, optimize("omit-frame-pointer"))) void
sum_group(const int8_t *weight, int32_t cols, const int8_t *x, const int32_t *wide, const int32_t *bias,
          int32_t *acc)
{
    register int32_t a0 __asm__("r8") = bias[0];
    register int32_t a1 __asm__("r9") = bias[1];
    register int32_t a2 __asm__("r10") = bias[2];
    register int32_t a3 __asm__("r11") = bias[3];
    int32_t k = -(cols & ~3);
    const int8_t *w0 = weight - k;
    const int8_t *w1 = w0 + cols;
    const int8_t *w2 = w1 + cols;
    const int8_t *w3 = w2 + cols;
    (void)wide;
    x -= k;
    if (k != 0) {
        int32_t v, w;
        __asm__ volatile(".syntax unified\n"
                         "0:\n" DOT_COLUMN DOT_COLUMN DOT_COLUMN DOT_COLUMN "bne 0b\n"
                         : [k] "+&l"(k), [a0] "+&r"(a0), [a1] "+&r"(a1), [a2] "+&r"(a2), [a3] "+&r"(a3),
                           [v] "=&l"(v), [w] "=&l"(w)
                         : [x] "l"(x), [w0] "l"(w0), [w1] "l"(w1), [w2] "l"(w2), [w3] "l"(w3)
                         : "cc", "memory");
    }
    for (; k < (cols & 3); k++) {
        a0 += w0[k] * x[k];
        a1 += w1[k] * x[k];
        a2 += w2[k] * x[k];
        a3 += w3[k] * x[k];
    }
    acc[0] = a0;
    acc[1] = a1;
    acc[2] = a2;
    acc[3] = a3;
}

#else

static inline void sum_group(const int8_t *weight, int32_t cols, const int8_t *x, const int32_t *wide,
                            const int32_t *bias, int32_t *acc)
{
    const int8_t *w0 = weight;
    const int8_t *w1 = w0 + cols;
    const int8_t *w2 = w1 + cols;
    const int8_t *w3 = w2 + cols;
    int32_t a0 = bias[0], a1 = bias[1], a2 = bias[2], a3 = bias[3];
    int32_t k;
    (void)wide;
    for (k = 0; k < cols; k++) {
        const int32_t v = x[k];
        a0 += w0[k] * v;
        a1 += w1[k] * v;
        a2 += w2[k] * v;
        a3 += w3[k] * v;
    }
    acc[0] = a0;
    acc[1] = a1;
    acc[2] = a2;
    acc[3] = a3;
}

#endif
#endif

/* acc = bias + W x of n rows. */
static void sum_rows(const int8_t *weight, int32_t cols, const int8_t *x, const int32_t *wide,
                     const int32_t *bias, int32_t n, int32_t *acc)
{
    int32_t k;
    for (; n >= ROWS; n -= ROWS) {
        sum_group(weight, cols, x, wide, bias, acc);
        weight += ROWS * cols;
        bias += ROWS;
        acc += ROWS;
    }
    for (; n > 0; n--) {
        int32_t sum = *bias++;
        for (k = 0; k < cols; k++) {
            sum += *weight++ * x[k];
        }
        *acc++ = sum;
    }
}

#endif

void pkrnnt_matvec_s32(const pkrnnt_matrix *matrix, const int8_t *x, int32_t *wide, int32_t *out)
{
    widen(x, matrix->cols, wide);
    sum_rows(matrix->weight, matrix->cols, x, wide, matrix->bias, matrix->rows, out);
    pkrnnt_requantize_s32(out, matrix->multiplier, matrix->shift, matrix->rows, out);
}

void pkrnnt_matvec_s16(const pkrnnt_matrix *matrix, const int8_t *x, int32_t *wide, const int16_t *add,
                       int16_t *out)
{
    int32_t acc[BLOCK];
    int32_t row, n;
    widen(x, matrix->cols, wide);
    for (row = 0; row < matrix->rows; row += n) {
        n = matrix->rows - row < BLOCK ? matrix->rows - row : BLOCK;
        sum_rows(matrix->weight + row * matrix->cols, matrix->cols, x, wide, matrix->bias + row, n, acc);
        pkrnnt_requantize_s16(acc, matrix->multiplier + row, matrix->shift + row, n,
                              add == 0 ? 0 : add + row, out + row);
    }
}
