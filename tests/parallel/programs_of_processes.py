"""What tests start as several processes: `python programs_of_processes.py NAME` under the variables that torchrun sets.

Each prints one line of JSON, or fails.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import signal
import sys
import time
from typing import Any

import numpy as np

import fuser
import fuser.numpy as fnp
from fuser import NamedSharding, P

X = np.random.default_rng(0).normal(size=(16, 8, 4)).astype(np.float32)
W = np.random.default_rng(1).normal(size=(64, 96)).astype(np.float32)


def mesh(count: int = 8) -> Any:
    """A mesh of data and model."""
    auto = fuser.sharding.AxisType.Auto
    return fuser.make_mesh((count // 2, 2), ("x", "y"), axis_types=(auto, auto))


def results() -> dict[str, Any]:
    """Every collective, short and long, a training step over both axes, and arrays laid out anew."""
    grid, lax = mesh(), fuser.lax
    spec = P("x", "y")

    def collectives(a: Any) -> Any:
        turn = [(n, (n + 1) % 4) for n in range(3)]
        long = fnp.tanh(fnp.concatenate([a.reshape(-1)] * 40)).reshape(64, -1)
        return {
            "psum": lax.psum(a, "x"),
            "psum of both": lax.psum(a, ("x", "y")),
            "long": lax.psum(long, ("y", "x")),
            "short floats": lax.psum(long.astype("bfloat16"), "x"),
            "max": lax.pmax(long, "x"),
            "gather": lax.all_gather(a, "x", axis=1),
            "scatter": lax.psum_scatter(a, "x", scatter_dimension=1),
            "exchange": lax.all_to_all(a, "x", 0, 2),
            "permute": lax.ppermute(a, "x", turn),
            "broadcast": lax.pbroadcast(a, "x", 2),
            "index": a * lax.axis_index(("y", "x")),
        }

    gathered = fuser.shard_map(collectives, mesh=grid, in_specs=spec, out_specs=P(("x", "y")), check_vma=False)
    found = dict(fuser.jit(gathered)(X))
    put = lambda value, *entries: fuser.device_put(value, NamedSharding(grid, P(*entries)))
    params, batch = {"w": put(W, None, "y"), "v": put(W.T.copy(), "y")}, put(np.tile(W[:32, :64], (1, 1)), "x")

    def loss(p: Any, x: Any) -> Any:
        return ((fnp.tanh(x @ p["w"]) @ p["v"] - x) ** 2).mean()

    @fuser.jit
    def step(p: Any, x: Any) -> Any:
        value, slopes = fuser.value_and_grad(loss)(p, x)
        return value, fuser.tree.map(lambda a, s: a - 0.1 * s, p, slopes)

    for _ in range(3):
        value, params = step(params, batch)
    found |= {"loss": value, **params, "moved": fuser.device_put(params["w"], NamedSharding(grid, P("x")))}
    found["eager"] = fnp.sin(params["w"]) + params["w"].sum()
    layers = [put(W[:, :64] * n, "x") for n in range(1, 4)]
    elements = np.resize(W, (8, 6, 5))[[d.id for d in fuser.local_devices()]]
    scaled, total, index = over_all(elements, np.float32(3))
    found |= {"pmap": scaled, "pmap sum": total, "pmap index": index}
    error = lambda a, b: (over_all(a, b)[0] ** 2).sum() + over_all(a, b)[1].sum()
    slopes = fuser.grad(error, (0, 1))(elements, np.float32(3))
    curved = fuser.grad(lambda b: fuser.grad(error, 1)(elements, b) ** 2)(np.float32(3))
    lanes = fuser.vmap(lambda a: over_all(a, np.float32(2))[0])(np.stack([elements, elements + 1]))
    found |= {"pmap slope": slopes[0], "pmap shared slope": slopes[1], "pmap curvature": curved, "pmap lanes": lanes}
    if fuser.process_count() > 1:
        refused_in_jit(elements)
    found["layers"] = forward(layers, batch)
    steps = [e.primitive.name for e in forward.lower(layers, batch).graph.eqns]
    assert ("collective_start" in steps) == (fuser.process_count() > 1), steps
    wide = [put(np.resize(W, (1536, 1536)) * n, "y") for n in range(1, 4)]
    slopes = descend(wide, put(np.resize(W, (16, 1536)), "x"))
    found |= {f"slope {n}": s for n, s in enumerate(slopes)}
    steps = [e.primitive.name for e in descend.lower(wide, put(np.resize(W, (16, 1536)), "x")).graph.eqns]
    assert fuser.process_count() == 1 or steps.count("collective_start") > 3, steps
    callback = fuser.make_array_from_callback(W.shape, NamedSharding(grid, P("x", "y")), lambda index: W[index])
    found["callback"] = callback * 2
    mine = W[_rows(grid)]
    found["local data"] = fuser.make_array_from_process_local_data(NamedSharding(grid, P("x")), mine) + 1
    return found


@fuser.jit
def forward(layers: Any, x: Any) -> Any:
    """Layers whose weights every device gathers, between processes while the layer before computes."""
    for w in layers:
        x = fnp.tanh(x @ fuser.lax.with_sharding_constraint(w, NamedSharding(mesh(), P())))
    return x


@fuser.jit
def descend(layers: Any, x: Any) -> Any:
    """Gradients of layers so large that their sums go in several buckets."""
    return fuser.grad(lambda ws: (forward(ws, x) ** 2).sum())(layers)


@functools.partial(fuser.pmap, axis_name="i", in_axes=(0, None), out_axes=(1, None, 0))
def over_all(a: Any, b: Any) -> Any:
    """Of each process's own elements: what depends on all of them."""
    total = fuser.lax.psum(fnp.sin(a), "i")
    return a * b + fuser.lax.pmax(a, "i"), total, fuser.lax.axis_index("i")


