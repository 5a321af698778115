"""Memory as NumPy has it: views see writes, copies do not, results are new; signatures, static values and nesting."""

from __future__ import annotations

import functools
import threading
from typing import Any

import numpy as np
import pytest

import fuser
from fuser.errors import UnsupportedError
from fuser.interop import accelerate
from tests.interop.oracle import agree, same

X = np.arange(24.0).reshape(4, 6)


def test_views_write_to_their_base_and_copies_do_not() -> None:
    def program(x: np.ndarray) -> tuple[Any, ...]:
        a = x + 0
        a[1:3][0] = 7
        a.T[2] += 1
        a.reshape(2, 12)[1, 3:5] = -1
        a[:, ::2][1:] *= 2
        a.ravel()[-1] = 100
        np.swapaxes(a, 0, 1)[0, 0] = 5
        a[::-1][0, 0] = 50
        b = a.copy()
        b[:] = 0
        c = a.flatten()
        c[0] = -9
        d = a[[0, 1]]
        d[0] = 3
        e = a.astype(a.dtype)
        e += 1
        return a, b, c, d, e

    agree(program, X)


def test_views_see_later_writes_to_their_base() -> None:
    def program(x: np.ndarray) -> tuple[Any, ...]:
        a = x * 1
        row, column, flat, block = a[1], a[:, 2], a.reshape(-1), a[1:, 1:].T
        scalar = a[0, 0]
        a[1, 2] = 99
        a += 1
        return row.copy(), column.copy(), flat.copy(), block.copy(), scalar, [r.sum() for r in a]

    agree(program, X)


def test_assignment_forms() -> None:
    def program(x: np.ndarray) -> np.ndarray:
        a = x.copy()
        a[0] = 1
        a[1, :] = x[2]
        a[..., 0] = [1, 2, 3, 4]
        a[1:3, 1:4] = x[0, 3:0:-1]
        a[::-2, 5] = x[:2, 0]
        a[[0, 2], [1, 3]] = 77
        a[np.array([3, 3]), 4] = [5.0, 5.0]
        a[None, 2:3, None, :2] = 8
        a[a > 20] = 0
        a[np.array([True, False, False, True])] += 0.5
        a[x[:, 0] > 10] = -1
        a.fill(3) if x.shape[0] > 9 else None
        a[()] += 1
        a[...] = np.where(a > 0, a, -a)
        return a

    agree(program, X, backend="c")


def test_integer_arrays_cut_what_is_assigned() -> None:
    def program(x: np.ndarray) -> np.ndarray:
        a = np.zeros(4, dtype=np.int32)
        a[:2] = x[0, :2] * 1.9
        a[2] = 3.7
        a += 2
        return a

    agree(program, X)


def test_traced_indices() -> None:
    def program(x: np.ndarray, i: np.ndarray) -> tuple[Any, ...]:
        best = x.argmax(axis=1)
        table = np.arange(10) * 10
        a = x.copy()
        a[np.arange(len(x)), best] = -1
        return x[i], x[np.arange(len(x)), best], x[best.max() - 5], table[i], np.take(x, i, axis=0), a

    agree(program, X, np.array([3, 0, -1]))


def test_selections_by_equal_masks() -> None:
    def program(x: np.ndarray) -> tuple[Any, ...]:
        a = x - 10
        a[a < 0] = -a[a < 0]
        b = a.copy()
        b[x > 5] = np.sqrt(a[x > 5]) + 1
        b[a > 9] /= 2
        chosen = a[(a > 2) & (a < 8)]
        return (
            a,
            b,
            chosen.sum(),
            chosen.mean(),
            chosen.max(),
            chosen.std(),
            (a[a > 3] * 2).min(),
            np.count_nonzero(a[a > 3]),
        )

    agree(program, X, backend="c")
    with pytest.raises(
        UnsupportedError, match=r"x\[mask\] = y\[other_mask\] cannot be traced where the masks are not the same"
    ):
        accelerate(lambda x: np.zeros_like(x).__setitem__(x > 1, x[x > 2]), fallback="error")(X)


