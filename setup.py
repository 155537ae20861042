"""The extension table. Everything else about the package is in pyproject.toml.

PKRNNT_DEBUG=1 builds with bounds checks on and without optimization. The extensions use memoryviews
only, never NumPy's C interface, so NumPy is not needed to build and no NumPy ABI is baked in.
"""

import os
import sys

from Cython.Build import cythonize
from setuptools import Extension, setup

DEBUG = os.environ.get("PKRNNT_DEBUG") == "1"
MSVC = sys.platform == "win32"

# No contraction: a fused multiply-add would round encoder frames differently on some machines.
PLAIN_FLAGS = [] if MSVC else ["-O0" if DEBUG else "-O3", "-g0", "-ffp-contract=off"]
WARNINGS = [] if MSVC else ["-Wall"]

EXTENSIONS = {
    "pkrnnt.fixed_point": PLAIN_FLAGS,
    "pkrnnt.saturation": PLAIN_FLAGS,
    "pkrnnt.frames": PLAIN_FLAGS,
    "pkrnnt.kernels.baseline": PLAIN_FLAGS,
    "pkrnnt.kernels.dispatch": PLAIN_FLAGS,
    "pkrnnt.kernels.linear": PLAIN_FLAGS,
    "pkrnnt.prediction": PLAIN_FLAGS,
    "pkrnnt.joint": PLAIN_FLAGS,
    "pkrnnt.decoder": PLAIN_FLAGS,
}

DIRECTIVES = {
    "language_level": 3,
    "boundscheck": DEBUG,
    "initializedcheck": DEBUG,
    "cdivision": True,
    "embedsignature": True,
    "freethreading_compatible": True,
}

extensions = [
    Extension(
        module,
        [module.replace(".", "/") + ".pyx"],
        extra_compile_args=flags + WARNINGS,
        depends=["pkrnnt/kernels/loops.pxi", "pkrnnt/fixed_point.pxd"],
    )
    for module, flags in EXTENSIONS.items()
]

# Forced: cythonize looks at the sources only, and would keep C files made with other directives.
setup(ext_modules=cythonize(extensions, compiler_directives=DIRECTIVES, force=True))
