"""JSON and bytes to graphs, the inverse of `encode`. What it is given may be hostile: every value is looked at before use.

Nothing that is read names a Python object but by the registries of primitives, dtypes and classes of params. A graph is
handed out only when the checker has found that every equation has the types that its rule gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser.export.layouts import decode_layout
from fuser.ir.check import check
from fuser.ir.dim import known_at_least
from fuser.ir.graph import Eqn, Graph, Literal, Operand, Var
from fuser.ir.primitive import REGISTRY
from fuser.ir.references import AbstractRef
from fuser.ir.source import UNKNOWN, Source
from fuser.ir.text import PARAM_TYPES
from fuser.ir.types import DTYPES, ArrayType
from fuser.runtime.array import Array

MOST_DIMENSIONS = 64
MOST_EXTENT = 1 << 62
MOST_ELEMENTS = 1 << 48


class Damaged(ValueError):
    """What is read is no saved function; the text says where."""


def expect(holds: Any, what: str) -> None:
    """Damaged where a condition does not hold."""
    if not holds:
        raise Damaged(what)


def of(kind: type, value: Any, what: str) -> Any:
    """`value`, which is of a kind of JSON's; Damaged if it is not. A bool is no integer."""
    expect(type(value) is kind, f"{what} is a {type(value).__name__}, where a {kind.__name__} was expected")
    return value


def member(value: Any, key: str, kind: type) -> Any:
    """What stands at `key` of an object."""
    of(dict, value, f"what holds {key!r}")
    expect(key in value, f"{key!r} is missing")
    return of(kind, value[key], repr(key))


def row(value: Any, count: int, what: str) -> list[Any]:
    """A list of so many values."""
    found: list[Any] = of(list, value, what)
    expect(len(found) == count, f"{what} has {len(found)} parts, where {count} were expected")
    return found


def decode_dtype(name: Any) -> np.dtype:
    found = DTYPES.get(of(str, name, "a dtype"))
    expect(found is not None, f"{name[:40]!r} is no dtype")
    return found  # type: ignore[return-value]


def decode_value_type(written: Any, dim: Callable[[str], Any]) -> Any:
    """The type of a value, an array's or a Ref's."""
    if len(of(list, written, "a type")) != 4:
        return decode_type(written, dim)
    space, kind = row(written[3], 2, "a Ref's memory")
    expect(all(word is None or type(word) is str for word in (space, kind)), "a Ref's memory has no name")
    return AbstractRef(decode_type(written[:3], dim), space, kind)


def decode_type(written: Any, dim: Callable[[str], Any]) -> ArrayType:
    """The type of an array; `dim` reads a symbolic extent."""
    dtype, extents, weak = row(written, 3, "a type")
    return ArrayType(decode_shape(extents, dim), decode_dtype(dtype), bool(of(int, weak, "a weak type")))


def decode_shape(extents: Any, dim: Callable[[str], Any]) -> tuple[Any, ...]:
    expect(len(of(list, extents, "a shape")) <= MOST_DIMENSIONS, f"a shape has more than {MOST_DIMENSIONS} dimensions")
    shape = tuple(dim(d) if type(d) is str else of(int, d, "an extent") for d in extents)
    known = [d for d in shape if type(d) is int]
    expect(all(type(d) is int or known_at_least(d, 0) for d in shape), "an extent may be negative")
    expect(all(0 <= d <= MOST_EXTENT for d in known), "an extent is negative or too large")
    expect(0 in known or np.prod([float(d) for d in known]) <= MOST_ELEMENTS, "a shape has too many elements")
    return shape


def no_dims(text: str) -> Any:
    """An arrays' shape has no symbolic extents."""
    raise Damaged(f"{text[:40]!r} is no extent")


def decode_arrays(headers: Any, contents: bytes) -> list[Array]:
    """The arrays of a file, whose elements must fill `contents` exactly."""
    arrays, place = [], 0
    for header in of(list, headers, "the arrays"):
        name, extents = row(header, 2, "an array")
        dtype, shape = decode_dtype(name), decode_shape(extents, no_dims)
        count = int(np.prod(shape, dtype=object)) if shape else 1
        size = count * dtype.itemsize
        expect(place + size <= len(contents), "an array is longer than the file")
        arrays.append(Array(np.frombuffer(contents, dtype, count, place).reshape(shape).copy()))
        place += size
    expect(place == len(contents), "the file is longer than its arrays")
    return arrays


def decode_graph(written: Any, arrays: Sequence[Array], dim: Callable[[str], Any]) -> Graph:
    """The graph, checked. Damaged where it is none."""
    graph = _Reader(written, arrays, dim).graph
    check(graph)
    return graph


