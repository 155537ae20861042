"""``pkrnnt export`` and ``pkrnnt simulate``."""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tqdm import tqdm

from pkrnnt.console import DIFFERENT, DONE, say
from pkrnnt.dataset import Utterances, bundled, load_utterances
from pkrnnt.device.cores import load_board, load_core
from pkrnnt.device.export import c_sources, write_sources
from pkrnnt.device.plot import check_plot, latency_png
from pkrnnt.device.report import Agreement, Column, assumptions, table, to_json
from pkrnnt.device.self_test import self_test_sources
from pkrnnt.device.shape import (
    Shape,
    gate_table_is_smaller,
    scratch_bytes,
    state_bytes,
    vocabulary_bytes,
)
from pkrnnt.device.simulation import Setting, decode
from pkrnnt.device.simulation import simulate as simulate_setting
from pkrnnt.device.verify import check_host, emulate
from pkrnnt.greedy import rnnt_greedy
from pkrnnt.hypothesis import Hypothesis
from pkrnnt.model import FloatModel, Int8Model
from pkrnnt.storage import load, write_atomically

FRAMES = "frames as for decode (default: the bundled digits evaluation frames)"


def add_parsers(commands: Any) -> None:
    """Adds both commands to the ``pkrnnt`` command's."""
    _add_export(commands)
    _add_simulate(commands)


def _add_export(commands: Any) -> None:
    command = commands.add_parser(
        "export",
        help="C sources for a microcontroller",
        description="Writes a freestanding C99 decoder that gives the same bytes as pkrnnt.",
        epilog="example: pkrnnt export model.safetensors -o firmware --check frames.npz",
    )
    command.add_argument("model", metavar="MODEL", help="int8 model file written by python -m quant")
    command.add_argument("-o", "--output", metavar="DIR", required=True, help="folder, made if missing")
    _add_gate_table(command)
    command.add_argument("--vocabulary", action="store_true", help="add the token pieces")
    command.add_argument(
        "--self-test",
        metavar="FRAMES",
        help="add pkrnnt_self_test, which decodes these frames on the device and compares every byte",
    )
    command.add_argument(
        "--check",
        metavar="FRAMES",
        nargs="?",
        const="",
        help="(after MODEL) first build the C on this computer and compare tokens, frames, confidences, "
        f"h and c byte for byte; {FRAMES}",
    )


def _add_simulate(commands: Any) -> None:
    command = commands.add_parser(
        "simulate",
        help="what decoding costs on a core",
        description="Says what decoding frames, one at a time, costs on a core: instructions, cycles, "
        "latency, memory, energy, as intervals where only bounds are known.",
        epilog="example: pkrnnt simulate model.safetensors --core cortex-m4 --clock-mhz 64 --emulate",
    )
    add = command.add_argument
    add("model", metavar="MODEL", help="int8 model file written by python -m quant")
    add("frames", metavar="FRAMES", nargs="?", help=FRAMES)
    add(
        "--core",
        metavar="CORE",
        action="append",
        required=True,
        help="name of a core or path of a .toml description; several give columns",
    )
    add("--board", metavar="BOARD", help="name or .toml description (default: one that has the core)")
    add("--clock-mhz", type=float, metavar="F", help="clock (default: the board's)")
    add(
        "--weights",
        metavar="MEMORY",
        help="a memory of the board where weights lie: flash, sram, qspi (default: its first)",
    )
    _add_gate_table(command)
    add("--frame-ms", type=float, metavar="MS", help="duration of a frame (default: the model's)")
    add(
        "--emulate",
        action="store_true",
        help="also run the exported C under QEMU, and count instructions",
    )
    add(
        "--compare",
        metavar="OTHER",
        nargs="*",
        help="show MODEL, which comes before this, and other model files side by side, each with and "
        "without gate table",
    )
    add("--float", metavar="FLOAT", help="float model file whose tokens count as right")
    add("--json", metavar="FILE", help="write everything as JSON")
    add("--plot", metavar="PNG", help="draw latency over the frames of an utterance, on the first core")
    add("--utterance", type=int, default=0, metavar="N", help="which one --plot draws (default: 0)")
    add("--sources", action="store_true", help="list where each figure comes from")


def _add_gate_table(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--gate-table",
        choices=["auto", "on", "off"],
        default="auto",
        help="layer 0's input gates from a table of every token (default: auto, if it takes less flash)",
    )


def _int8_model(path: str) -> Int8Model:
    model = load(path)
    if not isinstance(model, Int8Model):
        raise ValueError(f"{path}: a float model, wanted an int8 one: `python -m quant {path}` makes it")
    return model


def _float_model(path: str, like: Int8Model) -> FloatModel:
    model = load(path)
    if not isinstance(model, FloatModel):
        raise ValueError(f"{path}: an int8 model, wanted a float one")
    if model.config.enc_hidden != like.config.enc_hidden:
        raise ValueError(
            f"{path}: takes frames of {model.config.enc_hidden} values, wanted {like.config.enc_hidden}"
        )
    return model


def _gate_table(option: str, model: Int8Model) -> bool:
    return gate_table_is_smaller(model) if option == "auto" else option == "on"


