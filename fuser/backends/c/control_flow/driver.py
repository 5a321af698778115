"""Loops and branches in C: a group of control flow in, one function out that calls its bodies' kernels, itself in C.

Each body is a table of pointers, one a slot of its plan. Carries change between a result's own memory and a second buffer, so that
a scan's last step writes the result; xs and ys are walked by moving pointers. Temporaries and back buffers lie in one block: the
workspace, which the caller hands over behind the results if it is large. All numbers of bytes and elements are size arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fuser.backends.base import KernelSource
from fuser.backends.c import spell
from fuser.backends.c.builder import Builder
from fuser.backends.c.control_flow import step_work, thread_tuning
from fuser.backends.c.control_flow.body_kernels import Nested
from fuser.backends.c.control_flow.host_steps import FROM_HOST, host_step
from fuser.backends.c.control_flow.interrupt import START, interruptible
from fuser.backends.c.function import (
    Buffer,
    Do,
    Function,
    Module,
    Own,
    Symbol,
    Variable,
    code,
    joined,
    symbols,
)
from fuser.backends.c.library import on_demand
from fuser.backends.c.remarks import Scalarised, remark, worst
from fuser.ir.graph import Eqn, Literal, Operand, Var
from fuser.ir.types import ArrayType, is_complex
from fuser.kernel.schedule import Schedule
from fuser.ops.control import cond_p, row_type, scan_p, while_p
from fuser.ops.conversion import copy_p
from fuser.partition.axes import Views
from fuser.partition.buffers import ALIGNMENT, padded
from fuser.partition.group import FusionGroup, Kind, Plan
from fuser.partition.in_place_updates import Update, run_length

Emit = Callable[..., Any]
Library = Callable[[FusionGroup], Callable[..., Any]]  # a function of a group's inputs that gives its outputs

INCLUDES = "void *memcpy(void *, const void *, __SIZE_TYPE__);\ntypedef void (*function)(void **, const int64_t *);"
MEMCPY = Symbol("memcpy")
LOCAL = 2048  # bytes of a workspace that lies on the stack
CALLER_LOOPS = 2  # loops within loops inside a loop, beside whose steps its own calls are little
WRITTEN_OUT_BYTES = 64  # of a copy that compilers make moves of
SMALL = 1 << 13  # elements that a body's kernel goes through, up to which it runs on one thread


def emit_control(group: FusionGroup, emit: Emit, library: Library) -> KernelSource:
    """The function `name(buffers, sizes)` of a while, scan or cond; `library` gives Python functions for steps without a kernel."""
    eqn = group.graph.eqns[-1]
    writer = DRIVERS[eqn.primitive](group, emit, library)
    module = writer.module()
    parameters = tuple(f"in{n}" for n in range(len(group.graph.invars)))
    parameters += tuple(f"out{n}" for n in range(len(group.graph.outvars)))
    launch = {"sizes": tuple(writer.sizes), "functions": tuple(writer.functions), "workspace": writer.workspace()}
    times = eqn.params.get("length", 1)
    scalar = writer.scalar and (writer.scalar[0], writer.scalar[1] * times)
    return KernelSource(group.name, module, "c", parameters, launch | remark(scalar), schedules=writer.schedules)


def with_addresses(launch: dict[str, Any]) -> tuple[int, ...]:
    """The size arguments of a kernel; those that stand for a library function hold its address."""
    sizes = list(launch["sizes"])
    for position, function in launch.get("functions", ()):
        sizes[position] = id(function[1]) if function[0] == "object" else on_demand.address(function)
    return tuple(sizes)


def objects(launch: dict[str, Any]) -> tuple[Any, ...]:
    """The Python objects whose addresses are size arguments: they must live as long as the kernel."""
    return tuple(function[1] for _, function in launch.get("functions", ()) if function[0] == "object")


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
        arena = driver.reserve(self.plan.arena)
        for slot in self.plan.slots:
            if slot.index in fixed:
                continue
            if single(slot.aval):
                driver.line(f"{self.at(slot.index)} = &{driver.variable(slot.aval, f'{self.name}{slot.index}')};")
                continue
            offset = self.plan.offsets.get(slot.index)
            place = driver.reserve(slot.aval.nbytes) if offset is None else arena + offset
            driver.line(f"{self.at(slot.index)} = block_at + {driver.size(place)};")

    def steps(self) -> None:
        """The body's kernels, in order."""
        for group in self.plan.groups:
            self._kernel(group)

    def _kernel(self, group: FusionGroup) -> None:
        writes = [v for v in dict.fromkeys(group.graph.outvars) if isinstance(v, Var)]
        pointers = [self.at(self.plan.slot_of[v]) for v in (*group.graph.invars, *writes)]
        if group.reason:
            name, first = FROM_HOST, self.driver.take_host(group)
        else:
            source = self.driver.emit(group, step_work.elements(group) > SMALL)
            if workspace := source.launch.get("workspace"):
                pointers.append(f"block_at + {self.driver.size(self.driver.reserve(workspace))}")
            name, first = self.driver.take(source)
        elsewhere = f"if ({pointers[0]} != {pointers[1]}) " if _copies(group) else ""
        self.driver.do(
            f"{elsewhere}{{}}((void *[]){{{{{{}}}}}}, sizes + {first});", name, joined(pointers or ["0"], ", ")
        )


