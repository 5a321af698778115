"""Checkpoints of arrays over devices, in the format of torch.distributed.checkpoint: each process writes the parts that it holds.

A leaf of the tree is a tensor in that format, named by its path (`layers.0.weight`) and stored in chunks, one for each distinct part.
What a process reads are the overlaps of those chunks with its own parts, so a checkpoint is restored on any number of processes, over any mesh.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser.errors import DeviceError, UnsupportedError
from fuser.ir.source import current_source
from fuser.ir.types import short_dtype
from fuser.lax.values import as_value
from fuser.parallel.arrays import from_parts
from fuser.parallel.multihost import sync_global_devices
from fuser.parallel.sharding import Sharding
from fuser.parallel.transport import connections
from fuser.runtime.array import Array, to_numpy
from fuser.runtime.processes import processes
from fuser.runtime.shards import Shards, on_host
from fuser.tree_util import keystr, tree_flatten_with_path, tree_unflatten

Offsets = tuple[int, ...]


@dataclass(frozen=True)
class Leaf:
    """A leaf of a tree: its name, its whole shape, its dtype, and the distinct parts that are this process's to write or read."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    parts: dict[Offsets, np.ndarray[Any, Any]]


def save_checkpoint(folder: str | os.PathLike[str], tree: Any) -> None:
    """Write the arrays and numbers of a tree into a folder, which all processes see; every process calls it.

    FileExistsError where the folder has a checkpoint, TypeError for leaves that are no arrays, UnsupportedError without torch,
    DeviceError where a process fails.
    """
    dcp, path = _library(), pathlib.Path(folder)
    leaves = [_held(name, leaf) for name, leaf in _named(tree)[0]]
    if (path / ".metadata").exists():
        raise FileExistsError(f"{path} has a checkpoint; give save_checkpoint another folder, or remove it")
    with _together("save", path) as group:
        from fuser.parallel.checkpoint_plans import WritePlanner

        writer = dcp.FileSystemWriter(path, overwrite=False)
        dcp.save({}, storage_writer=writer, planner=WritePlanner(leaves), process_group=group, no_dist=group is None)


def restore_checkpoint(folder: str | os.PathLike[str], like: Any) -> Any:
    """The tree that `save_checkpoint` wrote, as arrays that lie as those of `like` do.

    `like` has arrays, ShapeDtypeStructs (with a `sharding`, or on the first device) and numbers as leaves, and may leave out
    parts of what was saved. FileNotFoundError without a checkpoint, ValueError where names, shapes or dtypes differ, UnsupportedError without
    torch, DeviceError where a process fails. torch reads the list of contents with pickle: restore what you trust.
    """
    dcp, path = _library(), pathlib.Path(folder)
    if not (path / ".metadata").exists():
        raise FileNotFoundError(
            f"{path} has no checkpoint, or one whose writing broke off: {path / '.metadata'} is missing"
        )
    named, structure = _named(like)
    leaves = [_wanted(name, leaf) for name, leaf in named]
    reader = dcp.FileSystemReader(path)
    _check(leaves, reader.read_metadata(), path)
    with _together("restore", path) as group:
        from fuser.parallel.checkpoint_plans import ReadPlanner

        dcp.load({}, storage_reader=reader, planner=ReadPlanner(leaves), process_group=group, no_dist=group is None)
    return tree_unflatten(structure, [_made(like, leaf) for (_, like), leaf in zip(named, leaves)])


def _library() -> Any:
    """torch.distributed.checkpoint; UnsupportedError without."""
    try:
        import torch.distributed.checkpoint as dcp
    except ImportError:
        raise UnsupportedError(
            "checkpoints are in the format of torch.distributed.checkpoint, and torch is not installed; pip install torch"
        ) from None
    return dcp


@contextlib.contextmanager
def _together(what: str, path: pathlib.Path) -> Iterator[Any]:
    """The process group in which all processes do so, None for one alone; DeviceError where another is elsewhere or fails."""
    from torch.distributed.checkpoint.api import CheckpointException

    found = connections()
    if found is not None:
        sync_global_devices(f"{what} {path}")  # names who is missing
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.distributed is disabled")  # one process alone
            yield None if found is None else found.group
    except CheckpointException as error:
        each = "; ".join(f"process {n}: {type(e).__name__}: {e}" for n, (e, _) in sorted(error.failures.items()))
        raise DeviceError(f"{what}_checkpoint of {path} failed ({current_source().short}): {each}") from None
    except RuntimeError as error:
        if found is None:
            raise
        raise found.fail(f"{what}_checkpoint of {path}: a process has died or ended ({error})") from None


