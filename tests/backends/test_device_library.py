"""Library steps on the GPU: torch's functions against the eval rules, on the CPU's tensors; and that nothing is left to the host."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from fuser import jit, lax  # noqa: E402
from fuser.backends.triton import accumulators, radix_sort, scatter_kernels, selection  # noqa: E402
from fuser.backends.triton.library import evaluation, host_steps  # noqa: E402
from fuser.config import config  # noqa: E402
from fuser.ir.graph import Eqn, Graph, Var  # noqa: E402
from fuser.ir.primitive import REGISTRY, Primitive  # noqa: E402
from fuser.ir.types import SMALL, ArrayType, is_inexact  # noqa: E402
from fuser.ops.order import order_p  # noqa: E402
from fuser.runtime.array import Array, to_numpy  # noqa: E402
from fuser.trace.core import bind, infer  # noqa: E402

SAMPLED = [p for _, p in sorted(REGISTRY.items()) if p.samples is not None and p.eval is not None]


def equation(primitive: Primitive, arrays: Any, params: dict[str, Any]) -> Eqn:
    avals = [ArrayType(np.shape(a), np.asarray(a).dtype) for a in arrays]
    out = infer(primitive, avals, params)
    outs = out if primitive.multiple_results else (out,)
    return Eqn(primitive, tuple(map(Var, avals)), params, tuple(map(Var, outs)))


def tensors(arrays: Any) -> list[Any]:
    return [Array(np.array(a, order="C")).torch() for a in arrays]


def fault(primitive: Primitive, arrays: Any, params: dict[str, Any]) -> str:
    """How the device's rule differs from the eval rule, or nothing."""
    eqn = equation(primitive, arrays, params)
    graph = Graph(eqn.invars, (), (), (eqn,), eqn.outvars, "one")
    got = [
        to_numpy(Array(t, dtype=v.aval.dtype))
        for t, v in zip(evaluation.evaluator(graph)(*tensors(arrays)), eqn.outvars)
    ]
    with np.errstate(all="ignore"):
        want = primitive.rule("eval")(*map(np.asarray, arrays), **params)
    for a, b, v in zip(got, want if primitive.multiple_results else [want], eqn.outvars, strict=True):
        b = np.asarray(b)
        if (a.shape, a.dtype) != (v.aval.shape, v.aval.dtype):
            return f"{a.dtype}{a.shape} instead of {v.aval}"
        if primitive.name == "column_potrf" and a.ndim > 1:  # what the other triangle holds is anyone's choice
            a, b = np.tril(a), np.tril(b)
        if primitive.name in (
            "column_syevd",
            "column_gesvd",
            "eigh",
            "svd",
            "eig",
            "geqrf",
        ):  # vectors are unique but for a factor of size 1
            a, b = np.abs(a), np.abs(b)
        if (
            primitive.name == "svd" and a.ndim > 1 and a.shape[-2:] == (5, 5)
        ):  # what completes the basis is anyone's choice
            continue
        if not (np.array_equal(a, b) if not is_inexact(a.dtype) else close(a, b)):
            return f"{a} instead of {b}"
    return ""


def close(a: np.ndarray, b: np.ndarray) -> bool:
    relative = {1: 0.0, 2: 1e-2, 4: 1e-4, 8: 1e-10 if a.dtype.kind != "c" else 1e-4, 16: 1e-10}[a.dtype.itemsize]
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    return np.allclose(a.astype(wide), b.astype(wide), relative, relative, equal_nan=True)


@pytest.mark.parametrize("primitive", SAMPLED, ids=lambda p: p.name)
def test_rules_on_tensors_agree_with_the_eval_rules(primitive: Primitive) -> None:
    wrong = []
    for arrays, params in primitive.samples():
        if evaluation.refusal(equation(primitive, arrays, params)) is None:
            try:
                found = fault(primitive, arrays, params)
            except (
                RuntimeError,
                NotImplementedError,
                TypeError,
                ValueError,
                KeyError,
                AssertionError,
                IndexError,
            ) as error:
                found = f"{type(error).__name__}: {error}"
            if found:
                wrong.append(([str(np.asarray(a).dtype) for a in arrays], [np.shape(a) for a in arrays], params, found))
    assert wrong == []


def test_no_plan_of_a_primitive_has_a_host_step() -> None:
    """Each sample of each registered primitive, planned for Triton."""
    found: dict[str, set[str]] = {}
    with config.using(enable_x64=True):
        for primitive in SAMPLED:
            for arrays, params in primitive.samples():
                function = functools.partial(bind, primitive, **params)
                lowered = jit(lambda *a, f=function: f(*a), backend="triton").lower(*arrays)
                if reasons := {reason for _, reason in host_steps(lowered.plan)}:
                    found.setdefault(primitive.name, set()).update(reasons)
    assert found == {}


