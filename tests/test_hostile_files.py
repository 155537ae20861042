"""Hostile and damaged checkpoints: nothing in them is executed, and they cost little time and memory."""

import io
import json
import os
import pickle
import re
import struct
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
from checkpoints import FIXTURES, rewritten

import pkrnnt
from pkrnnt import FormatError
from quant import load_checkpoint

STATUS = Path("/proc/self/status")
HANGING = 10  # seconds; a second at most without coverage, which slows the readers down sixfold


# Pickles


class Evil:
    def __init__(self, call):
        self.call = call

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ((os.system, ("touch PKRNNT_PWNED",)), "system"),
        ((eval, ("1",)), "eval"),
        ((getattr, (1, "real")), "getattr"),
        ((subprocess.Popen, (["touch", "PKRNNT_PWNED"],)), "Popen"),
    ],
)
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_d20_nothing_a_pickle_calls_is_called(tmp_path, monkeypatch, call, name, protocol):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "evil.ckpt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data.pkl", pickle.dumps({"state_dict": Evil(call)}, protocol))
    with pytest.raises(FormatError, match=rf"the pickle calls .*{name}: refused|opcode"):
        load_checkpoint(path)
    assert os.listdir(tmp_path) == ["evil.ckpt"]


def test_d20_works_without_torch():
    code = (
        "import sys; sys.modules['torch'] = None; from quant import load_checkpoint; "
        "print(load_checkpoint(sys.argv[1]).config.pred_layers)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(FIXTURES / "hybrid.nemo")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "2"


def zipped(tmp_path, entries, name="m.ckpt", **options):
    path = tmp_path / name
    with zipfile.ZipFile(path, "w", **options) as archive:
        for entry, data in entries.items():
            archive.writestr(entry, data)
    return path


def tensor_pickle(size, offset, shape, stride, storage="FloatStorage", name="a"):
    """Protocol 2 of {name: one tensor}, written out by hand."""

    def number(n):
        return b"J" + struct.pack("<i", n)

    def group(values):
        return b"(" + b"".join(map(number, values)) + b"t"

    def text(s):
        return b"X" + struct.pack("<I", len(s)) + s.encode()

    pid = (
        b"("
        + text("storage")
        + f"ctorch\n{storage}\n".encode()
        + text("0")
        + text("cpu")
        + number(size)
        + b"tQ"
    )
    args = b"(" + pid + number(offset) + group(shape) + group(stride) + b"\x89}t"
    return b"\x80\x02}" + text(name) + b"ctorch._utils\n_rebuild_tensor_v2\n" + args + b"Rs."


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((4, 0, (5,), (1,)), "reaches value 4 of a storage with 4"),
        ((4, 3, (2,), (1,)), "reaches value 4"),
        ((4, 0, (2, 2), (3, 1)), "reaches value 4"),
        ((4, 0, (2**30, 2**30), (2**30, 1)), "reaches value"),
        ((4, -1, (2,), (1,)), "at -1"),
        ((4, 0, (2,), (-1,)), "wanted: at most 8 integers >= 0"),
        ((4, 0, (2, 2), (1,)), r"has shape \(2, 2\) and strides \(1,\)"),
        ((-4, 0, (2,), (1,)), "a storage has -4 values"),
        ((4, 0, (2,), (1,), "QInt8Storage"), "a storage has type QInt8Storage"),
    ],
)
def test_tensors_that_reach_beyond_their_storage_are_refused(tmp_path, arguments, message):
    path = zipped(tmp_path, {"m/data.pkl": tensor_pickle(*arguments), "m/data/0": bytes(16)})
    with pytest.raises(FormatError, match=rf"m\.ckpt: .*{message}"):
        load_checkpoint(path)


