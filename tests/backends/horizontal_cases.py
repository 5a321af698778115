"""Random kernels of all dtypes for `fuzz_bundles`: a piece is a traced graph with inputs, and what evaluation gives for them.

Inputs are small halves and integers with special values among them, so that most results are exact and can be asked for
what jumps (comparisons, positions, integers). What rounds is marked as loose, and from there on only smooth steps follow.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

import fuser
import fuser.lax as lax
import fuser.numpy as fnp
from fuser.ir.evaluate import evaluate
from fuser.ir.graph import Graph
from fuser.ir.types import is_complex

SHAPES = (
    (), (1,), (3,), (7,), (64,), (65,), (130,), (1025,), (0,), (3, 0), (0, 4), (1, 5), (5, 1), (2, 3), (4, 4), (5, 65), (17, 9),
    (33, 34), (40, 70), (1, 300), (300, 2), (2, 3, 4), (3, 1, 7), (2, 2, 2, 3),
)  # fmt: skip
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
INTEGERS = tuple(np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64))
REALS = (np.dtype(np.float16), BFLOAT16, np.dtype(np.float32), np.dtype(np.float64))
COMPLEX = (np.dtype(np.complex64), np.dtype(np.complex128))
DTYPES = (np.dtype(bool), *INTEGERS, *REALS, *REALS, *COMPLEX, *COMPLEX, *COMPLEX)
EPS = {np.dtype(np.float16): 1e-3, BFLOAT16: 8e-3, np.dtype(np.float32): 1.2e-7, np.dtype(np.float64): 2.3e-16}


@dataclass(frozen=True, eq=False)
class Piece:
    """A graph, its inputs and its results by NumPy; `eps` is the precision of the coarsest type that it rounds in."""

    name: str
    graph: Graph
    arrays: tuple[np.ndarray, ...]
    expected: tuple[np.ndarray, ...]
    loose: bool
    eps: float

    @property
    def weight(self) -> float:
        """The sum of all inputs' absolute values, as far as they are finite numbers."""
        sizes = [np.abs(a.astype(np.complex128 if is_complex(a.dtype) else np.float64)) for a in self.arrays]
        return float(sum(np.where(np.isfinite(size), size, 0).sum() for size in sizes))


