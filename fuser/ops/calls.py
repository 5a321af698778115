"""Calls of functions that bring rules of their own: `custom_jvp_call`, `custom_vjp_call` and `custom_lin`.

Their params hold flat functions (arrays in, a list of arrays out), so that evaluation runs plain Python. Staged, the
function becomes a closed Graph in one equation that keeps the rule; a pass replaces the equation by the Graph in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fuser.errors import UnexpectedTracerError
from fuser.ir.evaluate import evaluate
from fuser.ir.graph import Graph
from fuser.ir.jaxpr_layout import SHOWN
from fuser.ir.primitive import REGISTRY, Fusion, Primitive, register
from fuser.ir.source import current_source
from fuser.ir.types import ArrayType
from fuser.trace.batch import BatchTrace, batch, moved
from fuser.trace.body import close
from fuser.trace.cells import is_ref
from fuser.trace.core import EVALUATION, Trace, type_of, using
from fuser.trace.replay import as_function
from fuser.trace.stage import StageTrace, stage
from fuser.trace.tangent import Zero, as_array, differentiable

Flat = Callable[..., Sequence[Any]]
Params = dict[str, Any]


def callee(function: Flat | Graph) -> Flat:
    """The function that a call's params hold, as a function."""
    return as_function(function) if isinstance(function, Graph) else function


def evaluate_call(*args: Any, call_jaxpr: Flat | Graph, **params: Any) -> list[Any]:
    """The call on Arrays: Python runs the function."""
    with using(EVALUATION):
        return [as_array(o) for o in callee(call_jaxpr)(*(a if is_ref(a) else as_array(a) for a in args))]


def run_linear(trace: Trace, args: Sequence[Any], params: Params) -> Sequence[Any]:
    """A call on values that are linear in a trace's inputs: its rule has had its say, so what it does is recorded."""
    with using(trace):
        return callee(params["call_jaxpr"])(*args)


def staged(primitive: Primitive, trace: StageTrace, args: Sequence[Any], params: Params) -> Any:
    """One equation that holds the function as a closed Graph; what the function closes over are its first operands."""
    if isinstance(params["call_jaxpr"], Graph):
        return trace.record(primitive, tuple(args), params)
    graph, consts = close(stage(params["call_jaxpr"], [type_of(a) for a in args], params["name"]))
    params = {**params, "call_jaxpr": graph, "num_consts": params["num_consts"] + len(consts)}
    return trace.record(primitive, (*consts, *args), params)


def call_primitive(name: str, **rules: Any) -> Primitive:
    """A registered primitive that calls a function, its parameter `call_jaxpr`, and has rules for it: `jvp` and `batch` at least."""
    made = Primitive(
        name,
        Fusion.CONTROL,
        multiple_results=True,
        calls=True,
        type=lambda *avals, call_jaxpr, **params: call_jaxpr.out_avals,
        eval=lambda *arrays, call_jaxpr, **params: evaluate(call_jaxpr, arrays),
        run=evaluate_call,
        stage=lambda trace, args, params: staged(made, trace, args, params),
        **{"partial": run_linear, **rules},
    )
    return register(made)


def own_tangents(kind: str, name: str, tangents: Sequence[Any], num_consts: int) -> Sequence[Any]:
    """The tangents of the arguments; an error if a value that the function closes over has one."""
    if any(type(t) is not Zero for t in tangents[:num_consts]):
        raise UnexpectedTracerError(
            f"the {kind} function {name} closes over a value that it is differentiated by; its rule speaks of its arguments "
            f"only: pass the value to {name} as an argument, and take it in the rule ({current_source().short})"
        )
    return tangents[num_consts:]


# Calls under vmap: the functions are batched, and each of them makes its own BatchTrace where it runs.


class Batching:
    """How the functions of one call are batched: `dims` of its operands, and of its results once one of them has run.

    Results have the batch in front. Without a batched operand those that do not come to depend on one have none.
    """

    def __init__(self, trace: BatchTrace, dims: Sequence[int | None]) -> None:
        self.trace = trace
        self.dims = dims
        self.everything = any(d is not None for d in dims)
        self.results: list[int | None] = []

    def run(self, function: Flat, values: Sequence[Any], dims: Sequence[int | None]) -> tuple[list[Any], list[Any]]:
        """Results of a flat function under a BatchTrace like the call's; Zeros among the values stay what they are."""
        given = [Zero(inner_type(v.aval, d)) if type(v) is Zero else v for v, d in zip(values, dims)]
        dims = [None if type(v) is Zero else d for v, d in zip(given, dims)]
        trace = self.trace
        return batch(function, given, dims, trace.size, trace.axis_name, trace.tag)

    def settle(self, dims: Sequence[int | None]) -> list[int | None]:
        """Where the results have their batch, from what one run of the function found."""
        self.results = [0 if self.everything or d is not None else None for d in dims]
        return self.results

    def in_place(self, value: Any, found: int | None, wanted: int | None) -> Any:
        """A value with its batch dimension where it is wanted."""
        if type(value) is Zero:
            return Zero(outer_type(value.aval, wanted, self.trace.size))
        return value if wanted is None else moved(value, found, wanted, self.trace.size)

    def function(self, function: Flat) -> Flat:
        """The batched function."""

        def batched(*args: Any) -> list[Any]:
            values, found = self.run(function, args, self.dims)
            return [self.in_place(v, f, w) for v, f, w in zip(values, found, self.settle(found))]

        return batched


