"""What an accelerated function reads from outside, changed between calls: the function itself, run by NumPy, is the oracle."""

from __future__ import annotations

import functools
import gc
import types
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest

from fuser.errors import FuserError, PerformanceWarning
from fuser.interop import accelerate
from tests.interop import outside_module
from tests.interop.oracle import same

X = np.arange(3.0)
Program = tuple[Callable[..., Any], list[Callable[[], Any]]]

K = 2.0
N = 3
MODE = "add"
FLAG = True
SMALL = np.array([1.0, 2.0, 3.0])
LARGE = np.arange(300.0)
INDEX = np.array([2, 0, 1])
SCALAR = np.float32(0.5)
LIST: list[Any] = [1.0, np.arange(3.0)]
NESTED: dict[str, Any] = {"a": {"w": np.ones(3), "b": 1}, "c": (2.0, [3.0])}
NAMES = {"x", "y"}


def power(x: np.ndarray) -> np.ndarray:
    return x**2


def cube(x: np.ndarray) -> np.ndarray:
    return x**3


CALLED = power
PARTIAL = functools.partial(np.multiply, 3.0)


def setting(**values: Any) -> list[Callable[[], Any]]:
    """Changes that set global variables of this module, one after the other."""
    return [functools.partial(globals().__setitem__, name, value) for name, v in values.items() for value in v]


def read_float(x: np.ndarray) -> Any:
    return x * K


def read_int(x: np.ndarray) -> Any:
    return x[:N].sum() + np.zeros(N)


def read_text(x: np.ndarray) -> Any:
    return x + 1 if MODE == "add" else x - 1


def read_flag(x: np.ndarray) -> Any:
    return np.where(FLAG, x, -x) if FLAG else -x


def read_small(x: np.ndarray) -> Any:
    return x @ SMALL


def read_large(x: np.ndarray) -> Any:
    return x + LARGE[:3] * LARGE[-1]


def read_index(x: np.ndarray) -> Any:
    return x[INDEX]


def read_scalar(x: np.ndarray) -> Any:
    return x.astype(np.float32) * SCALAR


def read_list(x: np.ndarray) -> Any:
    return sum(v for v in LIST) + x


def read_nested(x: np.ndarray) -> Any:
    return x * NESTED["a"]["w"] + NESTED["a"]["b"] + NESTED["c"][0] + NESTED["c"][1][0]


def read_keys(x: np.ndarray) -> Any:
    return {name: x + n for n, name in enumerate(NESTED)}


def read_set(x: np.ndarray) -> Any:
    return x + len(NAMES) if "x" in NAMES else x


def read_function(x: np.ndarray) -> Any:
    return CALLED(x)


def read_partial(x: np.ndarray) -> Any:
    return PARTIAL(x)


@accelerate
def inner(x: np.ndarray) -> Any:
    return x * K + SMALL.sum()


def read_accelerated(x: np.ndarray) -> Any:
    return inner(x) + inner(2.0)


def read_missing(x: np.ndarray) -> Any:
    return x + abs(-1)


def read_module(x: np.ndarray) -> Any:
    return outside_module.helper(x) + outside_module.table * outside_module.settings["shift"]


def in_place(array: np.ndarray) -> list[Callable[[], Any]]:
    return [functools.partial(array.__imul__, 2), functools.partial(array.__setitem__, 0, 1)]


class Model:
    factor = 3.0

    def __init__(self) -> None:
        self.w = np.arange(3.0)
        self.large = np.ones((40, 3))
        self.k = 2.0
        self.parts = {"bias": [np.ones(3)]}
        self.child: Any = None

    def __call__(self, x: np.ndarray) -> Any:
        return self.scaled(x) + self.parts["bias"][0] + self.total

    def scaled(self, x: np.ndarray) -> Any:
        return (x * self.w * self.k + self.large.sum(0)) * self.factor + np.zeros(3)

    @property
    def total(self) -> Any:
        return self.w.sum() * self.shift()

    @staticmethod
    def shift() -> float:
        return K

    @accelerate
    def decorated(self, x: np.ndarray) -> Any:
        return self.scaled(x) + getattr(self, "extra", 0.0)


class Slots:
    __slots__ = ("a", "b")

    def __init__(self) -> None:
        self.a, self.b = 1.0, np.arange(3.0)


