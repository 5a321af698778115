"""NumPy's ufuncs on traced arrays: NumPy decides the dtypes (`ufunc.resolve_dtypes`), fuser.numpy's functions compute.

The table maps each ufunc to a function of operands that have the dtypes of NumPy's loop already. Known operands alone are
computed by NumPy at once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser.interop.numpy import scipy
from fuser.interop.numpy.checks import (
    ALL_KINDS,
    KINDS,
    QUOTIENT,
    exempted,
    in_numpy,
    notice,
    notice_new,
    notice_overflow,
    notice_quotient_overflow,
)
from fuser.interop.numpy.context import Context, to_dtype, untraceable
from fuser.interop.numpy.indexing import setitem
from fuser.interop.numpy.layout import kept_order
from fuser.interop.numpy.selected import Selected, alike
from fuser.interop.numpy.time_ufuncs import call as times
from fuser.interop.numpy.time_ufuncs import needs_time
from fuser.interop.numpy.traced import EITHER, EitherInteger, TracedArray
from fuser.interop.read_only import is_sequence
from fuser.ir.types import BOOL, is_complex, is_inexact
from fuser.lax.values import broadcast_to, literal
from fuser.numpy import maths as M
from fuser.numpy import ufuncs as U
from fuser.ops import elementwise as E
from fuser.runtime.array import Array
from fuser.trace.core import Tracer, bind

Kind = Any  # a dtype, or the type of a Python number, which is weak
_WEAK = (int, float, complex)
Function = Callable[..., Any]


# What NumPy does and JAX does not: division of integers by zero, powers.


def _zero(y: Any) -> Any:
    return U.equal(y, literal(0, y.dtype))


def _notice_division(x: Any, y: Any, overflows: bool = False) -> None:
    """Have NumPy tell of integers divided by zero, and of the quotient of the least one by -1."""
    notice(_zero(y))
    if overflows and x.dtype.kind == "i":
        least = U.equal(x, literal(int(np.iinfo(x.dtype).min), x.dtype))
        notice(U.logical_and(least, U.equal(y, literal(-1, y.dtype))))


def _floor_divide(x: Any, y: Any) -> Any:
    if not is_inexact(x.dtype):
        _notice_division(x, y, overflows=True)
    if is_inexact(x.dtype):
        plain = M.floor_divide(x, y)
        return M.select(*_same_shape(_zero(y), U.true_divide(x, y), plain))
    return M.select(*_same_shape(_zero(y), literal(0, x.dtype), M.floor_divide(x, _nonzero(y))))


def _nonzero(y: Any) -> Any:
    return M.select(_zero(y), literal(1, y.dtype), y)


def _same_shape(*values: Any) -> list[Any]:
    shape = np.broadcast_shapes(*(v.shape for v in values))
    return [v if not v.shape else broadcast_to(v, shape) for v in values]


def _remainder(x: Any, y: Any) -> Any:
    if is_inexact(x.dtype):
        return M.remainder(x, y)
    _notice_division(x, y)
    return M.select(*_same_shape(_zero(y), literal(0, x.dtype), M.remainder(x, _nonzero(y))))


def _fmod(x: Any, y: Any) -> Any:
    if is_inexact(x.dtype):
        return M.fmod(x, y)
    _notice_division(x, y)
    return M.select(*_same_shape(_zero(y), literal(0, x.dtype), M.fmod(x, _nonzero(y))))


def _divmod(x: Any, y: Any) -> tuple[Any, Any]:
    return _floor_divide(x, y), _remainder(x, y)


def _reciprocal(x: Any) -> Any:
    if is_inexact(x.dtype):
        return U.divide(literal(1.0, x.dtype), x)
    _notice_division(x, x)
    return bind(E.div_p, literal(1, x.dtype), x)


def _power(x: Any, y: Any) -> Any:
    if not is_inexact(x.dtype):
        if isinstance(y, Array) and not y.shape:
            if int(np.asarray(y)) < 0:
                raise ValueError("Integers to negative integer powers are not allowed.")
            return _repeated(x, int(np.asarray(y))) if int(np.asarray(y)) < 64 else U.power(x, y)
        return _power_of_integers(x, y)
    if isinstance(y, Array) and not y.shape:
        exponent = np.asarray(y)[()]
        if exponent in (-1, 0, 1, 2, 3, 4):
            return _repeated(x, int(exponent.real))
        if exponent == 0.5 and not is_complex(x.dtype):
            return bind(E.sqrt_p, x)
        if x.dtype in (np.float32, np.float64) and float(exponent) in SHORT_POWERS:
            return _short_power(x, float(exponent))
    return U.power(x, y)


# Exponents whose powers are few products, roots and quotients, within 3 eps.
SHORT_POWERS = frozenset((5.0, 6.0, 7.0, 8.0, -2.0, -3.0, -4.0, 1.5, 2.5, 3.5, -0.5, -1.5, -2.5))


def _short_power(x: Any, exponent: float) -> Any:
    """x to a whole or half exponent. One below -1/2 inverts first, so that nothing underflows before the result does."""
    whole, half = divmod(abs(exponent), 1.0)
    if half:  # of -0 and -inf as of 0 and inf
        infinite = U.equal(x, literal(-np.inf, x.dtype))
        x = M.select(infinite, bind(E.abs_p, x), U.add(x, literal(0.0, x.dtype)))
    if exponent == -0.5:
        return U.divide(literal(1.0, x.dtype), bind(E.sqrt_p, x))
    if exponent < 0:
        x = U.divide(literal(1.0, x.dtype), x)
    power = _repeated(x, int(whole))
    return bind(E.mul_p, power, bind(E.sqrt_p, x)) if half else power


def _repeated(x: Any, exponent: int) -> Any:
    if exponent == 2:
        return bind(E.square_p, x)
    return x if exponent == 1 else bind(E.integer_pow_p, x, y=exponent)


def _power_of_integers(x: Any, y: Any) -> Any:
    if y.dtype.kind == "i":
        notice(U.less(y, literal(0, y.dtype)))  # NumPy's ValueError
    return U.power(x, y)


def _rint(x: Any) -> Any:
    return U.rint(x)


def _matmul(x: Any, y: Any) -> Any:
    from fuser.numpy import linear

    return linear.matmul(x, y)


def _vecdot(x: Any, y: Any) -> Any:
    from fuser.numpy import reductions

    return reductions.sum(U.multiply(M.conj(x) if is_complex(x.dtype) else x, y), axis=-1, promote_integers=False)


def _from_maths(name: str) -> Function:
    """A function of fuser.numpy that is looked up when used, because it lies in a module that loads late."""

    def function(*operands: Any) -> Any:
        import fuser.numpy

        return getattr(fuser.numpy, name)(*operands)

    return function


_SAME_NAME = (
    *[
        "add",
        "subtract",
        "multiply",
        "maximum",
        "minimum",
        "negative",
        "positive",
        "absolute",
        "fabs",
        "square",
        "sign",
        "sqrt",
        "cbrt",
        "exp",
        "exp2",
        "expm1",
        "log",
        "log1p",
        "log2",
        "log10",
    ],
    *[
        "sin",
        "cos",
        "tan",
        "arcsin",
        "arccos",
        "arctan",
        "sinh",
        "cosh",
        "tanh",
        "arcsinh",
        "arccosh",
        "arctanh",
        "arctan2",
        "nextafter",
    ],
    *[
        "equal",
        "not_equal",
        "less",
        "less_equal",
        "greater",
        "greater_equal",
        "logical_and",
        "logical_or",
        "logical_xor",
        "logical_not",
    ],
    *["bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift", "floor", "ceil", "trunc"],
    *[
        "fmax",
        "fmin",
        "hypot",
        "logaddexp",
        "logaddexp2",
        "heaviside",
        "isnan",
        "isinf",
        "isfinite",
        "signbit",
        "copysign",
        "frexp",
        "ldexp",
        "modf",
        "deg2rad",
        "rad2deg",
    ],
)
TABLE: dict[np.ufunc, Function] = {
    **{getattr(np, name): getattr(U, name, None) or getattr(M, name) for name in _SAME_NAME},
    np.true_divide: U.true_divide,
    np.floor_divide: _floor_divide,
    np.remainder: _remainder,
    np.fmod: _fmod,
    np.divmod: _divmod,
    np.power: _power,
    np.float_power: _power,
    np.reciprocal: _reciprocal,
    np.rint: _rint,
    np.invert: U.bitwise_not,
    np.degrees: M.rad2deg,
    np.radians: M.deg2rad,
    np.conjugate: lambda x: M.conj(x) if is_complex(x.dtype) else x,
    np.matmul: _matmul,
    np.vecdot: _vecdot,
    np.gcd: _from_maths("gcd"),
    np.lcm: _from_maths("lcm"),
}
if hasattr(np, "bitwise_count"):
    TABLE[np.bitwise_count] = M.bitwise_count
_COMPARISONS = frozenset((np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal))
_CONTRACTIONS = frozenset((np.matmul, np.vecdot))


# The protocol.


def dispatch(context: Context, ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What `__array_ufunc__` does."""
    outputs = kwargs.pop("out", None) or ()
    if method == "__call__":
        result = (
            call(context, ufunc, inputs, **kwargs) if not outputs else _into(context, ufunc, inputs, outputs, kwargs)
        )
        return result
    from fuser.interop.numpy.ufunc_methods import METHODS

    handler = METHODS.get(method)
    if handler is None:
        raise untraceable(f"np.{ufunc.__name__}.{method} cannot be traced", "use whole-array operations")
    result = handler(context, ufunc, *inputs, **kwargs)
    return store(result, outputs[0]) if outputs and outputs[0] is not None else result


