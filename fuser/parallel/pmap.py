"""`pmap`: a function mapped over one dimension of its arguments, each element on a device of its own; by `shard_map`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from fuser.api.jitted import jit
from fuser.errors import UnsupportedError
from fuser.frames import hide
from fuser.ir.names import function_name
from fuser.ir.source import current_source
from fuser.lax.movement import expand_dims, squeeze
from fuser.ops.shard_map import Layout, Spec, shard_map_p, whole
from fuser.parallel import run  # noqa: F401  (says how the primitive runs)
from fuser.parallel.arrays import relabelled
from fuser.parallel.mesh import Mesh
from fuser.parallel.mesh_of_blocks import MeshOfBlocks
from fuser.parallel.sharding import NamedSharding
from fuser.parallel.spec import PartitionSpec
from fuser.runtime.array import Array
from fuser.runtime.device import Device
from fuser.runtime.device import devices as all_devices
from fuser.runtime.processes import processes
from fuser.runtime.shards import Shards
from fuser.trace import tree
from fuser.trace.batch import manual_axes
from fuser.trace.body import staged_body
from fuser.trace.core import type_of
from fuser.transforms.arguments import check_callable, leaf_values
from fuser.transforms.vmap import path, prefix

_UNNAMED = "<the axis of pmap>"


def pmap(
    fun: Callable[..., Any],
    axis_name: Any = None,
    *,
    in_axes: Any = 0,
    out_axes: Any = 0,
    static_broadcasted_argnums: int | Iterable[int] = (),
    devices: Sequence[Device] | None = None,
    backend: str | None = None,
    axis_size: int | None = None,
    donate_argnums: int | Iterable[int] = (),
) -> Any:
    """`fun` mapped over one dimension of its arguments, the n-th element on the n-th device; compiled.

    `in_axes` and `out_axes` are as in `vmap`; None in `out_axes` is for results that are the same on all devices. Static
    arguments are Python values, the same for all. Donated arguments that lie over devices cannot be used afterwards; others were copied
    there. `axis_name` names the devices for collectives (`fuser.lax.psum`, ...), psum being its own transpose. Of several processes each calls it with
    the elements of its own devices and gets their results; collectives are over all devices. ValueError without devices, and where there are fewer than elements.
    """
    check_callable(fun, "pmap")
    static, donated = _numbers(static_broadcasted_argnums), _numbers(donate_argnums)
    name = _UNNAMED if axis_name is None else axis_name
    axes = tuple(in_axes) if isinstance(in_axes, list) else in_axes
    if devices is not None and not len(devices):
        raise ValueError("'devices' argument to pmap must be non-empty, or None.")
    if any(isinstance(leaf, bool) or not hasattr(leaf, "__index__") for leaf in tree.leaves((axes, out_axes))):
        raise TypeError(
            f"pmap in_axes and out_axes must be an int, None, or a tree of them, got {in_axes!r} and {out_axes!r} ({current_source().short})"
        )

    @functools.wraps(fun)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        try:
            if manual_axes():
                raise UnsupportedError(
                    f"a pmap within a pmap or shard_map is not supported ({current_source().short}); use vmap for the inner "
                    "one, or shard_map over a mesh with two axes"
                )
            if static and max(static) >= len(args):
                raise ValueError(
                    f"pmapped function has static_broadcasted_argnums={static} but was called with only {len(args)} positional "
                    f"argument{'s' if len(args) != 1 else ''}. All static broadcasted arguments must be passed positionally. "
                    f"({current_source().short})"
                )
            available = list(devices) if devices is not None else all_devices(backend)
            call = _Call(
                fun, name, axes, out_axes, frozenset(n % len(args) for n in static if -len(args) <= n < len(args))
            )
            return call.run(args, kwargs, available, axis_size, [n % len(args) for n in donated if args])
        except Exception as error:
            raise hide(error)  # noqa: B904

    program = jit(lambda *args, **kwargs: mapped(*args, **kwargs))
    mapped.trace, mapped.lower = program.trace, program.lower  # type: ignore[attr-defined]
    return mapped


def _numbers(value: int | Iterable[int]) -> tuple[int, ...]:
    return (value,) if isinstance(value, int) else tuple(value)


class _Call:
    """One call: which arguments are mapped where, and the function of one device."""

    def __init__(self, fun: Callable[..., Any], name: Any, in_axes: Any, out_axes: Any, static: frozenset[int]) -> None:
        self.fun, self.name, self.out_axes, self.static = fun, name, out_axes, static
        self.in_axes = in_axes

    def run(self, args: Any, kwargs: Any, devices: list[Device], axis_size: int | None, donated: list[int]) -> Any:
        free = tuple(a for n, a in enumerate(args) if n not in self.static)
        fixed = tuple((n, a) for n, a in enumerate(args) if n in self.static)
        leaves, structure = tree.flatten((free, kwargs))
        values = leaf_values(leaves, f"the arguments of {function_name(self.fun)}")
        dims = self._dims(args, free, kwargs, values)
        here = sum(d.process_index == processes().index for d in devices)
        several = here < len(devices)
        share = axis_size * here // len(devices) if several and axis_size is not None else axis_size
        size = self._size(values, dims, (free, kwargs), share)
        if several:
            self._check_share(size, here)
        elif size > len(devices):
            raise ValueError(
                f"pmap of {function_name(self.fun)} maps {size} elements and there are {len(devices)} devices "
                f"({current_source().short}); map at most as many, and vmap the rest; on the CPU, num_cpu_devices or "
                "FUSER_NUM_CPU_DEVICES sets how many there are"
            )
        kind = MeshOfBlocks if several else Mesh
        mesh = kind(np.array(devices if several else devices[:size], object), (self.name,))
        layout = Layout(mesh, (self.name,), False)
        specs = [_spec(type_of(v).ndim, d, self.name) for v, d in zip(values, dims)]
        outs, out_tree = self._bound(layout, structure, values, specs, dims, fixed)
        for number in donated:
            for leaf in tree.leaves(args[number]):
                if isinstance(leaf, Array) and isinstance(leaf._data, Shards):
                    leaf.delete("it was donated to a call of pmap")
        return tree.unflatten(out_tree, outs)

    def _check_share(self, size: int, here: int) -> None:
        """ValueError unless this process has one element for each of its devices."""
        if size != here:
            raise ValueError(
                f"pmap of {function_name(self.fun)} maps {size} elements in this process, which has {here} devices; of several processes "
                f"each gives one element for each of its own devices ({current_source().short})"
            )

    def _dims(self, args: Any, free: Any, kwargs: Any, values: Sequence[Any]) -> list[int | None]:
        axes = self.in_axes
        if isinstance(axes, tuple):
            if len(axes) != len(args):
                raise ValueError(
                    f"pmap of {function_name(self.fun)} has {len(axes)} entries in in_axes={axes} for {len(args)} arguments; "
                    f"give one an argument ({current_source().short})"
                )
            axes = tuple(a for n, a in enumerate(axes) if n not in self.static)
        given = prefix(axes, free, "in_axes", "pmap") + [0] * len(tree.leaves(kwargs))
        found = []
        for number, (axis, value) in enumerate(zip(given, values)):
            rank = type_of(value).ndim
            if axis is not None and not -rank <= axis < rank:
                raise ValueError(
                    f"pmap of {function_name(self.fun)} maps axis {axis} of argument {path(number, self.fun, (free, kwargs))}, "
                    f"which is {type_of(value)}; give it None in in_axes, or another dimension ({current_source().short})"
                )
            found.append(None if axis is None else axis % rank)
        return found

    def _size(self, values: Any, dims: Any, arguments: Any, axis_size: int | None) -> int:
        sizes = {n: type_of(v).shape[d] for n, (v, d) in enumerate(zip(values, dims)) if d is not None}
        found = set(sizes.values()) | ({axis_size} if axis_size is not None else set())
        if len(found) != 1:
            words = "; ".join(f"{s} along axis {dims[n]} of {path(n, self.fun, arguments)}" for n, s in sizes.items())
            raise ValueError(
                f"pmap of {function_name(self.fun)} needs one size along the mapped axes, got {words or 'none'}"
                f"{'' if axis_size is None else f', and axis_size={axis_size}'} ({current_source().short})"
            )
        return int(found.pop())

    def _bound(self, layout: Layout, structure: Any, values: Any, specs: Any, dims: Any, fixed: Any) -> tuple[Any, Any]:
        avals = [layout.local(type_of(v), s) for v, s in zip(values, specs)]

        def one(*leaves: Any) -> Any:
            parts = [v if d is None else squeeze(v, (d,)) for v, d in zip(leaves, dims)]
            free, named = tree.unflatten(structure, parts)
            merged = list(free)
            for position, value in fixed:
                merged.insert(position, value)
            result = self.fun(*merged, **named)
            outs, out_tree = tree.flatten(result)
            outs = leaf_values(outs, f"the result of {function_name(self.fun)}")
            wanted = prefix(self.out_axes, tree.unflatten(out_tree, outs), "out_axes", "pmap")
            return tree.unflatten(out_tree, [o if w is None else expand_dims(o, (w,)) for o, w in zip(outs, wanted)])

        convert = lambda leaves, result: leaf_values(leaves, "pmap")
        setting = (layout, tuple(dims), repr(self.out_axes), tuple((n, type(v), v) for n, v in fixed), structure)
        try:
            hash(setting)
        except TypeError:
            raise ValueError(
                f"Non-hashable static arguments are not supported: a static argument of {function_name(self.fun)} cannot be hashed; static arguments are compared from call to "
                f"call: pass a tuple or another hashable value ({current_source().short})"
            ) from None
        flat = tree.structure(tuple(range(len(values))))
        with layout.mesh, layout.scope():
            body = staged_body(one, flat, avals, convert, self.fun, "pmap", setting)
        wanted = prefix(self.out_axes, tree.unflatten(body.structure, body.out_avals), "out_axes", "pmap")
        put = tuple(_spec(a.ndim, None if w is None else w % a.ndim, self.name) for a, w in zip(body.out_avals, wanted))
        outs = shard_map_p.bind(
            *body.consts,
            *values,
            jaxpr=body.graph,
            in_specs=(*(whole(type_of(c).ndim) for c in body.consts), *specs),
            out_specs=put,
            **layout._asdict(),
        )
        dims = [next((d for d, axes in enumerate(s) if axes), None) for s in put]
        written = [PartitionSpec() if d is None else PartitionSpec(*[None] * d, self.name) for d in dims]
        own = layout.mesh.local_mesh if isinstance(layout.mesh, MeshOfBlocks) else layout.mesh
        return [relabelled(o, NamedSharding(own, s)) for o, s in zip(outs, written)], body.structure


def _spec(rank: int, dim: int | None, name: Any) -> Spec:
    return tuple((name,) if d == dim else () for d in range(rank))
