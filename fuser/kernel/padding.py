"""Padding values of masked loads: what a load gives beyond the end of a row, so that reductions need no select. Kernel → padding of loads, reductions.

A block's last columns may lie beyond the row; a masked load gives any number there. Where that is chosen so that what a reduction takes is its
identity, nothing else is done about these columns: -inf for a maximum, and so exp(-inf - maximum) = 0 for a sum behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fuser.ir.scalar import Scalar
from fuser.ir.types import is_complex, is_inexact
from fuser.kernel.kernel import Kernel, reduction_identity
from fuser.kernel.operands import operands, own_axes
from fuser.kernel.safe_divisors import exact, shift_maximum

_ARITHMETIC = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor, "neg": np.negative, "abs": np.abs, "exp": np.exp,
}  # fmt: skip


class Padding:
    """`fills`: what loads along the reduced axes give beyond a row, 0 but for those named; `neutral`: the reductions (by operand and kind)
    whose elements there are their identity."""

    def __init__(self, kernel: Kernel) -> None:
        self.reduced = set(kernel.reduced)
        self.fills: dict[Scalar, Any] = {}
        self.neutral: set[tuple[Scalar, str]] = set()
        reductions = [r for sweep in kernel.sweeps for r in sweep.reductions if not _special(r)]
        for reduction in reductions:
            load = exact(reduction.args[0])
            if self._padded(load) and _filled(load.dtype):
                self.fills.setdefault(load, reduction_identity(reduction.attr.reduction, load.dtype))
        self.known: dict[Scalar, Any] = {}
        for reduction in reductions:
            identity = reduction_identity(reduction.attr.reduction, reduction.attr.accumulator)
            found = self._value(reduction.args[0])
            if found is not None and found == identity:
                self.neutral.add((reduction.args[0], reduction.attr.reduction))

    def _padded(self, node: Scalar) -> bool:
        """Whether a node is a load that is masked by the row's end alone."""
        return node.op == "load" and not node.args and bool(own_axes(node) & self.reduced)

    def _value(self, node: Scalar) -> Any:
        """What a node is beyond the row; None where that is not known."""
        for each in _behind(node, self.known):
            self.known[each] = self._found(each)
        return self.known[node]

    def _found(self, node: Scalar) -> Any:
        if node.op == "const":
            return node.attr
        if self._padded(node):
            return self.fills.get(node, node.dtype.type(0))
        values = [self.known.get(argument) for argument in node.args]
        if node.op == "exp" and (difference := node.args[0]).op == "sub" and self._vanishes(difference):
            return node.dtype.type(0)
        if not values or any(value is None for value in values):
            return None
        if node.op == "cast":
            whole = is_inexact(node.args[0].dtype) and not is_inexact(node.dtype)
            return None if whole else np.asarray(values[0]).astype(node.dtype)[()]
        if node.op not in _ARITHMETIC:
            return None
        with np.errstate(all="ignore"):
            return np.asarray(_ARITHMETIC[node.op](*values)).astype(node.dtype)[()]

    def _vanishes(self, difference: Scalar) -> bool:
        """Whether exp of a difference is 0 beyond the row, or the row has no number as its sum of these anyway."""
        number, shift = difference.args
        maximum, value = shift_maximum(shift), self.known.get(number)
        return (
            maximum is not None and exact(maximum.args[0]) is exact(number) and value is not None and value == -np.inf
        )


def _filled(dtype: np.dtype) -> bool:
    """Whether loads of a dtype may give another number than 0: floats but those of 8 bits, and whole numbers of up to 32."""
    return (is_inexact(dtype) and not is_complex(dtype) and dtype.itemsize > 1) or (
        dtype.kind in "iu" and dtype.itemsize <= 4
    )


def _special(reduction: Scalar) -> bool:
    """Whether a reduction finds positions, or works on numbers that fills are not made for."""
    accumulator = reduction.attr.accumulator
    return reduction.attr.positional or reduction.attr.reduction == "logaddexp" or is_complex(accumulator)


def _behind(root: Scalar, known: dict[Scalar, Any]) -> Iterator[Scalar]:
    """The nodes that a node is made of and that are not known, each behind its operands; not what reductions are made of."""
    stack, seen = [(root, False)], set[Scalar]()
    while stack:
        node, ready = stack.pop()
        if node in known or (node in seen and not ready):
            continue
        if ready:
            yield node
            continue
        seen.add(node)
        stack.append((node, True))
        if node.op not in ("reduction", "scan"):
            stack.extend((argument, False) for argument in operands(node))