def test_masks_beside_integers_and_slices() -> None:
    def program(x: np.ndarray, p: np.ndarray, rows: np.ndarray) -> Any:
        mask, first = p > 0.5, p[:5] > 0.3
        x[3, mask, 2] = 9
        x[2, mask, :2] = -1
        x[:, mask, 1] = 0.5
        x[first, 0, -1] *= 3
        for row in range(len(rows)):
            x[rows[row], mask, 0] -= 0.25
        return x[-1, mask, 3].sum(), x[rows[0], mask, 0].max(), x[first, 4, 2].mean()

    rng = np.random.default_rng(3)
    arguments = rng.standard_normal((5, 6, 4)), rng.random(6), np.array([1, 4, 1])
    for backend in ("reference", "c"):
        agree(program, *arguments, backend=backend)
    function = accelerate(program, fallback="error")
    function(*arguments)
    assert "compiled whole" in function.explain()


def test_rows_selected_by_a_mask_are_reduced_and_written_to() -> None:
    def program(x: np.ndarray, kinds: np.ndarray) -> Any:
        x = x.copy()
        mask = kinds == 1
        for kind in range(2):
            rows = kinds == kind
            x[rows] -= x[rows].mean(axis=0)
            x[rows] /= x[rows].std(axis=0)
        x[:, :5][:, mask[:5]] *= 2
        total, largest = x[mask].sum(), x[mask].max(axis=0)
        beside = (x[:, mask[:6]] + x[:, :1]).sum(axis=1)
        return x, total, largest, (x[kinds == 2] > 0).any(axis=0), beside, x[kinds == 7].sum(axis=0)

    arguments = np.random.default_rng(4).standard_normal((40, 6)), np.arange(40) % 3
    for backend in ("reference", "c"):
        agree(program, *arguments, backend=backend)
    function = accelerate(program, fallback="error")
    function(*arguments)
    assert "compiled whole" in function.explain()


def test_pixels_selected_by_a_mask_of_the_first_dimensions_are_rows() -> None:
    def program(image: np.ndarray, gain: float) -> Any:
        mask = image[..., 0] > image.mean()
        image[mask] = np.clip(image[mask] * gain, -1, 1)
        image[mask] *= np.array([1.0, 0.5, 0.25])
        image[~mask] -= image[~mask].mean(axis=0)
        pixels = np.where(image[mask] > 0.5, np.round(image[mask], 1), np.sqrt(np.abs(image[mask])))
        image[mask] = pixels
        image[image[..., 1] > 0.4] = [1, 2, 3]
        flat = image[..., 2].copy()
        flat[flat > 0] = np.interp(flat[flat > 0], [0.0, 1.0, 3.0], [5.0, 6.0, 9.0])
        return image, flat, image[mask].sum(), image[mask].max(axis=0), image[image[..., 0] > 99].sum(axis=0)

    arguments = np.random.default_rng(8).standard_normal((5, 7, 3)), 1.5
    for backend in ("reference", "c"):
        agree(program, *arguments, backend=backend)
    function = accelerate(program, fallback="error")
    function(*arguments)
    assert "compiled whole" in function.explain()


def test_each_selected_row_is_reduced_and_cut() -> None:
    def program(image: np.ndarray, points: np.ndarray) -> Any:
        mask, near = image[..., 0] > 0, np.linalg.norm(points, axis=1) < 2
        grey = np.zeros(image.shape[:2])
        grey[mask] = image[mask].mean(axis=1)
        image[mask] /= np.linalg.norm(image[mask], axis=-1, keepdims=True)
        swapped = image.copy()
        swapped[mask] = image[mask][:, ::-1]
        points[near] -= points[near].min(axis=1, keepdims=True) * points[near]
        weights = np.zeros(len(points))
        weights[near] = points[near][:, 1] / (1 + np.abs(points[near]).sum(axis=1))
        return (
            grey,
            image,
            swapped,
            points,
            weights,
            points[near][:, :2].sum(axis=0),
            (image[mask] > 0).any(axis=1).sum(),
        )

    rng = np.random.default_rng(10)
    arguments = rng.standard_normal((6, 5, 3)), rng.standard_normal((30, 3))
    for backend in ("reference", "c"):
        agree(program, *arguments, backend=backend)
    function = accelerate(program, fallback="error")
    function(*arguments)
    assert "compiled whole" in function.explain()


