"""Programs for the Triton backend: every form of kernel, and the benchmark's workloads.

`FORMS[name]` is a function and the types of its arguments, of sizes that choose the form but that the interpreter can
run; `LARGE[name]` are sizes of real work, for compilation ahead of time alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import fuser
import fuser.numpy as fnp
from bench.workloads import WORKLOADS
from fuser import random
from fuser.backends.triton import accumulators, block_sizes
from fuser.ir.primitive import REGISTRY
from fuser.ir.types import KEY, ArrayType
from fuser.trace import tree
from fuser.trace.core import bind
from tests.backends.attention_cases import ATTENTION, GRADIENTS, grouped
from tests.backends.horizontal_launch_cases import HORIZONTAL
from tests.backends.loop_cases import DTYPES, EDGES, ONE_KERNEL, WITH_LANES
from tests.backends.order_cases import ORDERS
from tests.backends.product_cases import PRODUCTS
from tests.backends.reduced_product_cases import REDUCED_PRODUCTS
from tests.backends.scatter_cases import COUNTED, IN_BUCKETS, IN_ORDER, SCATTERS, small_buckets
from tests.backends.selection_cases import SELECTIONS
from tests.lax.test_control_flow import PROGRAMS
from tests.transforms import compositions

F32 = np.dtype("float32")
Form = tuple[Callable[..., Any], tuple[ArrayType, ...]]


def f32(*shape: int) -> ArrayType:
    return ArrayType(shape, F32)


def of(dtype: str, *shape: int) -> ArrayType:
    return ArrayType(shape, fnp.dtype(dtype) if dtype == "bfloat16" else np.dtype(dtype))


def softmax(x: Any, axis: int = -1) -> Any:
    e = fnp.exp(x - fnp.max(x, axis=axis, keepdims=True))
    return e / fnp.sum(e, axis=axis, keepdims=True)


def layer_norm(x: Any, scale: Any, bias: Any) -> Any:
    mean = fnp.mean(x, axis=-1, keepdims=True)
    variance = fnp.mean((x - mean) ** 2, axis=-1, keepdims=True)
    return (x - mean) / fnp.sqrt(variance + 1e-5) * scale + bias


def layer_norm_gradients(x: Any, scale: Any, bias: Any, ct: Any) -> Any:
    return fuser.vjp(layer_norm, x, scale, bias)[1](ct)


def reductions(x: Any, axis: Any = -1) -> Any:
    return tuple(f(x, axis=axis) for f in (fnp.sum, fnp.max, fnp.min, fnp.prod))


def cross_entropy(x: Any, labels: Any) -> Any:
    return -fnp.take_along_axis(fuser.nn.log_softmax(x.astype("float32"), axis=-1), labels[:, None], axis=-1)


def quantised(x: Any, weights: Any, dtype: str = "float8_e4m3fn") -> Any:
    """Rows divided by the root of their mean square, as numbers of 8 bits with a scale each."""
    x = x.astype("float32")
    y = x * fuser.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * weights
    scale = abs(y).max(-1, keepdims=True) / float(fnp.finfo(dtype).max)
    return (y / scale).astype(dtype), scale


def moved_bytes(x: Any, y: Any) -> Any:
    """Floats of 8 bits that are moved, chosen and read as others, too large ones, and a number of theirs."""
    several = fnp.concatenate([x, y.astype(x.dtype)[::-1]]).T
    padded = fnp.pad(x, 1, constant_values=fnp.asarray(2.5, x.dtype))
    return (
        several,
        padded,
        fnp.where(y > 0, x, x[::-1]),
        x.astype("bfloat16") * 2,
        x.astype("int32"),
        x.astype("float64"),
    )


def online_sums(x: Any) -> Any:
    """Sums relative to a maximum: weighted, chosen, scaled, of squares; of elements of which the first hundred are −∞."""
    x = fnp.where(fnp.arange(x.shape[-1]) < 100, -fnp.inf, x * 40)
    e = fnp.exp(x - fnp.max(x, axis=-1, keepdims=True))
    return fnp.sum(e * fnp.cos(x), -1), fnp.sum(fnp.where(x > 0, e, 0), -1), fnp.sum(e / 3, -1), fnp.sum(e * e, -1)


def moments(x: Any) -> Any:
    """Mean and deviation of numbers far from 0, of which the first is farther still."""
    x = x + fnp.where(fnp.arange(x.shape[-1]) == 0, -1e3, 300)
    return x.mean(-1), x.std(-1), fnp.var(x, axis=-1, ddof=1), ((x - x.sum(-1, keepdims=True) / 1e4) ** 2).sum(-1)


def places(x: Any, axis: int = -1) -> Any:
    return fnp.argmax(x, axis=axis), fnp.argmin(x, axis=axis)


def bits(x: Any) -> Any:
    return fnp.any(x > 100, axis=-1), fnp.all(x > -100, axis=-1), bind(REGISTRY["reduce_xor"], x, axes=(1,))


def ragged(sizes: list[int]) -> Callable[..., Any]:
    """A product of rows in groups, and its gradients."""

    def function(x: Any, w: Any, ct: Any) -> Any:
        product = lambda x, w: fuser.lax.ragged_dot(x, w, np.array(sizes, np.int32))
        return product(x, w), *fuser.vjp(product, x, w)[1](ct)

    return function


FORMS: dict[str, Form] = {
    # one axis; a scalar; several axes; neighbours along different axes
    "rows quantised to 8 bits": (quantised, (of("bfloat16", 20, 300), f32(300))),
    "rows quantised to 8 bits with infinities": (
        lambda x, w: quantised(x, w, "float8_e5m2"),
        (of("float16", 20, 300), f32(300)),
    ),
    "numbers of 8 bits": (lambda x, y: moved_bytes(x, y * 1e4), (of("float8_e4m3fn", 20, 33), f32(20, 33))),
    "numbers of 8 bits of AMD's": (lambda x, y: moved_bytes(x, y * 99), (of("float8_e5m2fnuz", 20, 33), f32(20, 33))),
    "product of 8 bits that are widened": (
        lambda x, w, s: (x @ w.astype("bfloat16")) * s,
        (of("bfloat16", 40, 64), of("float8_e4m3fn", 64, 48), of("bfloat16", 48)),
    ),
    "product of 8 bits that are made of others": (
        lambda x, w: fuser.lax.dot_general(
            (x * 2).astype("float8_e4m3fn"), w, (((1,), (0,)), ((), ())), preferred_element_type=F32
        ),
        (f32(40, 64), of("float8_e4m3fn", 64, 48)),
    ),
    "line": (lambda x: fnp.tanh(x) * 2 + 1, (f32(3000),)),
    "line of joined axes": (lambda x, y: fnp.maximum(x, y) - 0.5, (f32(7, 5, 64), f32(7, 5, 64))),
    "line of an odd size": (lambda x, y: (x * y, fnp.arange(3001) - x), (f32(3001), f32(3001))),
    "line of an odd size in bfloat16": (lambda x: fnp.exp(x) / 3, (of("bfloat16", 2051),)),
    "line of an odd size from an offset": (lambda x: x[1:] - x[:-1] + x[0], (f32(1030),)),
    "line of a whole block and three": (lambda x: 1 / (1 + abs(x)), (f32(1027),)),
    "line of many taps": (lambda x: sum(x[n : n + 2003] * (n + 1) for n in range(9)), (f32(2011),)),
    "plane of many taps": (
        lambda x: sum(x[n : n + 20, m : m + 60] for n in range(3) for m in range(5)),
        (f32(22, 64),),
    ),
    "scalar": (lambda x: fnp.sin(x) + 1, (f32(),)),
    "bfloat16 line": (lambda x: fnp.exp(x) / 3, (of("bfloat16", 1000),)),
    "float16 and float32": (lambda x, y: x.astype("float32") + y, (of("float16", 100), f32(100))),
    "float64 line": (lambda x: fnp.exp(x) * 0.1 + fnp.sqrt(abs(x)), (of("float64", 100),)),
    "integers": (lambda x, y: (x // y, x % y, x << 3, -x), (of("int32", 1000), of("int32", 1000))),
    "bytes": (lambda x: x * x + 200, (of("uint8", 1000),)),
    "rows and columns": (lambda x, y: x + y, (f32(40, 300), f32(300))),
    "sums of columns of 60": (lambda x: (fnp.cumsum(x, 0), x.max(0)), (f32(60, 130),)),
    "sums of columns of 20": (lambda x: x - x.sum(0), (f32(20, 130),)),
    "columns of three": (lambda x, y: x * y, (f32(500, 3), f32(3))),
    "groups": (ragged([3, 0, 90, 1, 40]), (f32(150, 40), f32(5, 40, 70), f32(150, 70))),
    "groups, more rows than there are": (
        ragged([128, 200, 10]),
        (of("bfloat16", 300, 64), of("bfloat16", 3, 64, 130), of("bfloat16", 300, 130)),
    ),
    "transposed": (lambda x: fnp.transpose(x) + 1, (f32(70, 90),)),
    "permuted": (lambda x: fnp.transpose(x, (2, 0, 1)) * 2, (f32(20, 30, 40),)),
    "broadcast outer": (lambda x, y: x[:, None] * y[None, :], (f32(50), f32(70))),
    "stencil": (lambda u: u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1], (f32(40, 50),)),
    "padded": (lambda x: fnp.pad(x, ((1, 2), (3, 0))) + 1, (f32(20, 30),)),
    "joined": (lambda x, y: fnp.concatenate([x, y * 2], axis=1), (f32(20, 30), f32(20, 11))),
    "reshaped": (lambda x: (x.reshape(6, 35) + 1).T, (f32(10, 21),)),
    "reversed": (lambda x: x[::-1, ::-1] * 2, (f32(20, 30),)),
    "gathered": (lambda x, i: x[i] + 1, (f32(50, 20), of("int32", 64))),
    "counted": (lambda x: x + fnp.arange(1000), (of("int32", 1000),)),
    # whole rows
    "softmax": (softmax, (f32(37, 100),)),
    "softmax of three": (softmax, (f32(300, 3),)),
    "softmax of 700": (softmax, (f32(5, 700),)),
    "softmax of 2000": (softmax, (f32(3, 2000),)),
    "softmax of 6000": (softmax, (f32(2, 6000),)),
    "softmax of 1025 in bfloat16": (softmax, (of("bfloat16", 3, 1025),)),
    "softmax of 100 in float16": (softmax, (of("float16", 30, 100),)),
    "softmax of 104 in bfloat16": (softmax, (of("bfloat16", 20, 104),)),
    "softmax of 20000 in bfloat16": (softmax, (of("bfloat16", 132, 20000),)),
    "layer norm of 17000 in bfloat16": (
        layer_norm,
        (of("bfloat16", 132, 17000), of("bfloat16", 17000), of("bfloat16", 17000)),
    ),
    "softmax of 1100": (softmax, (f32(3, 1100),)),
    "softmax of 3000, read ahead": (softmax, (of("bfloat16", 5, 3000),)),
    "layer norm of 3000, read ahead": (layer_norm, (f32(5, 3000), f32(3000), f32(3000))),
    "cross-entropy of 3000, read ahead": (cross_entropy, (f32(5, 3000), of("int32", 5))),
    "softmax of columns of 300": (lambda x: softmax(x, 0), (f32(300, 40),)),
    "norm of columns of 200": (lambda x: x / fnp.sqrt((x * x).mean(1, keepdims=True)), (of("bfloat16", 2, 200, 50),)),
    "sum of 40000": (lambda x: x.sum(), (f32(40000),)),
    "rows by what they share": (
        lambda x, y: (x / y, (x / x.max(-1, keepdims=True)).sum(-1)),
        (f32(40, 90), f32(40, 1)),
    ),
    "rows of two axes with a rest": (lambda x: x - x.sum((1, 2), keepdims=True), (f32(9, 10, 15),)),
    "places in rows of several blocks": (places, (f32(7, 150),)),
    "places in rows with a rest": (places, (f32(3, 600),)),
    "layer norm": (layer_norm, (f32(33, 128), f32(128), f32(128))),
    "layer norm gradients": (layer_norm_gradients, (f32(600, 700), f32(700), f32(700), f32(600, 700))),
    "layer norm gradients of short rows": (layer_norm_gradients, (f32(3, 90, 20), f32(20), f32(20), f32(3, 90, 20))),
    "rows and sums of columns": (lambda x: (softmax(x), (x * x).sum(0)), (of("bfloat16", 300, 130),)),
    "layer norm in bfloat16": (layer_norm, tuple(of("bfloat16", *s) for s in ((9, 128), (128,), (128,)))),
    "reductions": (reductions, (f32(20, 50),)),
    "reductions of bytes": (reductions, (of("int8", 20, 50),)),
    "reductions of float64": (reductions, (of("float64", 20, 50),)),
    "places": (places, (f32(20, 50),)),
    "places of integers": (places, (of("uint8", 20, 50),)),
    "bits": (bits, (of("int32", 20, 50),)),
    "several rows axes": (lambda x: fnp.sum(x * 2, axis=2), (f32(6, 7, 60),)),
    "outer and inner reduced": (lambda x: fnp.sum(x, axis=(0, 2)), (f32(6, 20, 15),)),
    "small full sum": (lambda x: fnp.sum(x), (f32(9, 11),)),
    # columns, with neighbours in memory side by side
    "column sum": (lambda x: fnp.sum(x * x, axis=0), (f32(40, 300),)),
    "column softmax": (lambda x: softmax(x, 0), (f32(60, 100),)),
    "middle sum": (lambda x: fnp.sum(x, axis=1), (f32(5, 20, 100),)),
    "column places": (lambda x: places(x, 0), (f32(30, 200),)),
    # scans
    "cumsum": (lambda x: fnp.cumsum(x, axis=1), (f32(20, 50),)),
    "cumulative maximum down columns": (lambda x: bind(REGISTRY["cummax"], x, axis=0, reverse=True), (f32(50, 40),)),
    "cumprod of integers": (lambda x: fnp.cumprod(x), (of("int32", 30),)),
    "normalised cumsum": (lambda x: fnp.cumsum(x, axis=1) / fnp.sum(x, axis=1, keepdims=True), (f32(20, 50),)),
    # products: with an epilogue, batched, of transposed operands, in several dtypes, of odd sizes
    "product": (
        lambda x, w, b: fnp.tanh(x @ w + b),
        (of("bfloat16", 40, 70), of("bfloat16", 70, 50), of("bfloat16", 50)),
    ),
    "float32 product": (lambda x, w: fnp.maximum(x @ w, 0), (f32(33, 20), f32(20, 65))),
    "transposed product": (lambda x, w: (x.T @ w.T) * 2, (of("float16", 48, 32), of("float16", 96, 48))),
    "batched product": (lambda x, w: x @ w, (of("bfloat16", 3, 20, 32), of("bfloat16", 3, 32, 24))),
    "batch of one matrix": (lambda x, w: x @ w, (of("bfloat16", 3, 20, 32), of("bfloat16", 32, 24))),
    "product to float32": (
        lambda x, w: fnp.matmul(x, w, preferred_element_type="float32") + 1,
        (of("bfloat16", 20, 32), of("bfloat16", 32, 24)),
    ),
    "vector times matrix": (lambda x, w: x @ w + 1, (f32(40), f32(40, 30))),
    "product of sliced operands": (lambda x, w: x[3:, 1:33] @ w[::2], (f32(20, 40), f32(64, 24))),
    "product used twice": (lambda x, w: (x @ w, fnp.exp(x @ w)), (of("float16", 20, 32), of("float16", 32, 24))),
}

# Rows and columns longer than a block, for the blocks of `shrink`: loops, and few rows shared out over chunks.
LONG: dict[str, Form] = {
    "long rows": (softmax, (f32(9, 300),)),
    "long columns": (lambda x: fnp.max(x, axis=0), (f32(150, 200),)),
    "long cumsum": (lambda x: fnp.cumsum(x, axis=1), (of("int32", 6, 300),)),
    "long reverse cumsum": (lambda x: bind(REGISTRY["cumsum"], x, axis=1, reverse=True) * 2, (of("int32", 6, 300),)),
    "long cumulative logarithm": (lambda x: bind(REGISTRY["cumlogsumexp"], x, axis=1, reverse=False), (f32(2, 300),)),
    "split cumsum": (lambda x: fnp.cumsum(x) - 1, (of("int32", 3000),)),
    "split cumsum of floats": (lambda x: fnp.cumsum(abs(x)) * 2, (f32(20_000),)),
    "split cumsum of rows": (lambda x: fnp.cumsum(x, axis=1), (f32(2, 3000),)),
    "split scans": (lambda x, y: (fnp.cumsum(x), fnp.cumsum(y)), (f32(3000), of("float64", 3000))),
    "split products": (lambda x: fnp.cumprod(x), (of("int32", 3000),)),
    "split largest so far": (lambda x: fuser.lax.cummax(x, reverse=True), (of("bfloat16", 3000),)),
    "split reverse cumsum": (lambda x: bind(REGISTRY["cumsum"], x, axis=0, reverse=True), (of("int16", 1500),)),
    "split cummax of rows": (lambda x: bind(REGISTRY["cummax"], x, axis=1, reverse=False), (f32(2, 900),)),
    "split normalised cumsum": (lambda x: fnp.cumsum(x / fnp.max(x)) / fnp.sum(abs(x)), (of("float64", 2000),)),
    "split cumsum down columns": (lambda x: fnp.cumsum(x, axis=0), (of("int32", 700, 20),)),
    "full sum": (lambda x: fnp.sum(x), (f32(3000),)),
    "few long rows": (softmax, (f32(2, 700),)),
    "long layer norm": (layer_norm, (f32(2, 700), f32(700), f32(700))),
    "long places": (places, (f32(2, 700),)),
    "long places down columns": (lambda x: places(x, 0), (f32(500, 20),)),
    "long reductions of bytes": (reductions, (of("int8", 2, 700),)),
    "long bits": (bits, (of("int32", 2, 700),)),
    "long reductions of float64": (reductions, (of("float64", 700),)),
    "long logsumexp": (lambda x: fuser.nn.logsumexp(x, axis=-1), (f32(9, 300),)),
    "few long logsumexp": (lambda x: fuser.nn.logsumexp(x, axis=-1), (f32(2, 700),)),
    "long rows of nothing": (lambda x: online_sums(x - fnp.inf), (f32(6, 300),)),
    "long online sums": (online_sums, (f32(6, 300),)),
    "few long online sums": (online_sums, (of("float64", 2, 700),)),
    "long moments": (moments, (f32(9, 300),)),
    "few long moments": (moments, (f32(2, 700),)),
    "moments of all": (lambda x: (x.mean(), x.std()), (of("float64", 3000),)),
    "long cross-entropy": (cross_entropy, (of("bfloat16", 6, 300), of("int32", 6))),
    "tall column sum": (lambda x: fnp.sum(x * x, axis=0), (f32(700, 40),)),
    "tall column softmax": (lambda x: softmax(x, 0), (f32(700, 20),)),
    "tall middle softmax": (lambda x: softmax(x, 1), (f32(2, 300, 20),)),
}

LARGE: dict[str, Form] = {
    "softmax": (softmax, (f32(4096, 4096),)),
    "softmax in bfloat16": (softmax, (of("bfloat16", 4096, 8192),)),
    "layer norm": (layer_norm, (f32(4096, 4096), f32(4096), f32(4096))),
    "column sum": (lambda x: fnp.sum(x * x, axis=0), (f32(4096, 4096),)),
    "full sum": (lambda x: fnp.sum(x), (f32(1 << 24),)),
    "polynomial": (lambda x, y: 0.5 * x * x * x + 2 * x * x * y - y, (f32(1 << 24), f32(1 << 24))),
    "long softmax": (softmax, (f32(4096, 40000),)),
    "few long rows": (softmax, (f32(2, 1 << 20),)),
    "few long cross-entropy": (cross_entropy, (of("bfloat16", 128, 1 << 18), of("int32", 128))),
    "long cumsum": (lambda x: fnp.cumsum(x, axis=1), (f32(3000, 40000),)),
    "split cumsum": (lambda x: fnp.cumsum(x), (f32(1 << 24),)),
    "long places": (places, (f32(2, 1 << 20),)),
    "product in bfloat16": (
        lambda x, w, b: fnp.maximum(x @ w + b, 0),
        (of("bfloat16", 4096, 1024), of("bfloat16", 1024, 4096), of("bfloat16", 4096)),
    ),
    "attention in bfloat16": (grouped, (of("bfloat16", 4, 4096, 8, 128), *(of("bfloat16", 4, 4096, 2, 128),) * 2)),
    "attention": (grouped, (f32(4, 1024, 8, 64), *(f32(4, 1024, 2, 64),) * 2)),
    "short product": (lambda x, w: fnp.tanh(x @ w), (f32(1 << 16, 64), f32(64, 64))),
    "past 32 bits": (lambda x: x + 1, (of("uint8", 3, 1 << 30),)),
    "rows past 32 bits": (lambda x: fnp.sum(x, axis=1), (of("int8", 1 << 16, 1 << 16),)),
}


def arrays(types: tuple[ArrayType, ...], special: bool = False) -> tuple[np.ndarray, ...]:
    """Random arguments; with `special`, some of the floats are nan, infinite or minus zero."""
    random = np.random.default_rng(3)
    result = []
    for number, aval in enumerate(types):
        if aval.dtype.kind in "iu":
            low = 0 if aval.dtype.kind == "u" or number else -9
            array = random.integers(low, 12, aval.shape)
        else:
            array = random.standard_normal(aval.shape)
            if special and aval.shape:
                flat = array.reshape(-1)
                flat[random.integers(0, flat.size, 5)] = [np.nan, np.inf, -np.inf, -0.0, 0.0]
        result.append(np.asarray(array).astype(aval.dtype))
    return tuple(result)


def shrink() -> None:
    """Make blocks so small that the interpreter reaches loops and chunks quickly."""
    block_sizes.LONGEST_ROW, block_sizes.ONE_WAVE = 16, 16
    block_sizes._COLUMNS = ((16, block_sizes.Tile(8, 16, 4)),)
    block_sizes.LONG_ROW = block_sizes.Tile(1, 64, 4, True)
    block_sizes._LONG_COLUMNS = ((32, block_sizes.Tile(32, 16, 4, True)),)
    block_sizes._LONG_COLUMN = block_sizes.Tile(64, 16, 4, True)
    block_sizes.FEW = 4


def in_order() -> None:
    """Combine updates of one element in the order of their targets, never by atomics."""
    accumulators.form_of = lambda eqn: None


# Suites of functions on drawn arrays: the functions, which of them see special values too, and what comes first.
DRAWN: dict[str, tuple[dict[str, Any], Callable[[str, Any], bool], Callable[[], None] | None]] = {
    "forms": (FORMS, lambda name, types: False, None),
    "horizontal": (HORIZONTAL, lambda name, types: False, None),
    "products": (PRODUCTS, lambda name, types: False, None),
    "attention": ({**ATTENTION, **GRADIENTS}, lambda name, types: False, None),
    "reduced products": (REDUCED_PRODUCTS, lambda name, types: False, None),
    "orders": (ORDERS, lambda name, types: "float32" in name, None),
    "selections": (SELECTIONS, lambda name, types: any(w in name for w in ("rounds", "float", "half")), None),
    "scatters": (SCATTERS, lambda name, types: name.split()[-1] in ("float32", "bfloat16", "float64"), None),
    "counted scatters": (COUNTED, lambda name, types: "float" in name, None),
    "scatters by buckets": (IN_BUCKETS, lambda name, types: "float" in name, lambda: small_buckets(64)),
    "scatters in order": (IN_ORDER, lambda name, types: False, in_order),
    "long": (LONG, lambda name, types: all(t.dtype.kind == "f" for t in types), shrink),
}


def cases(suite: str) -> Iterator[tuple[str, Callable[..., Any], tuple[np.ndarray, ...]]]:
    """The cases of one suite."""
    if suite in DRAWN:
        forms, has_special, before = DRAWN[suite]
        if before is not None:
            before()
        for name, (function, types) in forms.items():
            yield name, function, arrays(types)
            if has_special(name, types):
                yield f"{name} with special values", function, arrays(types, special=True)
    elif suite == "loops":
        for name, (function, arguments) in {**ONE_KERNEL, **WITH_LANES, **DTYPES, **EDGES}.items():
            yield f"loop {name}", function, arguments
    elif suite == "control":
        for name in CONTROL:
            program, values = PROGRAMS[name]
            yield (
                f"control {name}",
                lambda *a, program=program: tree.leaves(program(fuser, *a)),
                tuple(map(np.array, values)),
            )
    elif suite == "transforms":
        for steps, transforms in compositions.drawn(7, 12):
            program = compositions.build(fuser, steps, transforms)
            yield f"{transforms} of {steps}", program, (compositions.POINT,)
    elif suite == "eager":
        for name in ("line", "softmax", "layer norm", "places", "stencil", "gathered", "cumsum", "integers", "bytes"):
            function, types = FORMS[name]
            yield f"eager {name}", function, arrays(types)
    elif suite == "special values":
        names = (
            "line",
            "softmax",
            "softmax of 1025 in bfloat16",
            "softmax of 20000 in bfloat16",
            "rows by what they share",
            "places in rows with a rest",
        )
        names += ("reductions", "places", "cumsum", "column places", "float64 line", "bfloat16 line")
        for name in names:
            function, types = FORMS[name]
            yield f"{name} with special values", function, arrays(types, special=True)
    else:
        for workload in WORKLOADS.values():
            first, *rest = workload.inputs("tiny")
            inputs = (first[:256] if workload.random else first, *rest)  # right by the same keys, not by large numbers
            yield workload.name, lambda *a, workload=workload: workload.run(fuser, a), inputs


# Control flow that is no kernel of its own, or whose parts are.
CONTROL = (
    "scan", "scan with sums", "scan with a sort", "scan that swaps", "scan of a transpose", "branches and loops inside",
    "while", "while over a tree", "cond", "cond over trees", "switch", "map",
)  # fmt: skip

# Forms whose text is, but for names and block sizes, that of another one: the interpreter alone runs them.
ALIKE = frozenset(
    (
        "line of joined axes",
        "permuted",
        "broadcast outer",
        "reversed",
        "counted",
        "softmax of three",
        "softmax of 700",
        "several rows axes",
        "outer and inner reduced",
        "small full sum",
        "middle sum",
        "batch of one matrix",
        "product to float32",
        "vector times matrix",
        "product of sliced operands",
        "product used twice",
    )
)


ONE_KEY = (ArrayType((), KEY),)
RANDOM: dict[str, Form] = {  # run in the interpreter by tests/random
    "bits": (lambda key: random.bits(key, (1000,)), ONE_KEY),
    "keys of keys": (lambda key: random.uniform(random.fold_in(random.split(key)[1], 3), (100,)), ONE_KEY),
    "split": (lambda key: random.split(key, 5), ONE_KEY),
    "normal": (lambda key: random.normal(key, (1000, 1000)).sum(), ONE_KEY),
    "bounds": (lambda key: random.uniform(key, (100,), minval=-1.0, maxval=3.0), ONE_KEY),
    "gamma": (lambda key: random.gamma(key, 2.5, (1000,)), ONE_KEY),
    "old key": (lambda key: random.normal(key, (50,)), (ArrayType((2,), np.dtype("uint32")),)),
}


def pairs() -> Iterator[tuple[str, Form]]:
    """What is compiled ahead of time: forms and large sizes, with a name each."""
    forms = ((name, form) for name, form in FORMS.items() if name not in ALIKE)
    loops = ((f"loop {name}", form) for name, form in {**ONE_KERNEL, **WITH_LANES, **DTYPES}.items())
    draws = ((f"random {name}", form) for name, form in RANDOM.items())
    scatters = ((f"scatter {name}", form) for name, form in {**SCATTERS, **COUNTED}.items())
    orders = ((f"order of {name}", form) for name, form in ORDERS.items())
    selections = ((f"selection {name}", form) for name, form in SELECTIONS.items())
    large = ((f"large {name}", form) for name, form in LARGE.items())
    yield from itertools.chain(forms, draws, large, loops, scatters, orders, selections)
