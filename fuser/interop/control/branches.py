"""Branches: `if` and `x if c else y` of a rewritten function. One side runs where the test is known; else both are staged."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser.errors import FuserError
from fuser.interop.control.carry import Carry, changed_names, owners, told, truth
from fuser.interop.control.exits import RESULT
from fuser.interop.control.state import UNBOUND, Variables, undone
from fuser.interop.control.values import Differs, kind_of, leaves_of
from fuser.interop.numpy.checks import Checks, masked_by, notice, telling
from fuser.interop.numpy.context import Context, to_dtype, untraceable
from fuser.interop.numpy.rows import extreme_of, packed
from fuser.interop.numpy.traced import EITHER, TracedArray
from fuser.lax import control as lax
from fuser.lax.elementwise import select
from fuser.ops import elementwise as E
from fuser.ops import movement as V
from fuser.trace import tree
from fuser.trace.body import staged_body
from fuser.trace.core import bind

MOST_BLOCKS = 200
MOST_COPIED_BYTES = 1 << 14  # of an array of the caller's, where the branch that writes to it may not be taken
_JOINED = "writing to an array that a branch on values has chosen cannot be traced|write to a copy of it"
_PYTHONS = {"b": bool, "i": int, "f": float}  # by kinds of NumPy's
_CHOSEN = "the value of a conditional expression"


class Branches:
    """Branches of one trace, and what their tests are made of."""

    context: Context
    staged = 0  # loops, branches and numbers that the program alone knows
    blocks = 0  # of loops and branches that were traced, each several times
    mixed = False  # whether branches gave a variable a number of Python's on one side and a NumPy scalar on the other
    scalars = False  # whether it is the scalar then, and a call that takes the other side runs in NumPy

    def begin(self, context: Context) -> None:
        """Begin a trace."""
        self.context, self.staged, self.blocks = context, 0, 0

    def count(self) -> None:
        """Count a block that is staged; UnsupportedError where they are so many, as in nested ones, that a call pays for none of it."""
        self.blocks += 1
        if self.blocks > MOST_BLOCKS:
            raise untraceable("loops and branches on values nested so deeply cannot be traced")

    def attempt(self, function: Callable[..., Any], avals: Sequence[Any]) -> None:
        """Stage a function for what it does while it is traced."""
        structure = tree.structure(tuple(range(len(avals))))
        staged_body(function, structure, avals, lambda leaves, _: leaves, kept=lambda: False)

    def branch(self, test: Any, then: Callable[[], Any], orelse: Callable[[], Any]) -> None:
        """`if test: then() else: orelse()`."""
        chosen = truth(test)
        if isinstance(chosen, bool):
            (then if chosen else orelse)()
        else:
            self._joined(chosen, then, orelse)

    def choose(self, test: Any, then: Callable[[], Any], orelse: Callable[[], Any]) -> Any:
        """`then() if test else orelse()`."""
        chosen = truth(test)
        if isinstance(chosen, bool):
            return (then if chosen else orelse)()
        return self._joined(chosen, then, orelse)

    def _joined(self, chosen: Any, then: Callable[[], Any], orelse: Callable[[], Any]) -> Any:
        self.staged += 1
        variables = Variables([then, orelse])
        sides = [_Side(self, side, variables) for side in (then, orelse)]
        for side in sides:
            try:
                self.attempt(side.trial, ())
            except FuserError:
                raise
            except Exception as error:  # NumPy raises it, should it come to that
                side.error = error
        failed = [side for side in sides if side.error is not None]
        if len(failed) == 2:
            raise failed[0].error  # type: ignore[misc]
        if failed:
            notice(chosen if failed[0] is sides[0] else bind(E.not_p, chosen))
            return sides[failed[0] is sides[0]].function()
        return self._staged(chosen, sides, variables)

    def _staged(self, chosen: Any, sides: Sequence[_Side], variables: Variables) -> Any:
        carry, unset = _common(self.context, sides, variables)
        self._agree(chosen, sides, carry)
        if carry.kinds or carry.arrays or any(side.tells for side in sides):
            for side in sides:
                side.carry = carry
            with telling():
                *found, event = lax.cond(chosen, sides[0].tracked, sides[1].tracked)
            notice(event)
            values = carry.place(found, dict.fromkeys(carry.kinds, _JOINED), carry.shared)
        else:
            values = {}
        result = values.pop(_CHOSEN, None)
        variables.write(values | dict.fromkeys(unset, UNBOUND))
        return result

    def _agree(self, chosen: Any, sides: Sequence[_Side], carry: Carry) -> None:
        """Where a number is Python's on one side and a NumPy scalar on the other: note it, or have it be the scalar."""
        pythons = set()
        for name, kinds in carry.kinds.items():
            for n, kind in enumerate(kinds):
                if kind.weak in EITHER:
                    self.mixed = True
                    found = [side for side in sides if side.weak(name, n) is None]
                    if self.scalars and len(found) == 1:
                        kinds[n] = kind._replace(weak=None)
                        pythons.add(found[0] is sides[0])
        for scalar_first in pythons:
            notice(bind(E.not_p, chosen) if scalar_first else chosen)

    # ---- tests

    def both(self, first: Any, second: Callable[[], Any]) -> Any:
        """`first and second()`, of which Python asks whether it is true."""
        return self._connected(first, second, E.and_p, False)

    def either(self, first: Any, second: Callable[[], Any]) -> Any:
        """`first or second()`, of which Python asks whether it is true."""
        return self._connected(first, second, E.or_p, True)

    def _connected(self, first: Any, second: Callable[[], Any], operation: Any, decisive: bool) -> Any:
        one = truth(first)
        if isinstance(one, bool):
            return decisive if one is decisive else second()
        with masked_by(bind(E.not_p, one) if decisive else one):
            other = truth(second())
        if isinstance(other, bool):
            return decisive if other is decisive else first
        return self._bool(bind(operation, one, other))

    def negated(self, value: Any) -> Any:
        """`not value`."""
        found = truth(value)
        return not found if isinstance(found, bool) else self._bool(bind(E.not_p, found))

    def _bool(self, value: Any) -> TracedArray:
        return TracedArray(self.context, value, scalar=True, weak=bool)

    # ---- functions of Python's that ask for values

    def number(self, function: Any, *args: Any) -> Any:
        """`function(*args)`, where it may be `float`, `int`, `bool`, `max` or `min` of values that the program alone knows."""
        if len(args) == 1 and function in (builtins.max, builtins.min) and (items := packed(args[0])) is not None:
            return extreme_of(items, args[0][-1].weak, function is builtins.max)
        if not any(isinstance(arg, TracedArray) and not arg.known for arg in args):
            return function(*args)
        if function in (builtins.max, builtins.min) and len(args) > 1:
            return self._extreme(function is builtins.max, args)
        x = args[0]
        if len(args) > 1 or function not in (float, int, bool) or x.size != 1 or x.dtype.kind == "c":
            return function(*args)
        return self._converted(x, function)

    def item(self, x: Any) -> Any:
        """`x.item()`."""
        kind = _PYTHONS.get(x.dtype.kind) if isinstance(x, TracedArray) and not x.known and x.size == 1 else None
        return x.item() if kind is None else self._converted(x, kind)

    def _converted(self, x: TracedArray, kind: type) -> TracedArray:
        """The one element of an array as a number of Python's."""
        self.staged += 1
        if kind is bool:
            return self._bool(truth(x))
        value = to_dtype(x.lifted(), np.dtype(np.float64 if kind is float else np.int64))
        value = bind(V.reshape_p, value, new_sizes=(), dimensions=None) if value.shape else value
        return TracedArray(self.context, value, scalar=True, weak=kind)

    def _extreme(self, largest: bool, args: Sequence[Any]) -> Any:
        found = args[0]
        for other in args[1:]:
            better = truth(other > found if largest else other < found)
            if isinstance(better, bool):
                found = other if better else found
                continue
            carry = Carry(self.context)
            carry.add("the larger or smaller of numbers", found)
            carry.join("the larger or smaller of numbers", [other])
            if any(kind.shape for kinds in carry.kinds.values() for kind in kinds):
                raise untraceable("max and min of arrays cannot be traced", "use np.maximum and np.minimum")
            (old,) = carry.values(dict.fromkeys(carry.kinds, found))
            (new,) = carry.values(dict.fromkeys(carry.kinds, other))
            (found,) = carry.place([select(better, new, old)], {}).values()
        return found


