"""Columns of pandas, polars and xarray: their memory in, the same kind out."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import xarray as xr

from fuser import accelerate, explain
from fuser.errors import UnsupportedError
from fuser.trace import tree


@accelerate
def score(a, b):
    return np.where(a > b, np.sqrt(a) * b, -b), (a * b).sum()


strict = accelerate(score.__wrapped__, fallback="error")


@accelerate
def revenue(table):
    total = table["price"] * table["count"]
    return {"total": total, "share": total / total.sum()}


X, Y = np.arange(6.0), np.linspace(3, 1, 6)


def test_series_of_pandas():
    index = pd.Index(list("abcdef"))
    a, b = pd.Series(X, index, name="a"), pd.Series(Y, index, name="b")
    found, total = score(a, b)
    wanted, sums = score.__wrapped__(a, b)
    pd.testing.assert_series_equal(found, pd.Series(wanted, index))
    assert type(total) is np.float64 and total == pytest.approx(sums)
    assert accelerate(np.sqrt)(a).name == "a"
    assert "1 kernel" in str(explain(score)(a, b))
    with pytest.raises(UnsupportedError, match="different indexes"):
        strict(a, pd.Series(Y))


def test_frames():
    data = {"price": X, "count": np.arange(6), "name": list("abcdef")}
    found = revenue(pd.DataFrame(data, index=range(1, 7)))
    total = X * np.arange(6)
    wanted = {"total": total, "share": total / total.sum()}
    pd.testing.assert_frame_equal(found, pd.DataFrame(wanted, index=range(1, 7)))
    found = revenue(pl.DataFrame(data))
    assert type(found) is pl.DataFrame
    np.testing.assert_allclose(found.to_numpy(), np.column_stack([wanted["total"], wanted["share"]]))


def test_series_of_polars():
    found, _ = score(pl.Series("a", X), pl.Series("b", Y))
    assert type(found) is pl.Series and found.name == ""
    np.testing.assert_allclose(found.to_numpy(), score.__wrapped__(X, Y)[0])
    with pytest.raises(UnsupportedError, match=r"a has 1 nulls and cannot be traced .*; use fill_null first"):
        strict(pl.Series("a", [1.0, None]), pl.Series("b", [1.0, 2.0]))


def test_arrays_of_xarray():
    grid = xr.DataArray(np.arange(6.0).reshape(2, 3), {"y": [10, 20]}, ("y", "x"), name="height")
    found, total = accelerate(lambda z: (z * 2 + 1, z.mean(axis=0)))(grid)
    xr.testing.assert_identical(found, xr.DataArray(grid * 2 + 1, name="height"))
    assert type(total) is np.ndarray
    with pytest.raises(UnsupportedError, match="different coordinates"):
        strict(grid, grid.assign_coords(y=[1, 2]))


def test_what_holds_no_numbers_is_refused():
    with pytest.raises(UnsupportedError, match="s of dtype str cannot be traced"):
        strict(pd.Series(list("ab"), name="s"), pd.Series([1.0, 2.0]))
    with pytest.raises(UnsupportedError, match="columns of pandas and polars in one call"):
        strict(pd.Series(X), pl.Series(Y))


def _grouped(table):
    return table.assign(twice=table["a"] * 2).groupby("b")["twice"].mean()


def _adds_column(table):
    table["c"] = np.log1p(table["a"]) * table["b"]
    return table["c"].sum(), len(table)


def _aligned(table):
    return table["a"] + table["a"].iloc[:2]


@pytest.mark.parametrize("function", [_grouped, _adds_column, _aligned, lambda t: t["a"].rolling(2).mean(), len])
def test_what_pandas_alone_can_do(function):
    def table():
        return pd.DataFrame({"a": X, "b": [0, 1] * 3})

    accelerated = accelerate(function)
    for _ in range(3):
        ours, theirs = table(), table()
        found, wanted = accelerated(ours), function(theirs)
        if isinstance(wanted, pd.Series):
            pd.testing.assert_series_equal(found, wanted)
        else:
            assert found == wanted
        pd.testing.assert_frame_equal(ours, theirs)
    with pytest.raises(AttributeError, match="no attribute 'rows'"):
        accelerate(lambda t: t.rows)(table())


@pytest.mark.parametrize("library", [pd.Series, pl.Series, xr.DataArray])
@pytest.mark.parametrize("function", [lambda s: s.std() + s.sum(), lambda s: s.mean() * 2, lambda s: np.sqrt(s) + 1])
@pytest.mark.parametrize("last", [np.nan, 4.0])
def test_reductions_are_the_librarys_own(library, function, last):
    column = library(np.array([1.0, 2.0, 9.0, last]))
    accelerated = accelerate(function)
    for _ in range(25):
        np.testing.assert_allclose(np.asarray(accelerated(column)), np.asarray(function(column)), rtol=1e-12)


def test_no_library_is_imported():
    code = "import sys, numpy, fuser; fuser.accelerate(lambda x: x + 1)(numpy.ones(3)); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"pandas", "polars", "xarray", "scipy.ndimage", "scipy.signal"} & set(loaded)


def test_results_are_of_one_type_whichever_answers() -> None:
    """A dict of columns is a frame, and an array as long as the columns a column, whether the program or the library answers."""
    frame = pd.DataFrame({"a": X, "b": X + 1})
    functions = (
        lambda t: {"double": t["a"] * 2, "sum": t["a"] + t["b"]},
        lambda t: np.where(t["a"] > 1, t["a"], 0.0),
        lambda t: (np.asarray(t["a"]) * 2, t["b"].sum(), [t["a"]]),
    )
    for library in (frame, pl.DataFrame({"a": X, "b": X + 1})):
        for function in functions:
            compiled = accelerate(function)
            found = [compiled(library) for _ in range(50)]
            assert len({repr(tree.map(type, result)) for result in map(_taken_apart, found)}) == 1
    with_nans = frame.assign(a=np.nan)
    assert type(accelerate(functions[0])(with_nans)) is pd.DataFrame
    assert type(accelerate(functions[1])(with_nans)) is pd.Series


def _taken_apart(result: Any) -> Any:
    return result if isinstance(result, (tuple, list)) else [result]
