"""Kernels by hand: compiled and interpreted, held against JAX's Pallas in its interpreter; transforms; what is refused."""

from __future__ import annotations

import functools
import json
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import pallas as pl
from tests.pallas import random_kernels

F32 = np.dtype("float32")
RNG = np.random.default_rng(0)


def pieces(name: str) -> Any:
    """(numpy-like module, lax, Pallas, ShapeDtypeStruct, what a call takes to interpret)."""
    if name == "jax":
        jax = pytest.importorskip("jax")
        from jax.experimental import pallas
        from jax.experimental.pallas import tpu

        return jax.numpy, jax.lax, pallas, jax.ShapeDtypeStruct, {"interpret": True}, tpu.VMEM
    return fnp, fuser.lax, pl, fuser.ShapeDtypeStruct, {"interpret": name == "interpreted"}, pl.MemorySpace.VMEM


def matmul(which: str, x: Any, y: Any) -> Any:
    """Blocks of a product summed up in a scratch buffer over the last dimension of the grid, with an epilogue."""
    m, _lax, p, spec, options, vmem = pieces(which)

    def kernel(x_ref: Any, y_ref: Any, o_ref: Any, acc: Any) -> None:
        @p.when(p.program_id(2) == 0)
        def _() -> None:
            acc[...] = m.zeros_like(acc)

        acc[...] += m.dot(x_ref[...], y_ref[...])

        @p.when(p.program_id(2) == p.num_programs(2) - 1)
        def _() -> None:
            o_ref[...] = m.maximum(acc[...], 0)

    return p.pallas_call(
        kernel, spec((32, 16), F32), grid=(2, 2, 3), scratch_shapes=[vmem((16, 8), F32)],
        in_specs=[p.BlockSpec((16, 16), lambda i, j, k: (i, k)), p.BlockSpec((16, 8), lambda i, j, k: (k, j))],
        out_specs=p.BlockSpec((16, 8), lambda i, j, k: (i, j)), **options,
    )(x, y)  # fmt: skip


def rows(which: str, x: Any) -> Any:
    """Rows seen one by one through a squeezed dimension; two outputs, one of them a number a row."""
    m, _lax, p, spec, options, _ = pieces(which)

    def kernel(x_ref: Any, o_ref: Any, top_ref: Any) -> None:
        e = m.exp(x_ref[...] - x_ref[...].max())
        o_ref[...] = e / e.sum()
        top_ref[0] = m.argmax(x_ref[...]).astype(np.int32) + p.program_id(0)

    return p.pallas_call(
        kernel, (spec((6, 13), F32), spec((6,), np.int32)), grid=6, in_specs=[p.BlockSpec((None, 13), lambda i: (i, 0))],
        out_specs=(p.BlockSpec((None, 13), lambda i: (i, 0)), p.BlockSpec((1,), lambda i: (i,))), **options,
    )(x)  # fmt: skip


def in_place(which: str, x: Any, n: Any) -> Any:
    """An output that begins as an input, of which a loop and a branch change some rows."""
    m, lax, p, spec, options, _ = pieces(which)

    def kernel(x_ref: Any, n_ref: Any, o_ref: Any) -> None:
        def body(r: Any, total: Any) -> Any:
            @p.when(r % 2 == n_ref[0] % 2)
            def _() -> None:
                o_ref[r] = o_ref[r] * 2 + x_ref[p.ds(r, 2), :].sum(axis=0)

            return total + o_ref[r, 0]

        total = lax.fori_loop(0, 5, body, m.float32(0))
        o_ref[5, 0] = total

    return p.pallas_call(kernel, spec(x.shape, F32), input_output_aliases={0: 0}, **options)(x, n)


def halo(which: str, x: Any) -> Any:
    """Blocks that overlap, in a padded array."""
    _m, _lax, p, spec, options, _ = pieces(which)

    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[0:4, 1:9] + x_ref[2:6, 1:9] - 2 * x_ref[1:5, 0:8]

    block = (p.Element(6), p.Element(10))
    return p.pallas_call(
        kernel, spec((8, 8), F32), grid=(2,), in_specs=[p.BlockSpec(block, lambda i: (4 * i, 0))],
        out_specs=p.BlockSpec((4, 8), lambda i: (i, 0)), **options,
    )(x)  # fmt: skip


