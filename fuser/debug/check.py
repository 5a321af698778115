"""`fuser.check(f)(x)`: every step of a compiled program against a float64 run of the same operations.

In: a function and its arguments. Out: a `CheckReport` with two errors a step. `error` is what the step itself adds: its
float64 reference reads the very arrays that the step read. `total` also holds what earlier steps handed down.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fuser.api.jitted import Compiled, Jitted, jit
from fuser.backends.base import require_steps
from fuser.ir.graph import Eqn, Graph, Literal, Var
from fuser.ir.types import ArrayType, is_float, is_inexact
from fuser.ops.conversion import bitcast_convert_type_p, reduce_precision_p
from fuser.ops.elementwise import nextafter_p
from fuser.partition.group import FusionGroup
from fuser.report.profile import input_arrays
from fuser.runtime.array import Array
from fuser.runtime.executable import KernelStep

# Their results depend on how a number is stored, so they run in the dtype of the program.
BOUND_TO_DTYPE = (bitcast_convert_type_p, nextafter_p, reduce_precision_p)
# Errors relative to the largest magnitude of a result that rounding alone explains, in units of the dtype's epsilon.
ALLOWED_EPSILONS = 64.0


@dataclass(frozen=True)
class CheckedStep:
    """One result of a step. Errors are relative to the result's largest finite magnitude; 0 where all is equal."""

    name: str
    kind: str
    type: str
    lines: tuple[str, ...]
    error: float
    total: float
    allowed: float
    mismatches: int  # elements that are nan, infinite or of another integer value on one side only

    @property
    def ok(self) -> bool:
        """Whether rounding explains what the step itself adds."""
        return self.error <= self.allowed and self.mismatches == 0


@dataclass(frozen=True)
class CheckReport:
    """All results of all steps, in order."""

    name: str
    backend: str
    steps: tuple[CheckedStep, ...]

    @property
    def ok(self) -> bool:
        return all(step.ok for step in self.steps)

    @property
    def worst(self) -> CheckedStep | None:
        """The step that adds the largest error by its own dtype's measure."""
        return max(self.steps, key=lambda step: (step.mismatches > 0, step.error / (step.allowed or 1.0)), default=None)

    def to_dict(self) -> dict[str, Any]:
        """The report as values that JSON knows."""
        steps = [{**asdict(step), "ok": step.ok} for step in self.steps]
        return {"name": self.name, "backend": self.backend, "ok": self.ok, "steps": steps}

    def __str__(self) -> str:
        verdict = "every step agrees with float64" if self.ok else "not every step agrees with float64"
        lines = [f"{self.name} on {self.backend}: {verdict}"]
        for step in self.steps:
            odd = f"; {step.mismatches} elements differ in kind or value" if step.mismatches else ""
            lines.append(
                f"  {'ok     ' if step.ok else 'DIFFERS'} {step.name} ({step.kind}) {step.type}: error {step.error:.1e}, "
                f"with earlier steps {step.total:.1e}, allowed {step.allowed:.1e}{odd}"
            )
            if not step.ok:
                lines.append(f"        from {', '.join(step.lines) or 'no known line'}")
        return "\n".join(lines)

    __repr__ = __str__


def check(function: Callable[..., Any]) -> Callable[..., CheckReport]:
    """A function of the same arguments that runs `function` step by step and compares each step with float64."""
    staged: Any = function if hasattr(function, "lower") else jit(function)

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> CheckReport:
        compiled = staged.lower(*args, **kwargs).compile()
        require_steps(compiled.traced._backend, "fuser.check")
        if isinstance(staged, Jitted):
            _, args, kwargs = staged._split(args, kwargs)
        return _compare(compiled, input_arrays(compiled, args, kwargs))

    return checked