@dataclass
class Record:
    gain: float
    curve: np.ndarray


class Pair(NamedTuple):
    first: float
    second: np.ndarray


def changes_of(model: Any) -> list[Callable[[], Any]]:
    return [
        lambda: setattr(model, "k", 5.0),
        lambda: model.w.__imul__(2),
        lambda: setattr(model, "w", np.ones(3)),
        lambda: model.large.__iadd__(1),
        lambda: setattr(model, "large", np.ones((7, 3))),
        lambda: model.parts["bias"].__setitem__(0, np.full(3, 7.0)),
        lambda: setattr(model, "factor", -1.0),
        lambda: setattr(model, "extra", 2.5),
        lambda: setattr(model, "k", 3),
    ]


def of_closure() -> Program:
    k, w, calls = 2.0, np.arange(3.0), [1.0]

    def f(x: np.ndarray) -> Any:
        return x * k + w * calls[0] + len(calls)

    def set_k(value: float) -> None:
        nonlocal k
        k = value

    def set_w(value: np.ndarray) -> None:
        nonlocal w
        w = value

    return f, [
        lambda: set_k(3.0),
        *in_place(w),
        lambda: set_w(np.ones(3)),
        lambda: calls.append(2.0),
        lambda: set_k(4.0),
    ]


def of_inner_closure() -> Program:
    weight = np.ones(3)

    def inner(x: np.ndarray) -> Any:
        return x * weight + K

    return lambda x: inner(x) * 2, [*in_place(weight), *setting(K=(7.0, 2.0))]


def of_defaults() -> Program:
    w = np.ones(3)

    def f(x: np.ndarray, a: Any = w, *, b: float = 2.0) -> Any:
        return x * a + b

    def change() -> None:
        f.__defaults__, f.__kwdefaults__ = (np.zeros(3),), {"b": 5.0}

    return f, [*in_place(w), change]


def of_object() -> Program:
    model = Model()
    return lambda x: model(x), [*changes_of(model), *setting(K=(9.0, 2.0))]


def of_bound_method() -> Program:
    model = Model()
    return model.scaled, changes_of(model)


def of_argument() -> Program:
    model = Model()
    return lambda x, m=model: m.scaled(x), changes_of(model)


def of_object_in_object() -> Program:
    model = Model()
    model.child = Model()
    return lambda x: model.child.scaled(x) + model.k, changes_of(model.child)


class Settings:
    gain = 2.0
    curve = np.arange(3.0)
    steps: ClassVar[list[int]] = [1, 2]


class Child(Model):
    def __init__(self) -> None:
        super().__init__()
        self.k = K

    def scaled(self, x: np.ndarray) -> Any:
        return super().scaled(x) * SMALL.sum()


def of_class() -> Program:
    return lambda x: x * Settings.gain + Settings.curve + Settings.steps[-1], [
        lambda: setattr(Settings, "gain", 4.0),
        *in_place(Settings.curve),
        lambda: Settings.steps.append(5),
    ]


def of_instance_made_inside() -> Program:
    return lambda x: Child().scaled(x), [
        *setting(K=(8.0, 2.0)),
        lambda: setattr(Model, "factor", 4.0),
        lambda: setattr(Model, "factor", 3.0),
    ]


def of_inherited_method() -> Program:
    child = Child()
    return lambda x: child.scaled(x), [*changes_of(child), *setting(SMALL=(np.ones(3), np.full(3, 2.0)))]


def of_slots() -> Program:
    value = Slots()
    return lambda x: x * value.a + value.b, [lambda: setattr(value, "a", 4.0), *in_place(value.b)]


def of_record() -> Program:
    value = Record(2.0, np.arange(3.0))
    return lambda x: x * value.gain + value.curve, [lambda: setattr(value, "gain", 4.0), *in_place(value.curve)]


def of_namespace() -> Program:
    value = types.SimpleNamespace(a=1.0, b=[np.ones(3)])
    return lambda x: x * value.a + value.b[0], [lambda: setattr(value, "a", 4.0), *in_place(value.b[0])]


def of_pair() -> Program:
    pair = Pair(2.0, np.arange(3.0))
    return lambda x: x * pair.first + pair.second, in_place(pair.second)


