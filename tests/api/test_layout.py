"""Layouts in memory by jax.experimental.layout's names: arrays are row-major, whatever is left to the compiler."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax.experimental import layout as jax_layout

import fuser
from fuser.errors import UnsupportedError
from fuser.experimental.layout import Format, Layout

X = np.ones((3, 4), np.float32)


def test_formats_of_arrays_and_programs_are_those_of_jax() -> None:
    def orders(m, form, order):
        x = m.numpy.asarray(X)
        free = form(order.AUTO)
        program = m.jit(lambda x: {"a": x[0], "b": x}, in_shardings=free, out_shardings=free).lower(X).compile()
        formats = (x.format, program.input_formats, program.output_formats)
        return [leaf.layout.major_to_minor for leaf in m.tree.leaves(formats, is_leaf=lambda v: isinstance(v, form))]

    assert orders(fuser, Format, Layout) == orders(jax, jax_layout.Format, jax_layout.Layout)


def test_arrays_are_put_and_taken_in_a_format() -> None:
    x = fuser.numpy.asarray(X)
    put = fuser.device_put(x, x.format)
    found = fuser.jit(lambda x: x + 1, in_shardings=x.format, out_shardings=Format(Layout((0, 1))))(put)
    assert found.format == x.format and found.tolist() == (X + 1).tolist()
    with pytest.raises(UnsupportedError, match="row-major"):
        Layout((1, 0))
