"""The lower rules of gather, dynamic_slice and dynamic_update_slice: element by element, they read what eval gives."""

from __future__ import annotations

import numpy as np
import pytest

from fuser.ir.index import Affine, Computed
from fuser.ir.scalar import VOCABULARY, Scalar, convert
from fuser.ir.types import ArrayType
from fuser.ops import dynamic, indexing, scatter, sorting

MOVEMENT = [dynamic.dynamic_slice_p, dynamic.dynamic_update_slice_p, indexing.gather_p]
LIBRARY = [
    scatter.scatter_p,
    scatter.scatter_add_p,
    scatter.scatter_mul_p,
    scatter.scatter_min_p,
    scatter.scatter_max_p,
    sorting.sort_p,
    sorting.top_k_p,
]


class Interpreter:
    """Evaluates one scalar expression at constant indices, reading the operands; an index out of bounds fails."""

    def __init__(self, arrays):
        self.arrays = [np.asarray(a) for a in arrays]

    def read(self, number, index, mask=None):
        return Scalar("load", (), self.arrays[number].dtype, (number, index, mask))

    def position(self, index):
        total = index.offset
        for atom, coefficient in index.terms:
            assert isinstance(atom, Computed)
            value = int(self.value(atom.value))
            assert atom.bounds[0] <= value <= atom.bounds[1]
            total += coefficient * value
        return total

    def value(self, node):
        if node.op == "const":
            return np.asarray(node.attr, node.dtype)
        if node.op == "index":
            return np.asarray(self.position(node.attr), node.dtype)
        if node.op == "load":
            number, index, mask = node.attr
            if mask is not None and not self.value(mask):
                return np.zeros((), node.dtype)
            place = tuple(self.position(i) for i in index)
            assert all(0 <= p < e for p, e in zip(place, self.arrays[number].shape)), (place, self.arrays[number].shape)
            return self.arrays[number][place]
        args = [np.asarray(self.value(a)) for a in node.args]
        return (
            convert(args[0], node.dtype)
            if node.op == "cast"
            else np.asarray(VOCABULARY[node.op].numpy(*args)).astype(node.dtype)
        )


def cases(primitives):
    return [pytest.param(p, *sample, id=f"{p.name}-{n}") for p in primitives for n, sample in enumerate(p.samples())]


def avals_of(arrays):
    return [ArrayType(np.shape(a), np.asarray(a).dtype) for a in arrays]


@pytest.mark.parametrize("primitive, arrays, params", cases(MOVEMENT))
def test_lower_reads_what_eval_gives(primitive, arrays, params):
    avals = avals_of(arrays)
    expected = primitive.eval(*map(np.asarray, arrays), **params)
    aval = primitive.type(*avals, **params)
    assert (aval.shape, aval.dtype) == (expected.shape, expected.dtype)
    interpreter = Interpreter(arrays)
    for place in np.ndindex(*aval.shape):
        element = primitive.lower(interpreter.read, tuple(Affine.of(p) for p in place), *avals, **params)
        assert element.dtype == aval.dtype
        wide = np.complex128 if aval.dtype.kind == "c" else np.float64
        np.testing.assert_array_equal(np.asarray(interpreter.value(element)).astype(wide), expected[place].astype(wide))


@pytest.mark.parametrize("primitive, arrays, params", cases(LIBRARY))
def test_types_agree_with_eval(primitive, arrays, params):
    found = primitive.eval(*map(np.asarray, arrays), **params)
    expected = primitive.type(*avals_of(arrays), **params)
    pairs = zip(found, expected) if primitive.multiple_results else [(found, expected)]
    for array, aval in pairs:
        assert (array.shape, array.dtype) == (aval.shape, aval.dtype)
