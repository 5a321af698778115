"""Elementwise neighbours of kernels over blocks become part of them, where index maps allow.

What follows a result, element by element, until one value is left of it, is computed of each block before it is stored (the
epilogue). What makes an operand is computed of each block as it is loaded (the prologue), where each element is loaded by one
program: else every program that loads it would compute it again.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from fuser.ir.graph import Eqn, Graph, Literal, Operand, Var
from fuser.ir.primitive import Fusion
from fuser.ir.types import ArrayType
from fuser.ops.block_kernel import BlockKernel, Dimension, block_kernel_p
from fuser.ops.movement import broadcast_in_dim_p
from fuser.passes.dce import drop_dead
from fuser.trace.replay import replay
from fuser.trace.stage import stage

MOST_JOINED, MOST_TRIED = 32, 4  # equations, and regions that a backend is asked about
Supports = Callable[[Eqn], str | None]


def with_elementwise_neighbours(graph: Graph, supports: Supports) -> Graph:
    """The graph with fewer equations around its kernels over blocks, each of which a backend `supports` still."""
    if not any(eqn.primitive is block_kernel_p for eqn in graph.eqns):
        return graph
    return _Joining(graph, supports).run()


class _Part(NamedTuple):
    """What is read for an operand of an elementwise equation, and along which dimension of the result each of its own lies."""

    operand: Var
    dimensions: tuple[int, ...] = ()


class _Joining:
    """A graph's equations, by position, None for those that joined a kernel; and who reads each value."""

    def __init__(self, graph: Graph, supports: Supports) -> None:
        self.graph, self.supports = graph, supports
        self.eqns: list[Eqn | None] = list(graph.eqns)
        self.made_at = {v: n for n, eqn in enumerate(graph.eqns) for v in eqn.outvars}
        self.outputs = {v for v in graph.outvars if isinstance(v, Var)}
        self.readers: dict[Var, set[int]] = {}
        for n, eqn in enumerate(graph.eqns):
            for v in eqn.operands():
                self.readers.setdefault(v, set()).add(n)

    def run(self) -> Graph:
        for n in range(len(self.eqns)):
            eqn = self.eqns[n]
            if eqn is not None and eqn.primitive is block_kernel_p:
                self._with_prologues(n, eqn)
                self._with_epilogue(n)
        return drop_dead(replace(self.graph, eqns=tuple(eqn for eqn in self.eqns if eqn is not None)))

    def _joins(self, n: int, shape: tuple[int, ...]) -> bool:
        eqn = self.eqns[n]
        if eqn is None or eqn.primitive.fusion is not Fusion.ELEMENTWISE or len(eqn.outvars) != 1:
            return False
        return eqn.outvars[0].aval.shape == shape and bool(shape)

    def _replace(self, joined: Sequence[int], call: int, place: int, made: Eqn) -> None:
        """The kernel at `call` has taken in the equations `joined`, and stands at `place` from now on."""
        for n in (*joined, call):
            for v in self.eqns[n].operands():  # type: ignore[union-attr]
                self.readers[v].discard(n)
            self.eqns[n] = None
        self.eqns[place] = made
        for v in made.operands():
            self.readers.setdefault(v, set()).add(place)
        self.made_at.update(dict.fromkeys(made.outvars, place))

    # What follows.

    def _with_epilogue(self, n: int) -> None:
        """One result of the kernel at `n` is followed; it then stands further behind, where its turn comes again."""
        call = self.eqns[n]
        assert call is not None
        for result, var in enumerate(call.outvars):
            others = {v for v in call.outvars if v is not var}
            for region, out in self._regions(var)[:MOST_TRIED]:
                if any(m <= region[-1] for v in others for m in self.readers.get(v, ())):
                    continue  # they would read before the kernel runs
                eqns = [self.eqns[m] for m in region]
                made = _followed(call, eqns, result, out, self._part)  # type: ignore[arg-type]
                if self.supports(made) is None:
                    self._replace(region, n, region[-1], made)
                    return

    def _regions(self, var: Var) -> list[tuple[list[int], Var]]:
        """Equations that follow a value, all its readers among them, and the one value that is left of it; the longest first."""
        found: list[tuple[list[int], Var]] = []
        if var in self.outputs:
            return found
        shape, chosen, live = var.aval.shape, list[int](), {var}
        ahead = sorted(self.readers.get(var, ()))
        heapq.heapify(ahead)
        while ahead and len(chosen) < MOST_JOINED:
            n = heapq.heappop(ahead)
            if n in chosen or not self._joins(n, shape):
                continue
            chosen.append(n)
            (out,) = self.eqns[n].outvars  # type: ignore[union-attr]
            live.add(out)
            for reader in self.readers.get(out, ()):
                heapq.heappush(ahead, reader)
            left = [v for v in live if v in self.outputs or not self.readers.get(v, set()) <= set(chosen)]
            if left == [out] or (len(left) == 1 and left[0] is not var):
                found.append((list(chosen), left[0]))
        return found[::-1]

    # What comes before.

    def _with_prologues(self, n: int, call: Eqn) -> None:
        position = 0
        while position < len(call.invars) - call.params["kernel"].extra:
            operand = call.invars[position]
            region = self._before(operand, n) if call.invars.count(operand) == 1 else []
            step = 1
            if region and _loaded_once(call.params["kernel"], position, operand.aval):
                made = _preceded(call, [self.eqns[m] for m in region], position, self._part)  # type: ignore[misc]
                if self.supports(made) is None:
                    step += len(made.invars) - len(call.invars)
                    self._replace(region, n, n, made)
                    call = made
            position += step

    def _before(self, operand: Operand, reader: int) -> list[int]:
        """The equations that make an operand and are read by nothing else, in order."""
        if not isinstance(operand, Var) or operand in self.outputs or operand not in self.made_at:
            return []
        region, shape = set[int](), operand.aval.shape
        behind = [-self.made_at[operand]]
        while behind and len(region) < MOST_JOINED:
            n = -heapq.heappop(behind)
            if n in region or not self._joins(n, shape):
                continue
            (out,) = self.eqns[n].outvars  # type: ignore[union-attr]
            if out in self.outputs or not self.readers[out] <= region | {reader}:
                continue
            region.add(n)
            for v in self.eqns[n].operands():  # type: ignore[union-attr]
                if v in self.made_at:
                    heapq.heappush(behind, -self.made_at[v])
        return sorted(region)

    def _part(self, operand: Var, shape: Sequence[int]) -> _Part:
        """An operand as a part of a kernel: what is broadcast is read where it comes from."""
        if not operand.aval.shape:
            return _Part(operand)
        made = self.eqns[self.made_at[operand]] if operand in self.made_at else None
        if made is not None and made.primitive is broadcast_in_dim_p and isinstance(made.invars[0], Var):
            source, along = made.invars[0], tuple(made.params["broadcast_dimensions"])
            if all(shape[d] == extent for d, extent in zip(along, source.aval.shape)):
                return _Part(source, along)
        return _Part(operand, tuple(range(len(shape))))


