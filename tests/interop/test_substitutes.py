"""NumPy's functions that are answered by kernels of the host: the same results, types and errors."""

import numpy as np
import pytest

import fuser
from fuser.interop.numpy import host_kernels
from fuser.interop.numpy.substitutes import faster, item

SIZES = (host_kernels.FEWEST, 40_001)


def _arrays(size, dtype):
    random = np.random.default_rng(size)
    x = random.standard_normal(size).astype(dtype)
    few = np.round(x, 1)
    yield from (x, few, np.sort(x), -np.sort(x), np.zeros(size, dtype), np.where(x > 0, 1, x).astype(dtype))
    yield random.standard_cauchy(size).astype(dtype)
    yield np.where(x > 3, np.inf, x).astype(dtype)


def _same(found, wanted):
    assert type(found) is type(wanted)
    if isinstance(wanted, (tuple, list)):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted):
            _same(one, other)
        return
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", SIZES)
def test_order_statistics_are_numpys(size, dtype):
    assert host_kernels.neighbours(np.arange(size, dtype=dtype), [3]) == [(3, 4)]
    for x in _arrays(size, dtype):
        with np.errstate(invalid="ignore"):
            _same(faster(np.median)(x), np.median(x))
            for q in (0.5, 1.0, 0, 0.02, [0.25, 0.75], np.array([[0.1, 0.999]]), np.float32(0.3), [0.0, 1.0]):
                _same(faster(np.quantile)(x, q), np.quantile(x, q))
                percent = np.multiply(q, 100)
                _same(faster(np.percentile)(x, percent), np.percentile(x, percent))


def test_order_statistics_that_numpy_answers():
    x = np.random.default_rng(1).random((200, 200))
    for function, arguments in ((np.median, ()), (np.quantile, (0.3,)), (np.percentile, (30,))):
        for options in ({}, {"axis": 0}, {"axis": -1, "keepdims": True}, {"keepdims": True}):
            _same(faster(function)(x, *arguments, **options), function(x, *arguments, **options))
            _same(faster(function)(x.T, *arguments, **options), function(x.T, *arguments, **options))
    _same(faster(np.quantile)(x, 0.3, method="nearest"), np.quantile(x, 0.3, method="nearest"))
    with pytest.raises(ValueError, match=r"range \[0, 1\]"):
        faster(np.quantile)(x, 1.5)
    x[3, 4] = np.nan
    _same(faster(np.median)(x), np.median(x))
    _same(faster(np.quantile)(x, 0.5), np.quantile(x, 0.5))


@pytest.mark.parametrize("share", [0, 0.001, 0.3, 1])
@pytest.mark.parametrize("size", SIZES)
def test_compaction_is_numpys(size, share):
    random = np.random.default_rng(size)
    mask = random.random(size) < share
    assert host_kernels.positions(mask) is not None
    for function in (np.flatnonzero, np.nonzero, np.where):
        _same(faster(function)(mask), function(mask))
        _same(faster(function)(mask[::2]), function(mask[::2]))
    for dtype in ("float64", "float32", "int64", "int32", "uint8", "complex128", "M8[s]"):
        x = (100 * random.random(size)).astype("int64").astype(dtype)
        _same(item(x, mask), x[mask])
        _same(item(x[::-1], mask), x[::-1][mask])
    square = mask[: size // 8 * 8].reshape(8, -1)
    _same(faster(np.nonzero)(square), np.nonzero(square))
    _same(faster(np.flatnonzero)(square), np.flatnonzero(square))
    with pytest.raises(IndexError):
        item(x[:-1], mask)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", SIZES)
def test_histograms_are_numpys(size, dtype):
    for x in _arrays(size, dtype):
        if not np.isfinite(x).all():
            with pytest.raises(ValueError, match="is not finite"):
                faster(np.histogram)(x)
            continue
        for bins in (1, 7, 10, 64, 1000, [-1, 0, 2], "auto"):
            if bins == "auto" and np.ptp(x) > 100:
                continue
            _same(faster(np.histogram)(x, bins), np.histogram(x, bins))
        edges = np.histogram_bin_edges(x, 13)
        picked = np.resize(edges, size).astype(dtype)  # on the edges, and next to them
        near = np.clip(np.nextafter(picked, picked.mean()), picked.min(), picked.max())
        for each in (picked, near):
            _same(faster(np.histogram)(each, 13), np.histogram(each, 13))
        _same(faster(np.histogram)(x, 10, (0, 1)), np.histogram(x, 10, (0, 1)))
        _same(faster(np.histogram)(x, density=True), np.histogram(x, density=True))
    assert host_kernels.counts(np.arange(5.0), np.arange(5.0)) is not None


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int64", "uint64", "int32"])
def test_distinct_integers_are_numpys(dtype):
    random = np.random.default_rng(3)
    info = np.iinfo(dtype)
    for low, high in ((0, 60), (max(info.min, -50), 50), (info.max - 100, info.max), (info.min, info.max)):
        x = random.integers(low, high, (200, 100), dtype=dtype, endpoint=True)
        _same(faster(np.unique)(x), np.unique(x))
        _same(faster(np.unique)(x, return_counts=True), np.unique(x, return_counts=True))
        _same(faster(np.unique)(x, return_inverse=True), np.unique(x, return_inverse=True))
        both = {"return_inverse": True, "return_counts": True}
        _same(faster(np.unique)(x, **both), np.unique(x, **both))
        _same(faster(np.unique)(x, return_index=True), np.unique(x, return_index=True))
        _same(faster(np.unique)(x, axis=0), np.unique(x, axis=0))


def test_arguments_in_all_their_forms():
    x, whole = np.random.default_rng(4).random(20_000), np.arange(20_000) % 90
    mask = x > 0.5
    for function, args, options in (
        (np.median, (x, 0), {}), (np.median, (x, None, None, True, True), {}), (np.median, (), {"a": x}),
        (np.quantile, (x, 0.2, 0, None), {}), (np.quantile, (x,), {"q": [0.1], "method": "lower"}), (np.quantile, (), {"a": x, "q": 0.3}),
        (np.percentile, (x, 20, -1), {}), (np.where, (mask, x, 0), {}), (np.nonzero, (), {"a": mask}), (np.flatnonzero, (x,), {}),
        (np.unique, (whole, True, True, True), {}), (np.unique, (whole, False), {"return_counts": True}), (np.unique, (), {"ar": whole}),
        (np.histogram, (x, 5, None, True), {}), (np.histogram, (x,), {"weights": x}), (np.histogram, (), {"a": x, "bins": 3}),
    ):  # fmt: skip
        _same(faster(function)(*args, **options), function(*args, **options))


def test_accelerated_functions_use_them():
    def outliers(x):
        far = np.flatnonzero(np.abs(x - np.median(x)) > 2)
        return far, x[x > np.quantile(x, 0.9)], np.unique((4 * x).astype(int), return_counts=True)

    x = np.random.default_rng(5).standard_normal(50_000)
    accelerated = fuser.accelerate(outliers, measure=False)
    for _ in range(3):
        _same(accelerated(x), outliers(x))
