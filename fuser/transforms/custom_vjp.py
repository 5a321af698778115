"""`custom_vjp`: a function with a rule of the user's own for reverse mode; `custom_gradient`, which states it in one function."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fuser.config import config
from fuser.errors import UnexpectedTracerError
from fuser.frames import hide
from fuser.ir.source import current_source
from fuser.ir.types import ArrayType
from fuser.lax.values import as_value, convert
from fuser.ops.calls import custom_vjp_call_p
from fuser.trace import tree
from fuser.trace.core import Tracer, type_of
from fuser.trace.python_numbers import as_given, standing_for
from fuser.trace.stage import StageTrace, stage
from fuser.trace.tangent import Zero, as_array, differentiable, float0
from fuser.trace.tree import map as map_tree
from fuser.transforms.arguments import name_of
from fuser.transforms.closures import converted
from fuser.transforms.custom_function import Call, CustomFunction, given_tangent, pair_of, residual_leaves


@dataclass(slots=True)
class CustomVJPPrimal:
    """An argument as the fwd rule gets it with `symbolic_zeros`: its value, and whether it is differentiated."""

    value: Any
    perturbed: bool


def custom_vjp_primal_tree_values(tree: Any) -> Any:
    """The tree with each CustomVJPPrimal replaced by its value."""

    def value(leaf: Any) -> Any:
        if type(leaf) is not CustomVJPPrimal:
            raise TypeError(f"expected leaves of type CustomVJPPrimal, got a {type(leaf).__name__}")
        return leaf.value

    return map_tree(value, tree)


class custom_vjp(CustomFunction):
    """A function with a derivative of your own, for reverse mode only: decorate it, then give the rules.

    `f.defvjp(fwd, bwd)`: `fwd(*args) -> (primal output, residuals)` and `bwd(residuals, cotangent) -> a tuple with one
    cotangent an argument`, None for zero. Arguments at `nondiff_argnums` (functions, Python values; no tracers) come first
    in bwd, one by one. A call before rules are defined raises AttributeError; rules whose results do not fit raise
    TypeError or ValueError, and so does forward-mode differentiation (TypeError). Without differentiation no rule is run.
    """

    kind = "custom_vjp"

    def __init__(
        self, fun: Callable[..., Any], nondiff_argnums: int | Sequence[int] = (), nondiff_argnames: Sequence[str] = ()
    ) -> None:
        super().__init__(fun, nondiff_argnums, nondiff_argnames)
        self.fwd: Callable[..., Any] | None = None
        self.bwd: Callable[..., Any] | None = None
        self.symbolic_zeros = False

    def defvjp(
        self,
        fwd: Callable[..., Any],
        bwd: Callable[..., Any],
        symbolic_zeros: bool = False,
        optimize_remat: bool = False,
    ) -> None:
        """Set the rules. With `symbolic_zeros` fwd gets `CustomVJPPrimal`s, and bwd `SymbolicZero`s among cotangents.

        `optimize_remat` changes nothing: results and residuals come from fwd, and those that `checkpoint` does not save are
        eliminated from a compiled forward pass in any case.
        """
        self.fwd, self.bwd = fwd, bwd
        self.symbolic_zeros = symbolic_zeros

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        fwd, bwd = self.fwd, self.bwd
        if fwd is None or bwd is None:
            raise AttributeError(
                f"No VJP defined for custom_vjp function {name_of(self.fun)} using defvjp. Define its rules ({current_source().short})"
            )
        args = self._positional(args, kwargs)
        _refuse_tracers(args, self.nondiff_argnums, name_of(self.fun))
        call = self._call(args)
        operands = call.operands()
        if config.custom_vjp3:
            _refuse_closures(call, operands)
        try:
            outs = custom_vjp_call_p.bind(
                *operands,
                name=call.name,
                call_jaxpr=call.function,
                fwd_jaxpr_thunk=_flat_fwd(call, fwd, bwd, self.symbolic_zeros),
                num_consts=0,
                symbolic_zeros=self.symbolic_zeros,
            )
        except Exception as error:
            raise hide(error)  # noqa: B904
        return call.result(outs)


def _refuse_tracers(args: Sequence[Any], numbers: Sequence[int], name: str) -> None:
    """UnexpectedTracerError for a tracer among arguments that are not differentiated."""
    for number in (n for n in numbers if -len(args) <= n < len(args)):
        for leaf in tree.leaves(args[number]):
            if isinstance(leaf, Tracer):
                raise UnexpectedTracerError(
                    f"the custom_vjp function {name} got a traced {leaf.aval} as argument {number}, which nondiff_argnums "
                    "says is not differentiated; such arguments are functions or Python values: pass arrays as ordinary "
                    f"arguments, and return None as their cotangent ({current_source().short})"
                )


def _refuse_closures(call: Call, operands: Sequence[Any]) -> None:
    """UnexpectedTracerError for a function that closes over a value of `vmap` or of a derivative, as with JAX's setting jax_custom_vjp3."""
    for const in stage(call.function, [type_of(v) for v in operands], call.name).consts:
        if isinstance(const, Tracer) and not isinstance(const._trace, StageTrace):
            raise UnexpectedTracerError(
                f"custom_vjp-decorated function {call.name} closed over a {type(const).__name__} of type {const.aval}, but custom_vjp "
                f"functions can't close over Tracers while jax_custom_vjp3 is set. Rewrite {call.name} to take it as an explicit input "
                f"({current_source().short})"
            )


