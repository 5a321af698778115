"""jax.api_util's names: flattened functions, and arguments by number."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from fuser.extend.core import DebugInfo
from fuser.extend.linear_util import Store, WrappedFun
from fuser.extend.linear_util import transformation_with_aux2 as _with_aux
from fuser.lax.values import as_value
from fuser.trace import tree
from fuser.trace.core import type_of

__all__ = [
    "argnums_partial",
    "debug_info",
    "donation_vector",
    "flatten_axes",
    "flatten_fun",
    "flatten_fun_nokwargs",
    "rebase_donate_argnums",
    "safe_map",
    "shaped_abstractify",
]


def safe_map(f: Callable[..., Any], *args: Any) -> list[Any]:
    """[f(*elements), …] of sequences of one length. ValueError where lengths differ."""
    lists = [list(a) for a in args]
    if len({len(a) for a in lists}) > 1:
        raise ValueError(f"safe_map() argument lengths differ: {[len(a) for a in lists]}")
    return [f(*elements) for elements in zip(*lists)]


def shaped_abstractify(x: Any) -> Any:
    """The type that a value has as an array."""
    return type_of(as_value(x, "shaped_abstractify"))


def _flat(f: Callable[..., Any], store: Store, in_tree: Any, *leaves: Any) -> list[Any]:
    args, kwargs = tree.unflatten(in_tree, leaves)
    flat, out_tree = tree.flatten(f(*args, **kwargs))
    store.store(out_tree)
    return flat


def _flat_nokwargs(f: Callable[..., Any], store: Store, in_tree: Any, *leaves: Any) -> list[Any]:
    flat, out_tree = tree.flatten(f(*tree.unflatten(in_tree, leaves)))
    store.store(out_tree)
    return flat


def flatten_fun(fun: WrappedFun, *gen_static_args: Any, use_eq_store: bool = False, unk_names: bool = False) -> Any:
    """(a function of leaves that gives leaves, one that gives the results' tree): `in_tree` is that of (args, kwargs)."""
    return _with_aux(_flat, fun, *gen_static_args)


def flatten_fun_nokwargs(
    fun: WrappedFun, *gen_static_args: Any, use_eq_store: bool = False, unk_names: bool = False
) -> Any:
    """As `flatten_fun`, where `in_tree` is that of args alone."""
    return _with_aux(_flat_nokwargs, fun, *gen_static_args)


def _positions(numbers: Any, count: int) -> tuple[int, ...]:
    given = (numbers,) if isinstance(numbers, int) else tuple(numbers)
    if any(not -count <= n < count for n in given):
        raise ValueError(f"argnums {numbers} are out of range for {count} positional arguments")
    return tuple(n % count for n in given)


def argnums_partial(
    f: WrappedFun, dyn_argnums: int | Sequence[int], args: Sequence[Any], require_static_args_hashable: bool = True
) -> tuple[WrappedFun, list[Any]]:
    """(the function of the arguments numbered alone, these): the other ones are fixed, and must be hashable if required (ValueError)."""
    chosen = _positions(dyn_argnums, len(args))
    fixed = list(args)
    if require_static_args_hashable:
        for n, arg in enumerate(args):
            if n not in chosen:
                try:
                    hash(arg)
                except TypeError:
                    raise ValueError(
                        f"Non-hashable static arguments are used in a jit or vmap function: argument {n}, of type {type(arg)}"
                    ) from None

    def transform(inside: Callable[..., Any], *dynamic: Any, **kwargs: Any) -> Any:
        whole = list(fixed)
        for n, value in zip(chosen, dynamic):
            whole[n] = value
        return inside(*whole, **kwargs)

    return f.wrap(transform, None), [args[n] for n in chosen]


def donation_vector(donate_argnums: Any, donate_argnames: Any, in_tree: Any, kws: bool = True) -> tuple[bool, ...]:
    """For each leaf of (args, kwargs) whether it is donated, by the arguments' numbers and names."""
    args, kwargs = in_tree.children() if kws else (in_tree, None)
    found: list[bool] = []
    for n, child in enumerate(args.children()):
        found += [n in donate_argnums] * child.num_leaves
    if kwargs is not None:
        data = kwargs.node_data()
        for name, child in zip(data[1] if data is not None else (), kwargs.children()):
            found += [name in donate_argnames] * child.num_leaves
    return tuple(found)


def rebase_donate_argnums(donate_argnums: Any, static_argnums: Any) -> tuple[int, ...]:
    """The numbers of donated arguments once static ones are left out. ValueError where an argument is both."""
    both = sorted(set(donate_argnums) & set(static_argnums))
    if both:
        raise ValueError(
            f"static_argnums {tuple(static_argnums)} and donate_argnums {tuple(donate_argnums)} must not overlap"
        )
    return tuple(sorted(n - sum(s < n for s in static_argnums) for n in donate_argnums))


def flatten_axes(name: str, treedef: Any, axis_tree: Any, *, kws: bool = False, tupled_args: bool = False) -> list[Any]:
    """For each leaf of `treedef` the leaf of `axis_tree` (None is one) that stands for it. ValueError unless that is a prefix."""
    whole = tree.unflatten(treedef, [object()] * treedef.num_leaves)
    try:
        return tree.broadcast_prefix(axis_tree, whole)
    except ValueError:
        hint = ""
        if tupled_args:
            hint = f" Note that {name} that are non-trivial pytrees should always be wrapped in a tuple representing the argument list."
        raise ValueError(
            f"{name} specification must be a tree prefix of the corresponding value, got specification {axis_tree} for value tree {treedef}.{hint}"
        ) from None


def debug_info(
    traced_for: str, fun: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], *, static_argnums: Sequence[int] = (),
    static_argnames: Sequence[str] = (), result_paths_thunk: Any = None, sourceinfo: str | None = None, signature: inspect.Signature | None = None,
) -> DebugInfo:  # fmt: skip
    """What a function is traced for, its name and place, and the names of the leaves of its arguments."""
    if sourceinfo is None:
        code = getattr(inspect.unwrap(fun), "__code__", None)
        name = getattr(fun, "__name__", "<unknown>")
        sourceinfo = f"{name} at {code.co_filename}:{code.co_firstlineno}" if code is not None else name
    try:
        found = inspect.signature(fun) if signature is None else signature
        bound = found.bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        return DebugInfo(traced_for, sourceinfo, None, None)
    names = list(found.parameters)
    static = {names[n] for n in static_argnums if n < len(names)} | set(static_argnames)
    paths = [name + path for name, value in bound.items() if name not in static for path in tree.paths(value)]
    return DebugInfo(traced_for, sourceinfo, tuple(paths), None)
