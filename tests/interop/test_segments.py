"""Functions whose Python needs values run in segments: results, effects, errors and warnings are NumPy's, and loops compile once."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import re
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import ndimage

from fuser.errors import TracerBoolConversionError
from fuser.interop import FallbackWarning, accelerate, segments
from tests.interop.oracle import same
from tests.interop.random_segments import run

X = np.linspace(-2.0, 3.0, 24).reshape(4, 6)


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "FEWEST_ELEMENTS", 2)


def decides(x):
    return x if x.max() > 1 else x - 1


def converges(u, tolerance):
    rounds = 0
    while True:
        new = u.copy()
        new[1:-1, 1:-1] = 0.25 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2])
        error, u, rounds = np.abs(new - u).max(), new, rounds + 1
        if error < tolerance:
            return u, rounds, error


def counts(x):
    found = np.unique(np.round(x))
    return len(found), found * x.sum(), x[x > 0] + 1, np.nonzero(x > 1), int(x.sum()), float(x[1, 2]) + 1


def in_place(x):
    y = x[1:]
    y *= 2
    before = x.sum()
    if before > 0:
        x[0] = y[0] + before
        np.add(x, 1, out=x)
    z = x * 3
    part = z[1:3]
    if part.sum() > 0:
        part -= 1
    x.sort(axis=0)
    return part, z, x.T, x


def foreign(x):
    smooth = ndimage.gaussian_filter(x * 2, 1.0)
    return smooth - x if smooth.mean() > 0 else smooth


def held(x):
    table = np.asarray(x + 1)
    y = table * 2
    out = np.zeros((4, 6))
    w = x * out + y
    out += 5
    if w.sum() > 0:
        out[1:] = w[1:] * x[:1]
    return y, w, out, np.stack([x.sum(), x.mean() * 2])


def generated(x):
    total = 0.0
    for row in (row * 2 for row in x):
        if row[0] < 0:
            continue
        total += row.sum()
    return total, [x.min(), x.max() + 1], {"a": (x > 0).any()}


def selects(x):
    y = x.copy()
    y[y < 0] = 0
    index = np.argsort(x[1] - 1)
    return y[:, index], x[1, ::-1] * 2, x[[0, 1]] if y.sum() > 1 else x


def writes(x):
    y = x * 2
    upper, lower = np.split(y, 2)
    tail = y[1:]
    y[0] = 5
    tail += y[0]
    y[y > 4] = 0
    y.T[1] = -1
    y[1, 1:3] = x[0, 1:3]
    y[1:] = y[:-1]
    z = x.copy()
    z **= 2
    z[:, ::2] *= upper[:1, ::2]
    whole = np.round(x).astype(int)
    whole += x > 0
    try:
        whole += 0.5
    except TypeError:
        whole -= 1
    return (y, upper, lower, tail, z, whole) if y.sum() > -1e9 else x


def iterates(x):
    total = 0.0
    with np.nditer(x, op_flags=["readwrite"]) as elements:
        for element in elements:
            total += float(element) ** 2
            element[...] = 2 * element
    return total


FUNCTIONS = [decides, counts, in_place, foreign, held, generated, selects, writes, iterates]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("order", ["C", "F", "view"])
def test_results_and_effects_are_numpys(function: Callable[..., Any], order: str) -> None:
    accelerated = accelerate(function, backend="reference")
    for scale in (1.0, -1.0, 1.0):
        wide = np.repeat(X * scale, 2, axis=1)
        make = {
            "C": (X * scale).copy,
            "F": lambda s=scale: np.asfortranarray(X * s),
            "view": lambda w=wide: w.copy()[:, ::2],
        }
        theirs, mine = make[order](), make[order]()
        wanted = function(theirs)
        same(wanted, accelerated(mine))
        same(theirs, mine)


def keeps_errors(u, tolerance):  # a list that grows is no state of a loop in a program
    errors = [np.inf]
    while errors[-1] > tolerance:
        new = u.copy()
        new[1:-1] = (u[2:] + u[:-2]) / 2
        errors.append(np.abs(new - u).max())
        u = new
    return u, len(errors)


def test_a_loop_compiles_its_body_once() -> None:
    accelerated = accelerate(keeps_errors)
    for tolerance in (0.05, 0.01):
        same(keeps_errors(X, tolerance), accelerated(X.copy(), tolerance))
    (found,) = accelerated._segments
    assert 1 <= len(found.programs) <= 3
    assert set(accelerated.cuts.values()) == {"`if` or `while`"}
    assert all(line.startswith("test_segments.py:") for line in accelerated.cuts)


def test_writes_to_what_has_not_run_cut_nothing() -> None:
    accelerated = accelerate(writes, backend="reference")
    for _ in range(3):
        same(writes(X), accelerated(X))
    assert set(accelerated.cuts.values()) == {"a write", "`if` or `while`"}  # `whole += 0.5`, which NumPy refuses
    (found,) = accelerated._segments
    assert [cut.count for cut in found.cuts.values()] == [3, 3], accelerated.explain()
    text = accelerated.explain()
    assert "writes(f64[4,6]): in segments" in text and "not one program: a traced bool[] has no value yet" in text
    assert re.search(
        r"cut at test_segments\.py:\d+ by a write, 3 times: its segment takes \d+ µs, the cut \d+ µs", text
    )


def test_views_of_results_share_memory_as_numpys_do() -> None:
    def views(x):
        y = x + 1
        return (y, y[1:], x[:2]) if y.sum() > 0 else None

    y, part, mine = accelerate(views, backend="reference")(X)
    assert np.shares_memory(y, part) and np.shares_memory(mine, X) and type(mine) is np.ndarray


@dataclasses.dataclass
class State:
    u: np.ndarray
    history: list[Any] = dataclasses.field(default_factory=list)
    done: bool = False

    def step(self, force):
        self.u = self.u + force
        self.u[0] -= 1
        self.history.append(force.sum() * 2)
        if self.history[-1] > 0:
            self.done = True
        return self.u.max()


def test_objects_keep_numpys_arrays() -> None:
    theirs, mine = State(X.copy()), State(X.copy())
    assert State.step(theirs, X) == accelerate(State.step)(mine, X)
    assert type(mine.u) is np.ndarray and type(mine.history[0]) is np.float64
    same(vars(theirs), vars(mine))


def test_arguments_that_alias() -> None:
    def alias(x, y):
        z = x * 2
        y += 1
        if z.sum() > 0:
            x *= y
        return z, x, y

    def through(x, box):
        z = x * 2
        box.x[0] = 7
        return (z, x) if z.sum() > 0 else x

    def both(function, make):
        theirs, mine = make(), make()
        same(function(*theirs), accelerate(function)(*mine))
        same(theirs[0], mine[0])

    for view in (lambda x: x, lambda x: x[:], lambda x: x[::-1]):
        both(alias, lambda view=view: (x := X + 1, view(x)))
    both(through, lambda: (x := X + 1, types.SimpleNamespace(x=x)))


def test_effects_before_an_error_remain() -> None:
    def fails(x):
        x[0] = x[1] * 2
        if x.sum() > -1e9:
            raise KeyError("stop")

    theirs, mine = X.copy(), X.copy()
    for function, x in ((fails, theirs), (accelerate(fails), mine)):
        with pytest.raises(KeyError, match="stop"):
            function(x)
    same(theirs, mine)


def test_errors_come_where_numpy_raises_them() -> None:
    def solves(a):
        try:
            b = np.linalg.inv(a * 0)
        except np.linalg.LinAlgError:
            b = a
        try:
            c = b[np.argsort(a[0]) + 3]
        except IndexError:
            c = b + 1
        return c * 2 if b.sum() > 0 else c

    same(solves(X[:4, :4] + 9), accelerate(solves)(X[:4, :4] + 9))

    def divides(x):
        with np.errstate(divide="ignore"):
            y = 1 / (x - x[0, 0])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            z = np.sqrt(x)
        with np.errstate(all="raise"):
            try:
                w = np.log(x)
            except FloatingPointError:
                w = x
        return (y, z, w) if x.sum() > 0 else x

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same(divides(X), accelerate(divides)(X))
    with pytest.warns(RuntimeWarning, match="invalid value encountered in sqrt"):
        accelerate(lambda x: np.sqrt(x) if x.sum() > 0 else x)(X)


def test_segments_can_be_forbidden_and_told() -> None:
    with pytest.raises(TracerBoolConversionError, match=r"`if` cannot read it \(test_segments"):
        accelerate(decides, fallback="error")(X)
    telling = accelerate(decides, fallback="warn", backend="reference")
    with pytest.warns(FallbackWarning, match="decides runs in segments, with Python between them") as caught:
        telling(X)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same(decides(copy.copy(X)), telling(X))


def test_generators_and_accelerated_functions_inside() -> None:
    @accelerate
    def halves(x):
        while x.max() > 1:
            x = x / 2
            yield x

    same([*halves.function(X)], list(halves(X)))
    inner = accelerate(lambda x: x * 3 if x.sum() > 0 else x)
    outer = accelerate(lambda x: inner(x + 1) - 1 if x.max() > 0 else x)
    same((X + 1) * 3 - 1, outer(X))


def test_random_functions() -> None:
    wrong = run(range(60))
    assert not wrong, wrong[0]


@dataclasses.dataclass
class Holder:
    u: np.ndarray


def test_constants_outside_that_are_views_of_what_is_written() -> None:
    scope: dict[str, Any] = {}

    def writes(x):
        x[1:4] = 7
        return scope["table"] * 2, x

    def through(x, box):
        box.u[:] = x[0] + box.u
        return x * 2

    def twice(x):
        y = scope["table"] * 3
        scattered = x.reshape(2, 4).T.ravel()
        return y[::-1], x + y, scattered, scattered[1:], y

    for take in (lambda x: x[::-1], lambda x: x, lambda x: x + 1):
        results = []
        for function in (writes, through, twice):
            accelerated = accelerate(function, fallback="error", backend="reference")
            for call in (function, accelerated, accelerated):
                x = np.arange(8.0)
                scope["table"] = take(x)
                rest = (Holder(scope["table"]),) if function is through else ()
                found = call(x, *rest)
                results.append((found, x.copy(), scope["table"].copy()))
            same(results[-3], results[-2])
            same(results[-3], results[-1])
        first, _, scattered, part, last = results[-1][0]
        assert np.shares_memory(first, last) and np.shares_memory(scattered, part)


def test_only_what_escaped_is_looked_for() -> None:
    kept: list[Any] = []
    cells: list[Any] = []

    def keeps(x):
        y, z = x * 2, x * 3
        kept.append(y)
        cells.append(lambda: (y, z))
        return z if y.sum() > 0 else y

    found = accelerate(keeps)(X + 3)
    assert type(found) is np.ndarray and all(type(v) is np.ndarray for v in (kept[0], *cells[0]()))
    same((kept[0], found), cells[0]())


def test_long_loops_are_not_unrolled(monkeypatch: pytest.MonkeyPatch) -> None:
    def smooths(x):
        y = x.copy()
        for n in list(range(1, y.size)):  # loops over ranges are staged
            y[n] = 0.2 * y[n] + 0.8 * y[n - 1]
        return y

    monkeypatch.setattr(importlib.import_module("fuser.interop.accelerate"), "MOST_OPERATIONS", 20)
    x = X.ravel()
    for fallback, how in (("segments", "in segments"), ("error", "compiled whole")):
        accelerated = accelerate(smooths, fallback=fallback, backend="reference")
        same(smooths(x), accelerated(x))
        assert f": {how}" in accelerated.explain()
    text = accelerate(smooths, backend="reference")
    text(x)
    assert re.search(
        r"smooths has more than 20 operations by test_segments\.py:\d+, most likely of a loop in Python", text.explain()
    )
