"""What is checked of a primitive: results that are nan, divisors that are zero, indices that are out of bounds.

A rule takes (state, enabled categories, equation, operands, results) and gives the state after its checks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser import lax
from fuser import numpy as fnp
from fuser.experimental.checkify.errors import INDEX, DivisionByZeroError, Entry, ErrorCategory, NaNError, OOBError
from fuser.experimental.checkify.state import State
from fuser.ir.graph import Eqn
from fuser.ir.primitive import REGISTRY, Primitive
from fuser.ir.types import is_inexact
from fuser.ops.calls import custom_jvp_call_p, custom_vjp_call_p
from fuser.ops.dynamic import dynamic_slice_p, dynamic_update_slice_p
from fuser.ops.elementwise import div_p
from fuser.ops.indexing import as_gather, gather_p, window_sizes
from fuser.ops.scatter import scatter_add_p, scatter_max_p, scatter_min_p, scatter_mul_p, scatter_p

Enabled = frozenset[ErrorCategory]
Rule = Callable[[State, Enabled, Eqn, Sequence[Any], Sequence[Any]], State]

# The primitives that may give a nan where no operand is one; others hand on what they are given.
_NAN = (
    "acos acosh add asin asinh atan2 atan atanh bessel_i0e bessel_i1e bessel_j0 bessel_j1 cbrt conv_general_dilated cos cosh cumlogsumexp cummax "
    "cummin cumprod cumsum digamma div dot_general erf_inv erf erfc exp exp2 expm1 fft igamma_grad_a igamma igammac integer_pow "
    "lgamma custom_linear_solve log1p log logistic mul pad polygamma pow psum reduce_prod reduce_sum reduce_window "
    "reduce_window_sum regularized_incomplete_beta rem rsqrt sin sinh sqrt square sub tan tanh zeta"
)
NAN = frozenset(REGISTRY[name] for name in _NAN.split() if name in REGISTRY)


def _nan(state: State, enabled: Enabled, eqn: Eqn, operands: Sequence[Any], results: Sequence[Any]) -> State:
    floats = [r for r in results if is_inexact(r.dtype)]
    if NaNError not in enabled or not floats:
        return state
    found = fnp.any(fnp.stack([fnp.any(fnp.isnan(r)) for r in floats]))
    return state.asserted(found, Entry(NaNError, (), (eqn.primitive.name,), eqn.source.short))


def _div(state: State, enabled: Enabled, eqn: Eqn, operands: Sequence[Any], results: Sequence[Any]) -> State:
    if DivisionByZeroError in enabled:
        entry = Entry(DivisionByZeroError, (), (), eqn.source.short)
        state = state.asserted(fnp.any(fnp.equal(operands[1], 0)), entry)
    return _nan(state, enabled, eqn, operands, results)


def _in_bounds(state: State, eqn: Eqn, operand: Any, starts: Any, axes: Sequence[int], sizes: Sequence[int]) -> State:
    """The state after a look at starts, one component for each of the `axes` along the last dimension, of windows."""
    if not axes or 0 in starts.shape:
        return state
    extents = [operand.shape[axis] for axis in axes]
    last = np.array([min(e - s, np.iinfo(starts.dtype).max) for e, s in zip(extents, sizes)]).astype(starts.dtype)
    flat = starts.reshape((-1, len(axes)))
    outside = (flat < 0) | (flat > last[None])
    first = fnp.argmax(outside.reshape(-1))
    component = first % len(axes)
    index = lax.dynamic_index_in_dim(flat.reshape(-1), first, keepdims=False)
    parts = [
        index,
        fnp.asarray(np.array(axes, np.int32))[component],
        fnp.asarray(np.array(extents, np.int32))[component],
    ]
    payload = fnp.stack([fnp.asarray(p, np.int32) for p in parts])
    entry = Entry(OOBError, INDEX, (tuple(operand.shape),), eqn.source.short)
    return state.asserted(fnp.any(outside), entry, [payload])


def _dynamic_slice(state: State, enabled: Enabled, eqn: Eqn, operands: Sequence[Any], results: Sequence[Any]) -> State:
    updated = eqn.primitive is dynamic_update_slice_p
    operand, starts = operands[0], operands[2 if updated else 1 :]
    sizes = operands[1].shape if updated else eqn.params["slice_sizes"]
    if OOBError not in enabled or not starts:
        return state
    return _in_bounds(state, eqn, operand, fnp.stack(starts), range(operand.ndim), sizes)


def _gather(state: State, enabled: Enabled, eqn: Eqn, operands: Sequence[Any], results: Sequence[Any]) -> State:
    if OOBError not in enabled:
        return state
    operand, starts = operands
    axes, sizes = eqn.params["dimension_numbers"].start_index_map, eqn.params["slice_sizes"]
    return _in_bounds(state, eqn, operand, starts, axes, [sizes[axis] for axis in axes])


def _scatter(state: State, enabled: Enabled, eqn: Eqn, operands: Sequence[Any], results: Sequence[Any]) -> State:
    if OOBError in enabled:
        operand, starts, updates = operands
        numbers = eqn.params["dimension_numbers"]
        sizes = window_sizes(operand, updates, numbers)
        axes = as_gather(numbers).start_index_map
        state = _in_bounds(state, eqn, operand, starts, axes, [sizes[axis] for axis in axes])
    return _nan(state, enabled, eqn, operands, results)


# Rules of functions that bring their own derivatives, with a state of so many arrays as the last arguments and results.


def _jvp_with_state(rule: Callable[..., Any], count: int) -> Callable[..., Any]:
    def with_state(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        outs, moved = rule(primals[:-count], tangents[:-count])
        return [*outs, *primals[-count:]], [*moved, *tangents[-count:]]

    return with_state


def _fwd_with_state(fwd: Callable[..., Any], count: int) -> Callable[..., Any]:
    def with_state(primals: Sequence[Any], perturbed: Sequence[bool]) -> tuple[list[Any], Any, Callable[..., Any]]:
        outs, residuals, bwd = fwd(primals[:-count], perturbed[:-count])

        def pulled(residuals: Any, cotangents: Sequence[Any]) -> list[Any]:
            return [*bwd(residuals, cotangents[:-count]), *cotangents[-count:]]

        return [*outs, *primals[-count:]], residuals, pulled

    return with_state


# By primitive: the param that holds the rule, and the rule with a state.
RULED: dict[Primitive, tuple[str, Callable[[Any, int], Any]]] = {
    custom_jvp_call_p: ("jvp_jaxpr_fun", _jvp_with_state),
    custom_vjp_call_p: ("fwd_jaxpr_thunk", _fwd_with_state),
}
RULES: dict[Primitive, Rule] = {
    **dict.fromkeys(NAN, _nan),
    div_p: _div,
    dynamic_slice_p: _dynamic_slice,
    dynamic_update_slice_p: _dynamic_slice,
    gather_p: _gather,
    **dict.fromkeys((scatter_p, scatter_add_p, scatter_mul_p, scatter_min_p, scatter_max_p), _scatter),
}
