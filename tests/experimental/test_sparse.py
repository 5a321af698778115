"""Sparse arrays beside JAX's: values, shapes, dtypes, how many elements are stored, derivatives and batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from jax.experimental import sparse as oracle
from jax.experimental.sparse import linalg as oracle_linalg

import fuser
import fuser.numpy as fnp
from fuser.experimental import sparse
from fuser.experimental.sparse import linalg

RANDOM = np.random.default_rng(0)


def _dense(*shape: int, dtype: Any = np.float32, part: float = 0.5) -> np.ndarray:
    values = RANDOM.integers(-4, 5, shape).astype(dtype)
    return np.where(RANDOM.random(shape) < part, values, 0).astype(dtype)


def _both(function: Callable[..., Any], *arrays: Any, **layout: Any) -> None:
    """The function of (library, sparse module, numpy module, BCOO of the first, the others) gives the same in both."""
    found = []
    for lib, module, numpy in ((jax, oracle, jnp), (fuser, sparse, fnp)):
        first = module.BCOO.fromdense(numpy.asarray(arrays[0]), **layout)
        try:
            found.append(function(lib, module, numpy, first, *map(numpy.asarray, arrays[1:])))
        except Exception as error:
            found.append(error)
    expected, got = found
    if isinstance(expected, Exception):
        assert isinstance(got, (type(expected), NotImplementedError, ValueError)), (expected, got)
        return
    if isinstance(got, Exception):
        raise AssertionError(f"expected {expected}") from got
    for a, b in zip(jax.tree.leaves(expected, is_leaf=lambda x: isinstance(x, oracle.JAXSparse)), fuser.tree.leaves(got, lambda x: isinstance(x, sparse.JAXSparse)), strict=True):  # fmt: skip
        assert a.shape == b.shape and a.dtype == b.dtype, (a, b)
        if isinstance(a, oracle.JAXSparse):
            assert type(a).__name__ == type(b).__name__, (a, b)
            a, b = a.todense(), b.todense()
        np.testing.assert_allclose(np.asarray(b), np.asarray(a), rtol=1e-5, atol=1e-5)


LAYOUTS = [(0, 0), (1, 0), (0, 1), (1, 1), (2, 0)]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_layouts(layout: tuple[int, int]) -> None:
    n_batch, n_dense = layout
    dense = _dense(3, 4, 5, part=0.3)
    theirs = oracle.BCOO.fromdense(jnp.asarray(dense), n_batch=n_batch, n_dense=n_dense)
    ours = sparse.BCOO.fromdense(dense, n_batch=n_batch, n_dense=n_dense)
    assert repr(ours) == repr(theirs)
    for a, b in ((theirs.data, ours.data), (theirs.indices, ours.indices)):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
        assert a.dtype == b.dtype
    kinds = [
        lambda lib, m, np_, x: x.todense(),
        lambda lib, m, np_, x: x.sort_indices(),
        lambda lib, m, np_, x: x.sum_duplicates(),
        lambda lib, m, np_, x: x.sum_duplicates(nse=7),
        lambda lib, m, np_, x: m.bcoo_extract(x, np_.ones((3, 4, 5), "float32")),
        lambda lib, m, np_, x: m.bcoo_update_layout(x, n_batch=0, n_dense=0),
        lambda lib, m, np_, x: m.bcoo_update_layout(x, n_batch=1, on_inefficient=None),
        lambda lib, m, np_, x: m.bcoo_update_layout(x, n_dense=2, n_batch=0, on_inefficient=None),
        lambda lib, m, np_, x: m.bcoo_update_layout(x, n_batch=2, n_dense=0),
        lambda lib, m, np_, x: [
            m.bcoo_reduce_sum(x, axes=axes) for axes in ((0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2))
        ],
        lambda lib, m, np_, x: m.bcoo_slice(x, start_indices=(1, 0, 1), limit_indices=(3, 4, 4), strides=(1, 2, 2)),
        lambda lib, m, np_, x: m.bcoo_dynamic_slice(x, (1, 2, 4), (2, 2, 3)),
        lambda lib, m, np_, x: m.bcoo_rev(x, dimensions=(0, 2)),
        lambda lib, m, np_, x: m.bcoo_concatenate([x, x], dimension=1),
        lambda lib, m, np_, x: [m.bcoo_concatenate([x, x], dimension=d) for d in (0, 2)],
        lambda lib, m, np_, x: m.bcoo_multiply_dense(x, np_.arange(5.0)).sum(),
        lambda lib, m, np_, x: m.bcoo_multiply_sparse(x, x),
        lambda lib, m, np_, x: [2 * x, x / 2, -x, abs(x), x + x, x - x, x * x, x.sum(), x[1], x**2],
        lambda lib, m, np_, x: [x[:, 1:3], x[..., 0], x[1, 2]],
        lambda lib, m, np_, x: x.astype("int32"),
        lambda lib, m, np_, x: m.bcoo_squeeze(
            m.bcoo_slice(x, start_indices=(0, 1, 0), limit_indices=(3, 2, 5)), dimensions=(1,)
        ),
        lambda lib, m, np_, x: m.sparsify(lambda y: np_.sin(y) * 2 + np_.sqrt(np_.abs(y)))(x),
    ]
    for kind in kinds:
        _both(kind, dense, n_batch=n_batch, n_dense=n_dense)


def test_movement() -> None:
    dense = _dense(4, 6, part=0.4)
    for kind in (
        lambda lib, m, np_, x: [x.T, x.transpose((1, 0)), x.reshape(24), x.reshape((2, 2, 6)), x.reshape(3, 8)],
        lambda lib, m, np_, x: m.bcoo_broadcast_in_dim(x, shape=(2, 4, 6), broadcast_dimensions=(1, 2)),
        lambda lib, m, np_, x: m.bcoo_broadcast_in_dim(x[:1], shape=(3, 6), broadcast_dimensions=(0, 1)),
        lambda lib, m, np_, x: x[np_.array([0, 2])],
        lambda lib, m, np_, x: lib.jit(lambda y, i: y[i])(x, 2),
        lambda lib, m, np_, x: m.sparsify(lambda y: np_.stack([y, y]))(x),
        lambda lib, m, np_, x: m.sparsify(lambda y: lib.lax.fori_loop(0, 3, lambda i, z: 2 * z, y))(x),
        lambda lib, m, np_, x: m.sparsify(lambda y: lib.lax.cond(True, lambda z: 2 * z, lambda z: z, y))(x),
        lambda lib, m, np_, x: [row for row in x],
        lambda lib, m, np_, x: lib.jit(lambda y: m.BCOO.fromdense(y.todense() * 2, nse=30))(x),
        lambda lib, m, np_, x: m.sparsify(np_.exp)(x),
        lambda lib, m, np_, x: x + 1.0,
        lambda lib, m, np_, x: 1.0 / x,
        lambda lib, m, np_, x: lib.jit(lambda y: m.BCOO.fromdense(y.todense()))(x),
    ):
        _both(kind, dense)
    _both(lambda lib, m, np_, x: x.transpose((1, 0, 3, 2)), _dense(2, 3, 4, 5), n_batch=2)


@pytest.mark.parametrize(
    ("left", "right", "numbers", "n_batch"),
    [
        ((4, 5), (5,), (((1,), (0,)), ((), ())), 0),
        ((4, 5), (5, 3), (((1,), (0,)), ((), ())), 0),
        ((4, 5), (4, 3), (((0,), (0,)), ((), ())), 0),
        ((4, 5), (4, 5), (((0, 1), (0, 1)), ((), ())), 0),
        ((4, 5), (2, 3), (((), ()), ((), ())), 0),
        ((3, 4, 5), (3, 5, 2), (((2,), (1,)), ((0,), (0,))), 1),
        ((3, 4, 5), (5, 2), (((2,), (0,)), ((), ())), 1),
        ((3, 4, 5), (3, 2), (((0,), (0,)), ((), ())), 1),
        ((3, 4, 5), (5, 3, 2), (((0, 2), (1, 0)), ((), ())), 1),
        ((2, 3, 4), (3, 2, 4, 2), (((2,), (2,)), ((0, 1), (1, 0))), 2),
    ],
)  # fmt: skip
def test_products(left: Any, right: Any, numbers: Any, n_batch: int) -> None:
    a, b = _dense(*left), _dense(*right)
    product = lambda lib, m, np_, x, y: m.bcoo_dot_general(x, y, dimension_numbers=numbers)
    _both(product, a, b, n_batch=n_batch)
    swapped = (numbers[0][::-1], numbers[1][::-1])
    _both(lambda lib, m, np_, x, y: m.bcoo_dot_general(y, x, dimension_numbers=swapped), a, b, n_batch=n_batch)
    derivative = lambda lib, m, np_, x, y: lib.grad(
        lambda d, z: (
            m.bcoo_dot_general(m.BCOO((d, x.indices), shape=x.shape), z, dimension_numbers=numbers) ** 2
        ).sum(),
        (0, 1),
    )(x.data, y)
    _both(derivative, a, b, n_batch=n_batch)
    both_sparse = lambda lib, m, np_, x, y: m.bcoo_dot_general(
        x, m.BCOO.fromdense(y, n_batch=len(numbers[1][1])), dimension_numbers=numbers
    )
    if not any(d < n_batch for d in numbers[0][0]) and numbers[1][1] in ((), (0,)):
        _both(both_sparse, a, b, n_batch=n_batch)


def test_operators_and_gradients() -> None:
    a, b, v = _dense(4, 5), _dense(5, 3), _dense(5)
    for kind in (
        lambda lib, m, np_, x, y, v: [x @ v, x @ y, y.T @ x.T, x @ m.BCOO.fromdense(y)],
        lambda lib, m, np_, x, y, v: m.grad(lambda z: ((z @ y) ** 2).sum())(x),
        lambda lib, m, np_, x, y, v: m.value_and_grad(lambda z, w: ((z @ w) ** 2).sum(), argnums=(0, 1))(x, v),
        lambda lib, m, np_, x, y, v: m.grad(lambda z: (z.sum() ** 2, z.data), has_aux=True)(x),
        lambda lib, m, np_, x, y, v: [m.jacfwd(lambda z: z @ v)(x), m.jacrev(lambda z: z @ v)(x), m.jacobian(lambda z: z @ v)(x)],
        lambda lib, m, np_, x, y, v: lib.jit(lambda z, w: z @ w)(x, v),
        lambda lib, m, np_, x, y, v: lib.vmap(lambda w: x @ w, 1, 1)(y),
        lambda lib, m, np_, x, y, v: lib.jvp(lambda w: x @ w, (v,), (v,)),
        lambda lib, m, np_, x, y, v: m.bcoo_dot_general_sampled(x.todense(), y, np_.array([[0, 1], [3, 2]]), dimension_numbers=(((1,), (0,)), ((), ()))),
        lambda lib, m, np_, x, y, v: lib.grad(lambda z: (m.BCOO.fromdense(z, nse=12) @ v).sum())(x.todense()),
        lambda lib, m, np_, x, y, v: [m.todense(x), m.todense(v), m.empty((3, 4)).todense(), m.empty((3, 4), sparse_format="bcsr")],
        lambda lib, m, np_, x, y, v: [m.eye(3, 4, k, sparse_format=f).todense() for k in (-1, 0, 2) for f in ("bcoo", "coo", "csr", "csc")],
    ):  # fmt: skip
        _both(kind, a, b, v)


def test_vmap_maps_batch_dimensions() -> None:
    a, v = _dense(3, 4, 5), _dense(5)
    _both(lambda lib, m, np_, x, v: lib.vmap(lambda y: y @ v)(x), a, v, n_batch=1)
    _both(lambda lib, m, np_, x, v: lib.vmap(lambda y: 2 * y)(x), a, v, n_batch=1)
    _both(lambda lib, m, np_, x, v: lib.vmap(lambda y: m.BCOO.fromdense(y, nse=20))(x.todense()), a, v, n_batch=1)
    _both(lambda lib, m, np_, x, v: lib.vmap(lambda y: y @ v)(x), a, v)
    with pytest.raises(ValueError, match="in_axes for batched BCOO operations must correspond to a batch dimension"):
        fuser.vmap(lambda y: y @ v)(sparse.BCOO.fromdense(a))


def test_compressed_rows_and_coordinates() -> None:
    dense = _dense(4, 5)
    v, w, b = _dense(5), _dense(4), _dense(5, 2)
    for name in ("COO", "CSR", "CSC", "BCSR"):
        theirs, ours = getattr(oracle, name).fromdense(jnp.asarray(dense)), getattr(sparse, name).fromdense(dense)
        assert repr(theirs) == repr(ours)
        for a, c in zip(jax.tree.leaves(theirs), fuser.tree.leaves(ours), strict=True):
            np.testing.assert_array_equal(np.asarray(a), np.asarray(c))
        np.testing.assert_array_equal(np.asarray(ours.todense()), dense)
        np.testing.assert_allclose(np.asarray(ours @ v), dense @ v)
        np.testing.assert_allclose(np.asarray(fuser.jit(lambda m, x: m @ x)(ours, b)), dense @ b)
        if name != "BCSR":
            np.testing.assert_allclose(np.asarray(ours.T @ w), dense.T @ w)
        scipys = getattr(sparse, name).from_scipy_sparse(scipy.sparse.coo_matrix(dense))
        np.testing.assert_array_equal(np.asarray(scipys.todense()), dense)
    csr, coo = sparse.CSR.fromdense(dense), sparse.COO.fromdense(dense)
    np.testing.assert_allclose(np.asarray(sparse.csr_matvec(csr, w, transpose=True)), dense.T @ w)
    np.testing.assert_allclose(np.asarray(sparse.coo_matmat(coo, b)), dense @ b)
    grad = lambda m, data: fuser.grad(
        lambda d: (m.tree_unflatten(m.tree_flatten()[1], (d, *m.tree_flatten()[0][1:])) @ v).sum()
    )(data)
    np.testing.assert_allclose(np.asarray(grad(csr, csr.data)), v[np.nonzero(dense)[1]])
    batched = _dense(2, 3, 4)
    theirs, ours = oracle.BCSR.fromdense(jnp.asarray(batched), n_batch=1), sparse.BCSR.fromdense(batched, n_batch=1)
    for a, c in zip(theirs._bufs, ours._bufs):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(c))
    for change in (
        lambda m, x: 2 * x,
        lambda m, x: x.sum_duplicates(),
        lambda m, x: m.bcsr_concatenate([x, x], dimension=1),
    ):
        np.testing.assert_allclose(
            np.asarray(change(sparse, ours).todense()), np.asarray(change(oracle, theirs).todense())
        )
    with pytest.raises(NotImplementedError, match="sparse rule for exp is not implemented"):
        sparse.sparsify(fnp.exp)(ours)


def test_duplicates_and_padding() -> None:
    data, indices = (
        np.array([1.0, 2, 3, 4, 5], np.float32),
        np.array([[0, 1], [0, 1], [2, 3], [3, 4], [1, 0]], np.int32),
    )
    for kind in (
        lambda m, x: x.todense(),
        lambda m, x: x.sum_duplicates(),
        lambda m, x: x.sum_duplicates(nse=6),
        lambda m, x: x.sum_duplicates(nse=2),
        lambda m, x: m.bcoo_extract(x, x.todense()),
        lambda m, x: x * x,
        lambda m, x: m.bcoo_reduce_sum(x, axes=(1,)),
        lambda m, x: x.reshape(12),
        lambda m, x: m.bcoo_rev(x, (1,)),
        lambda m, x: x @ x.T,
        lambda m, x: abs(x),
    ):
        theirs = kind(oracle, oracle.BCOO((jnp.asarray(data), jnp.asarray(indices)), shape=(3, 4)))
        ours = kind(sparse, sparse.BCOO((data, indices), shape=(3, 4)))
        if isinstance(theirs, oracle.BCOO):
            assert (theirs.nse >= ours.nse) and theirs.shape == ours.shape
            theirs, ours = theirs.todense(), ours.todense()
        np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs))


def test_random_arrays_and_errors() -> None:
    found = sparse.random_bcoo(fuser.random.key(0), (4, 6), nse=0.5)
    assert found.nse == 12 and (np.asarray(found.todense()) != 0).sum() == 12
    assert sparse.random_bcoo(fuser.random.key(1), (2, 4, 6), nse=3, n_batch=1).n_batch == 1
    with pytest.raises(ValueError, match="Invalid data.shape"):
        sparse.BCOO((np.ones(3, np.float32), np.zeros((2, 2), np.int32)), shape=(2, 2))
    with pytest.raises(sparse.SparseEfficiencyError, match="on_inefficient"):
        found.update_layout(n_batch=1)
    with pytest.warns(sparse.SparseEfficiencyWarning):
        found.update_layout(n_dense=1, on_inefficient="warn")
    with pytest.raises(ValueError, match="sparse_format"):
        sparse.empty((2, 2), sparse_format="ellpack")


def test_linear_algebra() -> None:
    dense = _dense(6, 6) + 8 * np.eye(6, dtype=np.float32)
    b = _dense(6)
    csr = sparse.CSR.fromdense(dense)
    solve = lambda d, b: linalg.spsolve(d, csr.indices, csr.indptr, b)
    np.testing.assert_allclose(np.asarray(solve(csr.data, b)), np.linalg.solve(dense, b), rtol=1e-4, atol=1e-5)
    theirs = oracle.CSR.fromdense(jnp.asarray(dense))
    expected = jax.grad(lambda d, b: (oracle_linalg.spsolve(d, theirs.indices, theirs.indptr, b) ** 2).sum(), (0, 1))(
        theirs.data, jnp.asarray(b)
    )
    got = fuser.jit(fuser.grad(lambda d, b: (solve(d, b) ** 2).sum(), (0, 1)))(csr.data, b)
    for a, c in zip(expected, got):
        np.testing.assert_allclose(np.asarray(c), np.asarray(a), rtol=1e-3, atol=1e-5)
    symmetric = RANDOM.standard_normal((40, 40)).astype(np.float32)
    symmetric = symmetric @ symmetric.T
    start = RANDOM.standard_normal((40, 3)).astype(np.float32)
    values, vectors, count = fuser.jit(linalg.lobpcg_standard)(symmetric, start)
    np.testing.assert_allclose(np.asarray(values), np.linalg.eigvalsh(symmetric)[::-1][:3], rtol=1e-4)
    np.testing.assert_allclose(symmetric @ np.asarray(vectors), np.asarray(vectors * values), atol=2e-2)
    assert 0 < int(count) < 100
    with pytest.raises(ValueError, match=r"expected search dim \* 5 < matrix dim"):
        linalg.lobpcg_standard(symmetric[:10, :10], start[:10])
