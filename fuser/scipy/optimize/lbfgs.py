"""L-BFGS: Nocedal & Wright, "Numerical optimization" (1999), algorithms 7.4 and 7.5; for complex variables after Sorber,
Van Barel & De Lathauwer, SIAM Journal on Optimization 22 (2012)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fuser import numpy as fnp
from fuser.lax.control import fori_loop, while_loop
from fuser.scipy.optimize.line_search import line_search
from fuser.transforms.grad import value_and_grad


class State(NamedTuple):
    """Where the minimisation stands, with the last steps, changes of the gradient, and 1/⟨change, step⟩; newest last."""

    converged: Any
    failed: Any
    k: Any
    nfev: Any
    ngev: Any
    x: Any
    value: Any
    gradient: Any
    steps: Any
    changes: Any
    inverses: Any
    gamma: Any
    status: Any


def minimize_lbfgs(
    fun: Callable[..., Any], x0: Any, maxiter: float | None = None, norm: Any = np.inf, maxcor: int = 10,
    ftol: float = 2.220446049250313e-09, gtol: float = 1e-05, maxfun: float | None = None,
    maxgrad: float | None = None, maxls: int = 20,
) -> State:  # fmt: skip
    """From x0 until the gradient's norm is below `gtol`; `status` 1 to 3: out of iterations, values or gradients, 4: the
    value falls by less than `ftol`, 5: no step was found."""
    if maxiter is None and maxfun is None and maxgrad is None:
        maxiter = x0.shape[0] * 200
    most, values, gradients = (np.inf if m is None else m for m in (maxiter, maxfun, maxgrad))

    def body(state: State) -> State:
        direction = _direction(state)
        found = line_search(fun, state.x, direction, state.value, state.gradient, maxiter=maxls)
        step, change = found.step.astype(direction.dtype) * direction, found.gradient - state.gradient
        product = fnp.real(fnp.dot(change, step))
        reasons = (
            (state.value - found.value < ftol, 4),
            (state.ngev >= gradients, 3),
            (state.nfev >= values, 2),
            (state.k >= most, 1),
            (found.failed, 5),
        )
        status: Any = fnp.asarray(0)
        for holds, number in reasons:
            status = fnp.where(holds, number, status)
        converged = fnp.linalg.norm(found.gradient, ord=norm) < gtol
        pushed = lambda history, new: fnp.concatenate([history[1:], fnp.expand_dims(new, 0).astype(history.dtype)])
        return State(
            converged,
            (status > 0) & ~converged,
            state.k + 1,
            state.nfev + found.nfev,
            state.ngev + found.ngev,
            (state.x + step).astype(state.x.dtype),
            found.value.astype(state.value.dtype),
            found.gradient.astype(state.gradient.dtype),
            pushed(state.steps, step),
            pushed(state.changes, change),
            pushed(state.inverses, fnp.reciprocal(product)),
            (product / fnp.real(fnp.dot(fnp.conj(change), change))).astype(state.gamma.dtype),
            fnp.where(converged, 0, status),
        )

    value, gradient = value_and_grad(fun)(x0)
    no, zero, one = fnp.asarray(False), fnp.asarray(0), fnp.asarray(1)
    history = fnp.zeros((maxcor, *x0.shape), x0.dtype)
    begin = State(
        no, no, zero, one, one, x0, value, gradient, history, history, fnp.zeros((maxcor,), x0.dtype),
        fnp.ones((), gradient.dtype), zero,
    )  # fmt: skip
    return while_loop(lambda s: ~s.converged & ~s.failed, body, begin)  # type: ignore[no-any-return]


def _direction(state: State) -> Any:
    """The two loops of algorithm 7.4: from the newest pair to the oldest, and back."""
    size = state.inverses.shape[0]
    known = fnp.minimum(state.k, size)

    def back(j: Any, carry: Any) -> Any:
        q, weights = carry
        i = size - 1 - j
        weight = state.inverses[i] * fnp.real(fnp.dot(fnp.conj(state.steps[i]), q)).astype(weights.dtype)
        return q - weight * fnp.conj(state.changes[i]), weights.at[i].set(weight)

    q, weights = fori_loop(0, known, back, (-fnp.conj(state.gradient), fnp.zeros_like(state.inverses)))

    def forth(j: Any, q: Any) -> Any:
        i = size - known + j
        weight = state.inverses[i] * fnp.real(fnp.dot(state.changes[i], q)).astype(weights.dtype)
        return q + (weights[i] - weight) * state.steps[i]

    return fori_loop(0, known, forth, state.gamma * q)
