"""What the weights of attention have as factors of their row alone."""

from __future__ import annotations

import numpy as np

from fuser.ir.index import Affine, Axis
from fuser.ir.scalar import Scalar
from fuser.kernel.attention import factored
from fuser.kernel.kernel import Access

F32 = np.dtype("float32")


def weight(axis: Axis) -> Scalar:
    return Scalar("load", (), F32, Access(0, Affine.of(axis)))


def test_a_product_is_looked_through_once_however_often_it_is_squared() -> None:
    keys = Axis(8)
    product = weight(keys)
    for _ in range(100):
        product = Scalar("mul", (product, product), F32)
    assert factored(product, keys) == (product, ())


def test_a_factor_of_the_row_is_taken_out_of_either_operand() -> None:
    row, keys = Axis(4), Axis(8)
    number, other, scale = weight(keys), weight(keys), weight(row)
    scaled = Scalar("mul", (scale, number), F32)
    inner, outer = factored(Scalar("mul", (other, scaled), F32), keys)
    assert (inner.op, inner.args, outer) == ("mul", (other, number), ((scaled, 1),))
