"""Programs that call the host from a TPU: prints as JSON what each gave, what it printed or raised, on the backend named.

A process of its own, because the interpreter's settings are read when JAX is imported.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Callable
from typing import Any

if __name__ == "__main__":
    os.environ |= {"FUSER_TPU_INTERPRET": "1", "JAX_PLATFORMS": "cpu"}

import numpy as np

import fuser
import fuser.numpy as fnp
from fuser import ShapeDtypeStruct, lax
from fuser import pallas as pl
from fuser.experimental import io_callback
from fuser.runtime.array import to_numpy

F32 = np.dtype("float32")


def printing(x: Any) -> Any:
    """Before a kernel, and a result that nobody else reads."""
    fuser.debug.print("x {}", x[:2] * 2)
    return fnp.exp2(x)


def pure(x: Any) -> Any:
    return 1 + fuser.pure_callback(lambda v: np.asarray(v) * 2, ShapeDtypeStruct(x.shape, F32), x * 4)


def in_loop(x: Any) -> Any:
    """In a branch of a loop that prints, in order."""

    def step(n: Any, carry: Any) -> Any:
        fuser.debug.print("{}: {}", n, carry.sum())
        twice = lambda c: fuser.pure_callback(lambda v: np.asarray(v) * 2, ShapeDtypeStruct(c.shape, F32), c)
        return lax.cond(n % 2 == 0, twice, lambda c: c + 1, carry)

    return lax.fori_loop(0, 4, step, x)


def in_test(x: Any) -> Any:
    """In what decides whether a loop goes on."""

    def going(state: Any) -> Any:
        fuser.debug.print("going {}", state[0])
        return state[0] < 2

    return lax.while_loop(going, lambda s: (s[0] + 1, s[1] * 2), (fnp.int32(0), x))


def in_scan(x: Any) -> Any:
    """Counts its calls."""
    calls: list[float] = []

    def count(v: Any) -> Any:
        calls.append(float(v))
        return np.float32(len(calls))

    step = lambda c, v: (c + io_callback(count, ShapeDtypeStruct((), F32), v, ordered=True), v)
    return lax.scan(step, fnp.float32(0), x)


def batched(x: Any) -> Any:
    def each(v: Any) -> Any:
        fuser.debug.print("v {}", v)
        return fuser.pure_callback(lambda v: np.asarray(v) + 1, ShapeDtypeStruct((), F32), v, vmap_method="sequential")

    return fuser.vmap(each)(x)


def of_keys(x: Any) -> Any:
    fuser.debug.callback(lambda k: print(fuser.random.key_data(k)), fuser.random.key(3))
    return x


def failing(x: Any) -> Any:
    def fail(v: Any) -> Any:
        raise ValueError("as it should")

    return fuser.pure_callback(fail, ShapeDtypeStruct(x.shape, F32), x) + 1


def checked(x: Any) -> Any:
    return fnp.sqrt(fuser.error_if(x, x > 2, "too large"))


def in_kernel(x: Any) -> Any:
    """A kernel by hand that prints."""

    def kernel(x_ref: Any, o_ref: Any) -> None:
        pl.debug_print("program {} has {}", pl.program_id(0), x_ref[0])
        o_ref[...] = x_ref[...] * 2

    spec = pl.BlockSpec((2,), lambda i: (i,))
    return pl.pallas_call(kernel, ShapeDtypeStruct((4,), F32), grid=2, in_specs=[spec], out_specs=spec)(x)


PROGRAMS: dict[str, Callable[..., Any]] = {
    f.__name__: f for f in (printing, pure, in_loop, in_test, in_scan, batched, of_keys, failing, checked, in_kernel)
}


def outcome(function: Callable[..., Any], backend: str) -> list[Any]:
    """What two calls gave and printed, or the last line of the error."""
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            compiled = fuser.jit(function, backend=backend)
            found = [compiled(np.arange(4, dtype=np.float32)) for _ in range(2)]
    except Exception as error:
        return [type(error).__name__, str(error).splitlines()[0][:60], str(error).splitlines()[-1]]
    return [[to_numpy(leaf).tolist() for leaf in fuser.tree.leaves(found)], out.getvalue().splitlines()]


if __name__ == "__main__":
    print(json.dumps({name: outcome(function, sys.argv[1]) for name, function in PROGRAMS.items()}))
