"""What the device's cost model knows of each core: python -m tests.benchmarks.cores [CORE ...].

Runs exported decoders of random models of many sizes under the emulator, compares them with pkrnnt, and
fits the instructions of each operation to what was executed (non-negative least squares of the relative
error of each frame). Then it shows how well the fit predicts the digits decoder, which is not among the
models. --write puts the figures into pkrnnt/device/cores. Needs gcc-arm-none-eabi, qemu-system-arm (7.2
or 8, for the plugin) and pip install "pkrnnt[bench]".
"""

import argparse
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
from scipy.optimize import nnls
from tqdm import tqdm

from pkrnnt.dataset import bundled, load_utterances
from pkrnnt.device import cores, operations, toolchain
from pkrnnt.device.export import c_sources
from pkrnnt.device.probe import Device
from pkrnnt.device.shape import Shape
from quant import load_checkpoint, observe, quantize_model
from quant.ranges import range_method
from tests.models import quantized, random_enc, random_float_model

MODELS = 50
MIXES = 16  # of which the kinds of instructions are counted, too
SIZES = {"hidden": (3, 320), "joint": (3, 320), "enc": (3, 500), "vocab": (2, 500), "embed": (3, 320)}
FRAMES = 40
OBJDUMP = "arm-none-eabi-objdump"
SHARING = 0.01
PLUGIN = Path(__file__).with_name("tcg_counts.c")
KINDS = (
    ("divide", r"[us]div"),
    (
        "branch",
        r"(b|bl|bx|blx|b(eq|ne|cs|cc|mi|pl|vs|vc|hi|ls|ge|lt|gt|le)|cbn?z|le|dls)(\.[nw])?|pop.*pc",
    ),
    ("load", r"ldr|ldm|pop"),
    ("store", r"str|stm|push"),
    ("multiply", r"mul|mla|mls|[us]mull|[us]mlal|smla|smul"),
    ("vector", r"v"),
)


def random_models():
    """(model, whether with a gate table) of many sizes, activations and depths."""
    rng = np.random.default_rng(5)
    for i in range(MODELS):
        model = random_float_model(
            i,
            ("relu", "relu", "tanh", "sigmoid")[i % 4],
            layers=1 + (i % 3 == 0),
            **{name: round(np.exp(rng.uniform(*np.log(limits)))) for name, limits in SIZES.items()},
        )
        yield quantized(model), i % 2 == 0


def digits_model():
    model = load_checkpoint(bundled("float.safetensors"))
    frames = load_utterances(bundled("calibration.npz"), model.config.enc_hidden)
    observed = observe(model, frames, range_method("minmax"))
    return quantize_model(model, observed.ranges, moments=observed.moments)


def measure(model, gate_table, utterances, core, plugin=None):
    """(operations and instructions by frame, bytes of code and stack, kinds of instructions)."""
    with tempfile.TemporaryDirectory() as folder:
        device = Device(Path(folder), c_sources(model, gate_table=gate_table), model.config, core)
        found = device.decode([model.joint.quantize_enc(enc) for enc in utterances])
        mix = Counter() if plugin is None else instruction_mix(device, plugin)
        size = toolchain.footprint(device.program)
    events = []
    for enc, one in zip(utterances, found, strict=True):
        hyp, _, seen = operations.watch(model, enc, model.config.max_symbols)
        assert (hyp.tokens, hyp.frames) == (one.tokens, one.frames)
        events.append(seen)
    shape = Shape.of(model, gate_table)
    counts = operations.operations(shape, operations.Events.joined(events), core.kernels)
    return counts, np.concatenate([one.instructions for one in found]), size, mix


