"""Control flow outside `jit`: a loop or a branch is compiled as a program of its own, kept by its graphs and types.

Bodies are staged once a function, so that their Graphs are the same objects from call to call.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from fuser import backends
from fuser.api.placement import FREE, at_home, placed, placement
from fuser.api.stages import Traced
from fuser.config import config
from fuser.ir.graph import Eqn, Graph, Var
from fuser.ir.params import freeze
from fuser.ir.primitive import Primitive
from fuser.ir.source import current_source
from fuser.lax import replayed
from fuser.ops.control import cond_p, scan_p, while_p
from fuser.runtime import device as devices
from fuser.runtime.array import Array
from fuser.runtime.once import once
from fuser.trace import tree
from fuser.trace.core import EVALUATION, infer, type_of
from fuser.trace.tangent import as_array

MOST = 256  # programs that are kept

_lock = threading.Lock()
_programs: OrderedDict[Any, Callable[[list[Any]], list[Any]]] = OrderedDict()


def backend_name() -> str:
    """The backend of programs that name none."""
    return config.backend or ("triton" if devices.default_platform() == "cuda" else "c")


def install() -> None:
    """Let control flow on Arrays run compiled from now on."""
    for primitive in (while_p, scan_p, cond_p):
        primitive.run = _runner(primitive)
    replayed.Replayed.compiler = staticmethod(_compiled)


def _compiled(graph: Graph, in_tree: Any, out_tree: Any) -> Callable[..., Any]:
    """The program of a recorded function (lax/replayed.py)."""
    return Traced(graph, in_tree, out_tree, (), backends.get(backend_name())).lower().compile()._run


def forget() -> None:
    """Drop every program."""
    replayed.forget()
    with _lock:
        _programs.clear()


def _runner(primitive: Primitive) -> Callable[..., list[Any]]:
    def run(*args: Any, **params: Any) -> list[Any]:
        values = at_home([as_array(a) for a in args])
        avals = tuple(type_of(v) for v in values)
        lying = placed(values)
        key = (primitive, avals, lying, config.traced, tuple((name, freeze(params[name])) for name in sorted(params)))
        with _lock:
            program = _programs.get(key)
            if program is not None:
                _programs.move_to_end(key)
        if program is None:
            program = once(
                key, lambda: _programs.get(key), lambda: _keep(key, _program(primitive, avals, params, lying))
            )
        return by_default(program(values))

    return run


def by_default(result: Any) -> Any:
    """A tree of results of the first device: on the default one, where that is another."""
    put = EVALUATION.default
    if put is None or config.default_device is None:
        return result
    return tree.map(lambda x: put(x) if type(x) is Array else x, result)


def run_by_default(run: Callable[..., Any]) -> Callable[..., Any]:
    """A program, whose results lie on the default device."""
    return lambda values, foreign=(): by_default(run(values, foreign))


def _keep(key: Any, program: Callable[[list[Any]], list[Any]]) -> Callable[[list[Any]], list[Any]]:
    with _lock:
        _programs[key] = program
        if len(_programs) > MOST:
            _programs.popitem(last=False)
    return program


def _program(primitive: Primitive, avals: Any, params: dict[str, Any], lying: Any) -> Callable[[list[Any]], list[Any]]:
    inputs = tuple(Var(a) for a in avals)
    outputs = tuple(Var(a) for a in infer(primitive, avals, params))
    equation = Eqn(primitive, inputs, params, outputs, current_source())
    graph = Graph(inputs, (), (), (equation,), outputs, primitive.name)
    structures = [tree.structure([0] * len(variables)) for variables in (inputs, outputs)]
    where = placement(FREE, lying, *structures)
    traced = Traced(graph, structures[0], structures[1], (), backends.get(backend_name()), placement=where)
    return traced.lower().compile()._run
