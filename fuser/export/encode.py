"""Graphs as JSON and arrays as bytes: what a saved function is made of. `decode` is the inverse.

Variables are numbers, counted through the constants, the inputs and the results of equations of their graph. A literal is
its bytes, so that no digit is lost. Params are numbers, texts, None and lists (tuples); all else is an object with one key:

    {"float": hex}  {"complex": [hex, hex]}  {"scalar": [dtype, hex]}  {"dtype": name}  {"enum": [class, member]}
    {"bytes": hex}  {"named": [class, [values]]}  {"primitive": name}  {"type": type}  {"array": number}  {"graph": graph}  {"dim": text}
    {"layout": [axes, sizes, entries]}
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import numpy as np

from fuser.errors import UnsupportedError
from fuser.export.layouts import encode_layout
from fuser.ir.dim import Dim
from fuser.ir.graph import Eqn, Graph, Literal, Operand, Var
from fuser.ir.names import function_name
from fuser.ir.primitive import REGISTRY, Primitive
from fuser.ir.references import AbstractRef
from fuser.ir.text import PARAM_TYPES
from fuser.ir.types import DTYPES, ArrayType, short_dtype
from fuser.parallel.sharding import NamedSharding
from fuser.runtime.array import to_numpy


class Arrays:
    """The arrays of a file, numbered in the order in which they are first asked for."""

    def __init__(self) -> None:
        self.arrays: list[np.ndarray] = []
        self._known: dict[int, tuple[int, Any]] = {}  # by identity, the value kept so that the identity is

    def __getitem__(self, value: Any) -> int:
        known = self._known.get(id(value))
        if known is None:
            known = self._known[id(value)] = len(self.arrays), value
            self.arrays.append(np.ascontiguousarray(to_numpy(value)).reshape(np.shape(value)))
        return known[0]

    def headers(self) -> list[Any]:
        """The type of each array, as JSON."""
        return [[dtype_name(a.dtype), list(a.shape)] for a in self.arrays]

    def contents(self) -> bytes:
        """The elements of all arrays, one after the other."""
        return b"".join(a.tobytes() for a in self.arrays)


def dtype_name(dtype: np.dtype) -> str:
    """The short name of a dtype that files may hold; UnsupportedError for others."""
    name = short_dtype(dtype)
    if DTYPES.get(name) != dtype:
        raise UnsupportedError(f"arrays of {dtype} cannot be exported; export the words of which they are made")
    return name


def encode_type(aval: Any) -> list[Any]:
    """[dtype, extents, whether it is weak], and of a Ref [its memory space, its kind] behind. UnsupportedError where the type speaks
    of a mesh."""
    if type(aval) is AbstractRef:
        space = None if aval.memory_space is None else str(aval.memory_space)
        return [*encode_type(aval.inner_aval), [space, aval.kind]]
    if aval.vma or aval.explicit is not None:
        raise UnsupportedError(f"a value of type {aval} lies on a mesh of devices; export the function of one device")
    return [dtype_name(aval.dtype), [_extent(d) for d in aval.shape], int(aval.weak_type)]


def _extent(extent: Any) -> Any:
    return str(extent) if isinstance(extent, Dim) else int(extent)


def encode_graph(graph: Graph, arrays: Arrays, functions: bool = False) -> dict[str, Any]:
    """A graph, its constants among `arrays`. UnsupportedError for what holds a function of Python's, without `functions`."""
    return _Writer(graph, arrays, functions).written


class _Writer:
    def __init__(self, graph: Graph, arrays: Arrays, functions: bool) -> None:
        self.arrays, self.functions = arrays, functions
        self.sources: dict[tuple[Any, ...], int] = {}
        self.numbers: dict[Var, int] = {v: n for n, v in enumerate((*graph.constvars, *graph.invars))}
        self.written = {
            "name": graph.name,
            "consts": [[arrays[c], encode_type(v.aval)] for c, v in zip(graph.consts, graph.constvars)],
            "in": [encode_type(v.aval) for v in graph.invars],
            "eqns": [self.eqn(eqn) for eqn in graph.eqns],
            "out": self.operands(graph.outvars),
        }
        self.written["lines"] = [[*key] for key in self.sources]

    def operands(self, operands: Sequence[Operand]) -> list[Any]:
        return [_literal(v) if isinstance(v, Literal) else self.numbers[v] for v in operands]

    def eqn(self, eqn: Eqn) -> list[Any]:
        """[primitive, operands, params, types of results, number of the user's line]."""
        if REGISTRY.get(eqn.primitive.name) is not eqn.primitive and not self.functions:
            raise UnsupportedError(
                f"{eqn.primitive.name} is a primitive of a library, which files cannot name ({eqn.source.short}); "
                "export a function that does without it"
            )
        operands = self.operands(eqn.invars)
        params = {key: self.param(value, key, eqn) for key, value in eqn.params.items()}
        for var in eqn.outvars:
            self.numbers[var] = len(self.numbers)
        types = [encode_type(v.aval) for v in eqn.outvars]
        source = eqn.source
        line = (source._name, source.lineno, source.function, *source.via) if source.file else ("", 0, "")
        return [eqn.primitive.name, operands, params, types, self.sources.setdefault(line, len(self.sources))]

    def param(self, value: Any, key: str, eqn: Eqn) -> Any:
        if isinstance(value, Dim):
            return {"dim": str(value)}
        if value is None or (isinstance(value, (bool, int, str)) and not isinstance(value, enum.Enum)):
            return value
        if isinstance(value, tuple) and not hasattr(value, "_fields"):
            return [self.param(v, key, eqn) for v in value]
        for kind, form in _FORMS.items():
            if isinstance(value, kind):
                return form(value)
        if isinstance(value, tuple) and PARAM_TYPES.get(type(value).__name__) is type(value):
            return {"named": [type(value).__name__, [self.param(v, key, eqn) for v in value]]}
        if isinstance(value, Graph):
            return {"graph": encode_graph(value, self.arrays, self.functions)}
        if hasattr(value, "shape") and hasattr(value, "dtype"):
            return {"array": self.arrays[value]}
        if self.functions:
            return {"function": ""}
        what = f"the Python function {function_name(value)}" if callable(value) else f"a {type(value).__name__}"
        what = f"the Python function {value.name}" if key == "callback" else what
        raise UnsupportedError(
            f"{eqn.primitive.name} holds {what} ({eqn.source.short}), which a file cannot hold; "
            "export a function without it, or write it with fuser.numpy and fuser.lax"
        )


def _enum(value: enum.Enum) -> dict[str, Any]:
    return {"enum": [type(value).__name__, value.name]}


_FORMS: dict[Any, Any] = {
    enum.Enum: _enum,
    np.generic: lambda value: {"scalar": [dtype_name(value.dtype), value.tobytes().hex()]},
    bytes: lambda value: {"bytes": value.hex()},
    float: lambda value: {"float": value.hex()},
    complex: lambda value: {"complex": [value.real.hex(), value.imag.hex()]},
    np.dtype: lambda value: {"dtype": dtype_name(value)},
    Primitive: lambda value: {"primitive": value.name},
    ArrayType: lambda value: {"type": encode_type(value)},
    NamedSharding: lambda value: {"layout": encode_layout(value)},
}


def _literal(literal: Literal) -> list[Any]:
    """[dtype, bytes as hexadecimal digits, whether it is weak]."""
    aval = literal.aval
    return [dtype_name(aval.dtype), np.asarray(literal.val, aval.dtype).tobytes().hex(), int(aval.weak_type)]
