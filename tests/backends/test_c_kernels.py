"""Loop forms of the C backend on programs that once went wrong, and results that do not depend on the number of threads."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser.backends import get
from fuser.debug.bisect import bisect
from fuser.ops.cumulative import cumsum_p
from fuser.ops.reduce import argmax_p, argmin_p
from fuser.partition.group import Kind

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("shape", [(4, 4), (2, 3, 4), (3, 5000), (2, 70, 32)])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_scan_that_two_stages_need(shape: tuple[int, ...], axis: int) -> None:
    """The scan is kept or computed again in the second run over its axis; both ways it is right."""

    def function(x: Any) -> Any:
        for _ in range(6):
            x = fnp.tanh(x)
        total = fnp.cumsum(x, axis=axis)
        return total - total.max(axis=axis, keepdims=True)

    x = RNG.standard_normal(shape).astype(np.float32)
    assert [g.kind for g in fuser.jit(function).lower(x).plan.groups] == [Kind.SCAN]
    assert bisect(function, x) is None


@pytest.mark.parametrize("primitive", [argmax_p, argmin_p])
@pytest.mark.parametrize("axis", [0, 1])
def test_the_first_extreme_wins_when_the_loop_runs_backwards(primitive: Any, axis: int) -> None:
    def function(x: Any) -> Any:
        return primitive.bind(cumsum_p.bind(x, axis=axis, reverse=True), axes=(axis,), index_dtype=np.dtype("int32"))

    x = np.array([[0, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0], [0, np.nan, 0, np.nan]], np.float32)
    assert len(fuser.jit(function).lower(x).plan.groups) == 1
    assert np.asarray(fuser.jit(function)(x)).tolist() == np.asarray(function(x)).tolist()


DETERMINISM = """
import hashlib, numpy as np, fuser, fuser.numpy as fnp
rng = np.random.default_rng(1)
digest = hashlib.sha256()
def softmax(x):
    e = fnp.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)
programs = [
    softmax, lambda x: x.sum(), lambda x: x.sum(axis=0), lambda x: x.sum(axis=1), lambda x: (x * x).mean(axis=0), lambda x: fnp.var(x),
    lambda x: x - x.mean(axis=0), lambda x: fnp.cumsum(x, axis=0), lambda x: fnp.cumsum(x, axis=1), lambda x: fnp.argmax(x),
    lambda x: fnp.prod(1 + x / 1000), lambda x: (x.sum(axis=0), x.max(axis=0)), lambda x: x.std(axis=1), lambda x: fnp.logaddexp(x, 1).sum(),
]
for shape in ((1000, 1000), (3, 300000), (300000, 3), (200000,), (40, 50, 60), (17, 1)):
    x = rng.standard_normal(shape).astype(np.float32)
    for program in programs:
        if x.ndim == 1 and program in (programs[3], programs[8], programs[12]):
            continue
        for result in fuser.tree.leaves(fuser.jit(program)(x)):
            digest.update(np.asarray(result).tobytes())
print(digest.hexdigest())
"""


@pytest.mark.slow
def test_results_do_not_depend_on_the_number_of_threads() -> None:
    """Every loop form of a reduction, with one thread and with two, three and eight: the same bits."""

    def run(threads: int) -> str:
        environment = {
            **os.environ,
            "FUSER_THREADS": str(threads),
            "OMP_NUM_THREADS": str(threads),
            "OMP_DYNAMIC": "false",
        }
        result = subprocess.run(
            [sys.executable, "-c", DETERMINISM], env=environment, capture_output=True, text=True, check=True
        )
        return result.stdout

    assert len({run(threads) for threads in (1, 2, 3, 8)}) == 1


def test_every_loop_form_of_a_fold_is_in_that_test() -> None:
    """Rows, few long rows, columns and few columns over many rows: told by what is parallel in the text."""

    def text(shape: tuple[int, ...], axis: int) -> str:
        return fuser.jit(lambda x: x.sum(axis=axis)).lower(np.zeros(shape, np.float32)).sources[0].text

    assert "chunk" not in text((1000, 1000), 1) and "chunk" in text((3, 300000), 1)
    assert "width" in text((1000, 1000), 0) and "chunk" in text((300000, 3), 0)
    assert get("c").name == "c"


def test_a_library_result_that_numpy_lays_out_otherwise() -> None:
    """NumPy's copy of a broadcast array keeps its order in memory; kernels read row-major arrays."""

    def function(x: Any) -> Any:
        spread = fnp.broadcast_to(fnp.tanh(x), (3, 4, 4))
        return fnp.tanh(spread.at[fnp.array([0, 2])].add(1.0)), fnp.exp(fnp.sort(fnp.exp(x).T, axis=0))

    assert bisect(function, RNG.standard_normal((4, 4)).astype(np.float32)) is None


def test_positions_before_zero_are_divided_downwards() -> None:
    """An interleaving read from its end divides −j, which C's division would round towards zero."""
    x = np.arange(15, dtype=np.float32).reshape(3, 5)

    def program(x: Any) -> Any:
        pairs = fnp.stack([x[:, :2], x[:, 2:4] * 2], 2).reshape(3, 4)
        return fnp.concatenate([pairs, x[:, 4:] + 1], 1)[:, ::-1]

    np.testing.assert_array_equal(np.asarray(fuser.jit(program)(x)), np.asarray(program(fnp.asarray(x))))