def inner_type(aval: ArrayType, dim: int | None) -> ArrayType:
    """The type of one element along a batch dimension."""
    return aval if dim is None else aval.without(dim)


def outer_type(aval: ArrayType, dim: int | None, size: int) -> ArrayType:
    """The type with a batch dimension."""
    return aval if dim is None else aval.along(dim, size)


# custom_jvp_call: `jvp_jaxpr_fun(primals, tangents) -> (results, tangents)`, tangents with Zeros among them.


def _custom_jvp(
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    name: str,
    call_jaxpr: Any,
    jvp_jaxpr_fun: Any,
    num_consts: int,
    **params: Any,
) -> tuple[Any, Any]:
    return jvp_jaxpr_fun(primals[num_consts:], own_tangents("custom_jvp", name, tangents, num_consts))


def _batch_custom_jvp(
    operands: Sequence[Any], dims: Sequence[int | None], trace: BatchTrace, **params: Any
) -> tuple[Any, Any]:
    batching = Batching(trace, dims)
    rule, own = params["jvp_jaxpr_fun"], dims[params["num_consts"] :]

    def batched_rule(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        def flat(*inputs: Any) -> list[Any]:
            outs, tangents = rule(inputs[: len(own)], inputs[len(own) :])
            return [*outs, *tangents]

        values, found = batching.run(flat, [*primals, *tangents], [*own, *own])
        count = len(values) // 2
        wanted = batching.settle([a if b is None else b for a, b in zip(found[:count], found[count:])])
        values = [batching.in_place(v, f, w) for v, f, w in zip(values, found, [*wanted, *wanted])]
        return values[:count], values[count:]

    params |= {"call_jaxpr": batching.function(callee(params["call_jaxpr"])), "jvp_jaxpr_fun": batched_rule}
    return custom_jvp_call_p.bind(*operands, **params), batching.results


custom_jvp_call_p = call_primitive("custom_jvp_call", jvp=_custom_jvp, batch=_batch_custom_jvp)


def _shown_jvp(params: Params) -> Params:
    return {
        "name": params["name"],
        "call_jaxpr": params["call_jaxpr"],
        "jvp": params["jvp_jaxpr_fun"],
        "symbolic_zeros": params["symbolic_zeros"],
    }


SHOWN[custom_jvp_call_p] = _shown_jvp


# custom_vjp_call: `fwd_jaxpr_thunk(primals, perturbed) -> (results, residuals, bwd)`; `bwd(residuals, cotangents) ->
# cotangents` of all arguments, Zeros among both. custom_lin stands for the tangents until it is transposed by bwd.


def _custom_vjp(
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    name: str,
    call_jaxpr: Any,
    fwd_jaxpr_thunk: Any,
    num_consts: int,
    **params: Any,
) -> tuple[Any, Any]:
    own = own_tangents("custom_vjp", name, tangents, num_consts)
    active = tuple(type(t) is not Zero for t in own)
    outs, residuals, bwd = fwd_jaxpr_thunk(primals[num_consts:], active)
    out_avals = tuple(type_of(o) for o in outs)
    linear = [t for t in own if type(t) is not Zero]
    found = iter(
        custom_lin_p.bind(
            *residuals, *linear, name=name, num_res=len(residuals), bwd=bwd, active=active, out_avals=out_avals
        )
    )
    return outs, [next(found) if differentiable(a) else Zero(a) for a in out_avals]


def _batch_custom_vjp(
    operands: Sequence[Any], dims: Sequence[int | None], trace: BatchTrace, **params: Any
) -> tuple[Any, Any]:
    batching = Batching(trace, dims)
    fwd, own = params["fwd_jaxpr_thunk"], dims[params["num_consts"] :]

    def batched_fwd(primals: Sequence[Any], perturbed: Sequence[bool]) -> tuple[list[Any], list[Any], Any]:
        made: list[Any] = []

        def flat(*inputs: Any) -> list[Any]:
            outs, residuals, bwd = fwd(inputs, perturbed)
            made[:] = [len(outs), bwd]
            return [*outs, *residuals]

        values, found = batching.run(flat, primals, own)
        count, bwd = made
        wanted = batching.settle(found[:count])
        outs = [batching.in_place(v, f, w) for v, f, w in zip(values, found, wanted)]
        residual_dims = [None if f is None else 0 for f in found[count:]]
        residuals = [batching.in_place(v, f, w) for v, f, w in zip(values[count:], found[count:], residual_dims)]
        return outs, residuals, batched_bwd(batching, bwd, residual_dims, list(wanted), own)

    params |= {"call_jaxpr": batching.function(callee(params["call_jaxpr"])), "fwd_jaxpr_thunk": batched_fwd}
    return custom_vjp_call_p.bind(*operands, **params), batching.results


def batched_bwd(
    batching: Batching, bwd: Any, residual_dims: Sequence[Any], out_dims: Sequence[Any], in_dims: Sequence[Any]
) -> Any:
    """`bwd` on a batch; the cotangents of an argument that is the same for all are summed over it."""

    def pulled(value: Any, found: int | None, wanted: int | None) -> Any:
        if type(value) is not Zero and found is not None and wanted is None:
            return REGISTRY["reduce_sum"].bind(value, axes=(found,))
        return batching.in_place(value, found, wanted)

    def batched(residuals: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
        count = len(residual_dims)
        flat = lambda *inputs: bwd(inputs[:count], inputs[count:])
        values, found = batching.run(flat, [*residuals, *cotangents], [*residual_dims, *out_dims])
        return [pulled(v, f, w) for v, f, w in zip(values, found, in_dims)]

    return batched


custom_vjp_call_p = call_primitive("custom_vjp_call", jvp=_custom_vjp, batch=_batch_custom_vjp)


def _shown_vjp(params: Params) -> Params:
    fwd = params["fwd_jaxpr_thunk"]
    return {
        "name": params["name"],
        "bwd": getattr(fwd, "bwd", "?"),
        "call_jaxpr": params["call_jaxpr"],
        "fwd": fwd,
        "symbolic_zeros": params["symbolic_zeros"],
    }


SHOWN[custom_vjp_call_p] = _shown_vjp


def refuse_forward(*args: Any, name: str = "f", **params: Any) -> Any:
    """The error of every use of custom_lin but transposition."""
    raise TypeError(
        f"can't apply forward-mode autodiff (jvp) to a custom_vjp function. The custom_vjp function {name} has a rule for reverse "
        f"mode only; use grad, vjp or jacrev, or define {name} with custom_jvp ({current_source().short})"
    )


def _lin_type(*avals: ArrayType, out_avals: Sequence[ArrayType], **params: Any) -> tuple[ArrayType, ...]:
    return tuple(a for a in out_avals if differentiable(a))


def _transpose_lin(
    cotangents: Sequence[Any],
    *operands: Any,
    num_res: int,
    bwd: Any,
    active: Sequence[bool],
    out_avals: Sequence[ArrayType],
    **params: Any,
) -> list[Any]:
    given = iter(cotangents)
    found = bwd(operands[:num_res], [next(given) if differentiable(a) else Zero(a) for a in out_avals])
    return [*[None] * num_res, *(c for c, use in zip(found, active) if use)]


def _batch_lin(operands: Sequence[Any], dims: Sequence[int | None], trace: BatchTrace, **params: Any) -> Any:
    batching = Batching(trace, dims)
    count = params["num_res"]
    tangent_dims = iter(dims[count:])
    in_dims = [next(tangent_dims) if use else None for use in params["active"]]
    out_dims = [0] * len(params["out_avals"])
    params |= {
        "bwd": batched_bwd(batching, params["bwd"], dims[:count], out_dims, in_dims),
        "out_avals": tuple(outer_type(a, 0, trace.size) for a in params["out_avals"]),
    }
    outs = custom_lin_p.bind(*operands, **params)
    return outs, [0] * len(outs)


custom_lin_p = register(
    Primitive(
        "custom_lin",
        Fusion.CONTROL,
        linear=True,
        multiple_results=True,
        calls=True,
        type=_lin_type,
        eval=refuse_forward,
        run=refuse_forward,
        jvp=lambda primals, tangents, **params: refuse_forward(**params),
        transpose=_transpose_lin,
        batch=_batch_lin,
    )
)
