"""`jvp`, `vjp`, `linearize` and `linear_transpose`: derivatives as linear functions.

The functions that come back are pytrees whose leaves are the residuals, so they pass through jit and other transforms.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser.errors import TypeRuleError
from fuser.frames import hide
from fuser.ir.evaluate import evaluate
from fuser.ir.graph import Eqn
from fuser.ir.references import Window, whole
from fuser.ir.source import current_source
from fuser.ir.types import ArrayType, float0, is_inexact
from fuser.lax.values import as_value
from fuser.ops.dynamic import dynamic_slice_p
from fuser.ops.movement import slice_p
from fuser.ops.state import addupdate_p
from fuser.trace import jvp as forward
from fuser.trace import tree
from fuser.trace.cells import is_ref
from fuser.trace.core import type_of
from fuser.trace.linearize import Linearized
from fuser.trace.linearize import linearize as linearized
from fuser.trace.python_numbers import all_as_given
from fuser.trace.tangent import Undefined, Zero, differentiable
from fuser.trace.transpose import transposed
from fuser.transforms.arguments import Flat, check_callable, cotangent_values, dense, flat, name_of, refuse_axes


def jvp(fun: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False) -> Any:
    """`fun(*primals)` and its derivative along `tangents`, which have the trees and types of `primals` (float0 for integers).

    Gives `(result, tangent)`, with `has_aux` `(result, tangent, aux)`. TypeError where trees or types differ.
    """
    check_callable(fun, "jvp")
    for values in (primals, tangents):
        if not isinstance(values, (tuple, list)):
            raise TypeError(
                f"jvp takes primals and tangents as tuples or lists, got {type(primals).__name__} and {type(tangents).__name__} ({current_source().short})"
            )
    given, structure = tree.flatten(tangents)
    if structure != (wanted := tree.structure(primals)):
        raise TypeError(
            "primal and tangent arguments to jax.jvp must have the same tree structure; "
            f"got tangents {structure} for primals {wanted} ({current_source().short})"
        )
    function, leaves = flat(fun, tuple(primals), {}, range(len(primals)), has_aux)
    for primal, tangent in zip(leaves, given):
        _check_tangent(type_of(primal), tangent)
    what = f"primal and tangent arguments to jax.jvp do not match. The tangent of {name_of(fun)}"
    if any(np.shape(t) != type_of(p).shape for p, t in zip(leaves, given)):
        what = f"jvp called with different primal and tangent shapes: {what}"
    values = cotangent_values(given, [type_of(v) for v in leaves], what)
    try:
        outs, out_tangents = forward.jvp(function, leaves, values)
    except Exception as error:
        raise hide(error)  # noqa: B904
    result = (function.results(outs), function.results(dense(out_tangents)))
    return (*result, function.aux(outs)) if has_aux else result


def _check_tangent(aval: ArrayType, tangent: Any) -> None:
    dtype = getattr(tangent, "dtype", None)
    if not differentiable(aval) and not is_ref(tangent) and (dtype is None or dtype.kind != "V"):
        raise TypeError(
            f"jvp of {aval} needs a tangent of dtype float0, got {dtype or type(tangent).__name__}; "
            f"pass numpy.zeros(shape, fuser.dtypes.float0), or make the input a float ({current_source().short})"
        )
    if differentiable(aval) and isinstance(tangent, int):
        raise TypeError(f"jvp of {aval} needs a tangent of the same dtype, got a Python int ({current_source().short})")


def _consistent(tangent: Any, aval: ArrayType) -> None:
    """ValueError for a tangent that is not of the type of its primal's tangents."""
    dtype = aval.dtype if is_inexact(aval.dtype) else float0
    found = (
        ArrayType(np.shape(tangent), float0)
        if getattr(tangent, "dtype", None) == float0
        else type_of(as_value(tangent))
    )
    if extra := found.vma - aval.vma:
        raise ValueError(
            f"linearized function called on a tangent that varies along {', '.join(map(repr, sorted(extra, key=str)))} of the mesh, and its "
            f"primal value does not. This might be fixed by applying `jax.lax.pcast(..., {tuple(sorted(extra, key=str))}, to='varying')` "
            f"to the primal value passed to `jax.linearize` ({current_source().short})"
        )
    if found.shape != aval.shape or found.dtype != dtype:
        raise ValueError(
            "linearized function called on tangent values inconsistent with the original primal values: got tangent aval "
            f"{found.str_long()} for primal aval {aval.str_long()} but expected {aval.update(dtype=dtype).str_long()} "
            f"({current_source().short})"
        )


