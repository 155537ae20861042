"""The compilers and the emulator: builds a program from C sources, and runs it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from string import Template

from tqdm import tqdm

from pkrnnt.device.cores import Core, Emulator

STANDARD = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Wconversion"]
OPTIMIZATION = "-O2"
CROSS_COMPILER = "arm-none-eabi-gcc"
SIZE = "arm-none-eabi-size"
EMULATOR = "qemu-system-arm"
NANOSECONDS_PER_INSTRUCTION = 64
SHIFT = 6  # -icount: an instruction takes 2^6 ns of the emulated clock
LIBRARY_STACK = 100  # bytes that a function of libgcc takes at most
LONGEST_RUN = 1800  # seconds, after which a program is taken to hang

PACKAGES = {
    CROSS_COMPILER: "gcc-arm-none-eabi",
    SIZE: "binutils-arm-none-eabi",
    EMULATOR: "qemu-system-arm",
    "cc": "gcc",
}


class ToolchainError(OSError):
    """A compiler or the emulator is missing or failed; the message says which, and what it printed."""


def find(*tools: str) -> str:
    """Path of the first tool; raises ToolchainError with the Debian packages of all that are missing."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        packages = " ".join(PACKAGES[tool] for tool in missing)
        install = f"apt-get install --no-install-recommends {packages}"
        raise ToolchainError(f"{', '.join(missing)} not found; on Debian: {install}")
    return str(shutil.which(tools[0]))


