"""The checker of kernels finds what a defect in lowering would leave: it is shown kernels with one thing wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fuser.numpy as fnp
from fuser import jit, lax
from fuser.errors import KernelError
from fuser.ir.index import Affine, Axis, Computed, Div
from fuser.ir.scalar import Scalar
from fuser.kernel.check import check, points, value
from fuser.kernel.kernel import Access, Kernel
from fuser.kernel.lower import lower
from fuser.kernel.lower_loop import lower_loop

X = np.ones((6, 8), np.float32)


def kernel_of(function: Callable[..., Any], *arguments: Any, loop: bool = False) -> Kernel:
    [group] = jit(function, backend="c").lower(*arguments).plan.groups
    return lower_loop(group) if loop else lower(group)


def softmax(x: Any) -> Any:
    e = fnp.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def windows(x: Any) -> Any:
    return fnp.pad(x, ((1, 1), (0, 0)))[:-2] + x[::-1] + fnp.reshape(x.T, (6, 8)) + fnp.roll(x, 3, 1)


def repeated(x: Any) -> Any:
    return lax.fori_loop(0, 9, lambda i, c: c * 0.5 + x, x)


KERNELS = {
    "rows": kernel_of(softmax, X),
    "columns": kernel_of(lambda x: (x * x).sum(0), X),
    "windows": kernel_of(windows, X),
    "cumulative": kernel_of(lambda x: fnp.cumsum(x, 1) + 1, X),
    "loop": kernel_of(repeated, X, loop=True),
}


@pytest.mark.parametrize("name", KERNELS)
def test_what_lowering_makes_is_right(name: str) -> None:
    assert check(KERNELS[name]) is KERNELS[name]


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("shift", [1, -1, 48])
def test_a_store_past_its_array_is_found(name: str, shift: int) -> None:
    kernel = KERNELS[name]
    moved = lambda stores: tuple(replace(store, offset=store.offset + shift) for store in stores)
    sweeps = tuple(replace(s, stores=moved(s.stores), row_stores=moved(s.row_stores)) for s in kernel.sweeps)
    with pytest.raises(KernelError, match=r"writes out0\[.*, element -?\d+ of \d+, at "):
        check(replace(kernel, sweeps=sweeps))


@pytest.mark.parametrize("name", KERNELS)
def test_a_load_past_its_array_is_found(name: str) -> None:
    kernel = KERNELS[name]
    shrunk = tuple(p if p.out else replace(p, shape=(1,)) for p in kernel.params)
    with pytest.raises(KernelError, match=r"reads or writes in0\["):
        check(replace(kernel, params=shrunk))


@pytest.mark.parametrize("name", ["rows", "columns", "windows", "cumulative"])
def test_a_node_before_its_operand_is_found(name: str) -> None:
    kernel = KERNELS[name]
    turned = tuple(replace(s, body=tuple(reversed(s.body)), row=tuple(reversed(s.row))) for s in kernel.sweeps)
    with pytest.raises(KernelError, match="before it is computed"):
        check(replace(kernel, sweeps=turned))


def test_a_later_sweep_before_the_fold_it_reads_is_found() -> None:
    kernel = KERNELS["rows"]
    assert len(kernel.sweeps) > 1
    with pytest.raises(KernelError, match="before it is computed"):
        check(replace(kernel, sweeps=kernel.sweeps[1:]))


def test_an_iteration_before_its_operands_is_found() -> None:
    kernel = KERNELS["loop"]
    assert kernel.loop is not None
    with pytest.raises(KernelError, match="before it is computed"):
        check(replace(kernel, loop=replace(kernel.loop, body=())))


def test_a_result_that_nothing_writes_is_found() -> None:
    kernel = KERNELS["windows"]
    sweeps = tuple(replace(s, stores=(), row_stores=()) for s in kernel.sweeps)
    with pytest.raises(KernelError, match=r"writes the parameters \[\]; its results are \[1\]"):
        check(replace(kernel, sweeps=sweeps))


def test_places_are_computed_as_loops_would() -> None:
    rows, cols = Axis(5, "r"), Axis(7, "c")
    flat = Affine.of(rows) * 7 + Affine.of(cols)
    joined = Affine(((Div(flat, 10), 3), (cols, -1)), 4)
    for point in points([rows, cols]):
        r, c = point[rows], point[cols]
        assert value(flat, point) == 7 * r + c
        assert value(joined, point) == (7 * r + c) // 10 * 3 - c + 4
    node = Scalar("const", (), np.dtype("int32"), 3)
    assert value(Affine(((Computed(node, (0, 9)), 1),)), {}) is None


def test_loads_under_a_mask_may_leave_the_array() -> None:
    loads = [n for n in KERNELS["windows"].nodes if n.op == "load"]
    masked = [n for n in loads if n.args]
    assert masked and all(isinstance(n.attr, Access) for n in loads)
    assert any(n.attr.offset.bounds[0] < 0 or n.attr.offset.bounds[1] >= X.size for n in masked)
