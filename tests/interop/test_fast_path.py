"""Calls of accelerated functions that the native core answers by itself: what they give is NumPy's, and Python takes whatever else."""

import gc
import weakref

import numpy as np
import pytest

from fuser import accelerate
from fuser.config import config
from fuser.interop.accelerate import Accelerated
from fuser.runtime.core import native

pytestmark = pytest.mark.skipif(native is None, reason="the native core was not built")
SCALE = 2.0
TABLE = np.arange(4.0)


def _shift(u, block):
    u[: -len(block)] = u[len(block) :].copy()
    u[-len(block) :] = block
    return u[1:]


def _border(u):
    u[0] = u[-1] = 0.0
    u[:, 0] *= 2


CASES = {
    "one result": (lambda x: x + 1, lambda: (np.arange(6.0).reshape(2, 3),)),
    "a tuple": (lambda x, y: (x * y, [x - y, {"a": x}]), lambda: (np.arange(3.0), np.ones(3))),
    "a scalar": (lambda x: x.sum(), lambda: (np.arange(5.0, dtype=np.float32),)),
    "a number and a constant": (lambda x, a: (a * 2, 3, None, "word", x + a), lambda: (np.arange(5.0), 1.5)),
    "numbers": (lambda x, a, z, s: (x * a + s, z * a), lambda: (np.arange(3.0), 0.5, 1 + 2j, np.float32(3))),
    "small integers": (lambda x, n: x[:n] * n, lambda: (np.arange(6, dtype=np.int16), 4)),
    "words": (lambda x, how: x.sum() if how == "sum" else x.max(), lambda: (np.arange(4.0), "sum")),
    "closures": (lambda x: x * SCALE + TABLE, lambda: (np.ones(4),)),
    "a transposed result": (lambda x: x.T + 1, lambda: (np.arange(6.0).reshape(2, 3),)),
    "writes": (_shift, lambda: (np.arange(9.0), np.array([1.0, 2.0]))),
    "borders": (_border, lambda: (np.ones((4, 5)),)),
    "a view": (lambda x: (x + 1)[1:], lambda: (np.arange(5.0),)),
    "the argument": (lambda x, y: (x, y * 2), lambda: (np.arange(5.0), np.ones(2))),
    "no elements": (lambda x: x * 2, lambda: (np.ones((0, 3)),)),
}


@pytest.fixture
def alone(monkeypatch):
    """Say when Python is asked no more."""

    def refuse(self, *args, **kwargs):
        raise AssertionError("Python was asked for a call that the native core knows")

    return lambda: monkeypatch.setattr(Accelerated, "_in_python", refuse)


def _same(found, wanted):
    assert type(found) is type(wanted)
    if isinstance(wanted, (tuple, list)):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted):
            _same(one, other)
    elif isinstance(wanted, dict):
        _same(list(found.items()), list(wanted.items()))
    elif isinstance(wanted, np.ndarray):
        assert (found.dtype, found.shape, found.strides) == (wanted.dtype, wanted.shape, wanted.strides)
        np.testing.assert_array_equal(found, wanted)
    else:
        assert found == wanted


@pytest.mark.parametrize("name", CASES)
def test_calls_without_python_are_numpys(name, alone):
    function, make = CASES[name]
    accelerated = accelerate(function, measure=False)
    ours, theirs = make(), make()
    for call in range(5):
        if call == 2:
            alone()
        _same(accelerated(*ours), function(*theirs))
        _same(ours, theirs)


def test_results_are_arrays_of_their_own():
    accelerated = accelerate(lambda x: x * 1.0, measure=False)
    x = np.ones(3)
    results = [accelerated(x) for _ in range(4)]
    for result in results:
        result[0] = 5
    assert x[0] == 1
    assert not any(np.shares_memory(results[-1], other) for other in results[:-1])


def test_what_changed_outside_is_read_again(monkeypatch):
    accelerated = accelerate(lambda x: x * SCALE + TABLE, measure=False)
    x = np.ones(4)
    for scale in (2.0, 2.0, 3.0, 4.0, 4.0, 2.0):
        monkeypatch.setitem(globals(), "SCALE", scale)
        TABLE[0] = -scale
        _same(accelerated(x), x * scale + TABLE)
    TABLE[0] = 0.0


