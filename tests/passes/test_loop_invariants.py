"""What loops need not do in each iteration: invariants, products of rows, sums of cotangents, and matrices read across.

Structure is asserted on the optimised graph, results against JAX; what must stay in the body stays there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import lax
from fuser.config import config
from fuser.ir.graph import Eqn, Graph, graphs_in
from fuser.partition.group import Kind

F32 = np.float32
RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) * 0.3).astype(F32)


W, U, V, H, XS = floats(48, 48), floats(48, 24), floats(48), floats(48), floats(20, 24)


def optimised(function: Callable[..., Any], *args: Any) -> Graph:
    return fuser.jit(function).lower(*args).graph


def loops(graph: Graph) -> list[Eqn]:
    return [eqn for eqn in graph.eqns if eqn.primitive.name in ("scan", "while")]


def names(graph: Graph) -> list[str]:
    return [eqn.primitive.name for eqn in graph.eqns]


def inside(graph: Graph) -> list[str]:
    """The primitives in the bodies of a graph's loops."""
    return [name for eqn in loops(graph) for body in graphs_in(eqn.params) for name in names(body)]


Program = Callable[[Any, Any], Callable[..., Any]]  # (numpy, lax) -> the function


def agree(program: Program, *args: Any, rtol: float = 2e-4) -> Graph:
    """The optimised graph, once the results are those of JAX."""
    found = fuser.jit(program(fnp, lax))(*args)
    expected = jax.jit(program(jnp, jax.lax))(*args)
    for ours, theirs in zip(fuser.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        scale = float(np.abs(np.asarray(theirs)).max(initial=1e-3))
        np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=rtol, atol=rtol * scale)
    return optimised(program(fnp, lax), *args)


# Invariants.


def dear_in_scan(np_: Any, lax_: Any) -> Any:
    return lambda c, x: lax_.scan(lambda h, row: (np_.tanh(h * np_.exp(c) + row), h), c, x)


def product_in_fori(np_: Any, lax_: Any) -> Any:
    return lambda w, h: lax_.fori_loop(0, 9, lambda i, h: np_.tanh((w @ w.T) @ h), h)


def both_graphs_of_a_while(np_: Any, lax_: Any) -> Any:
    def function(c: Any, h: Any) -> Any:
        return lax_.while_loop(
            lambda s: s[0] < np_.exp(c).sum(), lambda s: (s[0] + 1, s[1] * np_.sin(c) + 1), (np_.float32(0), h)
        )

    return function


def a_fold_in_a_while(np_: Any, lax_: Any) -> Any:
    def function(c: Any, h: Any) -> Any:
        return lax_.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, s[1] / c.sum() + 1), (0, h))

    return function


@pytest.mark.parametrize(
    ("program", "args", "gone"),
    [
        (dear_in_scan, (H, floats(20, 48)), "exp"),
        (product_in_fori, (W, H), "transpose"),
        (both_graphs_of_a_while, (np.abs(H) / 10, H), "exp"),
        (a_fold_in_a_while, (floats(300), H), "reduce_sum"),
    ],
)
def test_dear_invariants_are_computed_before_the_loop(program: Program, args: Any, gone: str) -> None:
    graph = agree(program, *args)
    assert gone not in inside(graph) and gone in names(graph)


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x.T])
def test_what_a_product_reads_is_stored_before_the_loop(view: Callable[[Any], Any]) -> None:
    """One addition an element, but a product has its operands in memory, so that each iteration would write it all."""
    program: Program = lambda np_, lax_: (
        lambda x, h: lax_.fori_loop(0, 9, lambda i, h: np_.tanh(view(x * 2.5) @ h - x[0]), h)
    )
    graph = agree(program, W, H)
    assert "mul" not in inside(graph) and "mul" in names(graph)


def test_what_spares_the_body_a_load_is_computed_before_the_loop() -> None:
    program: Program = lambda np_, lax_: (
        lambda a, b, h: lax_.fori_loop(0, 9, lambda i, h: np_.tanh(h + (a + b))[::-1], h)
    )
    graph = agree(program, floats(300), floats(300), floats(300))
    assert names(graph)[0] == "add" and inside(graph).count("add") <= 2  # of the carry, and of the counter


def test_cheap_invariants_stay() -> None:
    """A broadcast would have to be stored, and a sum with what is read anyway costs less than reading it."""
    program: Program = lambda np_, lax_: (
        lambda a, h: lax_.fori_loop(0, 9, lambda i, h: np_.sin(h + a * 2 + np_.arange(300)[:, None]) * a, h)
    )
    graph = agree(program, floats(5), floats(300, 5))
    assert all(name in ("broadcast_in_dim", "scan", "while", "reshape") for name in names(graph)), str(graph)


