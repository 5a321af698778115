"""`fuser.lax` against jax.lax: values, dtypes, and what is refused."""

from __future__ import annotations

import jax
import ml_dtypes
import numpy as np
import pytest
from agreement import Weak, agree, numbers, precision
from jax import lax as jlax

import fuser
import fuser.numpy as fnp
from fuser import lax

X, Y = numbers(np.float32, (3, 4)), numbers(np.float32, (3, 4), 1)
K = numbers(np.int32, (3, 4))
C = numbers(np.complex64, (3, 4))
M = np.arange(12).reshape(3, 4) % 2 == 0


def same(name, *args, **kwargs):
    tolerance = kwargs.pop("tolerance", 8)
    agree(getattr(lax, name), getattr(jlax, name), *args, tolerance=tolerance, **kwargs)


UNARY = [
    "neg",
    "sign",
    "floor",
    "ceil",
    "is_finite",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log1p",
    "logistic",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "sqrt",
    "rsqrt",
    "cbrt",
    "square",
    "erf",
    "erfc",
    "erf_inv",
    "lgamma",
    "digamma",
    "real",
    "imag",
    "population_count",
    "clz",
    "bitwise_not",
    "abs",
    "conj",
    "round",
    "reciprocal",
]
BINARY = [
    "add",
    "sub",
    "mul",
    "div",
    "rem",
    "max",
    "min",
    "atan2",
    "nextafter",
    "complex",
    "shift_left",
    "shift_right_logical",
    "shift_right_arithmetic",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "pow",
]


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    for x in (X * 0.3, K, C, M, 2.5, 3):
        if name in ("abs", "sign") and x is M:
            continue
        if name == "conj" and not isinstance(x, np.ndarray):
            continue
        same(name, x)


@pytest.mark.parametrize("name", BINARY)
def test_binary(name):
    for x, y in (
        (np.abs(X), Y),
        (np.abs(K), np.abs(K.T.reshape(3, 4)) + 1),
        (C, C),
        (M, ~M),
        (np.abs(X), 2.5),
        (2.5, Y),
        (X, 2),
        (K, 3),
        (K, 2.5),
        (X, K),
        (X, Y[0]),
        (X, np.float32(2)),
    ):
        if name in ("max", "min", "atan2") and x is C:
            continue
        same(name, x, y)


def test_errors_name_what_was_found():
    with pytest.raises(TypeError, match=r"add cannot broadcast f32\[3\] and f32\[4\]; extents must be equal or 1"):
        lax.add(np.ones(3, np.float32), np.ones(4, np.float32))
    with pytest.raises(
        TypeError, match=r"add needs equal dtypes, got f32\[3\] and i32\[3\]; convert one of them first"
    ):
        lax.add(np.ones(3, np.float32), np.ones(3, np.int32))
    with pytest.raises(TypeError, match=r"exp does not accept dtype int32 at position 0: got i32\[3\]"):
        lax.exp(np.ones(3, np.int32))
    with pytest.raises(TypeError, match=r"add requires ndarray or scalar arguments, got <class .list.>"):
        lax.add([1.0], 2.0)


