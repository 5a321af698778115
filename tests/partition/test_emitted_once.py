"""Groups of one structure are written once: what they then get is what each would get alone, and others stay apart."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import fuser.compile as stages
import fuser.numpy as fnp
from fuser import grad, jit, lax
from fuser.backends import get
from fuser.backends.c.backend import C
from fuser.partition.group import FUSIBLE, kernel_groups
from fuser.partition.structure import structure

# Large enough that each group is a launch of its own.
X = np.random.default_rng(0).standard_normal((400, 360)).astype(np.float32)
W = np.random.default_rng(1).standard_normal((360, 360)).astype(np.float32)


def waves(h, u):
    for _ in range(6):
        u = u - 0.1 * (fnp.roll(h, -1, 1) - fnp.roll(h, 1, 1)) * h
        h = h - 0.1 * fnp.sum(u * h, axis=1, keepdims=True)
        h = fnp.transpose(fnp.transpose(h) * 0.5)
    return h, u


def network(x, w):
    def loss(w):
        h = x
        for n in range(6):
            h = fnp.tanh(h @ w + n % 2)
            h = (h - fnp.mean(h, axis=1, keepdims=True)) / (1 + fnp.std(h, axis=1, keepdims=True))
        return fnp.sum(h * h)

    return grad(loss)(w)


def squares(x):
    """Groups that differ in the axis of a sum alone, in a type, and in a number alone."""
    results = []
    for axis, dtype, number in ((0, "float32", 1.5), (1, "float32", 1.5), (1, "float16", 1.5), (1, "float32", 2.5)):
        y = fnp.sort(x[:360, :360].astype(dtype), axis=1)  # a library call, so that each stays a group
        results.append(fnp.sum(fnp.exp(y * number), axis=axis))
    return results


@pytest.mark.parametrize(("function", "arguments"), [(waves, (X, X)), (network, (X, W)), (squares, (X,))])
def test_each_group_has_the_text_that_it_has_alone(function, arguments) -> None:
    backend = get("c")
    lowered = jit(function, backend="c").lower(*arguments)
    groups = list(kernel_groups(lowered.plan, backend.limits))
    assert len(groups) == len(lowered.sources) > 3
    for group, source in zip(groups, lowered.sources):
        alone = backend.emit(group)
        assert (source.name, source.params, source.launch) == (alone.name, alone.params, alone.launch)
        if not group.parts:  # the parts of a bundle keep the names that they had first
            assert source.text == alone.text


@pytest.mark.parametrize(("function", "arguments"), [(waves, (X, X)), (network, (X, W))])
def test_what_repeats_is_written_once(function, arguments, monkeypatch) -> None:
    written = []
    emit = C.emit
    monkeypatch.setattr(C, "emit", lambda self, group, *rest: written.append(group.name) or emit(self, group, *rest))
    sources = jit(function, backend="c").lower(*arguments).sources
    assert len({source.name for source in sources}) == len(sources)
    assert len(written) < len(sources) / 1.5


def steps(a, b):
    for _ in range(8):
        b = b.at[1:-1].set((a[:-2] + a[1:-1] + a[2:]) * 0.33)
        a = a.at[1:-1].set((b[:-2] + b[1:-1] + b[2:]) * 0.33)
    return a, b


def loops(x, y, depth=6):
    """Loops within each other, each of which adds one to a number and to an array."""
    if depth == 0:
        return fnp.sin(x), y
    body = lambda state: (state[0] + 1, *loops(state[1] + 1.0, state[2], depth - 1))
    return lax.while_loop(lambda state: state[0] < 2, body, (0, x, y))[1:]


@pytest.mark.parametrize(("function", "kinds"), [(steps, 3), (loops, 4)])
def test_parts_of_bundles_and_of_loops_are_written_once(function, kinds, monkeypatch) -> None:
    written = []
    emit = C.emit
    monkeypatch.setattr(C, "emit", lambda self, group, *rest: written.append(group) or emit(self, group, *rest))
    jit(function, backend="c").lower(X[0], X[1])
    parts = [group for group in written if group.kind in FUSIBLE]
    assert 0 < len(parts) <= kinds, [group.name for group in parts]


def test_structures_differ_where_kernels_do() -> None:
    groups = list(kernel_groups(jit(squares, backend="c").lower(X).plan, get("c").limits))
    reductions = [group for group in groups if "reduce_sum" in group.ops]
    keys = [structure(group) for group in reductions]
    assert len(reductions) >= 4 and None not in keys and len(set(keys)) == len(keys)


def test_a_group_with_a_graph_inside_has_no_structure() -> None:
    from fuser import lax

    lowered = jit(lambda x: lax.fori_loop(0, 5, lambda n, x: fnp.sin(x) * x, x), backend="c").lower(X)
    assert [
        structure(group) for group in lowered.plan.groups if group.bodies or len(group.eqns) > len(group.graph.eqns)
    ] == [None]


def repeated_scans(x, w):
    """Equal loops within loops, one after another."""
    from fuser import lax

    def row(out, i):
        def column(out, j):
            window = lax.dynamic_slice(out, (i, j), (2, 2))
            return lax.dynamic_update_slice(out, fnp.sum(window * w).reshape(1, 1), (i, j)), None

        return lax.scan(column, out, fnp.arange(40))

    for _ in range(3):
        x = lax.scan(row, fnp.sin(x), fnp.arange(40))[0]
    return x


def test_equal_loops_are_examined_and_compiled_once(monkeypatch) -> None:
    from fuser.backends.c.compilation.translation_units import key
    from fuser.partition import loop_forms as stage

    examined = []
    form = stage.loop_form
    monkeypatch.setattr(stage, "loop_form", lambda eqn, *rest: examined.append(eqn) or form(eqn, *rest))
    x, w = np.full((41, 41), 0.5, "float32"), np.full((2, 2), 0.2, "float32")
    compiled = jit(repeated_scans, backend="c").lower(x, w)
    loops = [source for source in compiled.sources if source.name.endswith("_scan")]
    assert len(loops) == 3 and len({key(source) for source in loops}) == 1
    assert len(examined) <= 2 + 1
    expected = jit(repeated_scans, backend="reference")(x, w)
    np.testing.assert_allclose(compiled.compile()(x, w), expected, rtol=1e-5)


def test_loops_that_differ_are_told_apart() -> None:
    from fuser import lax

    def program(x):
        for change in (fnp.sin, fnp.cos):
            step = lambda c, _, change=change: (
                lax.scan(lambda d, _: (change(d @ d * 0.05), None), c, None, length=70)[0],
                None,
            )
            x = lax.scan(step, x * 0.1, None, length=3)[0]
        return x

    x = np.eye(9, dtype="float32") * 0.3
    expected = jit(program, backend="reference")(x)
    np.testing.assert_allclose(jit(program, backend="c")(x), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("enabled", [True, False])
def test_the_garbage_collector_is_left_as_it_was(enabled, monkeypatch) -> None:
    seen, partition = [], stages.partition
    monkeypatch.setattr(stages, "partition", lambda *a, **k: seen.append(gc.isenabled()) or partition(*a, **k))
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        jit(lambda x: x * 2.5 + enabled, backend="c").lower(X)
        assert gc.isenabled() is enabled and seen == [False]
    finally:
        (gc.enable if before else gc.disable)()
