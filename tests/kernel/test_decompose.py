"""Decompositions of scalar operations: each against NumPy in float64, and programs on backends whose tables lack most of theirs."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import fuser
from fuser import config
from fuser.backends.c import spell as c
from fuser.backends.table import Table
from fuser.backends.tpu import spell as tpu
from fuser.backends.triton import spell as triton
from fuser.ir import scalar as S
from fuser.ir.scalar import Scalar, evaluate
from fuser.ir.types import BOOL, FLOATS, bfloat16
from fuser.kernel.decompose import BASE, DECOMPOSITIONS, Decomposition
from tests.kernel import bare_programs

F16, _, F32, F64 = FLOATS
CLASS = {
    "float": (F16, bfloat16, F32, F64),
    "integer": tuple(np.dtype(f"{s}int{b}") for s in ("", "u") for b in (8, 32, 64)),
}
CLASS["bool"] = (BOOL,)
CASES = [(kind, op) for kind, rules in DECOMPOSITIONS.items() for op in rules]
EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, np.inf, -np.inf, np.nan, 1e-30, 89.0, -103.5, 3e4, 0.7, 1e-3]
# In ulps, and in units of eps near a root. NumPy's own functions are those of float64, rounded.
ULPS = {"lgamma": (40, 40), "erfc": (12, 0), "tan": (8, 2), "cosh": (8, 0), "sinh": (8, 0), "exp2": (6, 0)}


def bare(node: Scalar) -> bool:
    """Whether a target that has nothing but what all must have has the operation."""
    kind = node.args[1].dtype if node.op == "select" else node.args[0].dtype
    name = "bool" if kind == BOOL else "float" if kind in CLASS["float"] else "integer"
    return node.op in (*BASE[name], *BASE["any"])


def has_base(node: Scalar) -> bool:
    return node.op in S.LEAVES or not node.args or bare(node)


def operands(op: str, dtype: np.dtype) -> list[np.ndarray]:
    """Arrays to try an operation on: all pairs of edges and of random values."""
    rng = np.random.default_rng(7)
    if dtype == BOOL:
        values = np.array([False, True])
    elif dtype.kind in "iu":
        info = np.iinfo(dtype)
        random = rng.integers(info.min, info.max, 24, dtype, endpoint=True)
        small = [0, 1, 2, 3, 7, dtype.itemsize * 8 - 1, dtype.itemsize * 8, info.max, info.max - 1]
        values = np.concatenate(
            [np.array(small, dtype), random, np.array([info.min, *([-1, -7] if info.min else [])], dtype)]
        )
    else:
        random = np.concatenate([rng.standard_normal(60), rng.uniform(-30, 30, 60), rng.uniform(0, 1, 30)])
        values = np.concatenate([EDGES, random]).astype(dtype)
    count = S.VOCABULARY[op].arity
    if op.startswith("threefry"):
        return [np.resize(np.roll(values, n), 40) for n in range(4)]
    if op == "select":
        return [np.array(v) for v in zip(*[(a, b, d) for a in values for b in values for d in values])]
    if count == 1:
        return [values]
    left, right = (np.repeat(values, len(values)), np.tile(values, len(values)))
    return [left, right] if count == 2 else [left, right, np.roll(left, 5)]


@pytest.mark.parametrize(("kind", "op"), CASES)
def test_a_decomposition_is_what_numpy_computes(kind: str, op: str) -> None:
    for dtype in CLASS[kind]:
        if (op.startswith("threefry") and dtype != np.uint32) or (op == "fma" and dtype not in (F32, F64)):
            continue
        arrays = operands(op, dtype)
        node = S.apply(op, *(Scalar("input", (), a.dtype, n) for n, a in enumerate(arrays)))
        simpler = Decomposition(has_base).node(node)
        assert simpler is not node
        got, want = (evaluate(e, dict(enumerate(arrays))) for e in (simpler, node))
        assert got.dtype == want.dtype
        compare(op, dtype, got, want, arrays)


def compare(op: str, dtype: np.dtype, got: np.ndarray, want: np.ndarray, arrays: list[np.ndarray]) -> None:
    if want.dtype.kind in "biu":
        wrong = got != want
    elif op == "nextafter":
        wrong = got.view(f"u{dtype.itemsize}") != want.view(f"u{dtype.itemsize}")
        wrong &= ~(np.isnan(got) & np.isnan(want)) & ~(
            (arrays[0] == 0) & (arrays[1] == 0)
        )  # half-precision zeros of NumPy
    else:
        ulps, near = ULPS.get(op, (6, 0))
        wide = want.astype(np.float64)
        eps, tiny = (
            float(f(np.float32 if dtype == bfloat16 else dtype))
            for f in (lambda d: np.finfo(d).eps, lambda d: np.finfo(d).tiny)
        )
        eps = 2.0**-7 if dtype == bfloat16 else eps
        with np.errstate(all="ignore"):
            close = np.abs(got.astype(np.float64) - wide) <= eps * (ulps * np.abs(wide) + near) + 4 * tiny
        same = (got == want) | (np.isnan(got) & np.isnan(want))
        wrong = ~(close | same)
        zeros = (
            (want == 0)
            & (got == 0)
            & (op in ("neg", "abs", "max", "min", "round", "floor", "ceil", "trunc", "asinh", "sinh"))
        )
        wrong |= zeros & (np.signbit(got) != np.signbit(want))
    at = np.flatnonzero(wrong)[:5]
    assert not at.size, (op, dtype, [a[at] for a in arrays], got[at], want[at])


CONVERSIONS = [(old, new) for old in (F16, F32, F64, BOOL, *CLASS["integer"]) for new in (*CLASS["integer"], BOOL, F32)]


@pytest.mark.filterwarnings("ignore:overflow")
def test_conversions_saturate() -> None:
    for old, new in CONVERSIONS:
        if old == new:
            continue
        (values,) = operands("neg" if old != BOOL else "not", old)
        if old.kind == "f":
            values = np.concatenate(
                [values, np.array([3e9, -3e9, 1e19, -1e19, 255.5, 256, -0.9, 2**31, 2**63]).astype(old)]
            )
        node = S.apply("cast", Scalar("input", (), old, 0), dtype=new)
        with np.errstate(all="ignore"):
            got, want = (evaluate(e, {0: values}) for e in (Decomposition(has_base).node(node), node))
        assert np.array_equal(got, want, equal_nan=new.kind == "f"), (old, new)


@pytest.mark.parametrize("table", [c.TABLE, triton.TABLE, tpu.TABLE], ids=lambda table: table.language)
def test_each_table_has_what_nothing_is_made_of(table: Table) -> None:
    dtypes = {"float": F32, "integer": np.dtype("int32"), "bool": BOOL, "any": F32}
    missing = [op for kind, ops in BASE.items() for op in ops if table.spelling(op, dtypes[kind]) is None]
    assert not missing


def test_a_kernel_that_a_target_has_everything_for_stays_as_it_is() -> None:
    node = S.sinh(Scalar("input", (), F32, 0))
    assert Decomposition(c.TABLE.has).node(node) is node
    assert Decomposition(c.TABLE.without("sinh").has).node(node) is not node


def test_c_computes_what_its_table_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c, "TABLE", bare_programs.without(c.TABLE))
    with config.using(backend="c"):
        assert not bare_programs.errors()


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["triton", "tpu"])
def test_interpreters_compute_what_a_table_lacks(backend: str, tmp_path: pathlib.Path) -> None:
    script = pathlib.Path(bare_programs.__file__)
    done = subprocess.run([sys.executable, script, backend], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == []


def test_an_operation_without_a_spelling_or_a_decomposition_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c, "TABLE", c.TABLE.without("atan2"))
    lowered: Any = fuser.jit(lambda x: fuser.numpy.arctan2(x, 2.0) + 1)
    with pytest.raises(fuser.errors.UnsupportedError, match="C has no atan2 of float32, nor what it is made of"):
        lowered.lower(np.ones(3, np.float32))


def test_a_complex_product_of_one_element_has_an_epilogue() -> None:
    x, y = (np.array([1 + 2j, 3 - 1j, n], np.complex64) for n in (2, 5))
    got = fuser.jit(lambda x, y: fuser.lax.dot_general(x, y, (((0,), (0,)), ((), ()))) * 2)(x, y)
    assert np.allclose(got, (x * y).sum() * 2)
