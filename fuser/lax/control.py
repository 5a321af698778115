"""Control flow with jax.lax's names: cond, switch, while_loop, fori_loop, scan, map and associative_scan.

Bodies are staged to closed Graphs; what they close over becomes operands. Carries that start as Python scalars take the
dtype that the body gives them. Loops over static bounds are scans, which can be differentiated in reverse.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser.config import config
from fuser.errors import ConcretizationTypeError
from fuser.ir.graph import has_effects
from fuser.ir.names import function_name
from fuser.ir.source import current_source
from fuser.ir.types import BOOL, ArrayType
from fuser.lax import carries
from fuser.lax.elementwise import add, clamp, convert_element_type, lt, ne
from fuser.lax.movement import concatenate
from fuser.lax.slicing import slice_in_dim
from fuser.lax.values import as_value, literal, python_scalar
from fuser.ops.control import cond_p, row_type, scan_p, while_p
from fuser.trace import body, tree
from fuser.trace.aliases import check_arguments
from fuser.trace.body import Body
from fuser.trace.core import Tracer, bind, type_of

_ABSENT = object()
_INT32 = np.dtype("int32")


def _values(trees: Any, function: str) -> tuple[list[Any], Any]:
    """The leaves of a tree as arrays and tracers, and its structure."""
    leaves, structure = tree.flatten(trees)
    return [as_value(leaf, function) for leaf in leaves], structure


def _where() -> str:
    return current_source().short


def _callable(function: str, role: str, given: Any) -> None:
    if not callable(given):
        raise TypeError(f"{function} takes a function as {role}, got a {type(given).__name__} ({_where()})")


# Branches


def cond(pred: Any, true_fun: Any, false_fun: Any, *operands: Any, operand: Any = _ABSENT) -> Any:
    """`true_fun(*operands)` where `pred` is true (or a number other than 0), else `false_fun(*operands)`.

    Both are traced, one runs; under vmap with a batched `pred` both run and the results are selected. They must return
    the same tree of the same types. TypeError where `pred` is no scalar, or the results differ.
    """
    if not (callable(true_fun) and callable(false_fun)):
        if callable(false_fun) and len(operands) == 2 and callable(operands[1]):
            on_true, on_false = false_fun, operands[1]
            return cond(pred, lambda x, _: on_true(x), lambda _, x: on_false(x), true_fun, operands[0])
        _callable("cond", "true_fun", true_fun)
        _callable("cond", "false_fun", false_fun)
    operands = _operands("cond", operands, operand)
    if pred is None:
        raise TypeError(f"cond predicate is None ({_where()}); pass a bool")
    if isinstance(pred, (str, Sequence)):
        raise TypeError(f"cond takes a scalar predicate, got a {type(pred).__name__} ({_where()}); pass a bool")
    pred = as_value(pred, "cond")
    if pred.shape:
        raise TypeError(
            f"cond takes a scalar predicate, got {type_of(pred)} ({_where()}); use fuser.numpy.where for a choice by element"
        )
    if pred.dtype != BOOL:
        if pred.dtype.kind in "cO":
            raise TypeError(f"cond takes a bool or a real number as predicate, got {type_of(pred)} ({_where()})")
        pred = ne(pred, literal(0, pred.dtype))
    index = convert_element_type(pred, _INT32)
    return _branch("cond", index, (false_fun, true_fun), ("false_fun", "true_fun"), operands, first=1)


def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any, operand: Any = _ABSENT) -> Any:
    """`branches[index](*operands)`, with `index` clamped into the sequence; see `cond`."""
    branches = tuple(branches)
    for branch in branches:
        _callable("switch", "a branch", branch)
    operands = _operands("switch", operands, operand)
    index = as_value(index, "switch")
    if index.shape:
        raise TypeError(f"switch takes a scalar index, got {type_of(index)} ({_where()})")
    if index.dtype.kind not in "iu":
        raise TypeError(f"switch takes an integer as index, got {type_of(index)} ({_where()}); convert it first")
    if not branches:
        raise ValueError(f"switch got no branches ({_where()}); pass at least one function")
    if len(branches) == 1:
        return branches[0](*operands)
    index = clamp(literal(0, _INT32), convert_element_type(index, _INT32), literal(len(branches) - 1, _INT32))
    return _branch("switch", index, branches, tuple(f"branch {n}" for n in range(len(branches))), operands)


def _operands(function: str, operands: tuple[Any, ...], operand: Any) -> tuple[Any, ...]:
    if operand is _ABSENT:
        return operands
    if operands:
        raise TypeError(
            f"{function} got operands both by position and by the keyword operand ({_where()}); use one way"
        )
    return (operand,)


def _branch(
    function: str, index: Any, branches: Sequence[Any], names: Sequence[str], operands: Any, first: int = 0
) -> Any:
    values, structure = _values(operands, function)
    avals = [type_of(v) for v in values]
    order = (first, *(n for n in range(len(branches)) if n != first))
    check_arguments(branches[first], function, (operands, {}))
    staged = {n: _staged(branches[n], structure, avals, what=function) for n in order}
    for n in order:
        check_arguments(branches[n], function, (operands, {}), staged[n].consts)
    for n in order[1:]:
        carries.same_branches(function, names[first], staged[first], names[n], staged[n])
    chosen = type_of(index).vma
    staged = {n: carries.apart(branch, chosen) for n, branch in staged.items()}
    types = [staged[n].out_avals for n in range(len(branches))]
    wanted = [chosen.union(*(a.vma for a in each)) for each in zip(*types)]
    staged = {n: carries.widened(branch, wanted) for n, branch in staged.items()}
    graphs, consts = body.with_consts([(staged[n].graph, staged[n].consts) for n in range(len(branches))])
    forwarded = [staged[n].forwarded() for n in range(len(branches))]
    passed = [ways[0] if len(set(ways)) == 1 else None for ways in zip(*forwarded)]
    kept = [n for n, source in enumerate(passed) if source is None]
    results: Any = []
    if kept or any(has_effects(graph) for graph in graphs):
        closed = tuple(body.pick(graph, outputs=kept) for graph in graphs)
        results = bind(cond_p, index, *(carries.varying(v, chosen) for v in (*consts, *values)), branches=closed)
    found = iter(results)
    return tree.unflatten(staged[first].structure, [next(found) if n is None else values[n] for n in passed])


def _staged(
    function: Callable[..., Any],
    structure: Any,
    avals: Sequence[ArrayType],
    owner: Callable[..., Any] | None = None,
    kind: str = "",
    what: str = "control flow",
) -> Body:
    name = function_name(owner or function)

    def convert(leaves: list[Any], result: Any) -> list[Any]:
        return [carries.result_value(leaf, n, result, name) for n, leaf in enumerate(leaves)]

    return body.staged_body(function, structure, avals, convert, owner, kind, config.enable_x64, what=what)


# Loops


def while_loop(cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init_val: Any) -> Any:
    """The carry after `carry = body_fun(carry)` for as long as `cond_fun(carry)`, starting from `init_val`.

    The carry keeps its tree, shapes and dtypes. It can be differentiated forwards, not in reverse.
    """
    return _while(cond_fun, body_fun, init_val, "while_loop", body_fun, (init_val,))


def _while(
    cond_fun: Any, body_fun: Any, init_val: Any, function: str, owner: Any, given: tuple[Any, ...], kind: str = ""
) -> Any:
    """`given`: what the user's function `owner` takes."""
    _callable(function, "cond_fun", cond_fun)
    _callable(function, "body_fun", body_fun)
    init, structure = _values(init_val, function)
    arguments = tree.structure((init_val,))
    check_arguments(owner, function, (given, {}))

    def stage(avals: list[ArrayType]) -> tuple[Body, Body]:
        test = _staged(cond_fun, arguments, avals, what=function)
        return test, _staged(body_fun, arguments, avals, owner, kind, function)

    avals = [type_of(v) for v in init]
    test, step = stage(avals)
    check_arguments(owner, function, (given, {}), (*test.consts, *step.consts))
    carries.predicate(function, test)
    init, changed = carries.promoted(init, step.out_avals, test.out_avals[0].vma)
    while changed:
        avals = [type_of(v) for v in init]
        test, step = stage(avals)
        carries.predicate(function, test)
        init, changed = carries.promoted(init, step.out_avals, test.out_avals[0].vma)
    carries.same_carry(function, owner, structure, init_val, avals, step, step.out_avals, kind)
    step = carries.widened(step, [a.vma for a in avals])
    fixed = _unread(test, step)
    moving = [n for n in range(len(init)) if n not in fixed]
    graph, cond_graph = step.graph, test.graph
    consts, first, test_first = len(step.consts), len(step.consts), len(test.consts)
    graph = body.pick(graph, [*(first + n for n in fixed), *range(consts), *(first + n for n in moving)], moving)
    cond_graph = body.pick(cond_graph, [*range(test_first), *(test_first + n for n in moving)])
    results: Any = []
    if moving or has_effects(graph):
        results = bind(
            while_p,
            *test.consts,
            *(init[n] for n in fixed),
            *step.consts,
            *(init[n] for n in moving),
            cond_nconsts=test_first,
            cond_jaxpr=cond_graph,
            body_nconsts=len(fixed) + consts,
            body_jaxpr=graph,
        )
    found = dict(zip(moving, results))
    return tree.unflatten(structure, [found.get(n, value) for n, value in enumerate(init)])


