"""Int8 prediction network: embedding and stacked LSTM, one step at a time (docs/fixed_point.md section 4)."""

from libc.stdlib cimport free, malloc
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t

import numpy as np

from pkrnnt.kernels.linear cimport Linear, allocate_aligned, free_aligned, run_linear, scratch_bytes
from pkrnnt.saturation cimport (
    SITE_CELL, SITE_GATE, SITE_GATE_INPUT, SITE_HIDDEN, Counters, count)

cdef enum:
    TABLE_BATCH = 8  # embedding rows taken together while the gate table is built


cdef void _step_lstm(const Lstm *lstm, const int16_t *gates, int32_t *acc, const int8_t *h,
                     const int16_t *c, int8_t *h_out, int16_t *c_out, void *scratch,
                     Counters *counters) noexcept nogil:
    # gates int16 [4H], the input's part; acc int32 [4H].
    cdef int size = lstm.hidden_size
    cdef int64_t gates_saturated, cells_saturated, hiddens_saturated
    run_linear(&lstm.hidden, h, 1, acc, scratch)
    lstm.hidden.kernels.lstm_cell_s8(gates, acc, size, &lstm.cell, c, c_out, h_out, &gates_saturated,
                                     &cells_saturated, &hiddens_saturated)
    count(counters, SITE_GATE, gates_saturated, 4 * size)
    count(counters, SITE_CELL, cells_saturated, size)
    count(counters, SITE_HIDDEN, hiddens_saturated, size)


cdef int64_t _input_gates(const Lstm *lstm, const int8_t *x, int n, int16_t *gates, int32_t *acc,
                          void *scratch) noexcept nogil:
    # x int8 [n, I] -> gates int16 [n, 4H]; acc int32 [n, 4H]. How many saturated.
    run_linear(&lstm.input, x, n, acc, scratch)
    return lstm.input.kernels.saturate_s16(acc, <int64_t>n * lstm.input.rows, gates)


cdef void step_prediction(const Prediction *prediction, int token, const int8_t *h, const int16_t *c,
                          int8_t *h_out, int16_t *c_out, int32_t *acc, void *scratch,
                          Counters *counters) noexcept nogil:
    cdef int size = prediction.hidden_size
    cdef int16_t *buffer = <int16_t *>(acc + 4 * size)
    cdef const int16_t *gates
    cdef const int8_t *x = prediction.start
    cdef int64_t saturated
    cdef int layer
    if token >= 0:
        x = prediction.embed + <Py_ssize_t>token * prediction.embed_dim
    for layer in range(prediction.layers):
        if layer == 0 and prediction.gate_table != NULL:
            gates = prediction.gate_table + <Py_ssize_t>(token + 1) * 4 * size
            saturated = prediction.gate_table_saturated[token + 1]
        else:
            saturated = _input_gates(&prediction.lstm[layer], x, 1, buffer, acc, scratch)
            gates = buffer
        count(counters, SITE_GATE_INPUT, saturated, 4 * size)
        _step_lstm(&prediction.lstm[layer], gates, acc, h, c, h_out, c_out, scratch, counters)
        x = h_out
        h += size
        c += size
        h_out += size
        c_out += size


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

    def __cinit__(self, Linear input not None, Linear hidden not None, *, int hidden_zero_point,
                  int cell_scale_power, int cell_clip, forget_to_cell, input_to_cell, output):
        if hidden.c.rows != 4 * hidden.c.cols or input.c.rows != hidden.c.rows:
            raise ValueError(
                f"LSTM weights are {input.c.rows} x {input.c.cols} and {hidden.c.rows} x "
                f"{hidden.c.cols}, wanted 4H x I and 4H x H")
        if not -16 <= cell_scale_power <= -8:
            raise ValueError(
                f"cell_scale_power is {cell_scale_power}, wanted -16..-8: the tanh table ends there")
        for name, (_, shift) in (("forget_to_cell", forget_to_cell), ("input_to_cell", input_to_cell),
                                 ("output", output)):
            if not -31 <= shift <= 0:
                raise ValueError(f"{name} shift is {shift}, wanted -31..0")
        self._linears = (input, hidden)
        self.c.input = input.c
        self.c.hidden = hidden.c
        self.c.hidden_size = hidden.c.cols
        self.c.cell.hidden_zero_point = hidden_zero_point
        self.c.cell.cell_scale_power = cell_scale_power
        self.c.cell.cell_clip = cell_clip
        self.c.cell.forget_to_cell_multiplier, self.c.cell.forget_to_cell_shift = forget_to_cell
        self.c.cell.input_to_cell_multiplier, self.c.cell.input_to_cell_shift = input_to_cell
        self.c.cell.output_multiplier, self.c.cell.output_shift = output


