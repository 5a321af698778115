"""Stencils whose neighbours share values, once for NumPy and `fuser.numpy`: `xp` is either, and arrays may have any floating type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def diffusion(xp: Any, u: Any, edge: float = 0.1, rate: float = 0.2) -> Any:
    """A step of Perona and Malik's anisotropic diffusion (IEEE PAMI 12, 1990)."""
    centre = u[1:-1, 1:-1]
    steps = [u[:-2, 1:-1] - centre, u[2:, 1:-1] - centre, u[1:-1, :-2] - centre, u[1:-1, 2:] - centre]
    return centre + rate * sum(step * xp.exp(-((step / edge) ** 2)) for step in steps)


def bilateral(xp: Any, u: Any, radius: int = 1, space: float = 1.5, value: float = 0.2) -> Any:
    """A bilateral filter (Tomasi and Manduchi, ICCV 1998)."""
    rows, columns = u.shape[0] - 2 * radius, u.shape[1] - 2 * radius
    centre = u[radius : radius + rows, radius : radius + columns]
    total, weights = 0 * centre, 0 * centre
    for i in range(2 * radius + 1):
        for j in range(2 * radius + 1):
            other = u[i : i + rows, j : j + columns]
            near = -((i - radius) ** 2 + (j - radius) ** 2) / (2 * space**2)
            weight = xp.exp(near - (other - centre) ** 2 / (2 * value**2))
            total, weights = total + weight * other, weights + weight
    return total / weights


def total_variation(xp: Any, u: Any, floor: float = 1e-3) -> Any:
    """The divergence of the normed gradient (Rudin, Osher and Fatemi, Physica D 60, 1992)."""
    right, down = u[:-1, 1:] - u[:-1, :-1], u[1:, :-1] - u[:-1, :-1]
    norm = xp.sqrt(right**2 + down**2 + floor)
    across, along = right / norm, down / norm
    return across[1:, 1:] - across[1:, :-1] + along[1:, 1:] - along[:-1, 1:]


def conduction(xp: Any, u: Any, ratio: float = 0.1) -> Any:
    """Heat between cells whose conductivities, functions of the temperature, are averaged harmonically (Patankar, 1980)."""
    k = 1 + u**2 * xp.sqrt(u)
    east = 2 * k[1:-1, 1:] * k[1:-1, :-1] / (k[1:-1, 1:] + k[1:-1, :-1]) * (u[1:-1, 1:] - u[1:-1, :-1])
    south = 2 * k[1:, 1:-1] * k[:-1, 1:-1] / (k[1:, 1:-1] + k[:-1, 1:-1]) * (u[1:, 1:-1] - u[:-1, 1:-1])
    return u[1:-1, 1:-1] + ratio * (east[:, 1:] - east[:, :-1] + south[1:] - south[:-1])


def rusanov(xp: Any, u: Any, ratio: float = 0.1) -> Any:
    """A step of shallow water in one direction, of depth and momentum, with Rusanov's flux (1961)."""
    h, m = u[: u.shape[0] // 2] + 1, u[u.shape[0] // 2 :]
    speed, wave = m / h, abs(m / h) + xp.sqrt(9.81 * h)
    most = xp.maximum(wave[:, 1:], wave[:, :-1])
    force = speed * m + 4.905 * h**2
    of_depth = (m[:, 1:] + m[:, :-1]) / 2 - most * (h[:, 1:] - h[:, :-1]) / 2
    of_momentum = (force[:, 1:] + force[:, :-1]) / 2 - most * (m[:, 1:] - m[:, :-1]) / 2
    depth = h[:, 1:-1] - ratio * (of_depth[:, 1:] - of_depth[:, :-1])
    return depth + m[:, 1:-1] - ratio * (of_momentum[:, 1:] - of_momentum[:, :-1])


def weno(xp: Any, u: Any, ratio: float = 0.1, floor: float = 1e-6) -> Any:
    """A step of advection to the right of fifth order (Jiang and Shu, J. Comput. Phys. 126, 1996)."""
    a, b, c, d, e = (u[:, n : u.shape[1] - 4 + n] for n in range(5))
    smooth = (
        13 / 12 * (a - 2 * b + c) ** 2 + (a - 4 * b + 3 * c) ** 2 / 4,
        13 / 12 * (b - 2 * c + d) ** 2 + (b - d) ** 2 / 4,
        13 / 12 * (c - 2 * d + e) ** 2 + (3 * c - 4 * d + e) ** 2 / 4,
    )
    weights = [part / (floor + s) ** 2 for part, s in zip((0.1, 0.6, 0.3), smooth)]
    fluxes = (2 * a - 7 * b + 11 * c) / 6, (-b + 5 * c + 2 * d) / 6, (2 * c + 5 * d - e) / 6
    flux = sum(w * f for w, f in zip(weights, fluxes)) / sum(weights)
    return u[:, 3:-2] - ratio * (flux[:, 1:] - flux[:, :-1])


def godunov(xp: Any, u: Any, ratio: float = 0.1) -> Any:
    """A step of Burgers' equation by the exact flux between cells (Godunov, 1959), of speeds that are roots."""
    w = xp.sqrt(u * u + 0.01)
    low, high = w[:, :-1], w[:, 1:]
    flux = xp.maximum(xp.maximum(low, 0) ** 2, xp.minimum(high, 0) ** 2) / (2 + abs(high - low))
    return u[:, 1:-1] - ratio * (flux[:, 1:] - flux[:, :-1])


def anisotropic(xp: Any, u: Any, ratio: float = 0.1) -> Any:
    """Weickert's Laplacian (1998): conductivities are exponentials of the gradient's square, averaged between cells."""
    gradient = ((u[1:-1, 2:] - u[1:-1, :-2]) / 2) ** 2 + ((u[2:, 1:-1] - u[:-2, 1:-1]) / 2) ** 2
    g, c = xp.exp(-gradient / 0.05), u[1:-1, 1:-1]
    east = (g[1:-1, 1:] + g[1:-1, :-1]) / 2 * (c[1:-1, 1:] - c[1:-1, :-1])
    south = (g[1:, 1:-1] + g[:-1, 1:-1]) / 2 * (c[1:, 1:-1] - c[:-1, 1:-1])
    return c[1:-1, 1:-1] + ratio * (east[:, 1:] - east[:, :-1] + south[1:] - south[:-1])


STENCILS: tuple[Callable[..., Any], ...] = (
    diffusion,
    bilateral,
    total_variation,
    conduction,
    rusanov,
    weno,
    godunov,
    anisotropic,
)
