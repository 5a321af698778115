"""Constant folding, dead code, common subexpressions, and the pipeline as a whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuser import passes
from fuser.config import config
from fuser.ir.evaluate import evaluate
from fuser.ir.graph import Graph, Literal
from fuser.ir.types import ArrayType
from fuser.ops import dot as D
from fuser.ops import elementwise as E
from fuser.ops import movement as M
from fuser.ops import reduce as R
from fuser.passes.cse import merge_common
from fuser.passes.dce import drop_dead
from fuser.passes.fold import fold_constants
from fuser.trace.stage import stage

F32 = np.dtype("float32")


def graph_of(function: Callable[..., Any], *shapes: tuple[int, ...], dtype: np.dtype = F32) -> Graph:
    """The staged graph; a single result may come without its list."""

    def listed(*args: Any) -> Any:
        result = function(*args)
        return result if isinstance(result, (list, tuple)) else [result]

    return stage(listed, [ArrayType(shape, dtype) for shape in shapes])


def names(graph: Graph) -> list[str]:
    return [eqn.primitive.name for eqn in graph.eqns]


def optimised(graph: Graph) -> Graph:
    with config.using(check=True):
        return passes.run(graph)


def full(value: float, shape: tuple[int, ...]) -> Any:
    return M.broadcast_in_dim_p.bind(np.float32(value), shape=shape, broadcast_dimensions=())


def test_equations_on_literals_are_computed() -> None:
    graph = fold_constants(
        graph_of(lambda x: E.mul_p.bind(x, E.add_p.bind(E.exp_p.bind(full(0, ())), full(2, ()))), (4,))
    )
    assert names(graph) == ["mul"]
    assert isinstance(graph.eqns[0].invars[1], Literal) and graph.eqns[0].invars[1].val == 3


def test_arrays_of_one_number_stay_broadcasts() -> None:
    graph = fold_constants(graph_of(lambda: E.add_p.bind(full(1, (3, 4)), full(2, (3, 4)))))
    assert names(drop_dead(graph)) == ["broadcast_in_dim"]
    assert evaluate(graph, [])[0].tolist() == [[3.0] * 4] * 3


def test_an_operand_of_one_number_becomes_a_literal() -> None:
    graph = drop_dead(fold_constants(graph_of(lambda x: E.sub_p.bind(full(1, (3,)), x), (3,))))
    assert names(graph) == ["sub"] and isinstance(graph.eqns[0].invars[0], Literal)


def test_a_scalar_operand_does_not_take_the_shape_away() -> None:
    graph = fold_constants(graph_of(lambda x: E.add_p.bind(full(1, (3,)), x), ()))
    assert graph.out_avals[0].shape == (3,) and graph.eqns[-1].invars[0].aval.shape == (3,)


def test_iota_is_not_folded() -> None:
    iota = lambda: M.iota_p.bind(dtype=F32, shape=(5,), dimension=0)
    assert names(optimised(graph_of(lambda: E.add_p.bind(iota(), np.float32(1))))) == ["iota", "add"]


def test_results_without_elements_are_constants() -> None:
    graph = optimised(graph_of(lambda x: E.exp_p.bind(x), (0, 3)))
    assert names(graph) == ["broadcast_in_dim"] and graph.out_avals[0].shape == (0, 3)


def test_folds_over_nothing_are_constants() -> None:
    graph = optimised(
        graph_of(lambda x: [r.bind(x, axes=(0,)) for r in (R.reduce_sum_p, R.reduce_prod_p, R.reduce_max_p)], (0, 2))
    )
    assert names(graph) == ["broadcast_in_dim"] * 3
    assert [r.tolist() for r in evaluate(graph, [np.zeros((0, 2), F32)])] == [[0, 0], [1, 1], [-np.inf, -np.inf]]


def test_a_division_by_a_literal_zero_is_folded_as_ieee_says() -> None:
    graph = optimised(graph_of(lambda: E.div_p.bind(full(-1, ()), full(0, ()))))
    assert names(graph) == [] and graph.outvars[0].val == -np.inf  # type: ignore[union-attr]


def test_dead_equations_go_and_inputs_stay() -> None:
    graph = drop_dead(graph_of(lambda x, y: [E.exp_p.bind(x), E.sin_p.bind(y)][0], (3,), (3,)))
    assert names(graph) == ["exp"] and len(graph.invars) == 2


def test_common_subexpressions_are_computed_once() -> None:
    graph = merge_common(graph_of(lambda x: E.add_p.bind(E.exp_p.bind(x), E.exp_p.bind(x)), (3,)))
    assert names(graph) == ["exp", "add"] and graph.eqns[1].invars[0] is graph.eqns[1].invars[1]


def test_literals_that_print_alike_are_not_common() -> None:
    graph = merge_common(
        graph_of(lambda x: [E.mul_p.bind(x, np.float32(0.0)), E.mul_p.bind(x, np.float32(-0.0))], (3,))
    )
    assert names(graph) == ["mul", "mul"]


def test_equal_equations_with_different_params_are_not_common() -> None:
    graph = merge_common(
        graph_of(lambda x: [R.reduce_sum_p.bind(x, axes=(0,)), R.reduce_sum_p.bind(x, axes=(1,))], (4, 4))
    )
    assert names(graph) == ["reduce_sum"] * 2


def test_a_merge_lets_a_rule_see_equal_operands() -> None:
    def function(x: Any) -> Any:
        return E.max_p.bind(E.add_p.bind(x, np.float32(1)), E.add_p.bind(x, np.float32(1)))

    assert names(optimised(graph_of(function, (3,)))) == ["add"]


def test_an_empty_product_is_zero() -> None:
    numbers = (((1,), (0,)), ((), ()))
    product = lambda x, y: D.dot_general_p.bind(
        x, y, dimension_numbers=numbers, precision=None, preferred_element_type=None
    )
    graph = optimised(graph_of(product, (2, 0), (0, 3)))
    assert evaluate(graph, [np.zeros((2, 0), F32), np.zeros((0, 3), F32)])[0].tolist() == [[0.0] * 3] * 2


def test_each_pass_is_named_in_the_history() -> None:
    graph = optimised(graph_of(lambda x: E.exp_p.bind(x), (3,)))
    assert graph.history == ("traced", *(name for name, _ in passes.PIPELINE))


def test_passes_leave_the_input_graph_alone() -> None:
    graph = graph_of(lambda x: E.neg_p.bind(E.neg_p.bind(x)), (3,))
    before = str(graph)
    optimised(graph)
    assert str(graph) == before


def test_source_lines_survive() -> None:
    graph = optimised(graph_of(lambda x: E.div_p.bind(x, np.float32(4)), (3,)))
    assert names(graph) == ["mul"] and graph.eqns[0].source.short.startswith("test_pipeline.py:")


def test_time_grows_in_proportion() -> None:
    import time

    def chain(length: int) -> Graph:
        def function(x: Any) -> Any:
            y = x
            for n in range(length // 4):
                y = E.add_p.bind(E.mul_p.bind(E.neg_p.bind(E.neg_p.bind(y)), np.float32(1)), np.float32(n))
            return y

        return graph_of(function, (8,))

    best = {400: float("inf"), 1600: float("inf")}
    graphs = {length: chain(length) for length in best}
    for _ in range(6):
        for length, graph in graphs.items():
            start = time.process_time()
            passes.run(graph)
            best[length] = min(best[length], time.process_time() - start)
    assert best[1600] < 4 * 2.5 * best[400]
