"""Finite differences: diffusion, waves, flow, and solvers on grids."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bench.corpus.case import Case, grid, side


@dataclass
class Water:
    """Height and momenta of shallow water on a grid."""

    height: np.ndarray
    mx: np.ndarray
    my: np.ndarray


def heat_step(u, alpha):
    u[1:-1, 1:-1] += alpha * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1])


def heat_steps(u, alpha, steps):
    u = u.copy()
    for _ in range(steps):
        u[1:-1] = u[1:-1] + alpha * (u[2:] - 2 * u[1:-1] + u[:-2])
        u[0], u[-1] = u[1], u[-2]
    return u


def wave_step(before, now, c2):
    after = 2 * now - before
    after[1:-1, 1:-1] += c2 * (now[2:, 1:-1] + now[:-2, 1:-1] + now[1:-1, 2:] + now[1:-1, :-2] - 4 * now[1:-1, 1:-1])
    after[0] = after[-1] = 0
    after[:, 0] = after[:, -1] = 0
    before[...] = now
    now[...] = after


def laplacian(u, out, h):
    out.fill(0)
    np.add(u[2:, 1:-1], u[:-2, 1:-1], out=out[1:-1, 1:-1])
    out[1:-1, 1:-1] += u[1:-1, 2:] + u[1:-1, :-2]
    out[1:-1, 1:-1] -= 4 * u[1:-1, 1:-1]
    out /= h * h
    return out


def slope(height, spacing):
    dy, dx = np.gradient(height, spacing)
    return np.degrees(np.arctan(np.sqrt(dx**2 + dy**2)))


def jacobi(u, f, tolerance):
    u = u.copy()
    error, count = np.inf, 0
    while error > tolerance and count < 200:
        new = u.copy()
        new[1:-1, 1:-1] = 0.25 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - f[1:-1, 1:-1])
        error = np.abs(new - u).max()
        u = new
        count += 1
    return u, count


def red_black(u, f):
    for start in (0, 1):
        for row in (1, 2):
            first = 1 + (row + start) % 2
            u[row:-1:2, first:-1:2] = 0.25 * (
                u[row - 1 : -2 : 2, first:-1:2]
                + u[row + 1 :: 2, first:-1:2][: u[row:-1:2].shape[0]]
                + u[row:-1:2, first - 1 : -2 : 2]
                + u[row:-1:2, first + 1 :: 2][:, : u[:, first:-1:2].shape[1]]
                - f[row:-1:2, first:-1:2]
            )


def upwind(q, velocity, ratio):
    backward = q - np.roll(q, 1)
    forward = np.roll(q, -1) - q
    return q - ratio * velocity * np.where(velocity > 0, backward, forward)


def burgers(u, dt, dx, steps):
    for _ in range(steps):
        flux = 0.5 * u * u
        u = 0.5 * (np.roll(u, 1) + np.roll(u, -1)) - dt / (2 * dx) * (np.roll(flux, -1) - np.roll(flux, 1))
    return u


def divergence(vx, vy, h):
    result = np.zeros_like(vx)
    result[:, 1:-1] += (vx[:, 2:] - vx[:, :-2]) / (2 * h)
    result[1:-1, :] += (vy[2:, :] - vy[:-2, :]) / (2 * h)
    return result


def poisson_fft(f):
    n = f.shape[0]
    k = 2 * np.pi * np.fft.fftfreq(n, 1 / n)
    k2 = k[:, None] ** 2 + k[None, :] ** 2
    k2[0, 0] = 1
    solution = np.fft.fft2(f) / -k2
    solution[0, 0] = 0
    return np.fft.ifft2(solution).real


def thomas(a, b, c, d):
    n = len(d)
    c, d = c.copy(), d.copy()
    c[0] /= b[0]
    d[0] /= b[0]
    for i in range(1, n):
        m = b[i] - a[i] * c[i - 1]
        c[i] = c[i] / m
        d[i] = (d[i] - a[i] * d[i - 1]) / m
    for i in range(n - 2, -1, -1):
        d[i] -= c[i] * d[i + 1]
    return d


def crank_nicolson(u, ratio):
    n = len(u)
    eye, shift = np.eye(n), np.eye(n, k=1) + np.eye(n, k=-1)
    left = (1 + ratio) * eye - ratio / 2 * shift
    right = (1 - ratio) * eye + ratio / 2 * shift
    return np.linalg.solve(left, right @ u)


def gray_scott(u, v, feed, kill, steps):
    for _ in range(steps):
        lu = np.roll(u, 1, 0) + np.roll(u, -1, 0) + np.roll(u, 1, 1) + np.roll(u, -1, 1) - 4 * u
        lv = np.roll(v, 1, 0) + np.roll(v, -1, 0) + np.roll(v, 1, 1) + np.roll(v, -1, 1) - 4 * v
        reaction = u * v * v
        u += 0.16 * lu - reaction + feed * (1 - u)
        v += 0.08 * lv + reaction - (feed + kill) * v


def life_step(board):
    padded = np.pad(board, 1, mode="wrap")
    count = sum(
        padded[1 + dy : padded.shape[0] - 1 + dy, 1 + dx : padded.shape[1] - 1 + dx]
        for dy in (-1, 0, 1)
        for dx in (-1, 0, 1)
        if (dy, dx) != (0, 0)
    )
    return ((count == 3) | ((board == 1) & (count == 2))).astype(board.dtype)


def advance_with_limit(u, velocity, dx, wanted):
    fastest = np.abs(velocity).max()
    dt = wanted
    if fastest * wanted > 0.5 * dx:
        dt = 0.5 * dx / fastest
    u[1:] -= dt / dx * velocity[1:] * (u[1:] - u[:-1])
    return dt


def shallow_water(water, dt):
    h, mx, my = water.height, water.mx, water.my
    u, v = mx / h, my / h
    pressure = 0.5 * 9.81 * h * h
    water.height[1:-1, 1:-1] -= dt * ((mx[1:-1, 2:] - mx[1:-1, :-2]) / 2 + (my[2:, 1:-1] - my[:-2, 1:-1]) / 2)
    fx, fy = mx * u + pressure, my * v + pressure
    cross = mx * v
    mx[1:-1, 1:-1] -= dt * ((fx[1:-1, 2:] - fx[1:-1, :-2]) / 2 + (cross[2:, 1:-1] - cross[:-2, 1:-1]) / 2)
    my[1:-1, 1:-1] -= dt * ((cross[1:-1, 2:] - cross[1:-1, :-2]) / 2 + (fy[2:, 1:-1] - fy[:-2, 1:-1]) / 2)


def _tridiagonal(random, size):
    n = max(8, size // 4)
    return random.random(n), 3 + random.random(n), random.random(n), random.random(n)


def _water(random, size):
    return Water(1 + 0.1 * grid(random, size), 0.01 * grid(random, size), 0.01 * grid(random, size)), 0.001


def _board(random, size):
    return ((grid(random, size) > 0.6).astype(np.uint8),)


CASES = [
    Case(heat_step, lambda random, size: (grid(random, size), 0.1), 1_000_000),
    Case(heat_steps, lambda random, size: (random.random(size), 0.1, 20), 10_000),
    Case(wave_step, lambda random, size: (grid(random, size), grid(random, size), 0.2), 500_000),
    Case(laplacian, lambda random, size: (grid(random, size), grid(random, size), 0.1), 1_000_000),
    Case(slope, lambda random, size: (grid(random, size), 2.0), 500_000),
    Case(jacobi, lambda random, size: (grid(random, size), grid(random, size), 1e-3), 10_000),
    Case(red_black, lambda random, size: (grid(random, size), grid(random, size)), 250_000),
    Case(upwind, lambda random, size: (random.random(size), random.standard_normal(size), 0.3), 1_000_000),
    Case(burgers, lambda random, size: (random.random(size), 0.001, 0.01, 20), 20_000),
    Case(divergence, lambda random, size: (grid(random, size), grid(random, size), 0.1), 1_000_000),
    Case(poisson_fft, lambda random, size: (grid(random, size),), 65_536),
    Case(thomas, _tridiagonal, 400, small=60),
    Case(crank_nicolson, lambda random, size: (random.random(side(size)), 0.3), 40_000),
    Case(
        gray_scott,
        lambda random, size: (0.8 + 0.2 * grid(random, size), 0.2 * grid(random, size), 0.04, 0.06, 10),
        65_536,
    ),
    Case(life_step, _board, 1_000_000),
    Case(advance_with_limit, lambda random, size: (random.random(size), random.random(size), 0.01, 0.02), 1_000_000),
    Case(shallow_water, _water, 100_000),
]
