"""`accelerate`: functions that people already have, compiled. NumPy arrays in, NumPy arrays out, NumPy's dtypes.

Each signature (shapes, dtypes, memory order, and the values of arguments that are no arrays) is traced once with 64-bit
types on; the stages are those of `jit`. What cannot be traced whole runs in segments, or raises an error with fallback="error".
"""

from __future__ import annotations

import functools
import inspect
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from fuser import backends
from fuser.api.jitted import MOST_SIGNATURES, _merge
from fuser.api.parameters import Typed, both_ways
from fuser.api.pickling import reduced
from fuser.config import config
from fuser.errors import (
    ConcretizationTypeError,
    FuserError,
    NonConcreteBooleanIndexError,
    TypeRuleError,
    UnsupportedError,
)
from fuser.interop import fast_path
from fuser.interop.arguments import (
    KEYS,
    QUICK,
    VALUES,
    admitted,
    dtype_of,
    first_unhashable,
    gather,
    incomparable,
    is_dense,
    is_dynamic,
    is_followed,
    key_of,
    outlined,
)
from fuser.interop.columns import LIBRARYS_OWN, ByColumns, as_arrays, library_of, like_columns, with_columns
from fuser.interop.control.loops import with_control
from fuser.interop.deferred_compilation import Budget, compiled_when_it_pays
from fuser.interop.entries import Run, Signature, callers_level, default_errors, errors_key, reason
from fuser.interop.guards import Reach
from fuser.interop.made_objects import taken_apart
from fuser.interop.numpy import fourier, library, methods
from fuser.interop.numpy.checks import Checks
from fuser.interop.numpy.context import Context, TooManyOperations, supported, untraceable
from fuser.interop.numpy.lazy import LazyArray
from fuser.interop.numpy.module import seen_outside
from fuser.interop.numpy.traced import TracedArray
from fuser.interop.outputs import Output, Owners, computed_value
from fuser.interop.outside import Outside
from fuser.interop.read_only import read_only_arguments, released
from fuser.interop.records import as_parts, has_parts
from fuser.interop.segments import Segments, left_to_numpy, makes_generator, names_any, run_in_segments
from fuser.interop.stages import AcceleratedTraced, Tracing
from fuser.interop.writes import NeedsInput, writes_of
from fuser.ir.types import ArrayType
from fuser.runtime.array import Array
from fuser.runtime.single_flight import once
from fuser.trace import tree
from fuser.trace.core import Tracer
from fuser.trace.stage import stage

assert methods and library and fourier  # importing them puts the operators on TracedArray and functions in the table

FEW_OPERATIONS = 400  # of a trace, beyond which its loops are staged where they can be
MOST_OPERATIONS = 4000  # of a trace, where it may run in segments instead: about ten seconds of compilation
_ndarray = np.ndarray
_TAKEN = (np.ndarray, np.memmap, list, dict)  # types of arguments that a trace takes, or takes apart


class FallbackWarning(UserWarning):
    """An accelerated function is not one program, because it cannot be traced whole."""


UNTRACEABLE = (UnsupportedError, ConcretizationTypeError, NonConcreteBooleanIndexError)  # what segments are for
NOT_WHOLE = object()  # the answer of a function of columns that cannot be traced whole


