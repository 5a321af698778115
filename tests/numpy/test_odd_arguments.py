"""Arguments that few pass: integers where floats are meant, nothing at all, axes left empty; against JAX."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from agreement import numbers
from differential import Row, check, row

import fuser
import fuser.numpy as fnp

X = numbers(np.float32, (3, 4))
WHOLE = numbers(np.int8, (3, 4), 1, -9, 9)
ACTIVATIONS = (
    "relu",
    "relu6",
    "sparse_plus",
    "elu",
    "selu",
    "leaky_relu",
    "hard_sigmoid",
    "hard_silu",
    "hard_tanh",
    "celu",
)

ROWS: list[Row] = [
    *(row(f"nn.{name}", WHOLE) for name in ACTIVATIONS),
    row("numpy.linalg.outer", X[0], X[1]), row("numpy.linalg.outer", X, X[1]), row("numpy.linalg.outer", 1.0, X[1]),
    row("numpy.fft.fftn", X[0, 0]), row("numpy.fft.ifftn", X, axes=()), row("numpy.fft.rfftn", X, axes=()),
    row("numpy.fft.fftfreq", 4, np.float32(0.5), dtype="bfloat16"), row("numpy.fft.rfftfreq", 5, X[0, 0], dtype="bfloat16"),
    row("numpy.fft.fftfreq", 4, dtype="int32"),
    row("numpy.trapezoid", X[:0], x=X[:0], axis=0), row("numpy.isin", WHOLE, WHOLE[0], method="midpoint"),
    *(row("numpy.isin", WHOLE, WHOLE[0], invert=invert, method=m) for invert in (False, True) for m in ("sort", "binary_search")),
    row("numpy.isin", np.float32([np.nan, -0.0, 2, np.inf]), np.float32([0, np.nan, np.inf, *range(3, 300)]), method="binary_search"),
    row("scipy.signal.detrend", X[:, :1]), row("scipy.signal.welch", X[:0]),
    row("numpy.vecdot", X, X[:, :1]), row("numpy.matvec", X[0], X[1]), row("numpy.vecmat", X[0], X[1]), row("numpy.vander", X[0, :0]),
    row("numpy.digitize", X, X[0], method="nearest"), row("numpy.searchsorted", X[0], X, method="nearest"),
    *(row(f"scipy.special.{name}", [1.0, 2.0]) for name in ("ndtr", "log_ndtr", "spence")), row("numpy.fft.ihfft", [1.0, 2.0]),
    row("scipy.special.expn", 2, [1.0, 2.0]), row("scipy.special.hyp1f1", 2.0, 1.5, [1.0, 2.0]),
    row("scipy.fft.dctn", X, axes=-1), row("scipy.fft.idctn", X, axes=0), row("lax.top_k", WHOLE > 0, 2),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(ROWS)), ids=lambda n: f"{n}-{ROWS[n]}")
def test_function(number: int) -> None:
    check(ROWS[number])


def test_membership_among_many_takes_no_memory_of_all_pairs() -> None:
    """2·10⁵ × 10⁵ pairs would be 20 GB."""
    x, tests = numbers(np.int32, (200_000,), 1, 0, 10**6), numbers(np.int32, (100_000,), 2, 0, 10**6)
    for found in (fnp.isin(x, tests), fuser.jit(fnp.isin)(x, tests)):
        np.testing.assert_array_equal(found, np.isin(x, tests))
    assert jnp.isin(x[:100], tests).tolist() == np.isin(x[:100], tests).tolist()


def test_bools_that_several_operands_give_are_strong() -> None:
    """A comparison of weak numbers is weak, in JAX too; what is made of two such, or reduced, is not."""
    for library in (jnp, fnp):
        x = library.asarray(1.0)
        made = [
            (x == 1) & (x == 2),
            (x == 1) ^ True,
            library.where(x == 1, x == 1, x == 2),
            library.isclose(x, 1),
            library.any(x),
        ]
        assert [m.weak_type for m in (x == 1, ~(x == 1), *made)] == [True, True, *[False] * len(made)]


def test_where_with_one_of_both_is_a_type_error() -> None:
    for library in (jnp, fnp):
        with pytest.raises(TypeError):
            library.where(library.ones(3) > 0, library.ones(3))
