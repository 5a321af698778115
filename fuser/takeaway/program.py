"""A plan as calls of its kernels over numbered places in memory: what launchers of every language are written from."""

from __future__ import annotations

import string
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser.api.stages import Lowered
from fuser.backends.base import HOST, KernelSource
from fuser.backends.link import Parts, in_steps
from fuser.errors import UnsupportedError
from fuser.ir.graph import Eqn, Literal, Var
from fuser.ir.types import FLOATS, ArrayType
from fuser.ops.dot import algorithm, dot_general_p, free_dimensions
from fuser.ops.movement import broadcast_in_dim_p, reshape_p, slice_p, squeeze_p, transpose_p
from fuser.partition.group import FusionGroup, Plan, generated
from fuser.runtime.executable import Allocation, KernelStep

LICENCE = "http://www.apache.org/licenses/LICENSE-2.0"


@dataclass(frozen=True)
class Call:
    """One kernel's source, the places that it reads, and those that it writes."""

    source: KernelSource
    reads: tuple[int, ...]
    writes: tuple[Allocation, ...]


@dataclass(frozen=True)
class View:
    """What lies at a place with a shape, or None for what is just computed, moved by equations in order."""

    place: int | None
    shape: tuple[int, ...]
    moves: tuple[Eqn, ...]


@dataclass(frozen=True)
class Product:
    """A matrix product that a library computes: its dimensions as `einsum` writes them, its operands, its result moved, and the place of that."""

    dimensions: str
    operands: tuple[View, ...]
    result: View
    write: int


@dataclass(frozen=True)
class Program:
    """Steps in order; places of inputs, constants and results, with the types of what they hold for callers."""

    name: str
    inputs: tuple[tuple[int, ArrayType], ...]
    consts: tuple[tuple[int, np.ndarray], ...]
    steps: tuple[Call | Product, ...]
    outputs: tuple[tuple[int, ArrayType], ...]
    arena: int
    lines: tuple[str, ...]  # of the user's program

    @property
    def calls(self) -> tuple[Call, ...]:
        """The steps that are kernels."""
        return tuple(step for step in self.steps if isinstance(step, Call))

    @property
    def origin(self) -> str:
        """Where the files come from, and what one may do with them."""
        from fuser import __version__

        lines = ", ".join(self.lines[:6]) or "an unknown line"
        return (
            f"{self.name}: kernels that fuser {__version__} generated from {lines}.\n"
            f"What fuser has put in is under the Apache License 2.0, {LICENCE}"
        )

    def signature(self) -> str:
        """The types of arguments and results, for readers."""
        given = ", ".join(f"in{n}: {aval.str_long()}" for n, (_, aval) in enumerate(self.inputs))
        found = ", ".join(f"out{n}: {aval.str_long()}" for n, (_, aval) in enumerate(self.outputs))
        return f"({given}) -> ({found})"


def _every(groups: Iterable[FusionGroup]) -> Iterator[FusionGroup]:
    """The groups, and those inside of them."""
    for group in groups:
        yield group
        yield from _every(group.inner)


def program_of(name: str, lowered: Lowered, products: bool = False) -> Program:
    """The program of a plan. `products`: its launcher has a library for products of floating-point matrices. UnsupportedError where another
    step is no generated kernel."""
    plan, limits = lowered.plan, lowered.traced._backend.limits
    found = {group: _product(group, plan) for group in plan.groups if products and not generated(group, limits)}
    for group in _every(plan.groups):
        if (group.reason or not generated(group, limits)) and not found.get(group):
            why = group.reason or "it is no generated kernel"
            in_c = ', or in C (fuser.jit(function, backend="c")), which may have a kernel for it' if products else ""
            raise UnsupportedError(
                f"the step {group.name} of {name} cannot be taken away: {why} ({group.sources[0] if group.sources else '?'}); "
                f"export a function without it{in_c}"
            )
    kernels: Any = zip(lowered.sources, lowered.sources)
    sources = iter(lowered.sources)
    executable = in_steps(plan, kernels, Parts(HOST, limits))
    steps: list[Call | Product] = []
    for group, step in zip(plan.groups, executable.steps, strict=True):
        if isinstance(step, KernelStep):
            steps.append(Call(next(sources), step.arguments, step.outputs))
        else:
            steps.append(found[group])  # type: ignore[arg-type]
    graph = plan.graph
    inputs = tuple((plan.slot_of[v], v.aval) for v in graph.invars)
    wanted = [v for v in plan.outputs if isinstance(v, Var)]
    outputs = tuple((plan.slot_of[plan.aliases.get(v, v)], v.aval) for v in wanted)
    consts = tuple((slot, np.asarray(value)) for slot, value in executable.consts.items())
    lines = tuple(dict.fromkeys(str(s) for group in plan.groups for s in group.sources if s.file))
    return Program(name, inputs, consts, tuple(steps), outputs, plan.arena, lines)


def _product(group: FusionGroup, plan: Plan) -> Product | None:
    """The group as a product; None where it is none, or one that not every library computes."""
    made = {eqn.outvars[0]: eqn for eqn in group.graph.eqns}
    computed = [eqn for eqn in made.values() if eqn.primitive not in MOVEMENT]
    if [eqn.primitive for eqn in computed] != [dot_general_p] or algorithm(computed[0].params.get("precision")):
        return None
    (eqn,) = computed
    (product,), (result, *others) = eqn.outvars, group.graph.outvars
    views = [_view(v, made) for v in (*eqn.invars, result)]
    origins = [origin for origin, _ in views]
    if others or origins[2] is not product or not all(isinstance(v, Var) and v.aval.dtype in FLOATS for v in origins):
        return None
    if len({v.aval.dtype for v in origins}) > 1:
        return None
    x, y, out = (
        View(None if v is product else plan.slot_of[v], v.aval.shape, moves)  # type: ignore[index]
        for v, moves in views
    )
    return Product(einsum(eqn), (x, y), out, plan.slot_of[result])  # type: ignore[index]


MOVEMENT = (reshape_p, squeeze_p, transpose_p, slice_p, broadcast_in_dim_p)  # what moves the operands of a product


def _view(value: Var | Literal, made: dict[Var, Eqn]) -> tuple[Var | Literal, tuple[Eqn, ...]]:
    """What is moved to give a value, and how."""
    moves: list[Eqn] = []
    while isinstance(value, Var) and value in made and made[value].primitive in MOVEMENT:
        moves.append(made[value])
        value = made[value].invars[0]
    return value, tuple(reversed(moves))


def einsum(eqn: Eqn) -> str:
    """The dimensions of a product in letters: batch ones first in the result, then those of the left operand and of the right."""
    contracted, batch = eqn.params["dimension_numbers"]
    shared: dict[tuple[bool, int], str] = {}
    letters, sides = iter(string.ascii_letters), []
    for number, side in enumerate(eqn.invars):
        named = {}
        for kind in (batch, contracted):
            for place, d in enumerate(kind[number]):
                key = kind is batch, place
                named[d] = shared[key] = shared.get(key) or next(letters)
        sides.append([named.get(d) or next(letters) for d in range(side.aval.ndim)])
    together = [shared[True, place] for place in range(len(batch[0]))]
    free = ["".join(sides[n][d] for d in free_dimensions(len(sides[n]), contracted[n], batch[n])) for n in (0, 1)]
    return f"{''.join(sides[0])},{''.join(sides[1])}->{''.join(together)}{''.join(free)}"
