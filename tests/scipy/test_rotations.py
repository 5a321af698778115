"""scipy.spatial.transform beside JAX's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from jax.scipy.spatial import transform as jtransform

import fuser
from fuser.scipy.spatial import transform

RNG = np.random.default_rng(0)
Q = RNG.normal(size=(5, 4)).astype(np.float32)
V = RNG.normal(size=(5, 3)).astype(np.float32)
EDGES = np.array([[10, 0, 20], [0, 0, 0], [90, 90, 0]], np.float32)
CALLS: dict[str, Any] = {
    **{f"{name}{args}": lambda R, name=name, args=args: getattr(R.from_quat(Q), name)(*args)
       for name, args in (("as_matrix", ()), ("as_mrp", ()), ("as_rotvec", ()), ("as_rotvec", (True,)), ("as_quat", (True,)),
                          ("as_quat", (True, True)), ("magnitude", ()), ("as_euler", ("xyz",)), ("as_euler", ("XYZ", True)),
                          ("as_euler", ("zxz",)), ("as_euler", ("ZYZ",)), ("apply", (V,)), ("apply", (V, True)))},
    **{f"edges {seq}": lambda R, seq=seq: R.from_euler(seq, EDGES, True).as_euler(seq, True) for seq in ("xyz", "XYZ", "zxz")},
    **{f"from {seq}": lambda R, seq=seq: R.from_euler(seq, V[:, : len(seq)], True).quat for seq in ("zxy", "ZX")},
    "one": lambda R: R.from_euler("z", 90, degrees=True).as_matrix(),
    "product": lambda R: (R.from_quat(Q) * R.from_quat(Q[::-1].copy())).quat,
    "inverse": lambda R: R.from_quat(Q).inv()[2].apply(V),
    "mean": lambda R: R.from_quat(Q).mean(np.arange(5, dtype=np.float32)).quat ** 2,
    "matrix": lambda R: R.from_matrix(np.asarray(R.from_quat(Q).as_matrix())).quat,
    "mrp": lambda R: R.from_mrp(V).quat,
    "rotvec": lambda R: R.from_rotvec(np.concatenate([V, V * 1e-5])).quat,
    "several": lambda R: R.concatenate([R.from_quat(Q), R.from_mrp(V)]).quat,
    "identity": lambda R: R.identity().quat,
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_rotation(name: str) -> None:
    found, wanted = (CALLS[name](m.Rotation) for m in (transform, jtransform))
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    np.testing.assert_allclose(found, wanted, atol=1e-2 if "edges" in name else 1e-4)


def test_slerp_and_gradients() -> None:
    found, wanted = (m.Slerp.init(np.arange(5), m.Rotation.from_quat(Q)) for m in (transform, jtransform))
    for times in (np.array([0, 0.5, 1, 3.7], np.float32), np.float32(0.3)):
        np.testing.assert_allclose(found(times).quat, wanted(times).quat, atol=1e-4)
    gradient = fuser.jit(fuser.grad(lambda v: transform.Rotation.from_rotvec(v).as_matrix()[..., 0, 1].sum()))(V)
    assert np.isfinite(np.asarray(gradient)).all()


@pytest.mark.parametrize("call", [
    lambda R: R.from_euler("xxz", V), lambda R: R.from_euler("abc", V), lambda R: R.from_quat(Q).as_euler("xy"),
    lambda R: R.from_quat(Q).mean(np.ones(4)), lambda R: R.from_quat(Q[0])[0], lambda R: len(R.identity()),
])  # fmt: skip
def test_errors(call: Any) -> None:
    with pytest.raises(Exception) as wanted:
        call(jtransform.Rotation)
    with pytest.raises(wanted.type):
        call(transform.Rotation)
