"""What a simulation says: a table for people, JSON for tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pkrnnt.device.cores import Figure
from pkrnnt.device.simulation import Interval, Simulation, cycles_per_instruction
from pkrnnt.device.verify import Emulated


@dataclass(frozen=True)
class Agreement:
    """How many utterances are those of another decoder."""

    named: str
    tokens: int
    """utterances with the same tokens"""
    frames: int
    """utterances with the same tokens on the same frames"""


@dataclass(frozen=True)
class Column:
    """One simulation of a report."""

    label: str
    simulation: Simulation
    agreement: Agreement | None = None
    emulated: Emulated | None = None


def _number(value: float) -> str:
    """Three significant digits, thousands with commas."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _interval(value: Interval, unit: str = "") -> str:
    both = (
        _number(value.low)
        if value.low == value.high
        else f"{_number(value.low)} - {_number(value.high)}"
    )
    return both + unit


def _rows(column: Column) -> dict[str, str]:
    one = column.simulation
    setting, latency, frames = one.setting, one.latency(), len(one.instructions)
    macs = float(one.work["macs"].sum())
    missed = one.missed_deadlines()
    rows = {
        "core": setting.core.name,
        "board": setting.board.name,
        "clock": f"{setting.clock_mhz:g} MHz",
        "weights in": setting.weights,
        "granularity": one.granularity,
        "gate table": "yes" if setting.gate_table else "no",
        "frames of": f"{setting.frame_seconds * 1e3:g} ms",
        "prediction steps, joint steps, tokens": " | ".join(
            f"{one.work[name].sum():,}" for name in ("prediction_steps", "joint_steps", "tokens")
        ),
        "multiply-accumulates a frame": _number(macs / frames),
        "requantizes, table look-ups a frame": " | ".join(
            _number(float(one.work[name].sum()) / frames) for name in ("requantizes", "lookups")
        ),
        "instructions a frame": _number(float(one.instructions.mean())),
        "instructions a multiply-accumulate": f"{float(one.instructions.sum()) / macs:.2f}",
        "cycles a frame": _interval(
            Interval(float(one.cycles_low.mean()), float(one.cycles_high.mean()))
        ),
        "latency a frame, mean": _interval(latency["mean"], " ms"),
        "latency a frame, p99": _interval(latency["p99"], " ms"),
        "latency a frame, max": _interval(latency["max"], " ms"),
        f"latency of {one.max_symbols} tokens on a frame": _interval(one.longest_latency(), " ms"),
        "share of the frame": _interval(one.frame_share() * 100, " %"),
        "times faster than real time": _interval(
            Interval(1 / one.frame_share().high, 1 / one.frame_share().low)
        ),
        "frames that miss the deadline": (
            f"{missed[0]}" if missed[0] == missed[1] else f"{missed[0]} - {missed[1]}"
        )
        + f" of {frames}",
        "flash": f"{sum(one.flash.values()):,} bytes",
        f"  {', '.join(one.flash)}": " + ".join(f"{value:,}" for value in one.flash.values()),
        "RAM": f"{sum(one.ram.values()):,} bytes",
        f"  {', '.join(one.ram)}": " + ".join(f"{value:,}" for value in one.ram.values()),
        "weights read a second": f"{_number(one.weight_bytes_per_second() / 1e3)} kB",
        "energy a second of audio": _interval(one.microjoules_per_second(), " uJ"),
        "saturated gates": f"{one.saturation['gate']['saturated']:,}",
        "saturated elsewhere": f"{_saturated_elsewhere(one):,}",
    }
    if one.misfits():
        rows["DOES NOT FIT"] = "; ".join(one.misfits())
    if column.agreement is not None:
        found = column.agreement
        rows[f"utterances with the tokens of {found.named}"] = f"{found.tokens} of {len(one.lengths)}"
        rows["  and its frames"] = f"{found.frames} of {len(one.lengths)}"
    if column.emulated is not None:
        rows |= _emulated_rows(one, column.emulated)
    return rows


def _saturated_elsewhere(one: Simulation) -> int:
    return sum(
        counts["saturated"]
        for site, counts in one.saturation.items()
        if site not in ("gate", "gate_input")
    )


def _emulated_rows(one: Simulation, found: Emulated) -> dict[str, str]:
    predicted = float(one.instructions.sum())
    return {
        "emulated board": found.machine,
        "  bytes of tokens, times, states": "the same as here" if not found.differences else "DIFFERENT",
        "  instructions a frame": _number(found.instructions / found.frames),
        "  instructions a token": _number(found.instructions / found.tokens) if found.tokens else "-",
        "  predicted instructions": f"{predicted / found.instructions - 1:+.2%}",
        "  code, stack with an interrupt": f"{found.code_bytes:,} + {found.stack_bytes:,} bytes",
    }


