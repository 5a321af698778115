"""Loops: `while` and `for` of a rewritten function. Iterations run as they are written for as long as their tests are known; the
others are staged as one loop of the program, which carries what they change, the test, and whether an event happened.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser.errors import FuserError
from fuser.interop.control.appended import SHARED, Appended, latest, shared_memory
from fuser.interop.control.branches import Branches
from fuser.interop.control.carry import Carry, as_flag, changed_names, check_memory, owners, sharing, told, truth
from fuser.interop.control.exits import RESULT
from fuser.interop.control.rewrite import CONTROL, rewritten
from fuser.interop.control.sequences import Counted, is_sequence, made_by
from fuser.interop.control.sequences import item as item_of
from fuser.interop.control.state import UNBOUND, Variables, undone
from fuser.interop.control.values import Differs
from fuser.interop.numpy.checks import Checks, notice, telling
from fuser.interop.numpy.context import untraceable
from fuser.interop.numpy.traced import TracedArray
from fuser.lax import control as lax
from fuser.lax.values import literal
from fuser.ops import elementwise as E
from fuser.trace.core import Tracer, bind

MOST_UNROLLED = 16  # iterations with known tests that are run one by one
MOST_ATTEMPTS = 8  # to find out what a loop carries
_INDEX = np.dtype(np.int64)


class Control(Branches):
    """What the code of one trace calls for its loops and branches (fuser.interop.control.rewrite)."""

    def rewritten(
        self, code: types.CodeType, cells: list[types.CellType]
    ) -> tuple[types.CodeType, list[types.CellType]]:
        """A function's code and closure with loops and branches as calls of this; as they are where that cannot be."""
        made = rewritten(code)
        if made is None:
            return code, cells
        by_name = dict(zip(code.co_freevars, cells)) | {CONTROL: types.CellType(self)}
        return made, [by_name[name] for name in made.co_freevars]

    def while_loop(
        self, test: Callable[[], Any], body: Callable[[], Any], stop: str | None, dead: tuple[str, ...]
    ) -> None:
        """`while test(): body()`, which the variable `stop` ends; nothing reads the variables `dead` of the last iteration."""
        _Loop(self, test, body, stop, dead).run()

    def for_loop(
        self,
        items: Any,
        body: Callable[[Any], Any],
        stop: str | None,
        dead: tuple[str, ...],
        lists: Sequence[tuple[str, Callable[[], Any]]] = (),
    ) -> None:
        """`for item in items: body(item)`, as `while_loop`. After each iteration a variable's value is appended, for each of `lists`."""
        cells = Variables([body]).cells
        appended = [Appended(cells[variable], given()) for variable, given in lists]
        staged = all(type(each.found) is list for each in appended)
        if staged and type(items) is range and len(items) > 1:
            _Loop(self, None, body, stop, dead, items, appended=appended).run()
            return
        if staged and is_sequence(items) and len(items) > MOST_UNROLLED:
            item = functools.partial(item_of, items)
            _Loop(self, None, body, stop, dead, range(len(items)), item, appended=appended).run()
            return
        if type(items) is Counted and not appended:
            step, test = _counting(items, body)
            _Loop(self, test, step, stop, dead, within=[body]).run()
            return
        flag = None if stop is None else cells[stop]
        for item in items:
            body(item)
            for each in appended:
                each.append()
            if flag is not None and truth_known(flag.cell_contents):
                break

    def latest(self, found: Any) -> Any:
        """`found[-1]`, which a loop that appends to `found` reads."""
        return latest(found)

    def listed(self, items: Any, function: Callable[..., Any], several: bool) -> list[Any]:
        """`[function(item) for item in items]`; with `several`, of parts of items."""
        found: list[Any] = []
        _fuser_function, _fuser_value = function, None

        def body(item: Any) -> None:
            nonlocal _fuser_value
            _fuser_value = _fuser_function(*item) if several else _fuser_function(item)

        self.for_loop(items, body, None, ("_fuser_value",), [("_fuser_value", lambda: found)])
        return found

    def summed(self, function: Any, items: Any, of: Callable[..., Any], several: bool) -> Any:
        """`sum(of(item) for item in items)`, in that order."""
        if function is not sum:
            return function([of(*item) if several else of(item) for item in items])
        _fuser_of, _fuser_total = of, 0

        def body(item: Any) -> None:
            nonlocal _fuser_total
            _fuser_total = _fuser_total + (_fuser_of(*item) if several else _fuser_of(item))

        self.for_loop(items, body, None, ())
        return _fuser_total

    def items(self, function: Any, *arguments: Any) -> Any:
        """`function(*arguments)`, which a loop goes over."""
        return made_by(function, arguments, lambda value: self.number(int, value))


