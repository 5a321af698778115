"""Plan → one Python file: its kernels as functions, and a function `program` that calls them in order, for jax.jit.

Control flow with planned bodies calls the functions of its bodies' groups, so that kernels run inside its loops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fuser.backends.tpu import spell
from fuser.backends.tpu.arrays import Arrays
from fuser.backends.tpu.control_flow import write
from fuser.backends.tpu.emit import PALLAS, Emitted, in_pallas, in_xla
from fuser.backends.tpu.host_calls import HostCall
from fuser.ir.graph import Literal, Var
from fuser.ir.primitive import Control
from fuser.kernel.lower import results
from fuser.partition.axes import Views
from fuser.partition.group import FusionGroup, Kind, Plan


@dataclass(frozen=True)
class Program:
    """The text of a whole program, header included, and what it calls on the host."""

    text: str
    host_calls: tuple[HostCall, ...] = ()


def emitted(group: FusionGroup, vmem: int) -> Emitted:
    """The functions that a group needs, its own last. Refused where a Pallas kernel cannot be; library groups are XLA's."""
    if group.kind is Kind.CONTROL and group.bodies:
        return _control(group)
    return in_pallas(group, vmem) if group.kind in PALLAS else in_xla(group)


def program(plan: Plan, name: str = "program") -> Program:
    """The file of a plan. `program` takes its inputs, then its constants, and gives the list of its results."""
    functions = [group.emitted.code.text for group in plan.groups]
    functions.append(_calls(plan, name))
    body = "\n\n\n".join(functions)
    calls = [call for group in plan.groups for call in group.emitted.code.host_calls]
    return Program(spell.header(body) + "\n\n\n" + body + "\n", tuple(calls))


def compiled(
    text: str, interpret: bool, name: str = "program", hosted: Mapping[str, Callable[..., Any]] | None = None
) -> Callable[..., Any]:
    """The function `name` of a file's text, in which the names of `hosted` stand for functions on the host."""
    space: dict[str, Any] = dict(hosted or {})
    exec(compile(text, f"<{name} of the tpu backend>", "exec"), space)
    space["INTERPRET"] = interpret
    return space[name]  # type: ignore[no-any-return]


def _calls(plan: Plan, name: str) -> str:
    """The function that runs the groups of a plan one after the other."""
    arrays = Arrays()
    graph = plan.graph
    given = [*graph.invars, *graph.constvars]
    arrays.names.update((v, f"x{n}") for n, v in enumerate(given))
    for group in plan.groups:
        writes = results(group)
        for var in writes:
            arrays.names[var] = arrays.fresh()
        targets = ", ".join(arrays.names[v] for v in writes) + ("," if len(writes) == 1 else "")
        arrays.line(f"{targets} = {group.name}({', '.join(arrays.names[v] for v in group.graph.invars)})")
    found = []
    for value in plan.outputs:
        if isinstance(value, Var) and value in plan.aliases:
            found.append(f"{arrays.names[plan.aliases[value]]}.reshape({value.aval.shape})")
        else:
            found.append(arrays.operand(value))
    head = f"def {name}({', '.join(arrays.names[v] for v in given)}):"
    return "\n".join([head, *arrays.lines, f"    return [{', '.join(found)}]"])


def _control(group: FusionGroup) -> Emitted:
    """Control flow around the plans of its bodies."""
    parts, pieces = [], []
    for number, plan in enumerate(group.bodies):
        name = f"{group.name}_{number}"
        functions: list[Emitted] = [inner.emitted.code for inner in plan.groups]
        pieces += functions
        parts += [function.text for function in functions]
        parts.append(_calls(plan, name))
    eqn = group.graph.eqns[-1]
    arrays = Arrays()
    names = [f"in{n}" for n in range(len(group.graph.invars))]
    views = Views(group.graph.eqns)
    position = dict(zip(group.graph.invars, names))
    args = []
    for operand in eqn.invars:
        if isinstance(operand, Literal):
            args.append(arrays.operand(operand))
        else:
            source = views(operand).source
            assert source is not None
            same = source.aval.shape == operand.aval.shape
            args.append(position[source] + ("" if same else f".reshape({operand.aval.shape})"))

    def body(function: str, number: int) -> None:
        plan = group.bodies[number]
        consts = [arrays.constant(c) for c in plan.graph.consts]
        more = "".join(f", {c}" for c in consts)
        arrays.line(f"def {function}(*arrays):")
        arrays.line(f"    return {group.name}_{number}(*arrays{more})")

    made = [arrays.fresh() for _ in eqn.outvars]
    arrays.names.update(zip(eqn.outvars, made))
    _write(arrays, group, args, made, body)
    outputs = [arrays.operand(v) for v in results(group)]
    head = [f"def {group.name}({', '.join(names)}):"]
    text = "\n".join([*head, *arrays.lines, f"    return [{', '.join(outputs)}]"])
    kernels = [p for p in pieces if p.pallas]
    calls = tuple(call for piece in pieces for call in piece.host_calls)
    vmem = max([p.vmem for p in kernels], default=0)
    return Emitted("\n\n\n".join([*parts, text]), bool(kernels), vmem=vmem, host_calls=calls)


def _write(
    arrays: Arrays, group: FusionGroup, args: list[str], made: list[str], body: Callable[[str, int], None]
) -> None:
    """The loop, branch or scan; a while over lanes was planned with a test that gives a bool to go on by and the lanes."""
    eqn = group.graph.eqns[-1]
    params = eqn.params
    if eqn.primitive.control is not Control.WHILE or not params["cond_jaxpr"].out_avals[0].shape:
        write(arrays, eqn, args, made, body)
        return
    tests, bodies = params["cond_nconsts"], params["body_nconsts"]
    body("test", 0)
    body("step", 1)
    first, second, start = args[:tests], args[tests : tests + bodies], args[tests + bodies :]
    arrays.line(f"decide = lambda carry: test({', '.join([*first, '*carry'])})")
    arrays.line(f"step_of = lambda carry: step({', '.join(['decide(carry)[1]', *second, '*carry'])})")
    call = f"lax.while_loop(lambda carry: decide(carry)[0], step_of, [{', '.join(start)}])"
    arrays.line(f"[{', '.join(made)}] = {call}")
