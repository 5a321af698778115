"""What tests start as several processes with a GPU each, which the driver's and NCCL's stand-ins are: `python processes_on_gpus.py NAME`.

Each prints one line of JSON, or fails.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import signal
import sys
from typing import Any

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import fuser
import fuser.numpy as fnp
from fuser import NamedSharding, P, lax
from fuser.parallel import passes
from tests import cuda_stand_in

X = np.random.default_rng(0).normal(size=(16, 8, 4)).astype(np.float32)
W = np.random.default_rng(1).normal(size=(64, 96)).astype(np.float32)


def mesh(count: int, platform: str) -> Any:
    """A mesh of data and model."""
    auto = fuser.sharding.AxisType.Auto
    devices = fuser.devices(platform)[:count]
    return fuser.make_mesh((count // 2, 2), ("x", "y"), axis_types=(auto, auto), devices=devices)


def collectives(a: Any) -> dict[str, Any]:
    """Every collective, short and long, in loops and branches."""
    long = fnp.tanh(fnp.concatenate([a.reshape(-1)] * 40)).reshape(64, -1)

    def looped(c: Any, k: Any) -> Any:
        return lax.psum(c * 0.25, "x") + lax.axis_index("y"), lax.pmin(c, "y")

    return {
        "psum": lax.psum(a, "x"),
        "psum of both": lax.psum(a, ("x", "y")),
        "long": lax.psum(long, ("y", "x")),
        "short floats": lax.psum(long.astype("bfloat16"), "x"),
        "uneven": lax.psum(fnp.concatenate([long.reshape(-1), fnp.ones(3)]), ("x", "y")),
        "max": lax.pmax(long, "x"),
        "gather": lax.all_gather(a, "x", axis=1),
        "scatter": lax.psum_scatter(a, "y", scatter_dimension=1, tiled=True),
        "exchange": lax.all_to_all(a, "y", 1, 2, tiled=True),
        "permute": lax.ppermute(a, "x", [(0, 1)]),
        "broadcast": lax.pbroadcast(a, "y", 1),
        "index": a * lax.axis_index(("y", "x")),
        "groups": lax.psum(a, "y", axis_index_groups=[[0], [1]]),
        "loop": lax.scan(looped, a, fnp.arange(3)),
        "while": lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, lax.psum(c[1], "y") * 0.5), (0, a))[1],
        "branch": lax.cond(lax.psum(a, ("x", "y")).sum() > 0, lambda: lax.psum(a, "y"), lambda: lax.pmax(a, "y")),
    }


def results(count: int, platform: str) -> dict[str, Any]:
    """The collectives, called so often that graphs are captured and replayed: what the first and the last call give."""
    grid, spec = mesh(count, platform), P("x", "y")
    program = fuser.jit(
        fuser.shard_map(collectives, mesh=grid, in_specs=spec, out_specs=P(("x", "y")), check_vma=False)
    )
    x = fuser.device_put(X, NamedSharding(grid, spec))
    calls = {"first": program(x)}
    for _ in range(5):
        calls["last"] = program(x)
    return {fuser.tree_util.keystr(path): leaf for path, leaf in fuser.tree_util.tree_flatten_with_path(calls)[0]}


def of_one(platform: str) -> dict[str, tuple[Any, np.ndarray]]:
    """Collectives among one device, which go through its communicator all the same: what the first and the last call give, and what they should."""
    auto = fuser.sharding.AxisType.Auto
    grid = fuser.make_mesh((1,), ("x",), axis_types=(auto,), devices=fuser.devices(platform)[:1])

    def every(a: Any) -> dict[str, Any]:
        return {
            "sum": lax.psum(a, "x"),
            "gather": lax.all_gather(a + 1, "x", axis=1),
            "scatter": lax.psum_scatter(a * 2, "x", scatter_dimension=1, tiled=True),
            "exchange": lax.all_to_all(a + 2, "x", 0, 1, tiled=True),
            "permute": lax.ppermute(a * 4, "x", [(0, 0)]),
            "broadcast": lax.pbroadcast(a - 1, "x", 0),
        }

    wanted = {"sum": W, "gather": (W + 1)[:, None], "scatter": W * 2, "exchange": W + 2, "permute": W * 4}
    wanted["broadcast"] = W - 1
    x = fuser.device_put(W, NamedSharding(grid, P()))
    removed, passes._without_lone = passes._without_lone, lambda graph, sizes: graph
    try:
        program = fuser.jit(fuser.shard_map(every, mesh=grid, in_specs=P(), out_specs=P(), check_vma=False))
        calls = {"first": program(x)}
        for _ in range(5):
            calls["last"] = program(x)
    finally:
        passes._without_lone = removed
    return {f"{when} {name}": (x, wanted[name]) for when, found in calls.items() for name, x in found.items()}


def digests(found: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Of each result the parts here, by device, as hashes."""
    digest = lambda part: hashlib.sha256(np.asarray(part.data).tobytes()).hexdigest()[:16]
    return {name: {str(part.device.id): digest(part) for part in x.addressable_shards} for name, x in found.items()}


def same_numbers() -> Any:
    """What each process has of the results."""
    return digests(results(fuser.device_count("cuda"), "cuda"))


def steps(limit: int) -> Any:
    """Calls of a program whose devices meet."""
    grid = mesh(fuser.device_count("cuda"), "cuda")
    x = fuser.device_put(W, NamedSharding(grid, P("x", "y")))
    step = fuser.jit(lambda x: fnp.tanh(x / (x * x).sum()))
    for number in range(limit):
        x = step(x)
        yield number, x


def failing(how: str) -> Any:
    """Process 1 fails in the third call; the others print what they are told."""
    for number, x in steps(6):
        if number == 2 and fuser.process_index() == 1:
            x.block_until_ready()
            if how == "raise":
                raise ValueError("it is a test")
            if how == "disagree":
                fuser.jit(lambda x: fnp.cos(x).sum())(x)
            os.kill(os.getpid(), {"die": signal.SIGKILL, "hang": signal.SIGSTOP}.get(how, 0))
    return float(x.addressable_shards[0].data.sum())


def main(name: str, *options: str) -> None:
    """Run one of these, with the process's own stand-in."""
    with cuda_stand_in.opened(int(os.environ["GPUS"])):
        fuser.distributed.initialize()
        print(json.dumps(globals()[name](*options)))
        fuser.distributed.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
