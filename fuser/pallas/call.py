"""`pallas_call`: a Python kernel, its grid and its blocks in; a function on arrays out.

The kernel runs once, on Refs, and becomes a graph; so do the index maps. Both know nothing from outside but what they are given.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser import dtypes
from fuser.api.jitted import jit
from fuser.ir.graph import Graph
from fuser.ir.names import function_name
from fuser.ir.references import AbstractRef
from fuser.ir.types import ArrayType
from fuser.lax.values import as_value
from fuser.pallas import grids
from fuser.pallas.primitives import Interpreted, pallas_call_p, pallas_interpret_p, seen
from fuser.pallas.specs import (
    BlockSpec,
    Extent,
    GridSpec,
    InterpretParams,
    extents,
    grid_of,
    launch_asked,
    no_block_spec,
    parallel_axes,
)
from fuser.trace import tree
from fuser.trace.core import type_of
from fuser.trace.stage import stage

_INT32 = ArrayType((), np.dtype(np.int32))


def pallas_call(
    kernel: Callable[..., Any],
    out_shape: Any,
    *,
    grid_spec: GridSpec | None = None,
    grid: int | Sequence[int] = (),
    in_specs: Any = no_block_spec,
    out_specs: Any = no_block_spec,
    scratch_shapes: Any = (),
    input_output_aliases: Mapping[int, int] | None = None,
    debug: bool = False,
    interpret: Any = False,
    name: str | None = None,
    compiler_params: Any = None,
    cost_estimate: Any = None,
    metadata: Any = None,
) -> Callable[..., Any]:
    """A function on arrays that runs `kernel(*input refs, *output refs, *scratch refs)` for each program of the grid, in order.

    `out_shape` is a tree of descriptions with `shape` and `dtype`. `in_specs` and `out_specs` are trees of BlockSpecs like the
    arguments and `out_shape`; without them Refs are to whole arrays. `input_output_aliases` maps the number of an argument's leaf
    to that of an output, which begins with what the argument holds. With `interpret` the kernel runs on NumPy and every access is
    checked (InterpretParams says how); it may be differentiated and mapped as it is, in any case. `cost_estimate` is taken and
    not needed: the cost model reads the kernel.
    ValueError where specs and arrays do not match, where the kernel returns something or captures arrays.
    """
    if grid_spec is not None:
        grid, in_specs, out_specs = grid_spec.grid, grid_spec.in_specs, grid_spec.out_specs
        scratch_shapes = grid_spec.scratch_shapes
    if in_specs is not no_block_spec and not isinstance(in_specs, (tuple, list)):
        raise ValueError(f"`in_specs` must be a tuple or a list. Found: {in_specs}")
    extent, names = grid_of(grid)
    asked = launch_asked(compiler_params or {})
    out_leaves, out_tree = tree.flatten(out_shape)
    outputs = [described(leaf) for leaf in out_leaves]
    title = name or function_name(kernel)
    plan = _Plan(kernel, title, extent, names, in_specs, out_specs, out_shape, outputs, scratch_shapes)
    aliases = tuple(sorted((input_output_aliases or {}).items()))

    def call(*args: Any) -> Any:
        leaves, structure = tree.flatten(args)
        values = [as_value(leaf, title) for leaf in leaves]
        params = plan.params([type_of(v) for v in values], args, structure, aliases)
        parallel = parallel_axes(compiler_params or {}, extent)
        if interpret:
            if isinstance(interpret, InterpretParams) and interpret.detect_races:
                parallel = tuple(range(len(extent)))
            results = pallas_interpret_p.bind(
                *values, kernel=Interpreted(params), out_avals=tuple(outputs), parallel=parallel
            )
        else:
            if asked:
                params["asked"] = asked
            results = pallas_call_p.bind(*values, **params, out_avals=tuple(outputs), parallel=parallel)
        return tree.unflatten(out_tree, results)

    call.__name__ = call.__qualname__ = title
    call.kernel = kernel  # type: ignore[attr-defined]  # whose compilations are counted
    return jit(call)


def described(leaf: Any) -> ArrayType:
    """The type that an entry of `out_shape` means."""
    if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
        raise TypeError(f"out_shape has descriptions with `shape` and `dtype`, got a {type(leaf).__name__}")
    return ArrayType(tuple(leaf.shape), dtypes.canonical(np.dtype(leaf.dtype)))


@dataclass(frozen=True)
class _Plan:
    """What a call is told once, and makes params of for the arguments' types."""

    kernel: Callable[..., Any]
    name: str
    grid: tuple[int, ...]
    names: tuple[Any, ...]
    in_specs: Any
    out_specs: Any
    out_shape: Any
    outputs: list[ArrayType]
    scratch_shapes: Any

    def params(self, avals: list[ArrayType], args: Any, structure: Any, aliases: tuple[tuple[int, int], ...]) -> Any:
        """The params of `pallas_call` but for its results' types."""
        ins = self._specs(self.in_specs, args, "in_specs", "inputs")
        outs = self._specs(self.out_specs, self.out_shape, "out_specs", "out_shape")
        origins = [f"args{path}" for path in tree.paths(args)] + [
            f"outputs{path}" for path in tree.paths(self.out_shape)
        ]
        types = [*avals, *self.outputs]
        self._check_aliases(aliases, avals)
        blocks = [extents(spec.block_shape, a.shape, o) for spec, a, o in zip((*ins, *outs), types, origins)]
        maps = [self._index_map(spec, b, o) for spec, b, o in zip((*ins, *outs), blocks, origins)]
        spaces = [spec.memory_space for spec in (*ins, *outs)]
        refs = [
            AbstractRef(ArrayType(seen(b), a.dtype), None if s is None else str(s))
            for b, a, s in zip(blocks, types, spaces)
        ]
        return {
            "jaxpr": self._body(refs[: len(avals)], structure, refs[len(avals) :]),
            "index_maps": tuple(maps),
            "blocks": tuple(blocks),
            "grid": self.grid,
            "vmapped": 0,
            "aliases": aliases,
            "name": self.name,
        }

    def _specs(self, specs: Any, values: Any, what: str, of_what: str) -> list[BlockSpec]:
        """One BlockSpec for each leaf of the values."""
        if specs is no_block_spec:
            return [BlockSpec() for _ in tree.leaves(values)]
        specs = tuple(specs) if isinstance(specs, list) else specs
        values = tuple(values) if isinstance(values, list) else values
        found: list[BlockSpec] = []
        wrong: list[str] = []
        _matched(specs, values, "", (what, of_what), found, wrong)
        if wrong:
            raise ValueError(
                f"Pytree for `{what}` and `{of_what}` do not match. There are {len(wrong)} mismatches, including:\n"
                + "\n".join(f"    * {w}" for w in wrong)
            )
        return found

    def _check_aliases(self, aliases: tuple[tuple[int, int], ...], avals: list[ArrayType]) -> None:
        for i, o in aliases:
            if not 0 <= i < len(avals) or not 0 <= o < len(self.outputs):
                raise ValueError(
                    f"input_output_aliases has {i}: {o}, and there are {len(avals)} inputs and {len(self.outputs)} outputs"
                )
            if (avals[i].shape, avals[i].dtype) != (self.outputs[o].shape, self.outputs[o].dtype):
                raise ValueError(
                    f"input_output_aliases has {i}: {o}, an input of type {avals[i]} and an output of type {self.outputs[o]}; "
                    "they must be the same"
                )

    def _index_map(self, spec: BlockSpec, block: tuple[Extent, ...], origin: str) -> Graph:
        """The index map as a graph of the program ids."""
        function = spec.index_map
        name = "default" if function is None else _placed(function)

        def numbers(*ids: Any) -> list[Any]:
            if function is None:
                return [np.int32(0)] * len(block)
            found = function(*ids)
            found = tuple(found) if isinstance(found, (tuple, list)) else (found,)
            if len(found) != len(block):
                raise ValueError(
                    f"Index map function {name} for {origin} must return {len(block)} values to match "
                    f"block_shape={tuple(e.size for e in block)}. Currently returning {len(found)} values."
                )
            return [_number(f, n, name, origin) for n, f in enumerate(found)]

        graph = stage(numbers, [_INT32] * len(self.grid), "index_map")
        if graph.consts:
            raise ValueError(
                f"Index map function {name} for {origin} must not capture constants: {[type_of(c) for c in graph.consts]}"
            )
        return graph

    def _body(self, ins: list[AbstractRef], structure: Any, outs: list[AbstractRef]) -> Graph:
        """The kernel as a graph of the program ids and its Refs."""
        out_tree = tree.structure(self.out_shape)
        scratch, scratch_tree = tree.flatten(self.scratch_shapes)
        kinds = [AbstractRef(s.aval, None if s.memory_space is None else str(s.memory_space)) for s in scratch]
        rank = len(self.grid)

        def body(*inputs: Any) -> list[Any]:
            ids, refs = inputs[:rank], inputs[rank:]
            given = tree.unflatten(structure, refs[: len(ins)])
            made = tree.unflatten(out_tree, refs[len(ins) : len(ins) + len(outs)])
            held = tree.unflatten(scratch_tree, refs[len(ins) + len(outs) :])
            more, named = (
                ((), held) if isinstance(held, dict) else ((held if isinstance(held, (tuple, list)) else (held,)), {})
            )
            several = made if isinstance(made, (tuple, list)) else (made,)
            with grids.inside(ids, self.grid, self.names):
                result = self.kernel(*given, *several, *more, **named)
            if result is not None:
                raise ValueError(
                    f"The kernel function in the pallas_call {_placed(self.kernel)} should return None. "
                    f"It returns a PyTree: {tree.structure(result)}."
                )
            return []

        graph = stage(body, [*[_INT32] * rank, *ins, *outs, *kinds], self.name)  # type: ignore[list-item]
        if graph.consts:
            raise ValueError(
                f"The kernel function in the pallas_call {_placed(self.kernel)} captures constants "
                f"{[str(type_of(c)) for c in graph.consts]}. You should pass them as inputs."
            )
        return graph


