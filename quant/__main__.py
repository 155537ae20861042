"""``python -m quant``: a float checkpoint in, an int8 model out, and what it costs."""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import pkrnnt
from pkrnnt.console import DONE, run, say
from pkrnnt.dataset import Utterances, bundled, load_utterances
from pkrnnt.reference import ACTIVATIONS
from pkrnnt.storage import serialize, write_atomically
from quant import report
from quant.attribution import tensor_costs
from quant.calibration import Agreement, measure_agreement, observe
from quant.importers import load_checkpoint
from quant.importers.vocabulary import read_vocabulary
from quant.quantize import GRANULARITIES, quantize_model
from quant.ranges import range_method
from quant.rounding import WEIGHT_ROUNDINGS

TOO_LITTLE_AGREEMENT = 3

EXAMPLE = """\
examples:
  python -m quant -o digits.safetensors
      the bundled spoken-digits model, calibrated and evaluated on the bundled frames
  python -m quant model.nemo --calibration train.npz --evaluation test.npz \\
      -o model.safetensors --min-agreement 0.995 --json report.json
      a model of your own; exit status 3 and no model if fewer than 99.5 % of the argmaxes agree

exit status: 0 done, 2 bad input and nothing written, 3 agreement below --min-agreement
"""


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="python -m quant",
        description="Quantizes a float RNN-T decoder to int8 and measures what that costs.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    result.add_argument(
        "model",
        nargs="?",
        metavar="MODEL",
        help="checkpoint: .nemo .ckpt .pt .onnx .gguf .safetensors .npz (default: the bundled digits)",
    )
    result.add_argument(
        "--calibration", metavar="F", help=".npy or .npz of encoder frames to calibrate on"
    )
    result.add_argument("--evaluation", metavar="F", help="held-out frames to measure on as well")
    result.add_argument("-o", "--output", metavar="OUT", required=True, help="int8 model to write")
    result.add_argument(
        "--granularity",
        choices=GRANULARITIES,
        default="row",
        help="weight scales per row, or per LSTM gate as CMSIS-NN's LSTM wants it (default: row)",
    )
    result.add_argument(
        "--range",
        default="minmax",
        metavar="minmax|mse|percentile:P",
        help="how activation ranges are chosen (default: minmax)",
    )
    result.add_argument(
        "--weight-rounding",
        choices=WEIGHT_ROUNDINGS,
        default="gptq",
        help="gptq makes up for each weight's rounding in the others (default), or nearest",
    )
    result.add_argument(
        "--vocabulary",
        metavar="F",
        help="token pieces for a checkpoint without them: one a line, or 'piece id' as in tokens.txt",
    )
    result.add_argument(
        "--joint-activation",
        choices=sorted(ACTIVATIONS),
        help="of a checkpoint that does not say it (default then: relu)",
    )
    result.add_argument("--frame-seconds", type=float, metavar="S", help="duration of one encoder frame")
    result.add_argument(
        "--min-agreement",
        type=float,
        metavar="X",
        help="least argmax agreement, 0..1; below it exit with 3 and write no model",
    )
    result.add_argument(
        "--force", action="store_true", help="write the model even below --min-agreement"
    )
    result.add_argument("--json", metavar="REPORT", help="write the whole report as JSON")
    return result


def _frames_digest(utterances: Utterances) -> str:
    sha = hashlib.sha256()
    for enc in utterances:
        sha.update(np.ascontiguousarray(enc, np.float32).data)
    return sha.hexdigest()


def _check_paths(options: argparse.Namespace) -> None:
    """Outputs can be written, and are neither an input nor each other."""
    taken = {
        Path(path).resolve(): path
        for path in (options.model, options.calibration, options.evaluation)
        if path is not None
    }
    for path in (options.output, options.json):
        if path is None:
            continue
        target = Path(path).resolve()
        if not target.parent.is_dir():
            raise FileNotFoundError(f"{path}: the folder {target.parent} does not exist")
        if target.exists() and not target.is_file():
            raise OSError(f"{path}: not a regular file")
        if target in taken:
            raise ValueError(f"{path}: would overwrite {taken[target]}, wanted a file of its own")
        taken[target] = path


