"""Kernels by hand: compiled and interpreted, held against JAX's Pallas in its interpreter; transforms; what is refused."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import pallas as pl

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


@pytest.mark.parametrize("backend", ["c", "reference"])
def test_random_kernels_on_every_backend_are_the_interpreters(backend: str) -> None:
    """Blocks that do not divide, masks, aliases, traced windows and grids of any order."""
    rng = np.random.default_rng(7)
    for _number in range(6):
        rows, columns = (int(n) for n in rng.integers(3, 20, 2))
        high, wide = (int(n) for n in rng.integers(1, 9, 2))
        shift, alias, order = int(rng.integers(0, wide)), bool(rng.integers(2)), bool(rng.integers(2))

        def kernel(x_ref: Any, y_ref: Any, o_ref: Any, high: int = high, wide: int = wide, columns: int = columns,
                   shift: int = shift, order: bool = order) -> None:  # fmt: skip
            at = pl.program_id(0 if order else 1) * wide + fnp.arange(wide)
            bias = pl.load(y_ref, (pl.ds(at[0] + shift, wide),), mask=at + shift < columns, other=2.0)
            value = x_ref[...] * bias[None, :] + o_ref[...]
            pl.store(o_ref, (slice(None), slice(None)), value, mask=(at % 3 != 1)[None, :])

        grid = (pl.cdiv(rows, high), pl.cdiv(columns, wide))
        place = (lambda j, i: (i, j)) if order else (lambda i, j: (i, j))
        block = pl.BlockSpec((high, wide), place)
        whole = pl.BlockSpec((columns,), lambda i, j: (0,))
        x, y = rng.normal(size=(rows, columns)).astype(F32), rng.normal(size=columns).astype(F32)
        start = rng.normal(size=(rows, columns)).astype(F32)

        def call(interpret: bool, x: Any, y: Any, s: Any, kernel: Any = kernel, grid: Any = grid, block: Any = block,
                 whole: Any = whole, order: bool = order, rows: int = rows, columns: int = columns) -> Any:  # fmt: skip
            def with_start(s_ref: Any, *refs: Any) -> None:
                kernel(*refs)

            return pl.pallas_call(
                with_start, fuser.ShapeDtypeStruct((rows, columns), F32), grid=grid[::-1] if order else grid,
                in_specs=[block, block, whole], out_specs=block, input_output_aliases={0: 0}, interpret=interpret,
            )(s, x, y)  # fmt: skip

        del alias
        want = call(True, x, y, start)
        close(fuser.jit(functools.partial(call, False), backend=backend)(x, y, start), want)


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