def _frames(path: str | None, model: Int8Model) -> Utterances:
    return load_utterances(path or bundled("evaluation.npz"), model.config.enc_hidden)


def export(options: argparse.Namespace) -> int:
    """Runs ``pkrnnt export``; nothing is written where the check finds other bytes."""
    model = _int8_model(options.model)
    gate_table = _gate_table(options.gate_table, model)
    sources = c_sources(model, gate_table=gate_table, vocabulary=options.vocabulary)
    if options.self_test is not None:
        sources |= self_test_sources(model, _frames(options.self_test, model).enc)
    if options.check is not None:
        frames = _frames(options.check, model)
        if not frames.frames:
            raise ValueError(f"{options.check} holds 0 encoder frames, wanted at least 1 to check")
        different = check_host(model, sources, frames)
        if different:
            say("\n".join(["nothing written: the C decoder gives other bytes", *different]))
            return DIFFERENT
        say(f"{len(frames)} utterances: tokens, frames, confidences, h and c are the same bytes")
    write_sources(options.output, sources)
    say(f"{options.output}: {len(sources)} files, {'with' if gate_table else 'without'} gate table")
    say(f"  model in flash {Shape.of(model, gate_table).stored_bytes:9,} bytes")
    if options.vocabulary:
        say(f"  vocabulary     {vocabulary_bytes(model.config):9,} bytes at most")
    say(f"  state          {state_bytes(model.config):9,} bytes a stream")
    say(f"  scratch        {scratch_bytes(model.config):9,} bytes")
    return DONE


def simulate(options: argparse.Namespace) -> int:
    """Runs ``pkrnnt simulate``."""
    model = _int8_model(options.model)
    frames = _frames(options.frames, model)
    if options.plot is not None:
        check_plot(list(map(len, frames)), options.utterance)
        if options.json is not None and Path(options.json).resolve() == Path(options.plot).resolve():
            raise ValueError(f"--json and --plot are both {options.plot}, wanted two files")
    columns = _columns(options, model, frames)
    files: dict[str | os.PathLike[str], bytes] = {}
    if options.json:
        files[options.json] = (json.dumps(to_json(columns), indent=1) + "\n").encode()
    if options.plot:
        files[options.plot] = latency_png(columns[0].simulation, model.config, options.utterance)
    write_atomically(files)
    say(table(columns))
    if options.sources:
        say("\n".join(["", *assumptions(columns)]))
    emulated = [column.emulated for column in columns if column.emulated is not None]
    different = [f"{found.machine}: {text}" for found in emulated for text in found.differences]
    if different:
        say("\n".join(different))
    misfits = [text for column in columns for text in column.simulation.misfits()]
    return DIFFERENT if different or misfits else DONE


def _settings(options: argparse.Namespace, model: Int8Model, path: str) -> Iterator[Setting]:
    """Each setting that was asked for, of one model."""
    for option, value in (("--frame-ms", options.frame_ms), ("--clock-mhz", options.clock_mhz)):
        if value is not None and not 0 < value < math.inf:
            raise ValueError(f"{option} is {value:g}, wanted a finite number above 0")
    seconds = model.config.frame_seconds if options.frame_ms is None else options.frame_ms / 1e3
    if seconds is None:
        raise ValueError(f"{path} does not say how long a frame is, wanted --frame-ms")
    for core in [load_core(name) for name in options.core]:
        board = load_board(options.board or core.board)
        clock = board.clock_mhz if options.clock_mhz is None else options.clock_mhz
        weights = options.weights or next(iter(board.memories))
        tables = [_gate_table(options.gate_table, model)]
        if options.compare is not None and options.gate_table == "auto":
            tables = [True, False]
        for gate_table in tables:
            yield Setting(core, board, clock, weights, gate_table, seconds)


def _columns(options: argparse.Namespace, first: Int8Model, frames: Utterances) -> list[Column]:
    paths = [options.model, *(options.compare or ())]
    models = [first, *(_int8_model(path) for path in paths[1:])]
    settings = [list(_settings(options, *pair)) for pair in zip(models, paths, strict=True)]
    right, named = None, "the first column"
    if options.float is not None:
        judge = _float_model(options.float, first)
        right, named = [rnnt_greedy(judge, enc) for enc in tqdm(frames, delay=2, leave=False)], "float"
    compared = options.float is not None or options.compare is not None
    columns = []
    for path, model, its_settings in zip(paths, models, settings, strict=True):
        decoded = decode(model, tqdm(frames, desc=Path(path).name, delay=2, leave=False))
        right = decoded.hyps if right is None else right
        columns += [
            Column(
                label="" if options.compare is None else Path(path).stem,
                simulation=simulate_setting(model, decoded, setting),
                agreement=_agreement(decoded.hyps, right, named) if compared else None,
                emulated=emulate(model, setting.gate_table, frames, setting.core)
                if options.emulate
                else None,
            )
            for setting in its_settings
        ]
    return columns


def _agreement(found: list[Hypothesis], right: list[Hypothesis], named: str) -> Agreement:
    pairs = list(zip(found, right, strict=True))
    return Agreement(
        named,
        tokens=sum(a.tokens == b.tokens for a, b in pairs),
        frames=sum((a.tokens, a.frames) == (b.tokens, b.frames) for a, b in pairs),
    )