def test_torch_archives_that_are_not_whole_are_refused(tmp_path):
    good = tensor_pickle(4, 0, (4,), (1,))
    for entries, options, message in (
        ({"m/data.pkl": good, "m/byteorder": b"big"}, {}, "endianness is b'big'"),
        ({"m/x": b""}, {}, r"wanted one data\.pkl"),
        ({"m/data.pkl": good, "n/data.pkl": good}, {}, r"wanted one data\.pkl"),
        ({"m/data.pkl": good}, {"compression": zipfile.ZIP_DEFLATED}, "is compressed"),
        ({"m/data.pkl": b"\x80\x02]."}, {}, "not a dict of tensors"),
        ({"m/data.pkl": b"\x80\x02}."}, {}, "holds no tensors"),
        ({"m/data.pkl": b"\x80\x02}"}, {}, "FormatError|ValueError|ends"),
    ):
        with pytest.raises(FormatError, match=message):
            load_checkpoint(zipped(tmp_path, entries, **options))
    (tmp_path / "text.ckpt").write_bytes(b"no checkpoint at all")
    with pytest.raises(FormatError, match=r"text\.ckpt"):
        load_checkpoint(tmp_path / "text.ckpt")


# Damaged files


FUZZED = [
    "arrays.npz", "hybrid.nemo", "digits_bf16.ckpt", "digits.f16.safetensors", "hybrid.f32.gguf",
    "hybrid_decoder_joint.onnx",
]  # fmt: skip


def undamaged(name):
    if name != "arrays.npz":
        return (FIXTURES / name).read_bytes()
    stream = io.BytesIO()
    np.savez(stream, **load_checkpoint(FIXTURES / "hybrid.nemo").tensors(), max_symbols=5)
    return stream.getvalue()


def peak_kilobytes(reset=False):
    """Largest resident memory of this process, or since the last reset; 0 where /proc is missing."""
    if not STATUS.exists():
        return 0
    if reset:
        STATUS.with_name("clear_refs").write_text("5")
    return int(re.search(r"VmHWM:\s*(\d+) kB", STATUS.read_text())[1])


def attempt(path):
    """Loads a damaged file: a FormatError that names it, or a model; quickly."""
    start, message = time.perf_counter(), None
    try:
        model = load_checkpoint(path)
    except FormatError as error:
        message = str(error)
    assert time.perf_counter() - start < HANGING
    if message is not None:
        assert path.name in message
        return False
    assert isinstance(model, pkrnnt.FloatModel)
    return True


@pytest.mark.parametrize("name", FUZZED)
def test_two_thousand_flipped_bytes(name, tmp_path, monkeypatch):
    """Half of them anywhere, half in the first and last pages, where headers are."""
    data = undamaged(name)
    rng = np.random.default_rng(4)
    path = tmp_path / name
    monkeypatch.chdir(tmp_path)
    before = peak_kilobytes(reset=True)
    refused = 0
    for turn in range(2000):
        at = int(rng.integers(0, len(data)))
        if turn % 2:
            at = (at % 8192) - (4096 if turn % 4 == 1 else 0)
        altered = bytearray(data)
        altered[at] ^= int(rng.integers(1, 256))
        path.write_bytes(altered)
        refused += not attempt(path)
    assert refused > 100
    assert os.listdir(tmp_path) == [name]
    assert peak_kilobytes() - before < 100_000


@pytest.mark.parametrize("name", FUZZED)
def test_truncation_anywhere(name, tmp_path):
    data = undamaged(name)
    path = tmp_path / name
    path.write_bytes(data)
    digest = load_checkpoint(path).digest
    sizes = sorted({*range(0, 200, 7), *np.linspace(200, len(data) - 1, 150).astype(int).tolist()})
    for size in sizes:
        path.write_bytes(data[:size])
        if attempt(path):  # only padding was lost
            assert load_checkpoint(path).digest == digest


# Small files that would take much time or memory


def two_sizes_of_a_storage(folder):
    names = (f"{pkrnnt.model.EMBED}.weight", "joint.pred.weight")
    first = tensor_pickle(4, 0, (2, 2), (2, 1), name=names[0])
    second = tensor_pickle(1 << 30, 0, (2, 1), (1 << 29, 1), name=names[1])
    pickled = first[:-1] + second[3:-2] + b"s."  # two entries of one dict
    return zipped(folder, {"m/data.pkl": pickled, "m/data/0": bytes(16)})


def ckpt(pickled):
    return lambda folder: zipped(folder, {"m/data.pkl": pickled, "m/data/0": bytes(4)})


