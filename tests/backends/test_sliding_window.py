"""Values that the neighbours of a stencil share: which kernels keep them, and that they compute the same numbers, to the bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import Schedule
from fuser.backends.c.schedules import sliding_window
from fuser.backends.c.target import TARGET
from fuser.config import config
from fuser.kernel import sliding_window as windows
from tests.stencils import STENCILS, bilateral, diffusion, weno

PLAIN = Schedule(sliding_window=False)


def numbers(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(7).random(shape).astype(dtype)


def kept(function: Callable, *arguments: object, **options: object) -> int:
    """The values that a program's kernels keep."""
    sources = fuser.jit(function, **options).lower(*arguments).sources
    schedules = [schedule for source in sources for schedule in source.schedules.values()]
    return sum(part.sliding_window or 0 for schedule in schedules for part in (schedule, *schedule.pieces))


def both(function: Callable, *arguments: np.ndarray) -> None:
    """Compare a program with and without windows: the same bits, signs of zeros among them."""
    assert kept(function, *arguments)
    found, plain = (np.asarray(fuser.jit(function, schedule=s)(*arguments)) for s in (None, PLAIN))
    np.testing.assert_array_equal(found, plain)
    np.testing.assert_array_equal(np.signbit(found[found == found]), np.signbit(plain[plain == plain]))


def flux(u: fnp.ndarray) -> fnp.ndarray:
    """What flows out of each cell to its four neighbours."""
    centre = u[1:-1, 1:-1]
    steps = [u[:-2, 1:-1] - centre, u[2:, 1:-1] - centre, u[1:-1, :-2] - centre, u[1:-1, 2:] - centre]
    return sum(fnp.exp(-(step * step)) * step for step in steps)


@pytest.fixture(autouse=True)
def _wide() -> Iterator[None]:
    with config.using(enable_x64=True):
        yield


@pytest.mark.parametrize("stencil", STENCILS, ids=lambda s: s.__name__)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_stencils(stencil: Callable, dtype: str) -> None:
    u = numbers(90, 131, dtype=dtype)
    found = np.asarray(fuser.jit(lambda u: stencil(fnp, u))(u))
    plain = np.asarray(fuser.jit(lambda u: stencil(fnp, u), schedule=PLAIN)(u))
    np.testing.assert_array_equal(found, plain)
    wanted = stencil(np, u.astype(np.float64))
    np.testing.assert_allclose(
        found, wanted, rtol=1e-4 if dtype == "float32" else 1e-11, atol=2e-6 if dtype == "float32" else 1e-12
    )
    np.testing.assert_allclose(
        fuser.accelerate(lambda u: stencil(np, u))(u),
        stencil(np, u),
        rtol=1e-4,
        atol=2e-6 if dtype == "float32" else 1e-12,
    )


def test_which_kernels_keep_values() -> None:
    u = numbers(90, 131)
    assert kept(flux, u) == 2, "one value along rows, one across them"
    assert kept(lambda u: bilateral(fnp, u), u) == 4, "of eight neighbours each is the opposite of another"
    assert kept(lambda u: bilateral(fnp, u, radius=2), u) == 12
    assert not kept(lambda u: u[1:] + u[:-1], u), "additions take no longer than reading what is kept"
    assert kept(lambda u: weno(fnp, u), u) == 1, "the flux: squares of differences take no longer than reading them"
    assert not kept(lambda u: fnp.exp(u[1:] - u[:-1]) + fnp.exp(u[:-1] - u[1:]), u), "exp is not even"
    assert not kept(flux, numbers(90, 31)), "rows too short"
    assert not kept(flux, u, schedule=PLAIN)
    assert "values kept in sliding windows" in str(fuser.explain(flux, verbose=True)(u).steps[0].schedule)


