"""Kernels over grids of blocks, written by hand in fuser.pallas, as one `@triton.jit` function each: a program of the grid is a
program here, dimensions of the grid that run in order are loops within it.

Inputs are memory until a value of theirs is needed: slices are addresses. Results and scratch buffers are tensors in registers,
carried through the loops. What has no form here is `Refused` with its reason, before anything is generated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from fuser.backends.triton import spell
from fuser.backends.triton.blocks.operations import MOST_DOT_BYTES, VIEWS, Operations, Scope
from fuser.backends.triton.blocks.values import (
    MOST_ELEMENTS,
    Along,
    Held,
    Memory,
    Product,
    Refused,
    Value,
    always,
    integer,
    plain,
    shape_text,
    summed,
    times,
)
from fuser.backends.triton.emitter import Launch
from fuser.ir.graph import Eqn, Graph, Literal, Var
from fuser.ir.primitive import Control
from fuser.ir.types import BOOL, FLOATS, KEY, ArrayType
from fuser.ops.block_kernel import BlockKernel
from fuser.ops.dot import dot_general_p
from fuser.ops.elementwise import add_p, lt_p
from fuser.ops.jit import jit_p
from fuser.passes.inline import inline_calls


@dataclass
class Emitted:
    """The text of the function's body, its launch, and scratch arrays for results that nobody reads."""

    text: str
    launch: Launch


def write(kernel: BlockKernel, operands: Sequence[ArrayType], results: Sequence[ArrayType]) -> Emitted:
    """The function `kernel.name(*inputs, *results)`. Refused with the reason where it has none."""
    return Writer(kernel, operands, results).write()


