"""Runs an exported decoder, on this computer or emulated, and compares what it found with pkrnnt."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pkrnnt.device import toolchain
from pkrnnt.device.cores import Core
from pkrnnt.device.shape import scratch_bytes, state_bytes
from pkrnnt.greedy import rnnt_decode_frames, rnnt_decode_init
from pkrnnt.model import Config, Int8Model

FRAMES = 8  # most frames a call


@dataclass(frozen=True)
class Found:
    """One utterance as a device decoded it."""

    tokens: list[int]
    frames: list[int]
    confidence: list[int]
    """Q0.15"""
    hidden_state: NDArray[np.int8]
    """[layers, H], of the last token"""
    cell_state: NDArray[np.int16]
    """[layers, H]"""
    instructions: NDArray[np.float64]
    """of each call, zeros where the clock does not count them"""
    stack_bytes: int
    """of the deepest call, 0 where it is not measured"""


def pack(utterances: Sequence[NDArray[np.int8]], frames_a_call: int, max_symbols: int) -> bytes:
    """The harness's input.bin for int8 frames [T, E] of some utterances."""
    parts = [struct.pack("<3i", len(utterances), frames_a_call, max_symbols)]
    for enc in utterances:
        parts += [struct.pack("<i", len(enc)), enc.tobytes()]
    return b"".join(parts)


def unpack(
    data: bytes, lengths: Sequence[int], frames_a_call: int, config: Config, instructions_per_tick: float
) -> list[Found]:
    """What the harness wrote to output.bin for utterances of these lengths."""
    at = 0

    def take(dtype: str, count: int) -> NDArray[np.generic]:
        nonlocal at
        values = np.frombuffer(data, dtype, count, at)
        at += values.nbytes
        return values

    overhead = int(take("<u8", 1)[0])
    sizes, wanted = tuple(take("<i4", 2).tolist()), (state_bytes(config), scratch_bytes(config))
    if sizes != wanted:
        raise toolchain.ToolchainError(
            f"state and scratch have {sizes} bytes on the device, wanted {wanted}"
        )
    shape = (config.pred_layers, config.pred_hidden)
    found = []
    for length in lengths:
        tokens: list[tuple[int, int, int]] = []
        ticks, stack = [], 0
        for start in range(0, length, frames_a_call):
            ticks.append(int(take("<u8", 1)[0]) - overhead)
            stack = max(stack, int(take("<i4", 1)[0]))
            count = int(take("<i4", 1)[0])
            if count < 0:
                raise toolchain.ToolchainError(f"the decoder refused frame {start} with {count}")
            for token, frame, confidence in take("<i4", 3 * count).reshape(-1, 3).tolist():
                tokens.append((token, start + frame, confidence))
        found.append(
            Found(
                tokens=[token for token, _, _ in tokens],
                frames=[frame for _, frame, _ in tokens],
                confidence=[confidence for _, _, confidence in tokens],
                hidden_state=take("<i1", shape[0] * shape[1]).reshape(shape).astype(np.int8),
                cell_state=take("<i2", shape[0] * shape[1]).reshape(shape).astype(np.int16),
                instructions=np.array(ticks) * instructions_per_tick,
                stack_bytes=stack,
            )
        )
    return found


def differences(model: Int8Model, enc: NDArray[np.floating], found: Found) -> list[str]:
    """What a device found otherwise than the fused decoder; empty where every byte is the same.

    Args:
        model: whose exported decoder ran.
        enc: the utterance's encoder frames [T, enc_hidden].
        found: by the device.
    """
    state = rnnt_decode_init(model)
    hyp = rnnt_decode_frames(model, enc, state)
    h, c = state.prediction_state
    messages = []
    for what, here, there in (
        ("tokens", hyp.tokens, found.tokens),
        ("frames", hyp.frames, found.frames),
        ("confidences", [round(value * 32768) for value in hyp.confidence], found.confidence),
        ("hidden state", h.ravel().tolist(), found.hidden_state.ravel().tolist()),
        ("cell state", c.ravel().tolist(), found.cell_state.ravel().tolist()),
    ):
        if here != there:
            at = next((i for i, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), None)
            if at is None:
                messages.append(f"{len(there)} {what} on the device, wanted {len(here)}")
            else:
                messages.append(f"{what}[{at}] is {there[at]} on the device, wanted {here[at]}")
    return messages


class Device:
    """A decoder that was built, for this computer or for an emulated core.

    Args:
        folder: existing and empty, where sources, program and data go.
        sources: C sources of the decoder, from ``export.c_sources``.
        config: of its model.
        core: the core to build for and to emulate; None for this computer.
        flags: further flags for the compiler.

    Raises:
        ToolchainError: as ``build_host`` and ``build_core``.
    """

    def __init__(
        self,
        folder: Path,
        sources: dict[str, str],
        config: Config,
        core: Core | None = None,
        flags: Sequence[str] = (),
    ):
        self.folder, self.config, self.core = folder, config, core
        files = {name: text for name, text in sources.items() if name.endswith((".c", ".h"))}
        around = toolchain.harness()
        for name in ("harness.c", "harness.h", "host.c" if core is None else "cortex_m.c"):
            files[name] = around[name]
        self.symbols = config.max_symbols
        flags = [*flags, f"-DHARNESS_FRAMES={FRAMES}", f"-DHARNESS_SYMBOLS={self.symbols}"]
        if core is None:
            self.program = toolchain.build_host(folder, files, flags)
        else:
            self.program = toolchain.build_core(folder, files, core, flags)

    def decode(self, utterances: Sequence[NDArray[np.int8]], frames_a_call: int = 1) -> list[Found]:
        """Decodes int8 encoder frames [T, E] of some utterances.

        Raises:
            ToolchainError: the program or the emulator failed.
        """
        (self.folder / "input.bin").write_bytes(pack(utterances, frames_a_call, self.symbols))
        if self.core is None:
            toolchain.run_host(self.program)
        else:
            toolchain.run_core(self.program, self.core)
        data = (self.folder / "output.bin").read_bytes()
        per_tick = 0.0
        if self.core is not None:
            seconds = toolchain.NANOSECONDS_PER_INSTRUCTION * 1e-9
            per_tick = 1 / (seconds * self.core.emulator.clock_hz)
        lengths = [len(enc) for enc in utterances]
        return unpack(data, lengths, frames_a_call, self.config, per_tick)
