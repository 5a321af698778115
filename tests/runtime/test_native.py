"""The native core against the Python path: trees, types, aliases, errors, threads, forks and reference counts.

The oracle is the same function compiled and called without the core (`in_python`), or evaluated eagerly.
"""

from __future__ import annotations

import collections
import copy
import gc
import os
import pickle
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fuser
import fuser.numpy as fnp
from fuser.runtime import executable as executables
from fuser.runtime import memory
from fuser.runtime.array import Array
from fuser.runtime.core import native
from fuser.runtime.executable import Allocation, Executable, KernelStep, LibraryStep
from fuser.trace import tree

pytestmark = pytest.mark.skipif(native is None, reason="the native core is off or was not built")
F32 = np.dtype(np.float32)
X = np.arange(12, dtype=np.float32).reshape(3, 4)


def in_python(function, *args, **kwargs):
    """A call of the jitted function with no part of it in the core: neither dispatch nor steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(executables, "native", None)
        return fuser.jit(function)._in_python(*args, **kwargs)


def assert_same(found, wanted):
    """Equal trees of Arrays with equal dtypes, weak types and values."""
    mine, structure = tree.flatten(found)
    others, other_structure = tree.flatten(wanted)
    assert structure == other_structure
    for a, b in zip(mine, others, strict=True):
        assert type(a) is Array and type(b) is Array
        assert (a.dtype, a.weak_type, a.shape) == (b.dtype, b.weak_type, b.shape)
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def known(f, *args, **kwargs):
    """The result of a call that the core answers by itself."""
    f(*args, **kwargs)
    before = f._known_calls()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(f), "_found", lambda *_: pytest.fail("the call went through Python"))
        result = f(*args, **kwargs)
    assert f._known_calls() == before
    return result


# ---- trees

leaves = st.one_of(
    st.floats(-8, 8, width=16),
    st.integers(-100, 100),
    st.booleans(),
    st.complex_numbers(max_magnitude=4, width=64),
    st.sampled_from([np.float32, np.int32, np.float64, np.bool_, np.int8]).flatmap(
        lambda dtype: st.lists(st.integers(0, 3), max_size=3).map(lambda dims: np.ones(dims, dtype))
    ),
    st.just(X).map(fnp.asarray),
)
keys = st.one_of(st.text("abcxyz", min_size=1, max_size=3), st.integers(0, 5))


def containers(children):
    return st.one_of(
        st.lists(children, max_size=3),
        st.lists(children, max_size=3).map(tuple),
        st.dictionaries(st.text("abcxyz", max_size=2), children, max_size=3),
        st.dictionaries(st.integers(-3, 3), children, max_size=3),
        st.dictionaries(st.text("ab", max_size=2), children, max_size=2).map(collections.OrderedDict),
        st.none(),
    )


def test_a_core_that_older_sources_made_says_so() -> None:
    with pytest.raises(
        AttributeError, match=r"has no 'of_tomorrow'.* rebuild it with `python setup.py build_ext --inplace`"
    ):
        native.of_tomorrow  # noqa: B018
    assert not hasattr(native, "__path__")


trees = st.recursive(leaves, containers, max_leaves=8)


@settings(max_examples=40, deadline=None)
@given(args=st.lists(trees, max_size=3), kwargs=st.dictionaries(st.sampled_from(["p", "q", "a"]), trees, max_size=2))
def test_any_tree_gives_what_python_gives(args, kwargs):
    def function(*args, **kwargs):
        return {"args": tree.map(lambda x: x + 1 if x.dtype != bool else ~x, args), "same": kwargs}

    f = fuser.jit(function)
    wanted = in_python(function, *args, **kwargs)
    assert_same(f(*args, **kwargs), wanted)
    assert_same(f(*args, **kwargs), wanted)
    assert_same(function(*tree.map(fnp.asarray, args)), {"args": wanted["args"], "same": {}}) if not kwargs else None


def test_dicts_in_any_order_of_their_keys():
    f = fuser.jit(lambda d, *, u, v: (d["a"] - d["b"], u * v, d))
    one, two = {"a": X, "b": 2.0}, {"b": 2.0, "a": X}
    first = f(one, u=1.0, v=X)
    assert_same(f(two, v=X, u=1.0), first)
    assert_same(known(f, two, v=X, u=1.0), first)
    assert_same(known(f, one, u=1.0, v=X), first)
    assert f._cache_size() == 1
    np.testing.assert_array_equal(first[0], X - 2)


@pytest.mark.parametrize(
    "value",
    [
        np.array([1e300, np.nan, -1e-320, 0.1]),
        np.array([2**40 + 5, -3]),
        np.array([2**63 + 7], np.uint64),
        np.array([0.1 + 2j, 1e300]),
        np.arange(12.0).reshape(3, 4)[:, ::2],
        np.arange(12, dtype=np.float32).reshape(3, 4).T,
        np.ones((0, 3)),
        np.array(5),
        np.float64(0.1),
        np.float32(0.1),
        np.float16(2),
        np.int64(2**40 + 3),
        np.int8(-3),
        np.bool_(True),
        np.complex128(0.1 + 2j),
    ],
    ids=repr,
)
@pytest.mark.parametrize("x64", [False, True])
def test_arrays_and_numbers_of_numpy_as_kernels_take_them(value, x64):
    with fuser.enable_x64(x64):
        f = fuser.jit(lambda x: (x, x + x, x * 2))
        assert_same(known(f, value), in_python(f, value))
        assert_same(known(f, value), f(fnp.asarray(value)))  # an array that lies there already
        if isinstance(value, np.ndarray) and value.size and value.flags.owndata:
            first = f(value)[0]
            value = value.copy()
            again = f(value)[0]
            value[...] = 0
            np.testing.assert_array_equal(
                np.asarray(again), np.asarray(first)
            )  # results share no memory with arguments


def test_keys_are_compared_by_value():
    f = fuser.jit(lambda d: sum(d.values()))
    f({"ab": 1.0, "7": 2.0})
    made = "".join(["a", "b"])
    assert float(known(f, {made: 3.0, str(7): 4.0})) == 7.0
    assert float(f({"ac": 3.0, "7": 4.0})) == 7.0 and f._known_calls() == 2
    f({1000: 1.0, 7: 2.0})
    assert float(known(f, {int("1000"): 3.0, int("7"): 4.0})) == 7.0


def test_trees_that_only_python_knows():
    Point = collections.namedtuple("Point", "x y")
    f = fuser.jit(lambda p: Point(p.y, p.x + 1))
    for _ in range(2):
        result = f(Point(X, 1.0))
        assert type(result) is Point and float(result.x) == 1.0
    assert f._known_calls() == 0


def test_shapes_of_trees_are_told_apart():
    f = fuser.jit(lambda *trees: tree.leaves(trees)[0] * len(tree.leaves(trees)))
    calls = [(X, X), ((X, X),), ([X, X],), ({"a": X, "b": X},), ((X,), X), (X, None, X), ([X], [X]), ((X, (X,)),)]
    for _ in range(2):
        for call in calls:
            np.testing.assert_array_equal(f(*call), 2 * X)
    assert f._known_calls() == len(calls)


def test_deep_and_endless_trees():
    deep = X
    for _ in range(100):
        deep = [deep]
    f = fuser.jit(lambda t: tree.leaves(t)[0] + 1)
    np.testing.assert_array_equal(f(deep), X + 1)
    endless: list = []
    endless.append(endless)
    with pytest.raises(RecursionError):
        f(endless)


def test_a_thousand_leaves():
    f = fuser.jit(lambda xs: [xs[-1], *xs[:-1]])
    xs = [fnp.asarray(np.float32(n)) for n in range(1000)]
    assert [float(x) for x in known(f, xs)] == [999.0, *map(float, range(999))]


# ---- leaves


@pytest.mark.parametrize(
    "value", [1, -1, 0, True, False, 2.5, -0.0, float("nan"), float("inf"), 1e300, 1 + 2j, 2**31 - 1]
)
@pytest.mark.parametrize("x64", [False, True])
def test_numbers(value, x64):
    with fuser.config.using(enable_x64=x64):
        f = fuser.jit(lambda x: (x, x * np.float32(1) if type(value) is not bool else x))
        result = known(f, value)
        assert_same(result, in_python(lambda x: (x, x * np.float32(1) if type(value) is not bool else x), value))
        assert np.signbit(np.asarray(result[0]).real) == np.signbit(np.float64(complex(value).real))


def test_numbers_that_do_not_fit():
    f = fuser.jit(lambda x: x + 1)
    f(1)
    with pytest.raises(OverflowError, match="Python integer 2147483648 out of bounds for int32"):
        f(2**31)
    with fuser.config.using(enable_x64=True):
        assert int(f(2**31)) == 2**31 + 1
        with pytest.raises(OverflowError):
            f(2**63)


@pytest.mark.parametrize(
    "make",
    [
        lambda: X[:, ::2],
        lambda: np.asfortranarray(X),
        lambda: X.astype(np.float64),
        lambda: np.frombuffer(b"\0" + X.tobytes(), np.uint8)[1:].view(np.float32).reshape(X.shape),
        lambda: np.float32(3),
        lambda: X.astype(np.longlong),
        lambda: pickle.loads(pickle.dumps(X)),
        lambda: np.ma.masked_array(X).data,
        lambda: X[:0],
    ],
    ids=["strided", "fortran", "float64", "unaligned", "scalar", "longlong", "pickled", "view", "empty"],
)
def test_arrays_of_numpy_of_all_kinds(make):
    f = fuser.jit(lambda x: (x * 2, x))
    for _ in range(2):
        assert_same(f(make()), in_python(lambda x: (x * 2, x), make()))
    assert_same(fuser.jit(lambda x: x * 2)(Array(make())), in_python(lambda x: x * 2, Array(make())))


def test_arrays_that_are_none():
    f = fuser.jit(lambda x: x)
    f(X)
    for wrong in (X.astype(">f4"), np.array(["a"]), "a", object()):
        with pytest.raises(TypeError, match="which is no array of numbers; pass an array or a number"):
            f(wrong)


def test_weak_types_and_dtypes_are_told_apart():
    f = fuser.jit(lambda x: x + np.int8(1))
    for value in (1, np.int32(1), 1.0, np.float32(1), True, fnp.asarray(1), fnp.asarray(1.0)):
        assert_same(f(value), in_python(lambda x: x + np.int8(1), value))


def test_arrays_of_a_deleted_one_say_so():
    x = fnp.asarray(X) + 0
    f = fuser.jit(lambda x: x + 1)
    f(x)
    x.delete()
    with pytest.raises(
        RuntimeError, match=r"^Array has been deleted with shape=float32\[3,4\]; x.delete\(\) was called$"
    ):
        f(x)


def test_random_keys_are_leaves():
    key = fuser.random.key(3)
    f = fuser.jit(lambda k: fuser.random.normal(k, (3,)))
    np.testing.assert_array_equal(known(f, key), fuser.random.normal(key, (3,)))


# ---- static arguments


class Twin:
    """Equal to its like, with Python's == and hash."""

    def __init__(self, n):
        self.n = n

    def __eq__(self, other):
        return isinstance(other, Twin) and self.n == other.n

    def __hash__(self):
        return hash(self.n)


