"""`accelerate`: functions that people already have, compiled. NumPy arrays in, NumPy arrays out, NumPy's dtypes.

Each signature (shapes, dtypes, memory order, and the values of arguments that are no arrays) is traced once with 64-bit
types on; the stages are those of `jit`. What cannot be traced raises an error, or runs in NumPy with fallback="warn".
"""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from fuser import backends
from fuser.api import Compiled, Jitted, Lowered, Traced, _both_ways, _merge, _names, _numbers, _Typed
from fuser.backends.base import Backend
from fuser.compile import load, lower
from fuser.config import config
from fuser.errors import FuserError
from fuser.frames import hide
from fuser.interop import methods
from fuser.interop.context import Context, supported, untraceable
from fuser.interop.indexing import Selected, unknown_shape
from fuser.interop.module import rebound
from fuser.interop.outputs import Output, runner
from fuser.interop.traced import TracedArray
from fuser.ir.source import current_source
from fuser.ir.types import ArrayType
from fuser.runtime.array import Array
from fuser.trace import tree
from fuser.trace.core import Tracer
from fuser.trace.stage import stage

assert methods  # importing it puts the operators on TracedArray

_DENSE = 0x101  # NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED
_PLAIN = (int, bool, str, bytes, type(None), slice, type(Ellipsis), range, frozenset)


class FallbackWarning(UserWarning):
    """An accelerated function runs in NumPy because it cannot be traced."""


class AcceleratedTraced(Traced):
    """As `Traced`, with what the function returns besides arrays."""

    def __init__(self, graph: Any, in_tree: Any, outputs: tuple[Output, ...], out_tree: Any, backend: Backend) -> None:
        super().__init__(graph, in_tree, out_tree, (), backend)
        self.outputs = outputs

    @property
    def out_info(self) -> Any:
        """The results' tree, with ArrayTypes for arrays."""
        avals = iter(self.graph.out_avals)
        return tree.unflatten(self.out_tree, [next(avals) if o.computed else o.value for o in self.outputs])

    def lower(self) -> Lowered:
        """Optimise, partition and generate the kernels' text."""
        with config.using(enable_x64=True):
            return AcceleratedLowered(self, lower(self.graph, self._backend))


class AcceleratedLowered(Lowered):
    """As `Lowered`; compiles to a program that takes and gives NumPy arrays."""

    def compile(self) -> Compiled:
        """Compile the kernels and link the steps."""
        with config.using(enable_x64=True):
            return AcceleratedCompiled(self.traced, load(self.lowering, self.traced._backend))


class AcceleratedCompiled(Compiled):
    """As `Compiled`; `run` goes from the list of array arguments to the results' tree."""

    def __init__(self, traced: Any, program: Any) -> None:
        super().__init__(traced, program)
        self.run = runner(program, traced.outputs, traced.out_tree, traced._backend)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves = [leaf for leaf in tree.leaves((args, kwargs)) if is_dynamic(leaf)]
        arrays = [np.ascontiguousarray(leaf).reshape(np.shape(leaf)) for leaf in leaves]
        wanted = [(a.shape, a.dtype) for a in self.traced.graph.in_avals]
        if [(a.shape, a.dtype) for a in arrays] != wanted:
            found = ", ".join(str(ArrayType(a.shape, a.dtype)) for a in arrays)
            raise TypeError(
                f"{self.traced.graph.name} was compiled for ({', '.join(map(str, self.traced.graph.in_avals))}), got ({found}); "
                "call the accelerated function itself, which compiles for new types"
            )
        return self.run(arrays)


def is_dynamic(leaf: Any) -> bool:
    """Whether an argument is traced (arrays, NumPy scalars, floats, complex numbers) rather than part of the signature."""
    return (
        isinstance(leaf, (np.ndarray, np.generic, Array, ArrayType))
        or type(leaf) in (float, complex)
        or _described(leaf)
    )


def _described(leaf: Any) -> bool:
    return not isinstance(leaf, type) and hasattr(leaf, "shape") and hasattr(leaf, "dtype")


