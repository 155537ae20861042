"""Cores and boards: TOML descriptions, each figure with its source or marked as an assumption."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from pkrnnt.storage import FormatError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

KERNELS = ("scalar", "dsp", "mve")
LARGEST = 2**40

OPERATIONS = {
    "scalar": ("pass", "step", "tail", "rest"),
    "dsp": ("pass", "step", "tail", "rest", "widen"),
    "mve": ("panel", "panel_96", "panel_32", "panel_16"),
}
"""Operations of each kernel's matrix-vector product, beside those that all have."""

COMMON = (
    "frame", "prediction_step", "joint_step", "token", "matvec", "block", "row",
    "lstm_unit", "relu_unit", "table_unit", "logit", "exp_term", "skipped_term",
)  # fmt: skip
"""Operations that every core has. A row is requantized and stored, a block is up to 32 rows."""

MIX = ("load", "store", "branch", "multiply", "divide", "vector", "other")
"""Kinds of instructions that take different times."""


@dataclass(frozen=True)
class Figure:
    """A number as an interval, and where it comes from."""

    low: float
    high: float
    source: str
    assumption: bool = False

    def __str__(self) -> str:
        return f"{self.low:.10g}" if self.low == self.high else f"{self.low:.10g} to {self.high:.10g}"


@dataclass(frozen=True)
class Emulator:
    """A board of QEMU that has the core."""

    machine: str
    clock_hz: int
    flash_origin: int
    flash_bytes: int
    model_origin: int
    """a memory of its own for the model, so that it may be larger than the board's flash"""
    model_bytes: int
    ram_origin: int
    ram_bytes: int


@dataclass(frozen=True)
class Core:
    """A processor core: how programs are built for it, what they execute, how long that takes."""

    name: str
    kernels: str
    """which of the runtime's kernels it gets: ``"scalar"``, ``"dsp"`` or ``"mve"``"""
    compiler_flags: tuple[str, ...]
    board: str
    """description of a board it is on, taken where none is named"""
    emulator: Emulator
    code_bytes: Figure
    """of the runtime with its tables, without the model"""
    stack_bytes: Figure
    instructions: Mapping[str, float]
    """instructions of each operation"""
    instructions_source: str
    mix: Mapping[str, float]
    """share of each kind of instruction"""
    mix_source: str
    timing: Mapping[str, Figure]
    """cycles of an instruction of each kind, without wait states"""
    below: Figure
    """share of the cycles by which other models, which execute other mixes, may stay below the rules"""
    above: Figure
    """the same above, and for what the rules leave out: contention, stalls"""


@dataclass(frozen=True)
class Memory:
    """Where weights may lie: how long reading a line takes beyond a cycle a load."""

    line_bytes: int
    lines_held: int
    """lines that stay at hand: of a cache, or 1 of a read buffer"""
    wait_cycles: Figure
    """a line, at the board's highest clock; low is what prefetching and caches may hide at best"""


@dataclass(frozen=True)
class Board:
    """A chip or board: clock, memories, energy."""

    name: str
    core: str
    clock_mhz: float
    """the highest"""
    flash_bytes: Figure
    ram_bytes: Figure
    memories: Mapping[str, Memory]
    """by name: ``flash``, ``sram``, ``qspi``"""
    microamps_per_mhz: Figure
    volts: Figure


class _Table:
    """A TOML table whose every entry is taken once, checked, and none left over."""

    def __init__(self, where: str, values: Any):
        if not isinstance(values, dict):
            raise FormatError(f"{where} is {values!r}, wanted a table")
        self.where, self.values = where, dict(values)

    def take(self, key: str, kind: type, least: int = 0) -> Any:
        value = self.values.pop(key, None)
        wanted = (int, float) if kind is float else kind
        if not isinstance(value, wanted) or isinstance(value, bool):
            raise FormatError(f"{self.where}: {key} is {value!r}, wanted {kind.__name__}")
        if isinstance(value, int | float) and not least <= value < LARGEST:
            shown = str(value)[:40]
            raise FormatError(f"{self.where}: {key} is {shown}, wanted at least {least}, below 2^40")
        return value

    def table(self, key: str) -> _Table:
        return _Table(f"{self.where}: {key}", self.values.pop(key, None))

    def figure(self, key: str) -> Figure:
        """``{value}`` or ``{low, high}``, with ``source`` or ``assumption``."""
        entry = self.table(key)
        if "value" in entry.values:
            low = high = float(entry.take("value", float))
        else:
            low, high = float(entry.take("low", float)), float(entry.take("high", float))
        if low > high:
            raise FormatError(f"{entry.where}: low is {low:g} and high {high:g}, wanted low <= high")
        assumed = "assumption" in entry.values
        source = entry.take("assumption" if assumed else "source", str)
        if not source.strip():
            raise FormatError(f"{entry.where}: the source is empty, wanted where the figure comes from")
        entry.end()
        return Figure(low, high, source, assumed)

    def end(self) -> None:
        if self.values:
            raise FormatError(f"{self.where}: unknown entries {sorted(self.values)}, wanted none")


