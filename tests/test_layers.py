"""The house rules of docs/architecture.md, checked on the sources."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
IMPORT = re.compile(r"^\s*(?:from\s+([\w.]+)\s+c?import|c?import\s+([\w.]+))", re.MULTILINE)

ONLINE = sorted((ROOT / "pkrnnt").rglob("*.py*"))
SOURCES = [path for path in ONLINE if path.suffix in {".py", ".pyx", ".pxd", ".pxi"}]


def imports(path):
    """Modules of ours that a source file imports; relative imports are not used."""
    text = path.read_text()
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            assert not (isinstance(node, ast.ImportFrom) and node.level)
    found = {a or b for a, b in IMPORT.findall(text)}
    return {name for name in found if name.split(".")[0] in ("pkrnnt", "quant")}


def test_pkrnnt_never_imports_quant():
    for path in SOURCES:
        assert not [name for name in imports(path) if name.startswith("quant")], path


ALLOWED = {
    "kernels": {"pkrnnt.kernels", "pkrnnt.fixed_point"},
    "fixed_point": set(),
    "saturation": set(),
    "frames": {"pkrnnt.saturation"},
    "prediction": {"pkrnnt.fixed_point", "pkrnnt.kernels", "pkrnnt.saturation"},
    "joint": {"pkrnnt.fixed_point", "pkrnnt.frames", "pkrnnt.kernels", "pkrnnt.saturation"},
    "hypothesis": set(),
    "reference": {"pkrnnt.frames", "pkrnnt.hypothesis"},
    "greedy": {"pkrnnt.hypothesis", "pkrnnt.saturation"},
    "decoder": {
        "pkrnnt.frames", "pkrnnt.hypothesis", "pkrnnt.joint", "pkrnnt.kernels", "pkrnnt.prediction",
        "pkrnnt.saturation",
    },
}  # fmt: skip


@pytest.mark.parametrize("room", ALLOWED)
def test_each_room_imports_only_what_lies_below_it(room):
    paths = [
        path
        for path in SOURCES
        if path.stem == room or (room == "kernels" and path.parent.name == "kernels")
    ]
    assert paths
    for path in paths:
        for name in imports(path):
            assert any(name == allowed or name.startswith(allowed + ".") for allowed in ALLOWED[room]), (
                f"{path.name} imports {name}"
            )


def test_only_the_command_knows_devices():
    for path in SOURCES:
        if path.parent.name != "device" and path.stem != "cli":
            assert not [name for name in imports(path) if name.startswith("pkrnnt.device")], path


@pytest.mark.parametrize(
    ("room", "allowed"),
    [
        ("shape", {"model"}),
        ("cores", {"storage"}),
        ("export", {"device.cores", "device.shape", "kernels", "model", "storage"}),
        ("self_test", {"device.export", "greedy", "model"}),
        ("operations", {"device.shape", "greedy", "hypothesis", "model"}),
        ("toolchain", {"device.cores"}),
        ("probe", {"device.cores", "device.shape", "device.toolchain", "device", "greedy", "model"}),
    ],
)
def test_rooms_of_the_device(room, allowed):
    [path] = [path for path in SOURCES if path.parent.name == "device" and path.stem == room]
    for name in imports(path):
        below = name.removeprefix("pkrnnt").removeprefix(".")
        assert not below or any(below == one or below.startswith(one + ".") for one in allowed), name


def test_floating_point_stays_where_it_belongs():
    """reference.py, quant, and frames.pyx where encoder frames become integers."""
    for path in SOURCES:
        if path.suffix == ".pyx" or path.suffix in (".pxi", ".pxd"):
            code = re.sub(r'""".*?"""|#[^\n]*', "", path.read_text(), flags=re.DOTALL)
            floats = re.findall(r"\b(?:float|double)\s+\**\w+|\b\d+\.\d+\b|<(?:float|double)>", code)
            assert "libc.math" not in code
            if path.stem == "frames":
                assert floats
            elif path.stem == "joint":  # carries the scale of frames, and gives Q0.15 as a float
                assert set(floats) <= {"float enc_inverse_scale", "32768.0"}
            elif path.stem == "decoder":
                assert set(floats) <= {"float *enc", "32768.0"}
            else:
                assert not floats, f"{path}: {floats}"


def test_importing_the_library_brings_in_no_heavy_module():
    code = (
        "import sys, pkrnnt; "
        "print(*[m for m in ('safetensors', 'tqdm', 'quant', 'argparse') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
