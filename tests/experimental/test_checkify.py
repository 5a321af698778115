"""checkify: the messages are JAX's for the same programs, under jit, loops, branches and vmap; checks that nothing collects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from jax.experimental import checkify as jax_checkify

import fuser
import fuser.numpy as fnp
from fuser import lax
from fuser.experimental import checkify
from fuser.sharding import Mesh
from fuser.sharding import PartitionSpec as P

X = np.ones((2, 3, 7), np.float32)


def branches(m: Any, check: Any, x: Any) -> Any:
    def negative(x: Any) -> Any:
        check(x > -1, "oh no, {}", x)
        return x / 0.0

    return m.lax.cond(x > 0, m.numpy.sin, negative, x)


def carried(m: Any, check: Any, carry: Any, xs: Any) -> Any:
    def body(carry: Any, x: Any) -> Any:
        carry = carry - 1.0
        return carry, x + m.numpy.sin(1.0 / carry)

    return m.lax.scan(body, carry, xs)


def ending(m: Any, check: Any, x: Any) -> Any:
    return m.lax.while_loop(lambda v: ~m.numpy.isnan(m.numpy.sin(1.0 / v)), lambda v: v - 1, x)


def both(m: Any, check: Any, i: Any, x: Any) -> Any:
    def going(carry: Any) -> Any:
        check(carry[0] < 0, "i must be negative")
        return carry[0] < 2

    def step(carry: Any) -> Any:
        check(carry[1] < 0, "x must be negative")
        return carry[0] + 1.0, carry[1] + 1.0

    return m.lax.while_loop(going, step, (i, x))


def payloads(m: Any, check: Any, x: Any) -> Any:
    def yes(x: Any) -> None:
        check(m.numpy.all(x > 0), "{one}", one=x)

    def no(x: Any) -> None:
        check(m.numpy.all(x < 0), "{one} and {two}", one=x, two=x.sum())

    m.lax.cond(m.numpy.all(x < 0), yes, no, x)


def many(m: Any, check: Any, x: Any) -> Any:
    check(m.numpy.all(x < 0), "must be negative!")
    x = m.numpy.sin(x / 0)
    return x[500]


# name: (program of a module, `check` and arguments; categories; arguments of each case)
PROGRAMS: dict[str, tuple[Callable[..., Any], str, list[tuple[Any, ...]]]] = {
    "sums": (lambda m, check, x, y: m.numpy.sin(x) + m.numpy.sin(y), "float", [(3.0, 4.0), (3.0, np.inf)]),
    "division": (lambda m, check, x, y: m.numpy.divide(x, y), "div", [(X, X), (X, X * 0)]),
    "reading": (
        lambda m, check, i, j: m.numpy.asarray(X)[i, j],
        "index",
        [(0, 2), (5, 0), (-5, 1), (0, 9), (np.array([1, 20]), np.array([3, 4])), (np.array([0, 1]), np.array([2, 1]))],
    ),
    "writing": (lambda m, check, i: m.numpy.asarray(X).at[i].add(1.0), "index", [(1,), (2,), (-3,)]),
    "slices": (lambda m, check, i: m.lax.dynamic_slice(X, (0, i, 0), (1, 1, 1)), "index", [(2,), (3,), (-5,)]),
    "branches": (branches, "all", [(3.0,), (np.inf,), (-np.inf,), (0.0,)]),
    "carried": (carried, "float", [(3.0, np.ones(2)), (1.0, np.ones(2)), (2.0, np.ones(4))]),
    "ending": (ending, "float", [(0.0,), (1.0,)]),
    "both": (both, "user", [(0.0, 1.0), (-1.0, 0.0)]),
    "payloads": (payloads, "user", [(np.arange(4),), (np.arange(-4, -1),)]),
    **{f"many {name}": (many, name, [(np.ones(2, np.float32),)]) for name in ("user", "div", "nan", "index", "all")},
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_messages_are_those_of_jax(name: str) -> None:
    program, categories, cases = PROGRAMS[name]
    errors = f"{categories}_checks"
    ours = checkify.checkify(lambda *a: program(fuser, checkify.check, *a), getattr(checkify, errors))
    theirs = jax_checkify.checkify(lambda *a: program(jax, jax_checkify.check, *a), getattr(jax_checkify, errors))
    for arguments in cases:
        (error, out), (wanted, expected) = (
            ours(*map(fnp.asarray, arguments)),
            theirs(*map(jax.numpy.asarray, arguments)),
        )
        assert error.get() == wanted.get()
        for a, b in zip(fuser.tree.leaves(out), jax.tree.leaves(expected)):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), 1e-6)


def positive(m: Any, check: Any) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        check(x > 0, "must be positive, is {x}", x=x)
        return m.numpy.log(x)

    return function


def test_errors_cross_vmap_on_both_sides() -> None:
    x = np.array([1.0, -2.0, 3.0, -4.0], np.float32)
    ours, theirs = positive(fuser, checkify.check), positive(jax, jax_checkify.check)
    error, out = fuser.vmap(checkify.checkify(ours))(x)
    wanted, _ = jax.vmap(jax_checkify.checkify(theirs))(x)
    assert error.get() == wanted.get() and out.shape == (4,)
    assert isinstance(error.get_exception().error_mapping[(1,)], checkify.FailedCheckError)
    error, _ = fuser.jit(checkify.checkify(fuser.vmap(ours)))(x)
    assert error.get() == "must be positive, is -2.0 (`check` failed)"
    loop = checkify.checkify(
        fuser.vmap(lambda x: fuser.lax.while_loop(lambda v: v < 10, lambda v: v * 2 + 0 * fnp.sin(v), x)),
        checkify.nan_checks,
    )
    assert loop(np.array([1.0, 2.0]))[0].get() is None
    assert loop(np.array([1.0, -np.inf]))[0].get() == "nan generated by primitive: sin."


def test_errors_go_on_in_the_program_around() -> None:
    inner = checkify.checkify(positive(fuser, checkify.check))

    def outer(x: Any) -> Any:
        checkify.check(x < 9, "must be below 9")
        error, out = inner(x)
        checkify.check_error(error)
        return out

    outer = checkify.checkify(outer)
    assert outer(1.0)[0].get() is None
    assert outer(-3.0)[0].get() == "must be positive, is -3.0 (`check` failed)"
    assert outer(10.0)[0].get() == "must be below 9 (`check` failed)"
    with pytest.raises(checkify.JaxRuntimeError, match=r"must be positive, is -3\.0"):
        inner(-3.0)[0].throw()
    error, slope = checkify.checkify(fuser.grad(positive(fuser, checkify.check)))(-2.0)
    assert error.get() == "must be positive, is -2.0 (`check` failed)" and float(slope) == -0.5
    kept = fuser.grad(lambda x: inner(x)[1])
    assert float(kept(2.0)) == 0.5


def test_checks_that_nothing_collects() -> None:
    function = positive(fuser, checkify.check)
    with pytest.raises(checkify.JaxRuntimeError, match=r"must be positive, is -1\.0"):
        function(fnp.float32(-1))
    with pytest.raises(ValueError, match=r"Cannot abstractly evaluate a checkify.check which was not functionalized"):
        fuser.jit(function)(1.0)

    def noted(x: Any) -> Any:
        checkify.debug_check(x > 0, "must be positive")
        return x * 2

    assert float(fuser.jit(noted)(-1.0)) == float(noted(fnp.float32(-1))) == -2
    assert checkify.checkify(noted)(-1.0)[0].get() == "must be positive (`check` failed)"
    for bad in (np.ones(2) > 0, 1.0):
        with pytest.raises(TypeError, match="check takes a scalar pred"):
            checkify.check(bad, "")
    with pytest.raises(TypeError, match="need to be PyTrees of arrays"):
        checkify.check(True, "{}", "text")


def test_messages_have_arrays() -> None:
    """They had NumPy's numbers, which are written otherwise where they stand in a tree."""

    def f(x: Any) -> Any:
        checkify.check(fnp.all(x > 0), "{} and {tree}", x, tree={"a": x[0]})
        return x

    error, _ = checkify.checkify(fuser.jit(f))(fnp.array([-1.0, 2.0]))
    assert error.get() == "[-1.  2.] and {'a': Array(-1., dtype=float32)} (`check` failed)"


