"""Refs: programs that read and write them, held against JAX; what transforms make of them; what is refused, in JAX's words."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser.ad import DontWant, GradValue
from fuser.errors import UnsupportedError
from fuser.ir.check import check
from fuser.ir.parse import parse
from fuser.ir.text import show
from fuser.ops.discharge import discharged, has_state
from fuser.pallas import ds

X = np.linspace(0.5, 2.0, 6, dtype=np.float32)


@pytest.fixture(scope="module")
def jax() -> Any:
    return pytest.importorskip("jax")


def in_order(m: Any, x: Any) -> Any:
    """Reads between writes see what was written before."""
    ref = m.new_ref(x)
    first = ref[1]
    ref[1] = 5.0
    ref[2:5] += first
    before = m.ref.swap(ref, slice(4, 6), m.numpy.ones(2))
    ref[m.numpy.array([0, 3])] = m.numpy.array([7.0, 8.0])
    return m.freeze(ref), first, before


def in_loop(m: Any, x: Any) -> Any:
    """A Ref that a loop writes, one that it reads, and one that each iteration has to itself."""
    total, table = m.new_ref(m.numpy.zeros(())), m.new_ref(m.numpy.sin(x))

    def body(carry: Any, row: Any) -> Any:
        own = m.new_ref(row)
        own[...] *= table[1]
        total[...] += own[...] * carry
        return carry + 1, total[...]

    out = m.lax.scan(body, 0.0, x)
    return out, total[...], table[...]


def in_branches(m: Any, x: Any) -> Any:
    """Branches that write different Refs."""
    a, b = m.new_ref(x), m.new_ref(2 * x)
    for n in range(3):

        def left(n: int = n) -> None:
            a[0] = a[1] + b[n]

        def right(n: int = n) -> None:
            b[n] = a[0] * 3

        m.lax.cond(x[n] > 1.0, left, right)
    return a[...], b[...]


def in_while(m: Any, x: Any) -> Any:
    """A Ref that the predicate reads and the body writes, at places known only when it runs."""
    ref = m.new_ref(x)

    def body(n: Any) -> Any:
        ref[n % 6] = ref[n % 6] * 2
        m.ref.addupdate(ref, m.numpy.array([0, 0, 5]), m.numpy.ones(3))
        m.ref.addupdate(ref, 2, m.numpy.ones(()))
        return n + 1

    return m.lax.while_loop(lambda n: (ref[0] < 40) & (n < 50), body, 0), ref[...]


def windows(m: Any, x: Any) -> Any:
    """Windows whose start is traced, out of bounds too, and windows with a stride."""
    ref = m.new_ref(m.numpy.stack([x, x + 10]))

    def body(n: Any, carry: Any) -> Any:
        ref[0, n] = ref[1, n + 1] + carry
        ref[:, 1::2] += ref[0, n]
        return ref[1, 2]

    return m.lax.fori_loop(0, 6, body, 0.0), ref[::1, 1:5:2], ref[..., 0]


PROGRAMS = [in_order, in_loop, in_branches, windows]


def leaves(tree: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in fuser.tree.leaves(tree)]


def agree(ours: Any, theirs: Any, **tolerances: float) -> None:
    ours, theirs = leaves(ours), leaves(theirs)
    assert [a.dtype for a in ours] == [a.dtype for a in theirs]
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, **(tolerances or {"rtol": 1e-5, "atol": 1e-6}))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_programs_are_jaxs(program: Any, jax: Any) -> None:
    want = jax.jit(lambda x: program(jax, x))(X)
    agree(program(fuser, fuser.numpy.asarray(X)), want)
    agree(fuser.jit(lambda x: program(fuser, x))(X), want)


@pytest.mark.parametrize("program", [in_order, in_loop, in_branches, windows], ids=lambda p: p.__name__)
def test_transforms_are_jaxs(program: Any, jax: Any) -> None:
    def floats(m: Any) -> Any:
        return lambda x: sum(m.numpy.sum(m.numpy.sin(leaf)) for leaf in fuser.tree.leaves(program(m, x)))

    # Its reverse mode fails where constants are written, and its vmap for cond.
    want = np.stack([jax.jvp(floats(jax), (X,), (row,))[1] for row in np.eye(6, dtype=np.float32)])
    agree(fuser.grad(floats(fuser))(fuser.numpy.asarray(X)), want)
    agree(fuser.grad(fuser.jit(floats(fuser)))(X), want)
    agree(fuser.jit(fuser.grad(floats(fuser)))(X), want)
    batch = np.stack([X, X[::-1], X + 1])
    agree(
        fuser.jit(fuser.vmap(lambda x: program(fuser, x)))(batch),
        jax.tree.map(lambda *rows: np.stack(rows), *[program(jax, row) for row in batch]),
    )


def test_the_predicate_of_a_while_loop_reads_what_the_body_has_written() -> None:
    """JAX's predicate sees what the Ref held before the loop."""
    want, count = X.copy(), 0
    while want[0] < 40 and count < 50:
        want[count % 6] *= 2
        np.add.at(want, [0, 0, 5, 2], 1)
        count += 1
    agree(in_while(fuser, X), (np.int32(count), want))
    agree(fuser.jit(lambda x: in_while(fuser, x))(X), (np.int32(count), want))


