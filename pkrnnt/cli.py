"""The ``pkrnnt`` command: decode frames, look into models, export them for a device, simulate one."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from pkrnnt.console import DONE, run, say
from pkrnnt.dataset import bundled, load_utterances
from pkrnnt.device.command import add_parsers, export, simulate
from pkrnnt.greedy import rnnt_greedy
from pkrnnt.hypothesis import Hypothesis
from pkrnnt.model import Config, FloatModel, Int8Model
from pkrnnt.saturation import SaturationCounters
from pkrnnt.storage import load
from pkrnnt.text import text, words

EXAMPLE = """\
examples:
  pkrnnt decode model.safetensors frames.npz           a table of texts
  pkrnnt decode model.safetensors frames.npy --json    one JSON object a line
  pkrnnt inspect model.safetensors                     sizes, tensors, scales, provenance
  pkrnnt export model.safetensors -o firmware --check  C sources, compared byte for byte
  pkrnnt simulate model.safetensors --core cortex-m4   cycles, memory and energy on a chip

exit status: 0 done, 1 a device gives other bytes or is too small, 2 bad input
"""


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="pkrnnt",
        description="Fixed-point RNN-T decoder.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = result.add_subparsers(dest="command", required=True, metavar="COMMAND")
    decode = commands.add_parser(
        "decode",
        help="decode encoder frames",
        description="Decodes encoder frames with an int8 or a float model.",
        epilog="example: pkrnnt decode model.safetensors frames.npz --json",
    )
    decode.add_argument("model", metavar="MODEL", help="model file written by python -m quant")
    decode.add_argument(
        "frames",
        metavar="FRAMES",
        nargs="?",
        help=".npy [T, D], or .npz with enc [frames, D], enc_offsets and optionally ref_text "
        "(default: the bundled digits evaluation frames)",
    )
    decode.add_argument("--json", action="store_true", help="one JSON object a line")
    decode.add_argument(
        "--max-symbols",
        type=int,
        metavar="N",
        help="most tokens on one frame (default: the model's)",
    )
    decode.add_argument(
        "--saturation", action="store_true", help="count saturated values, on standard error"
    )
    inspect = commands.add_parser(
        "inspect",
        help="what a model file holds",
        description="Shows sizes, tensors, scales, rounding mode and provenance of a model file.",
        epilog="example: pkrnnt inspect model.safetensors",
    )
    inspect.add_argument("model", metavar="MODEL", help="model file")
    inspect.add_argument("--json", action="store_true", help="as one JSON object")
    add_parsers(commands)
    return result


def _text(config: Config, hyp: Hypothesis) -> str | None:
    return None if config.vocabulary is None else text(config, hyp.tokens)


def _times(config: Config, hyp: Hypothesis) -> list[dict[str, Any]] | None:
    if config.vocabulary is None:
        return None
    found: list[dict[str, Any]] = [word._asdict() for word in words(config, hyp)]
    if config.frame_seconds is not None:
        for word in found:
            word["start"] = round(word["first_frame"] * config.frame_seconds, 4)
            word["end"] = round((word["last_frame"] + 1) * config.frame_seconds, 4)
    return found


def decode(options: argparse.Namespace) -> int:
    model = load(options.model)
    frames = load_utterances(options.frames or bundled("evaluation.npz"), model.config.enc_hidden)
    counters = SaturationCounters() if options.saturation else None
    different = 0
    for index, enc in enumerate(frames):
        hyp = rnnt_greedy(model, enc, options.max_symbols, counters)
        shown = _text(model.config, hyp)
        if options.json:
            line = {
                "utterance": index,
                "tokens": hyp.tokens,
                "frames": hyp.frames,
                "confidence": hyp.confidence,
                "text": shown,
                "words": _times(model.config, hyp),
            }
            say(json.dumps(line))
            continue
        note = ""
        if frames.references is not None and shown is not None and shown != frames.references[index]:
            different += 1
            note = f"   (reference: {frames.references[index]})"
        say(f"{index:5}  {hyp.tokens if shown is None else shown}{note}")
    if frames.references is not None and not options.json and model.config.vocabulary is not None:
        say(f"{len(frames) - different} of {len(frames)} utterances equal their reference")
    if counters is not None:
        for site, counts in counters.as_dict().items():
            print(f"saturated {site}: {counts['saturated']} of {counts['total']}", file=sys.stderr)
    return DONE


def _tensors(model: FloatModel | Int8Model) -> list[dict[str, Any]]:
    scales = model.weight_scales() if isinstance(model, Int8Model) else {}
    return [
        {
            "name": name,
            "dtype": str(array.dtype),
            "shape": list(array.shape),
            "bytes": array.nbytes,
            "scale": [float(scales[name].min()), float(scales[name].max())] if name in scales else None,
        }
        for name, array in model.tensors().items()
    ]


def inspect(options: argparse.Namespace) -> int:
    model = load(options.model)
    tensors = _tensors(model)
    config = model.config.to_json()
    vocabulary = config.pop("vocabulary")
    values: dict[str, Any] = {
        "kind": "int8" if isinstance(model, Int8Model) else "float",
        "file_bytes": os.path.getsize(options.model),
        "tensor_bytes": sum(tensor["bytes"] for tensor in tensors),
        "digest": model.digest,
        "config": config,
        "vocabulary": vocabulary,
        "tensors": tensors,
    }
    if isinstance(model, Int8Model):
        values["quantization"] = model.quantization.to_json()
        values["provenance"] = dict(model.provenance)
        values["gate_table_bytes"] = model.prediction.gate_table_bytes
    if options.json:
        say(json.dumps(values, indent=1))
        return DONE
    say(f"{values['kind']} model, {values['file_bytes']} bytes, sha256 {model.digest[:16]}...")
    for name, value in config.items():
        say(f"  {name:18} {value}")
    shown = "unknown" if vocabulary is None else f"{len(vocabulary)} pieces: {vocabulary[:8]}..."
    say(f"  {'vocabulary':18} {shown}")
    if isinstance(model, Int8Model):
        say("quantization")
        say(f"  {'rounding':18} {model.quantization.rounding}")
        say(f"  {'granularity':18} {model.quantization.granularity}")
        for index, layer in enumerate(model.quantization.lstm):
            say(f"  LSTM layer {index}")
            for name, value in vars(layer).items():
                say(f"    {name:24} {value}")
        say("  joint")
        for name, value in vars(model.quantization.joint).items():
            say(f"    {name:24} {value}")
        say(f"  {'gate table':18} {values['gate_table_bytes']} bytes of memory, made at load")
        say("provenance")
        for name, value in model.provenance.items():
            say(f"  {name:24} {value}")
    say(f"{'tensor':48} {'dtype':8} {'shape':12} {'bytes':>9}  scale")
    for tensor in tensors:
        low, high = tensor["scale"] or (None, None)
        scale = "" if low is None else f"{low:.3g}" + (f" .. {high:.3g}" if high != low else "")
        shape = " x ".join(map(str, tensor["shape"]))
        say(f"{tensor['name']:48} {tensor['dtype']:8} {shape:12} {tensor['bytes']:9}  {scale}")
    return DONE


COMMANDS = {"decode": decode, "inspect": inspect, "export": export, "simulate": simulate}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the ``pkrnnt`` command; returns its exit status."""
    options, more = parser().parse_known_args(arguments)
    if len(more) == 1 and not more[0].startswith("-") and getattr(options, "frames", "") is None:
        options.frames = more[
            0
        ]  # behind options, which argparse does not expect of an optional argument
    elif more:
        parser().error(f"unrecognized arguments: {' '.join(more)}")
    command = COMMANDS[options.command]
    return run(lambda: command(options))