def test_static_arguments_by_value_and_type():
    f = fuser.jit(
        lambda x, n, *, m=None: x * (n.n if isinstance(n, Twin) else n), static_argnums=1, static_argnames=("m", "n")
    )
    for n in (1, 1.0, True, Twin(2)):
        known(f, 2, n, m="a")
    assert f._known_calls() == 4
    np.testing.assert_array_equal(known(f, 2, Twin(2), m="".join(["", "a"])), 4)
    assert f._known_calls() == 4
    known(f, 2, m="a", n=Twin(2))
    with pytest.raises(ValueError, match=r"static argument 1 of .* is a list, which cannot be hashed"):
        f(2, [1])


def test_what_a_comparison_raises_is_raised():
    class Bad(Twin):
        __hash__ = Twin.__hash__

        def __eq__(self, other):
            raise ZeroDivisionError("compared")

    f = fuser.jit(lambda x, n: x, static_argnums=1)
    f(1.0, Bad(1))
    with pytest.raises(
        ValueError, match=r"should be comparable using __eq__.*ZeroDivisionError: compared"
    ):  # as in JAX
        f(1.0, Bad(1))


def test_static_arguments_die_with_the_cache():
    class Thing:
        pass

    f = fuser.jit(lambda x, thing: x + 1, static_argnums=1)
    thing = Thing()
    alive = weakref.ref(thing)
    known(f, X, thing)
    del thing
    f.clear_cache()
    gc.collect()
    assert alive() is None
    assert f._known_calls() == 0