class Draw:
    """The choices of one piece: a random generator, and whether values have been rounded."""

    def __init__(self, seed: Any) -> None:
        self.choices = random.Random(seed)
        self.loose = False
        self.steps: list[str] = []
        self.inputs: list[np.ndarray] = []
        self.dtypes: set[np.dtype] = set()

    def one(self, among: Any) -> Any:
        return self.choices.choice(among)

    def array(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        generator = np.random.default_rng(self.choices.getrandbits(32))
        whole = generator.integers(-6, 7, shape)
        if dtype.kind == "b":
            return np.asarray(whole > 0)
        if dtype.kind in "iu":
            values = np.asarray(whole).astype(dtype)
            if values.size and self.choices.random() < 0.3:
                info = np.iinfo(dtype)
                values.flat[0], values.flat[-1] = info.max, info.min
            return values
        values = np.asarray(whole * 0.5)
        if is_complex(dtype):
            values = values + 0.5j * generator.integers(-6, 7, shape)
        values = np.asarray(values).astype(dtype)
        if values.size and not is_complex(dtype) and self.choices.random() < 0.12:
            values.flat[self.choices.randrange(values.size)] = self.one((np.nan, np.inf, -np.inf, -0.0))
        return values


Step = Callable[[Draw, Any], Callable[[Any], Any]]


def kind_of(x: Any) -> str:
    """b, i, u, f (halves too) or c."""
    return "c" if is_complex(x.dtype) else "f" if x.dtype in REALS else x.dtype.kind


def _unary(d: Draw, x: Any) -> Any:
    kind = kind_of(x)
    if kind == "b":
        return d.one((fnp.logical_not, lambda x: x ^ True, lambda x: x + x))(x)
    exact = [fnp.negative, lambda x: x + x, lambda x: x * 2, lambda x: x - 1, lambda x: x * x - x, fnp.copy]
    exact += [abs, fnp.sign, lambda x: fnp.maximum(x, 0), lambda x: fnp.clip(x, 0, 2)] if kind in "iuf" else []
    exact += (
        [lax.population_count, fnp.bitwise_not, lambda x: x >> 1, lambda x: x << 3, lax.clz] if kind in "iu" else []
    )
    exact += [fnp.floor, fnp.isnan, lambda x: fnp.where(x > 0, x, 1)] if kind == "f" else []
    exact += [fnp.real, fnp.imag, fnp.conj, lambda x: x * 1j, lambda x: x == x] if kind == "c" else []
    return d.one(exact)(x)


def _rounding(d: Draw, x: Any) -> Any:
    kind = kind_of(x)
    if kind in "biu":
        return _unary(d, x)
    d.loose = True
    smooth: list[Any] = [fnp.sin, fnp.cos, lambda x: x / 3, lambda x: x * 0.3, lambda x: fnp.exp(x * 0.25), fnp.tanh]
    if kind == "f":
        smooth += [lambda x: fnp.sqrt(abs(x)), lambda x: fnp.log1p(abs(x)), lambda x: 1 / (1 + x * x), fnp.arctan]
        smooth += [lambda x: fnp.arctan(fnp.sin(x)), lambda x: fnp.tanh(fnp.exp(-x * x)), lax.erf, fnp.cbrt]
    else:
        smooth[-1] = lambda x: x * (1 + 1j) / 3
    return d.one(smooth)(x)


def _partner(d: Draw, x: Any) -> Any:
    """Another operand: an input of the same shape, of one that broadcasts, or a number."""
    shape = tuple(d.one((e, e, e, 1)) for e in x.shape)[d.one((0, 0, 0, min(1, x.ndim))) :]
    if d.choices.random() < 0.25:
        return d.one((0, 1, 2, 3))
    return _input(d, shape, x.dtype)


def _input(d: Draw, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    return Later(d, d.array(shape, np.dtype(dtype)))


class Later:
    """An array that becomes an input of the piece when it is first used: steps are drawn while they are traced."""

    def __init__(self, d: Draw, value: np.ndarray) -> None:
        self.draw, self.value = d, value


def _binary(d: Draw, x: Any) -> Any:
    y = d.take(_partner(d, x))  # type: ignore[attr-defined]
    kind = kind_of(x)
    operations = [fnp.add, fnp.multiply, lambda a, b: a * b + a]
    operations += [fnp.subtract] if kind != "b" else [fnp.logical_and, fnp.logical_xor]
    operations += [fnp.maximum, fnp.minimum] if kind in "iufb" else []
    operations += [fnp.bitwise_and, fnp.bitwise_xor, fnp.floor_divide, lax.rem] if kind in "iu" else []
    if not d.loose:
        operations += [fnp.equal, fnp.not_equal]
        operations += [fnp.less, fnp.greater_equal, lambda a, b: fnp.where(a > b, a, b)] if kind in "iuf" else []
    operation = d.one(operations)
    if operation is lax.rem:
        y = fnp.broadcast_to(fnp.asarray(y, x.dtype), x.shape)
    return operation(x, y)


def _cast(d: Draw, x: Any) -> Any:
    if d.loose or kind_of(x) == "c":
        return x.astype(d.one(COMPLEX)) if kind_of(x) in "fc" else x
    if kind_of(x) in "iub" and d.choices.random() < 0.3 and x.dtype != bool:
        return lax.bitcast_convert_type(x, np.dtype(f"{'u' if x.dtype.kind == 'i' else ''}int{x.dtype.itemsize * 8}"))
    return x.astype(d.one(DTYPES))


def _axis(d: Draw, x: Any) -> int:
    return d.choices.randrange(x.ndim)


def _movement(d: Draw, x: Any) -> Any:
    moves: list[Any] = [
        fnp.ravel,
        fnp.transpose,
        lambda x: fnp.expand_dims(x, 0),
        fnp.flip,
        lambda x: fnp.stack([x, x + x]),
    ]
    if x.ndim:
        axis = _axis(d, x)
        low, high = d.one((0, 1, 2, -1 if x.shape[axis] > 2 else 0)), d.one((0, 1, 3))
        padding = [(low, high, d.one((0, 0, 1))) if a == axis else (0, 0, 0) for a in range(x.ndim)]
        cut = tuple(slice(None, None, d.one((1, 2, -1))) if a == axis else slice(None) for a in range(x.ndim))
        moves += [
            lambda x: lax.pad(x, fnp.zeros((), x.dtype) + d.one((0, 1)), padding).astype(x.dtype),
            lambda x: fnp.pad(x, [(1, 2)] * x.ndim),
            lambda x: fnp.concatenate([x, x * x, x], axis),
            lambda x: fnp.concatenate([d.take(_input(d, x.shape, x.dtype)), x], axis),  # type: ignore[attr-defined]
            lambda x: x[cut],
            lambda x: fnp.roll(x, 1, axis),
            lambda x: fnp.tile(x, 2),
            lambda x: fnp.broadcast_to(x, (2, *x.shape)),
            lambda x: fnp.swapaxes(x, 0, -1),
        ]
        moves += [fnp.diff] if x.shape[-1] > 1 and x.dtype != bool else []
        moves += [fnp.tril] if x.ndim == 2 else []
    return d.one(moves)(x)


def _gather(d: Draw, x: Any) -> Any:
    if not x.ndim or 0 in x.shape:
        return _movement(d, x)
    axis = _axis(d, x)
    index = d.take(Later(d, np.asarray(d.array((d.one((1, 4, 9)),), np.dtype(np.int32)))))  # type: ignore[attr-defined]
    forms = [
        lambda: fnp.take(x, index, axis=axis, mode=d.one(("clip", "wrap", "fill"))),
        lambda: lax.dynamic_slice_in_dim(x, index[0], min(2, x.shape[axis]), axis),
        lambda: lax.dynamic_update_slice_in_dim(x, lax.slice_in_dim(x, 0, 1, axis=axis), index[0], axis),
        lambda: x.at[index % x.shape[0]].set(fnp.ones((), x.dtype)),
    ]
    if x.dtype != bool and not d.loose:
        forms += [lambda: x.at[index % x.shape[0]].add(fnp.ones((), x.dtype))]
        forms += [lambda: x.at[index].max(fnp.ones((), x.dtype))] if kind_of(x) != "c" else []
    return d.one(forms)()


def _reduction(d: Draw, x: Any) -> Any:
    kind = kind_of(x)
    axis = d.one((None, *range(x.ndim)))
    if d.loose:
        return d.one((fnp.sum, fnp.mean))(x, axis=axis, keepdims=d.one((False, True)))
    reductions: list[Any] = [fnp.sum, fnp.prod, fnp.all, fnp.any, fnp.count_nonzero]
    reductions += [fnp.mean] if kind in "fc" else []
    count = x.size if axis is None else x.shape[axis]
    reductions += [fnp.max, fnp.min, fnp.argmax, fnp.argmin] if count and kind in "iufb" else []
    reduction = d.one(reductions)
    d.loose |= kind in "fc" and reduction in (fnp.sum, fnp.prod, fnp.mean)
    return reduction(x, axis=axis)


def _normal(d: Draw, x: Any) -> Any:
    """A reduction broadcast back to its operand, as in a softmax."""
    if not x.ndim or 0 in x.shape or kind_of(x) not in "fc":
        return _reduction(d, x)
    d.loose = True
    axis = _axis(d, x)
    total = fnp.sum(x, axis=axis, keepdims=True) / x.shape[axis]
    return d.one((lambda: x - total, lambda: (x - total) * total, lambda: x * 0.5 + total))()


def _cumulative(d: Draw, x: Any) -> Any:
    if not x.ndim or x.dtype == bool:
        return _movement(d, x)
    kind = kind_of(x)
    scans = [lax.cumsum] + ([lax.cumprod] if not d.loose else []) + ([lax.cummax, lax.cummin] if kind in "iuf" else [])
    scan = d.one(scans)
    d.loose |= kind in "fc" and scan in (lax.cumsum, lax.cumprod)
    return scan(x, axis=_axis(d, x), reverse=d.one((False, True)))


def _sort(d: Draw, x: Any) -> Any:
    if not x.ndim or d.loose or kind_of(x) == "c":
        return _movement(d, x)
    axis = _axis(d, x)
    return d.one((lambda: fnp.sort(x, axis=axis), lambda: fnp.argsort(x, axis=axis, stable=True)))()


def _product(d: Draw, x: Any) -> Any:
    if x.ndim != 2:
        return _binary(d, x)
    other = d.take(_input(d, (x.shape[1], d.one((1, 3, 8))), x.dtype))  # type: ignore[attr-defined]
    d.loose |= kind_of(x) in "fc"
    return d.one((lambda: x @ other, lambda: x @ other + x[:1, :1], lambda: fnp.outer(x[0], x[:, 0])))()


def _loop(d: Draw, x: Any) -> Any:
    """A few iterations: a fori, a scan with results of each step, a while, or a branch."""
    if kind_of(x) == "b":
        return _binary(d, x)
    half = (lambda c: c * 0.5 + x) if kind_of(x) in "fc" else (lambda c: c * 3 + x)
    number = fnp.sum(x * 0).astype(np.int32) + d.one((0, 1, 2)) if kind_of(x) in "iu" else d.one((0, 1, 2))
    forms = [
        lambda: lax.fori_loop(0, d.one((1, 3, 5)), lambda i, c: half(c), x),
        lambda: lax.scan(lambda c, _: (half(c), c), x, None, length=d.one((1, 4)))[1],
        lambda: lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, half(s[1])), (number, x))[1],
        lambda: lax.cond(number > 0, half, lambda c: c + c, x),
    ]
    if x.ndim and 0 not in x.shape:
        forms.append(lambda: lax.scan(lambda c, row: (c + row, c * row), fnp.zeros(x.shape[1:], x.dtype), x)[1])
        forms.append(lambda: lax.fori_loop(0, x.shape[0], lambda i, c: c.at[i].set(c[i] + c[0]), x))
    d.loose |= kind_of(x) in "fc"
    return d.one(forms)()


