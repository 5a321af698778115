"""Loops and branches in C: a group of control flow in, one function out that calls its bodies' kernels, itself in C.

Each body is a table of pointers, one a slot of its plan. Carries change between a result's own memory and a twin, so that
a scan's last step writes the result; xs and ys are walked by moving pointers. Temporaries and twins lie in one block.
Everything that is a number of bytes or elements is a size argument.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser.backends.base import KernelSource
from fuser.backends.c import library, spell
from fuser.ir.evaluate import evaluate
from fuser.ir.graph import Eqn, Graph, Literal, Operand, Var
from fuser.ir.primitive import Fusion
from fuser.ops.control import row_type
from fuser.ops.dot import as_matrices
from fuser.partition.axes import Views
from fuser.partition.control import bodies
from fuser.partition.group import FusionGroup, Kind, Plan
from fuser.partition.update import Update, in_place, run_length

Emit = Callable[[FusionGroup], KernelSource]

INCLUDES = (
    "#include <stdlib.h>\n#include <string.h>\ntypedef void (*function)(void **, const int64_t *);\n"
    "static inline void *block(char *local, int64_t bytes) {\n"
    "  return bytes <= 2048 ? local : aligned_alloc(64, bytes);\n}"
)
ALIGNMENT = 64
SMALL = 1 << 13  # elements of a body's values up to which its kernels run on one thread


def emit_control(group: FusionGroup, emit: Emit) -> KernelSource:
    """The function `name(buffers, sizes)` of a while, scan or cond whose steps are all native."""
    eqn = group.graph.eqns[-1]
    writer = {"scan": ScanDriver, "while": WhileDriver, "cond": CondDriver}[eqn.primitive.name](group, emit)
    text = writer.text()
    parameters = tuple(f"in{n}" for n in range(len(group.graph.invars)))
    parameters += tuple(f"out{n}" for n in range(len(group.graph.outvars)))
    launch = {"sizes": tuple(writer.sizes), "functions": tuple(writer.functions)}
    return KernelSource(group.name, text, "c", parameters, launch)


def with_addresses(launch: dict[str, Any]) -> tuple[int, ...]:
    """The size arguments of a kernel; those that stand for a product hold its address."""
    sizes = list(launch["sizes"])
    for position, operand, out in launch.get("functions", ()):
        sizes[position] = library.gemm_address(operand, out)
    return tuple(sizes)


class Frame:
    """A body's plan at work: its table of pointers `name`, and its steps as text."""

    def __init__(self, driver: Driver, plan: Plan, name: str) -> None:
        self.driver, self.plan, self.name = driver, plan, name
        self.inputs = [plan.slot_of[v] for v in plan.graph.invars]
        self.outputs = [plan.slot_of[plan.aliases.get(v, v)] for v in plan.outputs if isinstance(v, Var)]
        self.types = [v.aval for v in plan.outputs]

    def at(self, slot: int) -> str:
        return f"{self.name}[{slot}]"

    def declare(self) -> None:
        """The table, with the temporaries in place."""
        driver = self.driver
        driver.line(f"void *{self.name}[{max(len(self.plan.slots), 1)}];")
        fixed = {*self.inputs, *self.outputs}
        free: list[tuple[int, int]] = []  # last step of use, place
        for slot in self.plan.slots:
            if slot.index in fixed:
                continue
            size = padded(slot.aval.nbytes)
            reused = next((f for f in free if f[0] < slot.start and driver.block_sizes[f[1]] >= size), None)
            if reused is not None:
                free.remove(reused)
            place = driver.reserve(size) if reused is None else reused[1]
            free.append((slot.end, place))
            driver.line(f"{self.at(slot.index)} = block_at + {driver.size(place)};")

    def steps(self) -> None:
        """The body's kernels, in order."""
        for group in self.plan.groups:
            if group.kind is Kind.CONTRACTION and group.reason:
                self._product(group)
            else:
                self._kernel(group)

    def _kernel(self, group: FusionGroup) -> None:
        source = self.driver.emit(group)
        writes = [v for v in dict.fromkeys(group.graph.outvars) if isinstance(v, Var)]
        pointers = [self.at(self.plan.slot_of[v]) for v in (*group.graph.invars, *writes)]
        first = self.driver.take(source, all(v.aval.size <= SMALL for v in (*group.graph.invars, *writes)))
        self.driver.line(f"{source.name}((void *[]){{{', '.join(pointers)}}}, sizes + {first});")

    def _product(self, group: FusionGroup) -> None:
        matrices = product_operands(group)
        assert matrices is not None
        driver = self.driver
        (x, a, a_offset), (y, b, b_offset) = matrices
        eqn = group.graph.eqns[-1]
        first = driver.append(*library.gemm_sizes(a, b))
        driver.functions.append((driver.append(0), a.dtype, eqn.outvars[0].aval.dtype))
        pointers = [
            f"(char *){self.at(self.plan.slot_of[v])} + {driver.size(offset)}"
            for v, offset in ((x, a_offset), (y, b_offset))
        ]
        pointers.append(self.at(self.plan.slot_of[eqn.outvars[0]]))
        call = f"((function)sizes[{driver.functions[-1][0]}])"
        driver.line(f"{call}((void *[]){{{', '.join(pointers)}}}, sizes + {first});")