def test_flags_stay_values_of_python() -> None:
    chosen = checkify.checkify(lambda x, flag: x if flag else -x)
    assert [float(chosen(1.0, flag)[1]) for flag in (True, False)] == [1, -1]


def test_effects_happen_in_loops_and_branches_without_results(capsys: pytest.CaptureFixture[str]) -> None:
    def body(carry: Any, x: Any) -> Any:
        fuser.debug.print("{}", x)
        return carry, x

    fuser.jit(lambda x: fuser.lax.scan(body, None, x))(np.arange(2))
    fuser.jit(lambda x: fuser.lax.cond(x, lambda: fuser.debug.print("yes"), lambda: None))(True)
    assert capsys.readouterr().out == "0\n1\nyes\n"


def test_checks_of_the_devices_of_a_mesh() -> None:
    saved = fuser.config.num_cpu_devices
    fuser.config.update("num_cpu_devices", 4)
    try:
        mesh = Mesh(np.array(fuser.devices()[:4]), ("x",))

        def function(x: Any) -> Any:
            checkify.check(x.sum() < 10, "sum {s} on {i}", s=x.sum(), i=fuser.lax.axis_index("x"))

            def body(carry: Any, v: Any) -> Any:
                checkify.check(v >= 0, "negative {v}", v=v)
                return carry + v, v

            return fuser.lax.scan(body, fnp.float32(0), x)[1]

        for check_vma in (True, False):
            mapped = fuser.shard_map(function, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=check_vma)
            checked = checkify.checkify(mapped)
            assert checked(fnp.arange(8.0))[0].get() == "sum 13.0 on 3 (`check` failed)"
            x = np.array([1, 1, 1, -1, 2, 2, -3, 0], np.float32)
            assert checked(x)[0].get() == "negative -1.0 (`check` failed)"
            error, result = checked(np.abs(x))
            assert error.get() is None and result.tolist() == np.abs(x).tolist()
        mapped = fuser.pmap(lambda x: fnp.sin(1 / x))
        with fuser.config.using(check_tracer_leaks=True):
            error, _ = checkify.checkify(mapped, errors=checkify.nan_checks)(fnp.array([3.0, 0.0]))
        assert error.get() == "nan generated by primitive: sin."
    finally:
        fuser.config.update("num_cpu_devices", saved)


