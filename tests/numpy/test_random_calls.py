"""Calls with random arguments beside JAX: any dtype and shape, scalars, axes in range or not, masks, keepdims, initial values.

Both libraries give the same values, dtypes and weak types, or both raise. A failure names the call.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from agreement import Weak, numbers, same

SHAPES: list[tuple[int, ...]] = [(), (0,), (1,), (3,), (2, 3), (3, 3), (0, 3), (2, 0), (2, 1, 3), (2, 3, 4)]
DTYPES = [
    *map(np.dtype, ("bool", "int8", "uint8", "int16", "int32", "uint32", "float16", "float32", "float32", "complex64")),
    np.dtype(ml_dtypes.bfloat16),
]
SCALARS = [True, 0, 1, -2, 3, 0.5, -1.5, 2j, Weak(2), Weak(-0.5)]
_UNARY = """
abs angle ceil cos cosh degrees exp expm1 floor imag iscomplex isfinite isinf isnan isreal log1p logical_not
negative positive reciprocal rint round sign signbit sin sinc sqrt square tanh trunc
"""
_BINARY = """
add arctan2 bitwise_and copysign divmod equal floor_divide fmax fmod gcd greater heaviside hypot left_shift
less_equal logaddexp logical_xor maximum minimum multiply not_equal power remainder subtract true_divide
"""
_REDUCTIONS = """
all any amax amin argmax argmin count_nonzero cumprod cumsum max mean median min nanmax nansum prod ptp std sum var
nanargmax nanmean
"""
UNARY, BINARY, REDUCTIONS = _UNARY.split(), _BINARY.split(), _REDUCTIONS.split()
OTHERS: dict[str, Callable[[random.Random, int], dict[str, Any]]] = {
    "diff": lambda r, nd: {"n": r.randint(0, 2), "axis": axis(r, nd)},
    "expand_dims": lambda r, nd: {"axis": axes(r, nd)},
    "flip": lambda r, nd: {"axis": axes(r, nd)},
    "moveaxis": lambda r, nd: {"source": axis(r, nd), "destination": axis(r, nd)},
    "repeat": lambda r, nd: {"repeats": r.randint(0, 3), "axis": axes(r, nd)},
    "roll": lambda r, nd: {"shift": r.randint(-4, 4), "axis": axes(r, nd)},
    "rot90": lambda r, nd: {"k": r.randint(-2, 5), "axes": (axis(r, nd), axis(r, nd))},
    "sort": lambda r, nd: {"axis": axis(r, nd), "descending": r.random() < 0.5},
    "squeeze": lambda r, nd: {"axis": axes(r, nd)},
    "take": lambda r, nd: {"indices": numbers(np.int32, (2,), r.randrange(99), -4, 4), "axis": axis(r, nd), "mode": r.choice(["fill", "clip", "wrap"])},
    "tile": lambda r, nd: {"reps": r.choice([2, (1, 2), (2, 1, 2), 0, ()])},
    "trace": lambda r, nd: {"offset": r.randint(-2, 2), "axis1": axis(r, nd), "axis2": axis(r, nd)},
    "transpose": lambda r, nd: {"axes": tuple(r.sample(range(-nd, nd), nd)) if nd else None},
    "tril": lambda r, nd: {"k": r.randint(-3, 3)},
}  # fmt: skip


def array(r: random.Random, shape: tuple[int, ...] | None = None) -> np.ndarray:
    shape = r.choice(SHAPES) if shape is None else shape
    return np.asarray(numbers(r.choice(DTYPES), shape, r.randrange(1 << 20)))


def operand(r: random.Random, near: tuple[int, ...] | None = None) -> Any:
    """An array, or a scalar; its shape mostly broadcasts with `near`."""
    if r.random() < 0.2:
        return r.choice(SCALARS)
    likely = None if near is None or r.random() < 0.1 else tuple(n if r.random() < 0.7 else 1 for n in near)
    return array(r, likely)


def axis(r: random.Random, ndim: int) -> int:
    """Mostly a dimension."""
    return r.randint(-ndim - (r.random() < 0.1), max(ndim - 1, 0) + (r.random() < 0.1))


def axes(r: random.Random, ndim: int) -> Any:
    """None, a dimension, or several: distinct ones, as the libraries' errors for repeated ones are of various classes."""
    several = tuple(r.sample(range(-ndim, 0), min(2, ndim)))
    return r.choice([None, axis(r, ndim), axis(r, ndim), several, ()])


def reduction(r: random.Random, name: str, x: np.ndarray) -> dict[str, Any]:
    """Arguments of a reduction, those that it has."""
    one = name.startswith(("arg", "nanarg", "cum", "med"))
    given: dict[str, Any] = {"axis": axis(r, x.ndim) if one else axes(r, x.ndim)}
    if not name.startswith("cum"):
        given["keepdims"] = r.random() < 0.5
    if name in ("sum", "prod", "max", "min") and r.random() < 0.5:
        given |= {"initial": r.choice([0, 2, 1.5]), "where": array(r, x.shape).astype(bool)}
    if name in ("sum", "prod", "mean", "cumsum") and r.random() < 0.4:
        given["dtype"] = r.choice(DTYPES)
    return given


def call(r: random.Random) -> tuple[str, list[Any], dict[str, Any]]:
    """The name of a function, and arguments."""
    kind = r.randrange(4)
    if kind == 0:
        return r.choice(UNARY), [operand(r)], {}
    if kind == 1:
        first = operand(r)
        return r.choice(BINARY), [first, operand(r, getattr(first, "shape", None))], {}
    x = array(r)
    if kind == 2:
        name = r.choice(REDUCTIONS)
        return name, [x], reduction(r, name, x)
    name = r.choice(list(OTHERS))
    return name, [x], OTHERS[name](r, x.ndim)


@pytest.mark.parametrize("seed", range(3))
def test_random_calls(seed: int) -> None:
    r = random.Random(seed)
    for _ in range(30):
        name, args, given = call(r)
        try:
            same(name, *args, **given)
        except Exception as error:
            raise AssertionError(
                f"{name}({', '.join([*map(repr, args), *(f'{k}={v!r}' for k, v in given.items())])}): {error}"
            ) from error
