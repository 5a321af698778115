"""Sparse arrays: buffers beside JAX's, which compiles each of its operations for seconds; what they compute beside dense arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from jax.experimental import sparse as oracle

import fuser
import fuser.numpy as fnp
from fuser import lax
from fuser.experimental import sparse
from fuser.experimental.sparse import linalg

RANDOM = np.random.default_rng(0)
LAYOUTS = [(0, 0), (1, 0), (0, 1), (1, 1), (2, 0)]


def _dense(*shape: int, part: float = 0.5) -> np.ndarray:
    values = RANDOM.integers(-4, 5, shape)
    return np.where(RANDOM.random(shape) < part, values, 0).astype(np.float32)


def _agree(got: Any, expected: Any) -> None:
    """Sparse or dense results are those of dense arrays."""
    leaves = zip(
        fuser.tree.leaves(got, lambda x: isinstance(x, sparse.JAXSparse)), fuser.tree.leaves(expected), strict=True
    )
    for ours, dense in leaves:
        assert ours.shape == dense.shape and ours.dtype == dense.dtype, (ours, dense)
        np.testing.assert_allclose(np.asarray(sparse.todense(ours)), np.asarray(dense), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layout", [(0, 0), (1, 1), (2, 0)], ids=str)
def test_buffers_are_those_of_jax(layout: tuple[int, int]) -> None:
    n_batch, n_dense = layout
    dense = _dense(3, 4, 5, part=0.3)
    theirs = oracle.BCOO.fromdense(jnp.asarray(dense), n_batch=n_batch, n_dense=n_dense)
    ours = sparse.BCOO.fromdense(dense, n_batch=n_batch, n_dense=n_dense)
    assert repr(ours) == repr(theirs)
    for a, b in zip(theirs._bufs, ours._bufs):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
        assert a.dtype == b.dtype
    _agree(ours, dense)
    _agree(fuser.jit(lambda x: 2 * x)(ours), 2 * dense)


ELEMENTWISE: list[Callable[..., Any]] = [
    lambda x: [2 * x, x / 2, -x, abs(x), x + x, x - x, x * x, x.sum(), x**2, x[1], x[1, 2], x[..., 0], x[:, 1:3]],
    lambda x: fnp.sin(x) * 2 + fnp.sqrt(fnp.abs(x)) - fnp.tanh(x),
    lambda x: [x.sum(axes) for axes in (0, 1, 2, (0, 1), (1, 2))],
    lambda x: [x[::-1], x[:, :, ::2], x.astype(np.int32), fnp.squeeze(x[:, 1:2], 1), lax.dynamic_slice(x, (1, 2, 4), (2, 2, 3))],
    lambda x: [fnp.concatenate([x, x], d) for d in range(3)],
    lambda x: [x * fnp.arange(5.0), x * fnp.arange(4.0)[:, None], x / fnp.full((3, 1, 1), 2.0), x + fnp.ones((3, 4, 5))],
]  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_operations_of_every_layout(layout: tuple[int, int]) -> None:
    n_batch, n_dense = layout
    dense = _dense(3, 4, 5, part=0.3)
    mat = sparse.BCOO.fromdense(dense, n_batch=n_batch, n_dense=n_dense)
    for function in ELEMENTWISE:
        _agree(sparse.sparsify(function)(mat), function(fnp.asarray(dense)))
    for batch, inner in ((0, 0), (1, 0), (0, 1), (2, 0), (0, 2), (1, 1), (3, 0)):
        other = sparse.bcoo_update_layout(mat, n_batch=batch, n_dense=inner, on_inefficient=None)
        assert (other.n_batch, other.n_dense) == (batch, inner)
        _agree(other, dense)
    again = mat.sum_duplicates(nse=mat.nse + 3)
    assert again.nse == mat.nse + 3
    _agree([again, mat.sort_indices(), mat.sum_duplicates(), mat + mat], [dense, dense, dense, 2 * dense])
    _agree(sparse.bcoo_extract(mat, np.ones_like(dense)), (np.asarray(mat.indices.shape[-1]) >= 0) * _stored(mat))


def _stored(mat: Any) -> np.ndarray:
    """Ones where an element is stored."""
    return np.asarray(sparse.BCOO((fnp.ones_like(mat.data), mat.indices), shape=mat.shape).todense())


def test_movement() -> None:
    dense = _dense(4, 6, part=0.4)
    mat = sparse.BCOO.fromdense(dense)
    functions: list[Callable[..., Any]] = [
        lambda x: [x.T, x.reshape(24), x.reshape((2, 2, 6)), x.reshape(3, 8), fnp.stack([x, x]), x[None]],
        lambda x: [fnp.broadcast_to(x, (2, 4, 6)), fnp.broadcast_to(x[:1], (3, 6)), x[np.array([0, 2])]],
        lambda x: [lax.fori_loop(0, 3, lambda i, z: 2 * z, x), lax.cond(True, lambda z: 2 * z, lambda z: z, x)],
    ]
    for function in functions:
        _agree(sparse.sparsify(function)(mat), function(fnp.asarray(dense)))
    _agree(fuser.jit(lambda x, i: x[i])(mat, 2), dense[2])
    _agree(list(mat), list(dense))
    line = sparse.BCOO.fromdense(_dense(1, 1, 8))
    window = _dense(1, 1, 3)
    for padding in ("SAME", "VALID", [(2, 1)]):
        convolve = lambda x, k, padding=padding: lax.conv_general_dilated(x, k, (1,), padding)
        _agree(sparse.sparsify(convolve)(line, sparse.BCOO.fromdense(window)), convolve(line.todense(), window))
    batches = sparse.BCOO.fromdense(_dense(2, 3, 4, 5), n_batch=2)
    _agree(batches.transpose((1, 0, 3, 2)), batches.todense().transpose((1, 0, 3, 2)))
    for function, words in (
        (fnp.exp, "sparse rule for exp is not implemented"),
        (lambda x: x + 1.0, "silent densification"),
        (lambda x: 1.0 / x, "Division by a sparse array"),
        (lambda x: x - fnp.ones((4, 6)), "Subtraction between sparse and dense"),
        (lambda x: x**-1, "non-positive exponent -1"),
    ):
        with pytest.raises(NotImplementedError, match=words):
            sparse.sparsify(function)(mat)
    with pytest.raises(fuser.errors.ConcretizationTypeError, match="nse argument of bcoo_fromdense"):
        fuser.jit(lambda x: sparse.BCOO.fromdense(x))(dense)
    _agree(fuser.jit(lambda x: sparse.BCOO.fromdense(2 * x, nse=24))(dense), 2 * dense)


PRODUCTS: list[Any] = [
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
]


@pytest.mark.parametrize(("left", "right", "numbers", "n_batch"), PRODUCTS)
def test_products(left: Any, right: Any, numbers: Any, n_batch: int) -> None:
    a, b = _dense(*left), _dense(*right)
    mat = sparse.BCOO.fromdense(a, n_batch=n_batch)
    _agree(sparse.bcoo_dot_general(mat, b, dimension_numbers=numbers), lax.dot_general(a, b, numbers))
    swapped = (numbers[0][::-1], numbers[1][::-1])
    _agree(sparse.bcoo_dot_general(b, mat, dimension_numbers=swapped), lax.dot_general(b, a, swapped))
    made = lambda d: sparse.BCOO((d, mat.indices), shape=mat.shape)
    loss = lambda d, z: (sparse.bcoo_dot_general(made(d), z, dimension_numbers=numbers) ** 2).sum()
    dense_loss = lambda x, z: (lax.dot_general(x, z, numbers) ** 2).sum()
    of_data, of_rhs = fuser.grad(loss, (0, 1))(mat.data, b)
    of_dense, expected = fuser.grad(dense_loss, (0, 1))(fnp.asarray(a), b)
    _agree(of_rhs, expected)
    _agree(of_data, sparse.bcoo_extract(mat, of_dense).data)
    if numbers[1][1] in ((), (0,)) and not any(d < n_batch for d in numbers[0][0]):
        second = sparse.BCOO.fromdense(b, n_batch=len(numbers[1][1]))
        _agree(sparse.bcoo_dot_general(mat, second, dimension_numbers=numbers), lax.dot_general(a, b, numbers))


def test_derivatives_and_batches() -> None:
    a, b, v = _dense(4, 5), _dense(5, 3), _dense(5)
    mat = sparse.BCOO.fromdense(a)
    mask = _stored(mat)
    gradient = sparse.grad(lambda z: ((z @ b) ** 2).sum())(mat)
    assert isinstance(gradient, sparse.BCOO)
    _agree(gradient, mask * (2 * a @ b @ b.T))
    value, (first, second) = sparse.value_and_grad(lambda z, w: ((z @ w) ** 2).sum(), argnums=(0, 1))(mat, v)
    _agree([value, first, second], [((a @ v) ** 2).sum(), mask * np.outer(2 * a @ v, v), 2 * a.T @ (a @ v)])
    _, aux = sparse.grad(lambda z: (z.sum() ** 2, z.data), has_aux=True)(mat)
    _agree(aux, mat.data)
    expected = np.eye(4, dtype=np.float32)[:, :, None] * v * mask
    for jacobian in (sparse.jacfwd, sparse.jacrev, sparse.jacobian):
        _agree(jacobian(lambda z: z @ v)(mat), expected)
    _agree(fuser.vmap(lambda w: mat @ w, 1, 1)(b), a @ b)
    _agree(fuser.jvp(lambda w: mat @ w, (v,), (v,)), (a @ v, a @ v))
    at = np.array([[0, 1], [3, 2]])
    numbers = (((1,), (0,)), ((), ()))
    _agree(sparse.bcoo_dot_general_sampled(a, b, at, dimension_numbers=numbers), (a @ b)[at[:, 0], at[:, 1]])
    _agree(fuser.grad(lambda z: (sparse.BCOO.fromdense(z, nse=12) @ v).sum())(a), mask * v)
    many = _dense(3, 4, 5)
    batched = sparse.BCOO.fromdense(many, n_batch=1)
    _agree(fuser.vmap(lambda y: y @ v)(batched), many @ v)
    doubled = fuser.vmap(lambda y: 2 * y)(batched)
    assert doubled.shape == (3, 4, 5)
    _agree(doubled, 2 * many)
    _agree(fuser.vmap(lambda y: sparse.BCOO.fromdense(y, nse=20))(many), many)
    with pytest.raises(ValueError, match="in_axes for batched BCOO operations must correspond to a batch dimension"):
        fuser.vmap(lambda y: y @ v)(sparse.BCOO.fromdense(many))


def test_compressed_rows_and_coordinates() -> None:
    dense = _dense(4, 5)
    v, w, b = _dense(5), _dense(4), _dense(5, 2)
    for name in ("COO", "CSR", "CSC", "BCSR"):
        theirs, ours = getattr(oracle, name).fromdense(jnp.asarray(dense)), getattr(sparse, name).fromdense(dense)
        assert repr(theirs) == repr(ours)
        for a, c in zip(jax.tree.leaves(theirs), fuser.tree.leaves(ours), strict=True):
            np.testing.assert_array_equal(np.asarray(a), np.asarray(c))
        _agree([ours, ours @ v, fuser.jit(lambda m, x: m @ x)(ours, b)], [dense, dense @ v, dense @ b])
        if name != "BCSR":
            _agree(ours.T @ w, dense.T @ w)
        _agree(getattr(sparse, name).from_scipy_sparse(scipy.sparse.coo_matrix(dense)), dense)
    csr, coo = sparse.CSR.fromdense(dense), sparse.COO.fromdense(dense)
    _agree([sparse.csr_matvec(csr, w, transpose=True), sparse.coo_matmat(coo, b)], [dense.T @ w, dense @ b])
    of_data = fuser.grad(lambda d: (sparse.CSR((d, csr.indices, csr.indptr), shape=csr.shape) @ v).sum())(csr.data)
    _agree(of_data, v[np.nonzero(dense)[1]])
    many = _dense(2, 3, 4)
    theirs, ours = oracle.BCSR.fromdense(jnp.asarray(many), n_batch=1), sparse.BCSR.fromdense(many, n_batch=1)
    for a, c in zip(theirs._bufs, ours._bufs):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(c))
    joined = sparse.bcsr_concatenate([ours, ours], dimension=1)
    _agree([2 * ours, ours.sum_duplicates(), joined], [2 * many, many, np.concatenate([many, many], 1)])
    with pytest.raises(NotImplementedError, match="sparse rule for exp is not implemented"):
        sparse.sparsify(fnp.exp)(ours)
    for k in (-1, 0, 2):
        eyes = [sparse.eye(3, 4, k, sparse_format=f) for f in ("bcoo", "coo", "csr", "csc")]
        _agree(eyes, [np.eye(3, 4, k, dtype=np.float32)] * 4)
    _agree([sparse.empty((3, 4)), sparse.empty((3, 4), sparse_format="bcsr")], [np.zeros((3, 4), np.float32)] * 2)


def test_duplicates_and_padding() -> None:
    data, indices = (
        np.array([1.0, 2, 3, 4, 5], np.float32),
        np.array([[0, 1], [0, 1], [2, 3], [3, 4], [1, 0]], np.int32),
    )
    mat = sparse.BCOO((data, indices), shape=(3, 4))
    dense = np.zeros((3, 4), np.float32)
    dense[0, 1], dense[2, 3], dense[1, 0] = 3, 3, 5
    _agree([mat, mat * mat, abs(mat), mat.sum(1), mat.reshape(12), mat[::-1], mat @ mat.T],
           [dense, dense * dense, abs(dense), dense.sum(1), dense.reshape(12), dense[::-1], dense @ dense.T])  # fmt: skip
    summed = mat.sum_duplicates()
    assert summed.nse == 3 and summed.unique_indices and summed.indices_sorted
    np.testing.assert_array_equal(np.asarray(summed.indices), [[0, 1], [1, 0], [2, 3]])
    assert mat.sum_duplicates(nse=2).nse == 2
    _agree(sparse.bcoo_extract(mat, dense), dense)


def test_random_arrays_and_errors() -> None:
    found = sparse.random_bcoo(fuser.random.key(0), (4, 6), nse=0.5)
    assert found.nse == 12 and (np.asarray(found.todense()) != 0).sum() == 12
    assert sparse.random_bcoo(fuser.random.key(1), (2, 4, 6), nse=3, n_batch=1).n_batch == 1
    with pytest.raises(ValueError, match=r"Invalid data\.shape"):
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
    got = fuser.jit(fuser.grad(lambda d, b: (solve(d, b) ** 2).sum(), (0, 1)))(csr.data, b)
    of_dense, of_b = fuser.grad(lambda m, b: (fnp.linalg.solve(m, b) ** 2).sum(), (0, 1))(dense, b)
    for ours, expected in zip(got, (of_dense[np.nonzero(dense)], of_b)):
        np.testing.assert_allclose(np.asarray(ours), np.asarray(expected), rtol=1e-3, atol=1e-5)
    symmetric = RANDOM.standard_normal((40, 40)).astype(np.float32)
    symmetric = symmetric @ symmetric.T
    start = RANDOM.standard_normal((40, 3)).astype(np.float32)
    values, vectors, count = fuser.jit(linalg.lobpcg_standard)(symmetric, start)
    np.testing.assert_allclose(np.asarray(values), np.linalg.eigvalsh(symmetric)[::-1][:3], rtol=1e-4)
    np.testing.assert_allclose(symmetric @ np.asarray(vectors), np.asarray(vectors * values), atol=2e-2)
    assert 0 < int(count) < 100
    with pytest.raises(ValueError, match=r"expected search dim \* 5 < matrix dim"):
        linalg.lobpcg_standard(symmetric[:10, :10], start[:10])
