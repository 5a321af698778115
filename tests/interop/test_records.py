"""Structured arrays as arguments: their fields are traced, and written where they lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuser.interop import accelerate
from tests.interop.oracle import agree, same

PACKED = np.dtype([("price", "f8"), ("size", "i4"), ("side", "i1"), ("symbol", "U4"), ("place", "f4", 3)])


def trades(dtype: Any = PACKED, count: int = 50) -> np.ndarray:
    random, made = np.random.default_rng(0), np.zeros(count, dtype)
    made["price"], made["size"] = random.normal(100, 5, count), random.integers(1, 500, count)
    made["side"], made["place"] = random.choice([-1, 1], count), random.random((count, 3))
    return made


def value(t: Any) -> Any:
    return (t["price"] * t["size"]).sum() / t["size"].sum()


def marked(t: Any) -> Any:
    t["price"] *= 1.01
    t["side"][t["size"] > 250] = 0
    t["place"][:, 1] = t["price"]
    t["size"] = np.arange(len(t))
    return t["place"].sum(axis=1), t.shape, t.dtype.names, isinstance(t, np.ndarray)


def rows(t: Any) -> Any:
    large = t[t["size"].argmax()]
    return large["price"] * 2, t[5:]["price"] - t[["price", "size"]]["price"][5:], t[::2]["place"].mean()


def whole(compiled: Any) -> bool:
    return "compiled whole" in compiled.explain()


@pytest.mark.parametrize("dtype", [PACKED, np.dtype(PACKED.descr, align=True)])
@pytest.mark.parametrize("function", [value, marked, rows])
def test_fields_are_traced(function: Any, dtype: Any) -> None:
    for t in (trades(dtype), trades(dtype)[::2], trades(dtype).reshape(5, 10)):
        if t.ndim == 1 or function is value:
            agree(function, t, backend="c")
            compiled = accelerate(function, measure=False)
            for _ in range(3):
                mine, theirs = t.copy(), t.copy()
                same(function(theirs), compiled(mine))
                assert (mine == theirs).all()
            assert whole(compiled)


def test_programs_write_to_the_callers_memory() -> None:
    compiled = accelerate(marked, backend="reference", fallback="error", measure=False)
    t, expected = trades(), trades()
    compiled(t)
    marked(expected)
    assert (t == expected).all()


def test_recarrays_have_fields_as_attributes() -> None:
    def moved(t: Any) -> Any:
        t.price += 1
        t.size  # noqa: B018  of the array, not the field
        return t.price * t["size"]

    t = trades(np.dtype([("price", "f8"), ("size", "i4"), ("side", "i1"), ("place", "f4", 3)])).view(np.recarray)
    compiled = accelerate(moved, measure=False)
    mine, theirs = t.copy(), t.copy()
    np.testing.assert_array_equal(compiled(mine), moved(theirs))
    np.testing.assert_array_equal(mine.price, theirs.price)
    assert whole(compiled)


@pytest.mark.parametrize(
    "function",
    [
        lambda t: np.sort(t, order="size")["price"],
        lambda t: t,
        lambda t: t[3],
        lambda t: (t["price"], t[2:]),
        lambda t: [row["price"] for row in t],
        lambda t: (t == t[0]).sum() + t["price"],
        lambda t: t.copy(),
        lambda t: (t["symbol"] == "", t["price"] + 1),
        lambda t: np.concatenate([t, t])["price"],
    ],
)
def test_rows_as_a_whole_are_numpys(function: Any) -> None:
    agree(function, trades())


def test_errors_are_numpys() -> None:
    with pytest.raises(ValueError, match="no field of name prise"):
        accelerate(lambda t: t["prise"] + 1)(trades())
    shared = np.zeros(4, np.dtype({"names": ["a", "b"], "formats": ["f8", "i8"], "offsets": [0, 0]}))

    def written(t: Any) -> Any:
        t["a"] = 1.0
        return t["b"] + 1

    agree(written, shared)
