"""Public functions outside of traces: recorded at the second call with arguments of one type, and replayed from then on.

Recorded are the operations on arrays; promotion, type rules and the checks of arguments stay behind, and the native core
finds the recording by the arguments. A replay gives the same bits as the function itself does (trace/recorded.py), which
runs wherever it cannot be recorded: where it looks at values, under traces, on other devices, and while values are checked.
Functions of many operations whose kernels do not depend on sizes are `compiled` instead, from the first call on, so that their
bits never change either.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fuser.config import config
from fuser.ir.graph import Graph
from fuser.ir.names import function_name, parameter_names, unwrapped
from fuser.lax.values import as_value
from fuser.runtime import device as devices
from fuser.runtime.array import Array, to_numpy
from fuser.runtime.core import native
from fuser.runtime.executable import Executable, LibraryStep
from fuser.trace import transfers, tree
from fuser.trace.core import EVALUATION, Tracer, type_of
from fuser.trace.recorded import recorded
from fuser.trace.stage import stage

# What operands are called, in every public function; arguments of other names are static.
_OPERANDS = """
A B C E T Z a a1 a2 a_max a_min alpha append ar ar1 ar2 arr array arrays ary arys b beta bias c case cases choices choicelist
condition condlist cov data default df element elems f fp h indices initial key keys lam lhs like_arr loc lu_and_piv m mask max maxval mean min minval mu n_iter
obj on_false on_true operand operands p padding_value pred prepend q query rhs sample scale shape_like shift sigma sorter
start_indices tup u update updates v val vals value values variance vec w weights where which x x1 x2 xi xp y z args varargs
"""
OPERANDS = frozenset(_OPERANDS.split())
_WIDE = frozenset(map(np.dtype, ("int64", "uint64", "float64", "complex128")))
_PLAIN = (type(None), bool, int, float, complex, str)

# Signatures of a compiled function; of more (lengths that grow) those are compiled that come back.
COMPILED_AT_ONCE = 64
MOST_MET = 4096  # signatures of one function that are remembered by Python
REPLAYED: weakref.WeakSet[Replayed] = weakref.WeakSet()  # all that there are, for `clear_caches`


class _Refused(Exception):
    """The function cannot be recorded for these arguments."""


if TYPE_CHECKING or native is None:

    class _Base:
        def __init__(self, static_argnums: tuple[int, ...], static_argnames: tuple[str, ...]) -> None: ...
        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
        def _remember(self, args: Any, kwargs: Any, numbered: Any, program: Any) -> None: ...
        def _forget(self) -> None: ...

else:
    _Base = native.Dispatcher


class Replayed(_Base):
    """A function of arrays that the native core replays for types of arguments that it knows."""

    # Set by fuser.api, which stands above: the compiled program of a graph, its arguments' tree and its results'.
    compiler: ClassVar[Callable[[Graph, Any, Any], Any] | None] = None

    def __init__(self, function: Callable[..., Any], compiled: bool = False) -> None:
        self.compiled = compiled
        self.numbers, self.names = _static(function)
        super().__init__(self.numbers, self.names)
        functools.update_wrapper(self, function)
        self._unrecorded = function
        self._met: dict[Any, bool] = {}  # by signature, whether it can be recorded
        REPLAYED.add(self)

    def __repr__(self) -> str:
        return f"<function {self.__qualname__}>"  # type: ignore[attr-defined]

    def __copy__(self) -> Replayed:
        return self  # as functions do

    def __deepcopy__(self, memo: Any) -> Replayed:
        return self

    def __reduce__(self) -> str:
        return self.__qualname__  # type: ignore[attr-defined, no-any-return]

    def forget(self) -> None:
        """Drop every recording."""
        self._met.clear()
        self._forget()

    def _in_python(self, *args: Any, **kwargs: Any) -> Any:
        """A call that the native core does not understand."""
        return self._unrecorded(*args, **kwargs)

    def _missed(self, *args: Any, **kwargs: Any) -> Any:
        """A call that the native core has no recording for."""
        if transfers.guarded():
            return transfers.bounded(self._unrecorded, self._operands, (Array, Tracer))(*args, **kwargs)
        try:
            found = self._found(args, kwargs)
        except _Refused:
            found = None
        if found is None:  # outside of the handler: what the function raises is no consequence of the refusal
            return self._unrecorded(*args, **kwargs)
        program, values, foreign = found
        return program(values, foreign)

    def _operands(self, arguments: Any) -> list[Any]:
        """The leaves among a call's arguments that are no static ones."""
        return _operands(arguments, self.numbers, self.names)

    def _found(self, args: Any, kwargs: Any) -> tuple[Any, list[Any], tuple[int, ...]]:
        static = tuple([(n, args[n]) for n in self.numbers if n < len(args)])
        named = tuple([(name, value) for name, value in kwargs.items() if name in self.names])
        if not _evaluates_here() or not all(_plain(value) for _, value in (*static, *named)):
            raise _Refused
        chosen = {n for n, _ in static}
        rest = tuple([a for n, a in enumerate(args) if n not in chosen])
        others = {name: value for name, value in kwargs.items() if name not in self.names}
        leaves, structure = tree.flatten((rest, others))
        if not _arrays(leaves):
            raise _Refused
        try:
            values = [as_value(leaf) for leaf in leaves]
        except (TypeError, ValueError):
            raise _Refused from None
        kinds = [(v.shape, v.dtype, v.weak_type) for v in values]
        key = (structure, repr(static), repr(named), config.enable_x64, config.traced, *kinds)
        if len(self._met) > MOST_MET:
            self._met.clear()
        first = key not in self._met
        recordable = self._met.setdefault(key, True)
        at_once = self.compiled and len(self._met) <= COMPILED_AT_ONCE
        if not recordable or (first and not at_once):
            raise _Refused
        try:
            program = self._recorded(static, dict(named), structure, values)
        except Exception as error:  # the function itself raises it again, or can do without a recording
            self._met[key] = False
            raise _Refused from error
        self._remember(args, kwargs, tree.unflatten(structure, range(len(values))), program)
        return program, values, tuple([n for n, leaf in enumerate(leaves) if type(leaf) is not Array])

    def _recorded(self, static: Any, named: dict[str, Any], structure: Any, values: list[Any]) -> Any:
        trees: list[Any] = []

        def flat(*tracers: Any) -> list[Any]:
            rest, others = tree.unflatten(structure, tracers)
            args = list(rest)
            for n, value in static:
                args.insert(n, value)
            found, out_tree = tree.flatten(self._unrecorded(*args, **others, **named))
            if not found or not all(isinstance(leaf, (Array, Tracer)) for leaf in found):
                raise _Refused
            trees.append(out_tree)
            return found

        graph = stage(flat, [type_of(v) for v in values], function_name(self._unrecorded))
        if any(eqn.primitive.effect for eqn in graph.eqns):
            raise _Refused
        compiler = Replayed.compiler
        if self.compiled and compiler is not None and config.backend in ("", "c"):
            return compiler(graph, structure, trees[0])
        return _program(graph, trees[0])