class Writer(Operations):
    def __init__(self, kernel: BlockKernel, operands: Sequence[ArrayType], results: Sequence[ArrayType]) -> None:
        self.kernel, self.operands, self.results = kernel, operands, results
        self.params = [f"in{n}" for n in range(len(operands))] + [f"out{n}" for n in range(len(results))]
        super().__init__()
        self.ids: list[str] = []

    # The grid.

    def write(self) -> Emitted:
        """The function."""
        kernel, grid = self.kernel, self.kernel.grid
        for aval in (*self.operands, *self.results):
            if aval.dtype not in spell.TYPES or aval.dtype in (BOOL, KEY):
                raise Refused(f"arrays of {aval.dtype} have no form in a Triton kernel by hand")
        ordered = [a for a, extent in enumerate(grid) if extent > 1 and a not in kernel.parallel]
        if len(ordered) > 1:
            raise Refused("several dimensions of the grid run in order")
        across = [a for a in kernel.parallel if grid[a] > 1]
        self.ids = ["0"] * len(grid)
        self.line("program = tl.program_id(0)")
        for number, axis in enumerate(reversed(across)):
            self.ids[axis] = f"i{axis}"
            last = number == len(across) - 1
            self.line(f"i{axis} = program" + ("" if last else f" % {grid[axis]}"))
            if not last:
                self.line(f"program = program // {grid[axis]}")
        body = inline_calls(kernel.body)
        if not set(range(len(self.results))) <= set(kernel.written):
            raise Refused("a result is not written")
        self._check_results()
        if ordered:
            self._in_order(body, ordered[0])
        else:
            held = self._run(body, self._inputs(self._started()))
            self._store(held)
        programs = math.prod(grid[a] for a in across)
        warps = 8 if self.largest >= MOST_ELEMENTS // 2 else 4
        stages = 3 if self.staged and 3 * self.staged <= MOST_DOT_BYTES else 2
        asked = dict(kernel.asked)
        warps, stages = asked.get("num_warps", warps), asked.get("num_stages", stages)
        head = f"@triton.jit\ndef {kernel.name}({', '.join(self.params)}):"
        launch = Launch(kernel.name, tuple(range(len(self.params))), (), {}, programs, warps, stages)
        return Emitted("\n".join([head, *self.lines]), launch)

    def _check_results(self) -> None:
        """Every element of a result is written by one program, or by programs in order."""
        first = len(self.operands)
        for n, aval in enumerate(self.results):
            index_map, block = self.kernel.index_maps[first + n], self.kernel.blocks[first + n]
            for d, (number, along) in enumerate(zip(index_map.outvars, block)):
                if along.unit != along.size:
                    raise Refused("blocks of a result overlap")
                if isinstance(number, Literal):
                    whole = int(number.val) == 0 and along.size >= aval.shape[d]
                else:
                    axes = [a for a, v in enumerate(index_map.invars) if v is number]
                    whole = bool(axes) and self.kernel.grid[axes[0]] * along.size >= aval.shape[d]
                if not whole:
                    raise Refused("the blocks of a result are not all of it, one a program")
            moving = {a for a, v in enumerate(index_map.invars) if v in index_map.outvars and self.kernel.grid[a] > 1}
            if missing := [a for a in self.kernel.parallel if self.kernel.grid[a] > 1 and a not in moving]:
                raise Refused(f"programs along dimension {missing[0]} of the grid write the same block")

    def _in_order(self, body: Graph, axis: int) -> None:
        """The programs along one dimension, one after the other."""
        if axis < self.kernel.vmapped:
            raise Refused("programs of a mapped kernel run in order")
        held = self._started()
        moving = [n for n in range(len(self.results)) if self._moves(n, axis)]
        self.ids[axis] = f"i{axis}"
        self.counters.add(f"i{axis}")
        head = f"for i{axis} in range(0, {self.kernel.grid[axis]}):"
        self._loop(head, held, self._changed(body, moving), partial(self._step, body, moving))
        self._store(held, [n for n in range(len(self.results)) if n not in moving])

    def _moves(self, result: int, axis: int) -> bool:
        """Whether a result's block is another one in each program along the dimension."""
        index_map = self.kernel.index_maps[len(self.operands) + result]
        return index_map.invars[axis] in index_map.outvars

    def _changed(self, part: Graph, moving: Sequence[int]) -> list[int]:
        """The results and scratch buffers that a part of the loop changes and carries."""
        first = len(part.invars) - self._carried_count()
        found = []
        for position, value in zip(self.kernel.written, part.outvars):
            if value is not part.invars[first + position] and position not in moving:
                found.append(position)
        return found

    def _carried_count(self) -> int:
        return len(self.kernel.body.invars) - (len(self.kernel.grid) - self.kernel.vmapped) - self._taken()

    def _taken(self) -> int:
        """How many operands the body takes: those behind them are the epilogue's."""
        return len(self.operands) - self.kernel.extra

    def _step(self, part: Graph, moving: Sequence[int], held: dict[int, Callable[[], Held]]) -> dict[int, Any]:
        found = self._after(part, held)
        self._store(found, moving)
        return found

    def _loop(
        self,
        head: str,
        held: dict[int, Callable[[], Held]],
        positions: Sequence[int],
        step: Callable[..., dict[int, Any]],
    ) -> None:
        """A loop that carries some of what is held."""
        names = {}
        for position in positions:
            value = self.value(held[position]())
            names[position] = self._named(
                value, f"{'scratch' if position >= len(self.results) else 'result'}{position}"
            )
            held[position] = always(names[position])
        self.open(head)
        found = step(dict(held))
        self._assign(list(names.values()), [self.value(found[p]()) for p in positions])
        self.close()

    def _started(self) -> dict[int, Callable[[], Held]]:
        """What results and scratch buffers hold at first, written down where it is read."""
        held: dict[int, Callable[[], Held]] = {}
        avals = self.kernel.body.in_avals[-self._carried_count() :] if self._carried_count() else ()
        aliases = {result: operand for operand, result in self.kernel.aliases}
        for position, aval in enumerate(avals):
            if position in aliases:
                held[position] = partial(self._block, aliases[position])
            else:
                held[position] = partial(self.full, aval, "0")
        return held

    def _after(self, part: Graph, held: dict[int, Callable[[], Held]]) -> dict[int, Any]:
        """What is held after a program."""
        found = self._run(part, self._inputs(held), part.invars)
        return {**held, **{p: always(v) for p, v in zip(self.kernel.written, found) if v is not None}}

    def _inputs(self, held: dict[int, Callable[[], Held]]) -> list[Callable[[], Held]]:
        ids = [partial(integer, t) for t in self.ids[self.kernel.vmapped :]]
        blocks = [partial(self._block, n) for n in range(self._taken())]
        return [*ids, *blocks, *(held[p] for p in range(self._carried_count()))]

    def _block(self, number: int) -> Memory:
        """The block that a program sees of input or result `number`."""
        arrays = [*self.operands, *self.results]
        numbers = self._numbers(self.kernel.index_maps[number])
        along = [
            Along(d, times(text, dim.unit), dim.size, not dim.squeezed)
            for d, (text, dim) in enumerate(zip(numbers, self.kernel.blocks[number]))
        ]
        return Memory(
            self.params[number], arrays[number], (*(a for a in along if a.seen), *(a for a in along if not a.seen))
        )

    def _numbers(self, index_map: Graph) -> list[str]:
        given = [partial(integer, t) for t in self.ids]
        return [plain(v.text) for v in map(self.value, self._run(index_map, given))]

    def _store(self, held: Any, numbers: Iterable[int] | None = None) -> None:
        """Write results to memory."""
        values = dict(zip(self.kernel.written, held)) if isinstance(held, list) else held
        chosen = list(range(len(self.results)) if numbers is None else numbers)
        for n, found in zip(chosen, self._ended(values, chosen)):
            block = self._block(len(self.operands) + n)
            pointer, mask = self._address(block)
            dtype, text = block.array.dtype, self._shaped(found, block.aval).text
            narrow = "" if spell.storage(dtype) == spell.local(dtype) else f".to({spell.storage(dtype)})"
            self.line(f"tl.store({pointer}, {text}{narrow}{f', mask={mask}' if mask else ''})")

    def _shaped(self, held: Held, aval: ArrayType) -> Value:
        """A value in the shape of the block that it is stored to."""
        value = self.value(held)
        if value.aval.shape == aval.shape:
            return value
        return Value(f"tl.reshape({value.text}, {shape_text(aval)})", ArrayType(aval.shape, value.aval.dtype))

    def _ended(self, values: dict[int, Any], numbers: Sequence[int]) -> list[Held]:
        """What is stored of some results: what they hold, after the epilogue."""
        held = [values[n] if callable(values[n]) else always(values[n]) for n in range(len(self.results))]
        if self.kernel.epilogue is None:
            return [held[n]() for n in numbers]
        shapes = self.kernel.epilogue.in_avals
        held = [partial(lambda h, aval: self._shaped(h(), aval), h, aval) for h, aval in zip(held, shapes)]
        more = [partial(self._block, n) for n in range(self._taken(), len(self.operands))]
        outvars = self.kernel.epilogue.outvars
        return self._run(replace(self.kernel.epilogue, outvars=tuple(outvars[n] for n in numbers)), [*held, *more])

    # Graphs.

    def _run(self, graph: Graph, inputs: Sequence[Callable[[], Held]], skip: Collection[Var] = ()) -> list[Any]:
        """Write the equations that results need; what the results are, None for those to `skip`."""
        scope = Scope(self, graph, inputs)
        uses = users(graph)
        for eqn in live(graph):
            for var, value in zip(eqn.outvars, self._eqn(eqn, scope, uses)):
                scope.known[var] = value
        return [None if v in skip else scope.get(v) for v in graph.outvars]

    def _eqn(self, eqn: Eqn, scope: Scope, uses: dict[Var, list[Eqn]]) -> list[Held]:
        primitive = eqn.primitive
        if any(math.prod(v.aval.shape) > MOST_ELEMENTS for v in eqn.outvars) and primitive not in VIEWS:
            raise Refused(
                f"{primitive.name} gives {eqn.outvars[0].aval}, more elements than a program holds ({MOST_ELEMENTS})"
            )
        if primitive is jit_p:
            return self._run(eqn.params["jaxpr"], [partial(scope.get, v) for v in eqn.invars])
        if primitive.control is Control.COND:
            return list(self._cond(eqn, scope))
        if primitive.control is Control.SCAN:
            return list(self._scan(eqn, scope))
        if primitive.control is Control.WHILE:
            return list(self._while(eqn, scope))
        source = scope.get(eqn.invars[0]) if primitive in VIEWS else None
        if isinstance(source, Memory) and (view := self._view(eqn, source, scope)) is not None:
            return [view]
        if primitive is dot_general_p and addition(eqn, uses) is not None:
            return [Product("", eqn.outvars[0].aval, self._sides(eqn, scope))]
        if primitive is add_p:
            sides = [scope.get(v) for v in eqn.invars]
            for n, side in enumerate(sides):
                if isinstance(side, Product):
                    return [self._product(side, self.value(sides[1 - n]))]
        return [self.computed(eqn, scope)]

    # Control flow.

    def _cond(self, eqn: Eqn, scope: Scope) -> Sequence[Held]:
        index, *operands = eqn.invars
        which, branches = scope.value(index).text, eqn.params["branches"]
        names = [self.new("chosen") for _ in eqn.outvars]
        given = [scope.get(v) for v in operands]
        for number, branch in enumerate(branches):
            test = "" if number == len(branches) - 1 else f"{which} <= {number}"
            self.open(f"{'if' if number == 0 else 'elif'} {test}:" if test else "else:")
            for name, value in zip(names, self._run(branch, list(map(always, given)))):
                self.line(f"{name} = {self.value(value).text}")
            if not names:
                self.line("pass")
            self.close()
        return [Value(name, var.aval) for name, var in zip(names, eqn.outvars)]

    def _scan(self, eqn: Eqn, scope: Scope) -> Sequence[Held]:
        params, body = eqn.params, eqn.params["jaxpr"]
        consts, carry = params["num_consts"], params["num_carry"]
        if len(eqn.invars) != consts + carry or len(body.outvars) != carry or params["reverse"]:
            raise Refused(f"a scan over rows has no form in a Triton kernel by hand ({eqn.source.short})")
        return self._counted(eqn, body, scope, consts, carry, lambda start: (start, f"{start} + {params['length']}"))

    def _counted(
        self,
        eqn: Eqn,
        body: Graph,
        scope: Scope,
        consts: int,
        carry: int,
        bounds: Callable[[str], tuple[str, str]],
        counter: int | None = None,
    ) -> list[Held]:
        """A loop over a counter, which is among what it carries where one is found there."""
        inputs = body.invars[consts:]
        if counter is None:
            counter = next((n for n in range(carry) if _counts(body, inputs[n], n)), None)
        given = [scope.get(v) for v in eqn.invars[len(eqn.invars) - consts - carry :]]
        first = self.value(given[consts + counter]).text if counter is not None else "0"
        name = self.new("step")
        self.counters.add(name)
        low, high = bounds(plain(first))
        held = self._carried(given[consts:], [v.aval for v in inputs], skip=counter)
        self.open(f"for {name} in range({low}, {summed(high)}):")
        values = [Value(name, inputs[n].aval) if n == counter else held[n] for n in range(carry)]
        self._following(body, [*given[:consts], *values], held, skip=counter)
        self.close()
        end = Value(summed(high), inputs[counter].aval) if counter is not None else None
        return [end if n == counter else held[n] for n in range(carry)]  # type: ignore[misc]

    def _carried(self, given: Sequence[Held], avals: Sequence[ArrayType], skip: int | None) -> list[Value]:
        return [
            Value("", aval) if n == skip else self._named(self.value(value), "carry", aval)
            for n, (value, aval) in enumerate(zip(given, avals))
        ]

    def _following(self, body: Graph, given: Sequence[Held], held: Sequence[Value], skip: int | None) -> None:
        """The body of a loop, and what it carries from then on."""
        found = self._run(body, list(map(always, given)))
        kept = [n for n in range(len(found)) if n != skip]
        self._assign([held[n] for n in kept], [self.value(found[n]) for n in kept])

    def _assign(self, names: Sequence[Value], values: Sequence[Value]) -> None:
        """All at once."""
        own = {name.text for name in names}
        values = [self.name(v.text, v.aval) if v.text in own and v.text != n.text else v for n, v in zip(names, values)]
        for name, value in zip(names, values):
            if name.text != value.text:
                self.line(f"{name.text} = {value.text}")

    def _while(self, eqn: Eqn, scope: Scope) -> Sequence[Held]:
        params = eqn.params
        of_test, of_body = params["cond_nconsts"], params["body_nconsts"]
        test, body = params["cond_jaxpr"], params["body_jaxpr"]
        if test.out_avals[0].shape:
            raise Refused("a loop that runs differently long for each lane")
        carry = len(eqn.invars) - of_test - of_body
        if of_test == 0 and (found := _bounded(test, body, of_body)) is not None:
            counter, bound = found
            high = plain(scope.value(eqn.invars[of_body + bound]).text)
            return self._counted(eqn, body, scope, of_body, carry, lambda start: (start, high), counter)
        given = [scope.get(v) for v in eqn.invars]
        held = self._carried(given[of_test + of_body :], [v.aval for v in body.invars[of_body:]], None)
        going = self.new("going")
        decide = lambda: self.value(self._run(test, list(map(always, (*given[:of_test], *held))))[0]).text
        self.line(f"{going} = {decide()}")
        self.open(f"while {going}:")
        self._following(body, [*given[of_test : of_test + of_body], *held], held, None)
        self.line(f"{going} = {decide()}")
        self.close()
        return held


