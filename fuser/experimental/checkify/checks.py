"""`checkify`: a function's graph is run again with the error as one value more, which every check updates.

Loops carry the error and branches hand it on. What calls graphs is written out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fuser import numpy as fnp
from fuser.api.jitted import jit
from fuser.errors import UnsupportedError
from fuser.experimental.checkify import errors as E
from fuser.experimental.checkify.errors import (
    INDEX,
    Entry,
    Error,
    FailedCheckError,
    JaxRuntimeError,
    Kind,
    OOBError,
    Table,
)
from fuser.experimental.checkify.rules import RULED, RULES, Enabled
from fuser.experimental.checkify.state import Codes, State
from fuser.ir.graph import Eqn, Graph, Var, graphs_in
from fuser.ir.names import function_name
from fuser.ir.primitive import Control
from fuser.ir.source import current_source
from fuser.ir.types import ArrayType
from fuser.lax.control import cond
from fuser.lax.parallel import pvary
from fuser.lax.values import as_value
from fuser.ops.check import Raising, check_p
from fuser.ops.hi_primitive import call_hi_primitive_p
from fuser.ops.shard_map import Layout, shard_map_p, whole
from fuser.passes.inline import CALLS
from fuser.trace import tree
from fuser.trace.body import close
from fuser.trace.core import type_of
from fuser.trace.replay import replay
from fuser.trace.stage import stage


def checkify(f: Callable[..., Any], errors: frozenset[Any] = E.user_checks) -> Callable[..., tuple[Error, Any]]:
    """A function that gives an Error and what `f` gives: the checks of the categories `errors` are made, and never raise.

    The first thing that goes wrong stays in the Error. The function runs on; what it gives then may be anything.
    """
    if not callable(f):
        raise TypeError(f"Expected a callable value: checkify takes a function, got a {type(f).__name__}")
    if isinstance(errors, str) or not all(isinstance(kind, type) for kind in errors):
        raise TypeError(
            f"checkify takes sets of errors, such as checkify.user_checks | checkify.nan_checks, got errors={errors!r}"
        )

    def checked(structure: Any, static: tuple[Any, ...], values: list[Any]) -> tuple[Error, Any]:
        out: list[Any] = []

        def flat(*tracers: Any) -> list[Any]:
            given = iter(tracers)
            args, kwargs = tree.unflatten(structure, [next(given) if s is _TRACED else s for s in static])
            found, out_tree = tree.flatten(f(*args, **kwargs))
            out.append(out_tree)
            return [as_value(leaf, function_name(f)) for leaf in found]

        graph = stage(flat, [type_of(v) for v in values], function_name(f))
        codes = Codes(list(dict.fromkeys(_kinds(graph, frozenset(errors)))))
        state, results = _Checker(codes, frozenset(errors)).run(graph, values, State.clear(codes))
        return state.error(), tree.unflatten(out[0], results)

    checked.__name__ = f"checkified_{function_name(f)}"
    compiled = jit(checked, static_argnums=(0, 1))

    @functools.wraps(f)
    def wrapped(*args: Any, **kwargs: Any) -> tuple[Error, Any]:
        leaves, structure = tree.flatten((args, kwargs))
        static = tuple(leaf if isinstance(leaf, (bool, str)) else _TRACED for leaf in leaves)
        values = [as_value(leaf, function_name(f)) for leaf, s in zip(leaves, static) if s is _TRACED]
        return compiled(structure, static, values)  # type: ignore[no-any-return]

    return wrapped


_TRACED = None  # an argument that is an array; what is not stays a value that Python can read


def _kinds(graph: Graph, enabled: Enabled) -> Iterator[Kind]:
    """The combinations of arrays that messages of a program's checks may name."""
    for eqn in graph.eqns:
        if eqn.primitive is check_p:
            yield from eqn.params["table"].kinds
        elif eqn.primitive in RULES and OOBError in enabled:
            yield INDEX
        for inner in graphs_in(eqn.params):
            yield from _kinds(inner, enabled)


def _has_checks(graph: Graph, enabled: Enabled) -> bool:
    return any(
        eqn.primitive is check_p
        or (eqn.primitive in RULES and bool(enabled & E.automatic_checks))
        or any(_has_checks(inner, enabled) for inner in graphs_in(eqn.params))
        for eqn in graph.eqns
    )


