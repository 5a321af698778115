"""jit over arrays on several devices: what the unsharded program gives, with no more collectives than XLA places."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.experimental.pjit
import numpy as np
import pytest
from parallel_agreement import mesh_of

import fuser
import fuser.experimental.pjit
import fuser.numpy as fnp
from fuser.errors import DeviceError, UnsupportedError
from fuser.parallel.links import links
from fuser.sharding import SingleDeviceSharding

rng = np.random.default_rng(0)
X, W, V = (rng.normal(size=s).astype(np.float32) for s in ((8, 16), (16, 8), (8, 16)))


def laid(lib: Any, mesh: Any, x: Any, *spec: Any) -> Any:
    return lib.device_put(x, lib.NamedSharding(mesh, lib.P(*spec)))


def same(found: Any, wanted: Any, tolerance: float = 1e-5) -> None:
    for a, b in zip(fuser.tree.leaves(found), fuser.tree.leaves(wanted), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tolerance, atol=tolerance)


def names(function: Any, *args: Any) -> list[str]:
    """The collectives of a compiled program, in order."""
    known = ("psum", "collective_group", "pmax", "pmin", "all_gather", "psum_scatter", "all_to_all", "ppermute")
    return [eqn.primitive.name for eqn in function.lower(*args).graph.eqns if eqn.primitive.name in known]


def training_step(lib: Any) -> Any:
    def loss(w: Any, v: Any, x: Any) -> Any:
        return ((lib.numpy.tanh(x @ w) @ v) ** 2).mean()

    def step(w: Any, v: Any, x: Any) -> Any:
        value, (a, b) = lib.value_and_grad(loss, (0, 1))(w, v, x)
        return value, w - 0.1 * a, v - 0.1 * b

    return lib.jit(step)


@pytest.mark.parametrize(
    ("specs", "wanted"),
    [
        (((), (), ("x",)), ["collective_group"]),  # data parallel: one all-reduce for the loss and all gradients
        (((None, "y"), ("y",), ("x",)), ["psum", "collective_group"]),  # and tensor parallel, as Megatron's MLP
        (
            (("x",), ("x",), ("x",)),
            ["all_gather", "all_gather", "collective_group"],
        ),  # fully sharded data parallel: weights gathered, gradients scattered
    ],
    ids=["data", "tensor", "fsdp"],
)
def test_training_steps_have_no_more_collectives_than_xlas(specs: Any, wanted: Any) -> None:
    found = {}
    for lib in (fuser, jax):
        mesh = mesh_of(lib, x=4, y=2)
        step, arrays = training_step(lib), [laid(lib, mesh, a, *s) for a, s in zip((W, V, X), specs)]
        found[lib] = step, arrays
    step, arrays = found[fuser]
    results = step(*arrays)
    same(results, training_step(fuser)(W, V, X))
    assert [r.sharding.is_equivalent_to(a.sharding, 2) for r, a in zip(results[1:], arrays)] == [True, True]
    own = names(step, *arrays)
    assert own == wanted
    text = found[jax][0].lower(*found[jax][1]).compile().as_text()
    theirs = re.findall(r" (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start)?\(", text)
    assert len(own) <= len(theirs), (own, theirs)


PROGRAMS: dict[str, Any] = {
    "products": lambda w, x: (x @ w, fnp.einsum("bi,ij,bj->b", x, w @ w.T, x), (x @ w).T @ x),
    "reductions": lambda w, x: (x.sum(), x.max(0), fnp.argmin(x, 1), fuser.nn.softmax(x @ w, 0), fnp.cumsum(x, 0), x.std(1)),
    "movement": lambda w, x: (
        x.reshape(2, 4, 4, 4).transpose(2, 0, 3, 1).reshape(16, 8) + w,
        fnp.concatenate([x, x[::-1]], 0)[1:9],
        fnp.pad(x, ((0, 0), (1, 2)))[:, 1:-2],
        fnp.broadcast_to(x[:, None], (8, 3, 16)).sum(1),
        x[fnp.array([1, 3, 5, 7])],
        fnp.where(fnp.tril(fnp.ones((16, 8))) > 0, w, 0.0),
        fnp.sort(x, -1),
        x.at[2, 3].set(1.0),
        fuser.nn.one_hot(fnp.argmax(x, 1), 16),
    ),
    "random": lambda w, x: fuser.random.normal(fuser.random.key(0), (8, 16)) * x,
    "loops": lambda w, x: (
        fuser.lax.scan(lambda c, r: (fnp.tanh(c + r @ w @ w.T), c.sum()), fnp.zeros((8, 16)), fnp.stack([x] * 3)),
        fuser.lax.while_loop(lambda c: c[0].sum() < 9.0, lambda c: (c[0] + 1.0, c[1] * 0.5), (fnp.zeros(4), x)),
        fuser.lax.cond(x.sum() > 0, lambda: x @ w, lambda: fnp.arange(8.0) * x[:, :8]),
        fuser.grad(lambda v: (fuser.lax.scan(lambda c, t: (fnp.sin(c @ v @ v.T * 0.05), None), x, None, length=2)[0] ** 2).sum())(w),
    ),
}  # fmt: skip
MESHES: list[tuple[dict[str, int], Any, Any]] = [
    ({"x": 8}, (None, "x"), ("x",)),
    ({"x": 2, "y": 4}, ("y", "x"), (None, ("x", "y"))),
    ({"x": 2, "y": 2, "z": 2}, (("z", "x"), "y"), (("y", "x"), "z")),
]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_over_devices_is_the_program(name: str) -> None:
    f = fuser.jit(PROGRAMS[name])
    wanted = f(W, X)
    for axes, first, second in MESHES:
        mesh = mesh_of(fuser, **axes)
        same(f(laid(fuser, mesh, W, *first), laid(fuser, mesh, X, *second)), wanted, 1e-4)


def test_links_come_from_index_maps() -> None:
    def found(function: Any, *shapes: tuple[int, ...], parts: int = 2) -> Any:
        eqn = fuser.make_jaxpr(function)(*(np.ones(s, np.float32) for s in shapes)).eqns[-1]
        return {(link.operands, link.results, link.reduction) for link in links(eqn, parts)}

    split = lambda *pairs: {(((0, a),), ((0, b),), None) for a, b in pairs}
    assert found(lambda x: x.T, (4, 6)) == split((0, 1), (1, 0))
    assert found(lambda x: x.reshape(24), (4, 6)) == split((0, 0))
    assert found(lambda x: x.reshape(2, 12), (24,)) == split((0, 0))
    assert found(lambda x: x.reshape(3, 8), (24,)) == set()  # halves of three rows
    assert found(lambda x: x.reshape(3, 8), (24,), parts=3) == split((0, 0))
    assert found(lambda x: x[1:3], (4, 6)) == split((1, 1))
    assert found(lambda x: x[:, ::-1], (4, 6)) == split((0, 0))
    assert found(lambda x: x.sum(0), (4, 6)) == split((1, 0)) | {(((0, 0),), (), "sum")}
    assert found(lambda x, y: x @ y, (4, 6), (6, 2)) == split((0, 0)) | {
        (((1, 1),), ((0, 1),), None),
        (((0, 1), (1, 0)), (), "sum"),
    }


def test_constraints_and_wanted_shardings() -> None:
    mesh = mesh_of(fuser, x=4, y=2)
    at = lambda *spec: fuser.NamedSharding(mesh, fuser.P(*spec))
    f = fuser.jit(lambda a: fuser.lax.with_sharding_constraint(fnp.sin(a), at("x", "y")) * 2)
    assert f(X).sharding.is_equivalent_to(at("x", "y"), 2)
    same(f(X), np.sin(X) * 2)
    g = fuser.jit(
        lambda t, b: (t["a"] + b, t["a"].T), in_shardings=({"a": at("x")}, None), out_shardings=(at(None, "x"), None)
    )
    first, second = g({"a": X}, X)
    assert first.sharding == at(None, "x") and second.sharding.is_equivalent_to(at(None, "x"), 2)
    same((first, second), (X + X, X.T))
    assert names(g, {"a": X}, X) == ["all_to_all"]
    with fuser.set_mesh(mesh):
        assert fuser.reshard(X, fuser.P("y")).sharding == at("y", None)
        h = fuser.jit(fuser.vmap(lambda r: fuser.lax.with_sharding_constraint(r * r, fuser.P("x"))))
        assert h(X).sharding.is_equivalent_to(at(None, "x"), 2)
        slope = fuser.jit(fuser.grad(lambda a: (fuser.lax.with_sharding_constraint(a, fuser.P("x")) ** 2).sum()))
        same(slope(X), 2 * X)
    with pytest.raises(ValueError, match="jit needs in_shardings to be a tree prefix"):
        fuser.jit(lambda a: a, in_shardings=(at(), at()))(X)
    with pytest.raises(ValueError, match="splits dimension 0 into 4 parts"):
        fuser.jit(lambda a: a[:6], out_shardings=at("x"))(X)


def test_operations_and_transforms_outside_follow_their_operands() -> None:
    mesh = mesh_of(fuser, x=4, y=2)
    x, w = laid(fuser, mesh, X, "x"), laid(fuser, mesh, W, None, "y")
    found = fnp.tanh(x @ w) + 1.0
    assert found.sharding.is_equivalent_to(fuser.NamedSharding(mesh, fuser.P("x", "y")), 2)
    same(found, np.tanh(X @ W) + 1)
    step = fuser.jit(lambda a: (fnp.sin(a) ** 2).sum())
    slopes = fuser.grad(step)(x)
    assert slopes.sharding.is_equivalent_to(x.sharding, 2)
    same(slopes, fuser.grad(step)(X))
    same(fuser.lax.fori_loop(0, 3, lambda n, a: a * 2, x), X * 8)
    third = fuser.device_put(X, fuser.devices("cpu")[3])
    assert fuser.jit(fnp.sin)(third).sharding == (third * 2).sharding == SingleDeviceSharding(fuser.devices("cpu")[3])
    with pytest.raises(ValueError, match="a program runs on the devices of one mesh"):
        _ = x + third


def test_shard_maps_become_part_of_the_program() -> None:
    mesh, P = mesh_of(fuser, x=4, y=2), fuser.P
    inner = fuser.shard_map(lambda a: a - fuser.lax.pmean(a, "x"), mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    f = fuser.jit(lambda w, a: fuser.lax.scan(lambda c, _: (inner(c @ w @ w.T), None), inner(a * 2), None, length=2)[0])
    a = X * 2 - (X * 2).reshape(4, 2, 16).mean(0).repeat(1, 0)[None].repeat(4, 0).reshape(8, 16)
    for _ in range(2):
        a = a @ W @ W.T
        a = a - a.reshape(4, 2, 16).mean(0)[None].repeat(4, 0).reshape(8, 16)
    same(f(W, X), a, 1e-3)
    assert f(W, X).sharding.is_equivalent_to(fuser.NamedSharding(mesh, P("x")), 2)
    constrained = lambda other: fuser.jit(
        lambda b: inner(fuser.lax.with_sharding_constraint(b, fuser.NamedSharding(other, P("a"))))
    )
    same(constrained(mesh_of(fuser, a=8))(X), inner(X))
    with pytest.raises(UnsupportedError, match="name the axes of one mesh everywhere"):
        constrained(mesh_of(fuser, a=2, b=4))(X)


def test_donated_arguments_are_gone_and_programs_are_kept() -> None:
    mesh = mesh_of(fuser, x=8)
    traces = []

    def add(a: Any) -> Any:
        traces.append(1)
        return a + 1

    f = fuser.jit(add, donate_argnums=0)
    x = laid(fuser, mesh, X, "x")
    same(f(x), X + 1)
    with pytest.raises(RuntimeError, match="donated"):
        _ = x * 2
    f(laid(fuser, mesh, X, "x"))
    assert len(traces) == 1
    f(laid(fuser, mesh, X, None, "x"))
    f(X)
    same(f(laid(fuser, mesh, X, None, "x")), X + 1)


def test_where_collectives_are_and_why() -> None:
    mesh = mesh_of(fuser, x=4, y=2)
    f = fuser.jit(lambda w, a: fnp.tanh(a @ w).sum())
    text = str(fuser.explain(f)(laid(fuser, mesh, W, "y"), laid(fuser, mesh, X, "x", "y")))
    assert "argument 0: P('y', None)" in text and "argument 1: P('x', 'y')" in text
    assert "f32[8,8]: P('x', None), from an operand of dot_general at test_spmd.py" in text
    assert re.search(
        r"psum over y, 64 bytes a device, for test_spmd.py:\d+ \(<lambda>\): dot_general reduces a dimension that is split",
        text,
    )
    assert re.search(
        r"psum over x, 4 bytes a device, for test_spmd.py:\d+ \(<lambda>\): reduce_sum reduces a dimension", text
    )


def test_what_exchanges_cost() -> None:
    """Of the compiler's collectives and of those in a shard_map: bytes that each device sends, and the time by the links' constants."""
    mesh, P = mesh_of(fuser, x=4, y=2), fuser.P
    by_hand = fuser.shard_map(lambda a: fuser.lax.psum(a, "x") / 4, mesh=mesh, in_specs=P("x"), out_specs=P())

    def f(w: Any, a: Any) -> Any:
        body = lambda c, _: (fnp.tile(fnp.sin(by_hand(c) @ w), (4, 1)), None)
        return fuser.lax.scan(body, a, None, length=3)[0].sum()

    x = laid(fuser, mesh, np.ones((8, 8), np.float32), "x")
    text = str(fuser.explain(fuser.jit(f))(np.ones((8, 8), np.float32), x))
    assert "exchanges: 2" in text
    cost = r"\(120.0 µs over ethernet, 12.0 µs over nvlink\), from test_spmd.py"
    assert re.search(r"psum over x: 3 times 96 bytes sent by each of 4 devices " + cost, text)
    assert re.search(r"psum over x: 6 bytes sent by each of 4 devices " + cost, text)


def test_errors_of_devices_name_the_collective() -> None:
    with pytest.raises(DeviceError, match=r"psum of f32\[\] over 'x' runs on the devices of a mesh only"):
        fuser.ops.collective.psum_p.bind(fnp.ones(()), axis_name=("x",))


def test_gradients_of_micro_batches_meet_once() -> None:
    """Sums that a loop accumulates, scaled and among others, are taken after it; a sum that the body reads stays in it."""
    mesh = mesh_of(fuser, x=8)
    batches = rng.normal(size=(3, 8, 16)).astype(np.float32)

    def accumulate(w: Any, start: Any, xs: Any) -> Any:
        loss = lambda v, x: (fnp.tanh(x @ v) ** 2).mean()

        def turn(carry: Any, x: Any) -> Any:
            value, total, read = carry
            found, slope = fuser.value_and_grad(loss)(w, x)
            read = fnp.sin(read) + x.sum()
            return (value + found, total + slope / 3, read), None

        return fuser.lax.scan(turn, (0.0, start, 1.0), xs)[0]

    f = fuser.jit(accumulate)
    args = (laid(fuser, mesh, W), laid(fuser, mesh, W), laid(fuser, mesh, batches, None, "x"))
    same(f(*args), f(W, W, batches), 1e-4)
    graph = f.lower(*args).graph
    (loop,) = [e for e in graph.eqns if e.primitive.name == "scan"]
    within = [
        e.primitive.name for e in loop.params["jaxpr"].eqns if "psum" in e.primitive.name or "coll" in e.primitive.name
    ]
    assert names(f, *args) == ["collective_group"] and within == ["psum"]


def _nested(lib: Any) -> list[Any]:
    """Results of programs that call a jitted function with shardings, and the shapes of their parts."""
    mesh = mesh_of(lib, x=4, y=2)
    put = lambda *s: lib.NamedSharding(mesh, lib.P(*s))
    inner = lib.jit(lambda a, b: (a + 1, b * 2), in_shardings=(put("x", "y"), None), out_shardings=(None, put("y")))
    square = lib.jit(lambda a: (a**2).sum(), in_shardings=put("x", "y"))
    first = lib.jit(lambda a: inner(a, a)[0])
    arrays = (
        first(X),
        lib.jit(lambda a: inner(a, a)[1])(X),
        lib.jit(lib.vmap(lambda a: inner(a, a)[1]))(np.stack([X, X])),
        lib.jit(lib.grad(lambda a: square(a) * 2))(X),
    )
    with pytest.raises(ValueError, match="divi"):
        first(X[:5])
    with pytest.raises(ValueError, match=r"incompatible devices.*jit inside jit with device ids"):
        first(lib.device_put(X, lib.devices("cpu")[1]))
    return [(np.asarray(a).tolist(), sorted({s.data.shape for s in a.addressable_shards})) for a in arrays]


def test_shardings_of_a_jit_within_a_jit() -> None:
    """They are constraints: on arguments and results, through grad and vmap too, and refused where they do not fit."""
    found = _nested(fuser)
    assert found == _nested(jax)
    assert [parts for _, parts in found][:2] == [[(2, 8)], [(4, 16)]]


def _of_none(lib: Any, pjit: Any) -> list[Any]:
    """The shapes of parts of results, for what is said of them."""
    mesh, spec, found = mesh_of(lib, x=4, y=2), lib.P("x"), []
    with mesh:
        for options in ({}, {"out_shardings": None}, {"out_shardings": (None, spec)}):
            results = pjit(lambda a: (a + 1, a * 2), in_shardings=spec, **options)(X)
            found.append([r.addressable_shards[0].data.shape for r in results])
    out = pjit(lambda a: a + 1, in_shardings=lib.NamedSharding(mesh, spec), out_shardings=None)(X)
    return [*found, out.addressable_shards[0].data.shape]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_none_as_a_sharding_of_pjit_is_whole_within_a_mesh() -> None:
    found = _of_none(fuser, fuser.experimental.pjit.pjit)
    assert found == _of_none(jax, jax.experimental.pjit.pjit)
    assert found[1] == [(8, 16)] * 2


def test_library_functions_under_vmap_over_devices() -> None:
    """jit(vmap(f)) of functions that are jitted themselves: what one batch row gives, and arrays divided along the batch."""
    mesh = mesh_of(fuser, x=4, y=2)
    x = laid(fuser, mesh, X, "x")
    for f in (
        fnp.sort,
        fuser.nn.softmax,
        fnp.cumsum,
        lambda r: fuser.scipy.special.logsumexp(r),
        lambda r: fnp.interp(r, fnp.sort(r), r),
    ):
        found = fuser.jit(fuser.vmap(f))(x)
        same(found, np.stack([np.asarray(f(row)) for row in X]))
        assert found.addressable_shards[0].data.shape[0] == 2, f


def test_no_collectives_over_one_device() -> None:
    """An axis of one device: nothing meets, in loops neither, and values are those of the same program over more."""
    lax, axes = fuser.lax, ("lone",)
    mesh = mesh_of(fuser, x=2, lone=1)

    def one(a: Any) -> Any:
        total = lax.psum(a, axes) + lax.pmean(a, "lone") + lax.ppermute(a, "lone", [(0, 0)]) + lax.pmax(a, axes)
        rows = lax.all_gather(a, "lone") + lax.all_to_all(a, "lone", 0, 0, tiled=True)
        parts = lax.psum_scatter(a, "lone", tiled=True)
        none = lax.ppermute(a, "lone", [])
        summed = lax.fori_loop(0, 3, lambda _, v: v + lax.psum(a, "lone"), a)
        return total, rows[0], parts, none, summed

    f = fuser.jit(fuser.shard_map(one, mesh=mesh, in_specs=fuser.P("x"), out_specs=fuser.P("x"), check_vma=False))
    same(f(X), (4 * X, 2 * X, X, 0 * X, 4 * X))
    lowered = f.lower(X).plan.graph
    assert "ppermute" in str(lowered)
    assert not any(name in str(lowered) for name in ("psum", "pmax", "all_gather", "all_to_all"))
    spread = fuser.jit(lambda w, x: fnp.tanh(x @ w).sum())
    args = [laid(fuser, mesh, W, "lone"), laid(fuser, mesh, X, "x", "lone")]
    assert names(spread, *args) == ["psum"]
    assert not any("over lone" in line for line in fuser.explain(spread)(*args).devices)


@pytest.mark.parametrize("explicit", [False, True])
def test_effects_see_parts_or_the_whole(explicit: bool) -> None:
    """`partitioned`: each device calls with its parts, whole along what vmap takes apart; else it is one call with all."""
    types = (fuser.sharding.AxisType.Explicit if explicit else fuser.sharding.AxisType.Auto,) * 2
    mesh = fuser.make_mesh((2, 2), ("x", "y"), axis_types=types)
    x = laid(fuser, mesh, X, "x", "y")
    parts: list[Any] = []
    wholes: list[Any] = []

    def look(a: Any) -> Any:
        fuser.debug.callback(partitioned=True)(lambda v: parts.append(np.asarray(v)), a)
        fuser.debug.callback(lambda v: wholes.append(np.asarray(v)), a)
        return 2 * a

    same(fuser.jit(look)(x), 2 * X)
    fuser.effects_barrier()
    key = lambda a: a.tobytes()
    wanted = [X[i : i + 4, j : j + 8] for i in (0, 4) for j in (0, 8)]
    same(sorted(parts, key=key), sorted(wanted, key=key))
    same(wholes, [X])
    parts.clear()
    wholes.clear()
    fuser.jit(fuser.vmap(look))(x)
    fuser.effects_barrier()
    same(wholes, list(X))
    wanted = [row[j : j + 8] for row in X for j in (0, 8)] * 2
    same(sorted(parts, key=key), sorted(wanted, key=key))


@pytest.mark.parametrize("kind", ["Auto", "Explicit"])
def test_a_function_of_the_users_is_asked_once(kind: str) -> None:
    """Not once a device: it may take long. vmap that calls it for parts divides its calls."""
    mesh = fuser.make_mesh((4,), ("x",), axis_types=(getattr(fuser.sharding.AxisType, kind),))
    seen: list[Any] = []

    def double(a: Any) -> Any:
        seen.append(a.shape)
        return 2 * np.asarray(a)

    def f(a: Any) -> Any:
        return fnp.sin(
            fuser.pure_callback(double, fuser.ShapeDtypeStruct(a.shape, a.dtype), a, vmap_method="sequential")
        )

    x = laid(fuser, mesh, X, "x")
    same(fuser.jit(f)(x), np.sin(2 * X))
    assert seen == [X.shape]
    same(fuser.jit(fuser.vmap(f))(x), np.sin(2 * X))
    assert seen[1:] == [X.shape[1:]] * len(X)


@pytest.mark.parametrize("kind", ["Auto", "Explicit"])
def test_layouts_within_programs_are_told(kind: str) -> None:
    mesh = fuser.make_mesh((4,), ("x",), axis_types=(getattr(fuser.sharding.AxisType, kind),))
    told: list[Any] = []

    def f(a: Any) -> Any:
        b = fnp.sin(a)
        fuser.debug.inspect_array_sharding(b, callback=told.append)
        return fnp.square(b)

    split, compiled = fuser.NamedSharding(mesh, fuser.P("x")), fuser.jit(f)
    for _ in range(2):
        same(compiled(laid(fuser, mesh, X, "x")), np.sin(X) ** 2)
    assert [s.is_equivalent_to(split, 2) for s in told] == [True]
    f(laid(fuser, mesh, X, "x"))
    assert told[1].is_equivalent_to(split, 2)
    same(fuser.jit(fuser.grad(lambda a: f(a).sum()))(X), np.sin(2 * X))
    assert isinstance(told[2], SingleDeviceSharding) and len(told) == 3


@pytest.mark.parametrize("kind", ["Auto", "Explicit"])
def test_references_keep_their_layout(kind: str) -> None:
    """Those that are passed, closed over and made inside; reads of them lie as they do."""
    mesh = fuser.make_mesh((4, 2), ("x", "y"), axis_types=(getattr(fuser.sharding.AxisType, kind),) * 2)
    split, columns = (fuser.NamedSharding(mesh, fuser.P(*s)) for s in (("x", "y"), (None, "y")))
    ref, rows = fuser.new_ref(fuser.device_put(X, split)), fuser.new_ref(fuser.device_put(X, columns))

    def steps(passed: Any) -> Any:
        passed[...] *= 2

        def body(n: Any, total: Any) -> Any:
            ref[...] += 1.0
            return total + n

        fuser.lax.fori_loop(0, 3, body, 0)
        passed[1] = fnp.ones(16)
        inside = fuser.new_ref(fnp.zeros((8, 16)))
        inside[...] = ref[...]
        return ref[...], passed[2:4], passed[0], inside[...]

    whole, part, row, copy = fuser.jit(steps)(rows)
    doubled = np.concatenate([2 * X[:1], np.ones((1, 16), np.float32), 2 * X[2:]])
    same((whole, part, row, copy, rows[...]), (X + 3, doubled[2:4], doubled[0], X + 3, doubled))
    assert all(a.sharding.is_equivalent_to(split, 2) for a in (ref, whole))
    assert all(a.sharding.is_equivalent_to(columns, 2) for a in (rows, part))
    if kind == "Explicit":
        assert row.sharding.spec == fuser.P("y")
        with pytest.raises(fuser.errors.ShardingTypeError, match="can only be sliced along unsharded axes"):
            fuser.jit(lambda: ref[:2])()


def test_constraints_in_bodies_say_how_carries_and_branches_lie() -> None:
    mesh = mesh_of(fuser, x=4, y=2)
    named = lambda *spec: fuser.NamedSharding(mesh, fuser.P(*spec))
    say = lambda c, *spec: fuser.lax.with_sharding_constraint(c, named(*spec))
    x = fuser.device_put(np.arange(64, dtype=np.float32).reshape(8, 8), named("x"))
    turned = fuser.jit(lambda c: fuser.lax.fori_loop(0, 3, lambda _, c: say(c + 1, None, "x"), c))
    until = fuser.jit(lambda c: fuser.lax.while_loop(lambda c: c[0, 0] < 3, fuser.jit(lambda c: say(c + 1, "y")), c))
    either = fuser.jit(lambda c: fuser.lax.cond(c[0, 0] < 1, lambda c: say(c + 3, "x", "y"), lambda c: c, c))
    for function, spec in ((turned, (None, "x")), (until, ("y",)), (either, ("x", "y"))):
        found = function(x)
        np.testing.assert_array_equal(found, np.asarray(x) + 3)
        assert found.sharding.is_equivalent_to(named(*spec), 2)
    program = turned.lower(x).spread
    assert [c.name for c in program.collectives] == ["all_to_all"], "once, before the loop"


def test_what_is_computed_whole_goes_on_in_parts() -> None:
    programs = {
        "sort": lambda lib, x: lib.numpy.sort(x, 0),
        "set": lambda lib, x: x.at[3].set(0.0),
        "sums": lambda lib, x: lib.numpy.cumsum(x, 0).round(3),
        "both": lambda lib, x: lib.numpy.concatenate([x, x]),
        "after": lambda lib, x: lib.jit(lambda v: lib.numpy.sin(v[::-1]) * 2)(x),
    }
    for name, program in programs.items():
        found, wanted = (
            program(lib, lib.device_put(W, lib.NamedSharding(mesh_of(lib, x=8), lib.P("x")))) for lib in (fuser, jax)
        )
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
        assert str(found.sharding) == str(wanted.sharding), name


def test_arrays_over_meshes_with_other_axes_meet() -> None:
    one = fuser.device_put(W, fuser.NamedSharding(mesh_of(fuser, x=8), fuser.P("x")))
    other = fuser.NamedSharding(mesh_of(fuser, a=2, b=4), fuser.P("b"))
    np.testing.assert_array_equal(fuser.jit(fnp.add)(one, fuser.device_put(W, other)), W + W)
    held = fuser.jit(lambda v: fuser.lax.with_sharding_constraint(v, other))(one)
    np.testing.assert_array_equal(held, W)
    assert held.sharding == other


def test_a_program_lowered_without_devices_runs_on_those_that_compile_is_given() -> None:
    P, explicit = fuser.P, fuser.sharding.AxisType.Explicit
    abstract = fuser.sharding.AbstractMesh((2,), ("x",), (explicit,))
    with fuser.sharding.use_abstract_mesh(abstract):
        lowered = fuser.jit(lambda a: a * 10).lower(
            fuser.ShapeDtypeStruct(X.shape, np.float32, sharding=fuser.NamedSharding(abstract, P("x")))
        )
    with pytest.raises(RuntimeError, match="Length of device_assignment 8 is not equal to the number of devices"):
        lowered.compile(device_assignment=fuser.devices())
    mesh = fuser.make_mesh((2,), ("x",), axis_types=(explicit,), devices=fuser.devices()[2:4])
    compiled = lowered.compile(device_assignment=tuple(mesh.devices.flat))
    found = compiled(fuser.device_put(X, fuser.NamedSharding(mesh, P("x"))))
    same(found, X * 10)
    assert found.sharding.is_equivalent_to(fuser.NamedSharding(mesh, P("x")), 2)


def test_permutations_that_do_not_wait_for_each_other_meet() -> None:
    """Borders of both neighbours in one meeting, two steps in two; sums apart from them."""
    mesh, P = mesh_of(fuser, x=8), fuser.P
    down, up = [(n, (n + 1) % 8) for n in range(8)], [((n + 1) % 8, n) for n in range(8)]

    def smooth(u: Any, steps: int) -> Any:
        total = fuser.lax.psum(u, "x")
        for _ in range(steps):
            above, below = fuser.lax.ppermute(u, "x", down), fuser.lax.ppermute(u, "x", up)
            u = (above + below + u) / 3
        return u + total

    def run(steps: int) -> Any:
        return fuser.jit(fuser.shard_map(lambda u: smooth(u, steps), mesh=mesh, in_specs=P("x"), out_specs=P("x")))

    graph = run(2).lower(X[:, :4]).graph
    names = [e.primitive.name for e in graph.eqns if e.primitive.collect is not None]
    assert sorted(names) == ["collective_group", "collective_group", "psum_invariant"]
    wanted = X[:, :4]
    for _ in range(2):
        wanted = (np.roll(wanted, 1, 0) + np.roll(wanted, -1, 0) + wanted) / 3
    same(run(2)(X[:, :4]), wanted + X[:, :4].sum(0))


def test_explain_says_what_recompiled_for_another_layout() -> None:
    step = fuser.jit(lambda x: x * 2)
    mesh = fuser.make_mesh((4, 2), ("a", "b"), axis_types=(fuser.sharding.AxisType.Auto,) * 2)
    x = np.ones((8, 4), np.float32)
    for spec in (fuser.P("a"), fuser.P("b")):
        given = fuser.device_put(x, fuser.NamedSharding(mesh, spec))
        step(given)
    compilations = str(fuser.explain(step)(given)).split("Compiled 2 times so far:")[1]
    assert "x=f32[8,4] as P('a',) over {'a': 4, 'b': 2}: the first call" in compilations
    assert "x is f32[8,4] as P('b',) over {'a': 4, 'b': 2}, before f32[8,4] as P('a',)" in compilations