def test_a_value_much_larger_than_what_it_is_made_of_stays() -> None:
    n = 6000
    graph = optimised(
        lambda c, h: lax.fori_loop(0, 3, lambda i, h: (fnp.exp(c[:, None] * c) * h).sum(1), h),
        fuser.ShapeDtypeStruct((n,), np.dtype(F32)),
        fuser.ShapeDtypeStruct((n,), np.dtype(F32)),
    )
    assert "exp" in inside(graph) and "exp" not in names(graph)


def test_an_invariant_of_two_loops_leaves_both() -> None:
    def program(np_: Any, lax_: Any) -> Any:
        def outer(c: Any, h: Any) -> Any:
            step = lambda i, h: lax_.fori_loop(0, 3, lambda j, g: np_.tanh(g + np_.exp(c))[::-1], h)
            return lax_.fori_loop(0, 4, step, h)

        return outer

    graph = agree(program, floats(200), floats(200))
    assert "exp" in names(graph)
    assert all("exp" not in names(body) for eqn in loops(graph) for body in graphs_in(eqn.params))


def test_an_invariant_of_the_inner_loop_alone_leaves_that() -> None:
    def program(np_: Any, lax_: Any) -> Any:
        def outer(h: Any, x: Any) -> Any:
            step = lambda h, row: (lax_.fori_loop(0, 3, lambda j, g: (g + np_.exp(row))[::-1], h), None)
            return lax_.scan(step, h, x)[0]

        return outer

    graph = agree(program, floats(200), floats(5, 200))
    [outer] = loops(graph)
    assert "exp" in names(outer.params["jaxpr"]) and "exp" not in names(graph)


def test_loops_that_do_not_run_give_their_start() -> None:
    program: Program = lambda np_, lax_: (
        lambda c, h: lax_.while_loop(lambda s: s[0] < 0, lambda s: (s[0] + 1, s[1] / np_.log(c)), (0, h))
    )
    agree(program, np.zeros(48, F32), H)


def test_an_invariant_branch_leaves_the_loop_whole() -> None:
    def program(np_: Any, lax_: Any) -> Any:
        def function(flag: Any, c: Any, h: Any) -> Any:
            factor = lambda: lax_.cond(flag > 0, lambda: np_.exp(c), lambda: np_.sin(c))
            return lax_.fori_loop(0, 6, lambda i, h: (h * factor())[::-1], h)

        return function

    graph = agree(program, F32(1), floats(200), floats(200))
    assert "cond" not in inside(graph)
    agree(program, F32(-1), floats(200), floats(200))


def test_closed_over_tracers_of_a_gradient_are_constants() -> None:
    def program(np_: Any, lax_: Any) -> Any:
        value_and_grad = fuser.value_and_grad if np_ is fnp else jax.value_and_grad

        def loss(c: Any, h: Any) -> Any:
            return lax_.scan(lambda h, _: (np_.tanh(h * np_.exp(c)), None), h, None, length=7)[0].sum()

        return value_and_grad(loss, argnums=(0, 1))

    graph = agree(program, H, V)
    assert "exp" not in inside(graph)


# Products of rows.


def recurrent(np_: Any, lax_: Any) -> Any:
    return lambda w, u, h, xs: lax_.scan(lambda h, x: (np_.tanh(w @ h + u @ x), h.sum()), h, xs)


def recurrent_batch(np_: Any, lax_: Any) -> Any:
    return lambda w, u, h, xs: lax_.scan(lambda h, x: (np_.tanh(h @ w + x @ u), h), h, xs)


@pytest.mark.parametrize("reverse", [False, True])
def test_products_of_rows_are_one_before_the_loop(reverse: bool) -> None:
    def program(np_: Any, lax_: Any) -> Any:
        return lambda w, u, h, xs: lax_.scan(lambda h, x: (np_.tanh(w @ h + u @ x), h.sum()), h, xs, reverse=reverse)

    graph = agree(program, W, U, H, XS)
    assert inside(graph).count("dot_general") == 1 and names(graph).count("dot_general") == 1


def test_products_of_batches_of_rows_are_one_plain_product() -> None:
    graph = agree(recurrent_batch, W, floats(24, 48), floats(6, 48), floats(20, 6, 24))
    [eqn] = [eqn for eqn in graph.eqns if eqn.primitive.name == "dot_general"]
    assert eqn.outvars[0].aval.shape == (20 * 6, 48)


def test_products_that_would_fill_memory_stay() -> None:
    graph = optimised(
        lambda u, h, xs: lax.scan(lambda h, x: (h + u @ x, None), h, xs)[0],
        *(fuser.ShapeDtypeStruct(shape, np.dtype(F32)) for shape in ((4000, 32), (4000,), (1000, 32))),
    )
    assert "dot_general" in inside(graph)


