"""What a traced mask selects, as a result: values, dtypes, strides, identity and what arguments become, against NumPy."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from fuser.errors import UnsupportedError
from fuser.interop import accelerate
from fuser.interop.numpy import host_kernels, reductions
from fuser.ops import movement
from tests.interop.oracle import same

R = np.random.default_rng(3)
X, M = R.standard_normal(120), R.standard_normal((24, 5))


def written_before(x, m):
    x[x < 0] = 0
    return x[x > 1]


def written_after(x, m):
    found = x[x > 0]
    x += 1
    return found


def in_place(x, m):
    found = x[x > 0]
    again = found
    found *= 2
    return again, found.sum(), found


def several(x, m):
    near = np.abs(x) < 1
    return {"near": x[near] - x[near].mean(), "where": np.flatnonzero(near), "count": near.sum()}


FUNCTIONS = {
    "elements": lambda x, m: x[(x > -1) & (x < 1)],
    "elements of a matrix": lambda x, m: m[m > 0],
    "logarithms": lambda x, m: np.log(x[x > 0]),
    "of what makes nans": lambda x, m: np.sqrt(x)[x > 0],
    "integers": lambda x, m: x[x > 0].astype(np.int32),
    "bytes": lambda x, m: (x > 1)[x > 0],
    "rows": lambda x, m: m[(m < 1).all(axis=1)],
    "rows of a transposed matrix": lambda x, m: m.T[m.sum(axis=0) > 0],
    "columns": lambda x, m: m[:, m[0] > 0] - 1,
    "a row's norms": lambda x, m: np.linalg.norm(m[m[:, 0] > 0], axis=1),
    "none": lambda x, m: (x[x > 100], np.flatnonzero(x > 100), np.argwhere(m > 100)),
    "positions": lambda x, m: np.nonzero(m > 1),
    "positions and elements": lambda x, m: (lambda i: (i, i + 1, x[i]))(np.where(x > 1)[0]),
    "rows of positions": lambda x, m: (np.argwhere(m > 1), np.argwhere(m > 1).mean(axis=0), np.argwhere(x > 1) * 2),
    "compress, extract": lambda x, m: (np.compress(x > 0, x), np.compress(m[:, 0] > 0, m, axis=0), np.extract(m > 0, m)),
    "delete": lambda x, m: (np.delete(x, (9 * np.abs(m[:, 0])).astype(int)), np.delete(m, np.argsort(m[:, 0])[:3], axis=0)),
    "an object's state": lambda x, m: [x[x > 0], (x[x > 0],)],
    "written before": written_before,
    "written after": written_after,
    "in place": in_place,
    "several": several,
}  # fmt: skip


@pytest.mark.parametrize("backend", ["reference", "c"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_that_a_mask_selects(name: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_kernels, "FEWEST", 64)
    function = FUNCTIONS[name]
    accelerated = accelerate(function, backend=backend, measure=False)
    for turn in range(3):
        given = [turn % 2 * 0.1 + X, M * (1 - turn / 4)]
        ours, theirs = [a.copy() for a in given], [a.copy() for a in given]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wanted, found = function(*theirs), accelerated(*ours)
        same((wanted, theirs), (found, ours), 1e-12)
    assert accelerated.explain().split(": ")[1].startswith("compiled whole")


STEPS = {
    "median": lambda x, m: np.median(x[x > 0]),
    "median of rows": lambda x, m: np.median(m[m[:, 0] > 0], axis=0),
    "percentiles": lambda x, m: np.percentile(x[x > 0] * 2, [5, 50, 95]),
    "quantile": lambda x, m: np.quantile(m[m > 0], 0.25),
    "histogram": lambda x, m: np.histogram(x[x > 0], bins=7, range=(0, 3)),
    "correlation": lambda x, m: np.corrcoef(x[x > 0], np.sin(x)[x > 0]),
    "covariance of columns": lambda x, m: np.cov(m[m[:, 0] > 0], rowvar=False),
    "fit": lambda x, m: np.polyfit(x[x > 0], np.exp(x[x > 0]), 2),
    "integral": lambda x, m: np.trapezoid(x[x > 0]),
    "table": lambda x, m: np.interp(0.3, np.sort(x), np.arange(120.0)) + np.interp(x[0], np.arange(120)[x > 0], x[x > 0]),
    "counts": lambda x, m: np.bincount((3 * np.abs(x)).astype(int)[x > -1], minlength=12),
    "sums by kind": lambda x, m: np.bincount((3 * np.abs(x)).astype(int)[x > -1], weights=x[x > -1], minlength=12),
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_functions_whose_results_have_one_shape_for_any_selection(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reductions, "MOST_SORTED", 8)
    accelerated = accelerate(STEPS[name], measure=False)
    for scale in (1.0, 0.5):
        same(STEPS[name](scale * X, M), accelerated(scale * X, M), 1e-9)
    assert accelerated.explain().split(": ")[1] == "compiled whole"


def test_steps_of_too_few_elements_are_numpys() -> None:
    accelerated = accelerate(lambda x: np.percentile(x[x > 100], 5), measure=False)
    with pytest.raises(IndexError):
        accelerated(X)
    counted = accelerate(lambda x: np.bincount((9 * np.abs(x)).astype(int)[x > 0], minlength=3), measure=False)
    same(np.bincount((9 * np.abs(X)).astype(int)[X > 0], minlength=3), counted(X))


def test_a_step_whose_result_has_a_size_of_its_own_is_refused() -> None:
    with pytest.raises(UnsupportedError):
        accelerate(lambda m: np.median(m[m[:, 0] > 0], axis=1), fallback="error")(np.abs(np.tile(M, (200, 1))))


def test_one_selection_is_one_array() -> None:
    again, _, found = accelerate(in_place, measure=False)(X.copy(), M)
    assert again is found


def test_arguments_and_positions_are_not_computed() -> None:
    graph = accelerate(lambda x: (x[x > 0], np.argwhere(x.reshape(8, -1) > 1))).lower(X).graph
    assert not any(eqn.primitive in (movement.iota_p, movement.concatenate_p) for eqn in graph.eqns)
    assert all(v.aval.dtype == bool for v in graph.outvars)


def test_events_where_the_mask_does_not_hold_are_none() -> None:
    accelerated = accelerate(lambda x: np.log(x[x > 0]), fallback="error", measure=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_allclose(accelerated(X), np.log(X[X > 0]), 1e-12)
    bad = accelerate(lambda x: np.log(x[x > -1]), measure=False)
    with pytest.warns(RuntimeWarning, match="invalid value"):
        bad(X)


def writes_to_a_view(x, m):
    rows = m[m[:, 0] > 0]
    column = rows[:, 1]
    column += 1
    return rows


def gives_back_a_view(x, m):
    rows = m[m[:, 0] > 0]
    return rows, rows[:, 1]


def test_a_view_of_selected_rows_is_a_copy() -> None:
    function = lambda x, m: m[m[:, 0] > 0][:, 1]
    accelerated = accelerate(function, fallback="error", measure=False)
    np.testing.assert_array_equal(accelerated(X, M), function(X, M))


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (writes_to_a_view, "writing to x[mask], or to a view of it, where both are in use"),
        (gives_back_a_view, "returning x[mask] and a view of it"),
    ],
)
def test_views_of_selections_share_memory(function: Any, words: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        accelerate(function, fallback="error")(X, M)
    assert words in str(caught.value)
    same(function(X, M), accelerate(function, measure=False)(X, M), 1e-12)