class Driver:
    """Writes one function; a primitive's form is a subclass."""

    def __init__(self, group: FusionGroup, emit: Emit) -> None:
        self.group, self.emit = group, emit
        self.eqn: Eqn = group.graph.eqns[-1]
        self.sizes: list[int] = [0]  # the first is the number of bytes of the block
        self.functions: list[tuple[int, np.dtype, np.dtype]] = []
        self.kernels: list[str] = []
        self.lines: list[str] = []
        self.depth = 1
        self.block_sizes: dict[int, int] = {}  # by place in the block
        self.positions = {v: n for n, v in enumerate(group.graph.invars)}
        self.views = Views(group.graph.eqns)
        self.frames = [
            Frame(self, plan, name) for name, plan in zip(bodies(self.eqn, native=True), group.bodies, strict=True)
        ]

    def text(self) -> str:
        self.form()
        comments = "".join(f"// {source}\n" for source in self.group.sources if source.file)
        before = ["char local[2048] __attribute__((aligned(64)));", "char *const block_at = block(local, sizes[0]);"]
        after = ["if (block_at != local) free(block_at);"]
        lines = [f"  {line}" for line in before] + self.lines + [f"  {line}" for line in after]
        head = f"{comments}void {self.group.name}(void **buffers, const int64_t *sizes) {{"
        return "\n\n".join([*self.kernels, "\n".join([head, *lines, "}"])])

    def form(self) -> None:
        raise NotImplementedError

    # Text and numbers.

    def line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def open(self, text: str) -> None:
        self.line(text + " {")
        self.depth += 1

    def close(self) -> None:
        self.depth -= 1
        self.line("}")

    def append(self, *values: int) -> int:
        """The place of further size arguments."""
        self.sizes.extend(int(v) for v in values)
        return len(self.sizes) - len(values)

    def size(self, value: int) -> str:
        """A size argument of its own as text."""
        return f"sizes[{self.append(value)}]"

    def reserve(self, size: int) -> int:
        """A place for so many bytes in the block."""
        place = self.sizes[0]
        self.block_sizes[place] = size
        self.sizes[0] += size
        return place

    def take(self, source: KernelSource, small: bool) -> int:
        """Take a kernel's text in; gives the place of its size arguments."""
        first = self.append(*source.launch["sizes"])
        self.functions += [(first + n, a, b) for n, a, b in source.launch.get("functions", ())]
        text = on_one_thread(source.text) if small and not source.launch.get("functions") else source.text
        alone = "__attribute__((noinline)) " if "alloca" in text else ""
        self.kernels.append(text.replace(f"void {source.name}(", f"static {alone}void {source.name}("))
        return first

    # Operands and results of the equation.

    def operand(self, operand: Operand) -> str:
        """The address of an operand: a buffer, or a literal's bytes among the size arguments."""
        if isinstance(operand, Literal):
            data = np.asarray(operand.val).tobytes()
            words = np.frombuffer(data.ljust(-(-len(data) // 8) * 8, b"\0"), np.int64)
            return f"(void *)(sizes + {self.append(*words)})"
        source = self.views(operand).source
        assert source is not None
        return f"buffers[{self.positions[source]}]"

    def result(self, number: int) -> str:
        return f"buffers[{len(self.positions) + number}]"


class Carries:
    """The carry of a loop in its frames: pointers to read from and to write to, which change each step.

    A carry of which the body writes only a part stays where the result is.
    """

    def __init__(self, driver: Driver, body: Frame, initial: Sequence[Operand], ys: int) -> None:
        self.driver, self.body, self.initial = driver, body, initial
        self.placed = in_place(driver.eqn)
        moving = self.placed.moving
        self.slots = {n: body.outputs[k] for k, n in enumerate(moving)}
        self.ys = body.outputs[len(moving) : len(moving) + ys]  # written straight to a scan's results
        self.updated = set(body.outputs[len(moving) + ys :]) - {*self.ys, *self.slots.values()}

    def declare(self) -> None:
        """Pointers to the present carry, to the result's memory and to its twin."""
        driver = self.driver
        for n, operand in enumerate(self.initial):
            driver.line(f"void *now{n} = {driver.operand(operand)};")
            if n not in self.slots:
                driver.line(f"memcpy({driver.result(n)}, now{n}, {driver.size(operand.aval.nbytes)});")
                driver.line(f"now{n} = {driver.result(n)};")
        for n in self.written():
            twin = driver.reserve(padded(self.initial[n].aval.nbytes))
            driver.line(f"void *const twin{n} = block_at + {driver.size(twin)};")
        for slot in sorted(self.updated):
            place = driver.reserve(padded(self.body.plan.slots[slot].aval.nbytes))
            driver.line(f"{self.body.at(slot)} = block_at + {driver.size(place)};")

    def written(self) -> list[int]:
        """The carries that are written where none else is: of those that share a slot the first."""
        first: dict[int, int] = {}
        for n, slot in self.slots.items():
            first.setdefault(slot, n)
        return [n for slot, n in first.items() if slot not in self.ys]

    def read(self, frame: Frame, first: int) -> None:
        """Point a frame's inputs from `first` on at the present carry."""
        for n in range(len(self.initial)):
            self.driver.line(f"{frame.at(frame.inputs[first + n])} = now{n};")

    def target(self, even: str) -> None:
        """Point the body's outputs at the memory that is free; `even` is when that is the result's."""
        for n in self.written():
            self.driver.line(f"{self.body.at(self.slots[n])} = {even} ? {self.driver.result(n)} : twin{n};")

    def advance(self) -> None:
        """Write the parts that were computed, and go on to the new carry."""
        for update in self.placed.updates:
            self._write(update)
        for n, slot in self.slots.items():
            self.driver.line(f"now{n} = {self.body.at(slot)};")

    def finish(self) -> None:
        """Copy what is not yet in the result's memory."""
        for n in self.slots:
            size = self.driver.size(self.initial[n].aval.nbytes)
            result = self.driver.result(n)
            self.driver.line(f"if (now{n} != {result}) memcpy({result}, now{n}, {size});")

    def _write(self, update: Update) -> None:
        """Copy a part into the carry, run by run."""
        driver, aval, part = self.driver, self.initial[update.carry].aval, update.value.aval
        outer, run = run_length(aval.shape, part.shape)
        run_bytes = driver.size(run * aval.dtype.itemsize)
        driver.open("")
        driver.line(f"const char *from = {self._value(update.value)};")
        for d, start in enumerate(update.starts):
            last = driver.size(aval.shape[d] - part.shape[d])
            driver.line(f"int64_t start{d} = {self._start(start)};")
            driver.line(f"start{d} = start{d} < 0 ? 0 : start{d} > {last} ? {last} : start{d};")
        for d in range(outer):
            driver.open(f"for (int64_t i{d} = 0; i{d} < {driver.size(part.shape[d])}; ++i{d})")
        place = "0"
        for d, extent in enumerate(aval.shape):
            index = f"start{d} + i{d}" if d < outer else f"start{d}"
            place = f"({place}) * {driver.size(extent)} + {index}"
        driver.line(f"memcpy((char *)now{update.carry} + ({place}) * {aval.dtype.itemsize}, from, {run_bytes});")
        driver.line(f"from += {run_bytes};")
        for _ in range(outer + 1):
            driver.close()

    def _value(self, operand: Operand) -> str:
        return self.body.at(self.body.outputs[self.placed.places[operand]])

    def _start(self, start: Operand) -> str:
        if isinstance(start, Literal):
            return self.driver.size(int(start.val))
        return f"*(const {spell.storage(start.aval.dtype)} *){self._value(start)}"


class ScanDriver(Driver):
    """A counted loop that walks along xs and ys."""

    def form(self) -> None:
        params = self.eqn.params
        consts, count, length = params["num_consts"], params["num_carry"], params["length"]
        [body] = self.frames
        operands = self.eqn.invars
        ys = len(self.eqn.outvars) - count
        carries = Carries(self, body, operands[consts : consts + count], ys)
        body.declare()
        carries.declare()
        for n in range(consts):
            self.line(f"{body.at(body.inputs[n])} = {self.operand(operands[n])};")
        walked = [
            (body.inputs[n], self.operand(operands[n]), self.size(body.plan.graph.invars[n].aval.nbytes))
            for n in range(consts + count, len(operands))
        ]
        self.line(f"const int64_t length = {self.size(length)};")
        self.open("for (int64_t step = 0; step < length; ++step)")
        if walked or ys:
            self.line(f"const int64_t at = {'length - 1 - step' if params['reverse'] else 'step'};")
        for slot, base, stride in walked:
            self.line(f"{body.at(slot)} = (char *){base} + at * {stride};")
        carries.read(body, consts)
        carries.target("(length - step) & 1")
        copies = self._ys(body, carries.ys, count)
        body.steps()
        for target, source, size in copies:
            self.line(f"memcpy({target}, {source}, {size});")
        carries.advance()
        self.close()
        carries.finish()

    def _ys(self, body: Frame, slots: Sequence[int], count: int) -> list[tuple[str, str, str]]:
        """Point outputs at this step's part of the ys; gives the copies for those that share a slot."""
        known: set[int] = set()
        copies = []
        for n, slot in enumerate(slots, count):
            size = self.size(row_type(self.eqn.outvars[n].aval).nbytes)
            target = f"(char *){self.result(n)} + at * {size}"
            if slot in known:
                copies.append((target, body.at(slot), size))
            else:
                self.line(f"{body.at(slot)} = {target};")
            known.add(slot)
        return copies


class WhileDriver(Driver):
    """A loop for as long as its test gives true; with lanes, for as long as one of them runs."""

    def form(self) -> None:
        params = self.eqn.params
        test_consts, consts = params["cond_nconsts"], params["body_nconsts"]
        test, body = self.frames
        operands = self.eqn.invars
        carries = Carries(self, body, operands[test_consts + consts :], 0)
        with_lanes = len(test.outputs) - 1
        test.declare()
        body.declare()
        for slot in dict.fromkeys(test.outputs):
            place = self.reserve(padded(test.plan.slots[slot].aval.nbytes))
            self.line(f"{test.at(slot)} = block_at + {self.size(place)};")
        if with_lanes:
            self.line(f"{body.at(body.inputs[0])} = {test.at(test.outputs[1])};")
        for n in range(test_consts):
            self.line(f"{test.at(test.inputs[n])} = {self.operand(operands[n])};")
        for n in range(consts):
            self.line(f"{body.at(body.inputs[with_lanes + n])} = {self.operand(operands[test_consts + n])};")
        carries.declare()
        self.open("for (int64_t step = 0;; ++step)")
        carries.read(test, test_consts)
        test.steps()
        self.line(f"if (!*(const unsigned char *){test.at(test.outputs[0])}) break;")
        carries.read(body, with_lanes + consts)
        carries.target("step & 1")
        body.steps()
        carries.advance()
        self.close()
        carries.finish()


class CondDriver(Driver):
    """A switch over the branches, which write straight to the results."""

    def form(self) -> None:
        index = self.operand(self.eqn.invars[0])
        self.line(f"const int32_t index = *(const int32_t *){index};")
        operands = [self.operand(v) for v in self.eqn.invars[1:]]
        last = len(self.frames) - 1
        for number, frame in enumerate(self.frames):
            test = "index <= 0" if number == 0 else f"index == {number}"
            self.open("else" if number == last and number else f"else if ({test})" if number else f"if ({test})")
            frame.declare()
            for slot, operand in zip(frame.inputs, operands, strict=True):
                self.line(f"{frame.at(slot)} = {operand};")
            known: dict[int, int] = {}
            for n, slot in enumerate(frame.outputs):
                if slot not in known:
                    self.line(f"{frame.at(slot)} = {self.result(n)};")
                known.setdefault(slot, n)
            frame.steps()
            for n, slot in enumerate(frame.outputs):
                if known[slot] != n:
                    self.line(f"memcpy({self.result(n)}, {frame.at(slot)}, {self.size(frame.types[n].nbytes)});")
            self.close()


def on_one_thread(text: str) -> str:
    """A kernel's text without its threads: opening a team costs more than a small kernel does."""
    text = re.sub(r"#pragma omp parallel for simd[^\n]*", "#pragma omp simd", text)
    text = re.sub(r"[ \t]*#pragma omp parallel for[^\n]*\n", "", text)
    text = re.sub(r"#pragma omp parallel [^{\n]*\n?[ \t]*\{", "{", text)
    return re.sub(r"[ \t]*#pragma omp for[^\n]*\n", "", text)


def padded(size: int) -> int:
    return -(-max(size, 1) // ALIGNMENT) * ALIGNMENT


# Matrix products inside a loop.


def product_blocker(group: FusionGroup) -> str | None:
    """None, or why a contraction cannot be called from a loop in C."""
    if not library.has_gemm(group.graph.eqns[-1]):
        return "the product runs in NumPy"
    if product_operands(group) is None:
        return "an operand of the product must be laid out anew"
    return None


def product_operands(group: FusionGroup) -> tuple[tuple[Var, np.ndarray, int], tuple[Var, np.ndarray, int]] | None:
    """For each operand: the value, how gemm sees it (a dummy with its shape and strides), and the offset in bytes."""
    return _operands(group.graph)


@functools.lru_cache(maxsize=256)
def _operands(graph: Graph) -> Any:
    *before, last = graph.eqns
    if any(eqn.primitive.fusion is not Fusion.MOVEMENT for eqn in before):
        return None
    dummies = [np.empty(v.aval.shape, v.aval.dtype) for v in graph.invars]
    prefix = graph.updated("operands", eqns=tuple(before), outvars=last.invars)
    x, y = evaluate(prefix, dummies)
    matrices = as_matrices(x, y, last.params["dimension_numbers"])
    found = []
    for matrix in matrices:
        owner = next((n for n, d in enumerate(dummies) if np.may_share_memory(d, matrix)), None)
        if owner is None:
            return None
        offset = matrix.__array_interface__["data"][0] - dummies[owner].__array_interface__["data"][0]
        found.append((graph.invars[owner], matrix, offset))
    return tuple(found)
