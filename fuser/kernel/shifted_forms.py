"""Normal forms of a kernel's values, by which one that is another one at a shifted place, or its negative, is found.

In: the nodes of an iteration, and the axes along which they may be shifted. Out: a `Form` each. Two nodes of one `key` are the same function
of the same arrays, up to sign and shift; with the same `variant` too they are equal to the last bit. `x[i + 1] - x[i]` is the negative
of `x[i - 1] - x[i]` one further, but for the sign of a zero; their squares are equal.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from fuser.ir.index import Affine, Axis
from fuser.ir.scalar import Scalar
from fuser.ir.types import is_inexact
from fuser.kernel.operands import computed, index_of, own_axes

Shift = tuple[int | None, ...]  # along each axis; None where the value does not change along it


@dataclass(frozen=True, slots=True)
class Form:
    """A node as `sign` times the value of `key`, `shift` places on. `variant`: which operands it has the other way round, 0 for none;
    `opaque`: it reads at places that a shift does not simply move."""

    key: int
    sign: int
    variant: int
    shift: Shift
    opaque: bool = False

    def beside(self, first: Shift) -> Shift:
        """How far it is from a place."""
        return tuple(None if a is None or b is None else a - b for a, b in zip(self.shift, first))


class Forms:
    """The forms of `nodes`, operands first, under shifts along `axes`. What is computed before them stands for itself."""

    def __init__(self, nodes: Sequence[Scalar], axes: Sequence[Axis]) -> None:
        self.axes = tuple(axes)
        self.still: Shift = (None,) * len(self.axes)
        self._keys: dict[Hashable, int] = {}
        self._variants: dict[Hashable, int] = {0: 0}
        self.negations: dict[int, int] = {}  # of a variant: how many stand outermost
        self._first = _smallest_offsets(nodes)
        self.of: dict[Scalar, Form] = {}
        inside = set(nodes)
        for node in nodes:
            for operand in node.args:
                if operand not in self.of:
                    assert operand not in inside or operand.op == "const"
                    self.of[operand] = self._leaf(operand)
            self.of[node] = self._form(node)

    def shift(self, node: Scalar, origin: Scalar) -> tuple[int, ...]:
        """How far a node is from another one of its key."""
        return tuple(step or 0 for step in self.of[node].beside(self.of[origin].shift))

    def _key(self, *parts: Hashable) -> int:
        return self._keys.setdefault(parts, len(self._keys))

    def _variant(self, *parts: Hashable) -> int:
        return self._variants.setdefault(parts, len(self._variants))

    def _leaf(self, node: Scalar) -> Form:
        if node.op == "const":
            return Form(self._key("const", str(node.dtype), node.attr.tobytes()), 1, 0, self.still)
        return Form(self._key("given", id(node)), 1, 0, self.still)

    def _form(self, node: Scalar) -> Form:
        if node.op == "const":
            return self._leaf(node)
        if node.op in ("load", "index"):
            return self._element(node)
        if is_inexact(node.dtype) and node.dtype.kind == "f":
            found = self._arithmetic(node)
            if found is not None:
                return found
        return self._other(node)

    # Leaves.

    def _element(self, node: Scalar) -> Form:
        offset, masks = index_of(node), [self.of[arg] for arg in node.args]
        plain = all(
            isinstance(atom, Axis) or not set(Affine(((atom, 1),)).leaves) & {*self.axes} for atom in offset.atoms
        )
        if not plain or computed(offset):
            moves = bool(own_axes(node) & {*self.axes}) or bool(computed(offset))
            return Form(self._key("opaque", id(node)), 1, 0, tuple(0 if moves else None for _ in self.axes), moves)
        rest, shift = self._place(node, offset)
        param = node.attr.param if node.op == "load" else None
        beside = tuple((mask.key, mask.variant, mask.beside(shift)) for mask in masks)
        key = self._key(node.op, param, str(node.dtype), offset.terms, rest, beside)
        return Form(key, 1, 0, shift, any(mask.opaque for mask in masks))

    def _place(self, node: Scalar, offset: Affine) -> tuple[int, Shift]:
        """An offset from the least of the array's as steps along the axes, and what is left."""
        first = self._first[_array(node)]
        rest = offset.offset - first
        steps: dict[Axis, int | None] = {}
        for axis in sorted(self.axes, key=lambda axis: -abs(offset.coefficient(axis))):
            step = offset.coefficient(axis)
            if not step:
                steps[axis] = None
                continue
            count = (rest + abs(step) // 2) // abs(step)
            rest -= count * abs(step)
            steps[axis] = count if step > 0 else -count
        return rest, tuple(steps[axis] for axis in self.axes)

    # Operations.

    def _arithmetic(self, node: Scalar) -> Form | None:
        """The form of what may be negative, and of what takes the sign away; None of other operations."""
        args = [self.of[arg] for arg in node.args]
        kind = str(node.dtype)
        if node.op == "neg":
            [a] = args
            variant = self._variant("neg", a.variant)
            self.negations[variant] = self.negations.get(a.variant, 0) + 1
            return Form(a.key, -a.sign, variant, a.shift, a.opaque)
        if node.op == "abs" and node.args[0].dtype == node.dtype:
            [a] = args
            return Form(self._key("abs", kind, a.key), 1, 0, a.shift, a.opaque)
        if node.op in ("add", "sub", "mul", "div") and all(arg.dtype == node.dtype for arg in node.args):
            return self._of_two(node, *args)
        return None

    def _of_two(self, node: Scalar, a: Form, b: Form) -> Form | None:
        op, kind, opaque = node.op, str(node.dtype), a.opaque or b.opaque
        if op == "mul" and (a.key, a.variant, a.shift) == (b.key, b.variant, b.shift):
            return Form(self._key("square", kind, a.key), 1, 0, a.shift, opaque)
        if op in ("add", "sub") and any(arg.op == "const" for arg in node.args):
            if not any(arg.op == "const" and arg.attr != 0 for arg in node.args):
                return None
            # What is added to a number that is not 0 may have either zero.
            shift = self._anchor((a, b))
            key = self._key(op, kind, *((f.key, f.sign, f.beside(shift)) for f in (a, b)))
            return Form(key, 1, 0, shift, opaque)
        if op == "div" and b.variant:
            return None  # by a zero of the other sign
        turned = op != "div" and _before(b, a)
        first, second = (b, a) if turned else (a, b)
        shift = self._anchor((first, second))
        relative = a.sign * b.sign
        key = self._key(op, kind, first.key, second.key, relative, first.beside(shift), second.beside(shift))
        if op in ("mul", "div"):
            sign = relative
            key = self._key(op, kind, first.key, second.key, first.beside(shift), second.beside(shift))
        else:
            sign = -first.sign if op == "sub" and turned else first.sign
        swapped = op == "sub" and turned
        variants = (first.variant, second.variant)
        variant = self._variant(op, swapped, *variants) if swapped or any(variants) else 0
        return Form(key, sign, variant, shift, opaque)

    def _other(self, node: Scalar) -> Form:
        """An operation whose operands have to be equal to the last bit."""
        args = [self.of[arg] for arg in node.args]
        shift = self._anchor(args)
        exact = tuple((a.key, a.variant, a.beside(shift)) for a in args)
        return Form(
            self._key(node.op, str(node.dtype), _attribute(node), exact), 1, 0, shift, any(a.opaque for a in args)
        )

    def _anchor(self, args: Iterable[Form]) -> Shift:
        """Where the first operand stands that moves, axis by axis."""
        found = list(self.still)
        for form in args:
            found = [b if a is None else a for a, b in zip(found, form.shift)]
        return tuple(found)


def _before(b: Form, a: Form) -> bool:
    """Whether the second operand goes first: by what it is, and of the same at two places by these."""
    if a.key != b.key:
        return b.key < a.key
    return tuple(step or 0 for step in b.shift) < tuple(step or 0 for step in a.shift)


def _attribute(node: Scalar) -> Hashable:
    try:
        hash(node.attr)
    except TypeError:
        return id(node.attr)
    return node.attr  # type: ignore[no-any-return]


def _array(node: Scalar) -> Hashable:
    """What the offsets of a load or of an index count in."""
    offset = index_of(node)
    return node.op, node.attr.param if node.op == "load" else None, offset.terms


def _smallest_offsets(nodes: Iterable[Scalar]) -> dict[Hashable, int]:
    found: dict[Hashable, int] = {}
    for node in nodes:
        if node.op in ("load", "index"):
            array, offset = _array(node), index_of(node).offset
            found[array] = min(found.get(array, offset), offset)
    return found
