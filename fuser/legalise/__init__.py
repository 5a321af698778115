"""Graph → Graph rewrites that a target needs before fusion groups are formed: no kernel is chosen here.

Each rewrite is a file of this folder. Bodies of control flow are graphs of their own, whose turn comes when they are planned.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from fuser.config import config
from fuser.ir.check import check
from fuser.ir.graph import Graph
from fuser.legalise.attention import with_attention
from fuser.legalise.attention_recomputation import with_recomputed_scores
from fuser.legalise.block_kernels import with_elementwise_neighbours
from fuser.legalise.complex_dots import with_real_dots
from fuser.legalise.complex_reductions import with_complex_reductions
from fuser.legalise.control_flow import with_dense_operands
from fuser.legalise.expand import expanded
from fuser.legalise.gemv_to_reduce import with_vectors_as_sums
from fuser.legalise.grouped_products import with_grouped_products
from fuser.legalise.index_components import with_index_components
from fuser.legalise.index_wrapping import with_index_wrapping
from fuser.legalise.library_operands import with_read_operands
from fuser.legalise.narrow_operands import with_narrow_operands
from fuser.legalise.product_order import with_ordered_products
from fuser.legalise.raw_indices import with_raw_indices
from fuser.legalise.results import with_computed_results
from fuser.legalise.solve_order import with_columns
from fuser.legalise.split_reductions import with_split_reductions
from fuser.legalise.strided_operands import with_joined_windows, with_strided_operands
from fuser.legalise.tabulation import with_tables
from fuser.legalise.uniform_updates import with_uniform_updates
from fuser.legalise.window_writes import with_rows_in_place, with_window_writes
from fuser.ops.grouped import grouped_matmul_p
from fuser.ops.scatter_rows import scatter_rows_p
from fuser.partition.donated_updates import with_updates_in_place
from fuser.partition.loop_forms import LoopForms


def legalise(graph: Graph, backend: Any, loops: LoopForms | None = None, donated: Collection[int] = ()) -> Graph:
    """The graph as `backend` can plan it: by its `limits`, what it `supports`, and which `loops` become kernels; `donated` are the positions
    of inputs whose memory results may take over."""
    limits = backend.limits
    loops = LoopForms(backend) if loops is None else loops
    graph = with_window_writes(with_updates_in_place(graph, donated, limits), donated, limits)
    graph = expanded(graph, limits.natives)
    graph = with_complex_reductions(graph, backend.supports)
    graph = with_rows_in_place(graph, donated, limits)
    if grouped_matmul_p in limits.calls:
        graph = with_grouped_products(graph, backend.supports)
    graph = with_tables(graph, limits.target)
    graph = with_elementwise_neighbours(graph, backend.supports)
    if limits.dots:
        graph = with_real_dots(graph, backend.supports)
    if limits.attention:
        graph = with_attention(with_recomputed_scores(graph, backend.supports), backend.supports)
    if limits.gemv_as_sums:
        graph = with_vectors_as_sums(graph)
    graph = with_narrow_operands(graph, limits.target)
    if limits.control:
        forms = loops.of(graph)
        graph = with_dense_operands(graph, lambda eqn: isinstance(forms[eqn.outvars[0]], str))
    if limits.strided_dots:
        graph = with_ordered_products(graph, lambda eqn: backend.supports(eqn) is None)
        graph = with_strided_operands(graph, lambda eqn: backend.supports(eqn) is None)
    elif limits.dots and not limits.whole:
        graph = with_joined_windows(graph)
    graph = with_index_components(graph, lambda eqn: backend.supports(eqn) is None)
    graph = with_split_reductions(graph, limits.target)
    if scatter_rows_p in limits.calls:
        graph = with_raw_indices(with_uniform_updates(graph))
    graph = with_index_wrapping(graph, limits.calls)
    if limits.column_solves:
        graph = with_columns(graph)
    graph = with_read_operands(graph, limits.calls | limits.library_calls)
    graph = with_computed_results(graph)
    if config.check:
        check(graph)
    return graph
