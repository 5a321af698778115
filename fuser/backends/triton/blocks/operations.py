"""The operations of a kernel over blocks as lines of Triton: elementwise expressions, movement, reductions, products, and reads of memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fuser.backends.triton import spell
from fuser.backends.triton.blocks.values import (
    MOST_ELEMENTS,
    Along,
    Held,
    Memory,
    Product,
    Refused,
    Value,
    check_powers,
    plus,
    shape_text,
    times,
)
from fuser.ir.cost import lowered
from fuser.ir.graph import Eqn, Graph, Literal, Operand, Var
from fuser.ir.primitive import Fusion
from fuser.ir.scalar import Scalar
from fuser.ir.types import FLOATS, ArrayType, bfloat16
from fuser.kernel.decompose import Decomposition
from fuser.ops.dot import dot_general_p
from fuser.ops.dynamic import dynamic_slice_p
from fuser.ops.movement import broadcast_in_dim_p, iota_p, reshape_p, slice_p, squeeze_p, transpose_p

MOST_DOT_BYTES = 96 << 10  # of the two operands of a product, in shared memory
SHORTEST = 16  # the least extent that tl.dot takes
REDUCTIONS = {f"reduce_{n}": n for n in ("sum", "max", "min", "prod", "and", "or", "xor")}
_PRODUCTS = (FLOATS[0], bfloat16, FLOATS[2])


VIEWS = (dynamic_slice_p, slice_p, transpose_p, reshape_p, squeeze_p)


class Operations:
    """Writes lines; what a name stands for is a `Value`."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1
        self.count = 0
        self.largest, self.staged = 1, 0  # elements of a value, bytes of a product's operands
        self.fresh: dict[str, str] = {}  # expressions of positions that have a name, in this block of the text
        self.counters: set[str] = set()  # names that Python counts

    # Text.

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def open(self, head: str) -> None:
        self.line(head)
        self.depth += 1
        self.fresh = {}

    def close(self) -> None:
        self.depth -= 1
        self.fresh = {}

    def new(self, what: str) -> str:
        self.count += 1
        return f"{what}{self.count - 1}"

    def fresh_name(self, text: str) -> str:
        name = self.new("v")
        self.line(f"{name} = {text}")
        return name

    def name(self, text: str, aval: ArrayType) -> Value:
        self.largest = max(self.largest, aval.size)
        return Value(self.fresh_name(text), aval)

    def _named(self, value: Value, what: str, aval: ArrayType | None = None) -> Value:
        """A name of its own that a loop assigns to again."""
        aval = aval or value.aval
        name = self.new(what)
        self.line(f"{name} = {value.text}")
        return Value(name, aval)

    def full(self, aval: ArrayType, text: str) -> Value:
        check_powers(aval)
        if not aval.shape:
            return Value(f"tl.full((), {text}, {spell.local(aval.dtype)})", aval)
        return self.name(f"tl.full({shape_text(aval)}, {text}, {spell.local(aval.dtype)})", aval)

    def value(self, held: Held) -> Value:
        """What stands there, in registers."""
        if isinstance(held, Product):
            return self._product(held, None)
        if isinstance(held, Value):
            return held
        if held.aval.size > MOST_ELEMENTS:
            raise Refused(f"a block of {held.aval} is read whole, more elements than a program holds ({MOST_ELEMENTS})")
        pointer, mask = self._address(held)
        widened = spell.widened(held.array.dtype)
        return self.name(f"tl.load({pointer}{f', mask={mask}, other=0' if mask else ''}){widened}", held.aval)

    def computed(self, eqn: Eqn, scope: Scope) -> Value:
        primitive, aval = eqn.primitive, eqn.outvars[0].aval
        if primitive is dot_general_p:
            return self._product(Product("", aval, self._sides(eqn, scope)), None)
        if primitive.fusion is Fusion.ELEMENTWISE and primitive.lower is not None:
            return self._elementwise(eqn, [scope.value(v) for v in eqn.invars])
        if primitive is iota_p:
            return self._arange(aval, eqn.params["dimension"])
        if (
            primitive not in (broadcast_in_dim_p, reshape_p, squeeze_p, transpose_p)
            and primitive.name not in REDUCTIONS
        ):
            raise Refused(f"{primitive.name} has no form in a Triton kernel by hand ({eqn.source.short})")
        value = scope.value(eqn.invars[0])
        if primitive is broadcast_in_dim_p:
            return self._broadcast(value, aval, eqn.params["broadcast_dimensions"])
        if primitive is transpose_p:
            order = eqn.params["permutation"]
            text = f"tl.trans({value.text})" if order == (1, 0) else f"tl.permute({value.text}, {tuple(order)})"
            return self.name(text, aval)
        if primitive.name in REDUCTIONS:
            return self._reduce(value, REDUCTIONS[primitive.name], eqn.params["axes"], aval)
        if not aval.shape:
            return self._reduce(value, "sum", tuple(range(value.aval.ndim)), aval)
        check_powers(aval)
        if not value.aval.shape:
            return self.full(aval, value.text)
        return self.name(f"tl.reshape({value.text}, {shape_text(aval)})", aval)

    def _elementwise(self, eqn: Eqn, operands: Sequence[Value]) -> Value:
        """An elementwise operation, a line for each node of its expression."""
        aval = eqn.outvars[0].aval
        numbers = {n: v for n, v in enumerate(eqn.invars) if isinstance(v, Literal)}
        root = Decomposition(spell.TABLE.has).node(_with_numbers(lowered(eqn), numbers))
        texts: dict[Scalar, str] = {}

        def text(node: Scalar) -> str:
            if node in texts:
                return texts[node]
            if node.op == "input":
                found = operands[node.attr].text
                found = f"tl.full((), {found}, tl.int32)" if found in self.counters else found
            elif node.op == "const":
                found = spell.typed(node.attr, node.dtype)
            else:
                found = self.fresh_name(spell.TABLE.operation(node, self._arguments(node, text)))
            texts[node] = found
            return found

        return Value(text(root), aval) if root.op == "input" else self.exact(Value(text(root), aval), operands)

    def _arguments(self, node: Scalar, text: Callable[[Scalar], str]) -> list[str]:
        """Operands; a number beside a value is written as it is where that means the same."""
        bare = node.op in (spell.INFIX | {"max", "min"}) and sum(a.op == "const" for a in node.args) == 1
        return [
            spell.literal(a.attr, a.dtype) if bare and a.op == "const" and spell.plain(a.attr, a.dtype) else text(a)
            for a in node.args
        ]

    def exact(self, value: Value, operands: Sequence[Value]) -> Value:
        """The value in its whole shape, which literals alone do not have."""
        if value.aval.shape and not any(o.aval.shape == value.aval.shape for o in operands):
            return self.full(value.aval, value.text)
        return value

    def _broadcast(self, value: Value, aval: ArrayType, dimensions: Sequence[int]) -> Value:
        check_powers(aval)
        if not value.aval.shape:
            return self.full(aval, value.text)
        places = ", ".join(":" if d in dimensions else "None" for d in range(aval.ndim))
        text = value.text if value.aval.ndim == aval.ndim else f"{value.text}[{places}]"
        known = tuple(value.aval.shape[list(dimensions).index(d)] if d in dimensions else 1 for d in range(aval.ndim))
        return self.name(text if known == aval.shape else f"tl.broadcast_to({text}, {shape_text(aval)})", aval)

    def _reduce(self, value: Value, kind: str, axes: Sequence[int], aval: ArrayType) -> Value:
        text, local = value.text, spell.local(aval.dtype)
        for axis in sorted(axes, reverse=True):
            text = f"tl.sum({text}, {axis})" if kind == "sum" else f"tl.reduce({text}, {axis}, combine_{kind})"
        return self.name(f"{text}.to({local})" if aval.dtype.kind in "iub" else text, aval)

    def _arange(self, aval: ArrayType, dimension: int) -> Value:
        check_powers(aval)
        row = f"tl.arange(0, {aval.shape[dimension]})"
        places = ", ".join(":" if d == dimension else "None" for d in range(aval.ndim))
        text = row if aval.ndim == 1 else f"tl.broadcast_to({row}[{places}], {shape_text(aval)})"
        return self.name(f"{text}.to({spell.local(aval.dtype)})", aval)

    # Products.

    def _sides(self, eqn: Eqn, scope: Scope) -> tuple[str, str]:
        """The operands of a product, rows by inner and inner by columns, in the types that they lie in."""
        (contracted, batch), (x, y) = eqn.params["dimension_numbers"], (v.aval for v in eqn.invars)
        if (
            batch[0]
            or x.ndim != 2
            or y.ndim != 2
            or len(contracted[0]) != 1
            or x.dtype not in _PRODUCTS
            or y.dtype != x.dtype
        ):
            raise Refused(f"a product of {x} and {y} has no form in a Triton kernel by hand ({eqn.source.short})")
        if min(*x.shape, *y.shape) < SHORTEST:
            raise Refused(f"a product of {x} and {y} has an extent below {SHORTEST}")
        if eqn.outvars[0].aval.dtype not in (x.dtype, FLOATS[2]):
            raise Refused(f"a product of {x} and {y} in {eqn.outvars[0].aval.dtype}")
        self.staged = max(self.staged, x.nbytes + y.nbytes)
        if self.staged > MOST_DOT_BYTES:
            raise Refused(f"the operands of a product, {x} and {y}, do not fit shared memory")
        narrow = "" if spell.storage(x.dtype) == spell.local(x.dtype) else f".to({spell.storage(x.dtype)})"
        texts = [f"{scope.value(v).text}{narrow}" for v in eqn.invars]
        left = f"tl.trans({texts[0]})" if contracted[0][0] == 0 else texts[0]
        right = f"tl.trans({texts[1]})" if contracted[1][0] == 1 else texts[1]
        return left, right

    def _product(self, product: Product, total: Value | None) -> Value:
        left, right = product.sides
        added = "" if total is None else f", {total.text}"
        text = f'tl.dot({left}, {right}{added}, input_precision="ieee")'
        dtype = product.aval.dtype
        rounded = "" if dtype == FLOATS[2] else f".to({spell.storage(dtype)}).to(tl.float32)"
        return self.name(f"{text}{rounded}", product.aval)

    # Memory.

    def _view(self, eqn: Eqn, source: Memory, scope: Scope) -> Memory | None:
        """A part of memory, or the same in another order; None for what needs its values."""
        seen, rest = [a for a in source.along if a.seen], [a for a in source.along if not a.seen]
        primitive, params = eqn.primitive, eqn.params
        if primitive is transpose_p:
            return Memory(source.param, source.array, (*(seen[d] for d in params["permutation"]), *rest))
        if primitive is dynamic_slice_p:
            starts = [
                self._clamped(v, a.extent - size, scope)
                for v, a, size in zip(eqn.invars[1:], seen, params["slice_sizes"])
            ]
            found = [Along(a.dimension, plus(a.start, s), e) for a, s, e in zip(seen, starts, params["slice_sizes"])]
            return Memory(source.param, source.array, (*found, *rest))
        if primitive is slice_p:
            if any(s != 1 for s in params["strides"] or ()):
                return None
            bounds = zip(seen, params["start_indices"], params["limit_indices"])
            found = [Along(a.dimension, plus(a.start, str(low)), high - low) for a, low, high in bounds]
            return Memory(source.param, source.array, (*found, *rest))
        shape = eqn.outvars[0].aval.shape
        if primitive not in (reshape_p, squeeze_p) or [e for e in shape if e != 1] != [
            a.extent for a in seen if a.extent != 1
        ]:
            return None
        if len(shape) > len([e for e in shape if e != 1]):
            return None  # dimensions of one element are made of values
        kept = [a for a in seen if a.extent != 1]
        ones = [Along(a.dimension, a.start, 1, False) for a in seen if a.extent == 1]
        return Memory(source.param, source.array, (*kept, *ones, *rest))

    def _clamped(self, start: Operand, most: int, scope: Scope) -> str:
        if isinstance(start, Literal):
            return str(min(max(int(start.val), 0), most))
        return "0" if most == 0 else f"tl.minimum(tl.maximum({scope.value(start).text}, 0), {most})"

    def _address(self, memory: Memory) -> tuple[str, str]:
        """Pointers to the elements, and the mask of those inside of the array."""
        shape = memory.array.shape
        strides = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
        seen = [a for a in memory.along if a.seen]
        check_powers(memory.aval)
        if math.prod(shape) >= 2**31:
            raise Refused("an array has more elements than positions of 32 bits count")
        terms, masks = [], []
        for place, a in enumerate(seen):
            at = self.position(f"{plus(a.start, f'tl.arange(0, {a.extent})')}")
            at = at if len(seen) == 1 else f"{at}[{', '.join(':' if n == place else 'None' for n in range(len(seen)))}]"
            terms.append(times(at, strides[a.dimension]))
            if shape[a.dimension] % a.extent:
                masks.append(f"({at} < {shape[a.dimension]})")
        for a in memory.along[len(seen) :]:
            if a.start != "0":
                terms.append(times(a.start, strides[a.dimension]))
        return " + ".join([memory.param, *terms]), " & ".join(masks)

    def position(self, text: str) -> str:
        """A name for positions along a dimension."""
        if text not in self.fresh:
            self.fresh[text] = f"at{self.count}"
            self.count += 1
            self.line(f"{self.fresh[text]} = {text}")
        return self.fresh[text]


