"""What all loop forms of the C backend share: names, values, reductions and stores. A form is a subclass."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from fuser.backends.c import spell
from fuser.backends.c.builder import Builder
from fuser.backends.c.function import (
    ARGUMENTS,
    BUFFERS,
    NOTHING,
    SIZES,
    THREADS,
    Buffer,
    Code,
    Do,
    Element,
    Function,
    Let,
    Module,
    Own,
    Part,
    Statement,
    Sum,
    Variable,
    changed,
    code,
    joined,
)
from fuser.backends.c.half_precision import unrounded
from fuser.backends.c.index_arithmetic import FLOOR, TRUNCATED, Arguments, Offsets
from fuser.backends.c.schedules import masking
from fuser.backends.c.target import TARGET
from fuser.backends.c.team_size import TEAM_FOR
from fuser.ir.index import Affine, Axis, Div
from fuser.ir.scalar import Scalar
from fuser.ir.types import BOOL, FLOATS, is_complex, is_inexact
from fuser.kernel.cost import most_alone
from fuser.kernel.emitter import Emitter as Common
from fuser.kernel.emitter import axis_names, invariants
from fuser.kernel.kernel import Kernel, Store, reduction_identity
from fuser.kernel.loops import Loops
from fuser.kernel.operands import computed, index_axes, operands, own_axes
from fuser.kernel.ranges import without_test
from fuser.kernel.schedule import NOTHING_ASKED, Schedule
from fuser.kernel.sizes import MOST_SIZES

SHARES = Variable("shares", "int")
NEAR = 16  # elements apart at most, for which gcc reads under a test what does not lie side by side

NOINLINE = "__attribute__((noinline)) "

_INFIX = {"sum": "{0} + {1}", "prod": "{0} * {1}", "and": "{0} & {1}", "or": "{0} | {1}", "xor": "{0} ^ {1}"}
_OPENMP = {"sum": "+", "prod": "*", "and": "&", "or": "|", "xor": "^", "max": "max", "min": "min"}


class Emitter(Builder, Common):
    """Writes one kernel as a C function."""

    attributes = ""  # of the C function
    team = False  # whether a team of threads runs the function as a whole, and shares its loops marked `omp for`

    most_sizes = MOST_SIZES  # size arguments; integers beyond stand in the text
    short_loops = False  # whether the innermost loops are too short to become functions
    state = 0  # integers that all threads see, `state` in the function, zero at first
    single_element = False  # whether what is written now computes one element, in no loop that could have vectors
    single: frozenset[Scalar] = frozenset()  # loads at computed indices in loops of their own, which have no vectors

    def __init__(self, kernel: Kernel, loops: Loops, threads: bool = True, asked: Schedule = NOTHING_ASKED) -> None:
        Builder.__init__(self)
        Common.__init__(self, kernel)
        self.asked = asked
        self._made: dict[str, Any] = {}
        self.loops = loops
        self.threads = threads  # False: the function is for one thread, wherever it is called
        self.sizes = Arguments(self.most_sizes)
        self.literals: dict[Any, Variable] = {}  # by size argument: a literal of this value
        self.params = [self._declared(param.name, spell.storage(param.dtype), pointer=True) for param in kernel.params]
        axes = [*self.loops.parallel, *self.loops.reduced]
        self.axis_names = axis_names(axes)
        self.axes: dict[Axis, Part] = {a: Variable(name, "int64_t") for a, name in self.axis_names.items()}
        absorbed, vector = set(self.loops.absorbed), self.loops.vector
        self.index = Offsets(self.sizes, self.axes, absorbed, self.operand, vector)  # type: ignore[arg-type]
        self.extents = {axis: self.sizes.extent(axis, self.loops.extents[axis]) for axis in axes}
        self.kept: dict[Scalar, Any] = {}
        self.following: dict[Scalar, bool] = {}  # whether a node changes along the vector
        self.masks = masking.truths(kernel.nodes)
        self.divisions = {n for n in kernel.nodes if n.op in ("div", "rem") and n.dtype.kind in "iu"}
        self.divisors = {n.args[1] for n in self.divisions}
        self.lengths = {extent for param in kernel.params for extent in param.shape}
        self.begun: set[str] = set()  # what scans carry; a scan that two sweeps compute is declared by the first
        self.strips: set[int] = set()  # divisors of positions along the vector whose quotients stand still in loops
        self.two_level: list[Scalar] = []  # sums of the sweep being written that have two levels (`sums`)
        self.starts: dict[Scalar, Variable] = {}  # where masked loads begin, computed before the loop along the vector
        # Tests that are the same along the vector, by the size of what they choose: numbers that are above 0 where they hold.
        self.held: dict[tuple[Scalar, int], Variable] = {}
        self.inside: Code | None = None  # in loops over whole vectors: whether an element is one of the row's
        self.aliases: dict[Store, Variable] = {}  # pointers of their own, by which these write into an array there
        self.widened: Mapping[Scalar, Variable] = {}  # narrow numbers that are read from rows of wide ones
        self.narrowed: Mapping[Store, Variable] = {}  # stores of narrow numbers that wait in rows of wide ones
        self.outside: Part = "0"  # and the floating-point number that stands for one that is not
        self.backwards = False  # whether the sweep being written runs over the reduced axes from their end

    # The schedule.

    def made(self, **transforms: Any) -> None:
        """Note the transforms that the text has."""
        self._made |= {name: value for name, value in transforms.items() if value is not None}

    def schedule(self) -> Schedule:
        """What was made of the loops, once they are written."""
        vector = self.loops.vector
        return Schedule(vector=None if vector is None else self.axis_names[vector], **self._made)

    # The parts of a module.

    def module(self) -> Module:
        self.define_all(self.invariants())
        self.form()
        assert self.depth == 0
        comments, name = self.kernel.comments[:12], self.kernel.name
        shares = self.shares() if self.team and self.threads and self.loops.parallel else None
        body = (*self._parameters(), *self.statements)
        shared = Variable("state", "volatile int", pointer=True)
        state = (Buffer(shared, code(str(self.state)), " = {0}"),) if self.state else ()
        if shares is None:
            return Module(name, (self.function((*state, *body), comments),))
        # Even a team of one costs 300 ns: what is small is called without. `omp for` then takes it for a team of one.
        share = Own("_share")
        arguments = (*ARGUMENTS, ("volatile int *", shared)) if state else ARGUMENTS
        call = code("{}({})", share, joined((variable for _, variable in arguments), ", "))
        calls = (
            Let("const int", (SHARES,), (shares,)),
            Do(code("if ({} == 1) {{ {}; return; }}", SHARES, call)),
            Do(code("#pragma omp parallel num_threads({})", SHARES)),
            Do(code("{};", call)),
        )
        inner = Function(
            share, body, arguments, attributes=NOINLINE + self.attributes, static=True, comments=comments, first_size=0
        )
        return Module(name, (inner, Function(Own(), (*state, *calls), first_size=0)))

    def function(self, body: tuple[Statement, ...], comments: tuple[str, ...]) -> Function:
        """The function that has the loops."""
        return Function(
            Own(), body, attributes=self.attributes, short_loops=self.short_loops, comments=comments, first_size=0
        )

    def _parameters(self) -> list[Statement]:
        """Pointers to the arrays, and the size arguments."""
        shared = self._shared_memory()
        found: list[Statement] = []
        for number, (param, variable) in enumerate(zip(self.kernel.params, self.params)):
            const, apart = "" if param.out else "const ", "" if number in shared else "restrict"
            found.append(Let(f"{const}{variable.type} *{apart}", (variable,), (code(f"{{}}[{number}]", BUFFERS),)))
        for store, variable in {variable: (store, variable) for store, variable in self.aliases.items()}.values():
            value = code(f"{{}}({{}}[{store.param}])", masking.APART, BUFFERS)
            found.append(Let(f"{variable.type} *", (variable,), (value,)))
        for slot in range(len(self.sizes.values)):
            found.append(Let("const int64_t", (self.sizes.variable(slot),), (code(f"{{}}[{slot}]", SIZES),)))
        for size, literal in self.literals.items():
            found.append(Let(f"const {literal.type}", (literal,), (code(size),)))
        return found

    def _shared_memory(self) -> set[int]:
        """Parameters that may be one memory: a result takes over what the kernel reads at the very offset alone.

        So do results of elementwise kernels, and carries of loops (`kernel/loop_buffers.py`), whose kernels may reduce as well.
        """
        written = {store.param for store in self.kernel.stores}
        found = {param: self.overwritten(param) for param in written}
        return {number for param, numbers in found.items() if numbers for number in (param, *numbers)}

    def overwritten(self, param: int) -> set[int]:
        """The parameters whose memory a result's may be."""
        if self.kernel.loop is not None:
            return set()
        dtype, stores = self.kernel.params[param].dtype, [s for s in self.kernel.stores if s.param == param]
        return {
            number
            for number, read in self._offsets_read.items()
            if self.kernel.params[number].dtype == dtype and any(read == {store.offset} for store in stores)
        }

    @functools.cached_property
    def _offsets_read(self) -> dict[int, set[Affine]]:
        """Where each parameter is read that is."""
        found: dict[int, set[Affine]] = {}
        for node in self.kernel.nodes:
            if node.op == "load":
                found.setdefault(node.attr.param, set()).add(node.attr.offset)
        return found

    def shared(self, axes: int = 1, schedule: Part = "static") -> None:
        """Let the threads of the team share the iterations of the next loops."""
        if self.threads:
            collapse = f" collapse({axes})" if axes > 1 else ""
            self.pragma(f"omp for{collapse} schedule({{}}) nowait", schedule)

    def invariants(self) -> list[Scalar]:
        """What is computed once, before all loops."""
        return invariants(self.kernel)

    def form(self) -> None:
        """Write the loops; each loop form is a subclass."""
        raise NotImplementedError

    def loop(self, axis: Axis, first: Part = "0", last: Part | None = None, step: str = "++{}") -> None:
        self.count(self.axis_names[axis], first, last or self.extents[axis], step)

    @contextmanager
    def standing_loads(self, nodes: Iterable[Scalar]) -> Iterator[None]:
        """A block before which what stands still along the vector is read: under a mask gcc has no vectors of that."""
        vector, saved = self.loops.vector, dict(self.env)
        still = lambda node: node.op == "load" and not node.args and not computed(node.attr.offset)
        loads = [n for n in nodes if still(n) and vector is not None and not self.follows(n, vector)]
        self.open()
        for node in loads:
            self.define(node)
        yield
        self.close()
        self.env = saved

    def count_masked(self, name: str, total: Part, lanes: int, first: Part = "0") -> Variable:
        """Open a loop over whole vectors of `lanes` numbers from the first on; until it is closed by `close_masked`, arrays
        are read and written where the count lies `within` the total alone. Its counter has 32 bits, as the elements have whose
        mask is made of it."""
        rest = self.code("{}", total) if first == "0" else self.code("({} - {})", total, first)
        lane = self.count(f"{name}_lane", "0", masking.padded(rest, lanes), kind="int32_t")
        self.inside, self.outside = masking.tested(lane, rest)
        self.aliases |= masking.aliases(self, lanes)
        return self.let(
            "int64_t", name, "{}" if first == "0" else "{0} + {1}", *((lane,) if first == "0" else (first, lane))
        )

    def in_whole_vectors(
        self, axis: Axis, lanes: int, body: Callable[[], None], first: Part = "0", last: Part = "", told: Part = ""
    ) -> None:
        """A loop over the whole vectors of `lanes` numbers along an axis, and one over what is left, whose loads and stores alone are
        under a mask: compilers call no function for vectors in a branch."""
        name, total = self.axis_names[axis], last or self.extents[axis]
        form = f"{{}} / {lanes} * {lanes}" if first == "0" else f"{{1}} + ({{0}} - {{1}}) / {lanes} * {lanes}"
        whole = self.let("int64_t", f"{name}_whole", form, total, first)
        with self.scope():
            self.pragma("omp simd{}", told)
            self.loop(axis, first, whole)
            body()
            self.close()
        with self.scope():
            self.pragma("omp simd{}", told)
            self.count_masked(name, total, lanes, whole)
            body()
            self.close_masked()

    def open_masked(self, name: str, total: Part, lanes: int, first: Part = "0") -> Variable:
        """Open a loop over whole vectors, and in it the test that an element is there; gives the counter."""
        counter = self.count_masked(name, total, lanes, first)
        self.open("if ({}({}, {}))", masking.WITHIN, counter, total)
        self.inside = None  # all that follows is
        return counter

    def close_masked(self) -> None:
        """Close the innermost loop, which may be one over whole vectors."""
        self.close()
        self.inside = None

    @contextmanager
    def standing(self, axes: Mapping[Axis, Part]) -> Iterator[None]:
        """Offsets that are written inside take these for the axes."""
        saved = {axis: self.axes[axis] for axis in axes}
        self.axes |= axes
        try:
            yield
        finally:
            self.axes |= saved

    def total(self, axes: Iterable[Axis] | None = None) -> Code:
        """The number of iterations of some axes, or of all."""
        extents = self.extents.values() if axes is None else [self.extents[axis] for axis in axes]
        return joined(extents, " * ") or code("1")

    def shares(self) -> Code:
        """Into how many shares the team splits the work; 1 where one thread is to do it alone."""
        return self.argument(self.team_size())

    def team_size(self) -> Code:
        """The number of shares of the work: one where it is too small for more."""
        return code(f"{{}}({{}}, {self.most_alone()}, {{}})", TEAM_FOR, self.total(), THREADS)

    def most_alone(self) -> int:
        """The number of iterations up to which one thread does them all sooner."""
        return most_alone(self.kernel.nodes, self.kernel.stores, TARGET)

    def argument(self, expression: Code) -> Code:
        """The expression where the sizes have no names yet."""
        names = {self.sizes.variable(n): code(f"{{}}[{n}]", SIZES) for n in range(len(self.sizes.values))}
        return changed(expression, lambda part: names.get(part, part) if type(part) is Variable else part)

    # Values.

    def constant(self, node: Scalar) -> Code:
        """A literal; one that looks like a size is an argument, so that the text serves other sizes."""
        value = node.attr
        if (is_inexact(node.dtype) and not is_complex(node.dtype)) or node.dtype.kind in "iu":
            number = float(value)
            if node in self.divisors and int(number) not in self.lengths:
                return spell.literal(value, node.dtype)  # of which compilers make a product
            if not self.sizes.full and abs(number) > 16 and number == int(number if abs(number) < 2**53 else 0):
                (size,) = self.sizes(("literal", int(number), node.dtype), int(number))
                return code(
                    self.literals.setdefault(size, Variable(f"literal{len(self.literals)}", spell.local(node.dtype)))
                )
        return spell.literal(value, node.dtype)

    def define(self, node: Scalar, target: Element | None = None) -> None:
        """Compute a node into a variable of its own, or into `target`."""
        if target is None or node.op == "const" or node in self.env:
            return super().define(node)
        self.set(target, self.expression(node))
        self.env[node] = target

    def bind(self, node: Scalar, value: Code) -> Variable:
        return self.let(spell.local(node.dtype), self.name(node), value)

    def operation(self, node: Scalar, args: list[Part]) -> Code:
        if node in self.divisions and self.loops.vector is None:
            name = "divide" if node.op == "div" else "remainder"
            return spell.called(f"{name}_{node.dtype.name}{spell.ALONE}", *args)
        if self.single_element and node.op in ("max", "min") and spell.local(node.dtype) in ("float", "double"):
            return spell.extreme(node, args, alone=True)
        if node.op == "select" and (node.args[0], node.dtype.itemsize) in self.held:
            args = [code("{} > 0", self.held[node.args[0], node.dtype.itemsize]), *args[1:]]
        if self.inside is not None and node.op in ("lt", "ge") and self._near(node):
            test = code("{}({}, {})", masking.PRECEDES, *args)
            return test if node.op == "lt" else code("!{}", test)
        value: Code = spell.TABLE.operation(without_test(node), args)
        return value

    def _near(self, test: Scalar) -> bool:
        """Whether a test asks on which side of a constant a position of a short row lies. gcc knows a position that one element
        alone can have, reads that element for all, and has no masked form of that."""
        position, bound = test.args
        if position.op != "index" or bound.op != "const" or index_axes(position.attr) != {self.loops.vector}:
            return False
        return self.loops.vector is not None and position.attr.coefficient(self.loops.vector) == 1

    def position(self, node: Scalar) -> Code:
        return code(f"({spell.local(node.dtype)})({{}})", self._offset(("index", self.name(node)), node.attr))

    def load(self, node: Scalar) -> Code:
        dtype, array = self.kernel.params[node.attr.param].dtype, self.params[node.attr.param]
        offset = self._guarded(node) if node.args else self._offset(node.attr.param, node.attr.offset)
        if offset is not None:
            found = self.element_at(node, Element(array, offset))
            if self.inside is not None and self._along_vector(node):
                return code("({} ? {} : {})", self.inside, found, self.outside if node.dtype in FLOATS else "0")
            return found
        offset, mask = self._offset(node.attr.param, node.attr.offset), self.operand(node.args[0])
        if self.inside is not None and self._along_vector(node):
            mask = code("({} & {})", self.inside, mask)
        if self.scattered(node):
            return spell.read(dtype, Element(array, code("{} ? {} : 0", mask, offset)))
        return code("{} ? {} : 0", mask, spell.read(dtype, Element(array, offset)))

    def _along_vector(self, load: Scalar) -> bool:
        """Whether the elements of a vector are read at places of their own."""
        vector, offset = self.loops.vector, load.attr.offset
        return vector is not None and (
            vector in index_axes(offset) or any(self.follows(value, vector) for value in computed(offset))
        )

    def element_at(self, node: Scalar, place: Element) -> Code:
        """The value of a load whose element lies at a place: in the array, or in a tile or block of its elements."""
        dtype = self.kernel.params[node.attr.param].dtype
        return spell.read(dtype, place, self.in_lanes) if node in self.masks else spell.load(dtype, place)

    def _guarded(self, node: Scalar) -> Sum | Code | None:
        """An offset that is safe to read whether or not the mask holds, where the mask or the offset is the same all along
        the vector; what is read where the mask fails is not used. A branch there keeps gcc from vectorising the loop.
        """
        vector = self.loops.vector
        if vector is None:
            return None
        offset: Affine = node.attr.offset
        if vector not in index_axes(offset) and not any(self.follows(value, vector) for value in computed(offset)):
            return self._clamped(node)
        parts = self.from_start(node)
        if parts is None:
            return None
        first, along = parts
        start = self.starts.get(node) or self.chosen(node, first)
        return code("{} + {}", start, self._offset(node.attr.param, along)) if along.terms else code(start)

    def from_start(self, node: Scalar) -> tuple[Affine, Affine] | None:
        """The offset of a masked load where the vector begins, and that along it, where mask and beginning are the same for all
        of its elements; None where they are not."""
        vector, offset = self.loops.vector, node.attr.offset
        if vector is None or self.follows(node.args[0], vector):
            return None
        step = offset.coefficient(vector)
        along = Affine.of(vector) * step
        rest = offset - along
        size = math.prod(self.kernel.params[node.attr.param].shape)
        uniform = not any(isinstance(atom, Div) and vector in index_axes(atom.base) for atom, _ in rest.terms)
        uniform = uniform and not any(self.follows(value, vector) for value in computed(rest))
        if not uniform or step < 0 or step * (self.loops.extents[vector] - 1) >= size:
            return None
        return rest, along

    def chosen(self, node: Scalar, offset: Affine) -> Code:
        """The offset where a load's mask holds, and 0 elsewhere."""
        return code("({} ? {} : 0)", self.operand(node.args[0]), self._offset(node.attr.param, offset))

    def scattered(self, node: Scalar) -> bool:
        """Whether a load's elements along the vector lie so far apart that gcc vectorises it with a chosen offset alone, and
        not behind a test; and are such as processors gather."""
        vector, param = self.loops.vector, self.kernel.params[node.attr.param]
        far = vector is not None and not 0 <= node.attr.offset.coefficient(vector) <= NEAR
        return (
            far
            and math.prod(param.shape) > 0
            and node.dtype.itemsize in masking.GATHERED
            and not is_complex(node.dtype)
        )

    def _clamped(self, node: Scalar) -> Code:
        """The offset of a load, moved into the array where it lies outside."""
        size = math.prod(self.kernel.params[node.attr.param].shape)
        last = self.sizes(("last", node.attr.param), size - 1)
        offset = self._offset(node.attr.param, node.attr.offset)
        name = self.let("int64_t", f"{self.name(node)}_place", offset)
        return code("{0} < 0 ? 0 : {0} > {1} ? {1} : {0}", name, last)

    def follows(self, node: Scalar, axis: Axis) -> bool:
        """Whether a value changes along an axis."""
        known = self.following.get(node)
        if known is None:
            known = axis in own_axes(node) or any(self.follows(operand, axis) for operand in operands(node))
            self.following[node] = known
        return known

    def _offset(self, owner: Any, index: Any) -> Sum:
        offset: Any = self.index(index, owner, FLOOR if index.divides_negative else TRUNCATED)
        return offset

    def reduced_position(self) -> Sum:
        """The position along all reduced axes, for argmax."""
        found: Sum | None = None
        for axis in self.loops.reduced:
            here = ("+", code(self.axes[axis]))
            terms = (here,) if found is None else (("+", code("({}) * {}", found, self.extents[axis])), here)
            found = Sum(terms)
        return found or Sum((("+", code("")),))

    def target(self, store: Store) -> Element:
        """The element that a store writes."""
        array = self.params[store.param] if self.inside is None else self.aliases.get(store, self.params[store.param])
        return Element(array, self._offset(store.param, store.offset))

    @contextmanager
    def where_inside(self) -> Iterator[None]:
        """What is written here happens to elements alone that are there."""
        if self.inside is not None:
            self.open("if ({})", self.inside)
        yield
        if self.inside is not None:
            self.close(flat=True)

    def store(self, store: Store) -> None:
        with self.where_inside():
            self.set(self.target(store), self.stored(store))

    def stored(self, store: Store) -> Code:
        """What a store writes, as it goes to memory: a number rounded to a half is rounded once, not as a value and as an element."""
        exact = unrounded(store)
        value = exact if exact in self.env else store.value
        return spell.store(self.kernel.params[store.param].dtype, self.operand(value))

    # Reductions.

    def declare(self, reduction: Scalar, name: str | None = None) -> Code:
        """Declare a reduction's accumulator; gives its clause for `omp simd`."""
        spec, name = reduction.attr, name or self.name(reduction)
        kind = "uint8_t" if spec.accumulator == BOOL and self._reads_bytes() else spell.held(spec.accumulator)
        start = spell.literal(reduction_identity(spec.reduction, spec.accumulator), spec.accumulator)
        accumulator = self.var(kind, f"{name}_acc", start)
        if reduction in self.two_level:
            self.var(kind, f"{name}_sum", start)
        if spec.positional:
            self.var("int64_t", f"{name}_at", "-1")
            return NOTHING
        clause = code(f" reduction({_OPENMP[spec.reduction]}:{{}})", accumulator)
        if spec.reduction in ("max", "min") and is_inexact(spec.accumulator):
            clause = code("{} reduction(|:{})", clause, self.var("int", f"{name}_nan", "0"))
        return clause

    def _reads_bytes(self) -> bool:
        """Whether the kernel reads nothing but bytes, so that an accumulator of a byte has as many lanes as a vector has bytes."""
        return not self.widened and all(node.dtype.itemsize == 1 for node in self.kernel.nodes if node.op == "load")

    def accumulate(self, reduction: Scalar, value: Part, position: Part) -> None:
        """Take one value into the reduction; a position below 0 says that there was none yet."""
        spec, name = reduction.attr, self.name(reduction)
        accumulator = self.named(f"{name}_acc")
        if spec.positional:
            offset = self.named(f"{name}_at")
            self.open("if ({})", self.takes_over(reduction, value, accumulator, offset))
            self.set(accumulator, value)
            self.set(offset, position)
            self.close(flat=True)
        elif spec.reduction in ("max", "min"):
            sign = ">" if spec.reduction == "max" else "<"
            self.set(accumulator, f"{{0}} {sign} {{1}} ? {{0}} : {{1}}", value, accumulator)
            if is_inexact(spec.accumulator):
                self.set(self.named(f"{name}_nan"), "{0} != {0}", value, operator="|=")
        else:
            if spec.accumulator == BOOL:
                value = code("({} ? 1 : 0)", value)  # gcc vectorises a choice, not a conversion
            self.set(accumulator, self.infix(spec.reduction, accumulator, value))

    def takes_over(self, reduction: Scalar, value: Part, held: Part, offset: Part) -> Code:
        """The test by which `value` becomes the extreme: the lowest position among equals wins, and nan over numbers."""
        sign = (">" if reduction.attr.reduction == "argmax" else "<") + ("=" if self.backwards else "")
        nan = ""
        if is_inexact(reduction.attr.accumulator):
            nan = " | ({1} != {1})" if self.backwards else " | (({1} != {1}) & ({2} == {2}))"
        return code(f"({{0}} < 0) | ({{1}} {sign} {{2}}){nan}", offset, value, held)

    @staticmethod
    def infix(reduction: str, a: Part, b: Part) -> Code:
        """One step of a reduction that is a plain operator."""
        return code(_INFIX[reduction], a, b)

    def _finish(self, reduction: Scalar) -> None:
        """The reduction's value, once the run is over."""
        spec, name, kind = reduction.attr, self.name(reduction), spell.local(reduction.dtype)
        if spec.positional:
            value = code(self.named(f"{name}_at"))
        elif spec.reduction in ("max", "min") and is_inexact(spec.accumulator):
            nan = spell.literal(spec.accumulator.type("nan"), spec.accumulator)
            value = code("{} ? {} : {}", self.named(f"{name}_nan"), nan, self.named(f"{name}_acc"))
        else:
            value = self._whole(reduction, "acc")
        self.env[reduction] = self.let(kind, name, value)

    def slot(self, name: str, at: Part | None = None) -> Variable | Element:
        """The variable of that name; its element `at` that offset, where it is an array."""
        return self.named(name) if at is None else self.at(name, at)

    def _whole(self, node: Scalar, ending: str, at: Part | None = None) -> Code:
        """What a reduction or a scan has taken in: of two levels, both."""
        part = self.slot(f"{self.name(node)}_{ending}", at)
        return code("{} + {}", self.slot(f"{self.name(node)}_sum", at), part) if node in self.two_level else code(part)

    def running(self, scan: Scalar) -> np.dtype:
        """The type in which a prefix scan is carried."""
        accumulator: np.dtype = scan.attr.accumulator
        return accumulator

    def scan_in(self, scan: Scalar, at: Part | None = None) -> None:
        """Take the operand into the prefix scan; `at` is its offset where it is an array."""
        spec, name, value = scan.attr, self.name(scan), self.operand(scan.args[0])
        run = self.slot(f"{name}_run", at)
        if spec.reduction in _INFIX:
            following = code(_INFIX[spec.reduction], run, value)
        elif spec.reduction == "logaddexp":
            following = _logaddexp(run, value, spec.accumulator)
        else:
            sign = ">" if spec.reduction == "max" else "<"
            nan = " | ({1} != {1})" if is_inexact(spec.accumulator) else ""
            keep = "({0} == {0}) & " if is_inexact(spec.accumulator) else ""
            following = code(f"({keep}(({{1}} {sign} {{0}}){nan})) ? {{1}} : {{0}}", run, value)
        self.set(run, following)

    def scan_out(self, scan: Scalar, at: Part | None = None) -> None:
        """The value of the prefix scan where it now stands."""
        self.env[scan] = self.let(spell.local(scan.dtype), self.name(scan), self._whole(scan, "run", at))

    def scan_step(self, scan: Scalar, at: Part | None = None) -> None:
        self.scan_in(scan, at)
        self.scan_out(scan, at)


def _logaddexp(run: Part, value: Part, accumulator: np.dtype) -> Code:
    w = "f32" if accumulator == np.float32 else "f64"
    ln2 = spell.literal(np.float64(0.6931471805599453), accumulator)

    def above(a: Part, b: Part) -> Code:
        return code("{} + {}", a, spell.called(f"log1p_{w}", spell.called(f"exp_unchecked_{w}", code("{} - {}", b, a))))

    form = "({0} == {1} ? {0} + {2} : ({0} > {1} ? {3} : {4}))"
    return code(form, run, value, ln2, above(run, value), above(value, run))
