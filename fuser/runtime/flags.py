"""What the C compiler is told: the one list of flags, read by `toolchain` and, as a file of its own, by setup.py. Imports nothing of fuser."""

from __future__ import annotations

import platform

_X86 = platform.machine() in ("x86_64", "AMD64")
# Without contraction a product and a sum round apart, as in NumPy, whatever else shares their kernel.
CONTRACTION = "-ffp-contract=off"
OPENMP = () if platform.system() == "Darwin" else ("-fopenmp",)


def flags(processor: str = "native") -> tuple[str, ...]:
    """The flags of kernels for a processor, as `-march` names it."""
    return (
        "-O3",
        f"-march={processor}",
        *(("-mprefer-vector-width=512",) if _X86 else ()),
        "-fno-math-errno",
        "-fno-trapping-math",
        "-fno-semantic-interposition",
        "-fno-tree-sink",  # a call moved into a branch is one that gcc does not vectorise
        "-fno-tree-pre",  # nor a loop in which what a constant makes known is computed apart
        "-fno-thread-jumps",  # paths of their own for values that two tests tell apart keep a loop from being vectorised
        "--param=sched-pressure-algorithm=2",  # of loop kernels: fewer registers are spilled
        CONTRACTION,
        *OPENMP,
        "-shared",
        "-fPIC",
        "-std=gnu11",
        "-fwrapv",  # integers wrap around, as in NumPy
        "-w",
        "-pipe",
    )


FLAGS = flags()
PORTABLE = ("-O2", "-fPIC", "-std=gnu11", "-w", "-pipe")  # of code that is the same for all processors of a kind
LIBRARIES = ("-lm",)


def linking(version: str) -> tuple[str, ...]:
    """What a library is linked with, by what the compiler says of itself. GNU's is told the few files, as by itself it looks
    through many more; and its OpenMP is left out where a library has the entry points itself."""
    if platform.system() != "Linux" or "clang" in version:
        return LIBRARIES
    return ("-Wl,--as-needed", "-nostartfiles", "-nodefaultlibs", *LIBRARIES, "-lc", "-lgcc")
