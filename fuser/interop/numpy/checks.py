"""What a compiled program watches for, so that NumPy itself answers a call in which it would warn, raise or differ.

In: the trace of a NumPy function. Out: one more result of its program, a bool: whether anything out of the ordinary happened
(an index out of bounds, a new infinity or nan, a float that no integer holds). The call then runs the function in NumPy,
which warns, raises and converts as only NumPy does. Programs write to memory of their own, so nothing has happened yet.

A new infinity or nan is not looked for after each operation: most operations hand one on to their result (`PROPAGATES`), so
that the last of a chain tells about all of it. Where an operand may hold them rightly, operands and result are compared.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from fuser.ir.graph import Eqn, Literal, Var
from fuser.ir.primitive import REGISTRY, Fusion, Primitive
from fuser.ir.source import replayed
from fuser.ir.types import BOOL, is_complex, is_inexact
from fuser.lax.values import broadcast_to, convert, literal
from fuser.ops import elementwise as E
from fuser.ops import movement as V
from fuser.ops import reduce as R
from fuser.ops.dynamic import dynamic_update_slice_p
from fuser.runtime.array import Array
from fuser.trace.core import Tracer, bind, current
from fuser.trace.stage import StageTracer


def _primitives(names: str) -> frozenset[Primitive]:
    return frozenset(REGISTRY[name] for name in names.split())


# Their results hold no infinity or nan that no operand holds.
HARMLESS = _primitives(
    "copy stop_gradient neg max min abs sign floor ceil round real imag conj complex select_n clamp name bitcast_convert_type "
    "reduce_max reduce_min cummax cummin scatter scatter-min scatter-max sort top_k tanh atan erf erfc asinh "
    "optimization_barrier"
)

# An infinity or nan in any element of these operands shows in the result.
PROPAGATES: dict[Primitive, tuple[int, ...]] = {
    **dict.fromkeys(
        _primitives(
            "copy stop_gradient neg square abs floor ceil round log log1p sqrt cbrt sin cos tan asin acos asinh acosh atanh cosh "
            "sinh convert_element_type broadcast_in_dim reshape transpose squeeze rev reduce_sum cumsum cumprod name "
            "conj"
        ),
        (0,),
    ),
    **dict.fromkeys(_primitives("add add_any sub mul dot_general complex"), (0, 1)),
    **dict.fromkeys(_primitives("div rem"), (0,)),
    **dict.fromkeys(_primitives("dynamic_update_slice"), (1,)),
    **dict.fromkeys(_primitives("fma"), (0, 1, 2)),
}
ALL_KINDS = frozenset(("divide", "over", "invalid"))
QUOTIENT = frozenset(("divide", "invalid"))  # with notice_quotient_overflow


class _Active(threading.local):
    checks: Checks | None = None


_active = _Active()


def notice(condition: Any) -> None:
    """Have NumPy answer calls of the function being traced in which any element of `condition` is true."""
    if _active.checks is not None:
        _active.checks.notice(condition)


def watching() -> bool:
    """Whether what is traced now has checks."""
    return _active.checks is not None


def telling() -> Any:
    """A block whose operations have told of their events themselves."""
    return contextlib.nullcontext() if _active.checks is None else _active.checks.telling()


@contextlib.contextmanager
def masked_by(mask: Any) -> Iterator[None]:
    """A block whose results count where `mask`, a bool, is true: what is noticed elsewhere is of no interest."""
    outer = _active.checks
    if outer is None:
        yield
        return
    inner = Checks()
    with inner.active():
        yield
    outer._exempt += inner._exempt
    outer._told += inner._told
    for condition in [*inner._conditions, *([mask] if inner.always else [])]:
        outer.notice(bind(E.and_p, condition, broadcast_to(mask, tuple(condition.shape)) if condition.shape else mask))


def exempted(masked: bool = False, kinds: frozenset[str] = ALL_KINDS) -> Any:
    """A block whose operations make infinities and nans that NumPy does not tell of: by `np.errstate`, which ignores all
    `kinds` that they are of, or because a mask says where results count.
    """
    checks = _active.checks
    if checks is None:
        return contextlib.nullcontext()
    return checks.exempting() if masked or not kinds - ignored() else contextlib.nullcontext()


def ignored() -> frozenset[str]:
    """The kinds of floating-point errors that are of no interest where the traced function now is."""
    return frozenset(kind for kind, how in np.geterr().items() if how == "ignore")


# What the results of ufuncs may tell of; others of all kinds.
KINDS: dict[str, frozenset[str]] = {
    **dict.fromkeys(("log", "log2", "log10", "log1p", "arctanh"), frozenset(("divide", "invalid"))),
    **dict.fromkeys(
        ("sqrt", "arcsin", "arccos", "arccosh", "sin", "cos", "tan", "remainder", "fmod"), frozenset(("invalid",))
    ),
    **dict.fromkeys(
        ("add", "subtract", "multiply", "exp", "exp2", "expm1", "square", "sinh", "cosh", "hypot", "matmul"),
        frozenset(("over", "invalid")),
    ),
}


def notice_quotient_overflow(x: Any, y: Any, quotient: Any) -> None:
    """Notice infinite quotients by numbers other than zero, where `np.errstate` ignores all but overflow."""
    if not watching() or quotient.dtype.kind != "f" or ignored() & ALL_KINDS != {"divide", "invalid"}:
        return
    finite, zero = bind(E.is_finite_p, quotient), literal(0, quotient.dtype)
    condition = bind(E.not_p, finite)
    shape = tuple(quotient.shape)
    for part in (bind(E.is_finite_p, x), bind(E.ne_p, y, zero)):
        condition = bind(E.and_p, condition, part if part.shape == shape else broadcast_to(part, shape))
    notice(condition)


@contextlib.contextmanager
def in_numpy() -> Iterator[None]:
    """A block in which NumPy computes what is known; an event that it tells of is to be told at each call."""

    def tell(kind: str, flag: int) -> None:
        notice(np.True_)

    state = np.geterr()
    if _active.checks is None or all(how == "ignore" for how in state.values()):
        yield
        return
    with np.errstate(**{kind: how if how == "ignore" else "call" for kind, how in state.items()}, call=tell):  # type: ignore[arg-type]
        yield


def notice_new(result: Any, mask: Any) -> None:
    """Notice an infinity or nan in `result` where `mask` holds."""
    if _active.checks is None or ignored() >= ALL_KINDS or not is_inexact(result.dtype):
        return
    bad = bind(E.not_p, _finite(result))
    notice(bind(E.and_p, bad, mask if mask.shape == bad.shape else broadcast_to(mask, tuple(bad.shape))))


class Checks:
    """The conditions of one trace."""

    def __init__(self) -> None:
        self.always = False  # NumPy answers every call
        self._conditions: list[Any] = []
        self._exempt: list[tuple[int, int]] = []  # ranges of equations
        self._told: list[tuple[int, int]] = []  # ranges of equations that have told of their events

    @contextlib.contextmanager
    def active(self) -> Iterator[Checks]:
        """What is noticed in this block is for this trace."""
        saved, _active.checks = _active.checks, self
        try:
            yield self
        finally:
            _active.checks = saved

    def notice(self, condition: Any) -> None:
        if isinstance(condition, Tracer):
            self._conditions.append(condition)
        else:
            self.always = self.always or bool(np.any(np.asarray(condition)))

    @contextlib.contextmanager
    def telling(self) -> Iterator[None]:
        """New infinities and nans of this block are noticed by it."""
        eqns = current().eqns  # type: ignore[attr-defined]
        start = len(eqns)
        yield
        self._told.append((start, len(eqns)))

    @contextlib.contextmanager
    def exempting(self) -> Iterator[None]:
        """New infinities and nans in this block are expected."""
        eqns = current().eqns  # type: ignore[attr-defined]
        start = len(eqns)
        yield
        self._exempt.append((start, len(eqns)))

    def status(self, results: Sequence[Any], tainted: bool = False, numbers: bool = True) -> list[Any]:
        """Bool tracers, any element of which tells that something happened. `results` are the program's.

        `tainted` inputs may hold infinities and nans. Without `numbers` new ones are of no interest.
        """
        trace: Any = current()
        exempt = set().union(*(range(*span) for span in self._exempt)) if self._exempt else set()
        conditions, eqns = list(self._conditions), list(trace.eqns)
        if numbers:
            ends = [result._var for result in results if isinstance(result, StageTracer)]
            told = set().union(*(range(*span) for span in self._told))
            found = _NonFinite(trace, eqns, ends, exempt, told, tainted).conditions()
            conditions += reversed(found)  # in the order of the program: kernels hand one mask on
        if not conditions:
            return []
        with replayed(eqns[-1].source):
            return _joined(conditions, _rows(eqns), _parts(trace.eqns, len(eqns)))


_ENDS = (Fusion.DOT, Fusion.LIBRARY, Fusion.CONTROL, Fusion.SCAN)  # of kernels
MOST_SLICES = 16  # of an array, which are looked at together
MOST_ROWS = 1 << 16  # for each of which a program may tell apart whether something happened


def _rows(eqns: list[Eqn]) -> dict[tuple[int, ...], int]:
    """Shapes that the program reduces over their last dimensions, and how many are left: a kernel goes through them by rows."""
    found = {}
    for eqn in eqns:
        shape = eqn.invars[0].aval.shape if eqn.invars else ()
        if eqn.primitive.fusion is Fusion.REDUCE:
            left = len(shape) - len(eqn.params["axes"])
            trailing = tuple(sorted(eqn.params["axes"])) == tuple(range(left, len(shape)))
            if trailing and left and math.prod(shape[:left]) <= MOST_ROWS:
                found[shape] = left
    return found


def _parts(eqns: Sequence[Eqn], count: int) -> dict[Any, int]:
    """How many equations before each value end a kernel, of the first `count`; later ones belong to what they look at.

    So does what is written to a part of an array of which slices are read.
    """
    found: dict[Any, int] = {}
    sliced = {eqn.invars[0] for eqn in eqns[:count] if eqn.primitive is V.slice_p}
    part = 0
    for number, eqn in enumerate(eqns):
        if number < count:
            part += eqn.primitive.fusion in _ENDS or (
                eqn.primitive is dynamic_update_slice_p and eqn.outvars[0] in sliced
            )
        else:
            part = max((found.get(v, 0) for v in eqn.operands()), default=0)
        found.update(dict.fromkeys(eqn.outvars, part))
    return found


def _joined(conditions: list[Any], rows: dict[tuple[int, ...], int], parts: dict[Any, int]) -> list[Any]:
    """The conditions reduced to one for each row, where a kernel goes by rows anyway, and to one for all others.

    Those of one of the `parts` are joined first, so that a kernel stores no mask that another reduces.
    """
    left = {shape[:count] for shape, count in rows.items()}
    kept = max(left, key=math.prod) if left else ()
    joined: dict[tuple[int, tuple[int, ...]], Any] = {}
    for condition in conditions:
        key = (parts.get(getattr(condition, "_var", None), 0), condition.shape)
        joined[key] = _or(joined.get(key), condition)
    reduced: dict[tuple[int, ...], Any] = {}
    for (_, shape), condition in joined.items():
        count = rows.get(shape, 0)
        if count and shape[:count] == kept:
            value = bind(R.reduce_or_p, condition, axes=tuple(range(count, len(shape))))
        elif kept and shape[: len(kept)] == kept and math.prod(shape) == math.prod(kept):
            value = bind(V.reshape_p, condition, new_sizes=kept, dimensions=None)
        else:
            value = bind(R.reduce_or_p, condition, axes=tuple(range(len(shape)))) if shape else condition
        reduced[value.shape] = _or(reduced.get(value.shape), value)
    return list(reduced.values())


def _or(a: Any, b: Any) -> Any:
    return b if a is None else bind(E.or_p, a, b)


class _NonFinite:
    """Where infinities and nans may come to be in a list of equations, some of whose results are a program's (`ends`)."""

    def __init__(
        self, trace: Any, eqns: list[Eqn], ends: list[Any], exempt: set[int], told: set[int], tainted: bool
    ) -> None:
        self.trace, self.eqns, self.ends, self.exempt, self.told = trace, eqns, ends, exempt, told
        self.producers: dict[Any, Eqn] = {v: eqn for eqn in eqns for v in eqn.outvars}
        self.tainted: set[Var] = {v for v, value in trace.constants.values() if not _all_finite(value)}
        self.precise = tainted
        self.spans: dict[tuple[Any, int], list[tuple[int, int]]] = {}  # of slices that are looked at, by axis
        self.numbers: list[Var] = []  # single elements of which an infinity or nan is told, though it may be expected
        if tainted:
            self.tainted |= {v for eqn in eqns for v in eqn.operands() if v not in self.producers}

    def conditions(self) -> list[Any]:
        """Bool tracers, any element of which is true where NumPy would tell of an event."""
        before = set(self.tainted)
        origins = self._origins(False)
        if "compared" in origins.values() and not self.precise:
            self.tainted = before
            origins = self._origins(True)
        found = []
        for var in self.numbers:
            with replayed(self.producers[var].source):
                found.append(self._bad(var))
        ends = [v for v in self.ends if isinstance(v, Var) and is_inexact(v.aval.dtype) and v not in self.tainted]
        end_of: dict[Any, Var | None] = {v: v for v in ends}  # where a value's infinities and nans show
        cost: dict[Any, int] = {v: v.aval.size for v in ends}  # of looking there, elements
        looked_at: set[Var | None] = set()
        making = {id(self.eqns[number]) for number in origins}
        for number in range(len(self.eqns) - 1, -1, -1):
            eqn = self.eqns[number]
            for out in eqn.outvars:
                kind = origins.get(number)
                if kind is None or not is_inexact(out.aval.dtype) or not out.aval.size or end_of.get(out) in looked_at:
                    continue
                if kind == "compared":
                    with replayed(eqn.source):
                        found.append(self._compared(eqn, out))
                    continue
                end = end_of.get(out)
                if end is None or cost.get(out, end.aval.size) > 2 * out.aval.size:
                    end = end_of[out] = out
                    cost[out] = out.aval.size
                with replayed(eqn.source):
                    found.append(self._bad(end))
                looked_at.add(end)
            end = end_of.get(eqn.outvars[0]) if eqn.outvars[0] not in self.tainted else None
            if end is None:
                continue
            for operand in self._handed_on(eqn):
                if end_of.get(operand) not in looked_at:
                    end_of[operand], whole = end, eqn.outvars[0]
                    cost[operand] = cost.get(whole, end.aval.size)
                    if eqn.primitive is V.concatenate_p and self._are_made(eqn.invars, making):
                        cost[operand] = cost[operand] * operand.aval.size // whole.aval.size
            if eqn.primitive is V.slice_p and self._in_slices(eqn, end, looked_at):
                end_of[eqn.invars[0]] = end
                cost[eqn.invars[0]] = cost.get(eqn.outvars[0], end.aval.size)
        return found

    def _are_made(self, operands: Sequence[Any], making: set[int]) -> bool:
        """Whether most elements of some operands are made where infinities may come to be."""
        made = [v.aval.size for v in operands if type(v) is Var and id(self.producers.get(v)) in making]
        return 2 * sum(made) >= sum(v.aval.size for v in operands)

    def _in_slices(self, eqn: Eqn, end: Var, looked_at: set[Var | None]) -> bool:
        """Whether this slice and those met before have all of an array, differences of neighbours for one, and are looked at."""
        starts, limits, strides = eqn.params["start_indices"], eqn.params["limit_indices"], eqn.params["strides"]
        shape = eqn.invars[0].aval.shape
        parts = [axis for axis, extent in enumerate(shape) if (starts[axis], limits[axis]) != (0, extent)]
        if len(parts) > 1 or end not in looked_at or (strides is not None and any(step != 1 for step in strides)):
            return False
        axis = parts[0] if parts else 0
        spans = self.spans.setdefault((eqn.invars[0], axis), [])
        spans.append((starts[axis], limits[axis]))
        if len(spans) > MOST_SLICES:
            return False
        reached = 0
        for start, limit in sorted(spans):
            if start > reached:
                return False
            reached = max(reached, limit)
        return reached == shape[axis]

    def _handed_on(self, eqn: Eqn) -> Iterator[Var]:
        """The operands of which an infinity or nan in any element shows in the result."""
        if not eqn.invars or not eqn.outvars[0].aval.size:
            return
        if eqn.primitive is V.slice_p:
            yield from self._written_within(eqn)
            return
        if eqn.primitive is E.integer_pow_p and eqn.params["y"] > 0:
            operands: Iterable[int] = (0,)
        elif eqn.primitive is V.concatenate_p:
            operands = range(len(eqn.invars))
        elif (
            is_complex(eqn.invars[0].aval.dtype)
            and not is_complex(eqn.outvars[0].aval.dtype)
            and eqn.primitive is not E.abs_p
        ):
            operands = ()  # a part of a complex number
        else:
            operands = PROPAGATES.get(eqn.primitive, ())
        yield from (v for n in operands if type(v := eqn.invars[n]) is Var)

    def _written_within(self, eqn: Eqn) -> Iterator[Var]:
        """Blocks written to an array before a slice of it, all of which the slice reads."""
        starts, limits, strides = eqn.params["start_indices"], eqn.params["limit_indices"], eqn.params["strides"]
        if strides is not None and any(step != 1 for step in strides):
            return
        later: list[list[tuple[int, int]]] = []
        array = eqn.invars[0]
        while (writer := self.producers.get(array)) is not None and writer.primitive is dynamic_update_slice_p:
            block = writer.invars[1]
            if not all(isinstance(v, Literal) for v in writer.invars[2:]):
                return
            starts_of_block = [int(v.val) for v in writer.invars[2:] if isinstance(v, Literal)]
            spans = [(start, start + e) for start, e in zip(starts_of_block, block.aval.shape)]
            inside = all(low <= first and last <= high for low, high, (first, last) in zip(starts, limits, spans))
            if inside and isinstance(block, Var) and not any(_overlap(spans, other) for other in later):
                yield block
            later.append(spans)
            array = writer.invars[0]

    def _origins(self, telling: bool) -> dict[int, str]:
        """Equations that may make an infinity or nan: "plain", or "compared" where operands may hold them rightly.

        With `telling` those that single elements may hold are told of, so that nothing need be compared with them.
        """
        origins = {}
        for number, eqn in enumerate(self.eqns):
            tainted = any(self._holds(v) for v in eqn.invars)
            makes = _makes(eqn)
            expected = number in self.exempt and makes
            if telling and expected and not tainted and _is_number(eqn):
                self.numbers += eqn.outvars  # what is computed with it may then be looked at as all else is
            elif tainted or expected:
                self.tainted.update(v for v in eqn.outvars if is_inexact(v.aval.dtype))
            if makes and number not in self.exempt and number not in self.told:
                origins[number] = "compared" if tainted else "plain"
        return origins

    def _holds(self, operand: Any) -> bool:
        if isinstance(operand, Literal):
            return is_inexact(operand.aval.dtype) and not np.isfinite(operand.val)
        return operand in self.tainted

    def _bad(self, operand: Any) -> Any:
        return bind(E.not_p, _finite(self._tracer(operand)))

    def _tracer(self, operand: Any) -> Any:
        return Array(np.asarray(operand.val)) if isinstance(operand, Literal) else StageTracer(self.trace, operand)

    def _compared(self, eqn: Eqn, out: Var) -> Any:
        """Where the result is an infinity and no operand is infinite or nan, or nan and no operand is."""
        bad = self._bad(out)
        operands = [v for v in eqn.invars if is_inexact(v.aval.dtype)]
        axes = eqn.params.get("axes") if eqn.primitive.fusion is Fusion.REDUCE else None
        if eqn.primitive.fusion is not Fusion.ELEMENTWISE and axes is None:
            return bad
        nan_before = _any([self._reduced(_nan(self._tracer(v)), axes) for v in operands], bad)
        bad_before = _any([self._reduced(self._bad(v), axes) for v in operands], bad)
        nan = _nan(self._tracer(out))
        expected = bind(E.or_p, nan_before, bind(E.and_p, bind(E.not_p, nan), bad_before))
        return bind(E.and_p, bad, bind(E.not_p, expected))

    def _reduced(self, condition: Any, axes: Any) -> Any:
        return condition if axes is None else bind(R.reduce_or_p, condition, axes=axes)


