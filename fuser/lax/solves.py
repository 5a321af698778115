"""`custom_linear_solve` and `custom_root`: solvers whose derivatives come from the equation that they solve."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fuser.errors import TypeRuleError
from fuser.ir.graph import Graph
from fuser.ir.source import current_source
from fuser.lax.values import as_value
from fuser.ops.calls import custom_jvp_call_p
from fuser.ops.elementwise import neg_p
from fuser.ops.solves import linear_solve_p
from fuser.trace import tree
from fuser.trace.body import close
from fuser.trace.core import type_of
from fuser.trace.jvp import jvp
from fuser.trace.linearize import linearize
from fuser.trace.replay import as_function, replay
from fuser.trace.stage import stage
from fuser.trace.tangent import Undefined, instantiate, zero_like
from fuser.trace.transpose import transposed_graph

Function = Callable[..., Any]


class _Staged:
    """A function of one tree as a closed graph, the values that it closes over, and the tree of its result."""

    def __init__(self, function: Function, structure: Any, values: Sequence[Any], name: str) -> None:
        trees: list[Any] = []

        def flat(*tracers: Any) -> list[Any]:
            leaves, out_tree = tree.flatten(function(tree.unflatten(structure, tracers)))
            trees.append(out_tree)
            return [as_value(leaf, name) for leaf in leaves]

        graph, consts = close(stage(flat, [type_of(v) for v in values], name))
        self.graph: Graph = graph
        self.consts = consts
        self.tree = trees[0]


def _expect(what: str, found: Any, wanted: Any, of: str) -> None:
    if found != wanted:
        raise TypeRuleError(f"{what} must return the tree of {of}, {wanted}, got {found} ({current_source().short})")


def _expect_types(what: str, staged: _Staged, values: Sequence[Any], of: str) -> None:
    for value, found in zip(values, staged.graph.out_avals):
        if found.shape != value.shape or found.dtype != value.dtype:
            raise TypeRuleError(
                f"{what} must return the types of {of}, got {found} for {type_of(value)} ({current_source().short})"
            )


def _solution(what: str, staged: _Staged, structure: Any, values: Sequence[Any], of: str, has_aux: bool) -> None:
    """Check that a solver returns the tree and types of its right side, with auxiliary results behind if it has them."""
    own = staged.tree
    if has_aux:
        parts = own.children()
        if len(parts) != 2:
            raise TypeRuleError(
                f"{what} with has_aux must return a pair (solution, aux), got {own} ({current_source().short})"
            )
        own = parts[0]
    _expect(what, own, structure, of)
    _expect_types(what, staged, values, of)


def custom_linear_solve(
    matvec: Function,
    b: Any,
    solve: Callable[[Function, Any], Any],
    transpose_solve: Callable[[Function, Any], Any] | None = None,
    symmetric: bool = False,
    has_aux: bool = False,
) -> Any:
    """x with `matvec(x) = b`, by `solve(matvec, b)`; derivatives solve the same system, or the transposed one.

    Reverse mode needs `transpose_solve(vecmat, b)`, or `symmetric`. With `has_aux` solvers return (x, aux). TypeRuleError
    where trees or types of results differ from those of `b`.
    """
    leaves, structure = tree.flatten(b)
    values = [as_value(leaf, "custom_linear_solve") for leaf in leaves]
    if transpose_solve is None and symmetric:
        transpose_solve = solve
    forward = _Staged(matvec, structure, values, "matvec")
    _expect("matvec", forward.tree, structure, "b")
    _expect_types("matvec", forward, values, "b")
    solving = _Staged(lambda x: solve(matvec, x), structure, values, "solve")
    _solution("solve", solving, structure, values, "b", has_aux)
    backward = transposing = None
    if transpose_solve is not None:
        vecmat = matvec if symmetric else _transposed(forward, structure, values)
        backward = forward if symmetric else _Staged(vecmat, structure, values, "vecmat")
        transposing = _Staged(lambda x: transpose_solve(vecmat, x), structure, values, "transpose_solve")
        _solution("transpose_solve", transposing, structure, values, "b", has_aux)
    parts = (forward, backward, solving, transposing)
    results = linear_solve_p.bind(
        *(c for part in parts if part is not None for c in part.consts),
        *values,
        const_lengths=tuple(0 if part is None else len(part.consts) for part in parts),
        jaxprs=tuple(None if part is None else part.graph for part in parts),
    )
    return tree.unflatten(solving.tree, results)


def _transposed(forward: _Staged, structure: Any, values: Sequence[Any]) -> Function:
    def vecmat(cotangents: Any) -> Any:
        operands = [*forward.consts, *(Undefined(type_of(v)) for v in values)]
        found = transposed_graph(forward.graph, operands, [as_value(c) for c in tree.leaves(cotangents)])
        return tree.unflatten(structure, [instantiate(c) for c in found[len(forward.consts) :]])

    return vecmat


def custom_root(
    f: Function,
    initial_guess: Any,
    solve: Callable[[Function, Any], Any],
    tangent_solve: Callable[[Function, Any], Any],
    has_aux: bool = False,
) -> Any:
    """x with `f(x) = 0`, by `solve(f, initial_guess)`; derivatives by what `f` closes over, by the implicit function theorem.

    `tangent_solve(g, y)` gives x with `g(x) = y` for a linear `g`. With `has_aux` solve returns (x, aux). TypeRuleError
    where trees differ from that of `initial_guess`.
    """
    leaves, structure = tree.flatten(initial_guess)
    values = [as_value(leaf, "custom_root") for leaf in leaves]
    function = _Staged(f, structure, values, "f")
    _expect("f", function.tree, structure, "initial_guess")
    solving = _Staged(lambda x: solve(f, x), structure, values, "solve")
    _solution("solve", solving, structure, values, "initial_guess", has_aux)
    ends = len(function.consts), len(function.consts) + len(solving.consts)
    on_consts = as_function(function.graph)

    def root(*operands: Any) -> list[Any]:
        return replay(solving.graph, *operands[ends[0] :])

    def rule(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        consts, moving = primals[: ends[0]], tangents[: ends[0]]
        results = bind(*primals)
        x = results[: len(values)]
        _, right = jvp(lambda *inputs: on_consts(*inputs, *x), consts, moving)
        _, linear = linearize(lambda *inputs: on_consts(*consts, *inputs), x)

        def push(given: Any) -> Any:
            tangents = [as_value(leaf, "custom_root") for leaf in tree.leaves(given)]
            return tree.unflatten(structure, map(instantiate, linear.pushforward(tangents)))

        found = tree.leaves(tangent_solve(push, tree.unflatten(structure, map(instantiate, right))))
        return results, [*(neg_p.bind(as_value(t)) for t in found), *(zero_like(r) for r in results[len(values) :])]

    def bind(*operands: Any) -> list[Any]:
        return custom_jvp_call_p.bind(  # type: ignore[no-any-return]
            *operands, name="custom_root", call_jaxpr=root, jvp_jaxpr_fun=rule, num_consts=0, symbolic_zeros=False
        )

    return tree.unflatten(solving.tree, bind(*function.consts, *solving.consts, *values))
