"""What rules about stacks of matrices say often: parts, adjoints and identities, made of primitives.

All work on arrays and tracers whose last two dimensions are rows and columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser.errors import TypeRuleError
from fuser.ir.types import COMPLEX, FLOATS, ArrayType
from fuser.ops.dot import Precision, dot_general_p
from fuser.ops.elementwise import convert_element_type_p, eq_p, ge_p, select_n_p
from fuser.ops.family import allow, constant
from fuser.ops.movement import iota_p, transpose_p

# What LAPACK takes.
DTYPES = (FLOATS[2], FLOATS[3], *COMPLEX)


def check_matrices(name: str, a: ArrayType, square: bool = False) -> None:
    """TypeRuleError unless `a` is a stack of matrices, square ones if wanted, of a dtype that LAPACK takes."""
    allow(name, a, DTYPES)
    if a.ndim < 2 or (square and a.shape[-1] != a.shape[-2]):
        raise TypeRuleError(f"{name} takes {'square ' if square else ''}matrices, got {a}")


def transposed(x: Any) -> Any:
    """Rows as columns."""
    *lead, row, column = range(x.ndim)
    return transpose_p.bind(x, permutation=(*lead, column, row))


def adjoint(x: Any) -> Any:
    """The conjugate transpose."""
    return transposed(x).conj()


def product(x: Any, y: Any) -> Any:
    """The products of two stacks of matrices of one dtype, as exact as there are: what derivatives are made of."""
    lead = tuple(range(x.ndim - 2))
    numbers = (((x.ndim - 1,), (y.ndim - 2,)), (lead, lead))
    return dot_general_p.bind(x, y, dimension_numbers=numbers, precision=Precision.HIGHEST, preferred_element_type=None)


def position_of(shape: tuple[int, ...], from_end: int) -> Any:
    return iota_p.bind(dtype=np.dtype("int32"), shape=shape, dimension=len(shape) - from_end)


def lower_part(x: Any, k: int = 0) -> Any:
    """`x` with zeros above its k-th diagonal."""
    kept = ge_p.bind(position_of(x.shape, 2) + k, position_of(x.shape, 1))
    return select_n_p.bind(kept, constant(0, x), x)


def upper_part(x: Any, k: int = 0) -> Any:
    """`x` with zeros below its k-th diagonal."""
    dropped = ge_p.bind(position_of(x.shape, 2) + (k - 1), position_of(x.shape, 1))
    return select_n_p.bind(dropped, x, constant(0, x))


def eye(n: int, dtype: np.dtype) -> Any:
    """The (n, n) identity matrix."""
    ones = eq_p.bind(position_of((n, n), 2), position_of((n, n), 1))
    return convert_element_type_p.bind(ones, new_dtype=dtype, weak_type=False)


def diagonal(x: Any) -> Any:
    """The diagonals of matrices."""
    return x.diagonal(axis1=-2, axis2=-1)
