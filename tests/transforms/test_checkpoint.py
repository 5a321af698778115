"""checkpoint and its policies against JAX: values, gradients, what is saved, and what the memory plan makes of it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax._src.ad_checkpoint
import jax.ad_checkpoint
import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser.config import config
from fuser.errors import ConcretizationTypeError
from tests.transforms.both import agree, both_raise, compare

V = np.linspace(0.1, 1.0, 4, dtype=np.float32)
W = np.random.default_rng(0).normal(0, 0.4, (5, 5)).astype(np.float32)
X = np.linspace(-1, 1, 15, dtype=np.float32).reshape(3, 5)


def twice(m: Any, **options: Any) -> Any:
    return m.checkpoint(lambda x: m.numpy.sin(m.numpy.sin(2 * x)), **options)


PROGRAMS = {
    "value": lambda m, f: f(V),
    "grad": lambda m, f: m.grad(f)(1.0),
    "grad of grad": lambda m, f: m.grad(m.grad(f))(1.0),
    "third order": lambda m, f: m.grad(m.grad(m.grad(f)))(1.0),
    "jvp": lambda m, f: m.jvp(f, (V,), (V,)),
    "jit of grad": lambda m, f: m.jit(m.grad(f))(1.0),
    "jit of grad of grad": lambda m, f: m.jit(m.grad(m.grad(f)))(1.0),
    "grad of jit": lambda m, f: m.grad(m.jit(f))(1.0),
    "vmap of grad": lambda m, f: m.vmap(m.grad(f))(V),
    "grad of vmap": lambda m, f: m.grad(lambda v: m.vmap(f)(v).sum())(V),
    "hessian": lambda m, f: m.hessian(lambda v: f(v).sum())(V),
    "jacfwd of jacrev": lambda m, f: m.jacfwd(m.jacrev(f))(V),
    "chain": lambda m, f: m.grad(lambda x: f(f(f(x))))(1.0),
    "nested": lambda m, f: m.grad(m.checkpoint(lambda x: f(f(x)) * x))(1.0),
    "closure": lambda m, f: m.grad(lambda a: m.checkpoint(lambda x: f(x) * m.numpy.exp(a))(2 * a))(1.0),
    "scan": lambda m, f: m.grad(lambda c: m.lax.scan(lambda c, x: (f(c) * x, c), c, V)[0])(1.0),
    "jit of scan": lambda m, f: m.jit(m.grad(lambda c: m.lax.scan(lambda c, x: (f(c) * x, c), c, V)[0]))(1.0),
    "scan inside": lambda m, f: m.grad(m.checkpoint(lambda c: m.lax.scan(lambda c, x: (f(c) * x, c), c, V)[0]))(1.0),
    "cond inside": lambda m, f: m.vmap(m.grad(m.checkpoint(lambda x: m.lax.cond(x > 0.5, f, lambda x: x, x))))(V),
    "linearize": lambda m, f: m.linearize(f, 1.0)[1](2.0),
    "collective": lambda m, f: m.vmap(m.grad(m.checkpoint(lambda x: f(m.lax.psum(x, "i")) * x)), axis_name="i")(V),
}


@pytest.mark.parametrize("backend", ["c", "reference"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_agrees_with_jax(name: str, backend: str) -> None:
    with config.using(backend=backend):
        agree(lambda m: PROGRAMS[name](m, twice(m)))


def layers(m: Any, policy: Any) -> Any:
    """Two layers, each checkpointed, with named values."""
    name = m.ad_checkpoint.checkpoint_name

    def layer(w: Any, x: Any) -> Any:
        h = name(m.numpy.sin(x @ w), "h")
        g = name(m.numpy.cos(h), "g")
        return m.numpy.sin(g @ w)

    one = m.checkpoint(layer, policy=policy(m.checkpoint_policies))
    return lambda w, x: one(w, one(w, x)).sum()


POLICIES = {
    "none": lambda p: None,
    "nothing": lambda p: p.nothing_saveable,
    "everything": lambda p: p.everything_saveable,
    "dots": lambda p: p.dots_saveable,
    "checkpoint_dots": lambda p: p.checkpoint_dots,
    "dots without batch": lambda p: p.dots_with_no_batch_dims_saveable,
    "only h": lambda p: p.save_only_these_names("h"),
    "h and g": lambda p: p.save_only_these_names("h", "g"),
    "any but h": lambda p: p.save_any_names_but_these("h"),
    "anything except": lambda p: p.save_anything_except_these_names("h"),
    "both": lambda p: p.save_from_both_policies(p.dots_saveable, p.save_only_these_names("h")),
    "own": lambda p: lambda primitive, *types, **params: str(primitive) == "cos",
}


@pytest.mark.parametrize("name", POLICIES)
def test_policies_save_what_they_save_in_jax(name: str) -> None:
    ours, theirs = layers(fuser, POLICIES[name]), layers(jax, POLICIES[name])
    expected = jax.grad(theirs, (0, 1))(W, X)
    compare(fuser.grad(ours, (0, 1))(W, X), expected)
    compare(fuser.jit(fuser.grad(ours, (0, 1)))(W, X), expected)
    found = fuser.ad_checkpoint.saved_residuals(ours, W, X)
    wanted = jax._src.ad_checkpoint.saved_residuals(theirs, W, X)
    assert sorted(aval.shape for aval, _ in found) == sorted(aval.shape for aval, _ in wanted)


def test_batched_products_are_told_apart() -> None:
    batched = lambda m, policy: m.checkpoint(lambda x: m.numpy.sin(x @ x).sum(), policy=policy(m.checkpoint_policies))
    x = np.ones((2, 3, 3), np.float32)
    counts = []
    for name in ("dots", "dots without batch", "nothing"):
        counts.append(len(fuser.ad_checkpoint.saved_residuals(batched(fuser, POLICIES[name]), x)))
        assert counts[-1] == len(jax._src.ad_checkpoint.saved_residuals(batched(jax, POLICIES[name]), x))
    assert counts[0] > counts[1] == counts[2]


def test_where_residuals_come_from(capsys: pytest.CaptureFixture[str]) -> None:
    policy = fuser.checkpoint_policies.save_only_these_names("h")

    @functools.partial(fuser.checkpoint, policy=policy)
    def f(p: Any) -> Any:
        return fnp.sin(fuser.checkpoint_name(fnp.cos(p["a"]), "h"))

    fuser.ad_checkpoint.print_saved_residuals(f, {"a": V})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "f32[4] from the argument p['a']"
    assert lines[1].startswith("f32[4] named 'h' from test_checkpoint.py:")
    plain = fuser.ad_checkpoint.saved_residuals(fnp.sin, V)
    assert [text.split(" from")[0] for _, text in plain] == ["output of cos"]


def deep(layer: Any, depth: int = 12) -> Any:
    def loss(ws: Any, x: Any) -> Any:
        for n in range(depth):
            x = layer(ws[n], x)
        return (x * x).sum()

    return fuser.jit(fuser.grad(loss))


def three(w: Any, x: Any) -> Any:
    for _ in range(3):
        x = fnp.tanh(x @ w)
    return x


def test_the_memory_of_a_deep_gradient_falls() -> None:
    weights = list(np.random.default_rng(0).normal(0, 0.1, (12, 64, 64)).astype(np.float32))
    x = np.ones((256, 64), np.float32)
    options = {
        "plain": three,
        "remat": fuser.checkpoint(three),
        "dots": fuser.checkpoint(three, policy=fuser.checkpoint_policies.dots_saveable),
        "merged": fuser.checkpoint(three, prevent_cse=False),
    }
    programs = {name: deep(layer).lower(weights, x).compile() for name, layer in options.items()}
    peak = {name: program.memory_analysis().peak_memory_in_bytes for name, program in programs.items()}
    assert peak["remat"] * 3 < peak["plain"]
    assert peak["remat"] < peak["dots"] < peak["plain"]
    assert peak["merged"] == peak["plain"], "without barriers what is computed again is merged with the first time"
    products = {name: _products(program) for name, program in programs.items()}
    assert products["dots"] == products["plain"] == products["merged"]
    assert products["remat"] == products["plain"] + 12 * 3
    results = [program(weights, x) for program in programs.values()]
    for result in results[1:]:
        for a, b in zip(result, results[0]):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def _products(program: Any) -> int:
    return sum(eqn.primitive.name == "dot_general" for eqn in program.plan.graph.eqns)


def test_nothing_is_computed_again_without_differentiation() -> None:
    graph = fuser.jit(twice(fuser)).lower(V).graph
    assert [e.primitive.name for e in graph.eqns if e.primitive.name in ("sin", "optimization_barrier")] == [
        "sin",
        "sin",
    ]


def test_barrier() -> None:
    def f(x: Any) -> Any:
        return fuser.lax.optimization_barrier(fnp.sin(x)) + fnp.sin(fuser.lax.optimization_barrier(x))

    plan = fuser.jit(f).lower(V).plan
    assert sum(e.primitive.name == "sin" for e in plan.graph.eqns) == 2
    agree(lambda m: m.lax.optimization_barrier({"a": V, "b": (1.0, 2 * V)})["b"][1])
    agree(lambda m: m.jit(m.grad(lambda x: m.lax.optimization_barrier((x * x, x))[0]))(3.0))
    agree(lambda m: m.vmap(lambda x: m.lax.optimization_barrier(x) * 2)(V))
    agree(lambda m: m.jvp(m.lax.optimization_barrier, (V,), (V,)))


def test_arguments() -> None:
    def program(m: Any) -> Any:
        f = lambda x, n, *, flag=False: m.numpy.sin(x) ** n if n > 1 and not flag else x
        static = m.checkpoint(f, static_argnums=(1,))
        return m.grad(static)(2.0, 3), m.grad(static)(2.0, 1), m.grad(m.checkpoint(f, static_argnums=-1))(2.0, 3)

    agree(program)
    agree(lambda m: m.checkpoint(lambda p, *, k: {"a": p[0] * k, "n": None})((V, None), k=2.0))
    agree(lambda m: m.grad(m.remat(lambda x, y: m.numpy.sin(x) * y, prevent_cse=(True, False)))(1.0, 2.0))
    agree(lambda m: m.grad(m.checkpoint(lambda x: (m.numpy.sin(x), V)), has_aux=True)(1.0))


def test_refusals() -> None:
    assert "use fuser.lax.cond" in both_raise(lambda m: m.checkpoint(lambda x: x if x > 0 else -x)(1.0), TypeError)
    with pytest.raises(ConcretizationTypeError):
        fuser.grad(fuser.checkpoint(lambda x: x * float(x)))(1.0)
    assert "static_argnums" in both_raise(lambda m: m.checkpoint(lambda x: x, static_argnums=(3,))(1.0), ValueError)
    assert "prevent_cse" in both_raise(lambda m: m.checkpoint(lambda x: x, prevent_cse=1), TypeError)
    assert "concrete" in both_raise(lambda m: m.checkpoint(lambda x: x, concrete=True), NotImplementedError)
    with pytest.raises(TypeError, match="a string as name"):
        fuser.checkpoint_name(V, 3)  # type: ignore[arg-type]


def test_a_scan_stacks_only_what_its_checkpointed_body_keeps() -> None:
    weights, x = np.full((10, 16, 16), 0.01, np.float32), np.ones((4, 16), np.float32)

    def stacked(body: Any) -> int:
        loss = lambda ws, x: fuser.lax.scan(lambda x, w: (body(w, x), None), x, ws)[0].sum()
        [forward, _] = [e for e in fuser.make_jaxpr(fuser.grad(loss))(weights, x).eqns if e.primitive.name == "scan"]
        return len(forward.outvars) - forward.params["num_carry"]

    assert stacked(fuser.checkpoint(three)) == 1 < stacked(three)


def _in_control_flow(m: Any, name: Any, kind: str, policy: Any) -> Any:
    def body(x: Any) -> Any:
        y = name(m.numpy.sin(x), "a")
        return m.numpy.sin(name(m.numpy.sin(y), "b"))

    def scanned(x: Any) -> Any:
        return m.lax.scan(lambda c, _: (body(c), None), x, None, length=3)[0]

    def chosen(x: Any) -> Any:
        return m.lax.cond(x[0] > 0, body, m.numpy.cos, x)

    def within(x: Any) -> Any:
        return m.lax.scan(lambda c, _: (chosen(c), None), x, None, length=3)[0]

    def products(x: Any) -> Any:
        w = x[:, None] * x
        return m.lax.scan(lambda c, _: (m.numpy.tanh(name(w @ c, "a")), None), x, None, length=3)[0]

    function = {"scan": scanned, "cond": chosen, "cond in scan": within, "products": products}[kind]
    return lambda x: m.checkpoint(function, policy=policy)(x).sum()


@pytest.mark.parametrize("kind", ["scan", "cond", "cond in scan", "products"])
@pytest.mark.parametrize(
    "policy", ["save_only_these_names", "dots_saveable", "nothing_saveable", "everything_saveable"]
)
def test_policies_reach_into_control_flow(kind, policy):
    """What a policy saves inside of a scan or cond is kept, stacked by step, and not computed again; gradients are the same."""
    x = np.arange(1, 5, dtype=np.float32) / 4

    def chosen(policies: Any) -> Any:
        found = getattr(policies, policy)
        return found("a") if policy == "save_only_these_names" else found

    mine = _in_control_flow(fuser, fuser.checkpoint_name, kind, chosen(fuser.checkpoint_policies))
    theirs = _in_control_flow(jax, jax.ad_checkpoint.checkpoint_name, kind, chosen(jax.checkpoint_policies))
    compare(fuser.grad(mine)(x), jax.grad(theirs)(x))
    compare(fuser.jit(fuser.grad(mine))(x), jax.grad(theirs)(x))
    if policy in ("save_only_these_names", "nothing_saveable") and kind != "products":
        kept = [aval.shape for aval, _ in fuser.ad_checkpoint.saved_residuals(mine, fnp.asarray(x))]
        expected = [aval.shape for aval, _ in jax._src.ad_checkpoint.saved_residuals(theirs, x)]
        assert sorted(kept) == sorted(expected)
    if policy != "nothing_saveable" and kind == "products":
        assert (3, 4) in [a.shape for a, _ in fuser.ad_checkpoint.saved_residuals(mine, fnp.asarray(x))]


def _told(lib: Any, program: Callable[[Any, Callable[..., None]], Any]) -> list[float]:
    """What the callbacks of a program were given."""
    told: list[float] = []
    program(lib, lambda v: lib.debug.callback(lambda a: told.append(float(a)), v))
    lib.effects_barrier()
    return sorted(told)


def _looking(lib: Any, look: Callable[..., None], x: Any) -> Any:
    look(x)
    return lib.numpy.sin(x)


LOOKS = {
    "grad": lambda lib, look: lib.grad(lib.checkpoint(functools.partial(_looking, lib, look)))(2.0),
    "jit": lambda lib, look: lib.jit(lib.value_and_grad(lib.checkpoint(functools.partial(_looking, lib, look))))(2.0),
    "nested": lambda lib, look: lib.grad(lib.checkpoint(lib.checkpoint(functools.partial(_looking, lib, look))))(2.0),
    "scan": lambda lib, look: lib.jit(
        lib.grad(
            lambda x: lib.lax.scan(
                lambda c, _: (lib.checkpoint(functools.partial(_looking, lib, look))(c), None), x, None, length=2
            )[0]
        )
    )(2.0),
}


@pytest.mark.parametrize("name", LOOKS)
def test_what_only_looks_happens_each_time_it_is_computed(name: str) -> None:
    found = _told(fuser, LOOKS[name])
    np.testing.assert_allclose(found, _told(jax, LOOKS[name]), rtol=1e-6)
    assert len(found) > 1


def test_effects_that_must_not_be_repeated_are_refused() -> None:
    from fuser.experimental import io_callback

    @fuser.checkpoint
    def f(x: Any, y: Any) -> Any:
        io_callback(lambda v: None, None, y)
        return x * x

    with pytest.raises(NotImplementedError, match="Effects not supported in partial-eval of `checkpoint`"):
        fuser.grad(f)(2.0, 3.0)


def test_outside_of_jit_it_gives_the_bits_of_jit_and_compiles_once() -> None:
    function = lambda x: fnp.exp(fnp.sin(x) * 3)
    x = np.linspace(-4, 4, 4097, dtype=np.float32)
    wanted = fuser.jit(function)(x)
    kept = fuser.checkpoint(function)
    np.testing.assert_array_equal(kept(x), wanted)
    np.testing.assert_array_equal(fuser.vmap(kept)(x), wanted)
    exact = np.exp(np.sin(x.astype(np.float64)) * 3)
    with config.using(disable_jit=True):  # operation by operation
        np.testing.assert_allclose(kept(x), exact, rtol=1e-5)
    with config.using(debug_nans=True), pytest.raises(FloatingPointError, match="log"):
        fuser.checkpoint(fnp.log)(-1.0)


def test_outside_of_jit_it_writes_to_references() -> None:
    ref = fuser.new_ref(np.zeros(3, np.float32))

    @fuser.checkpoint
    def add(ref: Any, x: Any) -> Any:
        ref[...] += x
        return x * 2

    np.testing.assert_array_equal(add(ref, V[:3]), V[:3] * 2)
    np.testing.assert_array_equal(ref[...], V[:3])


def test_offloaded_names_are_saved() -> None:
    """Policies' answers are JAX's; devices here have one memory, where what is offloaded stays."""
    names = {"offload_src": "device", "offload_dst": "pinned_host"}
    policy = fuser.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=["y"], names_which_can_be_offloaded=["z"], **names
    )

    def f(x):
        y = fuser.checkpoint_name(fnp.sin(x), "y")
        z = fuser.checkpoint_name(fnp.sin(y), "z")
        return fnp.sum(fnp.sin(fuser.checkpoint_name(fnp.sin(z), "w")))

    x = np.arange(4, dtype=np.float32)
    kept = fuser.ad_checkpoint.saved_residuals(fuser.checkpoint(f, policy=policy), x)
    assert [words.split("'")[1] for _, words in kept if words.startswith("named")] == ["y", "z"]
    np.testing.assert_allclose(fuser.grad(fuser.checkpoint(f, policy=policy))(x), fuser.grad(f)(x), rtol=1e-6)
    with pytest.raises(ValueError, match="should not intersect"):
        fuser.checkpoint_policies.save_and_offload_only_these_names(
            names_which_can_be_saved=["y"], names_which_can_be_offloaded=["y"], **names
        )
    products = fuser.checkpoint_policies.offload_dot_with_no_batch_dims(**names)
    kept = fuser.ad_checkpoint.saved_residuals(fuser.checkpoint(lambda x: fnp.sin(x @ x), policy=products), np.eye(2))
    assert any("dot_general" in words for _, words in kept)
