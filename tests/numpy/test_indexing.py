"""Indexing against JAX: basic, integer, boolean and mixed indices, out of bounds, updates through `.at`, and what each becomes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import agree, compare, numbers, same
from hypothesis import given, settings
from hypothesis import strategies as st

import fuser
import fuser.numpy as fnp
from fuser.errors import NonConcreteBooleanIndexError
from fuser.ir.types import ArrayType
from fuser.trace.stage import stage

I32 = np.dtype("int32")
F32 = np.dtype("float32")
X = numbers(np.float32, (3, 4, 5))
i = np.array([0, 2, 1, -1, 0])
j = np.array([[0], [3], [-2]])
mask = np.array([True, False, True])
INDICES = {
    "integer": 1,
    "negative": -1,
    "out of bounds": 7,
    "far below": -9,
    "pair": (0, -1),
    "triple": (1, 2, 3),
    "slice": slice(1, None),
    "empty slice": slice(3, 1),
    "step": slice(None, None, 2),
    "backwards": slice(None, None, -1),
    "backwards by two": (slice(None), slice(3, 0, -2)),
    "ellipsis": (..., 1),
    "ellipsis alone": ...,
    "nothing": (),
    "new": (None, slice(None), None),
    "new and integers": (None, 1, None, ..., 2),
    "array": i,
    "array of rank 2": j % 3,
    "array in the middle": (slice(None), i),
    "array at the end": (..., i),
    "two arrays": (i, i),
    "two arrays that broadcast": (j % 3, i),
    "arrays apart": (i, slice(None), i),
    "arrays apart with new": (i, None, i),
    "array and integer": (i, 1),
    "integer and array apart": (0, slice(None), i),
    "integer and array together": (slice(None), 0, i),
    "array and slices": (slice(1, None), i, slice(None, None, 2)),
    "array and backwards": (slice(None, None, -1), i, slice(4, 0, -3)),
    "array out of bounds": np.array([5, -7, 1]),
    "empty array": np.zeros(0, np.int32),
    "array of rank 0": np.array(2),
    "numpy integer": np.int64(1),
    "unsigned": np.array([0, 200], np.uint8),
    "small signed": np.array([-1, 1], np.int8),
    "mask": mask,
    "mask of two": np.arange(12).reshape(3, 4) % 5 == 0,
    "whole mask": np.arange(60).reshape(3, 4, 5) % 7 == 0,
    "mask and slice": (mask, slice(None), 1),
    "mask in the middle": (slice(None), np.array([True, False, True, True])),
    "mask and array": (mask, np.array([0, 1])),
    "true": True,
    "false": False,
    "true and integer": (True, 1),
    "tuple in a tuple": ((0, 1), slice(None)),
}
WRONG = {
    "float": 1.0,
    "string": "a",
    "list": [1, 2],
    "object": object(),
    "float array": np.ones(2, np.float32),
    "too many": (0, 0, 0, 0),
    "two ellipses": (..., ...),
    "wrong mask": np.ones(5, bool),
    "slice of floats": slice(0.5, 2),
}


def convert(index, module):
    if isinstance(index, tuple):
        return tuple(convert(part, module) for part in index)
    return module.asarray(index) if isinstance(index, np.ndarray) else index


def pairs(use):
    """The same use of an index, in fuser and in JAX."""
    return lambda x, index: use(x, convert(index, fnp)), lambda x, index: use(x, convert(index, jnp))


def check(use, x, index):
    first, second = use
    agree(lambda a: first(a, index), lambda a: second(a, index), x)


@pytest.mark.parametrize("name", INDICES)
def test_reading(name):
    check(pairs(lambda x, index: x[index]), X, INDICES[name])


@pytest.mark.parametrize("name", WRONG)
def test_wrong_indices(name):
    check(pairs(lambda x, index: x[index]), X, WRONG[name])
    check(pairs(lambda x, index: x.at[index].set(1.0)), X, WRONG[name])


@pytest.mark.parametrize("name", INDICES)
@pytest.mark.parametrize("method", ["set", "add"])
def test_updates(name, method):
    check(pairs(lambda x, index: getattr(x.at[index], method)(2.5)), X, INDICES[name])


@pytest.mark.parametrize("method", ["set", "add", "multiply", "mul", "divide", "min", "max", "power", "subtract"])
def test_every_update(method):
    values = np.array([3.0, 2.0, 0.5, 1.0, 1.5], np.float32)
    distinct = np.array([0, 2, 1, 4, 3])
    check(pairs(lambda x, index: getattr(x.at[..., index], method)(values)), np.abs(X), distinct)
    if method not in ("set",):
        check(pairs(lambda x, index: getattr(x.at[0, 0, index], method)(values)), np.abs(X), i)


def test_apply():
    check(pairs(lambda x, index: x.at[index].apply(lambda v: v * 2 + 1)), X, (1, slice(None, None, 2)))


@pytest.mark.parametrize("mode", ["fill", "clip", "drop", "promise_in_bounds", None])
def test_modes(mode):
    index = np.array([5, -7, 1, -1])
    check(pairs(lambda x, index: x.at[index].get(mode=mode)), X, index)
    check(pairs(lambda x, index: x.at[:, index].get(mode=mode, fill_value=7)), X, index)
    check(pairs(lambda x, index: x.at[9, ..., index].get(mode=mode)), X, index)
    check(pairs(lambda x, index: x.at[index].set(7.0, mode=mode)), X, index)
    check(pairs(lambda x, index: x.at[index, 1:].add(7.0, mode=mode)), X, index)
    for dtype in (np.int8, np.uint16, np.bool_):
        check(pairs(lambda x, index: x.at[index].get(mode=mode)), X.astype(dtype), index)


@pytest.mark.parametrize("shape", [(), (5,), (4, 5), (1, 5), (3, 4, 1)])
def test_values_broadcast(shape):
    check(
        pairs(lambda x, index: x.at[:, ::-1, index].set(np.arange(np.prod(shape), dtype=np.float32).reshape(shape))),
        X,
        slice(None),
    )
    same_error = np.ones(3, np.float32)
    check(pairs(lambda x, index: x.at[index].set(same_error)), X, (0, slice(None), slice(None)))


@pytest.mark.parametrize("value", [1, 2.5, True, np.float32(2), np.int8(3), 1j, 300])
@pytest.mark.parametrize("dtype", ["int32", "float32", "uint8", "complex64", "float16"])
def test_values_take_the_dtype_of_the_array(value, dtype):
    check(pairs(lambda x, index: x.at[index].set(value)), np.ones((3, 4), dtype), (0, slice(None, 2)))
    check(pairs(lambda x, index: x.at[index].add(value)), np.ones((3, 4), dtype), 1)


def test_repeated_updates_add_up_in_order():
    x = fnp.zeros(3).at[fnp.asarray([1, 1, 1])].add(fnp.asarray([1.0, 2.0, 4.0]))
    assert x.tolist() == [0, 7, 0]
    assert fnp.zeros(3).at[fnp.asarray([1, 1, 1])].set(fnp.asarray([1.0, 2.0, 4.0])).tolist() == [0, 4, 0]


def primitives(function, *avals):
    return [e.primitive.name for e in stage(lambda *args: [function(*args)], avals).eqns]


def test_static_indices_become_slices():
    x = ArrayType((3, 4), F32)
    assert primitives(lambda x: x[1], x) == ["slice", "squeeze"]
    assert primitives(lambda x: x[::2, ::-1], x) == ["slice", "rev"]
    assert primitives(lambda x: x[None], x) == ["broadcast_in_dim"]
    assert primitives(lambda x: x[...], x) == []
    assert primitives(lambda x: x[:, :4], x) == []


def test_traced_scalars_become_dynamic_slices_and_arrays_gathers():
    x, k = ArrayType((3, 4), F32), ArrayType((), I32)
    assert "gather" not in primitives(lambda x, k: x[k], x, k)
    assert "dynamic_slice" in primitives(lambda x, k: x[1:, k], x, k)
    assert primitives(lambda x, k: x[k], x, ArrayType((5,), I32))[-1] == "gather"
    known = fnp.asarray([0, 2])
    assert primitives(lambda x: x[known], x) == ["gather"]


TRACED = {
    "scalar": (lambda x, k: x[k], np.array(1)),
    "negative scalar": (lambda x, k: x[k], np.array(-1)),
    "scalar out of bounds": (lambda x, k: x[1:, k], np.array(17)),
    "scalars and new": (lambda x, k: x[k, None, :, k], np.array(2)),
    "array": (lambda x, k: x[:, k], np.array([0, 3, -1, 9])),
    "arrays apart": (lambda x, k: x[k, ::2, k], np.array([0, 2, -1])),
    "update": (lambda x, k: x.at[k].add(1.0), np.array([0, 2, -1, 7])),
    "slices updated": (lambda x, k: x.at[1:, k, ::-2].set(3.0), np.array([0, 2, -1, 7])),
    "fill": (lambda x, k: x.at[k].get(mode="fill"), np.array([0, 2, -4, 7])),
    "wide": (lambda x, k: x[k], np.array([0, 2, 250], np.uint8)),
}


@pytest.mark.parametrize("name", TRACED)
def test_traced_indices(name):
    """The graph that is staged, evaluated, against JAX's jit."""
    function, index = TRACED[name]
    from agreement import ours

    graph = stage(
        lambda x, k: [function(x, k)], [ArrayType(X.shape, F32), ArrayType(index.shape, fnp.asarray(index).dtype)]
    )
    known = dict(zip(graph.invars, (ours(X), ours(index)))) | dict(zip(graph.constvars, graph.consts))
    from fuser.ir.graph import Literal
    from fuser.trace.core import bind

    for eqn in graph.eqns:
        args = [fnp.asarray(v.val, v.val.dtype) if isinstance(v, Literal) else known[v] for v in eqn.invars]
        known[eqn.outvars[0]] = bind(eqn.primitive, *args, **eqn.params)
    compare(known[graph.outvars[0]], jax.jit(function)(jnp.asarray(X), jnp.asarray(index)))


