"""What control flow demands of its bodies' results: equal trees, equal types; and the errors that say where they differ."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fuser import dtypes
from fuser.ir.graph import Eqn, Graph, Var
from fuser.ir.names import function_name
from fuser.ir.source import current_source
from fuser.ir.types import BOOL, ArrayType
from fuser.lax.elementwise import convert_element_type
from fuser.lax.values import as_value
from fuser.ops.collective import pvary_p
from fuser.trace import tree
from fuser.trace.body import Body
from fuser.trace.core import type_of
from fuser.trace.mismatch import differences
from fuser.trace.replay import replay
from fuser.trace.stage import stage


@dataclass(frozen=True)
class Pair:
    """The two parts of the result of a scan's body: the structure of each, and the number of the carry's leaves."""

    structure: Any
    ys: Any
    carry: int


def pair(step: Body) -> Pair | None:
    """The body's result as a pair; None where it is none."""
    whole = step.structure
    parts = whole.children() if whole.type is tuple else []
    if len(parts) != 2:
        return None
    return Pair(parts[0], parts[1], parts[0].num_leaves)


def described(step: Body) -> str:
    """The body's result for a person: a tree of types."""
    return str(tree.unflatten(step.structure, [_Shown(str(a)) for a in step.out_avals]))


class _Shown:
    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def result_value(leaf: Any, number: int, result: Any, name: str) -> Any:
    """A leaf of a body's result as a value; TypeError where it is no array."""
    try:
        return as_value(leaf, name)
    except TypeError:
        path = tree.paths(result)[number]
        raise TypeError(
            f"{name} returned a {type(leaf).__name__}{f' at {path}' if path else ''}, which is no array "
            f"({current_source().short}); control flow takes functions that return arrays and numbers"
        ) from None


def same(a: ArrayType, b: ArrayType) -> bool:
    """Whether shapes and dtypes agree; weakness does not count."""
    return a.shape == b.shape and a.dtype == b.dtype


def promoted(
    init: Sequence[Any], results: Sequence[ArrayType], vma: frozenset[Any] = frozenset()
) -> tuple[list[Any], bool]:
    """The initial carry with weakly typed parts in the dtype that the body gives them, and whether any changed.

    Parts that come to differ along axes of a mesh do so from the start; `vma` are axes along which all do.
    """
    if len(init) != len(results):
        return list(init), False
    values, changed = [], False
    for value, result in zip(init, results):
        if value.weak_type and not same(type_of(value), result):
            dtype, _ = dtypes.result_of((value.dtype, True), (result.dtype, result.weak_type))
            value, changed = convert_element_type(value, dtype), True
        if not (result.vma | vma) <= type_of(value).vma:
            value, changed = varying(value, result.vma | vma), True
        values.append(value)
    return values, changed


def varying(value: Any, axes: frozenset[Any]) -> Any:
    """The value, taken to differ along at least these axes of a mesh."""
    missing = axes - type_of(value).vma if axes else axes
    return pvary_p.bind(value, axes=tuple(sorted(missing, key=str))) if missing else value


def apart(step: Body, axes: frozenset[Any]) -> Body:
    """The body with all of its inputs taken to differ along these axes, as devices choose apart whether it runs.

    A derivative then sums what devices contribute to a value that they share outside of the body, where all of them come by.
    """
    return replace(step, graph=_apart(step.graph, axes)) if axes else step


@functools.lru_cache(maxsize=512)
def _apart(graph: Graph, axes: frozenset[Any]) -> Graph:
    return stage(
        lambda *inputs: replay(graph, *inputs), [a.update(vma=a.vma | axes) for a in graph.in_avals], graph.name
    )


def widened(step: Body, wanted: Sequence[frozenset[Any]]) -> Body:
    """The body with its first results taken to differ along at least these axes of a mesh."""
    return replace(step, graph=_widened(step.graph, tuple(wanted))) if any(wanted) else step


@functools.lru_cache(maxsize=512)
def _widened(graph: Graph, wanted: tuple[frozenset[Any], ...]) -> Graph:
    outvars, eqns = list(graph.outvars), list(graph.eqns)
    for number, (operand, axes) in enumerate(zip(graph.outvars, wanted)):
        if missing := axes - operand.aval.vma:
            var = Var(operand.aval.update(vma=axes | operand.aval.vma))
            eqns.append(Eqn(pvary_p, (operand,), {"axes": tuple(sorted(missing, key=str))}, (var,)))
            outvars[number] = var
    return replace(graph, eqns=tuple(eqns), outvars=tuple(outvars))


def in_words(step: Body) -> str:
    """What a function returns, in JAX's words: the type of one array, or the tree."""
    return step.out_avals[0].str_long() if step.structure.is_leaf() else str(step.structure)