def _random(d: Draw, x: Any) -> Any:
    key = fuser.random.key(
        fnp.sum(fnp.ravel(x)[:1].astype(np.int32) if kind_of(x) in "iub" else fnp.zeros(1, np.int32))
    )
    shape = d.one(((3,), (65,), (5, 7)))
    forms = [
        lambda: fuser.random.bits(key, shape, np.dtype(d.one(("uint8", "uint32", "uint64")))),
        lambda: fuser.random.key_data(fuser.random.split(key, 3)),
        lambda: fuser.random.key_data(fuser.random.split(key, 4)[1:][::-1]),
        lambda: fuser.random.randint(key, shape, -5, 9),
        lambda: fuser.random.key_data(fnp.stack([fuser.random.fold_in(key, 7), key])),
        lambda: fuser.random.uniform(key, shape, d.one((np.float32, np.float64))) * 2 + 1,
    ]
    d.loose = True
    return d.one(forms)()


EXACT = (
    _unary,
    _unary,
    _binary,
    _binary,
    _cast,
    _movement,
    _movement,
    _gather,
    _reduction,
    _cumulative,
    _sort,
    _product,
)
STEPS: tuple[Any, ...] = (*EXACT, _rounding, _normal, _loop)
LOOSE: tuple[Any, ...] = (_movement, _movement, _rounding, _reduction, _normal, _cast, _product)


