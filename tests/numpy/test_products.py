"""Products, einsum, sorting, searching, sets and series against JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from agreement import agree, numbers, precision, same

import fuser
import fuser.numpy as fnp
from fuser.errors import ConcretizationTypeError
from fuser.ir.types import ArrayType
from fuser.trace.stage import stage

A, B = numbers(np.float32, (3, 4)), numbers(np.float32, (4, 5), 1)
S = numbers(np.float32, (2, 3, 4), 2)
V, W = numbers(np.float32, (4,), 3), numbers(np.float32, (4,), 4)
K = numbers(np.int32, (9,), 5)

PRODUCTS = [
    ("dot", A, B), ("dot", V, W), ("dot", A, V), ("dot", 2.0, A), ("dot", A, A), ("dot", S, B), ("dot", V, S.transpose(0, 2, 1)),
    ("matmul", A, B), ("matmul", V, W), ("matmul", A, V), ("matmul", V, B), ("matmul", S, B), ("matmul", A.T[None], S), ("matmul", A, A),
    ("matmul", S, S.transpose(0, 2, 1)), ("matmul", S[:1], S.transpose(0, 2, 1)), ("matmul", 2.0, A), ("matmul", S, S),
    ("matmul", S[:, None], S.transpose(0, 2, 1)), ("matmul", A.astype(np.int32), B), ("matmul", V, S.transpose(0, 2, 1)), ("matmul", A > 0, B.astype(bool)),
    ("vdot", A, A), ("vdot", V * 1j, W), ("vecdot", A, A), ("vecdot", A, V), ("inner", A, A), ("inner", 2, V), ("inner", A, B), ("outer", V, A),
    ("tensordot", A, B, 1), ("tensordot", S, A, ((1, 2), (0, 1))), ("tensordot", A, B, 0), ("tensordot", A, B, 2), ("tensordot", S, S, 3),
    ("kron", V, W), ("kron", A, B), ("kron", A, V), ("cross", A[:, :3], A[:, 1:]), ("cross", A[:, :2], A[:, 2:]), ("cross", A[:, :3], A[:, :2]), ("cross", A, A),
    ("matvec", S, V), ("vecmat", V, B),
]  # fmt: skip
SUBSCRIPTS = [
    ("ij,jk->ik", A, B), ("ij,jk", A, B), ("ij->ji", A), ("ij->", A), ("ij->j", A), ("ii->i", A[:, :3]), ("ii", A[:, :3]), ("i,j->ij", V, W),
    ("i,i", V, W), ("i,i->i", V, W), ("bij,bkj->bik", S, S), ("...j,jk", S, B), ("...ij,...jk->...ik", S, B), ("bij,bij->b", S, S), ("ij,jk,kl->il", A, B, B.T),
    ("iij->j", numbers(np.float32, (3, 3, 4))), ("ij,j", A, V), ("i,ij,j", V[:3], A, W), (" i j , j k -> k i", A, B), ("ij,kj->ikj", A, A), ("ij,ij,ij->i", A, A, A),
    ("ij,jk->iz", A, B), ("ij,jk", A, A), ("ij", A, B), ("a,b,c->", V, W, V), ("ij,ij->ij", A, A[:1]), ("bhqd,bhkd->bhqk", S[None], S[None]),
]  # fmt: skip
SORTS = [
    ("sort", A), ("sort", A, 0), ("sort", A, None), ("argsort", A), ("argsort", A, 0), ("argsort", K), ("lexsort", (K, K[::-1])), ("lexsort", (A, A)),
    ("searchsorted", np.sort(V), W), ("searchsorted", np.array([0, 1, 1, 2]), np.array([1, 5, -1]), "right"), ("searchsorted", np.array([0, 1, 1, 2]), 1),
    ("searchsorted", np.sort(V), 0.5), ("searchsorted", V, W, "middle"), ("searchsorted", A, V), ("searchsorted", np.zeros(0, np.float32), V),
    ("searchsorted", np.array([0, 1, np.nan], np.float32), np.array([np.nan, 5, 0], np.float32)),
    ("digitize", V, np.array([-1.0, 0, 1])), ("digitize", V, np.array([1.0, 0, -1])), ("digitize", K, np.array([0, 2, 4]), True),
    ("median", A), ("median", A, 0), ("median", S, (0, 2)), ("quantile", A, 0.3), ("quantile", A, np.array([0.1, 0.9], np.float32), 1), ("percentile", A, 30.0, 0),
    ("quantile", S, np.array([0.5, 1], np.float32), (0, 1)), ("sort_complex", A), ("partition", A, 2),
]  # fmt: skip
SERIES = [
    ("diff", V), ("diff", A, 2, 0), ("diff", K > 2), ("diff", V, -1), ("ediff1d", A), ("ediff1d", V, 1.0, np.array([2.0, 3])), ("gradient", V),
    ("gradient", A), ("gradient", A, 0.5), ("gradient", V, np.array([0, 1, 3, 4.0], np.float32)), ("trapezoid", A), ("trapezoid", V, np.arange(4.0) ** 2), ("trapezoid", A, None, 0.5, 0),
    ("interp", W, np.array([-1.0, 0, 2]), np.array([3.0, 1, 2])), ("interp", W, np.array([-1.0, 0, 2]), np.array([3.0, 1, 2]), -5, 5), ("interp", 0.5, np.array([0, 1]), np.array([0, 2])),
    ("interp", W, np.array([0.5, 1, 2]), np.array([3.0, 1, 2]), None, None, 3.0), ("interp", W, V, A), ("polyval", V, W), ("polyval", np.array([1, 2]), 3),
    ("convolve", V, W), ("convolve", V, W[:3], "same"), ("convolve", V, W[:2], "same"), ("convolve", V, W[:3], "valid"), ("convolve", V[:2], W, "same"), ("convolve", A, V), ("convolve", V, W, "other"),
    ("correlate", V, W), ("correlate", V, W[:3], "full"), ("correlate", V, W[:2], "same"), ("correlate", V[:2], W, "full"), ("correlate", V[:2], W, "valid"), ("correlate", V * 1j, W[:2] + 2j, "full"),
    ("convolve", K, K[:3]), ("cov", A), ("cov", V), ("cov", A, A), ("cov", A.T, None, False), ("cov", A, None, True, True), ("cov", A, None, True, False, None, np.array([1, 2, 1, 3])),
    ("cov", A, None, True, False, None, None, np.array([1.0, 2, 1, 3])), ("corrcoef", A), ("corrcoef", V, W),
]  # fmt: skip
SETS = [
    ("nonzero", A > 1), ("flatnonzero", K), ("argwhere", A > 0), ("unique", K), ("unique", A > 0), ("union1d", K, K + 2), ("intersect1d", K, K + 2), ("setdiff1d", K, K + 2),
    ("setxor1d", K, K + 2), ("isin", K, np.array([1, 2])), ("isin", A, A[0], False, True), ("bincount", np.abs(K)), ("bincount", np.abs(K), np.arange(9.0)), ("bincount", np.abs(K), None, 20),
    ("bincount", A), ("histogram", A), ("histogram", A, 5, (-1.0, 1.0)), ("histogram", V, np.array([-2.0, 0, 2])), ("histogram", A, 4, None, np.abs(A)), ("histogram", K, 4, None, None, True),
    ("trim_zeros", np.array([0, 0, 1, 2, 0])), ("where", A > 1), ("histogram_bin_edges", A, 3),
]  # fmt: skip


def names(case):
    return "-".join(str(np.shape(a)) if isinstance(a, (np.ndarray, tuple, list)) else str(a) for a in case)


@pytest.mark.parametrize("case", PRODUCTS + SORTS + SERIES + SETS, ids=names)
def test_call(case):
    name, *args = case
    same(name, *args, tolerance=10)


@pytest.mark.parametrize("case", SUBSCRIPTS, ids=names)
def test_einsum(case):
    same("einsum", *case, tolerance=10)


def test_einsum_in_other_forms():
    agree(
        lambda x, y: fnp.einsum(x, [0, 1], y, [1, 2], [0, 2]),
        lambda x, y: __import__("jax").numpy.einsum(x, [0, 1], y, [1, 2], [0, 2]),
        A,
        B,
        tolerance=10,
    )
    same("einsum", "ij,jk->ik", A.astype(np.int8), B.astype(np.int8))
    same("einsum", "ij,jk->ik", A, B, preferred_element_type=np.dtype("float16"), tolerance=4)
    graph = stage(
        lambda x, y, z: [fnp.einsum("ij,jk,kl->il", x, y, z)],
        [ArrayType(s, np.dtype("float32")) for s in ((2, 50), (50, 50), (50, 3))],
    )
    assert [e.primitive.name for e in graph.eqns].count("dot_general") == 2
    assert graph.outvars[0].aval.shape == (2, 3)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int32", "complex64", "bool"])
def test_products_of_other_dtypes(dtype):
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    x, y = numbers(kind, (3, 4)), numbers(kind, (4, 2), 1)
    for name in ("dot", "matmul"):
        same(name, x, y, tolerance=4)
    same("einsum", "ij,jk->k", x, y, tolerance=4)
    same("matmul", x, y, preferred_element_type=np.dtype("float32"), tolerance=4) if dtype not in (
        "complex64",
        "bool",
    ) else None


def test_preferred_element_type():
    same("matmul", A.astype(np.int8), B.astype(np.int8), preferred_element_type=np.dtype("int32"))
    same("dot", A.astype(np.float16), B.astype(np.float16), preferred_element_type=np.dtype("float32"), tolerance=4)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint32", "float16", "bfloat16", "float32", "complex64"])
def test_sorting_of_every_dtype(dtype):
    x = numbers(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype, (3, 7), low=-2, high=2)
    same("sort", x)
    same("sort", x, axis=0, descending=True)
    same("argsort", x)
    same("argsort", x, descending=True)


def test_sorting_at_the_edges():
    x = np.array([np.nan, 0.0, -0.0, np.inf, -np.inf, 1, -np.nan, 1], np.float32)
    for name in ("sort", "argsort"):
        same(name, x)
        same(name, x, descending=True)


@pytest.mark.parametrize("method", ["linear", "lower", "higher", "nearest", "midpoint", "other"])
@pytest.mark.parametrize("name", ["quantile", "nanquantile"])
def test_quantile_methods(name, method):
    x = A.copy()
    same(name, x, 0.3, axis=1, method=method)
    same(name, x, 0.3, axis=1, method=method, keepdims=True)
    x[0, 1] = np.nan
    same(name, x, np.array([0.1, 0.5], np.float32), axis=0, method=method)
    same(name, x, 0.2, method=method)
    same("nanmedian", x, axis=1)
    same("median", x, axis=1)


@pytest.mark.parametrize("size", [0, 2, 20])
def test_static_sizes(size):
    same("nonzero", A > 0, size=size)
    same("nonzero", A > 0, size=size, fill_value=-1)
    same("flatnonzero", K, size=size, fill_value=7)
    same("argwhere", A > 0, size=size)
    same("bincount", np.abs(K), length=size)
    if size:
        same("unique", K, size=size)
        same("unique", K, size=size, fill_value=9)


def test_parts_of_unique():
    same("unique", K, True, True, True)
    same("unique", np.array([[1, 2], [1, 2], [0, 5]]), axis=0)
    same("unique", A > 0, return_counts=True)


@pytest.mark.parametrize("name", ["nonzero", "unique", "bincount", "argwhere"])
def test_traced_values_have_no_size(name):
    with pytest.raises(
        ConcretizationTypeError,
        match=r"of a traced i32\[9\] has a shape that depends|of a traced bool\[9\] has a shape that depends",
    ):
        stage(lambda x: [getattr(fnp, name)(x)], [ArrayType((9,), np.dtype("int32"))])


def test_sizes_while_tracing():
    graph = stage(lambda x: fnp.nonzero(x, size=4), [ArrayType((3, 3), np.dtype("int32"))])
    assert [v.aval.shape for v in graph.outvars] == [(4,), (4,)]


def test_double_precision():
    with precision(True):
        a, b = A.astype(np.float64), B.astype(np.float64)
        same("matmul", a, b)
        same("sort", a)
        same("argsort", a)
        same("median", a, axis=0)
        same("searchsorted", np.sort(a[0]), a[1])


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "i4"])
@pytest.mark.parametrize("order", [0, 1, 2, 3, 4, 6])
def test_determinants(order, dtype):
    """Values, stacks, singular matrices, and derivatives; by polynomials up to order 3."""
    with precision(dtype == "f8"):
        x = numbers(dtype, (2, order, order)) + 2 * np.eye(order, dtype=dtype)
        for name in ("det", "slogdet"):
            mine, theirs = getattr(fnp.linalg, name), getattr(jnp.linalg, name)
            agree(mine, theirs, x, tolerance=20)
            agree(mine, theirs, np.zeros((order, order), dtype))
            agree(mine, theirs, np.zeros((order, order + 1), dtype))
        if dtype in ("f4", "f8") and order:
            agree(fuser.vmap(fuser.grad(fnp.linalg.det)), jax.vmap(jax.grad(jnp.linalg.det)), x, tolerance=50)
            agree(
                fuser.grad(lambda v: fnp.linalg.slogdet(v)[1].sum()), jax.grad(lambda v: jnp.linalg.slogdet(v)[1].sum()), x,
                tolerance=50,
            )  # fmt: skip
        if dtype == "f4" and 0 < order < 4:
            singular = np.ones((order, order), dtype)
            agree(fuser.grad(fnp.linalg.det), jax.grad(jnp.linalg.det), singular, tolerance=5)
