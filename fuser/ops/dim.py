"""`dimension_as_value`: a symbolic extent as an integer, known once the program has its sizes."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser.ir.dim import Dim, as_array
from fuser.ir.primitive import Fusion, Primitive, register
from fuser.ir.types import ArrayType
from fuser.trace.core import bind

_TYPE = ArrayType((), np.dtype("int32"), True)


def _known(dim: Any) -> int:
    if isinstance(dim, Dim):
        raise ValueError(
            f"the symbolic dimension '{dim}' has no size yet; export the function, and call it with arrays"
        )
    return int(dim)


dimension_as_value_p: Primitive = register(
    Primitive(
        "dimension_as_value",
        Fusion.LIBRARY,
        type=lambda dim: _TYPE,
        eval=lambda dim: np.int32(_known(dim)),
        batch=lambda operands, dims, dim: (bind(dimension_as_value_p, dim=dim), None),
    )
)
as_array.append(lambda dim: bind(dimension_as_value_p, dim=dim))
