"""jax.scipy.optimize's names: `minimize`, by BFGS or L-BFGS, as loops that `jit` compiles whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fuser.lax.values import as_value
from fuser.scipy.optimize.bfgs import minimize_bfgs
from fuser.scipy.optimize.lbfgs import minimize_lbfgs

__all__ = ["OptimizeResults", "minimize"]


class OptimizeResults(NamedTuple):
    """What a minimisation found. `status`: 0 converged, 1 out of iterations, else why no step was found; -1 undefined."""

    x: Any
    success: Any
    status: Any
    fun: Any
    jac: Any
    hess_inv: Any
    nfev: Any
    njev: Any
    nit: Any


def minimize(
    fun: Callable[..., Any], x0: Any, args: tuple[Any, ...] = (), *, method: str, tol: float | None = None,
    options: Mapping[str, Any] | None = None,
) -> OptimizeResults:  # fmt: skip
    """A local minimum of `fun(x, *args)`, a number, from the vector `x0`; gradients are `fuser.grad`'s.

    `method` is "BFGS" (options maxiter, norm, gtol, line_search_maxiter) or "l-bfgs-experimental-do-not-rely-on-this"
    (maxiter, norm, maxcor, ftol, gtol, maxfun, maxgrad, maxls); ValueError for others.
    """
    if not isinstance(args, tuple):
        raise TypeError(f"args argument to jax.scipy.optimize.minimize must be a tuple, got {args}")
    objective = lambda x: fun(x, *args)
    start, given = as_value(x0, "minimize"), dict(options or {})
    if method.lower() == "bfgs":
        found: Any = minimize_bfgs(objective, start, **given)
        inverse = found.inverse_hessian
    elif method.lower() == "l-bfgs-experimental-do-not-rely-on-this":
        found, inverse = minimize_lbfgs(objective, start, **given), None
    else:
        raise ValueError(f"Method {method} not recognized")
    success = found.converged & ~found.failed
    return OptimizeResults(
        found.x, success, found.status, found.value, found.gradient, inverse, found.nfev, found.ngev, found.k
    )
