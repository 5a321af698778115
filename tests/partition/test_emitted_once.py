"""Groups of one structure are written once: what they then get is what each would get alone, and others stay apart."""

from __future__ import annotations

import numpy as np
import pytest

import fuser.numpy as fnp
from fuser import grad, jit
from fuser.backends import get
from fuser.backends.c.backend import C
from fuser.compile import kernel_groups
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
    groups = list(kernel_groups(lowered.plan, backend))
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


def test_structures_differ_where_kernels_do() -> None:
    groups = list(kernel_groups(jit(squares, backend="c").lower(X).plan, get("c")))
    folds = [group for group in groups if "reduce_sum" in group.ops]
    keys = [structure(group) for group in folds]
    assert len(folds) >= 4 and None not in keys and len(set(keys)) == len(keys)


def test_a_group_with_a_graph_inside_has_no_structure() -> None:
    from fuser import lax

    lowered = jit(lambda x: lax.fori_loop(0, 5, lambda n, x: fnp.sin(x) * x, x), backend="c").lower(X)
    assert [
        structure(group) for group in lowered.plan.groups if group.bodies or len(group.eqns) > len(group.graph.eqns)
    ] == [None]
