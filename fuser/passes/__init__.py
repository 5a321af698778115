"""Passes: a literal tuple of named pure functions Graph → Graph, run in order; the checker runs between them in tests."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from fuser.config import config
from fuser.ir.check import check
from fuser.ir.graph import Graph
from fuser.passes.algebra.simplifier import simplify
from fuser.passes.algebra.single_elements import write_single_elements
from fuser.passes.cse import merge_common
from fuser.passes.dce import drop_dead
from fuser.passes.fold import fold_constants
from fuser.passes.indexing.canonicalize import canonicalize_indexing
from fuser.passes.indexing.forward_updates import forward_updates
from fuser.passes.indexing.scatter_to_update import scatter_to_update, windows_of
from fuser.passes.indexing.sink_reshapes import sink_reshapes
from fuser.passes.inline import inline_calls
from fuser.passes.loops.batch_matmuls import batch_matmuls
from fuser.passes.loops.carries import forward_carries, in_bodies
from fuser.passes.loops.congruent_counters import replace_congruent_counters
from fuser.passes.loops.distribute import distribute_loops
from fuser.passes.loops.hoist_updates import hoist_updates
from fuser.passes.loops.layout import pretranspose_invariants
from fuser.passes.loops.licm import hoist_invariants
from fuser.passes.loops.parallelise import parallelise_loops
from fuser.passes.loops.propagate_constants import propagate_constants
from fuser.passes.loops.sink_accumulations import sink_accumulations
from fuser.passes.loops.trivial_control import simplify_trivial_control
from fuser.passes.reductions.demanded_elements import drop_undemanded
from fuser.passes.reductions.dot_to_reduce import dot_to_reduce
from fuser.passes.reductions.factor_reductions import factor_reductions


def optimise_bodies(graph: Graph) -> Graph:
    """The graph with every pass done to the bodies of its control flow, inner ones first."""
    return in_bodies(graph, lambda body: _through((*LOOPS, *CLEARING), body))


def dots_to_reductions(graph: Graph) -> Graph:
    """The graph with its plain products written out, those in the bodies of control flow too.

    Loops are done with by then: what moves out of them (`sink_accumulations`) must still be seen as products.
    """
    return dot_to_reduce(in_bodies(graph, _with_dots_reduced))


def _with_dots_reduced(body: Graph) -> Graph:
    written = dots_to_reductions(body)
    return written if written is body else _through(CLEARING, written)


def _through(passes: Sequence[tuple[str, Callable[[Graph], Graph]]], graph: Graph) -> Graph:
    for name, step in passes:
        graph = step(graph)
        graph = graph.updated(name)
        if config.check:
            check(graph)
    return graph


CLEARING: tuple[tuple[str, Callable[[Graph], Graph]], ...] = (
    ("simplify", simplify),
    ("canonicalize_indexing", canonicalize_indexing),
    ("forward_updates", forward_updates),
    ("sink_reshapes", sink_reshapes),
    ("simplify_again", simplify),
    ("factor_reductions", factor_reductions),
    ("merge_again", merge_common),
    ("drop_again", drop_dead),
    ("drop_undemanded", drop_undemanded),
)
LOOPS: tuple[tuple[str, Callable[[Graph], Graph]], ...] = (
    ("inline_calls", inline_calls),
    ("drop_dead", drop_dead),
    ("propagate_constants", propagate_constants),
    ("hoist_updates", hoist_updates),
    ("scatter_to_update", scatter_to_update),
    ("write_single_elements", write_single_elements),
    ("optimise_bodies", optimise_bodies),
    ("replace_congruent_counters", replace_congruent_counters),
    ("forward", forward_carries),
    ("distribute_loops", distribute_loops),
    ("parallelise_loops", parallelise_loops),
    ("hoist_invariants", hoist_invariants),
    ("sink_accumulations", sink_accumulations),
    ("batch_matmuls", batch_matmuls),
    ("pretranspose_invariants", pretranspose_invariants),
    ("simplify_trivial_control", simplify_trivial_control),
    ("merge_common", merge_common),
    ("fold_constants", fold_constants),
)
PIPELINE: tuple[tuple[str, Callable[[Graph], Graph]], ...] = (
    *LOOPS,
    ("dot_to_reduce", dots_to_reductions),
    *CLEARING,
)


def run(graph: Graph, donated: Collection[int] = ()) -> Graph:
    """The graph after every pass; its `history` names them. Updates of inputs that are `donated`, by position, write windows."""
    if not donated:
        return _through(PIPELINE, graph)
    own = ("windows_of_donated", lambda graph: windows_of(graph, {graph.invars[n] for n in donated}))
    return _through((*LOOPS, own, *PIPELINE[len(LOOPS) :]), graph)
