"""Arguments at the edge of what functions take, beside JAX: infinities, complex numbers, no elements, scalars of odd types."""

from __future__ import annotations

import operator
from typing import Any

import jax
import jax.scipy.special
import jax.scipy.stats
import numpy as np
import pytest
from agreement import agree

import fuser
import fuser.scipy.special
import fuser.scipy.stats

COMPLEX = np.array([0, 1 + 2j, -0.5j, 3], np.complex64)
CASES: list[tuple[str, tuple[Any, ...]]] = [
    ("scipy.special.log_ndtr", (np.float32([-np.inf, -50, 0, np.inf, np.nan]),)),
    ("scipy.special.xlogy", (COMPLEX, COMPLEX)),
    ("scipy.special.xlogy", (np.float32([0, 1, 2, 3]), COMPLEX)),
    ("scipy.special.xlog1py", (COMPLEX, np.float32([0, 1, 2, 3]))),
    ("scipy.stats.norm.logsf", (np.float32([1, 2, -1]), 0, np.float32([0, 1, 0]))),
    ("scipy.stats.gamma.sf", (np.float32([-1, 0, 2]), np.float32([0, 2, 2]))),
    ("scipy.stats.gamma.logsf", (np.float32([-1, 0, 2]), np.float32([-1, 2, 2]), 0.5, 2)),
    ("scipy.stats.bernoulli.logpmf", (np.float32([-0.5, 0, 0.25, 1, 1.5]), np.float32(0.3))),
    *((f"numpy.fft.{f}", (np.zeros(shape, np.float32),)) for f in ("irfft", "hfft", "rfft2", "irfft2", "rfftn", "irfftn", "fft2") for shape in ((0, 3), (2, 0, 3), (3, 1))),
    *((f"nn.{f}", (x,)) for f in ("gelu", "mish", "soft_sign") for x in (True, 2, 1.5, np.array([True, False]))),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments"), CASES, ids=[n for n, _ in CASES])
def test_odd_arguments(name: str, arguments: tuple[Any, ...]) -> None:
    find = operator.attrgetter(name)
    agree(find(fuser), find(jax), *arguments)


def test_choice_among_a_number_of_things_that_is_no_integer() -> None:
    for number in (5.0, np.float32(5.5), np.array(7)):
        found = fuser.random.choice(fuser.random.key(0), number, (4,))
        np.testing.assert_array_equal(np.asarray(found), np.asarray(jax.random.choice(jax.random.key(0), number, (4,))))
