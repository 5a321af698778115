"""Products that are only transposed: which operand comes second, and what they give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser.ir.graph import Eqn
from fuser.legalise.product_order import with_ordered_products
from fuser.ops.dot import dot_general_p
from fuser.ops.movement import transpose_p

RANDOM = np.random.default_rng(3)
EINSUMS = [
    ("lk,bik->bil", (5, 7), (3, 4, 7)),
    ("oc,bhwc->bhwo", (6, 5), (2, 3, 4, 5)),
    ("bij,bkj->bki", (2, 3, 5), (2, 4, 5)),
    ("bhij,bhj->bhi", (2, 3, 4, 5), (2, 3, 5)),
    ("abij,jc->bcai", (2, 3, 4, 5), (5, 6)),
    ("ij,kj->ki", (6, 9), (4, 9)),
    ("ij,bjk->bik", (4, 6), (3, 6, 5)),
]


def ordered(f: Callable[..., Any], *args: Any) -> list[Eqn]:
    graph = fuser.jit(f).trace(*args).graph
    return [e for e in with_ordered_products(graph, lambda _: True).eqns if e.primitive in (dot_general_p, transpose_p)]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "complex64"])
@pytest.mark.parametrize("subscripts, left, right", EINSUMS, ids=[each[0] for each in EINSUMS])
def test_values_are_those_of_the_product_as_written(subscripts: str, left: Any, right: Any, dtype: str) -> None:
    a, b = ((RANDOM.standard_normal(s) * 5 + 1j * RANDOM.standard_normal(s)) for s in (left, right))
    a, b = (v.astype(dtype) if dtype == "complex64" else v.real.astype(dtype) for v in (a, b))
    with fuser.enable_x64():
        found = np.asarray(fuser.jit(lambda a, b: fnp.einsum(subscripts, a, b) + 1, backend="c")(a, b))
    wide = np.complex128 if dtype == "complex64" else np.float64
    wanted = np.einsum(subscripts, a.astype(wide), b.astype(wide)) + 1
    assert found.dtype == dtype
    terms = np.einsum(subscripts, np.abs(a).astype(np.float64), np.abs(b).astype(np.float64)).max() + 1
    precision = 0 if dtype == "int32" else np.finfo(dtype).eps
    np.testing.assert_allclose(found, wanted, rtol=0, atol=16 * precision * terms)


def test_the_operand_of_the_last_axis_comes_second() -> None:
    a, b = np.zeros((5, 7), np.float32), np.zeros((3, 4, 7), np.float32)
    product, move = ordered(
        lambda a, b: fnp.transpose(fuser.lax.dot_general(a, b, (((1,), (2,)), ((), ()))), (1, 2, 0)), a, b
    )
    assert [v.aval.shape for v in product.invars] == [(3, 4, 7), (5, 7)]
    assert product.params["dimension_numbers"] == (((2,), (1,)), ((), ()))
    assert move.params["permutation"] == (0, 1, 2)


@pytest.mark.parametrize("permutation", [(0, 1, 2), (1, 0, 2), (0, 2, 1), (2, 0, 1)])
def test_products_whose_last_axis_moves_anyway_or_stays_are_left_alone(permutation: tuple[int, ...]) -> None:
    a, b = np.zeros((2, 5, 7), np.float32), np.zeros((4, 7), np.float32)
    numbers = (((2,), (1,)), ((), ()))
    f = lambda a, b: fnp.transpose(fuser.lax.dot_general(a, b, numbers), permutation) * 2
    product, *_ = ordered(f, a, b)
    turned = permutation == (2, 0, 1)  # the first operand's dimensions come last, in order
    assert (product.invars[0].aval.shape == (4, 7)) == turned


def test_a_product_that_something_else_reads_keeps_its_order() -> None:
    a, b = np.zeros((5, 7), np.float32), np.zeros((3, 4, 7), np.float32)

    def f(a: Any, b: Any) -> Any:
        product = fuser.lax.dot_general(a, b, (((1,), (2,)), ((), ())))
        return product, fnp.transpose(product, (1, 2, 0))

    product, move = ordered(f, a, b)
    assert product.invars[0].aval.shape == (5, 7) and move.params["permutation"] == (1, 2, 0)


def test_a_product_that_the_target_has_no_kernel_for_keeps_its_order() -> None:
    a, b = np.zeros((5, 7), np.float32), np.zeros((3, 4, 7), np.float32)
    graph = fuser.jit(lambda a, b: fnp.einsum("lk,bik->bil", a, b)).trace(a, b).graph
    assert with_ordered_products(graph, lambda _: False) is graph


def test_the_c_backend_writes_rows_side_by_side() -> None:
    a, b = np.zeros((64, 64), np.float32), np.zeros((50, 64, 64), np.float32)
    lowered = fuser.jit(lambda a, b: fnp.einsum("lk,bik->bil", a, b), backend="c").lower(a, b)
    [group] = lowered.plan.groups
    [product] = [e for e in group.graph.eqns if e.primitive is dot_general_p]
    assert [v.aval.shape for v in product.invars] == [(50, 64, 64), (64, 64)]
