"""Loops, branches, checkpointed functions and factorisations outside `jit`: each is a program of its own, kept by its graphs and types.

Bodies are staged once a function, so that their Graphs are the same objects from call to call. Factorisations and triangular
systems run compiled so that they round as they do under `jit`: how a library adds depends on the threads that it is given.
"""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

from fuser import backends
from fuser.api.placement import FREE, at_home, placed, placement
from fuser.api.stages import Traced
from fuser.config import config
from fuser.ir.graph import Eqn, Graph, Var, graphs_in
from fuser.ir.params import freeze
from fuser.ir.primitive import Primitive
from fuser.ir.source import current_source
from fuser.ir.structure import Key, key_of
from fuser.lax import replayed
from fuser.ops.control import cond_p, scan_p, while_p
from fuser.ops.factorisations import geqrf_p, lu_p
from fuser.ops.linalg import cholesky_p, eigh_p, qr_p, svd_p
from fuser.ops.remat import remat_p
from fuser.ops.triangular import triangular_solve_p
from fuser.runtime import device as devices
from fuser.runtime.array import Array, on_gpu
from fuser.runtime.single_flight import once
from fuser.trace import tree
from fuser.trace.cells import is_ref
from fuser.trace.core import EVALUATION, infer, type_of
from fuser.trace.tangent import as_array

MOST = 256  # programs that are kept

_lock = threading.Lock()
_programs: OrderedDict[Any, Callable[[list[Any]], list[Any]]] = OrderedDict()


def backend_name() -> str:
    """The backend of programs that name none."""
    return config.backend or ("triton" if devices.default_platform() == "cuda" else "c")


def install() -> None:
    """Let control flow, factorisations and triangular systems on Arrays run compiled from now on, and operations on a GPU's
    arrays there."""
    if devices.has_driver():
        EVALUATION.on_gpu, EVALUATION.home = open_gpu, go_home
    for primitive in (while_p, scan_p, cond_p):
        primitive.run = _runner(primitive)
    remat_p.run = _where_compiled(remat_p.run, _runner(remat_p))
    for primitive in (lu_p, qr_p, geqrf_p, cholesky_p, eigh_p, svd_p, triangular_solve_p):
        primitive.run = _where_evaluated(primitive, _runner(primitive))
    replayed.Replayed.compiler = staticmethod(_compiled)


def open_gpu(primitive: Primitive, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """Runs the first operation on a GPU's array, or where arrays are a GPU's, which says from now on how such run; leaves those on the
    host."""
    if not any(type(a) is Array and on_gpu(a._data) for a in args) and not _arrays_are_a_gpus():
        return NotImplemented
    backends.get("triton").load(())
    return EVALUATION.elsewhere(primitive, args, params)


def go_home(x: Array) -> Array:
    """A new array of the host's on the GPU where arrays are a GPU's; numbers stay, as they are parameters of kernels."""
    if not x.shape or type(x._data) is not np.ndarray or not _arrays_are_a_gpus():
        return x
    backend = backends.get("triton")
    backend.load(())
    return Array(backend.memory.place(x._data), x.weak_type, x.dtype)


def _arrays_are_a_gpus() -> bool:
    """Whether arrays lie on a GPU unless they are told where to."""
    return backend_name() == "triton" and devices.default_platform() == "cuda"


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
            program = once(key, lambda: _programs.get(key), lambda: _keep(key, _alike(primitive, avals, params, lying)))
        return by_default(program(values))

    return run


def _alike(primitive: Primitive, avals: Any, params: dict[str, Any], lying: Any) -> Callable[[list[Any]], list[Any]]:
    """The program of an equation whose graphs are new: one that was compiled for graphs alike, or one compiled now."""
    make = functools.partial(_program, primitive, avals, params, lying)
    if not list(graphs_in(params)):
        return make()
    try:
        parts = tuple([(name, key_of(params[name])) for name in sorted(params)])
        key = Key((primitive, avals, lying, config.traced, config.enable_x64, backend_name(), parts))
    except TypeError:  # of a param that cannot be hashed
        return make()
    with _lock:
        program = _programs.get(key)
    return _keep(key, make()) if program is None else program


def _where_compiled(replayed: Any, run: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """A body run compiled, so that it gives what it gives under `jit`; operation by operation where each is looked at, and on Refs."""

    def evaluate(*args: Any, **params: Any) -> list[Any]:
        alone = config.disable_jit or config.debug_nans or config.debug_infs or any(map(is_ref, args))
        return replayed(*args, **params) if alone else run(*args, **params)  # type: ignore[no-any-return]

    return evaluate


def _where_evaluated(primitive: Primitive, run: Callable[..., list[Any]]) -> Callable[..., Any]:
    """The primitive run compiled, unless arrays lie elsewhere than in this machine's memory, or on several devices."""

    def evaluate(*args: Any, **params: Any) -> Any:
        result = EVALUATION.elsewhere(primitive, args, params)
        if result is not NotImplemented:
            return result
        results = run(*args, **params)
        return results if primitive.multiple_results else results[0]

    return evaluate


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
    found = infer(primitive, avals, params)
    outputs = tuple(Var(a) for a in (found if primitive.multiple_results else (found,)))
    equation = Eqn(primitive, inputs, params, outputs, current_source())
    graph = Graph(inputs, (), (), (equation,), outputs, primitive.name)
    structures = [tree.structure([0] * len(variables)) for variables in (inputs, outputs)]
    where = placement(FREE, lying, *structures)
    traced = Traced(graph, structures[0], structures[1], (), backends.get(backend_name()), placement=where)
    return traced.lower().compile()._run
