"""What `np.where(mask)`, `np.nonzero` and `np.flatnonzero` give for a traced mask, as an index and in arithmetic, against NumPy."""

import copy

import numpy as np
import pytest

import fuser

RNG = np.random.default_rng(11)


def mean_of_found(x):
    return x[np.where(x > 0.3)].mean()


def cleared(x):
    x[np.where(x < 0)] = 0
    return x.sum()


def doubled(x):
    found = np.where(x > 0.5)
    x[found] *= 2
    return x


def first_of_tuple(x):
    (i,) = np.nonzero(x > 0.5)
    return i.sum(), i.max(), x[i].std()


def flat(x):
    i = np.flatnonzero(x)
    return i.mean(), x[i].sum()


def of_another(x):
    y = np.sqrt(np.abs(x)) + 1
    i = (x > 0).nonzero()[0]
    y[i] = y[i] - x[i]
    return y


ONE = (mean_of_found, cleared, doubled, first_of_tuple, flat, of_another)


def centroid(image):
    i, j = np.where(image > 0.5)
    return i.mean(), j.mean(), image[i, j].sum()


def holes(image):
    image[np.where(np.isnan(image))] = 0
    return image.mean()


def brightened(image):
    i, j = np.nonzero(image > 0.7)
    image[i, j] = np.minimum(image[i, j] * 1.5, 1)
    return image


TWO = (centroid, holes, brightened)


def rows(x):
    i = np.where(x[:, 0] > 0)[0]
    return x[i].mean(axis=0), x[i, 1].sum(), x[:, 2][i].max()


def rows_written(x):
    i = np.where(x[:, 0] > 0)[0]
    x[i, 1] = 0
    x[i, 2] += 1
    return x


def columns(x):
    j = np.flatnonzero(x.sum(axis=0) > 0)
    return x[:, j].sum(axis=1)


ROWS = (rows, rows_written)


def alike(function, x, whole=True):
    """The accelerated function's results and effects are NumPy's, and it is one program where it is to be."""
    fast = fuser.accelerate(function, fallback="error" if whole else "segments", measure=False)
    for _ in range(3):
        mine, theirs = copy.deepcopy(x), copy.deepcopy(x)
        found, wanted = fast(mine), function(theirs)
        for a, b in zip(*(v if isinstance(v, tuple) else (v,) for v in (found, wanted)), strict=True):
            assert np.asarray(a).dtype == np.asarray(b).dtype
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(mine, theirs, rtol=1e-12)
    if whole:
        assert "compiled whole" in fast.explain()


@pytest.mark.parametrize("function", ONE)
def test_positions_along_one_dimension(function):
    alike(function, RNG.normal(size=5000))


@pytest.mark.parametrize("function", TWO)
def test_positions_along_two_dimensions(function):
    image = RNG.random((60, 70))
    if function is holes:
        image[RNG.random((60, 70)) < 0.1] = np.nan
    alike(function, image)


@pytest.mark.parametrize("function", ROWS)
def test_positions_of_rows_and_columns(function):
    alike(function, RNG.normal(size=(500, 5)))


def moved(x):
    i = np.where(x[1:-1] > 0.5)[0] + 1
    return x[i].sum()


def moved_in_place(x):
    i = np.where(x[1:-1] > 0.5)[0]
    i += 1
    return x[i].sum()


def of_a_part(x):
    i = np.where(x[:100] > 0.5)[0]
    return x[i].sum()


def swapped(x):
    y = x[:4900].reshape(70, 70)
    i, j = np.where(y > 0.5)
    return y[j, i].sum()


def counted(x):
    i = np.where(x > 0.5)[0]
    return len(i), i.size, i[:3].sum()


def none_found(x):
    i = np.where(x > 1e9)[0]
    return x[i].sum(), (i + x.size).sum()


def written_since(x):
    i = np.where(x > 0.5)[0]
    x[i] = -1
    x[0] = 9
    return x[i].sum(), x[np.where(x > 0.5)].sum()


def columns_by_positions_of_rows(x):
    y = x[:4900].reshape(70, 70)
    i = np.where(y[:, 0] > 0)[0]
    return y[i][:, i].sum(), y[:, i].sum(axis=0).max()


def test_columns_at_positions():
    alike(columns, RNG.normal(size=(50, 80)), whole=False)


@pytest.mark.parametrize(
    "function",
    [moved, moved_in_place, of_a_part, swapped, counted, none_found, written_since, columns_by_positions_of_rows],
)
def test_positions_that_are_no_mask_of_what_they_index(function):
    alike(function, RNG.normal(size=5000), whole=False)
