"""Operators with Python's containers, and functions of arrays without elements, as JAX has them."""

import copy
import io
import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fuser
from fuser import numpy as fnp

BINARY = (operator.add, operator.mul, operator.sub, operator.eq, operator.lt, operator.lshift, divmod)


def _error(operation, left, right):
    with pytest.raises(TypeError) as caught:
        operation(left, right)
    return str(caught.value)


@pytest.mark.parametrize("container", [list, tuple, set, dict])
@pytest.mark.parametrize("operation", BINARY, ids=lambda f: f.__name__)
def test_operators_refuse_containers(operation, container):
    other = container([(1, 2), (2, 3)])
    for array, same in ((jnp.ones((2, 2)), fnp.ones((2, 2))), (jnp.arange(3), fnp.arange(3))):
        for left, right in ((array, other), (other, array)):
            wanted = _error(operation, left, right).replace("jaxlib._jax.", "").replace("ArrayImpl", "Array")
            mine = (same, other) if left is array else (other, same)
            assert _error(operation, *mine).startswith(wanted)


def test_unequal_to_a_container_is_refused():  # where JAX names the other comparison
    with pytest.raises(TypeError, match=r"for !=: 'Array' and 'list'"):
        operator.ne(fnp.arange(2), [0, 1])


def test_operators_refuse_containers_in_a_trace():
    with pytest.raises(TypeError, match=r"unsupported operand type\(s\) for \*"):
        fuser.jit(lambda x: [1, 2] * x)(fnp.arange(2))


def test_a_traced_array_is_copied():
    x = fnp.arange(3)
    for function in (copy.copy, copy.deepcopy):
        np.testing.assert_array_equal(fuser.jit(function)(x), x)


@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (2, 0, 3), (2, 3, 0), (0, 3, 3)])
def test_factors_of_matrices_without_elements(shape):
    a = np.zeros(shape, np.float32)
    for name, options in (("svd", {}), ("svd", {"full_matrices": False}), ("qr", {"mode": "complete"}), ("qr", {})):
        wanted = getattr(jnp.linalg, name)(a, **options)
        for found in (
            getattr(fnp.linalg, name)(a, **options),
            fuser.jit(lambda x, name=name, options=options: getattr(fnp.linalg, name)(x, **options))(a),
        ):
            for part, other in zip(found, wanted, strict=True):
                np.testing.assert_array_equal(part, other, strict=True)


def test_lu_of_a_matrix_without_columns_has_the_identical_permutation():
    a = np.zeros((3, 0), np.float32)
    for part, other in zip(fuser.scipy.linalg.lu(a), jax.scipy.linalg.lu(a), strict=True):
        np.testing.assert_array_equal(part, other)


def test_condition_of_no_matrices():
    assert fnp.linalg.cond(np.zeros((0, 3, 3), np.float32)).shape == (0,)
    with pytest.raises(ValueError, match="must not be empty"):
        fnp.linalg.cond(np.zeros((2, 0, 0), np.float32))


def test_differences_of_order_zero_are_the_array_itself():
    x = np.arange(4, dtype=np.int8)
    found = fnp.diff(x, n=0, prepend=np.zeros(5, np.int8), append=1)
    np.testing.assert_array_equal(found, jnp.diff(x, n=0, prepend=np.zeros(5, np.int8), append=1))


def test_load_of_an_array_of_objects():
    stored = np.array([{"a": 1}, None], dtype=object)
    with io.BytesIO() as file:
        np.save(file, stored)
        file.seek(0)
        found = fnp.load(file, allow_pickle=True)
    assert isinstance(found, np.ndarray)
    assert found.tolist() == stored.tolist()


def test_positions_out_of_range_are_told_in_numpys_words():
    with pytest.raises(ValueError, match="invalid entry in coordinates array"):
        fnp.ravel_multi_index((fnp.array([0, 3]), fnp.array([1, 1])), (3, 4))