cdef class Int8Prediction:
    """Embedding and a stack of LSTM layers in integers.

    Args:
        embed: int8 [rows, embed_dim], zero point 0.
        layers: ``LstmLayer`` objects; layer l > 0 takes layer l - 1's h as its input.
        gate_table: whether to work out the input's part of layer 0's gates for every token now, by the
            same integer operations: the same bytes, half of layer 0's multiplies.

    Attributes:
        gate_table_bytes: what the table takes in memory, 0 without one.

    Raises:
        ValueError: no layer, or sizes that do not fit each other.
    """

    def __cinit__(self, embed, layers, bint gate_table=False):
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
            if layer is None:
                raise ValueError(f"LSTM layer {i} is None")
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
        self.gate_table_bytes = 0
        if gate_table:
            self._build_gate_table()

    def _build_gate_table(self):
        # Row 0 is the start of sequence, row 1 + t is token t.
        cdef int rows = self.embed_rows + 1, width = 4 * self.c.hidden_size
        cdef int first = 0, n, i
        cdef int8_t[:, ::1] x = np.zeros((rows, self.c.embed_dim), np.int8)
        cdef int32_t[:, ::1] acc = np.empty((TABLE_BATCH, width), np.int32)
        table, saturated = np.empty((rows, width), np.int16), np.empty(rows, np.int32)
        cdef int16_t[:, ::1] table_view = table
        cdef int32_t[::1] saturated_view = saturated
        np.asarray(x)[1:] = self._arrays[0]
        cdef void *scratch = allocate_aligned(scratch_bytes(self.c.embed_dim))
        with nogil:
            while first < rows:
                n = min(rows - first, TABLE_BATCH)
                run_linear(&self._lstm[0].input, &x[first, 0], n, &acc[0, 0], scratch)
                for i in range(n):
                    saturated_view[first + i] = <int32_t>self._lstm[0].input.kernels.saturate_s16(
                        &acc[i, 0], width, &table_view[first + i, 0])
                first += n
            free_aligned(scratch)
        self._table = (table, saturated)
        self.c.gate_table = &table_view[0, 0]
        self.c.gate_table_saturated = &saturated_view[0]
        self.gate_table_bytes = table.nbytes + saturated.nbytes

    def __dealloc__(self):
        free(self._lstm)

    def zero_state(self):
        """The state before any token: (h int8 [layers, H] at its zero points, c int16 [layers, H] zeros)."""
        h = np.empty((self.c.layers, self.c.hidden_size), np.int8)
        for i in range(self.c.layers):
            h[i] = self._lstm[i].cell.hidden_zero_point
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
        acc = <int32_t *>allocate_aligned(6 * size * sizeof(int32_t))
        try:
            scratch = allocate_aligned(scratch_bytes(max(self.c.embed_dim, size)))
            with nogil:
                step_prediction(&self.c, token, &h[0, 0], &c[0, 0], &h_out[0, 0], &c_out[0, 0],
                                acc, scratch, NULL)
            free_aligned(scratch)
        finally:
            free_aligned(acc)
        return h_new[-1], (h_new, c_new)