CALLS = [
    ("round", X * 3, lax.RoundingMethod.TO_NEAREST_EVEN),
    ("integer_pow", X, 3),
    ("integer_pow", K, -1),
    ("integer_pow", X, -2),
    ("select", M, X, Y),
    ("select", M, X, K),
    ("select", M[0], X, Y),
    ("select_n", K % 3, X, Y, X),
    ("select_n", True, X, Y),
    ("clamp", -1.0, X, 1.0),
    ("clamp", Y, X, Y + 1),
    ("clamp", 0, K, 2),
    ("clamp", 0.0, K, 2.0),
    ("convert_element_type", X, np.int8),
    ("convert_element_type", X, int),
    ("convert_element_type", X * 300, np.uint8),
    ("convert_element_type", np.array([np.nan, np.inf, -np.inf, 1e20], np.float32), np.int32),
    ("convert_element_type", X, bool),
    ("convert_element_type", 3, np.float16),
    ("bitcast_convert_type", X, np.int32),
    ("bitcast_convert_type", X, np.uint8),
    ("bitcast_convert_type", X.astype(np.float16), np.float32),
    ("reduce_precision", X, 5, 10),
    ("broadcast", X, (2,)),
    ("broadcast_in_dim", X, (3, 2, 4), (0, 2)),
    ("broadcast_in_dim", X[:, :1], (3, 5), (0, 1)),
    ("broadcast_in_dim", X, (3, 5), (0, 1)),
    ("reshape", X, (4, 3)),
    ("reshape", X, (5, 3)),
    ("reshape", X, (4, 3), (1, 0)),
    ("expand_dims", X, (0, 3)),
    ("squeeze", X[None], (0,)),
    ("squeeze", X, (0,)),
    ("collapse", X, 0),
    ("collapse", X[None], 1, 3),
    ("transpose", X, (1, 0)),
    ("transpose", X, (0, 0)),
    ("rev", X, (1,)),
    ("concatenate", [X, Y], 1),
    ("concatenate", [X, K], 1),
    ("concatenate", [X, X[:, :2]], 0),
    ("pad", X, 0.0, ((1, 2, 0), (0, -1, 1))),
    ("pad", X, np.float32(7), ((-1, 2, 2), (0, 0, 0))),
    ("pad", X, 0, ((1, 2, 0), (0, -1, 1))),
    ("pad", X, 0.0, ((1, 2, 0),)),
    ("split", X, (1, 3), 1),
    ("split", X, (1, 2), 1),
    ("tile", X, (2, 1)),
    ("iota", np.float32, 5),
    ("broadcasted_iota", np.int8, (3, 4), 1),
    ("full", (2, 3), 1.5),
    ("full", (2, 3), 1, np.float16),
    ("full", (2, 3), X),
    ("full_like", X, 2),
    ("full_like", Weak(2.0), 2),
    ("slice", X, (0, 1), (3, 4)),
    ("slice", X, (0, 1), (3, 4), (2, 2)),
    ("slice", X, (2, 1), (1, 3)),
    ("slice_in_dim", X, 1, -1, 1, 1),
    ("slice_in_dim", X, None, None, 2, 0),
    ("index_in_dim", X, -1, 1),
    ("index_in_dim", X, 1, 0, False),
    ("index_in_dim", X, 9, 0),
    ("dynamic_slice", X, (1, 2), (2, 2)),
    ("dynamic_slice", X, (5, -1), (2, 2)),
    ("dynamic_slice", X, np.array([1, 1]), (2, 2)),
    ("dynamic_slice", X, (1,), (2, 2)),
    ("dynamic_slice", X, (1, 1), (4, 2)),
    ("dynamic_slice", X, (1.0, 1), (2, 2)),
    ("dynamic_slice_in_dim", X, np.int32(2), 2, 1),
    ("dynamic_index_in_dim", X, np.int32(-1), 0, False),
    ("dynamic_update_slice", X, Y[:2, :2], (1, 2)),
    ("dynamic_update_slice", X, Y[:2, :2], (9, -1)),
    ("dynamic_update_slice", X, K[:2, :2], (1, 2)),
    ("dynamic_update_slice_in_dim", X, Y[:, :1], np.int32(3), 1),
    ("dynamic_update_index_in_dim", X, Y[0], np.int32(1), 0),
    ("index_take", X, (np.array([0, 2]), np.array([1, 3])), (0, 1)),
    ("reduce_sum", X, (0,)),
    ("reduce_prod", K, (0, 1)),
    ("reduce_max", X, (1,)),
    ("reduce_min", K, (1,)),
    ("reduce_and", M, (0,)),
    ("reduce_or", K, (0,)),
    ("reduce_xor", K, (1,)),
    ("reduce_sum", X, (2,)),
    ("reduce_sum", X, (0, 0)),
    ("argmax", X, 1, np.int32),
    ("argmin", K, 0, np.uint8),
    ("cumsum", X, 1),
    ("cumsum", X, 0, True),
    ("cumprod", X, 1),
    ("cummax", X, 1),
    ("cummin", K, 1, True),
    ("cumlogsumexp", X, 1),
    ("cumlogsumexp", X, 0, True),
    ("dot", X, Y.T),
    ("dot", X, Y),
    ("dot", X[0], Y[0]),
    ("dot_general", X, Y, (((1,), (1,)), ((0,), (0,)))),
    ("dot_general", X, Y, (((0, 1), (0, 1)), ((), ()))),
    ("dot_general", X, Y, (((1,), (0,)), ((), ()))),
    ("dot_general", X.astype(np.float16), Y.astype(np.float16), (((1,), (1,)), ((), ())), None, np.dtype("float32")),
    ("batch_matmul", X[None], Y.T[None]),
    ("sort", X),
    ("sort", (K, X)),
    ("sort", (K % 2, K, X), 1, True, 2),
    ("sort", X, 5),
    ("sort_key_val", K, X),
    ("top_k", X, 2),
    ("top_k", K, 3),
    ("top_k", X, 9),
    ("broadcast_shapes", (3, 1), (4,)),
    ("broadcast_shapes", (3,), (4,)),
    ("nextafter", X, Y),
]


