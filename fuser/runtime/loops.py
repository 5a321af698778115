"""Control flow driven from Python, over functions from arrays to arrays; for bodies that native code cannot run.

Arrays are ndarrays or tensors; `allocate(shape, dtype)` gives the memory of stacked results. A predicate is read on the
host, so on a GPU each step of a while loop waits for the one before; scans and branches over a known index do not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Function = Callable[..., Sequence[Any]]


def while_loop(test: Function, body: Function, test_consts: int, body_consts: int) -> Function:
    """Operands are the test's constants, the body's, and the carry. What the test gives beyond its bool goes to the body."""

    def run(*operands: Any) -> list[Any]:
        first = test_consts + body_consts
        of_test, of_body, carry = operands[:test_consts], operands[test_consts:first], list(operands[first:])
        while True:
            going, *lanes = test(*of_test, *carry)
            if not bool(going):
                return carry
            carry = list(body(*lanes, *of_body, *carry))

    return run


def scan(
    body: Function,
    consts: int,
    carries: int,
    length: int,
    reverse: bool,
    ys: Sequence[tuple[tuple[int, ...], Any]],
    allocate: Callable[[tuple[int, ...], Any], Any],
) -> Function:
    """Operands are the constants, the carry and the xs; `ys` are shape and dtype of one step's part of each stacked result."""

    def run(*operands: Any) -> list[Any]:
        fixed, carry, xs = operands[:consts], list(operands[consts : consts + carries]), operands[consts + carries :]
        stacked = [allocate((length, *shape), dtype) for shape, dtype in ys]
        for step in reversed(range(length)) if reverse else range(length):
            results = body(*fixed, *carry, *(x[step : step + 1].reshape(x.shape[1:]) for x in xs))
            carry = list(results[:carries])
            for y, value in zip(stacked, results[carries:]):
                y[step] = value
        return [*carry, *stacked]

    return run


def cond(branches: Sequence[Function]) -> Function:
    """Operands are the index, which is clamped, and those of the branches."""

    def run(index: Any, *operands: Any) -> list[Any]:
        return list(branches[min(max(int(index), 0), len(branches) - 1)](*operands))

    return run
