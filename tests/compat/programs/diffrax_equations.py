"""Diffrax, Optimistix and Lineax: differential equations and their gradients, roots, least squares, linear solves."""

import diffrax
import jax
import jax.numpy as jnp
import lineax as lx
import optimistix as optx


def linear_solves():
    a = jnp.array([[4.0, 1.0, 0.2], [1.0, 3.0, 0.1], [0.2, 0.1, 2.0]])
    b = jnp.array([1.0, 2.0, 3.0])
    general = lx.MatrixLinearOperator(a)
    definite = lx.MatrixLinearOperator(a, lx.positive_semidefinite_tag)

    @jax.jit
    def solve(b):
        return (
            lx.linear_solve(general, b).value,
            lx.linear_solve(definite, b, lx.Cholesky()).value,
            lx.linear_solve(definite, b, lx.CG(rtol=1e-6, atol=1e-6)).value,
        )

    return solve(b), jax.jacobian(lambda b: lx.linear_solve(general, b).value)(b)


def roots_and_fits():
    t = jnp.linspace(0, 1, 8)
    fit = optx.least_squares(
        lambda p, _: p[0] * jnp.exp(p[1] * t) - 2 * jnp.exp(-t),
        optx.LevenbergMarquardt(1e-5, 1e-5),
        jnp.array([1.0, 0.0]),
    )
    root = optx.root_find(lambda y, a: jnp.tanh(y) - a, optx.Newton(1e-5, 1e-5), jnp.array(0.1), args=0.4)
    return fit.value, root.value


def oscillator():
    def solve(y0, k):
        return diffrax.diffeqsolve(
            diffrax.ODETerm(lambda t, y, k: jnp.stack([y[1], -k * y[0]])), diffrax.Tsit5(), 0.0, 1.0, 0.1, y0, args=k,
            stepsize_controller=diffrax.PIDController(rtol=1e-4, atol=1e-6), saveat=diffrax.SaveAt(ts=jnp.linspace(0, 1, 4)),
            max_steps=32,
        ).ys  # fmt: skip

    @jax.jit
    def both(y0, k):
        return jax.value_and_grad(lambda k: (solve(y0, k) ** 2).sum())(k)

    return both(jnp.array([1.0, 0.0]), 2.0)


def stiff():
    def field(t, y, args):
        return jnp.stack(
            [-0.04 * y[0] + 1e1 * y[1] * y[2], 0.04 * y[0] - 1e1 * y[1] * y[2] - 3e1 * y[1] ** 2, 3e1 * y[1] ** 2]
        )

    return diffrax.diffeqsolve(
        diffrax.ODETerm(field), diffrax.Kvaerno3(), 0.0, 2.0, 0.05, jnp.array([1.0, 0.0, 0.0]), max_steps=64,
        stepsize_controller=diffrax.PIDController(rtol=1e-4, atol=1e-6),
    ).ys  # fmt: skip
