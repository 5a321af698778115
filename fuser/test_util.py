"""jax.test_util's names: derivatives against finite differences, in one random direction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from fuser import dtypes
from fuser.ir.types import FLOATS, SMALL_FLOATS, is_complex, is_float
from fuser.trace import tree
from fuser.transforms.linear import jvp, linearize, vjp

__all__ = ["check_grads", "check_jvp", "check_vjp"]

STEP = 1e-4
# How far derivatives may be off, absolutely and relatively, by dtype.
TOLERANCE: dict[np.dtype, float] = {
    **dict.fromkeys(SMALL_FLOATS, 1e-1),
    FLOATS[0]: 1e-2,
    FLOATS[1]: 1e-1,
    FLOATS[2]: 2e-3,
    FLOATS[3]: 1e-5,
    np.dtype("complex64"): 1e-3,
    np.dtype("complex128"): 1e-5,
}


def _is_number(x: Any) -> bool:
    return isinstance(x, (bool, int, float, complex)) and not isinstance(x, np.generic)


def _map(function: Callable[..., Any], *trees: Any) -> Any:
    """`function` on NumPy arrays; Python numbers come back as such."""

    def leaf(*values: Any) -> Any:
        dtype = dtypes.of(values[0])[0]
        result = np.asarray(function(*(np.asarray(v) for v in values)), dtype=dtype)
        return result.item() if all(map(_is_number, values)) else result

    return tree.map(leaf, *trees)


def _direction(rng: np.random.RandomState, like: Any) -> Any:
    def leaf(x: Any) -> Any:
        dtype, shape = dtypes.of(x)[0], np.shape(x)
        if not (is_float(dtype) or is_complex(dtype)):
            return np.zeros(shape, dtypes.float0)
        values = np.asarray(rng.randn(*shape), dtype)
        if is_complex(dtype):
            values = values + dtype.type(1j) * np.asarray(rng.randn(*shape), dtype)
        return values.item() if _is_number(x) else values

    return tree.map(leaf, like)


def _moved(x: Any, tangent: Any, by: float) -> Any:
    if getattr(tangent, "dtype", None) == dtypes.float0:
        return x
    return _map(lambda a, t: a + np.asarray(by, a.dtype) * t, x, tangent)


def _difference(f: Callable[..., Any], args: Any, tangents: Any, eps: float) -> Any:
    """The derivative of `f` along the tangents, by central differences; inf - inf counts as 0."""
    above, below = (f(*tree.map(lambda x, t, s=sign: _moved(x, t, s * eps), args, tangents)) for sign in (1, -1))

    def leaf(a: np.ndarray, b: np.ndarray) -> Any:
        if not (is_float(a.dtype) or is_complex(a.dtype)):
            return np.zeros(a.shape)
        with np.errstate(invalid="ignore"):
            return np.where(a == b, np.zeros((), a.dtype), a - b) * np.asarray(0.5 / eps, a.dtype)

    return _map(leaf, above, below)


def _close(found: Any, wanted: Any, atol: Any, rtol: Any, message: str) -> None:
    def bound(given: Any, dtype: np.dtype) -> float:
        if given is not None and not isinstance(given, dict):
            return float(given)
        own = {np.dtype(k): v for k, v in (given or {}).items()}
        return float({**TOLERANCE, **own}.get(dtype, 0.0))

    def leaf(x: Any, y: Any) -> None:
        a, b = np.asarray(x), np.asarray(y)
        if a.dtype == dtypes.float0 or b.dtype == dtypes.float0:
            return
        wide = np.complex128 if is_complex(a.dtype) else np.float64
        limits = [max(bound(given, a.dtype), bound(given, b.dtype)) * max(a.size, 1) for given in (atol, rtol)]
        np.testing.assert_allclose(a.astype(wide), b.astype(wide), atol=limits[0], rtol=limits[1], err_msg=message)

    tree.map(leaf, found, wanted)


def check_jvp(
    f: Callable[..., Any], f_jvp: Callable[..., Any], args: Any, atol: Any = None, rtol: Any = None, eps: float = STEP,
    err_msg: str = "",
) -> None:  # fmt: skip
    """AssertionError unless `f_jvp(args, tangents)` gives f's values and, along a random direction, its differences.

    Tolerances are numbers, or dicts by dtype; `eps` is the step.
    """
    tangents = _direction(np.random.RandomState(0), args)
    out, out_tangents = f_jvp(args, tangents)
    _close(out, f(*args), atol, rtol, f"{err_msg} primal".strip())
    _close(out_tangents, _difference(f, args, tangents, eps), atol, rtol, f"{err_msg} tangent".strip())


def check_vjp(
    f: Callable[..., Any], f_vjp: Callable[..., Any], args: Any, atol: Any = None, rtol: Any = None, eps: float = STEP,
    err_msg: str = "",
) -> None:  # fmt: skip
    """AssertionError unless ⟨pulled back, x⟩ = ⟨y, pushed forward⟩ for random x and y, pushed forward by differences."""
    rng = np.random.RandomState(0)
    out, pull = f_vjp(*args)
    _close(out, f(*args), atol, rtol, f"{err_msg} primal".strip())
    tangents = _direction(rng, args)
    pushed = _difference(f, args, tangents, eps)
    cotangents = _direction(rng, out)
    conjugate = lambda t: tree.map(lambda v: v if np.asarray(v).dtype == dtypes.float0 else _map(np.conj, v), t)
    pulled = conjugate(pull(conjugate(cotangents)))
    inner = lambda a, b: sum(
        np.real(np.vdot(np.asarray(x), np.asarray(y)))
        for x, y in zip(tree.leaves(a), tree.leaves(b))
        if np.asarray(x).dtype != dtypes.float0 and np.asarray(y).dtype != dtypes.float0
    )
    message = f"{err_msg} cotangent projection".strip()
    _close(inner(tangents, pulled), inner(pushed, cotangents), atol, rtol, message)


def check_grads(
    f: Callable[..., Any], args: Sequence[Any], order: int, modes: Sequence[str] = ("fwd", "rev"), atol: Any = None,
    rtol: Any = None, eps: float | None = None,
) -> None:  # fmt: skip
    """AssertionError unless derivatives of `f` up to `order`, forward ("fwd"), backward ("rev") or by linearize ("lin"),
    agree with finite differences in one random direction."""
    limits = {"atol": atol, "rtol": rtol, "eps": eps or STEP}

    def by_linearize(function: Any, primals: Any, tangents: Any) -> Any:
        out, linear = linearize(function, *primals)
        return out, linear(*tangents)

    def check(function: Any, values: Any, order: int, what: str) -> None:
        for mode, push, word in (("fwd", jvp, "JVP"), ("lin", by_linearize, "LIN")):
            if mode in modes:
                name = f"{word} of {what}" if what else word
                check_jvp(function, partial(push, function), values, err_msg=name, **limits)
                if order > 1:
                    check(partial(push, function), (values, values), order - 1, name)
        if "rev" in modes:
            name = f"VJP of {what}" if what else "VJP"
            check_vjp(function, partial(vjp, function), values, err_msg=name, **limits)
            if order > 1:

                def pulled(*inner: Any) -> Any:
                    out, pull = vjp(function, *inner)
                    return pull(out)

                check(pulled, values, order - 1, name)

    check(f, tuple(args), order, "")