class _Reader:
    def __init__(self, written: Any, arrays: Sequence[Array], dim: Callable[[str], Any]) -> None:
        self.arrays, self.dim = arrays, dim
        self.variables: list[Var] = []
        self.lines = [self.source(line) for line in member(written, "lines", list)]
        pairs = [self.const(const) for const in member(written, "consts", list)]
        invars = [self.defined(aval) for aval in member(written, "in", list)]
        eqns = [self.eqn(eqn) for eqn in member(written, "eqns", list)]
        constvars, consts = tuple(var for var, _ in pairs), tuple(value for _, value in pairs)
        out = tuple(self.operand(v) for v in member(written, "out", list))
        name = member(written, "name", str)[:200]
        self.graph = Graph(tuple(invars), constvars, consts, tuple(eqns), out, name)

    def source(self, written: Any) -> Source:
        of(list, written, "a line")
        expect(len(written) >= 3, "a line has no name, number and function")
        file, number, *words = written
        expect(all(type(word) is str for word in (file, *words)), "a line has no name and function")
        return (
            Source(file[:200], of(int, number, "a line's number"), words[0][:200], tuple(words[1:]))
            if file
            else UNKNOWN
        )

    def const(self, written: Any) -> tuple[Var, Array]:
        number, aval = row(written, 2, "a constant")
        value, var = self.array(number), self.defined(aval)
        same = (value.shape, value.dtype) == (var.aval.shape, var.aval.dtype)
        expect(same, f"a constant of type {var.aval} is an array of {value.dtype} {value.shape}")
        return var, value

    def array(self, number: Any) -> Array:
        expect(0 <= of(int, number, "an array's number") < len(self.arrays), f"there is no array {number}")
        return self.arrays[number]

    def defined(self, written: Any) -> Var:
        self.variables.append(Var(decode_value_type(written, self.dim)))
        return self.variables[-1]

    def operand(self, written: Any) -> Operand:
        if type(written) is list:
            dtype, digits, weak = row(written, 3, "a literal")
            aval = ArrayType((), decode_dtype(dtype), bool(of(int, weak, "a weak type")))
            return Literal(_scalar(aval.dtype, digits), aval)
        expect(0 <= of(int, written, "an operand") < len(self.variables), f"variable {written} is not defined")
        return self.variables[written]

    def eqn(self, written: Any) -> Eqn:
        name, operands, params, types, line = row(written, 5, "an equation")
        primitive = _primitive(self, name)
        invars = tuple(self.operand(v) for v in of(list, operands, "operands"))
        values = {key: self.param(value) for key, value in of(dict, params, "params").items()}
        outvars = tuple(self.defined(aval) for aval in of(list, types, "types"))
        expect(0 <= of(int, line, "a line") < len(self.lines), "an equation's line is missing")
        return Eqn(primitive, invars, values, outvars, self.lines[line])  # type: ignore[arg-type]

    def param(self, value: Any) -> Any:
        if value is None or type(value) in (bool, str):
            return value
        if type(value) is int:
            expect(abs(value) <= MOST_EXTENT * 2, "a number is too large")
            return value
        if type(value) is list:
            return tuple(self.param(v) for v in value)
        expect(type(value) is dict and len(value) == 1, "a param is no value that a file can hold")
        [(kind, inner)] = value.items()
        form = _FORMS.get(kind)
        expect(form is not None, f"{kind[:40]!r} is no kind of param")
        return form(self, inner)  # type: ignore[misc]

    def named(self, written: Any) -> Any:
        name, values = row(written, 2, "a named tuple")
        found = PARAM_TYPES.get(of(str, name, "a class"))
        expect(isinstance(found, type) and issubclass(found, tuple), f"{name[:40]!r} is no named tuple")
        return found(*row([self.param(v) for v in of(list, values, "fields")], len(found._fields), name))  # type: ignore[misc,union-attr]


def _enum(reader: _Reader, written: Any) -> Any:
    name, of_it = row(written, 2, "a choice")
    found = PARAM_TYPES.get(of(str, name, "a class"))
    members = getattr(found, "__members__", {})
    expect(of(str, of_it, "a member") in members, f"{name[:40]!r} has no member {of_it[:40]!r}")
    return members[of_it]


def _primitive(reader: _Reader, name: Any) -> Any:
    if of(str, name, "a primitive") not in REGISTRY:
        from fuser.pallas import primitives  # noqa: F401  # those of kernels by hand are registered once they are needed
    expect(name in REGISTRY, f"{name[:60]!r} is no primitive of this version")
    return REGISTRY[name]


def _scalar(dtype: np.dtype, digits: Any) -> Any:
    data = bytes.fromhex(of(str, digits, "a number's bytes"))
    expect(len(data) == dtype.itemsize, f"a number of {dtype} has {len(data)} bytes")
    expect(dtype != np.bool_ or data in (b"\0", b"\1"), "a bool is neither 0 nor 1")
    return np.frombuffer(data, dtype)[0]


_FORMS: dict[str, Callable[[_Reader, Any], Any]] = {
    "bytes": lambda reader, digits: bytes.fromhex(of(str, digits, "bytes")),
    "float": lambda reader, digits: float.fromhex(of(str, digits, "a number")),
    "complex": lambda reader, pair: complex(*(float.fromhex(of(str, p, "a part")) for p in row(pair, 2, "a number"))),
    "scalar": lambda reader, pair: _scalar(decode_dtype(row(pair, 2, "a number")[0]), pair[1]),
    "dtype": lambda reader, name: decode_dtype(name),
    "enum": _enum,
    "named": _Reader.named,
    "primitive": _primitive,
    "type": lambda reader, written: decode_type(written, reader.dim),
    "array": _Reader.array,
    "graph": lambda reader, written: _Reader(written, reader.arrays, reader.dim).graph,
    "layout": lambda reader, written: decode_layout(written, expect),
    "dim": lambda reader, text: reader.dim(of(str, text, "a dimension")),
}
