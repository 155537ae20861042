"""The exported C on this computer: the same bytes as the decoder here, and nothing but what it needs."""

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcu import CORES, need_mcu
from models import one_hot, quantized, random_enc, random_float_model, random_tensors, script_model
from test_device_kernels import SANITIZERS

import pkrnnt
from pkrnnt.device import toolchain
from pkrnnt.device.cores import load_core
from pkrnnt.device.export import c_sources, runtime, write_sources
from pkrnnt.device.probe import Device, differences
from pkrnnt.device.shape import Shape, gate_table_is_smaller, vocabulary_bytes

HERE = Path(__file__).parent


def check(folder, model, utterances, gate_table, flags=()):
    """Decodes with the exported C, in calls of one and of several frames, and compares every byte."""
    device = Device(folder, c_sources(model, gate_table=gate_table), model.config, flags=flags)
    for chunk in (1, 3, 8):
        found = device.decode([model.joint.quantize_enc(enc) for enc in utterances], chunk)
        assert [differences(model, enc, one) for enc, one in zip(utterances, found, strict=True)] == [
            [] for _ in utterances
        ]
    return found


@settings(max_examples=8, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    activation=st.sampled_from(["relu", "tanh", "sigmoid"]),
    layers=st.integers(1, 3),
    sizes=st.tuples(*[st.integers(1, 40)] * 5),
    granularity=st.sampled_from(["row", "gate"]),
    gate_table=st.booleans(),
    gain=st.sampled_from([0.5, 1.5, 4.0]),
)
def test_random_models_give_the_same_bytes(
    tmp_path_factory, seed, activation, layers, sizes, granularity, gate_table, gain
):
    vocab, joint, enc, hidden, embed = sizes
    float_model = random_float_model(
        seed,
        activation,
        layers=layers,
        vocab=vocab,
        joint=joint,
        enc=enc,
        hidden=hidden,
        embed=embed,
        gain=gain,
    )
    model = quantized(float_model, granularity=granularity)
    utterances = [random_enc(model, frames, seed) * 1.5 for frames in (17, 0, 5)]
    check(tmp_path_factory.mktemp("c"), model, utterances, gate_table, SANITIZERS)


@pytest.mark.parametrize("gate_table", [True, False])
def test_digits_give_the_same_bytes(tmp_path, digits_int8, digits_utterances, gate_table):
    found = check(tmp_path, digits_int8, digits_utterances, gate_table, SANITIZERS)
    assert sum(len(one.tokens) for one in found) > 400


def test_the_exported_decoder_equals_the_oracle(tmp_path, sigmoid_table):
    for seed, activation in ((20, "relu"), (12, "tanh"), (26, "sigmoid")):
        model = quantized(random_float_model(seed, activation, embed=3))
        enc = model.joint.quantize_enc(random_enc(model, 25))
        folder = tmp_path / activation
        folder.mkdir()
        [found] = Device(folder, c_sources(model), model.config).decode([enc])
        wanted = oracle.greedy(oracle.plain_model(model), enc.tolist(), 6, 3, sigmoid_table)
        assert (found.tokens, found.frames, found.confidence) == wanted[:3]
        assert found.hidden_state.tolist() == wanted[3]
        assert found.cell_state.tolist() == wanted[4]


@pytest.mark.parametrize("blank_id", [0, 3, 6])
def test_blank_anywhere(tmp_path, blank_id):
    tensors = random_tensors(np.random.default_rng(7))
    float_model = pkrnnt.FloatModel.from_tensors(
        tensors,
        blank_id=blank_id,
        max_symbols=2,
        vocabulary=["a", 'q"\\?', "\u2581ü", "\n1", "e", "??="],
    )
    model = quantized(float_model)
    for gate_table in (True, False):
        folder = tmp_path / str(gate_table)
        folder.mkdir()
        [found] = check(folder, model, [random_enc(model, 40)], gate_table, SANITIZERS)
        assert found.tokens
        assert blank_id not in found.tokens
        # A row for the start and for each id that may be looked up.
        assert Shape.of(model, gate_table).table_rows == 7 + (blank_id < 6)


def test_max_symbols_ends_a_frame(tmp_path):
    """A model that never says blank: exactly max_symbols tokens on each frame, and as many steps."""
    rules = {(0, -1): 0, (0, 0): 1, (0, 1): 0}
    model = quantized(script_model(rules, 1, 2, max_symbols=3), one_hot([0] * 4, 1))
    [found] = check(tmp_path, model, [one_hot([0] * 5, 1)], True)
    assert found.frames == [t for t in range(5) for _ in range(3)]
    assert found.tokens == [i % 2 for i in range(15)]


def test_a_vocabulary_of_nothing_but_blank(tmp_path):
    model = quantized(random_float_model(3, vocab=0))
    [found] = check(tmp_path, model, [random_enc(model, 5)], False)
    assert found.tokens == []