@pytest.mark.parametrize("kind", ["custom_jvp", "custom_vjp"])
def test_derivatives_of_checked_functions_are_those_of_their_rules(kind: str) -> None:
    """And no checks are made under a rule; of a derivative that is checked all are."""
    sine = getattr(fuser, kind)(fnp.sin)
    if kind == "custom_jvp":
        sine.defjvp(lambda primals, tangents: (fnp.sin(primals[0]), 17 * tangents[0]))
    else:
        sine.defvjp(lambda x: (fnp.sin(x), 2 * x), lambda residual, cotangent: (17 * cotangent,))
    checked = checkify.checkify(lambda x: sine(x) * 2, errors=checkify.float_checks)
    assert fuser.grad(lambda x: checked(x)[1])(3.0) == 34
    assert list(fuser.vmap(fuser.grad(lambda x: checked(x)[1]))(fnp.ones(2))) == [34, 34]
    assert checked(np.inf)[0].get().startswith("nan generated by primitive: sin")
    assert fuser.vjp(lambda x: checked(x)[::-1], 3.0, has_aux=True)[2].get() is None
    error, slope = checkify.checkify(fuser.grad(sine), errors=checkify.float_checks)(np.inf)
    assert slope == 17 and error.get().startswith("nan generated by primitive: sin")


ROOT = lambda x: fnp.sqrt(fuser.error_if(x, x < 0, "a root of a negative number")) * 2
AROUND = {
    "eager": ROOT,
    "jit": fuser.jit(ROOT),
    "vmap": fuser.vmap(ROOT),
    "jit of vmap": fuser.jit(fuser.vmap(ROOT)),
    "grad": fuser.jit(fuser.grad(lambda x: ROOT(x).sum())),
    "checkpoint": fuser.grad(lambda x: fuser.checkpoint(ROOT)(x).sum()),
    "scan": fuser.jit(lambda x: lax.scan(lambda c, v: (c + ROOT(v), None), 0.0, x)[0]),
    "while": fuser.jit(lambda x: lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, ROOT(c[1])), (0, x))[1]),
    "branch": fuser.jit(lambda x: lax.cond(x[0] > 0, ROOT, lambda x: x, x)),
}


@pytest.mark.parametrize("backend", ["c", "reference"])
@pytest.mark.parametrize("name", AROUND)
def test_error_if_raises_while_programs_run(name: str, backend: str) -> None:
    with fuser.config.using(backend=backend):
        assert np.isfinite(AROUND[name](fnp.ones(3))).all()
        with pytest.raises(checkify.JaxRuntimeError, match="a root of a negative number") as caught:
            AROUND[name](fnp.array([1.0, -1.0, 4.0]))
    assert any("test_checkify.py" in note for note in caught.value.__notes__)


def test_error_if_is_what_checkify_collects() -> None:
    checked = checkify.checkify(fuser.jit(fuser.vmap(ROOT)))
    assert checked(fnp.ones(3))[0].get() is None
    assert checked(-fnp.ones(3))[0].get().startswith("a root of a negative number")
    assert fuser.error_if({"a": 1.0}, [False, False], "never") == {"a": 1.0}
