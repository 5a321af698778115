"""Deferred compilation: NumPy answers until compiling pays. Unrolled loops are seconds of work for a compiler, where NumPy may need microseconds.

In: a traced function. Out: what answers its calls: the program, or NumPy until its calls have taken a share of what compiling
takes (the rule of those who rent skis: at worst a multiple of the better choice is spent). Two estimates decide, one before the graph is optimised, by its
operations, and one before the C compiler runs, by the length of its text; a text that was compiled before costs nothing.
"""

from __future__ import annotations

import functools
import json
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from fuser.frames import hide
from fuser.runtime.cache import default_cache, digest

if TYPE_CHECKING:
    from fuser.api.jitted import Compiled, Lowered
    from fuser.interop.entries import Run, Signature
    from fuser.interop.segments import Segments
    from fuser.interop.stages import AcceleratedTraced

Compile = Callable[["Signature", Sequence[Any]], "Run"]

SECONDS_AN_OPERATION = 1.5e-3  # to optimise and partition a graph, and to write its kernels
SECONDS_A_CHARACTER = 9e-6  # of kernels' text, for the C compiler
LEAST_SECONDS = 1.0  # up to which nothing is put off
FREE_SECONDS = 3.0  # of compiling all signatures of a function, after which each new one has to pay for itself
SHARE = 0.5  # of what compiling takes, that calls take in NumPy before


class Budget:
    """Seconds that compiling a function's signatures took: one that meets new sizes or values in each call is not to compile in each."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.signatures = 0

    def limited(self, compile: Compile, segments: Sequence[Segments], slower: Callable[[], None]) -> Compile:
        """`compile`, for which a new signature waits, where the budget is spent, until its calls have taken a share of what others took.

        `segments` are those of the function's signatures, whose compilation counts too; `slower` is as in `Signature.measure`.
        """

        def when_it_pays(entry: Signature, leaves: Sequence[Any]) -> Run:
            spent = self.seconds + sum(each.compiling for each in segments)
            if spent > FREE_SECONDS and not entry.programs and entry.traces == 1:
                takes = spent / self.signatures
                resume = functools.partial(when_it_pays, entry)
                return Deferred(entry, takes, resume, functools.partial(entry.measure, slower))
            start = time.perf_counter()
            try:
                return compile(entry, leaves)
            finally:
                self.seconds += time.perf_counter() - start
                self.signatures += 1

        return when_it_pays


class Deferred:
    """Calls by NumPy, until they have taken `seconds`; then by what `resume(leaves)` makes. `decided` begins what follows compilation."""

    def __init__(
        self, entry: Signature, takes: float, resume: Callable[[Any], Run], decided: Callable[[], object]
    ) -> None:
        self.entry, self.seconds, self.resume, self.decided = entry, takes * SHARE, resume, decided
        self.lock = threading.Lock()
        entry.how = f"by NumPy until calls have taken {self.seconds:.2g} s, as compiling takes about {takes:.2g} s"

    def __call__(self, leaves: Sequence[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        entry = self.entry
        if entry.spent < self.seconds:
            start = time.perf_counter()
            try:
                return entry.in_numpy(leaves, args, kwargs)
            finally:
                entry.spent += time.perf_counter() - start
        with self.lock:
            if self in entry.programs:
                entry.how = "compiled whole"
                try:
                    run = self.resume(leaves)
                except Exception as error:
                    raise hide(error) from None
                entry.programs[entry.programs.index(self)] = run
                if not isinstance(run, Deferred):
                    self.decided()
                return run(leaves, args, kwargs)
        return entry.answer(leaves, args, kwargs)


def compiled_when_it_pays(
    entry: Signature,
    traced: AcceleratedTraced,
    leaves: Sequence[Any],
    finish: Callable[[Compiled, Sequence[Any]], Run],
    decided: Callable[[], object],
) -> Run:
    """What answers calls of a traced function: `finish(compiled, leaves)`, now or later, with the arguments of that call; `decided`
    is called where it was later.
    """

    def lower(leaves: Sequence[Any]) -> Run:
        lowered = traced.lower()
        takes = _seconds_to_compile(lowered)
        compile = functools.partial(compiled, lowered)
        return compile(leaves) if _due(entry, takes) else Deferred(entry, takes, compile, decided)

    def compiled(lowered: Lowered, leaves: Sequence[Any]) -> Run:
        run = finish(lowered.compile(), leaves)
        if _length(lowered) * SECONDS_A_CHARACTER > LEAST_SECONDS:
            default_cache().put_json(_key(lowered), True)
        return run

    takes = len(traced.graph.eqns) * SECONDS_AN_OPERATION
    return lower(leaves) if _due(entry, takes) else Deferred(entry, takes, lower, decided)


def _due(entry: Signature, takes: float) -> bool:
    return takes <= LEAST_SECONDS or entry.spent >= takes * SHARE


def _seconds_to_compile(lowered: Lowered) -> float:
    takes = _length(lowered) * SECONDS_A_CHARACTER
    return 0.0 if takes > LEAST_SECONDS and default_cache().get_json(_key(lowered)) else takes


def _length(lowered: Lowered) -> int:
    return sum(len(source.text) for source in lowered.sources)


def _key(lowered: Lowered) -> str:
    """Under which the disk cache notes that these kernels were compiled."""
    return digest(json.dumps(["compiled before", *(source.text for source in lowered.sources)]).encode())
