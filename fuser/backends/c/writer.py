"""What all loop forms of the C backend share: lines, names, values, folds and stores. A form is a subclass."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fuser.backends.c import spell
from fuser.ir.index import Affine, Axis, Div
from fuser.ir.scalar import COSTS, Scalar
from fuser.ir.types import BOOL, is_complex, is_inexact
from fuser.kernel.kernel import Kernel, Store, fold_identity
from fuser.kernel.loops import Loops
from fuser.kernel.lower import computed, index_axes, operands
from fuser.kernel.sizes import IndexText, Sizes

# When a second thread pays: a team costs 1 µs where its threads are still waiting for work, and 35 µs where they sleep.
ALONE = 16_000.0  # estimated nanoseconds of work that one thread does alone
BYTE = 0.012  # nanoseconds that one thread takes for a byte of an access, out of its own cache
ADDITION = 0.005  # nanoseconds that one thread takes for an addition, a byte of its type: a vector at a time

NEAR = 16  # elements apart at most, for which gcc reads under a test what does not lie side by side
GATHERED = (4, 8)  # bytes of elements that a processor gathers

_INFIX = {"sum": "{0} + {1}", "prod": "{0} * {1}", "and": "{0} & {1}", "or": "{0} | {1}", "xor": "{0} ^ {1}"}
_OPENMP = {"sum": "+", "prod": "*", "and": "&", "or": "|", "xor": "^", "max": "max", "min": "min"}


def nanoseconds(nodes: Iterable[Scalar], stores: Iterable[Store] = ()) -> float:
    """About what one thread takes to compute and store one element each."""
    total = 0.0
    for node in nodes:
        if node.op == "load":
            total += BYTE * node.dtype.itemsize
        elif node.op not in ("const", "index"):
            total += ADDITION * COSTS.get(node.op, 1) * max(node.dtype.itemsize, 4)
    return total + sum(2 * BYTE * store.value.dtype.itemsize for store in stores)


def most_alone(nodes: Iterable[Scalar], stores: Iterable[Store] = ()) -> int:
    """The number of iterations, a power of two, up to which one thread does all of them."""
    return 1 << max(round(math.log2(ALONE / max(nanoseconds(nodes, stores), 1e-3))), 4)


def masks(nodes: Sequence[Scalar]) -> set[Scalar]:
    """Truth values in memory that choose, are converted or meet computed ones: there gcc vectorises bytes that are compared
    with 0, not _Bool; where they only meet each other, the reverse holds."""
    pure: set[Scalar] = set()  # made of loads alone
    for node in nodes:
        joined = node.op in ("and", "or", "xor") and all(operand in pure for operand in node.args)
        if node.dtype == BOOL and (joined or (node.op == "load" and not node.args)):
            pure.add(node)
    used: set[Scalar] = set()
    for node in reversed(nodes):
        if node.op != "fold" and (node not in pure or node in used):
            used.update(operand for operand in node.args if operand in pure)
    return {node for node in used if node.op == "load"}


class Writer:
    """Writes one kernel. `env` maps nodes to the names that hold them where the text now stands."""

    attributes = ""  # of the C function
    team = False  # whether a team of threads runs the function as a whole, and shares its loops marked `omp for`

    state = 0  # integers that all threads see, `state` in the text, zero at first

    def __init__(self, kernel: Kernel, loops: Loops, threads: bool = True) -> None:
        self.kernel = kernel
        self.loops = loops
        self.threads = threads  # False: the text is for one thread, wherever it is called
        self.sizes = Sizes()
        self.lines: list[str] = []
        self.depth = 1
        self.names: dict[Scalar, str] = {}
        self.env: dict[Scalar, str] = {}
        letters = "ijklmnpq"
        axes = [*self.loops.rows, *self.loops.cols]
        self.axis_names = {axis: letters[n] if n < len(letters) else f"i{n}" for n, axis in enumerate(axes)}
        self.index = IndexText(self.sizes, self.axis_names, set(self.loops.absorbed), self.operand)
        self.extents = {axis: self.sizes.extent(axis, self.loops.extents[axis]) for axis in axes}
        self.kept: dict[Scalar, str] = {}
        self.following: dict[Scalar, bool] = {}  # whether a node changes along the vector
        self.masks = masks(kernel.nodes)
        self.declared: set[str] = set()  # what scans carry; a scan that two stages compute is declared by the first
        self.backwards = False  # whether the stage being written runs over the reduced axes from their end

    # The parts of a text.

    def text(self) -> str:
        self._invariants()
        self.form()
        used = "\n".join(self.lines)
        comments = "".join(f"// {line}\n" for line in self.kernel.comments[:12])
        params = []
        shared = self._shared_memory()
        for number, param in enumerate(self.kernel.params):
            kind = spell.storage(param.dtype)
            const, apart = "" if param.out else "const ", "" if number in shared else "restrict "
            params.append(f"  {const}{kind} *{apart}{param.name} = buffers[{number}];")
        alone = self.alone() if self.team and self.threads and self.loops.rows else None
        slots = [f"  const int64_t s{n} = sizes[{n}];" for n in range(len(self.sizes.values))]
        body = "\n".join([*params, *slots, used, "}"])
        state = f"  volatile int state[{self.state}] = {{0}};\n" if self.state else ""
        if alone is None:
            return f"{comments}{self.signature()} {{\n{state}{body}"
        # Even a team of one costs 300 ns: what is small is called without. `omp for` then takes it for a team of one.
        share, more = f"{self.kernel.name}_share", ", volatile int *state" if state else ""
        call = f"{share}(buffers, sizes{', state' if state else ''})"
        arguments = "void **buffers, const int64_t *sizes"
        return (
            f"{comments}static __attribute__((noinline)) {self.attributes}void {share}({arguments}{more}) {{\n{body}\n\n"
            f"void {self.kernel.name}({arguments}) {{\n{state}"
            f"  if ({alone}) {{ {call}; return; }}\n"
            f"  #pragma omp parallel num_threads(fuser_threads)\n  {call};\n}}"
        )

    def _shared_memory(self) -> set[int]:
        """Parameters that may be one memory: a result takes over what the kernel reads at the very place alone.

        So do results of elementwise kernels, and carries of loops (`steady`), whose kernels may fold as well.
        """
        if self.kernel.loop is not None:
            return set()
        places: dict[int, set[Affine]] = {}
        for node in self.kernel.nodes:
            if node.op == "load":
                places.setdefault(node.attr.param, set()).add(node.attr.offset)
        result = set()
        for store in self.kernel.stores:
            dtype = self.kernel.params[store.param].dtype
            for number, read in places.items():
                if read == {store.offset} and self.kernel.params[number].dtype == dtype:
                    result |= {number, store.param}
        return result

    def signature(self) -> str:
        return f"{self.attributes}void {self.kernel.name}(void **buffers, const int64_t *sizes)"

    def shared(self, axes: int = 1, schedule: str = "static") -> None:
        """Let the threads of the team share the iterations of the next loops."""
        if self.threads:
            collapse = f" collapse({axes})" if axes > 1 else ""
            self.line(f"#pragma omp for{collapse} schedule({schedule}) nowait")

    def _invariants(self) -> None:
        """Compute once, before all loops, what no axis and no fold changes."""
        moving: set[Scalar] = set()
        for node in dict.fromkeys(n for stage in self.kernel.stages for n in (*stage.row, *stage.body)):
            index = node.attr.offset if node.op == "load" else node.attr if node.op == "index" else None
            if (
                node.op in ("fold", "scan", "final")
                or (index is not None and index_axes(index))
                or any(n in moving or n.op in ("fold", "final") for n in operands(node))
            ):
                moving.add(node)
            else:
                self.define(node)

    def form(self) -> None:
        """Write the loops; each loop form is a subclass."""
        raise NotImplementedError

    def line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def open(self, text: str) -> None:
        self.line(text + " {")
        self.depth += 1

    def close(self, ending: str = "") -> None:
        self.depth -= 1
        self.line("}" + ending)

    def loop(self, axis: Axis, first: str = "0", last: str | None = None, step: str = "++{0}") -> None:
        name = self.axis_names[axis]
        self.open(f"for (int64_t {name} = {first}; {name} < {last or self.extents[axis]}; {step.format(name)})")

    def alone(self) -> str:
        """The test by which one thread does the work alone."""
        total = " * ".join(self.extents.values()) or "1"
        return self.argument(f"{total} <= {most_alone(self.kernel.nodes, self.kernel.stores)}")

    def team_size(self) -> str:
        """The number of threads of a team that the text itself starts: one where the work is too small for more."""
        total = " * ".join(self.extents.values()) or "1"
        return f"{total} <= {most_alone(self.kernel.nodes, self.kernel.stores)} ? 1 : fuser_threads"

    @staticmethod
    def argument(text: str) -> str:
        """`text` where the sizes have no names yet."""
        return re.sub(r"\bs(\d+)\b", r"sizes[\1]", text)

    # Values.

    def operand(self, node: Scalar) -> str:
        """The text of a node where it is used."""
        if node.op == "const":
            return self._constant(node)
        return self.env[node]

    def _constant(self, node: Scalar) -> str:
        """A literal; one that looks like a size is an argument, so that the text serves other sizes."""
        value = node.attr
        if (is_inexact(node.dtype) and not is_complex(node.dtype)) or node.dtype.kind in "iu":
            number = float(value)
            if abs(number) > 16 and number == int(number if abs(number) < 2**53 else 0):
                return f"(({spell.local(node.dtype)}){self.sizes(('literal', int(number), node.dtype), int(number))})"
        return spell.literal(value, node.dtype)

    def name(self, node: Scalar) -> str:
        return self.names.setdefault(node, f"v{len(self.names)}")

    def define(self, node: Scalar, target: str | None = None) -> None:
        """Compute a node into a variable of its own, or into `target`."""
        if node.op == "const" or node in self.env:
            return
        text = self._expression(node)
        if target is None:
            target = self.name(node)
            self.line(f"const {spell.local(node.dtype)} {target} = {text};")
        else:
            self.line(f"{target} = {text};")
        self.env[node] = target

    def _expression(self, node: Scalar) -> str:
        if node.op == "load":
            param = self.kernel.params[node.attr.param]
            place = self._guarded(node) if node.args else self._place(node.attr.param, node.attr.offset)
            if place is not None:
                read = spell.read if node in self.masks else spell.load
                return read(param.dtype, f"{param.name}[{place}]")
            place, mask = self._place(node.attr.param, node.attr.offset), self.operand(node.args[0])
            if self.scattered(node):
                return spell.read(param.dtype, f"{param.name}[{mask} ? {place} : 0]")
            return f"{mask} ? {spell.read(param.dtype, f'{param.name}[{place}]')} : 0"
        if node.op == "index":
            return f"({spell.local(node.dtype)})({self._place(('index', self.name(node)), node.attr)})"
        return spell.operation(node, [self.operand(a) for a in node.args])

    def _guarded(self, node: Scalar) -> str | None:
        """A place that is safe to read whether or not the mask holds, where the mask or the place is the same all along
        the vector; what is read where the mask fails is not used. A branch there keeps gcc from vectorising the loop.
        """
        vector = self.loops.vector
        if vector is None:
            return None
        offset: Affine = node.attr.offset
        if vector not in index_axes(offset) and not any(self.follows(value, vector) for value in computed(offset)):
            return self._clamped(node)
        if self.follows(node.args[0], vector):
            return None
        step = offset.coefficient(vector)
        along = Affine.of(vector) * step
        rest = offset - along
        size = math.prod(self.kernel.params[node.attr.param].shape)
        steady = not any(isinstance(atom, Div) and vector in index_axes(atom.base) for atom, _ in rest.terms)
        steady = steady and not any(self.follows(value, vector) for value in computed(rest))
        if not steady or step < 0 or step * (self.loops.extents[vector] - 1) >= size:
            return None
        start = f"({self.operand(node.args[0])} ? {self._place(node.attr.param, rest)} : 0)"
        return f"{start} + {self._place(node.attr.param, along)}" if along.terms else start

    def scattered(self, node: Scalar) -> bool:
        """Whether a load's elements along the vector lie so far apart that gcc vectorises it with a chosen place alone, and
        not behind a test; and are such as processors gather."""
        vector, param = self.loops.vector, self.kernel.params[node.attr.param]
        far = vector is not None and not 0 <= node.attr.offset.coefficient(vector) <= NEAR
        return far and math.prod(param.shape) > 0 and node.dtype.itemsize in GATHERED and not is_complex(node.dtype)

    def _clamped(self, node: Scalar) -> str:
        """The place of a load, moved into the array where it lies outside."""
        size = math.prod(self.kernel.params[node.attr.param].shape)
        last = self.sizes(("last", node.attr.param), size - 1)
        name = f"{self.name(node)}_place"
        self.line(f"const int64_t {name} = {self._place(node.attr.param, node.attr.offset)};")
        return f"{name} < 0 ? 0 : {name} > {last} ? {last} : {name}"

    def follows(self, node: Scalar, axis: Axis) -> bool:
        """Whether a value changes along an axis."""
        known = self.following.get(node)
        if known is None:
            own = node.attr.offset if node.op == "load" else node.attr if node.op == "index" else None
            known = own is not None and axis in index_axes(own)
            known = known or any(self.follows(operand, axis) for operand in operands(node))
            self.following[node] = known
        return known

    def _place(self, owner: Any, index: Any) -> str:
        return self.index(index, owner, "floor_div({0}, {1})" if index.divides_negative else "({0} / {1})")

    def _position(self) -> str:
        """The position along all reduced axes, for argmax."""
        text = ""
        for axis in self.loops.cols:
            text = f"({text}) * {self.extents[axis]} + {self.axis_names[axis]}" if text else self.axis_names[axis]
        return text

    def store(self, store: Store) -> None:
        param = self.kernel.params[store.param]
        value = spell.store(param.dtype, self.operand(store.value))
        self.line(f"{param.name}[{self._place(store.param, store.offset)}] = {value};")

    def _nodes(self, nodes: Sequence[Scalar]) -> None:
        for node in nodes:
            self.define(node)

    # Folds.

    def _declare(self, fold: Scalar, name: str | None = None) -> str:
        """Declare a fold's accumulator; gives its clause for `omp simd`."""
        spec, name = fold.attr, name or self.name(fold)
        kind = "int32_t" if spec.accumulator == BOOL else spell.local(spec.accumulator)
        start = spell.literal(fold_identity(spec.fold, spec.accumulator), spec.accumulator)
        self.line(f"{kind} {name}_acc = {start};")
        if spec.fold in ("argmax", "argmin"):
            self.line(f"int64_t {name}_at = -1;")
            return ""
        clause = f" reduction({_OPENMP[spec.fold]}:{name}_acc)"
        if spec.fold in ("max", "min") and is_inexact(spec.accumulator):
            self.line(f"int {name}_nan = 0;")
            clause += f" reduction(|:{name}_nan)"
        return clause

    def accumulate(self, fold: Scalar, value: str, position: str) -> None:
        """Take one value into the fold; a position below 0 says that there was none yet."""
        spec, name = fold.attr, self.name(fold)
        if spec.fold in ("argmax", "argmin"):
            test = self.takes_over(fold, value, f"{name}_acc", f"{name}_at")
            self.line(f"if ({test}) {{ {name}_acc = {value}; {name}_at = {position}; }}")
        elif spec.fold in ("max", "min"):
            sign = ">" if spec.fold == "max" else "<"
            self.line(f"{name}_acc = {value} {sign} {name}_acc ? {value} : {name}_acc;")
            if is_inexact(spec.accumulator):
                self.line(f"{name}_nan |= {value} != {value};")
        else:
            value = (
                f"({value} ? 1 : 0)" if spec.accumulator == BOOL else value
            )  # gcc vectorises a choice, not a conversion
            self.line(f"{name}_acc = {self.infix(spec.fold, f'{name}_acc', value)};")

    def takes_over(self, fold: Scalar, value: str, held: str, place: str) -> str:
        """The test by which `value` becomes the extreme: the lowest position among equals wins, and nan over numbers."""
        sign = (">" if fold.attr.fold == "argmax" else "<") + ("=" if self.backwards else "")
        nan = ""
        if is_inexact(fold.attr.accumulator):
            nan = f" | ({value} != {value})" if self.backwards else f" | (({value} != {value}) & ({held} == {held}))"
        return f"({place} < 0) | ({value} {sign} {held}){nan}"

    @staticmethod
    def infix(fold: str, a: str, b: str) -> str:
        """One step of a fold that is a plain operator."""
        return _INFIX[fold].format(a, b)

    def _finish(self, fold: Scalar) -> None:
        """The fold's value, once the run is over."""
        spec, name = fold.attr, self.name(fold)
        if spec.fold in ("argmax", "argmin"):
            self.line(f"const {spell.local(fold.dtype)} {name} = {name}_at;")
        elif spec.fold in ("max", "min") and is_inexact(spec.accumulator):
            nan = spell.literal(spec.accumulator.type("nan"), spec.accumulator)
            self.line(f"const {spell.local(fold.dtype)} {name} = {name}_nan ? {nan} : {name}_acc;")
        else:
            self.line(f"const {spell.local(fold.dtype)} {name} = {name}_acc;")
        self.env[fold] = name

    def _scan_step(self, scan: Scalar, run: str = "") -> None:
        """Take the operand into the running fold, held in `run`."""
        spec, name, value = scan.attr, self.name(scan), self.operand(scan.args[0])
        run = run or f"{name}_run"
        if spec.fold in _INFIX:
            text = _INFIX[spec.fold].format(run, value)
        elif spec.fold == "logaddexp":
            w = "f32" if spec.accumulator == np.float32 else "f64"
            text = (
                f"({run} == {value} ? {run} + {spell.literal(np.float64(0.6931471805599453), spec.accumulator)} : "
                f"({run} > {value} ? {run} + log1p_{w}(exp_{w}({value} - {run})) : {value} + log1p_{w}(exp_{w}({run} - {value}))))"
            )
        else:
            sign = ">" if spec.fold == "max" else "<"
            nan = f" | ({value} != {value})" if is_inexact(spec.accumulator) else ""
            keep = f"({run} == {run}) & " if is_inexact(spec.accumulator) else ""
            text = f"({keep}(({value} {sign} {run}){nan})) ? {value} : {run}"
        self.line(f"{run} = {text};")
        self.line(f"const {spell.local(scan.dtype)} {name} = {run};")
        self.env[scan] = name