def test_other_arguments_are_other_calls():
    accelerated = accelerate(lambda x, n: x[::-1] * n, measure=False)
    arrays = [
        np.arange(6.0),
        np.arange(6),
        np.arange(12.0)[::2],
        np.arange(6.0).reshape(2, 3),
        np.arange(6.0, dtype=">f8"),
    ]
    for n in (2, True, 2.5, np.float32(3)):
        for x in arrays * 2:
            found, wanted = accelerated(x, n), x[::-1] * n
            np.testing.assert_array_equal(found, wanted)
            assert found.dtype == wanted.dtype


def test_events_are_told_by_numpy():
    accelerated = accelerate(lambda x: 1 / x, measure=False)
    good, bad = np.ones(3), np.array([1.0, 0.0, 2.0])
    for _ in range(3):
        accelerated(good)
    for _ in range(4):  # the program is traced anew after two events
        with pytest.warns(RuntimeWarning, match="divide by zero"):
            np.testing.assert_array_equal(accelerated(bad), [1, np.inf, 0.5])
        _same(accelerated(good), good)


def test_errors_are_numpys_own():
    accelerated = accelerate(lambda x, i: x[i], measure=False)
    x = np.arange(4.0)
    for _ in range(3):
        _same(accelerated(x, np.array([1, 3])), x[[1, 3]])
    for _ in range(3):
        with pytest.raises(IndexError, match="index 4 is out of bounds"):
            accelerated(x, np.array([1, 4]))


def test_errstate_is_the_calls():
    accelerated = accelerate(lambda x: np.log(x), measure=False)
    x = np.array([1.0, 0.0])
    for _ in range(2):
        with pytest.warns(RuntimeWarning):
            accelerated(x)
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        accelerated(x)
    with np.errstate(all="ignore"):
        for _ in range(3):
            np.testing.assert_array_equal(accelerated(x), [0, -np.inf])


def test_memory_that_arguments_share_is_left_to_numpy():
    def add(u, v):
        u[1:] += v[:-1]
        return u

    accelerated = accelerate(add, measure=False)
    for _ in range(3):
        accelerated(np.ones(4), np.ones(4))
    for make in (lambda: (lambda u: (u, u))(np.arange(5.0)), lambda: (lambda u: (u[:5], u[1:]))(np.arange(6.0))):
        ours, theirs = make(), make()
        _same(accelerated(*ours), add(*theirs))
        _same(ours, theirs)
    fixed = np.ones(4)
    fixed.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        accelerated(fixed, np.ones(4))


def test_settings_are_part_of_a_path():
    accelerated = accelerate(lambda x: x + 1, measure=False)
    x = np.ones(3)
    for _ in range(3):
        accelerated(x)
    with config.using(backend="reference"):
        for _ in range(3):
            _same(accelerated(x), x + 1)
    assert len(accelerated._entries) == 2


def test_numpy_answers_where_it_is_faster(alone):
    accelerated = accelerate(lambda x: np.sort(x, kind="stable"), measure=True)
    x = np.array([3.0, 1.0, 2.0])
    accelerated(x)
    (entry,) = accelerated._signatures()
    entry.trial._decided(2.0)
    accelerated(x)
    alone()
    _same(accelerated(x), np.sort(x))


def test_forgotten_paths_keep_nothing():
    accelerated = accelerate(lambda x: x + 1, measure=False)
    for _ in range(3):
        accelerated(np.ones(3))
    assert accelerated._paths
    accelerated.clear_cache()
    _same(accelerated(np.ones(3)), np.full(3, 2.0))
    reference = weakref.ref(accelerated)
    del accelerated
    gc.collect()
    assert reference() is None


def test_wrong_descriptions_are_refused():
    with pytest.raises(TypeError):
        native.FastPath(((0, "no dtype", (3,)),), len, None)
    with pytest.raises(TypeError):
        native.FastPath((), None, ())
    path = native.FastPath(((3, 5, ()),), abs, None)
    assert path(5) == 5
    assert path(6) is path
    assert path(True) is path
    assert path() is path
    path.retire()
    assert path(5) is path
    with pytest.raises(TypeError):
        accelerate(lambda x: x)._answer_by((path, 1))
