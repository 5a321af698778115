"""What `make_jaxpr` leaves as the program says it: which scalars are consts of its graph, and that calls of jitted functions are calls.

Consts are the Arrays that the function closes over, not numbers that were written as such.

While such a trace is under way, what turns a number into an Array tells `number`; every other Array of rank 0 came from outside.
Everywhere else scalars from outside are literals, which kernels are specialised for.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

A = TypeVar("A")


class _State(threading.local):
    asked = False  # whether the next function that is traced is make_jaxpr's
    numbers: dict[int, Any] | None = None  # by identity; held, so that none is another's


_state = _State()


def number(array: A) -> A:
    """The array, which stands for a number in the program's text."""
    if _state.numbers is not None:
        _state.numbers[id(array)] = array
    return array


def hoisted(array: Any) -> bool:
    """Whether an Array of rank 0 is to be a const."""
    return _state.numbers is not None and id(array) not in _state.numbers


def calls_kept() -> bool:
    """Whether a call of a jitted function is to be an equation, and not the equations of its graph."""
    return _state.numbers is not None


def hoisting() -> Any:
    """Arrays of rank 0 from outside are consts of the function that is traced in the block, not of jitted ones that it calls; these stay calls."""
    return _with(True, _state.numbers)


def tracing() -> Any:
    """A jitted function is traced in the block: as its calls need it, which share the trace, or as `hoisting` asks."""
    return _with(False, {} if _state.asked else None)


@contextmanager
def _with(asked: bool, numbers: dict[int, Any] | None) -> Iterator[None]:
    saved = _state.asked, _state.numbers
    _state.asked, _state.numbers = asked, numbers
    try:
        yield
    finally:
        _state.asked, _state.numbers = saved
