"""Every simplification rule, on every dtype it is for and on the values that break wrong rules."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from fuser.ir.check import check
from fuser.ir.evaluate import evaluate
from fuser.ir.graph import Graph
from fuser.ir.types import ArrayType, short_dtype
from fuser.ops import reduce
from fuser.ops.conversion import convert_element_type_p
from fuser.passes.algebra.rule import Rule
from fuser.passes.algebra.simplifier import RULES, simplify, table
from fuser.trace.stage import stage
from tests.values import filled, same_bits, special, tuples, ulps_apart


def sample_graph(rule: Rule, dtype: np.dtype, shape: tuple[int, ...]) -> Graph:
    """The rule's sample, staged."""
    count = len(inspect.signature(rule.sample).parameters)
    return stage(lambda *args: [rule.sample(*args)], [ArrayType(shape, dtype)] * count)


def shape_of(graph: Graph) -> list[tuple[str, int]]:
    """What tells a graph from its rewritten form: primitives and results."""
    return [(eqn.primitive.name, len(eqn.invars)) for eqn in graph.eqns]


CASES = [pytest.param(rule, dtype, id=f"{rule.name}-{short_dtype(dtype)}") for rule in RULES for dtype in rule.dtypes]


@pytest.mark.parametrize("rule, dtype", CASES)
def test_rule_keeps_every_value(rule: Rule, dtype: np.dtype) -> None:
    count = len(inspect.signature(rule.sample).parameters)
    flat = rule.shapes == Rule.shapes
    for shape in rule.shapes:
        if flat:
            arrays = tuples(*[special(dtype)] * count)
        else:
            arrays = [filled(shape, dtype, seed) for seed in range(count)]
        before = sample_graph(rule, dtype, arrays[0].shape)
        after = check(simplify(before, table([rule])))
        # The rule fires: the outermost equation, which it is about, is no longer what gives the result.
        assert (
            after.outvars != before.outvars
            or shape_of(after)[-1] != shape_of(before)[-1]
            or after.eqns[-1].invars != before.eqns[-1].invars
        )
        [expected], [found] = evaluate(before, arrays), evaluate(after, arrays)
        expected, found = (
            np.broadcast_to(expected, before.out_avals[0].shape),
            np.broadcast_to(found, before.out_avals[0].shape),
        )
        assert found.dtype == expected.dtype == before.out_avals[0].dtype
        if rule.ulps:
            assert ulps_apart(found, expected).max() <= rule.ulps
        else:
            wrong = ~same_bits(found, expected)
            assert not wrong.any(), (
                f"{[a[wrong][:3] for a in arrays] if flat else shape}: {expected[wrong][:3]} became {found[wrong][:3]}"
            )


def test_rule_names_are_unique() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_rules_reach_a_fixed_point() -> None:
    for rule in RULES:
        once = simplify(sample_graph(rule, rule.dtypes[-1], rule.shapes[0]))
        assert shape_of(simplify(once)) == shape_of(once), rule.name


def test_sums_of_small_integers_are_integers_only_where_floats_would_be_exact() -> None:
    def dtypes_of_sums(dtype: str, extent: int, wide: str) -> list[str]:
        x = ArrayType((2, extent), np.dtype(dtype))

        def total(x: Any) -> Any:
            wider = convert_element_type_p.bind(x, new_dtype=np.dtype(wide), weak_type=False)
            return [reduce.reduce_sum_p.bind(wider, axes=(1,))]

        graph = simplify(stage(total, [x]))
        return [str(eqn.outvars[0].aval.dtype) for eqn in graph.eqns if eqn.primitive.name == "reduce_sum"]

    assert dtypes_of_sums("bool", 1000, "float64") == ["int32"]
    assert dtypes_of_sums("uint8", (1 << 24) // 255, "float32") == ["int32"]
    assert dtypes_of_sums("uint8", (1 << 24) // 255 + 1, "float32") == ["float32"]
    assert dtypes_of_sums("int16", 1 << 16, "float64") == ["float64"]
    assert dtypes_of_sums("int32", 4, "float64") == ["float64"]
    assert dtypes_of_sums("int8", 4, "float16") == ["float16"]