def of_loop_over_weights() -> Program:
    weights = [np.eye(3), np.full((3, 3), 0.5)]

    def f(x: np.ndarray) -> Any:
        for w in weights:
            x = np.maximum(x @ w, 0)
        return x

    return f, [lambda: weights.append(np.ones((3, 3))), *in_place(weights[0]), lambda: weights.pop(0)]


def of_large_read_as_numbers() -> Program:
    table = np.arange(200.0)

    def f(x: np.ndarray) -> Any:
        return x * 2 if table[0] > 1 else x * float(table[-1])

    return f, in_place(table)


PROGRAMS: dict[str, Callable[[], Program]] = {
    "float": lambda: (read_float, setting(K=(3.0, -0.0, 0.0, np.nan, 7, 2.0))),
    "int": lambda: (read_int, setting(N=(2, 1, 3))),
    "text": lambda: (read_text, setting(MODE=("sub", "add"))),
    "bool": lambda: (read_flag, setting(FLAG=(False, True, 1))),
    "small array": lambda: (read_small, [*in_place(SMALL), *setting(SMALL=(np.ones(3), np.ones(3, np.float32)))]),
    "large array": lambda: (read_large, [*in_place(LARGE), *setting(LARGE=(np.ones(400), np.arange(600.0)[::2]))]),
    "index array": lambda: (
        read_index,
        [lambda: INDEX.__setitem__(0, 1), *setting(INDEX=(np.array([True, False, True]),))],
    ),
    "NumPy scalar": lambda: (read_scalar, setting(SCALAR=(np.float32(3), np.float64(0.25), np.float32(0.5)))),
    "list": lambda: (read_list, [lambda: LIST.append(4.0), *in_place(LIST[1]), lambda: LIST.__setitem__(0, 9.0)]),
    "nested containers": lambda: (
        read_nested,
        [
            lambda: NESTED["a"].__setitem__("b", 5),
            *in_place(NESTED["a"]["w"]),
            lambda: NESTED["c"][1].__setitem__(0, 0.5),
        ],
    ),
    "order of keys": lambda: (
        read_keys,
        [lambda: NESTED.__setitem__("d", 1), lambda: NESTED.__setitem__("a", NESTED.pop("a"))],
    ),
    "set": lambda: (read_set, [lambda: NAMES.add("z"), lambda: NAMES.discard("x")]),
    "function": lambda: (read_function, setting(CALLED=(cube, np.exp, power))),
    "partial": lambda: (read_partial, setting(PARTIAL=(functools.partial(np.add, 1.0),))),
    "accelerated function": lambda: (read_accelerated, [*setting(K=(7.0, 2.0)), *in_place(SMALL)]),
    "name of a builtin": lambda: (read_missing, setting(abs=(lambda v: 10.0,))),
    "module": lambda: (
        read_module,
        [
            lambda: setattr(outside_module, "scale", 5.0),
            *in_place(outside_module.table),
            lambda: outside_module.settings.__setitem__("shift", 3.0),
            lambda: setattr(outside_module, "helper", cube),
        ],
    ),
    "closure": of_closure,
    "closure of a function called": of_inner_closure,
    "defaults": of_defaults,
    "object": of_object,
    "bound method": of_bound_method,
    "object as an argument": of_argument,
    "object in an object": of_object_in_object,
    "class": of_class,
    "instance made inside": of_instance_made_inside,
    "inherited method": of_inherited_method,
    "slots": of_slots,
    "dataclass": of_record,
    "namespace": of_namespace,
    "named tuple": of_pair,
    "list of weights": of_loop_over_weights,
    "large array whose numbers decide": of_large_read_as_numbers,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_changes_outside_is_read_again(name: str) -> None:
    function, changes = PROGRAMS[name]()
    accelerated = accelerate(function, backend="reference")
    same(function(X), accelerated(X))
    for change in changes:
        same(function(X), accelerated(X))
        change()
        same(function(X), accelerated(X))
    globals().pop("abs", None)


@pytest.mark.parametrize("name", ["float", "large array", "object", "closure"])
def test_compiled_programs_read_the_outside_again(name: str) -> None:
    function, changes = PROGRAMS[name]()
    accelerated = accelerate(function)
    for change in changes[:3]:
        same(function(X), accelerated(X))
        change()
        same(function(X), accelerated(X))


def test_objects_as_arguments_are_read_at_each_call() -> None:
    accelerated = accelerate(lambda model, x: model.scaled(x), backend="reference")
    model, other = Model(), Model()
    other.k = 7.0
    for change in [lambda: None, *changes_of(model)]:
        change()
        same(model.scaled(X), accelerated(model, X))
        same(other.scaled(X), accelerated(other, X))
    Model.factor = 3.0


def test_functions_as_arguments_are_read_at_each_call() -> None:
    accelerated = accelerate(lambda f, x: f(x) + 1, backend="reference")
    w = np.ones(3)
    for scale in (2.0, 3.0):
        same((X * scale + w) + 1, accelerated(lambda x, scale=scale, w=w: x * scale + w, X))
        w += 1


def test_decorated_methods_read_their_instance_and_do_not_keep_it() -> None:
    model = Model()
    same(Model.decorated.function(model, X), model.decorated(X))
    model.k, model.extra = 5.0, 2.0
    same(Model.decorated.function(model, X), model.decorated(X))
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_arrays_and_objects_outside_are_returned_themselves() -> None:
    model, table = Model(), np.zeros(3)
    found = accelerate(lambda x: (table, LARGE, model.parts, model, x, K), backend="reference")(X)
    for mine, theirs in zip(found, (table, LARGE, model.parts, model, X)):
        assert mine is theirs


def test_a_large_array_that_changes_is_no_reason_to_trace() -> None:
    weights = np.ones((50, 3))
    traces: list[int] = []
    accelerated = accelerate(lambda x: (x * weights).sum(0), backend="reference")
    staged = accelerated._trace_once
    accelerated._trace_once = lambda *args, **kwargs: traces.append(1) or staged(*args, **kwargs)
    for _ in range(5):
        weights += 1
        same((X * weights).sum(0), accelerated(X))
    assert len(traces) == 1


def test_numbers_and_small_arrays_that_change_become_inputs() -> None:
    state = types.SimpleNamespace(k=0.5, w=np.ones(3))
    accelerated = accelerate(lambda x: x * state.k + state.w, backend="reference")
    for _ in range(6):
        state.k += 0.25
        state.w += 1
        same(X * state.k + state.w, accelerated(X))
    assert len(accelerated._programs) == 2


def test_what_never_stays_the_same_ends_in_numpy_with_advice() -> None:
    state = types.SimpleNamespace(step=0)
    accelerated = accelerate(lambda x: x + state.step, backend="reference")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(40):
            state.step += 1
            same(X + state.step, accelerated(X))
    advice = [str(w.message) for w in caught if w.category is PerformanceWarning]
    assert advice == ["<lambda> was traced 32 times because state.step changed; and runs in NumPy from now on"]


COUNTER = 0
SEEN: list[int] = []
TOTALS = {"a": 1.0}


def counts_globally(x: np.ndarray) -> Any:
    global COUNTER
    COUNTER += 1
    return x


def appends(x: np.ndarray) -> Any:
    SEEN.append(1)
    return x


def stores(x: np.ndarray) -> Any:
    TOTALS["a"] = x.sum()
    return x


def extends_an_argument(x: np.ndarray, items: Any = None) -> Any:
    items += [x]
    return x


def sets_an_attribute(x: np.ndarray, model: Any = None) -> Any:
    model.k = x.sum()
    return x


def sets_in_a_module(x: np.ndarray) -> Any:
    outside_module.scale = 7.0
    return x


def counting_closure() -> Callable[..., Any]:
    count = 0

    def f(x: np.ndarray) -> Any:
        nonlocal count
        count += 1
        return x

    return f


def pushes(x: np.ndarray) -> Any:
    import heapq

    heapq.heappush(SEEN, 1)
    return x


EFFECTS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    "global variable": (counts_globally, (), "setting the global variable COUNTER"),
    "global list": (appends, (), "changing the list SEEN"),
    "global dict": (stores, (), "changing the dict TOTALS"),
    "list argument": (extends_an_argument, ([1, 2],), "changing the list argument 1"),
    "attribute": (sets_an_attribute, (Model(),), "setting model.k"),
    "module": (sets_in_a_module, (), "setting tests.interop.outside_module.scale"),
    "closure": (counting_closure(), (), "setting the variable count"),
    "list changed in C": (pushes, (), "changing the list SEEN"),
}


