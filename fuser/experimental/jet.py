"""jax.experimental.jet's names: Taylor series of functions along curves, to any order.

A value carries the coefficients x₀ + x₁t + x₂t² + …. Sums and products have rules of their own; every other primitive is
served by its jvp rule, for if z = f(x), then ż = ∂f(x)·ẋ gives z's coefficients from those of one order less.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from fuser import lax
from fuser import numpy as fnp
from fuser.gaps import absent
from fuser.ir.primitive import REGISTRY, Primitive
from fuser.trace import tree
from fuser.trace.core import Trace, Tracer, _state, current, forwarded, type_of
from fuser.trace.jvp import differentiate
from fuser.trace.tangent import Zero, as_array, differentiable

__all__ = [
    "JetTrace", "JetTracer", "ZeroSeries", "ZeroTerm", "def_comp", "def_deriv", "deflinear", "defzero", "deriv_prop", "fact",
    "jet", "jet_rules", "linear_prop", "zero_prop", "zero_series", "zero_term",
]  # fmt: skip

Terms = Sequence[Any]


class ZeroTerm:
    """A coefficient that is 0."""


class ZeroSeries:
    """Coefficients that are all 0."""


zero_term, zero_series = ZeroTerm(), ZeroSeries()


def fact(n: Any) -> Any:
    """n! of a number."""
    return lax.exp(lax.lgamma(n + 1.0))


class JetTracer(Tracer):
    """A value with the coefficients of t, t², … of its series."""

    __slots__ = ("_primal", "_terms")

    def __init__(self, trace: Trace, primal: Any, terms: Terms) -> None:
        super().__init__(trace, type_of(primal))
        self._primal = primal
        self._terms = terms

    def __bool__(self) -> bool:
        return bool(self._primal)

    def __int__(self) -> int:
        return int(self._primal)

    def __index__(self) -> int:
        return int(self._primal.__index__())


class JetTrace(Trace):
    """Gives each primitive to the parent, once a coefficient, as the primitive's series goes."""

    name = "jet"

    def __init__(self, parent: Trace, order: int) -> None:
        self.parent = parent
        self.order = order

    def series(self, value: Any) -> tuple[Any, Terms | None]:
        """A value and its coefficients; None for what does not move."""
        if isinstance(value, JetTracer) and value._trace is self:
            return value._primal, value._terms
        return value, None

    def result(self, primal: Any, terms: Terms | ZeroSeries | None) -> Any:
        if terms is None or isinstance(terms, ZeroSeries) or not differentiable(type_of(primal)):
            return primal
        return JetTracer(self, primal, [_whole(t, primal) for t in terms])

    def process(self, primitive: Primitive, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        if not any(isinstance(a, JetTracer) and a._trace is self for a in args):
            return forwarded(self.parent, primitive, args, params)
        primals, terms = zip(*map(self.series, args))
        saved, _state.trace = _state.trace, self.parent
        try:
            rule = jet_rules.get(primitive)
            if rule is None:
                out, found = _by_jvp(self, primitive, [as_array(p) for p in primals], terms, params)
            else:
                given = [[fnp.zeros(p.shape, p.dtype)] * self.order if t is None else t for p, t in zip(primals, terms)]
                out, found = rule([as_array(p) for p in primals], given, **params)
        finally:
            _state.trace = saved
        if primitive.multiple_results:
            found = [None] * len(out) if isinstance(found, ZeroSeries) else found
            return [self.result(p, t) for p, t in zip(out, found)]
        return self.result(out, found)


def _whole(term: Any, primal: Any) -> Any:
    return fnp.zeros(primal.shape, primal.dtype) if isinstance(term, (ZeroTerm, Zero)) else term


def _by_jvp(
    trace: JetTrace, primitive: Primitive, primals: Sequence[Any], terms: Sequence[Terms | None], params: dict[str, Any]
) -> tuple[Any, Any]:
    """The series from the jvp rule, applied to series of one order less: those of the operands and of their derivatives."""
    lower = None if trace.order == 1 else JetTrace(trace.parent, trace.order - 1)

    def series(values: Sequence[Any]) -> Any:
        return values[0] if lower is None else JetTracer(lower, values[0], values[1:])

    operands, tangents = [], []
    for primal, own in zip(primals, terms):
        if own is None:
            operands.append(primal)
            tangents.append(Zero(type_of(primal)))
            continue
        operands.append(series([primal, *own[:-1]]))
        tangents.append(series([n * term for n, term in enumerate(own, 1)]))
    if lower is not None:
        _state.trace = lower
    out, tangent = differentiate(primitive, tuple(operands), tuple(tangents), params, "jet")
    several = primitive.multiple_results
    pairs = list(zip(out, tangent)) if several else [(out, tangent)]
    split = (lambda v: (v, None)) if lower is None else lower.series
    found: list[tuple[Any, Any]] = []
    for value, slope in pairs:
        if type(slope) is Zero:
            found.append((split(value)[0], None))
            continue
        first, rest = split(slope)
        slopes = [first, *(rest if rest is not None else [zero_term] * (trace.order - 1))]
        coefficients = [s if isinstance(s, ZeroTerm) else s / n for n, s in enumerate(slopes, 1)]
        found.append((split(value)[0], coefficients))
    if several:
        return [v for v, _ in found], [t for _, t in found]
    return found[0]


def jet(
    fun: Callable[..., Any], primals: Sequence[Any], series: Sequence[Terms], factorial_scaled: bool = True, **_: Any
) -> tuple[Any, Any]:
    """(values, series) of `fun` along the curve through `primals` with these coefficients, as many as `series` has.

    With `factorial_scaled` (the rule) terms are derivatives, n! times the coefficients. ValueError for primals that are no
    arrays, and for series of different lengths.
    """
    lengths = {len(terms) for terms in series}
    if len(lengths) != 1:
        raise ValueError("jet terms have inconsistent lengths for different arguments")
    (order,) = lengths
    for n, (primal, terms) in enumerate(zip(primals, series)):
        for what, value in (
            (f"primal value at position {n}", primal),
            *((f"term {k} for argument {n}", t) for k, t in enumerate(terms)),
        ):
            if tree.structure(value).num_leaves != 1 or isinstance(value, (list, tuple, dict)):
                raise ValueError(f"{what} is not an array")
    scale = [math.factorial(n) if factorial_scaled else 1 for n in range(1, order + 1)]
    trace = JetTrace(current(), order)
    arrays = [fnp.asarray(p) for p in primals]
    coefficients = [
        [fnp.asarray(t).astype(p.dtype) / s for t, s in zip(terms, scale)] for p, terms in zip(arrays, series)
    ]
    saved, _state.trace = _state.trace, trace
    try:
        inputs = [trace.result(p, c) if order else p for p, c in zip(arrays, coefficients)]
        leaves, structure = tree.flatten(fun(*inputs))
    finally:
        _state.trace = saved
        trace.closed = True
    pairs = [trace.series(leaf) for leaf in leaves]
    terms_out = [
        [t * s for t, s in zip(terms, scale)] if terms is not None else [fnp.zeros_like(as_array(p))] * order
        for p, terms in pairs
    ]
    return tree.unflatten(structure, [p for p, _ in pairs]), tree.unflatten(structure, terms_out)


# Rules: `(primals, series, **params) -> (primal, terms)`.

Rule = Callable[..., tuple[Any, Any]]
jet_rules: dict[Primitive, Rule] = {}


def zero_prop(prim: Primitive, primals_in: Any, series_in: Any, **params: Any) -> tuple[Any, Any]:
    """The rule of a primitive whose result does not move."""
    return prim.bind(*primals_in, **params), zero_series


def linear_prop(prim: Primitive, primals_in: Any, series_in: Any, **params: Any) -> tuple[Any, Any]:
    """The rule of a primitive that is linear in all operands together."""
    out = prim.bind(*primals_in, **params)
    terms = [prim.bind(*each, **params) for each in zip(*series_in)]
    return out, ([list(t) for t in zip(*terms)] if prim.multiple_results else terms)


def deriv_prop(prim: Primitive, deriv: Callable[..., Any], primals_in: Any, series_in: Any) -> tuple[Any, Any]:
    """The rule of a function of one operand whose derivative is `deriv`."""
    (x,), (terms,) = primals_in, series_in
    order = len(terms)
    if order == 1:
        slopes = [deriv(x)]
    else:
        first, more = jet(deriv, (x,), (terms[:-1],), factorial_scaled=False)
        slopes = [first, *more]
    moving = [n * t for n, t in enumerate(terms, 1)]
    found = [sum(slopes[k] * moving[n - k] for k in range(n + 1)) / (n + 1) for n in range(order)]
    return prim.bind(x), found


def defzero(prim: Primitive) -> None:
    """Its result does not move."""
    jet_rules[prim] = partial(zero_prop, prim)


def deflinear(prim: Primitive) -> None:
    """It is linear in all operands together."""
    jet_rules[prim] = partial(linear_prop, prim)


def def_deriv(prim: Primitive, deriv: Callable[..., Any]) -> None:
    """It has one operand, and this derivative."""
    jet_rules[prim] = partial(deriv_prop, prim, deriv)


def def_comp(prim: Primitive, comp: Callable[..., Any], **kwargs: Any) -> None:
    """It is this composition of others."""
    jet_rules[prim] = partial(jet, comp, factorial_scaled=False, **kwargs)


def _bilinear(prim: Primitive, primals_in: Any, series_in: Any, **params: Any) -> tuple[Any, Any]:
    """Cauchy's product."""
    (x, y), (xs, ys) = primals_in, series_in
    left, right = [x, *xs], [y, *ys]
    term = lambda n: [prim.bind(left[k], right[n - k], **params) for k in range(n + 1)]
    out, *terms = [sum(more, first) for first, *more in map(term, range(len(left)))]
    return out, terms


def _quotient(primals_in: Any, series_in: Any) -> tuple[Any, Any]:
    """z·y = x, coefficient by coefficient."""
    (x, y), (xs, ys) = primals_in, series_in
    found = [REGISTRY["div"].bind(x, y)]
    for n, own in enumerate(xs, 1):
        known = sum(found[k] * ys[n - k - 1] for k in range(n))
        found.append((own - known) / y)
    return found[0], found[1:]


def _choice(primals_in: Any, series_in: Any) -> tuple[Any, Any]:
    which, *cases = primals_in
    select = REGISTRY["select_n"].bind
    return select(which, *cases), [select(which, *each) for each in zip(*series_in[1:])]


for _name in ("add", "sub", "add_any", "neg", "complex", "concatenate", "pad"):
    deflinear(REGISTRY[_name])
for _primitive in REGISTRY.values():
    if _primitive.linear and _primitive.fusion.name == "MOVEMENT" and _primitive not in jet_rules:
        deflinear(_primitive)
for _name in ("mul", "dot_general", "conv_general_dilated"):
    jet_rules[REGISTRY[_name]] = partial(_bilinear, REGISTRY[_name])
jet_rules[REGISTRY["div"]] = _quotient
jet_rules[REGISTRY["select_n"]] = _choice

__getattr__ = absent(__name__)
