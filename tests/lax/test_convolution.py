"""Convolutions and windows beside JAX: values, gradients, batches and errors; what is fused; how much memory is planned."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax import lax as jlax

import fuser
from fuser import lax
from fuser import numpy as fnp
from fuser.partition.group import Kind

RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def close(found: Any, wanted: Any, tolerance: float = 2e-5) -> None:
    wanted = np.asarray(wanted)
    wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
    assert np.asarray(found).dtype == wanted.dtype and np.shape(found) == wanted.shape
    scale = max(1.0, float(np.abs(wanted.astype(wide)).max(initial=0)))
    np.testing.assert_allclose(np.asarray(found).astype(wide), wanted.astype(wide), rtol=0, atol=tolerance * scale)


NHWC = ("NHWC", "HWIO", "NHWC")
CONVOLUTIONS: dict[str, tuple[Any, Any, tuple[Any, ...], dict[str, Any]]] = {
    "same": ((2, 3, 6, 7), (4, 3, 3, 3), ((1, 1), "SAME"), {}),
    "last": ((2, 9, 8, 3), (3, 3, 3, 4), ((2, 1), "SAME"), {"dimension_numbers": NHWC}),
    "point": ((2, 8, 8, 3), (1, 1, 3, 4), ((2, 2), "VALID"), {"dimension_numbers": NHWC}),
    "groups": ((2, 4, 6, 6), (6, 2, 3, 3), ((1, 2), [(1, 1), (0, 2)]), {"feature_group_count": 2}),
    "depthwise": ((1, 6, 6, 3), (3, 3, 1, 6), ((1, 1), "SAME"), {"dimension_numbers": NHWC, "feature_group_count": 3}),
    "batches": ((4, 2, 5, 5), (6, 2, 2, 2), ((1, 1), "VALID"), {"batch_group_count": 2}),
    "apart": ((1, 2, 9, 9), (3, 2, 3, 2), ((1, 1), "SAME"), {"rhs_dilation": (2, 3)}),
    "transposed": ((1, 2, 4, 5), (3, 2, 3, 4), ((1, 1), [(2, 1), (1, 2)]), {"lhs_dilation": (2, 3), "rhs_dilation": (1, 2)}),
    "strided transposed": ((1, 2, 5, 4), (3, 2, 3, 3), ((2, 3), [(2, 1), (1, 2)]), {"lhs_dilation": (3, 2)}),
    "line": ((2, 3, 12), (4, 3, 5), ((3,), "SAME_LOWER"), {}),
    "volume": ((1, 4, 4, 5, 2), (2, 2, 2, 2, 3), ((1, 2, 1), "SAME"), {"dimension_numbers": ("NHWDC", "HWDIO", "NHWDC")}),
    "mixed": ((3, 6, 2, 7), (3, 3, 3, 5), ((1, 1), "VALID"), {"dimension_numbers": ("CHNW", "IHWO", "WNHC")}),
    "no space": ((3, 4), (5, 4), ((), ()), {}),
}  # fmt: skip


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution_and_its_gradients(name: str) -> None:
    a, b, args, kwargs = CONVOLUTIONS[name]
    x, kernel = normal(*a), normal(*b)
    wanted = jlax.conv_general_dilated(x, kernel, *args, **kwargs)
    weights = normal(*wanted.shape)

    def loss(module: Any) -> Any:
        return lambda x, k: (module.conv_general_dilated(x, k, *args, **kwargs) * weights).sum()

    def both(x: Any, k: Any) -> Any:
        return lax.conv_general_dilated(x, k, *args, **kwargs), fuser.grad(loss(lax), (0, 1))(x, k)

    found, gradients = fuser.jit(both)(x, kernel)
    close(found, wanted)
    for own, other in zip(gradients, jax.grad(loss(jlax), (0, 1))(x, kernel)):
        close(own, other)


LAYERS: dict[str, tuple[Any, Any, tuple[Any, ...], dict[str, Any]]] = {
    "last": ((2, 17, 17, 24), (3, 3, 24, 64), ((1, 1), "SAME"), {"dimension_numbers": NHWC}),
    "first, strided": ((2, 20, 19, 23), (40, 20, 3, 3), ((2, 2), [(1, 1)] * 2), {}),
    "few pixels": ((1, 7, 7, 128), (3, 3, 128, 260), ((1, 1), "SAME"), {"dimension_numbers": NHWC}),
    "few features": ((1, 131, 130, 3), (7, 7, 3, 8), ((2, 2), [(3, 3)] * 2), {"dimension_numbers": NHWC}),
    "few features first": ((1, 3, 41, 40), (12, 3, 3, 5), ((3, 2), [(0, 1), (3, 1)]), {}),
    "depthwise": ((2, 19, 18, 20), (3, 3, 1, 20), ((2, 2), "SAME"), {"dimension_numbers": NHWC, "feature_group_count": 20}),
    "depthwise first": ((2, 6, 17, 31), (12, 1, 5, 3), ((1, 2), [(2, 2), (1, 1)]), {"feature_group_count": 6}),
    "short rows": ((1, 40, 9, 9), (40, 1, 5, 5), ((2, 2), [(2, 2)] * 2), {"feature_group_count": 40}),
    "transposed": ((1, 16, 15, 12), (4, 4, 12, 33), ((1, 1), [(2, 2)] * 2), {"lhs_dilation": (2, 2), "dimension_numbers": NHWC}),
    "filled up": ((1, 12, 9, 9), (5, 12, 2, 2), ((1, 1), [(1, 1), (1, 0)]), {"lhs_dilation": (2, 2)}),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_networks(name: str) -> None:
    """Sizes at which products run in tiles, strips and chunks, with an epilogue and a prologue."""
    a, b, args, kwargs = LAYERS[name]
    x, kernel = normal(*a), normal(*b) / np.float32(np.sqrt(np.prod(b)))

    def layer(module: Any, xnp: Any, x: Any, k: Any) -> Any:
        return xnp.tanh(module.conv_general_dilated(xnp.maximum(x, 0), k, *args, **kwargs))

    wanted, pull = jax.vjp(lambda x, k: layer(jlax, jax.numpy, x, k), x, kernel)
    cotangent = normal(*wanted.shape)

    def both(x: Any, k: Any, ct: Any) -> Any:
        found, pull = fuser.vjp(lambda x, k: layer(lax, fnp, x, k), x, k)
        return found, *pull(ct)

    for own, other in zip(fuser.jit(both)(x, kernel, cotangent), (wanted, *pull(cotangent))):
        close(own, other)


def test_negative_padding_is_a_slice() -> None:
    """XLA on the CPU reads beyond the operand here, so the oracle is the slice."""
    x, kernel = normal(2, 4, 5, 4), normal(6, 4, 2, 2)
    found = lax.conv_general_dilated(x, kernel, (1, 2), ((-1, 1), (0, -1)))
    close(found, jlax.conv_general_dilated(x[:, :, 1:, :-1], kernel, (1, 2), ((0, 1), (0, 0))))


@pytest.mark.parametrize("axes", [(0, 0), (1, None), (None, 2)], ids=str)
@pytest.mark.parametrize("groups", [{}, {"feature_group_count": 2}, {"batch_group_count": 2}], ids=str)
def test_vmap(axes: Any, groups: Any) -> None:
    x, kernel = normal(2, 4, 5, 5), normal(4, 4 // groups.get("feature_group_count", 1), 2, 2)
    x, kernel = (
        np.stack([v, v[::-1] * 2, v + 1], axis) if axis is not None else v for v, axis in zip((x, kernel), axes)
    )
    both = [
        vmap(lambda a, b: module.conv_general_dilated(a, b, (1, 1), "SAME", **groups), axes)(x, kernel)  # noqa: B023
        for module, vmap in ((lax, fuser.vmap), (jlax, jax.vmap))
    ]
    close(*both)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "complex64"])
def test_dtypes(dtype: str) -> None:
    x, kernel = (fnp.asarray(normal(*s) * 3).astype(dtype) for s in ((1, 3, 6, 6), (2, 3, 3, 3)))
    a, b = (jax.numpy.asarray(np.asarray(v)) for v in (x, kernel))
    found, wanted = (m.conv_general_dilated(*v, (1, 1), "SAME") for m, v in ((lax, (x, kernel)), (jlax, (a, b))))
    close(found, wanted, 0.01)
    if dtype == "bfloat16":
        wide = lax.conv_general_dilated(x, kernel, (1, 1), "SAME", preferred_element_type=np.float32)
        close(wide, jlax.conv_general_dilated(a, b, (1, 1), "SAME", preferred_element_type=np.float32), 1e-4)


def test_named_forms() -> None:
    x, kernel = normal(2, 3, 8, 9), normal(4, 3, 3, 2)
    close(lax.conv(x, kernel, (2, 1), "SAME"), jlax.conv(x, kernel, (2, 1), "SAME"))
    args = ((1, 1), ((2, 1), (0, 3)), (2, 1), (1, 2))
    close(lax.conv_with_general_padding(x, kernel, *args), jlax.conv_with_general_padding(x, kernel, *args))
    for more in ({}, {"lhs_dilation": (2, 1)}, {"dimension_numbers": ("NcHW", "OIwh", "CNHW")}):
        if "dimension_numbers" in more:
            more = {"dimension_numbers": ("NCHW", "OIWH", "CNHW")}
        patches = [m.conv_general_dilated_patches(x, (2, 3), (1, 2), ((1, 0), (2, 1)), **more) for m in (lax, jlax)]
        close(*patches)
    locals_ = normal(4, 18, 6, 8)
    args = ((1, 1), "VALID", (3, 2))
    close(lax.conv_general_dilated_local(x, locals_, *args), jlax.conv_general_dilated_local(x, locals_, *args), 1e-4)


@pytest.mark.parametrize(
    "padding, more",
    [
        ("SAME", {}),
        ("VALID", {"transpose_kernel": True}),
        (((1, 2), (0, 1)), {"use_consistent_padding": True}),
        (((1, 2), (3, 1)), {"rhs_dilation": (2, 1)}),
    ],
    ids=str,
)
def test_conv_transpose(padding: Any, more: Any) -> None:
    x, kernel = normal(2, 5, 4, 3), normal(3, 4, 3, 3)
    close(*(m.conv_transpose(x, kernel, (2, 3), padding, **more) for m in (lax, jlax)))
    if not more:
        shape = lax.conv_transpose_shape_tuple(x.shape, kernel.shape, (2, 3), padding, NHWC)
        assert shape == jlax.conv_transpose_shape_tuple(x.shape, kernel.shape, (2, 3), padding, NHWC)


@pytest.mark.parametrize(
    "call",
    [
        lambda m, x, k: m.conv_general_dilated(x, k, (1, 1), "SAME", feature_group_count=2),
        lambda m, x, k: m.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=("NCHW", "OIHW", "NCH")),
        lambda m, x, k: m.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=("NCHW", "OIHQ", "NCHW")),
        lambda m, x, k: m.conv_general_dilated(x, k, (1, 1), "SAME", lhs_dilation=(2, 1)),
        lambda m, x, k: m.conv_general_dilated(x, k, (1, 1), 3),
        lambda m, x, k: m.conv_general_dilated(x, k, (1, 1), "OTHER"),
        lambda m, x, k: m.conv_general_dilated(x, k[:, :, 0], (1, 1), "SAME"),
        lambda m, x, k: m.conv_general_dilated(x, k.astype("int32"), (1, 1), "SAME"),
        lambda m, x, k: m.reduce_window(x, 0.0, m.add, (1, 2), (1, 1), "VALID"),
        lambda m, x, k: m.reduce_window(x, np.int32(0), m.mul, (1, 1, 2, 2), None, "VALID"),
    ],
)
def test_errors(call: Any) -> None:
    x, kernel = normal(1, 3, 5, 5), normal(2, 3, 3, 3)
    with pytest.raises(Exception) as wanted:
        call(jlax, x, kernel)
    kinds = tuple(k for k in (TypeError, ValueError, RuntimeError) if isinstance(wanted.value, k))
    with pytest.raises(kinds or (TypeError, AssertionError)):
        call(lax, x, kernel)


POOLS: tuple[Any, ...] = (
    ((2, 6, 7, 3), (1, 2, 2, 1), (1, 2, 2, 1), "VALID", {}),
    ((2, 7, 7), (1, 3, 3), (1, 2, 2), "SAME", {}),
    ((2, 9), (1, 3), (1, 1), ((0, 0), (2, 1)), {"base_dilation": (1, 2)}),
    ((150,), (70,), (3,), "SAME", {}),
    ((90, 2), (90, 1), (1, 1), "VALID", {}),
    ((2, 40, 37, 3), (1, 3, 3, 1), (1, 2, 3, 1), "SAME", {}),
    ((3, 16, 39), (1, 2, 3), (1, 2, 2), ((0, 0), (0, 1), (1, 1)), {}),
)


@pytest.mark.parametrize("combine", ["add", "max", "min"])
@pytest.mark.parametrize("case", POOLS, ids=lambda c: str(c[0]))
def test_pooling_and_its_gradient(case: Any, combine: str) -> None:
    shape, window, strides, padding, more = case
    x = RNG.permutation(int(np.prod(shape))).reshape(shape).astype(np.float32)
    start = {"add": 0.0, "max": -np.inf, "min": np.inf}[combine]
    pool = lambda m: (
        lambda v: m.reduce_window(v, np.float32(start), getattr(m, combine), window, strides, padding, **more)
    )
    wanted = pool(jlax)(x)
    weights = normal(*wanted.shape)
    loss = lambda m: lambda v: (pool(m)(v) * weights).sum()
    found, gradient = fuser.jit(lambda v: (pool(lax)(v), fuser.grad(loss(lax))(v)))(x)
    close(found, wanted)
    if not (combine != "add" and more):  # JAX has no such gradient
        close(gradient, jax.grad(loss(jlax))(x))
    tangent = normal(*shape)
    close(fuser.jvp(pool(lax), (x,), (tangent,))[1], jax.jvp(pool(jlax), (x,), (tangent,))[1])


def test_general_reductions() -> None:
    x, y = normal(7, 6), normal(7, 6)
    starts = np.float32(-9), np.float32(0)

    def pair(m: Any) -> Any:
        combine = lambda a, b: (m.max(a[0], b[0]), m.add(a[1], b[1]))
        return m.reduce_window((x, y), starts, combine, (3, 2), (2, 1), "SAME")

    pairs = pair(lax), pair(jlax)
    for own, other in zip(*pairs):
        close(own, other)
    close(*(m.reduce_window(x, np.float32(1), m.mul, (20, 1), (1, 1), ((19, 0), (0, 0))) for m in (lax, jlax)))
    close(*(m.reduce_window(x, np.float32(5), m.add, (2, 2), (1, 1), "VALID") for m in (lax, jlax)))
    bits = RNG.integers(0, 9, (8,)).astype(np.int32)
    close(*(m.reduce_window(bits, np.int32(0), m.bitwise_or, (3,), (1,), "SAME") for m in (lax, jlax)))


def test_a_convolution_is_one_product_that_copies_nothing_large() -> None:
    """The windows of 3×3 places are read where they lie: the only temporary is the padded operand."""
    x, kernel, bias = normal(2, 20, 20, 16), normal(3, 3, 16, 32), normal(32)

    def layer(x: Any, k: Any, b: Any) -> Any:
        return fnp.maximum(lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=NHWC) + b, 0)

    lowered = fuser.jit(layer).lower(x, kernel, bias)
    assert [g.kind for g in lowered.plan.groups] == [Kind.ELEMENTWISE, Kind.CONTRACTION]
    padded = 2 * 22 * 22 * 16 * 4
    assert padded <= lowered.compile().memory_analysis().temp_size_in_bytes <= padded + 4096


def test_pooling_and_depthwise_convolutions_are_elementwise() -> None:
    x, kernel = normal(2, 20, 20, 16), normal(3, 3, 1, 16)
    pool = fuser.jit(lambda v: lax.reduce_window(v, -np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"))
    assert [g.kind for g in pool.lower(x).plan.groups] == [Kind.ELEMENTWISE]
    depthwise = fuser.jit(
        lambda v, k: lax.conv_general_dilated(v, k, (1, 1), "VALID", dimension_numbers=NHWC, feature_group_count=16)
    )
    assert [g.kind for g in depthwise.lower(x, kernel).plan.groups] == [Kind.ELEMENTWISE]