class Driver(Builder):
    """Writes one function; a primitive's form is a subclass."""

    def __init__(self, group: FusionGroup, emit: Emit, library: Library) -> None:
        super().__init__()
        self.group, self.emit, self.library = group, emit, library
        self.eqn: Eqn = group.graph.eqns[-1]
        self.sizes: list[int] = [0]  # the first is the number of bytes of the workspace
        self.functions: list[tuple[int, Any]] = []  # place of an address, what `library.address` takes
        self.kernels = Nested(group.name)
        self.polls_inside = False  # whether its steps look at what loops inside have found
        self.scalar: Scalarised | None = None  # of the largest kernel with loops that are not vectorised
        self.schedules: dict[str, Schedule] = {}  # of the kernels inside
        self.positions = {v: n for n, v in enumerate(group.graph.invars)}
        self.views = Views(group.graph.eqns)
        self.frames = [Frame(self, plan, name) for name, plan in zip(self.names(), group.bodies, strict=True)]

    def module(self) -> Module:
        self.form()
        name, comments = self.group.name, tuple(str(source) for source in self.group.sources if source.file)
        count = len(self.positions) + len({v for v in self.group.graph.outvars if isinstance(v, Var)})
        before = [
            Buffer(
                Variable("local", "char", pointer=True), code(str(LOCAL)), f" __attribute__((aligned({ALIGNMENT})))"
            ),
            Do(code(f"char *const block_at = sizes[0] <= {LOCAL} ? local : buffers[{count}];")),
        ]
        used = symbols(tuple(self.kernels.parts))
        if self.polls_inside:  # the address of what a thread has of its own is asked for once, not in each step
            before.append(Do(code('int *halted = &{}; __asm__("" : "+r"(halted));', Symbol("stopped"))))
        statements = thread_tuning.tuned(self.statements, "team_size" in used)
        own = Function(Own(), statements, comments=comments, calling=_loops_within(self.group) >= CALLER_LOOPS)
        start = [START] if interruptible(used | symbols((own,))) else []
        return Module(name, (*self.kernels.parts, replace(own, body=(*start, *before, *own.body))))

    def names(self) -> Sequence[str]:
        """Of the tables of pointers, one a body."""
        raise NotImplementedError

    def form(self) -> None:
        raise NotImplementedError

    def workspace(self) -> int:
        """Bytes that the caller hands over behind the results; 0 where the stack holds them."""
        return self.sizes[0] if self.sizes[0] > LOCAL else 0

    # Text and numbers.

    def line(self, text: str) -> None:
        self.do("{}", text)

    def block(self, head: str = "") -> None:
        """Open a loop or a branch."""
        self.open("{}", head, plain=False)

    def copy(self, target: str, source: str, size: str) -> None:
        """Write the copy of so many bytes."""
        self.do(f"{{}}({target}, {source}, {size});", MEMCPY)

    def append(self, *values: int) -> int:
        """The place of further size arguments."""
        self.sizes.extend(round(v) for v in values)  # which leaves a symbolic one as it is
        return len(self.sizes) - len(values)

    def size(self, value: int) -> str:
        """A size argument of its own as text."""
        return f"sizes[{self.append(value)}]"

    def reserve(self, size: int) -> int:
        """A place for so many bytes in the block."""
        place = self.sizes[0]
        self.sizes[0] += padded(size)
        return place

    def variable(self, aval: ArrayType, name: str) -> str:
        """Declare a variable for one number, which compilers keep in a register where all that reads it is in this function."""
        self.line(f"{spell.storage(aval.dtype)} {name};")
        return name

    def place(self, aval: ArrayType, name: str) -> str:
        """The address of a variable, or of so many bytes in the block."""
        if single(aval):
            return f"&{self.variable(aval, name)}"
        return f"block_at + {self.size(self.reserve(aval.nbytes))}"

    def take(self, source: KernelSource) -> tuple[Symbol, int]:
        """Take a kernel's functions in; gives its name and the place of its size arguments."""
        first = self.append(*source.launch["sizes"])
        self.scalar = worst(self.scalar, source.launch.get("scalar"))
        self.schedules |= source.schedules
        self.functions += [(first + n, function) for n, function in source.launch.get("functions", ())]
        assert isinstance(source.code, Module)
        return self.kernels.take(source.code, source.name), first

    def take_host(self, group: FusionGroup) -> int:
        """Take a step of Python's in; gives the place of its size arguments."""
        step = host_step(group, self.library(group))
        first = self.append(*(0 if isinstance(part, tuple) else part for part in step))
        self.functions += [(first + n, part) for n, part in enumerate(step) if isinstance(part, tuple)]
        return first

    def pace(self) -> None:
        """Declare what a loop counts its steps by."""
        self.statements.append(thread_tuning.DECLARE)
        first = self.size(step_work.first_pace(self.group.bodies))
        self.line(
            f"int64_t left = {first}, pace = left;  // steps to the next look at the clock, and from one to the next"
        )

    def poll(self) -> None:
        """At the end of a step: leave the loop if a signal's handler has raised, here or in a loop inside."""
        self.polls_inside = interruptible(symbols(tuple(self.kernels.parts)))
        inside = "*halted || " if self.polls_inside else ""
        self.do("if ({}--left == 0 && {}(&left, &pace)) break;", inside, Symbol("interrupted_at"))

    def _iterated(self, body: Frame, carries: Carries, copies: Iterable[tuple[str, str, str]] = ()) -> None:
        """The rest of a loop whose block is open: the steps of its body and `copies` (target, source, size), timed now and then."""
        self.statements.append(thread_tuning.BEGIN)
        body.steps()
        for target, source, size in copies:
            self.copy(target, source, size)
        carries.advance()
        self.statements.append(thread_tuning.END)
        self.poll()
        self.close()
        self.statements.append(thread_tuning.RESTORE)
        carries.finish()

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
    """The carry of a loop in its frames: pointers to read from and to write to, which change each step as the plan says."""

    def __init__(self, driver: Driver, body: Frame, initial: Sequence[Operand]) -> None:
        self.driver, self.body, self.initial = driver, body, initial
        assert driver.group.buffers is not None, f"{driver.group.name} has no loop buffers: see with_loop_buffers"
        self.buffers = driver.group.buffers
        self.slots, self.in_place = self.buffers.slots, self.buffers.in_place
        # Carries of one number are variables: written in place, or assigned to when a step has computed all of them.
        self.numbers = {n for n in {*self.buffers.double, *self.in_place} if single(initial[n].aval)}
        wanted = body.outputs[len(self.slots) + len(self.buffers.rows) :]  # by the updates
        self.parts = set(wanted) - {*self.buffers.rows, *self.slots.values()}

    def declare(self) -> None:
        """Pointers to the present carry, to the result's memory and to its back buffer."""
        driver = self.driver
        for n, operand in enumerate(self.initial):
            driver.line(f"void *now{n} = {driver.operand(operand)};")
            if n in self.numbers:
                held = driver.variable(operand.aval, f"held{n}")
                driver.line(f"{held} = *(const {spell.storage(operand.aval.dtype)} *)now{n};")
                driver.line(f"now{n} = &{held};")
            elif n not in self.slots or n in self.in_place:
                self._settle(n)
                driver.line(f"now{n} = {driver.result(n)};")
        for n in sorted(self.in_place):
            driver.line(f"{self.body.at(self.slots[n])} = now{n};")
        for slot, n in sorted(self.buffers.within.items()):
            driver.line(f"{self.body.at(slot)} = now{n};")
        for n in self._assigned():
            driver.line(f"{self.body.at(self.slots[n])} = &{driver.variable(self.initial[n].aval, f'next{n}')};")
        for n in self._alternating():
            back = driver.reserve(self.initial[n].aval.nbytes)
            driver.line(f"void *const back{n} = block_at + {driver.size(back)};")
        for slot in sorted(self.parts):
            driver.line(f"{self.body.at(slot)} = {driver.place(self.body.plan.slots[slot].aval, f'part{slot}')};")

    def read(self, frame: Frame, first: int) -> None:
        """Point a frame's inputs from `first` on at the present carry."""
        for n in range(len(self.initial)):
            self.driver.line(f"{frame.at(frame.inputs[first + n])} = now{n};")

    def target(self, even: str) -> None:
        """Point the body's outputs at the memory that is free; `even` is when that is the result's."""
        for n in self._alternating():
            self.driver.line(f"{self.body.at(self.slots[n])} = {even} ? {self.driver.result(n)} : back{n};")

    def advance(self) -> None:
        """Write the parts that were computed, and go on to the new carry."""
        for update in self.buffers.updated.updates:
            self._write(update)
        held = {self.slots[n]: n for n in self._assigned()}
        for n in self._moved():
            slot = self.slots[n]
            if n not in self.numbers:
                self.driver.line(f"now{n} = {f'&held{held[slot]}' if slot in held else self.body.at(slot)};")
        for n in held.values():
            self.driver.line(f"held{n} = next{n};")

    def finish(self) -> None:
        """Copy what is not yet in the result's memory."""
        for n in sorted({*self._moved(), *self.numbers}):
            if n in self.numbers:  # a copy of so many bytes would be a call
                kind = spell.storage(self.initial[n].aval.dtype)
                self.driver.line(f"*({kind} *){self.driver.result(n)} = held{n};")
            else:
                self._settle(n)

    def _settle(self, n: int) -> None:
        """Copy a carry into the result's memory, where it is not yet."""
        size, result = self.driver.size(self.initial[n].aval.nbytes), self.driver.result(n)
        self.driver.do(f"if (now{n} != {result}) {{}}({result}, now{n}, {size});", MEMCPY)

    def _assigned(self) -> list[int]:
        """The carries of one number of which a step may read the old one when the new one has been computed."""
        return [n for n in self.buffers.double if n in self.numbers]

    def _alternating(self) -> list[int]:
        """The carries that lie in the result's memory and in a back buffer in turn."""
        return [n for n in self.buffers.double if n not in self.numbers]

    def _moved(self) -> list[int]:
        """The carries that lie elsewhere after a step."""
        return [n for n in self.slots if n not in self.in_place]

    def _write(self, update: Update) -> None:
        """Copy a part into the carry, run by run."""
        driver, aval, part = self.driver, self.initial[update.carry].aval, update.value.aval
        outer, run = run_length(aval.shape, part.shape)
        # What a few moves copy is written out: the call would take longer than the copy.
        bytes_moved = run * aval.dtype.itemsize
        few = type(bytes_moved) is int and bytes_moved <= WRITTEN_OUT_BYTES
        run_bytes = str(bytes_moved) if few else driver.size(bytes_moved)
        driver.block()
        driver.line(f"const char *from = {self._value(update.value)};")
        for d, start in enumerate(update.starts):
            last = driver.size(aval.shape[d] - part.shape[d])
            driver.line(f"int64_t start{d} = {self._start(start)};")
            driver.line(f"start{d} = start{d} < 0 ? 0 : start{d} > {last} ? {last} : start{d};")
        for d in range(outer):
            driver.block(f"for (int64_t i{d} = 0; i{d} < {driver.size(part.shape[d])}; ++i{d})")
        place = "0"
        for d, extent in enumerate(aval.shape):
            index = f"start{d} + i{d}" if d < outer else f"start{d}"
            place = f"({place}) * {driver.size(extent)} + {index}"
        moved = update.carry in self.slots and update.carry not in self.in_place
        base = self.body.at(self.slots[update.carry]) if moved else f"now{update.carry}"
        driver.copy(f"(char *){base} + ({place}) * {aval.dtype.itemsize}", "from", run_bytes)
        driver.line(f"from += {run_bytes};")
        for _ in range(outer + 1):
            driver.close()

    def _value(self, operand: Operand) -> str:
        updated, body = self.buffers.updated, self.body
        place = (
            body.inputs[updated.inputs[operand]]
            if operand in updated.inputs
            else body.outputs[updated.results[operand]]
        )
        return body.at(place)

    def _start(self, start: Operand) -> str:
        if isinstance(start, Literal):
            return self.driver.size(int(start.val))
        return f"*(const {spell.storage(start.aval.dtype)} *){self._value(start)}"


