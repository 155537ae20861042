"""The extension table. Everything else about the package is in pyproject.toml.

PKRNNT_DEBUG=1 builds with bounds checks on, and undefined behaviour in C ends the process. The
extensions use memoryviews only, never NumPy's C interface, so NumPy is not needed to build and
no NumPy ABI is baked in.
"""

import os
import platform
import sys

from Cython.Build import cythonize
from setuptools import Extension, setup

DEBUG = os.environ.get("PKRNNT_DEBUG") == "1"
MSVC = sys.platform == "win32"

# No contraction: a fused multiply-add would round encoder frames differently on some machines.
PLAIN_FLAGS = [] if MSVC else ["-O3", "-g0", "-ffp-contract=off"]
if DEBUG and not MSVC:
    PLAIN_FLAGS = [
        "-O1",
        "-ffp-contract=off",
        "-fsanitize=undefined",
        "-fsanitize-undefined-trap-on-error",
    ]
WARNINGS = [] if MSVC else ["-Wall"]

# Kernel variants for these processors only; one that the compiler cannot build is left out.
X86 = platform.machine().lower() in ("x86_64", "amd64") and not MSVC
ARM64 = platform.machine().lower() in ("arm64", "aarch64") and not MSVC
AVX512 = ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni"]
VARIANTS = {
    **({"avx2": ["-mavx2"], "avxvnni": ["-mavx2", "-mavxvnni"], "avx512vnni": AVX512} if X86 else {}),
    **({"neon_dotprod": ["-march=armv8.2-a+dotprod"]} if ARM64 else {}),
}

MODULES = [
    "pkrnnt.fixed_point",
    "pkrnnt.saturation",
    "pkrnnt.frames",
    "pkrnnt.kernels.baseline",
    "pkrnnt.kernels.dispatch",
    "pkrnnt.kernels.linear",
    "pkrnnt.kernels.vectors",
    "pkrnnt.prediction",
    "pkrnnt.joint",
    "pkrnnt.decoder",
]

DIRECTIVES = {
    "language_level": 3,
    "boundscheck": DEBUG,
    "initializedcheck": DEBUG,
    "cdivision": True,
    "embedsignature": True,
    "freethreading_compatible": True,
}


def extension(module, flags):
    return Extension(
        module,
        [module.replace(".", "/") + ".pyx"],
        extra_compile_args=PLAIN_FLAGS + WARNINGS + flags,
    )


extensions = [extension(module, []) for module in MODULES]
extensions += [extension(f"pkrnnt.kernels.{name}", flags) for name, flags in VARIANTS.items()]
# Forced: cythonize looks at the sources only, and would keep C files made with other directives.
extensions = cythonize(extensions, compiler_directives=DIRECTIVES, force=True)
for built in extensions:
    built.optional = built.name.rsplit(".", 1)[1] in VARIANTS  # cythonize() drops it
setup(ext_modules=extensions, options={"build_ext": {"parallel": os.cpu_count()}})