def test_differences_are_found_and_named(tmp_path, digits_int8, digits_utterances):
    """One bias of the joint changed in the C: the comparison must see it."""
    sources = c_sources(digits_int8)
    changed = re.sub(r"(joint_out_bias\[28\] = \{\n\s+)-?\d+", r"\g<1>90000", sources["pkrnnt_model.c"])
    assert changed != sources["pkrnnt_model.c"]
    device = Device(tmp_path, {**sources, "pkrnnt_model.c": changed}, digits_int8.config)
    enc = digits_utterances[0]
    [found] = device.decode([digits_int8.joint.quantize_enc(enc)])
    messages = differences(digits_int8, enc, found)
    assert any("tokens" in message and "on the device, wanted" in message for message in messages)
    assert any(message.startswith("hidden state[") for message in messages)


def test_what_callers_may_do(tmp_path):
    sources = c_sources(quantized(random_float_model(5, vocab=4, max_symbols=3), granularity="gate"))
    for name, text in {**sources, "api.c": (HERE / "device" / "api.c").read_text()}.items():
        (tmp_path / name).write_text(text)
    files = sorted(path.name for path in tmp_path.glob("*.c"))
    command = ["cc", *toolchain.STANDARD, *SANITIZERS, "-o", "api", *files]
    subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run(["./api"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "as documented", done.stdout + done.stderr


def test_the_vocabulary_is_the_models(tmp_path):
    pieces = ["a", 'q"\\?', "\u2581ü", "\n1", "e", "??="]
    tensors = random_tensors(np.random.default_rng(7))
    model = quantized(pkrnnt.FloatModel.from_tensors(tensors, blank_id=2, vocabulary=pieces))
    sources = c_sources(model, vocabulary=True)
    sources["main.c"] = (
        '#include <stdio.h>\n#include "pkrnnt_model.h"\nint main(void)\n{\n    int i;\n'
        "    for (i = 0; i <= PKRNNT_VOCAB_SIZE; i++) {\n"
        "        fputs(pkrnnt_vocabulary[i], stdout);\n        putchar(0);\n    }\n    return 0;\n}\n"
    )
    for name, text in sources.items():
        (tmp_path / name).write_text(text)
    files = sorted(path.name for path in tmp_path.glob("*.c"))
    subprocess.run(
        ["cc", *toolchain.STANDARD, "-Werror", "-o", "main", *files], cwd=tmp_path, check=True
    )
    printed = subprocess.run(["./main"], cwd=tmp_path, capture_output=True, check=True).stdout
    assert printed.decode().split("\0") == [*pieces[:2], "", *pieces[2:], ""]
    with pytest.raises(ValueError, match="no vocabulary"):
        c_sources(quantized(random_float_model(1)), vocabulary=True)


def test_the_runtime_needs_nothing():
    """C99, no floating point, no library: only stdint.h, and what compilers bring for vectors."""
    for name, text in runtime().items():
        code = re.sub(r"/\*.*?\*/|\"[^\"\n]*\\n\"", "", text, flags=re.DOTALL)
        assert not re.search(r"\b(float|double|malloc|calloc|free|printf|memcpy|memset)\b", code), name
        included = set(re.findall(r"#include <([^>]+)>", text))
        assert included <= {"stdint.h", "arm_mve.h"}, name


@pytest.mark.parametrize("optimization", ["-O0", "-Os", "-O3"])
@pytest.mark.parametrize("core", CORES)
def test_every_core_compiles_without_a_warning(tmp_path, core, optimization):
    need_mcu()
    sources = c_sources(quantized(random_float_model(2)), vocabulary=False)
    for name, text in sources.items():
        (tmp_path / name).write_text(text)
    files = sorted(path.name for path in tmp_path.glob("*.c"))
    flags = ["-mthumb", *load_core(core).compiler_flags, "-ffreestanding", "-fno-omit-frame-pointer"]
    command = [
        toolchain.CROSS_COMPILER,
        *toolchain.STANDARD,
        "-Werror",
        *flags,
        optimization,
        "-c",
        *files,
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_smaller_choice_is_the_default(digits_int8):
    with_table, without = (Shape.of(digits_int8, choice).stored_bytes for choice in (True, False))
    assert with_table < without
    assert gate_table_is_smaller(digits_int8)
    assert "gate_table[" in c_sources(digits_int8)["pkrnnt_model.c"]
    many_words = quantized(random_float_model(1, vocab=300, hidden=4))
    assert not gate_table_is_smaller(many_words)
    assert "embed[" in c_sources(many_words)["pkrnnt_model.c"]


@pytest.mark.parametrize("gate_table", [True, False])
def test_stored_bytes_are_those_of_the_arrays(digits_int8, gate_table):
    """Counted once more in the generated text: bytes of each array's type times its numbers."""
    text = c_sources(digits_int8, gate_table=gate_table)["pkrnnt_model.c"]
    arrays = re.findall(r"const (int8|int16|int32)_t (\w+)\[([\d* ]+)\] = \{(.*?)\};", text, re.DOTALL)
    total = 0
    for kind, name, shape, values in arrays:
        count = int(np.prod([int(size) for size in shape.split(" * ")]))
        assert len(re.findall(r"-?\d+|INT32_MIN", values.replace("INT32_MIN", "0"))) == count, name
        total += count * {"int8": 1, "int16": 2, "int32": 4}[kind]
    structures = Shape.of(digits_int8, gate_table).stored_bytes - total
    assert structures == 200  # five or six matrices of 24 bytes, and what holds them


@pytest.mark.parametrize("vocabulary", [True, False])
@pytest.mark.parametrize("layers", [1, 3])
def test_bytes_in_flash_are_those_that_the_compiler_needs(tmp_path, layers, vocabulary):
    need_mcu()
    pieces = ["a", "word", "\u2581\u00fc\u00fc", "three", "seven77", ""]
    tensors = random_tensors(np.random.default_rng(7), layers=layers, hidden=12, joint=8)
    model = quantized(pkrnnt.FloatModel.from_tensors(tensors, vocabulary=pieces))
    for name, text in c_sources(model, vocabulary=vocabulary).items():
        (tmp_path / name).write_text(text)
    flags = ["-mthumb", "-mcpu=cortex-m4", "-O2", "-c"]
    subprocess.run([toolchain.CROSS_COMPILER, *flags, "pkrnnt_model.c"], cwd=tmp_path, check=True)
    listed = subprocess.run(
        [toolchain.SIZE, "pkrnnt_model.o"], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout.splitlines()[1]
    found = sum(map(int, listed.split()[:3]))
    wanted = Shape.of(model, gate_table_is_smaller(model)).stored_bytes
    wanted += vocabulary_bytes(model.config) if vocabulary else 0
    assert wanted - (8 if vocabulary else 0) <= found <= wanted + 4  # equal strings are merged


def test_the_same_model_gives_the_same_files(tmp_path, digits_int8):
    first = c_sources(digits_int8)
    pkrnnt.save(digits_int8, tmp_path / "m.safetensors")
    assert c_sources(pkrnnt.load(tmp_path / "m.safetensors")) == first
    write_sources(tmp_path / "new" / "folder", first)
    written = {path.name: path.read_text() for path in (tmp_path / "new" / "folder").iterdir()}
    assert written == first
    assert digits_int8.digest in written["README.md"]
    assert "$" not in written["README.md"]


def test_the_readmes_example_compiles(tmp_path):
    sources = c_sources(quantized(random_float_model(1)))
    [code] = re.findall(r"```c\n(.*?)```", sources["README.md"], re.DOTALL)
    for name, text in {**sources, "example.c": code}.items():
        (tmp_path / name).write_text(text)
    subprocess.run(["cc", *toolchain.STANDARD, "-Werror", "-c", "example.c"], cwd=tmp_path, check=True)
    for core in map(load_core, CORES):
        assert f"| {core.name} | `{' '.join(core.compiler_flags)}` |" in sources["README.md"]
    listed = set(re.findall(r"`(pkrnnt_\w+)\.h`", sources["README.md"]))
    assert listed == {name[:-2] for name in sources if name.endswith(".h")}


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler on this machine")
def test_a_c_plus_plus_program_may_call_it(tmp_path):
    sources = c_sources(quantized(random_float_model(1)), vocabulary=False)
    for name, text in sources.items():
        (tmp_path / name).write_text(text)
    files = sorted(path.name for path in tmp_path.glob("*.c"))
    (tmp_path / "main.cpp").write_text(
        '#include "pkrnnt_decoder.h"\nstatic pkrnnt_state state;\nstatic pkrnnt_scratch scratch;\n'
        "int main()\n{\n    pkrnnt_decode_reset(&state);\n"
        "    return static_cast<int>(pkrnnt_decode_frames(0, 0, 1, &state, &scratch, 0, 0));\n}\n"
    )
    flags = ["-Wall", "-Wextra", "-pedantic", "-Werror"]
    subprocess.run(["cc", *toolchain.STANDARD, "-c", *files], cwd=tmp_path, check=True)
    objects = [name.replace(".c", ".o") for name in files]
    command = ["c++", *flags, "-o", "main", "main.cpp", *objects]
    subprocess.run(command, cwd=tmp_path, check=True)
    subprocess.run(["./main"], cwd=tmp_path, check=True)


def test_nothing_is_half_written(tmp_path):
    sources = c_sources(quantized(random_float_model(1)))
    (tmp_path / "pkrnnt_model.c").mkdir()
    with pytest.raises(OSError, match=r"pkrnnt_model\.c: not a regular file"):
        write_sources(tmp_path, sources)
    assert [path.name for path in tmp_path.iterdir()] == ["pkrnnt_model.c"]