class _Checker:
    """Binds the equations of graphs again, and their checks."""

    def __init__(self, codes: Codes, enabled: Enabled) -> None:
        self.codes, self.enabled = codes, enabled

    def run(self, graph: Graph, args: Sequence[Any], state: State) -> tuple[State, list[Any]]:
        """The state after the graph, and its results."""

        def checked(eqn: Eqn, operands: list[Any]) -> Any:
            nonlocal state
            state, results = self.eqn(eqn, operands, state)
            return results if eqn.primitive.multiple_results else results[0]

        results = replay(graph, *args, binding=checked)
        return state, results

    def eqn(self, eqn: Eqn, operands: list[Any], state: State) -> tuple[State, list[Any]]:
        primitive, params = eqn.primitive, eqn.params
        if primitive is check_p:
            return self.check(operands, state, **params), []
        opaque = primitive is call_hi_primitive_p  # looked into it would lose its rules, as in JAX
        if opaque or not any(_has_checks(inner, self.enabled) for inner in graphs_in(params)):
            found = primitive.bind(*operands, **params)
            results = list(found) if primitive.multiple_results else [found]
            rule = RULES.get(primitive)
            return (state if rule is None else rule(state, self.enabled, eqn, operands, results)), results
        if own_rule := RULED.get(primitive):
            return self.ruled(eqn, operands, state, *own_rule)
        if primitive in CALLS:
            return self.run(params[CALLS[primitive]], operands, state)
        if primitive is shard_map_p:
            return self.mapped(eqn, operands, state)
        forms = {Control.SCAN: self.scan, Control.WHILE: self.while_loop, Control.COND: self.cond}
        form = forms.get(primitive.control)  # type: ignore[arg-type]
        if form is None:
            raise UnsupportedError(
                f"checkify cannot look into {primitive.name} ({eqn.source.short}); checkify the function that it maps"
            )
        return form(eqn, operands, state)

    def check(self, operands: list[Any], state: State, table: Table, **params: Any) -> State:
        """The state after an error that the user has made, whose codes get numbers of this program."""
        if FailedCheckError not in self.enabled:
            return state
        code, *payload = operands
        base = len(self.codes.entries)
        for entry in table.entries:
            self.codes.new(entry)
        for kind in (*table.kinds, ()):
            of_kind = [entry.kind == kind for entry in table.entries]
            if any(of_kind):
                chosen = fnp.asarray(np.array([False, *of_kind]))[code]
                arrays = payload[table.place(kind)] if kind else ()
                state = state.failing(fnp.where(chosen, code + np.int32(base), np.int32(0)), kind, arrays)
        return state

    def ruled(
        self, eqn: Eqn, operands: list[Any], state: State, param: str, with_state: Callable[[Any, int], Any]
    ) -> tuple[State, list[Any]]:
        """A call of a function that brings its own derivative, under which no checks are made: the state passes it by."""
        graph, count = eqn.params["call_jaxpr"], len(state.arrays)

        def function(*inputs: Any) -> list[Any]:
            state, results = self.run(graph, inputs[:-count], State(self.codes, inputs[-count:]))
            return [*results, *state.arrays]

        params = {**eqn.params, "call_jaxpr": function, param: with_state(eqn.params[param], count)}
        found = eqn.primitive.bind(*operands, *state.arrays, **params)
        return State(self.codes, tuple(found[-count:])), list(found[:-count])

    def body(self, graph: Graph, before: int, after: int) -> Graph:
        """A body that takes the state behind its first `before` inputs, and gives it behind `after` results."""
        count = len(self.codes.avals())

        def function(*inputs: Any) -> list[Any]:
            state = State(self.codes, inputs[before : before + count])
            state, results = self.run(graph, [*inputs[:before], *inputs[before + count :]], state)
            return [*results[:after], *state.arrays, *results[after:]]

        avals = graph.in_avals
        return stage(function, [*avals[:before], *self.codes.avals(), *avals[before:]], graph.name)

    def scan(self, eqn: Eqn, operands: list[Any], state: State) -> tuple[State, list[Any]]:
        params, count = eqn.params, len(state.arrays)
        carry, place = params["num_carry"], params["num_consts"] + params["num_carry"]
        body, own = close(self.body(params["jaxpr"], place, carry))
        arguments = [*own, *operands[:place], *state.arrays, *operands[place:]]
        params = {**params, "jaxpr": body, "num_carry": carry + count, "num_consts": params["num_consts"] + len(own)}
        found = eqn.primitive.bind(*arguments, **params)
        return State(self.codes, tuple(found[carry : carry + count])), [*found[:carry], *found[carry + count :]]

    def cond(self, eqn: Eqn, operands: list[Any], state: State) -> tuple[State, list[Any]]:
        index, *rest = operands
        bodies = [close(self.body(b, len(rest), len(b.outvars))) for b in eqn.params["branches"]]
        consts = [c for _, own in bodies for c in own]
        graphs, place = [], 0
        for graph, own in bodies:
            graphs.append(_taking(graph, len(own), place, [type_of(c) for c in consts]))
            place += len(own)
        params = {**eqn.params, "branches": tuple(graphs)}
        found = eqn.primitive.bind(index, *consts, *rest, *state.arrays, **params)
        split = len(found) - len(state.arrays)
        return State(self.codes, tuple(found[split:])), list(found[:split])

    def mapped(self, eqn: Eqn, operands: list[Any], state: State) -> tuple[State, list[Any]]:
        """Each device begins with the state, and gives its own; that of the first device in which something went wrong counts."""
        params, graph, avals = eqn.params, eqn.params["jaxpr"], self.codes.avals()
        layout, count = Layout(params["mesh"], params["manual_axes"], params["check_vma"]), len(operands)
        axes = tuple(layout.manual_axes)

        def function(*inputs: Any) -> list[Any]:
            begun = [pvary(a, axes) if layout.check_vma else a for a in inputs[count:]]
            state, results = self.run(graph, inputs[:count], State(self.codes, tuple(begun)))
            return [*results, *(a[None] for a in state.arrays)]

        with layout.scope():
            body, own = close(stage(function, [*graph.in_avals, *avals], graph.name))
        same = [whole(a.ndim) for a in avals]
        found = eqn.primitive.bind(*own, *operands, *state.arrays, **{
            **params,
            "jaxpr": body,
            "in_specs": (*(whole(type_of(c).ndim) for c in own), *params["in_specs"], *same),
            "out_specs": (*params["out_specs"], *((axes, *spec) for spec in same)),
        })  # fmt: skip
        split = len(found) - len(avals)
        return state.gathered(found[split:], 1), list(found[:split])

    def while_loop(self, eqn: Eqn, operands: list[Any], state: State) -> tuple[State, list[Any]]:
        """The loop with the predicate and the state among what it carries: what the predicate checks is checked in the body.

        Where the predicate has a shape, the state has it too, as what a loop carries has a part for each lane.
        """
        params = eqn.params
        of_test, test, of_body, body = (params[k] for k in ("cond_nconsts", "cond_jaxpr", "body_nconsts", "body_jaxpr"))
        [lanes] = test.out_avals
        consts, count, rank = of_test + of_body, len(state.arrays), len(lanes.shape)

        def going(test_consts: Sequence[Any], carry: Sequence[Any], state: State) -> list[Any]:
            state, [predicate] = self.run(test, [*test_consts, *carry], state)
            return [predicate, *state.spread(lanes.shape)]

        def function(*inputs: Any) -> list[Any]:
            arrays, carry = inputs[consts + 1 : consts + 1 + count], inputs[consts + 1 + count :]
            now = state.gathered(arrays, rank)
            now, results = self.run(body, [*inputs[of_test:consts], *carry], now)
            return [*going(inputs[:of_test], results, now), *results]

        spread = [a.update(shape=(*lanes.shape, *a.shape)) for a in self.codes.avals()]
        carried = [lanes, *spread, *body.out_avals]
        avals = [*test.in_avals[:of_test], *body.in_avals[:of_body], *carried]
        loop, own = close(stage(function, avals, body.name))
        first = going(operands[:of_test], operands[consts:], state)
        found = eqn.primitive.bind(
            *own, *operands[:consts], *first, *operands[consts:],
            cond_nconsts=0, cond_jaxpr=stage(lambda predicate, *rest: [predicate], carried, test.name),
            body_nconsts=len(own) + consts, body_jaxpr=loop,
        )  # fmt: skip
        return state.gathered(found[1 : 1 + count], rank), list(found[1 + count :])