class Scope:
    """The values of one graph so far; inputs come when they are asked for."""

    def __init__(self, writer: Operations, graph: Graph, inputs: Sequence[Callable[[], Held]]) -> None:
        self.writer = writer
        self.late = dict(zip(graph.invars, inputs))
        self.consts = dict(zip(graph.constvars, graph.consts))
        self.known: dict[Var, Held] = {}

    def get(self, operand: Operand) -> Held:
        """A value, or memory that holds it."""
        aval = operand.aval
        if isinstance(operand, Literal):
            return Value(spell.typed(aval.dtype.type(operand.val), aval.dtype), aval)
        if operand not in self.known and operand in self.late:
            self.known[operand] = self.late[operand]()
        if operand not in self.known and operand in self.consts and not aval.shape:
            self.known[operand] = Value(spell.typed(aval.dtype.type(self.consts[operand]), aval.dtype), aval)
        if operand not in self.known:
            raise Refused("the kernel closes over an array")
        return self.known[operand]

    def value(self, operand: Operand) -> Value:
        """A value, loaded once."""
        found = self.writer.value(self.get(operand))
        if isinstance(operand, Var):
            self.known[operand] = found
        return found


def _with_numbers(node: Scalar, numbers: Mapping[int, Literal]) -> Scalar:
    """The expression with numbers in the place of these inputs."""
    if node.op == "input":
        literal = numbers.get(node.attr)
        return node if literal is None else Scalar("const", (), node.dtype, np.asarray(literal.val, node.dtype)[()])
    return (
        Scalar(node.op, tuple(_with_numbers(a, numbers) for a in node.args), node.dtype, node.attr)
        if node.args
        else node
    )
