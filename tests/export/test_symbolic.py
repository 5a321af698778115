"""Symbolic shapes: arithmetic and what is decided of it, functions exported for all sizes, sizes found from arguments."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import jax.export
import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import lax
from fuser.errors import DeserializationError, InconclusiveDimensionOperation
from fuser.export import (
    SymbolicScope,
    deserialize,
    export,
    file,
    is_symbolic_dim,
    symbolic_args_specs,
    symbolic_dim_bounds,
    symbolic_shape,
)
from fuser.ir.dim import evaluated, maximum, minimum
from fuser.ir.extents import slice_bounds

SIZES = [dict(zip("abc", sizes)) for sizes in itertools.product((1, 2, 3, 7), repeat=3)]


def test_arithmetic_is_that_of_the_sizes() -> None:
    a, b, c = symbolic_shape("a, b, c")
    expressions = [
        a + b - 2, 3 * a * b + 4, (2 * a + 4 * b) // 2, (a * b * c) // b, a // 2, (a + 5) % 3, (6 * a + 1) % 6, a**2 - a,
        maximum(a, b), minimum(a + 2, 1), maximum(a, 1), -(-a // 4), divmod(a * b + b, b)[0], (a + b) // c, 7 - a,
    ]  # fmt: skip
    plain: list[Callable[..., int]] = [
        lambda a, b, c: a + b - 2, lambda a, b, c: 3 * a * b + 4, lambda a, b, c: (2 * a + 4 * b) // 2,
        lambda a, b, c: (a * b * c) // b, lambda a, b, c: a // 2, lambda a, b, c: (a + 5) % 3, lambda a, b, c: (6 * a + 1) % 6,
        lambda a, b, c: a**2 - a, lambda a, b, c: max(a, b), lambda a, b, c: min(a + 2, 1), lambda a, b, c: max(a, 1),
        lambda a, b, c: -(-a // 4), lambda a, b, c: a + 1, lambda a, b, c: (a + b) // c, lambda a, b, c: 7 - a,
    ]  # fmt: skip
    for expression, function in zip(expressions, plain, strict=True):
        for sizes in SIZES:
            assert evaluated(expression, sizes) == function(**sizes), expression
    assert (a * b * c) // b == a * c and (6 * a + 1) % 6 == 1 and minimum(a + 2, 1) == 1
    assert [str(e) for e in (a + b, 2 * a - 4, a // 2, 3 * a * a)] == ["b + a", "2*a - 4", "floordiv(a, 2)", "3*a^2"]


def test_equations_of_operations_rewrite_them() -> None:
    said = ("floordiv(d, 2) == a + 5", "floordiv(c, 3) == a + 3", "b == a + 1", "mod(a + mod(a, 2), -2) == 0")
    scope = SymbolicScope((*said, "min(e, f) == f - 2", "f >= 3"))
    a, b, c, d, e, f = symbolic_shape("a, b, c, d, e, f", scope=scope)
    assert (b, d // 2, c // 3) == (a + 1, a + 5, b + 2) and 4 * b * (c // 3) == 4 * b * b + 8 * b
    assert minimum(e, f) == minimum(f, e) == f - 2 and (a + a % 2) % -2 == 0 and -2 * ((a + a % 2) // -2) == a + a % 2
    assert len(scope.constraints) == 5  # they are still there to be checked
    assert divmod(np.array(7), a)[1] == 7 % a
    with pytest.raises(InconclusiveDimensionOperation, match=r"with constraints: .*f >= 3"):
        bool(a >= 5)
    with pytest.raises(ValueError, match="Unsatisfiable explicit constraint: a == a"):
        symbolic_shape("a", constraints=("a == a + 1",))


def test_slices_are_those_of_the_sizes() -> None:
    [a] = symbolic_shape("a")
    extent = a + 2
    bounds = (None, 0, 1, -1, 2, -2)
    for start, stop, step in itertools.product(bounds, bounds, (1, 2, -1, -3)):
        found = slice_bounds(start, stop, step, extent)
        for size in (1, 2, 5, 8):
            first, count = (evaluated(v, {"a": size}) for v in found)
            positions = range(*slice(start, stop, step).indices(size + 2))
            assert count == len(positions) and (not positions or first == positions[0])


def test_comparisons_are_decided_or_refused() -> None:
    a, b = symbolic_shape("a, b", constraints=("a >= b", "mod(a, 8) == 0", "b <= 100"))
    assert a >= 1 and a > 0 and a + 1 > a and a >= b and 2 * a >= b + 1 and b < 101 and a != b and a % 8 == a % 8
    assert not (a < b) and bool(a) and is_symbolic_dim(a) and not is_symbolic_dim(3)
    assert symbolic_dim_bounds(b + 1) == (2, 101) and symbolic_dim_bounds(a * b)[1] == math.inf
    assert symbolic_dim_bounds(np.int32(7)) == (7, 7)
    with pytest.raises(TypeError):
        symbolic_dim_bounds(1.5)
    for undecided in (lambda: a >= 2, lambda: b >= a, lambda: a - b > 0):
        with pytest.raises(InconclusiveDimensionOperation, match="is inconclusive"):
            undecided()
    for constant in (int, float):
        with pytest.raises(InconclusiveDimensionOperation, match="requires a constant"):
            constant(a)
    c, d, e = symbolic_shape("c, d, e", constraints=("d == 2*c + 1", "floordiv(e, 3) == 4"))
    assert d == 2 * c + 1 and e >= 12 and e < 15 and maximum(c, e) >= c and minimum(c, e) <= maximum(c, e)
    with pytest.raises(ValueError, match="Invalid mixing of symbolic scopes"):
        a + symbolic_shape("a")[0]


@pytest.mark.parametrize(
    "spec", ["a, 4*b", "(a, 2*a + 3)", "3, a", "a, b - 1", "floordiv(a, 2), mod(a, 3)", "max(a, b),"]
)
def test_shapes_are_read_as_jax_reads_them(spec: str) -> None:
    ours, theirs = symbolic_shape(spec), jax.export.symbolic_shape(spec)
    assert [str(d) for d in ours] == [str(d) for d in theirs]


def test_what_cannot_be_read_is_refused() -> None:
    assert symbolic_shape("_, a, ...", like=(2, 3, 4))[::2] == (2, 4) and symbolic_shape(None, like=(2, 3)) == (2, 3)
    for spec in ("a +", "a b", "a, ..., b", "_", "-1", "floordiv(a)", "a ^ 99", "(" * 500):
        with pytest.raises(ValueError, match="the symbolic shape specification"):
            symbolic_shape(spec)
    apart = symbolic_shape(
        "a, b", constraints=("a >= b + 1", "b >= a")
    )  # known to be contradictory once sizes are asked for
    with pytest.raises(ValueError, match="no sizes were found"):
        export(fuser.jit(lambda x: x))(fuser.ShapeDtypeStruct(apart, np.float32))
    with pytest.raises(ValueError, match="no sizes were found"):
        dynamic = {"x": "a, b", "constraints": ("a >= b + 1", "b >= a")}
        fuser.jit(lambda x: x, dynamic=dynamic)(np.ones((3, 2), np.float32))
    with pytest.raises(ValueError, match="Cannot specify both"):
        symbolic_shape("a", scope=SymbolicScope(), constraints=("a >= 2",))


def test_orders_follow_from_constraints_on_operations() -> None:
    """As in JAX, whatever the constraints are taken together."""
    said = ("max(a, b) >= 8", "min(a, b) <= 2", "floordiv(a, 4) >= 2", "mod(a, b) >= 2", "mod(max(a, b), 4) >= 2")
    a, b = symbolic_shape("a, b", constraints=said)
    assert maximum(a, b) >= 6 and minimum(a, b) <= 6 and a // 4 >= 1 and a % b >= 1 and maximum(a, b) % 4 >= 2


def test_converters_read_expressions() -> None:
    a, b, c, d = symbolic_shape("a, b, c, d", constraints=("b == a", "c == a + b", "d == 5"))
    assert (a._to_var(), b._to_var(), c._to_var()) == ("a", "a", None) and d == 5
    assert (a * b + c % 3)._evaluate({"a": 2}) == 2 * 2 + 4 % 3 and a._evaluate({"a": 5}) == 5
    assert c._to_single_term() == (0, 2, a._to_term()) and (c + a * a)._to_single_term() is None
    assert (a * c + 1)._get_vars() == {"a"} and (2 * a * a + 1)._eq(1 + a * a + a * a) and not a._eq(c)


def layer_norm(x: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) / fnp.sqrt(x.var(-1, keepdims=True) + 1e-5)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "elementwise": (lambda x, y: fnp.sin(x) * y + x.shape[0], ("b, 4", "4")),
    "means": (lambda x: (x.mean(0), x.std(1), x.sum() / x.shape[0], x.size), ("b, k",)),
    "layers": (lambda x, w: fuser.nn.softmax(layer_norm(x) @ w), ("b, k", "k, 3")),
    "shapes": (lambda x: (x.reshape(-1, 2), x.ravel(), x.reshape(x.shape[0] * 2, 2), x.T), ("b, 4",)),
    "moves": (lambda x: fnp.concatenate([x[1:], x[::-1], fnp.pad(x, ((1, 1), (0, 0)))]), ("b, 4",)),
    "indices": (lambda x: (x[-1], x[fnp.arange(x.shape[0]) // 2], x.at[0].set(1.0), x[:, ::2]), ("b, 4",)),
    "products": (lambda x, y: fnp.einsum("bij,bjk->bik", x, y), ("b, 4, n", "b, n, 2")),
    "loops": (lambda x: lax.scan(lambda c, r: (c + r, c.sum()), fnp.zeros(4), x), ("b, 4",)),
    "orders": (lambda x: (fnp.sort(x, 0), fnp.argmax(x, 0), fnp.cumsum(x, 1)), ("b, k",)),
    "parts": (lambda x: fnp.split(x, 2), ("2*b, 4",)),
    "derivatives": (lambda x: fuser.grad(lambda x: (fuser.nn.softmax(x) ** 2).mean())(x), ("b, k",)),
    "batches": (lambda x: fuser.vmap(lambda row: row @ row)(x), ("b, k",)),
    "spectra": (lambda x: (fnp.fft.fft(x), fnp.fft.rfft(x), fnp.fft.ifft2(x)), ("b, k",)),
    "images": (lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME"), ("b, 2, h, h + 1", "3, 2, 3, 3")),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_file_serves_all_sizes(name: str) -> None:
    function, specs = PROGRAMS[name]
    scope, rng = SymbolicScope(), np.random.default_rng(0)
    shapes = [symbolic_shape(spec, scope=scope) for spec in specs]
    exported = export(fuser.jit(function))(*(fuser.ShapeDtypeStruct(s, np.float32) for s in shapes))
    loaded = deserialize(exported.serialize())
    assert [str(a) for a in loaded.out_avals] == [str(a) for a in exported.out_avals]
    for sizes in ({"b": 3, "k": 5, "n": 2, "h": 5}, {"b": 1, "k": 4, "n": 3, "h": 3}):
        known = [tuple(evaluated(d, sizes) for d in shape) for shape in shapes]
        arrays = [rng.normal(size=shape).astype(np.float32) for shape in known]
        found, wanted = loaded.call(*arrays), fuser.jit(function)(*arrays)
        for a, b in zip(fuser.tree.leaves(found), fuser.tree.leaves(wanted), strict=True):
            assert (a.shape, a.dtype, a.weak_type) == (b.shape, b.dtype, b.weak_type)
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), 1e-5, 1e-5)


def test_types_are_those_of_jax() -> None:
    def function(m: Any) -> Any:
        return lambda a, b: m.concatenate([a, b], axis=0)

    types = []
    for module, numpy, jit in ((fuser.export, fnp, fuser.jit), (jax.export, jax.numpy, jax.jit)):
        scope = module.SymbolicScope()
        structs = fuser.ShapeDtypeStruct if module is fuser.export else jax.ShapeDtypeStruct
        args = [structs(module.symbolic_shape(s, scope=scope), np.float32) for s in ("(2*w, h)", "(w, h)")]
        exported = module.export(jit(function(numpy)))(*args)
        types.append(
            [str(a.shape) for a in exported.in_avals] + [", ".join(map(str, a.shape)) for a in exported.out_avals]
        )
    assert types[0] == types[1]


def test_what_depends_on_sizes_is_found() -> None:
    [b] = symbolic_shape("b")
    x = fuser.ShapeDtypeStruct((b, 4), np.float32)
    for function in (
        lambda x: sum(x[i] for i in range(x.shape[0])),
        lambda x: x * np.asarray(x.shape[0], np.float32),
        lambda x: x * fuser.jit(lambda y: np.ones(y.shape[0], np.float32)[0] * len(np.ones(y.shape[0])) * y)(x),
    ):
        with pytest.raises(InconclusiveDimensionOperation):
            export(fuser.jit(function))(x)


@pytest.mark.parametrize(
    ("spec", "shape", "words"),
    [
        ("3,4,6*a", (3, 4, 12), ""),
        ("3,a,a+8", (3, 4, 12), ""),
        ("3,4,12", (3, 4, 13), r"Shape mismatch for args\[0\].shape\[2\] \(expected same constant\)"),
        (
            "3,4,a+1", (3, 4, 1),
            "Expected value >= 1 for dimension variable 'a'. Using the following polymorphic shapes specifications: "
            r"args\[0\].shape = \(3, 4, a \+ 1\). Obtained dimension variables: 'a' = 0",
        ),
        ("3,4,6*a", (3, 4, 13), "Division had remainder 1 when computing the value of 'a'"),
        (
            "3,a,a+8", (3, 4, 13),
            r"Found inconsistency between dimension size args\[0\].shape\[2\] \(= 13\) and the specification 'a \+ 8' \(= 12\)",
        ),
        ("3,a,a*b", (3, 4, 12), ""),
        ("3,4,a*a", (3, 4, 16), "Cannot solve for values of dimension variables {'a'}"),
    ],
)  # fmt: skip
def test_sizes_are_found_from_arguments(spec: str, shape: tuple[int, ...], words: str) -> None:
    exported = export(fuser.jit(lambda x: x.reshape(-1, x.shape[1])))(
        fuser.ShapeDtypeStruct(symbolic_shape(spec), np.float32)
    )
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    if words:
        with pytest.raises(ValueError, match=words):
            exported.call(x)
    else:
        np.testing.assert_array_equal(exported.call(x), x.reshape(-1, shape[1]))


def test_constraints_are_checked_and_saved() -> None:
    a, b = symbolic_shape("a, b", constraints=("a >= b",))
    args = [fuser.ShapeDtypeStruct((d,), np.float32) for d in (a, b)]
    loaded = deserialize(export(fuser.jit(lambda x, y: x[: y.shape[0]] + y))(*args).serialize())
    np.testing.assert_array_equal(loaded.call(X5, X5[:3]), 2 * X5[:3])
    with pytest.raises(ValueError, match="to be greater or equal to 0, but found -3"):
        loaded.call(X5[:2], X5)
    assert deserialize(loaded.serialize()).uses_global_constants
    square = fuser.ShapeDtypeStruct(symbolic_shape("a, b", constraints=["max(a, b) == b"]), np.float32)
    with pytest.raises(ValueError, match=r"Expected 'max\(a, b\) - b' to be equal to 0, but found 1"):
        export(fuser.jit(lambda x: x))(square).call(np.ones((3, 2), np.float32))


X5 = np.arange(5, dtype=np.float32)


def test_calls_with_symbolic_shapes_and_derivatives() -> None:
    inner = export(fuser.jit(lambda x: fnp.sin(x).sum(0)))(
        *symbolic_args_specs((np.ones((2, 3), np.float32),), "b, ...")
    )
    outer = export(fuser.jit(lambda x: inner.call(x) * 2))(
        *symbolic_args_specs((np.ones((2, 3), np.float32),), "n, ...")
    )
    x = np.linspace(0, 1, 12, dtype=np.float32).reshape(4, 3)
    np.testing.assert_allclose(outer.call(x), np.sin(x).sum(0) * 2, 1e-6)
    loaded = deserialize(inner.serialize(vjp_order=1))
    np.testing.assert_allclose(fuser.grad(lambda x: loaded.call(x).sum())(x), np.cos(x), 1e-5)
    with pytest.raises(ValueError, match="Invalid mixing of symbolic scopes when exporting"):
        export(fuser.jit(fnp.add))(*(fuser.ShapeDtypeStruct(symbolic_shape("w"), np.float32) for _ in range(2)))


def test_hostile_extents_end_in_one_error() -> None:
    said, contents = file.read(
        bytes(export(fuser.jit(fnp.sin))(fuser.ShapeDtypeStruct(symbolic_shape("b, 2"), np.float32)).serialize())
    )
    for extent in ("b -", "0 - b", "floordiv(b, 0)", "(" * 999, "b" * 10_000 + "^17", "c^16^16^16"):
        said["in"][0][1][0] = said["graph"]["in"][0][1][0] = extent
        with pytest.raises(DeserializationError):
            deserialize(file.write(said, contents))


def _chain(form: str) -> list[str]:
    return [form.format(*(f"v{n + m}" for m in range(3))) for n in range(24)]


HOSTILE = (
    ["(((a+b)^16+b)^16)^16 >= 1"],
    ["+".join(f"v{n}" for n in range(600)) + " >= 1"],
    ["*".join(["9" * 18] * 9) + "*a >= 1"],
    ["9" * 40 + "*a >= 1"],
    ["mod(" * 70 + "a" + ",2)" * 70 + " >= 1"],
    ["a" * 10**5 + " >= 1"],
    _chain("{0} == {1}^4"),
    _chain("{0} == ({1}+b)*({1}+c)"),
    _chain("{0} == max({1}, min({1}, {2}) + 1)") + ["v0 + 1 <= v2"],
    _chain("{0} >= {1} + mod({2}, 3)") + ["v0 <= 5"],
    ["(a+b+c+d)^8 <= 3"] * 60,
    _chain("mod({0}, {1}) == mod({1}, {2})*{2} + mod({2}, {0})"),
    ["max(max(a,b),max(c,d))*max(a,d) <= max(a,min(b,c))-1"] * 60,
)


def test_hostile_expressions_end_in_an_error_after_bounded_work() -> None:
    said, contents = file.read(
        bytes(export(fuser.jit(fnp.sin))(fuser.ShapeDtypeStruct(symbolic_shape("b, 2"), np.float32)).serialize())
    )
    for constraints in HOSTILE:
        with pytest.raises(DeserializationError):
            deserialize(file.write(said | {"constraints": constraints}, contents))
    with pytest.raises(DeserializationError, match="it has more than 64 constraints"):
        deserialize(file.write(said | {"constraints": ["b >= 2"] * 65}, contents))
    with pytest.raises(ValueError, match="a degree above 64"):
        symbolic_shape("b")[0] ** 65
    scope = SymbolicScope(("a >= 100000", "b <= a", "c >= b"), work=50)
    a, b, c = symbolic_shape("a, b, c", scope=scope)
    assert a >= b and scope.witness["a"] >= 100000
    with pytest.raises(InconclusiveDimensionOperation):  # its work is spent
        [c * n >= b for n in range(1, 99)]


def test_jit_traces_once_for_all_sizes() -> None:
    traces = []

    def function(x: Any, w: Any, scale: Any = 2.0) -> Any:
        traces.append(x.shape)
        return fuser.nn.softmax(x["in"] if isinstance(x, dict) else x) @ w * scale

    program = fuser.jit(function, dynamic={"x": "b, 2*k", "w": "2*k, _", "constraints": ("k >= 2",)})
    rng = np.random.default_rng(0)
    for b, k in ((3, 2), (5, 4), (1, 3)):
        x, w = rng.normal(size=(b, 2 * k)).astype(np.float32), rng.normal(size=(2 * k, 3)).astype(np.float32)
        np.testing.assert_allclose(program(x, w), fuser.jit(function)(x, w), 1e-5)
        np.testing.assert_allclose(program(x, w=w, scale=3.0), fuser.jit(function)(x, w, 3.0), 1e-5)
    symbolic = [shape for shape in traces if any(is_symbolic_dim(d) for d in shape)]
    assert len(symbolic) == 4  # two witnesses, with and without `scale`
    with pytest.raises(ValueError, match=r"to be greater or equal to 0, but found -1"):
        program(x[:, :2], w[:2])
    with pytest.raises(TypeError, match="dynamic names 'y', and the arguments are x, w, scale"):
        fuser.jit(function, dynamic={"y": "b"})
    with pytest.raises(fuser.errors.UnsupportedError, match="takes no static and no donated arguments"):
        fuser.jit(function, dynamic={"x": "b"}, static_argnums=1)
