"""`export_kernels`: the kernels of one signature of a function as files."""

from __future__ import annotations

import functools
import keyword
import math
import pathlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser.api.jitted import Jitted, jit
from fuser.api.stages import Lowered
from fuser.errors import UnsupportedError
from fuser.ir.graph import Var
from fuser.ir.names import printable
from fuser.lax.values import as_value
from fuser.runtime.array import to_numpy
from fuser.takeaway import in_c, in_triton
from fuser.takeaway.program import Program, program_of
from fuser.trace import tree
from fuser.trace.replay import as_function

WRITERS = {"c": in_c.files, "triton": in_triton.files}


@dataclass(frozen=True)
class KernelFolder:
    """The files, by name; `save` writes them."""

    files: dict[str, bytes]

    def save(self, directory: Any) -> pathlib.Path:
        """Write the files into a directory, which is made; its path."""
        folder = pathlib.Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in self.files.items():
            (folder / name).write_bytes(data)
        return folder


def export_kernels(function: Callable[..., Any]) -> Callable[..., KernelFolder]:
    """A function of arguments like `function`'s that gives its kernels for arguments of these types as a KernelFolder.

    The backend in use says in which language: C (kernels, a header, a launcher, a test, a Makefile) or Triton (kernels, a launcher
    for torch tensors, a test). The arguments and what the function gives for them become the test's data; where there is no GPU for
    Triton's kernels, what it gives in C. UnsupportedError where a step of the program is no generated kernel: a factorisation by LAPACK,
    a callback, a step in NumPy.
    """
    jitted = function if isinstance(function, Jitted) else jit(function)

    @functools.wraps(function)
    def exported(*args: Any, **kwargs: Any) -> KernelFolder:
        lowered = jitted.lower(*args, **kwargs)
        backend = lowered.traced._backend
        if backend.name not in WRITERS:
            raise UnsupportedError(
                f"kernels are taken away from the backends {' and '.join(WRITERS)}, and {backend.name} is in use; set FUSER_BACKEND"
            )
        program = program_of(identifier(jitted.name), lowered, products=backend.name == "triton")
        values = [to_numpy(as_value(leaf)) for leaf in tree.leaves((args, kwargs)) if not _static(leaf)]
        found = tree.leaves(jitted(*args, **kwargs)) if _loads(lowered) else _in_c(lowered, values)
        results = [to_numpy(r) for r in found]
        wanted = [n for n, v in enumerate(lowered.plan.outputs) if isinstance(v, Var)]
        data = {f"in{n}": np.ascontiguousarray(v) for n, v in enumerate(values)}
        data |= {f"expected{n}": np.ascontiguousarray(results[k]) for n, k in enumerate(wanted)}
        return KernelFolder(WRITERS[backend.name](program, data))

    return exported


def _loads(lowered: Lowered) -> bool:
    """Whether the kernels can run here."""
    try:
        lowered.compile()
    except UnsupportedError:
        return False
    return True


def _in_c(lowered: Lowered, values: list[np.ndarray]) -> list[Any]:
    """The results of the same graph on the CPU."""
    return jit(as_function(lowered.traced.graph), backend="c")(*values)  # type: ignore[no-any-return]


def _static(leaf: Any) -> bool:
    try:
        as_value(leaf)
    except TypeError:
        return True
    return False


# Words of C, and names of its library in headers that kernels include; Python's words and `math` have the rest.
_OF_C = """
abs auto bool calloc case char const default div do double enum extern false float free goto inline int long main malloc memcpy memset
printf register restrict round short signed sizeof static struct switch test true typedef union unsigned void volatile
"""
RESERVED = frozenset((*_OF_C.split(), *keyword.kwlist, *dir(math)))


def identifier(name: str) -> str:
    """The name of a function as an identifier of C and Python that means nothing else there."""
    found = re.sub(r"\W", "_", printable(name), flags=re.ASCII).strip("_")
    return found if found and not found[0].isdigit() and found not in RESERVED else f"function_{found}".rstrip("_")


__all__ = ["KernelFolder", "Program", "export_kernels"]