def _operands(arguments: Any, numbers: Collection[int], names: Collection[str]) -> list[Any]:
    args, kwargs = arguments
    named = {name: value for name, value in kwargs.items() if name not in names}
    return tree.leaves(([a for n, a in enumerate(args) if n not in numbers], named))  # type: ignore[no-any-return]


def _program(graph: Graph, out_tree: Any) -> Any:
    """The native program that replays a graph."""
    count, results = len(graph.invars), len(graph.outvars)
    outputs = tuple(range(count, count + results))
    step = LibraryStep(graph.name, recorded(graph), tuple(range(count)), outputs)
    types = [(v.aval.shape, v.aval.dtype) for v in graph.invars]
    executable = Executable(range(count), {}, [step], outputs, types=types)
    described = tuple([(v.aval.weak_type, False, v.aval.shape, None) for v in graph.outvars])
    template = tree.unflatten(out_tree, range(results))
    unflatten = functools.partial(tree.unflatten, out_tree)
    return native.Program(executable.native, (), described, template, unflatten, to_numpy, True, (), None)


def replayed(function: Callable[..., Any], compiled: bool = False) -> Callable[..., Any]:
    """`function`, replayed once it was recorded, or compiled; as it is without the native core."""
    if native is not None:
        return Replayed(function, compiled)
    numbers, names = _static(function)
    return transfers.bounded(function, lambda given: _operands(given, numbers, names), (Array, Tracer))


