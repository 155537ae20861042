"""How fast the decoders are: python -m tests.benchmarks.decode [--json FILE].

Every contender decodes the same utterances in turn, round after round; medians over the rounds are
shown, and ratios within this one run. Absolute times hold for one machine on one day.
"""

import argparse
import json
import platform
import statistics
import time
from pathlib import Path

import pkrnnt
from pkrnnt import kernels
from pkrnnt.dataset import bundled, load_utterances
from quant import observe, quantize_model
from quant.ranges import range_method


def digits_case():
    """The bundled digits: (float model, int8 model, evaluation utterances)."""
    model = pkrnnt.load(bundled("float.safetensors"))
    width = model.config.enc_hidden
    calibration = load_utterances(bundled("calibration.npz"), width)
    observed = observe(model, calibration, range_method("minmax"))
    int8_model = quantize_model(model, observed.ranges, moments=observed.moments)
    return model, int8_model, load_utterances(bundled("evaluation.npz"), width).enc


def decode_all(model, utterances):
    for enc in utterances:
        pkrnnt.rnnt_greedy(model, enc)


def interleaved(contenders, rounds):
    """Median seconds of each contender, all run in turn every round, after one warm-up."""
    times = {name: [] for name in contenders}
    for round_ in range(rounds + 1):
        for name, run in contenders.items():
            start = time.perf_counter()
            run()
            if round_:
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", metavar="FILE", help="write the figures as JSON")
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds (default: 7)")
    options = parser.parse_args()
    float_model, int8_model, utterances = digits_case()
    frames = sum(map(len, utterances))
    variant = kernels.selected()
    medians = interleaved(
        {
            "float, NumPy": lambda: decode_all(float_model, utterances),
            variant: lambda: decode_all(int8_model, utterances),
        },
        options.rounds,
    )
    per_utterance = {name: 1000 * value / len(utterances) for name, value in medians.items()}
    print(f"digits: {len(utterances)} utterances, {frames} frames; {platform.machine()}")
    for name, value in per_utterance.items():
        print(f"  {name:14} {value:8.3f} ms an utterance")
    print(f"  int8 is {per_utterance['float, NumPy'] / per_utterance[variant]:.1f} times faster")
    if options.json:
        case = {
            "variants": {variant: {"utterance_ms": per_utterance[variant]}},
            "peers": {"numpy_float": {"utterance_ms": per_utterance["float, NumPy"]}},
        }
        Path(options.json).write_text(json.dumps({"cases": {"digits": case}}, indent=1) + "\n")


if __name__ == "__main__":
    main()