class ScanDriver(Driver):
    """A counted loop that walks along xs and ys."""

    def names(self) -> Sequence[str]:
        return ("body",)

    def form(self) -> None:
        params = self.eqn.params
        consts, count, length = params["num_consts"], params["num_carry"], params["length"]
        [body] = self.frames
        operands = self.eqn.invars
        carries = Carries(self, body, operands[consts : consts + count])
        ys = carries.buffers.rows
        body.declare()
        carries.declare()
        for n in range(consts):
            self.line(f"{body.at(body.inputs[n])} = {self.operand(operands[n])};")
        walked = [
            (body.inputs[n], self.operand(operands[n]), self.size(body.plan.graph.invars[n].aval.nbytes))
            for n in range(consts + count, len(operands))
        ]
        self.line(f"const int64_t length = {self.size(length)};")
        self.pace()
        self.block("for (int64_t step = 0; step < length; ++step)")
        if walked or ys:
            self.line(f"const int64_t at = {'length - 1 - step' if params['reverse'] else 'step'};")
        for slot, base, stride in walked:
            self.line(f"{body.at(slot)} = (char *){base} + at * {stride};")
        carries.read(body, consts)
        carries.target("(length - step) & 1")
        copies = self._ys(body, ys, count)
        self._iterated(body, carries, copies)

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

    def names(self) -> Sequence[str]:
        return ("test", "body")

    def form(self) -> None:
        params = self.eqn.params
        test_consts, consts = params["cond_nconsts"], params["body_nconsts"]
        test, body = self.frames
        operands = self.eqn.invars
        carries = Carries(self, body, operands[test_consts + consts :])
        with_lanes = len(test.outputs) - 1
        test.declare()
        body.declare()
        for slot in dict.fromkeys(test.outputs):
            self.line(f"{test.at(slot)} = {self.place(test.plan.slots[slot].aval, f'given{slot}')};")
        if with_lanes:
            self.line(f"{body.at(body.inputs[0])} = {test.at(test.outputs[1])};")
        for n in range(test_consts):
            self.line(f"{test.at(test.inputs[n])} = {self.operand(operands[n])};")
        for n in range(consts):
            self.line(f"{body.at(body.inputs[with_lanes + n])} = {self.operand(operands[test_consts + n])};")
        carries.declare()
        self.pace()
        self.block("for (int64_t step = 0;; ++step)")
        carries.read(test, test_consts)
        test.steps()
        self.line(f"if (!*(const unsigned char *){test.at(test.outputs[0])}) break;")
        carries.read(body, with_lanes + consts)
        carries.target("step & 1")
        self._iterated(body, carries)


