"""Random programs with random shardings against the unsharded run, in float64, on 1 x 8, 2 x 4 and 2 x 2 x 2 devices, and within
a shard_map that leaves axes of the mesh free.

The number of programs is fixed; `python tests/parallel/test_fuzz.py FIRST LAST` tries other seeds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from parallel_agreement import mesh_of

import fuser
import fuser.numpy as fnp

MESHES = ({"x": 1, "y": 8}, {"x": 2, "y": 4}, {"x": 2, "y": 2, "z": 2})
EXTENTS = (1, 2, 3, 4, 6, 8, 8, 16)
MOST_ELEMENTS = 4096
PROGRAMS = 24  # compiled for the reference backend, which tests the division only; every eighth for C too
Values = list[Any]
Step = Callable[[Values], Any]


class Random:
    """A program drawn step by step: each step takes values that are there and adds one."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.inputs = [self.array(self.shape()) for _ in range(self.rng.integers(2, 4))]
        self.shapes = [a.shape for a in self.inputs]
        self.steps: list[Step] = []
        for _ in range(self.rng.integers(4, 10)):
            step = None
            while step is None:
                step = self.pick(KINDS)(self)
            self.add(step)

    def pick(self, choices: Any) -> Any:
        return choices[self.rng.integers(len(choices))]

    def shape(self) -> tuple[int, ...]:
        return tuple(int(self.pick(EXTENTS)) for _ in range(self.rng.integers(1, 4)))

    def array(self, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        return self.rng.normal(size=shape)

    def value(self) -> int:
        return int(self.rng.integers(len(self.shapes)))

    def dim(self, shape: tuple[int, ...]) -> int:
        return int(self.rng.integers(len(shape)))

    def add(self, step: Step) -> None:
        examples = [np.ones(s) for s in self.shapes]
        self.shapes.append(fuser.eval_shape(step, examples).shape)
        self.steps.append(step)

    def __call__(self, *inputs: Any) -> Any:
        """What every step has made."""
        values = list(inputs)
        for step in self.steps:
            values.append(step(values))
        return values[len(inputs) :]

    def slope(self, *inputs: Any) -> Any:
        return fuser.grad(lambda a: sum(fnp.sum(fnp.sin(v)) for v in self(a, *inputs[1:])))(inputs[0])


def spec_of(mesh: Any, shape: tuple[int, ...], rng: np.random.Generator, uneven: bool = False) -> Any:
    """Some axes of the mesh for some dimensions, where they divide them, or anywhere."""
    entries: list[list[str]] = [[] for _ in shape]
    manual = fuser.sharding.get_abstract_mesh().manual_axes
    for name in rng.permutation([n for n in mesh.axis_names if n not in manual]):
        dim, wanted = int(rng.integers(max(len(shape), 1))), rng.random() < 0.7
        parts = int(np.prod([mesh.shape[n] for n in (*entries[dim], name)])) if shape else 1
        if shape and wanted and (uneven or shape[dim] % parts == 0):
            entries[dim].append(str(name))
    return fuser.P(*(tuple(e) if e else None for e in entries))


def _unary(r: Random) -> Step | None:
    f, n = r.pick((fnp.sin, fnp.tanh, lambda v: v * v, fnp.abs, lambda v: fnp.where(v > 0, v, 0.1 * v))), r.value()
    return lambda values: f(values[n])


def _binary(r: Random) -> Step | None:
    f, n = r.pick((fnp.add, fnp.multiply, fnp.maximum, fnp.subtract)), r.value()
    like = [m for m, s in enumerate(r.shapes) if s == r.shapes[n]]
    m = int(r.pick(like))
    return lambda values: f(values[n], fnp.cos(values[m]))


def _outer(r: Random) -> Step | None:
    n, m = r.value(), r.value()
    a, b = r.shapes[n], r.shapes[m]
    if not a or not b or np.prod(a) * b[-1] > MOST_ELEMENTS:
        return None
    return lambda values: values[n][..., None] * fnp.tanh(values[m].reshape(-1, b[-1])[0])


def _product(r: Random) -> Step | None:
    n = r.value()
    a = r.shapes[n]
    others = [(m, d) for m, s in enumerate(r.shapes) for d, e in enumerate(s) if a and e == a[-1]]
    if not others:
        return None
    m, d = r.pick(others)
    if np.prod(a[:-1], dtype=int) * np.prod(r.shapes[m], dtype=int) // a[-1] > MOST_ELEMENTS:
        return None
    scale = 1.0 / a[-1]
    return lambda values: fnp.tensordot(values[n], values[m], axes=((len(a) - 1,), (d,))) * scale


def _reduction(r: Random) -> Step | None:
    n = r.value()
    if not r.shapes[n]:
        return None
    f, d, keep = r.pick((fnp.sum, fnp.mean, fnp.max, fnp.min, fnp.var)), r.dim(r.shapes[n]), bool(r.rng.random() < 0.5)
    return lambda values: f(values[n], axis=d, keepdims=keep)


def _along(r: Random) -> Step | None:
    n = r.value()
    if not r.shapes[n]:
        return None
    f, d = (
        r.pick((fnp.cumsum, lambda v, axis: fnp.sort(v, axis), lambda v, axis: fuser.nn.softmax(v, axis), fnp.flip)),
        r.dim(r.shapes[n]),
    )
    return lambda values: f(values[n], axis=d)  # fmt: skip


def _transpose(r: Random) -> Step | None:
    n = r.value()
    order = tuple(int(d) for d in r.rng.permutation(len(r.shapes[n])))
    return lambda values: fnp.transpose(values[n], order)


def _reshape(r: Random) -> Step | None:
    n = r.value()
    size, shape = int(np.prod(r.shapes[n], dtype=int)), []
    while size > 1 and len(shape) < 3:
        divisors = [e for e in range(2, size + 1) if size % e == 0]
        shape.append(int(r.pick(divisors)))
        size //= shape[-1]
    shape.append(size)
    return lambda values: values[n].reshape(tuple(shape))


def _slice(r: Random) -> Step | None:
    n = r.value()
    if not r.shapes[n]:
        return None
    d = r.dim(r.shapes[n])
    extent = r.shapes[n][d]
    start, step = int(r.rng.integers(extent)), int(r.pick((1, 1, 2)))
    index = (*(slice(None),) * d, slice(start if r.rng.random() < 0.5 else 0, extent, step))
    return lambda values: values[n][index]


def _concatenate(r: Random) -> Step | None:
    n = r.value()
    if not r.shapes[n]:
        return None
    d = r.dim(r.shapes[n])
    return lambda values: fnp.concatenate([values[n], fnp.sin(values[n])], d)


def _pad(r: Random) -> Step | None:
    n = r.value()
    if not r.shapes[n]:
        return None
    d = r.dim(r.shapes[n])
    widths = [(0, 0)] * len(r.shapes[n])
    widths[d] = (int(r.rng.integers(3)), int(r.rng.integers(3)))
    return lambda values: fnp.pad(values[n], widths)


def _gather(r: Random) -> Step | None:
    n = r.value()
    if not r.shapes[n]:
        return None
    rows = r.rng.integers(r.shapes[n][0], size=4)
    return lambda values: values[n][rows]


def _scan(r: Random) -> Step | None:
    n = r.value()
    if not r.shapes[n]:
        return None
    body = lambda c, row: (fnp.tanh(c + row), c * row)
    return lambda values: fuser.lax.scan(body, fnp.zeros(values[n].shape[1:]), values[n])[int(r.shapes[n][0] % 2)]


def _while(r: Random) -> Step | None:
    n = r.value()
    return lambda values: fuser.lax.fori_loop(0, 3, lambda i, v: fnp.sin(v) + v.mean(), values[n])


def _cond(r: Random) -> Step | None:
    n = r.value()
    return lambda values: fuser.lax.cond(values[n].sum() > 0, lambda v: v * 2.0, lambda v: v - v.max(), values[n])


def _constraint(r: Random) -> Step | None:
    n, seed = r.value(), int(r.rng.integers(1 << 30))

    def step(values: Values) -> Any:
        mesh = fuser.sharding.get_mesh()
        if mesh.empty:
            return values[n] * 1.0
        spec = spec_of(mesh, r.shapes[n], np.random.default_rng(seed), uneven=True)
        return fuser.lax.with_sharding_constraint(values[n] * 1.0, fuser.NamedSharding(mesh, spec))

    return step


KINDS = (
    _unary, _binary, _binary, _outer, _product, _product, _reduction, _reduction, _along, _transpose, _reshape, _slice,
    _concatenate, _pad, _gather, _scan, _while, _cond, _constraint,
)  # fmt: skip


def check(seed: int, backend: str) -> None:
    """The program of this seed over each mesh, its values and a slope, against the run on one device."""
    with fuser.config.using(enable_x64=True, backend=backend):
        program = Random(seed)
        both = lambda *inputs: (program(*inputs), program.slope(*inputs))
        wanted = fuser.jit(both)(*program.inputs)
        for axes in MESHES:
            mesh, rng = mesh_of(fuser, **axes), np.random.default_rng(seed + 1)
            specs = [spec_of(mesh, a.shape, rng) for a in program.inputs]
            placed = [fuser.device_put(a, fuser.NamedSharding(mesh, s)) for a, s in zip(program.inputs, specs)]
            own = lambda *inputs: both(*inputs)
            within = fuser.shard_map(own, mesh=mesh, in_specs=fuser.P(), out_specs=fuser.P(), axis_names={"x"})
            for function in (own, within):
                with mesh:
                    found = fuser.jit(function)(*placed)
                for n, (a, b) in enumerate(zip(fuser.tree.leaves(found), fuser.tree.leaves(wanted), strict=True)):
                    where = (
                        f"value {n} of seed {seed} over {axes} with {specs}{' in a shard_map' * (function is within)}"
                    )
                    assert (a.shape, a.dtype) == (b.shape, b.dtype), where
                    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-9, atol=1e-9, err_msg=where)


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_random_programs_with_random_shardings(seed: int) -> None:
    check(seed, "c" if seed % 8 == 0 else "reference")


if __name__ == "__main__":
    fuser.config.update("num_cpu_devices", 8)
    for number in range(int(sys.argv[1]), int(sys.argv[2])):
        check(number, "reference")
        print(number, "agrees", flush=True)