class Accelerated(fast_path.WithPaths):
    """What `accelerate` returns; see `accelerate`. It has the stages of a jitted function: `.trace`, `.lower`, ..."""

    library = "NumPy"

    def __init__(
        self,
        function: Callable[..., Any],
        static_argnums: tuple[int, ...],
        static_argnames: tuple[str, ...],
        fallback: str,
        backend: str | None,
        measure: bool = False,
    ) -> None:
        super().__init__(function, static_argnums, static_argnames, (), (), False, False, backend)
        self._forget_paths()
        self.fallback = fallback
        self.measure = measure
        self._torch: Accelerated | None = None
        self._warned: set[str] = set()
        self._has_static = bool(static_argnums or static_argnames)
        self._quick: dict[Any, Signature] = {}
        self._plain: set[Any] = set()  # keys as in `_quick`, of signatures that NumPy runs faster
        self._outline: tuple[Any, ...] | None = None  # of the arguments that NumPy answered last because it is faster
        self._segments: list[Segments] = []
        self._unsigned: dict[str, str] = {}  # why calls ran in NumPy whose arguments make no signature
        self._by_columns: ByColumns | None = None
        self._budget = Budget()  # of compiling

    @property
    def cuts(self) -> dict[str, str]:
        """Where calls that ran in segments were cut so far: by line, what needed a value."""
        return {line: cut.why for segments in self._segments for line, cut in segments.cuts.items()}

    @property
    def measuring(self) -> bool:
        """Whether calls of a signature are being timed, by turns, as programs and in NumPy, or run in NumPy until compiling pays."""
        return any(entry.undecided for entry in self._signatures())

    def explain(self) -> str:
        """How each signature that was called is answered: compiled whole, in segments (cut where and why) or by NumPy, and why so."""
        lines = [entry.explain() for entry in self._signatures()]
        lines += [self._by_columns.whole.explain()] if self._by_columns is not None else []
        lines += [f"{self.name}: by NumPy, as {why}" for why in self._unsigned]
        return "\n".join(lines) or f"{self.name} has not been called"

    def _signatures(self) -> list[Signature]:
        return [entry for entry in list(self._entries.values()) if isinstance(entry, Signature)]

    def _answer(self, args: Any, kwargs: Any) -> Any:
        if self._outline is not None and not kwargs and len(args) == len(self._outline):
            for arg, known in zip(args, self._outline):
                kind = type(arg)
                if kind is _ndarray:
                    if arg.size != known:
                        break
                elif arg != known if kind in VALUES else kind is not known:
                    break
            else:
                return self.function(*args)
        if not kwargs and not self._has_static and default_errors():  # plain arguments need no flattening
            quick: Any
            try:
                quick = (config.backend, *[QUICK[type(arg)](arg) for arg in args])
            except KeyError:
                if self._by_columns is not None and any(map(library_of, args)):
                    return self._of_columns(args, kwargs)
                quick = None
            if quick in self._plain:
                return self.function(*args)
            entry = None if quick is None else self._quick.get(quick)
            if entry is None:
                return self._call(args, kwargs, quick)
            path, result = entry.take_path(args), entry(args, args, kwargs)
            if entry.trial is None:
                self._add_path(path)
            return result
        return self._call(args, kwargs)

    def __reduce__(self) -> Any:
        given = (self.static_argnums, self.static_argnames, self.fallback, self.backend, self.measure)
        return reduced(self, Accelerated, *given)

    def clear_cache(self) -> None:
        """Forget every compiled signature."""
        super().clear_cache()
        self._quick.clear()
        self._plain.clear()
        self._outline = None
        self._forget_paths()
        if self._torch is not None:
            self._torch.clear_cache()

    def _call(self, args: Any, kwargs: Any, quick: Any = None) -> Any:
        began = time.perf_counter()
        errors = errors_key()
        if errors is NotImplemented:
            return self.function(*args, **kwargs)
        static, free, named = self._split(args, kwargs) if self._has_static else ((), args, kwargs)
        leaves, structure = tree.flatten_as_filled((free, named))
        if any(map(has_parts, leaves)):
            free, named = tree.map_as_filled(as_parts, (free, named))
            leaves, structure, quick = *tree.flatten_as_filled((free, named)), None
        if not all(type(leaf) in KEYS for leaf in leaves):
            if any(type(leaf) is LazyArray for leaf in leaves):
                return self.function(*args, **kwargs)  # what it does joins the segments of the function that calls it
            if any(map(library_of, leaves)):
                return self._of_columns(args, kwargs)
            twin = self._twin(leaves)
            if twin is not self:
                return twin(*args, **kwargs)
            if any(isinstance(leaf, (TracedArray, Tracer)) for leaf in leaves):
                return self._inline(args, kwargs)
            try:
                leaves = [self._admitted(leaf, n, (free, named)) for n, leaf in enumerate(leaves)]
            except UnsupportedError as error:
                return self._without_signature(error, args, kwargs, lambda leaf: isinstance(leaf, np.ndarray))
        key = (structure, static, config.backend, errors, *[self._key_of(leaf) for leaf in leaves])
        try:
            entry: Any = self._entries.get(key)
        except TypeError:
            refusal = self._unhashable_argument(static, leaves, (free, named))
            return self._without_signature(refusal, args, kwargs, lambda leaf: type(leaf).__hash__ is None)
        if entry is None:
            entry = self._first(key, static, structure, leaves)
        if entry.trial is not None and quick is None:
            entry.trial.began = began
        result = entry(leaves, args, kwargs)
        if entry.is_slower:
            self._outline = None if kwargs else tuple(map(outlined, args))
            if quick is not None:
                self._plain.add(quick)
                self._add_path(fast_path.of_numpy(self.function, args))
        elif quick is not None:
            self._quick[quick] = entry
        return result

    def _without_signature(self, error: Exception, args: Any, kwargs: Any, refused: Any = None) -> Any:
        """A call whose arguments no trace can take, by NumPy; the error where that is forbidden. `refused`: whether it is an
        argument's type, whatever its value, that a trace cannot take, so that the next call like this one need not ask.
        """
        why = reason(error)
        if self.fallback not in ("segments", "warn"):
            raise error
        if refused is not None and not kwargs and any(type(a) not in _TAKEN and refused(a) for a in args):
            self._outline = tuple(map(outlined, args))
        if self.fallback == "warn" and why not in self._unsigned:
            warnings.warn(f"{self.name} runs in NumPy: {why}", FallbackWarning, stacklevel=callers_level())
        self._unsigned[why] = why
        return self.function(*args, **kwargs)

    def _of_columns(self, args: Any, kwargs: Any) -> Any:
        """A call with columns: of their memory, where the function can be traced whole, or else by their own library."""
        if self.fallback == "error":
            return with_columns(self, args, kwargs)
        if self._by_columns is None:
            given = (self.static_argnums, self.static_argnames, "whole", self.backend, self.measure)
            differs = names_any(self.function, LIBRARYS_OWN)
            self._by_columns = ByColumns(Accelerated(self.function, *given), self.function, NOT_WHOLE, differs)
        try:
            return self._by_columns(args, kwargs)
        except UnsupportedError as error:
            return like_columns(args, kwargs, self._without_signature(error, args, kwargs))

    # ---- stages

    def trace(self, *args: Any, **kwargs: Any) -> AcceleratedTraced:
        """The graph for arguments of these types; ArrayTypes and anything with `shape` and `dtype` will do."""
        args, kwargs, _ = as_arrays(args, kwargs)
        static, args, kwargs = self._split(*tree.map_as_filled(as_parts, (args, kwargs)))
        leaves, structure = tree.flatten_as_filled((args, kwargs))
        leaves = [self._admitted(leaf, n, (args, kwargs)) for n, leaf in enumerate(leaves)]
        return self._twin(leaves)._staged(static, structure, leaves)

    def _twin(self, leaves: Sequence[Any]) -> Accelerated:
        """This function for the library that the arguments come from: itself, or the one for torch's tensors."""
        if not any(hasattr(type(leaf), "__torch_function__") for leaf in leaves):
            return self
        if self._torch is None:
            from fuser.interop.torch.accelerate import TorchAccelerated

            self._torch = TorchAccelerated(self)
        return self._torch

    def _staged(
        self,
        static: Any,
        structure: Any,
        leaves: Sequence[Any],
        precise: bool = False,
        dynamic: frozenset[Any] = frozenset(),
    ) -> AcceleratedTraced:
        """The trace; of a function that needs values, with its loops and branches staged."""
        how = Tracing(precise, dynamic)
        if self.library != "NumPy":
            return self._read_outside(static, structure, leaves, how)
        most = None if self.fallback == "error" else MOST_OPERATIONS
        try:
            few = how._replace(most=min(FEW_OPERATIONS, MOST_OPERATIONS))
            return self._read_outside(static, structure, leaves, few)
        except UNTRACEABLE as error:
            traced = with_control(
                lambda control: self._read_outside(static, structure, leaves, how._replace(most=most, control=control))
            )
            if traced is not None:
                return traced
            if not isinstance(error, TooManyOperations):
                raise
        return self._read_outside(static, structure, leaves, how._replace(most=most))

    def _read_outside(self, static: Any, structure: Any, leaves: Sequence[Any], how: Tracing) -> AcceleratedTraced:
        """The trace, with arrays from outside as inputs; if the function needs their values, with those in the signature."""
        try:
            return self._trace_once(static, structure, leaves, how, baked=False)
        except NeedsInput as needed:
            return self._read_outside(static, structure, leaves, how._replace(dynamic=how.dynamic | {needed.path}))
        except TooManyOperations:
            raise
        except FuserError as error:
            try:
                return self._trace_once(static, structure, leaves, how._replace(dynamic=frozenset()), baked=True)
            except FuserError:
                raise error from None

    def _trace_once(
        self, static: Any, structure: Any, leaves: Sequence[Any], how: Tracing, baked: bool
    ) -> AcceleratedTraced:
        types = [self._type_of(leaf) for leaf in leaves]
        traced = [n for n, aval in enumerate(types) if aval is not None]
        context = self._context(structure, leaves)
        context.most_operations = how.most
        context.draws, backend = [], backends.get(self._backend_name())
        context.on_host = backend.memory.platform == "cpu"
        outside = context.outside = Outside(self._substitute(context, baked), how.dynamic)
        context.precise, outside.control = how.precise, how.control
        if how.control is not None:
            how.control.begin(context)
        outputs, trees, shared = list[Output](), list[Any](), list[Any]()

        def flat(*tracers: Any) -> list[Any]:
            with context.checks.active():
                result = self._run_traced(context, static, structure, leaves, dict(zip(traced, tracers)))
                found, out_tree = tree.flatten_as_filled(taken_apart(outside, released(result)))
                owners = self._owners(found)
                outputs.extend(self._output(context, leaf, owners) for leaf in found)
                trees.append(out_tree)
                computed = [self._result_of(leaf) for leaf, output in zip(found, outputs) if output.computed]
                computed += [self._result_of(array) for array in owners.arrays]
                outside.inputs += [tracer for _, tracer in context.draws or () if tracer is not None]
                context.writes, values = writes_of(context, self._result_of, traced)
                context.write_results = len(values)
                if context.writes:
                    outside.hand_over_constants()
                computed += values
                shared.extend(owners.orders())
                return [*computed, *self._status(context.checks, computed, how.precise)]

        with config.using(enable_x64=True):
            graph = stage(flat, [types[n] for n in traced], self.name, outside.inputs)  # type: ignore[misc]
        given = [n if n in traced else None for n in range(len(leaves))]
        in_tree = tree.flatten_as_filled(tree.unflatten(structure, given))[1]
        return AcceleratedTraced(graph, in_tree, tuple(outputs), trees[0], backend, context, outside.guards(), shared)

    def _run_traced(
        self, context: Context, static: Any, structure: Any, leaves: Sequence[Any], tracers: dict[int, Any]
    ) -> Any:
        names = tree.unflatten(structure, range(len(leaves)))
        inside = [self._argument(context, leaf, tracers.get(n), n, names) for n, leaf in enumerate(leaves)]
        args, kwargs = tree.unflatten(structure, inside)
        args, kwargs = _merge(static, *read_only_arguments(args, kwargs, context.outside.keep_unchanged))
        with context.counting():
            result = self._function(context)(*args, **kwargs)
        context.outside.check_unchanged()
        return result

    # ---- what differs for torch

    def _key_of(self, leaf: Any) -> Any:
        return key_of(leaf)

    def _substitute(self, context: Context, baked: bool) -> Any:
        """What stands for the library's values that are read from outside."""
        return seen_outside(context, baked)

    def _type_of(self, leaf: Any) -> ArrayType | None:
        """The type of an argument that is traced; None for one that is part of the signature."""
        return ArrayType(tuple(np.shape(leaf)), dtype_of(leaf)) if is_dynamic(leaf) else None

    def _context(self, structure: Any, leaves: Sequence[Any]) -> Context:
        """What the arrays of one trace share; refuses arguments that cannot be traced."""
        for n, leaf in enumerate(leaves):
            if is_dynamic(leaf):
                path = self._path(n, tree.unflatten(structure, range(len(leaves))))
                supported(dtype_of(leaf), f"argument {path} of {self.name}")
        return Context(self.name, all(is_dense(leaf) for leaf in leaves))

    def _function(self, context: Context) -> Callable[..., Any]:
        outside = context.outside
        return outside.visit(self.function, outside.held_node(self.function, self.name), self.name)  # type: ignore[no-any-return]

    def _owners(self, results: Sequence[Any]) -> Owners:
        return Owners(results)

    def _output(self, context: Context, leaf: Any, owners: Owners) -> Output:
        return Output.of(context, leaf, owners)

    def _result_of(self, leaf: Any) -> Any:
        return computed_value(leaf)

    def _status(self, checks: Checks, results: Sequence[Any], precise: bool) -> list[Any]:
        return checks.status(results, precise)

    def _runner(self, compiled: Any, leaves: Sequence[Any]) -> Callable[[Sequence[Any], Sequence[Any]], Any]:
        """From the leaves of a call, and what its guards captured, to its results."""
        run, count = compiled.run, compiled.traced.outside_inputs
        dynamic = [n for n, leaf in enumerate(leaves) if is_dynamic(leaf)]
        take = gather(leaves, dynamic, {dynamic[k] for k in compiled.traced.unread if k < len(dynamic)})
        if not count:
            return lambda leaves, captured: run(take(leaves), leaves, captured)
        place = np.asarray
        return lambda leaves, captured: run([*take(leaves), *map(place, captured[:count])], leaves, captured)

    def _argument(self, context: Context, leaf: Any, tracer: Any, number: int, names: Any) -> Any:
        if tracer is None:
            return self._followed(context, leaf, number, names)
        if type(leaf) in (float, complex):
            return TracedArray(context, tracer, scalar=True, weak=type(leaf))
        if isinstance(leaf, np.generic):
            return TracedArray(context, tracer, scalar=True)
        dense, strides = is_dense(leaf), getattr(leaf, "strides", None)
        return context.argument(number, TracedArray(context, tracer, contiguous=dense, strides=strides))

    def _followed(self, context: Context, leaf: Any, number: int, names: Any) -> Any:
        if not is_followed(leaf):
            return leaf
        path = self._path(number, names)
        return context.outside.visit(leaf, context.outside.node(Reach.ARGUMENT, -1, number, path), path)

    def _backend_name(self) -> str:
        return self.backend or config.backend or "c"

    # ---- the first call of a signature

    def _first(self, key: Any, static: Any, structure: Any, leaves: Sequence[Any]) -> Signature:
        """A new signature; of several threads that make one, the first compiles."""
        make = functools.partial(self._entered, key, static, structure, leaves)
        entry: Any = once((self, key), lambda: self._entries.get(key), make)
        return entry  # type: ignore[no-any-return]

    def _entered(self, key: Any, static: Any, structure: Any, leaves: Sequence[Any]) -> Signature:
        def compile(entry: Signature, leaves: Sequence[Any]) -> Run:
            try:
                if makes_generator(self.function):
                    what = "a generator or coroutine cannot be traced: its parts run between other code"
                    raise untraceable(what, "return a list")
                return self._compiled(entry, static, structure, leaves)
            except Exception as error:
                if self.fallback == "warn":
                    return self._fall_back(error, entry)
                if self.fallback == "whole":
                    entry.how, entry.why = "by the library of its columns", reason(error)
                    return lambda leaves, args, kwargs: NOT_WHOLE
                if self.fallback == "segments" and self.library == "NumPy":
                    if isinstance(error, UNTRACEABLE):
                        return self._in_segments(error, entry)
                    if isinstance(error, TypeRuleError) or not isinstance(error, FuserError):
                        again = self._quick.clear if self.measure else None
                        return entry.after_error(error, functools.partial(self._in_segments, error, entry), again)
                raise

        measured = self.measure and self._backend_name() != "reference"
        if measured and self.fallback == "segments" and self.library == "NumPy":
            compile = self._budget.limited(compile, self._segments, self._quick.clear)  # type: ignore[assignment]
        entry = Signature(self.name, self.function, compile, ", ".join(map(self._in_words, leaves)))
        entry.add(leaves)
        if measured:
            entry.measure(self._quick.clear)
        self._entries[key] = entry
        if len(self._entries) > MOST_SIGNATURES:
            self._entries.pop(next(iter(self._entries)))
            self._quick.clear()
            self._plain.clear()
        return entry

    def _compiled(self, entry: Signature, static: Any, structure: Any, leaves: Sequence[Any]) -> Run:
        traced = self._staged(static, structure, leaves, entry.precise, entry.dynamic)
        if traced.always_numpy:
            return entry.always_in_numpy(traced.guards)
        finish = functools.partial(self._running, entry, static, structure, entry.precise, traced)
        if not self.measure or self.fallback == "error" or self._backend_name() == "reference":
            return finish(traced.lower().compile(), leaves)
        return compiled_when_it_pays(entry, traced, leaves, finish, functools.partial(entry.measure, self._quick.clear))

    def _running(
        self, entry: Signature, static: Any, structure: Any, precise: bool, traced: Any, compiled: Any, leaves: Any
    ) -> Run:
        """What answers calls by a compiled program."""
        held = tuple((path, Typed(value)) for path, value in (*self._held(structure, leaves), *entry.state(leaves)))
        types = [(a.shape, a.dtype, a.weak_type) for a in traced.graph.in_avals[: traced.in_tree.num_leaves]]
        self._programs[traced.in_tree, (*static, *held), True, config.backend, *types] = compiled
        call = entry.of_program(traced.guards, self._runner(compiled, leaves), precise)
        if self.library == "NumPy":
            entry.path_of = functools.partial(fast_path.of_program, entry, compiled, precise)
        return call

    def _held(self, structure: Any, leaves: Sequence[Any]) -> list[tuple[str, Any]]:
        """Arguments that are part of the signature, with their paths."""
        names = tree.unflatten(structure, range(len(leaves)))
        return [
            (self._path(n, names), leaf)
            for n, leaf in enumerate(leaves)
            if self._type_of(leaf) is None and not is_followed(leaf)
        ]

    def _in_words(self, leaf: Any) -> str:
        aval = self._type_of(leaf)
        return str(aval) if aval is not None else repr(leaf) if type(leaf) in KEYS else type(leaf).__name__

    def _in_segments(self, error: Exception, entry: Signature) -> Run:
        compile = lambda function: Accelerated(function, (), (), "error", self.backend, self.measure)
        entry.segments = segments = Segments(self.name, compile)
        entry.how, entry.why = "in segments", reason(error).split("; ")[0]
        self._segments.append(segments)
        if (why := left_to_numpy(self.function)) is not None:
            entry.how = why
            return entry.in_numpy
        return lambda leaves, args, kwargs: run_in_segments(self.function, segments, args, kwargs)

    def _fall_back(self, error: Exception, entry: Signature) -> Run:
        run: Run = entry.in_numpy
        where = f"in {self.library}, not accelerated"
        if self.library == "NumPy" and isinstance(error, UNTRACEABLE):
            run, where = self._in_segments(error, entry), "in segments, with Python between them in each call"

        def first(leaves: Sequence[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            result = run(leaves, args, kwargs)  # an error of the user's own shows here, and is no reason for a warning
            entry.programs[:] = [run]
            if str(error) not in self._warned:
                self._warned.add(str(error))
                warnings.warn(f"{self.name} runs {where}: {reason(error)}", FallbackWarning, stacklevel=callers_level())
            return result

        return first

    # ---- arguments

    def _title(self, number: int, arguments: Any) -> str:
        return f"argument {self._path(number, arguments)} of {self.name}"

    def _admitted(self, leaf: Any, number: int, arguments: Any) -> Any:
        return admitted(leaf, functools.partial(self._title, number, arguments))

    def _unhashable_argument(self, static: Any, leaves: Sequence[Any], arguments: Any) -> Exception:
        number = first_unhashable(leaves)
        return (
            self._unhashable(static) if number is None else incomparable(leaves[number], self._title(number, arguments))
        )

    def within(self, context: Context) -> Callable[..., Any]:
        """What stands for this function in another that is traced: its operations join the outer graph."""
        return self._function(context)

    def _inline(self, args: Any, kwargs: Any) -> Any:
        """A call from a function that is being traced: its operations join the outer graph."""
        leaves, structure = tree.flatten_as_filled((args, kwargs))
        outer = next((leaf._context for leaf in leaves if isinstance(leaf, TracedArray)), None)
        if outer is not None:
            return self._function(outer)(*args, **kwargs)
        context = Context(self.name)
        context.outside = Outside(self._substitute(context, True))
        inside = [
            TracedArray(context, leaf)
            if isinstance(leaf, Tracer)
            else np.asarray(leaf)
            if isinstance(leaf, Array)
            else leaf
            for leaf in leaves
        ]
        args, kwargs = tree.unflatten(structure, inside)
        with config.using(enable_x64=True):
            result = self._function(context)(*args, **kwargs)
        return tree.map_as_filled(lambda leaf: computed_value(leaf) if isinstance(leaf, TracedArray) else leaf, result)


def accelerate(
    function: Callable[..., Any] | None = None,
    *,
    fallback: str = "segments",
    static_argnums: int | Iterable[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    backend: str | None = None,
    measure: bool = True,
) -> Any:
    """`function`, written with NumPy, compiled: NumPy arrays in, NumPy arrays and scalars out, NumPy's dtypes, strides and effects.

    Arrays, NumPy scalars and floats are traced; integers, strings and other hashable values are part of the signature, as
    are static arguments. What the function reads from outside is guarded, and read again when it changes. Where NumPy would
    warn, raise or leave a value to the processor, the call runs in NumPy. A function that cannot be traced whole runs in segments:
    compiled programs up to where Python needs a value, and on from there. fallback="warn" says so once, with the line;
    fallback="error" raises an error that names it. With `measure`, the first calls of a signature go by turns to the program and to
    NumPy, and where NumPy is faster it answers from then on; `.explain()` says how each signature runs, and why. The result has the stages of a jitted function. docs/accelerate.md
    says what is guaranteed.
    """
    if function is None:
        numbers_and_names = {"static_argnums": static_argnums, "static_argnames": static_argnames}
        return lambda f: accelerate(f, fallback=fallback, backend=backend, measure=measure, **numbers_and_names)  # type: ignore[arg-type]
    if not callable(function) or inspect.isclass(function):
        raise TypeError(f"accelerate takes a function, got a {type(function).__name__}")
    if fallback not in ("segments", "warn", "error"):
        raise ValueError(f'fallback is "segments", "warn" or "error", got {fallback!r}')
    numbers, names = both_ways(function, static_argnums, static_argnames)
    return Accelerated(function, numbers, names, fallback, backend, measure)
