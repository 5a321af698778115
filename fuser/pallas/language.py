"""What kernels are written with beside array operations: masked reads and writes, control flow, Refs of their own, arithmetic on sizes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser.lax.control import cond, fori_loop
from fuser.lax.reduction import dot_general
from fuser.lax.values import as_value
from fuser.numpy.creation import zeros
from fuser.numpy.movement import broadcast_to
from fuser.ops.state import indexed_type
from fuser.pallas.primitives import masked_load_p, masked_swap_p
from fuser.ref import _fitting, freeze, get, new_ref, swap
from fuser.ref.indices import parsed
from fuser.ref.views import whole_ref
from fuser.trace import tree
from fuser.trace.core import type_of


def load(ref: Any, idx: Any = None, *, mask: Any = None, other: Any = None, **hints: Any) -> Any:
    """`ref[idx]`, where the mask is true; elsewhere `other` (zero), and nothing is read, so that it may lie outside.

    `ref` is a Ref or a part of one, `ref.at[idx]`; the mask and `other` are broadcast to the shape there. Hints are ignored.
    """
    ref, idx = whole_ref(ref, idx)
    if mask is None:
        return get(ref, idx)
    index, indices = parsed(... if idx is None else idx, ref.shape, masked=True)
    there = _there(ref, index, indices)
    kept = broadcast_to(as_value(mask, "load"), there.shape)
    rest = _fitting(ref, 0 if other is None else other, index, indices, "load", masked=True)
    return masked_load_p.bind(ref, kept, rest, *indices, index=index)


def store(ref: Any, idx: Any, val: Any = None, *, mask: Any = None, **hints: Any) -> None:
    """`ref[idx] = val` where the mask is true; nothing is written elsewhere. `store(ref.at[idx], val)` is the same."""
    _swapped(ref, idx, val, mask, "store")


def swap_masked(ref: Any, idx: Any, val: Any, *, mask: Any = None, **hints: Any) -> Any:
    """As `store`, and what stood there before."""
    return _swapped(ref, idx, val, mask, "swap")


def _swapped(ref: Any, idx: Any, val: Any, mask: Any, name: str) -> Any:
    if val is None:
        idx, val = None, idx
    ref, idx = whole_ref(ref, idx)
    if mask is None:
        return swap(ref, idx, val, name)
    index, indices = parsed(... if idx is None else idx, ref.shape, masked=True)
    kept = broadcast_to(as_value(mask, name), _there(ref, index, indices).shape)
    return masked_swap_p.bind(ref, _fitting(ref, val, index, indices, name, masked=True), kept, *indices, index=index)


def _there(ref: Any, index: Any, indices: Sequence[Any]) -> Any:
    return indexed_type(type_of(ref).inner_aval, index, tuple(type_of(i) for i in indices), masked=True)  # type: ignore[attr-defined]


def when(condition: Any) -> Callable[[Callable[[], Any]], Any]:
    """A decorator that runs a function of no arguments if the condition holds."""

    def run(function: Callable[[], Any]) -> None:
        if isinstance(condition, (bool, np.bool_)):
            if condition:
                function()
            return
        cond(condition, lambda: _nothing(function()), lambda: None)

    return run


def _nothing(result: Any) -> Any:
    return None


def loop(lower: Any, upper: Any, *, step: Any = 1, unroll: Any = None) -> Callable[[Callable[[Any], Any]], None]:
    """A decorator that runs a function of a number for `lower`, `lower + step`, … below `upper`."""

    def run(body: Callable[[Any], Any]) -> None:
        if isinstance(step, int) and step == 1:
            fori_loop(lower, upper, lambda n, _: _nothing(body(n)), None, unroll=unroll)
        else:
            count = (upper - lower + step - 1) // step
            fori_loop(0, count, lambda n, _: _nothing(body(lower + n * step)), None, unroll=unroll)

    return run


def run_scoped(f: Callable[..., Any], *types: Any, collective_axes: Any = (), **named: Any) -> Any:
    """`f` of new Refs, for each type (anything with `shape` and `dtype`) one that begins with zeros; what it returns."""
    make = lambda kind: new_ref(zeros(kind.shape, kind.dtype))
    return f(*tree.map(make, types), **tree.map(make, named))


def with_scoped(
    *types: Any, collective_axes: Any = (), **named: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: a function of its caller's arguments and then of new Refs, as `run_scoped` makes them."""
    return lambda f: (
        lambda *args: run_scoped(functools.partial(f, *args), *types, collective_axes=collective_axes, **named)
    )


