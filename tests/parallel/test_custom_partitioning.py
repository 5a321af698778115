"""custom_partitioning: layouts by a rule or by functions of shardings, the function of one device, and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import NamedSharding, P, lax
from fuser.experimental.custom_partitioning import BATCHING, CompoundFactor, SdyShardingRule, custom_partitioning
from fuser.parallel.sharding_rule import sharding_rule

AUTO = fuser.sharding.AxisType.Auto
rng = np.random.default_rng(0)
asked: list[Any] = []


def mesh_of() -> Any:
    return fuser.make_mesh((4, 2), ("x", "y"), axis_types=(AUTO, AUTO))


def put(value: Any, *spec: Any) -> Any:
    return fuser.device_put(value, NamedSharding(mesh_of(), P(*spec)))


def leading(sharding: Any, rank: int) -> NamedSharding:
    """All dimensions but the last as they lie."""
    entries = [*sharding.spec, *[None] * rank][: rank - 1]
    return NamedSharding(sharding.mesh, P(*entries, None))


def transform() -> Any:
    """A Fourier transform along the last dimension, the others of which stay split: the example of JAX's documentation."""

    @custom_partitioning
    def own(x: Any) -> Any:
        return fnp.fft.fft(x)

    return own


def divide(mesh: Any, arguments: Any, result: Any) -> Any:
    asked.append((arguments[0].sharding.spec, result.sharding.spec))
    lies = leading(arguments[0].sharding, len(arguments[0].shape))
    return mesh, fnp.fft.fft, lies, (lies,)


@pytest.mark.parametrize("by_rule", (True, False))
def test_layouts_by_a_rule_and_by_functions(by_rule: bool) -> None:
    own = transform()
    if by_rule:
        own.def_partition(divide, sharding_rule="... i -> ... i", need_replication_factors=("i",))
    else:
        own.def_partition(divide, infer_sharding_from_operands=lambda mesh, a, r: leading(a[0].sharding, 2))
    x = rng.normal(size=(8, 16)).astype(np.float32)
    step = fuser.jit(lambda a: fnp.abs(own(a * 2)) + 1)
    given = put(x, "x", "y")
    asked.clear()
    result = step(given)
    np.testing.assert_allclose(np.asarray(result), np.abs(np.fft.fft(x * 2.0)) + 1, rtol=1e-4, atol=1e-4)
    assert result.sharding.spec[0] == "x" and asked[0][0] == P("x", "y")
    lines = fuser.explain(step)(given).devices
    assert [line for line in lines if "all_gather over y" in line and "custom_partitioning takes it so" in line]
    assert not [line for line in lines if "all_gather over x" in line]


def test_a_rule_lays_out_operands_too() -> None:
    own = transform()
    own.def_partition(divide, sharding_rule="b i -> b i")
    asked.clear()
    x = rng.normal(size=(8, 16)).astype(np.complex64)
    want = NamedSharding(mesh_of(), P("x"))
    result = fuser.jit(lambda a: own(a), out_shardings=want)(x)
    np.testing.assert_allclose(np.asarray(result), np.fft.fft(x), rtol=1e-4, atol=1e-4)
    assert asked == [(P("x", None), P("x", None))]


