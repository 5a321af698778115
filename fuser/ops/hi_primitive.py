"""`call_hi_primitive`: a call of a primitive of the user's own (`VJPHiPrimitive`), which brings a rule for each transform.

Staged it holds what the primitive's `expand` does, as other calls do. Its forward derivative in a graph is one equation as
well, `call_hi_primitive_jvp`, which does not know yet whether it will be evaluated or transposed: evaluated it is the
primitive's `jvp`; where a LinearTrace parts it, it becomes what `vjp_fwd` or `lin` says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from fuser.ir.jaxpr_layout import SHOWN
from fuser.ir.primitive import Fusion, Primitive, register
from fuser.ir.types import ArrayType
from fuser.ops.calls import Flat, call_primitive, custom_lin_p, own_tangents, run_linear, staged
from fuser.trace.batch import BatchTrace, batch
from fuser.trace.core import EVALUATION, Trace, current, using
from fuser.trace.jvp import jvp
from fuser.trace.linear import LinearTrace
from fuser.trace.stage import StageTrace
from fuser.trace.tangent import Zero, as_array, differentiable, instantiate

Params = dict[str, Any]
Values = Sequence[Any]


class Linearization(NamedTuple):
    """A primitive at a point: its results, residuals, and `map(residuals, tangents or cotangents)`; which results have a tangent."""

    outs: list[Any]
    residuals: list[Any]
    map: Callable[[Values, Values], list[Any]]
    nonzeros: list[bool]


class LeafRules(Protocol):
    """The rules of a primitive of the user's on leaves; tangents and cotangents may be `Zero`."""

    name: str
    in_avals: Sequence[ArrayType]
    out_avals: Sequence[ArrayType]
    transposes: bool  # whether it brings a rule for transposition

    def expand(self, *operands: Any) -> list[Any]: ...
    def jvp(self, primals: Values, tangents: Values) -> tuple[list[Any], list[Any]]: ...
    def forward(self, primals: Values, nonzeros: Sequence[bool]) -> Linearization: ...
    def linear(self, primals: Values, nonzeros: Sequence[bool]) -> Linearization: ...
    def transpose(self, cotangents: Values, operands: Values) -> list[Any]: ...
    def batch(self, axis: AxisData, operands: Values, dims: Values) -> tuple[list[Any], list[int | None]]: ...


class AxisData(NamedTuple):
    """The batch dimension as rules get it."""

    name: Any
    size: int
    spmd_name: Any = None
    explicit_mesh_axis: Any = None

    # What `Batching` asks of a BatchTrace: the rules of such a primitive close over no value of one.
    @property
    def axis_name(self) -> Any:
        return self.name

    @property
    def tag(self) -> Any:
        return None


# The call.


def _jvp(primals: Values, tangents: Values, *, name: str, num_consts: int, _prim: Any, **params: Any) -> Any:
    own, tangents = primals[num_consts:], own_tangents("hijax primitive", name, tangents, num_consts)
    trace, rules = current(), _prim.leaf_rules
    if isinstance(trace, LinearTrace) and any(map(trace.follows, tangents)):
        return _linearized(trace, rules, own, tangents)
    if isinstance(trace, StageTrace):
        active = tuple(type(t) is not Zero for t in tangents)
        linear = [t for t in tangents if type(t) is not Zero]
        return _paired(rules, call_hi_primitive_jvp_p.bind(*own, *linear, _prim=_prim, active=active))
    return rules.jvp(own, tangents)


def _linearized(trace: LinearTrace, rules: LeafRules, primals: Values, tangents: Values) -> tuple[Any, Any]:
    """Results now, and tangents that the trace records: by `lin` where they will be pushed forward, else by `vjp_fwd`."""
    active = tuple(type(t) is not Zero for t in tangents)
    if trace.pushes:
        outs, residuals, push, _ = rules.linear(primals, active)
        return outs, push(residuals, tangents)
    outs, residuals, bwd, nonzeros = rules.forward(primals, active)
    linear = [t for t in tangents if type(t) is not Zero]
    avals = tuple(a if nz else a.update(dtype=np.dtype(bool)) for a, nz in zip(rules.out_avals, nonzeros))
    name = rules.name
    params = {"name": name, "num_res": len(residuals), "bwd": bwd, "active": active, "out_avals": avals}
    found = iter(custom_lin_p.bind(*residuals, *linear, **params))
    return outs, [next(found) if differentiable(a) else Zero(own) for a, own in zip(avals, rules.out_avals)]