@pytest.mark.parametrize("name", EFFECTS)
def test_changes_that_the_caller_would_see_are_refused(name: str) -> None:
    function, more, words = EFFECTS[name]
    with pytest.raises(FuserError, match=words) as caught:
        accelerate(function, fallback="error")(X, *more)
    assert "test_outside.py:" in str(caught.value)
    assert (COUNTER, SEEN, TOTALS["a"], outside_module.scale) == (0, [], 1.0, outside_module.scale)


def writes(x: np.ndarray, y: np.ndarray) -> Any:
    x[x < 1] = 5
    x[1:] += y[1:]
    np.multiply(y, 2, out=y)
    return x.sum()


def swaps(x: np.ndarray, y: np.ndarray) -> Any:
    x[:], y[:] = y.copy(), x.copy()
    return x, y[1:], x + 1


def stencil(x: np.ndarray, y: np.ndarray) -> None:
    for _ in range(3):
        x[1:-1] += 0.5 * (x[2:] - 2 * x[1:-1] + x[:-2])
        y -= x


@pytest.mark.parametrize("function", [writes, swaps, stencil])
@pytest.mark.parametrize("backend", ["reference", "c"])
def test_writes_to_arguments_are_seen_by_the_caller(function: Callable[..., Any], backend: str) -> None:
    accelerated = accelerate(function, backend=backend)
    base, other = np.arange(40.0), np.arange(40.0)
    for pick in (
        lambda a: (a[:10].copy(), a[10:20].copy()),
        lambda a: (a[:10], a[10:20]),
        lambda a: (a[:20:2], a[20:30]),
        lambda a: (a[:10], a[5:15]),
        lambda a: (a[:10], a[9::-1]),
        lambda a: (a[:10], a[:10]),
    ):
        mine, theirs = pick(other), pick(base)
        same(function(*theirs), accelerated(*mine))
        same(theirs, mine)
        same(base, other)


