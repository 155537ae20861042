"""Chooses a kernel variant at import. ``PKRNNT_KERNELS=name`` forces one, and fails if it is not there.

Two separate facts decide: whether a variant was built, and whether this processor and its operating
system can run it. The second is asked first: importing a variant already runs its code.
"""

import importlib
import os

from cpython.pycapsule cimport PyCapsule_GetPointer

cdef extern from *:
    """
    #if (defined(__x86_64__) || defined(__i386__)) && defined(__GNUC__)
    #include <cpuid.h>
    static int pkrnnt_has_avx2(void) { return __builtin_cpu_supports("avx2") != 0; }
    static int pkrnnt_has_avxvnni(void) {
        /* Leaf 7, sub-leaf 1, EAX bit 4; AVX2 stands for the system's support of the registers. */
        unsigned a, b, c, d;
        return pkrnnt_has_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
    }
    static int pkrnnt_has_avx512vnni(void) {
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
            && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
            && __builtin_cpu_supports("avx512vnni");
    }
    #else
    static int pkrnnt_has_avx2(void) { return 0; }
    static int pkrnnt_has_avxvnni(void) { return 0; }
    static int pkrnnt_has_avx512vnni(void) { return 0; }
    #endif

    #if defined(__aarch64__) && defined(__linux__)
    #include <sys/auxv.h>
    static int pkrnnt_has_dotprod(void) { return (getauxval(AT_HWCAP) >> 20) & 1; /* ASIMDDP */ }
    #elif defined(__aarch64__) && defined(__APPLE__)
    static int pkrnnt_has_dotprod(void) { return 1; /* every arm64 Mac */ }
    #else
    static int pkrnnt_has_dotprod(void) { return 0; }
    #endif
    """
    bint pkrnnt_has_avx2()
    bint pkrnnt_has_avxvnni()
    bint pkrnnt_has_avx512vnni()
    bint pkrnnt_has_dotprod()

# Best last. A variant is available when this machine supports it and it was built.
SUPPORTED = {
    "baseline": True,
    "neon_dotprod": pkrnnt_has_dotprod(),
    "avx2": pkrnnt_has_avx2(),
    "avxvnni": pkrnnt_has_avxvnni(),
    "avx512vnni": pkrnnt_has_avx512vnni(),
}


def _load():
    tables = {}
    for name, supported in SUPPORTED.items():
        if supported:
            try:
                module = importlib.import_module(f"pkrnnt.kernels.{name}")
            except ModuleNotFoundError:
                continue  # the compiler could not build it: left out, never an error
            tables[name] = module.table
    return tables


_tables = _load()


def available():
    """Names of the kernel variants that can run here, best last (tuple of str)."""
    return tuple(_tables)


def selected():
    """Name of the kernel variant in use (str)."""
    return _selected


def _select():
    forced = os.environ.get("PKRNNT_KERNELS")
    if not forced:
        return available()[-1]
    if forced not in _tables:
        raise ImportError(
            f"PKRNNT_KERNELS is {forced!r}, wanted one of those available here: "
            f"{', '.join(available())}")
    return forced


_selected = _select()


cdef const KernelTable *find_table(name) except NULL:
    # The table of the named variant, or of the one in use for None.
    if name is None:
        name = _selected
    if name not in _tables:
        raise ValueError(f"kernel variant is {name!r}, wanted one of {', '.join(available())}")
    return <const KernelTable *>PyCapsule_GetPointer(_tables[name], "pkrnnt.kernels.table")
