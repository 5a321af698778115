"""Loops and branches on values, staged whole: values, types, effects and events against NumPy."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np
import pytest

import fuser
from fuser import accelerate
from fuser.interop.control.exits import NotStructured, structured
from fuser.interop.control.names import bound, exposed
from fuser.interop.control.rewrite import rewritten
from tests.interop.random_loops import functions

R = np.random.default_rng(7)
POSITIVE = R.random((6, 6))
SYMMETRIC = POSITIVE @ POSITIVE.T + 6 * np.eye(6)


def relaxes(u, tolerance):
    rounds, error = 0, np.inf
    while error > tolerance:
        new = u.copy()
        new[1:-1] = (u[2:] + u[:-2]) / 2
        error = np.abs(new - u).max()
        u, rounds = new, rounds + 1
    return u, rounds


def newton(x, most):
    for i in range(most):  # noqa: B007
        step = (x**3 - 2 * x - 5) / (3 * x**2 - 2)
        x = x - step
        if np.abs(step).max() < 1e-12:
            break
    return x, i


def bisects(low, high, tolerance):
    while high - low > tolerance:
        middle = (low + high) / 2
        if middle**3 - middle - 2 > 0:
            high = middle
        else:
            low = middle
    return (low + high) / 2


def conjugate_gradient(a, b, tolerance):
    x = np.zeros_like(b)
    r = b - a @ x
    p, old = r.copy(), r @ r
    for _ in range(len(b)):
        ap = a @ p
        alpha = old / (p @ ap)
        x += alpha * p
        r -= alpha * ap
        new = r @ r
        if np.sqrt(new) < tolerance:
            break
        p = r + (new / old) * p
        old = new
    return x


def power_method(a, tolerance, most):
    v, value = np.ones(a.shape[0]), 0.0
    for k in range(most):
        w = a @ v
        new = np.sqrt((w * w).sum())
        w = w / new
        if abs(new - value) < tolerance:
            return w, new, k
        v, value = w, new
    return v, value * 1.0, most


def smooths(x, weight):
    out = np.empty_like(x)
    out[0] = x[0]
    for i in range(1, len(x)):
        out[i] = weight * x[i] + (1 - weight) * out[i - 1]
    return out


def smooths_in_place(x, weight):
    for i in range(1, len(x)):
        x[i] = weight * x[i] + (1 - weight) * x[i - 1]


def gauss_seidel(u, f, tolerance):
    while True:
        largest = 0.0
        for i in range(1, len(u) - 1):
            value = (u[i - 1] + u[i + 1] - f[i]) / 2
            largest = max(largest, abs(value - u[i]))
            u[i] = value
        if largest < tolerance:
            break
    return u


def collatz(n):
    count = 0
    while n != 1:
        if n % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        count += 1
    return count


def falls(position, velocity, step):
    time = 0.0
    while position[1] >= 0:
        velocity[1] -= 9.81 * step
        position += velocity * step
        time += step
    return time


def finds(x, wanted):
    i = 0
    while i < len(x) and x[i] < wanted:
        i += 1
    return i


def skips_and_keeps(x):
    total, largest = 0 * x[0], x[0]
    for i in range(len(x)):
        if x[i] < 0.2:
            continue
        total = total + x[i]
        if x[i] > largest:
            largest = x[i]
        if total > 5:
            break
    else:
        total = -total
    return total, largest


def hunts(prey, predators, step, n):
    found = np.empty((n, 2))
    found[0] = prey, predators

    def change(s):  # whose parameter has the name of a variable of the loop
        return np.array([s[0] - 0.4 * s[0] * s[1], 0.1 * s[0] * s[1] - 0.4 * s[1]])

    for i in range(n - 1):
        s = found[i]
        first = change(s)
        found[i + 1] = s + step * change(s + step / 2 * first)
    return found


CASES: list[tuple[Any, tuple[Any, ...]]] = [
    (hunts, (10.0, 5.0, 0.01, 200)),
    (relaxes, (np.linspace(0, 1, 12) ** 2, 1e-4)),
    (newton, (R.random(5) + 2, 30)),
    (bisects, (1.0, 2.0, 1e-12)),
    (conjugate_gradient, (SYMMETRIC, R.random(6), 1e-9)),
    (power_method, (SYMMETRIC, 1e-9, 200)),
    (smooths, (R.random(500), 0.3)),
    (smooths_in_place, (R.random(500), 0.3)),
    (gauss_seidel, (R.random(8), 0.01 * R.random(8), 1e-5)),
    (collatz, (np.int64(27),)),
    (falls, (np.array([0.0, 1.0]), np.array([1.0, 2.0]), 0.01)),
    (finds, (np.linspace(0, 1, 30), 0.71)),
    (skips_and_keeps, (R.random(40),)),
]


def copied(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(a.copy() if isinstance(a, np.ndarray) else a for a in arguments)


def same(found: Any, wanted: Any) -> None:
    assert type(found) is type(wanted)
    if isinstance(wanted, tuple):
        assert len(found) == len(wanted)
        for f, w in zip(found, wanted):
            same(f, w)
    elif wanted is not None:
        assert np.asarray(found).dtype == np.asarray(wanted).dtype and np.shape(found) == np.shape(wanted)
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)


def agrees(accelerated: Any, function: Any, arguments: tuple[Any, ...]) -> None:
    given, theirs = copied(arguments), copied(arguments)
    wanted = function(*theirs)
    same(accelerated(*given), wanted)
    same(given, theirs)


@pytest.mark.parametrize(("function", "arguments"), CASES, ids=[f.__name__ for f, _ in CASES])
def test_loops_are_one_program(function: Any, arguments: tuple[Any, ...]) -> None:
    accelerated = accelerate(function, fallback="error", backend="reference")
    agrees(accelerated, function, arguments)
    assert accelerated.explain().startswith(f"{function.__name__}(") and "compiled whole" in accelerated.explain()


@pytest.mark.parametrize("function", [relaxes, conjugate_gradient, smooths_in_place, falls], ids=lambda f: f.__name__)
def test_kernels_agree(function: Any) -> None:
    accelerated = accelerate(function, fallback="error", measure=False)
    agrees(accelerated, function, dict(CASES)[function])


def test_a_loop_that_runs_no_iteration_is_numpys() -> None:
    accelerated = accelerate(relaxes, backend="reference", measure=False)
    u = np.zeros(5)
    assert accelerated(u, np.inf)[0] is u
    same(accelerated(np.arange(5.0) ** 2, 0.3), relaxes(np.arange(5.0) ** 2, 0.3))


def test_events_in_a_loop_are_numpys() -> None:
    def halves(x, n):
        while x.max() > 1:
            x = x / (x.min() - n)
        return x

    accelerated = accelerate(halves, backend="reference", measure=False)
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        accelerated(np.array([3.0, 2.0]), 2.0)
    agrees(accelerated, halves, (np.array([30.0, 20.0]), -5.0))


def test_an_index_out_of_bounds_raises_numpys_error() -> None:
    def walks(x, limit):
        i, total = 0, x[0]
        while total < limit:
            i += 1
            total = total + x[i]
        return i

    accelerated = accelerate(walks, backend="reference", measure=False)
    agrees(accelerated, walks, (np.ones(9), 5.0))
    with pytest.raises(IndexError, match="index 9 is out of bounds"):
        accelerated(np.ones(9), 50.0)


def test_errors_that_a_branch_raises_are_numpys() -> None:
    def checked(x, tolerance):
        for _ in range(50):
            if x.min() < 0:
                raise ValueError(f"negative: {float(x.min())}")
            if x.max() < tolerance:
                return x
            x = x * 0.5
        raise ArithmeticError("no convergence")

    accelerated = accelerate(checked, backend="reference", measure=False)
    agrees(accelerated, checked, (np.array([1.0, 2.0]), 1e-3))
    with pytest.raises(ValueError, match=r"negative: -1\.0"):
        accelerated(np.array([-1.0, 2.0]), 1e-3)
    with pytest.raises(ArithmeticError, match="no convergence"):
        accelerated(np.array([1.0, 2.0]), 0.0)


@pytest.mark.parametrize("kind", ["alias", "argument", "list", "object", "draw", "print"])
def test_what_a_loop_cannot_carry_runs_in_segments(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    class Box:
        total = 0.0

    def alias(x, tolerance):
        u = v = x * 1.0
        while u.max() > tolerance:
            u *= 0.5
            v = v + u
        return u, v

    def argument(x, tolerance):
        u = x
        while u.max() > tolerance:
            u[0] *= 0.5
            u = u * 0.5
        return u

    def list_(x, tolerance):
        seen = []
        while x.max() > tolerance:
            seen.append(x.max())
            x = x * 0.5
        return len(seen)

    def object_(x, tolerance):
        box = Box()
        while x.max() > tolerance:
            box.total = box.total + x.max()
            x = x * 0.5
        return box.total

    def draw(x, tolerance):
        generator = np.random.default_rng(3)
        while x.max() > tolerance:
            x = x * generator.random()
        return x

    def print_(x, tolerance):
        while x.max() > tolerance:
            print("step")
            x = x * 0.5
        return x

    function = {"alias": alias, "argument": argument, "list": list_, "object": object_, "draw": draw, "print": print_}[
        kind
    ]
    accelerated = accelerate(function, backend="reference", measure=False)
    for scale in (1.0, 3.0):
        agrees(accelerated, function, (scale * np.array([1.0, 2.0, 3.0]), 0.4))
    assert "in segments" in accelerated.explain()
    printed = capsys.readouterr().out
    assert printed == ("step\n" * printed.count("step") if kind == "print" else "")


def test_an_array_that_an_iteration_replaces_may_not_be_an_alias_later() -> None:
    def replaced(x, tolerance):
        u = x
        while u.max() > tolerance:
            u = u * 0.5
        u[0] = 7.0
        return u

    for tolerance in (0.4, 100.0):
        accelerated = accelerate(replaced, backend="reference", measure=False)
        agrees(accelerated, replaced, (np.array([1.0, 2.0]), tolerance))


def test_either_number_is_returned_by_numpy() -> None:
    def last(x, tolerance):
        best = 1.0
        for i in range(20):
            if x[i % 3] < tolerance:
                best = x[i % 3]
            x = x * 0.9
        return best

    accelerated = accelerate(last, backend="reference", measure=False)
    for tolerance in (0.1, 0.7):
        agrees(accelerated, last, (np.array([0.9, 0.8, 0.95]), tolerance))


def test_random_loops(tmp_path: Any) -> None:
    whole = 0
    for seed, function in enumerate(functions(range(24), str(tmp_path))):
        accelerated = accelerate(function, backend="reference", measure=False)
        random = np.random.default_rng(seed)
        for scale in (1.0, 1.5):
            with np.errstate(all="ignore"):
                agrees(accelerated, function, (scale * random.random(7), random.random(7), 0.45))
        whole += "compiled whole" in accelerated.explain()
    assert whole >= 6


# The rewriting itself.


def run_structured(source: str, *arguments: Any) -> Any:
    tree = ast.parse(source)
    function: Any = tree.body[0]
    function.body = structured(function.body)
    for node in [n for n in ast.walk(tree) if isinstance(n, (ast.While, ast.For)) and n.stop]:  # type: ignore[union-attr]
        node.body.append(ast.If(ast.Name(node.stop, ast.Load()), [ast.Break()], []))  # type: ignore[union-attr]
    scope: dict[str, Any] = {}
    exec(compile(ast.fix_missing_locations(tree), "structured", "exec"), scope)
    return scope[function.name](*arguments)


EXITS = """
def f(n):
    total = 0
    for i in range(n):
        if i == 2:
            continue
        while True:
            total += 1
            if total % 3 == 0:
                break
            if total > 20:
                return "inner", total
        else:
            total = -1
        if i > 5:
            return "outer", total
    else:
        return "none", total
