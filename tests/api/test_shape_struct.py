"""ShapeDtypeStruct: as JAX's in text, length, equality and errors; taken by eval_shape and lower, given by eval_shape."""

from __future__ import annotations

import pickle

import jax
import numpy as np
import pytest

import fuser
from fuser.ir.types import ArrayType


def test_like_jax():
    for shape in ((2, 3), (1,), ()):
        ours, theirs = (m.ShapeDtypeStruct(shape, np.float32) for m in (fuser, jax))
        assert str(ours) == str(theirs) and ours.shape == theirs.shape and ours.ndim == len(shape)
        assert ours == fuser.ShapeDtypeStruct(shape, "float32") == pickle.loads(pickle.dumps(ours))
        assert hash(ours) == hash(fuser.ShapeDtypeStruct(shape, "float32"))
        assert ours == ArrayType(shape, np.dtype("float32")) and ours != fuser.ShapeDtypeStruct(shape, "int32")
    assert len(fuser.ShapeDtypeStruct((4, 2), "int32")) == 4
    with pytest.raises(TypeError, match="unsized object"):
        len(fuser.ShapeDtypeStruct((), "int32"))
    with pytest.raises(ValueError, match="dtype must be specified"):
        fuser.ShapeDtypeStruct((), None)
    assert fuser.ShapeDtypeStruct.like(fuser.numpy.ones((2, 3))).shape == (2, 3)


def test_in_and_out_of_eval_shape():
    spec = fuser.ShapeDtypeStruct((2, 3), "float32")
    found = fuser.eval_shape(lambda x: {"a": x.sum(0), "b": 2.0}, spec)
    assert found["a"] == fuser.ShapeDtypeStruct((3,), "float32") and found["b"].weak_type
    assert isinstance(found["a"], fuser.ShapeDtypeStruct) and fuser.jit(lambda x: x).lower(spec).in_avals[0][0] == spec