def _loaded_once(kernel: BlockKernel, position: int, aval: Any) -> bool:
    """Whether each element of an operand is in the block of one program, and all of each block in the array."""
    blocks, index_map = kernel.blocks[position], kernel.index_maps[position]
    moving = {v for v in index_map.outvars if isinstance(v, Var)}
    each = all(v in moving for v, extent in zip(index_map.invars, kernel.grid) if extent > 1)
    plain = moving <= set(index_map.invars) and not index_map.eqns
    whole = all(d.unit == d.size and extent % d.size == 0 for d, extent in zip(blocks, aval.shape))
    return each and plain and whole and all(operand != position for operand, _ in kernel.aliases)


def _seen(blocks: Sequence[Dimension]) -> tuple[int, ...]:
    return tuple(d.size for d in blocks if not d.squeezed)


class _Region:
    """Elementwise equations as a function of blocks, or of whole arrays: of the value `given`, if any, and of `parts`."""

    def __init__(self, eqns: Sequence[Eqn], given: Var | None, out: Var, part: Callable[[Var, Any], _Part]) -> None:
        self.eqns, self.given, self.out = eqns, given, out
        inner = {v for eqn in eqns for v in eqn.outvars}
        outer = dict.fromkeys(v for eqn in eqns for v in eqn.operands() if v not in inner and v is not given)
        self.parts = {v: part(v, out.aval.shape) for v in outer}

    def operands(self) -> list[Var]:
        return [part.operand for part in self.parts.values()]

    def specs(self, kernel: BlockKernel, position: int) -> tuple[list[Graph], list[tuple[Dimension, ...]]]:
        """Index maps and blocks of the operands, which lie along array `position` of the kernel."""
        index_map, blocks = kernel.index_maps[position], kernel.blocks[position]
        maps = [
            replace(index_map, outvars=tuple(index_map.outvars[d] for d in p.dimensions)) for p in self.parts.values()
        ]
        return maps, [tuple(blocks[d] for d in p.dimensions) for p in self.parts.values()]

    def types(self, blocks: Sequence[Sequence[Dimension]]) -> list[ArrayType]:
        return [ArrayType(_seen(b), v.aval.dtype) for v, b in zip(self.operands(), blocks)]

    def of_blocks(self, values: Sequence[Any], given: Any, blocks: Sequence[Dimension]) -> Any:
        """The value of a block, from those of the operands' blocks."""
        places = [n for n, b in enumerate(blocks) if not b.squeezed]
        known = {} if self.given is None else {self.given: given}
        for (var, part), value in zip(self.parts.items(), values):
            along = tuple(places.index(d) for d in part.dimensions if d in places)
            if tuple(value.shape) != _seen(blocks):
                value = broadcast_in_dim_p.bind(value, shape=_seen(blocks), broadcast_dimensions=along)
            known[var] = value
        for eqn in self.eqns:
            operands = [v.val if isinstance(v, Literal) else known[v] for v in eqn.invars]
            known[eqn.outvars[0]] = eqn.primitive.bind(*operands, **eqn.params)
        return known[self.out]

    def of_arrays(self, values: Sequence[Any], given: Any = None) -> np.ndarray:
        """The same of whole arrays, in NumPy."""
        known = {} if self.given is None else {self.given: given}
        spread = broadcast_in_dim_p.rule("eval")
        for (var, part), value in zip(self.parts.items(), values):
            known[var] = spread(value, shape=self.out.aval.shape, broadcast_dimensions=part.dimensions)
        for eqn in self.eqns:
            operands = [v.val if isinstance(v, Literal) else known[v] for v in eqn.invars]
            known[eqn.outvars[0]] = eqn.primitive.rule("eval")(*operands, **eqn.params)
        return np.asarray(known[self.out])


