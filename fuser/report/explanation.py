"""`fuser.explain(f)(x)`: what fused, what did not and why, what was compiled again and why, in the user's lines.

In: a function (plain, jitted or accelerated) and arguments. Out: an `Explanation`, which prints itself and is plain data.
Nothing runs: the program is traced and partitioned, unless the function already has it for these arguments.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from fuser.api.jitted import Compiled, Jitted, jit
from fuser.api.signatures import arguments_in_words, because, signature
from fuser.backends.base import KernelSource
from fuser.ir.source import Source
from fuser.partition.explain import eqn_bytes, loop_bytes, moved_bytes, size, words
from fuser.partition.group import FusionGroup, Plan

_UNKNOWN_LINE = "(no line known)"


@dataclass(frozen=True)
class ExplainedLine:
    """A line of the user's program inside of a step: `where` is `mlp.py:12 (loss)`, `text` its code, `ops` what it became."""

    where: str
    text: str
    ops: tuple[str, ...]


@dataclass(frozen=True)
class ExplainedStep:
    """One kernel or library call. `bytes` must move; `unfused_bytes` would move if each operation ran alone."""

    name: str
    kind: str
    words: str
    reason: str  # why it is no generated kernel; "" for one that is
    lines: tuple[ExplainedLine, ...]
    bytes: int
    unfused_bytes: int
    flops: int
    inner: tuple[ExplainedStep, ...] = ()  # of control flow: the steps of its bodies
    scalar: str = ""  # why its loops are not vectorised; "" where they are, or where nothing is known
    vmem: int = 0  # bytes of on-chip memory that a kernel's blocks take, where they are planned
    schedule: str = ""  # how a kernel's loops run; with `verbose` alone


@dataclass(frozen=True)
class ExplainedRefusal:
    """Two things that do not share a kernel, and why."""

    first: str
    second: str
    reason: str


@dataclass(frozen=True)
class ExplainedCompilation:
    """One signature that the function was compiled for, what about it was new, and what it cost."""

    signature: str
    because: tuple[str, ...]
    seconds: float
    kernels_compiled: int


@dataclass(frozen=True)
class Explanation:
    """What became of a program."""

    name: str
    backend: str
    arguments: tuple[str, ...]
    results: tuple[str, ...]
    operations: int
    steps: tuple[ExplainedStep, ...]
    refused: tuple[ExplainedRefusal, ...]
    compilations: tuple[ExplainedCompilation, ...]
    loop_bytes_saved: int = 0  # that passes took out of the bodies of loops
    devices: tuple[str, ...] = ()  # of several devices: how values lie and why, and which collectives are where

    @property
    def bytes(self) -> int:
        """Bytes that one call must move."""
        return sum(step.bytes for step in self.steps)

    @property
    def unfused_bytes(self) -> int:
        """Bytes that one call would move with a kernel for each operation."""
        return sum(step.unfused_bytes for step in self.steps)

    def to_dict(self) -> dict[str, Any]:
        """The explanation as values that JSON knows."""
        return {**asdict(self), "bytes": self.bytes, "unfused_bytes": self.unfused_bytes}

    def __str__(self) -> str:
        return "\n".join([_headline(self), *self.devices, *_steps(self), *_refusals(self), *_compilations(self)])

    __repr__ = __str__


def explain(function: Callable[..., Any], *, verbose: bool = False) -> Callable[..., Explanation]:
    """A function of the same arguments that says what becomes of `function` for them; `verbose`: with each kernel's Schedule.

    Arguments are arrays, or types (`ShapeDtypeStruct`) where only shapes and dtypes are known.
    """
    staged = function if hasattr(function, "lower") else jit(function)

    @functools.wraps(function)
    def explained(*args: Any, **kwargs: Any) -> Explanation:
        lowered = staged.lower(*args, **kwargs)
        found = of_plan(lowered.plan, compilations(staged), lowered.sources, verbose)
        saved = loop_bytes(lowered.traced.graph) - loop_bytes(lowered.plan.graph)
        spread = getattr(lowered, "spread", None)
        devices = () if spread is None else (*spread.explain().splitlines(), *lowered.exchanges())
        return replace(found, loop_bytes_saved=max(saved, 0), devices=devices)

    return explained


def of_plan(
    plan: Plan,
    compiled: tuple[ExplainedCompilation, ...] = (),
    sources: Sequence[KernelSource] = (),
    verbose: bool = False,
) -> Explanation:
    """The explanation of one plan; `sources`, where given, are its kernels' texts."""
    known = _Known(
        {source.name: source.launch["scalar"][0] for source in sources if "scalar" in source.launch},
        {name: str(made) for source in sources for name, made in source.schedules.items()} if verbose else {},
    )
    return Explanation(
        plan.graph.name,
        plan.backend,
        tuple(str(v.aval) for v in plan.graph.invars),
        tuple(str(v.aval) for v in plan.outputs),
        sum(len(group.graph.eqns) for group in plan.groups),
        tuple(_step(group, known) for group in plan.groups),
        tuple(ExplainedRefusal(d.first, d.second, d.reason) for d in dict.fromkeys(plan.decisions)),
        compiled,
    )