def users(graph: Graph) -> dict[Var, list[Eqn]]:
    found: dict[Var, list[Eqn]] = {}
    for eqn in graph.eqns:
        for var in eqn.operands():
            found.setdefault(var, []).append(eqn)
    return found


def live(graph: Graph) -> list[Eqn]:
    """The equations that results need."""
    wanted = {v for v in graph.outvars if isinstance(v, Var)}
    kept = []
    for eqn in reversed(graph.eqns):
        if any(v in wanted for v in eqn.outvars):
            kept.append(eqn)
            wanted.update(eqn.operands())
    return kept[::-1]


def addition(eqn: Eqn, uses: dict[Var, list[Eqn]]) -> Eqn | None:
    """The one addition in float32 that a product goes into."""
    (result,) = eqn.outvars
    users = uses.get(result, [])
    single = len(users) == 1 and users[0].primitive is add_p and result.aval.dtype == FLOATS[2]
    return users[0] if single and users[0].invars.count(result) == 1 else None


def _counts(body: Graph, var: Var, place: int) -> bool:
    """Whether a loop adds one to what it carries there."""
    out = body.outvars[place]
    eqn = next((e for e in body.eqns if out in e.outvars), None)
    if (
        eqn is None
        or eqn.primitive is not add_p
        or var.aval.shape
        or var.aval.dtype.kind != "i"
        or eqn.invars[0] is not var
    ):
        return False
    return isinstance(eqn.invars[1], Literal) and int(eqn.invars[1].val) == 1


def _bounded(test: Graph, body: Graph, consts: int) -> tuple[int, int] | None:
    """The counter and the bound of a loop that goes on while counter < bound, places in what it carries."""
    if len(test.eqns) != 1 or test.eqns[0].primitive is not lt_p or test.eqns[0].outvars[0] is not test.outvars[0]:
        return None
    sides = test.eqns[0].invars
    if any(v not in test.invars for v in sides):
        return None
    counter, bound = (test.invars.index(v) for v in sides)  # type: ignore[arg-type]
    carried = body.invars[consts:]
    return (
        (counter, bound) if _counts(body, carried[counter], counter) and body.outvars[bound] is carried[bound] else None
    )
