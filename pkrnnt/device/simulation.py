"""The cost model: from counted operations to instructions, cycles, latency and energy on a core."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pkrnnt.device import operations
from pkrnnt.device.cores import Board, Core
from pkrnnt.device.shape import Shape, scratch_bytes, state_bytes
from pkrnnt.greedy import rnnt_greedy
from pkrnnt.hypothesis import Hypothesis
from pkrnnt.model import Int8Model
from pkrnnt.saturation import SaturationCounters

MOST_STREAMS = 8  # rows of weights, biases and others that kernels read side by side


@dataclass(frozen=True)
class Interval:
    """A figure of which only the bounds are known."""

    low: float
    high: float

    def __mul__(self, factor: float) -> Interval:
        return Interval(self.low * factor, self.high * factor)


@dataclass(frozen=True)
class Setting:
    """What a decoder would run on, and how."""

    core: Core
    board: Board
    clock_mhz: float
    weights: str
    """name of the board's memory that they lie in"""
    gate_table: bool
    frame_seconds: float

    def __post_init__(self) -> None:
        if self.weights not in self.board.memories:
            raise ValueError(
                f"weights are to lie in {self.weights!r}, wanted one of the memories "
                f"{sorted(self.board.memories)} of {self.board.name}"
            )
        if self.board.core != self.core.name:
            raise ValueError(
                f"board {self.board.name} has a {self.board.core}, wanted one with a {self.core.name}"
            )
        for name, value in (("clock_mhz", self.clock_mhz), ("frame_seconds", self.frame_seconds)):
            if not (np.isfinite(value) and value > 0):
                raise ValueError(f"{name} is {value}, wanted a finite number above 0")
        if self.clock_mhz > self.board.clock_mhz:
            raise ValueError(
                f"clock_mhz is {self.clock_mhz:g}, wanted at most the {self.board.clock_mhz:g} of "
                f"{self.board.name}"
            )