def _run(command: Sequence[str], folder: Path, what: str) -> str:
    """Standard output and error of a command; raises ToolchainError if it fails.

    Once it has taken two seconds, how long it has been running is shown on standard error.
    """
    started = time.monotonic()
    with (
        tqdm(desc=what, leave=False, bar_format="{desc} ... {elapsed}", delay=2) as shown,
        subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        while True:
            try:
                output, _ = process.communicate(timeout=0.5)
                break
            except subprocess.TimeoutExpired:
                shown.update()
                if time.monotonic() - started > LONGEST_RUN:
                    process.kill()
                    raise ToolchainError(f"{what} did not end within {LONGEST_RUN} s") from None
    text = output.decode(errors="replace")
    if process.returncode:
        printed = text.strip()[-2000:] or "it printed nothing"
        raise ToolchainError(f"{what} failed with status {process.returncode}: {printed}")
    return text


def harness() -> dict[str, str]:
    """Text of each file of the harness, by name."""
    folder = resources.files("pkrnnt.device") / "harness"
    return {
        item.name: item.read_text(encoding="utf-8")
        for item in folder.iterdir()
        if item.name != "__pycache__"
    }


def _write(folder: Path, files: Mapping[str, str]) -> list[str]:
    """Writes files into a folder; returns the names of the C sources."""
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return sorted(name for name in files if name.endswith(".c"))


def build_host(folder: Path, files: Mapping[str, str], flags: Sequence[str] = ()) -> Path:
    """Compiles C sources with the host's compiler ($CC, or cc).

    Args:
        folder: existing, where sources and program go.
        files: text of each source and header by name, host.c of the harness among them.
        flags: further flags.

    Raises:
        ToolchainError: no compiler, or it fails.
    """
    compiler = os.environ.get("CC", "").split() or [find("cc")]
    sources = _write(folder, files)
    program = folder / "host"
    _run([*compiler, *STANDARD, OPTIMIZATION, *flags, "-o", program.name, *sources], folder, compiler[0])
    return program


def run_host(program: Path) -> None:
    """Runs a program of ``build_host`` in its folder; raises ToolchainError if it fails."""
    _run([str(program)], program.parent, "the decoder built for this computer")


def _linker_script(emulator: Emulator) -> str:
    text = Template(harness()["cortex_m.ld.in"])
    return text.substitute(
        flash_origin=hex(emulator.flash_origin),
        flash_bytes=hex(emulator.flash_bytes),
        model_origin=hex(emulator.model_origin),
        model_bytes=hex(emulator.model_bytes),
        ram_origin=hex(emulator.ram_origin),
        ram_bytes=hex(emulator.ram_bytes),
    )


def _text_bytes(folder: Path, files: Sequence[str]) -> int:
    """Bytes of code and constants in object files and programs."""
    size = find(SIZE)
    return sum(int(line.split()[0]) for line in _run([size, *files], folder, SIZE).splitlines()[1:])


def stack_depth(graphs: Sequence[str], entry: str) -> int:
    """Bytes of stack of the deepest call chain from a function, from gcc's -fcallgraph-info=su.

    Args:
        graphs: text of the .ci files.
        entry: the function that is called.

    Raises:
        ToolchainError: a frame of unknown size or a recursion, which have no bound.
    """
    sizes: dict[str, int] = {}
    calls: dict[str, set[str]] = {}
    for text in graphs:
        for name, label in re.findall(r'node: \{ title: "([^"]+)" label: "([^"]*)"', text):
            found = re.search(r"(\d+) bytes \((\w+)", label)
            if found:
                if found[2] != "static":
                    raise ToolchainError(f"the stack of {name} is {found[2]}, wanted static")
                sizes[name] = int(found[1])
        for caller, callee in re.findall(r'edge: \{ sourcename: "([^"]+)" targetname: "([^"]+)"', text):
            calls.setdefault(caller, set()).add(callee)

    def depth(name: str, above: tuple[str, ...]) -> int:
        if name in above:
            raise ToolchainError(f"{name} calls itself, so its stack has no bound")
        deepest = (depth(callee, (*above, name)) for callee in calls.get(name, ()))
        own = sizes.get(name, LIBRARY_STACK if name.startswith("__") else 0)
        return own + max(deepest, default=0)

    [start] = [name for name in sizes if name.split(":")[-1] == entry]
    return depth(start, ())


def build_core(folder: Path, files: Mapping[str, str], core: Core, flags: Sequence[str] = ()) -> Path:
    """Compiles C sources for a core and links them for its emulated board.

    Args:
        folder: existing, where everything goes.
        files: text of each source and header by name: the decoder, and a program around it that
            has cortex_m.c of the harness.
        core: whose compiler flags and emulated board it takes.
        flags: further flags.

    Raises:
        ToolchainError: no compiler, it fails, or the program does not fit the board's memory.
    """
    compiler = find(CROSS_COMPILER, EMULATOR)
    emulator = core.emulator
    sources = _write(folder, files)
    (folder / "board.ld").write_text(_linker_script(emulator))
    common = [
        "-mthumb",
        *core.compiler_flags,
        "-ffreestanding",
        "-ffunction-sections",
        "-fdata-sections",
    ]
    _run(
        [compiler, *STANDARD, OPTIMIZATION, *common, "-fcallgraph-info=su", *flags, "-c", *sources],
        folder,
        CROSS_COMPILER,
    )
    objects = [str(Path(name).with_suffix(".o")) for name in sources]
    link = [compiler, *common, "-nostdlib", "-static", "-T", "board.ld", "-Wl,--gc-sections"]
    try:
        _run([*link, "-o", "device.elf", *objects, "-lgcc"], folder, CROSS_COMPILER)
    except ToolchainError as error:
        over = re.search(r"region `?(\w+)' overflowed by (\d+) bytes", str(error))
        if over is None:
            raise
        sizes = {"FLASH": emulator.flash_bytes, "MODEL": emulator.model_bytes, "RAM": emulator.ram_bytes}
        size = sizes[over[1]]
        raise ToolchainError(
            f"the decoder needs {size + int(over[2])} bytes of {over[1]} memory on {core.name}, "
            f"wanted at most the {size} of its emulated board {emulator.machine}"
        ) from None
    return folder / "device.elf"


def footprint(program: Path) -> tuple[int, int]:
    """What a program of ``build_core`` takes beside its model.

    Returns:
        Bytes of code and tables of the runtime and libgcc, without the harness; and of stack of the
        deepest call of pkrnnt_decode_frames.

    Raises:
        ToolchainError: the tool is missing, or the stack has no bound.
    """
    folder = program.parent
    objects = {path.name for path in folder.glob("*.o")}
    others = [name for name in sorted(objects) if not name.startswith("pkrnnt_")] + ["pkrnnt_model.o"]
    graphs = [path.read_text() for path in sorted(folder.glob("pkrnnt_*.ci"))]
    return (
        _text_bytes(folder, [program.name]) - _text_bytes(folder, others),
        stack_depth(graphs, "pkrnnt_decode_frames"),
    )


def run_core(program: Path, core: Core, options: Sequence[str] = ()) -> None:
    """Runs a program under the emulator, in its folder; raises ToolchainError if it fails.

    Every instruction takes 64 ns of the emulated clock, so SysTick counts instructions. ``options`` are
    further ones of the emulator.
    """
    command = [
        find(EMULATOR), "-M", core.emulator.machine, "-nographic", "-monitor", "none", "-serial", "none",
        "-semihosting-config", "enable=on,target=native", "-icount", f"shift={SHIFT},sleep=off",
        "-kernel", program.name, *options,
    ]  # fmt: skip
    _run(command, program.parent, f"{EMULATOR} -M {core.emulator.machine}")