def store(result: Any, target: Any) -> Any:
    """Write a result to an `out=` array; returns that array."""
    if not isinstance(target, TracedArray):
        raise untraceable(
            "out= names an array that was not made in the traced function, and the caller would not see it change",
            "make it with np.zeros_like(x)",
        )
    dtype = result.dtype if hasattr(result, "dtype") else np.asarray(result).dtype
    if not np.can_cast(dtype, target.dtype, "same_kind"):
        raise TypeError(f"Cannot cast output from {dtype!r} to {target.dtype!r} with casting rule 'same_kind'")
    setitem(target, Ellipsis, result)
    return target


def _into(context: Context, ufunc: np.ufunc, inputs: Any, outputs: Any, kwargs: dict[str, Any]) -> Any:
    where = kwargs.pop("where", True)
    with exempted(masked=where is not True):
        results = call(context, ufunc, inputs, **kwargs)
    several = isinstance(results, tuple)
    stored = []
    for result, target in zip(results if several else (results,), outputs):
        if target is None:
            stored.append(result)
            continue
        if where is not True and isinstance(target, TracedArray):
            if isinstance(result, TracedArray) and not result.known:
                notice_new(result.lifted(), operand(context, where, BOOL))
            result = choose(context, where, result, target)
        _check_casting(ufunc, result.dtype, target, kwargs.get("casting", "same_kind"))
        stored.append(store(result, target))
    return tuple(stored) if several else stored[0]