def _flat_fwd(call: Call, fwd: Callable[..., Any], bwd: Callable[..., Any], symbolic: bool) -> Callable[..., Any]:
    """The fwd rule on leaves: results, residuals, and the bwd rule on leaves for them."""
    rule = name_of(fwd)

    def flat(primals: Sequence[Any], perturbed: Sequence[bool]) -> tuple[list[Any], list[Any], Callable[..., Any]]:
        given = [CustomVJPPrimal(as_given(p), use) for p, use in zip(primals, perturbed)] if symbolic else primals
        result = fwd(*call.arguments((), given))
        primal_out, residual_tree = pair_of(result, rule, call.name, "primal output, residuals")
        outs = call.primals_out(primal_out, rule, "VJP fwd")
        leaves, structure = tree.flatten(residual_tree)
        call.check_references(leaves, residual_tree, "fwd", rule, primals)
        residuals, merged = residual_leaves(leaves, structure, rule)
        return outs, residuals, _flat_bwd(call, bwd, merged, [type_of(p) for p in primals], symbolic)

    flat.__name__ = rule
    flat.bwd = name_of(bwd)  # type: ignore[attr-defined]  # what the graph's text says
    return flat


def _flat_bwd(
    call: Call, bwd: Callable[..., Any], residual_tree: Callable[..., Any], avals: Sequence[ArrayType], symbolic: bool
) -> Callable[..., Any]:
    """The bwd rule on leaves, for arguments of these types; `residual_tree` makes the residuals of their leaves."""
    rule = name_of(bwd)
    out_tree = call.out_tree

    def flat(residuals: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
        given = [given_tangent(c, symbolic) for c in cotangents]
        result = bwd(*call.static_args(()), residual_tree(residuals), tree.unflatten(out_tree, given))
        leaves = _as_arguments(result, call, rule)
        return [_checked_cotangent(leaf, aval, rule, call.name) for leaf, aval in zip(leaves, avals)]

    flat.__name__ = rule
    return flat


def _as_arguments(result: Any, call: Call, rule: str) -> list[Any]:
    """A bwd rule's result as one leaf an argument's leaf; a None stands for all leaves of a subtree."""
    count = len(call.diff)
    if isinstance(result, list):
        result = tuple(result)
    if not isinstance(result, tuple) or len(result) != count:
        found = f"a tuple of {len(result)}" if isinstance(result, tuple) else f"a {type(result).__name__}"
        raise TypeError(
            f"Custom VJP bwd rule {rule} must produce a tuple with one cotangent for each of the {count} arguments of {call.name} that are "
            f"differentiated, got {found}; return None for an argument without derivative ({current_source().short})"
        )
    numbered = tree.unflatten(call.in_tree, range(call.in_tree.num_leaves))
    try:
        return tree.broadcast_prefix(result, numbered)
    except ValueError:
        raise TypeError(
            f"Custom VJP bwd rule {rule} of {call.name} must produce cotangents with the tree of the arguments, {call.in_tree}, got "
            f"{tree.structure(result)} ({current_source().short})"
        ) from None


def _checked_cotangent(leaf: Any, aval: ArrayType, rule: str, name: str) -> Any:
    """The cotangent of one argument; ValueError if it has not the shape and dtype of one."""
    if leaf is None or not differentiable(aval) or getattr(leaf, "dtype", None) == float0:
        return Zero(aval)
    cotangent = Zero(leaf.aval) if isinstance(leaf, Zero) else standing_for(leaf, as_array(as_value(leaf)))
    found = cotangent.aval if type(cotangent) is Zero else type_of(cotangent)
    if found.shape != aval.shape and not config.disable_bwd_checks:
        raise ValueError(
            f"the rule {rule} of {name} must return cotangents of the types of the arguments, got {found} for {aval} "
            f"({current_source().short})"
        )
    if type(cotangent) is Zero or (found.dtype, found.weak_type) == (aval.dtype, aval.weak_type):
        return Zero(aval) if type(cotangent) is Zero else cotangent
    return convert(cotangent, aval.dtype)


def custom_gradient(fun: Callable[..., Any]) -> Callable[..., Any]:
    """A custom_vjp function stated as one: `fun(*args)` gives the result and a function from its cotangent to the arguments'.

    That function may close over values of the forward pass; it is staged there, so no Python control flow on values in it.
    """

    @custom_vjp
    @functools.wraps(fun)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return pair_of(fun(*args, **kwargs), name_of(fun), name_of(fun), "result, gradient function")[0]

    def fwd(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        result, rule = pair_of(fun(*args, **kwargs), name_of(fun), name_of(fun), "result, gradient function")
        pullback, consts = converted(rule, (result,))
        return result, _Residuals(pullback, consts)

    def bwd(residuals: _Residuals, cotangents: Any) -> Any:
        result = residuals.pullback(cotangents, *residuals.consts)
        return result if isinstance(result, (tuple, list)) else (result,)

    wrapped.defvjp(fwd, bwd)
    return wrapped


@tree.register_pytree_node_class
class _Residuals:
    """The gradient function without its constants, which are what is kept, and these."""

    def __init__(self, pullback: Callable[..., Any], consts: Sequence[Any]) -> None:
        self.pullback = pullback
        self.consts = consts

    def tree_flatten(self) -> tuple[Any, Any]:
        return tuple(self.consts), self.pullback

    @classmethod
    def tree_unflatten(cls, pullback: Callable[..., Any], consts: Sequence[Any]) -> _Residuals:
        return cls(pullback, consts)
