"""BFGS: Nocedal & Wright, "Numerical optimization" (1999), algorithm 6.1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fuser import numpy as fnp
from fuser.lax.control import while_loop
from fuser.scipy.optimize.line_search import line_search
from fuser.transforms.grad import value_and_grad


class State(NamedTuple):
    """Where the minimisation stands."""

    converged: Any
    failed: Any
    k: Any
    nfev: Any
    ngev: Any
    x: Any
    value: Any
    gradient: Any
    inverse_hessian: Any
    value_before: Any
    status: Any
    search_status: Any


def minimize_bfgs(
    fun: Callable[..., Any], x0: Any, maxiter: int | None = None, norm: Any = np.inf, gtol: float = 1e-5,
    line_search_maxiter: int = 10,
) -> State:  # fmt: skip
    """From x0 until the gradient's norm is below `gtol`, no step is found, or after `maxiter` (200 a variable) steps."""
    most = x0.size * 200 if maxiter is None else maxiter
    identity = fnp.eye(x0.shape[0], dtype=x0.dtype)
    small = lambda gradient: fnp.linalg.norm(gradient, ord=norm) < gtol

    def body(state: State) -> State:
        direction = -fnp.dot(state.inverse_hessian, state.gradient)
        found = line_search(
            fun, state.x, direction, state.value, state.gradient, state.value_before, maxiter=line_search_maxiter
        )
        step, change = found.step * direction, found.gradient - state.gradient
        inverse = fnp.reciprocal(fnp.dot(change, step))
        along = identity.astype(inverse.dtype) - inverse * step[:, None] * change[None, :]
        updated = along @ state.inverse_hessian @ along.T + inverse * step[:, None] * step[None, :]
        return State(
            small(found.gradient),
            found.failed,
            state.k + 1,
            state.nfev + found.nfev,
            state.ngev + found.ngev,
            state.x + step,
            found.value,
            found.gradient,
            fnp.where(fnp.isfinite(inverse), updated, state.inverse_hessian),
            state.value,
            state.status,
            found.status,
        )

    value, gradient = value_and_grad(fun)(x0)
    zero, one = fnp.asarray(0), fnp.asarray(1)
    begin = State(
        small(gradient), fnp.asarray(False), zero, one, one, x0, value, gradient, identity,
        value + fnp.linalg.norm(gradient) / 2, zero, zero,
    )  # fmt: skip
    state = while_loop(lambda s: ~s.converged & ~s.failed & (s.k < most), body, begin)
    ended = fnp.where(state.k == most, 1, fnp.where(state.failed, 2 + state.search_status, -1))
    return state._replace(status=fnp.where(state.converged, 0, ended))