def _check_casting(ufunc: np.ufunc, dtype: np.dtype, target: Any, casting: Any) -> None:
    if not np.can_cast(dtype, target.dtype, casting):
        raise TypeError(
            f"Cannot cast ufunc {ufunc.__name__!r} output from {dtype!r} to {target.dtype!r} with casting rule {casting!r}"
        )


def choose(context: Context, condition: Any, x: Any, y: Any) -> TracedArray:
    """`np.where` in the dtype of `y`, whose shape the result has."""
    mask = operand(context, condition, BOOL)
    chosen, other = operand(context, x, y.dtype), operand(context, y, y.dtype)
    values = [v if not v.shape else broadcast_to(v, tuple(y.shape)) for v in (mask, other, chosen)]
    if not values[1].shape:
        values[1] = broadcast_to(values[1], tuple(y.shape))
    return TracedArray(context, bind(E.select_n_p, *values))


# A call.


def kind_of(x: Any) -> Kind:
    """How NumPy's promotion sees an operand: its dtype, or Python's int, float or complex."""
    if isinstance(x, TracedArray):
        return x.weak if x.weak in _WEAK else x.dtype
    if type(x) in _WEAK:
        return type(x)
    return x.dtype if hasattr(x, "dtype") else np.asarray(x).dtype


