"""Every simplification rule, on every dtype it is for and on the values that break wrong rules."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from fuser.ir.check import check
from fuser.ir.evaluate import evaluate
from fuser.ir.graph import Graph
from fuser.ir.types import ArrayType, short_dtype
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