"""


@pytest.mark.parametrize("n", [0, 1, 3, 6, 7, 30])
def test_exits_as_flags(n: int) -> None:
    scope: dict[str, Any] = {}
    exec(EXITS, scope)
    assert run_structured(EXITS, n) == scope["f"](n)


def test_exits_that_cannot_be_flags() -> None:
    source = "def f(x):\n    for i in x:\n        try:\n            return i\n        finally:\n            pass\n"
    with pytest.raises(NotStructured):
        structured(ast.parse(source).body[0].body)  # type: ignore[attr-defined]


def test_names() -> None:
    body = ast.parse("a = b\nfor i in c:\n    d, e[0] = i, a\nif d:\n    f = 1\n[g for g in h]\nj += f").body
    assert bound(body) == ["a", "i", "d", "f", "j"]
    assert exposed(body) == {"b", "c", "e", "d", "h", "f", "j", "g"} - {"g"} | {"g"}


def test_code_without_its_source_stays_as_it_is() -> None:
    scope: dict[str, Any] = {}
    exec("def f(x):\n    while x > 1:\n        x = x / 2\n    return x", scope)
    assert rewritten(scope["f"].__code__) is None
    assert rewritten((lambda x: x).__code__) is None
    assert fuser.accelerate(scope["f"], measure=False, backend="reference")(8.0) == 1.0


def test_the_larger_of_two_numbers_is_one_program_without_a_loop() -> None:
    def farthest(x, limit):
        return max(x.max(), (x * limit).max()), x * min(x[0], limit, x[1])

    accelerated = accelerate(farthest, backend="reference", fallback="error", measure=False)
    for limit in (0.5, 2.0):
        agrees(accelerated, farthest, (np.array([0.9, -0.8, 0.95]), limit))


def test_the_larger_of_a_number_and_an_int() -> None:
    """`max(x, 0)` is an int of Python's or a NumPy scalar: both give the same where a float64 meets it."""

    def soft_thresholds(x, limit):
        out = np.zeros_like(x)
        for _ in range(3):
            for j in range(len(x)):
                out[j] = np.sign(x[j]) * max(abs(x[j]) - limit, 0) / (2 if x[j] > 0.5 else x[0]) + out[j - 1]
        return out, out.sum() * (0 if out[0] > 0.3 else out[1])

    def hinge(x, limit):
        loss = 0.0
        for i in range(40):
            loss += max(0, 1 - x[i % 3] * limit)
        return float(loss)

    def negated(x, limit):
        return np.copysign(1.0, -max(x[0] - limit, 0))

    def scaled(x, limit):
        return x.astype(np.float32) * max(x[0] - limit, 0)

    def divided(x, limit):
        return max(x[0] - limit, 0) // 2 + x

    x = np.array([0.9, -0.8, 0.95])
    for function, whole in (
        (soft_thresholds, True),
        (hinge, True),
        (negated, False),
        (scaled, False),
        (divided, False),
    ):
        accelerated = accelerate(function, backend="reference", measure=False)
        for limit in (0.1, 0.7, 0.9, 2.0):
            agrees(accelerated, function, (x, limit))
        assert ("compiled whole" in accelerated.explain()) == whole, function


def test_comparisons_of_pythons_numbers_are_pythons() -> None:
    def matched(x: Any, n: Any) -> Any:
        same_ones, both, negated, last = 0, 0, 0, False
        for i in range(n):
            s = 1 if x[i] > 0 else -1
            same_ones += s == 1
            both += (s == 1) + (i > 3)
            negated -= -(s == -1)
            last = (s == 1) & (i > 2)
        return same_ones, both, negated, last

    x = np.random.default_rng(0).normal(size=40)
    compiled = accelerate(matched, measure=False)
    same(matched(x, 40), compiled(x, 40))
    assert "compiled whole" in compiled.explain()
