"""jaxopt: gradient descent, L-BFGS, projected gradients, a fixed point differentiated implicitly, Levenberg–Marquardt."""

import jax
import jax.numpy as jnp
import jaxopt


def _rosenbrock(x):
    return ((1 - x[:-1]) ** 2).sum() + 5 * ((x[1:] - x[:-1] ** 2) ** 2).sum()


def lbfgs():
    return jaxopt.LBFGS(fun=_rosenbrock, maxiter=12).run(jnp.array([0.2, 0.5, -0.3])).params


def projected():
    solver = jaxopt.ProjectedGradient(
        fun=lambda x, c: ((x - c) ** 2).sum(), projection=jaxopt.projection.projection_simplex, maxiter=30
    )
    return solver.run(jnp.ones(4) / 4, hyperparams_proj=1.0, c=jnp.array([0.1, 0.9, -0.4, 0.3])).params


def implicit_gradient():
    solver = jaxopt.FixedPointIteration(lambda x, t: jnp.cos(t * x), maxiter=60, tol=1e-6, implicit_diff=True)
    return jax.value_and_grad(lambda t: solver.run(jnp.array(0.5), t).params)(0.8)


def least_squares():
    t = jnp.linspace(0, 1, 10)
    solver = jaxopt.LevenbergMarquardt(lambda p: p[0] * jnp.exp(p[1] * t) - 2 * jnp.exp(-t), maxiter=15)
    return solver.run(jnp.array([1.0, 0.0])).params