def test_jitted_functions_in_cycles_are_collected():
    class Model:
        def __init__(self):
            self.call = fuser.jit(self.forward, static_argnums=1)

        def forward(self, x, model):
            return x + 1

    model = Model()
    known(model.call, X, model)
    alive = weakref.ref(model)
    del model
    gc.collect()
    assert alive() is None


def test_the_number_of_signatures_is_bounded():
    f = fuser.jit(lambda x, n: x + n, static_argnums=1)
    np.testing.assert_array_equal(f(X, 0), X)
    program = next(iter(f._entries.values()))
    for n in range(1, 3000):
        f._remember((X, n), {}, ((0,), {}), program)
        if n % 500 == 0:
            f(X, 0)
    assert f._known_calls() == 1024
    np.testing.assert_array_equal(known(f, X, 0), X)


# ---- memory


@pytest.mark.parametrize("path", ["native", "python"])
def test_results_never_share_the_callers_memory(path):
    def function(x, y):
        return x, fnp.reshape(y, (-1,)), y[None], y + 1, {"again": x}

    mine, other = X.copy(), X.copy()
    for _ in range(3):
        results = fuser.jit(function)(mine, other) if path == "native" else in_python(function, mine, other)
        values = [np.array(leaf) for leaf in tree.leaves(results)]
        mine += 1
        other += 1
        for leaf, value in zip(tree.leaves(results), values):
            np.testing.assert_array_equal(np.asarray(leaf), value)
            assert not np.may_share_memory(np.asarray(leaf), mine)