def install(
    module: dict[str, Any], package: str, without: Collection[str] = (), compiled: Collection[str] = ()
) -> None:
    """Make every public function that the module's package defines a replayed one, if it has operands; some `compiled`."""
    for name, value in module.items():
        home = getattr(value, "__module__", None) or ""
        own = inspect.isfunction(value) and home.startswith(package) and not name.startswith("_")
        if own and name not in without and _has_operands(value):
            module[name] = replayed(value, name in compiled)
            module[name].__module__ = module["__name__"]  # where pickle finds it
            module[name].__qualname__ = name


def forget() -> None:
    """Drop all recordings."""
    for function in list(REPLAYED):
        function.forget()


def _has_operands(function: Callable[..., Any]) -> bool:
    """Whether it takes operands, several in one parameter too."""
    code = unwrapped(function).__code__
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & inspect.CO_VARARGS)
    return not OPERANDS.isdisjoint(code.co_varnames[:count])


def _static(function: Callable[..., Any]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The numbers and names of the parameters that are no operands."""
    alone, both, named = parameter_names(function)
    numbers = tuple(n for n, name in enumerate((*alone, *both)) if name not in OPERANDS)
    return numbers, tuple(name for name in (*both, *named) if name not in OPERANDS)


def _evaluates_here() -> bool:
    """Whether operations are NumPy's, run at once, and nobody looks at what they give."""
    if (
        EVALUATION.on_gpu is not None
        or devices.default_platform() != "cpu"
        or config.disable_jit
        or config.debug_nans
        or config.debug_infs
        or config.meshes
        or config.default_device is not None
    ):
        return False
    return not (config.numpy_rank_promotion == "warn" or config.legacy_prng_key == "warn" or config.check_tracer_leaks)


def _plain(value: Any) -> bool:
    """Whether a static argument says what it is by its value alone, and is taken without a warning."""
    kind = type(value)
    if kind is tuple:
        return all(map(_plain, value))
    if kind is str or value in (bool, int, float, complex) or kind in _PLAIN:
        return not (kind is str and value in _WIDE_NAMES and not config.enable_x64)
    found = _dtype(value)
    return found is not None and (config.enable_x64 or found not in _WIDE)


def _dtype(value: Any) -> np.dtype | None:
    """The dtype that a dtype, a scalar type of fuser, or one of NumPy stands for."""
    if isinstance(value, np.dtype):
        return value
    if not isinstance(value, type):
        return None
    found = getattr(value, "dtype", None)
    if isinstance(found, np.dtype):
        return found
    return np.dtype(value) if issubclass(value, np.generic) and value not in _ABSTRACT else None


_ABSTRACT = (
    *(np.generic, np.number, np.integer, np.signedinteger, np.unsignedinteger, np.inexact, np.floating),
    *(np.complexfloating, np.flexible, np.character),
)
_WIDE_NAMES = frozenset(d.name for d in _WIDE)


def _arrays(leaves: list[Any]) -> bool:
    """Whether leaves are arrays of this machine's memory or numbers, one at least, and numbers that adapt to arrays without rounding twice."""
    data = [leaf._data if type(leaf) is Array else leaf for leaf in leaves]
    if not data or not all(type(d) in _NUMBERS or type(d) is np.ndarray or isinstance(d, np.generic) for d in data):
        return False
    if not any(type(d) in (float, complex) for d in data):
        return True
    typed = [d.dtype for d in data if isinstance(d, (np.ndarray, np.generic))]
    return not any(dtype.itemsize < 4 and dtype.kind not in "biu" for dtype in typed)


_NUMBERS = frozenset({bool, int, float, complex})
