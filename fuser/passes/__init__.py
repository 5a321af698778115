"""Passes: a literal tuple of named pure functions Graph → Graph, run in order; the checker runs between them in tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fuser.config import config
from fuser.ir.check import check
from fuser.ir.graph import Graph
from fuser.passes.algebra import simplify
from fuser.passes.control import forward, in_bodies
from fuser.passes.cse import merge_common
from fuser.passes.dce import drop_dead
from fuser.passes.demand import skip_unread
from fuser.passes.fission import multiply_rows_before_loops
from fuser.passes.fold import fold_constants
from fuser.passes.indexing import ease_indexing
from fuser.passes.inline import inline_calls
from fuser.passes.known import place_known
from fuser.passes.licm import hoist_invariants
from fuser.passes.products import write_products
from fuser.passes.reading import read_through
from fuser.passes.short import write_out
from fuser.passes.stages import fold_in_stages
from fuser.passes.totals import sum_after_loops
from fuser.passes.turning import turn_matrices
from fuser.passes.windows import write_windows


def optimise_bodies(graph: Graph) -> Graph:
    """The graph with every pass done to the bodies of its control flow, inner ones first."""
    return in_bodies(graph, lambda body: _through((*LOOPS, *CLEARING), body))


def write_products_everywhere(graph: Graph) -> Graph:
    """The graph with its plain products written out, those in the bodies of control flow too.

    Loops are done with by then: what moves out of them (`sum_after_loops`) must still be seen as products.
    """
    return write_products(in_bodies(graph, _with_products_written))


def _with_products_written(body: Graph) -> Graph:
    written = write_products_everywhere(body)
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
    ("ease_indexing", ease_indexing),
    ("read_through", read_through),
    ("simplify_again", simplify),
    ("fold_in_stages", fold_in_stages),
    ("merge_again", merge_common),
    ("drop_again", drop_dead),
    ("skip_unread", skip_unread),
)
LOOPS: tuple[tuple[str, Callable[[Graph], Graph]], ...] = (
    ("inline_calls", inline_calls),
    ("drop_dead", drop_dead),
    ("place_known", place_known),
    ("write_windows", write_windows),
    ("optimise_bodies", optimise_bodies),
    ("forward", forward),
    ("hoist_invariants", hoist_invariants),
    ("sum_after_loops", sum_after_loops),
    ("multiply_rows_before_loops", multiply_rows_before_loops),
    ("turn_matrices", turn_matrices),
    ("write_out", write_out),
    ("merge_common", merge_common),
    ("fold_constants", fold_constants),
)
PIPELINE: tuple[tuple[str, Callable[[Graph], Graph]], ...] = (
    *LOOPS,
    ("write_products", write_products_everywhere),
    *CLEARING,
)


def run(graph: Graph) -> Graph:
    """The graph after every pass; its `history` names them."""
    return _through(PIPELINE, graph)
