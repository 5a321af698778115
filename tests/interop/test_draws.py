"""Large draws by a kernel: NumPy's numbers, bit for bit, and its generator's state after them, for any size, seed and team of threads."""

from __future__ import annotations

import numpy as np
import pytest

from fuser.interop.numpy import draws
from fuser.runtime import toolchain

CALLS = [
    ("random", (50_000,)),
    ("standard_normal", (300_000,)),
    ("standard_normal", ((300, 411),)),
    ("standard_exponential", (200_001,)),
    ("normal", (1.5, 2.0, 77_777)),
    ("uniform", (-1, 3, 88_888)),
    ("exponential", (2.0, 66_666)),
    ("integers", (0, 1000, 100_001)),
    ("integers", (-3, 2**32 - 100, 50_001)),  # of which many words are rejected
    ("integers", (7, 3 * 10**9, 200_001)),
    ("integers", (2**31 + 7, None, 100_000)),
    ("choice", (1234, 90_000)),
    ("normal", (0.0, 0.0, 9_000)),
]


@pytest.fixture(params=[1, 2, 3])
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(toolchain, "thread_count", lambda: request.param)
    return int(request.param)


@pytest.mark.parametrize("method, arguments", CALLS)
def test_the_numbers_and_the_state_are_numpys(threads, method, arguments):
    for seed in range(4):
        ours, theirs = np.random.default_rng(seed), np.random.default_rng(seed)
        for _ in range(3):
            found, wanted = draws.draw(ours, method, arguments, {}), getattr(theirs, method)(*arguments)
            assert found is not None and found.dtype == wanted.dtype and found.shape == wanted.shape
            assert found.tobytes() == wanted.tobytes()
            assert ours.integers(0, 9) == theirs.integers(0, 9)  # which leaves half of a word over
            assert ours.bit_generator.state == theirs.bit_generator.state


def test_pieces_that_do_not_join_are_decoded_again(monkeypatch):
    """Integers of which nearly every second word is rejected, so that pieces seldom begin where a number does."""
    monkeypatch.setattr(toolchain, "thread_count", lambda: 2)
    ours, theirs = np.random.default_rng(3), np.random.default_rng(3)
    found = draws.draw(ours, "integers", (0, 2**31 + 1, 400_000), {})
    np.testing.assert_array_equal(found, theirs.integers(0, 2**31 + 1, 400_000))
    assert ours.bit_generator.state == theirs.bit_generator.state


@pytest.mark.parametrize(
    "method, arguments, names",
    [
        ("normal", (0.0, -1.0, 9_000), {}),  # an error of NumPy's
        ("exponential", (-0.0, 9_000), {}),
        ("uniform", (0.0, np.inf, 9_000), {}),
        ("integers", (0, 2**40, 9_000), {}),
        ("integers", (5, 5, 9_000), {}),
        ("integers", (0, 9, 9_000), {"dtype": np.int8}),
        ("random", (9_000,), {"dtype": np.float32}),
        ("standard_exponential", (9_000,), {"method": "inv"}),
        ("normal", (np.zeros(9_000),), {}),
        ("choice", (20_000, 9_000), {"replace": False}),
        ("gamma", (2.0, 1.0, 9_000), {}),
        ("random", (100,), {}),
    ],
)
def test_what_the_kernel_does_not_serve_is_left_to_numpy(method, arguments, names):
    generator = np.random.default_rng(0)
    before = generator.bit_generator.state
    assert draws.draw(generator, method, arguments, names) is None
    assert generator.bit_generator.state == before


@pytest.mark.parametrize("bits", [np.random.MT19937, np.random.Philox, np.random.SFC64, np.random.PCG64DXSM])
def test_other_generators_are_numpys(bits):
    assert draws.draw(np.random.Generator(bits(0)), "random", (20_000,), {}) is None


def test_a_stream_that_numpy_changed_is_left_to_numpy(monkeypatch):
    layers = draws._layers("standard_normal")
    changed = type(layers).from_buffer_copy(layers)
    changed.scale[5] *= 2
    monkeypatch.setattr(draws, "_layers", lambda standard: changed)
    monkeypatch.setattr(draws, "_agrees", draws._agrees.__wrapped__)
    generator = np.random.default_rng(0)
    assert draws.draw(generator, "standard_normal", (20_000,), {}) is None
    assert generator.bit_generator.state == np.random.default_rng(0).bit_generator.state
