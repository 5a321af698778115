"""How a family of primitives is stated: `elementwise(...)` and what the type rules of all families share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from fuser.errors import TypeRuleError, UnsupportedError
from fuser.ir import scalar
from fuser.ir.primitive import REGISTRY, Fusion, Primitive, register
from fuser.ir.scalar import Scalar
from fuser.ir.source import current_source
from fuser.ir.types import (
    BOOL,
    FLOATS,
    INT1_4,
    KEY,
    SIGNED,
    SMALL_FLOATS,
    UINT1_4,
    UNSIGNED,
    ArrayType,
    bfloat16,
    float8_e8m0fnu,
    is_complex,
    is_float,
    is_integer,
    is_key,
    short_dtype,
)
from fuser.runtime.array import Array
from fuser.trace.batch import aligned
from fuser.trace.hoisting import number
from fuser.trace.tangent import Undefined

# A result rule: the output dtype from the operands' dtypes and the params.
Result = Callable[..., np.dtype]

SHAPE = (5, 7)
# The dtype that arithmetic of a small one is done in.
WIDER = {
    **dict.fromkeys(SMALL_FLOATS, FLOATS[2]),
    **dict.fromkeys(INT1_4, SIGNED[0]),
    **dict.fromkeys(UINT1_4, UNSIGNED[0]),
}
_ROUNDED = WIDER | dict.fromkeys((FLOATS[0], bfloat16), FLOATS[2])


def same(*dtypes: np.dtype, **params: Any) -> np.dtype:
    """The result has the operands' dtype."""
    return dtypes[0]


def boolean(*dtypes: np.dtype, **params: Any) -> np.dtype:
    """The result is bool."""
    return BOOL


def real_part(*dtypes: np.dtype, **params: Any) -> np.dtype:
    """The result has the dtype of a complex operand's parts."""
    return np.dtype(f"float{dtypes[0].itemsize * 4}") if is_complex(dtypes[0]) else dtypes[0]


def common_shape(name: str, avals: Sequence[ArrayType]) -> tuple[int, ...]:
    """The one shape of all operands of rank > 0; scalars go with any."""
    shape: tuple[int, ...] = ()
    for aval in avals:
        if aval.shape:
            if shape and aval.shape != shape:
                types = " and ".join(map(str, avals))
                raise TypeRuleError(f"{name} needs equal shapes, got {types}; broadcast one of them first")
            shape = aval.shape
    return shape


def allow(name: str, aval: ArrayType, dtypes: Sequence[np.dtype], position: int = 0) -> None:
    """TypeRuleError unless the operand's dtype is one of `dtypes`."""
    if aval.dtype not in dtypes and not (KEY in dtypes and is_key(aval.dtype)):
        names = ", ".join(short_dtype(d) for d in dtypes)
        raise TypeRuleError(
            f"{name} does not accept dtype {aval.dtype.name} at position {position}: got {aval}; it takes {names}; convert it first"
        )


CALLS: set[Primitive] = set()  # those on single elements that are library calls


def elementwise(
    name: str,
    dtypes: Sequence[np.dtype],
    *,
    eval: Callable[..., Any] | None = None,
    lower: Callable[..., Scalar] | None = None,
    both: Callable[..., Any] | None = None,
    arity: int = 1,
    result: Result = same,
    mixed: bool = False,
    wide: bool = False,
    rounded: bool = True,
    jvp: Any = None,
    transpose: Callable[..., Any] | None = None,
    linear: bool = False,
    domain: tuple[float, float] = (-3.0, 3.0),
    params: Iterable[dict[str, Any]] = ({},),
    type: Callable[..., ArrayType] | None = None,
    small: Iterable[np.dtype] = WIDER,
    expand: Callable[..., Any] | None = None,
) -> Primitive:
    """A primitive on single elements.

    `eval` takes NumPy arrays and `lower` scalars; `both(*operands, m, **params)` is one definition for the two, with `m`
    the module of functions (numpy or ir.scalar). Operands share one dtype unless `mixed`; `domain` is where random
    samples are drawn; each of `params` is tried by the registry test. `wide` is for rules with constants that float16 and
    bfloat16 would round: kernels compute them in float32. With `rounded` (the rule) `eval` gets those two as float32.
    With `eval` alone it is a library call, and `expand` says the same by other primitives, in a program. Dtypes of `small` go where float32, int8 or uint8 do; ml_dtypes converts them.
    """
    taken = (*dtypes, *(d for d in small if WIDER[d] in dtypes))
    if both is not None:
        eval = functools.partial(both, m=np)
        lower = lambda *operands, **p: both(*operands, m=scalar, **p)

    def infer(*avals: ArrayType, **p: Any) -> ArrayType:
        if len(avals) != arity:
            raise TypeRuleError(f"{name} takes {arity} operands, got {len(avals)}")
        allow(name, avals[0], taken)
        if not mixed and any(a.dtype != avals[0].dtype for a in avals):
            raise TypeRuleError(
                f"{name} needs equal dtypes, got {' and '.join(map(str, avals))}; convert one of them first"
            )
        dtype = result(*(a.dtype for a in avals), **p)
        return ArrayType(common_shape(name, avals), dtype, all(a.weak_type for a in avals))

    primitive = Primitive(
        name,
        Fusion.ELEMENTWISE if lower is not None else Fusion.LIBRARY,
        linear=linear,
        type=type or infer,
        eval=_precise(eval, _ROUNDED if rounded else WIDER),
        lower=_widened(lower) if wide and lower is not None else lower,
        jvp=jvp,
        transpose=transpose,
        expand=expand,
        samples=lambda: _samples(dtypes, arity, domain, params),
    )
    primitive.batch = batch_elementwise(primitive)
    if lower is None:
        CALLS.add(primitive)
    return register(primitive)