def _counting(items: Counted, body: Callable[[Any], Any]) -> list[Callable[[], Any]]:
    """The body and the test of a loop over so many items as values say. Names are such as no variable of a user's has."""
    _fuser_items, _fuser_body, _fuser_position = items, body, 0

    def step() -> None:
        nonlocal _fuser_position
        _fuser_body(_fuser_items[_fuser_position])
        _fuser_position += 1

    return [step, lambda: _fuser_position < _fuser_items.count]


def with_control(trace: Callable[[Control], Any]) -> Any:
    """What `trace` makes of a function whose loops, branches and numbers are staged; None where there are none, or they cannot be."""
    control = Control()
    for control.scalars in (False, True):
        try:
            traced = trace(control)
        except Exception:  # the error of the function as it is written tells more
            if not control.mixed:
                return None
            continue
        return traced if control.staged else None
    return None


def truth_known(value: Any) -> bool:
    """Whether a flag is set; UnsupportedError where the program alone knows."""
    found = truth(value)
    if isinstance(found, Tracer):
        raise untraceable("a loop over anything but a range, which values end, cannot be traced")
    return bool(found)


class _Loop:
    """One loop. Without a test it goes over `item(n)` for the integers `items`. The functions `within` are what the body calls."""

    def __init__(
        self,
        control: Control,
        test: Any,
        body: Any,
        stop: str | None,
        dead: Any,
        items: range | None = None,
        item: Any = None,
        within: Sequence[Any] = (),
        appended: Sequence[Appended] = (),
    ) -> None:
        self.control, self.context, self.test, self.body, self.stop, self.items = (
            control, control.context, test, body, stop, items,
        )  # fmt: skip
        self.item = (lambda position: position) if item is None else item
        self.dead = set(dead)
        self.variables = Variables([*within, body] if test is None else [*within, body, test])
        self.appended = appended
        self.done = 0
        self.peeled = False  # whether an iteration was run first, so that variables have the kinds that they keep

    def run(self) -> None:
        """Run iterations as they are written, and stage the others as soon as that is needed and can be."""
        hopeless = False
        while (go := self._goes()) is not False:
            needed = isinstance(go, Tracer)
            if needed or (self._is_long() and not hopeless):
                try:
                    return self._stage(go)
                except Differs as differs:
                    if self.peeled and needed:
                        raise untraceable(f"{differs} changes its type in a loop on values") from None
                    hopeless, self.peeled = self.peeled, True
                except FuserError:
                    if needed:
                        raise
                    hopeless = True
            if needed:
                notice(bind(E.not_p, go))  # so that this iteration is known to run
            self.done += 1
            self._iterate(None)

    def _is_long(self) -> bool:
        """Whether so many iterations are to come that one staged for all is better."""
        return (self.done if self.items is None else len(self.items) - self.done) > MOST_UNROLLED

    def _goes(self) -> Any:
        """Whether another iteration runs, as far as that is known."""
        stopped = False if self.stop is None else truth(self.variables.cells[self.stop].cell_contents)
        if stopped is True or (self.items is not None and self.done >= len(self.items)):
            return False
        return self._joined(stopped, True if self.test is None else truth(self.test()))

    def _joined(self, stopped: Any, go: Any) -> Any:
        """`go and not stopped`."""
        if stopped is False or go is False:
            return go
        if stopped is True:
            return False
        going = bind(E.not_p, stopped)
        return going if go is True else bind(E.and_p, going, go)

    def _iterate(self, counter: Any) -> None:
        if self.items is None:
            self.body()
        elif counter is None:
            self.body(self.item(self.items[self.done - 1]))
            for each in self.appended:
                each.append()
        else:
            step, start = literal(self.items.step, _INDEX), literal(self.items.start, _INDEX)
            item = bind(E.add_p, bind(E.mul_p, counter, step), start)
            self.body(self.item(TracedArray(self.context, item, scalar=True, weak=int)))

    # ---- staging

    def _stage(self, go: Any) -> None:
        alone = self.variables.alone(self.context)
        initial = self.context.held(self.variables.read())
        carry = Carry(self.context)
        for each in self.appended:
            each.begin()
        for _ in range(MOST_ATTEMPTS):
            step = _Step(self, carry, initial, alone)
            first = carry.values(initial)
            self.control.attempt(
                step.trial, [v.aval if isinstance(v, Tracer) else _aval(v) for v in (*first, _first(self.done))]
            )
            if not step.more(carry, initial):
                break
        else:
            raise untraceable("a loop on values whose variables do not keep their types cannot be traced")
        if isinstance(go, Tracer) and any(owners(initial[name], name) for name in set(carry.kinds) - alone):
            notice(bind(E.not_p, go))  # without an iteration, variables are the very arrays that they were
        flags = [literal(False, np.dtype(bool)), as_flag(go)]
        with telling():
            *found, _, event, _ = lax.while_loop(_goes_on, step.tracked, (*first, _first(self.done), *flags))
        notice(event)
        self.control.staged += 1
        unset = dict.fromkeys(self.dead & set(step.changed), UNBOUND)
        self.variables.write(carry.place(found, step.guards, carry.shared) | unset)
        for owner in step.old:
            owner._guard = SHARED
        for each in self.appended:
            each.finish(self.context, step.shared, step.old)