def test_traced_masks_are_refused():
    with pytest.raises(
        NonConcreteBooleanIndexError, match=r"a traced mask bool\[3\] indexes an array \(test_indexing\.py:\d+\)"
    ):
        stage(lambda x, m: [x[m]], [ArrayType((3,), F32), ArrayType((3,), np.dtype("bool"))])


def test_arrays_cannot_be_written():
    with pytest.raises(TypeError, match=r"fuser arrays are immutable: x\[index\] = value cannot run"):
        fnp.ones(3)[0] = 1


part = st.one_of(
    st.integers(-6, 6),
    st.slices(5),
    st.none(),
    st.lists(st.integers(-5, 4), min_size=1, max_size=1).map(np.array),
    st.lists(st.integers(-5, 4), min_size=3, max_size=3).map(np.array),
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(part, min_size=1, max_size=4))
def test_random_indices_against_numpy(parts):
    """NumPy is the oracle: indices of arrays lie within bounds, others are wrapped."""
    index = tuple(p if not isinstance(p, int) else int(np.clip(p, -5, 4)) for p in parts)
    if sum(p is not None for p in index) > 3:
        return
    x = np.arange(125.0, dtype=np.float32).reshape(5, 5, 5)
    found = fnp.asarray(x)[convert(index, fnp)]
    np.testing.assert_array_equal(np.asarray(found), x[index])
    expected = x.copy()
    expected[index] = -1
    np.testing.assert_array_equal(np.asarray(fnp.asarray(x).at[convert(index, fnp)].set(-1)), expected)


