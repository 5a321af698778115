"""Functions of JAX's public names against JAX, one row each: values, dtypes, weak types and errors; gradients; vmap; compiled.

A row is a path below `fuser` and `jax`, the arguments, and which of them to differentiate by. All rows of a family are
compiled as one program, whose results must be those of the eager calls, which the NumPy rules compute.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from agreement import agree, compare_values, ours, precision, theirs

import fuser
import fuser.numpy as fnp


@dataclass(frozen=True)
class Row:
    path: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    grad: tuple[int, ...] = ()
    tolerance: float = 1.0
    x64: bool = False
    compiled: bool = True

    def __str__(self) -> str:
        return self.path


def row(
    path: str,
    *args: Any,
    grad: Any = (),
    tolerance: float = 1.0,
    x64: bool = False,
    compiled: bool = True,
    **kwargs: Any,
) -> Row:
    """`path(*args, **kwargs)`, differentiated by the arguments numbered in `grad` (an int or several)."""
    return Row(path, args, kwargs, (grad,) if isinstance(grad, int) else tuple(grad), tolerance, x64, compiled)


def function(library: str, path: str) -> Any:
    """The function at a path below `fuser` or `jax`."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(f"{library}.{module}".rstrip(".")), name)


def check(given: Row) -> None:
    """Values, dtypes, weak types and errors as JAX's."""
    with precision(given.x64):
        mine, other = function("fuser", given.path), function("jax", given.path)
        agree(mine, other, *given.args, tolerance=given.tolerance, **given.kwargs)


def check_derivatives(rows: Sequence[Row]) -> None:
    """The gradients of all rows that have some as JAX's, which computes them in one program; and vmap as a loop."""
    for x64 in (False, True):
        chosen = [r for r in rows if r.x64 == x64 and r.grad]
        if not chosen:
            continue
        with precision(x64), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            moving = [[theirs(r.args[n]) for n in r.grad] for r in chosen]
            expected = jax.jit(lambda m, c=chosen: [_gradients(jax, jnp, r, values) for r, values in zip(c, m)])(moving)
            for given, wanted in zip(chosen, expected):
                found = _gradients(fuser, fnp, given, [ours(given.args[n]) for n in given.grad])
                for f, e in zip(found, wanted):
                    try:
                        compare_values(np.asarray(f), np.asarray(e), given.tolerance * 20)
                    except AssertionError as error:
                        raise AssertionError(f"the gradient of {given.path}{given.args}: {error}") from None
                _same_when_mapped(given, function("fuser", given.path))


def _gradients(library: Any, arrays: Any, given: Row, moving: Sequence[Any]) -> Any:
    """The derivatives of the row's weighted total by the arguments that move."""
    call = function(library.__name__, given.path)

    def total(*values: Any) -> Any:
        args = list(map(ours if library is fuser else theirs, given.args))
        for position, value in zip(given.grad, values):
            args[position] = value
        return _total(arrays, call(*args, **given.kwargs))

    return library.grad(total, tuple(range(len(moving))))(*moving)


def _total(library: Any, result: Any) -> Any:
    """The real parts of all floating results, weighted differently and summed."""
    total = 0.0
    for leaf in jax.tree.leaves(result, is_leaf=lambda x: not isinstance(x, (tuple, list, dict))):
        if hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, np.inexact):
            weights = np.cos(np.arange(leaf.size)).reshape(leaf.shape).astype(np.zeros((), leaf.dtype).real.dtype)
            total = total + (library.real(leaf) * weights).sum() + (library.imag(leaf) * weights * weights).sum()
    return total


def _same_when_mapped(given: Row, mine: Any) -> None:
    """vmap over two versions of the differentiable arguments is the two calls stacked."""
    args = [ours(a) for a in given.args]
    both = [fnp.stack([args[n], args[n] * np.asarray(0.9, args[n].dtype)]) for n in given.grad]

    def call(*moving: Any) -> Any:
        whole = list(args)
        for position, value in zip(given.grad, moving):
            whole[position] = value
        return mine(*whole, **given.kwargs)

    found = fuser.vmap(call)(*both)
    singles = [call(*(b[n] for b in both)) for n in range(2)]
    for f, first, second in zip(*map(fuser.tree.leaves, (found, *singles))):
        compare_values(np.asarray(f), np.stack([np.asarray(first), np.asarray(second)]), given.tolerance)


def check_compiled(rows: Sequence[Row]) -> None:
    """All rows as one compiled program on C give what they give one by one."""
    for x64 in (False, True):
        chosen = [r for r in rows if r.x64 == x64 and r.compiled]
        if not chosen:
            continue
        with precision(x64), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            arrays = [[a for a in r.args if isinstance(a, np.ndarray)] for r in chosen]

            def program(arrays: Any, chosen: Any = chosen) -> Any:
                results = []
                for given, own in zip(chosen, arrays):
                    rest = iter(own)
                    args = [next(rest) if isinstance(a, np.ndarray) else a for a in given.args]
                    results.append(function("fuser", given.path)(*args, **given.kwargs))
                return results

            expected = program([list(map(ours, own)) for own in arrays])
            found = fuser.jit(program)([list(map(ours, own)) for own in arrays])
            for given, f, e in zip(chosen, found, expected):
                for one, other in zip(fuser.tree.leaves(f), fuser.tree.leaves(e)):
                    assert one.dtype == other.dtype, given.path
                    compare_values(np.asarray(one), np.asarray(other), given.tolerance)
