"""Int8 prediction network: embedding and stacked LSTM, one step at a time (docs/fixed_point.md section 4)."""

from libc.stdlib cimport free, malloc
from libc.stdint cimport int8_t, int16_t, int32_t

import numpy as np

from pkrnnt.fixed_point cimport SIGMOID, TANH, activation_s16, clamp_s32, requantize_s32, saturate_s16
from pkrnnt.kernels.linear cimport Linear, allocate_aligned, free_aligned, run_linear, scratch_bytes
from pkrnnt.saturation cimport SITE_CELL, SITE_GATE, SITE_HIDDEN, Counters, count


cdef inline int32_t _gate(const int32_t *input_part, const int32_t *hidden_part, int index,
                          long *saturated) noexcept nogil:
    # The loader proves |hidden_part| < 2^31 - 2^16, so the sum stays in int32.
    cdef int32_t x = saturate_s16(input_part[index])
    cdef int32_t total = x + hidden_part[index]
    cdef int32_t pre = saturate_s16(total)
    saturated[0] += (x != input_part[index]) | (pre != total)
    return pre


cdef void _step_lstm(const Lstm *lstm, const int8_t *x, const int8_t *h, const int16_t *c,
                     int8_t *h_out, int16_t *c_out, int32_t *acc, void *scratch,
                     Counters *counters) noexcept nogil:
    cdef int size = lstm.hidden_size
    cdef int32_t *input_part = acc
    cdef int32_t *hidden_part = acc + 4 * size
    cdef int32_t low = -lstm.cell_clip if lstm.cell_clip > 0 else -32768
    cdef int32_t high = lstm.cell_clip if lstm.cell_clip > 0 else 32767
    cdef long gates = 0, cells = 0, hiddens = 0
    cdef int32_t i, f, g, o, cell, clipped, hidden, out
    cdef int j
    run_linear(&lstm.input, x, 1, input_part, scratch)
    run_linear(&lstm.hidden, h, 1, hidden_part, scratch)
    for j in range(size):
        i = activation_s16(_gate(input_part, hidden_part, j, &gates), 0, SIGMOID)
        f = activation_s16(_gate(input_part, hidden_part, size + j, &gates), 0, SIGMOID)
        g = activation_s16(_gate(input_part, hidden_part, 2 * size + j, &gates), 0, TANH)
        o = activation_s16(_gate(input_part, hidden_part, 3 * size + j, &gates), 0, SIGMOID)
        cell = requantize_s32(i * g, lstm.input_to_cell_multiplier, lstm.input_to_cell_shift)
        cell += saturate_s16(requantize_s32(
            f * c[j], lstm.forget_to_cell_multiplier, lstm.forget_to_cell_shift))
        clipped = clamp_s32(cell, low, high)
        cells += clipped != cell
        c_out[j] = <int16_t>clipped
        hidden = requantize_s32(
            o * activation_s16(<int16_t>clipped, lstm.cell_scale_power + 12, TANH),
            lstm.output_multiplier, lstm.output_shift) + lstm.hidden_zero_point
        out = clamp_s32(hidden, -128, 127)
        hiddens += out != hidden
        h_out[j] = <int8_t>out
    count(counters, SITE_GATE, gates, 4 * size)
    count(counters, SITE_CELL, cells, size)
    count(counters, SITE_HIDDEN, hiddens, size)


cdef void step_prediction(const Prediction *prediction, int token, const int8_t *h, const int16_t *c,
                          int8_t *h_out, int16_t *c_out, int32_t *acc, void *scratch,
                          Counters *counters) noexcept nogil:
    cdef const int8_t *x = prediction.start
    cdef int layer
    if token >= 0:
        x = prediction.embed + <Py_ssize_t>token * prediction.embed_dim
    for layer in range(prediction.layers):
        _step_lstm(&prediction.lstm[layer], x, h, c, h_out, c_out, acc, scratch, counters)
        x = h_out
        h += prediction.hidden_size
        c += prediction.hidden_size
        h_out += prediction.hidden_size
        c_out += prediction.hidden_size