def test_pixels_whose_masks_differ_are_numpys() -> None:
    x = np.random.default_rng(9).standard_normal((5, 7, 3))
    for function in (
        lambda x: np.where(x[x[..., 0] > 0] > 0, x[x[..., 0] > 0], x[x[..., 0] > 0][0]),
        lambda x: np.clip(x[x[..., 0] > 0], 0, np.ones((int((x[..., 0] > 0).sum()), 1))),
        lambda x: x[x[..., 0] > 0] @ np.ones(3),
        lambda x: np.interp(0.5, np.sort(x[x[..., 0] > 0][:, 0]), np.arange((x[..., 0] > 0).sum())),
        lambda x: x.__setitem__(x[..., 0] > 0, [1, 2]),
        lambda x: x.__setitem__(x[..., 0] > 0, x[x[..., 1] > 0]),
    ):
        same(_outcome(function, x.copy()), _outcome(accelerate(function), x.copy()))
    with pytest.warns(RuntimeWarning, match="invalid value encountered in log"):
        accelerate(lambda x: np.log(x[x[..., 0] > 0]).sum())(x)


def test_rows_selected_by_a_mask_that_no_program_holds_are_numpys() -> None:
    x, kinds = np.random.default_rng(5).standard_normal((40, 6)), np.arange(40) % 3
    for function in (
        lambda x, k: x[k == 1].sum(axis=1),
        lambda x, k: x[k == 1] + x[:14],
        lambda x, k: len(x[k == 1]),
        lambda x, k: np.count_nonzero(x[k == 1] > 0, axis=0),
        lambda x, k: x[k == 1] * np.arange(6.0) + x[k == 2][:13].sum(),
    ):
        same(_outcome(function, x, kinds), _outcome(accelerate(function), x, kinds))
    wide = np.zeros((4, 65))
    with pytest.raises(UnsupportedError):
        accelerate(lambda x, p: x[p > 0].sum(axis=0), fallback="error")(wide, np.ones(4))
    with pytest.raises(IndexError, match="boolean index did not match"):
        accelerate(lambda x, p: x[p > 0].sum(axis=0))(x, np.ones(41))


