"""Proof that an exported decoder gives the same bytes: built for this computer, or emulated."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from pkrnnt.dataset import Utterances
from pkrnnt.device import toolchain
from pkrnnt.device.cores import Core
from pkrnnt.device.export import c_sources
from pkrnnt.device.probe import FRAMES, Device, differences
from pkrnnt.model import Int8Model

BATCH = 8  # utterances a run of the emulator, so that there is progress to show


@dataclass(frozen=True)
class Emulated:
    """What the emulator executed for some utterances, a frame a call."""

    machine: str
    instructions: float
    frames: int
    tokens: int
    code_bytes: int
    stack_bytes: int
    """deepest that was seen"""
    differences: list[str]
    """from the decoder here; empty where every byte is the same"""


def check_host(model: Int8Model, sources: dict[str, str], frames: Utterances) -> list[str]:
    """Builds C sources with the host's compiler and compares them, frame by frame and in larger calls.

    Args:
        model: whose exported decoder it is.
        sources: from ``export.c_sources``.
        frames: encoder frames to decode.

    Returns:
        What is otherwise than in the decoder here; empty where every byte is the same.

    Raises:
        ToolchainError: no compiler, or it fails.
    """
    found = []
    with tempfile.TemporaryDirectory() as folder:
        device = Device(Path(folder), sources, model.config)
        for chunk in (1, FRAMES):
            decoded = device.decode([model.joint.quantize_enc(enc) for enc in frames], chunk)
            for index, (enc, one) in enumerate(zip(frames, decoded, strict=True)):
                where = f"utterance {index}, {chunk} frame(s) a call"
                found += [f"{where}: {text}" for text in differences(model, enc, one)]
    return found


def emulate(model: Int8Model, gate_table: bool, frames: Utterances, core: Core) -> Emulated:
    """Builds the exported decoder for a core, and runs it on the emulated board, a frame a call.

    Raises:
        ToolchainError: a tool is missing or fails, or the program does not fit the board.
    """
    different, instructions, tokens, stack = [], 0.0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        device = Device(Path(folder), c_sources(model, gate_table=gate_table), model.config, core)
        starts = range(0, len(frames), BATCH)
        for start in tqdm(starts, desc=f"emulating {core.name}", delay=2, leave=False):
            part = frames.enc[start : start + BATCH]
            decoded = device.decode([model.joint.quantize_enc(enc) for enc in part])
            for index, (enc, one) in enumerate(zip(part, decoded, strict=True), start):
                different += [f"utterance {index}: {text}" for text in differences(model, enc, one)]
                instructions += float(one.instructions.sum())
                tokens += len(one.tokens)
                stack = max(stack, one.stack_bytes)
        code, _ = toolchain.footprint(device.program)
        return Emulated(
            machine=core.emulator.machine,
            instructions=instructions,
            frames=frames.frames,
            tokens=tokens,
            code_bytes=code,
            stack_bytes=stack,
            differences=different,
        )