class GradValue:
    """Stands for an argument whose cotangent `with_refs` gives."""


class DontWant:
    """Stands for an argument whose cotangent `with_refs` does not give."""


class NotNeeded:
    """Stands among residuals for an argument that the derivative does not need."""

    def __repr__(self) -> str:
        return "NotNeeded"


tree.register_pytree_node(NotNeeded, lambda x: ((), None), lambda aux, children: NotNeeded())


@tree.register_pytree_node_class
class LinearFunction:
    """A linear function of tangents or cotangents; its residuals are its leaves.

    `args_res` holds, for each argument, the residuals that are the argument itself, and NotNeeded; `opaque_residuals` the
    others. Both are lists that may be written: what the caller keeps anyway can be taken out, and put back for a call.
    """

    def __init__(
        self,
        linear: Linearized,
        function: Flat,
        outs: Sequence[ArrayType],
        backwards: bool,
        sources: tuple[int, ...],
        args_res: list[Any],
        opaque_residuals: list[Any],
    ) -> None:
        self._linear = linear
        self.function = function
        self.outs = outs
        self.backwards = backwards
        self.args_res, self.opaque_residuals = args_res, opaque_residuals
        self._sources = sources  # for each residual, the number of the argument's leaf that it is, or -1
        self.__name__ = f"{'pullback' if backwards else 'pushforward'} of {name_of(function.function)}"

    @classmethod
    def of(
        cls, linear: Linearized, function: Flat, outs: Sequence[ArrayType], backwards: bool, leaves: Sequence[Any]
    ) -> LinearFunction:
        """The derivative at arguments with these leaves."""
        numbers = {id(leaf): n for n, leaf in enumerate(leaves)}
        consts = linear.graph.consts
        sources = tuple(numbers.get(id(c), -1) for c in consts)
        own: list[Any] = [leaf if n in sources else NotNeeded() for n, leaf in enumerate(leaves)]
        opaque = [c for c, source in zip(consts, sources) if source < 0]
        function.result, function.plain = None, {}
        # The tree of a derivative outlives its leaves, in the caches of jit: it holds no residual.
        graph = linear.graph.updated("residuals apart", consts=(None,) * len(consts))
        linear = Linearized(graph, linear.avals, linear.inputs, linear.outputs)
        return cls(linear, function, outs, backwards, sources, list(tree.unflatten(function.in_tree, own)), opaque)

    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        aux = (self._linear, self.function, tuple(self.outs), self.backwards, self._sources)
        return (self.args_res, self.opaque_residuals), aux

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> LinearFunction:
        return cls(*aux, *children)

    @property
    def linear(self) -> Linearized:
        """The derivative with its residuals in place."""
        linear, opaque = self._linear, iter(self.opaque_residuals)
        given = self.function.in_tree.flatten_up_to(tuple(self.args_res))
        consts = tuple(next(opaque) if n < 0 else as_value(given[n], self.__name__) for n in self._sources)
        graph = linear.graph.updated("residuals", consts=consts)
        return Linearized(graph, linear.avals, linear.inputs, linear.outputs)

    @property
    def func(self) -> Callable[..., Any]:
        """The function of the residuals and its argument, as a `Partial` has it; its own first argument is the graph."""
        return functools.partial(LinearFunction._of_graph, self.linear.graph)

    @property
    def args(self) -> tuple[Any, ...]:
        """The residuals."""
        return tuple(self.linear.graph.consts)

    @property
    def keywords(self) -> dict[str, Any]:
        """None."""
        return {}

    @staticmethod
    def _of_graph(graph: Any, *values: Any) -> Any:
        return evaluate(graph, values)

    def __call__(self, *values: Any) -> Any:
        return self._pull(*values) if self.backwards else self._push(*values)

    def with_refs(self, *accumulators: Any) -> Callable[..., Any]:
        """The pullback that adds cotangents to Refs, in place, and gives None for them.

        `accumulators` has the tree of the arguments: for each a Ref of its type, `GradValue()` for a cotangent that is given, or
        `DontWant()` for one that is not. ValueError for another tree, and Refs of other types.
        """
        given, structure = tree.flatten(accumulators)
        if structure != self.function.in_tree:
            raise ValueError(
                "unexpected tree structure in the arguments to a VJP function's `with_refs` method: it needs one entry for each argument, "
                f"{self.function.in_tree}, got {structure} ({current_source().short})"
            )
        for ref, aval in zip(given, self._linear.avals):
            if is_ref(ref) and (ref.shape, ref.dtype) != (aval.shape, aval.dtype):
                raise ValueError(
                    f"unexpected JAX type (e.g. shape/dtype) for gradient ref passed to the VJP function's `with_refs` method: the given "
                    f"ref has type {type_of(ref)}, but this argument's gradient is {aval} ({current_source().short})"
                )

        def sliced(number: int, eqn: Eqn, cotangent: Any, operand: Callable[[Any], Any]) -> bool:
            """Adds the cotangent of a slice of an argument to that part of its Ref."""
            ref = given[number]
            if not is_ref(ref) or eqn.primitive not in (slice_p, dynamic_slice_p):
                return False
            if eqn.primitive is slice_p:
                params = (eqn.params["start_indices"], cotangent.shape, eqn.params["strides"] or (1,) * cotangent.ndim)
                addupdate_p.bind(ref, cotangent, index=tuple(map(Window, *params)))
            else:
                starts = [operand(v) for v in eqn.invars[1:]]
                addupdate_p.bind(ref, cotangent, *starts, index=tuple(Window(None, e) for e in cotangent.shape))
            return True

        def pull(*cotangents: Any) -> Any:
            results = self.function.in_tree.flatten_up_to(self._pull(*cotangents, taken=sliced))
            for ref, result in zip(given, results):
                if is_ref(ref) and type(result) is not Zero:
                    addupdate_p.bind(ref, result, index=whole(ref.shape))
            kept = [None if is_ref(a) or isinstance(a, DontWant) else dense([r])[0] for a, r in zip(given, results)]
            return tree.unflatten(self.function.in_tree, kept)

        return pull

    def _push(self, *tangents: Any) -> Any:
        given, structure = tree.flatten(tangents)
        if structure != self.function.in_tree:
            raise TypeError(
                f"the {self.__name__} needs tangents with the tree {self.function.in_tree}, got {structure} ({current_source().short})"
            )
        for leaf, aval in zip(given, self._linear.avals):
            _consistent(leaf, aval)
        values = cotangent_values(given, self._linear.avals, f"the {self.__name__}")
        return tree.unflatten(self.function.out_tree, all_as_given(dense(self.linear.pushforward(values))))

    def _pull(self, *cotangents: Any, taken: Any = None) -> Any:
        """The cotangents; with `taken` those that it has all of are `Zero`."""
        if len(cotangents) != 1:
            raise TypeError(
                f"{name_of(self.function.function)} was called with {len(cotangents)} arguments, but the {self.__name__} takes one, "
                f"the tree of cotangents ({current_source().short})"
            )
        given, structure = tree.flatten(cotangents[0])
        if structure != self.function.out_tree:
            raise ValueError(
                f"the {self.__name__} needs a cotangent with the tree of the result, {self.function.out_tree}, got {structure} ({current_source().short})"
            )
        what = f"unexpected JAX type (e.g. shape/dtype) for argument to vjp function: the {self.__name__}"
        values = cotangent_values(given, self.outs, what)
        found = self.linear.pullback(values, taken=taken)
        if taken is not None:
            return self.function.in_tree.unflatten(found)
        return tree.unflatten(self.function.in_tree, all_as_given(dense(found)))


