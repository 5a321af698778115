"""`jit`, which traces, compiles and caches by signature.

A jitted function keeps one entry a signature: tree structure, static arguments, and each array's shape, dtype and weak
type. While a graph is recorded it simply runs, so that its operations join that graph; under transforms of evaluated
values it is one primitive, whose transforms are compiled too (ops/jit).
"""

from __future__ import annotations

import functools
import time
import types
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fuser import backends, dtypes
from fuser.api import advice, compiler, debug_values, eager, program_cache, progress
from fuser.api.float0 import without_elements
from fuser.api.options import check_options, for_all_sizes
from fuser.api.parameters import Signature, Typed, both_ways, incomparable, names_of
from fuser.api.pickling import reduced
from fuser.api.placement import FREE, Wanted, at_home, described, placed, placement, wanted_of
from fuser.api.shapes import ShapeDtypeStruct
from fuser.api.stages import Compiled, Lowered, Traced, cost_analysis
from fuser.config import config
from fuser.frames import hide
from fuser.ir.graph import Graph
from fuser.ir.names import function_name
from fuser.ir.references import AbstractRef
from fuser.ir.source import current_source
from fuser.ir.types import KEY, ArrayType
from fuser.lax.values import as_value
from fuser.ops.jit import Program
from fuser.runtime.array import Array
from fuser.runtime.core import native
from fuser.runtime.garbage_collection import no_collection
from fuser.runtime.memory import refusal_in_step
from fuser.runtime.single_flight import once
from fuser.trace import transfers, tree
from fuser.trace.aliases import check_aliases, check_results, parameter_path, parameters_of
from fuser.trace.batch import axes_key, checked_axes
from fuser.trace.body import close
from fuser.trace.cells import is_ref
from fuser.trace.core import EVALUATION, Trace, Tracer, current, leaked, type_of
from fuser.trace.hoisting import calls_kept, tracing
from fuser.trace.linear import LinearTrace
from fuser.trace.replay import replay
from fuser.trace.stage import StageTrace, stage

MOST_SIGNATURES = 1024  # that one jitted function keeps; the native core's tables hold as many


JITTED: weakref.WeakSet[Jitted] = weakref.WeakSet()  # all that there are, for `clear_caches`