def _partial(trace: Trace, args: Values, params: Params) -> Any:
    """The call on values that are linear in the trace's inputs: recorded where it has a transpose rule, else what it does."""
    if params["_prim"].leaf_rules.transposes:
        assert isinstance(trace, LinearTrace)
        return staged(call_hi_primitive_p, trace, args, params)
    return run_linear(trace, args, params)


def _transpose(cotangents: Values, *operands: Any, num_consts: int, _prim: Any, **params: Any) -> list[Any]:
    return [*[None] * num_consts, *_prim.leaf_rules.transpose(cotangents, operands[num_consts:])]


def _batch(operands: Values, dims: Sequence[int | None], trace: BatchTrace, **params: Any) -> Any:
    own = dims[params["num_consts"] :]
    if trace.axis_name is None and all(d is None for d in own):  # under a named axis it may know its place along it
        outs = call_hi_primitive_p.bind(*operands, **params)
        return outs, [None] * len(outs)
    axis = AxisData(trace.axis_name, trace.size, trace.spmd or None)
    return params["_prim"].leaf_rules.batch(axis, operands[params["num_consts"] :], own)


call_hi_primitive_p: Primitive = call_primitive(
    "call_hi_primitive", partial=_partial, jvp=_jvp, transpose=_transpose, batch=_batch
)
SHOWN[call_hi_primitive_p] = lambda params: {"_prim": repr(params["_prim"])}


# Its derivative in a graph: primals and the tangents of the active ones; results and the tangents of those that have some.


def _forward(rules: LeafRules, active: Sequence[bool], operands: Values) -> list[Any]:
    """The derivative by the primitive's jvp."""
    rest = iter(operands[len(active) :])
    tangents = [next(rest) if use else Zero(a) for use, a in zip(active, rules.in_avals)]
    outs, found = rules.jvp(operands[: len(active)], tangents)
    return [*outs, *(instantiate(t) for t, a in zip(found, rules.out_avals) if differentiable(a))]


def _paired(rules: LeafRules, results: Values) -> tuple[list[Any], list[Any]]:
    """Results, and a tangent or Zero for each."""
    count = len(rules.out_avals)
    found = iter(results[count:])
    return list(results[:count]), [next(found) if differentiable(a) else Zero(a) for a in rules.out_avals]


def _function(_prim: Any, active: Sequence[bool]) -> Flat:
    return lambda *operands: _forward(_prim.leaf_rules, active, operands)


def _run_jvp(*operands: Any, **params: Any) -> list[Any]:
    with using(EVALUATION):
        return [as_array(o) for o in _function(**params)(*map(as_array, operands))]


def _jvp_type(*avals: ArrayType, _prim: Any, active: Sequence[bool]) -> tuple[ArrayType, ...]:
    outs = _prim.leaf_rules.out_avals
    return (*outs, *(a for a in outs if differentiable(a)))


def _partial_jvp(trace: Trace, args: Values, params: Params) -> list[Any]:
    """Tangents that are linear in the trace's inputs are to be transposed, or pushed forward: the rule for that."""
    rules, active = params["_prim"].leaf_rules, params["active"]
    assert isinstance(trace, LinearTrace)
    if any(map(trace.follows, args[: len(active)])):
        return run_linear(trace, args, {"call_jaxpr": _function(**params)})  # type: ignore[return-value]
    rest = iter(args[len(active) :])
    tangents = [next(rest) if use else Zero(a) for use, a in zip(active, rules.in_avals)]
    with using(trace):
        outs, found = _linearized(trace, rules, args[: len(active)], tangents)
        return [*outs, *(instantiate(t) for t, a in zip(found, rules.out_avals) if differentiable(a))]


def _jvp_of_jvp(primals: Values, tangents: Values, **params: Any) -> tuple[Any, Any]:
    return jvp(_function(**params), primals, tangents)


def _batch_jvp(operands: Values, dims: Sequence[int | None], trace: BatchTrace, **params: Any) -> Any:
    return batch(_function(**params), operands, dims, trace.size, trace.axis_name, trace.tag)


call_hi_primitive_jvp_p: Primitive = register(
    Primitive(
        "call_hi_primitive_jvp",
        Fusion.CONTROL,
        multiple_results=True,
        calls=True,
        type=_jvp_type,
        eval=_run_jvp,
        run=_run_jvp,
        inline=lambda *operands, **params: _function(**params)(*operands),
        partial=_partial_jvp,
        jvp=_jvp_of_jvp,
        batch=_batch_jvp,
    )
)
