"""Calls of exported functions: what arguments must be, and how results and derivatives are had."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fuser.api.jitted import jit
from fuser.export.layouts import devices_of, over
from fuser.export.safety import DisabledSafetyCheck
from fuser.export.sizes import solved, with_sizes
from fuser.ir.graph import Graph
from fuser.ir.types import is_inexact
from fuser.lax.values import as_value
from fuser.ops.platform import platform_in_use
from fuser.runtime.reference import Ref
from fuser.trace import tree
from fuser.trace.core import type_of
from fuser.trace.mismatch import differences
from fuser.trace.replay import replay
from fuser.transforms.custom_vjp import custom_vjp

if TYPE_CHECKING:
    from fuser.export.exported import Exported


def checked_platform(exported: Exported) -> None:
    """ValueError where the function was exported for other platforms than the one in use."""
    here = platform_in_use()
    if here not in exported.platforms and DisabledSafetyCheck.platform() not in exported.disabled_safety_checks:
        raise ValueError(
            f"Function '{exported.fun_name}' was exported for platforms '{exported.platforms}' but it is used on "
            f"'{(here,)}'; export it with platforms=(..., {here!r})"
        )


def called(exported: Exported, run: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """What `run` gives for the arguments' leaves, in the tree of the results. ValueError for arguments of other types."""
    leaves, structure = tree.flatten((args, kwargs))
    if structure != exported.in_tree:
        raise ValueError(_other_tree(exported, structure))
    values = [as_value(leaf, exported.fun_name) for leaf in leaves]
    types = tuple([(v.shape, v.dtype, type(v) is Ref) for v in values])
    if types in exported._accepted:
        return tree.unflatten(exported.out_tree, run(*values))
    for path, value, aval in zip(argument_paths(exported), values, exported.in_avals):
        _fits(path, type_of(value), aval)
    exported._accepted.add(types)
    return tree.unflatten(exported.out_tree, run(*values))


def argument_paths(exported: Exported) -> list[str]:
    """`args[0]`, `kwargs['b']`: how errors name each leaf of the arguments."""
    paths = tree.paths(tree.unflatten(exported.in_tree, range(exported.in_tree.num_leaves)))
    return [f"{'args' if path.startswith('[0]') else 'kwargs'}{path[3:]}" for path in paths]


def _other_tree(exported: Exported, structure: Any) -> str:
    found = [
        f"   * at {_place(path)}, you now pass {there} but when it was exported there was {here}, so {why}."
        for path, here, there, why in differences(exported.in_tree, structure)
    ]
    return (
        "The invocation args and kwargs must have the same pytree structure as when the function "
        f"'{exported.fun_name}' was exported, but they have the following structural differences:\n" + "\n".join(found)
    )


def _place(path: str) -> str:
    for start, name in (("[0]", "args"), ("[1]", "kwargs")):
        if path.startswith(start):
            return name + path[3:]
    return "the arguments"


def _fits(path: str, found: Any, wanted: Any) -> None:
    if type(found) is not type(wanted):
        raise ValueError(
            f"Type mismatch for {path}: expected {wanted}, got {found}; new_ref makes a Ref, ref[...] reads one"
        )
    if found.ndim != wanted.ndim:
        raise ValueError(f"Rank mismatch for {path}: expected {wanted}, got {found}")
    if found.dtype != wanted.dtype:
        raise ValueError(f"Dtype mismatch for {path}: expected {wanted}, got {found}")
    for n, (mine, theirs) in enumerate(zip(wanted.shape, found.shape)):
        if type(mine) is int and mine != theirs:
            raise ValueError(
                f"Shape mismatch for {path}.shape[{n}] (expected same constant): expected {wanted}, got {found}"
            )


def runner(exported: Exported) -> Callable[..., list[Any]]:
    """A function from the arguments' leaves to the results', compiled once for each types, with the exported derivative."""
    if exported.nr_devices > 1:
        count, name = exported.nr_devices, exported.fun_name
        known = functools.cache(lambda chosen: _runner(exported, over(exported.graph, chosen)))
        return lambda *leaves: known(devices_of(leaves, count, name))(*leaves)
    return _runner(exported, exported.graph)


def _runner(exported: Exported, graph: Graph) -> Callable[..., list[Any]]:
    symbolic = exported._symbolic

    def primal(*leaves: Any) -> list[Any]:
        if not symbolic:
            return replay(graph, *leaves)
        sizes = solved(argument_paths(exported), exported.in_avals, [type_of(leaf) for leaf in leaves])
        return replay(with_sizes(graph, sizes), *leaves)

    primal.__name__ = exported.fun_name
    function = custom_vjp(primal)
    function.defvjp(lambda *leaves: (function(*leaves), leaves), _backward(exported))
    compiled: Callable[..., list[Any]] = jit(function)
    return compiled


def _backward(exported: Exported) -> Callable[..., tuple[Any, ...]]:
    """The rule for cotangents: the exported derivative, None for arguments that have none."""
    results = [n for n, a in enumerate(exported.out_avals) if is_inexact(a.dtype)]

    def backward(leaves: Sequence[Any], cotangents: Sequence[Any]) -> tuple[Any, ...]:
        derivative = exported.vjp()
        found: Iterator[Any] = iter(derivative.call(*leaves, *(cotangents[n] for n in results)))
        return tuple(next(found) if is_inexact(a.dtype) else None for a in exported.in_avals)

    return backward
