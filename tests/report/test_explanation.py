"""`fuser.explain`: steps, lines, refusals and compilations of known programs; sums against the plan."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as jnp
from fuser import lax
from fuser.config import config


@pytest.fixture(autouse=True)
def backend() -> Any:
    with config.using(backend="c"):
        yield


def softmax(x: Any) -> Any:
    e = jnp.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def layer(x: Any, weights: Any, scale: float = 3.0) -> Any:
    return jnp.tanh(x) @ weights * scale


def test_one_kernel_with_its_lines() -> None:
    x = np.ones((8, 16), np.float32)
    explained = fuser.explain(softmax)(x)
    (step,) = explained.steps
    assert (step.kind, step.reason, explained.refused) == ("reduction", "", ())
    assert explained.bytes == step.bytes == 2 * x.nbytes
    assert explained.unfused_bytes > 5 * x.nbytes
    assert [line.text for line in step.lines] == [
        "e = jnp.exp(x - x.max(axis=-1, keepdims=True))",
        "return e / e.sum(axis=-1, keepdims=True)",
    ]
    assert [set(line.ops) - {"broadcast_in_dim"} for line in step.lines] == [
        {"reduce_max", "sub", "exp"},
        {"reduce_sum", "div"},
    ]
    assert explained.operations == sum(len(g.graph.eqns) for g in fuser.jit(softmax).lower(x).plan.groups)


def test_library_steps_say_why() -> None:
    ordered = lambda x, weights: fuser.numpy.sort(x * 2) * weights  # of complex numbers
    explained = fuser.explain(ordered)(np.ones((4, 5), np.complex64), np.ones((4, 5), np.complex64))
    assert "became 2 kernels and 1 library call on c" in str(explained)
    kinds = [step.kind for step in explained.steps]
    assert kinds == ["elementwise", "library", "elementwise"]
    assert all(bool(step.reason) == (step.kind == "library") for step in explained.steps)
    assert explained.refused and all(refusal.reason for refusal in explained.refused)
    assert all(refusal.reason in str(explained) for refusal in explained.refused)


def test_compilations_say_what_changed() -> None:
    program = fuser.jit(layer, static_argnames="scale")
    x, weights = np.ones((4, 5), np.float32), np.ones((5, 3), np.float32)
    assert fuser.explain(program)(x, weights).compilations == ()
    program(x, weights)
    program(x[:2], weights)
    program(x[:2], weights)
    program(x[:2], weights, scale=2.0)
    program(x[:2].astype(np.float16), weights.astype(np.float16))
    found = fuser.explain(program)(x, weights).compilations
    assert [each.because for each in found] == [
        ("the first call",),
        ("x is f32[2,5], before f32[4,5]",),
        ("static scale is 2.0, before None",),
        ("x is f16[2,5], before f32[2,5]", "weights is f16[5,3], before f32[5,3]"),
    ]
    assert found[1].kernels_compiled == 0, "kernels serve every size"
    assert found[0].signature == "x=f32[4,5], weights=f32[5,3]"


def test_types_will_do_for_arguments() -> None:
    explained = fuser.explain(softmax)(fuser.ShapeDtypeStruct((1 << 20, 1 << 20), np.dtype(np.float32)))
    assert explained.arguments == ("f32[1048576,1048576]",)


def test_the_dict_is_json() -> None:
    document = json.loads(json.dumps(fuser.explain(softmax)(np.ones((3, 4), np.float32)).to_dict()))
    assert document["steps"][0]["words"] == "one reduction kernel"
    assert document["bytes"] == 96


def test_accelerated_functions() -> None:
    program = fuser.accelerate(lambda x, power: np.exp(x**power))
    program(np.ones(3), 2)
    program(np.ones(3), 3)
    first, second = fuser.explain(program)(np.ones(3), 2).compilations
    assert (first.signature, second.signature) == ("x=f64[3], static power=2", "x=f64[3], static power=3")
    assert second.because == ("static power is 3, before 2",)


M = 512 * 512 * 4
A = np.ones((512, 512), np.float32)
BYTES = {
    "fusion": (lambda x: jnp.sin(x) * x + x, (A,), 2 * M, 8 * M, 0),
    "several results": (lambda x: (-x, abs(x), jnp.sin(x)), (A,), 4 * M, 6 * M, 0),
    "a bundle": (lambda x, y: (-x, -y), (A[0], A[:3, 0]), 2 * (2048 + 12), 2 * (2048 + 12), 0),
    "invariants": (
        lambda x, w: lax.scan(lambda c, _: (jnp.sort(c + jnp.sin(-w), axis=0), None), x, None, length=10)[0],
        (A, A),
        2 * M + 10 * 5 * M,
        4 * M + 10 * 5 * M,
        10 * 4 * M,
    ),
    "a loop in one kernel": (lambda x, w: lax.fori_loop(0, 10, lambda n, c: c * w, x), (A, A), 3 * M, 30 * M, 0),
}


@pytest.mark.parametrize("name", BYTES)
def test_bytes_saved(name):
    function, arrays, moved, unfused, out_of_loops = BYTES[name]
    explained = fuser.explain(fuser.jit(function, backend="c"))(*arrays)
    assert explained.bytes <= explained.unfused_bytes
    assert abs(explained.bytes - moved) <= 64, (explained.bytes / M, str(explained))  # counters of loops
    assert abs(explained.unfused_bytes - unfused) <= 1024, (explained.unfused_bytes / M, str(explained))
    assert abs(explained.loop_bytes_saved - out_of_loops) <= 1024, explained.loop_bytes_saved
    assert (f"passes had taken {out_of_loops / 1e6:.3g} MB out of its loops" in str(explained)) == (out_of_loops > 0)
