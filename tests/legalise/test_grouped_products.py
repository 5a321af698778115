"""Products of ragged arrays become grouped ones where a backend has kernels for these; what only looks like one stays as it is."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import lax
from fuser.ir.evaluate import evaluate
from fuser.ir.graph import Graph
from fuser.legalise.expand import expanded
from fuser.legalise.grouped_products import with_grouped_products
from fuser.ops.grouped import grouped_matmul_p

SIZES = ([3, 0, 50, 20, 7], [0, 0, 0, 0, 0], [80, 0, 0, 0, 0], [100, 1, 1, 1, 1])


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def product(x: Any, w: Any, sizes: Any) -> Any:
    return lax.ragged_dot(x, w, sizes)


def with_gradients(x: Any, w: Any, sizes: Any, ct: Any) -> Any:
    return product(x, w, sizes), *fuser.vjp(lambda x, w: product(x, w, sizes), x, w)[1](ct)


def rewritten(function: Any, *arrays: Any) -> tuple[Graph, Graph]:
    """The optimised graph, and it with grouped products."""
    graph = expanded(fuser.jit(function, backend="reference").lower(*arrays).graph, frozenset())
    return graph, with_grouped_products(graph, lambda eqn: None)


def names(graph: Graph) -> Counter[str]:
    return Counter(eqn.primitive.name for eqn in graph.eqns)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_a_product_and_its_gradients(sizes: list[int]) -> None:
    arrays = numbers(90, 24), numbers(5, 24, 40, seed=1), np.array(sizes, np.int32), numbers(90, 40, seed=2)
    graph, found = rewritten(with_gradients, *arrays)
    assert names(found) == {"grouped_matmul": 2, "grouped_sums": 1}
    for got, want in zip(evaluate(found, list(arrays)), evaluate(graph, list(arrays)), strict=True):
        np.testing.assert_allclose(got, want, 1e-4, 1e-4)


def test_operands_in_other_orders() -> None:
    """The spread operand second, matrices transposed, sizes that are known."""
    x, w = numbers(30, 6), numbers(4, 5, 6, seed=1)
    numbers_of = lax.RaggedDotDimensionNumbers((((1,), (2,)), ((), ())), (0,), (0,))
    sizes = np.array([7, 0, 20, 2], np.int32)
    function = lambda x, w: lax.ragged_dot_general(x, w, sizes, numbers_of)
    found = rewritten(function, x, w)[1]
    assert names(found)["grouped_matmul"] == 1 and not names(found)["dot_general"]
    run = fuser.jit(function, backend="reference")
    ends = np.cumsum(sizes)
    want = np.concatenate([*(x[e - s : e] @ m.T for s, e, m in zip(sizes, ends, w)), np.zeros((1, 5), np.float32)])
    np.testing.assert_allclose(np.asarray(run(x, w)), want, 1e-4, 1e-4)
    np.testing.assert_allclose(evaluate(found, [x, w])[0], want, 1e-4, 1e-4)


def test_what_is_no_grouped_product_stays() -> None:
    sizes = np.array([3, 0, 50], np.int32)
    x, w = numbers(90, 24), numbers(3, 24, 40, seed=1)
    batched = lambda x, w: fuser.vmap(product, (0, 0, None))(x, w, sizes)
    assert not names(rewritten(batched, numbers(2, 90, 24), numbers(2, 3, 24, 40))[1])["grouped_matmul"]
    fast = lambda x, w: lax.ragged_dot(x, w, sizes, precision="tensorfloat32")
    assert names(rewritten(fast, x, w)[1]) == names(rewritten(fast, x, w)[0])
    wide = rewritten(lambda x, w: product(x.astype("complex64"), w.astype("complex64"), sizes), x, w)[1]
    assert not names(wide)["grouped_matmul"]


def test_triton_launches_one_kernel_for_each() -> None:
    shape = fuser.ShapeDtypeStruct
    arrays = (
        shape((4096, 256), fnp.bfloat16),
        shape((8, 256, 512), fnp.bfloat16),
        shape((8,), np.int32),
        shape((4096, 512), fnp.bfloat16),
    )
    lowered = fuser.jit(with_gradients, backend="triton").lower(*arrays)
    assert [group.graph.eqns[-1].primitive.name for group in lowered.plan.groups].count("grouped_matmul") == 2
    assert len(lowered.plan.groups) == len(lowered.sources) == 3
    (launch,) = next(s for s in lowered.sources if "grouped_matmul" in s.name).launch["launches"]
    assert launch.grid == (4096 // 128 + 8) * (512 // 128)  # blocks of rows, and one for each boundary within
    many = (shape((64, 8), np.float32), shape((2000, 8, 8), np.float32), shape((2000,), np.int32))
    plan = fuser.jit(product, backend="triton").lower(*many).plan
    assert not any(eqn.primitive is grouped_matmul_p for group in plan.groups for eqn in group.graph.eqns)
