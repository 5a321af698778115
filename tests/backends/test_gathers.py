"""Elements at computed indices: read one by one in a loop of their own, beside all other elementwise work."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser.config import config


def programs(table: Any, other: Any, at: Any, then: Any, x: Any) -> tuple[Any, ...]:
    """table, other: n; at, then: m indices of them; x: m."""
    n = table.shape[0]
    return (
        table[at],
        table[at] * x + other[then],
        fnp.exp(table[at]) + fnp.log1p(fnp.exp(x)),
        table[(at + then) % n],
        table[then[fnp.minimum(at, then.shape[0] - 1)]],
        fnp.where(x > 0, table[at], other[at]),
        fnp.interp(x, fnp.sort(table), other),
        table[::-1][at] - x[::-1],
        fnp.stack([table[at], other[then], x], -1),
        table.at[at].get(mode="fill", fill_value=7) + x,
        fnp.broadcast_to(table[at], (3, at.shape[0])) * x[None, :] + fnp.take(other, then[None, :] // 2),
    )


@pytest.mark.parametrize("count", [1, 127, 128, 1024, 1031, 5000])
@pytest.mark.parametrize("dtype", ["float32", "int32", "int8", "float16", "bfloat16"])
def test_agreement_with_the_reference(count: int, dtype: str) -> None:
    random = np.random.default_rng(count)
    n = 300
    scale = 1 if dtype == "float16" else 3  # whose exponentials are finite
    table, other, x = (fnp.asarray(random.normal(size=s) * scale, dtype) for s in (n, n, count))
    at, then = (random.integers(-n, n, count).astype(np.int32) for _ in range(2))
    found = fuser.jit(programs)(table, other, at, then, x)
    with config.using(backend="reference"):
        wanted = fuser.jit(programs)(table, other, at, then, x)
    for number, (a, b) in enumerate(zip(found, wanted, strict=True)):
        assert a.dtype == b.dtype
        a, b = (np.asarray(v).astype(np.float64) for v in (a, b))
        relative = {"float16": 3e-3, "bfloat16": 3e-2}.get(
            dtype, 3e-6
        )  # results of several operations round once or each time
        absolute = 1e-5 if relative == 3e-6 else 10 * relative
        np.testing.assert_allclose(a, b, relative, absolute, err_msg=f"result {number}")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_moved_bit_by_bit(dtype: str) -> None:
    """Each of the 65,536, wherever it is read and whatever is done with it in the next loop."""
    table = fuser.lax.bitcast_convert_type(fnp.arange(1 << 16, dtype=np.uint16), dtype)
    at = np.random.default_rng(0).permutation(1 << 16).astype(np.int32)
    with config.using(backend="reference"):
        wanted = [np.asarray(v) for v in (table[at], -table[at], table[at] * 2)]
    found = fuser.jit(lambda t, at: (t[at], -t[at], t[at] * 2))(table, at)
    for a, b in zip(found, wanted, strict=True):
        a = np.asarray(a)
        number = ~np.isnan(b.astype(np.float32))
        np.testing.assert_array_equal(a.view(np.uint16)[number], b.view(np.uint16)[number])
        assert np.isnan(a[~number].astype(np.float32)).all()


def test_indices_outside_are_held_at_the_ends() -> None:
    table = np.arange(10, dtype=np.float32)
    at = np.array([-100, -11, -10, -1, 0, 9, 10, 2**31 - 1] * 40, np.int32)
    found = fuser.jit(lambda table, at: table[at] * 2)(table, at)
    np.testing.assert_array_equal(found, fuser.jit(lambda table, at: table[at] * 2, backend="reference")(table, at))


def test_a_warped_image_is_one_kernel() -> None:
    """Each component of the indices is read where it is computed, not out of what they are joined to."""

    def warp(image: Any, x: Any, y: Any) -> Any:
        height, width = image.shape
        left, top = fnp.floor(x).astype(fnp.int32), fnp.floor(y).astype(fnp.int32)
        at = lambda i, j: image[fnp.clip(i, 0, height - 1), fnp.clip(j, 0, width - 1)]
        across, down = x - left, y - top
        upper = (1 - across) * at(top, left) + across * at(top, left + 1)
        lower = (1 - across) * at(top + 1, left) + across * at(top + 1, left + 1)
        return (1 - down) * upper + down * lower

    random = np.random.default_rng(0)
    image = random.normal(size=(50, 60)).astype(np.float32)
    x, y = (random.uniform(-3, 63, (70, 80)).astype(np.float32) for _ in range(2))
    compiled = fuser.jit(warp)
    assert len(compiled.lower(image, x, y).plan.groups) == 1
    with config.using(backend="reference"):
        wanted = fuser.jit(warp)(image, x, y)
    np.testing.assert_allclose(compiled(image, x, y), wanted, rtol=1e-5, atol=1e-5)