def predicate(function: str, test: Body) -> None:
    """TypeError unless a loop's predicate is one bool."""
    if test.structure.num_leaves != 1 or test.structure != tree.structure(0):
        raise TypeError(
            f"cond_fun must return a boolean scalar, but got pytree {test.structure}. {function} needs a predicate that returns "
            f"a scalar bool, got {described(test)} from {test.name} ({current_source().short})"
        )
    [aval] = test.out_avals
    if aval.shape or aval.dtype != BOOL:
        hint = "; reduce it with fuser.numpy.any or fuser.numpy.all" if aval.shape else "; compare it, as in x != 0"
        raise TypeError(
            f"cond_fun must return a boolean scalar, but got output type(s) [ShapedArray({aval.str_long()})]. {function} needs a predicate "
            f"that returns a scalar bool, got {aval} from {test.name} "
            f"({current_source().short}){hint}"
        )


def same_carry(
    function: str,
    owner: Callable[..., Any],
    structure: Any,
    init: Any,
    avals: Sequence[ArrayType],
    step: Body,
    found: Sequence[ArrayType],
    kind: str = "",
    found_structure: Any = None,
) -> None:
    """TypeError unless the body gives back a carry of the tree and the types that it takes."""
    found_structure = step.structure if found_structure is None else found_structure
    if found_structure == structure and all(same(a, b) for a, b in zip(avals, found)):
        return
    name = _carry_name(owner, function)
    of_name = function_name(owner)
    if found_structure != structure:
        if function == "fori_loop":
            last = 2 if kind == "while" else 1
            structure, found_structure = structure.children()[last], found_structure.children()[last]
        body = "while_loop body" if function == "while_loop" else function
        raise TypeError(
            f"{body} function carry input and carry output must have the same pytree structure, but they differ:\n\n"
            f"{_structures(name, structure, found_structure)}.\n\n"
            f"The carry of {function} must keep its structure: {name} goes into {of_name} as {_tree(structure)} and comes "
            f"out as {_tree(found_structure)} ({current_source().short}); return what it takes"
        )
    differing, words = [], []
    for path, a, b in zip(tree.paths(init), avals, found):
        if not same(a, b):
            own = f"{name}{_own(path, function)}"
            words.append(
                f"The input carry {_component(own, name)} has type {a.str_long()} but the corresponding output carry component has "
                f"type {b.str_long()}, so the {_reasons(a, b)} do not match"
            )
            differing.append(f"{own} goes in as {a} and comes out as {b}")
    raise TypeError(
        f"{function} function carry input and carry output must have equal types, but they differ:\n\n{_listed(words)}.\n\n"
        f"The carry of {function} must keep its types: {'; '.join(differing)}, of {of_name} "
        f"({current_source().short}); convert the result or the initial value"
    )


def _structures(name: str, first: Any, second: Any) -> str:
    """Where two structures of a carry differ, in JAX's words."""
    return _listed(
        [
            f"The input carry {_component(f'{name}{path}', name)} is a {one} but the corresponding component of the carry output is a "
            f"{other}, so {why}"
            for path, one, other, why in differences(first, second)
        ]
    )


def _reasons(a: ArrayType, b: ArrayType) -> str:
    both = [what for what, differ in (("dtypes", a.dtype != b.dtype), ("shapes", a.shape != b.shape)) if differ]
    return " do not match, and the ".join(both)


def _component(own: str, name: str) -> str:
    """The carry itself by its name, a part of it as a component."""
    return own if own == name else f"component {own}"


def _listed(words: list[str]) -> str:
    """One statement by itself, several as a list."""
    return words[0] if len(words) == 1 else ";\n".join(f"  * {w[0].lower()}{w[1:]}" for w in words)


def _own(path: str, function: str) -> str:
    """The path within the user's carry; a fori_loop's stands behind its counter."""
    return path.removeprefix("[2]").removeprefix("[1]") if function == "fori_loop" else path


def _carry_name(owner: Callable[..., Any], function: str) -> str:
    try:
        names = list(inspect.signature(owner).parameters)
        return names[1 if function == "fori_loop" else 0]
    except (TypeError, ValueError, IndexError):
        return "the carry"


def _tree(structure: Any) -> str:
    return str(tree.unflatten(structure, [_Shown("*")] * structure.num_leaves))


def same_branches(function: str, first: str, a: Body, second: str, b: Body) -> None:
    """TypeError unless two branches return the same tree of the same types."""
    if a.structure != b.structure:
        raise TypeError(
            f"the branches of {function} must return one structure: {first} returns {_tree(a.structure)} and {second} "
            f"returns {_tree(b.structure)} ({current_source().short})"
        )
    paths = a.paths or [""] * len(a.out_avals)
    differing = [
        f"{first} returns {x} and {second} returns {y}{f' at {path}' if path else ''}"
        for path, x, y in zip(paths, a.out_avals, b.out_avals)
        if not same(x, y)
    ]
    if differing:
        raise TypeError(
            f"the branches of {function} must return equal types: {'; '.join(differing)} ({current_source().short}); "
            "convert one of them"
        )
