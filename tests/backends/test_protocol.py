"""What a backend may refuse, and where its groups then run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import fuser
import fuser.numpy as fnp
from fuser.backends.base import KernelSource
from fuser.backends.c.backend import C
from fuser.compile import load, lower
from fuser.partition.group import FusionGroup, Kind, Refusal

X = np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4)


class Careful(C):
    """C, without kernels that hold a tangent."""

    def emit(self, group: FusionGroup, *how: Any) -> KernelSource | Refusal:
        return Refusal("tangents need care") if "tan" in group.ops else super().emit(group, *how)


def program(x: Any) -> Any:
    y = fnp.tan(x).sum(axis=1)
    return fnp.sort(y) * 2, fnp.exp(x) + 1


def test_a_group_that_emit_refuses_is_a_library_step_with_the_reason() -> None:
    graph = fuser.jit(program).trace(X).graph
    lowering = lower(graph, Careful())
    [refused] = [group for group in lowering.plan.groups if "tan" in group.ops]
    assert (refused.kind, refused.reason) == (Kind.LIBRARY, "tangents need care")
    assert "tangents need care" in lowering.plan.explain()
    got = load(lowering, Careful()).executable.call(X)
    want = np.sort(np.tan(X).sum(axis=1)) * 2, np.exp(X) + 1
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_a_native_call_that_emit_refuses_is_python_in_a_native_loop() -> None:
    def loop(x: Any) -> Any:
        return fuser.lax.fori_loop(0, 3, lambda _, z: fnp.sort(z) * 0.5, x)

    backend = C()
    traced = fuser.jit(loop).trace(X.astype(np.complex64)).graph
    for within in (True, False):
        backend.limits = replace(backend.limits, host_steps=within)
        group = lower(traced, backend).plan.groups[-1]
        own = [g.reason for g in group.inner if g.reason]
        assert (group.kind, own) == (Kind.CONTROL, ["complex numbers are sorted in NumPy"])
        assert group.reason == ("" if within else own[0])
    assert not lower(fuser.jit(loop).trace(X).graph, C()).plan.groups[-1].reason


def test_a_backend_has_seven_names_and_link() -> None:
    for name in ("c", "triton", "tpu", "reference"):
        backend: Any = fuser.backends.get(name)
        assert backend.name == name and backend.memory.platform in ("cpu", "cuda", "tpu")
        public = {n for n in dir(backend) if not n.startswith("_")}
        # Of one that measures schedules, that knows the processor, that has estimates, that runs on several devices, or loops.
        public -= {"tuned", "tuning", "machine", "seconds", "member", "driven"}
        assert public == {"name", "memory", "limits", "asked", "supports", "emit", "load", "link"}