# Choosing by positions.


@pytest.mark.parametrize("mode", [None, "fill", "clip", "wrap"])
def test_take(mode):
    index = np.array([[0, 7, -1], [-9, 2, 1]])
    for axis in (None, 0, 1, -1):
        same("take", X, index, axis=axis, mode=mode)
    same("take", X, 1, axis=1, mode=mode)
    same("take", X.astype(np.int32), index, mode=mode)
    same("take", np.zeros((0, 3), np.float32), np.array([1]), axis=0)
    same("take", np.zeros((2, 3), np.float32), np.array([0.5]), axis=0)


def test_take_along_axis():
    order = np.argsort(X, 1)
    same("take_along_axis", X, order, 1)
    same("take_along_axis", X, order[:, :2], axis=1)
    same("take_along_axis", X, order[:1, :, :1], axis=1)
    same("take_along_axis", X[:, :, :1], order, 1)
    same("take_along_axis", X, np.array([0, -1, 59]), axis=None)
    same("take_along_axis", X, np.full((3, 1, 5), 9), axis=1)
    same("take_along_axis", X, np.full((3, 1, 5), 9), axis=1, mode="clip")
    same("put_along_axis", X, order[:, :1], np.float32(1), 1, inplace=False)


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_repeat(axis):
    x = numbers(np.float32)
    same("repeat", x, 2, axis=axis)
    same("repeat", x[:, :3], np.array([1, 0, 2]), axis=1)
    same("repeat", x[:, :3], np.array([1, 0, 2]), axis=1, total_repeat_length=5)
    same("repeat", x[:, :3], np.array([2, 0, 2]), axis=1, total_repeat_length=3)