def _named(tree: Any) -> tuple[list[tuple[str, Any]], Any]:
    """The leaves by name, and the tree's structure; ValueError where two have one name."""
    pairs, structure = tree_flatten_with_path(tree)
    named = [(keystr(path, simple=True, separator=".") or "value", leaf) for path, leaf in pairs]
    names = [name for name, _ in named]
    if twice := {n for n in names if names.count(n) > 1}:
        raise ValueError(f"two leaves of the tree have the name {min(twice)!r} in a checkpoint; rename a key")
    return named, structure


def _held(name: str, leaf: Any) -> Leaf:
    """What this process writes of a leaf: parts that no process before it has, and of what is no array over devices process 0 all."""
    value = as_value(leaf, "save_checkpoint")
    data = value._present() if isinstance(value, Array) else None
    if not isinstance(data, Shards):
        whole = to_numpy(value)
        return Leaf(name, whole.shape, whole.dtype, {(0,) * whole.ndim: whole} if processes().index == 0 else {})
    if data.sharding.unreduced:
        raise ValueError(
            f"save_checkpoint: {name} is a sum of terms over {sorted(map(str, data.sharding.unreduced))}; reshard it"
        )
    shape, parts, seen = tuple(data.shape), dict[Offsets, Any](), set[Offsets]()
    for (_, index), part in zip(data.sharding.devices_indices_map(shape).items(), data.arrays):
        offsets = _offsets(index)
        if offsets not in seen and part is not None:
            parts[offsets] = on_host(part)
        seen.add(offsets)
    return Leaf(name, shape, data.dtype, parts)


def _offsets(index: Sequence[slice]) -> Offsets:
    return tuple(s.start or 0 for s in index)


def _wanted(name: str, like: Any) -> Leaf:
    """What this process reads of a leaf, with memory for it."""
    value = like if hasattr(like, "shape") and hasattr(like, "dtype") else as_value(like, "restore_checkpoint")
    shape, dtype, sharding = tuple(value.shape), np.dtype(value.dtype), _sharding(value)
    if sharding is None:
        return Leaf(name, shape, dtype, {(0,) * len(shape): np.empty(shape, dtype)})
    size, here = sharding.shard_shape(shape), processes().index
    indices = [i for d, i in sharding.devices_indices_map(shape).items() if d.process_index == here]
    return Leaf(
        name, shape, dtype, {offsets: np.empty(size, dtype) for offsets in dict.fromkeys(map(_offsets, indices))}
    )


def _sharding(like: Any) -> Sharding | None:
    """How a leaf is to lie; None on the first device."""
    if isinstance(like, Array):
        data = like._present()
        return data.sharding if isinstance(data, Shards) else None
    return getattr(like, "sharding", None)


def _check(leaves: Sequence[Leaf], metadata: Any, path: pathlib.Path) -> None:
    """ValueError unless the checkpoint has these leaves."""
    stored = metadata.state_dict_metadata
    for leaf in leaves:
        if leaf.name not in stored:
            near = ", ".join(sorted(stored)[:8])
            raise ValueError(f"{path} has no {leaf.name!r}; it has {near}{', ...' if len(stored) > 8 else ''}")
        found = stored[leaf.name]
        own = Array(np.empty(0, leaf.dtype)).torch().dtype
        if tuple(found.size) != leaf.shape or found.properties.dtype != own:
            raise ValueError(
                f"{leaf.name!r} in {path} is {found.properties.dtype} of shape {tuple(found.size)}, and {short_dtype(leaf.dtype)} of shape "
                f"{leaf.shape} is asked for; restore it as it was saved, and convert it then"
            )


def _made(like: Any, leaf: Leaf) -> Any:
    """A leaf of the restored tree."""
    if isinstance(like, (bool, int, float, complex)):
        return type(like)(leaf.parts[()].item())
    sharding, weak = _sharding(like), bool(getattr(like, "weak_type", False))
    if sharding is None:
        (whole,) = leaf.parts.values()
        return Array(whole, weak)
    indices = sharding.devices_indices_map(leaf.shape).items()
    parts = [leaf.parts[_offsets(i)] if d.process_index == processes().index else None for d, i in indices]
    return from_parts(leaf.shape, leaf.dtype, sharding, parts, weak)