@pytest.mark.parametrize("shape", [(200, 300), (30000, 20)], ids=str)
def test_columns_with_a_number_that_is_the_same_for_all(shape: tuple[int, ...]) -> None:
    """What no axis changes is computed before all loops, and needs no array over the columns."""
    x = RNG.standard_normal(shape).astype(np.float32)
    scale = fnp.asarray(np.float32(0.5))
    assert bisect(lambda x, scale: fnp.sum(x * scale, axis=0) / fnp.exp(scale) + x[0], x, scale) is None
    assert bisect(lambda x, scale: fnp.sum(x, axis=0) * fnp.exp(scale), x, scale) is None


def test_what_a_result_may_take_over_is_not_restrict() -> None:
    """A kernel may be called with one array as an operand and as a result; `restrict` would let gcc reorder."""
    x, row, y = np.ones((50, 60), np.float32), np.ones(60, np.float32), np.ones((50, 60), np.int32)
    alone = lambda f, *args: {
        name
        for apart, name in re.findall(r"\*(restrict )?(\w+) = buffers", fuser.jit(f).lower(*args).sources[0].text)
        if not apart
    }
    assert len(alone(lambda x, row: x * 2 + row, x, row)) == 2
    assert len(alone(lambda x, y: x * y, x, y)) == 2
    assert alone(lambda x: x[::-1] + 1, x) == set()
    assert len(alone(lambda x: x - x.sum(1, keepdims=True), x)) == 2, "a carry of a loop may be written in place by it"
    assert alone(lambda x: x.sum(0), x) == set()


def test_halves_are_converted_as_numpy_does() -> None:
    """All of them to float and back; floats between two neighbours, beside the middle, at both ends and beyond."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    wide = halves.astype(np.float32)
    np.testing.assert_array_equal(np.asarray(fuser.jit(lambda x: x.astype(fnp.float32))(halves)), wide)
    finite = np.sort(wide[np.isfinite(wide)])
    middle = (finite[1:] + finite[:-1]) / 2
    floats = np.concatenate([finite, middle, np.nextafter(middle, -np.inf), np.nextafter(middle, np.inf)])
    more = [65504, 65519.996, 65520, 65536, 1e5, 3e38, np.inf, np.nan, 2.0**-25, 2.9e-8, 3e-8, 1e-45, 0.0]
    floats = np.concatenate([floats, np.array(more, np.float32), -np.array(more, np.float32)])
    with np.errstate(over="ignore"):
        expected = floats.astype(np.float16)
    found = np.asarray(fuser.jit(lambda x: x.astype(fnp.float16))(floats))
    np.testing.assert_array_equal(found, expected)
    assert np.array_equal(np.signbit(found), np.signbit(expected))


@pytest.mark.parametrize("count", [1, 3, 4, 5, 8, 11, 70])
@pytest.mark.parametrize("width", [8, 33])
def test_columns_are_folded_several_rows_at_once(count: int, width: int) -> None:
    """Every remainder of rows, and what needs the reductions of an earlier run along the same rows."""
    x = np.random.default_rng(0).integers(-50, 50, (count, width)).astype(np.int32)
    run = lambda np, x: (x.sum(0), x.max(0), np.argmin(x, 0), ((x - x.sum(0)) ** 2).max(0))
    for ours, theirs in zip(fuser.jit(lambda x: run(fnp, x))(x), run(np, x)):
        np.testing.assert_array_equal(ours, theirs)


def test_indices_that_are_truth_values_read_inside_the_array() -> None:
    """gcc 12 takes `x[c ? 1 : 0]` for `x[-c]` where it vectorises it; in every form in which it can see a truth value."""
    table, x = np.array([10, 20], np.float32), np.arange(-30, 36).astype(np.float32)
    forms = {
        "clip": lambda t, x: t.at[(x > 0).astype("int32")].get(mode="clip"),
        "fill": lambda t, x: t.at[(x > 0).astype("int32")].get(mode="fill", fill_value=5),
        "unsigned": lambda t, x: t[(x > 0).astype("uint8")],
        "choice": lambda t, x: t[fnp.where(x > 0, 1, 0)],
        "not": lambda t, x: t[::-1][1 - (x > 0).astype("int32")],
        "of floats": lambda t, x: t[fnp.where(x > 0, 1.0, 0.0).astype("int32")],
    }
    found = fuser.jit(lambda t, x: {name: form(t, x) for name, form in forms.items()})(table, x)
    alone = fuser.jit(forms["clip"])(table, x)
    expected = np.where(x > 0, 20, 10)
    for name, value in {**found, "alone": alone}.items():
        np.testing.assert_array_equal(value, expected, name)


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_reductions_of_bools_have_an_accumulator_of_their_size(axis: int | None) -> None:
    """A byte in a kernel that reads bytes alone, whose vectors then hold 64; the size of a choice beside wider numbers."""
    rng = np.random.default_rng(0)
    mask = rng.random((70, 3000)) < 0.001
    wide = rng.standard_normal((70, 3000)).astype(np.float32)
    for x, least, bytes_alone in ((mask, 0, True), (wide, 3, False)):
        either = fuser.jit(lambda x, least=least: fnp.any(x > least, axis=axis))
        both = fuser.jit(lambda x, least=least: fnp.all(x <= least, axis=axis))
        np.testing.assert_array_equal(either(x), np.any(x > least, axis=axis))
        np.testing.assert_array_equal(both(x), np.all(x <= least, axis=axis))
        if axis is None:
            text = "".join(source.text for source in either.lower(x).sources)
            assert ("uint8_t v0_acc" in text) is bytes_alone
