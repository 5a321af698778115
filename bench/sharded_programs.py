"""Programs over eight devices, written once for fuser and for JAX: what `bench.collectives` and `bench.devices` compare.

Each takes a library and the number of its devices, and gives a jitted function and its arguments, laid out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Built = tuple[Any, tuple[Any, ...]]
Program = Callable[..., Built]


def mesh_of(lib: Any, count: int, *names: str) -> Any:
    """A mesh of `count` devices, the first axis the longer one."""
    inner = 2 if len(names) == 2 and count > 2 else 1
    shape = (count // inner, inner) if len(names) == 2 else (count,)
    return lib.make_mesh(shape, names, axis_types=(lib.sharding.AxisType.Auto,) * len(names))


class Arrays:
    """Random arrays, the same for each library, laid out over its mesh."""

    def __init__(self, lib: Any, mesh: Any, scale: int) -> None:
        self.lib, self.mesh, self.scale, self.rng = lib, mesh, scale, np.random.default_rng(0)

    def __call__(self, shape: tuple[int, ...], *spec: Any) -> Any:
        values = self.rng.normal(size=shape).astype(np.float32) / np.float32(np.sqrt(shape[0]))
        return self.lib.device_put(values, self.lib.NamedSharding(self.mesh, self.lib.P(*spec)))


def _training(lib: Any, loss: Callable[..., Any]) -> Any:
    def step(params: Any, *batch: Any) -> Any:
        value, slopes = lib.value_and_grad(loss)(params, *batch)
        return value, lib.tree.map(lambda p, s: p - 0.01 * s, params, slopes)

    return lib.jit(step)


def _mlp(lib: Any, params: Any, x: Any, y: Any) -> Any:
    hidden = lib.numpy.tanh(x @ params["in"] + params["bias"])
    return ((hidden @ params["out"] - y) ** 2).mean()


def data_parallel(lib: Any, count: int, scale: int = 1) -> Built:
    """An MLP's training step: batch split, weights on every device."""
    put = Arrays(lib, mesh_of(lib, count, "data"), scale)
    n = 64 * scale
    params = {"in": put((n, 2 * n)), "bias": put((2 * n,)), "out": put((2 * n, n))}
    return _training(lib, lambda p, x, y: _mlp(lib, p, x, y)), (params, put((n, n), "data"), put((n, n), "data"))


def fully_sharded(lib: Any, count: int, scale: int = 1) -> Built:
    """The same with weights split too (FSDP): gathered for use, gradients scattered."""
    put = Arrays(lib, mesh_of(lib, count, "data"), scale)
    n = 64 * scale
    params = {"in": put((n, 2 * n), "data"), "bias": put((2 * n,), "data"), "out": put((2 * n, n), "data")}
    return _training(lib, lambda p, x, y: _mlp(lib, p, x, y)), (params, put((n, n), "data"), put((n, n), "data"))


def megatron_mlp(lib: Any, count: int, scale: int = 1) -> Built:
    """The same with weights split by columns, then rows (Megatron), over a mesh of data and model."""
    put = Arrays(lib, mesh_of(lib, count, "data", "model"), scale)
    n = 64 * scale
    params = {"in": put((n, 2 * n), None, "model"), "bias": put((2 * n,), "model"), "out": put((2 * n, n), "model")}
    return _training(lib, lambda p, x, y: _mlp(lib, p, x, y)), (params, put((n, n), "data"), put((n, n), "data"))


def megatron_attention(lib: Any, count: int, scale: int = 1) -> Built:
    """An attention block's training step, heads split over model, sequences over data."""
    put = Arrays(lib, mesh_of(lib, count, "data", "model"), scale)
    n, heads, length, batch = 32 * scale, 4, 16 * scale, 8
    np_ = lib.numpy

    def loss(params: Any, x: Any, y: Any) -> Any:
        q, k, v = (np_.einsum("btd,dhe->bhte", x, params[name]) for name in ("q", "k", "v"))
        scores = np_.einsum("bhte,bhse->bhts", q, k) / np.float32(np.sqrt(n // heads))
        mixed = np_.einsum("bhts,bhse->bhte", lib.nn.softmax(scores, -1), v)
        return ((x + np_.einsum("bhte,hed->btd", mixed, params["o"]) - y) ** 2).mean()

    params = {name: put((n, heads, n // heads), None, "model") for name in ("q", "k", "v")}
    params["o"] = put((heads, n // heads, n), "model")
    return _training(lib, loss), (params, put((batch, length, n), "data"), put((batch, length, n), "data"))


def matmul_2d(lib: Any, count: int, scale: int = 1) -> Built:
    """A product of two matrices, each split both ways."""
    put = Arrays(lib, mesh_of(lib, count, "rows", "columns"), scale)
    n = 128 * scale
    where = lib.NamedSharding(put.mesh, lib.P("rows", "columns"))
    return lib.jit(lambda a, b: a @ b, out_shardings=where), (
        put((n, n), "rows", "columns"),
        put((n, n), "rows", "columns"),
    )


def halo_exchange(lib: Any, count: int, scale: int = 1) -> Built:
    """Four steps of a five-point stencil on rows split over the devices, which get their neighbours' borders."""
    mesh = mesh_of(lib, count, "rows")
    put, lax, np_ = Arrays(lib, mesh, scale), lib.lax, lib.numpy
    down, up = [(n, (n + 1) % count) for n in range(count)], [((n + 1) % count, n) for n in range(count)]

    def one(u: Any) -> Any:
        for _ in range(4):
            above, below = lax.ppermute(u[-1:], "rows", down), lax.ppermute(u[:1], "rows", up)
            tall = np_.concatenate([above, u, below])
            u = 0.2 * (tall[:-2] + tall[2:] + u + np_.roll(u, 1, 1) + np_.roll(u, -1, 1))
        return u

    spec = lib.P("rows")
    return lib.jit(lib.shard_map(one, mesh=mesh, in_specs=spec, out_specs=spec)), (
        put((128 * scale, 128 * scale), "rows"),
    )


def expert_all_to_all(lib: Any, count: int, scale: int = 1) -> Built:
    """A layer of experts, one a device: tokens go to their expert's device and come back."""
    mesh = mesh_of(lib, count, "expert")
    put, lax = Arrays(lib, mesh, scale), lib.lax
    n, capacity = 32 * scale, 8 * scale

    def one(w_in: Any, w_out: Any, tokens: Any) -> Any:
        sent = lax.all_to_all(tokens, "expert", 0, 0, tiled=True)
        hidden = lib.nn.relu(sent @ w_in[0])
        return lax.all_to_all(hidden @ w_out[0], "expert", 0, 0, tiled=True)

    specs = lib.P("expert")
    f = lib.shard_map(one, mesh=mesh, in_specs=(specs, specs, specs), out_specs=specs)
    tokens = put((count * count, capacity, n), "expert")
    return lib.jit(f), (put((count, n, 2 * n), "expert"), put((count, 2 * n, n), "expert"), tokens)


PROGRAMS: dict[str, Program] = {
    "data-parallel MLP": data_parallel,
    "FSDP MLP": fully_sharded,
    "Megatron MLP": megatron_mlp,
    "Megatron attention": megatron_attention,
    "2-D matmul": matmul_2d,
    "halo exchange": halo_exchange,
    "expert all-to-all": expert_all_to_all,
}