def _taking(graph: Graph, own: int, place: int, avals: Sequence[ArrayType]) -> Graph:
    """The graph with constants of all `avals` first, of which its own stand at `place`."""
    shared = [Var(a) for a in avals]
    shared[place : place + own] = graph.invars[:own]
    return replace(graph, invars=(*shared, *graph.invars[own:]))


# What a program says itself.


def check(pred: Any, msg: str, *fmt_args: Any, debug: bool = False, **fmt_kwargs: Any) -> None:
    """Say that `pred`, a scalar, must hold, with a message for `str.format` that may name arrays.

    JaxRuntimeError where it does not and values are known; within compiled programs it must be collected by `checkify`, else
    they are refused: ValueError. With `debug` it is left out where nothing collects it. TypeError for another predicate.
    """
    if not tree.structure(pred).is_leaf() or not hasattr(as_value(pred, "check"), "dtype"):
        raise TypeError(f"check takes a boolean scalar, got {pred}")
    value = as_value(pred, "check")
    if value.shape != () or value.dtype != np.bool_:
        raise TypeError(f"check takes a scalar pred as argument, got {pred}")
    for leaf in tree.leaves((fmt_args, fmt_kwargs)):
        if not hasattr(leaf, "dtype") and not isinstance(leaf, (bool, int, float, complex)):
            raise TypeError(
                f"Formatting arguments to checkify.check need to be PyTrees of arrays, but got {leaf!r} of type {type(leaf)}."
            )
    leaves, structure = tree.flatten((fmt_args, fmt_kwargs))
    payload = [as_value(leaf, "check") for leaf in leaves]
    kind = tuple(ArrayType(p.shape, p.dtype) for p in payload)
    entry = Entry(FailedCheckError, kind, (msg, structure), current_source().short)
    table = Table((entry,), (kind,) if kind else ())
    otherwise = "ignore" if debug else "refuse"
    check_p.bind(fnp.where(value, np.int32(0), np.int32(1)), *payload, table=table, otherwise=otherwise)


