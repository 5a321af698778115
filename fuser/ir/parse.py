"""Text to graphs, the inverse of `fuser.ir.text.show`, so that a test or a file can hold a graph.

    graph = parse('''{ lambda ; a:f32[3] . let
        b:f32[3] = sin a
      in (b,) }''')

What text cannot hold, a function among the params or the values of constants, is refused or passed beside it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser.errors import GraphError
from fuser.ir.graph import Eqn, Graph, Literal, Operand, Var
from fuser.ir.primitive import REGISTRY
from fuser.ir.references import AbstractRef
from fuser.ir.source import Source
from fuser.ir.text import PARAM_TYPES
from fuser.ir.types import DTYPES, ArrayType, is_integer

_TOKEN = re.compile(
    r"""\s*(?:(?P<string>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|(?P<number>-?(?:\d+\.?\d*(?:e[-+]?\d+)?|inf\b|nan\b)j?)
    |(?P<name>[A-Za-z_][\w.<>-]*)|(?P<mark>[(),=\[\]]))""",
    re.VERBOSE,
)
_COMMENT = re.compile(r"""((?:[^#'"]|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")*)#(.*)""")
_SOURCE = re.compile(r" (?P<file>.*):(?P<line>\d+) \((?P<function>.*?)\)(?: via (?P<via>.*))?$")
_HEAD = re.compile(r"\{ lambda(?P<consts>[^;]*);(?P<inputs>.*)\. let$")
_OPERAND = re.compile(r"(?P<value>\S+?):(?P<type>[\w<>]+\*?\[\])$")
_TYPE = re.compile(r"(?P<dtype>[\w<>]+)(?P<weak>\*?)\[(?P<shape>[\d,]*)\]$")
_REF = re.compile(r"Ref(?:<(?P<space>\w+)>)?\{(?P<inner>.*)\}$")
_WORDS = {"None": None, "True": True, "False": False, "inf": float("inf"), "nan": float("nan")}


def parse(text: str, consts: Sequence[Any] = (), name: str = "main") -> Graph:
    """The graph that `show` writes as `text`; `consts` are the values of its constants, in order.

    GraphError names the line that cannot be read, and what was expected there.
    """
    reader = _Reader(text)
    graph = reader.graph(tuple(consts), name)
    if reader.lines:
        reader.fail("the end of the text")
    return graph


class _Reader:
    """The lines that are still to be read; each is (text, source)."""

    def __init__(self, text: str) -> None:
        split = (_uncommented(line) for line in text.splitlines())
        self.lines = [(line, source) for line, source in split if line]
        self.lines.reverse()

    def fail(self, expected: str, found: str | None = None) -> Any:
        line = found if found is not None else self.lines[-1][0] if self.lines else "the end of the text"
        raise GraphError(f"a graph's text has {line!r}, where {expected} was expected")

    def next(self, expected: str) -> tuple[str, Source]:
        if not self.lines:
            self.fail(expected)
        return self.lines.pop()

    def graph(self, consts: tuple[Any, ...] = (), name: str = "main") -> Graph:
        line, _ = self.next("'{ lambda CONSTS ; INPUTS . let'")
        head = _HEAD.match(line) or self.fail("'{ lambda CONSTS ; INPUTS . let'", line)
        scope: dict[str, Var] = {}
        constvars = tuple(self.defined(word, scope) for word in head["consts"].split())
        invars = tuple(self.defined(word, scope) for word in head["inputs"].split())
        if len(constvars) != len(consts):
            raise GraphError(f"a graph's text has {len(constvars)} constants, but {len(consts)} values were given")
        eqns = []
        while self.lines and not self.lines[-1][0].startswith("in ("):
            eqns.append(self.eqn(scope))
        line, _ = self.next("'in (RESULTS) }'")
        if not line.endswith(") }"):
            self.fail("'in (RESULTS) }'", line)
        words = line.removeprefix("in (").removesuffix(") }").replace(",", " ").split()
        return Graph(invars, constvars, consts, tuple(eqns), tuple(self.operand(word, scope) for word in words), name)

    def eqn(self, scope: dict[str, Var]) -> Eqn:
        line, source = self.next("an equation")
        left, equals, right = line.partition(" = ")
        if not equals:
            self.fail("RESULTS = PRIMITIVE[PARAMS] OPERANDS", line)
        start = re.match(r"[^\s\[]+", right) or self.fail("the name of a primitive", line)
        primitive = REGISTRY.get(start[0]) or self.fail("the name of a primitive", start[0])
        rest, params = right[start.end() :], {}
        if rest.startswith("["):
            tokens = _Tokens(rest, self.fail)
            params, rest = tokens.params(), tokens.rest
        operands = tuple(self.operand(word, scope) for word in rest.split())
        while self.lines and re.fullmatch(r"\w+=\(?", self.lines[-1][0]):
            key, _, opening = self.lines.pop()[0].partition("=")
            params[key] = self.graphs() if opening else self.graph()
        outvars = tuple(self.defined(word, scope) for word in left.split())
        return Eqn(primitive, operands, params, outvars, source)

    def graphs(self) -> tuple[Graph, ...]:
        found = []
        while self.lines and self.lines[-1][0] != ")":
            found.append(self.graph())
        self.next("')'")
        return tuple(found)

    def defined(self, word: str, scope: dict[str, Var]) -> Var:
        name, _, kind = word.partition(":")
        if name in scope:
            self.fail("a name that is not in use", name)
        scope[name] = Var(self.type(kind))
        return scope[name]

    def operand(self, word: str, scope: dict[str, Var]) -> Operand:
        if word in scope:
            return scope[word]
        literal = _OPERAND.match(word) or self.fail("a variable that is defined before, or VALUE:TYPE", word)
        aval = self.type(literal["type"])
        try:
            return Literal(_value(literal["value"], aval.dtype), aval)
        except ValueError:
            return self.fail(f"a value of {aval}", word)

    def type(self, text: str) -> Any:
        if reference := _REF.match(text):
            return AbstractRef(self.type(reference["inner"]), reference["space"])
        found = _TYPE.match(text) or self.fail("a type such as f32[2,3]", text)
        dtype = DTYPES.get(found["dtype"])
        if dtype is None:
            return self.fail(f"a dtype among {', '.join(DTYPES)}", found["dtype"])
        shape = tuple(int(extent) for extent in found["shape"].split(",") if extent)
        return ArrayType(shape, dtype, bool(found["weak"]))


class _Tokens:
    """The params of one equation: `[KEY=VALUE KEY=VALUE]`; `rest` is what follows them."""

    def __init__(self, text: str, fail: Callable[..., Any]) -> None:
        self.rest, self.fail = text, fail

    def take(self) -> tuple[str, str]:
        found = _TOKEN.match(self.rest) or self.fail("a value", self.rest)
        self.rest = self.rest[found.end() :]
        kind = found.lastgroup or ""
        return kind, found[kind]

    def expect(self, mark: str) -> None:
        if self.take()[1] != mark:
            self.fail(f"{mark!r}", self.rest)

    def params(self) -> dict[str, Any]:
        self.expect("[")
        return self.pairs("]")

    def pairs(self, closing: str) -> dict[str, Any]:
        """`KEY=VALUE`, with or without commas between, up to a closing mark."""
        found: dict[str, Any] = {}
        while (token := self.take())[1] != closing:
            if token[1] != ",":
                self.expect("=")
                found[token[1]] = self.value()
        return found

    def value(self) -> Any:
        kind, text = self.take()
        if kind == "string":
            return ast.literal_eval(text)
        if text == "(":
            return self.items()
        if text in _WORDS:
            return _WORDS[text]
        if kind == "number":
            return complex(text) if text.endswith("j") else float(text) if set(text) & set(".enf") else int(text)
        return self.named(text)

    def items(self) -> tuple[Any, ...]:
        found = []
        while not self.rest.lstrip().startswith(")"):
            found.append(self.value())
            if self.rest.lstrip().startswith(","):
                self.take()
        self.take()
        return tuple(found)

    def named(self, text: str) -> Any:
        """A dtype, a primitive, a member of an enumeration, or a named tuple."""
        if text in DTYPES:
            return DTYPES[text]
        if text in REGISTRY:
            return REGISTRY[text]
        kind, _, member = text.partition(".")
        known = PARAM_TYPES.get(kind) or self.fail("a value that text can hold", text)
        if member:
            return known[member]
        self.expect("(")
        return known(**self.pairs(")"))


def _uncommented(line: str) -> tuple[str, Source]:
    """A line without its comment, and the user's line that the comment names."""
    found = _COMMENT.match(line)
    if found is None:
        return line.strip(), Source()
    source = _SOURCE.match(found[2])
    if source is None:
        return found[1].strip(), Source()
    via = tuple(source["via"].split(", ")) if source["via"] else ()
    return found[1].strip(), Source(source["file"], int(source["line"]), source["function"], via)


def _value(text: str, dtype: np.dtype) -> Any:
    """A literal's value: `True`, `-0.0`, `1e-05`, `(1+2j)`, `nan`."""
    if dtype == np.bool_:
        if text not in ("True", "False"):
            raise ValueError(text)
        return text == "True"
    if is_integer(dtype):
        return int(text)
    return complex(text) if dtype.kind == "c" else float(text)