def test_a_jitted_function_changes_its_arguments_and_what_it_closes_over() -> None:
    given, closed = fuser.new_ref(X), fuser.new_ref(np.float32(0))

    @fuser.jit
    def step(ref: Any, y: Any) -> Any:
        closed[...] += 1
        ref[1:3] = y
        return ref[...].sum()

    for n in range(3):
        want = X.copy()
        want[1:3] = n
        assert step(given, np.float32(n)) == pytest.approx(want.sum())
    assert closed[...] == 3
    np.testing.assert_array_equal(given[...], want)
    nested = fuser.jit(lambda: fuser.lax.fori_loop(0, 4, lambda n, total: total + step(given, 1.0), 0.0))
    nested()
    assert closed[...] == 7
    compiled = step.lower(given, np.float32(9)).compile()
    compiled(given, np.float32(9))
    assert given[2] == 9 and closed[...] == 8


def test_arrays_that_were_read_stay_as_they_are() -> None:
    start = fuser.numpy.arange(3.0)
    ref = fuser.new_ref(start)
    before = ref[...]
    fuser.jit(lambda r: r.__setitem__(0, 5.0))(ref)
    assert before[0] == start[0] == 0 and ref[0] == 5


def test_vmap_takes_refs_and_jvp_their_tangents() -> None:
    ref = fuser.new_ref(np.zeros((2, 3), np.float32))
    fuser.vmap(lambda r, x: r.__setitem__(..., x), in_axes=(1, 0))(ref, np.ones((3, 2), np.float32))
    assert ref[...].sum() == 6
    value, tangent = fuser.new_ref(np.float32(3)), fuser.new_ref(np.float32(1))

    def square(r: Any) -> Any:
        r[...] = r[...] * r[...]
        return r[...] + 1

    out = fuser.jvp(square, (value,), (tangent,))
    assert [float(v) for v in (*out, value[...], tangent[...])] == [10, 6, 9, 6]


def test_the_graph_has_refs_until_it_is_discharged() -> None:
    def program(ref: Any, x: Any) -> Any:
        fuser.lax.fori_loop(0, 3, lambda n, _: ref.__setitem__(n, x * n), None)
        return ref[1:]

    graph = fuser.jit(program).trace(fuser.new_ref(X), 2.0).graph
    assert str(graph.invars[0].aval) == "Ref{f32[6]}" and has_state(graph)
    assert show(parse(show(graph, source=False)), source=False) == show(graph, source=False)
    made = discharged(graph)
    assert check(made.graph) and not has_state(made.graph) and made.written == (0,)


def _rule(function: Any, fwd: Any) -> Any:
    made = fuser.custom_vjp(function)
    made.defvjp(fwd, lambda residuals, cotangent: ())
    return made