def _unread(test: Body, step: Body) -> list[int]:
    """The parts of the carry that the body hands on unchanged and the predicate does not read: they are constants."""
    used = body.reads(test.graph)
    inputs = test.graph.invars[len(test.consts) :]
    fixed = [n for n, source in enumerate(step.forwarded()) if source == n and inputs[n] not in used]
    return fixed if len(fixed) < len(inputs) else fixed[:-1]


def fori_loop(lower: Any, upper: Any, body_fun: Callable[[Any, Any], Any], init_val: Any, *, unroll: Any = None) -> Any:
    """The carry after `carry = body_fun(i, carry)` for each i from `lower` to `upper` - 1, starting from `init_val`.

    Bounds known while tracing make a scan, which can be differentiated in reverse; traced bounds make a while loop,
    which takes no `unroll`.
    """
    _callable("fori_loop", "body_fun", body_fun)
    low, high = as_value(lower, "fori_loop"), as_value(upper, "fori_loop")
    dtype = _bounds_dtype(low, high)
    if not isinstance(low, Tracer) and not isinstance(high, Tracer) and not low.shape and not high.shape:
        start, stop = int(low), int(high)
        step = lambda carry, _: ((carry[0] + 1, body_fun(carry[0], carry[1])), None)
        length = max(stop - start, 0)
        return _scan(
            step, (start, init_val), None, length, False, unroll or 1, "fori_loop", body_fun, (start, init_val), "scan"
        )[0][1]
    if unroll not in (None, False, 1):
        raise ValueError(
            f"Can only use `unroll` in `fori_loop` where its bounds are known, got traced ones ({_where()}); "
            "pass Python integers, or leave unroll out"
        )
    low, high = convert_element_type(low, dtype), convert_element_type(high, dtype)
    walk = lambda carry: (add(carry[0], literal(1, dtype)), carry[1], body_fun(carry[0], carry[2]))
    return _while(_before_end, walk, (low, high, init_val), "fori_loop", body_fun, (low, init_val), "while")[2]