def instruction_mix(device, plugin):
    """Executed instructions of each kind in the decoder's functions."""
    folder = device.folder
    toolchain.run_core(device.program, device.core, ["-plugin", f"{plugin},out=counts.txt"])
    listing = subprocess.run(
        [OBJDUMP, "-d", "--no-show-raw-insn", "-m", "armv8.1-m.main", device.program],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    function, at = None, {}
    for line in listing.splitlines():
        if start := re.match(r"[0-9a-f]+ <([^>]+)>:", line):
            function = start[1]
        elif code := re.match(r"\s*([0-9a-f]+):\s+(.*)", line):
            at[int(code[1], 16)] = (function, code[2].replace("\t", " "))
    addresses = sorted(at)
    place = {address: index for index, address in enumerate(addresses)}
    mix = Counter()
    for line in (folder / "counts.txt").read_text().splitlines():
        address, length, times = line.split()
        first = place[int(address, 16)]
        for each in addresses[first : first + int(length)]:
            name, text = at[each]
            if re.match(r"harness|call$|start$|systick$|semihosting|fault|memcpy|memset|read_int", name):
                continue
            mix[next((kind for kind, form in KINDS if re.match(form, text)), "other")] += int(times)
    return mix


def fit(measured, names):
    """Instructions of each operation that predict the frames of all models best."""
    matrix = np.concatenate(
        [np.stack([counts.get(n, 0 * y) for n in names], 1) / y[:, None] for counts, y, *_ in measured]
    )
    scale = np.maximum(np.linalg.norm(matrix, axis=0), 1e-12)
    # A little weight on small figures shares out what always occurs together, rows and passes of four.
    system = np.concatenate([matrix / scale, SHARING * np.eye(len(names))])
    wanted = np.concatenate([np.ones(len(matrix)), np.zeros(len(names))])
    found, _ = nnls(system, wanted, maxiter=100_000)
    return dict(zip(names, np.round(found / scale, 2).tolist(), strict=True))


def write(name, sections):
    """Puts sections into the description of a core."""
    path = Path(cores.__file__).parent / "cores" / f"{name}.toml"
    text = path.read_text()
    for section, body in sections.items():
        text = re.sub(rf"\[{section}\]\n.*?(?=\n\[|\Z)", f"[{section}]\n{body}", text, flags=re.DOTALL)
    path.write_text(text)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cores", nargs="*", default=cores.names("cores"), metavar="CORE")
    parser.add_argument("--write", action="store_true", help="put the figures into pkrnnt/device/cores")
    options = parser.parse_args()
    digits = digits_model()
    utterances = list(load_utterances(bundled("evaluation.npz"), digits.config.enc_hidden))
    models = [(model, table, [random_enc(model, FRAMES, 7) * 1.5]) for model, table in random_models()]
    version = subprocess.run(
        [toolchain.CROSS_COMPILER, "-dumpfullversion"], capture_output=True, text=True, check=True
    ).stdout.strip()
    with tempfile.TemporaryDirectory() as folder:
        plugin = Path(folder) / "counts.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", plugin, PLUGIN], check=True)
        for name in options.cores:
            core = cores.load_core(name)
            names = (*cores.COMMON, *cores.OPERATIONS[core.kernels])
            measured = [
                measure(*one, core, plugin if i < MIXES else None)
                for i, one in enumerate(tqdm(models, desc=name, file=sys.stderr))
            ]
            table, kinds = fit(measured, names), None
            print(f"{name}: greatest error of a random model's total "
                  f"{max(abs(error(counts, y, table)) for counts, y, *_ in measured):.2%}")  # fmt: skip
            for gate_table in (True, False):
                counts, y, (code, stack), mix = measure(digits, gate_table, utterances, core, plugin)
                kinds = kinds or mix
                clock = (y.sum() - sum(mix.values())) / len(y)
                print(f"  digits {'with' if gate_table else 'without'} gate table: "
                      f"{y.sum() / len(y):.0f} instructions a frame, "
                      f"predicted {error(counts, y, table):+.2%}; "
                      f"{Shape.of(digits, gate_table).stored_bytes} bytes and {code} of code, "
                      f"stack {stack}; "
                      f"the clock counts {clock:.1f} a call more than the plugin")  # fmt: skip
            total = sum(kinds.values())
            for bound in ("low", "high"):
                own = rules(kinds, core, bound)
                others = [rules(mix, core, bound) / own - 1 for *_, mix in measured[:MIXES]]
                print(f"  {bound} bound of cycles by the mixes of other models: "
                      f"{min(others):+.1%} to {max(others):+.1%}")  # fmt: skip
            source = f"arm-none-eabi-gcc {version} -O2; python -m tests.benchmarks.cores"
            sections = {
                "program": (
                    f'code_bytes = {{ value = {code}, source = "{source}" }}\n'
                    f'stack_bytes = {{ value = {stack}, source = "{source}" }}\n'
                ),
                "instructions": f'source = "{source}"\n'
                + "".join(f"{key} = {value}\n" for key, value in table.items()),
                "mix": f'source = "{source}, of the digits decoder with a gate table"\n'
                + "".join(f"{key} = {kinds[key] / total:.4f}\n" for key in cores.MIX),
            }
            if options.write:
                write(name, sections)
            else:
                print("\n".join(f"[{section}]\n{body}" for section, body in sections.items()))


def rules(mix, core, bound):
    """Cycles of an average instruction of a mix by the core's rules."""
    cycles = sum(count * getattr(core.timing[kind], bound) for kind, count in mix.items())
    return cycles / sum(mix.values())


def error(counts, y, table):
    """Relative error of the predicted total."""
    return operations.instructions(counts, table).sum() / y.sum() - 1


if __name__ == "__main__":
    main()
