"""The stages of an accelerated function: what `jit` has, with what it returns besides arrays, what it writes and what it reads outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fuser.api.jitted import Compiled, Lowered, Traced
from fuser.backends.base import Backend
from fuser.compile import load, lower
from fuser.config import config
from fuser.interop.arguments import is_dynamic
from fuser.interop.guards import Guards
from fuser.interop.in_place import with_memory_of_arguments
from fuser.interop.numpy.context import Context
from fuser.interop.numpy.random import with_draws
from fuser.interop.outputs import DECLINED, Output, runner
from fuser.interop.writes import Write
from fuser.ir.types import ArrayType
from fuser.trace import tree


class Tracing(NamedTuple):
    """How a function is traced: whether inputs may hold infinities and nans, paths outside that are inputs, what stages its
    loops and branches (None: they need values), and the most operations that there may be.
    """

    precise: bool
    dynamic: frozenset[Any]
    control: Any = None
    most: int | None = None


class AcceleratedTraced(Traced):
    """As `Traced`, with what the function returns besides arrays, and what it read from outside."""

    def __init__(
        self,
        graph: Any,
        in_tree: Any,
        outputs: tuple[Output, ...],
        out_tree: Any,
        backend: Backend,
        context: Context,
        guards: Guards,
        shared: Sequence[Any],
    ) -> None:
        super().__init__(graph, in_tree, out_tree, (), backend)
        self.outputs = outputs
        self.shared = tuple(shared)  # of arrays of which results are views, computed after the others: their orders
        self.writes: tuple[Write, ...] = (
            context.writes
        )  # to arrays of the caller's; what they need comes after `shared`
        self.guards = guards
        self.draws = tuple(draw for draw, _ in context.draws or ())
        drawn = sum(
            draw.used for draw in self.draws
        )  # the last inputs are random numbers; those captured by the guards come before
        self.outside_inputs = len(graph.invars) - in_tree.num_leaves - drawn
        results = sum(output.computed for output in outputs) + len(self.shared) + context.write_results
        self.write_results = context.write_results
        self.watched = len(graph.outvars) - results  # so many of the last results tell of events
        self.always_numpy = context.checks.always

    @property
    def unread(self) -> set[int]:
        """The inputs, by their numbers, of which the program reads nothing."""
        read = {id(v) for eqn in self.graph.eqns for v in eqn.invars} | {id(v) for v in self.graph.outvars}
        return {n for n, v in enumerate(self.graph.invars) if id(v) not in read}

    @property
    def outside_names(self) -> list[str]:
        """What the user calls the inputs from outside."""
        return [self.guards.nodes[number].name for number in self.guards.captures[: self.outside_inputs]]

    def inputs(self, args: Any, kwargs: Any) -> list[Any]:
        """What the program reads in a call with these arguments: those that are traced, and arrays from outside as they are now."""
        leaves = tree.leaves((args, kwargs))
        captured = self.guards.check(leaves)
        if captured is None:
            raise TypeError(
                f"what {self.graph.name} reads from outside has changed since it was traced; call the accelerated function itself, which "
                "traces anew"
            )
        return [*filter(is_dynamic, leaves), *captured[: self.outside_inputs]]

    @property
    def out_info(self) -> Any:
        """The results' tree, with ArrayTypes for arrays."""
        return tree.unflatten(self.out_tree, [output.aval or output.value for output in self.outputs])

    def lower(self, *, lowering_platforms: Sequence[str] | None = None) -> Lowered:
        """Optimise, partition and generate the kernels' text; for another platform give `backend` to accelerate (ValueError)."""
        if lowering_platforms is not None:
            raise ValueError(
                "an accelerated function is lowered for its backend: name it, as in accelerate(f, backend=...)"
            )
        with config.using(enable_x64=True):
            return AcceleratedLowered(self, lower(self.graph, self._backend))


class AcceleratedLowered(Lowered):
    """As `Lowered`; compiles to a program that takes and gives NumPy arrays."""

    def compile(self) -> Compiled:
        """Compile the kernels and link the steps."""
        with config.using(enable_x64=True):
            return AcceleratedCompiled(self.traced, load(self.lowering, self.traced._backend))


class AcceleratedCompiled(Compiled):
    """As `Compiled`; `run` goes from the list of array arguments to the results' tree."""

    traced: AcceleratedTraced

    def __init__(self, traced: Any, program: Any) -> None:
        super().__init__(traced, program)
        run = with_memory_of_arguments(runner(program, traced), traced)
        self.run = with_draws(run, traced.draws, traced.outside_inputs, DECLINED)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves = tree.leaves((args, kwargs))
        arrays = [np.ascontiguousarray(leaf).reshape(np.shape(leaf)) for leaf in self.traced.inputs(args, kwargs)]
        wanted = [
            (a.shape, a.dtype)
            for a in self.traced.graph.in_avals[: self.traced.in_tree.num_leaves + self.traced.outside_inputs]
        ]
        if [(a.shape, a.dtype) for a in arrays] != wanted:
            found = ", ".join(str(ArrayType(a.shape, a.dtype)) for a in arrays)
            raise TypeError(
                f"{self.traced.graph.name} was compiled for ({', '.join(map(str, self.traced.graph.in_avals))}), got ({found}); "
                "call the accelerated function itself, which compiles for new types"
            )
        results = self.run(arrays, leaves, self.traced.guards.check(leaves))
        if results is DECLINED:
            raise FloatingPointError(
                f"{self.traced.graph.name} met a floating-point error, an index out of bounds or a number that no integer holds; call "
                "the accelerated function itself, which then gives NumPy's answer"
            )
        return results