def wide_evaluate(graph: Graph, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The graph's outputs with every real number in float64 and every complex one in complex128."""
    values: dict[Any, np.ndarray] = dict(zip((*graph.constvars, *graph.invars), map(_host, (*graph.consts, *arrays))))
    with np.errstate(all="ignore"):
        for eqn in graph.eqns:
            operands = [np.asarray(v.val) if isinstance(v, Literal) else values[v] for v in eqn.invars]
            values.update(zip(eqn.outvars, _run_wide(eqn, operands)))
    return [_widen(np.asarray(v.val)) if isinstance(v, Literal) else _widen(values[v]) for v in graph.outvars]


def _run_wide(eqn: Eqn, operands: list[np.ndarray]) -> list[np.ndarray]:
    if eqn.primitive in BOUND_TO_DTYPE:
        inputs = [x.astype(v.aval.dtype) for x, v in zip(operands, eqn.invars)]
        params = eqn.params
    else:
        inputs = [_widen(x) for x in operands]
        params = {name: _wide_param(value) for name, value in eqn.params.items()}
    result = eqn.primitive.rule("eval")(*inputs, **params)
    return [_widen(np.asarray(r)) for r in (result if eqn.primitive.multiple_results else (result,))]


def _wide_param(value: Any) -> Any:
    return _wide_dtype(value) if isinstance(value, np.dtype) else value


def _wide_dtype(dtype: np.dtype) -> np.dtype:
    if not is_inexact(dtype):
        return dtype
    return np.dtype(np.float64) if is_float(dtype) else np.dtype(np.complex128)


def _widen(x: np.ndarray) -> np.ndarray:
    return x.astype(_wide_dtype(x.dtype), copy=False)


def _host(value: Any) -> np.ndarray:
    return np.asarray(value if isinstance(value, (Array, np.ndarray)) else Array(value))


def _compare(compiled: Compiled, inputs: Sequence[Any]) -> CheckReport:
    plan = compiled.plan
    slots = _run_steps(compiled, inputs)
    narrow = {var: _host(slots[slot]) for var, slot in plan.slot_of.items() if slot in slots}
    wide = {var: _widen(narrow[var]) for var in (*plan.graph.invars, *plan.graph.constvars)}
    steps: list[CheckedStep] = []
    for group in plan.groups:
        alone = wide_evaluate(group.graph, [narrow[v] for v in group.graph.invars])
        through = wide_evaluate(group.graph, [wide[v] for v in group.graph.invars])
        for var, own, whole in zip(group.graph.outvars, alone, through):
            if isinstance(var, Var):
                wide[var] = whole
                steps.append(_checked(group, var.aval, narrow[var], own, whole))
    return CheckReport(plan.graph.name, plan.backend, tuple(steps))


def _run_steps(compiled: Compiled, inputs: Sequence[Any]) -> dict[int, Any]:
    """Every slot's array after a run in which nothing is dropped."""
    executable = compiled.executable
    slots: dict[int, Any] = {**executable.consts, **dict(zip(executable.inputs, inputs))}
    for step in executable.steps:
        operands = [slots[k] for k in step.arguments]
        if isinstance(step, KernelStep):
            outputs = [executable.allocate(output.shape, output.dtype, output.label) for output in step.outputs]
            step.function([*operands, *outputs])
        else:
            results = step.function(*operands)
            outputs = list(results) if isinstance(results, (tuple, list)) else [results]
        slots.update(zip(step.writes, outputs))
    return slots


def _checked(
    group: FusionGroup, aval: ArrayType, found: np.ndarray, alone: np.ndarray, whole: np.ndarray
) -> CheckedStep:
    allowed = ALLOWED_EPSILONS * _epsilon(aval.dtype) if is_inexact(aval.dtype) else 0.0
    error, mismatches = _error(found, alone)
    total, _ = _error(found, whole)
    lines = tuple(dict.fromkeys(str(source) for source in group.sources if source.file))
    return CheckedStep(group.name, group.kind.value, str(aval), lines, error, total, allowed, mismatches)


def _epsilon(dtype: np.dtype) -> float:
    from fuser.dtypes import finfo

    return float(finfo(dtype if is_float(dtype) else np.dtype(f"float{dtype.itemsize * 4}")).eps)


def _error(found: np.ndarray, wanted: np.ndarray) -> tuple[float, int]:
    """The largest difference over the largest finite magnitude wanted; and how many elements differ in kind or value."""
    wanted = wanted.reshape(found.shape)
    if not is_inexact(found.dtype):
        return 0.0, int(np.count_nonzero(found != wanted))
    with np.errstate(all="ignore"):
        rounded = wanted.astype(found.dtype)  # what is finite in float64 may be infinite in the program's dtype
        same = (found == rounded) | (np.isnan(found) & np.isnan(rounded))
        found = _widen(found)
        finite = np.isfinite(found) & np.isfinite(wanted)
        difference = np.abs(found - wanted)[finite]
        scale = float(np.abs(wanted[finite]).max(initial=0.0))
    largest = float(difference.max(initial=0.0))
    return (largest / scale if scale else largest), int(np.count_nonzero(~finite & ~same))