def _read(folder: str, name: str | os.PathLike[str]) -> _Table:
    """A description by its name in the package, or by the path of a TOML file."""
    text = os.fspath(name)
    known = names(folder)
    if text in known:
        data = (resources.files("pkrnnt.device") / folder / f"{text}.toml").read_bytes()
    elif text.endswith(".toml"):
        data = Path(text).read_bytes()
    else:
        raise ValueError(f"{folder[:-1]} is {text!r}, wanted one of {known} or the path of a .toml file")
    try:
        return _Table(text, tomllib.loads(data.decode()))
    except (ValueError, RecursionError) as error:  # TOMLDecodeError, and numbers of too many digits
        raise FormatError(f"{text}: not a TOML file: {error}") from None


def names(folder: str) -> list[str]:
    """Descriptions in the package: ``folder`` is ``"cores"`` or ``"boards"``."""
    packaged = resources.files("pkrnnt.device") / folder
    return sorted(item.name[:-5] for item in packaged.iterdir() if item.name.endswith(".toml"))


def load_core(name: str | os.PathLike[str]) -> Core:
    """The description of a core.

    Args:
        name: of one in the package (``names("cores")``), or the path of a TOML file like those.

    Raises:
        FormatError: an entry is missing, unknown or not what it should be; the message names it.
        ValueError: no such name.
        OSError: the file cannot be opened.
    """
    top = _read("cores", name)
    kernels = top.take("kernels", str)
    if kernels not in KERNELS:
        raise FormatError(f"{top.where}: kernels is {kernels!r}, wanted one of {KERNELS}")
    flags = top.take("compiler_flags", list)
    if not all(isinstance(flag, str) and flag.startswith("-m") for flag in flags):
        raise FormatError(f"{top.where}: compiler_flags is {flags}, wanted flags that start with -m")
    emulator, program = top.table("emulator"), top.table("program")
    instructions, mix, timing = top.table("instructions"), top.table("mix"), top.table("timing")
    core = Core(
        name=top.take("name", str),
        kernels=kernels,
        compiler_flags=tuple(flags),
        board=top.take("board", str),
        emulator=Emulator(
            machine=emulator.take("machine", str),
            clock_hz=emulator.take("clock_hz", int, least=1),
            **{
                f"{memory}_{what}": emulator.take(f"{memory}_{what}", int)
                for memory in ("flash", "model", "ram")
                for what in ("origin", "bytes")
            },
        ),
        code_bytes=program.figure("code_bytes"),
        stack_bytes=program.figure("stack_bytes"),
        instructions_source=instructions.take("source", str),
        instructions={
            key: float(instructions.take(key, float)) for key in (*COMMON, *OPERATIONS[kernels])
        },
        mix_source=mix.take("source", str),
        mix={key: float(mix.take(key, float)) for key in MIX},
        timing={key: timing.figure(key) for key in MIX},
        below=timing.figure("below"),
        above=timing.figure("above"),
    )
    for table in (emulator, program, instructions, mix, timing, top):
        table.end()
    total = sum(core.mix.values())
    if not 0.99 < total < 1.01:
        raise FormatError(f"{top.where}: the shares of mix add up to {total:g}, wanted 1")
    if not sum(share * core.timing[kind].low for kind, share in core.mix.items()) > 0:
        raise FormatError(f"{top.where}: the instructions of mix take 0 cycles, wanted more")
    return core


def load_board(name: str | os.PathLike[str]) -> Board:
    """The description of a board; arguments and errors as ``load_core``."""
    top = _read("boards", name)
    energy, memory = top.table("energy"), top.table("memory")
    memories = {}
    for key in list(memory.values):
        entry = memory.table(key)
        line, held = (entry.take(size, int, least=1) for size in ("line_bytes", "lines_held"))
        memories[key] = Memory(line, held, entry.figure("wait_cycles"))
        entry.end()
    if not memories:
        raise FormatError(f"{memory.where} is empty, wanted at least one memory for weights")
    board = Board(
        name=top.take("name", str),
        core=top.take("core", str),
        clock_mhz=float(top.take("clock_mhz", float)),
        flash_bytes=top.figure("flash_bytes"),
        ram_bytes=top.figure("ram_bytes"),
        memories=memories,
        microamps_per_mhz=energy.figure("microamps_per_mhz"),
        volts=energy.figure("volts"),
    )
    energy.end()
    top.end()
    return board