def _outcome(function: Any, *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except Exception as error:
        return str(error)


def test_flat_positions_are_unravelled() -> None:
    x, positions = np.random.default_rng(6).standard_normal((4, 5)), np.array([[0, 23], [7, 11]])
    agree(lambda x: np.unravel_index(x.argmax(), x.shape), x)
    for order in ("C", "F"):
        agree(lambda i, order=order: np.unravel_index(i, (2, 3, 4), order), positions)
    agree(lambda i: np.unravel_index(i, 24), positions)
    with pytest.raises(ValueError, match="out of bounds"):
        accelerate(lambda i: np.unravel_index(i, (2, 3, 4))[1] + 1)(positions + 10)


@pytest.mark.parametrize("index", [5, -6])
def test_integers_out_of_bounds_beside_masks_are_numpys_errors(index: int) -> None:
    def write(x: np.ndarray, p: np.ndarray, i: np.ndarray) -> None:
        x[i[0], p > 0.5] = 1

    with pytest.raises(IndexError, match="out of bounds"):
        accelerate(write)(np.zeros((5, 6)), np.ones(6), np.array([index]))
    with pytest.raises(IndexError, match="boolean index did not match"):
        accelerate(write)(np.zeros((5, 6)), np.ones(5), np.array([1]))


def test_out_arguments_and_in_place_functions() -> None:
    def program(x: np.ndarray) -> tuple[Any, ...]:
        a = np.empty_like(x)
        np.exp(x / 10, out=a)
        np.sqrt(a, a)
        b = x.copy()
        b.sort(axis=0)
        c = x - 5
        np.copyto(c, 0, where=c < 0)
        np.putmask(c, c > 10, 10)
        np.fill_diagonal(c, -1)
        total = np.zeros(x.shape[1])
        np.sum(x, axis=0, out=total)
        return a, b, c, total, np.clip(x, 2, 5, out=c)

    agree(program, X)


def test_complex_parts_are_views() -> None:
    def program(x: np.ndarray) -> np.ndarray:
        z = np.zeros(x.shape, complex)
        z.real = x
        z.imag[1] = 2
        z.real[0] += 1
        return z

    agree(program, X)


def test_results_share_memory_where_they_do_in_numpy() -> None:
    def program(a: np.ndarray) -> Any:
        b = a + 1
        return a, a[1:], a.T, b, b.reshape(-1), b[::2], b, (a * 2).T, a.copy()

    def overlaps(results: Any, x: np.ndarray) -> list[bool]:
        return [np.shares_memory(p, q) for p in (x, *results) for q in results]

    x, y = X.copy(), X.copy()
    wanted, found = program(x), accelerate(program)(y)
    assert found[0] is y
    assert found[3] is found[6]
    assert overlaps(wanted, x) == overlaps(found, y)
    assert [w.flags.writeable for w in wanted] == [f.flags.writeable for f in found]
    for results in (wanted, found):
        results[4][:] = 7
        results[1][0] = -1
    same(wanted, found)
    np.testing.assert_array_equal(x, y)
    constant = accelerate(lambda a: np.zeros(3))
    constant(x)[:] = 5
    np.testing.assert_array_equal(constant(x), np.zeros(3))


def test_whether_a_reshape_is_a_view_may_depend_on_layout() -> None:
    def program(x: np.ndarray) -> np.ndarray:
        a = x.T + 0
        flat = a.reshape(-1)
        flat[0] = 9
        return a

    with pytest.raises(
        UnsupportedError,
        match=r"writing to an array that NumPy may or may not have made as a view cannot be traced \(test_arrays",
    ):
        accelerate(program, fallback="error")(X)
    agree(lambda x: (x.T + 0).reshape(-1) * 2, X)


def test_arguments_in_any_memory_order() -> None:
    def program(x: np.ndarray) -> tuple[Any, ...]:
        return x + 1, x.sum(axis=0), x.T @ x, x.reshape(-1)

    for x in (np.asfortranarray(X), X[::2, 1::2], X.T, X[::-1], np.broadcast_to(X[0], (3, 6))):
        agree(program, x, backend="c")
    unaligned = np.frombuffer(b"\0" + X.tobytes(), np.float64, offset=1).reshape(X.shape)
    agree(program, unaligned, backend="c")
    read_only = X.copy()
    read_only.flags.writeable = False
    agree(program, read_only, backend="c")


def test_empty_and_scalar_arguments() -> None:
    agree(lambda x: (x + 1, x.sum(), x.sum(axis=0), x.reshape(3, 0)), np.zeros((0, 3)), backend="c")
    agree(lambda x: (x + 1, x[()], np.sin(x), x.item if False else x.sum()), np.array(2.5), backend="c")
    agree(lambda x, y: (x + y, x * 2, y / 3), np.float32(2), np.int16(7), backend="c")


def test_trees_in_and_out() -> None:
    def program(state: dict[str, Any], steps: int, *, scale: float, name: str = "run") -> dict[str, Any]:
        x, v = state["x"], state["v"]
        for _ in range(steps):
            v = v - scale * x
            x = x + scale * v
        return {"x": x, "v": v, "energy": ((x**2).sum(), (v**2).sum()), "name": name, "steps": steps, "none": None}

    agree(program, {"x": X[0], "v": X[1]}, 3, scale=0.1)
    agree(program, {"x": X[0], "v": X[1]}, 2, scale=0.2, name="other")


def test_one_entry_a_signature() -> None:
    @accelerate
    def power(x: np.ndarray, n: int, scale: float = 1.0) -> np.ndarray:
        return scale * x**n

    for scale in (1.0, 2.0, 3.0):
        same(scale * X**2, power(X, 2, scale))
    assert power._cache_size() == 1
    power(X, 3, 1.0)
    power(X.astype("f4"), 2, 1.0)
    power(X, n=2, scale=1.0)
    assert power._cache_size() == 4
    power.clear_cache()
    assert power._cache_size() == 0
    same(X**2.0, power(X, 2, 1.0))


def test_static_arguments() -> None:
    @functools.partial(accelerate, static_argnames="limit")
    def clipped(x: np.ndarray, limit: float) -> np.ndarray:
        return np.minimum(x, limit) if limit > 0 else x * 1

    same(np.minimum(X, 5.0), clipped(X, 5.0))
    same(X, clipped(X, limit=-1.0))


def scaled(x: np.ndarray) -> np.ndarray:
    total = np.zeros(x.shape)
    total[:] = x * FACTOR
    return total


FACTOR = np.array([1.0, 2, 3, 4, 5, 6])


def test_functions_called_by_name_are_traced_too() -> None:
    def helper(x: np.ndarray, n: int) -> np.ndarray:
        return scaled(x) if n == 0 else helper(x, n - 1) + 1

    agree(lambda x: helper(x, 3), X)


def test_accelerated_functions_join_what_calls_them() -> None:
    inner = accelerate(scaled)
    assert len(accelerate(lambda x: inner(x) + 1).lower(X).plan.groups) == 1
    agree(lambda x: inner(x) + 1, X)
    outer = fuser.jit(lambda x: inner(x) + 1)
    np.testing.assert_allclose(np.asarray(outer(np.float32(X))), X * FACTOR + 1)


def test_methods_and_known_values() -> None:
    class Model:
        def __init__(self) -> None:
            self.weights = np.linspace(0, 1, 6)

        @accelerate
        def predict(self, x: np.ndarray) -> np.ndarray:
            scale = np.arange(3.0)
            if scale[1] > 0 and float(np.ones(2).sum()) == 2.0:
                return x @ self.weights * scale[1]
            return x

    model = Model()
    np.testing.assert_allclose(model.predict(X), X @ model.weights)


def test_isinstance_and_asarray_in_the_function() -> None:
    def program(x: np.ndarray) -> tuple[Any, ...]:
        x = np.asarray(x, dtype=float)
        assert isinstance(x, np.ndarray) and isinstance(x.sum(), np.floating)
        return np.ascontiguousarray(x.T), np.array(x), np.atleast_2d(x)

    agree(program, X)


def test_the_stages_of_a_jitted_function() -> None:
    program = accelerate(lambda x, n: (np.exp(x) * n).sum(axis=1))
    assert str(program.trace(X, 2).graph.outvars[0].aval) == "f64[4]"
    assert str(program.trace(fuser.ShapeDtypeStruct((4, 6), np.dtype("f4")), 2).out_info) == "f32[4]"
    compiled = program.lower(X, 2).compile()
    same((np.exp(X) * 2).sum(axis=1), compiled(X, 2))
    with pytest.raises(
        TypeError,
        match=r"<lambda> was compiled for \(f64\[4,6\]\), got \(f64\[2\]\); call the accelerated function itself",
    ):
        compiled(np.ones(2), 2)
    assert "one reduction kernel" in str(fuser.explain(program)(X, 2))
    assert fuser.check(program)(X, 2).ok


def test_calls_from_threads() -> None:
    program = accelerate(lambda x: np.tanh(x).sum())
    found: list[Any] = []
    threads = [
        threading.Thread(target=lambda n=n: found.append((n, program(np.full(100 + n % 3, 0.1 * n)))))
        for n in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n, value in found:
        np.testing.assert_allclose(value, np.tanh(np.full(100 + n % 3, 0.1 * n)).sum())
    assert len(found) == 12


def test_numpy_functions_of_fuser_arrays_give_numpy_arrays() -> None:
    x = fuser.numpy.arange(3.0)
    assert isinstance(np.exp(x), np.ndarray)
    np.testing.assert_allclose(np.exp(x), np.exp([0, 1, 2]), rtol=1e-6)
    same(np.array([0.0, 1.0, 2.0], np.float32), accelerate(lambda a: a * 1)(x))


STATICS = [
    0.0,
    -0.0,
    1,
    1.0,
    True,
    (0.0,),
    (-0.0,),
    (1,),
    (True,),
    (1.0, (2,)),
    (1.0, (2.0,)),
    float("nan"),
    0j,
    complex(0, -0.0),
]


@pytest.mark.parametrize("wrap", [fuser.accelerate, fuser.jit])
def test_static_values_are_told_apart_by_type_and_sign(wrap: Any) -> None:
    compiled = wrap(lambda x, s: x + len(repr(s)), backend="reference", static_argnames="s")
    for s in (*STATICS, *STATICS):
        for _ in range(2):
            assert float(compiled(np.float32(1), s=s)) == 1 + len(repr(s))
    assert len(compiled._entries) == len(STATICS)


def test_dicts_keep_their_order() -> None:
    accelerated = accelerate(lambda d: {"z": d["b"] + 1, "a": list(d), 1: d["a"]}, measure=False)
    given = {"b": np.ones(2), "a": np.zeros(2), 3: 0}
    for _ in range(2):
        found = accelerated(given)
        assert list(found) == ["z", "a", 1] and found["a"] == list(given)
    assert "compiled whole" in accelerated.explain()


def bits_counted(x):
    return np.unpackbits(x.view(np.uint8)).sum()


def read_after_a_write(x):
    bits = x.view(np.int64)
    x[0] = 5.0
    return bits[:2] + 1


def written_through(x):
    halves = x.view(np.int32)
    halves[0] = 7
    halves[3] += 1
    return x.copy()


def parts_of_complex(x):
    z = x + 2j
    parts = z.view(float)
    parts[::2] *= 2
    return parts.reshape(-1, 2).sum(0), z


def pairs_as_complex(x):
    return x.view(complex) * 1j


def bools_as_numbers(x):
    positive = x > 0
    return positive.view(np.uint8).sum(), positive.view(np.int8) * 3


def scrambled(x):
    found = x.view(np.uint64)
    return (found ^ (found >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)


@pytest.mark.parametrize(
    "function",
    [
        bits_counted,
        read_after_a_write,
        written_through,
        parts_of_complex,
        pairs_as_complex,
        bools_as_numbers,
        scrambled,
    ],
)
def test_views_as_another_dtype_share_memory(function):
    x = np.random.default_rng(3).standard_normal(40)
    accelerated = accelerate(function, measure=False)
    for _ in range(2):
        mine, theirs = x.copy(), x.copy()
        same(function(theirs), accelerated(mine), 1e-14)
        np.testing.assert_array_equal(mine, theirs)
    assert "compiled whole" in accelerated.explain()


def test_tuples_of_traced_values_are_assigned() -> None:
    def program(x: np.ndarray) -> np.ndarray:
        out = np.zeros((30, 3))
        for i in range(30):
            out[i] = x[i], x[i] * 2, 1.0
        out[:, 1] = tuple(x[:30] + 1)
        return out

    agree(program, np.arange(40.0), backend="c")
    assert "compiled whole" in _explained(program, np.arange(40.0))


def _explained(program: Any, *args: Any) -> str:
    compiled = accelerate(program, measure=False)
    compiled(*args)
    return compiled.explain()