cdef class LstmLayer:
    """One int8 LSTM layer; with one multiplier a gate, bit-exact with ``arm_lstm_unidirectional_s8``.

    Args:
        input, hidden: ``Linear`` of [4H, I] and [4H, H], gate order i, f, g, o, effective biases.
        hidden_zero_point: of h, -128..127.
        cell_scale_power: the cell's scale is ``2**cell_scale_power``, -16..-8.
        cell_clip: |c| limit in integers, 0 for none.
        forget_to_cell, input_to_cell, output: (multiplier, shift) pairs.

    Raises:
        ValueError: sizes that do not fit each other, or a value outside its range.
    """

    def __cinit__(self, Linear input, Linear hidden, *, int hidden_zero_point, int cell_scale_power,
                  int cell_clip, forget_to_cell, input_to_cell, output):
        if hidden.c.rows != 4 * hidden.c.cols or input.c.rows != hidden.c.rows:
            raise ValueError(
                f"LSTM weights are {input.c.rows} x {input.c.cols} and {hidden.c.rows} x "
                f"{hidden.c.cols}, wanted 4H x I and 4H x H")
        if not -16 <= cell_scale_power <= -8:
            raise ValueError(
                f"cell_scale_power is {cell_scale_power}, wanted -16..-8: the tanh table ends there")
        self._linears = (input, hidden)
        self.c.input = input.c
        self.c.hidden = hidden.c
        self.c.hidden_size = hidden.c.cols
        self.c.hidden_zero_point = hidden_zero_point
        self.c.cell_scale_power = cell_scale_power
        self.c.cell_clip = cell_clip
        self.c.forget_to_cell_multiplier, self.c.forget_to_cell_shift = forget_to_cell
        self.c.input_to_cell_multiplier, self.c.input_to_cell_shift = input_to_cell
        self.c.output_multiplier, self.c.output_shift = output


cdef class Int8Prediction:
    """Embedding and a stack of LSTM layers in integers.

    Args:
        embed: int8 [rows, embed_dim], zero point 0.
        layers: ``LstmLayer`` objects; layer l > 0 takes layer l - 1's h as its input.

    Raises:
        ValueError: no layer, or sizes that do not fit each other.
    """

    def __cinit__(self, embed, layers):
        cdef const int8_t[:, ::1] table = np.ascontiguousarray(embed, dtype=np.int8)
        cdef const int8_t[::1] start = np.zeros(table.shape[1], np.int8)
        cdef LstmLayer layer
        cdef int cols = table.shape[1], i
        if not layers:
            raise ValueError("the prediction network has 0 LSTM layers, wanted at least 1")
        self._lstm = <Lstm *>malloc(len(layers) * sizeof(Lstm))
        if self._lstm == NULL:
            raise MemoryError("no memory for the LSTM layers")
        for i, layer in enumerate(layers):
            if layer.c.input.cols != cols:
                raise ValueError(f"LSTM layer {i} takes {layer.c.input.cols} inputs, wanted {cols}")
            if i and layer.c.hidden_size != self._lstm[0].hidden_size:
                raise ValueError(
                    f"LSTM layer {i} has {layer.c.hidden_size} units, wanted "
                    f"{self._lstm[0].hidden_size} as layer 0 has")
            self._lstm[i] = layer.c
            cols = layer.c.hidden_size
        self._arrays = (table.base, start.base, tuple(layers))
        self.embed_rows = table.shape[0]
        self.c.embed = &table[0, 0]
        self.c.start = &start[0]
        self.c.embed_dim = table.shape[1]
        self.c.layers = len(layers)
        self.c.hidden_size = cols
        self.c.lstm = self._lstm

    def __dealloc__(self):
        free(self._lstm)

    def zero_state(self):
        """The state before any token: (h int8 [layers, H] at its zero points, c int16 [layers, H] zeros)."""
        h = np.empty((self.c.layers, self.c.hidden_size), np.int8)
        for i in range(self.c.layers):
            h[i] = self._lstm[i].hidden_zero_point
        return h, np.zeros((self.c.layers, self.c.hidden_size), np.int16)

    def step(self, int token, state):
        """One step of the prediction network.

        Args:
            token: the last emitted token id, or ``SOS`` (-1) for the zero start vector.
            state: (h int8 [layers, H], c int16 [layers, H]), left as it is.

        Returns:
            (g int8 [H], (h, c)): the output and the state after the token.

        Raises:
            ValueError: a token outside the embedding.
        """
        cdef int size = self.c.hidden_size
        cdef const int8_t[:, ::1] h
        cdef const int16_t[:, ::1] c
        cdef int32_t *acc
        cdef void *scratch
        if not -1 <= token < self.embed_rows:
            raise ValueError(f"token is {token}, wanted SOS (-1) or 0..{self.embed_rows - 1}")
        h, c = state
        for name, rows, cols in (("h", h.shape[0], h.shape[1]), ("c", c.shape[0], c.shape[1])):
            if (rows, cols) != (self.c.layers, size):
                raise ValueError(
                    f"state {name} has shape {(rows, cols)}, wanted {(self.c.layers, size)}")
        h_new, c_new = np.empty((self.c.layers, size), np.int8), np.empty((self.c.layers, size), np.int16)
        cdef int8_t[:, ::1] h_out = h_new
        cdef int16_t[:, ::1] c_out = c_new
        acc = <int32_t *>allocate_aligned(8 * size * sizeof(int32_t))
        try:
            scratch = allocate_aligned(scratch_bytes(max(self.c.embed_dim, size)))
            with nogil:
                step_prediction(&self.c, token, &h[0, 0], &c[0, 0], &h_out[0, 0], &c_out[0, 0],
                                acc, scratch, NULL)
            free_aligned(scratch)
        finally:
            free_aligned(acc)
        return h_new[-1], (h_new, c_new)