def _overlap(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> bool:
    return all(first < other_last and other_first < last for (first, last), (other_first, other_last) in zip(a, b))


def _makes(eqn: Eqn) -> bool:
    """Whether an equation may make an infinity or nan out of finite numbers."""
    out = eqn.outvars[0].aval.dtype if eqn.outvars else BOOL
    if not any(is_inexact(v.aval.dtype) for v in eqn.outvars):
        return False
    if eqn.primitive is REGISTRY["convert_element_type"]:
        before = eqn.invars[0].aval.dtype
        if not is_inexact(before):
            return out == np.float16 and before != BOOL
        return _real(out).itemsize < _real(before).itemsize
    return eqn.primitive not in HARMLESS and eqn.primitive.fusion is not Fusion.MOVEMENT


def _is_number(eqn: Eqn) -> bool:
    return all(v.aval.size == 1 and is_inexact(v.aval.dtype) for v in eqn.outvars)


def _real(dtype: np.dtype) -> np.dtype:
    return np.dtype(f"f{dtype.itemsize // 2}") if is_complex(dtype) else dtype


def _finite(x: Any) -> Any:
    if is_complex(x.dtype):
        return bind(E.and_p, bind(E.is_finite_p, bind(E.real_p, x)), bind(E.is_finite_p, bind(E.imag_p, x)))
    return bind(E.is_finite_p, x)


def _nan(x: Any) -> Any:
    return bind(E.ne_p, x, x)


def _any(conditions: list[Any], like: Any) -> Any:
    result = None
    for condition in conditions:
        condition = condition if condition.shape == like.shape else broadcast_to(condition, tuple(like.shape))
        result = condition if result is None else bind(E.or_p, result, condition)
    return broadcast_to(literal(False, BOOL), tuple(like.shape)) if result is None else result


def _all_finite(value: Any) -> bool:
    if isinstance(value, Tracer):  # of the trace around; it is told of there
        return True
    array = np.asarray(value)
    return array.dtype.kind not in "fc" or bool(np.isfinite(array).all())


# Conditions of NumPy's own rules.


def notice_out_of_bounds(index: Any, extent: int) -> None:
    """Notice integers that are no index of a dimension of this extent."""
    if watching() and index.dtype.kind in "iu":
        wide = convert(index, np.dtype(np.int64)) if index.dtype.kind == "i" else convert(index, np.dtype(np.uint64))
        above = bind(E.ge_p, wide, literal(extent, wide.dtype))
        notice(
            above if index.dtype.kind == "u" else bind(E.or_p, above, bind(E.lt_p, wide, literal(-extent, wide.dtype)))
        )


def notice_out_of_range(index: Any, extent: int) -> None:
    """Notice integers outside [0, extent)."""
    if watching() and index.dtype.kind in "iu":
        wide = convert(index, np.dtype(np.int64 if index.dtype.kind == "i" else np.uint64))
        above = bind(E.ge_p, wide, literal(extent, wide.dtype))
        notice(above if index.dtype.kind == "u" else bind(E.or_p, above, bind(E.lt_p, wide, literal(0, wide.dtype))))


def notice_overflow(name: str, operands: list[Any], result: Any) -> None:
    """Notice where integer arithmetic on NumPy's scalars, which tells of it, comes near the end of its range."""
    if not watching() or result.dtype.kind not in "iu" or name not in _APPROXIMATIONS:
        return
    wide = [convert(x, np.dtype(np.float64)) for x in operands]
    value = _APPROXIMATIONS[name](*wide)
    info = np.iinfo(result.dtype)
    slack = 2.0**11 if result.dtype.itemsize == 8 else 0.0
    high = bind(E.gt_p, value, literal(float(info.max) - slack, value.dtype))
    low = bind(E.lt_p, value, literal(float(info.min) + (slack if info.min else 0.0), value.dtype))
    notice(bind(E.or_p, high, low))


_APPROXIMATIONS: dict[str, Any] = {
    "add": lambda x, y: bind(E.add_p, x, y),
    "subtract": lambda x, y: bind(E.sub_p, x, y),
    "multiply": lambda x, y: bind(E.mul_p, x, y),
    "square": lambda x: bind(E.mul_p, x, x),
    "power": lambda x, y: bind(E.pow_p, x, y),
    "negative": lambda x: bind(E.neg_p, x),
    "absolute": lambda x: bind(E.abs_p, x),
}


def notice_unrepresentable(value: Any, dtype: np.dtype) -> None:
    """Notice floats whose integer part the integers of `dtype` do not hold: what NumPy makes of them is the processor's."""
    if not watching():
        return
    bits = 32 if dtype.itemsize < 4 else 8 * dtype.itemsize
    signed = dtype.kind == "i" or dtype.itemsize < 4  # small integers come from int32, and wrap
    low, high = (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1)) if signed else (-1.0, 2.0**bits)
    if value.dtype.itemsize < 4:
        return notice(bind(E.not_p, bind(E.is_finite_p, value))) if signed else _outside(value, -1.0, None)
    exact = signed and low - 1 != low and value.dtype == np.float64  # numbers above low - 1 become low
    _outside(value, low - 1 if exact else low, high, not exact and signed)


def _outside(value: Any, low: float, high: float | None, low_included: bool = False) -> None:
    inside = bind(E.ge_p if low_included else E.gt_p, value, literal(low, value.dtype))
    below = bind(E.is_finite_p, value) if high is None else bind(E.lt_p, value, literal(high, value.dtype))
    notice(bind(E.not_p, bind(E.and_p, inside, below)))