def test_select_and_friends():
    x = numbers(np.float32)
    same("select", [x > 1, x > 0], [x, x * 2], 7)
    same("choose", np.array([0, 1, 2, 5]), [np.arange(4), np.ones(4), np.zeros(4)], mode="clip")
    same("choose", np.array([0, 1, 2, 5]), [np.arange(4), np.ones(4), np.zeros(4)], mode="wrap")
    same("compress", np.array([True, False, True]), x, axis=0)
    same("extract", x > 0, x)
    same("unravel_index", np.array([0, 5, 11, 30, -1]), (3, 4))
    same("ravel_multi_index", (np.array([0, 1, 2]), np.array([3, 2, 9])), (3, 4), mode="clip")
    agree(
        lambda a: fnp.piecewise(a, [a < 0, a > 1], [lambda v: -v, 3.0]),
        lambda a: jnp.piecewise(a, [a < 0, a > 1], [lambda v: -v, 3.0]),
        x,
    )


@pytest.mark.parametrize("part", [np.s_[0:1], np.s_[:, 0:1], np.s_[0:1, 0:1]], ids=str)
def test_a_first_row_that_is_written_alone(part) -> None:
    """A window at the start, smaller than the array along a dimension that no index is for, is not spread over it."""
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    expected = x.copy()
    expected[part] = expected[part] * 2 + 1
    np.testing.assert_array_equal(fuser.jit(lambda x: x.at[part].set(x[part] * 2 + 1))(x), expected)
    np.testing.assert_array_equal(fuser.jit(lambda x: x.at[part].add(x[part] + 1))(x), expected)


LISTS = [
    ([0, 2], slice(None)),
    ([0, 2], [1, 1]),
    ([[0, 1], [1, 2]], 0),
    ([True, False, True], slice(None)),
    ([], slice(None)),
    ((0, 2), slice(None)),
    (slice(None), [-1], None),
    ([0.0, 1.0], 0),
    ([slice(0, 1)], 0),
    ("0",),
]


@pytest.mark.parametrize("index", LISTS)
def test_lists_inside_of_an_index(index):
    """A list in a tuple is an index array; a list alone is refused, as NumPy's meanings of it differ."""
    x = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    agree(lambda x: x[index], lambda x: x[index], x)
    agree(lambda x: x.at[index].set(9), lambda x: x.at[index].set(9), x)


def test_a_list_alone_is_no_index():
    x = fnp.arange(4)
    for call in (lambda: x[[0, 1]], lambda: x.at[[0, 1]].set(2), lambda: x.at[[0, 1]].get()):
        with pytest.raises(TypeError, match=r"non-tuple sequence.*use arr\[array\(seq\)\]"):
            call()
    traced = fuser.jit(lambda i: fnp.arange(8).reshape(2, 4)[[i, 1], 0], backend="reference")
    assert traced(0).tolist() == [0, 4]


