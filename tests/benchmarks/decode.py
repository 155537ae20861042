"""How fast the decoders are: python -m tests.benchmarks.decode [--json FILE] [--cases NAME ...].

Every contender decodes the same utterances in turn, round after round; medians over the rounds are
shown, and ratios within this one run. Absolute times hold for one machine on one day. ONNX Runtime
and sherpa-onnx are measured where they are installed (pip install "pkrnnt[bench]").
"""

# ruff: noqa: E402
import os

# One thread for everybody: NumPy's matrix library reads these when it is loaded.
for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import argparse
import gc
import json
import platform
import statistics
import time
from collections import Counter
from pathlib import Path

import numpy as np

import pkrnnt
from pkrnnt import kernels
from pkrnnt.kernels.linear import Linear
from tests.benchmarks import cases, peers

CASES = {
    "parakeet_l1": lambda: cases.parakeet(1),
    "parakeet_l2": lambda: cases.parakeet(2),
    "small": cases.small,
    "digits": cases.digits,
}
MATRIX = (1025, 640)  # the output layer of the Parakeet size: it fits a second-level cache


def processor():
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def median_seconds(run, repeats=200):
    """Median seconds of a short call."""
    run()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def interleaved(contenders, rounds):
    """Median seconds of each contender, all run in turn every round, after one warm-up."""
    times = {name: [] for name in contenders}
    gc.disable()
    for round_ in range(rounds + 1):
        for name, run in contenders.items():
            start = time.perf_counter()
            run()
            if round_:
                times[name].append(time.perf_counter() - start)
        gc.collect()
    gc.enable()
    return {name: statistics.median(values) for name, values in times.items()}


def matrix_rates(name):
    """GMAC/s of a variant's matrix kernel from the second-level cache, one and four vectors."""
    rng = np.random.default_rng(0)

    def rate(rows, cols, vectors):
        weight, x = rng.integers(-127, 128, (rows, cols)), rng.integers(-128, 128, (vectors, cols))
        linear = Linear(weight, [0] * rows, [2**30] * rows, [0] * rows, name)
        x = x.astype(np.int8)
        # The cost of the call itself is taken away with a matrix of one column.
        tiny = Linear(weight[:, :1], [0] * rows, [2**30] * rows, [0] * rows, name)
        one = np.ascontiguousarray(x[:, :1])
        seconds = median_seconds(lambda: linear.accumulate(x)) - median_seconds(
            lambda: tiny.accumulate(one)
        )
        return rows * (cols - 1) * vectors / max(seconds, 1e-9) / 1e9

    return {"vector": rate(*MATRIX, 1), "four_vectors": rate(*MATRIX, 4)}


def peak_rate(name):
    """GMAC/s of a variant's matrix kernel with 16 kB of weights, which stay in the first-level cache."""
    rng = np.random.default_rng(0)
    linear = Linear(rng.integers(-127, 128, (32, 512)), [0] * 32, [2**30] * 32, [0] * 32, name)
    x = rng.integers(-128, 128, (4096, 512)).astype(np.int8)
    return 32 * 512 * len(x) / median_seconds(lambda: linear.accumulate(x)) / 1e9


def read_rate():
    """GB/s at which NumPy reads 5 MB, which fit a third-level cache, not a second-level one."""
    data = np.arange(5_242_880, dtype=np.int64).astype(np.int8)
    return data.nbytes / median_seconds(data.max) / 1e9


def work(model):
    """Multiply-accumulates, one a weight: of the joint's three matrices and of the LSTM.

    Layer 0's input gates come from a table.
    """
    sizes = {name: array.size for name, array in model.tensors().items()}
    return {
        "enc": sizes["joint.enc.weight"],
        "pred": sizes["joint.pred.weight"],
        "out": sizes["joint.joint_net.2.weight"],
        "lstm": sum(
            size
            for name, size in sizes.items()
            if "lstm.weight" in name and not name.endswith("weight_ih_l0")
        ),
    }


def streaming_overhead(model, utterances):
    """Microseconds a frame that one-frame chunks through the API cost over the fused loop."""
    enc = np.concatenate([np.asarray(enc, np.float32) for enc in utterances])[:3000]
    chunks = [enc[t : t + 1] for t in range(len(enc))]

    def whole():
        pkrnnt.rnnt_decode_frames(model, enc, pkrnnt.rnnt_decode_init(model))

    def single():
        state = pkrnnt.rnnt_decode_init(model)
        for chunk in chunks:
            pkrnnt.rnnt_decode_frames(model, chunk, state)

    seconds = interleaved({"whole": whole, "single": single}, 5)
    return 1e6 * (seconds["single"] - seconds["whole"]) / len(enc)