def uneven(which: str, x: Any) -> Any:
    """Blocks that do not divide the array."""
    m, _lax, p, spec, options, _ = pieces(which)

    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = m.sin(x_ref[...]) + p.program_id(1)

    block = p.BlockSpec((4, 5), lambda i, j: (i, j))
    return p.pallas_call(kernel, spec(x.shape, F32), grid=(3, 3), in_specs=[block], out_specs=block, **options)(x)


def of(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(F32)


CASES = {
    "matmul": (matmul, (of(32, 48), of(48, 16))),
    "rows": (rows, (of(6, 13),)),
    "in_place": (in_place, (of(6, 4), np.array([1], np.int32))),
    "halo": (halo, (of(10, 10),)),
    "uneven": (uneven, (of(10, 13),)),
}


def close(ours: Any, theirs: Any) -> None:
    for a, b in zip(fuser.tree.leaves(ours), fuser.tree.leaves(theirs), strict=True):
        assert np.asarray(a).dtype == np.asarray(b).dtype
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", CASES)
def test_kernels_are_jaxs(name: str) -> None:
    kernel, arrays = CASES[name]
    want = kernel("jax", *arrays)
    close(kernel("compiled", *arrays), want)
    close(kernel("interpreted", *arrays), want)
    close(fuser.jit(lambda *a: kernel("compiled", *(2 * x if x.dtype == F32 else x for x in a)))(
        *(x / 2 if x.dtype == F32 else x for x in arrays)), want)  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("which", ["compiled", "interpreted"])
def test_kernels_are_mapped_and_differentiated(name: str, which: str) -> None:
    kernel, arrays = CASES[name]
    function = functools.partial(kernel, which)
    first, *rest = arrays
    batch = np.stack([first, first[::-1], first + 1])
    each = [function(row, *rest) for row in batch]
    close(fuser.vmap(lambda x: function(x, *rest))(batch), fuser.tree.map(lambda *r: np.stack(r), *each))

    def scalar(x: Any) -> Any:
        return sum((leaf * leaf).sum() for leaf in fuser.tree.leaves(function(x, *rest)) if leaf.dtype == F32)

    gradient, direction = fuser.grad(scalar)(first), of(*first.shape)
    _, along = fuser.jvp(scalar, (first,), (direction,))
    step = 1e-2
    finite = (scalar(first + step * direction) - scalar(first - step * direction)) / (2 * step)
    np.testing.assert_allclose((gradient * direction).sum(), along, rtol=1e-3)
    np.testing.assert_allclose(along, finite, rtol=2e-2)


def random_calls(seed: int, count: int) -> Any:
    """Calls `(interpret, *arrays)` and arrays: blocks that do not divide, masks, aliases, traced windows, grids in both orders."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        rows, columns = (int(n) for n in rng.integers(3, 20, 2))
        high, wide = (int(n) for n in rng.integers(1, 9, 2))
        arrays = [rng.normal(size=(rows, columns)).astype(F32) for _ in range(2)]
        yield (
            functools.partial(masked, (high, wide), int(rng.integers(0, wide)), bool(rng.integers(2))),
            (*arrays, rng.normal(size=columns).astype(F32)),
        )


def masked(block: Any, shift: int, swapped: bool, interpret: bool, start: Any, x: Any, y: Any) -> Any:
    """`start + x * y`, with y shifted and 2 behind its end, where a column is not 1 modulo 3."""
    (high, wide), (rows, columns) = block, x.shape

    def kernel(start_ref: Any, x_ref: Any, y_ref: Any, o_ref: Any) -> None:
        at = pl.program_id(0 if swapped else 1) * wide + fnp.arange(wide)
        scale = pl.load(y_ref, (pl.ds(at[0] + shift, wide),), mask=at + shift < columns, other=2.0)
        value = x_ref[...] * scale[None, :] + o_ref[...]
        pl.store(o_ref, (slice(None), slice(None)), value, mask=(at % 3 != 1)[None, :])

    grid = (pl.cdiv(rows, high), pl.cdiv(columns, wide))
    part = pl.BlockSpec(block, (lambda j, i: (i, j)) if swapped else (lambda i, j: (i, j)))
    return pl.pallas_call(
        kernel, fuser.ShapeDtypeStruct(x.shape, F32), grid=grid[::-1] if swapped else grid,
        in_specs=[part, part, pl.BlockSpec((columns,), lambda i, j: (0,))], out_specs=part,
        input_output_aliases={0: 0}, interpret=interpret,
    )(start, x, y)  # fmt: skip


@pytest.mark.parametrize("backend", ["c", "reference"])
def test_random_grids_are_the_interpreters(backend: str) -> None:
    for case, arrays in random_kernels.cases(8, 6):
        assert not (text := random_kernels.difference(case, arrays, backend)), f"{case}: {text}"


@pytest.mark.parametrize("backend", ["c", "reference"])
def test_random_kernels_are_the_interpreters(backend: str) -> None:
    for call, arrays in random_calls(7, 6):
        start, x, y = arrays
        columns, shift = x.shape[1], call.args[1]
        at = np.arange(columns)
        want = call(True, *arrays)
        scale = np.append(y, np.full(shift, 2, F32))[shift:]
        np.testing.assert_allclose(want, np.where(at % 3 != 1, start + x * scale, start), rtol=1e-5, atol=1e-5)
        close(fuser.jit(functools.partial(call, False), backend=backend)(*arrays), want)


@pytest.mark.parametrize("backend", ["triton", "tpu"])
def test_kernels_on_other_backends_are_the_interpreters(backend: str) -> None:
    """In the interpreters of Triton and of JAX's Pallas, in a process of their own."""
    pytest.importorskip({"triton": "triton", "tpu": "jax"}[backend])
    worker = pathlib.Path(__file__).with_name("backends_worker.py")
    result = subprocess.run([sys.executable, str(worker), backend], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-2000:]
    assert json.loads(result.stdout.splitlines()[-1]) == dict.fromkeys((*CASES, *(f"random {n}" for n in range(4))), "")


def add_one(grid: Any = (2,), block: Any = (4,), index_map: Any = lambda i: (i,), **options: Any) -> Any:
    spec = pl.BlockSpec(block, index_map)

    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] + 1

    return pl.pallas_call(
        kernel, fuser.ShapeDtypeStruct((8,), F32), grid=grid, in_specs=[spec], out_specs=spec, **options
    )


