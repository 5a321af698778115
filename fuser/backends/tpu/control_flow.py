"""Control flow as text: graphs inside become functions inside the function, around lax.while_loop, cond and scan.

`write_control` writes a graph's equation with everything inside left to XLA; `program` in `program.py` does the same
with planned bodies, whose groups are kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fuser.errors import UnsupportedError
from fuser.ir.graph import Eqn, Graph
from fuser.ir.primitive import Control

# Writes a function of a graph inside control flow: (name, which graph of the equation) -> its results' texts
Body = Callable[[str, int], None]


def write_control(arrays: Any, eqn: Eqn) -> None:
    """The equation, its graphs written out on whole arrays."""
    graphs = _graphs(eqn)

    def body(function: str, number: int) -> None:
        graph = graphs[number]
        names = [arrays.fresh("x") for _ in graph.invars]
        arrays.line(f"def {function}({', '.join(names)}):")
        arrays.depth += 1
        arrays.names.update(zip(graph.invars, names))
        for var, const in zip(graph.constvars, graph.consts):
            arrays.names[var] = arrays.constant(const)
        arrays.line(f"return [{', '.join(arrays.graph(graph))}]")
        arrays.depth -= 1

    if eqn.primitive.control is None:
        raise UnsupportedError(f"the tpu backend has no form of {eqn.primitive} ({eqn.source.short})")
    args = [arrays.operand(v) for v in eqn.invars]
    results = [arrays.fresh() for _ in eqn.outvars]
    arrays.names.update(zip(eqn.outvars, results))
    write(arrays, eqn, args, results, body)


def write(arrays: Any, eqn: Eqn, args: Sequence[str], results: Sequence[str], body: Body) -> None:
    """Lines that bind `results` to the equation's results."""
    writers: dict[Control | None, Any] = {Control.WHILE: _while, Control.COND: _cond, Control.SCAN: _scan}
    writers[eqn.primitive.control](arrays, eqn, list(args), f"[{', '.join(results)}]", body)


def _graphs(eqn: Eqn) -> list[Graph]:
    params = eqn.params
    if eqn.primitive.control is Control.WHILE:
        return [params["cond_jaxpr"], params["body_jaxpr"]]
    return list(params["branches"]) if eqn.primitive.control is Control.COND else [params["jaxpr"]]


def _while(arrays: Any, eqn: Eqn, args: list[str], target: str, body: Body) -> None:
    tests, bodies = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    test, step = arrays.fresh("test"), arrays.fresh("step")
    body(test, 0)
    body(step, 1)
    first, second, start = args[:tests], args[tests : tests + bodies], args[tests + bodies :]
    go = f"lambda carry: {test}({_joined(first, '*carry')})[0]"
    if eqn.params["cond_jaxpr"].out_avals[0].shape:  # lanes that are done keep what they have
        lanes = f"{test}({_joined(first, '*carry')})[0]"
        go = f"lambda carry: jnp.any({lanes})"
        keep = "jnp.where(lanes.reshape(lanes.shape + (1,) * (old.ndim - lanes.ndim)), new, old)"
        whole = arrays.fresh("step")
        arrays.line(f"def {whole}(carry):")
        arrays.line(f"    lanes, following = {lanes}, {step}({_joined(second, '*carry')})")
        arrays.line(f"    return [{keep} for new, old in zip(following, carry)]")
        arrays.line(f"{target} = lax.while_loop({go}, {whole}, [{', '.join(start)}])")
        return
    arrays.line(
        f"{target} = lax.while_loop({go}, lambda carry: {step}({_joined(second, '*carry')}), [{', '.join(start)}])"
    )


def _cond(arrays: Any, eqn: Eqn, args: list[str], target: str, body: Body) -> None:
    names = [arrays.fresh("branch") for _ in eqn.params["branches"]]
    for number, name in enumerate(names):
        body(name, number)
    which, rest = args[0], args[1:]
    arrays.line(
        f"{target} = lax.switch({which}.astype(jnp.int32), [{', '.join(names)}]{''.join(f', {a}' for a in rest)})"
    )


def _scan(arrays: Any, eqn: Eqn, args: list[str], target: str, body: Body) -> None:
    params = eqn.params
    consts, carries = params["num_consts"], params["num_carry"]
    step, whole = arrays.fresh("step"), arrays.fresh("step")
    body(step, 0)
    fixed, start, rows = args[:consts], args[consts : consts + carries], args[consts + carries :]
    arrays.line(f"def {whole}(carry, row):")
    arrays.line(f"    found = {step}({_joined(fixed, '*carry, *row')})")
    arrays.line(f"    return found[:{carries}], found[{carries}:]")
    more = ", reverse=True" if params["reverse"] else ""
    carry, made = arrays.fresh("carry"), arrays.fresh("rows")
    call = f"lax.scan({whole}, [{', '.join(start)}], [{', '.join(rows)}], length={params['length']}{more})"
    arrays.line(f"{carry}, {made} = {call}")
    arrays.line(f"{target} = [*{carry}, *{made}]")


def _joined(first: Sequence[str], last: str) -> str:
    return ", ".join([*first, last])