def label(case):
    name, *args = case
    return (
        name
        + "-"
        + "-".join(
            str(np.shape(a)) if isinstance(a, np.ndarray) else str(a)[:20] for a in args if not isinstance(a, list)
        ).replace("\n", " ")
    )


@pytest.mark.parametrize("case", CALLS, ids=label)
def test_call(case):
    same(case[0], *case[1:])


@pytest.mark.parametrize("name", ["add", "mul", "max", "min"])
@pytest.mark.parametrize("start", ["neutral", 2.0])
def test_reduce_by_a_monoid(name, start):
    neutral = {"add": 0.0, "mul": 1.0, "max": -np.inf, "min": np.inf}[name] if start == "neutral" else start
    agree(
        lambda x: lax.reduce(x, neutral, getattr(lax, name), (1,)),
        lambda x: jlax.reduce(x, neutral, getattr(jlax, name), (1,)),
        X,
    )
    agree(
        lambda x: lax.reduce(x, neutral, lambda a, b: getattr(lax, name)(b, a), (0, 1)),
        lambda x: jlax.reduce(x, neutral, getattr(jlax, name), (0, 1)),
        X,
    )


@pytest.mark.parametrize("axes", [(), (0,), (1,), (0, 1)])
def test_reduce_of_trees_by_any_computation(axes):
    """Sums beside products, and the position of the greatest beside it; derivatives and batches of both."""

    def pair(m, x, y):
        return m.lax.reduce((x, y), (np.float32(0), np.float32(1)), lambda a, b: (a[0] + b[0], a[1] * b[1]), axes)

    def greatest(m, x):
        places = np.arange(x.size, dtype=np.int32).reshape(x.shape)
        first = lambda a, b: a["v"] >= b["v"]
        choose = lambda a, b: {n: m.numpy.where(first(a, b), a[n], b[n]) for n in ("v", "n")}
        start = {"v": np.float32(-np.inf), "n": np.int32(0)}
        return m.lax.reduce({"v": x, "n": m.numpy.asarray(places)}, start, choose, axes)

    for n in range(2):
        agree(lambda x, n=n: pair(fuser, x, x + 1)[n], lambda x, n=n: pair(jax, x, x + 1)[n], X)
    for n in ("v", "n"):
        agree(lambda x, n=n: greatest(fuser, x)[n], lambda x, n=n: greatest(jax, x)[n], X)
    total = lambda m, x: sum(v.sum() for v in pair(m, x, x * x))
    agree(lambda x: fuser.grad(lambda x: total(fuser, x))(x), lambda x: jax.grad(lambda x: total(jax, x))(x), X)