def measure(case, rounds, machine):
    """One case's figures, as JSON values; ``machine`` has what the shares are taken of."""
    variants = {name: case.int8_model.configured(kernels=name) for name in kernels.available()}

    def decode_all(decode):
        def run():
            for enc in case.utterances:
                decode(enc)

        return run

    contenders = {
        name: decode_all(lambda enc, model=model: pkrnnt.rnnt_greedy(model, enc))
        for name, model in variants.items()
    }
    contenders["numpy_float"] = decode_all(lambda enc: pkrnnt.rnnt_greedy(case.float_model, enc))
    onnx = peers.onnx_runtime(case.float_model)
    if onnx is not None:
        contenders["onnxruntime_int8"] = decode_all(onnx)
    sherpa = peers.sherpa(case.float_model, case.utterances)
    if sherpa is not None:
        contenders["sherpa_onnx_int8"] = lambda: [sherpa(n) for n in range(len(case.utterances))]
    best = variants[kernels.available()[-1]]
    cores = os.cpu_count() or 1
    several = case.utterances if len(case.utterances) > 1 else case.utterances * 8
    batches = {
        f"batch_{threads}": lambda threads=threads: pkrnnt.decode_batch(best, several, threads)
        for threads in (1, cores)
    }
    seconds = interleaved(contenders, rounds)
    batch = interleaved(batches, rounds)

    utterances, frames = len(case.utterances), sum(map(len, case.utterances))
    hyps = [pkrnnt.rnnt_greedy(case.float_model, enc) for enc in case.utterances]
    tokens = sum(map(len, hyps))
    emitting = sum(len(Counter(hyp.frames)) for hyp in hyps)
    macs = work(case.float_model)
    gmac = 1e-9 * (
        frames * macs["enc"] + tokens * (macs["lstm"] + macs["pred"]) + (frames + tokens) * macs["out"]
    )
    result = {
        "gmac": gmac / utterances,
        "frames": frames,
        "utterances": utterances,
        "tokens": tokens,
        "joint_calls": frames + tokens,
        "blank_frames": 1 - emitting / frames,
        "variants": {},
        "peers": {},
        "streaming_overhead_us": streaming_overhead(best, case.utterances),
        "batch_speedup": batch["batch_1"] / batch[f"batch_{cores}"],
        "batch_frames_per_second": sum(map(len, several)) / batch[f"batch_{cores}"],
    }
    for name, model in variants.items():
        state = model.prediction.zero_state()
        g, _ = model.prediction.step(0, state) if model.config.vocab_size else (None, None)
        pred_proj = model.joint.project_pred(g)
        enc_proj = model.joint.project_enc(case.utterances[0][:1])[0]
        joint = median_seconds(lambda: model.joint.output(enc_proj, pred_proj))  # noqa: B023
        step = median_seconds(lambda: model.prediction.step(0, state))  # noqa: B023
        read = 1e9 * machine["read_gb_per_second"]
        result["variants"][name] = {
            "joint_us": 1e6 * joint,
            "joint_share_of_read": macs["out"] / joint / read,
            "prediction_us": 1e6 * step,
            "prediction_share_of_read": macs["lstm"] / step / read,
            "utterance_ms": 1e3 * seconds[name] / utterances,
            "gmac_per_second": gmac / seconds[name],
            "share_of_peak": gmac / seconds[name] / machine["peak_gmac_per_second"],
        }
    for name in ("numpy_float", "onnxruntime_int8", "sherpa_onnx_int8"):
        if name in seconds:
            result["peers"][name] = {"utterance_ms": 1e3 * seconds[name] / utterances}
    return result


def show(name, result):
    """The table of one case."""
    print(
        f"\n{name}: {result['utterances']} utterance(s), {result['frames']} frames, "
        f"{result['tokens']} tokens, {result['blank_frames']:.1%} of the frames only blank"
    )
    print(
        f"{'':18} {'joint us':>9} {'of read':>8} {'step us':>9} {'of read':>8} {'ms an utterance':>16} "
        f"{'GMAC/s':>7} {'of peak':>8}   times faster than"
    )
    print(f"{'':85}" + "  ".join(f"{peer:>16}" for peer in result["peers"]))
    for variant, row in result["variants"].items():
        ratios = "  ".join(
            f"{peer['utterance_ms'] / row['utterance_ms']:16.1f}" for peer in result["peers"].values()
        )
        print(
            f"{variant:18} {row['joint_us']:9.1f} {row['joint_share_of_read']:8.0%} "
            f"{row['prediction_us']:9.1f} {row['prediction_share_of_read']:8.0%} "
            f"{row['utterance_ms']:16.3f} {row['gmac_per_second']:7.1f} "
            f"{row['share_of_peak']:8.0%} {ratios}"
        )
    for peer, row in result["peers"].items():
        print(f"{peer:18} {'':36} {row['utterance_ms']:17.3f}")
    print(
        f"one-frame chunks cost {result['streaming_overhead_us']:.1f} us a frame over the fused loop; "
        f"{os.cpu_count()} threads decode a batch {result['batch_speedup']:.2f} times faster than one, "
        f"{result['batch_frames_per_second']:,.0f} frames/s"
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", metavar="FILE", help="write the figures as JSON")
    parser.add_argument("--rounds", type=int, default=9, help="interleaved rounds (default: 9)")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), metavar="NAME")
    options = parser.parse_args()
    machine = {
        "processor": processor(),
        "cores": os.cpu_count(),
        "kernels": kernels.selected(),
        "peak_gmac_per_second": peak_rate(kernels.available()[-1]),
        "read_gb_per_second": read_rate(),
    }
    report = {
        "machine": machine,
        "matrix_gmac_per_second": {name: matrix_rates(name) for name in kernels.available()},
        "cases": {},
    }
    print(f"{processor()}, {os.cpu_count()} core(s); kernels in use: {kernels.selected()}")
    print(
        f"peak {machine['peak_gmac_per_second']:.0f} GMAC/s (weights in the first-level cache), "
        f"read {machine['read_gb_per_second']:.0f} GB/s (from the third); one weight is one byte"
    )
    print(f"\nmatrix kernel, {MATRIX[0]} x {MATRIX[1]}   one vector   four vectors   (GMAC/s)")
    for name, rates in report["matrix_gmac_per_second"].items():
        print(f"{name:26} {rates['vector']:12.1f} {rates['four_vectors']:14.1f}")
    for name in options.cases:
        report["cases"][name] = measure(CASES[name](), options.rounds, machine)
        show(name, report["cases"][name])
    if options.json:
        Path(options.json).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