class CondDriver(Driver):
    """A switch over the branches, which write straight to the results."""

    def names(self) -> Sequence[str]:
        return [f"branch{n}" for n in range(len(self.group.bodies))]

    def form(self) -> None:
        index = self.operand(self.eqn.invars[0])
        self.line(f"const int32_t index = *(const int32_t *){index};")
        operands = [self.operand(v) for v in self.eqn.invars[1:]]
        last = len(self.frames) - 1
        for number, frame in enumerate(self.frames):
            test = "index <= 0" if number == 0 else f"index == {number}"
            self.block("else" if number == last and number else f"else if ({test})" if number else f"if ({test})")
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
                    self.copy(self.result(n), frame.at(slot), self.size(frame.types[n].nbytes))
            self.close()


DRIVERS = {scan_p: ScanDriver, while_p: WhileDriver, cond_p: CondDriver}


def single(aval: ArrayType) -> bool:
    """Whether a value is one number that a variable of C holds: not a key, nor one of less than a byte or of two parts."""
    number = aval.dtype in spell.TYPES and not is_complex(aval.dtype)
    return number and all(type(extent) is int and extent == 1 for extent in aval.shape)


def _copies(group: FusionGroup) -> bool:
    """Whether a kernel copies its operand and does nothing else: it has nothing to do where that lies in the result's memory."""
    copied = [eqn.primitive for eqn in group.graph.eqns] == [copy_p]
    return copied and len(group.graph.invars) == 1 and not group.reason


def _loops_within(group: FusionGroup) -> int:
    """How deep loops and branches lie within each other in the bodies of this one."""
    inner = [part for plan in group.bodies for part in plan.groups if part.kind in (Kind.CONTROL, Kind.LOOP)]
    return max((1 + _loops_within(part) for part in inner), default=0)
