"""Diffrax, Optimistix and Lineax again: a stiff equation's gradient, noise, minima and fixed points, structured operators."""

import diffrax
import jax
import jax.numpy as jnp
import lineax as lx
import optimistix as optx


def stiff_gradient():
    def solve(rate):
        return diffrax.diffeqsolve(
            diffrax.ODETerm(lambda t, y, k: jnp.stack([-k * (y[0] - y[1]), -y[1]])), diffrax.Kvaerno3(), 0.0, 0.5, 0.05,
            jnp.array([1.0, 0.5]), args=rate, max_steps=32, adjoint=diffrax.RecursiveCheckpointAdjoint(),
            stepsize_controller=diffrax.PIDController(rtol=1e-3, atol=1e-5),
        ).ys[-1]  # fmt: skip

    return jax.jit(jax.value_and_grad(lambda k: (solve(k) ** 2).sum()))(20.0)


def backsolve_gradient():
    def solve(w):
        return diffrax.diffeqsolve(
            diffrax.ODETerm(lambda t, y, w: jnp.tanh(w @ y)), diffrax.Tsit5(), 0.0, 1.0, 0.1, jnp.ones(3), args=w,
            adjoint=diffrax.BacksolveAdjoint(), max_steps=32,
        ).ys[-1]  # fmt: skip

    return jax.jit(jax.grad(lambda w: solve(w).sum()))(jax.random.normal(jax.random.key(0), (3, 3)))


def noisy_path():
    path = diffrax.VirtualBrownianTree(0.0, 1.0, tol=1e-2, shape=(), key=jax.random.key(1))
    terms = diffrax.MultiTerm(
        diffrax.ODETerm(lambda t, y, args: -y), diffrax.ControlTerm(lambda t, y, args: 0.2 * jnp.ones(()), path)
    )
    saved = diffrax.SaveAt(ts=jnp.linspace(0, 1, 5))
    return diffrax.diffeqsolve(terms, diffrax.Euler(), 0.0, 1.0, 0.1, jnp.array(1.0), saveat=saved).ys


def minima_and_fixed_points():
    def rosenbrock(x, _):
        return ((1 - x[:-1]) ** 2).sum() + 5 * ((x[1:] - x[:-1] ** 2) ** 2).sum()

    found = optx.minimise(rosenbrock, optx.BFGS(1e-4, 1e-4), jnp.array([0.2, 0.4, 0.1]), max_steps=256)
    fixed = lambda a: optx.fixed_point(lambda y, a: jnp.cos(a * y), optx.FixedPointIteration(1e-5, 1e-5), 0.5, a).value
    dogleg = optx.least_squares(
        lambda p, t: p[0] * jnp.exp(-p[1] * t) - jnp.exp(-2 * t),
        optx.Dogleg(1e-5, 1e-5),
        jnp.array([0.5, 1.0]),
        jnp.linspace(0, 1, 6),
    )
    return found.value, jax.value_and_grad(fixed)(0.8), dogleg.value


def structured_operators():
    key = jax.random.key(2)
    banded = lx.TridiagonalLinearOperator(jnp.full(5, 4.0), jnp.ones(4), jnp.full(4, 0.5))
    tall = lx.MatrixLinearOperator(jax.random.normal(key, (6, 3)))
    function = lx.FunctionLinearOperator(lambda x: 3 * x + jnp.roll(x, 1), jax.ShapeDtypeStruct((5,), jnp.float32))
    b = jax.random.normal(jax.random.key(3), (5,))
    solve = jax.jit(lambda b: lx.linear_solve(function, b, lx.GMRES(rtol=1e-5, atol=1e-5)).value)
    return (
        lx.linear_solve(banded, b).value,
        lx.linear_solve(tall, jnp.arange(6.0), lx.QR()).value,
        lx.linear_solve(tall, jnp.arange(6.0), lx.SVD()).value,
        solve(b),
        jax.jvp(solve, (b,), (jnp.ones(5),))[1],
    )


def ensemble_of_paths():
    """Drift and diffusion of which Diffrax checks the types, as `EulerHeun` asks."""

    def path(key):
        noise = diffrax.VirtualBrownianTree(0.0, 1.0, tol=1e-2, shape=(2,), key=key)
        drift = diffrax.ODETerm(lambda t, y, args: -y)
        terms = diffrax.MultiTerm(drift, diffrax.ControlTerm(lambda t, y, args: 0.3 * jnp.eye(2), noise))
        saved = diffrax.SaveAt(ts=jnp.linspace(0, 1, 3))
        return diffrax.diffeqsolve(
            terms, diffrax.EulerHeun(), 0.0, 1.0, 0.1, jnp.ones(2), saveat=saved, max_steps=16
        ).ys

    return jax.jit(jax.vmap(path))(jax.random.split(jax.random.key(4), 5))


def operators_of_jacobians():
    """Operators that Lineax makes by `equinox.filter_jvp`, and least squares through them."""
    matrix = jax.random.normal(jax.random.key(5), (6, 6)) * 0.2 + jnp.eye(6)

    def solve(b):
        jacobian = lx.JacobianLinearOperator(lambda x, _: x + 0.1 * jnp.tanh(matrix @ x), b)
        return lx.linear_solve(jacobian, b).value

    fitted = optx.least_squares(
        lambda p, t: p["a"] * jnp.exp(-p["k"] * t) - 2 * jnp.exp(-1.3 * t),
        optx.IndirectLevenbergMarquardt(1e-4, 1e-4),
        {"a": jnp.array(1.0), "k": jnp.array(1.0)},
        jnp.linspace(0, 3, 12),
        max_steps=64,
    )
    return jax.jit(jax.jacrev(solve))(jnp.ones(6)), fitted.value


def limited_memory_bfgs_of_a_tree():
    def distance(y, _):
        return ((y["a"] - 1) ** 2).sum() + (y["b"] + 2) ** 2

    start = {"a": jnp.zeros(2), "b": jnp.array(0.0)}
    return optx.minimise(distance, optx.LBFGS(1e-4, 1e-4), start, max_steps=64).value
