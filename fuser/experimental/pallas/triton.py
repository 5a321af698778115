"""jax.experimental.pallas.triton's names: masked reads and writes, atomics, hints; see fuser.pallas.language and fuser.pallas.atomics."""

from fuser.gaps import absent
from fuser.pallas.atomics import (
    atomic_add,
    atomic_and,
    atomic_cas,
    atomic_max,
    atomic_min,
    atomic_or,
    atomic_xchg,
    atomic_xor,
)
from fuser.pallas.language import (
    approx_tanh,
    debug_barrier,
    dot,
    load,
    max_contiguous,
    store,
)
from fuser.pallas.specs import CompilerParams

__all__ = [
    "CompilerParams",
    "approx_tanh",
    "atomic_add",
    "atomic_and",
    "atomic_cas",
    "atomic_max",
    "atomic_min",
    "atomic_or",
    "atomic_xchg",
    "atomic_xor",
    "debug_barrier",
    "dot",
    "load",
    "max_contiguous",
    "store",
]

__getattr__ = absent(__name__)