def test_reduce_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match="Operands must have the same tree structure as init_values"):
        lax.reduce({"x": X}, {"y": 0.0}, lambda a, b: a, (0,))
    with pytest.raises(ValueError, match="reduce found non-scalar initial value"):
        lax.reduce(X, np.zeros(3, np.float32), lax.add, (0,))


GATHERS = [
    (X, np.array([[0], [2], [5], [-1]]), ((1,), (0,), (0,)), (1, 4)),
    (X, np.array([[0, 1], [2, 3], [2, -1]]), ((1, 2), (), (0, 1)), (2, 2)),
    (X, np.array([[[0], [1]], [[2], [9]], [[1], [1]]]), ((), (1,), (1,), (0,), (0,)), (1, 1)),
]


@pytest.mark.parametrize("mode", ["clip", "fill", "promise_in_bounds", None])
@pytest.mark.parametrize("case", range(len(GATHERS)))
def test_gather_and_scatter(case, mode):
    x, indices, numbers_, sizes = GATHERS[case]
    ours, theirs = lax.GatherDimensionNumbers(*numbers_), _theirs(jlax.GatherDimensionNumbers, numbers_)
    agree(
        lambda a, i: lax.gather(a, i, ours, sizes, mode=mode),
        lambda a, i: jlax.gather(a, i, theirs, sizes, mode=mode),
        x,
        indices,
    )
    shape = np.shape(lax.gather(x, indices, ours, sizes))
    updates = numbers(np.float32, shape, 7)
    ours, theirs = lax.ScatterDimensionNumbers(*numbers_), _theirs(jlax.ScatterDimensionNumbers, numbers_)
    for name in (
        "scatter_add",
        "scatter_mul",
        "scatter_min",
        "scatter_max",
        *(("scatter",) if case == 0 and mode != "clip" else ()),
    ):
        agree(
            lambda a, i, u, name=name: getattr(lax, name)(a, i, u, ours, mode=mode),
            lambda a, i, u, name=name: getattr(jlax, name)(a, i, u, theirs, mode=mode),
            x,
            indices,
            updates,
        )


def _theirs(kind, values):
    return kind(*values)


def test_gather_checks_its_numbers():
    with pytest.raises(TypeError, match=r"gather needs indices with a last dimension of 1, got i32\[2,2\]"):
        lax.gather(X, np.zeros((2, 2), np.int32), lax.GatherDimensionNumbers((1,), (0,), (0,)), (1, 4))
    with pytest.raises(TypeError, match=r"gather of f32\[3,4\] needs slice sizes within its shape"):
        lax.gather(X, np.zeros((2, 1), np.int32), lax.GatherDimensionNumbers((1,), (0,), (0,)), (1, 5))
    with pytest.raises(ValueError, match="no indexing mode 'other'"):
        lax.gather(X, np.zeros((2, 1), np.int32), lax.GatherDimensionNumbers((1,), (0,), (0,)), (1, 4), mode="other")


BINARY = ["add", "sub", "mul", "div", "rem", "max", "min", "pow", "atan2", "eq", "lt", "nextafter", "igamma", "complex"]


@pytest.mark.parametrize("name", BINARY)
def test_extents_of_one_broadcast(name):
    """Operands of one rank; other ranks, other dtypes and other extents are errors, numbers of rank 0 go with all."""
    mine, theirs = getattr(lax, name), getattr(jlax, name)
    f = lambda *shape: np.abs(numbers("f4", shape)) + np.float32(0.5)
    for x, y in ((f(3, 1), f(3, 4)), (f(1, 4), f(3, 1)), (f(1), f(5)), (f(), f(2, 3)), (f(4), f(3, 4)), (f(3), f(4))):
        agree(mine, theirs, x, y)


