"""Rules of bits, comparisons, selection and conversion."""

from __future__ import annotations

import numpy as np
from ml_dtypes import finfo

from fuser.ir.graph import Eqn
from fuser.ir.rewrite import Rewriter
from fuser.ir.types import BOOL, FLOATS, INTEGERS
from fuser.ops import elementwise as E
from fuser.ops import movement as M
from fuser.ops.conversion import bitcast_convert_type_p, convert_element_type_p
from fuser.passes.algebra.rule import (
    BITS,
    REALS,
    Result,
    Rule,
    absorbed,
    all_ones,
    constant,
    filled,
    first,
    fits,
    is_exact,
    is_number,
    like,
    partner,
    partner_of,
    same_operands,
    second_is,
    twice,
    when,
    zero,
)


def _bool_against_literal(eqn: Eqn, rewriter: Rewriter) -> Result:
    """`x == True` and its like, for a bool `x`."""
    if eqn.invars[0].aval.dtype != BOOL:
        return None
    plain = eqn.primitive is E.eq_p
    x = partner_of(eqn, rewriter, plain)
    if x is not None:
        return x
    x = partner_of(eqn, rewriter, not plain)
    return rewriter.make(E.not_p, x) if x is not None else None


_OPPOSITES = {E.eq_p: E.ne_p, E.ne_p: E.eq_p, E.lt_p: E.ge_p, E.le_p: E.gt_p, E.gt_p: E.le_p, E.ge_p: E.lt_p}


def _not_compared(eqn: Eqn, rewriter: Rewriter) -> Result:
    """`not (x == y)` as `x != y`; orders have an opposite only where there is no nan."""
    for primitive, opposite in _OPPOSITES.items():
        inner = rewriter.producer(eqn.invars[0], primitive)
        if inner is not None and (primitive in (E.eq_p, E.ne_p) or is_exact(inner)):
            return rewriter.make(opposite, *inner.invars)
    return None


def _count_below_zero(eqn: Eqn, rewriter: Rewriter) -> Result:
    """`iota < 0` is nowhere so."""
    if rewriter.producer(eqn.invars[0], M.iota_p) is None or not is_number(eqn.invars[1], rewriter, 0):
        return None
    return filled(eqn, rewriter, False)


def _select(eqn: Eqn, rewriter: Rewriter) -> Result:
    which, *cases = eqn.invars
    if all(c is cases[0] for c in cases) and fits(cases[0], eqn):
        return cases[0]
    number = rewriter.number(which)
    if number is not None:
        chosen = cases[min(max(int(number), 0), len(cases) - 1)]
        if fits(chosen, eqn):
            return chosen
        return rewriter.make(M.broadcast_in_dim_p, chosen, shape=eqn.outvars[0].aval.shape, broadcast_dimensions=())
    inverted = rewriter.producer(which, E.not_p)
    if inverted is not None and len(cases) == 2 and which.aval.dtype == BOOL:
        return rewriter.make(E.select_n_p, inverted.invars[0], cases[1], cases[0])
    return None


def _parts(eqn: Eqn, rewriter: Rewriter) -> Result:
    """`real(complex(x, y))` as `x`, `imag` as `y`."""
    inner = rewriter.producer(eqn.invars[0], E.complex_p)
    if inner is None:
        return None
    part = inner.invars[eqn.primitive is E.imag_p]
    return part if fits(part, eqn) else None


def _converted(eqn: Eqn, rewriter: Rewriter) -> Result:
    (x,), new = eqn.invars, np.dtype(eqn.params["new_dtype"])
    if x.aval.dtype == new:
        return x
    inner = rewriter.producer(x, convert_element_type_p)
    if inner is not None and _same_through(inner.invars[0].aval.dtype, x.aval.dtype, new):
        return rewriter.make(E.convert_element_type_p, inner.invars[0], **eqn.params)
    return None


def _same_through(old: np.dtype, middle: np.dtype, new: np.dtype) -> bool:
    """Whether every value of `old` converts to `new` alike directly and by way of `middle`."""
    saturates = old.kind in "iub" and middle.kind not in "iub" and new.kind in "iu"
    return _holds(old, middle) and (not saturates or _holds(old, new))


def _holds(old: np.dtype, new: np.dtype) -> bool:
    """Whether every value of `old` is a value of `new`: bools, integers and plain floats only."""
    if old == BOOL:
        return new == BOOL or new in INTEGERS or new in FLOATS
    if old in INTEGERS and new in INTEGERS:
        a, b = np.iinfo(old), np.iinfo(new)
        return b.min <= a.min and a.max <= b.max
    if old in INTEGERS and new in FLOATS:
        bits = old.itemsize * 8 - (old.kind == "i")
        return bits <= finfo(new).nmant + 1 and bits < finfo(new).maxexp
    if old in FLOATS and new in FLOATS:
        x, y = finfo(old), finfo(new)
        return x.nmant <= y.nmant and x.maxexp <= y.maxexp and x.minexp >= y.minexp
    return False


