"""README and docs where a GPU is the default device: blocks do what the page says, and Triton's front end takes each kernel that they run.

The driver's stand-in runs other code in the place of the kernels, so that a text which is no Triton, or no Python, would go unnoticed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

import fuser
import fuser.numpy as fnp
from fuser.backends.triton.device.code import Passing
from fuser.errors import ToolchainError
from fuser.kernel.sizes import MOST_SIZES
from fuser.runtime.core import native
from tests import front_end, page_blocks
from tests.gpu import pages

pytestmark = pytest.mark.xdist_group("triton")
ALWAYS = ("docs/kernels-by-hand.md", "docs/export.md", "docs/many-devices.md")
CHOSEN = [
    pytest.param(page, marks=() if page in ALWAYS else pytest.mark.slow)
    for page in page_blocks.PAGES
    if page_blocks.blocks(page)
]


@pytest.mark.skipif(native is None, reason="the stand-in is a driver of the native core")
@pytest.mark.parametrize("page", CHOSEN)
def test_blocks_do_what_the_page_says(page: str) -> None:
    assert pages.page(page, page_blocks.settings, "--stand-in", "--kernels") == []


def test_what_agrees_with_a_page() -> None:
    assert pages.agrees("print(x)", "[0.25 1.5]\n", "[0.25000001 1.5]\n", False)
    assert not pages.agrees("print(x)", "[0.25 1.5]\n", "[0.26 1.5]\n", False)
    assert not pages.agrees("print(x)", "True\n", "False\n", False)
    assert pages.agrees("print(f.lower(x).plan.explain())", "1 kernel on c\n", "1 kernel on triton\n", False)
    assert not pages.agrees("print(f.lower(x).plan.explain())", "1 kernel on c\n", "ValueError: x\n", True)
    assert pages.agrees("f(x)", "ValueError: x\n", "ValueError: x\n", True)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "int8", "uint32", "bool"])
def test_kernels_of_many_sizes_compare_with_numbers(dtype: str) -> None:
    """Beyond so many sizes a number that is none of the few small ones is a constant: `64.to(...)` is no Python."""
    numbers = [17, 64, 100, -33, 1000, 0.1, float("inf"), float("-inf"), float("nan"), -0.0, np.float32(2.5)]
    if dtype in ("int32", "int8", "uint32", "bool"):
        numbers = [17, 64, 100] if dtype != "int32" else [17, 64, -33, 1 << 20, -(1 << 31)]

    def many(x):
        total = fnp.zeros(x.shape[0], dtype)
        for number in range(MOST_SIZES):  # a row that begins at a place of its own
            total = total + x[:, 3 * number + 2]
        for number in numbers:
            total = (
                fnp.where(total < number, total, number)
                if dtype != "bool"
                else total ^ (total.astype("int32") + 64 > number)
            )
        return fnp.where(fnp.arange(len(total)) < 64, total, 0).astype(dtype)

    x = np.ones((100, 3 * MOST_SIZES + 5), dtype)
    for source in fuser.jit(many, backend="triton").lower(x).sources:
        for number in range(len(source.launch["launches"])):
            front_end.read(source, number, Passing())


def test_the_front_end_finds_what_is_no_kernel() -> None:
    (source,) = fuser.jit(lambda x: fnp.sin(x) * 3, backend="triton").lower(np.ones(5, np.float32)).sources
    front_end.read(source, 0, Passing())
    for wrong in ("64.to(tl.int64)", "64 .to(tl.int64)"):
        broken = replace(source, code=source.text.replace("libdevice.sin(", f"{wrong} * libdevice.sin("))
        with pytest.raises(ToolchainError):
            front_end.read(broken, 0, Passing())