def test_donated_numbers_stay():
    f = fuser.jit(lambda x: x + 1, donate_argnums=0)
    for call in (f, f._in_python):
        for _ in range(3):
            assert float(call(1.0)) == 2.0
    assert float(fnp.asarray(1.0)) == 1.0


def test_donation():
    f = fuser.jit(lambda x, y: x * 2 + y, donate_argnums=0)
    for _ in range(3):
        x = fnp.asarray(X) + 1
        address = np.asarray(x).ctypes.data
        result = f(x, X)
        assert x.is_deleted() and np.asarray(result).ctypes.data == address
        np.testing.assert_array_equal(result, (X + 1) * 2 + X)
    x = fnp.asarray(X) + 1
    seen = np.asarray(x)
    result = f(x, X)
    np.testing.assert_array_equal(seen, X + 1)
    with pytest.raises(RuntimeError, match="it was donated to a jitted call"):
        f(x, X)
    x = fnp.asarray(X) + 1
    with pytest.raises(RuntimeError, match="it was donated to a jitted call"):
        f(x, x)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: fnp.exp(fnp.cumsum(x, axis=0)),
        lambda x: fnp.cumsum(fnp.cumsum(fnp.cumsum(x, axis=0), axis=1), axis=0) + x,
        lambda x: (fnp.sort(x, axis=0) * 2, fnp.sum(x)),
    ],
    ids=["a result over a temporary", "an arena", "a library step"],
)
def test_a_call_takes_what_its_plan_says(function):
    x = fnp.asarray(np.random.default_rng(0).standard_normal((512, 600)).astype(np.float32))
    with fuser.config.using(fuel=0):
        f = fuser.jit(function)
        f(x)
    executable = next(iter(f._programs.values())).executable
    gc.collect()
    start = memory.memory_stats()["bytes_in_use"]
    memory.reset_peak()
    result = f(x)
    held = memory.memory_stats()["peak_bytes_in_use"] - start
    planned = executable.planned_peak(memory.counted_size)
    libraries = any(isinstance(step, LibraryStep) for step in executable.steps)
    assert held >= planned if libraries else held == planned
    wanted = in_python(function, x)
    assert_same(result, wanted)
    del result, wanted
    assert memory.memory_stats()["bytes_in_use"] == start