def check_kinds(ufunc: np.ufunc, inputs: Sequence[Any], dtype: Any) -> None:
    """Refuse an operand that may be a Python number or a NumPy scalar, where the result's dtype depends on which."""
    if not any(isinstance(x, TracedArray) and x.weak in EITHER for x in inputs):
        return
    weak = {"i": int, "f": float, "c": complex}
    kinds = [kind_of(x) for x in inputs]
    others = [weak.get(k.kind, k) if getattr(x, "weak", None) in EITHER else k for x, k in zip(inputs, kinds)]
    integers = [int if getattr(x, "weak", None) is EitherInteger else k for x, k in zip(inputs, others)]
    found = {loop_dtypes(ufunc, tuple(alternative), dtype) for alternative in (kinds, others, integers)}
    if len(found) > 1:
        raise untraceable(
            f"np.{ufunc.__name__} of a value that is a Python number or a NumPy scalar, as values decide, cannot be traced",
            "make it float(x) or np.float64(x) in all cases",
        )


@functools.lru_cache(8192)
def loop_dtypes(ufunc: np.ufunc, kinds: tuple[Kind, ...], dtype: Any) -> tuple[np.dtype, ...]:
    """The dtypes of operands and results that NumPy chooses."""
    operands = (*kinds, *(None,) * ufunc.nout)
    if dtype is None:
        return ufunc.resolve_dtypes(operands)
    return ufunc.resolve_dtypes(operands, signature=(*(None,) * ufunc.nin, *(dtype,) * ufunc.nout))


def operand(context: Context, x: Any, dtype: np.dtype) -> Any:
    """An operand as primitives take it, in `dtype`; OverflowError for a Python int that does not fit, as in NumPy."""
    if isinstance(x, TracedArray):
        return x.lifted(dtype)
    if type(x) in _WEAK or type(x) is bool:
        return Array(np.asarray(x, dtype))
    if isinstance(x, (Tracer, Array)):
        return to_dtype(x, dtype)
    return context.constant(x, dtype)


def call(
    context: Context,
    ufunc: np.ufunc,
    inputs: Any,
    *,
    dtype: Any = None,
    where: Any = True,
    casting: str = "same_kind",
    **unused: Any,
) -> Any:
    """`ufunc(*inputs)`."""
    inputs = [_listed(context, x) for x in inputs]
    if needs_time(inputs):
        return times(ufunc, inputs)
    if all(x.known if isinstance(x, TracedArray) else True for x in inputs) and not isinstance(where, TracedArray):
        return _known(context, ufunc, inputs, dtype, where)
    if where is not True:
        raise untraceable(
            f"np.{ufunc.__name__} with where= and no out= leaves elements undefined", "give out=np.zeros_like(x)"
        )
    if any(isinstance(x, Selected) for x in inputs):
        return _selected(context, ufunc, inputs, dtype)
    check_kinds(ufunc, inputs, dtype)
    function = TABLE.get(ufunc) or scipy.traced_ufuncs().get(ufunc)
    if function is None and dtype is None and ufunc.signature is None:
        return scipy.hosted_ufunc(context, ufunc, inputs)
    if function is None:
        raise untraceable(f"{_name(ufunc)} cannot be traced", "compute it before the call")
    kinds = tuple(kind_of(x) for x in inputs)
    if ufunc in _COMPARISONS:
        inputs = _within_range(inputs, kinds)
        kinds = tuple(kind_of(x) for x in inputs)
    if all(kind in _WEAK for kind in kinds):  # Python's own arithmetic
        kinds = tuple(np.dtype(kind) for kind in kinds)
    dtypes = loop_dtypes(ufunc, kinds, None if dtype is None else np.dtype(dtype))
    _check_shapes(ufunc, inputs)
    operands = [operand(context, x, d) for x, d in zip(inputs, dtypes)]
    quotient = ufunc is np.true_divide
    with exempted(kinds=QUOTIENT if quotient else KINDS.get(ufunc.__name__, ALL_KINDS)):
        results = function(*operands)
    if quotient:
        notice_quotient_overflow(operands[0], operands[1], results)
    if all(not isinstance(x, np.ndarray) or (isinstance(x, TracedArray) and x.scalar) for x in inputs):
        notice_overflow(ufunc.__name__, operands, results[0] if isinstance(results, tuple) else results)
    return _wrapped(context, results, dtypes[ufunc.nin :], [] if ufunc in _CONTRACTIONS else inputs)


