"""Threads of C kernels: none for small work, as many as are allowed for large, and the same results with any number."""

from __future__ import annotations

import re

import numpy as np
import pytest

import fuser
import fuser.numpy as jnp
from fuser import config, lax
from fuser.backends.c.target import TARGET
from fuser.kernel.cost import iteration, most_alone


def most(function, *arguments) -> int:
    """The number of iterations up to which the only kernel of a function stays on one thread, by its text."""
    (source,) = fuser.jit(function).lower(*arguments).sources
    (most,) = re.findall(r"shares = team_for\(.*, (\d+), ", source.text)
    return int(most)


def test_a_second_thread_comes_sooner_for_dearer_work():
    x = np.ones(100, np.float32)
    plain, dear, dearest = most(lambda x: x + 1, x), most(jnp.tan, x), most(lambda x: jnp.tan(jnp.exp(x)), x)
    assert plain > dear > dearest
    narrow = most(lambda x: x + 1, np.ones(100, np.int8))
    assert narrow > plain


@pytest.mark.parametrize(
    "function", [jnp.exp, jnp.sin, lambda x: x * 2, lambda x: jnp.cumsum(jnp.arctan2(x, x + 1), 1)]
)
def test_a_thousand_elements_wake_no_thread(function):
    assert most(function, np.ones((2, 500), np.float32)) >= 1000


def test_the_limit_is_the_estimate_of_one_threads_time():
    assert iteration([], [], TARGET) == 0
    least = 1 / TARGET.operations  # what an iteration counts as that does nothing
    assert TARGET.alone / 2 < most_alone([], [], TARGET) * least < TARGET.alone * 2


def test_kernels_without_loops_have_no_team():
    (source,) = fuser.jit(lambda x: x + 1).lower(np.float32(1)).sources
    assert "omp" not in source.text


def test_kernels_of_small_bodies_have_no_team():
    x = np.ones(10, np.float32)
    step = lambda i, c: jnp.flip(c @ jnp.outer(c, c))
    (source,) = fuser.jit(lambda x: lax.fori_loop(0, 100, step, x)).lower(x).sources
    assert "omp for" not in source.text and "omp parallel" not in source.text


@pytest.fixture
def threads():
    before = config.threads
    yield lambda count: config.update("threads", count)
    config.update("threads", before)


PROGRAMS = {
    "elementwise": lambda x: jnp.exp(x) * 2,
    "few long rows outside": lambda x: x.reshape(4, -1) * 2 + jnp.arange(4)[:, None],
    "rows": lambda x: jnp.exp(x - x.max(1, keepdims=True)),
    "columns": lambda x: x / x.sum(0),
    "few columns": lambda x: x.reshape(-1, 10).sum(0),
    "one sum": lambda x: x.sum(),
    "variance": lambda x: x.var(),
    "argmax": lambda x: (x.argmax(0), x.argmax(1), x.argmax()),
    "transposed": lambda x: x.T + x.reshape(x.shape[::-1]),
    "scan": lambda x: jnp.cumsum(x, 1),
    "loop": lambda x: lax.fori_loop(0, 30, lambda i, c: c * 0.9 + jnp.sin(c), x),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_do_not_depend_on_the_number_of_threads(name, threads):
    x = np.random.default_rng(0).standard_normal((500, 720)).astype(np.float32)
    run = fuser.jit(PROGRAMS[name])
    results = []
    for count in (1, 2, 3, 7):
        threads(count)
        results.append([np.asarray(r).tobytes() for r in fuser.tree.leaves(run(x))])
    assert results[0] == results[1] == results[2] == results[3]


PLANES = {
    "a part written": lambda x: x.at[:, 1:-1, 1:-1].set(jnp.sin(x[:, 2:, 1:-1]) - x[:, :-2, 1:-1]),
    "a sum": lambda x: (x[:, 1:-1, 1:-1] * 2).sum(),
    "a test of all": lambda x: jnp.isfinite(jnp.exp(x)[:, 1:-1, 1:-1]).all(),
}


@pytest.mark.parametrize("name", PLANES)
def test_threads_share_the_rows_of_few_planes(name, threads):
    x = np.random.default_rng(0).random((3, 300, 200)).astype(np.float32)
    (source,) = fuser.jit(PLANES[name]).lower(x).sources
    loops = re.findall(r"(omp for|spread = \(s\d+|for \(\w+ [ijk] )", source.text)
    if "omp for" in loops:
        assert loops[:2] == ["for (int64_t i ", "omp for"]  # the planes are around what is shared
    else:
        chunked = int(re.search(r"spread = \(s(\d+)", source.text)[1])
        assert source.launch["sizes"][chunked] == 298
    run, results = fuser.jit(PLANES[name]), []
    for count in (1, 2, 7):
        threads(count)
        results.append(np.asarray(run(x)).tobytes())
    assert results[0] == results[1] == results[2]