# ---- traces and settings


def test_transforms_around_and_inside():
    f = fuser.jit(lambda x: fnp.sum(fnp.sin(x) * x))
    known(f, X)
    gradient = fuser.grad(f)(X)
    np.testing.assert_allclose(gradient, np.cos(X) * X + np.sin(X), rtol=1e-5)
    np.testing.assert_allclose(fuser.vmap(f)(X), (np.sin(X) * X).sum(1), rtol=1e-5)
    np.testing.assert_allclose(known(fuser.jit(lambda x: f(x) + 1), X), f(X) + 1)
    np.testing.assert_array_equal(known(f, X), f(X))


def test_settings_belong_to_their_thread():
    f = fuser.jit(lambda x: x * 2)
    dtypes, inside, done = [], threading.Event(), threading.Event()

    def wide():
        with fuser.config.using(enable_x64=True):
            inside.set()
            done.wait(30)
            dtypes.append(f(1.0).dtype)
        dtypes.append(f(1.0).dtype)

    thread = threading.Thread(target=wide)
    thread.start()
    inside.wait(30)
    assert known(f, 1.0).dtype == np.float32
    done.set()
    thread.join()
    assert dtypes == [np.dtype(np.float64), np.dtype(np.float32)]
    with fuser.config.using(backend="reference"):
        np.testing.assert_array_equal(known(f, X), 2 * X)
    assert f._cache_size() == 3


def test_jitted_functions_are_functions():
    class Model:
        scale = 3

        @fuser.jit
        def apply(model, x):
            """Doc."""
            return x

    f = Model.apply
    assert (f.__name__, f.__doc__, f.__wrapped__) == ("apply", "Doc.", f.function)
    assert copy.copy(f) is f and copy.deepcopy({"f": f})["f"] is f
    assert Model().apply.__self__.scale == 3
    assert repr(f) and {f: 1}[f] == 1


# ---- executables


def double(arrays):
    np.multiply(arrays[0], 2, out=arrays[1])


def kernel(slot, **options):
    return KernelStep("double", double, (slot,), (Allocation(slot + 1, (4,), F32, **options),))


def test_places_in_the_arena():
    steps = [
        kernel(0, offset=0),
        kernel(1, offset=64),
        LibraryStep("same", lambda x: x[::1], (2,), (3,)),  # a view that outlives its place
        KernelStep("again", double, (1,), (Allocation(4, (4,), F32, offset=64),)),
        KernelStep("sum", lambda a: np.add(a[0], a[1], out=a[2]), (3, 4), (Allocation(5, (4,), F32),)),
    ]
    executable = Executable((0,), {}, steps, (5, 3), arena=128)
    x = np.arange(4, dtype=np.float32)
    for _ in range(3):
        total, kept = executable.call(x)
        np.testing.assert_array_equal(total, 8 * x)
        np.testing.assert_array_equal(kept, 4 * x)


@pytest.mark.parametrize("core", [True, False], ids=["native", "python"])
def test_executables_check_what_they_are_handed(core, monkeypatch):
    if not core:
        monkeypatch.setattr(executables, "native", None)
    executable = Executable((0,), {}, [kernel(0)], (1,), types=[((4,), F32)])
    assert (executable.native is not None) == core
    strided = np.arange(8, dtype=np.float32)[::2]
    np.testing.assert_array_equal(executable.call(strided)[0], 2 * strided)
    for wrong, words in ((np.ones(3, np.float32), "float32[3]"), (np.ones((4, 1)), "float64[4,1]")):
        with pytest.raises(TypeError) as error:
            executable.call(wrong)
        assert str(error.value) == f"this executable takes float32[4] as array 0, got {words}"


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_step_that_raises_leaves_nothing_behind(place):
    def raises(*arrays):
        raise ZeroDivisionError("in a step")

    steps = [kernel(0, offset=0), LibraryStep("plus", lambda x: x + 1, (1,), (2,)), kernel(2)]
    steps.insert(place, LibraryStep("raises", raises, (0,), (9,)))
    executable = Executable((0,), {7: np.ones(3)}, steps, (3, 9, 7), arena=64)
    x = np.ones(4, np.float32)
    for turn in range(1100):
        if turn == 100:
            counts = [sys.getrefcount(v) for v in (x, F32, executable.consts[7])]
            before = sys.getallocatedblocks()
        try:
            executable.call(x)
        except ZeroDivisionError:
            continue
        pytest.fail("nothing was raised")
    assert [sys.getrefcount(v) for v in (x, F32, executable.consts[7])] == counts
    assert sys.getallocatedblocks() - before < 200