def _bitcast(eqn: Eqn, rewriter: Rewriter) -> Result:
    """Bits read as they are, or back as they were."""
    x = eqn.invars[0]
    inner = rewriter.producer(x, bitcast_convert_type_p)
    for candidate in (x, inner.invars[0] if inner is not None else x):
        if fits(candidate, eqn):
            return candidate
    return None


SELECTION: tuple[Rule, ...] = (
    Rule("not not x", (E.not_p,), twice(E.not_p), lambda x: E.not_p.bind(E.not_p.bind(x)), BITS),
    Rule("not (x == y)", (E.not_p,), _not_compared, lambda x, y: E.not_p.bind(E.eq_p.bind(x, y)), (BOOL, *REALS)),
    Rule("not (x < y)", (E.not_p,), _not_compared, lambda x, y: E.not_p.bind(E.lt_p.bind(x, y)), BITS),
    Rule("x & x", (E.and_p, E.or_p), when(lambda e, r: same_operands(e), first), lambda x: E.and_p.bind(x, x), BITS),
    Rule("x & ones", (E.and_p,), partner(all_ones), lambda x: E.and_p.bind(x, like(x, all_ones(x.dtype))), BITS),
    Rule("x & 0", (E.and_p,), absorbed(zero), lambda x: E.and_p.bind(x, like(x, 0)), BITS),
    Rule("x | 0", (E.or_p, E.xor_p), partner(zero), lambda x: E.or_p.bind(like(x, 0), x), BITS),
    Rule("x | ones", (E.or_p,), absorbed(all_ones), lambda x: E.or_p.bind(x, like(x, all_ones(x.dtype))), BITS),
    Rule("x ^ x", (E.xor_p,), constant(0), lambda x: E.xor_p.bind(x, x), BITS),
    Rule(
        "x << 0",
        (E.shift_left_p, E.shift_right_logical_p, E.shift_right_arithmetic_p),
        when(second_is(0), first),
        lambda x: E.shift_left_p.bind(x, like(x, 0)),
        INTEGERS,
    ),
    Rule("x == x", (E.eq_p, E.le_p, E.ge_p), constant(True), lambda x: E.eq_p.bind(x, x), BITS),
    Rule("x < x", (E.lt_p, E.gt_p), constant(False, exact=False), lambda x: E.lt_p.bind(x, x), (BOOL, *REALS)),
    Rule(
        "iota < 0",
        (E.lt_p,),
        _count_below_zero,
        lambda x: E.lt_p.bind(M.iota_p.bind(dtype=x.dtype, shape=x.shape, dimension=0), like(x, 0)),
        (*INTEGERS, *FLOATS),
    ),
    Rule("x != x", (E.ne_p,), constant(False), lambda x: E.ne_p.bind(x, x), BITS),
    Rule("x == True", (E.eq_p, E.ne_p), _bool_against_literal, lambda x: E.eq_p.bind(x, np.bool_(True)), (BOOL,)),
    Rule("x != True", (E.eq_p, E.ne_p), _bool_against_literal, lambda x: E.ne_p.bind(x, np.bool_(True)), (BOOL,)),
    Rule(
        "where(c, x, x)",
        (E.select_n_p,),
        _select,
        lambda c, x: E.select_n_p.bind(E.eq_p.bind(c, x), x, x),
        (BOOL, *REALS),
    ),
    Rule(
        "where(True, x, y)",
        (E.select_n_p,),
        _select,
        lambda x, y: E.select_n_p.bind(np.bool_(True), x, y),
        (BOOL, *REALS),
    ),
    Rule(
        "where(not c, x, y)",
        (E.select_n_p,),
        _select,
        lambda x, y: E.select_n_p.bind(E.not_p.bind(E.lt_p.bind(x, y)), x, y),
        (BOOL, *REALS),
    ),
    Rule(
        "real(complex(x, y))",
        (E.real_p, E.imag_p),
        _parts,
        lambda x, y: E.imag_p.bind(E.complex_p.bind(x, y)),
        FLOATS[2:],
    ),
    Rule(
        "conj(conj(x))",
        (E.conj_p,),
        twice(E.conj_p),
        lambda x: E.conj_p.bind(E.conj_p.bind(x)),
        (np.dtype("complex64"),),
    ),
    Rule(
        "convert to its own dtype",
        (convert_element_type_p,),
        _converted,
        lambda x: E.convert_element_type_p.bind(x, new_dtype=x.dtype, weak_type=False),
        (BOOL, *REALS),
    ),
    Rule(
        "convert through a wider dtype",
        (convert_element_type_p,),
        _converted,
        lambda x: E.convert_element_type_p.bind(
            E.convert_element_type_p.bind(x, new_dtype=np.dtype("float64"), weak_type=False),
            new_dtype=FLOATS[2],
            weak_type=False,
        ),
        (BOOL, *INTEGERS[:3], *INTEGERS[4:7], *FLOATS[:3]),
    ),
    Rule(
        "bits and back",
        (bitcast_convert_type_p,),
        _bitcast,
        lambda x: E.bitcast_convert_type_p.bind(
            E.bitcast_convert_type_p.bind(x, new_dtype=np.dtype(f"uint{x.dtype.itemsize * 8}")), new_dtype=x.dtype
        ),
        REALS,
    ),
)