def _followed(call: Eqn, eqns: Sequence[Eqn], result: int, out: Var, part: Callable[[Var, Any], _Part]) -> Eqn:
    """The kernel with equations on one of its results, of which `out` is left."""
    kernel: BlockKernel = call.params["kernel"]
    inputs, region = len(call.invars), _Region(eqns, call.outvars[result], out, part)
    maps, blocks = region.specs(kernel, inputs + result)
    before = kernel.epilogue
    types = zip(kernel.blocks[inputs:], call.params["out_avals"])
    held = before.in_avals if before else [ArrayType(_seen(b), a.dtype) for b, a in types]

    def epilogue(*values: Any) -> list[Any]:
        own, more = values[: len(held)], values[len(held) :]
        found = list(replay(before, *own)) if before else list(own)
        found[result] = region.of_blocks(more, found[result], kernel.blocks[inputs + result])
        return found

    def interpret(arrays: Sequence[Any]) -> list[np.ndarray]:
        found = list(kernel.interpret(arrays[:inputs]))
        found[result] = region.of_arrays(arrays[inputs:], found[result])
        return found

    made = replace(
        kernel,
        index_maps=(*kernel.index_maps[:inputs], *maps, *kernel.index_maps[inputs:]),
        blocks=(*kernel.blocks[:inputs], *blocks, *kernel.blocks[inputs:]),
        epilogue=stage(epilogue, [*held, *region.types(blocks)], "epilogue"),
        extra=kernel.extra + len(blocks),
        interpret=interpret,
    )
    outvars = tuple(out if n == result else v for n, v in enumerate(call.outvars))
    params = {"kernel": made, "out_avals": tuple(v.aval for v in outvars)}
    return replace(call, invars=(*call.invars, *region.operands()), outvars=outvars, params=params)


def _preceded(call: Eqn, eqns: Sequence[Eqn], position: int, part: Callable[[Var, Any], _Part]) -> Eqn:
    """The kernel with the equations that give operand `position`, whose own operands take its place."""
    kernel: BlockKernel = call.params["kernel"]
    region = _Region(eqns, None, call.invars[position], part)  # type: ignore[arg-type]
    maps, blocks = region.specs(kernel, position)
    count, avals = len(blocks), kernel.body.in_avals
    first = len(kernel.grid) - kernel.vmapped + position

    def body(*values: Any) -> list[Any]:
        one = region.of_blocks(values[first : first + count], None, kernel.blocks[position])
        return replay(kernel.body, *values[:first], one, *values[first + count :])

    def interpret(arrays: Sequence[Any]) -> list[np.ndarray]:
        one = region.of_arrays(arrays[position : position + count])
        return list(kernel.interpret([*arrays[:position], one, *arrays[position + count :]]))

    made = replace(
        kernel,
        body=stage(body, [*avals[:first], *region.types(blocks), *avals[first + 1 :]], kernel.body.name),
        index_maps=(*kernel.index_maps[:position], *maps, *kernel.index_maps[position + 1 :]),
        blocks=(*kernel.blocks[:position], *blocks, *kernel.blocks[position + 1 :]),
        aliases=tuple((o + count - 1 if o > position else o, r) for o, r in kernel.aliases),
        interpret=interpret,
    )
    invars = (*call.invars[:position], *region.operands(), *call.invars[position + 1 :])
    return replace(call, invars=invars, params={**call.params, "kernel": made})