def piece(seed: int) -> Piece | None:
    """The piece of a seed; None where a step does not fit its operand."""
    names: list[str] = []
    first = Draw(seed)
    dtype, shape = first.one(DTYPES), first.one(SHAPES)
    wanted: list[np.ndarray] = [first.array(shape, dtype)]
    try:
        while True:  # each trace finds one more input, until all of them are there
            d = Draw(f"{seed}/steps")
            found = [None]

            def take(later: Any, d: Draw = d, found: Any = found) -> Any:
                if not isinstance(later, Later):
                    return later
                number = len(d.inputs) + 1
                d.inputs.append(later.value)
                if number >= len(wanted):
                    found[0] = later.value
                    raise _Missing
                return d.operands[number]  # type: ignore[attr-defined]

            d.take = take  # type: ignore[attr-defined]

            def function(*operands: Any, d: Draw = d) -> Any:
                d.operands = operands  # type: ignore[attr-defined]
                names.clear()
                results, x = [], operands[0]
                if d.choices.random() < 0.04:
                    names.append("_random")
                    return [_random(d, x)]
                for _ in range(d.one((1, 1, 2, 2, 3, 4))):
                    step = d.one(LOOSE if d.loose else STEPS)
                    names.append(step.__name__[1:])
                    x = step(d, x)
                    d.dtypes.add(np.dtype(x.dtype))
                    if d.choices.random() < 0.2:
                        results.append(x)
                return [*results, x]

            try:
                graph = fuser.jit(function).trace(*wanted).graph
                break
            except _Missing:
                assert found[0] is not None
                wanted.append(found[0])
    except (TypeError, ValueError, IndexError, NotImplementedError, fuser.errors.FuserError):
        return None
    if sum(v.aval.size for eqn in graph.eqns for v in eqn.outvars) > 200_000:
        return None
    expected = tuple(evaluate(graph, wanted))
    eps = max((EPS.get(_real(t), 0.0) for t in (*d.dtypes, dtype)), default=0.0)
    label = f"{seed}: {'.'.join(names)} of {', '.join(f'{a.dtype}{list(a.shape)}' for a in wanted)}"
    return Piece(label, graph, tuple(wanted), expected, d.loose, eps)


def _real(dtype: np.dtype) -> np.dtype:
    return np.dtype(f"float{dtype.itemsize * 4}") if is_complex(dtype) else dtype


class _Missing(Exception):
    """A step asks for an input that the trace does not have."""
