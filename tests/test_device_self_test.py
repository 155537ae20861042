"""The self-test that is exported for a device: it passes everywhere, and notices every byte."""

import re

import numpy as np
import pytest
from mcu import CORES, need_mcu
from models import quantized, random_enc, random_float_model

from pkrnnt.cli import main
from pkrnnt.device import toolchain
from pkrnnt.device.cores import load_core
from pkrnnt.device.export import c_sources
from pkrnnt.device.self_test import self_test_sources

PROGRAM = """
#include "harness.h"
#include "pkrnnt_self_test.h"

static pkrnnt_state state;
static pkrnnt_scratch scratch;

int harness(void)
{
    const int32_t found = pkrnnt_self_test(&state, &scratch);
    harness_open();
    harness_write(&found, sizeof found);
    return 0;
}
"""


def result(folder, sources, core=None):
    """What pkrnnt_self_test returns, on this computer or on an emulated core."""
    folder.mkdir(exist_ok=True)
    around = toolchain.harness()
    files = {name: text for name, text in sources.items() if name.endswith((".c", ".h"))}
    files |= {"program.c": PROGRAM, "harness.h": around["harness.h"]}
    (folder / "input.bin").write_bytes(b"")
    if core is None:
        flags = ["-Werror", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
        toolchain.run_host(toolchain.build_host(folder, files | {"host.c": around["host.c"]}, flags))
    else:
        need_mcu()
        files["cortex_m.c"] = around["cortex_m.c"]
        described = load_core(core)
        toolchain.run_core(toolchain.build_core(folder, files, described, ["-Werror"]), described)
    return int(np.frombuffer((folder / "output.bin").read_bytes(), "<i4")[0])


@pytest.mark.parametrize("core", [None, *CORES])
def test_digits_pass(tmp_path, core, digits_int8, digits_utterances):
    utterances = [*digits_utterances[:2], digits_utterances[0][:0], digits_utterances[2]]
    sources = c_sources(digits_int8) | self_test_sources(digits_int8, utterances)
    assert result(tmp_path, sources, core) == -1


def test_other_models_pass(tmp_path):
    for seed, activation, layers in ((1, "tanh", 3), (2, "sigmoid", 1), (3, "relu", 2)):
        model = quantized(random_float_model(seed, activation, layers=layers))
        frames = [random_enc(model, n, seed) for n in (9, 1, 30)]
        sources = c_sources(model, gate_table=seed == 1) | self_test_sources(model, frames)
        assert result(tmp_path / activation, sources) == -1


@pytest.mark.parametrize(
    ("array", "number", "utterance"),
    [
        ("tokens", 0, 0),
        ("tokens", 1, 0),
        ("tokens", 2, 0),
        ("tokens", -1, 2),
        ("h", 96, 1),
        ("c", 287, 2),
        ("counts", 1, 1),
    ],
)
def test_every_byte_counts(tmp_path, array, number, utterance, digits_int8, digits_utterances):
    """One number of what is expected changed: the utterance it belongs to is named."""
    tests = self_test_sources(digits_int8, digits_utterances[:3])
    text = tests["pkrnnt_self_test_data.c"]
    start = text.index("{", text.index(f"pkrnnt_self_test_{array}["))
    places = [*re.finditer(r"-?\d+", text[start : text.index("};", start)])]
    at = places[number]
    value = int(at[0]) + (1 if int(at[0]) < 100 else -100)
    changed = text[: start + at.start()] + str(value) + text[start + at.end() :]
    sources = c_sources(digits_int8) | tests | {"pkrnnt_self_test_data.c": changed}
    assert result(tmp_path, sources) == utterance


def test_a_decoder_that_differs_is_found(tmp_path, digits_int8, digits_utterances):
    sources = c_sources(digits_int8) | self_test_sources(digits_int8, digits_utterances[:2])
    broken = sources["pkrnnt_joint.c"].replace("1895147668 +", "1895000000 +")
    assert result(tmp_path, sources | {"pkrnnt_joint.c": broken}) == 0


def test_the_command_adds_it(tmp_path, capsys, digits_int8, digits_utterances):
    import pkrnnt

    pkrnnt.save(digits_int8, tmp_path / "m.safetensors")
    np.save(tmp_path / "f.npy", digits_utterances[0])
    model, frames, out = str(tmp_path / "m.safetensors"), str(tmp_path / "f.npy"), tmp_path / "out"
    assert main(["export", model, "-o", str(out), "--self-test", frames, "--check", frames]) == 0
    sources = {path.name: path.read_text() for path in out.iterdir()}
    assert result(tmp_path / "built", sources) == -1
    np.save(tmp_path / "none.npy", digits_utterances[0][:0])
    assert main(["export", model, "-o", str(out), "--self-test", str(tmp_path / "none.npy")]) == 2
    assert "there are 0 encoder frames for a self-test" in capsys.readouterr().err