def test_nothing_is_written_where_the_call_fails() -> None:
    def function(x: np.ndarray, i: np.ndarray) -> None:
        x[:2] = 9
        x[i] = 1

    x, y = np.zeros(3), np.zeros(3)
    for target, f in ((x, function), (y, accelerate(function, backend="reference"))):
        with pytest.raises(IndexError, match="index 5 is out of bounds"):
            f(target, np.array([5]))
    np.testing.assert_array_equal(x, y)
    locked = np.zeros(3)
    locked.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        accelerate(function)(locked, np.array([0]))


def test_code_in_a_folder_that_has_the_name_of_a_library() -> None:
    text = "def scaled(x):\n    return x * RATE\n"
    space: dict[str, Any] = {"RATE": np.full(3, 2.0)}
    exec(compile(text, "/somewhere/numpy/model.py", "exec"), space)
    scaled = accelerate(space["scaled"], measure=False)
    np.testing.assert_array_equal(scaled(np.ones(3)), np.full(3, 2.0))
    space["RATE"] = np.full(3, 5.0)
    np.testing.assert_array_equal(scaled(np.ones(3)), np.full(3, 5.0))


def test_types_are_those_that_numpy_has() -> None:
    class Rate:
        def __init__(self, value: float) -> None:
            self.value = value

    def kinds(x: np.ndarray, n: float, rate: Rate, items: list[Any], parts: dict[str, float]) -> Any:
        kinds = [type(value) for value in (x, x.sum(), n, rate, items, parts, x * n, 3)]
        asked = [type(x) is np.ndarray, type(kinds[0]) is type, isinstance(Rate, type), issubclass(type(x), np.ndarray)]
        return kinds, asked, type("Made", (), {"part": 2}).part, x * rate.value

    def in_parts(x: np.ndarray) -> Any:
        return type(x) is np.ndarray, len(np.unique(x)), type(x.max()).__name__

    given = (np.arange(5.0), 2.5, Rate(3.0), [np.ones(2)], {"a": 1.0})
    for function, args in ((kinds, given), (in_parts, given[:1])):
        accelerated = accelerate(function, measure=False)
        for _ in range(2):
            assert repr(accelerated(*args)) == repr(function(*args))
    assert "as it asks for types" in accelerated.explain()