def batch_elementwise(primitive: Primitive) -> Callable[..., Any]:
    """The batch rule of every primitive on single elements: operands aligned, the primitive applied."""

    def rule(operands: Sequence[Any], dims: Sequence[int | None], **params: Any) -> tuple[Any, int]:
        values, dim = aligned(operands, dims)
        return primitive.bind(*values, **params), dim

    return rule


def unbroadcast(cotangent: Any, operand: Any) -> Any:
    """The cotangent of an operand that may have rank 0 beside a result that has not: summed to its shape."""
    shape = operand.aval.shape if isinstance(operand, Undefined) else operand.shape
    if cotangent.shape == shape:
        return cotangent
    return REGISTRY["reduce_sum"].bind(cotangent, axes=tuple(range(len(cotangent.shape))))


def constant(value: Any, like: Any) -> Array:
    """A number as an array of rank 0 in the dtype of `like`, for rules of derivatives."""
    return number(Array(np.asarray(value).astype(like.dtype)))


def underivable(function: str, operand: str) -> Callable[..., Any]:
    """The rule of an operand with respect to which no derivative is known: it raises when one is asked for."""

    def rule(*values: Any, **params: Any) -> Any:
        raise UnsupportedError(
            f"{function} has no derivative with respect to {operand} ({current_source().short}); "
            f"hold {operand} constant with fuser.lax.stop_gradient"
        )

    return rule


def not_both(name: str, x: Any, y: Any) -> None:
    """TypeError where a product is to be transposed with respect to both factors: the function is not linear."""
    if isinstance(x, Undefined) and isinstance(y, Undefined):
        raise TypeRuleError(
            f"{name} of {x.aval} and {y.aval} is not linear: both depend on the inputs, so it has no transpose; "
            f"linear_transpose takes linear functions, use vjp for others ({current_source().short})"
        )


def linear_in(operand: Any) -> bool:
    """Whether a transpose rule is asked for this operand's cotangent."""
    return isinstance(operand, Undefined)


def _precise(function: Callable[..., Any] | None, wider: dict[np.dtype, np.dtype]) -> Callable[..., Any]:
    """The rule with the dtypes of `wider` computed in what they are mapped to, and rounded or wrapped once."""
    assert function is not None

    def rule(*operands: np.ndarray, **params: Any) -> Any:
        narrow = operands[0].dtype
        wide = wider.get(narrow)
        if wide is None:
            return function(*operands, **params)
        values = (o.astype(wide) if o.dtype == narrow else o for o in operands)
        out = np.asarray(function(*values, **params))
        return out.astype(narrow) if out.dtype == wide else out

    rule.exact = lambda dtype: rule if dtype in wider else function  # type: ignore[attr-defined]
    return rule


def _widened(lower: Callable[..., Scalar] | None) -> Callable[..., Scalar]:
    """The same for a `lower` rule."""
    assert lower is not None

    def rule(*operands: Scalar, **params: Any) -> Scalar:
        narrow = operands[0].dtype
        if narrow not in (FLOATS[0], bfloat16):
            return lower(*operands, **params)
        return scalar.cast(lower(*(scalar.cast(o, FLOATS[2]) for o in operands), **params), narrow)

    return rule


def _samples(
    dtypes: Sequence[np.dtype], arity: int, domain: tuple[float, float], params: Iterable[dict[str, Any]]
) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    for seed, dtype in enumerate(dtypes):
        for p in params:
            rng = np.random.default_rng(seed)
            yield tuple(sample(rng, SHAPE, dtype, domain) for _ in range(arity)), p


def sample(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype, domain: tuple[float, float] = (-3.0, 3.0)
) -> np.ndarray:
    """Random values of any dtype, within `domain` for numbers that can be."""
    if dtype == BOOL:
        return rng.random(shape) < 0.5
    if dtype == KEY:
        return rng.integers(0, 4, (*shape, 2)).astype(np.uint32).view(KEY)[..., 0]
    if dtype in WIDER and is_integer(dtype):
        return rng.integers(0, 10, shape).astype(dtype)
    if dtype.kind in "iu":
        low = max(np.iinfo(dtype).min, -9 if domain[0] < 0 else 0)
        return rng.integers(low, 10, shape).astype(dtype)
    values = rng.uniform(*domain, shape)
    if is_complex(dtype):
        return (values + 1j * rng.uniform(*domain, shape)).astype(dtype)
    assert is_float(dtype)
    return (np.abs(values) if dtype == float8_e8m0fnu else values).astype(dtype)  # which has no sign