class _Side:
    """One side of a branch: what it changes, once it has been tried."""

    def __init__(self, control: Branches, function: Callable[[], Any], variables: Variables) -> None:
        self.control, self.context, self.function, self.variables = control, control.context, function, variables
        self.error: Exception | None = None
        self.carry: Carry | None = None
        self.tells = False
        self.after: dict[str, Any] = {}
        self.written: list[TracedArray] = []

    def trial(self) -> list[Any]:
        """Run it for what it changes."""
        self.control.count()
        with undone(self.context, self.variables) as log, Checks().active() as checks:
            before = self.variables.read()
            value = self.function()
            after = self.variables.read()
            self.after = {name: after[name] for name in changed_names(before, after)} | {_CHOSEN: value}
            self.written, self.tells = log.arrays(), bool(checks._conditions or checks.always)
        return []

    def weak(self, name: str, leaf: int) -> Any:
        """Of what kind of Python's the leaf of a variable is afterwards; None for a NumPy scalar."""
        value = self.after[name] if name in self.after else self.variables.read()[name]
        return kind_of(leaves_of(value, name)[0][leaf], name).weak

    def tracked(self) -> Any:
        """What it leaves to the carry, and whether an event happened."""
        assert self.carry is not None
        self.control.count()
        checks = Checks()
        with undone(self.context, self.variables), checks.active():
            value = self.function()
            results = self.carry.values(self.variables.read() | {_CHOSEN: value})
            return (*results, told(checks, results, self.context.precise))