def test_a_product_of_the_carry_stays() -> None:
    graph = agree(lambda np_, lax_: lambda w, h: lax_.fori_loop(0, 5, lambda i, h: w @ h, h), W, H)
    assert "dot_general" in inside(graph)


# Matrices read across.


def test_a_matrix_read_across_is_laid_out_before_the_loop() -> None:
    graph = agree(recurrent, W, U, H, XS)
    [loop] = loops(graph)
    [dot] = [eqn for eqn in loop.params["jaxpr"].eqns if eqn.primitive.name == "dot_general"]
    assert dot.params["dimension_numbers"][0][0] == (0,)
    assert "copy" in names(graph)


def test_a_matrix_that_lies_well_or_meets_many_rows_is_not_copied() -> None:
    assert "copy" not in names(agree(recurrent_batch, W, floats(24, 48), floats(1, 48), floats(20, 1, 24)))
    program: Program = lambda np_, lax_: lambda w, h: lax_.fori_loop(0, 9, lambda i, h: np_.tanh(h @ w.T), h)
    assert "copy" not in names(agree(program, W, floats(40, 48)))


@pytest.mark.parametrize(("shape", "copied"), [((10, 80), True), ((48, 48), False), ((80, 10), False)])
def test_of_a_matrix_that_meets_few_rows_long_sums_alone_are_laid_out(shape: tuple[int, int], copied: bool) -> None:
    """A matrix that is read in both orders, as by power iteration, lies in the cache once."""

    def program(np_: Any, lax_: Any) -> Any:
        return lambda w, v: lax_.fori_loop(0, 9, lambda i, v: np_.tanh(w.T @ (w @ v)), v)

    assert ("copy" in names(agree(program, floats(*shape), floats(shape[1], 3)))) == copied


# Sums of cotangents.


def grad_of(program: Program, argnums: Any) -> Program:
    def made(np_: Any, lax_: Any) -> Any:
        grad = fuser.grad if np_ is fnp else jax.grad

        def loss(*args: Any) -> Any:
            leaves = (fuser.tree if np_ is fnp else jax.tree).leaves(program(np_, lax_)(*args))
            return sum((leaf * leaf).sum() for leaf in leaves)

        return grad(loss, argnums=argnums)

    return made


def test_outer_products_become_one_product_of_stacked_rows() -> None:
    graph = agree(grad_of(recurrent, (0, 1)), W, U, H, XS)
    backward = loops(graph)[-1].params["jaxpr"]
    shapes = [eqn.outvars[0].aval.shape for eqn in backward.eqns]
    assert (48, 48) not in shapes and (48, 24) not in shapes
    assert [eqn.outvars[0].aval.shape for eqn in graph.eqns[-2:]] == [(48, 48), (48, 24)]


@pytest.mark.parametrize("batch", [1, 6])
def test_gradients_of_batched_recurrences(batch: int) -> None:
    args = W, floats(24, 48), floats(batch, 48), floats(20, batch, 24)
    graph = agree(grad_of(recurrent_batch, (0, 1, 2, 3)), *args)
    backward = loops(graph)[-1].params["jaxpr"]
    assert (48, 48) not in [eqn.outvars[0].aval.shape for eqn in backward.eqns]