class Accelerated(Jitted):
    """What `accelerate` returns; see `accelerate`. It has the stages of a jitted function: `.trace`, `.lower`, ..."""

    library = "NumPy"

    def __init__(
        self,
        function: Callable[..., Any],
        static_argnums: tuple[int, ...],
        static_argnames: tuple[str, ...],
        fallback: str,
        backend: str | None,
    ) -> None:
        super().__init__(function, static_argnums, static_argnames, (), (), False, False, backend)
        self.fallback = fallback
        self._torch: Accelerated | None = None
        self._warned: set[str] = set()
        self._has_static = bool(static_argnums or static_argnames)
        self._quick: dict[Any, Callable[[Any], Any]] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not kwargs and not self._has_static:  # plain arguments need no flattening
            quick: Any
            try:
                quick = (config.backend, *[_QUICK[type(arg)](arg) for arg in args])
            except KeyError:
                quick = None
            entry = None if quick is None else self._quick.get(quick)
            return entry(args) if entry is not None else self._call(args, kwargs, quick)
        return self._call(args, kwargs)

    def clear_cache(self) -> None:
        """Forget every compiled signature."""
        super().clear_cache()
        self._quick.clear()
        if self._torch is not None:
            self._torch.clear_cache()

    def _call(self, args: Any, kwargs: Any, quick: Any = None) -> Any:
        if self.static_argnums or self.static_argnames:
            static, args, kwargs = self._split(args, kwargs)
        else:
            static = ()
        leaves, structure = tree.flatten((args, kwargs))
        if not all(type(leaf) in _KEYS for leaf in leaves):
            twin = self._twin(leaves)
            if twin is not self:
                args, kwargs = _merge(static, args, kwargs)
                return twin(*args, **kwargs)
            if any(isinstance(leaf, (TracedArray, Tracer)) for leaf in leaves):
                return self._inline(*_merge(static, args, kwargs))
            leaves = [self._admitted(leaf, n, (args, kwargs)) for n, leaf in enumerate(leaves)]
        key = (structure, static, config.backend, *[self._key_of(leaf) for leaf in leaves])
        try:
            entry = self._entries.get(key)
        except TypeError:
            raise self._unhashable_argument(static, leaves, (args, kwargs)) from None
        if entry is None:
            result = self._first(key, static, structure, leaves)
            entry = self._entries[key]
        else:
            result = entry(leaves)
        if quick is not None:
            self._quick[quick] = entry
        return result

    # ---- stages

    def trace(self, *args: Any, **kwargs: Any) -> AcceleratedTraced:
        """The graph for arguments of these types; ArrayTypes and anything with `shape` and `dtype` will do."""
        static, args, kwargs = self._split(args, kwargs)
        leaves, structure = tree.flatten((args, kwargs))
        leaves = [self._admitted(leaf, n, (args, kwargs)) for n, leaf in enumerate(leaves)]
        return self._twin(leaves)._staged(static, structure, leaves)

    def _twin(self, leaves: Sequence[Any]) -> Accelerated:
        """This function for the library that the arguments come from: itself, or the one for torch's tensors."""
        if not any(hasattr(type(leaf), "__torch_function__") for leaf in leaves):
            return self
        if self._torch is None:
            from fuser.interop.torch_accelerate import TorchAccelerated

            self._torch = TorchAccelerated(self)
        return self._torch

    def _staged(self, static: Any, structure: Any, leaves: Sequence[Any]) -> AcceleratedTraced:
        types = [self._type_of(leaf) for leaf in leaves]
        dynamic = [n for n, aval in enumerate(types) if aval is not None]
        context = self._context(structure, leaves)
        outputs: list[Output] = []
        trees: list[Any] = []

        def flat(*tracers: Any) -> list[Any]:
            result = self._run_traced(context, static, structure, leaves, dict(zip(dynamic, tracers)))
            found, out_tree = tree.flatten(result)
            outputs.extend(self._output(leaf) for leaf in found)
            trees.append(out_tree)
            return [self._result_of(leaf) for leaf, output in zip(found, outputs) if output.computed]

        with config.using(enable_x64=True):
            graph = stage(flat, [types[n] for n in dynamic], self.name)  # type: ignore[misc]
        held = tree.structure(tree.unflatten(structure, [n if n in dynamic else None for n in range(len(leaves))]))
        return AcceleratedTraced(graph, held, tuple(outputs), trees[0], backends.get(self._backend_name()))

    def _run_traced(
        self, context: Context, static: Any, structure: Any, leaves: Sequence[Any], tracers: dict[int, Any]
    ) -> Any:
        names = tree.unflatten(structure, range(len(leaves)))
        inside = [self._argument(context, leaf, tracers.get(n), n, names) for n, leaf in enumerate(leaves)]
        args, kwargs = tree.unflatten(structure, inside)
        args, kwargs = _merge(static, args, kwargs)
        return self._function(context)(*args, **kwargs)

    # ---- what differs for torch

    def _key_of(self, leaf: Any) -> Any:
        return _KEYS.get(type(leaf), _hashed)(leaf)

    def _type_of(self, leaf: Any) -> ArrayType | None:
        """The type of an argument that is traced; None for one that is part of the signature."""
        return ArrayType(tuple(np.shape(leaf)), _dtype_of(leaf)) if is_dynamic(leaf) else None

    def _context(self, structure: Any, leaves: Sequence[Any]) -> Context:
        """What the arrays of one trace share; refuses arguments that cannot be traced."""
        for n, leaf in enumerate(leaves):
            if is_dynamic(leaf):
                path = self._path(n, tree.unflatten(structure, range(len(leaves))))
                supported(_dtype_of(leaf), f"argument {path} of {self.name}")
        return Context(self.name, all(_is_dense(leaf) for leaf in leaves))

    def _function(self, context: Context) -> Callable[..., Any]:
        return rebound(self.function, context)  # type: ignore[no-any-return]

    def _output(self, leaf: Any) -> Output:
        return Output.of(leaf)

    def _result_of(self, leaf: Any) -> Any:
        return _result(leaf)

    def _entry_of(self, compiled: Any, leaves: Sequence[Any]) -> Callable[[Sequence[Any]], Any]:
        return _entry(compiled, leaves)

    def _argument(self, context: Context, leaf: Any, tracer: Any, number: int, names: Any) -> Any:
        if tracer is None:
            return leaf
        if type(leaf) in (float, complex):
            return TracedArray(context, tracer, scalar=True, weak=type(leaf))
        if isinstance(leaf, np.generic):
            return TracedArray(context, tracer, scalar=True)
        path = self._path(number, names)
        guard = f"writing to the argument {path}, which the caller would see, cannot be traced|write to a copy: {path} = {path}.copy()"
        return TracedArray(context, tracer, contiguous=_is_dense(leaf), guard=guard)

    def _backend_name(self) -> str:
        return self.backend or config.backend or "c"

    # ---- the first call of a signature

    def _first(self, key: Any, static: Any, structure: Any, leaves: Sequence[Any]) -> Any:
        try:
            compiled = self._staged(static, structure, leaves).lower().compile()
        except Exception as error:
            if self.fallback == "warn":
                return self._fall_back(error, key, static, structure, leaves)
            raise hide(error)  # noqa: B904
        held = tuple((path, _Typed(leaf)) for path, leaf in self._held(structure, leaves))
        types = [(a.shape, a.dtype, a.weak_type) for a in compiled.traced.graph.in_avals]
        self._programs[compiled.traced.in_tree, (*static, *held), True, config.backend, *types] = compiled
        entry = self._entries[key] = self._entry_of(compiled, leaves)
        return entry(leaves)

    def _held(self, structure: Any, leaves: Sequence[Any]) -> list[tuple[str, Any]]:
        """Arguments that are part of the signature, with their paths."""
        names = tree.unflatten(structure, range(len(leaves)))
        return [(self._path(n, names), leaf) for n, leaf in enumerate(leaves) if self._type_of(leaf) is None]

    def _fall_back(self, error: Exception, key: Any, static: Any, structure: Any, leaves: Sequence[Any]) -> Any:
        def in_numpy(leaves: Sequence[Any]) -> Any:
            args, kwargs = tree.unflatten(structure, leaves)
            args, kwargs = _merge(static, args, kwargs)
            return self.function(*args, **kwargs)

        result = in_numpy(leaves)  # first: an error of the user's own shows here, and is no reason for a warning
        if str(error) not in self._warned:
            self._warned.add(str(error))
            warnings.warn(
                f"{self.name} runs in {self.library}, not accelerated: {_reason(error)}", FallbackWarning, stacklevel=5
            )
        self._entries[key] = in_numpy
        return result

    # ---- arguments

    def _admitted(self, leaf: Any, number: int, arguments: Any) -> Any:
        """An argument as it enters the signature; TypeError where it can neither be traced nor compared."""
        if isinstance(leaf, Array):
            return np.asarray(leaf)
        if isinstance(leaf, (np.random.Generator, np.random.RandomState)):
            raise untraceable(
                f"argument {self._path(number, arguments)} of {self.name} is a random generator, and tracing would freeze its numbers",
                "draw the numbers outside and pass them in",
            )
        if isinstance(leaf, np.ndarray) and type(leaf) not in (np.ndarray, np.memmap):
            raise untraceable(
                f"argument {self._path(number, arguments)} of {self.name} is a {type(leaf).__name__}, whose rules differ from those of ndarray",
                "pass np.asarray(x)",
            )
        return leaf

    def _unhashable_argument(self, static: Any, leaves: Sequence[Any], arguments: Any) -> Exception:
        for number, leaf in enumerate(leaves):
            try:
                hash(leaf if not isinstance(leaf, np.ndarray) else 0)
            except TypeError:
                return TypeError(
                    f"argument {self._path(number, arguments)} of {self.name} is a {type(leaf).__name__}, which is no array and cannot be "
                    f"compared from call to call; pass arrays, numbers or hashable values ({current_source().short})"
                )
        return self._unhashable(static)

    def _inline(self, args: Any, kwargs: Any) -> Any:
        """A call from a function that is being traced: its operations join the outer graph."""
        leaves, structure = tree.flatten((args, kwargs))
        outer = next((leaf._context for leaf in leaves if isinstance(leaf, TracedArray)), None)
        if outer is not None:
            return rebound(self.function, outer)(*args, **kwargs)
        context = Context(self.name)
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
            result = rebound(self.function, context)(*args, **kwargs)
        return tree.map(lambda leaf: _result(leaf) if isinstance(leaf, TracedArray) else leaf, result)