def _before_end(carry: Any) -> Any:
    return lt(carry[0], carry[1])


def _bounds_dtype(low: Any, high: Any) -> np.dtype:
    """The dtype of a loop's counter; TypeError unless the bounds agree or one is a Python integer."""
    if low.dtype == high.dtype:
        return low.dtype  # type: ignore[no-any-return]
    if low.dtype.kind == "i" and high.dtype.kind == "i" and low.weak_type != high.weak_type:
        return high.dtype if low.weak_type else low.dtype  # type: ignore[no-any-return]
    raise TypeError(
        f"fori_loop needs bounds of one dtype, got lower {type_of(low)} and upper {type_of(high)} ({_where()}); "
        "convert one of them first"
    )


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    _split_transpose: bool = False,
) -> tuple[Any, Any]:
    """`carry, y = f(carry, x)` for each x along the first axis of `xs`; the last carry and the stacked ys.

    `xs` and the ys are trees; without `xs`, `length` says how many steps there are. With `reverse` the steps run from
    the end, and ys are stacked where their xs were. The carry keeps its tree, shapes and dtypes.
    """
    return _scan(f, init, xs, length, reverse, unroll, "scan", f, (init, xs))


def _scan(
    f: Any,
    init: Any,
    xs: Any,
    length: Any,
    reverse: bool,
    unroll: Any,
    function: str,
    owner: Any,
    given: tuple[Any, ...],
    kind: str = "",
) -> tuple[Any, Any]:
    """`given`: what the user's function `owner` takes."""
    _callable(function, "body", f)
    check_arguments(owner, function, (given, {}))
    values, structure = _values(init, function)
    walked = [x if python_scalar(x) else as_value(x, function) for x in tree.leaves(xs)]
    steps = _length(walked, length)
    count = _unrolled(unroll, steps)
    for x in walked:
        explicit = type_of(x).explicit
        if explicit is not None and isinstance(explicit.spec.partitions[0], (str, tuple)):
            raise ValueError(
                f"0th dimension of all xs should be replicated. Got {explicit.spec} for an xs of {function} ({_where()}); a loop goes "
                "along it: reshard it"
            )
    rows = [row_type(type_of(x)) for x in walked]
    arguments = tree.structure((init, xs))

    def stage() -> Body:
        return _staged(f, arguments, [*(type_of(v) for v in values), *rows], owner, kind, function)

    step = stage()
    check_arguments(owner, function, (given, {}), step.consts)
    split = _pair(function, step)
    if split.carry == len(values):
        values, changed = carries.promoted(values, step.out_avals[: split.carry])
        while changed:
            step = stage()
            split = _pair(function, step)
            values, changed = carries.promoted(values, step.out_avals[: split.carry])
    avals = [type_of(v) for v in values]
    carries.same_carry(
        function, owner, structure, init, avals, step, step.out_avals[: split.carry], kind, split.structure
    )
    step = carries.widened(step, [a.vma for a in avals])
    carry, ys = _bind_scan(step, values, walked, steps, bool(reverse), count)
    return tree.unflatten(structure, carry), tree.unflatten(split.ys, ys)


