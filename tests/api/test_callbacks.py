"""pure_callback, io_callback and debug.*: how often, in which order and with what they call Python, against JAX."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax.experimental import io_callback as jax_io_callback

import fuser
import fuser.debug
import fuser.experimental
from fuser.errors import JaxRuntimeError
from fuser.ir.graph import has_effects
from fuser.passes.tokens import with_tokens
from fuser.runtime.core import native

FLOAT = np.dtype("float32")


class _Fuser:
    """The names that the programs below use, from fuser."""

    api, lax, numpy, debug = fuser, fuser.lax, fuser.numpy, fuser.debug
    io_callback = staticmethod(fuser.experimental.io_callback)


class _Jax:
    api, lax, numpy, debug = jax, jax.lax, jax.numpy, jax.debug
    io_callback = staticmethod(jax_io_callback)


def _programs(lib: Any, log: list[Any]) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """Functions that tell `log` of what happens, and their arguments."""
    scalar = lib.api.ShapeDtypeStruct((), FLOAT)

    def note(*values: Any) -> None:
        log.append([np.asarray(v).tolist() for v in values])

    def counted(*values: Any) -> np.ndarray:
        note(*values)
        return np.float32(len(log))

    def loops(x: Any) -> Any:
        def body(i: Any, c: Any) -> Any:
            lib.io_callback(counted, scalar, i, c, ordered=True)
            c = c + lib.io_callback(counted, scalar, c, ordered=True)
            return lib.lax.cond(i > 0, lambda c: 2 * lib.io_callback(counted, scalar, c, ordered=True), lambda c: c, c)

        return lib.lax.fori_loop(0, 3, body, x)

    def predicate(x: Any) -> Any:
        def going(s: Any) -> Any:
            lib.debug.callback(note, s, ordered=False)
            return s < 5

        return lib.lax.while_loop(going, lambda s: 2 * s, x)

    def unread(x: Any) -> Any:
        lib.io_callback(counted, scalar, x, ordered=True)
        lib.io_callback(counted, scalar, x, ordered=True)
        return x

    def scanned(x: Any) -> Any:
        def step(c: Any, a: Any) -> Any:
            lib.debug.callback(note, c, ordered=True)
            return c * a, None

        return lib.lax.scan(step, x, lib.numpy.arange(1.0, 4.0))[0]

    def inner(x: Any) -> Any:
        return lib.api.jit(lib.api.checkpoint(lambda y: (lib.debug.callback(note, y, ordered=True), y * y)[1]))(x) + 1

    return {
        "loops": (loops, (1.0,)),
        "predicate": (predicate, (1.0,)),
        "unread": (unread, (2.0,)),
        "scanned": (scanned, (2.0,)),
        "gradient of a scan": (lib.api.grad(scanned), (2.0,)),
        "a call inside": (inner, (3.0,)),
        "vmap": (lib.api.vmap(lambda x: lib.io_callback(counted, scalar, x)), (np.arange(3, dtype=FLOAT),)),
    }


@pytest.mark.parametrize("name", _programs(_Fuser, []))
def test_callbacks_happen_as_in_jax(name: str) -> None:
    found: list[Any] = []
    wanted: list[Any] = []
    function, args = _programs(_Fuser, found)[name]
    oracle, _ = _programs(_Jax, wanted)[name]
    result = fuser.jit(function)(*args)
    expected = jax.jit(oracle)(*args)
    jax.effects_barrier()
    fuser.effects_barrier()
    np.testing.assert_allclose(np.asarray(result), np.asarray(expected), rtol=1e-6)
    assert found == wanted


def test_a_batched_predicate_keeps_its_effects() -> None:
    log: list[float] = []

    def f(x: Any) -> Any:
        def body(s: Any) -> Any:
            fuser.debug.callback(lambda v: log.append(float(v)), s)
            return 2 * s

        return fuser.lax.while_loop(lambda s: s < 5, body, x)

    np.testing.assert_array_equal(np.asarray(fuser.jit(fuser.vmap(f))(np.float32([1, 3]))), [8, 6])
    assert log[:2] == [1, 3] and len(log) == 6  # every lane is there for as long as one runs


def test_tokens_are_threaded_only_where_there_are_effects() -> None:
    pure = fuser.make_jaxpr(lambda x: fuser.pure_callback(np.asarray, fuser.ShapeDtypeStruct((), FLOAT), x))(1.0)
    assert not has_effects(pure) and with_tokens(pure) is pure
    told = fuser.make_jaxpr(lambda x: (fuser.debug.callback(print, x), x)[1])(1.0)
    assert has_effects(told) and len(told.out_avals) == 1 and len(with_tokens(told).out_avals) == 2
    assert fuser.jit(lambda x: (fuser.debug.callback(lambda v: None, x), {"x": x})[1]).lower(1.0).out_info.keys() == {
        "x"
    }


@pytest.mark.parametrize(
    "method", ["sequential", "expand_dims", "broadcast_all", "legacy_vectorized", "sequential_unrolled"]
)
def test_vmap_methods_give_callbacks_the_shapes_of_jax(method: str) -> None:
    def run(lib: Any) -> tuple[Any, list[Any]]:
        shapes: list[Any] = []

        def callback(x: Any, y: Any) -> np.ndarray:
            shapes.append((x.shape, y.shape))
            return np.asarray(x) + np.asarray(y)

        out = lib.ShapeDtypeStruct((), FLOAT)
        function = lambda x, y: lib.pure_callback(callback, out, x, y, vmap_method=method)
        return lib.vmap(function, (0, None))(np.arange(3, dtype=FLOAT), np.float32(1)), shapes

    (found, own), (wanted, shapes) = run(fuser), run(jax)
    np.testing.assert_array_equal(np.asarray(found), np.asarray(wanted))
    assert own == shapes


def test_what_is_refused_says_why() -> None:
    out = fuser.ShapeDtypeStruct((), FLOAT)
    call = lambda x: fuser.pure_callback(np.asarray, out, x)
    with pytest.raises(ValueError, match="Pure callbacks do not support JVP"):
        fuser.grad(call)(1.0)
    with pytest.raises(NotImplementedError, match="vmap is only supported for the pure_callback primitive"):
        fuser.vmap(call)(np.ones(2, FLOAT))
    with pytest.raises(ValueError, match="Cannot `vmap` ordered IO callback"):
        fuser.vmap(lambda x: fuser.experimental.io_callback(np.asarray, out, x, ordered=True))(np.ones(2, FLOAT))
    with pytest.raises(ValueError, match="cannot specify 64-bit types"):
        fuser.pure_callback(np.asarray, fuser.ShapeDtypeStruct((), np.float64), 1.0)
    with pytest.raises(ValueError, match="vmap_method must be on of the allowed methods"):
        fuser.pure_callback(np.asarray, out, 1.0, vmap_method="often")
    with pytest.raises(JaxRuntimeError, match=r"Mismatched result shape: the callback <lambda> gave f32\[2\]"):
        fuser.jit(lambda x: fuser.pure_callback(lambda v: np.zeros(2, FLOAT), out, x))(1.0)


@pytest.mark.parametrize("where", ["plain", "cond", "while"])
def test_what_a_callback_raises_arrives_with_its_text(where: str) -> None:
    def fail(v: Any) -> Any:
        raise KeyError(f"no entry for {float(v)}")

    def called(x: Any) -> Any:
        return fuser.pure_callback(fail, fuser.ShapeDtypeStruct((), FLOAT), x)

    programs = {
        "plain": called,
        "cond": lambda x: fuser.lax.cond(x > 0, called, lambda x: x, x),
        "while": lambda x: fuser.lax.while_loop(lambda x: x < 9, called, x),
    }
    with pytest.raises(JaxRuntimeError, match=r"KeyError: 'no entry for 1\.0'"):
        fuser.jit(programs[where])(1.0)
    if where == "cond":
        assert float(fuser.jit(programs[where])(-1.0)) == -1


def test_a_loop_ends_where_a_callback_raises_and_runs_again() -> None:
    log: list[tuple[str, int]] = []

    def seen(name: str, limit: int) -> Any:
        def function(i: Any) -> None:
            log.append((name, int(i)))
            if int(i) == limit:
                raise ValueError(f"{name} at {int(i)}")

        return function

    def program(x: Any, first: Any) -> Any:
        def inner(i: Any, c: Any) -> Any:
            fuser.debug.callback(seen("inner", 7), first + i, ordered=True)
            return c + 1

        def outer(i: Any, c: Any) -> Any:
            c = fuser.lax.fori_loop(0, 3, inner, c)
            fuser.debug.callback(seen("outer", 99), first + i, ordered=True)
            return fuser.numpy.cumsum(c)

        return fuser.lax.fori_loop(0, 2, outer, x)

    compiled = fuser.jit(program).lower(np.ones(3, FLOAT), 0).compile()
    assert not any(group.reason for group in compiled.plan.groups if group.bodies) or native is None
    expected = [
        ("inner", 0),
        ("inner", 1),
        ("inner", 2),
        ("outer", 0),
        ("inner", 0),
        ("inner", 1),
        ("inner", 2),
        ("outer", 1),
    ]
    for first, events in ((0, expected), (6, [("inner", 6), ("inner", 7)]), (0, expected)):
        log.clear()
        if first:
            with pytest.raises(JaxRuntimeError, match="inner at 7"):
                compiled(np.ones(3, FLOAT), first)
        else:
            np.testing.assert_array_equal(np.asarray(compiled(np.ones(3, FLOAT), first)), [7, 18, 33])
        assert log == events


def test_print_formats_values_and_checks_the_format(capsys: pytest.CaptureFixture[str]) -> None:
    fuser.jit(lambda x: (fuser.debug.print("x {} y {y:.1f}", x, y=x / 4), fuser.debug.print("plain"))[0])(np.float32(2))
    assert capsys.readouterr().out == "x 2.0 y 0.5\nplain\n"
    fuser.vmap(lambda x: fuser.debug.print("{x}", x=x))(np.arange(2))
    assert capsys.readouterr().out == "0\n1\n"
    with pytest.raises(ValueError, match="Unused keyword arguments to `jax"):
        fuser.debug.print("x", y=1)
    with pytest.raises(ValueError, match="Unused positional arguments"):
        fuser.debug.print("x", 1)


def test_mapped_functions_print_as_jax_does(capsys: pytest.CaptureFixture[str]) -> None:
    def shown(library: Any) -> str:
        def inner(x: Any, y: Any, z: Any) -> None:
            library.debug.print("{} {} {}", x, y, z)

        middle = library.vmap(inner, in_axes=(0, None, 0))
        outer = library.vmap(library.vmap(middle, in_axes=(0, 0, None)), in_axes=(2, None, 0))
        outer(np.arange(24).reshape(2, 3, 4), np.arange(2), np.arange(12).reshape(4, 3))
        library.effects_barrier()
        return capsys.readouterr().out

    found = shown(fuser)
    assert found == shown(jax) and len(found.splitlines()) == 24


def test_results_of_64_bits_are_narrowed_as_arguments_are() -> None:
    declared = fuser.ShapeDtypeStruct((), np.float32)
    assert float(fuser.jit(lambda x: fuser.pure_callback(lambda v: 42.0, declared, x))(0.0)) == 42.0
    wide = fuser.ShapeDtypeStruct((2,), np.int32)
    got = fuser.jit(lambda: fuser.experimental.io_callback(lambda: np.arange(2, dtype=np.int64), wide))()
    assert got.dtype == np.int32 and got.tolist() == [0, 1]
    with pytest.raises(fuser.errors.JaxRuntimeError, match="Incorrect output dtype for return value"):
        fuser.jit(lambda: fuser.pure_callback(lambda: np.int32(1), declared))()


def test_options_come_alone_in_the_two_call_form(capsys: Any) -> None:
    fuser.debug.print(ordered=True)("x {x}", x=1)
    assert capsys.readouterr().out == "x 1\n"
    with pytest.raises(TypeError, match="debug_print received unexpected arguments in the two-call form"):
        fuser.debug.print(ordered=True, a=42)
    with pytest.raises(TypeError, match="debug_callback received unexpected arguments in the two-call form"):
        fuser.debug.callback(None, 42)
    with pytest.raises(ValueError, match=r"Unused keyword arguments to `jax.debug.print`: \['partitioned'\]"):
        fuser.debug.print(ordered=True)("x {x}", x=1, partitioned=True)


def test_branches_that_call_out_are_not_mapped_by_their_predicate() -> None:
    function = lambda p: fuser.lax.cond(p, lambda: fuser.experimental.io_callback(print, None), lambda: None)
    with pytest.raises(NotImplementedError, match="IO effect not supported in vmap-of-cond"):
        fuser.vmap(function)(fuser.numpy.array([True, False]))


@pytest.mark.parametrize("method", [None, "broadcast_all", "sequential"])
def test_a_callback_in_a_loop_is_called_with_one_element(method: Any) -> None:
    seen: list[tuple[int, ...]] = []

    def sine(e: Any) -> Any:
        seen.append(np.shape(e))
        return np.sin(e)

    run = lambda x: fuser.lax.map(lambda e: fuser.pure_callback(sine, e, e, vmap_method=method), x)
    x = np.float32([0.5, 1.5, 2.5])
    for f in (run, fuser.jit(run)):
        np.testing.assert_allclose(np.asarray(f(x)), np.sin(x), rtol=1e-6)
    assert seen == [()] * 6
