"""`checkpoint` (= `remat`): less memory for a gradient, in exchange for computing again; policies say what is saved."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from fuser.frames import hide
from fuser.ir.graph import Eqn, Literal, Var
from fuser.ir.source import current_source
from fuser.ir.types import ArrayType
from fuser.ops.remat import name_p, remat_p
from fuser.trace import tree
from fuser.trace.body import staged_body
from fuser.trace.core import type_of
from fuser.trace.linearize import linearize
from fuser.trace.stage import stage
from fuser.transforms.arguments import check_callable, leaf_values, name_of

_ABSENT = object()


def checkpoint(
    fun: Callable[..., Any],
    *,
    prevent_cse: bool | Sequence[bool] = True,
    policy: Callable[..., bool] | None = None,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    concrete: Any = _ABSENT,
) -> Callable[..., Any]:
    """`fun`, whose gradient saves only its inputs and what `policy` says, and computes the rest again.

    `policy(primitive, *types, **params) -> bool` is asked of each operation, see `checkpoint_policies`; None saves nothing.
    With `prevent_cse=False` the compiler may merge what is computed again with the first time (within `scan` it cannot).
    Static arguments are Python values; the others are traced: `if` on their values raises ConcretizationTypeError.
    """
    check_callable(fun, "checkpoint")
    if concrete is not _ABSENT:
        raise NotImplementedError(
            f"checkpoint has no option `concrete`; make the arguments that Python reads static with static_argnums ({current_source().short})"
        )
    if not isinstance(prevent_cse, (bool, tuple, list)):
        raise TypeError(
            f"checkpoint takes prevent_cse as a bool or a tuple of bools, got {prevent_cse!r} ({current_source().short})"
        )
    numbers = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
    if not all(type(n) is int for n in numbers):
        raise TypeError(
            f"checkpoint takes static_argnums as an int or a tuple of ints, got {static_argnums!r} ({current_source().short})"
        )
    names = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)

    @functools.wraps(fun)
    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        try:
            return _remat(fun, args, kwargs, numbers, names, prevent_cse, policy)
        except Exception as error:
            raise hide(error)  # noqa: B904

    return checkpointed


remat = checkpoint


def _remat(
    fun: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    numbers: tuple[int, ...],
    names: tuple[str, ...],
    prevent_cse: bool | Sequence[bool],
    policy: Callable[..., bool] | None,
) -> Any:
    if not all(-len(args) <= n < len(args) for n in numbers):
        raise ValueError(
            f"checkpoint of {name_of(fun)} has static_argnums={numbers}, but the call has {len(args)} positional arguments "
            f"({current_source().short})"
        )
    static = {n % len(args) for n in numbers}
    fixed = {k: v for k, v in kwargs.items() if k in names}
    given = (
        tuple(a for n, a in enumerate(args) if n not in static),
        {k: v for k, v in kwargs.items() if k not in names},
    )
    leaves, in_tree = tree.flatten(given)
    values = leaf_values(leaves, f"the arguments of {name_of(fun)}")

    def call(dynamic: Any, named: Any) -> Any:
        rest = iter(dynamic)
        return fun(*(a if n in static else next(rest) for n, a in enumerate(args)), **named, **fixed)

    convert = lambda outs, result: leaf_values(outs, f"the result of {name_of(fun)}")
    setting = _hashable((tuple((n, args[n]) for n in sorted(static)), tuple(fixed.items())))
    body = staged_body(call, in_tree, [type_of(v) for v in values], convert, fun, "checkpoint", setting)
    graph, consts = body.graph, body.consts
    apart: bool | tuple[bool, ...] = prevent_cse if isinstance(prevent_cse, bool) else any(prevent_cse)
    if not isinstance(prevent_cse, bool) and not kwargs:
        apart = (False,) * len(consts) + tuple(tree.broadcast_prefix(tuple(prevent_cse), tuple(given[0])))
    outs = remat_p.bind(*consts, *values, jaxpr=graph, prevent_cse=apart, differentiated=False, policy=policy)
    return tree.unflatten(body.structure, outs)


def _hashable(static: Any) -> Any:
    """Static arguments as a part of the key that the traced function is kept under; what cannot be hashed is like nothing else."""
    try:
        hash(static)
    except TypeError:
        return object()
    return tuple((type(v), v) for _, pairs in zip("pk", static) for _, v in pairs), static


def checkpoint_name(x: Any, name: str) -> Any:
    """`x`, each leaf marked with a name that policies may speak of."""
    if not isinstance(name, str):
        raise TypeError(
            f"checkpoint_name takes a string as name, got a {type(name).__name__} ({current_source().short})"
        )
    leaves, structure = tree.flatten(x)
    return tree.unflatten(
        structure, [name_p.bind(v, name=name) for v in leaf_values(leaves, "the argument of checkpoint_name")]
    )


def saved_residuals(f: Callable[..., Any], *args: Any, **kwargs: Any) -> list[tuple[ArrayType, str]]:
    """What the backward pass of `f` at these arguments would keep: each value's type, and where it comes from."""
    leaves, in_tree = tree.flatten((args, kwargs))
    values = leaf_values(leaves, f"the arguments of {name_of(f)}")

    def flat(*tracers: Any) -> list[Any]:
        given, named = tree.unflatten(in_tree, tracers)
        return leaf_values(tree.leaves(f(*given, **named)), f"the result of {name_of(f)}")

    def residuals(*tracers: Any) -> list[Any]:
        return list(linearize(flat, tracers)[1].graph.consts)

    graph = stage(residuals, [type_of(v) for v in values], name_of(f))
    kept = dict.fromkeys(v for v in graph.outvars if isinstance(v, Var))
    found = [(v.aval, "from a literal") for v in graph.outvars if isinstance(v, Literal)]
    found += [(v.aval, "from a constant") for v in graph.constvars if v in kept]
    paths = _argument_names(f, args, kwargs)
    found += [(v.aval, f"from the argument {path}") for v, path in zip(graph.invars, paths) if v in kept]
    return found + [(v.aval, _origin(eqn)) for eqn in graph.eqns for v in eqn.outvars if v in kept]


def _argument_names(f: Callable[..., Any], args: Any, kwargs: Any) -> list[str]:
    try:
        bound = inspect.signature(f).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        return tree.paths((args, kwargs))
    return [name + path for name, value in bound.items() for path in tree.paths(value)]


def _origin(eqn: Eqn) -> str:
    line = eqn.source.line
    if eqn.primitive is name_p:
        return f"named '{eqn.params['name']}' from {line}"
    return f"output of {eqn.primitive.name} from {line}"


def print_saved_residuals(f: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Print `saved_residuals`, one a line."""
    for aval, origin in saved_residuals(f, *args, **kwargs):
        print(f"{aval} {origin}")
