"""Calls that stop at collectives, and devices that run by turns on fewer threads."""

import gc
import threading

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import P
from fuser.config import config
from fuser.parallel import run as running
from fuser.runtime.executable import Executable, LibraryStep, _Suspended

MESH = ("x",)


@pytest.mark.parametrize("native", [True, False])
def test_suspended_call(native: bool) -> None:
    double = lambda a: a * 2
    meet = lambda a, b: pytest.fail("a suspended call runs no collective")
    steps = [
        LibraryStep("double", double, (0,), (1,)),
        LibraryStep("meet", meet, (1, 0), (2, 3), meets=True),
        LibraryStep("again", double, (2,), (4,)),
    ]
    types = [((3,), np.dtype(np.float32))]
    program = Executable([0], {}, steps, [4, 3, 0], types=types)
    x = np.arange(3, dtype=np.float32)
    call = program.suspended(x) if native else _Suspended(program, [x])
    function, operands = call.advance()
    assert function is meet
    np.testing.assert_array_equal(operands[0], x * 2)
    assert operands[1] is x
    assert call.advance([x + 1, x + 2]) is None
    for found, wanted in zip(call.outputs(), [(x + 1) * 2, x + 2, x]):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.skipif(fuser.runtime.core.native is None, reason="of the native core")
def test_suspended_call_refuses() -> None:
    steps = [LibraryStep("meet", lambda a: a, (0,), (1,), meets=True)]
    program = Executable([0], {}, steps, [1], types=[((3,), np.dtype(np.float32))])
    with pytest.raises(TypeError, match="takes float32\\[3\\] as array 0"):
        program.suspended(np.zeros(4, np.float32))
    call = program.suspended(np.zeros(3, np.float32))
    with pytest.raises(RuntimeError, match="does not wait for results"):
        call.advance([np.zeros(3)])
    call.advance()
    with pytest.raises(RuntimeError, match="waits for one list of results"):
        call.advance()
    with pytest.raises(RuntimeError, match="not come to its end"):
        call.outputs()
    with pytest.raises(ValueError, match="returned 2 arrays and its plan says 1"):
        call.advance([np.zeros(3), np.zeros(3)])


@pytest.mark.parametrize("native", [True, False])
def test_an_abandoned_call_frees_what_it_holds(native: bool) -> None:
    """Arrays, those of the arena too: bytes in use are what they were, whether the call came to its end or not."""
    mesh = fuser.make_mesh((4,), MESH, axis_types=(fuser.sharding.AxisType.Auto,))

    def one(a):
        total = fuser.lax.psum(fnp.tanh(a @ a) + fnp.sort(a), "x")
        return fnp.cos(total @ a), total

    body = fuser.shard_map(one, mesh=mesh, in_specs=P("x"), out_specs=(P("x"), P()))
    program = fuser.jit(body).lower(np.zeros((1024, 256), np.float32)).compile().program.executable
    x = fuser.runtime.memory.empty((256, 256), np.dtype(np.float32))
    x[...] = 1

    def calls() -> None:
        for end in (False, True) * 5:
            call = program.suspended(x) if native else _Suspended(program, [x])
            meeting, operands = call.advance()
            brought = meeting.brought(operands)
            if end:
                assert call.advance(meeting.results([2 * b for b in brought])) is None
                assert [o.shape for o in call.outputs()] == [(256, 256)] * 2

    calls()
    gc.collect()
    before = fuser.memory_stats()["bytes_in_use"]
    calls()
    gc.collect()
    assert fuser.memory_stats()["bytes_in_use"] == before


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each program that ran did so by turns."""
    seen: list[bool] = []
    ask = running.by_turns
    monkeypatch.setattr(running, "by_turns", lambda own: seen.append(ask(own)) or seen[-1])
    return seen


@pytest.mark.parametrize("threads", [1, 3])
def test_turns_give_the_bits_of_threads(programs: list[bool], monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    mesh = fuser.make_mesh((4, 2), ("x", "y"), axis_types=(fuser.sharding.AxisType.Auto,) * 2)

    def one(a, w):
        part = fuser.lax.psum(a @ w, "y")
        whole = fuser.lax.all_gather(fnp.tanh(part), "x", tiled=True)
        swapped = fuser.lax.all_to_all(whole.reshape(4, 64, 64) * a.sum(), "x", 0, 1)
        part = fuser.lax.psum(part, "y") / 2  # a sum that waits for another
        return (
            part,
            fuser.lax.psum_scatter(swapped.reshape(256, 64), "x", tiled=True),
            fuser.lax.ppermute(part, "x", [(0, 1), (1, 0)]),
        )

    rng = np.random.default_rng(0)
    args = [rng.normal(size=s).astype(np.float32) for s in ((256, 512), (512, 64))]
    specs = (P("x", "y"), P("y"))
    f = fuser.jit(fuser.shard_map(one, mesh=mesh, in_specs=specs, out_specs=(P("x"), P("x", "y"), P("x"))))
    monkeypatch.setattr(running, "_threads", lambda said: threads)
    found = f(*args)
    assert programs == [True]
    monkeypatch.setattr(running, "by_turns", lambda own: False)
    for a, b in zip(found, f(*args)):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    np.testing.assert_allclose(np.asarray(found[0]), args[0] @ args[1], rtol=1e-4, atol=1e-4)


def test_what_needs_a_thread_a_device(programs: list[bool]) -> None:
    """Collectives in a loop, and functions of the user's that wait for one another."""
    mesh = fuser.make_mesh((4,), MESH, axis_types=(fuser.sharding.AxisType.Auto,))
    part = lambda f: fuser.jit(fuser.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P("x")))
    x = np.arange(8, dtype=np.float32)
    loop = part(lambda a: fuser.lax.fori_loop(0, 3, lambda _, v: fnp.tanh(fuser.lax.psum(v, "x")), a))
    assert np.isfinite(np.asarray(loop(x))).all()
    barrier = threading.Barrier(4, timeout=30)

    def wait(a):
        barrier.wait()
        return a

    called = part(lambda a: fuser.pure_callback(wait, fuser.ShapeDtypeStruct(a.shape, a.dtype), a))
    np.testing.assert_array_equal(np.asarray(called(x)), x)
    assert programs == [False, False]


def test_failure_of_one_device(programs: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """A collective that cannot be combined names itself, and the next program runs."""
    mesh = fuser.make_mesh((4,), MESH, axis_types=(fuser.sharding.AxisType.Auto,))
    f = fuser.jit(fuser.shard_map(lambda a: fuser.lax.psum(a, "x"), mesh=mesh, in_specs=P("x"), out_specs=P()))
    x = np.arange(8, dtype=np.float32)

    def broken(*_):
        raise ArithmeticError("no sums today")

    from fuser.ops import collective

    with monkeypatch.context() as patched:
        patched.setitem(collective._COMBINED, "psum_invariant", broken)
        with pytest.raises(
            fuser.errors.DeviceError, match="psum of f32\\[2\\] over 'x' failed on device 3: no sums today"
        ):
            f(x)
    np.testing.assert_array_equal(np.asarray(f(x)), x.reshape(4, 2).sum(0))
    assert programs == [True, True] and config.threads == 0
