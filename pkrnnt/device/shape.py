"""Sizes of a model as it is exported: its matrices, and the bytes it takes in flash and RAM."""

from __future__ import annotations

from dataclasses import dataclass

from pkrnnt.model import Config, Int8Model

BYTES_PER_ROW = 9  # of a matrix beside its weights: bias, multiplier and shift
MATRIX_BYTES = 24  # of pkrnnt_matrix on a 32-bit core
LAYER_BYTES = 2 * MATRIX_BYTES + 36  # of pkrnnt_lstm_layer
MODEL_BYTES = 12 + 3 * MATRIX_BYTES + 32  # of pkrnnt_prediction and pkrnnt_joint


def _aligned(size: int) -> int:
    return -(-size // 4) * 4


@dataclass(frozen=True)
class Matrix:
    """Sizes of a matrix."""

    rows: int
    cols: int

    @property
    def products(self) -> int:
        return self.rows * self.cols

    @property
    def stored_bytes(self) -> int:
        """in flash: weights, biases, multipliers and shifts"""
        return self.rows * (self.cols + BYTES_PER_ROW)


@dataclass(frozen=True)
class Shape:
    """Sizes of a model, with or without a gate table."""

    config: Config
    gate_table: bool
    prediction: tuple[Matrix, ...]
    """of one prediction step and its projection"""
    enc: Matrix
    out: Matrix

    @classmethod
    def of(cls, model: Int8Model, gate_table: bool) -> Shape:
        matrices = [Matrix(*one.shape) for layer in model.lstm for one in layer]
        return cls(
            config=model.config,
            gate_table=gate_table,
            prediction=(*matrices[gate_table:], Matrix(*model.joint_pred.shape)),
            enc=Matrix(*model.joint_enc.shape),
            out=Matrix(*model.joint_out.shape),
        )

    @property
    def table_rows(self) -> int:
        """of the gate table or the embedding: the start, and every id up to the last token's"""
        config = self.config
        return 1 + config.vocab_size + (config.blank_id < config.vocab_size)

    @property
    def lookup_bytes(self) -> int:
        """of a row of the gate table or the embedding"""
        return 8 * self.config.pred_hidden if self.gate_table else self.config.embed_dim

    @property
    def table_bytes(self) -> int:
        """of the gate table or the embedding"""
        return self.table_rows * self.lookup_bytes

    @property
    def matrices(self) -> tuple[Matrix, ...]:
        """all of them"""
        return (*self.prediction, self.enc, self.out)

    @property
    def stored_bytes(self) -> int:
        """of the model in flash: all arrays, and the structures that point to them"""
        structures = MODEL_BYTES + self.config.pred_layers * LAYER_BYTES
        return structures + self.table_bytes + sum(matrix.stored_bytes for matrix in self.matrices)


def gate_table_is_smaller(model: Int8Model) -> bool:
    """Whether the gate table takes less flash than the embedding and the weights it replaces."""
    return Shape.of(model, True).stored_bytes < Shape.of(model, False).stored_bytes


def vocabulary_bytes(config: Config) -> int:
    """Bytes of the exported token pieces at most: strings that start at whole words, and pointers."""
    pieces = ["", *(config.vocabulary or ())]
    return sum(_aligned(len(piece.encode()) + 1) + 4 for piece in pieces)


def wide_words(config: Config) -> int:
    """32-bit words that hold the widest vector as int16, whole groups of four columns."""
    widest = max(config.embed_dim, config.pred_hidden, config.joint_hidden, config.enc_hidden)
    return -(-widest // 4) * 2


def state_bytes(config: Config) -> int:
    """sizeof(pkrnnt_state): a stream's."""
    units = config.pred_layers * config.pred_hidden
    cells, projection, hiddens = 2 * 2 * units, 2 * config.joint_hidden, 2 * units
    return _aligned(_aligned(cells + projection + hiddens) + 4 + 2)


def scratch_bytes(config: Config) -> int:
    """sizeof(pkrnnt_scratch): a call's."""
    words = config.vocab_size + 1 + wide_words(config)
    halves = 4 * config.pred_hidden + config.joint_hidden
    return _aligned(4 * words + 2 * halves + config.joint_hidden)