def run_state(f: Callable[..., Any]) -> Callable[[Any], Any]:
    """A function of arrays: `f` of Refs that begin as they are; what the Refs hold at last."""

    def run(init: Any) -> Any:
        refs = tree.map(new_ref, init)
        f(refs)
        return tree.map(freeze, refs)

    return run


def dot(
    a: Any, b: Any, trans_a: bool = False, trans_b: bool = False, allow_tf32: Any = None, precision: Any = None
) -> Any:
    """The product of two matrices, summed in float32 for 16-bit floats. ValueError for other ranks."""
    if type_of(a).ndim != 2 or type_of(b).ndim != 2:
        raise ValueError(f"`a` and `b` must be 2D, got {type_of(a)} and {type_of(b)}")
    numbers = (((0 if trans_a else 1,), (1 if trans_b else 0,)), ((), ()))
    kind = np.dtype(np.int32) if a.dtype.kind in "iu" else np.dtype(np.float32)
    wide = kind if a.dtype.itemsize < 4 else None
    return dot_general(a, b, dimension_numbers=numbers, precision=precision, preferred_element_type=wide)


def reciprocal(x: Any, *, approx: bool = False, full_range: bool = True) -> Any:
    """1 / x."""
    return 1 / x


def approx_tanh(x: Any) -> Any:
    """tanh."""
    from fuser.numpy import tanh

    return tanh(x)


def multiple_of(x: Any, values: Any) -> Any:
    """`x`, of which it is promised that it is a multiple."""
    return x


max_contiguous = multiple_of


def debug_barrier() -> None:
    """Nothing: programs run in order."""


def debug_check(condition: Any, message: str) -> None:
    """AssertionError in the interpreter where a condition that is known does not hold."""
    if isinstance(condition, (bool, np.bool_)) and not condition:
        raise AssertionError(message)


def delay(cycles: int) -> None:
    """Nothing: there is no clock to wait for."""


def empty(shape: Sequence[int], dtype: Any = None, **ignored: Any) -> Any:
    """An array to be written; zeros."""
    return zeros(shape, dtype)


def empty_like(x: Any) -> Any:
    """Arrays like those of a tree, to be written; zeros."""
    return tree.map(lambda leaf: zeros(leaf.shape, leaf.dtype), x)


def empty_ref_like(x: Any) -> Any:
    """Refs like the arrays of a tree, which hold zeros."""
    return tree.map(lambda leaf: new_ref(zeros(leaf.shape, leaf.dtype)), x)


def cdiv(a: Any, b: Any) -> Any:
    """a / b, rounded up."""
    return (a + b - 1) // b


def align_to(x: int, a: int) -> int:
    """The least multiple of `a` that is at least `x`."""
    return cdiv(x, a) * a


def next_power_of_2(x: int) -> int:
    """The least power of two that is at least `x`. ValueError for a negative number."""
    if x < 0:
        raise ValueError("`next_power_of_2` requires a non-negative integer.")
    return 1 if x == 0 else 2 ** (x - 1).bit_length()


def strides_from_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a dense array in elements."""
    strides = [1]
    for extent in reversed(shape[1:]):
        strides.insert(0, strides[0] * extent)
    return tuple(strides[: len(shape)])