def _name(ufunc: np.ufunc) -> str:
    return f"np.{ufunc.__name__}" if hasattr(np, ufunc.__name__) else f"the ufunc {ufunc.__name__}"


def _listed(context: Context, x: Any) -> Any:
    if is_sequence(x):
        from fuser.interop.numpy.creation import array

        return array(context, x)
    return x


def _wrapped(context: Context, results: Any, dtypes: tuple[np.dtype, ...], inputs: list[Any]) -> Any:
    several = results if isinstance(results, tuple) else (results,)
    orders = [kept_order(inputs, tuple(r.shape)) for r in several]
    made = tuple(
        TracedArray(context, to_dtype(r, d), scalar=not r.shape, order=order)
        for r, d, order in zip(several, dtypes, orders)
    )
    return made if isinstance(results, tuple) else made[0]


def _check_shapes(ufunc: np.ufunc, inputs: list[Any]) -> None:
    if ufunc in _CONTRACTIONS:
        return
    shapes = [tuple(np.shape(x)) if not isinstance(x, TracedArray) else x.shape for x in inputs]
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        words = " ".join(str(s).replace(", ", ",") for s in shapes)
        raise ValueError(f"operands could not be broadcast together with shapes {words} ") from None


def _known(context: Context, ufunc: np.ufunc, inputs: list[Any], dtype: Any, where: Any) -> Any:
    values = [x.value if isinstance(x, TracedArray) else x for x in inputs]
    more = {} if where is True else {"where": where}
    with in_numpy():
        results = ufunc(*values, **({"dtype": dtype} if dtype is not None else {}), **more)
    wrapped = tuple(
        TracedArray(context, r, order=kept_order(inputs, r.shape)) if isinstance(r, np.ndarray) else r
        for r in (results if isinstance(results, tuple) else (results,))
    )
    return wrapped if isinstance(results, tuple) else wrapped[0]


def known(context: Context, result: Any) -> Any:
    """A result that NumPy computed: arrays become known traced arrays, which may be assigned to; scalars stay."""
    if isinstance(result, np.ndarray):
        return TracedArray(context, result, contiguous=bool(result.flags.c_contiguous))
    return result


def _within_range(inputs: list[Any], kinds: tuple[Kind, ...]) -> list[Any]:
    """A comparison with a Python int outside the other side's range has one answer: compare with an int that has it too."""
    result = list(inputs)
    for side, other in ((0, 1), (1, 0)):
        value, dtype = inputs[side], kinds[other]
        if type(value) is int and isinstance(dtype, np.dtype) and dtype.kind in "iu":
            info = np.iinfo(dtype)
            if not info.min <= value <= info.max:
                result[side] = np.float64(np.inf if value > 0 else -np.inf)
    return result


def _selected(context: Context, ufunc: np.ufunc, inputs: list[Any], dtype: Any) -> Any:
    """Elementwise arithmetic of selections by one mask: on all elements, selected alike."""
    if ufunc is np.matmul and dtype is None:
        from fuser.interop.numpy.selected_reductions import product  # which needs this

        return product(context, *inputs)
    if ufunc in _CONTRACTIONS:
        raise untraceable("a product of x[mask], with a traced mask, cannot be traced", "use np.where(mask, x, y)")
    like = alike(inputs)
    full = [x.full() if isinstance(x, Selected) else x for x in inputs]
    with exempted(masked=True):
        results = call(context, ufunc, full, dtype=dtype)
    made = tuple(like.alike(r) for r in (results if isinstance(results, tuple) else (results,)))
    for result in made:
        notice_new(result.full().lifted(), result.mask)
    return made if isinstance(results, tuple) else made[0]
