"""Names of jax.lax that are compositions or settings, against JAX."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from agreement import agree, numbers
from differential import Row, check, check_compiled, check_derivatives, row

import fuser
from fuser import lax
from fuser.errors import UnsupportedError

X = numbers(np.float32, (4, 5))
BIG = np.array([2**31 - 1, -(2**31), 12345678, -7, 0], np.int32)
NUMBERS = {"update_window_dims": (), "inserted_window_dims": (0,), "scatter_dims_to_operand_dims": (0,)}

ROWS: list[Row] = [
    row("lax.mulhi", BIG, BIG[::-1].copy()), row("lax.mulhi", BIG.astype(np.uint32), np.uint32(4000000000)), *(row("lax.mulhi", numbers(k, (9,), 1, -100, 100), numbers(k, (9,), 2, -100, 100)) for k in ("int8", "uint8", "int16", "uint16")), row("lax.mulhi", X, X, compiled=False), row("lax.mulhi", BIG, BIG.astype(np.int8), compiled=False),
    row("lax.broadcast_like", X[0], X, grad=0), row("lax.broadcast_like", X, X[0], compiled=False), row("lax.unstack", X, 1, grad=0), row("lax.unstack", np.float32(1), compiled=False), row("lax.stage", X),
    row("lax.approx_max_k", X, 2, grad=0), row("lax.approx_min_k", X, 2, reduction_dimension=0), row("lax.approx_max_k", BIG, 2, compiled=False),
    row("lax.ragged_dot", X, numbers(np.float32, (3, 5, 2)), np.array([1, 2, 0], np.int32), grad=(0, 1), tolerance=4), row("lax.ragged_dot", X, X, np.array([1], np.int32), compiled=False),
    *(row("lax.padtype_to_pads", (5, 4, 0), (2, 3, 2), (2, 1, 1), word, compiled=False) for word in ("SAME", "VALID", "SAME_LOWER", "HALF")),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(ROWS)), ids=lambda n: f"{n}-{ROWS[n]}")
def test_function(number: int) -> None:
    check(ROWS[number])


def test_derivatives_and_compiled() -> None:
    check_derivatives(ROWS)
    check_compiled(ROWS)


def test_functions_of_several_arrays() -> None:
    for axis in (0, 1, -1, 3):
        agree(lambda *a, d=axis: lax.stack(a, d), lambda *a, d=axis: jax.lax.stack(a, d), X, X)
    for arrays in ([X, X[:2]],):
        agree(lambda *a: lax.stack(a), lambda *a: jax.lax.stack(a), *arrays)
    indices, updates = np.array([[1], [3], [1]], np.int32), np.ones((3, 5), np.float32)
    make = lambda m: m.ScatterDimensionNumbers((1,), (0,), (0,))
    agree(
        lambda x: lax.scatter_sub(x, indices, updates, make(lax)),
        lambda x: jax.lax.scatter_sub(x, indices, updates, make(jax.lax)),
        X,
    )


@pytest.mark.parametrize("library", [lax, jax.lax], ids=["fuser", "jax"])
def test_settings_and_choices(library: Any) -> None:
    precision = library.Precision
    assert [precision(v) for v in (None, "high", "float32", "fastest", 1)] == [
        precision.DEFAULT,
        precision.HIGH,
        precision.HIGHEST,
        precision.DEFAULT,
        precision.HIGH,
    ]
    assert (repr(precision.HIGH), str(precision.HIGH)) == ("Precision.HIGH", "HIGH")
    assert list(library.RandomAlgorithm) == [0, 1, 2] and library.AccuracyMode.HIGHEST.value == 1
    assert "F32_F32_F32" in library.DotAlgorithmPreset.__members__
    for wrong in ({"atol": -1.0}, {}):
        with pytest.raises(ValueError):
            library.Tolerance(**wrong)
    assert library.Tolerance(rtol=0.1).rtol == 0.1
    assert float(library.platform_dependent(1.0, cpu=lambda x: x + 1, default=lambda x: x)) == 2.0
    assert float(library.platform_dependent(1.0, tpu=lambda x: x + 1, default=lambda x: x)) == 1.0
    assert float(library.composite(lambda x, by: x + by, "my.add")(2.0, by=1.0)) == 3.0
    assert library.shape_as_value((2, 3)).tolist() == [2, 3]
    assert library.ConvDimensionNumbers((0,), (1,), (2,)).rhs_spec == (1,)
    assert library.DotAlgorithm(np.float32, np.float32, np.float32).num_primitive_operations == 1


def test_what_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="takes no group_offset"):
        lax.ragged_dot(X, X[None].swapaxes(1, 2), np.array([4]), group_offset=np.array([1]))
    with pytest.raises(UnsupportedError, match="in order"):
        fuser.lax.approx_max_k(X, 2, aggregate_to_topk=False)


def test_dce_sink():
    """What only a sink uses is computed: its equation stays, under vmap, jvp and transposition too."""
    names = lambda f: [str(e.primitive) for e in fuser.jit(f).lower(np.float32([1, 2])).graph.eqns]

    def sunk(x):
        fuser.lax.dce_sink({"a": fuser.numpy.exp(x)})
        return 2 * x

    assert names(sunk) == ["exp", "dce_sink", "mul"] and names(fuser.vmap(sunk)) == ["exp", "dce_sink", "mul"]
    assert "dce_sink" in names(lambda x: fuser.jvp(sunk, (x,), (x,))[1])
    np.testing.assert_array_equal(fuser.jit(sunk)(np.float32([1, 2])), [2, 4])
    assert fuser.grad(lambda x: sunk(x).sum())(np.float32([1, 2])).tolist() == [2, 2]
    assert sunk(3.0) == 6
