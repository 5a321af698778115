"""Elementwise primitives of a logarithm and what cancels it at a limit: logaddexp, xlogy, logit and others.

Each would be a composition, were it not for its derivative: the composition's is nan or wrong at the limit, at a tie or at
infinity. Derivatives are those of jax.numpy, jax.nn and jax.scipy.special.
"""

from __future__ import annotations

import math
from typing import Any

from fuser.ir.primitive import Primitive
from fuser.ir.types import FLOATS
from fuser.ops.elementwise import exp2_p, exp_p, expm1_p, log1p_p, log_p, select_n_p
from fuser.ops.family import constant, elementwise


def _log_of_sum(x: Any, y: Any, m: Any, exponential: Any, scale: float) -> Any:
    """The greater operand and a tail that fades with their distance; their sum where the distance is nan."""
    distance = x - y
    tail = m.log1p(exponential(-m.absolute(distance)))
    return m.where(m.equal(distance, distance), m.maximum(x, y) + (tail if scale == 1 else scale * tail), x + y)


def _share(exponential: Primitive, x: Any, out: Any) -> Any:
    """The part of the sum that is x's; 1 where both are inf."""
    finite_x, finite_out = (select_n_p.bind(v == math.inf, v, constant(0, v)) for v in (x, out))
    return exponential.bind(finite_x - finite_out)


logaddexp_p = elementwise(
    "logaddexp",
    FLOATS,
    arity=2,
    both=lambda x, y, m: _log_of_sum(x, y, m, m.exp, 1),
    wide=True,
    jvp=(lambda t, x, y, out: t * _share(exp_p, x, out), lambda t, x, y, out: t * _share(exp_p, y, out)),
)
logaddexp2_p = elementwise(
    "logaddexp2",
    FLOATS,
    arity=2,
    both=lambda x, y, m: _log_of_sum(x, y, m, m.exp2, 1 / math.log(2)),
    wide=True,
    jvp=(lambda t, x, y, out: t * _share(exp2_p, x, out), lambda t, x, y, out: t * _share(exp2_p, y, out)),
)


def _times_log(x: Any, y: Any, m: Any, logarithm: Any) -> Any:
    """x·logarithm(y), and 0 where x is 0, unless y is nan."""
    return m.where(m.equal(x, 0.0) & m.equal(y, y), 0.0, x * logarithm(y))


xlogy_p = elementwise(
    "xlogy",
    FLOATS,
    arity=2,
    both=lambda x, y, m: _times_log(x, y, m, m.log),
    wide=True,
    domain=(0.1, 9.0),
    jvp=(lambda t, x, y, out: t * log_p.bind(y), lambda t, x, y, out: t * (x / y)),
)
xlog1py_p = elementwise(
    "xlog1py",
    FLOATS,
    arity=2,
    both=lambda x, y, m: _times_log(x, y, m, m.log1p),
    wide=True,
    domain=(-0.9, 9.0),
    jvp=(lambda t, x, y, out: t * log1p_p.bind(y), lambda t, x, y, out: t * (x / (1 + y))),
)
xlogx_p = elementwise(
    "xlogx",
    FLOATS,
    both=lambda x, m: _times_log(x, x, m, m.log),
    wide=True,
    domain=(0.1, 9.0),
    jvp=(lambda t, x, out: t * (log_p.bind(x) + 1),),
)
logit_p = elementwise(
    "logit",
    FLOATS,
    both=lambda x, m: m.log(x / (1 - x)),
    wide=True,
    domain=(0.05, 0.95),
    jvp=(lambda t, x, out: t / (x * (1 - x)),),
)
log1mexp_p = elementwise(
    "log1mexp",
    FLOATS,
    both=lambda x, m: m.where(x < math.log(2), m.log(-m.expm1(-x)), m.log1p(-m.exp(-x))),
    wide=True,
    domain=(0.1, 9.0),
    jvp=(lambda t, x, out: t / expm1_p.bind(x),),
)
