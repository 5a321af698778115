"""Running folds along one axis: cumsum, cumprod, cummax, cummin, cumlogsumexp; forwards or from the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fuser.errors import TypeRuleError
from fuser.ir.primitive import Fusion, Primitive, register
from fuser.ir.scalar import convert
from fuser.ir.types import COMPLEX, FLOATS, INTEGERS, ArrayType, bfloat16
from fuser.ops.family import allow, sample


def cumulative(name: str, fold: str, function: Any, dtypes: tuple[np.dtype, ...], linear: bool = False) -> Primitive:
    """A primitive that gives every partial result of a fold along `axis`."""

    def infer(x: ArrayType, axis: int, reverse: bool = False) -> ArrayType:
        allow(name, x, dtypes)
        if not 0 <= axis < x.ndim:
            raise TypeRuleError(f"{name} of {x} has no axis {axis}")
        return x

    def evaluate(x: np.ndarray, axis: int, reverse: bool = False) -> np.ndarray:
        wide = x.astype(np.float32) if x.dtype in (FLOATS[0], bfloat16) else x
        wide = np.flip(wide, axis) if reverse else wide
        out = function.accumulate(wide, axis=axis, dtype=wide.dtype)
        return convert(np.flip(out, axis) if reverse else out, x.dtype)

    def samples() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
        rng = np.random.default_rng(0)
        for dtype in dtypes:
            for shape, axis in (((9,), 0), ((4, 5), 1), ((4, 5), 0), ((2, 3, 4), 1)):
                yield (sample(rng, shape, dtype),), {"axis": axis, "reverse": axis == 1}

    return register(
        Primitive(
            name,
            Fusion.SCAN,
            linear=linear,
            type=infer,
            eval=evaluate,
            lower=lambda axis, reverse=False: (fold, axis, reverse),
            samples=samples,
        )
    )


NUMBERS = (*INTEGERS, *FLOATS, *COMPLEX)
cumsum_p = cumulative("cumsum", "sum", np.add, NUMBERS, linear=True)
cumprod_p = cumulative("cumprod", "prod", np.multiply, NUMBERS)
cummax_p = cumulative("cummax", "max", np.maximum, (*INTEGERS, *FLOATS))
cummin_p = cumulative("cummin", "min", np.minimum, (*INTEGERS, *FLOATS))
cumlogsumexp_p = cumulative("cumlogsumexp", "logaddexp", np.logaddexp, FLOATS)