METHODS = ["get", "set", "add", "multiply", "min", "max", "divide", "power", "subtract", "apply"]


def _updated(x, index, method, **options):
    values = () if method == "get" else ((lambda v: v * 2 + 1),) if method == "apply" else (3,)
    return getattr(x.at[index], method)(*values, **options)


@pytest.mark.parametrize("wrap", [True, False])
@pytest.mark.parametrize("method", METHODS)
def test_negative_indices_that_do_not_wrap(method, wrap):
    """With wrap_negative_indices=False they are out of bounds: dropped, clipped, or filled."""
    x = np.arange(5.0, dtype=np.float32)
    for index in (np.array([-1, 0, 2, -7, 9]), -1, (np.array([3, -2]),)):
        for mode in (None, "drop", "clip", "fill"):
            options = {"mode": mode, "wrap_negative_indices": wrap}
            agree(
                lambda v, i=index, o=options: _updated(v, i, method, **o),
                lambda v, i=index, o=options: _updated(v, i, method, **o),
                x,
            )
    traced = fuser.jit(lambda v, i: _updated(v, i, method, wrap_negative_indices=wrap), backend="reference")
    index = np.array([-1, 3, 3, 9])
    agree(lambda v: traced(v, index), lambda v: _updated(v, jnp.asarray(index), method, wrap_negative_indices=wrap), x)


@pytest.mark.parametrize("dtype", ["i4", "u1", "f2", "f4", "c8", "bool"])
def test_updates_that_promote(dtype):
    """divide and power give what x / y and x ** y give; the others keep the dtype of x."""
    x, index = np.array([1, 2, 3], dtype), np.array([0, 0, 1])
    for method in ("divide", "power", "multiply", "add"):
        for value in (2, 2.5, np.float32(2), np.array([2, 3, 1], "i4")):
            agree(
                lambda v, m=method, u=value: getattr(v.at[index], m)(u),
                lambda v, m=method, u=value: getattr(v.at[index], m)(u),
                x,
            )


def test_apply_as_often_as_an_element_is_named():
    """The function takes single elements, for each time that an element is named; known indices leave it differentiable."""
    x = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    double = lambda v: v * 2 + 1
    for index in (
        np.array([0, 0, 1]),
        (np.array([1, 1, 1]), np.array([2, 2, 0])),
        (slice(None), np.array([1, 1])),
        0,
        (0, -1),
    ):
        agree(lambda v, i=index: v.at[i].apply(double), lambda v, i=index: v.at[i].apply(double), x)
    apply = lambda v, i: v.at[i].apply(lambda e: fnp.where(e > 3, 0, e + 2))
    theirs = lambda v, i: v.at[i].apply(lambda e: jnp.where(e > 3, 0, e + 2))
    index = np.array([1, 1, 0, 1])
    agree(lambda v: fuser.jit(apply)(v, index), lambda v: theirs(v, jnp.asarray(index)), x)
    gradient = fuser.grad(lambda v: v.at[np.array([0, 0])].apply(fnp.square).sum())(fnp.array([3.0, 5.0]))
    assert gradient.tolist() == [4 * 27.0, 1.0]
    with pytest.raises(TypeError, match="one element at a time"):
        fnp.ones(2).at[0].apply(lambda v: v * fnp.ones(2))


def test_unknown_options_of_updates_are_errors():
    for call in (lambda r: r.get(fill=1), lambda r: r.set(1, modes="clip"), lambda r: r.apply(abs, fill_value=1)):
        with pytest.raises(TypeError):
            call(fnp.ones(2).at[0])


def test_an_empty_array_indexed_by_nothing():
    agree(lambda x: x[np.zeros(0, int)], lambda x: x[jnp.zeros(0, int)], np.zeros(0, np.float32))
    agree(lambda x: x[np.zeros((0, 2), int), :1], lambda x: x[jnp.zeros((0, 2), int), :1], np.zeros((0, 3), np.float32))