def debug_check(pred: Any, msg: str, *fmt_args: Any, **fmt_kwargs: Any) -> None:
    """As `check`, but left out of programs that nothing checks."""
    check(pred, msg, *fmt_args, debug=True, **fmt_kwargs)


def error_if(x: Any, pred: Any, msg: str) -> Any:
    """`x`, a tree, if no element of `pred` is true; else JaxRuntimeError, a ValueError, in compiled programs too while they run.

    Under jit, loops, branches, vmap and derivatives; what holds costs a branch, under vmap a call of Python. A `checkify` around
    collects it as a `check`.
    """
    failed = fnp.any(fnp.asarray(pred, np.bool_))
    table = Table((Entry(FailedCheckError, (), (msg, tree.structure(((), {}))), current_source().short),))
    code = fnp.where(failed, np.int32(1), np.int32(0))

    def fail(code: Any) -> None:
        check_p.bind(code, table=table, otherwise="raise")

    cond(failed, fail, lambda code: None, code)
    return x


def check_error(error: Error) -> None:
    """Raise what an Error says: JaxRuntimeError; in a program that is traced, for a `checkify` around to collect."""
    if not isinstance(error, Error):
        raise ValueError(f"check_error takes an Error as argument, got type {type(error)} instead.")
    table = error._table
    if not table.entries:
        return
    code = fnp.asarray(error._code)
    arrays = [code, *map(fnp.asarray, error._payload)]
    if code.ndim:
        _batched(arrays, code.ndim, table=table, otherwise="refuse")
    else:
        check_p.bind(*arrays, table=table, otherwise="refuse")


def _batched(arrays: Sequence[Any], rank: int = 1, **params: Any) -> None:
    """The check of arrays with leading dimensions: the first element that fails is what fails."""
    codes = Codes(params["table"].kinds)
    check_p.bind(*State(codes, ()).gathered(arrays, rank).arrays, **params)


def _raised(arrays: Sequence[Any], table: Table, **params: Any) -> None:
    found = Error(arrays[0], arrays[1:], table).get_exception()
    if found is not None:
        error = JaxRuntimeError(str(found))
        for note in getattr(found, "__notes__", ()):  # the user's line
            error.add_note(note)
        raise error from found


Raising.raised, Raising.batched = staticmethod(_raised), staticmethod(_batched)
E.thrower.append(check_error)
