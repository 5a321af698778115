"""Physics: particles, fields, optics, orbits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.special

from bench.corpus.case import Case, grid, side


@dataclass
class Bodies:
    """Positions, velocities and masses of particles."""

    position: np.ndarray
    velocity: np.ndarray
    mass: np.ndarray
    softening: float = 0.05


def accelerations(position, mass, softening):
    d = position[None, :, :] - position[:, None, :]
    r2 = (d**2).sum(axis=-1) + softening**2
    return (mass[None, :, None] * d * r2[..., None] ** -1.5).sum(axis=1)


def leapfrog(bodies, dt):
    bodies.velocity += 0.5 * dt * accelerations(bodies.position, bodies.mass, bodies.softening)
    bodies.position += dt * bodies.velocity
    bodies.velocity += 0.5 * dt * accelerations(bodies.position, bodies.mass, bodies.softening)


def lennard_jones(position, box):
    i, j = np.triu_indices(len(position), 1)
    d = position[i] - position[j]
    d -= box * np.round(d / box)
    s6 = 1 / np.maximum((d * d).sum(axis=1), 0.5) ** 3
    return 4 * (s6 * s6 - s6).sum()


def ising_sweep(spins, rng, beta):
    for colour in (0, 1):
        field = np.roll(spins, 1, 0) + np.roll(spins, -1, 0) + np.roll(spins, 1, 1) + np.roll(spins, -1, 1)
        accept = rng.random(spins.shape) < np.exp(-2.0 * beta * spins * field)
        accept[colour::2, ::2] = False
        accept[1 - colour :: 2, 1::2] = False
        spins[accept] *= -1
    return spins.mean()


def rotate_vectors(quaternions, vectors):
    w, u = quaternions[:, :1], quaternions[:, 1:]
    t = 2 * np.cross(u, vectors)
    return vectors + w * t + np.cross(u, t)


def mandelbrot(c, limit):
    z = np.zeros_like(c)
    count = np.zeros(c.shape, int)
    alive = np.ones(c.shape, bool)
    for _ in range(limit):
        z[alive] = z[alive] ** 2 + c[alive]
        alive &= np.abs(z) <= 2
        count += alive
    return count


def pair_distribution(position, box, bins):
    d = position[:, None, :] - position[None, :, :]
    d -= box * np.round(d / box)
    r = np.sqrt((d**2).sum(axis=-1))[np.triu_indices(len(position), 1)]
    counts, edges = np.histogram(r, bins=bins, range=(0, box / 2))
    shells = 4 / 3 * np.pi * (edges[1:] ** 3 - edges[:-1] ** 3)
    return counts / shells


def planck(wavelength, temperature):
    h, c, k = 6.626e-34, 2.998e8, 1.381e-23
    return 2 * h * c**2 / wavelength**5 / np.expm1(h * c / (wavelength * k * temperature))


def lorenz(state, dt, steps):
    def slope(s):
        x, y, z = s
        return np.array([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z])

    path = np.empty((steps, 3))
    for n in range(steps):
        k1 = slope(state)
        k2 = slope(state + dt / 2 * k1)
        k3 = slope(state + dt / 2 * k2)
        k4 = slope(state + dt * k3)
        state = state + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        path[n] = state
    return path


def projectile(position, velocity, drag, dt):
    position, velocity = position.copy(), velocity.copy()
    steps = 0
    while position[1] >= 0:
        velocity += dt * (np.array([0.0, -9.81]) - drag * np.linalg.norm(velocity) * velocity)
        position += dt * velocity
        steps += 1
    return position, steps


def to_cartesian(r, theta, phi):
    return np.stack([r * np.sin(theta) * np.cos(phi), r * np.sin(theta) * np.sin(phi), r * np.cos(theta)], axis=-1)


def deposit_charge(density, x, charge):
    cell = np.floor(x).astype(int)
    share = x - cell
    np.add.at(density, cell, charge * (1 - share))
    np.add.at(density, (cell + 1) % len(density), charge * share)


def ray_sphere(origin, direction, radius):
    b = (origin * direction).sum(axis=1)
    c = (origin**2).sum(axis=1) - radius**2
    with np.errstate(invalid="ignore"):
        t = -b - np.sqrt(b * b - c)
    return np.where(np.isnan(t) | (t < 0), np.inf, t)


def multipole(cosine, coefficients):
    return np.polynomial.legendre.legval(cosine, coefficients)


def haversine(lat1, lon1, lat2, lon2):
    lat1, lon1, lat2, lon2 = map(np.radians, (lat1, lon1, lat2, lon2))
    a = np.sin((lat2 - lat1) / 2) ** 2 + np.cos(lat1) * np.cos(lat2) * np.sin((lon2 - lon1) / 2) ** 2
    return 6371.0 * 2 * np.arcsin(np.sqrt(a))


def diffraction(x, y, wavelength, aperture):
    r = np.pi * aperture * np.sqrt(x[None, :] ** 2 + y[:, None] ** 2) / wavelength
    r[r == 0] = 1e-12
    return (2 * scipy.special.j1(r) / r) ** 2


def kinetic_energy(bodies):
    return 0.5 * np.sum(bodies.mass * np.sum(bodies.velocity**2, axis=1))


def boris_push(position, velocity, e, b, dt):
    half = velocity + 0.5 * dt * e
    t = 0.5 * dt * b
    s = 2 * t / (1 + np.sum(t * t, axis=1, keepdims=True))
    velocity[:] = half + np.cross(half + np.cross(half, t), s) + 0.5 * dt * e
    position += dt * velocity


def _bodies(random, size):
    count = max(4, size // 3)
    return Bodies(random.standard_normal((count, 3)), 0.1 * random.standard_normal((count, 3)), random.random(count))


def _gravity(random, size):
    bodies = _bodies(random, size)
    return bodies.position, bodies.mass, 0.05


def _quaternions(random, size):
    q = random.standard_normal((size // 4, 4))
    return q / np.linalg.norm(q, axis=1, keepdims=True), random.standard_normal((size // 4, 3))


def _plane(random, size):
    x = np.linspace(-2, 0.6, side(size))
    return x[None, :] + 1j * np.linspace(-1.2, 1.2, side(size))[:, None], 25


def _charges(random, size):
    return np.zeros(512), 512 * random.random(size), random.random(size)


def _rays(random, size):
    direction = random.standard_normal((size // 3, 3))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    return 3 * random.standard_normal((size // 3, 3)), direction, 1.0


def _angles(random, size):
    return tuple(random.random(size) * scale for scale in (10, np.pi, 2 * np.pi))


def _places(random, size):
    return tuple(160 * random.random(size) - 80 for _ in range(4))


def _charged(random, size):
    return *(random.standard_normal((size // 3, 3)) for _ in range(4)), 0.01


CASES = [
    Case(accelerations, _gravity, 1_500),
    Case(leapfrog, lambda random, size: (_bodies(random, size), 0.01), 600),
    Case(lennard_jones, lambda random, size: (8 * random.random((size // 3, 3)), 8.0), 1_500),
    Case(
        ising_sweep,
        lambda random, size: (np.where(grid(random, size) < 0.5, -1, 1), np.random.default_rng(2), 0.44),
        100_000,
    ),
    Case(rotate_vectors, _quaternions, 400_000),
    Case(mandelbrot, _plane, 60_000),
    Case(pair_distribution, lambda random, size: (9 * random.random((size // 3, 3)), 9.0, 60), 1_500),
    Case(
        planck,
        lambda random, size: (1e-7 + 2e-6 * random.random(size), 5800.0),
        500_000,
        "2 * 6.626e-34 * 2.998e8**2 / wavelength**5 / expm1(6.626e-34 * 2.998e8 / (wavelength * 1.381e-23 * temperature))",
    ),
    Case(lorenz, lambda random, size: (np.array([1.0, 1.0, 1.0]), 0.01, size), 20, small=6),
    Case(projectile, lambda random, size: (np.array([0.0, 1.0]), np.array([30.0, 40.0]), 0.01, 0.05), 2),
    Case(to_cartesian, _angles, 300_000),
    Case(deposit_charge, _charges, 200_000),
    Case(ray_sphere, _rays, 600_000),
    Case(multipole, lambda random, size: (2 * random.random(size) - 1, random.standard_normal(8)), 300_000),
    Case(haversine, _places, 300_000),
    Case(
        diffraction,
        lambda random, size: (np.linspace(-1, 1, side(size)), np.linspace(-1, 1, side(size)), 0.5, 3.0),
        90_000,
    ),
    Case(kinetic_energy, lambda random, size: (_bodies(random, size),), 30_000),
    Case(boris_push, _charged, 300_000),
]