def _bind_scan(
    step: Body, init: list[Any], xs: list[Any], length: int, reverse: bool, unroll: int
) -> tuple[list[Any], list[Any]]:
    """The scan with carries that never change made constants, and ys that are xs left out."""
    forwarded = step.forwarded()
    count, consts = len(init), len(step.consts)
    fixed = [n for n in range(count) if forwarded[n] == n]
    moving = [n for n in range(count) if n not in fixed]
    copied = {
        n: source - count for n, source in enumerate(forwarded) if n >= count and source is not None and source >= count
    }
    computed = [n for n in range(count, len(forwarded)) if n not in copied]
    inputs = [*(consts + n for n in fixed), *range(consts), *(consts + n for n in moving)]
    graph = body.pick(step.graph, [*inputs, *range(consts + count, len(step.graph.invars))], [*moving, *computed])
    results: Any = []
    if moving or computed or has_effects(graph):
        results = bind(
            scan_p,
            *(init[n] for n in fixed),
            *step.consts,
            *(init[n] for n in moving),
            *xs,
            jaxpr=graph,
            num_consts=len(fixed) + consts,
            num_carry=len(moving),
            length=length,
            reverse=reverse,
            unroll=unroll,
        )
    found = dict(zip([*moving, *computed], results))
    carry = [found.get(n, init[n]) for n in range(count)]
    return carry, [xs[copied[n]] if n in copied else found[n] for n in range(count, len(forwarded))]