def table(columns: Sequence[Column]) -> str:
    """The columns side by side."""
    rows = [_rows(column) for column in columns]
    names = list(dict.fromkeys(name for found in rows for name in found))
    width = max(len(name) for name in names)
    widths = [
        max(len(column.label), *(len(value) for value in found.values()))
        for column, found in zip(columns, rows, strict=True)
    ]
    lines = []
    if any(column.label for column in columns):
        heads = (f"{column.label:>{size}}" for column, size in zip(columns, widths, strict=True))
        lines.append("  ".join([" " * width, *heads]))
    for name in names:
        cells = (f"{found.get(name, ''):>{size}}" for found, size in zip(rows, widths, strict=True))
        lines.append("  ".join([f"{name:{width}}", *cells]))
    return "\n".join(lines)


def assumptions(columns: Sequence[Column]) -> list[str]:
    """Where the figures behind the columns come from, each once."""
    lines = []
    for column in columns:
        setting = column.simulation.setting
        core, board = setting.core, setting.board
        memory = board.memories[setting.weights]
        figures: list[tuple[str, Figure]] = [
            *(
                (f"{core.name}: cycles of {kind}", core.timing[kind])
                for kind, share in core.mix.items()
                if share
            ),
            (f"{core.name}: share of cycles below the rules", core.below),
            (f"{core.name}: share of cycles above the rules", core.above),
            (f"{board.name}: cycles to wait a {memory.line_bytes}-byte line", memory.wait_cycles),
            (f"{board.name}: bytes of flash", board.flash_bytes),
            (f"{board.name}: bytes of RAM", board.ram_bytes),
            (f"{board.name}: uA/MHz", board.microamps_per_mhz),
            (f"{board.name}: volts", board.volts),
        ]
        lines.append(f"{core.name}: instructions, code and stack: {core.instructions_source}")
        lines.append(f"{core.name}: shares of kinds of instructions: {core.mix_source}")
        lines += [
            f"{name} {figure}: {'ASSUMED, ' if figure.assumption else ''}{figure.source}"
            for name, figure in figures
        ]
    return list(dict.fromkeys(lines))


def to_json(columns: Sequence[Column]) -> dict[str, Any]:
    """Everything, as JSON values; intervals are [low, high]."""
    return {"simulations": [_column_json(column) for column in columns], "sources": assumptions(columns)}


def _pair(value: Interval) -> list[float]:
    return [value.low, value.high]


def _column_json(column: Column) -> dict[str, Any]:
    one = column.simulation
    setting = one.setting
    low, high = one.latency_ms()
    return {
        "label": column.label,
        "core": setting.core.name,
        "board": setting.board.name,
        "clock_mhz": setting.clock_mhz,
        "weights": setting.weights,
        "granularity": one.granularity,
        "gate_table": setting.gate_table,
        "frame_ms": setting.frame_seconds * 1e3,
        "frames": len(one.instructions),
        "utterances": len(one.lengths),
        "work": {name: int(values.sum()) for name, values in one.work.items()},
        "instructions": float(one.instructions.sum()),
        "cycles_per_instruction": _pair(cycles_per_instruction(setting.core)),
        "cycles": [float(one.cycles_low.sum()), float(one.cycles_high.sum())],
        "latency_ms": {name: _pair(value) for name, value in one.latency().items()},
        "longest_latency_ms": _pair(one.longest_latency()),
        "real_time_factor": _pair(one.frame_share()),
        "missed_deadlines": list(one.missed_deadlines()),
        "flash_bytes": dict(one.flash),
        "ram_bytes": dict(one.ram),
        "misfits": one.misfits(),
        "weight_bytes_per_second": one.weight_bytes_per_second(),
        "microjoules_per_second": _pair(one.microjoules_per_second()),
        "saturation": one.saturation,
        "agreement": None if column.agreement is None else asdict(column.agreement),
        "emulated": None if column.emulated is None else asdict(column.emulated),
        "by_frame": {
            "instructions": np.round(one.instructions).astype(int).tolist(),
            "latency_ms_low": np.round(low, 6).tolist(),
            "latency_ms_high": np.round(high, 6).tolist(),
            "tokens": one.work["tokens"].tolist(),
        },
    }
