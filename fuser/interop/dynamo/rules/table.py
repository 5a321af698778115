"""The table of rules, and what all rules share: operands of a dtype, refusals, and checks of values at run time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import fuser.numpy as fnp
from fuser.ir.types import kind_of
from fuser.lax.values import convert, literal
from fuser.runtime.array import Array
from fuser.trace.core import Tracer

Rule = Callable[..., Any]
TABLE: dict[str, Rule] = {}  # by the overload's text: torch makes some of its objects anew
F32 = np.dtype(np.float32)
Check = tuple[Any, Exception]  # a traced truth value, and what the program raises where it holds
_checks: list[tuple[str, list[Check]]] = []  # of the programs being traced, the innermost last, with their platforms


class Refused(Exception):
    """A rule cannot express an operation with these arguments; the text says why."""


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Registers a rule for overloads such as "add.Tensor" of aten's or "prims.fma.default"; "relu" is "relu.default"."""

    def registered(function: Rule) -> Rule:
        for name in names:
            full = name if "." in name else f"{name}.default"
            TABLE[full if full.startswith("prims.") else f"aten.{full}"] = function
        return function

    return registered


def operand(x: Any, dtype: np.dtype) -> Any:
    """A traced array or a Python number as an array of this dtype."""
    return convert(x, dtype) if isinstance(x, (Tracer, Array)) else literal(x, dtype)


def to_dtype(x: Any, dtype: np.dtype) -> Any:
    """torch's conversion. A float beyond the integers of `dtype` (undefined in torch) becomes what x86-64 gives: the least int32 or
    int64, of which narrower dtypes keep the low bits.
    """
    if not is_array(x) or dtype.kind not in "iu" or kind_of(x.dtype) != "f":
        return convert(fnp.real(x), dtype) if is_array(x) and x.dtype.kind == "c" != dtype.kind else operand(x, dtype)
    middle = np.dtype(f"int{max(8 * dtype.itemsize, 32)}")
    least = -(2 ** (8 * middle.itemsize - 1))
    bound = float(-least)
    value = convert(x, wide(x.dtype))
    inside = fnp.logical_and(fnp.greater_equal(value, -bound), fnp.less(value, bound))
    whole = fnp.where(inside, convert(fnp.where(inside, value, 0), middle), least)
    return convert(whole, dtype)


def is_array(x: Any) -> bool:
    """Whether a rule's argument stands for a tensor."""
    return isinstance(x, (Tracer, Array))


def wide(dtype: np.dtype) -> np.dtype:
    """The dtype in which torch computes: float32 for the 16-bit floats, whose results are rounded once."""
    return F32 if dtype.itemsize == 2 and np.dtype(dtype).kind not in "iub" else dtype


def axes_of(dim: Any, rank: int) -> tuple[int, ...]:
    """torch's `dim`, where None and an empty list are all dimensions."""
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return tuple(range(rank))
    return tuple(d % max(rank, 1) for d in (dim if isinstance(dim, (list, tuple)) else [dim]))[: max(rank, 0)]


@contextlib.contextmanager
def checking(platform: str) -> Iterator[list[Check]]:
    """While the block runs, what `check` is told of a program for a platform ("cpu", "cuda") is collected."""
    found: list[Check] = []
    _checks.append((platform, found))
    try:
        yield found
    finally:
        _checks.pop()


def check(bad: Any, message: str, error: type[Exception] = IndexError) -> None:
    """The program raises the error where an element of `bad` holds."""
    _checks[-1][1].append((fnp.any(bad), error(message)))


def check_divisor(divisor: Any) -> None:
    """On the CPU the program raises torch's RuntimeError where an integer of `divisor` is zero; a GPU's quotient is open, as torch's is."""
    if _checks[-1][0] == "cpu":
        check(fnp.equal(divisor, literal(0, divisor.dtype)), "ZeroDivisionError: an integer divided by 0", RuntimeError)


def check_indices(indices: Any, extent: int, what: str) -> Any:
    """Indices from the start, counted from the end where negative; the program raises IndexError for others."""
    positions = convert(indices, np.dtype(np.int64))
    bad = fnp.logical_or(fnp.less(positions, -extent), fnp.greater_equal(positions, extent))
    check(bad, f"{what}: index out of range in a dimension of {extent}")
    return fnp.where(fnp.less(positions, 0), fnp.add(positions, extent), positions)
