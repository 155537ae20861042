/* Runs the runtime's kernels on what stands in input.bin: little-endian int32 numbers throughout, weights and
 * vectors too. A request is an operation, its sizes and its arrays; 0 ends the input. */
#include "harness.h"

#include "pkrnnt_joint.h"

enum { MOST = 8192, WEIGHTS = 32768 };

static int32_t a32[MOST], b32[MOST], wide[MOST], out32[MOST], numbers[WEIGHTS];
static int16_t a16[MOST], b16[MOST], out16[MOST];
static int8_t weight[WEIGHTS], a8[MOST], out8[MOST];

static int32_t read_int(void)
{
    int32_t value;
    harness_read(&value, sizeof value);
    return value;
}

/* In one piece: a call of the emulator a number would take longer than the kernels. */
static void read_s8(int8_t *to, int32_t n)
{
    int32_t i;
    harness_read(numbers, (size_t)n * sizeof numbers[0]);
    for (i = 0; i < n; i++) {
        to[i] = (int8_t)numbers[i];
    }
}

static void read_s16(int16_t *to, int32_t n)
{
    int32_t i;
    harness_read(numbers, (size_t)n * sizeof numbers[0]);
    for (i = 0; i < n; i++) {
        to[i] = (int16_t)numbers[i];
    }
}

static void write_s8(const int8_t *from, int32_t n)
{
    int32_t i;
    for (i = 0; i < n; i++) {
        numbers[i] = from[i];
    }
    harness_write(numbers, (size_t)n * sizeof numbers[0]);
}

static void write_s16(const int16_t *from, int32_t n)
{
    int32_t i;
    for (i = 0; i < n; i++) {
        numbers[i] = from[i];
    }
    harness_write(numbers, (size_t)n * sizeof numbers[0]);
}

/* rows, cols, whether to int32, whether to add; weights, biases, multipliers, shifts, x, addends */
static void matvec(void)
{
    pkrnnt_matrix matrix = {weight, a32, b32, out8, 0, 0};
    int32_t narrow, add;
    matrix.rows = read_int();
    matrix.cols = read_int();
    narrow = read_int();
    add = read_int();
    read_s8(weight, matrix.rows * matrix.cols);
    harness_read(a32, (size_t)matrix.rows * sizeof a32[0]);
    harness_read(b32, (size_t)matrix.rows * sizeof b32[0]);
    read_s8(out8, matrix.rows);
    read_s8(a8, matrix.cols);
    read_s16(a16, add ? matrix.rows : 0);
    if (narrow) {
        pkrnnt_matvec_s16(&matrix, a8, wide, add ? a16 : 0, out16);
        write_s16(out16, matrix.rows);
    } else {
        pkrnnt_matvec_s32(&matrix, a8, wide, out32);
        harness_write(out32, (size_t)matrix.rows * sizeof out32[0]);
    }
}

/* n, the cell's nine numbers; gates, c */
static void lstm_cell(void)
{
    const int32_t n = read_int();
    pkrnnt_lstm_cell cell;
    harness_read(&cell, sizeof cell);
    read_s16(a16, 4 * n);
    read_s16(b16, n);
    pkrnnt_lstm_cell_s8(a16, &cell, n, b16, out16, out8);
    write_s16(out16, n);
    write_s8(out8, n);
}

/* n, the activation's five numbers; a, b */
static void add_activate(void)
{
    const int32_t n = read_int();
    pkrnnt_activation activation;
    harness_read(&activation, sizeof activation);
    read_s16(a16, n);
    read_s16(b16, n);
    pkrnnt_add_activate_s8(a16, b16, &activation, n, out8);
    write_s8(out8, n);
}

/* n; values */
static void argmax(void)
{
    const int32_t n = read_int();
    int32_t best;
    harness_read(a32, (size_t)n * sizeof a32[0]);
    best = pkrnnt_argmax(a32, n);
    harness_write(&best, sizeof best);
}

/* n, the three numbers of the softmax; logits */
static void confidence(void)
{
    pkrnnt_joint joint = {{0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0}, 0, 0, 0};
    int32_t found;
    joint.out.rows = read_int();
    joint.softmax_multiplier = read_int();
    joint.softmax_shift = read_int();
    joint.softmax_diff_min = read_int();
    harness_read(a32, (size_t)joint.out.rows * sizeof a32[0]);
    found = pkrnnt_joint_confidence(&joint, a32, pkrnnt_argmax(a32, joint.out.rows));
    harness_write(&found, sizeof found);
}

int harness(void)
{
    harness_open();
    for (;;) {
        switch (read_int()) {
        case 0:
            return 0;
        case 1:
            matvec();
            break;
        case 2:
            lstm_cell();
            break;
        case 3:
            add_activate();
            break;
        case 4:
            argmax();
            break;
        case 5:
            confidence();
            break;
        default:
            return 6;
        }
    }
}
