"""Programs for a backend whose table has no operation but those that nothing is made of. In: the backend's name; out: a JSON
list of what differs from the reference. A process of its own, because interpreters are chosen before they are imported.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any

if __name__ == "__main__":
    os.environ |= {
        "FUSER_BACKEND": sys.argv[1],
        "TRITON_INTERPRET": "1",
        "FUSER_TPU_INTERPRET": "1",
        "JAX_PLATFORMS": "cpu",
    }

import numpy as np

import fuser
import fuser.numpy as fnp
from fuser import config, lax
from fuser.backends.table import Table
from fuser.kernel.decompose import BASE, DECOMPOSITIONS

X = np.linspace(-3, 3, 24, dtype=np.float32).reshape(3, 8)
N = np.array([[7, -7, 3, 0, 40, -1, 31, 2**31 - 1], [0, 1, -8, 5, -(2**31), 9, 100, 12]], np.int32)
M = np.array([[2, 2, 0, 3, 33, 1, 4, -1], [5, 31, 2, 0, -1, 32, -3, 7]], np.int32)


def without(table: Table) -> Table:
    """The table without all that is made of something."""
    base = {op for ops in BASE.values() for op in ops}
    return table.without(*({op for rules in DECOMPOSITIONS.values() for op in rules} - base), "cast")


def rounding(x: Any) -> Any:
    return (
        fnp.floor(x),
        fnp.ceil(x),
        fnp.round(x),
        fnp.trunc(x),
        abs(x),
        -x,
        fnp.maximum(x, 0.5),
        x > 1,
        x.astype(np.int32),
    )


def exponentials(x: Any) -> Any:
    return (
        fnp.exp2(x),
        fnp.expm1(x),
        fnp.sinh(x),
        fnp.cosh(x),
        fnp.tanh(x),
        fnp.arcsinh(x),
        fnp.log1p(abs(x)),
        fnp.cbrt(x),
    )


def angles(x: Any) -> Any:
    small = x / 4
    return fnp.tan(x), fnp.arcsin(small), fnp.arccos(small), fnp.arctan(x), fnp.arctanh(small), fnp.arccosh(x + 5)


def integrals(x: Any) -> Any:
    return lax.erf(x), lax.erfc(x), lax.lgamma(x + 3.25)


def integers(n: Any, m: Any) -> Any:
    shifts = lax.shift_left(n, m), lax.shift_right_logical(n, m), lax.shift_right_arithmetic(n, m)
    return (
        *shifts,
        lax.div(n, m),
        lax.rem(n, m),
        abs(n),
        ~n,
        fnp.minimum(n, m),
        lax.population_count(n),
        lax.clz(n),
        n >= m,
    )


def softmax(x: Any) -> Any:
    e = fnp.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def newton(x: Any) -> Any:
    return lax.fori_loop(0, 5, lambda _, y: y - (fnp.sinh(y) - x) / fnp.cosh(y), x)


PROGRAMS: tuple[tuple[Callable[..., Any], tuple[Any, ...]], ...] = (
    *((f, (X,)) for f in (rounding, exponentials, angles, integrals, softmax, newton)),
    (integers, (N, M)),
)


def errors() -> list[str]:
    """What differs from NumPy's rules."""
    found = []
    for function, arguments in PROGRAMS:
        got = fuser.jit(function)(*arguments)
        with config.using(backend="reference"):
            want = fuser.jit(function)(*arguments)
        for number, (a, b) in enumerate(zip(*(v if isinstance(v, tuple) else (v,) for v in (got, want)), strict=True)):
            if not np.allclose(a, b, rtol=1e-5, atol=1e-6, equal_nan=True):
                found.append(f"{function.__name__} {number}: {np.asarray(a)} instead of {np.asarray(b)}")
    return found


if __name__ == "__main__":
    module = importlib.import_module(f"fuser.backends.{sys.argv[1]}.spell")
    module.TABLE = without(module.TABLE)
    print(json.dumps(errors()))