def test_unsigned_numbers_past_two_to_the_63() -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2**64, 2000, np.uint64) | (rng.integers(0, 2, 2000, np.uint64) << np.uint64(63))
    y = rng.integers(0, 2**64, 2000, np.uint64)
    factor = rng.integers(1, 2**20, 2000, np.uint64)
    edges = (
        np.array([0, 0, 2**64 - 1, 2**63, 2**63], np.uint64),
        np.array([0, 2**64 - 1, 2**64 - 1, 2**63 - 1, 0], np.uint64),
    )
    for a, b in ((x, y), (x // factor * factor, factor), edges):
        for name in ("gcd", "lcm"):
            assert fault(REGISTRY[name], (a, b), {}) == ""


@pytest.mark.parametrize("dtype", [np.dtype("float32"), np.dtype("float64"), np.dtype("int32")], ids=str)
def test_small_dtypes_round_as_ml_dtypes_do(dtype: np.dtype) -> None:
    """Every value of a small dtype, each middle between two, what lies beside it and beyond the last, of either sign."""
    convert = REGISTRY["convert_element_type"]
    for small in SMALL:
        values = np.arange(256, dtype=np.uint8).view(small).astype(np.float64)
        known = np.unique(np.abs(values[np.isfinite(values)]))
        middle = (known[1:] + known[:-1]) / 2
        spots = np.concatenate(
            [known, middle, np.nextafter(middle, 0), np.nextafter(middle, np.inf), known[-1:] * 1.3, known[-1:] * 4]
        )
        spots = np.concatenate([spots, -spots])
        if dtype.kind == "f":
            spots = np.concatenate([spots, [np.inf, -np.inf, np.nan]])
        with np.errstate(all="ignore"):
            numbers = np.clip(spots, -(2**31), 2**31 - 1).astype(dtype) if dtype.kind == "i" else spots.astype(dtype)
        assert fault(convert, (numbers,), {"new_dtype": small, "weak_type": False}) == "", small
        assert (
            fault(convert, (np.arange(256, dtype=np.uint8).view(small),), {"new_dtype": dtype, "weak_type": False})
            == ""
        ), small


def test_floats_are_ordered_as_numbers_and_keep_their_bits() -> None:
    rng = np.random.default_rng(3)
    special = np.array([0.0, -0.0, np.inf, -np.inf, 1e-40, -1e-40], np.float32)
    keys = np.where(rng.random((3, 4000)) < 0.4, rng.choice(special, (3, 4000)), rng.standard_normal((3, 4000)))
    keys = keys.astype(np.float32)
    keys[1, ::7] = np.copysign(np.nan, rng.standard_normal(keys[1, ::7].shape))
    eqn = equation(REGISTRY["order"], (keys,), {"bits": 32})
    graph = Graph(eqn.invars, (), (), (eqn,), eqn.outvars, "one")
    ordered, positions = (to_numpy(Array(t)) for t in evaluation.evaluator(graph)(*tensors((keys,))))
    wanted = np.argsort(keys, axis=-1, kind="stable")
    np.testing.assert_array_equal(positions, wanted)
    numbers = np.take_along_axis(keys, wanted, -1)
    plain = ~np.isnan(numbers)
    assert ordered[plain].tobytes() == numbers[plain].tobytes() and np.isnan(ordered[~plain]).all()


@pytest.mark.parametrize("dtype", ["float32", "int16", "uint32", "bool"])
def test_sorts_of_one_operand_move_its_keys_alone(dtype: str) -> None:
    """Positions that nobody reads are not made, and elements are read from the ordered words, not gathered."""
    lowered = jit(lambda x: lax.sort(x), backend="triton").lower(np.ones((3, 5000), dtype))
    (order,) = [group for group in lowered.plan.groups if group.graph.eqns[-1].primitive.name == "order"]
    assert len(order.graph.outvars) == 1 and not order.reason
    gathers = [e for g in lowered.plan.groups for e in g.graph.eqns if e.primitive.name == "gather"]
    assert gathers == []


@pytest.mark.parametrize(
    "shape, k, selected",
    [
        ((4096, 4096), 64, True),
        ((1 << 22,), 2048, True),
        ((1 << 13, 256), 8, True),  # many short rows
        ((16, 1024), 8, False),  # one launch orders them
        ((1 << 16, 128), 8, False),
        ((4, 5000), 2501, False),  # more than half
        ((1 << 15,), 2049, False),  # no block holds them four times over
    ],
)
def test_top_k_orders_what_it_selected(shape: tuple[int, ...], k: int, selected: bool) -> None:
    aval = ArrayType(shape, np.dtype("float32"))
    lowered = jit(lambda x: lax.top_k(x, k), backend="triton").lower(aval)
    eqns = [eqn for group in lowered.plan.groups for eqn in group.graph.eqns]
    assert [e.primitive.name for e in eqns].count("select_largest") == selected
    (order,) = (e for e in eqns if e.primitive.name == "order")
    assert order.invars[0].aval.shape[-1] == (k if selected else shape[-1])
    assert [group.reason for group in lowered.plan.groups if group.reason] == []


def test_more_than_blocks_hold_are_selected_by_torch() -> None:
    rng = np.random.default_rng(6)
    special = np.array([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf], np.float32)
    numbers = np.where(rng.random((2, 9000)) < 0.3, rng.choice(special, (2, 9000)), rng.normal(size=(2, 9000)))
    for x in (numbers.astype(np.float32), rng.integers(0, 99, (2, 9000)).astype(np.uint16)):
        assert fault(REGISTRY["select_largest"], (x,), {"k": 3000}) == ""
        assert selection.refusal(equation(REGISTRY["select_largest"], (x,), {"k": 3000})) is not None


def test_positions_alone_need_no_keys_of_the_last_pass() -> None:
    source = jit(lambda x: order_p.bind(x, bits=9)[1], backend="triton").lower(np.ones((2, 5000), np.uint32)).sources[0]
    moves = [launch for launch in source.launch["launches"] if launch.function == "move_digits"]
    assert [launch.constants["KEYS"] for launch in moves] == [True, False]
    assert [(launch.sizes[3], launch.constants["DIGITS"]) for launch in moves] == [(0, 32), (5, 32)]  # shifts
    assert all(launch.constants["POSITIONS"] for launch in moves)


@pytest.mark.parametrize(
    "reduction, rows, log, width", [("sum", 1 << 24, 24, 1), ("prod", 1 << 24, 24, 1), ("max", 1 << 16, 22, 64)]
)
def test_who_combines_rows_depends_on_what_orders_cost(
    reduction: str, rows: int, log: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    eqn = _combination(np.float32, reduction, rows, log, width)
    assert scatter_kernels.refusal(eqn) is accumulators.form_of(eqn) is None
    monkeypatch.setattr(radix_sort, "RANKED", 1e-9)
    assert (accumulators.form_of(eqn) is None) == (
        reduction == "prod"
    )  # products have no words that come to one result
    assert scatter_kernels.refusal(eqn) is None


def _combination(dtype: Any, reduction: str, rows: int, log: int, width: int = 1) -> Eqn:
    virtual = lambda dtype, *shape: np.broadcast_to(np.zeros((), dtype), shape)
    arrays = virtual(dtype, rows, width), virtual(np.uint32, 1 << log), virtual(dtype, 1 << log, width)
    return equation(REGISTRY["scatter_rows"], arrays, {"reduction": reduction, "unique": False})


@pytest.mark.parametrize(
    "dtype, reduction, rows, log, width, form",
    [
        ("float32", "sum", 1 << 16, 24, 1, "exact sum"),
        ("float32", "sum", 1 << 24, 24, 1, None),  # words of 64 bits that no cache holds
        ("float32", "sum", 1 << 16, 26, 1, "scaled sum"),  # more than the words of an exact sum hold
        ("float32", "sum", 50257, 16, 768, None),  # an embedding's gradient: rows are fewer than numbers
        ("float64", "sum", 1 << 16, 20, 1, None),
        ("int32", "sum", 256, 26, 1, "whole sum"),
        ("uint8", "max", 256, 20, 1, "whole max"),
        ("float32", "min", 1 << 16, 20, 1, "extreme min"),
        ("float32", "replace", 1 << 16, 20, 8, "replace"),
        ("float32", "prod", 1 << 16, 20, 1, None),
    ],
)
def test_updates_are_combined_by_atomics_of_whole_numbers_where_that_takes_less(
    dtype: str, reduction: str, rows: int, log: int, width: int, form: str | None
) -> None:
    found = accumulators.form_of(_combination(dtype, reduction, rows, log, width))
    assert (None if found is None else found.name) == form


def test_few_elements_have_copies_and_many_have_one() -> None:
    assert [accumulators.copies_of(size, 1000) for size in (1, 256, 1 << 14, 1 << 20)] == [128, 64, 1, 1]
    assert accumulators.copies_of(1, 3) == 2


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("reduction", ["replace", "sum", "prod", "max"])
def test_many_updates_of_few_rows_combine_in_their_order(reduction: str, width: int) -> None:
    rng = np.random.default_rng(1)
    targets = rng.integers(0, 9, 5000).astype(np.uint32)  # some beyond the last row
    updates = 1 + 0.01 * rng.standard_normal((5000, width))
    arrays, params = (np.ones((7, width)), targets, updates), {"reduction": reduction, "unique": False}
    assert fault(REGISTRY["scatter_rows"], arrays, params) == ""
    eqn = equation(REGISTRY["scatter_rows"], arrays, params)
    graph = Graph(eqn.invars, (), (), (eqn,), eqn.outvars, "one")
    first, second = (evaluation.evaluator(graph)(*tensors(arrays))[0] for _ in range(2))
    assert torch.equal(first, second)


def test_integer_products_wrap() -> None:
    rng = np.random.default_rng(2)
    for name in ("int32", "int64", "uint64", "uint8"):
        info = np.iinfo(name)
        x, y = (
            rng.integers(info.min, info.max, shape, np.dtype(name), endpoint=True) for shape in ((17, 300), (300, 9))
        )
        params = {"dimension_numbers": (((1,), (0,)), ((), ())), "precision": None, "preferred_element_type": None}
        assert fault(REGISTRY["dot_general"], (x, y), params) == ""
