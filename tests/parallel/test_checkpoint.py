"""Checkpoints over devices of one process; tests/parallel/test_processes.py restores on other numbers of processes."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest
from parallel_agreement import mesh_of

import fuser
import fuser.numpy as fnp
from fuser import NamedSharding, P
from fuser.distributed import restore_checkpoint, save_checkpoint

pytest.importorskip("torch.distributed.checkpoint")
W = np.random.default_rng(0).normal(size=(12, 24)).astype(np.float32)


def test_trees_come_back_over_another_mesh(tmp_path: pathlib.Path) -> None:
    """Every dtype that is stored, replicas, arrays on the first device, keys, numbers, nothing; named as torch names tensors."""
    from torch.distributed.checkpoint import FileSystemReader

    first = mesh_of(fuser, x=4, y=2)
    put = lambda value, mesh, *spec: fuser.device_put(value, NamedSharding(mesh, P(*spec)))
    short = [
        put(W.astype(d), first, None, "x") for d in (fnp.bfloat16, fnp.float8_e4m3fn, np.int8, np.bool_, np.complex64)
    ]
    tree = {"w": put(W, first, "x", "y"), "short": short, "all": put(np.arange(3), first), "steps": 7, "rate": 0.5}
    tree |= {"key": fuser.random.key(3), "one": fnp.ones(3), "none": np.zeros((0, 4), np.float32), "n": fnp.float32(3)}
    save_checkpoint(tmp_path / "a", tree)

    second = fuser.make_mesh(
        (2, 3), ("a", "b"), axis_types=(fuser.sharding.AxisType.Auto,) * 2, devices=fuser.devices()[:6]
    )
    like = {
        **tree,
        "w": fuser.ShapeDtypeStruct(W.shape, np.float32, sharding=NamedSharding(second, P("b", "a"))),
        "steps": 0,
    }
    like["short"] = [put(fnp.zeros(W.shape, v.dtype), second, "a") for v in short]
    found = restore_checkpoint(tmp_path / "a", like)
    assert found["w"].sharding.spec == P("b", "a") and found["short"][0].sharding.mesh == second
    assert found["steps"] == 7 and type(found["steps"]) is int and found["rate"] == 0.5
    plain = lambda t: fuser.tree.map(np.asarray, {**t, "key": fuser.random.key_data(t["key"])})
    for a, b in zip(fuser.tree.leaves(plain(found)), fuser.tree.leaves(plain(tree)), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    stored: Any = FileSystemReader(tmp_path / "a").read_metadata().state_dict_metadata
    assert len(stored["w"].chunks) == 8 and len(stored["all"].chunks) == 1 and len(stored["short.0"].chunks) == 4
    np.testing.assert_array_equal(restore_checkpoint(tmp_path / "a", {"w": W})["w"], W)  # a part of what was saved


def test_what_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError, match="has no checkpoint, or one whose writing broke off"):
        restore_checkpoint(tmp_path, {"w": W})
    save_checkpoint(tmp_path, {"w": W})
    with pytest.raises(FileExistsError, match="give save_checkpoint another folder"):
        save_checkpoint(tmp_path, {"w": W})
    with pytest.raises(ValueError, match="has no 'v'; it has w"):
        restore_checkpoint(tmp_path, {"v": W})
    for other in (W.T, W.astype(np.float16)):
        with pytest.raises(ValueError, match=r"'w' in .* is torch.float32 of shape \(12, 24\), and .* is asked for"):
            restore_checkpoint(tmp_path, {"w": other})
    with pytest.raises(ValueError, match=r"two leaves of the tree have the name 'a.b'"):
        save_checkpoint(tmp_path / "b", {"a": {"b": W}, "a.b": W})
    with pytest.raises(TypeError):
        save_checkpoint(tmp_path / "b", {"a": "text"})
