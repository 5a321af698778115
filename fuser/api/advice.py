"""Warnings with numbers about what costs a program time or memory without its author knowing.

Each says what was found, on which line, what it has cost so far and how to avoid it, as a `PerformanceWarning` that
carries the user's line. It is given when a program is compiled, so calls that find their program pay nothing.
"""

from __future__ import annotations

import functools
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fuser.api import compiler
from fuser.api.signatures import SETTINGS, STATIC, because, signature
from fuser.config import config
from fuser.errors import PerformanceWarning
from fuser.ir.graph import Graph
from fuser.ir.source import Source, current_source

if TYPE_CHECKING:
    from fuser.api.jitted import Jitted
    from fuser.api.stages import Compiled, Traced

COMPILATIONS = (8, 32, 128, 512)  # of one function: when to speak
LEAST_SECONDS = 0.5  # that they have taken together
_MEGABYTE = 1 << 20
LEAST_DONATED = _MEGABYTE  # bytes that could not be taken over though a result has their type: when to speak
MANY_ELEMENTS = 1 << 20  # of a kernel without vector instructions: when to speak
KERNELS_SHOWN = 3  # of them that a warning names
DONATIONS_SHOWN = 4  # arguments that a warning names


class Costs:
    """How often each function was compiled, and the seconds that took: of one jitted function, and of one place in the code."""

    def __init__(self) -> None:
        self.jitted: weakref.WeakKeyDictionary[Any, float] = weakref.WeakKeyDictionary()
        self.code: weakref.WeakKeyDictionary[Any, tuple[int, float]] = weakref.WeakKeyDictionary()
        self.lock = threading.Lock()

    def add(self, jitted: Jitted, seconds: float) -> tuple[float, int, float]:
        """Count a compilation; gives the function's seconds, and how many jitted functions its code made, and theirs."""
        code = _code(jitted)
        with self.lock:
            first = jitted not in self.jitted
            own = self.jitted[jitted] = self.jitted.get(jitted, 0.0) + seconds
            if code is None:
                return own, 0, 0.0
            count, total = self.code.get(code, (0, 0.0))
            count, total = count + first, total + seconds
            self.code[code] = (count, total)
        return own, count, total


_costs = Costs()


def timed(jitted: Jitted, compile: Callable[[], Any]) -> Any:
    """What `compile` gives, a Compiled for the newest signature of `jitted`; its cost is counted, and told if it mounts up."""
    start = time.perf_counter()
    compiled = compile()
    own, jits, of_code = _costs.add(jitted, time.perf_counter() - start)
    captured(compiled.traced.graph)
    donations(compiled)
    unvectorised(compiled)
    count = len(jitted._programs)
    if count in COMPILATIONS and own >= LEAST_SECONDS:
        _warn(recompilations(jitted, own), current_source())
    elif count == 1 and jits in COMPILATIONS and of_code >= LEAST_SECONDS:
        code = _code(jitted)
        line = Source(code.co_filename, code.co_firstlineno).short
        what, instead = (
            "the function {} was given to fuser.jit",
            "call fuser.jit once, outside the loop, and keep what it returns",
        )
        if hasattr(jitted.function, "kernel"):
            what, instead = "the kernel {} was given to pallas_call", "call it within a function under fuser.jit"
        _warn(
            f"{what.format(f'{jitted.name} ({line})')} {jits} times and compiled anew each time, {of_code:.2f} s so far; {instead}",
            current_source(),
        )
    return compiled


def _code(jitted: Jitted) -> Any:
    """The code of the function, or of the kernel by hand that it calls; None where it has none."""
    function = getattr(jitted.function, "kernel", jitted.function)
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__code__", None)


def recompilations(jitted: Jitted, seconds: float) -> str:
    """What made a function compile so often, what it cost, and how to avoid it."""
    programs = dict(jitted._programs)  # other threads may be compiling too
    found = [signature(jitted, key) for key in programs]
    kernels = sum(program.program.loaded.compiled for program in programs.values())
    last = " and ".join(because(found[:-1], found[-1]))
    return (
        f"{jitted.name} was traced {len(found)} times for different arguments, {seconds:.2f} s so far "
        f"({kernels} {'kernel was' if kernels == 1 else 'kernels were'} compiled); the last time {last}; "
        f"{way_out(found)}"
    )


def explain_miss(jitted: Jitted, key: Any) -> None:
    """Log why a function is traced: what it was never called with, against the nearest signature that it knows."""
    code = getattr(jitted.function, "__code__", None)
    where = "" if code is None else f" defined at {Source(code.co_filename, code.co_firstlineno).short}"
    known = [signature(jitted, earlier[: len(key)]) for earlier in list(jitted._programs)]
    text = f"TRACING CACHE MISS at {current_source().short}:\n  "
    if known:
        found = signature(jitted, key)
        text += f"for {jitted.name}{where}\n  all previously seen cache keys differ. For the closest previous key:\n  "
        text += "\n  ".join(f"* {difference}" for difference in because(known, found))
    else:
        text += f"never seen function:\n    {jitted.name}{where}"
    import logging  # here, as few programs come here

    logging.getLogger("fuser").warning("%s", text)