def refused_in_jit(elements: np.ndarray) -> None:
    """JAX has no jitted pmap over processes either."""
    try:
        fuser.jit(lambda a: over_all(a, np.float32(3))[0] + 1)(elements)
    except NotImplementedError as error:
        assert "pmap of over_all over the devices of several processes stands in a jitted function" in str(error)
        assert "programs_of_processes.py" in str(error)
    else:
        raise AssertionError("it was not refused")


def _rows(grid: Any) -> slice:
    """The rows of W that this process has of an array split over x."""
    own = NamedSharding(grid, P("x")).addressable_devices_indices_map(W.shape).values()
    return slice(min(i[0].start for i in own), max(i[0].stop for i in own))


def digests(found: dict[str, Any]) -> dict[str, dict[int, str]]:
    """A hash of each device's part of each result."""
    text = lambda data: hashlib.sha256(np.asarray(data).tobytes()).hexdigest()[:16]
    return {n: {s.device.id: text(s.data) for s in a.addressable_shards} for n, a in found.items()}


def same_numbers() -> Any:
    found = results()
    tell, index, count = fuser.experimental.multihost_utils, fuser.process_index(), fuser.process_count()
    np.testing.assert_array_equal(tell.process_allgather(np.array([index])), np.arange(count)[:, None])
    np.testing.assert_array_equal(tell.process_allgather(found["callback"]), W * 2)
    assert tell.broadcast_one_to_all({"a": np.float32(index)}, is_source=index == count - 1) == {"a": count - 1}
    tell.sync_global_devices("end")
    return digests(found)


def state(grid: Any, value: Any, *specs: Any) -> dict[str, Any]:
    """Parameters, a moment of another dtype, what every device has, and a number, laid out by these specs."""
    put = lambda x, spec: fuser.device_put(x, NamedSharding(grid, spec))
    layers = [{"w": put(W * value, specs[0])}, {"w": put((W.T * value).astype(fnp.bfloat16), specs[1])}]
    return {"layers": layers, "scale": put(np.arange(3.0, dtype=np.float32) * value, P()), "steps": 7 * value}


def saved() -> Any:
    """A checkpoint of every process's parts."""
    tree = state(mesh(fuser.device_count()), 1, P("x", "y"), P(None, ("y", "x")))
    fuser.distributed.save_checkpoint(os.environ["FOLDER"], tree)
    return whole(tree)


def restored() -> Any:
    """The same over another mesh, laid out otherwise."""
    like = state(mesh(fuser.device_count()), 0, P("y"), P("x"))
    return whole(fuser.distributed.restore_checkpoint(os.environ["FOLDER"], like))


def whole(tree: Any) -> list[Any]:
    """A hash of each array, wherever its parts are, and the number."""
    gathered = fuser.experimental.multihost_utils.process_allgather({k: v for k, v in tree.items() if k != "steps"})
    found = [hashlib.sha256(np.ascontiguousarray(v).tobytes()).hexdigest()[:16] for v in fuser.tree.leaves(gathered)]
    return [*found, tree["steps"]]


def endless() -> Any:
    """Sums until something happens; says which error ended it, and how long after the fault."""
    grid = mesh(fuser.device_count())
    total = fuser.jit(
        fuser.shard_map(lambda a: fuser.lax.psum(a, ("x", "y")), mesh=grid, in_specs=P("x"), out_specs=P())
    )
    x = fuser.device_put(np.ones((8, 4), np.float32), NamedSharding(grid, P("x")))
    timeout = fuser.config.collective_timeout
    fuser.config.update("collective_timeout", 600.0)  # others may still compile
    total(x)
    fuser.config.update("collective_timeout", timeout)
    print("started", flush=True)
    for turn in range(100000):
        start = time.monotonic()
        try:
            total(x)
        except fuser.errors.DeviceError as error:
            return {"error": str(error), "seconds": time.monotonic() - start}
        if turn == 3 and os.environ["RANK"] == "1" and (fault := os.environ.get("FAULT")):
            if fault == "raise":
                raise ValueError("no such number")
            if fault == "disagree":
                x = fuser.device_put(np.ones((16, 4), np.float32), NamedSharding(grid, P("x")))
            if fault == "end":
                return {"ended": True}
    return {}


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background jobs ignore
    fuser.distributed.initialize()
    print(json.dumps(globals()[sys.argv[1]]()), flush=True)
