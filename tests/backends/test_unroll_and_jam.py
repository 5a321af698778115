"""Long chains of cheap operations: which kernels interleave several vectors, and that they compute what NumPy does, to the bit."""

from __future__ import annotations

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser.backends.c.schedules.blocks import BLOCK
from fuser.backends.c.schedules.unroll_and_jam import MOST

STEP = 64 // 4 * MOST


def numbers(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(4).random(shape).astype(dtype)


def logistic(x, steps: int = 30):
    for _ in range(steps):
        x = x * (1 - x) * np.float32(3.5) if x.dtype == np.float32 else x * (1 - x) * 3.5
    return x


def hashed(x, steps: int = 20):
    for _ in range(steps):
        x = (x ^ (x >> np.uint32(16))) * np.uint32(0x45D9F3B)
    return x


def text(function, *arguments) -> str:
    return fuser.jit(function).lower(*arguments).as_text()


def interleaved(function, *arguments) -> bool:
    return "#pragma GCC unroll" in text(function, *arguments)


def test_which_kernels_are_interleaved() -> None:
    x = numbers(5000)
    assert interleaved(logistic, x)
    assert interleaved(logistic, x.reshape(4, 1250)[:, :1200].copy())
    assert interleaved(hashed, np.arange(5000, dtype=np.uint32))
    assert not interleaved(lambda x: logistic(x, 4), x), "a processor looks ahead far enough"
    assert not interleaved(logistic, numbers(1000)), "too few elements"
    assert not interleaved(lambda x: logistic(fnp.exp(x)), x), "functions have loops of their own"
    assert not interleaved(lambda x: logistic(x.astype(np.float16)), x), "halves are converted all the time"
    assert not interleaved(lambda x: logistic(x)[::-1].T[::2].sum(), x), "a reduction"
    assert not interleaved(together, x), "too many values are alive for two vectors"


def together(x):
    """Many chains, each of which needs its neighbour."""
    chains = [x + number for number in range(20)]
    for _ in range(30):
        chains = [logistic(chain, 1) + before for chain, before in zip(chains, chains[-1:] + chains)]
    return sum(chains)


@pytest.mark.parametrize(
    "size", [STEP * 20 - 1, STEP * 20, STEP * 20 + 1, 2 * BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 700, 100_003]
)
def test_any_number_of_elements(size: int) -> None:
    x = numbers(size)
    np.testing.assert_array_equal(fuser.jit(logistic)(x), logistic(x))
    words = np.arange(size, dtype=np.uint32) * np.uint32(2654435761)
    np.testing.assert_array_equal(fuser.jit(hashed)(words), hashed(words))


def escape(np, x, y):
    """Two results, one of them truth values; numbers of several types."""
    a, b, count = x, y, np.zeros(x.shape, np.int32)
    for _ in range(20):
        count = count + (a * a + b * b < 4).astype(np.int32)
        a, b = a * a - b * b + x, 2 * a * b + y
    return count, count > 10, np.where(count > 3, x, y)


@pytest.mark.parametrize("shape", [(40, 1777), (3, 5000), (17, 3, 1030)])
def test_rows_results_and_types(shape: tuple[int, ...]) -> None:
    x, y = 3 * numbers(*shape) - 2, 2 * numbers(*shape)[::-1] - 1
    x, y = x[..., ::-1].copy()[..., ::-1], y + 0 * y[..., :1]
    function = lambda x, y: escape(fnp, x, y + x[..., :1])
    ours = fuser.jit(function)(x, y)
    with np.errstate(all="ignore"):
        theirs = escape(np, x, y + x[..., :1])
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a, b)


def test_doubles_and_a_result_that_takes_over_an_operand() -> None:
    with fuser.config.using(enable_x64=True):
        x = numbers(70_001, dtype="float64")
        assert interleaved(logistic, x)
        np.testing.assert_array_equal(fuser.jit(logistic)(x), logistic(x))
    x = numbers(70_001)
    wanted, given = logistic(x), fnp.asarray(x) * np.float32(1)
    address = np.asarray(given).ctypes.data
    result = fuser.jit(logistic, donate_argnums=0)(given)
    assert given.is_deleted() and np.asarray(result).ctypes.data == address
    np.testing.assert_array_equal(result, wanted)


def test_large_results_leave_past_the_cache() -> None:
    x = numbers(1 << 23)
    x = x[: x.size - 5]
    wide = np.concatenate([x, x[:1000]])
    cheap = lambda x: x * np.float32(0.5) + 1
    streaming = lambda function: [
        schedule.streaming
        for source in fuser.jit(function).lower(wide).sources
        for schedule in source.schedules.values()
    ]
    assert streaming(cheap) == [1]
    assert streaming(logistic) == [None], "computing takes longer than to read the lines of results"
    for function in (cheap, logistic):
        np.testing.assert_array_equal(fuser.jit(function)(wide), function(wide))


@pytest.mark.parametrize("width, ordered", [(8, True), (64, False)])
def test_loops_that_broadcast_more_than_registers_hold_leave_their_order_to_gcc(width: int, ordered: bool) -> None:
    """Ordered before they had registers, the 64 broadcasts of a product by a matrix took gcc three times as long."""

    def steps(weights, start):
        return fuser.lax.scan(lambda h, _: (fnp.tanh(h @ weights), None), start, None, length=50)[0]

    weights, start = numbers(width, width) / width, numbers(width)
    written = text(steps, weights, start)
    assert '"no-loop-unroll-and-jam"' in written and ('"schedule-insns"' in written) == ordered
    want = start.astype("float64")
    for _ in range(50):
        want = np.tanh(want @ weights)
    np.testing.assert_allclose(np.asarray(fuser.jit(steps)(weights, start)), want, 1e-4, 1e-6)