def test_integers_and_three_operands_broadcast():
    i = numbers("i4", (3, 1)), numbers("i4", (1, 2))
    for name in ("bitwise_and", "shift_left"):
        agree(getattr(lax, name), getattr(jlax, name), *i)
    agree(lax.betainc, jlax.betainc, *(np.full(s, 0.5, "f4") for s in ((3, 1), (1, 2), (3, 2))))
    for name in ("select", "clamp"):  # these do not broadcast, in JAX neither
        x = np.ones((3, 1), bool if name == "select" else "f4")
        agree(getattr(lax, name), getattr(jlax, name), x, np.ones((3, 2), "f4"), np.ones((3, 2), "f4"))


MIXED = [
    ("i1", "f4"),
    ("bf16", "f4"),
    ("bf16", "f2"),
    ("i1", "i4"),
    ("c8", "f4"),
    ("i1", "u1"),
    ("f2", "c8"),
    ("i4", "f2"),
]


@pytest.mark.parametrize("first,second", MIXED)
def test_products_of_mixed_dtypes(first, second):
    """The result has the wider dtype or the preferred one; operands are converted to one that holds both."""
    x, y = (
        numbers("f4", s).round().astype(ml_dtypes.bfloat16 if d == "bf16" else d)
        for d, s in ((first, (2, 3)), (second, (3, 2)))
    )
    for preferred in (None, "f4", "c8"):
        if preferred == "f4" and "c8" in (first, second):
            continue
        preferred = None if preferred is None else np.dtype(preferred)
        agree(
            lambda x, y, p=preferred: lax.dot(x, y, preferred_element_type=p),
            lambda x, y, p=preferred: jlax.dot(x, y, preferred_element_type=p),
            x,
            y,
            tolerance=2,
        )
    gradient = fuser.grad(lambda y: fnp.real(lax.dot(x, y, preferred_element_type=np.complex64)).sum())
    if second in ("f4", "f2"):
        assert gradient(fnp.asarray(y)).dtype == second


@pytest.mark.parametrize("name", ["cummax", "cummin", "cumlogsumexp"])
def test_prefix_scans_of_complex_numbers(name):
    """By real part, then imaginary part; logarithms have imaginary parts within (-π, π]."""
    mine, theirs = getattr(lax, name), getattr(jlax, name)
    for x in (numbers("c8", (5,)), numbers("c8", (3, 4)), np.arange(6).reshape(2, 3) * np.complex64(1 + 1j)):
        for reverse in (False, True):
            agree(
                lambda x, r=reverse: mine(x, x.ndim - 1, r),
                lambda x, r=reverse: theirs(x, x.ndim - 1, r),
                x,
                tolerance=3,
            )
    x = numbers("c8", (6,))
    agree(lambda x: fuser.jit(lambda x: mine(x))(x), theirs, x, tolerance=3)
    agree(
        fuser.grad(lambda x: fnp.real(mine(x) * (1 + 2j)).sum()),
        jax.grad(lambda x: (theirs(x) * (1 + 2j)).real.sum()),
        x,
        tolerance=9,
    )


@pytest.mark.parametrize("dtype", ["c8", "c16"])
@pytest.mark.parametrize("method", ["min", "max"])
def test_extremes_of_complex_numbers_written(method, dtype):
    """Also compiled, from a few updates to many of one element."""
    with precision(True):
        x = numbers(dtype, (6,))
        for index, value in (
            ([0, 2], 0),
            ([0, 2, 2, 5, 9], numbers(dtype, (5,), 1)),
            ([1] * 40, numbers(dtype, (40,), 2)),
        ):
            index = np.array(index)
            update = lambda v, i=index, u=value: getattr(v.at[i], method)(u)
            agree(update, update, x)
            agree(fuser.jit(update), update, x)
        agree(
            fuser.grad(lambda v: fnp.abs(getattr(v.at[np.array([0, 2])], method)(0)).sum()),
            jax.grad(lambda v: jax.numpy.abs(getattr(v.at[np.array([0, 2])], method)(0)).sum()),
            x,
        )