def way_out(found: list[dict[str, str]]) -> str:
    """How to have fewer signatures, by what differs most often among them."""
    names = dict.fromkeys(name for one in found for name in one)
    values = {name: {one.get(name) for one in found} for name in names}
    if len(values["structure"]) > 1:
        return "pass the same tree of containers each time"
    most = max((name for name in names if name not in SETTINGS), key=lambda name: len(values[name]), default="")
    if most.startswith(STATIC):
        name = most.removeprefix(STATIC)
        return f"pass {name} as an array (not static) if no Python code depends on it"
    dtypes = {str(value).partition("[")[0] for value in values.get(most, ())}
    if len(dtypes) == len(values.get(most, ())):
        return f"give {most} one dtype each time, as fuser.numpy.asarray({most}, dtype) does"
    return f"pad {most} to a few sizes, or process it in pieces of one size"


def captured(graph: Graph) -> None:
    """Warn of large arrays that a function closed over: they live as long as its program does."""
    limit = config.captured_constants_warn_bytes
    sizes = [v.aval.nbytes for v in graph.constvars]
    if limit < 0 or sum(sizes) < limit:
        return
    largest = max(graph.constvars, key=lambda v: v.aval.nbytes)
    use = next((eqn.source for eqn in graph.eqns if largest in eqn.invars), current_source())
    number = f"{len(sizes)} arrays" if len(sizes) > 1 else "an array"
    _warn(
        f"{graph.name} closes over {number} of {sum(sizes) / _MEGABYTE:.0f} MiB (the largest, {largest.aval}, is used at "
        f"{use}), which each of its programs keeps; pass large arrays as arguments, or raise captured_constants_warn_bytes",
        use,
    )


def donations(compiled: Compiled) -> None:
    """Warn of donated arguments that no result takes over: they are gone, and nothing was saved.

    As JAX does if no result has the type; if only the way it is computed is in the way, from `LEAST_DONATED` bytes on.
    """
    traced, plan = compiled.traced, compiled.plan
    found = compiler.unused(plan, traced.donated, traced._backend.limits) if traced.donated else []
    bytes_of = [plan.graph.invars[one.position].aval.nbytes for one in found]
    if sum(bytes_of) < LEAST_DONATED and all(one.fits for one in found):
        return
    order = sorted(range(len(found)), key=lambda n: -bytes_of[n])
    named = [
        f"{traced.path(found[n].position)} ({plan.graph.invars[found[n].position].aval}): {found[n].reason}"
        for n in order[:DONATIONS_SHOWN]
    ]
    more = f"; and {len(found) - len(named)} more" if len(found) > len(named) else ""
    _warn(
        f"{traced.graph.name} takes over the memory of {len(traced.donated) - len(found)} of {len(traced.donated)} donated arrays; "
        f"{_words(sum(bytes_of))} are given away in vain: {'; '.join(named)}{more}; donate only what a result of the same "
        "shape and dtype replaces",
        current_source(),
    )


def unvectorised(compiled: Compiled) -> None:
    """Warn of kernels that compute many elements one after the other."""
    found = [(source, *source.launch["scalar"]) for source in compiled.sources if "scalar" in source.launch]
    large = sorted((one for one in found if one[2] >= MANY_ELEMENTS), key=lambda one: -one[2])
    if not large:
        return
    lines = {group.name: group.sources for group in compiled.plan.groups}
    named = []
    for source, reason, count in large[:KERNELS_SHOWN]:
        line = next((s.short for s in lines.get(source.name, ()) if s.file), "")
        named.append(f"{source.name}{f' ({line})' if line else ''}, {count:,} elements: {reason}")
    more = f"; and {len(large) - len(named)} more" if len(large) > len(named) else ""
    kernels = "a kernel" if len(large) == 1 else f"{len(large)} kernels"
    _warn(
        f"{compiled.traced.graph.name} has {kernels} without vector instructions: {'; '.join(named)}{more}",
        current_source(),
    )


def held(traced: Traced, position: int) -> None:
    """Warn, once a program and argument, that a donated array's memory is not the call's alone."""
    aval = traced.graph.invars[position].aval
    _warn(
        f"{traced.path(position)} ({aval}, {_words(aval.nbytes)}) was donated to {traced.graph.name} while its memory is still held "
        "elsewhere (by an ndarray or a tensor, as np.asarray gives, or by another array), so the result takes new "
        "memory; drop what holds it, or donate a copy",
        current_source(),
    )


def _words(count: int) -> str:
    return f"{count / _MEGABYTE:.3g} MiB" if count >= _MEGABYTE else f"{count} bytes"


def _warn(text: str, source: Source) -> None:
    if source.file:
        warnings.warn_explicit(f"{text} ({source.short})", PerformanceWarning, source.file, source.lineno)
    else:
        warnings.warn(text, PerformanceWarning, stacklevel=4)
