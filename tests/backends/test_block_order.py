"""Orders of blocks by a digit: the PTX of NVIDIA's GPUs, thread by thread, and the network that stands for it elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from fuser.backends.triton import block_order
from tests.backends.ptx_threads import Threads

LAYOUTS = {  # which elements of a block a thread has, as Triton may choose
    "one by one": lambda thread, n, threads, held: n * threads + thread,
    "in pairs": lambda thread, n, threads, held: (n // 2 * threads + thread) * 2 + n % 2,
    "all together": lambda thread, n, threads, held: thread * held + n,
}
DIGITS = {
    "any": lambda rng, size: rng.integers(0, 256, size),
    "few": lambda rng, size: rng.choice([0, 3, 255], size),
    "one": lambda rng, size: np.full(size, 255),
    "in order": lambda rng, size: np.arange(size) * 256 // size,
    "reversed": lambda rng, size: 255 - np.arange(size) * 256 // size,
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("digits", DIGITS)
@pytest.mark.parametrize("block, warps", [(2048, 4), (1024, 4), (4096, 8), (1024, 2)])
def test_assembly_finds_the_stable_order(block, warps, digits, layout):
    threads, held = 32 * warps, block // (32 * warps)
    digit = DIGITS[digits](np.random.default_rng(block), block).astype(np.uint32)
    place = [LAYOUTS[layout](np.arange(threads), n, threads, held) for n in range(held)]
    operands = {f"${held + n}": digit[place[n]] for n in range(held)} | {
        f"${2 * held + n}": place[n] for n in range(held)
    }
    found = Threads(warps).run(block_order.assembly(held, warps), operands)
    source = np.empty(block, np.int64)
    for n in range(held):
        source[place[n]] = found[f"${n}"]
    np.testing.assert_array_equal(source, np.argsort(digit, kind="stable"))


@pytest.mark.parametrize("number", range(5))
def test_each_wait_is_needed(number):
    """What the threads of a block in step do not show: a warp that another one does not wait for."""
    parts = block_order.assembly(16, 4).split("bar.sync 0;\n")
    text = (
        "bar.sync 0;\n".join(parts[: number + 1])
        + "bar.sync 0;\n".join(["", *parts[number + 1 :]])[len("bar.sync 0;\n") :]
    )
    place = {f"${32 + n}": n * 128 + np.arange(128) for n in range(16)}
    digits = {f"${16 + n}": np.random.default_rng(n).integers(0, 256, 128) for n in range(16)}
    assert len(parts) == 6
    with pytest.raises(AssertionError):
        Threads(4).run(text, digits | place)