def _matched(
    specs: Any, values: Any, path: str, words: tuple[str, str], found: list[BlockSpec], wrong: list[str]
) -> None:
    """Adds the spec of each leaf of the values, and what does not match."""
    where = f"at {path}, " if path else ""
    inner, structure = _level(values)
    if specs is None or specs is no_block_spec or isinstance(specs, BlockSpec):
        spec = specs if isinstance(specs, BlockSpec) else BlockSpec()
        if inner is None:
            found.append(spec)
        elif isinstance(specs, BlockSpec):
            wrong.append(f"{where}`{words[0]}` is a pytree leaf but `{words[1]}` is a {_kind(values)}")
        else:
            found.extend([spec] * len(tree.leaves(values)))
        return
    of_specs, own = _level(specs)
    if inner is None or of_specs is None or structure != own:
        wrong.append(f"{where}`{words[0]}` is a {_kind(specs)} but `{words[1]}` is a {_kind(values)}")
        return
    for key, (spec, value) in enumerate(zip(of_specs, inner)):
        name = sorted(values)[key] if isinstance(values, dict) else key
        _matched(spec, value, f"{path}[{name!r}]", words, found, wrong)


def _level(value: Any) -> tuple[list[Any] | None, Any]:
    """The children of a tree's root and its structure; None for a leaf."""
    children, structure = tree.flatten(value, is_leaf=lambda x: x is not value)
    return (None if structure.is_leaf() else children), structure


def _kind(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return f"tuple of length {len(value)}"
    return f"dict with keys {sorted(value)}" if isinstance(value, dict) else "pytree leaf"


def _number(value: Any, place: int, name: str, origin: str) -> Any:
    """What an index map returns for one dimension, as an int32."""
    aval = type_of(as_value(value, name))
    if aval.shape or aval.dtype.kind not in "iu":
        raise ValueError(
            f"Index map function {name} for {origin} must return integer scalars. Output[{place}] has type {aval.str_long()}."
        )
    if isinstance(value, (int, np.integer)):
        return np.int32(value)
    from fuser.lax.elementwise import convert_element_type

    return value if aval.dtype == np.int32 and not aval.weak_type else convert_element_type(value, np.int32)


def _placed(function: Any) -> str:
    """The function's name, file and line, as far as they are known."""
    inner = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    try:
        file, line = inspect.getsourcefile(inner), inspect.getsourcelines(inner)[1]
    except (TypeError, OSError):
        return function_name(function)
    return f"{function_name(function)} at {file}:{line}"