@pytest.mark.parametrize("shape", [(12, 600), (34, 131), (35, 1027), (66, 80), (10, 5000)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_shapes(shape: tuple[int, int], dtype: str) -> None:
    both(flux, numbers(*shape, dtype=dtype))


def test_zeros_and_what_is_not_finite() -> None:
    """Differences of equal numbers are +0 from both sides; nan and infinities reach the neighbours that read them."""
    u = np.round(numbers(70, 200) * 3).astype("float32")
    both(flux, u)
    both(flux, -u * 0)
    u[5, 7], u[20, 100], u[40, 199] = np.nan, np.inf, -np.inf
    both(flux, u)


def test_odd_values_are_not_kept_for_their_negatives() -> None:
    """The negative of +0 would be -0."""
    odd = lambda u: sum(1 / (d * fnp.exp(-(d * d))) for d in (u[:, 1:-1] - u[:, :-2], u[:, 1:-1] - u[:, 2:]))
    both(odd, np.round(numbers(70, 200) * 3).astype("float32"))


def test_a_zero_in_what_is_divided_by() -> None:
    """A product of two differences has a zero of either sign, which must not become infinities of other signs."""

    def quotients(u: fnp.ndarray) -> fnp.ndarray:
        here = [(u[:, 1:-1] - u[:, :-2], u[:, 1:-1] + 1), (u[:, 1:-1] - u[:, 2:], u[:, 1:-1] + 1)]
        return sum(fnp.exp(1 / (a * b)) for a, b in here)

    u = np.round(numbers(70, 200) * 3).astype("float32")
    found, plain = (np.asarray(fuser.jit(quotients, schedule=s)(u)) for s in (None, PLAIN))
    np.testing.assert_array_equal(found, plain)


def test_values_of_values() -> None:
    """A kept value is made of others, which are kept further ahead."""

    def twice(u: fnp.ndarray) -> fnp.ndarray:
        k = fnp.exp(-u) * fnp.sqrt(u)
        east, south = fnp.exp(k[1:-1, 1:] * k[1:-1, :-1]), fnp.exp(k[1:, 1:-1] * k[:-1, 1:-1])
        return east[:, 1:] - east[:, :-1] + south[1:] - south[:-1]

    u = numbers(70, 200)
    both(twice, u)
    np.testing.assert_allclose(fuser.jit(twice)(u), _twice(u.astype(np.float64)), rtol=1e-4, atol=1e-5)


def _twice(u: np.ndarray) -> np.ndarray:
    k = np.exp(-u) * np.sqrt(u)
    east, south = np.exp(k[1:-1, 1:] * k[1:-1, :-1]), np.exp(k[1:, 1:-1] * k[:-1, 1:-1])
    return east[:, 1:] - east[:, :-1] + south[1:] - south[:-1]


def test_corners_beyond_the_array_are_not_read() -> None:
    """Diagonal neighbours: the box around both reads begins before the array where rows are whole."""
    diagonal = lambda u: fnp.exp(u[1:, 1:] * u[:-1, :-1])[1:, 1:] + fnp.exp(u[1:, 1:] * u[:-1, :-1])[:-1, :-1]
    u = numbers(70, 200)
    found, plain = (np.asarray(fuser.jit(diagonal, schedule=s)(u)) for s in (None, PLAIN))
    np.testing.assert_array_equal(found, plain)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_along_each_axis_of_three(axis: int) -> None:
    def step(u: fnp.ndarray) -> fnp.ndarray:
        part = lambda *span: u[tuple(slice(*span) if n == axis else slice(None) for n in range(3))]
        here, before, behind = part(1, -1), part(None, -2), part(2, None)
        return sum(fnp.exp(-((other - here) ** 2)) * (other - here) for other in (before, behind))

    both(step, numbers(12, 20, 150))


def test_updates_of_a_part() -> None:
    """Steps that are written into the array itself, whose frame stays."""

    def steps(u: fnp.ndarray) -> fnp.ndarray:
        for _ in range(3):
            u = u.at[1:-1, 1:-1].add(0.1 * flux(u))
        return u

    both(steps, numbers(90, 131))


def test_integers_that_are_divided_are_not_computed_ahead() -> None:
    u = np.arange(1, 1 + 90 * 131, dtype=np.int32).reshape(90, 131)
    quotient = lambda u: fnp.sqrt((u[1:, 1:] // u[:-1, 1:]).astype("float32"))
    assert not kept(lambda u: quotient(u)[:, 1:] + quotient(u)[:, :-1], u)


@pytest.mark.parametrize("size", [8, 130])
def test_checks_of_what_is_finite(size: int) -> None:
    """NumPy's warnings come of reductions, which take in a shared value once."""
    program = lambda u: diffusion(np, u)
    u = numbers(size, 300)
    accelerated = fuser.accelerate(program)
    np.testing.assert_allclose(accelerated(u), program(u), rtol=1e-5, atol=1e-6)
    schedules = [s for source in accelerated.lower(u).sources for s in source.schedules.values()]
    assert any(s.sliding_window for s in schedules) is (size > 8)
    u[3, 290] = 1e30
    with pytest.warns(RuntimeWarning, match="overflow"):
        accelerated(u)


def test_reductions_of_extremes() -> None:
    """The largest flux, beside the step itself."""

    def step(u: fnp.ndarray) -> tuple[fnp.ndarray, fnp.ndarray]:
        found = flux(u)
        return found, abs(found).max()

    u = numbers(90, 300)
    found, plain = (fuser.jit(step, schedule=s)(u) for s in (None, PLAIN))
    for a, b in zip(found, plain):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_threads_share_chunks_of_rows() -> None:
    assert sliding_window.CHUNK_ROWS * 8 <= 400
    u, before, found = numbers(400, 300), config.threads, []
    try:
        for count in (1, 4):
            config.update("threads", count)
            found.append(np.asarray(fuser.jit(flux)(u)))
    finally:
        config.update("threads", before)
    np.testing.assert_array_equal(*found)


def _random_stencil(random: np.random.Generator) -> Callable:
    """Expressions over neighbours of one array or two, made again at other places, negated, squared and chosen between."""
    radius = int(random.integers(1, 3))
    plans = random.integers(0, 1 << 30, 6)

    def value(fields: list, place: tuple[int, int], seed: int, depth: int) -> fnp.ndarray:
        own = np.random.default_rng(seed)
        i, j = place
        if depth == 0:
            field = fields[own.integers(len(fields))]
            i, j = i + int(own.integers(-1, 2)), j + int(own.integers(-1, 2))
            rows, columns = (n - 4 * radius - 2 for n in field.shape)
            first, second = 2 * radius + 1 + i, 2 * radius + 1 + j
            return field[first : first + rows, second : second + columns]
        a, b = (value(fields, place, int(own.integers(1 << 30)), depth - 1) for _ in range(2))
        kind = own.integers(10)
        if kind < 3:
            return (a - b, b - a, a + b)[kind]
        if kind < 5:
            return (a * b, a * a)[kind - 3]
        if kind < 7:
            return (fnp.exp(-abs(a)), fnp.where(a > b, a, 2.5 * b))[kind - 5]
        return (a / (1 + b * b), abs(a) - 0.25, fnp.maximum(a, b))[kind - 7]

    def program(*fields: fnp.ndarray) -> fnp.ndarray:
        result = 0.0
        for plan in plans:
            own = np.random.default_rng(plan)
            seed, depth = int(own.integers(1 << 30)), int(own.integers(1, 4))
            for _ in range(int(own.integers(1, 4))):
                place = tuple(map(int, own.integers(-radius, radius + 1, 2)))
                result = result * 0.5 + value(list(fields), place, seed, depth)
        return result

    return program


@pytest.mark.parametrize("seed", range(40))
def test_random_stencils(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever values may be kept, as if that always paid."""
    monkeypatch.setattr(sliding_window, "TARGET", replace(TARGET, kept=0.0))
    monkeypatch.setattr(windows, "LEAST_SHARE", 0)
    random = np.random.default_rng(seed)
    program = _random_stencil(random)
    shape = tuple(map(int, random.integers((40, 90), (80, 300))))
    dtype = str(random.choice(["float32", "float64", "float16"]))
    fields = [np.round(random.standard_normal(shape) * 4).astype(dtype) / 4 for _ in range(random.integers(1, 3))]
    with np.errstate(all="ignore"):
        found, plain = (np.asarray(fuser.jit(program, schedule=s)(*fields)) for s in (None, PLAIN))
    np.testing.assert_array_equal(found, plain)