def predator_prey(np_: Any, lax_: Any) -> Any:
    def function(p: Any, y: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            x, z = state
            rate = lambda x, z: (p[0] * x - p[1] * x * z, p[3] * x * z - p[2] * z)
            dx, dz = rate(x, z)
            ex, ez = rate(x + 0.05 * dx, z + 0.05 * dz)
            return (x + 0.1 * ex, z + 0.1 * ez), x

        return lax_.scan(step, (y[0], y[1]), None, length=12)[1]

    return function


PARAMETERS, STATES = np.array([1, 0.5, 0.7, 0.3], F32), np.abs(floats(2, 400)) + 1


def test_the_gradient_of_a_parameter_of_many_lanes_is_a_loop_in_a_kernel() -> None:
    """The sum over lanes is taken after the loop, and its parts of one parameter are one total."""
    program = grad_of(predator_prey, 0)
    graph = agree(program, PARAMETERS, STATES)
    assert "reduce_sum" not in inside(graph)
    assert names(graph).count("reduce_sum") == 4  # a parameter each
    plan = fuser.jit(program(fnp, lax)).lower(PARAMETERS, STATES).plan
    assert [kernel.kind for kernel in plan.kernels].count(Kind.LOOP) == 2
    assert Kind.CONTROL not in [kernel.kind for kernel in plan.kernels]


def test_gradients_of_gradients_through_sums_after_loops() -> None:
    def program(np_: Any, lax_: Any) -> Any:
        grad = fuser.grad if np_ is fnp else jax.grad
        inner = grad(lambda p, y: (predator_prey(np_, lax_)(p, y) ** 2).mean())
        return grad(lambda p, y: (inner(p, y) ** 2).sum())

    agree(program, PARAMETERS, STATES, rtol=2e-3)


def test_vmapped_gradients_through_sums_after_loops() -> None:
    def program(np_: Any, lax_: Any) -> Any:
        library = fuser if np_ is fnp else jax
        inner = library.grad(lambda p, y: (predator_prey(np_, lax_)(p, y) ** 2).mean())
        return library.vmap(inner, in_axes=(0, None))

    agree(program, np.stack([PARAMETERS, PARAMETERS * 0.5]), STATES)


def test_reductions_stay_where_the_body_is_no_lane_anyway() -> None:
    """A stencil runs step by step, so that a total by lane would only cost memory traffic."""

    def program(np_: Any, lax_: Any) -> Any:
        step = lambda a: lambda h, _: (h + a * (np_.roll(h, 1) - 2 * h + np_.roll(h, -1)), None)
        return lambda a, h: lax_.scan(step(a), h, None, length=6)[0]

    graph = agree(grad_of(program, 0), F32(0.1), floats(500))
    assert "reduce_sum" in inside(graph)


def test_sums_that_the_user_writes_keep_their_order() -> None:
    program: Program = lambda np_, lax_: (
        lambda h, xs: lax_.scan(
            lambda c, x: ((c[0] + (c[1] * x).sum(), np_.tanh(c[1] + x)), None), (np_.float32(0), h), xs
        )
    )
    graph = agree(program, floats(300), floats(20, 300))
    assert "reduce_sum" in inside(graph)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_sums_after_loops_in_other_dtypes(dtype: str) -> None:
    with config.using(enable_x64=True), jax.enable_x64(True):
        cast = lambda x: jnp.asarray(x).astype(dtype)
        args = [np.asarray(cast(x)) for x in (W, U, H, XS)]
        found = fuser.jit(grad_of(recurrent, (0, 1))(fnp, lax))(*args)
        wide = [a.astype(np.float64) for a in args]
        expected = jax.jit(grad_of(recurrent, (0, 1))(jnp, jax.lax))(*wide)
    for ours, theirs in zip(found, expected):
        assert ours.dtype == args[0].dtype
        scale = float(np.abs(np.asarray(theirs)).max())
        tolerance = {"float16": 2e-2, "float64": 1e-12}[dtype] * scale
        np.testing.assert_allclose(np.asarray(ours).astype(np.float64), np.asarray(theirs), rtol=0, atol=tolerance)


def test_add_any_is_gone_from_optimised_scans() -> None:
    for program, args in ((recurrent, (W, U, H, XS)), (predator_prey, (PARAMETERS, STATES))):
        assert "add_any" not in inside(optimised(grad_of(program, 0)(fnp, lax), *args))


def test_what_library_calls_read_is_laid_out_before_the_loop() -> None:
    """Shortest ways by Bellman and Ford: the indices of the scatter are a column of the edges."""

    def program(np_: Any, lib: Any) -> Callable[..., Any]:
        def ways(edges: Any, costs: Any, first: Any) -> Any:
            step = lambda i, d: d.at[edges[:, 1]].min(d[edges[:, 0]] + costs)
            return lib.fori_loop(0, 9, step, first)

        return ways

    edges = RNG.integers(-50, 50, (300, 2)).astype(np.int32)
    graph = agree(program, edges, np.abs(floats(300)), floats(50) + 1)
    [loop] = loops(graph)
    [scatter] = [eqn for eqn in loop.params["jaxpr"].eqns if eqn.primitive.name == "scatter-min"]
    assert "lt" not in inside(graph)  # which turns indices from the end
    source = scatter.invars[1]
    while source in (producers := loop.params["jaxpr"].producers):
        assert producers[source].primitive.name in ("broadcast_in_dim", "reshape")
        [source] = producers[source].invars
    assert source.aval.shape == (300,)


def test_a_column_that_a_library_call_reads_is_copied_once() -> None:
    def program(np_: Any, lib: Any) -> Callable[..., Any]:
        def sums(places: Any, rows: Any) -> Any:
            drop = lambda i, d: d.at[places[:, 1]].add(rows + d[0], mode="drop", wrap_negative_indices=False)
            return lib.fori_loop(0, 5, drop, np_.zeros(50))

        return sums

    places = RNG.integers(0, 60, (300, 2)).astype(np.int32)
    graph = agree(program, places, floats(300))
    assert "slice" not in [
        e.primitive.name for eqn in loops(graph) for e in eqn.params["jaxpr"].eqns if e.invars[0].aval.shape == (300, 2)
    ]