def test_collectives_of_the_function_of_one_device() -> None:
    @custom_partitioning
    def product(a: Any, b: Any) -> Any:
        return {"product": a @ b, "sums": a.sum(0)}

    def partition(mesh: Any, arguments: Any, result: Any) -> Any:
        lies = lambda *spec: NamedSharding(mesh, P(*spec))
        (axis,) = (arguments[0].sharding.spec[1],)

        def of_one(a: Any, b: Any) -> Any:
            return {"product": lax.psum(a @ b, axis), "sums": a.sum(0)}

        return mesh, of_one, {"product": lies(), "sums": lies(axis)}, (lies(None, axis), lies(axis))

    product.def_partition(partition, sharding_rule="i k, k j -> i j, k", reduction_factors=("k",))
    a, b = (rng.normal(size=shape).astype(np.float32) for shape in ((6, 8), (8, 5)))

    def loop(a: Any, b: Any) -> Any:
        def body(carry: Any, _: Any) -> Any:
            found = product(a, b + carry)
            return found["product"].mean(), found["sums"]

        return lax.scan(body, fnp.float32(0), None, length=3)

    carry, sums = fuser.jit(loop)(put(a, None, "x"), put(b, "x"))
    want = np.float64(0)
    for _ in range(3):
        want = (a.astype(np.float64) @ (b + want)).mean()
    np.testing.assert_allclose(np.asarray(carry), want, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(np.asarray(sums), np.stack([a.sum(0)] * 3), rtol=1e-5, atol=1e-5)


def test_without_a_mesh_and_in_a_shard_map_it_is_the_function() -> None:
    own = transform()
    own.def_partition(divide, sharding_rule="b i -> b i")
    x = rng.normal(size=(8, 16)).astype(np.float32)
    asked.clear()
    for found in (own(x), fuser.jit(own)(x)):
        np.testing.assert_allclose(np.asarray(found), np.fft.fft(x), rtol=1e-4, atol=1e-4)
    spec = P("x", None)
    of_parts = fuser.jit(fuser.shard_map(own, mesh=mesh_of(), in_specs=spec, out_specs=spec, check_vma=False))
    np.testing.assert_allclose(np.asarray(of_parts(x)), np.fft.fft(x), rtol=1e-4, atol=1e-4)
    assert not asked


def test_static_arguments() -> None:
    def scaled(x: Any, factor: int) -> Any:
        return x * factor

    own = custom_partitioning(scaled, static_argnums=(1,))
    seen: list[int] = []

    def partition(factor: int, mesh: Any, arguments: Any, result: Any) -> Any:
        seen.append(factor)
        return mesh, lambda x: x * factor, arguments[0].sharding, (arguments[0].sharding,)

    own.def_partition(partition, sharding_rule=lambda factor, mesh, operands, results: "i -> i")
    result = fuser.jit(lambda x: own(x, 3))(put(np.arange(8.0, dtype=np.float32), "x"))
    assert np.asarray(result).tolist() == (np.arange(8.0) * 3).tolist() and seen == [3]
    with pytest.raises(fuser.errors.UnexpectedTracerError, match="a static argument of the custom_partitioning"):
        fuser.jit(lambda x, n: own(x, n))(np.ones(3, np.float32), 2)


def test_errors_say_what_was_wrong() -> None:
    own = transform()
    with pytest.raises(AttributeError, match="has no partition; define one with def_partition"):
        own(np.ones(3, np.float32))
    own.def_partition(
        lambda mesh, a, r: (mesh, lambda x: x[:1] + 0j, r.sharding, (a[0].sharding,)), sharding_rule="i j -> i j"
    )
    x = put(np.ones((8, 4), np.float32), "x")
    with pytest.raises(ValueError, match=r"Mismatch in result shapes. own on one device returns c64"):
        fuser.jit(own)(x)
    own.def_partition(lambda mesh, a, r: (mesh, fnp.fft.fft, None, (None,)), sharding_rule="i j -> i j")
    with pytest.raises(ValueError, match="Custom Partitioning rules must return Sharding"):
        fuser.jit(own)(x)
    own.def_partition(divide, sharding_rule="i -> i")
    with pytest.raises(ValueError, match="names 1 dimensions"):
        fuser.jit(own)(x)


def test_rules_are_read() -> None:
    rule = sharding_rule("...1 (a b) c, -> ...1 a", {}, {"b": 2})
    assert rule.operand_mappings == ((f"{BATCHING}1", CompoundFactor("a", "b"), "c"), ())
    assert rule.result_mappings == ((f"{BATCHING}1", "a"),)
    found = list(rule.together([(3, 8, 5), ()], [(3, 4)], 2))
    assert found == [(((0, 1),), ((0, 1),))]  # neither 3 nor 5 is divided by 2; b is the minor factor
    for text, message in (
        ("a b", "There is no ->"),
        ("(a b -> a", "Brackets are not balanced"),
        ("(a) -> a", "at least two factors"),
        ("a ... -> a", "Ellipsis can only be used at the beginning"),
        ("a+b -> a", r"Unknown character '\+'"),
        ("(a b) -> c", "must specify its size"),
    ):
        with pytest.raises(ValueError, match=message):
            sharding_rule(text, {}, {})
    with pytest.raises(ValueError, match="Factor z is not used"):
        SdyShardingRule((), (), reduction_factors=("z",))
    with pytest.raises(ValueError, match="Unknown keyword arguments: reduction_factors"):
        transform().def_partition(divide, reduction_factors=("a",))