def _pair(function: str, step: Body) -> carries.Pair:
    """The body's result as a carry and ys."""
    pair = carries.pair(step)
    if pair is None:
        raise TypeError(
            f"{function} body output must be a pair, got {carries.in_words(step)}. The body, {step.name}, must return "
            f"(carry, y) ({_where()}); return (carry, None) where there is nothing to stack"
        )
    return pair


def _length(xs: list[Any], length: Any) -> int:
    """The number of steps of a scan."""
    if isinstance(length, Tracer):
        raise ConcretizationTypeError(
            f"The `length` argument to `scan` expects a concrete `int` value, got a traced {length.aval} ({_where()}); "
            "use while_loop or fori_loop for a number of steps that is computed"
        )
    for x in xs:
        if python_scalar(x) or not x.shape:
            found = type(x).__name__ if python_scalar(x) else type_of(x)
            raise ValueError(f"scan got value with no leading axis to scan over: {found} among xs ({_where()})")
    lengths = [x.shape[0] for x in xs]
    if length is not None:
        length = int(length)
        if any(extent != length for extent in lengths):
            raise ValueError(
                f"scan got length={length} and xs with {_extents(lengths)} along the first axis ({_where()}); "
                "leave length out, or pass xs of that length"
            )
        if length < 0:
            raise ValueError(f"scan cannot run {length} steps ({_where()})")
        return length
    if not lengths:
        raise ValueError(
            f"scan got neither xs nor length ({_where()}); pass length= where there is nothing to walk along"
        )
    if len(set(lengths)) > 1:
        raise ValueError(
            f"scan needs xs of one length, got {_extents(lengths)} along the first axis ({_where()}); slice them first"
        )
    return lengths[0]  # type: ignore[no-any-return]


def _extents(lengths: Sequence[int]) -> str:
    texts = list(dict.fromkeys(str(extent) for extent in lengths))
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def _unrolled(unroll: Any, length: int) -> int:
    if isinstance(unroll, (bool, np.bool_)):
        return max(length, 1) if unroll else 1
    count = operator.index(unroll)
    if count < 0:
        raise ValueError(f"unroll is a bool or a number of steps, got {count} ({_where()})")
    return count


def map(f: Callable[[Any], Any], xs: Any, *, batch_size: int | None = None) -> Any:
    """The results of `f` for each x along the first axis of `xs`, stacked; `batch_size` of them at a time under vmap."""
    _callable("map", "f", f)
    step = lambda _, x: ((), f(x))
    if batch_size is None:
        return _scan(step, (), xs, None, False, 1, "map", f, (xs,), "map")[1]
    from fuser.transforms.vmap import vmap

    each = vmap(f)
    leaves, structure = tree.flatten(xs)
    leaves = [as_value(x, "map") for x in leaves]
    length = _length(leaves, None)
    count = length // batch_size if batch_size else 0
    whole = count * batch_size
    stacked = lambda x: slice_in_dim(x, 0, whole).reshape(count, batch_size, *x.shape[1:])
    parts = []
    if count:
        batches = tree.unflatten(structure, [stacked(x) for x in leaves])
        ys = _scan(lambda _, x: ((), each(x)), (), batches, None, False, 1, "map", f, (batches,), "batches")[1]
        parts.append(tree.map(lambda y: y.reshape(-1, *y.shape[2:]), ys))
    if whole < length or not count:
        parts.append(each(tree.unflatten(structure, [slice_in_dim(x, whole, length) for x in leaves])))
    return parts[0] if len(parts) == 1 else tree.map(lambda a, b: concatenate([a, b], 0), *parts)