def _linear(fun: Callable[..., Any], primals: Sequence[Any], has_aux: bool, backwards: bool, transform: str) -> Any:
    check_callable(fun, transform)
    function, leaves = flat(fun, primals, {}, range(len(primals)), has_aux)
    try:
        outs, linear = linearized(
            function, leaves, lambda: function.count, "grad" if backwards else "jvp", not backwards
        )
    except Exception as error:
        raise hide(error)  # noqa: B904
    derivative = LinearFunction.of(linear, function, [type_of(o) for o in outs[: function.count]], backwards, leaves)
    result = (function.results(outs), derivative)
    return (*result, function.aux(outs)) if has_aux else result


def vjp(fun: Callable[..., Any], *primals: Any, has_aux: bool = False, reduce_axes: Any = ()) -> Any:
    """`fun(*primals)` and its pullback: cotangents of the result (its tree and types) to a tuple of cotangents of `primals`.

    Gives `(result, pullback)`, with `has_aux` `(result, pullback, aux)`. The pullback may be called any number of times.
    """
    refuse_axes(reduce_axes, "vjp")
    return _linear(fun, primals, has_aux, True, "vjp")


def linearize(fun: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """`fun(*primals)` and its pushforward there: tangents of `primals` to the tangent of the result.

    The function is evaluated once; each call of the pushforward costs its linear part alone.
    """
    return _linear(fun, primals, has_aux, False, "linearize")


def linear_transpose(fun: Callable[..., Any], *primals: Any, reduce_axes: Any = ()) -> Callable[..., Any]:
    """The transpose of `fun`, which must be linear in `primals`, whose values are not used: arrays or types will do.

    The function takes a cotangent of the result and gives a tuple of cotangents of `primals`.
    """
    check_callable(fun, "linear_transpose")
    given, in_tree = tree.flatten(tuple(primals))
    avals = [
        ArrayType(tuple(leaf.shape), leaf.dtype) if hasattr(leaf, "shape") else type_of(as_value(leaf))
        for leaf in given
    ]
    function = Flat(fun, tuple(primals), {}, range(len(primals)), in_tree)
    if not all(differentiable(a) for a in avals):
        raise TypeError(
            "linear_transpose only supports inputs of float or complex dtype, or of integers to integers, "
            f"got {', '.join(map(str, avals))} ({current_source().short})"
        )

    return _Transpose(fun, function, in_tree, avals)


class _Transpose:
    """The transpose of a linear function: a tree without leaves, so that jit takes and gives it."""

    def __init__(self, fun: Callable[..., Any], function: Flat, in_tree: Any, avals: Sequence[ArrayType]) -> None:
        self.fun, self.function, self.in_tree, self.avals = fun, function, in_tree, avals

    def __call__(self, cotangent: Any) -> Any:
        fun, function = self.fun, self.function
        values, structure = tree.flatten(cotangent)

        def checked(*inputs: Any) -> list[Any]:
            outs = function(*inputs)
            if structure != function.out_tree:
                raise TypeRuleError(
                    f"cotangent tree does not match function output: the transpose of {name_of(fun)} needs {function.out_tree}, got "
                    f"{structure} ({current_source().short})"
                )
            try:
                values[:] = cotangent_values(values, [type_of(o) for o in outs], f"the transpose of {name_of(fun)}")
            except TypeRuleError as error:
                raise TypeRuleError(f"cotangent type does not match function output: {error}") from None
            return outs

        results = transposed(checked, [Undefined(a) for a in self.avals], values)
        return tree.unflatten(self.in_tree, dense(results))


tree.register_pytree_node(_Transpose, lambda x: ((), x), lambda x, _: x)