REFUSED = [
    (lambda r: fuser.jit(lambda: fuser.new_ref(1.0))(), ValueError, "returned a mutable array reference of type Ref{float32"),
    (lambda r: fuser.jit(lambda r: r)(r), ValueError, "passed in as the argument r"),
    (lambda r: fuser.jit(lambda r: {"a": r})(r), ValueError, r"at output tree path result\['a'\]"),
    (lambda r: fuser.make_jaxpr(lambda a, b: a[...])(r, r), ValueError, "appeared at both a and b"),
    (lambda r: fuser.vmap(lambda a, b: None)(r, r), ValueError, "for vmap .* appeared at both a and b"),
    (lambda r: fuser.lax.cond(True, lambda a, b: None, lambda a, b: None, r, r), ValueError, "for cond .* appeared at both a and b"),
    (lambda r: fuser.lax.cond(True, lambda a: a[0], lambda a: a[0] + r[1], r), ValueError, "for cond, .* closed over and passed as the argument a"),
    (lambda r: fuser.lax.switch(1, [lambda a: a[0] + r[1], lambda a: a[0]], r), ValueError, "for switch, .* closed over and passed"),
    (lambda r: fuser.lax.scan(lambda c, x: (None, None), (r, r), None, length=1), ValueError, r"for scan .* both c\[0\] and c\[1\]"),
    (lambda r: fuser.lax.scan(lambda c, x: (c, x[0]), 0.0, (r, r)), ValueError, r"for scan .* both x\[0\] and x\[1\]"),
    (lambda r: fuser.lax.scan(lambda c, x: (r[...] + c[...], None), r, None, length=1), ValueError, "for scan, .* passed as the argument c"),
    (lambda r: fuser.lax.scan(lambda c, x: (r, x), 0.0, X), ValueError, "traced for scan returned a mutable array reference"),
    (lambda r: fuser.lax.cond(True, lambda: r, lambda: r), ValueError, "traced for cond returned a mutable array reference"),
    (lambda r: fuser.lax.while_loop(lambda c: False, lambda c: c, (r, r)), ValueError, r"for while_loop .* both c\[0\] and c\[1\]"),
    (lambda r: fuser.lax.fori_loop(0, 3, lambda n, c: c, (r, r)), ValueError, r"for fori_loop .* both c\[0\] and c\[1\]"),
    (lambda r: fuser.jit(lambda n: fuser.lax.fori_loop(0, n, lambda n, c: c, (r, r)))(3), ValueError, r"for fori_loop .* both c\[0\]"),
    (lambda r: fuser.lax.map(lambda x: 1.0, (r, r)), ValueError, r"for map .* both x\[0\] and x\[1\]"),
    (lambda r: _rule(lambda a, b: 1.0, lambda a, b: (1.0, None))(r, r), ValueError, "for custom_vjp .* both a and b"),
    (lambda r: fuser.vjp(_rule(lambda a, b: 1.0, lambda a, b: (1.0, None)), r, r), ValueError, "for custom_vjp .* both a and b"),
    (lambda r: _rule(lambda a: a, lambda a: (a, None))(r), ValueError, "custom_vjp primal function .* returned a mutable array reference"),
    (lambda r: fuser.vjp(_rule(lambda x, a: x, lambda x, a: (x, fuser.new_ref(0))), 3.0, r), ValueError, "custom_vjp fwd function .* that was not an argument"),
    (lambda r: fuser.jit(lambda a, b: a[...] + b[...])(r, r), ValueError, "appeared at both a and b"),
    (lambda r: fuser.jit(lambda y: r[...] + y[...])(r), ValueError, "was both closed over and passed as the argument y"),
    (lambda r: fuser.numpy.sin(r), ValueError, "Attempting to pass a Ref"),
    (lambda r: fuser.jit(lambda r: r + 1)(r), ValueError, "did you forget to unpack"),
    (lambda r: fuser.vmap(lambda x: r.__setitem__(..., x))(X), ValueError, "an unbatched array reference of type"),
    (lambda r: fuser.grad(lambda x: r.__setitem__(0, x) or x)(1.0), ValueError, "non-differentiated array reference"),
    (lambda r: r.__setitem__(0, np.int32(1)), None, ""),
    (lambda r: r.__setitem__(0, np.float64(1)), None, ""),
    (lambda r: fuser.new_ref(np.arange(3)).__setitem__(0, 1.5), ValueError, "Invalid dtype for `set`"),
    (lambda r: r.__setitem__(slice(0, 2), np.ones(3, np.float32)), ValueError, "Invalid shape for `set`"),
    (lambda r: r[7], IndexError, "out of bounds"),
    (lambda r: (fuser.freeze(r), r[0]), ValueError, "freeze or free_ref has ended it"),
    (lambda r: fuser.jit(lambda: (lambda s: (fuser.free_ref(s), s[...]))(fuser.new_ref(1.0))[1])(), ValueError, "has ended it"),
    (lambda r: fuser.lax.scan(lambda c, x: (fuser.new_ref(c), x), 0, X), ValueError, "mutable array reference"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_is_refused(number: int) -> None:
    run, kind, text = REFUSED[number]
    ref = fuser.new_ref(X)
    if kind is None:
        run(ref)
        return
    with pytest.raises(kind, match=text):
        run(ref)


@fuser.custom_vjp
def stashed(ref: Any, x: Any) -> Any:
    return x


def _stash(residual: Any, cotangent: Any) -> Any:
    residual[...] = cotangent
    return None, cotangent


stashed.defvjp(lambda ref, x: (x, ref), _stash)


def test_custom_rules_read_and_write_refs() -> None:
    def function(ref: Any, x: Any) -> Any:
        return fnp.sin(stashed(ref, fnp.sin(x)))

    wanted, x = np.cos(np.sin(1.0)), fnp.asarray(1.0)
    slope = fuser.grad(function, 1)
    for gradient in (
        slope,
        fuser.jit(slope),
        fuser.grad(fuser.jit(function), 1),
        fuser.grad(fuser.checkpoint(function), 1),
    ):
        ref = fuser.new_ref(fnp.float32(0))
        np.testing.assert_allclose(gradient(ref, x), wanted * np.cos(1.0), 1e-5)
        np.testing.assert_allclose(ref[...], wanted, 1e-5)
    rows = fuser.new_ref(fnp.zeros(2))
    fuser.vmap(slope)(rows, fnp.ones(2))
    np.testing.assert_allclose(rows[...], [wanted] * 2, 1e-5)

    def loop(ref: Any, x: Any) -> Any:
        return fuser.lax.scan(lambda c, _: (function(ref, c), None), x, length=2)[0]

    with pytest.raises(UnsupportedError, match=r"stashed brings its own derivative and takes a Ref inside of scan"):
        fuser.grad(loop, 1)(ref, x)
    np.testing.assert_allclose(loop(ref, x), np.sin(np.sin(np.sin(np.sin(1.0)))), 1e-5)


def test_cotangents_are_added_to_refs() -> None:
    x = fnp.arange(3.0)
    ref = fuser.new_ref(fnp.ones(3))
    _, pullback = fuser.vjp(lambda x, y: (x * y[0] * y[1]).sum(), x, (2 * x, 3 * x))
    found = pullback.with_refs(ref, (GradValue(), DontWant()))(1.0)
    assert found[0] is None and found[1][1] is None
    np.testing.assert_allclose(ref[...], 1 + 6 * np.arange(3.0) ** 2)
    np.testing.assert_allclose(found[1][0], 3 * np.arange(3.0) ** 2)

    def run(x: Any) -> Any:
        total = fuser.new_ref(fnp.zeros_like(x))
        fuser.vjp(lambda x: (x * x).sum(), x)[1].with_refs(total)(1.0)
        return fuser.freeze(total)

    np.testing.assert_allclose(fuser.vmap(fuser.jit(run))(fnp.ones((2, 3))), np.full((2, 3), 2.0))
    with pytest.raises(ValueError, match="unexpected tree structure in the arguments"):
        pullback.with_refs(ref)
    with pytest.raises(ValueError, match="for gradient ref passed to"):
        pullback.with_refs(fuser.new_ref(1.0), (GradValue(), DontWant()))


def test_parts_of_refs_are_arguments() -> None:
    def write(view: Any) -> None:
        view[...] += 1.0

    @fuser.jit
    def function(flag: Any, start: Any) -> Any:
        ref = fuser.new_ref(fnp.zeros(8))
        fuser.jit(write)({"view": ref.at[1:3]}["view"])
        fuser.lax.cond(flag, write, lambda view: None, ref.at[ds(start, 2)])
        fuser.checkpoint(write)(ref.at[7])
        return ref[...]

    np.testing.assert_array_equal(function(True, 4), [0, 1, 1, 0, 1, 1, 0, 1])
    np.testing.assert_array_equal(function(False, 4), [0, 1, 1, 0, 0, 0, 0, 1])
    with pytest.raises(TypeError, match="TransformedRefs are not allowed"):
        fuser.vmap(write)(fuser.new_ref(fnp.zeros(8)).at[1:3])


def test_a_function_with_references_of_its_own_alone_is_called_natively() -> None:
    def total(x: Any) -> Any:
        ref = fuser.new_ref(fnp.zeros_like(x))
        for n in range(3):
            ref[...] += n * x
        return fuser.freeze(ref)

    jitted = fuser.jit(total, donate_argnums=0)
    for _ in range(2):
        x = fnp.arange(4.0) + 1
        np.testing.assert_array_equal(jitted(x), 3 * np.arange(1.0, 5.0))
        assert x.is_deleted()
    assert jitted.lower(x).traced.state is None
    assert fuser.runtime.core.native is None or jitted._known_calls() == 1


def test_checkpointed_functions_write_references_once_and_are_computed_again() -> None:
    told: list[float] = []
    ref = fuser.new_ref(fnp.float32(1), kind="no_grad_no_remat")

    @fuser.checkpoint
    def scaled(y: Any) -> Any:
        fuser.debug.callback(lambda v: told.append(float(v)), y)
        out = y * ref[...]
        ref[...] += 1
        return fnp.sin(out)

    np.testing.assert_allclose(fuser.grad(scaled)(2.0), np.cos(2.0), rtol=1e-6)
    assert ref[...] == 2 and told == [2.0, 2.0]

    def total(checkpoint: Any, x: Any) -> Any:
        inside = fuser.new_ref(fnp.zeros(3))

        def body(x: Any) -> Any:
            inside[...] += fnp.sin(x)
            y = fnp.cos(inside[...]) * x
            inside[0] = y[1]
            return y.sum()

        return checkpoint(body)(x) * inside[...].sum()

    x = np.arange(1.0, 4.0, dtype=np.float32)
    gradients = [
        fuser.jit(fuser.value_and_grad(functools.partial(total, c)))(x) for c in (fuser.checkpoint, lambda f: f)
    ]
    for found, wanted in zip(*gradients, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_cotangents_of_slices_are_added_to_their_part_of_a_ref() -> None:
    def function(x: Any, y: Any, n: Any) -> Any:
        return x[::2] * x[1:6] + x[n] * y, x.sum()

    x = fnp.arange(10.0)
    _, pullback = fuser.vjp(function, x, fnp.float32(3), 7)
    cotangents = (fnp.arange(5.0), fnp.float32(1))
    wanted = pullback(cotangents)
    ref = fuser.new_ref(fnp.ones(10))
    assert pullback.with_refs(ref, DontWant(), DontWant())(cotangents) == (None, None, None)
    np.testing.assert_allclose(ref[...], wanted[0] + 1, rtol=1e-6)

    def run() -> None:
        _, pullback = fuser.vjp(lambda x: x[3] ** 2, x)
        pullback.with_refs(ref)(fnp.float32(1))

    graph = fuser.make_jaxpr(run)().jaxpr
    added = [e for e in graph.eqns if e.primitive.name == "addupdate"]
    assert [v.aval.shape for e in added for v in e.invars[1:2]] == [(1,)]
    _, pullback = fuser.vjp(lambda x, y: y * 1, x, fnp.float32(3))
    untouched, slope = pullback.with_refs(GradValue(), GradValue())(fnp.float32(1))
    np.testing.assert_array_equal(untouched, np.zeros(10))
    assert slope == 1