def nemo(folder, config=b"", weights=b"", mode="w"):
    path = folder / "m.nemo"
    with tarfile.open(path, mode) as archive:
        for name, data in (("model_config.yaml", config), ("model_weights.ckpt", weights)):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def aliases(key):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    return rewritten(
        FIXTURES / "hybrid.nemo", key[0] / "m.nemo", lambda text: "\n".join([*lines, key[1]])
    )


def zeros_in_an_npz(folder):
    with zipfile.ZipFile(folder / "m.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", bytes(1 << 28))
    return folder / "m.npz"


def broadcast_scale(folder):
    onnx = pytest.importorskip("onnx")
    model = onnx.load(FIXTURES / "digits_decoder_joint.int8.onnx")
    for item in model.graph.initializer:
        if item.name.endswith("embed.weight_scale"):
            wide = np.ones((1, 200_000), np.float32)
            item.CopyFrom(onnx.numpy_helper.from_array(wide, item.name))
    onnx.save(model, folder / "m.onnx")
    return folder / "m.onnx"


def many_names_of_the_same_bytes(folder):
    header = {
        f"decoder.prediction.dec_rnn.lstm.weight_ih_l{n}": {
            "dtype": "F32", "shape": [512, 512], "data_offsets": [0, 1 << 20],
        }
        for n in range(1000)
    }  # fmt: skip
    head = json.dumps(header).encode()
    (folder / "m.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + bytes(1 << 20))
    return folder / "m.safetensors"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (two_sizes_of_a_storage, "storage 0 is described as .* and otherwise"),
        (ckpt(b"\x80\x02}()" + b"\x85" * 1_000_000 + b"Nu."), "more than 500000 opcodes"),
        (ckpt(b"\x80\x02}()" + b"\x85" * 400_000 + b"Nu."), "holds no tensors"),
        (ckpt(b"\x80\x02})" + b"q\x00h\x00\x86" * 60 + b"Ns."), "holds no tensors"),
        (
            ckpt(b"\x80\x02)" + b"q\x00h\x00\x86" * 60 + b"Q."),
            "refers to a tuple, wanted a storage",
        ),
        (ckpt(b"\x80\x02" + b"]" * 5_000_000 + b"."), "more than 500000 opcodes"),
        (
            ckpt(tensor_pickle(1, 0, (20000, 20000), (0, 0), name="joint.pred.weight")),
            "so no prediction network",
        ),
        (
            ckpt(tensor_pickle(1, 0, (20000, 20000), (0, 0), name="decoder.prediction.embed.weight")),
            "the tensors have 400000000 values, the file",
        ),
        (lambda f: nemo(f, mode="w:gz", weights=bytes(1 << 28)), "expands to more than"),
        (
            lambda f: nemo(f, b"{}", b"\x80\x02" + b"]" * 9_000_000, mode="w:gz"),
            "more than 100 opcodes",
        ),
        (lambda f: aliases((f, "labels: *a9")), "labels in model_config.yaml is not a list of pieces"),
        (lambda f: aliases((f, "decoder: {vocab_size: *a9}")), "vocab_size is a list, its tensors have"),
        (lambda f: nemo(f, b"a: 1" + b":1" * 250_000), "starts with b''"),
        (lambda f: nemo(f, b"- a\n" * 300_000), "model_config.yaml' has 1200000 bytes"),
        (zeros_in_an_npz, "bytes expand to 268435456"),
        (broadcast_scale, r"embed.weight_scale has shape \(1, 200000\)"),
        (many_names_of_the_same_bytes, "overlap"),
    ],
)
def test_bombs(make, message, tmp_path):
    path = make(tmp_path)
    before = peak_kilobytes(reset=True)
    start = time.perf_counter()
    with pytest.raises(FormatError, match=rf"{path.name}: .*({message})"):
        load_checkpoint(path)
    assert time.perf_counter() - start < HANGING
    assert peak_kilobytes() - before < 100_000


def test_a_name_twice_in_a_safetensors_header_is_refused(tmp_path):
    entry = '"joint.enc.bias": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}'
    head = ("{" + entry + ", " + entry + "}").encode()
    path = tmp_path / "m.safetensors"
    path.write_bytes(len(head).to_bytes(8, "little") + head + bytes(4))
    with pytest.raises(FormatError, match="names a tensor or a key twice"):
        load_checkpoint(path)