def _entry(compiled: Any, leaves: Sequence[Any]) -> Callable[[Sequence[Any]], Any]:
    """From the flat arguments of a call to its results."""
    run = compiled.run
    dynamic = [n for n, leaf in enumerate(leaves) if is_dynamic(leaf)]
    if len(dynamic) == len(leaves) and all(type(leaf) is np.ndarray and _is_dense(leaf) for leaf in leaves):
        return run  # type: ignore[no-any-return]
    plain = tuple((n, type(leaves[n]) is np.ndarray and _is_dense(leaves[n])) for n in dynamic)

    def entry(leaves: Sequence[Any]) -> Any:
        return run([leaves[n] if dense else _as_dense(leaves[n]) for n, dense in plain])

    return entry


def _as_dense(leaf: Any) -> np.ndarray:
    array = np.asarray(leaf)
    return array if array.ndim == 0 else np.require(array, requirements=["C", "A"])


def _is_dense(leaf: Any) -> bool:
    return not isinstance(leaf, np.ndarray) or leaf.flags.num & _DENSE == _DENSE


def _dtype_of(leaf: Any) -> np.dtype:
    return np.dtype(leaf.dtype) if hasattr(leaf, "dtype") else np.dtype(type(leaf))


def _result(leaf: Any) -> Any:
    if isinstance(leaf, Selected):
        raise unknown_shape(leaf.line)
    return leaf.lifted() if isinstance(leaf, TracedArray) else leaf