def touching(access: Any, **options: Any) -> Any:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        access(x_ref, o_ref)

    return pl.pallas_call(kernel, fuser.ShapeDtypeStruct((8,), F32), interpret=True, **options)(np.ones(8, F32))


def every(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...]


def test_the_interpreter_checks_bounds_and_races() -> None:
    with pytest.raises(Exception, match="begins at element 8 of dimension 0, which has 8"):
        add_one(index_map=lambda i: (i + 1,), interpret=True)(np.ones(8, F32))
    reads = lambda x_ref, o_ref: o_ref.__setitem__(0, x_ref[(x_ref[0] * 9).astype(np.int32)])
    with pytest.raises(Exception, match="touches position 9 of a dimension of operand 0 that has 8"):
        touching(reads)
    writes = lambda x_ref, o_ref: o_ref.__setitem__(pl.ds((x_ref[0] * 5).astype(np.int32), 4), 1.0)
    with pytest.raises(Exception, match=r"swap at .* touches position 8"):
        touching(writes)
    parallel = pl.CompilerParams(dimension_semantics=("parallel",))
    touching(every, grid=(3,))
    with pytest.raises(Exception, match=r"a race in .*: program \(1,\) writes element \(0,\) of operand 1"):
        touching(every, grid=(3,), compiler_params=parallel)
    with pytest.raises(Exception, match="a race"):
        add_one(index_map=lambda i: (0,), interpret=pl.InterpretParams(detect_races=True))(np.ones(8, F32))
    add_one(interpret=pl.InterpretParams(detect_races=True))(np.ones(8, F32))
    assert np.isnan(touching(lambda x_ref, o_ref: None)).all()


