"""Products of the C backend with elementwise work on their results: what is one kernel, what is not, and the numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as jnp
from fuser.debug.bisect import bisect
from fuser.partition.group import Kind, Plan

RNG = np.random.default_rng(0)
A = RNG.standard_normal((150, 70)).astype(np.float32)
B = RNG.standard_normal((70, 90)).astype(np.float32)
W = RNG.standard_normal((150, 90)).astype(np.float32)
ROW = RNG.standard_normal(90).astype(np.float32)
COLUMN = RNG.standard_normal((150, 1)).astype(np.float32)
CUBE = RNG.standard_normal((6, 25, 70)).astype(np.float32)
PRODUCT, ELEMENTWISE, REDUCTION = Kind.CONTRACTION, Kind.ELEMENTWISE, Kind.REDUCTION


def planned(function: Callable[..., Any], *args: Any) -> Plan:
    """The plan, once its results have been found to be right."""
    assert bisect(function, *args) is None
    return fuser.jit(function, backend="c").lower(*args).plan


def kinds(plan: Plan) -> list[Kind]:
    return [group.kind for group in plan.groups]


def two_results(a: Any, b: Any, row: Any) -> Any:
    h = a @ b + row
    return jnp.maximum(h, 0), h > 0


TOGETHER: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "alone": (lambda a, b: a @ b, (A, B)),
    "a bias and tanh": (lambda a, b, row: jnp.tanh(a @ b + row), (A, B, ROW)),
    "two results": (two_results, (A, B, ROW)),
    "the product too": (lambda a, b: (p := a @ b, jnp.exp(-p * p)), (A, B)),
    "a column": (lambda a, b, column: a @ b * column, (A, B, COLUMN)),
    "an update": (lambda w, a, b: w - 0.1 * (a @ b), (W, A, B)),
    "transposed operands": (lambda a, b, w: w + a.T @ b.T, (A.T.copy(), B.T.copy(), W)),
    "a transposed result": (lambda a, b, w: w + (a @ b).T, (A, B, W.T.copy())),
    "a slice of an operand": (lambda a, b, w: w[::2] + a[::2] @ b, (A, B, W)),
    "a reversed operand": (lambda a, b: 2 * (a[::-1] @ b), (A, B)),
    "a squared matrix": (lambda a: jnp.sin(a @ a) + a, (RNG.standard_normal((40, 40)).astype(np.float32),)),
    "one row repeated": (lambda row, b: 1 + jnp.broadcast_to(row, (30, 70)) @ b, (A[0], B)),
    "few columns": (lambda a, b: jnp.exp(a @ b / 70), (A, B[:, :3])),
    "few rows": (lambda a, b: jnp.exp(a @ b / 70), (A[:2], B)),
    "batches": (lambda x, y: x @ y + 1, (CUBE, CUBE.transpose(0, 2, 1).copy())),
    "batches with a column": (
        lambda x, y, c: jnp.tanh(x @ y * c),
        (CUBE, CUBE.transpose(0, 2, 1).copy(), CUBE[:, :, :1]),
    ),
    "a batch of small ones": (lambda x, y: x @ y - y, (CUBE[:, :4, :4], CUBE[:, 4:8, :4])),
    "a vector": (lambda a, v: a @ v + 1, (A, A[0])),
    "a vector first": (lambda v, a, row: v @ a + row, (A[:, 0], A, A[0])),
    "a batch and a matrix": (lambda x, b: jnp.exp(x @ b / 70), (CUBE, B)),
    "rows and columns of several dimensions": (
        lambda x, y, z: jnp.einsum("abk,kcd->abcd", x, y) + z[:, None, None, :],
        (CUBE, CUBE.transpose(2, 0, 1).copy(), CUBE[:, 0, :25]),
    ),
    "heads that are no neighbours": (lambda q, k: jnp.exp(jnp.einsum("qhd,khd->hqk", q, k) / 70), (CUBE, CUBE)),
    "rows that are no neighbours": (lambda q, k: 1 - jnp.einsum("qhd,dk->qhk", q[:, ::2], k), (CUBE, B)),
    "half precision": (lambda a, b: a @ b + 1, (A.astype(np.float16), B.astype(np.float16))),
    "large": (lambda a, b: a @ b + 1, (RNG.standard_normal((300, 500)), RNG.standard_normal((500, 700)))),
}


@pytest.mark.parametrize("name", TOGETHER)
def test_one_kernel(name: str) -> None:
    function, args = TOGETHER[name]
    plan = planned(function, *args)
    assert kinds(plan) == [PRODUCT], plan.explain()
    found = fuser.jit(function, backend="c")(*args)
    wanted = fuser.jit(function, backend="reference")(*args)
    for x, y in zip(fuser.tree.leaves(found), fuser.tree.leaves(wanted), strict=True):
        assert x.dtype == y.dtype
        tolerance = 2e-4 if x.dtype == np.float32 else 1e-2
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


APART: dict[str, tuple[Callable[..., Any], tuple[Any, ...], list[Kind]]] = {
    "an operand that is computed": (lambda a, b: jnp.exp(a) @ b, (A, B), [ELEMENTWISE, PRODUCT]),
    "an operand that strides do not reach": (
        lambda cube, b: cube.transpose(1, 0, 2).reshape(150, 70) @ b + 1,
        (CUBE, B),
        [ELEMENTWISE, PRODUCT],
    ),
    "contracted dimensions that do not lie together": (
        lambda x, w: jnp.einsum("hqd,hde->qe", x, w) + 1,
        (CUBE, RNG.standard_normal((6, 70, 9)).astype(np.float32)),
        [ELEMENTWISE, PRODUCT],
    ),
    "a sum of rows": (lambda a, b: (a @ b + 1).sum(axis=1), (A, B), [PRODUCT, REDUCTION]),
    "two products": (lambda a, b: (a @ b) @ b.T, (A, B), [PRODUCT, PRODUCT]),
}


@pytest.mark.parametrize("name", APART)
def test_several_kernels(name: str) -> None:
    function, args, expected = APART[name]
    plan = planned(function, *args)
    assert kinds(plan) == expected, plan.explain()


def test_the_epilogue_has_the_bits_of_a_kernel_of_its_own() -> None:
    args = (A, B, ROW)
    function = lambda a, b, row: jnp.tanh(a @ b * 0.1 + row) - row
    together = np.asarray(fuser.jit(function, backend="c")(*args))
    product = np.asarray(fuser.jit(lambda a, b: a @ b, backend="c")(A, B))
    apart = fuser.jit(lambda p, row: jnp.tanh(p * 0.1 + row) - row, backend="c")(product, ROW)
    np.testing.assert_array_equal(together, apart)


def test_products_with_epilogues_inside_a_loop_run_natively() -> None:
    w = (RNG.standard_normal((90, 90)) / 20).astype(np.float32)

    def recurrent(x: Any, w: Any, row: Any) -> Any:
        return fuser.lax.scan(lambda h, _: (jnp.tanh(h @ w + row), h.sum()), x, None, length=7)

    plan = fuser.jit(recurrent, backend="c").lower(W, w, ROW).plan
    (loop,) = [group for group in plan.groups if group.kind is Kind.CONTROL]
    assert not loop.reason and PRODUCT in kinds(loop.bodies[0]) and ELEMENTWISE not in kinds(loop.bodies[0])
    found, sums = fuser.jit(recurrent, backend="c")(W, w, ROW)
    h, expected = W.astype(np.float64), []
    for _ in range(7):
        expected.append(h.sum())
        h = np.tanh(h @ w + ROW)
    np.testing.assert_allclose(found, h, atol=1e-5)
    np.testing.assert_allclose(sums, expected, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("after", [lambda r: r, lambda r: jnp.maximum(r, 0)])
def test_columns_of_a_product_run_along_what_is_written(after: Callable[..., Any]) -> None:
    """Channels of a convolution by patches: the result is the product transposed, each of whose rows would be written far apart."""
    patches = RNG.standard_normal((3, 27, 20, 30)).astype(np.float32)
    weights = RNG.standard_normal((27, 16)).astype(np.float32)
    function = lambda p, w: after(jnp.einsum("bkhw,ko->bohw", p, w))
    plan = planned(function, patches, weights)
    assert kinds(plan) == [PRODUCT]
    (source,) = fuser.jit(function, backend="c").lower(patches, weights).sources
    rows, columns = source.launch["sizes"][3:5]
    assert (rows, columns) == (16, 600)


def test_equal_products_in_a_loop_are_one_function() -> None:
    """Of eight products and four sums, as steps of Runge and Kutta have: compilers see each kernel once."""
    a = (RNG.standard_normal((16, 16)) / 16).astype(np.float32)

    def step(x: Any, _: Any) -> Any:
        for _ in range(4):
            x = x + jnp.sin(a @ x @ a)
        return x, None

    compiled = fuser.jit(lambda x: fuser.lax.scan(step, x, None, length=3)[0], backend="c")
    assert len([part for part in loop_source(compiled.lower(a)).code.functions if "items" in str(part.name)]) <= 3
    expected = a.astype(np.float64)
    for _ in range(12):
        expected = expected + np.sin(a @ expected @ a)
    np.testing.assert_allclose(compiled(a), expected, rtol=1e-4, atol=1e-6)


def loop_source(lowered: Any) -> Any:
    (number,) = (n for n, group in enumerate(lowered.plan.kernels) if group.kind is Kind.CONTROL)
    return lowered.sources[number]


def test_float64_and_half_precision() -> None:
    with fuser.config.using(enable_x64=True):
        a, b = A.astype(np.float64), B.astype(np.float64)
        np.testing.assert_allclose(fuser.jit(lambda a, b: jnp.exp(a @ b / 9))(a, b), np.exp(a @ b / 9), rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8"])
def test_an_epilogue_finds_the_product_rounded(dtype: str) -> None:
    """The bits are those of a kernel of its own on the product in memory."""
    a, b = (jnp.asarray(x * 3).astype(dtype) for x in (A, B))
    together = fuser.jit(lambda a, b: a @ b * 3 + 1, backend="c")
    assert kinds(together.lower(a, b).plan) == [PRODUCT]
    apart = fuser.jit(lambda p: p * 3 + 1, backend="c")(fuser.jit(lambda a, b: a @ b, backend="c")(a, b))
    np.testing.assert_array_equal(np.asarray(together(a, b)), np.asarray(apart))


def test_a_donated_operand_is_not_overwritten_while_it_is_read() -> None:
    w = RNG.standard_normal((64, 64)).astype(np.float32)
    step = fuser.jit(lambda w: w - 0.1 * (w @ w), donate_argnums=0, backend="c")
    np.testing.assert_allclose(step(jnp.asarray(w)), w - 0.1 * (w @ w), rtol=1e-4, atol=1e-4)


def test_a_train_step_is_its_products_and_five_kernels() -> None:
    from bench.workloads import WORKLOADS

    workload = WORKLOADS["mlp_train_step"]
    inputs = workload.inputs("full")
    step = fuser.jit(lambda *arrays: workload.run(fuser, arrays), backend="c")
    plan = step.lower(*inputs).plan
    assert kinds(plan).count(PRODUCT) == 8
    assert len(plan.kernels) - 8 == 5, plan.explain()
    results = tuple(np.asarray(x) for x in step(*inputs))
    assert workload.error(results, workload.reference(inputs)) <= workload.tolerance("float32")


NO_PRODUCTS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], list[Kind]]] = {
    "an inner product": (lambda a, b: jnp.exp(jnp.dot(jnp.sin(a), b) / 9), (ROW, W[0]), [REDUCTION]),
    "inner products of rows": (lambda a, w: jnp.einsum("nd,nd->n", a, w) * a.max(axis=1), (W, W + 1), [REDUCTION]),
    "an outer product": (lambda a, b, w: jnp.tanh(jnp.outer(a, b)) + w, (COLUMN[:, 0], ROW, W), [ELEMENTWISE]),
    "one step": (lambda a, b: -a @ b, (COLUMN, ROW[None]), [ELEMENTWISE]),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
@pytest.mark.parametrize("name", NO_PRODUCTS)
def test_products_of_single_rows_are_part_of_other_kernels(name: str, dtype: str) -> None:
    function, args, expected = NO_PRODUCTS[name]
    arrays = [jnp.asarray(x).astype(dtype) for x in args]
    plan = fuser.jit(function, backend="c").lower(*arrays).plan
    assert len(plan.groups) == 1 and {kernel.kind for kernel in plan.kernels} == set(expected), plan.explain()
    found = np.asarray(fuser.jit(function, backend="c")(*arrays)).astype(np.float64)
    wanted = np.asarray(fuser.jit(function, backend="reference")(*arrays)).astype(np.float64)
    tolerance = 1e-4 if dtype == "float32" else 3e-2
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


def test_small_products_are_written_out_and_large_ones_call_gemm() -> None:
    def text(*shapes: tuple[int, ...]) -> str:
        arrays = [np.ones(shape, np.float32) for shape in shapes]
        (source,) = fuser.jit(jnp.matmul, backend="c").lower(*arrays).sources
        return source.text

    for shapes in (
        ((90, 3), (3, 3)),
        ((50, 4, 4), (50, 4, 4)),
        ((50, 16, 16), (50, 16, 16)),
        ((50, 4, 4), (50, 4, 1)),
    ):
        assert "(function)" not in text(*shapes), shapes
    for shapes in (((90, 30), (30, 30)), ((3, 3), (3, 3)), ((50, 20, 20), (50, 20, 20)), ((90, 3), (3, 90))):
        assert "(function)" in text(*shapes), shapes


def _in_a_loop(function: Callable[..., Any]) -> Callable[..., Any]:
    """The results of the function in an iteration that nothing is moved out of."""
    step = lambda n, *given: function(given[0] + n, *given[1:])
    return fuser.jit(
        lambda *given: fuser.lax.scan(lambda c, n: (c, step(n, *given)), 0, jnp.zeros(2, given[0].dtype))[1]
    )


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_one_small_product(dtype: str) -> None:
    """Of any extents, with operands transposed or strided, alone and with what follows it, whose rows lie together or do not."""
    with fuser.config.using(enable_x64=dtype == "float64"):
        for number, (m, n, k) in enumerate([(2, 3, 4), (5, 5, 5), (16, 16, 16), (7, 13, 2), (3, 2, 16), (11, 9, 6)]):
            a, b = (RNG.integers(-9, 9, shape).astype(dtype) for shape in ((k, m), (n, 2 * k)))
            a, b = (a.T, b[:, ::2].T) if number % 2 else (a.T.copy(), b[:, ::2].T.copy())
            bias, rest = RNG.integers(0, 9, n).astype(dtype), RNG.integers(0, 9, (m, n)).astype(dtype)
            for function in (
                lambda a, b, bias, rest: a @ b,
                lambda a, b, bias, rest: (a @ b) * 3 + rest,
                lambda a, b, bias, rest: (a @ b + bias, (a @ b).T * rest.T),
            ):
                found, wanted = _in_a_loop(function)(a, b, bias, rest), function(a, b, bias, rest)
                found = fuser.tree.map(lambda both: both[1], found)
                for ours, theirs in zip(fuser.tree.leaves(found), fuser.tree.leaves(wanted), strict=True):
                    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def _complex(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape)).astype(np.complex64)


REAL = RNG.standard_normal((30, 40)).astype(np.float32)
COMPLEX: dict[str, tuple[Callable[..., Any], tuple[Any, ...], int]] = {
    "two matrices": (lambda a, b: jnp.exp(a @ b / 40), (_complex(30, 40), _complex(40, 20)), 4),
    "real numbers and complex ones": (lambda x, b: x @ b, (REAL, _complex(40, 20)), 2),
    "an adjoint": (lambda a: a.conj().T @ a, (_complex(30, 40),), 4),
    "batches": (lambda a, b: jnp.einsum("bij,bjk->bik", a, b) + 1, (_complex(5, 4, 6), _complex(5, 6, 3)), 4),
    "one operand twice": (lambda a, b, c: (a @ b, a @ c), (_complex(9, 8), _complex(8, 7), _complex(8, 6)), 8),
}


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_products_are_real_ones(name: str) -> None:
    function, arrays, products = COMPLEX[name]
    plan = planned(function, *arrays)
    assert all(group.kind is not Kind.LIBRARY and not group.reason for group in plan.groups)
    dots = [eqn for group in plan.kernels for eqn in group.graph.eqns if eqn.primitive.name == "dot_general"]
    assert len(dots) == products and all(eqn.outvars[0].aval.dtype == np.float32 for eqn in dots)
    found, expected = (fuser.jit(function, backend=backend)(*arrays) for backend in ("c", "reference"))
    for x, y in zip(
        found if isinstance(found, tuple) else [found], expected if isinstance(expected, tuple) else [expected]
    ):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5 * np.abs(y).max())


@pytest.mark.slow
def test_complex_products_in_a_loop_run_natively() -> None:
    a = _complex(20, 20) / 8
    power = lambda a: fuser.lax.fori_loop(0, 10, lambda i, s: s @ a, a)
    assert not any(group.reason for group in planned(power, a).groups)
    np.testing.assert_allclose(fuser.jit(power)(a), np.linalg.matrix_power(a.astype(complex), 11), rtol=1e-3, atol=1e-6)