def _quantize(options: argparse.Namespace) -> int:
    _check_paths(options)
    method = range_method(options.range)
    if options.min_agreement is not None and not 0 <= options.min_agreement <= 1:
        raise ValueError(f"--min-agreement is {options.min_agreement}, wanted 0..1")
    if options.model is None:
        options.model = bundled("float.safetensors")
        options.calibration = options.calibration or bundled("calibration.npz")
        options.evaluation = options.evaluation or bundled("evaluation.npz")
    elif options.calibration is None:
        raise ValueError("a model of your own needs --calibration frames of its own encoder")
    settings = {
        name: getattr(options, name)
        for name in ("joint_activation", "frame_seconds")
        if getattr(options, name) is not None
    }
    if options.vocabulary is not None:
        settings["vocabulary"] = read_vocabulary(options.vocabulary)
    float_model = load_checkpoint(options.model, **settings)
    width = float_model.config.enc_hidden
    frames = {"calibration": load_utterances(options.calibration, width)}
    if options.evaluation is not None:
        frames["evaluation"] = load_utterances(options.evaluation, width)
        if frames["evaluation"].frames == 0:
            raise ValueError(f"{options.evaluation}: holds 0 frames, wanted some to measure on")
    digests = {name: _frames_digest(utterances) for name, utterances in frames.items()}

    observed = observe(float_model, frames["calibration"], method, report.progress)
    warnings = list(observed.warnings)
    if "evaluation" not in frames:
        warnings.append("no --evaluation frames: agreement is measured on the calibration frames only")
    elif digests["evaluation"] == digests["calibration"]:
        warnings.append("the evaluation frames are the calibration frames: nothing is held out")
    int8_model = quantize_model(
        float_model,
        observed.ranges,
        granularity=options.granularity,
        moments=observed.moments if options.weight_rounding == "gptq" else None,
        provenance={
            "float_model": float_model.digest,
            "calibration_frames": digests["calibration"],
            "calibration_utterances": observed.utterances,
            "range": options.range,
            "weight_rounding": options.weight_rounding,
            "pkrnnt": pkrnnt.__version__,
        },
    )
    sections = {
        name: measure_agreement(
            float_model, int8_model, utterances, report.progress, f"agreement, {name}"
        )
        for name, utterances in frames.items()
    }
    costs = tensor_costs(float_model, int8_model, frames["calibration"], report.progress)
    for name, section in sections.items():
        warnings += report.saturation_warnings(name, section)

    agreement = sections.get("evaluation", sections["calibration"]).argmax_agreement or 0.0
    enough = options.min_agreement is None or agreement >= options.min_agreement
    data = serialize(int8_model)
    written = enough or options.force
    files = {options.output: data} if written else {}
    if options.json:
        values = _report(options, sections, costs, warnings, len(data), written)
        files[options.json] = (json.dumps(values, indent=1) + "\n").encode()
    write_atomically(files)
    lines = [report.agreement_table(sections), "", report.tensor_table(costs), ""]
    lines += [f"warning: {warning}" for warning in warnings]
    if not enough:
        lines.append(
            f"argmax agreement is {agreement:.4%}, wanted at least {options.min_agreement:.4%}"
            + ("" if written else f"; {options.output} not written")
        )
    if written:
        lines += [
            f"{options.output}: {len(data)} bytes (float decoder: {_float_bytes(float_model)})",
            f"next: pkrnnt decode {options.output} {frames_path(options)}",
        ]
    say("\n".join(lines))
    return DONE if enough else TOO_LITTLE_AGREEMENT


def frames_path(options: argparse.Namespace) -> str:
    """The frames file to try the new model on, as short as it can be named from here."""
    path = Path(options.evaluation or options.calibration)
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _float_bytes(model: pkrnnt.FloatModel) -> int:
    return sum(array.nbytes for array in model.tensors().values())


def _report(
    options: argparse.Namespace,
    sections: dict[str, Agreement],
    costs: list[Any],
    warnings: list[str],
    size: int,
    written: bool,
) -> dict[str, Any]:
    values = {
        name: getattr(options, name)
        for name in ("granularity", "range", "weight_rounding", "min_agreement")
    }
    return {
        "options": values,
        "model_bytes": size,
        "model_written": written,
        "calibration": report.agreement_json(sections["calibration"]),
        "evaluation": (
            report.agreement_json(sections["evaluation"]) if "evaluation" in sections else None
        ),
        "tensors": [report.tensor_json(cost) for cost in costs],
        "warnings": warnings,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    options = parser().parse_args(arguments)
    logging.basicConfig(format="note: %(message)s")
    return run(lambda: _quantize(options))


if __name__ == "__main__":
    sys.exit(main())
