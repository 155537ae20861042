# Matrix kernels on the dot-product instruction vpdpbusd: unsigned 8-bit activations times signed
# 8-bit weights, four products into each 32-bit lane. Plain loops end in a sum across lanes for each
# row and each vector; here lanes hold rows, so a weight that was loaded serves several vectors and
# nothing is summed across (see docs/architecture.md for what that gains). The including module
# defines the vector type and its operations:
#   VECTOR, LOAD, STORE, BROADCAST (int32 to all lanes), DOT (accumulator, activations, weights)
#   BLOCKS row blocks are taken together, with up to VECTORS activations: BLOCKS * VECTORS
#   accumulators, VECTORS activations and one weight must fit the registers.
#
# Packed form: bias - 128 * row_sum for every row (activations are offset by +128 to be unsigned), padded to
# whole blocks of LANES rows; then super-blocks of BLOCKS blocks (the last may have fewer), in each
# for every group of four columns and every block LANES times four weights. Padding is zero.

from libc.stdint cimport int8_t, int32_t, int64_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    #define LANES ((int)(sizeof(VECTOR) / 4))
    #define INLINE static inline __attribute__((always_inline))

    INLINE int blocks_of(int rows) { return (rows + LANES - 1) / LANES; }
    INLINE int groups_of(int cols) { return (cols + 3) / 4; }

    static int64_t vnni_packed_bytes(int rows, int cols) {
        return (int64_t)blocks_of(rows) * LANES * 4 * (1 + (int64_t)groups_of(cols));
    }

    /* Where the weight of row and column stands among the packed weights. */
    INLINE size_t place_of(int row, int col, int rows, int cols) {
        int blocks = blocks_of(rows), groups = groups_of(cols);
        int block = row / LANES, first = block / BLOCKS * BLOCKS;
        int together = blocks - first < BLOCKS ? blocks - first : BLOCKS;
        size_t unit = (size_t)first * groups + (size_t)(col / 4) * together + (block - first);
        return (unit * LANES + row % LANES) * 4 + col % 4;
    }

    static void vnni_pack(const int8_t *weight, const int32_t *bias, int rows, int cols, void *packed) {
        int32_t *folded = (int32_t *)packed;
        int8_t *out = (int8_t *)(folded + blocks_of(rows) * LANES);
        memset(packed, 0, (size_t)vnni_packed_bytes(rows, cols));
        for (int r = 0; r < rows; r++) {
            uint32_t sum = 0;
            for (int k = 0; k < cols; k++) {
                int8_t w = weight[(size_t)r * cols + k];
                out[place_of(r, k, rows, cols)] = w;
                sum += (uint32_t)(int32_t)w;
            }
            folded[r] = (int32_t)((uint32_t)bias[r] - 128u * sum);
        }
    }

    static void vnni_unpack(const void *packed, int rows, int cols, int8_t *weight, int32_t *bias) {
        const int32_t *folded = (const int32_t *)packed;
        const int8_t *in = (const int8_t *)(folded + blocks_of(rows) * LANES);
        for (int r = 0; r < rows; r++) {
            uint32_t sum = 0;
            for (int k = 0; k < cols; k++) {
                int8_t w = in[place_of(r, k, rows, cols)];
                weight[(size_t)r * cols + k] = w;
                sum += (uint32_t)(int32_t)w;
            }
            bias[r] = (int32_t)((uint32_t)folded[r] + 128u * sum);
        }
    }

    /* One super-block of B blocks with N activation vectors; B and N are constants once inlined. */
    INLINE void tile(const int32_t *bias, const int8_t *weight, int groups, const uint8_t *x, int stride,
                     int rows, int32_t *acc, int acc_stride, const int B, const int N) {
        VECTOR sum[BLOCKS][VECTORS], activation[VECTORS];
        for (int b = 0; b < B; b++)
            for (int i = 0; i < N; i++)
                sum[b][i] = LOAD(bias + b * LANES);
        for (int g = 0; g < groups; g++) {
            for (int i = 0; i < N; i++) {
                int32_t four;
                memcpy(&four, x + (size_t)i * stride + 4 * g, 4);
                activation[i] = BROADCAST(four);
            }
            for (int b = 0; b < B; b++) {
                VECTOR w = LOAD(weight + ((size_t)g * B + b) * LANES * 4);
                for (int i = 0; i < N; i++)
                    sum[b][i] = DOT(sum[b][i], activation[i], w);
            }
        }
        for (int b = 0; b < B; b++)
            for (int i = 0; i < N; i++) {
                int32_t *out = acc + (size_t)i * acc_stride + b * LANES;
                int left = rows - b * LANES;
                if (left >= LANES) {
                    STORE(out, sum[b][i]);
                } else {
                    int32_t last[LANES];
                    STORE(last, sum[b][i]);
                    memcpy(out, last, (size_t)left * 4);
                }
            }
    }

    /* A super-block of any size with N vectors. */
    #define SUPER_BLOCK(N) \\
        switch (together) { \\
        case 1: tile(bias, weight, groups, x, stride, left, acc, rows, 1, N); break; \\
        case 2: tile(bias, weight, groups, x, stride, left, acc, rows, 2, N); break; \\
        case 3: tile(bias, weight, groups, x, stride, left, acc, rows, 3, N); break; \\
        default: tile(bias, weight, groups, x, stride, left, acc, rows, BLOCKS, N); \\
        }

    /* Up to VECTORS activation vectors, already unsigned and padded to whole groups. */
    static void vnni_vectors(const void *packed, int rows, int groups, const uint8_t *x, int stride, int n,
                             int32_t *acc) {
        int blocks = blocks_of(rows), left = rows;
        const int32_t *bias = (const int32_t *)packed;
        const int8_t *weight = (const int8_t *)(bias + blocks * LANES);
        for (int first = 0; first < blocks; first += BLOCKS) {
            int together = blocks - first < BLOCKS ? blocks - first : BLOCKS;
            switch (n) {
            case 1: SUPER_BLOCK(1) break;
            case 2: SUPER_BLOCK(2) break;
            #if VECTORS > 3
            case 3: SUPER_BLOCK(3) break;
            #endif
            default: SUPER_BLOCK(VECTORS)
            }
            bias += together * LANES;
            weight += (size_t)together * groups * LANES * 4;
            acc += together * LANES;
            left -= together * LANES;
        }
    }

    static void vnni_matmul(const void *packed, int rows, int cols, const int8_t *x, int n, int32_t *acc,
                            void *scratch) {
        int groups = groups_of(cols), stride = 4 * groups;
        uint8_t *unsigned_x = (uint8_t *)scratch;
        while (n > 0) {
            int now = n < VECTORS ? n : VECTORS;
            for (int i = 0; i < now; i++) {
                for (int k = 0; k < cols; k++)
                    unsigned_x[(size_t)i * stride + k] = (uint8_t)(x[(size_t)i * cols + k] ^ 0x80);
                for (int k = cols; k < stride; k++)
                    unsigned_x[(size_t)i * stride + k] = 0;
            }
            vnni_vectors(packed, rows, groups, unsigned_x, stride, now, acc);
            x += (size_t)now * cols;
            acc += (size_t)now * rows;
            n -= now;
        }
    }
    """
    int64_t vnni_packed_bytes(int rows, int cols) noexcept nogil
    void vnni_pack(const int8_t *weight, const int32_t *bias, int rows, int cols,
                   void *packed) noexcept nogil
    void vnni_unpack(const void *packed, int rows, int cols, int8_t *weight,
                     int32_t *bias) noexcept nogil
    void vnni_matmul(const void *packed, int rows, int cols, const int8_t *x, int n,
                     int32_t *acc, void *scratch) noexcept nogil


cdef int64_t _packed_bytes(int rows, int cols) noexcept nogil:
    return vnni_packed_bytes(rows, cols)


cdef void _pack(const int8_t *weight, const int32_t *bias, int rows, int cols,
                void *packed) noexcept nogil:
    vnni_pack(weight, bias, rows, cols, packed)


cdef void _unpack(const void *packed, int rows, int cols, int8_t *weight,
                  int32_t *bias) noexcept nogil:
    vnni_unpack(packed, rows, cols, weight, bias)


cdef void _matmul(const void *packed, int rows, int cols, const int8_t *x, int n,
                  int32_t *acc, void *scratch) noexcept nogil:
    vnni_matmul(packed, rows, cols, x, n, acc, scratch)