class _Dispatcher:
    """Every call in Python; the native core's answers those that it knows by itself, and passes on the others."""

    def __init__(self, static_argnums: tuple[int, ...], static_argnames: tuple[str, ...]) -> None:
        pass

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._in_python(*args, **kwargs)

    def _in_python(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def _remember(self, args: Any, kwargs: Any, numbered: Any, program: Any) -> None:
        pass

    def _answer_by(self, paths: tuple[Any, ...]) -> None:
        pass

    def _forget(self) -> None:
        pass


if TYPE_CHECKING:
    from fuser.kernel.schedule import Schedule

if TYPE_CHECKING or native is None:
    _Base = _Dispatcher
else:
    _Base = native.Dispatcher


observers: list[Callable[[str, int], object]] = []  # are told of programs that ran: names, and when they began


class Jitted(_Base):
    """What `jit` returns; see `jit`."""

    __signature__ = Signature()

    def __init__(
        self,
        function: Callable[..., Any],
        static_argnums: tuple[int, ...],
        static_argnames: tuple[str, ...],
        donate_argnums: tuple[int, ...],
        donate_argnames: tuple[str, ...],
        keep_unused: bool,
        inline: bool,
        backend: str | None,
        wanted: Wanted = FREE,
        schedule: Schedule | None = None,
        tune: bool | None = None,
    ) -> None:
        super().__init__(static_argnums, static_argnames)
        # A replayed function, and one that wraps it, has attributes of its own, which are no jitted one's.
        replayed = "_guarded" in getattr(function, "__dict__", ())
        functools.update_wrapper(self, function, updated=() if replayed else ("__dict__",))
        self.function = function
        self.static_argnums = static_argnums
        self.static_argnames = static_argnames
        self.donate_argnums = donate_argnums
        self.donate_argnames = donate_argnames
        self.keep_unused = keep_unused
        self.inline = inline
        self.backend = backend
        self.wanted = wanted
        self.schedule = schedule
        self.tune = tune
        self.name = function_name(function)
        declared = static_argnums, static_argnames, donate_argnums, donate_argnames
        self._options = (*declared, keep_unused, inline, backend, wanted, schedule, tune)
        self._entries: dict[Any, Callable[..., Any]] = {}
        self._programs: dict[Any, Compiled] = {}
        self._traces: dict[Any, Traced] = {}
        self._calls: dict[Any, tuple[Program, tuple[Any, ...], Any]] = {}
        JITTED.add(self)

    def __repr__(self) -> str:
        try:
            return f"<PjitFunction of {self.__dict__['__wrapped__']!r}>"
        except Exception:
            return "<PjitFunction>"  # the user's function has no text

    def __copy__(self) -> Jitted:
        return self  # as functions do

    def __deepcopy__(self, memo: Any) -> Jitted:
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {"function_name": self.name}

    def __reduce__(self) -> Any:
        return reduced(self, type(self), *self._options)

    def _in_python(self, *args: Any, **kwargs: Any) -> Any:
        """A call from start to end in Python: whatever the arguments, and under whatever trace."""
        if config.disable_jit:
            return self.function(*args, **kwargs)
        if (trace := current()) is not EVALUATION:
            return self._transformed(args, kwargs, recording(trace) and (self.inline or not calls_kept()))
        run, values, foreign, _ = self._found(args, kwargs)
        return self._observed(run, values, foreign) if observers else run(values, foreign)

    def _observed(self, run: Any, values: list[Any], foreign: tuple[int, ...]) -> Any:
        """The program's results; `observers` are told when it began, once it has ended."""
        start = time.perf_counter_ns()
        result = run(values, foreign)
        for told in list(observers):
            told(self.name, start)
        return result

    def _missed(self, *args: Any, **kwargs: Any) -> Any:
        """A call with arguments that the native core understands and has no program for: the next one will find it."""
        if config.disable_jit:
            return self.function(*args, **kwargs)
        run, values, foreign, structure = self._found(args, kwargs)
        if observers:
            return self._observed(run, values, foreign)
        if isinstance(run, native.Program) and not transfers.guarded():
            self._remember(args, kwargs, tree.unflatten(structure, range(len(values))), run)
        return run(values, foreign)

    def _found(self, args: Any, kwargs: Any) -> tuple[Any, list[Any], tuple[int, ...], Any]:
        """What runs the program for these arguments, compiled if need be; their values, which are foreign, and structure."""
        static, args, kwargs = self._split(args, kwargs)
        leaves, structure = tree.flatten((args, kwargs))
        values = [v if type(v) is Array else self._evaluated(v, n, (args, kwargs)) for n, v in enumerate(leaves)]
        values = values if EVALUATION.default is None else at_home(values)
        key = (structure, static, config.enable_x64, config.traced, *map(_key_of, values))
        if lying := placed(values):
            key = (*key, lying)
        try:
            entry = self._entries.get(key)
        except TypeError:
            raise self._unhashable(static) from None
        except Exception as error:
            raise incomparable(error) from error
        if any(map(is_ref, values)):
            self._check_aliases(values, (args, kwargs), key)
        if entry is None:
            try:
                compile = functools.partial(self._compile, key, static, structure, values)
                entry = once((self, key), lambda: self._entries.get(key), compile)
            except MemoryError as error:
                raise hide(refusal_in_step(error, f"the compilation of {self.name}", str(current_source())))  # noqa: B904
            except Exception as error:
                raise hide(error)  # noqa: B904
        elif len(self._entries) > MOST_SIGNATURES // 2:
            self._entries[key] = self._entries.pop(key, entry)  # the last to be forgotten
        return entry, values, tuple([n for n, leaf in enumerate(leaves) if type(leaf) is not Array]), structure

    def _transformed(self, args: Any, kwargs: Any, inlined: bool) -> Any:
        """The call under other traces. Where they end in evaluation, one primitive that holds the compiled graph; else
        the graph's equations, `inlined` into what is recorded. The function is traced once for arguments of one type."""
        static, args, kwargs = self._split(args, kwargs)
        leaves, structure = tree.flatten((args, kwargs))
        values = [self._value(v, n, (args, kwargs)) for n, v in enumerate(leaves)]
        if self.wanted != FREE:
            values = self.wanted.inside(values, structure)
        types = [_key_of(v) for v in values]
        key = (structure, static, config.enable_x64, config.traced, *types, *axes_key())
        avals = [type_of(v) for v in values]
        if checked_axes() or any(a.explicit is not None for a in avals):
            key = (*key, *((a.vma, a.explicit) for a in avals))
        try:
            known = self._calls.get(key)
        except TypeError:
            raise self._unhashable(static) from None
        try:
            if known is None:
                make = functools.partial(self._called, key, static, structure, values)
                known = once((self, "call", key), lambda: self._calls.get(key), make)
            program, consts, out_tree = known
            if any(map(is_ref, (*consts, *values))):
                check_aliases(values, self.name, "jit", lambda n: self._path(n, (args, kwargs)), consts)
                inlined = True
            # Values of the traces around: this graph is for them alone.
            run = functools.partial(replay, program.graph) if inlined or key not in self._calls else program.bind
            results = run(*consts, *values)
            return tree.unflatten(out_tree, self.wanted.results(results, out_tree) if self.wanted != FREE else results)
        except Exception as error:
            raise hide(error)  # noqa: B904

    def _called(
        self, key: Any, static: Any, structure: Any, values: Sequence[Any]
    ) -> tuple[Program, tuple[Any, ...], Any]:
        """What a call under transforms binds: a program, its constants, the result's tree; kept if no constant is traced."""
        shared = "call", type(self), *self._options, key
        known = program_cache.remembered(self.function, shared)
        if known is not None:
            self._traces[key], self._calls[key] = known
            return self._calls[key]
        traced = self._traces.get(key) or self._trace(static, structure, [type_of(v) for v in values])
        graph, consts = close(traced.graph)
        donated = tuple(len(consts) + n for n in traced.donated)
        call = Program(graph, donated, traced._backend), consts, traced.out_tree
        if not any(isinstance(c, Tracer) for c in consts):
            self._traces[key] = traced
            self._calls[key] = call
            program_cache.remember(self.function, shared, (traced, call))
        return call

    def _check_aliases(self, values: Sequence[Any], arguments: Any, key: Any) -> None:
        """ValueError where a Ref is passed twice, or is one that the function closes over."""
        traced = self._traces.get(key)
        path = functools.partial(self._path, arguments=arguments)
        check_aliases(values, self.name, "jit", path, traced.graph.consts if traced else ())

    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        """The graph for arguments of these types; ArrayTypes and anything with `shape` and `dtype` will do."""
        static, args, kwargs = self._split(args, kwargs)
        leaves, structure = tree.flatten((args, kwargs))
        if any(map(is_ref, leaves)):
            check_aliases(leaves, self.name, "jit", functools.partial(self._path, arguments=(args, kwargs)))
        avals = [_described(leaf) or type_of(self._value(leaf, n, (args, kwargs))) for n, leaf in enumerate(leaves)]
        return self._trace(static, structure, avals, (*placed(leaves), *described(leaves)))

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """`trace(...).lower()`."""
        return self.trace(*args, **kwargs).lower()

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """The results' types, without computing."""
        return self.trace(*args, **kwargs).out_info

    def clear_cache(self) -> None:
        """Forget every compiled signature."""
        self._entries.clear()
        self._programs.clear()
        self._traces.clear()
        self._calls.clear()
        self._forget()
        program_cache.forget(self.function)

    def refusals(self) -> list[str]:
        """Of `jit(dynamic=)`: why functions are compiled for each size."""
        return []

    def specializations(self) -> list[tuple[str, str, float, int]]:
        """Of `jit(dynamic=)`: each program for many sizes; what for, why, the seconds, and the kernels compiled."""
        return []

    def _cache_size(self) -> int:
        return len(self._entries)

    def _compile(self, key: Any, static: Any, structure: Any, values: Sequence[Any]) -> Callable[[list[Any]], Any]:
        def compile() -> Compiled:
            traced = self._traces.get(key)
            traced = traced or self._trace(static, structure, [type_of(v) for v in values], placed(values))
            if any(map(is_ref, values)):
                check_aliases(values, self.name, "jit", traced.path, traced.graph.consts)
            self._traces[key] = traced
            with transfers.suspended():
                self._programs[key] = compiled = traced.lower().compile()
            return compiled

        if config.explain_cache_misses:
            advice.explain_miss(self, key)
        if config.no_execution:

            def refused(*_: Any) -> Any:
                raise RuntimeError(f"{self.name} would run, and the setting no_execution forbids it")

            self._entries[key] = refused
            return refused
        shared = type(self), *self._options, key
        compiled = program_cache.remembered(self.function, shared)
        if compiled is None:
            compiled = advice.timed(self, compile)
            program_cache.remember(self.function, shared, compiled)
        self._programs[key], self._traces[key] = compiled, compiled.traced.recorded
        self._entries[key] = run = (
            debug_values.checked(compiled) if config.debug_nans or config.debug_infs else compiled._run
        )
        if config.default_device is not None:
            self._entries[key] = run = eager.run_by_default(run)
        while len(self._entries) > MOST_SIGNATURES:
            oldest = next(iter(self._entries))
            for known in (self._entries, self._programs, self._traces):
                known.pop(oldest, None)
        return run

    def _trace(self, static: Any, structure: Any, avals: Sequence[ArrayType], lying: Any = ()) -> Traced:
        shape: list[Any] = []

        def flat(*tracers: Any) -> list[Any]:
            args, kwargs = tree.unflatten(structure, tracers)
            args, kwargs = _merge(static, args, kwargs)
            result = self.function(*args, **kwargs)
            leaves, out_tree = tree.flatten(result)
            if any(getattr(leaf, "dtype", None) == dtypes.float0 for leaf in leaves):
                leaves, out_tree = tree.flatten(tree.map(without_elements, result))
            shape.append(out_tree)
            return [self._result(leaf, n, result) for n, leaf in enumerate(leaves)]

        if config.no_tracing:
            raise RuntimeError(
                f"{self.name} would have to be traced for new types, and the setting no_tracing forbids it"
            )
        names = parameters_of(self.function)  # not the function: what is traced for it must not hold it
        path = functools.partial(_leaf_name, names, self.static_argnums, self.static_argnames, structure)
        outputs = lambda: tree.paths(tree.unflatten(shape[0], range(shape[0].num_leaves)))
        with no_collection(), tracing(), progress.stage(progress.TRACING, self.name):
            graph = check_results(stage(flat, avals, self.name), "jit", outputs, path)
        backend = compiler.with_schedule(backends.get(self._backend_name()), self.schedule or compiler.NOTHING_ASKED)
        if config.tune if self.tune is None else self.tune:
            backend = compiler.with_tuning(backend, needed=self.tune is True)
        where = placement(self.wanted, lying, structure, shape[0])
        return Traced(graph, structure, shape[0], self._donated(structure, static), backend, path, where)

    def _backend_name(self) -> str:
        return self.backend or eager.backend_name()

    def _donated(self, structure: Any, static: Any) -> tuple[int, ...]:
        """The leaves that are donated; numbers count static arguments, which are no leaves."""
        if not self.donate_argnums and not self.donate_argnames:
            return ()
        args, kwargs = tree.unflatten(structure, range(structure.num_leaves))
        numbered = list(args)
        for where, _ in static:
            if isinstance(where, int):
                numbered.insert(where, None)
        wanted = [numbered[n] for n in self.donate_argnums if -len(numbered) <= n < len(numbered)]
        wanted += [kwargs[name] for name in self.donate_argnames if name in kwargs]
        return tuple(tree.leaves(wanted))

    def _split(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Static arguments apart from the others: (position or name, value) pairs."""
        if not self.static_argnums and not self.static_argnames:
            return (), args, kwargs
        numbers = (
            {n % len(args) if -len(args) <= n < len(args) else -1 for n in self.static_argnums} - {-1}
            if args
            else set()
        )
        static: list[tuple[int | str, Any]] = [(n, args[n]) for n in sorted(numbers)]
        static += [(k, kwargs[k]) for k in sorted(kwargs) if k in self.static_argnames]
        args = tuple(a for n, a in enumerate(args) if n not in numbers)
        kwargs = {k: v for k, v in kwargs.items() if k not in self.static_argnames}
        return tuple((where, Typed(value)) for where, value in static), args, kwargs

    def _evaluated(self, value: Any, number: int, arguments: Any) -> Any:
        """An argument as an Array; UnexpectedTracerError for a tracer, whose trace must have ended."""
        found = self._value(value, number, arguments)
        if isinstance(found, Tracer):
            raise leaked(found)
        return found

    def _value(self, value: Any, number: int, arguments: Any) -> Any:
        try:
            return as_value(value, self.name)
        except TypeError:
            path = self._path(number, arguments)
            way_out = "pass an array or a number, or make the argument static with static_argnums"
            if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray):
                way_out = "pass fuser.dlpack.from_dlpack of it, which has the same memory"
            raise TypeError(
                f"argument {path} of {self.name} is {dtypes.in_words(value)}, which is no array of numbers; "
                f"{way_out} ({current_source().short})"
            ) from None

    def _path(self, number: int, arguments: Any) -> str:
        return parameter_path(self.function, number, arguments, self.static_argnums, self.static_argnames)

    def _result(self, leaf: Any, number: int, result: Any) -> Any:
        try:
            return as_value(leaf, self.name)
        except TypeError:
            path = tree.paths(result)[number]
            raise TypeError(
                f"function {self.name} at {current_source().short or '?'} returned a value of type {type(leaf).__name__}"
                f"{f' at output component {path}' if path else ''}, which is not a valid JAX type; "
                f"{'A ShapeDtypeStruct does not have a value; ' if isinstance(leaf, ArrayType) else ''}"
                "a jitted function returns arrays and numbers in tuples, lists, dicts or registered classes"
            ) from None

    def _unhashable(self, static: Any) -> ValueError:
        for where, typed in static:
            try:
                hash(typed.value)
            except TypeError:
                what = f"argument {where}" if isinstance(where, int) else f"argument {where!r}"
                return ValueError(
                    f"Non-hashable static arguments are not supported: static {what} of {self.name} is a "
                    f"{type(typed.value).__name__}, which cannot be hashed; "
                    f"static arguments are compared from call to call: pass a tuple or another hashable value ({current_source().short})"
                )
        return ValueError(f"the arguments of {self.name} cannot be compared from call to call")


if native is not None:
    native.call_directly(Jitted)
    _wide = tuple(map(np.dtype, "?bhilBHILefdFD"))
    with config.using(enable_x64=False):
        native.set_dtypes(tuple((d, np.dtype(dtypes.canonical(d))) for d in _wide), KEY)


def recording(trace: Trace | None) -> bool:
    """Whether what is bound under this trace ends up in a graph, rather than in evaluation."""
    while trace is not None and trace is not EVALUATION:
        if isinstance(trace, StageTrace) and not isinstance(trace, LinearTrace):
            return True
        trace = getattr(trace, "parent", None)  # of the trace that a transform made its own around
    return False


def _compiled(graph: Graph, donated: tuple[int, ...], backend: Any) -> Callable[[list[Any]], list[Any]]:
    """What runs a Program: a function from Arrays to a list of Arrays, compiled for the devices where they lie."""
    in_tree, out_tree = tree.structure([0] * len(graph.invars)), tree.structure([0] * len(graph.outvars))
    programs: dict[Any, Callable[[list[Any]], list[Any]]] = {}

    def compile(lying: Any) -> Callable[[list[Any]], list[Any]]:
        where = placement(FREE, lying, in_tree, out_tree)
        on = backend or backends.get(eager.backend_name())  # a graph that a library made has none
        traced = Traced(graph, in_tree, out_tree, donated, on, placement=where)
        programs[lying] = program = traced.lower().compile()._run
        return program

    def run(values: list[Any]) -> list[Any]:
        lying = placed(values)
        program = programs.get(lying)
        if program is None:
            program = once((run, lying), lambda: programs.get(lying), lambda: compile(lying))
        return program(values)

    return run


Program.compiler = staticmethod(_compiled)


def _key_of(value: Any) -> Any:
    """What programs are told apart by, of one argument."""
    return ("Ref",)[: is_ref(value)] + (value.shape, value.dtype, value.weak_type)


# No method: what is traced for a jitted function must not hold it, so that both go, with their constants, once it is dropped.
def _leaf_name(parameters: list[str], static_argnums: Any, static_argnames: Any, structure: Any, number: int) -> str:
    """What the user calls the argument with this number among the leaves."""
    arguments = tree.unflatten(structure, range(structure.num_leaves))
    return parameter_path(parameters, number, arguments, static_argnums, static_argnames)


def _merge(static: Any, args: Any, kwargs: Any) -> tuple[list[Any], dict[str, Any]]:
    """The arguments with the static ones back in place."""
    merged, named = list(args), dict(kwargs)
    for where, typed in static:
        if isinstance(where, int):
            merged.insert(where, typed.value)
        else:
            named[where] = typed.value
    return merged, named


def _described(leaf: Any) -> ArrayType | None:
    """The type that a description of an array (anything with `shape` and `dtype` that is none itself) stands for."""
    if type(leaf) is ArrayType and isinstance(leaf.dtype, np.dtype):
        return leaf
    if is_ref(leaf) or type(leaf) is AbstractRef:
        return type_of(leaf) if is_ref(leaf) else leaf  # type: ignore[return-value]
    if (
        not isinstance(leaf, (Array, Tracer, np.ndarray, np.generic))
        and hasattr(leaf, "shape")
        and hasattr(leaf, "dtype")
    ):
        shape, sharding = tuple(leaf.shape), getattr(leaf, "sharding", None)
        explicit = None if sharding is None or not hasattr(sharding, "in_type") else sharding.in_type(len(shape))
        return ArrayType(shape, np.dtype(leaf.dtype), bool(getattr(leaf, "weak_type", False)), frozenset(), explicit)
    return None


UNSPECIFIED: Any = object()  # no function yet: `jit` with options alone gives a decorator


def jit(
    fun: Callable[..., Any] = UNSPECIFIED,
    /,
    *,
    static_argnums: int | Iterable[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Iterable[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None,
    keep_unused: bool = False,
    inline: bool = False,
    backend: str | None = None,
    device: Any = None,
    in_shardings: Any = None,
    out_shardings: Any = None,
    compiler_options: Any = None,
    dynamic: Any = None,
    schedule: Schedule | None = None,
    tune: bool | None = None,
) -> Any:
    """`fun` compiled: traced once for each signature, fused into few kernels, cached.

    Static arguments are Python values that the trace may branch on; they must be hashable. The memory of donated
    arguments may be taken over by results, after which they cannot be used. `backend` is "c", "triton", "tpu" or "reference".
    Over arrays on several devices the program is divided among them; `in_shardings` and `out_shardings`, tree prefixes of
    Shardings, say how arguments and results are to lie, within another program as constraints; `device`, which is deprecated, that they lie there. Options of XLA's
    compiler are refused: UnsupportedError. `dynamic` names arguments with symbolic shapes, {"x": "b, 4*k"}: it is traced once for all
    sizes (docs/export.md), which goes with `backend` and `inline` alone. `schedule`, a fuser.Schedule, asks for transforms of the
    kernels' loops or forbids them (docs/schedules.md): UnsupportedError where no kernel can have one. `tune` measures them
    on a GPU, once (UnsupportedError elsewhere); None: as the setting `tune` says. The result has `.trace(*args)`, `.lower(*args)`, `.eval_shape(*args)` and `.clear_cache()`.
    """
    if fun is UNSPECIFIED:
        options = {name: value for name, value in locals().items() if name != "fun"}
        return lambda f: jit(f, **options)
    static, donated = (static_argnums, static_argnames), (donate_argnums, donate_argnames)
    if dynamic is not None:
        return for_all_sizes(fun, dynamic, backend, inline, *static, *donated, schedule)
    check_options(fun, schedule, compiler_options)
    both = sorted({*names_of(static_argnames)} & {*names_of(donate_argnames)})
    if both:
        raise ValueError(
            f"static_argnames and donate_argnames cannot intersect, both name {both}; static arguments are no arrays"
        )
    numbers, names = both_ways(fun, *static)
    given = both_ways(fun, *donated, "donate_")
    wanted = wanted_of(device, backend, in_shardings, out_shardings)
    return Jitted(fun, numbers, names, *given, keep_unused, inline, backend, wanted, schedule, tune)


eager.install()
debug_values.install()

__all__ = [
    "Compiled",
    "Jitted",
    "Lowered",
    "ShapeDtypeStruct",
    "Traced",
    "cost_analysis",
    "jit",
]
