"""What answers the calls of one signature: compiled programs, each for the state outside that it was traced with.

A call runs the first program whose guards hold; where none do, the function is traced anew. A program that reports an event
that NumPy tells of (fuser.interop.numpy.checks) has had no effect, and the call runs in NumPy instead.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy._core import umath

from fuser.errors import FuserError, PerformanceWarning
from fuser.frames import is_own
from fuser.interop.deferred_compilation import Deferred
from fuser.interop.guards import Guards, Node
from fuser.interop.outputs import DECLINED, Declined
from fuser.interop.trial import SLOWER, Trial
from fuser.ir.source import is_hidden

STALE = object()  # what a program returns whose guards do not hold
MOST_PROGRAMS = 16  # of one signature
MOST_TRACES = 32  # of one signature, for changes outside
EVENTS_BEFORE_PRECISE = 2  # after so many, nan and infinity are told from those that operands held
EVENTS_BEFORE_ADVICE = 16

Run = Callable[[Sequence[Any], tuple[Any, ...], dict[str, Any]], Any]

_DEFAULTS = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}
_errors = umath._extobj_contextvar
_default_errors = _errors.get() if np.geterr() == _DEFAULTS else None


def present_errors() -> Any:
    """What `np.errstate` is in this thread: the same object for as long as nothing sets it."""
    return _errors.get()


def default_state() -> Any:
    """The object that stands for NumPy's own `np.errstate`; None where something else was set before fuser was imported."""
    return _default_errors


def default_errors() -> bool:
    """Whether `np.errstate` is, in this thread, what it is when NumPy is imported."""
    return _errors.get() is _default_errors


def errors_key() -> Any:
    """What `np.errstate` adds to a signature: None by default; NotImplemented where NumPy must run the call."""
    if _errors.get() is _default_errors:
        return None
    state = np.geterr()
    if state["under"] != "ignore":
        return NotImplemented
    return None if state == _DEFAULTS else tuple(state.items())