def _goes_on(state: Any) -> Any:
    return bind(E.and_p, state[-1], bind(E.not_p, state[-2]))


def _first(number: int) -> Any:
    return literal(number, _INDEX)


def _aval(value: Any) -> Any:
    from fuser.trace.core import type_of

    return type_of(value)


class _Step:
    """One iteration with a carry, staged; what it changed beyond that."""

    def __init__(self, loop: _Loop, carry: Carry, initial: dict[str, Any], alone: set[str]) -> None:
        self.loop, self.carry, self.initial, self.alone = loop, carry, initial, alone
        self.changed: list[str] = []
        self.guards: dict[str, str] = {}
        self.joined = self.shared = False
        self.old: list[TracedArray] = []
        self._after: dict[str, Any] = {}
        self._written: list[Any] = []

    def trial(self, *values: Any) -> list[Any]:
        """The iteration, for what it changes."""
        return self._run(values)

    def tracked(self, state: Any) -> Any:
        """The iteration as the body of a loop: (leaves, counter, event, go) to the same."""
        return tuple(self._run(state[:-2]))

    def _run(self, values: Any) -> list[Any]:
        loop, context, checks = self.loop, self.loop.context, Checks()
        loop.control.count()
        *leaves, counter = values
        with undone(context, loop.variables) as log, checks.active():
            level = len(context.logs)
            heads = context.held(self.carry.place(leaves, {}))
            loop.variables.write(heads)
            start = context.held(loop.variables.read())
            loop._iterate(counter)
            self._append(counter)
            after = loop.variables.read()
            self._note(start, after, log)
            self.joined = self._join(self.carry)
            results = self.carry.values(after)
            go = self._going(counter)
            self.guards = check_memory(heads, after, self.initial, self.alone, log, level)
            self._check_items(heads, after, log, level)
            self.carry.shared = sharing(context, heads, after, level)
            event = told(checks, [*results, go], context.precise)
        return [*results, bind(E.add_p, counter, _first(1)), event, go]

    def _append(self, counter: Any) -> None:
        """Write what the iteration appends to lists."""
        for each in self.loop.appended:
            each.store(self.loop.context, bind(E.sub_p, counter, _first(self.loop.done)))

    def _check_items(self, heads: dict[str, Any], after: dict[str, Any], log: Any, level: int) -> None:
        """What must not be written to any more, as items of a list have its memory."""
        rows = {id(array) for each in self.loop.appended for array in each.arrays}
        written = [array for array in log.arrays() if id(array) not in rows]
        names, self.old = shared_memory(self.loop.appended, heads, after, written, level)
        self.guards |= dict.fromkeys(names, SHARED)
        count = sum(len(each.owners) for each in self.loop.appended)
        distinct = {id(owner) for each in self.loop.appended for owner in each.owners}
        self.shared = bool(names or self.old) or len(distinct) < count

    def _going(self, counter: Any) -> Any:
        loop = self.loop
        if loop.items is None:
            return as_flag(loop._goes())
        stopped = False if loop.stop is None else truth(loop.variables.cells[loop.stop].cell_contents)
        more = bind(E.lt_p, bind(E.add_p, counter, _first(1)), _first(len(loop.items)))
        return as_flag(loop._joined(stopped, more))

    def _note(self, start: dict[str, Any], after: dict[str, Any], log: Any) -> None:
        self.changed = changed_names(start, after)
        self._after = {name: after[name] for name in self.changed}
        self._written = [array for array in log.arrays() if all(array is not other for other in self.carry.arrays)]

    def _join(self, carry: Carry) -> bool:
        """Have the carry be of kinds that an iteration keeps; whether they are others than they were."""
        before = dict(carry.kinds)
        for name in carry.kinds:
            carry.join(name, [self._after[name]] if name in self._after else [], self.loop.peeled)
        return before != carry.kinds

    def more(self, carry: Carry, initial: dict[str, Any]) -> bool:
        """Have the carry hold what else was changed; whether there was anything."""
        names = [n for n in self.changed if n not in carry.kinds and n not in self.loop.dead]
        for name in names:
            if initial[name] is UNBOUND:
                raise Differs(name)
            returned = name == RESULT and initial[name] is None
            carry.add(name, self._after[name] if returned else initial[name])
        carry.arrays += self._written
        count = 0 if self.loop.items is None else len(self.loop.items) - self.loop.done
        made = [each.made(self.loop.context, count) for each in self.loop.appended]
        return self._join(carry) or self.joined or bool(names or self._written) or any(made)