def _reason(error: Exception) -> str:
    text = str(error) if isinstance(error, FuserError) else f"{type(error).__name__}: {error}"
    return re.sub(r', or run the function in \w+ with fuser\.accelerate\(f, fallback="warn"\)', "", text)


def _array_key(leaf: np.ndarray) -> Any:
    return leaf.shape, leaf.dtype, leaf.flags.num & _DENSE


def _hashed(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray):
        return _array_key(leaf)
    return type(leaf), type(leaf) if isinstance(leaf, np.generic) else leaf


_KEYS: dict[type, Callable[[Any], Any]] = {
    np.ndarray: _array_key,
    float: lambda leaf: float,
    complex: lambda leaf: complex,
    **{kind: lambda leaf: (type(leaf), leaf) for kind in _PLAIN},
    **{np.dtype(code).type: type for code in "?bBhHiIlLqQefdFD"},
}
_QUICK = {kind: key for kind, key in _KEYS.items() if kind is not type(None)}


def accelerate(
    function: Callable[..., Any] | None = None,
    *,
    fallback: str = "error",
    static_argnums: int | Iterable[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    backend: str | None = None,
) -> Any:
    """`function`, written with NumPy, compiled: NumPy arrays in, new NumPy arrays and scalars out, NumPy's dtypes.

    Arrays, NumPy scalars and floats are traced; integers, strings and other hashable values are part of the signature, as
    are static arguments. Globals are read when a signature is traced. What cannot be traced raises an error that names the
    line; with fallback="warn" it warns once and runs in NumPy. Warnings of NumPy (division by zero) are not given, and
    traced indices are not checked against bounds. The result has the stages of a jitted function.
    """
    if function is None:
        return lambda f: accelerate(
            f, fallback=fallback, static_argnums=static_argnums, static_argnames=static_argnames, backend=backend
        )
    if not callable(function) or inspect.isclass(function):
        raise TypeError(f"accelerate takes a function, got a {type(function).__name__}")
    if fallback not in ("error", "warn"):
        raise ValueError(f'fallback is "error" or "warn", got {fallback!r}')
    numbers, names = _both_ways(function, _numbers(static_argnums), _names(static_argnames))
    return Accelerated(function, numbers, names, fallback, backend)
