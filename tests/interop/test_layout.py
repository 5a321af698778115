"""Memory order: the strides of every result are NumPy's, whatever the order of the arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuser.interop.numpy.layout import _sorted
from tests.interop.oracle import agree

rng = np.random.default_rng(3)
BASE = rng.normal(size=(4, 3, 5))
ARRAYS: dict[str, np.ndarray] = {
    "C": BASE.copy(),
    "F": np.asfortranarray(BASE),
    "axes (1, 2, 0)": BASE.transpose(1, 2, 0).copy().transpose(2, 0, 1),
    "slice of F": np.asfortranarray(rng.normal(size=(8, 3, 6)))[::2, :, 1:],
    "backwards": np.asfortranarray(BASE)[:, ::-1],
    "extent 1": np.asfortranarray(rng.normal(size=(4, 1, 5))),
}
FUNCTIONS: dict[str, Callable[[np.ndarray], Any]] = {
    "arithmetic": lambda x: (x * 2 + 1, -x, np.exp(x), x + x[:, :1], x + np.ones(5), x + x[::-1], np.add(x, x.T.T)),
    "with C": lambda x: (x + np.zeros(x.shape), np.zeros(x.shape) + x, x + np.zeros((x.shape[1], 1))),
    "comparisons and selection": lambda x: (x > 0, np.where(x > 0, x, 0), np.clip(x, 0, 1), np.maximum(x, 0), np.select([x > 0], [x], 0)),
    "copies": lambda x: (x.copy(), np.copy(x), x.astype(np.float32), np.array(x), np.array(x, order="C"), x.copy("F"), x.copy("K")),
    "likes": lambda x: (np.zeros_like(x), np.ones_like(x), np.full_like(x, 2), np.zeros(x.shape, order="F"), np.empty_like(x) * 0),
    "asarray": lambda x: (np.asarray(x), np.ascontiguousarray(x), np.asfortranarray(x)),
    "reductions": lambda x: (x.sum(0), x.mean(1), x.max(2), x.sum((0, 2)), x.sum(1, keepdims=True), np.var(x, 0), x.any(0), x.argmax(0)),
    "running": lambda x: (np.cumsum(x, 0), np.cumsum(x, 2), np.cumprod(x, 1), np.diff(x, axis=0), np.diff(x, axis=2)),
    "views": lambda x: (x.T, x[1:], x[:, 0], x[..., ::2], x.swapaxes(0, 1), np.moveaxis(x, 0, 2), x[None], np.flip(x, 0), x.reshape(-1)),
    "views of results": lambda x: ((x * 2).T, (x * 2)[1:], (x * 2).reshape(4, -1), (x + 1).ravel(), (x.T * 3).swapaxes(0, 1)),
    "indexing": lambda x: (x[[0, 2, 1]], x[:, [0, 0]], x[..., [1, 0]], x[np.array([[0, 1]])], x[[0, 1], :, 1:]),
    "joining": lambda x: (np.concatenate([x, x]), np.concatenate([x, x], 2), np.stack([x, x]), np.stack([x, x], -1), np.vstack([x, x])),
    "moving": lambda x: (np.roll(x, 1, 0), np.roll(x, 1), np.repeat(x, 2, 1), np.tile(x, 2), np.pad(x, 1), np.take(x, [0, 0], 1)),
    "sorting": lambda x: (np.sort(x, 0), np.sort(x), np.argsort(x, 1), np.median(x, 0), np.round(x, 1), np.nan_to_num(x), np.abs(x)),
    "products": lambda x: (x @ x.transpose(0, 2, 1), np.einsum("ijk->kji", x), np.tensordot(x, x, ([0], [0])), x[:, 0] @ x[0].T),
    "in place": lambda x: [y for y in [x.copy("K")] if y.__setitem__(0, 1) is None],
    "types": lambda x: (x.astype(int) + 1, (x + 1j).real, (x * 1j), np.isnan(x), x.astype(bool), np.sign(x), x // 1),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_strides_are_numpys(name: str) -> None:
    for array in ARRAYS.values():
        agree(FUNCTIONS[name], array)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_the_order_of_elementwise_results_is_that_of_numpys_iterator(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 4))
    shape = data.draw(st.lists(st.integers(1, 3), min_size=rank, max_size=rank))
    operands = []
    for _ in range(data.draw(st.integers(1, 3))):
        order = data.draw(st.permutations(range(rank)))
        array = np.empty([shape[d] for d in order], np.int8).transpose(np.argsort(order))
        broadcast = data.draw(st.lists(st.booleans(), min_size=rank, max_size=rank))
        operands.append(
            array[
                tuple(slice(0, 1) if b else slice(None, None, data.draw(st.sampled_from((1, -1)))) for b in broadcast)
            ]
        )
    extents = np.broadcast_shapes(*(o.shape for o in operands))
    wanted = np.nditer([*operands, None], order="K").operands[-1]
    strides = [tuple(0 if e == 1 else s for e, s in zip(o.shape, o.strides)) for o in operands]
    order = _sorted(strides, rank) or tuple(range(rank))
    found = np.empty([extents[d] for d in order], np.int8).transpose(np.argsort(order))
    assert [s for s, e in zip(found.strides, extents) if e > 1] == [s for s, e in zip(wanted.strides, extents) if e > 1]