class Signature:
    """The programs of one signature. `compile(self, leaves)` traces the function and gives a new program's `Run`."""

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        compile: Callable[[Signature, Sequence[Any]], Run],
        arguments: str = "",
    ) -> None:
        self.name = name
        self.arguments = arguments  # in words
        self.function = function
        self.programs: list[Run] = []
        self.guards: dict[Run, Guards] = {}
        self.dynamic: frozenset[Any] = frozenset()  # paths of numbers and small arrays outside that change
        self.events = 0
        self.traces = 0
        self.segments: Any = None  # of a function that cannot be traced whole
        self.trial: Trial | None = None  # while the program and NumPy are timed
        self.how, self.why = "compiled whole", ""
        self.spent = 0.0  # seconds of calls in NumPy while compilation waits
        self.ratio = 0.0  # time of the program over NumPy's, once it is known
        self._compile = compile
        self.path: Any = None  # by which the native core answers calls like an earlier one, of the program tried first
        self.path_of: Callable[[Sequence[Any]], Any] | None = None  # makes it, of a call's arguments

    def __call__(self, leaves: Sequence[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        trial = self.trial
        return self.answer(leaves, args, kwargs) if trial is None else trial(leaves, args, kwargs)

    def answer(self, leaves: Sequence[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The call, by the first program whose guards hold."""
        path = self.path
        if path is not None and not kwargs:
            result = path(*args)
            if result is not path:
                return result
        for run in self.programs:
            result = run(leaves, args, kwargs)
            if result is not STALE:
                return result
        result = self.add(leaves)(leaves, args, kwargs)
        return self.in_numpy(leaves, args, kwargs) if result is STALE else result

    def take_path(self, args: tuple[Any, ...]) -> Any:
        """The path by which the native core answers calls with arguments like these; None where Python must."""
        if self.path_of is not None:
            self.path, self.path_of = self.path_of(args), None
        return self.path

    def drop_path(self) -> None:
        """Another program comes first from now on."""
        if self.path is not None:
            self.path.retire()
        self.path = self.path_of = None

    # ---- never slower

    def measure(self, slower: Callable[[], None]) -> None:
        """Time the coming calls, and leave them to NumPy where it is faster; `slower` hears of that."""
        if self.programs == [self.in_numpy] or self.how.startswith("by "):
            return

        def finished(ratio: float) -> None:
            self.ratio, self.trial = ratio, None
            if self.is_slower:
                self.programs[:] = [self.in_numpy]
                self.guards.clear()
                self.drop_path()
                slower()

        self.trial = Trial(self.answer, self.in_numpy, self._state, finished)

    @property
    def undecided(self) -> bool:
        """Whether calls are timed, or compilation waits."""
        return self.trial is not None or any(isinstance(run, Deferred) for run in self.programs)

    @property
    def is_slower(self) -> bool:
        """Whether NumPy was found to be faster."""
        return self.ratio > SLOWER

    def _state(self) -> Any:
        """What changes in calls that are not timed; None while segments are timed themselves."""
        segments = self.segments
        if segments is None:
            return self.traces
        return None if segments.measuring else (self.traces, len(segments.programs))

    def explain(self) -> str:
        """How calls of this signature are answered, and why."""
        lines = [f"{self.name}({self.arguments}): {self._in_words()}"]
        if self.why:
            lines.append(f"  not one program: {self.why}")
        if self.segments is not None:
            lines += self.segments.explain()
        return "\n".join(lines)

    def _in_words(self) -> str:
        if self.is_slower:
            return f"by NumPy; {self.how} it took {self.ratio:.2f} times NumPy's time"
        if self.ratio:
            return f"{self.how}, in {self.ratio:.2f} times NumPy's time"
        return f"{self.how}, being timed beside NumPy" if self.trial is not None else self.how

    @property
    def precise(self) -> bool:
        """Whether programs are to tell new infinities and nans from those that operands held."""
        return self.events >= EVENTS_BEFORE_PRECISE

    def add(self, leaves: Sequence[Any]) -> Run:
        """A program for these arguments and the outside as it is now; it is tried before the others."""
        self.drop_path()
        changed = self._changed(leaves)
        self.dynamic |= frozenset(path for path, _ in changed)
        self.traces += 1
        if self.traces > MOST_TRACES:
            self._advise(
                f"was traced {self.traces - 1} times because {_listed(changed)} changed",
                "and runs in NumPy from now on",
            )
            run: Run = self.in_numpy
        else:
            run = self._compile(self, leaves)
        self.programs.insert(0, run)
        for old in self.programs[MOST_PROGRAMS:]:
            self.guards.pop(old, None)
        del self.programs[MOST_PROGRAMS:]
        return run

    def _changed(self, leaves: Sequence[Any]) -> list[tuple[Any, Node]]:
        """What differs outside from the last trace, with its path."""
        guards = next((self.guards[run] for run in self.programs if run in self.guards), None)
        if guards is None:
            return []
        return [(guards.path(guards.nodes.index(node)), node) for node in guards.changed(leaves)]

    def state(self, leaves: Sequence[Any]) -> list[tuple[str, Any]]:
        """The values outside by which this program differs from the last, by name."""
        return [(node.name, repr(node.expected)) for _, node in self._changed(leaves)] if self.programs else []

    def in_numpy(self, leaves: Sequence[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The call run as it is written."""
        return self.function(*args, **kwargs)

    def after_error(self, error: Exception, segments: Callable[[], Run], slower: Callable[[], None] | None) -> Run:
        """What answers where a trace has raised: NumPy, whose own error it is as a rule; where there is none, segments.

        `slower` as in `measure`, or None where nothing is measured.
        """
        raised, self.how = False, "by NumPy, which raises as the trace did"

        def run(leaves: Sequence[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            nonlocal raised
            try:
                result = self.function(*args, **kwargs)
            except Exception:
                raised = True
                raise
            if raised:  # and no longer: what lies outside has changed
                self.programs.remove(run)
                self.how = "compiled whole"
            else:
                self.programs[:] = [segments()]
                if not isinstance(error, FuserError) and is_own(error):
                    self._advise(
                        "could not be compiled, by a defect of fuser's", f"it runs {self.how}: {reason(error)}"
                    )
            if slower is not None:
                self.measure(slower)
            return result

        return run

    def of_program(self, guards: Guards, run: Callable[[Sequence[Any], Any], Any], precise: bool) -> Run:
        """What runs a program for as long as the guards hold; where it reports an event, NumPy answers."""

        def call(leaves: Sequence[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            captured = guards.check(leaves)
            if captured is None:
                return STALE
            try:
                result = run(leaves, captured)
            except Declined:
                result = DECLINED
            return self.declined(args, kwargs, precise) if result is DECLINED else result

        self.guards[call] = guards
        return call

    def always_in_numpy(self, guards: Guards) -> Run:
        """What runs as it is written for as long as the guards hold."""

        self.how = "by NumPy, whose answer depends on values"

        def call(leaves: Sequence[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return STALE if guards.check(leaves) is None else self.function(*args, **kwargs)

        self.guards[call] = guards
        return call

    def declined(self, args: tuple[Any, ...], kwargs: dict[str, Any], precise: bool) -> Any:
        """The call of a program that reported an event."""
        self.events += 1
        if self.events == EVENTS_BEFORE_PRECISE and not precise:
            self.programs.clear()  # the next call traces with operands compared
            self.guards.clear()
            self.drop_path()
        if self.events == EVENTS_BEFORE_ADVICE:
            self._advise(
                f"has run in NumPy {self.events} times after its compiled program had met a floating-point error, an index out of bounds "
                "or a number that no integer holds",
                '`with np.errstate(all="ignore")` inside it, where its floating-point errors are expected, keeps it compiled',
            )
        return self.function(*args, **kwargs)

    def _advise(self, what: str, then: str) -> None:
        warnings.warn(f"{self.name} {what}; {then}", PerformanceWarning, stacklevel=callers_level())


def callers_level() -> int:
    """The `stacklevel` with which its caller's warning names the user's line."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and is_hidden(frame.f_code.co_filename):
        level, frame = level + 1, frame.f_back
    return level


def _listed(changed: Sequence[tuple[Any, Node]]) -> str:
    return ", ".join(dict.fromkeys(node.name for _, node in changed)) or "what it reads from outside"


def reason(error: Exception) -> str:
    """Why a function could not be traced, for those who have chosen the way out that the error names."""
    text = str(error) if isinstance(error, FuserError) else f"{type(error).__name__}: {error}"
    return re.sub(r', or run the function in \w+ with fuser\.accelerate\(f, fallback="warn"\)', "", text)
