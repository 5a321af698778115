"""What all forms of Triton kernels share: lines, names, values, loads, masks and stores. A form is a subclass.

A program works on a block with one or two dimensions. Each value has a set of block dimensions along which it varies;
where it does not vary its extent is 1, and Triton's broadcasting does the rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fuser.backends.triton import exact_packs, half_precision, spell
from fuser.ir.index import Affine, Axis
from fuser.ir.scalar import Scalar
from fuser.ir.types import FLOATS, bfloat16, is_inexact
from fuser.kernel.emitter import NOWHERE as NONE
from fuser.kernel.emitter import BlockEmitter, axis_names
from fuser.kernel.kernel import Kernel, Store
from fuser.kernel.loops import Loops
from fuser.kernel.operands import within_sweep
from fuser.kernel.sizes import IndexText, Sizes
from fuser.ops.float8 import FORMATS

LARGE = 2**31  # elements from which positions need 64 bits

HALVES = (FLOATS[0], bfloat16)
Dims = frozenset[str]
_LITERALS = spell.INFIX | {"select", "max", "min", "div"}  # operations that take a bare number beside a value


@dataclass(frozen=True)
class TensorMap:
    """A parameter by which the device copies blocks of a buffer on its own: an array of `shape` and `strides` in elements, the last 1, that
    begins at element `first` of buffer number `buffer`, in blocks of `block` elements, 0 beyond its ends."""

    buffer: int
    first: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    block: tuple[int, ...]


@dataclass(frozen=True)
class Launch:
    """One start of a generated function: `buffers` are numbers of parameters, then of scratch arrays; `grid` programs; `elements`: what
    their loops go over all together, where that is not what the kernel reads; `smaller`: what to launch instead, the first that does,
    on a GPU whose registers do not hold what this one keeps there, or that has no copies by `maps`, which are the first parameters;
    `persistent`: a program takes one block of the result after another, so that as many programs as run at once do; `registers`: the most
    that a thread may have on NVIDIA's GPUs, so that more programs run at once; 0 for as many as the compiler takes; `once_a_row`: the
    buffer of each access that takes one element a row; `split_k`, `stream_k`: in how many parts, or by how many programs, steps of
    a product are shared out; `threads`: of a program whose threads each take one whole access of it, so that there are no more of them
    where warps have 64; 0 for any number."""

    function: str
    buffers: tuple[int, ...]
    sizes: tuple[int, ...]
    constants: dict[str, Any]
    grid: int
    warps: int
    stages: int = 2
    elements: int = 0
    smaller: tuple[Launch, ...] = ()
    maps: tuple[TensorMap, ...] = ()
    persistent: bool = False
    registers: int = 0
    once_a_row: tuple[int, ...] = ()
    split_k: int | None = None
    stream_k: int | None = None
    threads: int = 0

    @property
    def columns(self) -> int:
        """Columns that a program holds at once, in blocks side by side."""
        sizes = self.constants
        side = sizes.get("COLUMNS", sizes.get("BLOCK", 1))
        return int(side * sizes.get("PARTS", 1) + sizes.get("REST", 0))

    @property
    def plain(self) -> Launch:
        """The launch of the same work whose parameters are buffers, sizes and constants alone."""
        return next(launch for launch in self.choices if not launch.maps)

    @property
    def choices(self) -> tuple[Launch, ...]:
        """The launch and those that may be in its place."""
        return self, *self.smaller

    @property
    def code(self) -> tuple[Any, ...]:
        """What its code and that of its choices depend on: no extent, and no number of programs."""
        if self.smaller:
            return tuple(replace(launch, smaller=()).code for launch in self.choices)
        maps = tuple((m.buffer, len(m.shape), m.block) for m in self.maps)
        wide = tuple(not -(2**31) <= size < 2**31 for size in self.sizes)
        constants = tuple(sorted(self.constants.items()))
        return (
            self.function,
            self.buffers,
            wide,
            constants,
            maps,
            self.warps,
            self.stages,
            self.persistent,
            self.registers,
        )


@dataclass
class Function:
    """A finished `@triton.jit` function: its text, and how it is started."""

    text: str
    launch: Launch
    scratch: list[tuple[int, Any]] = field(default_factory=list)

    def with_choices(self, choices: Sequence[Launch]) -> Function:
        """The function, launched as the first of these that a GPU has registers for."""
        first, *smaller = (replace(launch, smaller=()) for launch in choices)
        return replace(self, launch=replace(first, smaller=tuple(smaller)))


def either(functions: Sequence[Function]) -> Function:
    """The first of functions that do the same, with the others for GPUs that have no registers, shared memory or copies for it."""
    together = Function("\n\n\n".join(function.text for function in functions), functions[0].launch)
    return together.with_choices([choice for function in functions for choice in function.launch.choices])


class Emitter(BlockEmitter):
    """Writes one function. Nodes vary along dimensions of the block."""

    pairs: Dims = (
        NONE  # dimensions along which a thread holds several elements, which come from memory two in a register
    )
    packs: Dims = NONE  # dimensions of values of which a thread holds a pack of elements or more

    def __init__(self, kernel: Kernel, loops: Loops, name: str) -> None:
        super().__init__(kernel)
        self.loops = loops
        self.function_name = name
        self.sizes = Sizes()
        self.literals: dict[tuple[str, str], str] = {}
        self.axis_dims: dict[Axis, Dims] = {}
        self.masks: dict[str, str] = {}  # block dimension: the mask of its live elements
        self.extra_mask: dict[str, str] = {}  # of stores only
        axes = [*loops.parallel, *loops.reduced]
        self.axis_names = axis_names(axes)
        self.extents = {axis: self.sizes.extent(axis, loops.extents[axis]) for axis in axes}
        self.index = IndexText(self.sizes, self.axis_names, set(loops.absorbed), self._position_value)
        self.wide = any(math.prod(param.shape) >= LARGE for param in kernel.params)
        self.ptx = False  # whether the text has forms in PTX of its own, which NVIDIA's GPUs take (`launch.constants`)
        self.scratch: dict[str, int] = {}  # names of scratch parameters: their numbers
        self.program_param: str | None = (
            None  # the parameter that is the program's number, where another function calls this one
        )
        self.maps: dict[str, TensorMap] = {}  # by the names of their parameters
        self.once_a_row: list[int] = []  # the parameter of each access that takes one element a row

    # The parts of a text.

    def finish(self, constants: dict[str, Any], grid: int, warps: int, hints: bool, stages: int = 2) -> Function:
        """The function around the lines written so far."""
        note: list[str] = []
        if hints:
            for name, slots, together in self._alignments():
                constants = {**constants, name: together}
                why = "  # says that sizes are multiples of it, so that accesses take as many elements at once"
                note += [f"    if {name} > 1:{'' if note else why}"]
                # tl.multiple_of does not hold for arguments
                note += [f"        s{s} = s{s} // {name} * {name}" for s in slots]
        if self.ptx:
            constants = {**constants, "PTX": False}
        sizes = [f"s{n}" for n in range(len(self.sizes.values))]
        buffers = [*(p.name for p in self.kernel.params), *self.scratch]
        params = [
            *([self.program_param] if self.program_param else []),
            *self.maps,
            *buffers,
            *sizes,
            *(f"{name}: tl.constexpr" for name in constants),
        ]
        quoted = ", ".join(f'"{s}"' for s in sizes)
        decorator = f"@triton.jit(do_not_specialize=[{quoted}])" if sizes else "@triton.jit"
        head = [decorator, f"def {self.function_name}({', '.join(params)}):"]
        numbers = [f"    {name} = {text}" for (text, _), name in self.literals.items()]
        text = "\n".join([*head, *note, *numbers, *self.lines])
        launch = Launch(
            self.function_name,
            (*range(len(self.kernel.params)), *(len(self.kernel.params) + n for n in self.scratch.values())),
            tuple(self.sizes.values),
            constants,
            grid,
            warps,
            stages,
            maps=tuple(self.maps.values()),
            once_a_row=tuple(self.once_a_row),
        )
        return Function(text, launch)

    def _alignments(self) -> list[tuple[str, list[int], int]]:
        """The size arguments that decide how rows lie in memory, and what they are multiples of, under the name of a constant: extents
        of axes along memory, strides of what is read, and of what is written."""
        most = widest(self.kernel)
        dense = {axis for axis in self.extents if any(abs(i.coefficient(axis)) == 1 for i in self._indices())}
        read = {n.attr.param for n in self.kernel.nodes if n.op == "load"}
        found: dict[str, list[int]] = {"ALIGNED": [], "ALIGNED_READS": [], "ALIGNED_WRITES": []}
        for key, slot in self.sizes.slots.items():
            if key[0] == "factor":
                found["ALIGNED_READS" if key[1] in read else "ALIGNED_WRITES"].append(slot)
            elif key[0] == "extent" and key[1] in dense:
                found["ALIGNED"].append(slot)
        multiple = lambda slots: math.gcd(most, *(self.sizes.values[s] for s in slots))
        return [(name, slots, multiple(slots)) for name, slots in found.items() if slots]

    def _indices(self) -> list[Affine]:
        loads = [n.attr.offset for n in self.kernel.nodes if n.op == "load"]
        return loads + [s.offset for s in self.kernel.stores]

    def program(self) -> str:
        number = self.program_param or "tl.program_id(0)"
        return f"{number}.to(tl.int64)" if self.wide else number

    def split(self, name: str, axes: Sequence[Axis], dims: Dims, last: str = "") -> None:
        """Name the axes that together run along `name`, the last of them fastest."""
        for number, axis in enumerate(reversed(axes)):
            self.axis_dims[axis] = dims
            own = self.axis_names[axis]
            if number == len(axes) - 1:
                self.line(f"{own} = {name}")
            else:
                self.line(f"{own} = {name} % {self.extents[axis]}")
                rest = f"{last or name}_rest" if number == 0 else name
                self.line(f"{rest} = {name} // {self.extents[axis]}")
                name = rest

    # Values.

    def constant(self, node: Scalar) -> str:
        """A number with its type; one that looks like a size is an argument, so that the text serves other sizes."""
        value, dtype = node.attr, node.dtype
        if (is_inexact(dtype) and dtype not in FORMATS) or dtype.kind in "iu":
            number = float(value)
            if 16 < abs(number) < 2**31 and number == int(number):
                size = ("literal", int(number), dtype)
                if self.sizes.takes(size):
                    return f"{self.sizes(size, int(number))}.to({spell.local(dtype)})"
        key = (spell.typed(value, dtype), "")
        return self.literals.setdefault(key, f"c{len(self.literals)}")

    def load(self, node: Scalar) -> str:
        return self.load_text(node)

    def position(self, node: Scalar) -> str:
        offset, self.varies[node] = self.offset(("index", super().name(node)), node.attr)
        return f"({offset}).to({spell.local(node.dtype)})"

    def operation(self, node: Scalar, args: list[str]) -> str:
        if node.op in (functions := half_precision.FUNCTIONS.get(node.dtype, {})):
            return self.by_ptx(functions[node.op].format(*args))
        if self.packs and self.spans(node) >= self.packs and (form := exact_packs.packed(node)) is not None:
            return self.by_ptx(form.format(*args))
        text: str = spell.TABLE.operation(node, args)
        return text

    def by_ptx(self, text: str) -> str:
        """A text that has another form where the constant PTX says that the GPU takes that."""
        self.ptx = True
        return text

    def arguments(self, node: Scalar) -> list[str]:
        bare = node.op in _LITERALS and sum(a.op == "const" for a in node.args) == 1
        bare = bare and not (
            node.op == "div" and node.dtype.kind in "iu"
        )  # a helper, which asks for its operands' dtypes
        result = []
        for position, arg in enumerate(node.args):
            small = arg.op == "const" and abs(float(arg.attr)) <= 16 if arg.dtype.kind != "b" else False
            wide = arg.dtype.kind in "f" or arg.dtype.itemsize >= 4 or node.op in spell.INFIX
            if (
                bare
                and small
                and wide
                and not (node.op == "select" and position == 0)
                and spell.plain(arg.attr, arg.dtype)
            ):
                result.append(spell.literal(arg.attr, arg.dtype))
            else:
                result.append(self.operand(arg))
        return result

    def load_text(self, node: Scalar, widen: bool = True) -> str:
        """The load of an element, widened to the type that values have in registers."""
        param = self.kernel.params[node.attr.param]
        if not param.shape and not node.args:
            self.varies[node] = NONE
            return f"scalar_of({param.name}){spell.widened(param.dtype) if widen else ''}"
        offset, dims = self.offset(node.attr.param, node.attr.offset)
        conditions = [self.operand(a) for a in node.args]
        for arg in node.args:
            for dim in sorted(self.spans(arg) - dims):
                offset += f" + {self.zero(dim)}"
            dims |= self.spans(arg)
        self.varies[node] = dims
        mask = " & ".join([*(self.masks[d] for d in sorted(dims) if d in self.masks), *conditions])
        masked = f", mask={mask}, other={self.fill(node)}" if mask else ""
        loaded = f"tl.load({param.name} + {_sum(offset)}{masked})"
        if widen and param.dtype == bfloat16 and dims & self.pairs:
            return self.by_ptx(f"widened_bfloat16({loaded}, PTX)")
        return loaded + (spell.widened(param.dtype) if widen else "")

    def fill(self, node: Scalar) -> str:
        """What a load gives where it is masked."""
        return "0"

    def zero(self, dim: str) -> str:
        """Zeros along a block dimension, to widen a pointer."""
        raise NotImplementedError

    def store(self, store: Store) -> None:
        param = self.kernel.params[store.param]
        offset, dims = self.offset(store.param, store.offset)
        for dim in sorted(self.store_dims(store) - dims):
            offset += f" + {self.zero(dim)}"
            dims |= {dim}
        masks = [self.masks[d] for d in sorted(dims) if d in self.masks]
        masks += [mask for dim, mask in self.extra_mask.items() if dim not in dims]
        value = self.operand(store.value)
        narrow = "" if spell.storage(param.dtype) == spell.local(param.dtype) else f".to({spell.storage(param.dtype)})"
        masked = f", mask={' & '.join(masks)}" if masks else ""
        self.line(f"tl.store({param.name} + {_sum(offset)}, {value}{narrow}{masked})")

    def store_dims(self, store: Store) -> Dims:
        """The block dimensions that a store's pointer must have."""
        return self.spans(store.value)

    def offset(self, owner: Any, index: Affine) -> tuple[str, Dims]:
        """An index as text, and the block dimensions along which it varies."""
        text = self.index(index, owner, "floor_div({0}, {1})" if index.divides_negative else "({0} // {1})")
        return text, self.index_spans(index)

    def span_of(self, axis: Axis) -> Dims:
        return self.axis_dims.get(axis, NONE)

    def _position_value(self, node: Scalar) -> str:
        """A computed integer where it takes part in an index."""
        text = self.operand(node)
        return f"{text}.to(tl.int64)" if self.wide and node.dtype.itemsize < 8 else text


def widest(kernel: Kernel) -> int:
    """Elements that one access takes at most: 16 bytes of the smallest."""
    return 16 // min(16, *(p.dtype.itemsize for p in kernel.params))


def required(roots: Iterable[Scalar], order: Sequence[Scalar], known: Iterable[Scalar] = ()) -> list[Scalar]:
    """The nodes of `order` that `roots` need, beyond those already known."""
    found = within_sweep(roots, set(known))
    return [n for n in order if n in found]


def _sum(offset: str) -> str:
    return f"({offset})" if "-" in offset[:1] else offset
