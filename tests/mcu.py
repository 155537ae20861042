"""The emulated cores for the tests: which there are, and what happens where the tools are missing."""

import os
import shutil

import numpy as np
import pytest

from pkrnnt.device import toolchain
from pkrnnt.device.cores import load_core, names

CORES = names("cores")
TOOLS = (toolchain.CROSS_COMPILER, toolchain.SIZE, toolchain.EMULATOR)


def need_mcu():
    """Skips a test where the cross compiler or the emulator is missing; fails if REQUIRE_MCU=1."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        message = f"{', '.join(missing)} not installed (Debian: gcc-arm-none-eabi, qemu-system-arm)"
        if os.environ.get("REQUIRE_MCU") == "1":
            pytest.fail(message)
        pytest.skip(message)


class Kernels:
    """The runtime's kernels, built with tests/device/kernels.c for a core, or for this computer."""

    FILES = (
        "pkrnnt_fixed_point.c", "pkrnnt_fixed_point.h", "pkrnnt_joint.c", "pkrnnt_joint.h",
        "pkrnnt_kernels.h", "pkrnnt_matvec.c", "pkrnnt_target.h", "pkrnnt_vectors.c",
        "pkrnnt_vectors_mve.c",
    )  # fmt: skip

    def __init__(self, folder, sources, driver, core=None, flags=()):
        around = toolchain.harness()
        files = {name: sources[name] for name in self.FILES}
        files |= {"kernels.c": driver, "harness.h": around["harness.h"]}
        name = "host.c" if core is None else "cortex_m.c"
        files[name] = around[name]
        self.folder, self.core = folder, None if core is None else load_core(core)
        if core is None:
            self.program = toolchain.build_host(folder, files, flags)
        else:
            self.program = toolchain.build_core(folder, files, self.core, flags)

    def run(self, requests):
        """What each request gives, as one list of ints; requests are lists of ints and arrays."""
        parts = [np.ravel(part) for request in requests for part in request]
        data = np.concatenate([*parts, [0]]).astype("<i8")
        assert ((data >= -(2**31)) & (data < 2**31)).all()
        (self.folder / "input.bin").write_bytes(data.astype("<i4").tobytes())
        if self.core is None:
            toolchain.run_host(self.program)
        else:
            toolchain.run_core(self.program, self.core)
        return np.frombuffer((self.folder / "output.bin").read_bytes(), "<i4").tolist()