def test_references_return_to_their_start():
    f = fuser.jit(lambda d, s, *, t: ({"a": d["a"] + s, "b": [d["a"], t]}, 1.0))
    d, t = {"a": fnp.asarray(X)}, fnp.asarray(X[0])
    watched = [d, d["a"], d["a"]._data, t, t._data, F32, X, "a"]
    for _ in range(10):
        f(d, 1.5, t=t)
    gc.collect()
    counts, before = [sys.getrefcount(v) for v in watched], sys.getallocatedblocks()
    for _ in range(10_000):
        f(d, 1.5, t=t)
    gc.collect()
    assert [sys.getrefcount(v) for v in watched] == counts
    assert sys.getallocatedblocks() - before < 200


# ---- arrays


def test_fields_of_arrays():
    x = Array(X, True)
    with pytest.raises(AttributeError):
        del x._data
    with pytest.raises(AttributeError):
        x.other = 1
    assert (x.shape, x.dtype, x.ndim, x.weak_type) == ((3, 4), F32, 2, True)
    assert Array(data=X, weak_type=False, dtype=None).weak_type is False
    for wrong in ((), (X, False, None, 1)):
        with pytest.raises(TypeError):
            Array(*wrong)
    assert not gc.is_tracked(x)

    class Named(Array):
        pass

    named = Named(X)
    named.name = "mine"
    alive = weakref.ref(named)
    del named
    assert alive() is None
    assert pickle.loads(pickle.dumps(x)).weak_type is True


# ---- threads and processes


def test_threads_in_one_function_first_calls_included():
    f = fuser.jit(lambda d: {"sum": d["x"] + d["y"], "shape": [fnp.sum(d["x"])]})
    wrong, start = [], threading.Barrier(8)

    def work(number):
        start.wait(60)
        try:
            for turn in range(30):
                size = (number + turn) % 4 + 1
                x = np.full((size, number % 3 + 1), number, np.float32)
                result = f({"x": x, "y": float(turn)})
                if not (np.asarray(result["sum"]) == number + turn).all() or float(result["shape"][0]) != x.sum():
                    wrong.append((number, turn))
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert f._known_calls() == 12


FORKED = """
import os, numpy as np, fuser
f = fuser.jit(lambda x: {"a": x + 1, "s": x.sum()})
big = np.ones((1000, 1000), np.float32)
f(big), f(big), f(2.0)
child = os.fork()
if child == 0:
    ok = float(f(big)["s"]) == 1e6 and float(f(2.0)["a"]) == 3.0 and f(big[:5])["a"].shape == (5, 1000)
    os._exit(0 if ok else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert float(f(big)["s"]) == 1e6
"""

SWITCHED = """
import fuser, fuser.numpy as fnp, numpy as np
from fuser.runtime.core import native
print(native is None, fuser.jit(lambda d: {"b": d["a"] * 2})({"a": np.arange(3.0)})["b"].tolist())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_calls_on():
    subprocess.run([sys.executable, "-c", FORKED], check=True, timeout=120)


@pytest.mark.parametrize("setting", ["0", "1"])
def test_the_setting_switches_the_core(setting):
    environment = os.environ | {"FUSER_NATIVE": setting}
    done = subprocess.run([sys.executable, "-c", SWITCHED], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split(maxsplit=1) == [str(setting == "0"), "[0.0, 2.0, 4.0]\n"]
