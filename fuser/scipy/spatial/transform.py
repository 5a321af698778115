"""jax.scipy.spatial.transform's names: rotations in three dimensions as unit quaternions (x, y, z, w), and slerp.

All functions take (..., 4), (..., 3) or (..., 3, 3) and treat leading dimensions as stacks.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fuser import numpy as fnp

__all__ = ["Rotation", "Slerp"]

SMALL_ANGLE = 1e-3  # below which sin(x)/x and its like are taken from their series
DEGENERATE = 1e-7  # how close to 0 or π the middle Euler angle makes the two others one


class Rotation(NamedTuple):
    """Rotations, one or a stack of them."""

    quat: Any

    @classmethod
    def concatenate(cls, rotations: Sequence[Rotation]) -> Rotation:
        """The rotations of several stacks as one."""
        return cls(fnp.concatenate([rotation.quat for rotation in rotations]))

    @classmethod
    def from_euler(cls, seq: str, angles: Any, degrees: bool = False) -> Rotation:
        """From angles about up to three axes: "xyz" fixed in space, "XYZ" turning along. ValueError for other words."""
        if not 1 <= len(seq) <= 3:
            raise ValueError(f"Expected axis specification to be a non-empty string of upto 3 characters, got {seq}")
        places, intrinsic = _axes(seq, "{1,3}")
        values = fnp.atleast_1d(angles)
        values = fnp.deg2rad(values) if degrees else values
        result = _about(places[0], values[..., 0])
        for n, axis in enumerate(places[1:], 1):
            turn = _about(axis, values[..., n])
            result = _compose(result, turn) if intrinsic else _compose(turn, result)
        return cls(result)

    @classmethod
    def from_matrix(cls, matrix: Any) -> Rotation:
        """From orthogonal matrices of determinant 1.

        By the greatest of the four squares, which is never small: Shepperd, Journal of Guidance and Control 1 (1978).
        """
        m = fnp.asarray(matrix)
        trace = m[..., 0, 0] + m[..., 1, 1] + m[..., 2, 2]
        squares = fnp.stack([m[..., 0, 0], m[..., 1, 1], m[..., 2, 2], trace], -1)
        choice = fnp.argmax(squares, -1)[..., None]
        forms = []
        for i in range(3):
            j, k = (i + 1) % 3, (i + 2) % 3
            parts: list[Any] = [None] * 4
            parts[i] = 1 - trace + 2 * m[..., i, i]
            parts[j] = m[..., j, i] + m[..., i, j]
            parts[k] = m[..., k, i] + m[..., i, k]
            parts[3] = m[..., k, j] - m[..., j, k]
            forms.append(fnp.stack(parts, -1))
        odd = [m[..., 2, 1] - m[..., 1, 2], m[..., 0, 2] - m[..., 2, 0], m[..., 1, 0] - m[..., 0, 1], 1 + trace]
        found = fnp.stack(odd, -1)
        for i, form in enumerate(forms):
            found = fnp.where(choice == i, form, found)
        return cls(_unit(found))

    @classmethod
    def from_mrp(cls, mrp: Any) -> Rotation:
        """From modified Rodrigues parameters, axis · tan(angle / 4)."""
        p = fnp.asarray(mrp)
        square = fnp.sum(p * p, -1, keepdims=True) + 1
        return cls(fnp.concatenate([2 * p, 2 - square], -1) / square)

    @classmethod
    def from_quat(cls, quat: Any) -> Rotation:
        """From quaternions (x, y, z, w) of any length but 0."""
        return cls(_unit(fnp.asarray(quat)))

    @classmethod
    def from_rotvec(cls, rotvec: Any, degrees: bool = False) -> Rotation:
        """From vectors along the axis, as long as the angle."""
        vector = fnp.asarray(rotvec)
        vector = fnp.deg2rad(vector) if degrees else vector
        angle = _norm(vector)[..., None]
        square = angle * angle
        series = 0.5 - square / 48 + square * square / 3840
        scale = fnp.where(angle <= SMALL_ANGLE, series, fnp.sin(angle / 2) / angle)
        return cls(fnp.concatenate([scale * vector, fnp.cos(angle / 2)], -1))

    @classmethod
    def identity(cls, num: int | None = None, dtype: Any = float) -> Rotation:
        """The rotation that turns nothing."""
        assert num is None, "identity gives one rotation; stack them with concatenate"
        return cls(fnp.array([0.0, 0.0, 0.0, 1.0], dtype=dtype))

    @classmethod
    def random(cls, random_key: Any, num: int | None = None) -> Rotation:
        """Not offered, as in JAX: from_quat of four normal numbers is uniformly distributed."""
        raise NotImplementedError("Rotation.random is not there; use from_quat(fuser.random.normal(key, (4,)))")

    def __getitem__(self, indexer: Any) -> Any:
        if self.single:
            raise TypeError("Single rotation is not subscriptable.")
        return Rotation(self.quat[indexer])

    def __len__(self) -> int:
        if self.single:
            raise TypeError("Single rotation has no len().")
        return int(self.quat.shape[0])

    def __mul__(self, other: Any) -> Any:
        """First `other`, then this rotation."""
        return Rotation.from_quat(_compose(self.quat, other.quat))

    def apply(self, vectors: Any, inverse: bool = False) -> Any:
        """The vectors turned."""
        matrix = self.as_matrix()
        matrix = fnp.swapaxes(matrix, -1, -2) if inverse else matrix
        return fnp.matmul(matrix, fnp.asarray(vectors)[..., None])[..., 0]

    def as_euler(self, seq: str, degrees: bool = False) -> Any:
        """Angles about three axes; where the middle one makes the others one, one of them is 0.

        Bernardes & Viollet, PLoS ONE 17 (2022).
        """
        if len(seq) != 3:
            raise ValueError(f"Expected 3 axes, got {seq}.")
        places, intrinsic = _axes(seq, "{3}")
        i, j, k = places[::-1] if intrinsic else places
        symmetric = i == k
        k = 3 - i - j if symmetric else k
        sign = (i - j) * (j - k) * (k - i) // 2
        q = self.quat
        qi, qj, qk, qw = q[..., i], q[..., j], q[..., k] * sign, q[..., 3]
        a, b, c, d = (qw, qi, qj, qk) if symmetric else (qw - qj, qi + qk, qj + qw, qk - qi)
        middle = 2 * fnp.arctan2(fnp.hypot(c, d), fnp.hypot(a, b))
        total, difference = fnp.arctan2(b, a), fnp.arctan2(d, c)
        at_pi, at_zero = fnp.abs(middle - np.pi) <= DEGENERATE, fnp.abs(middle) <= DEGENERATE
        degenerate = at_pi | at_zero
        alone = fnp.where(at_zero, 2 * total, 2 * difference * (1 if intrinsic else -1))
        first, third = total - difference, total + difference
        if intrinsic:  # the angle that is kept is the first of the result in both cases
            angles = [fnp.where(degenerate, alone, third), middle, fnp.where(degenerate, 0, first)]
            odd = 0
        else:
            angles = [fnp.where(degenerate, alone, first), middle, fnp.where(degenerate, 0, third)]
            odd = 2
        if not symmetric:
            angles[odd] = angles[odd] * sign
            angles[1] = angles[1] - np.pi / 2
        found = (fnp.stack(angles, -1) + np.pi) % (2 * np.pi) - np.pi
        return fnp.rad2deg(found) if degrees else found

    def as_matrix(self) -> Any:
        """Orthogonal matrices, (..., 3, 3)."""
        x, y, z, w = (self.quat[..., n] for n in range(4))
        rows = [
            [x * x - y * y - z * z + w * w, 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), -x * x + y * y - z * z + w * w, 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), -x * x - y * y + z * z + w * w],
        ]
        return fnp.stack([fnp.stack(row, -1) for row in rows], -2)

    def as_mrp(self) -> Any:
        """Modified Rodrigues parameters, at most 1 long."""
        sign = fnp.where(self.quat[..., 3:] < 0, -1.0, 1.0)
        return sign * self.quat[..., :3] / (1.0 + sign * self.quat[..., 3:])

    def as_rotvec(self, degrees: bool = False) -> Any:
        """Vectors along the axis, as long as the angle, at most π."""
        q = fnp.where(self.quat[..., 3:] < 0, -self.quat, self.quat)
        angle = 2.0 * fnp.arctan2(_norm(q[..., :3]), q[..., 3])[..., None]
        square = angle * angle
        series = 2 + square / 12 + 7 * square * square / 2880
        scale = fnp.where(angle <= SMALL_ANGLE, series, angle / fnp.sin(angle / 2))
        return (fnp.rad2deg(scale) if degrees else scale) * q[..., :3]

    def as_quat(self, canonical: bool = False, scalar_first: bool = False) -> Any:
        """Quaternions (x, y, z, w), or w first; `canonical`: with w > 0, or else the first of x, y, z that is not 0."""
        q = self.quat
        if canonical:
            x, y, z, w = (q[..., n] for n in range(4))
            negative = (w < 0) | ((w == 0) & ((x < 0) | ((x == 0) & ((y < 0) | ((y == 0) & (z < 0))))))
            q = fnp.where(negative[..., None], -q, q)
        return fnp.roll(q, 1, -1) if scalar_first else q

    def inv(self) -> Rotation:
        """The rotations back."""
        return Rotation(self.quat * fnp.array([-1, -1, -1, 1], dtype=self.quat.dtype))

    def magnitude(self) -> Any:
        """The angles, from 0 to π."""
        return 2.0 * fnp.arctan2(_norm(self.quat[..., :3]), fnp.abs(self.quat[..., 3]))

    def mean(self, weights: Any = None) -> Rotation:
        """The rotation that is closest to all in the mean of squares (Markley et al., 2007)."""
        count = self.quat.shape[0]
        w = fnp.ones(count, self.quat.dtype) if weights is None else fnp.asarray(weights, dtype=self.quat.dtype)
        if w.ndim != 1:
            raise ValueError(f"Expected `weights` to be 1 dimensional, got shape {w.shape}.")
        if w.shape[0] != len(self):
            raise ValueError(
                "Expected `weights` to have number of values equal to number of rotations, got "
                f"{w.shape[0]} values and {len(self)} rotations."
            )
        _, vectors = fnp.linalg.eigh(fnp.dot(w[None, :] * self.quat.T, self.quat))
        return Rotation(vectors[:, -1])

    @property
    def single(self) -> bool:
        """Whether this is one rotation, and no stack."""
        return bool(self.quat.ndim == 1)


class Slerp(NamedTuple):
    """Interpolation between rotations at given times, along the shortest way with constant speed."""

    times: Any
    timedelta: Any
    rotations: Rotation
    rotvecs: Any

    @classmethod
    def init(cls, times: Any, rotations: Rotation) -> Slerp:
        """Through at least two rotations at increasing times."""
        if not isinstance(rotations, Rotation):
            raise TypeError("`rotations` must be a `Rotation` instance.")
        if rotations.single or len(rotations) == 1:
            raise ValueError("`rotations` must be a sequence of at least 2 rotations.")
        times = fnp.asarray(times, dtype=rotations.quat.dtype)
        if times.ndim != 1:
            raise ValueError(f"Expected times to be specified in a 1 dimensional array, got {times.ndim} dimensions.")
        if times.shape[0] != len(rotations):
            raise ValueError(
                "Expected number of rotations to be equal to number of timestamps given, got "
                f"{len(rotations)} rotations and {times.shape[0]} timestamps."
            )
        first, second = Rotation(rotations.quat[:-1]), Rotation(rotations.quat[1:])
        return cls(times, fnp.diff(times), first, (first.inv() * second).as_rotvec())

    def __call__(self, times: Any) -> Any:
        """The rotations at these times."""
        wanted = fnp.asarray(times, dtype=self.times.dtype)
        if wanted.ndim > 1:
            raise ValueError("`times` must be at most 1-dimensional.")
        at = fnp.atleast_1d(wanted)
        place = fnp.maximum(fnp.searchsorted(self.times, at) - 1, 0)
        share = (at - self.times[place]) / self.timedelta[place]
        found = self.rotations[place] * Rotation.from_rotvec(self.rotvecs[place] * share[:, None])
        return found[0] if wanted.ndim == 0 else found


def _axes(seq: str, number: str) -> tuple[list[int], bool]:
    """The axes of a word by number, and whether they turn along."""
    intrinsic = re.match(f"^[XYZ]{number}$", seq) is not None
    if not intrinsic and re.match(f"^[xyz]{number}$", seq) is None:
        raise ValueError(f"Expected axes from `seq` to be from ['x', 'y', 'z'] or ['X', 'Y', 'Z'], got {seq}")
    if any(a == b for a, b in itertools.pairwise(seq)):
        raise ValueError(f"Expected consecutive axes to be different, got {seq}")
    return ["xyz".index(c) for c in seq.lower()], intrinsic


def _about(axis: int, angle: Any) -> Any:
    """The quaternion of a turn about one of the axes."""
    zero = fnp.zeros_like(angle)
    parts = [zero, zero, zero, fnp.cos(angle / 2.0)]
    parts[axis] = fnp.sin(angle / 2.0)
    return fnp.stack(parts, -1)


def _compose(p: Any, q: Any) -> Any:
    """The product of quaternions."""
    vector = p[..., 3:] * q[..., :3] + q[..., 3:] * p[..., :3] + fnp.cross(p[..., :3], q[..., :3])
    scalar = p[..., 3:] * q[..., 3:] - fnp.sum(p[..., :3] * q[..., :3], -1, keepdims=True)
    return fnp.concatenate([vector, scalar], -1)


def _norm(x: Any) -> Any:
    return fnp.sqrt(fnp.sum(x * x, -1))


def _unit(x: Any) -> Any:
    return x / _norm(x)[..., None]