@dataclass(frozen=True)
class Simulation:
    """What decoding some utterances costs. Arrays have one entry a frame, utterance after utterance."""

    setting: Setting
    max_symbols: int
    granularity: str
    """of the model's requantization, ``"row"`` or ``"gate"``"""
    hyps: list[Hypothesis]
    lengths: list[int]
    """frames of each utterance"""
    work: dict[str, NDArray[np.int64]]
    """see ``operations.work``"""
    instructions: NDArray[np.float64]
    cycles_low: NDArray[np.float64]
    cycles_high: NDArray[np.float64]
    longest_frame: Interval
    """cycles of a frame with max_symbols tokens, whether one was seen or not"""
    flash: dict[str, int]
    """bytes of ``weights``, of ``tables`` (gate table or embedding) and of ``code``"""
    ram: dict[str, int]
    """bytes of ``state`` (a stream), ``scratch`` and ``stack``, and of ``weights`` if they lie there"""
    saturation: dict[str, dict[str, int]]

    @property
    def audio_seconds(self) -> float:
        return len(self.instructions) * self.setting.frame_seconds

    def latency_ms(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Milliseconds a frame, the low and the high bound."""
        scale = 1e-3 / self.setting.clock_mhz
        return self.cycles_low * scale, self.cycles_high * scale

    def latency(self) -> dict[str, Interval]:
        """Mean, 99th percentile and maximum of the milliseconds a frame."""
        low, high = self.latency_ms()
        return {
            "mean": Interval(float(low.mean()), float(high.mean())),
            "p99": Interval(float(np.percentile(low, 99)), float(np.percentile(high, 99))),
            "max": Interval(float(low.max()), float(high.max())),
        }

    def longest_latency(self) -> Interval:
        """Milliseconds of a frame with max_symbols tokens: no frame takes longer."""
        return self.longest_frame * (1e-3 / self.setting.clock_mhz)

    def frame_share(self) -> Interval:
        """Share of a frame's duration that its decoding takes on average: the real-time factor."""
        return self.latency()["mean"] * (1e-3 / self.setting.frame_seconds)

    def missed_deadlines(self) -> tuple[int, int]:
        """Frames whose decoding takes longer than a frame lasts, by the low and the high bound."""
        low, high = self.latency_ms()
        limit = self.setting.frame_seconds * 1e3
        return int((low > limit).sum()), int((high > limit).sum())

    def microjoules_per_second(self) -> Interval:
        """Energy of the core for decoding a second of audio, without sleep; 1 uA/MHz is 1 pC a cycle."""
        board = self.setting.board
        charge, volts = board.microamps_per_mhz, board.volts
        scale = 1e-6 / self.audio_seconds
        return Interval(
            float(self.cycles_low.sum()) * charge.low * volts.low * scale,
            float(self.cycles_high.sum()) * charge.high * volts.high * scale,
        )

    def weight_bytes_per_second(self) -> float:
        """Bytes of weights and tables read for a second of audio."""
        return float(self.work["weight_bytes"].sum()) / self.audio_seconds

    def misfits(self) -> list[str]:
        """What does not fit the board's memories."""
        board = self.setting.board
        elsewhere = self.setting.weights == "qspi" and "flash" in board.memories
        in_flash = self.flash["code"] if elsewhere else sum(self.flash.values())
        in_ram = sum(self.ram.values())
        return [
            f"needs {needed} bytes of {what}, {board.name} has {figure.high:.0f}"
            for what, needed, figure in (
                ("flash", in_flash, board.flash_bytes),
                ("RAM", in_ram, board.ram_bytes),
            )
            if needed > figure.high
        ]


def cycles_per_instruction(core: Core) -> Interval:
    """Cycles of an average instruction without wait states: the timing rules over the core's mix.

    Widened for other mixes and for what the rules leave out.
    """
    low = sum(share * core.timing[kind].low for kind, share in core.mix.items())
    high = sum(share * core.timing[kind].high for kind, share in core.mix.items())
    return Interval(low * (1 - core.below.high), high * (1 + core.above.high))


def wait_cycles(
    setting: Setting, shape: Shape, work: Mapping[str, NDArray[np.int64]]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Cycles that reading weights waits in each frame, the low and the high bound.

    At best each line is read once, with what prefetching hides hidden; and below the board's highest
    clock a memory may not wait at all. At worst each line waits in full; and where the memory holds
    fewer lines than kernels read rows side by side, each load does, twice if it may lie across two.
    """
    memory = setting.board.memories[setting.weights]
    lines = work["weight_bytes"] / memory.line_bytes
    low = memory.wait_cycles.low if setting.clock_mhz == setting.board.clock_mhz else 0.0
    if memory.lines_held >= MOST_STREAMS:
        return lines * low, lines * memory.wait_cycles.high
    loaded = operations.LOADED_BYTES[setting.core.kernels]
    across = max(1, loaded // memory.line_bytes) + any(m.cols % loaded for m in shape.matrices)
    # Beside weights, the shortest loads are the gate table's int16, and three for the 9 bytes of a row.
    loads = work["macs"] / loaded * across + (work["weight_bytes"] - work["macs"]) / 2
    return lines * low, np.maximum(lines, loads) * memory.wait_cycles.high


def _cost(
    setting: Setting, shape: Shape, events: operations.Events
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Instructions of each frame, and the low and the high bound of its cycles."""
    counts = operations.operations(shape, events, setting.core.kernels)
    instructions = operations.instructions(counts, setting.core.instructions)
    each = cycles_per_instruction(setting.core)
    low, high = wait_cycles(setting, shape, operations.work(shape, events))
    return instructions, instructions * each.low + low, instructions * each.high + high


@dataclass(frozen=True)
class Decoded:
    """What happened when a model decoded some utterances, whatever it would run on."""

    hyps: list[Hypothesis]
    lengths: list[int]
    """frames of each utterance"""
    events: operations.Events
    """of each frame, utterance after utterance"""
    saturation: dict[str, dict[str, int]]


def decode(model: Int8Model, utterances: Iterable[NDArray[Any]]) -> Decoded:
    """Decodes utterances frame by frame as a stream would, and counts.

    Args:
        model: the int8 model.
        utterances: encoder frames [T, enc_hidden] of each.

    Raises:
        ValueError: no frames, or as ``rnnt_greedy``, with the utterance's number.
    """
    hyps, parts, lengths = [], [], []
    counters = SaturationCounters()
    for index, enc in enumerate(utterances):
        try:
            rnnt_greedy(model, enc, counters=counters)
            hyp, _, events = operations.watch(model, enc, model.config.max_symbols)
        except ValueError as error:
            raise ValueError(f"utterance {index}: {error}") from None
        hyps.append(hyp)
        parts.append(events)
        lengths.append(len(enc))
    if not sum(lengths):
        raise ValueError("there are 0 encoder frames, wanted at least 1")
    return Decoded(hyps, lengths, operations.Events.joined(parts), counters.as_dict())


def simulate(model: Int8Model, decoded: Decoded, setting: Setting) -> Simulation:
    """What it would have cost to decode this on a core.

    Args:
        model: the int8 model.
        decoded: by it, from ``decode``.
        setting: core, board, clock, memory.
    """
    core, config, events = setting.core, model.config, decoded.events
    shape = Shape.of(model, setting.gate_table)
    work = operations.work(shape, events)
    instructions, low, high = _cost(setting, shape, events)
    longest = operations.Events.longest_frame(config.max_symbols, config.vocab_size + 1)
    _, least, most = _cost(setting, shape, longest)
    in_ram = {"weights": shape.stored_bytes} if setting.weights == "sram" else {}
    return Simulation(
        setting=setting,
        max_symbols=config.max_symbols,
        granularity=model.quantization.granularity,
        hyps=decoded.hyps,
        lengths=decoded.lengths,
        work=work,
        instructions=instructions,
        cycles_low=low,
        cycles_high=high,
        longest_frame=Interval(float(least[0]), float(most[0])),
        flash={
            "weights": shape.stored_bytes - shape.table_bytes,
            "tables": shape.table_bytes,
            "code": round(core.code_bytes.high),
        },
        ram={
            "state": state_bytes(config),
            "scratch": scratch_bytes(config),
            "stack": round(core.stack_bytes.high),
            **in_ram,
        },
        saturation=decoded.saturation,
    )