def _common(context: Context, sides: Sequence[_Side], variables: Variables) -> tuple[Carry, list[str]]:
    """What either side changes, and the variables that have no value afterwards, as one side gives them none."""
    carry, unset = Carry(context), []
    alone, before = variables.alone(context), variables.read()
    for name in dict.fromkeys(name for side in sides for name in side.after):
        values = [side.after.get(name, before.get(name)) for side in sides]
        if any(value is UNBOUND for value in values):
            unset.append(name)
            continue
        if all(value is None for value in values):
            continue
        given = values[0] if values[0] is not None or name != RESULT else values[1]
        _check_memory(context, name, sides, before, alone, carry.shared)
        try:
            carry.add(name, given)
            carry.join(name, values)
        except Differs:
            raise untraceable(f"{name} is of another type in one branch than in the other") from None
    for array in (array for side in sides for array in side.written):
        _check_size(context, array)
        if all(array is not other for other in carry.arrays):
            carry.arrays.append(array)
    return carry, unset


def _check_size(context: Context, array: TracedArray) -> None:
    """Refuse a branch, in no loop, that writes to a large array of the caller's: a program stores it though the branch is not taken."""
    if not context.logs and array.nbytes > MOST_COPIED_BYTES and any(array is given for _, given in context.arguments):
        raise untraceable("writing to a large argument in a branch on values cannot be traced", "return the new values")


def _check_memory(
    context: Context,
    name: str,
    sides: Sequence[_Side],
    before: dict[str, Any],
    alone: set[str],
    shared: dict[str, list[int]],
) -> None:
    """Refuse to join arrays of which others may see or make changes; none may be made from now on to those that are `shared`."""
    given = [array for _, array in context.arguments]
    for side in sides:
        value = side.after.get(name, before.get(name))
        old = [array for array in owners(value, name) if array._level <= len(context.logs)]
        if name == RESULT:
            old = [array for array in old if any(array is other for other in given)]
        if not old or (name not in side.after and name in alone):
            continue
        if any(array._level < len(context.logs) or any(array is other for other in given) for array in old):
            raise untraceable(
                f"a branch on values after which {name} shares memory cannot be traced", "bind a copy of it"
            )
        for array in old:
            array._guard = array._guard or _JOINED
        shared.setdefault(name, []).extend(map(context.number_of, old))