def compilations(function: Any) -> tuple[ExplainedCompilation, ...]:
    """Every signature that a jitted function was compiled for so far, in order; () for functions that keep none."""
    jitted = function if isinstance(function, Jitted) else getattr(function, "jitted", None)
    if not isinstance(jitted, Jitted):
        return ()
    keys = list(jitted._programs)
    signatures = [signature(jitted, key) for key in keys]
    each = tuple(_compilation(signatures[:n], signatures[n], jitted._programs[key]) for n, key in enumerate(keys))
    refused = tuple(f"no program serves several sizes: {reason}" for reason in jitted.refusals())
    each = tuple(replace(one, because=(*one.because, *refused)) for one in each)
    many = (ExplainedCompilation(at, (why,), seconds, made) for at, why, seconds, made in jitted.specializations())
    return (*each, *many)


def source_line(source: Source) -> tuple[str, str]:
    """`mlp.py:12 (loss)`, and the code on that line ("" where the file cannot be read)."""
    return str(source) if source.file else _UNKNOWN_LINE, source.code


@dataclass(frozen=True)
class _Known:
    """What is known of kernels by their names: why they are not vectorised, and how their loops run."""

    scalar: Mapping[str, str]
    schedules: Mapping[str, str]


def _step(group: FusionGroup, known: _Known) -> ExplainedStep:
    by_source: dict[Source, list[str]] = {}
    for eqn in group.eqns:
        by_source.setdefault(eqn.source, []).append(eqn.primitive.name)
    ordered = sorted(by_source.items(), key=lambda item: (item[0].file, item[0].lineno))
    lines = tuple(ExplainedLine(*source_line(source), tuple(dict.fromkeys(ops))) for source, ops in ordered)
    return ExplainedStep(
        group.name,
        group.kind.value,
        words(group),
        group.reason,
        lines,
        moved_bytes(group),
        eqn_bytes(group),
        group.flops,
        tuple(_step(inner, known) for inner in group.inner),
        known.scalar.get(group.name, ""),
        group.vmem,
        known.schedules.get(group.name, ""),
    )


def _compilation(earlier: list[dict[str, str]], found: dict[str, str], program: Compiled) -> ExplainedCompilation:
    seconds = sum(program.program.seconds.values())
    return ExplainedCompilation(
        arguments_in_words(found), because(earlier, found), seconds, program.program.loaded.compiled
    )


def _headline(explained: Explanation) -> str:
    arguments, saved = ", ".join(explained.arguments), explained.loop_bytes_saved
    return (
        f"{explained.name}({arguments}): {_count(explained.operations, 'operation')} became {_parts(explained)} on "
        f"{explained.backend}, moving {size(explained.bytes)} instead of {size(explained.unfused_bytes)}"
        + (f"; passes had taken {size(saved)} out of its loops" if saved > explained.unfused_bytes // 100 else "")
    )


def _parts(explained: Explanation) -> str:
    """`2 kernels and 1 library call`."""
    library = sum(bool(step.reason) for step in explained.steps)
    kernels = len(explained.steps) - library
    parts = [_count(kernels, "kernel")] if kernels or not library else []
    return " and ".join([*parts, *([_count(library, "library call")] if library else [])])


def _steps(explained: Explanation) -> list[str]:
    width = max((len(line.where) for step in explained.steps for line in step.lines), default=0)
    return [line for step in explained.steps for line in _lines(step, width, "  ")]


def _lines(step: ExplainedStep, width: int, indent: str) -> list[str]:
    """A step, its lines of the program, and the steps inside."""
    why = f" ({step.reason})" if step.reason else ""
    result = ["", f"{indent}{step.name}: {step.words}{why}; moves {size(step.bytes)}"]
    if step.vmem:
        result[-1] += f" in {size(step.vmem)} of vector memory"
    if step.schedule:
        result.append(f"{indent}    schedule: {step.schedule}")
    if step.scalar:
        result.append(f"{indent}    not vectorised: {step.scalar}")
    for line in step.lines:
        result.append(f"{indent}    {line.where:<{width}}  {line.text}".rstrip())
        result.append(f"{indent}    {'':<{width}}  = {', '.join(line.ops)}")
    for inner in step.inner:
        result += _lines(inner, width, indent + "    ")
    return result


def _refusals(explained: Explanation) -> list[str]:
    if not explained.refused:
        return []
    return ["", "Not fused:", *(f"  {r.first}  with  {r.second}: {r.reason}" for r in explained.refused)]


def _compilations(explained: Explanation) -> list[str]:
    if not explained.compilations:
        return []
    lines = ["", f"Compiled {_count(len(explained.compilations), 'time')} so far:"]
    for found in explained.compilations:
        kernels = f"{_count(found.kernels_compiled, 'new kernel')}" if found.kernels_compiled else "no new kernel"
        lines.append(f"  {found.signature}: {'; '.join(found.because)} ({kernels}, {found.seconds * 1e3:.1f} ms)")
    return lines


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
