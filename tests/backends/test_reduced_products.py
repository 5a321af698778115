"""Products of which nothing but reductions is read, on GPUs: no array of the product, by a price, and what is left as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("triton")

import fuser.numpy as fnp
from fuser import jit
from fuser.backends.triton import machine_code
from fuser.backends.triton.target import MACHINES
from fuser.ir.types import ArrayType, bfloat16
from tests.backends.reduced_product_cases import REDUCED_PRODUCTS, assigned, of, scores

pytestmark = pytest.mark.xdist_group("triton")
POINTS = of(bfloat16, (100_000, 64), (1024, 64))


def lowered(function: Callable[..., Any], *types: ArrayType) -> Any:
    return jit(function, backend="triton").lower(*types)


def arrays(function: Callable[..., Any], *types: ArrayType) -> int:
    """The largest number of elements of what lies in memory."""
    return max(slot.aval.size for slot in lowered(function, *types).plan.slots)


@pytest.mark.parametrize("name", REDUCED_PRODUCTS)
def test_no_array_of_the_product_is_made(name: str) -> None:
    function, types = REDUCED_PRODUCTS[name]
    found = lowered(function, *types)
    kernels = [group for group in found.plan.groups if "attention" in group.ops]
    assert len(kernels) == 1 and not any(group.reason for group in found.plan.groups)
    assert "a matrix product and reductions of it in one kernel" in found.plan.explain()
    largest = max(aval.size for aval in types)
    assert all(slot.aval.size <= largest for slot in found.plan.slots)


@pytest.mark.parametrize("target", MACHINES)
def test_their_kernels_multiply_on_matrix_units_and_do_not_spill(target: str) -> None:
    for function in (assigned, lambda x, y: fnp.exp(scores(x, y) - 9).sum(-1)):
        found = lowered(function, *POINTS)
        (group,) = (group for group in found.plan.groups if "attention" in group.ops)
        (source,) = (source for source in found.sources if source.name == group.name)
        (launch,) = machine_code.of_source(source, 1, MACHINES[target])
        assert launch.code.matrix_units and not launch.code.spills
        assert launch.code.tensor_maps == (target in ("cuda:90", "cuda:100"))


def test_positions_are_found_by_the_extreme_and_not_in_pairs() -> None:
    (text,) = (source.text for source in lowered(assigned, *POINTS).sources if "argmin" in source.text)
    assert "tl.reduce((" not in text.rpartition("def k")[2]


@pytest.mark.parametrize(
    ("function", "types"),
    [
        (lambda x, y: (x @ y.T).max(-1), of("float32", (8192, 64), (1024, 64))),  # a library's products are faster
        (lambda x, y: scores(x, y).max(0), of(bfloat16, (8192, 64), (1024, 64))),  # few programs would walk far
        (lambda x, y: scores(x, y).max(-1), of(bfloat16, (8192, 1024), (1024, 1024))),  # rows that no program holds
        (
            lambda x, y: fnp.argmax(x @ y.T, -1),
            of(bfloat16, (8192, 64), (1024, 64)),
        ),  # of rounded numbers, of which some are equal
        (lambda x, y: (scores(x, y), scores(x, y).max(-1)), POINTS),  # it is a result
        (lambda x, y: (scores(x, y) == scores(x, y).max(-1, keepdims=True)).sum(-1), POINTS),
    ],
    ids=["float32", "columns", "long rows", "bfloat16 positions", "result", "equality"],
)
def test_others_stay_products_with_kernels_that_read_them(function: Callable[..., Any], types: Any) -> None:
    found = lowered(function, *types)
    assert "attention" not in [name for group in found.plan.groups for name in group.ops]
    assert arrays(function, *types) == types[0].shape[0] * types[1].shape[0]


def test_reductions_of_different_axes_do_not_share_a_kernel() -> None:
    square = of(bfloat16, (256, 64), (256, 64))
    found = lowered(lambda x, y: (scores(x, y).max(-1), scores(x, y).max(0)), *square)
    assert "attention" not in [name for group in found.plan.groups for name in group.ops]


def test_largest_scores_of_16_bits_are_what_their_rounding_gives() -> None:
    """Rounding keeps the order of numbers, so that the largest may be rounded alone; its kernel hands on 32 bits."""
    found = lowered(lambda x, y: (x @ y.T).max(-1), *POINTS)
    assert [str(v.aval.dtype) for v in found.plan.graph.outvars] == ["bfloat16"]
    (group,) = (group for group in found.plan.groups if "attention" in group.ops)
    assert np.dtype("float32") in {v.aval.dtype for eqn in group.graph.eqns for v in eqn.outvars}