X8 = np.ones(8, F32)
REFUSED = [
    (lambda: add_one(block=(4, 1))(X8), ValueError, "must have the same number of dimensions as the array shape"),
    (lambda: add_one(index_map=lambda i: (i, 0))(X8), ValueError, "must return 1 values to match"),
    (lambda: add_one(index_map=lambda i: (1.5,))(X8), ValueError, "must return integer scalars"),
    (lambda: add_one(index_map=lambda i, j: (i,))(X8), TypeError, "missing 1 required positional argument"),
    (lambda: add_one(block=(pl.BoundedSlice(4),))(X8), NotImplementedError, "Unsupported block dimension type"),
    (lambda: add_one(input_output_aliases={3: 0})(X8), ValueError, "there are 1 inputs"),
    (lambda: pl.program_id(0), ValueError, "only there inside of a kernel"),
    (lambda: touching(lambda x, o: pl.program_id(1), grid=(2,)), ValueError, "less than the rank of the grid"),
    (lambda: touching(lambda x, o: every(fnp.ones(8) + x[...], o) or every(np.ones(8) * X8, o)), ValueError, "captures constants"),
    (lambda: pl.pallas_call(lambda x, o: 1, fuser.ShapeDtypeStruct((8,), F32))(X8), ValueError, "should return None"),
    (lambda: touching(lambda x, o: o.__setitem__(9, 1.0)), IndexError, "out of bounds"),
    (lambda: touching(lambda x, o: pl.dot(x[...], x[...])), ValueError, "must be 2D"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_is_refused(number: int) -> None:
    run, kind, text = REFUSED[number]
    with pytest.raises(kind, match=text):
        run()


def test_the_language_beside_arrays(capsys: pytest.CaptureFixture[str]) -> None:
    def kernel(x_ref: Any, o_ref: Any, *, count: Any) -> None:
        @pl.loop(0, 8, step=3)
        def _(n: Any) -> None:
            o_ref[n] = x_ref[n] * 2
            pl.atomic_add(count, 0, 1)

        part = o_ref.at[4:8]
        part[1] = 7.0
        part[2:] = part[:2] + count[0]
        pl.swap(o_ref, 0, x_ref[1] + 3, mask=count[0] == 3)
        pl.run_scoped(
            lambda ref: (ref.__setitem__(0, 5.0), o_ref.__setitem__(1, ref[0] + ref[1])), pl.MemoryRef((2,), F32)
        )

        @pl.with_scoped(pl.MemoryRef((2,), F32))
        def added(at: Any, ref: Any) -> None:
            o_ref[at] += ref[0]

        added(2)
        pl.debug_print("count {}", count[0])

    x = np.arange(8, dtype=F32)
    scratch = {"count": pl.MemoryRef((1,), np.int32)}
    want = np.array([4, 5, 0, 6, 0, 7, 3, 10], F32)

    def started(x_ref: Any, start_ref: Any, o_ref: Any, *, count: Any) -> None:
        count[0] = 0
        kernel(x_ref, o_ref, count=count)

    call = functools.partial(pl.pallas_call, started, fuser.ShapeDtypeStruct((8,), F32), scratch_shapes=scratch)
    for interpret in (False, True):
        found = call(interpret=interpret, input_output_aliases={1: 0})(x, np.zeros(8, F32))
        np.testing.assert_array_equal(found, want)
    fuser.effects_barrier()
    assert capsys.readouterr().out == "count 3\n" * 2
    assert (pl.cdiv(7, 2), pl.align_to(5, 4), pl.next_power_of_2(9), pl.strides_from_shape((2, 3, 4))) == (
        4,
        8,
        16,
        (12, 4, 1),
    )


def kinds(function: Any, *arrays: Any) -> list[str]:
    """The primitives of control flow and products in the optimised graph."""
    graph = fuser.jit(function).lower(*arrays).graph
    return [e.primitive.name for e in graph.eqns if e.primitive.name in ("scan", "while", "cond", "dot_general")]


def test_programs_that_need_nothing_of_each_other_become_array_code() -> None:
    """Grid dimensions are axes where blocks lie side by side; a loop is split where a branch on its number changes sides."""
    assert kinds(functools.partial(rows, "compiled"), of(6, 13)) == []
    assert len(fuser.jit(functools.partial(rows, "compiled")).lower(of(6, 13)).plan.groups) <= 2
    assert kinds(functools.partial(halo, "compiled"), of(10, 10)) == []
    x, y = of(64, 96), of(96, 32)

    def product(dimensions: Any) -> Any:
        def kernel(x_ref: Any, y_ref: Any, o_ref: Any, acc: Any) -> None:
            @pl.when(pl.program_id(2) == 0)
            def _() -> None:
                acc[...] = fnp.zeros_like(acc)

            acc[...] += pl.dot(x_ref[...], y_ref[...])

            @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
            def _() -> None:
                o_ref[...] = fnp.maximum(acc[...], 0)

        return pl.pallas_call(
            kernel, fuser.ShapeDtypeStruct((64, 32), F32), grid=(2, 2, 6), scratch_shapes=[pl.MemoryRef((32, 16), F32)],
            in_specs=[pl.BlockSpec((32, 16), lambda i, j, k: (i, k)), pl.BlockSpec((16, 16), lambda i, j, k: (k, j))],
            out_specs=pl.BlockSpec((32, 16), lambda i, j, k: (i, j)),
            compiler_params=pl.CompilerParams(dimension_semantics=dimensions),
        )  # fmt: skip

    declared = product(("parallel", "parallel", "arbitrary"))
    assert kinds(declared, x, y) == ["dot_general", "scan", "dot_general"]
    for call in (declared, product(None)):
        close(call(x, y), np.maximum(x @ y, 0))


def test_what_a_program_leaves_in_scratch_is_there_for_the_next() -> None:
    """So the grid is no axis, nor is it where all programs write one block, or where blocks are left out."""

    def kernel(x_ref: Any, o_ref: Any, total: Any) -> None:
        @pl.when(pl.program_id(0) == 0)
        def _() -> None:
            total[0] = 0.0

        total[0] += x_ref[0]
        o_ref[0] = total[0]

    one = pl.BlockSpec((1,), lambda i: (i,))
    sums = pl.pallas_call(
        kernel,
        fuser.ShapeDtypeStruct((5,), F32),
        grid=5,
        in_specs=[one],
        out_specs=one,
        scratch_shapes=[pl.MemoryRef((1,), F32)],
    )
    np.testing.assert_array_equal(sums(np.arange(5, dtype=F32)), [0, 1, 3, 6, 10])

    def adding(x_ref: Any, start_ref: Any, o_ref: Any) -> None:
        o_ref[...] += x_ref[...]

    def added(out_map: Any, grid: int) -> Any:
        pair = pl.BlockSpec((2,), out_map)
        return pl.pallas_call(
            adding, fuser.ShapeDtypeStruct((6,), F32), grid=grid, in_specs=[pl.BlockSpec((2,), lambda i: (i,)), pair], out_specs=pair,
            input_output_aliases={1: 0},
        )(np.arange(6, dtype=F32), np.full(6, 10, F32))  # fmt: skip

    np.testing.assert_array_equal(added(lambda i: (1,), 3), [10, 10, 16, 19, 10, 10])
    np.testing.assert_array_equal(added(lambda i: (i,), 2), [10, 11, 12, 13, 10, 10])
    np.testing.assert_array_equal(added(lambda i: (2 - i,), 3), [14, 15, 12, 13, 10, 11])


def test_dimensions_of_the_grid_have_names() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        assert fuser.lax.axis_size("i") == pl.num_programs("i") == 2 and fuser.lax.axis_size("j") == 4
        o_ref[...] = x_ref[...] + pl.program_id("i")

    block = pl.BlockSpec((None, 2), lambda j, i: (j, i))
    call = pl.pallas_call(
        kernel, fuser.ShapeDtypeStruct((4, 4), F32), grid=(("j", 4), ("i", 2)), in_specs=[block], out_specs=block
    )
    np.testing.assert_array_equal(call(np.zeros((4, 4), F32)), np.tile(np.array([0, 0, 1, 1], F32), (4, 1)))


def test_specs_have_the_trees_of_what_they_are_for() -> None:
    spec, out = pl.BlockSpec((8,), lambda: 0), fuser.ShapeDtypeStruct((8,), F32)
    call = pl.pallas_call(lambda x, y, o: None, out, in_specs=[spec, spec])
    with pytest.raises(
        ValueError, match=r"1 mismatches, including:\n.* at \[1\], `in_specs` is a pytree leaf but `inputs` is a dict"
    ):
        call(X8, {"a": X8})
    call = pl.pallas_call(lambda x, o: None, [out, out], out_specs=[spec])
    with pytest.raises(ValueError, match="`out_specs` is a tuple of length 1 but `out_shape` is a tuple of length 2"):
        call(X8)

    def kernel(refs: Any, o_ref: Any) -> None:
        o_ref[...] = refs["a"][...] + refs["b"][0]

    found = pl.pallas_call(kernel, out, in_specs=[{"a": spec, "b": None}])({"a": X8, "b": 2 * X8})
    np.testing.assert_array_equal(found, 3 * X8)
    with pytest.raises(ValueError, match="Cannot store a Ref into another Ref"):
        pl.pallas_call(lambda x, o: o.__setitem__(..., x), out)(X8)


def test_names_of_the_gpu_and_the_tpu() -> None:
    from fuser.experimental.pallas import tpu, triton

    def kernel(x_ref: Any, o_ref: Any, count: Any) -> None:
        count[0] = 0
        at = pl.program_id(0) * 4 + fnp.arange(4)
        triton.store(o_ref.at[at], triton.load(x_ref.at[at], mask=at < 6, other=9.0) + 1, mask=at < 6)
        for n in range(3):
            triton.atomic_max(count, 0, n)
        o_ref[6] = triton.atomic_xchg(count, 0, 5).astype(F32)

    call = functools.partial(
        pl.pallas_call, kernel, fuser.ShapeDtypeStruct((7,), F32), grid=2, scratch_shapes=[tpu.SMEM((1,), np.int32)]
    )
    for interpret in (False, True):
        np.testing.assert_array_equal(call(interpret=interpret)(np.arange(7, dtype=F32)), [1, 2, 3, 4, 5, 6, 2])


def test_more_names_of_the_tpu_and_what_is_left_out() -> None:
    from fuser.errors import AbsentError
    from fuser.experimental.pallas import tpu

    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = tpu.roll(x_ref[...], 3, 1) + pl.program_id(0)

    spec = pl.BlockSpec((2, 8), lambda i: (i, 0))
    x = of(4, 8)
    call = pl.pallas_call(
        kernel, fuser.ShapeDtypeStruct((4, 8), F32), grid=2, in_specs=[spec], out_specs=spec,
        compiler_params=tpu.CompilerParams(dimension_semantics=(tpu.PARALLEL,)),
    )  # fmt: skip
    np.testing.assert_array_equal(call(x), np.roll(x, 3, 1) + np.array([0, 0, 1, 1], F32)[:, None])
    with pytest.raises(AbsentError, match=r"jax.experimental.pallas.tpu.make_async_copy is not offered: memory spaces"):
        tpu.make_async_copy  # noqa: B018
    with pytest.raises(ValueError, match="roll moves all rows alike"):
        tpu.roll(x, 1, 1, stride=1, stride_axis=0)


def test_state_outside_of_a_kernel() -> None:
    def double(refs: Any) -> None:
        refs["x"][...] *= 2
        refs["n"][0] = refs["x"][1] + 1

    found = pl.run_state(double)({"x": X8, "n": np.zeros(1, F32)})
    np.testing.assert_array_equal(found["x"], 2 * X8)
    np.testing.assert_array_equal(found["n"], [2 * X8[1] + 1])
