"""Prefix scans along memory beside dear work, kept rows, reductions and further scans, against the reference backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser.config import config


def after_a_reduction(x: Any) -> tuple[Any, ...]:
    s = fnp.sin(x)
    c = fnp.cumsum(s * 0.01, 1)
    return c, c - c.max(1, keepdims=True)


def kept_before(x: Any) -> tuple[Any, ...]:
    s = fnp.sin(x)
    return fnp.cumsum(s * 0.01, 1), s - s.max(1, keepdims=True)


def both(x: Any) -> tuple[Any, ...]:
    s = fnp.exp(fnp.sin(x))
    c, d = fnp.cumsum(s, 1), fnp.cumsum(s * s, 1)
    return c - c.mean(1, keepdims=True), d / d.max(1, keepdims=True), s - s.sum(1, keepdims=True)


def chained(x: Any) -> tuple[Any, ...]:
    c = fnp.cumsum(fnp.tanh(x), 1)
    return fnp.cumsum(fnp.cos(c), 1) - c, fnp.cumsum(c - c.max(1, keepdims=True), 1)


def backwards(x: Any) -> tuple[Any, ...]:
    s = fnp.sin(x)
    c = fuser.lax.cumsum(s, 1, reverse=True)
    return c, c - c.min(1, keepdims=True) * s


def extremes(x: Any) -> tuple[Any, ...]:
    s = fnp.sin(x * 7)
    c = fuser.lax.cummax(s, 1)
    return c - c.sum(1, keepdims=True), fuser.lax.cumprod(1 + 0.01 * s, 1) * s.max(1, keepdims=True)


def watched(x: Any) -> tuple[Any, ...]:
    s = fnp.log1p(x)
    c = fuser.lax.cummax(s, 1)
    d = fuser.lax.cumsum(s, 1, reverse=True)
    return c - s, d * s, fnp.any(~fnp.isfinite(c), 1), fnp.max(s, 1)


@pytest.mark.parametrize("function", [after_a_reduction, kept_before, both, chained, backwards, extremes, watched])
@pytest.mark.parametrize("shape", [(5, 300), (40, 70), (3, 20), (2, 40_000), (1, 66_049)], ids=str)
def test_scans_and_what_stands_around_them(function: Any, shape: tuple[int, int]) -> None:
    x = np.random.default_rng(0).random(shape).astype(np.float32)
    got = fuser.jit(function)(x)
    with config.using(backend="reference"):
        want = fuser.jit(function)(x)
    for a, b in zip(got, want, strict=True):
        scale = float(np.abs(np.asarray(b)).max())
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), 1e-5, 2e-6 * scale)


@pytest.mark.parametrize("columns", [30, 17, 7, 50])
@pytest.mark.parametrize("scan", [fnp.cumsum, fuser.lax.cummax, fuser.lax.cumprod, fuser.lax.cumlogsumexp])
def test_scans_across_short_rows_run_in_whole_vectors_under_a_mask(scan: Any, columns: int) -> None:
    x, y = (np.random.default_rng(n).random(s).astype(np.float32) for n, s in enumerate([(20, 9, columns), (columns,)]))
    run = fuser.jit(lambda x, y: scan(fnp.maximum(fnp.sin(x * 3), y) * fnp.float32(0.9), axis=1))
    with config.using(backend="reference"):
        want = np.asarray(run(x, y))
    np.testing.assert_allclose(run(x, y), want, 1e-5, 1e-6)
    (source,) = run.lower(x, y).sources
    if columns == 30:
        assert any(schedule.masking for schedule in source.schedules.values())


def test_a_scan_of_a_scan_is_a_kernel_of_its_own() -> None:
    """In one, both would run element after element, and so would the functions of maths."""
    lowered = fuser.jit(chained).lower(np.ones((400, 3000), np.float32))
    assert len([group for group in lowered.plan.groups if "cumsum" in group.name]) > 1
    assert not any("scalar" in source.launch for source in lowered.sources)
    assert any("waits for the other's" in decision.reason for decision in lowered.plan.decisions)


def test_sums_beside_a_scan_that_is_set_apart_run_over_whole_rows() -> None:
    """Their lanes add few numbers one after the other, so that blocks, which would cut the scan's loops too, are long."""

    def f(x):
        return fnp.cumsum(fnp.exp(x) * 0.01, axis=1), fnp.sum(x - fnp.mean(x, axis=1, keepdims=True), axis=1)

    x = np.random.default_rng(0).standard_normal((200, 600)).astype(np.float32)
    [source] = fuser.jit(f).lower(x).sources
    assert "_row[" in source.text
    assert "_from += " not in source.text
    total, sums = fuser.jit(f)(x)
    y = x.astype(np.float64)
    np.testing.assert_allclose(total, np.cumsum(np.exp(y) * 0.01, axis=1), rtol=1e-5)
    np.testing.assert_allclose(sums, 0 * y.sum(1), atol=1e-3)
