"""The loop form with a loop inside: blocks of lanes, each of which runs all iterations before the next block begins.

The carry of a block lies in small arrays of fixed length, one vector loop over the block's lanes an iteration: gcc keeps
several vectors in flight, and the arrays stay in the core's own cache. What is the same in all lanes is a plain variable.
A block of a while runs for as long as one of its lanes does; the lanes that have ended keep their carry.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fuser.backends.c import spell
from fuser.backends.c.control_flow.interrupt import START, STEPS
from fuser.backends.c.emitter import Emitter
from fuser.backends.c.function import NOTHING, THREADS, Code, Element, Part, Symbol, Variable, code, joined
from fuser.backends.c.schedules import masking, strip_mining, unroll_and_jam
from fuser.backends.c.target import TARGET
from fuser.ir.index import Axis, Div
from fuser.ir.scalar import COSTS, Scalar
from fuser.ir.types import BOOL
from fuser.ir.work import USUAL_STEPS
from fuser.kernel.cost import most_alone
from fuser.kernel.kernel import Carry, Kernel, Loop, Store
from fuser.kernel.loops import Loops
from fuser.kernel.operands import computed, index_axes, index_of, needed, operands
from fuser.kernel.schedule import NOTHING_ASKED, Schedule

X = Variable("x", "int64_t")  # the running lane
_STATE = Variable("state", "volatile int", pointer=True)
STOP, ENDED = Element(_STATE, code("0")), Element(_STATE, code("1"))
LANES = 64  # of a block; a power of two
SHORTEST_STRIP = 4  # lanes: one division for them all takes less than gathering what each of them finds by its own
MOST_BESIDE = 4  # runs of lanes in a block, as far as half of the nearest cache holds what they carry
LEAST_BLOCKS = 8  # that threads share evenly
CHUNKS = 128  # into which the blocks are cut, for threads that take one after the other
APART = 16  # additions a call of libm from which what follows it has a vector loop of its own, a sixth faster then


class LoopKernel(Emitter):
    """Parallel over blocks of lanes along the vector axis, and over all other axes."""

    team = True

    def __init__(self, kernel: Kernel, loops: Loops, threads: bool = True, asked: Schedule = NOTHING_ASKED) -> None:
        super().__init__(kernel, loops, threads, asked)
        assert kernel.loop is not None
        self.loop_inside: Loop = kernel.loop
        self.vector = loops.vector
        self.width = 1 if self.vector is None else _power(min(loops.extents[self.vector], LANES))
        self.strip = None if self._subgroup() else self._strip()
        if self.strip is not None:
            self.width = min(LANES, loops.extents[self.vector]) // self.strip * self.strip  # type: ignore[index]
            self.strips.add(self.strip)
        self.arrays: dict[Scalar, Variable] = {}  # what lies in an array of the block, one element a lane
        self.again: set[Scalar] = set()  # what is computed again rather than kept in an array
        self.time = self.loop_inside.time
        # Two iterations of one vector after the other are one long chain, where one iteration of four vectors, their
        # operations in turn, keeps the processor busy: 1.65 times as fast for a Runge-Kutta step.
        shared = sum(node.op == "lane" for node in self.loop_inside.body)  # by all vectors of a block
        self.attributes = unroll_and_jam.attributes(
            shared + unroll_and_jam.alive(self.loop_inside.body, self.loop_inside.stores)
        )
        if self.vector is None and self.time is None:
            # It may end after few steps, beside which a call would count: no function is inlined where attributes differ.
            self.attributes = ""
        if self._subgroup():
            self.width = loops.extents[self.vector]  # type: ignore[index]
        self.in_whole = self._masked()
        self.beside = self._beside()
        self.phases = self._phases()
        self.made(
            blocking=self.width * (self.beside or 1), fission=len(self.phases[1]) if len(self.phases[1]) > 1 else None
        )
        self.made(strip_mining=self.strip, masking=self.in_whole or None)
        if self.time is not None:
            self.axis_names[self.time] = "t"
            self.axes[self.time] = Variable("t", "int64_t")
            self.extents[self.time] = self.sizes.extent(self.time, self.time.extent)

    def _subgroup(self) -> bool:
        """Whether lanes read what others hold, so that all are of one block."""
        return any(node.op == "lane" for node in self.loop_inside.body)

    def _nodes(self) -> list[Scalar]:
        return [*self.loop_inside.body, *(node for sweep in self.kernel.sweeps for node in sweep.row)]

    def _strip(self) -> int | None:
        """Lanes of one quotient, where the positions of what iterations read and write are divided by their number."""
        inside = self.loop_inside
        found = strip_mining.strips(inside.body, inside.stores, self.loops, SHORTEST_STRIP)
        return None if found is None or found.offset or found.length > LANES else found.length

    def _masked(self) -> int:
        """Numbers of a vector, where a block of few lanes, or a strip, runs in whole vectors under a mask; else 0."""
        if self.vector is None:
            return 0
        extent = self.loops.extents[self.vector]
        length = self.strip or (extent if extent < LANES else self.width)
        before = self.kernel.sweeps[0].row
        # What is gathered once before the loop stands in arrays then: that needs no vectors.
        gathered = {n for n in before if n.op == "load" and not self._cheap(n) and not masking.dear(before)}
        nodes = [n for n in self._nodes() if n not in gathered]
        lanes = masking.lanes(
            self, nodes, self.kernel.stores, length, long=self._subgroup() and masking.laborious(nodes)
        )
        if length > lanes and not masking.dear(nodes):
            return 0  # two vectors of a carry that is masked lie in memory, where one stays in a register
        if lanes and self.strip is None:
            self.width = length
        return 0 if masking.counted(nodes, length, lanes) else lanes

    def _beside(self) -> int | None:
        """How many runs of lanes a block has, where iterations read or write arrays along them: the longer what one of them reads
        in a row, the less it waits for memory. None where they do not. The number is an argument, so that the text serves all."""
        inside, vector, time = self.loop_inside, self.vector, self.time
        if vector is None or self.width != LANES or self.strip or self.in_whole or self._subgroup():
            return None
        offsets = [n.attr.offset for n in inside.body if n.op == "load"] + [s.offset for s in inside.stores]
        if time is None or not any(o.coefficient(time) and o.coefficient(vector) == 1 for o in offsets):
            return None
        enough = self.loops.extents[vector] >= LANES * MOST_BESIDE * LEAST_BLOCKS
        held = LANES * MOST_BESIDE * sum(carry.node.dtype.itemsize for carry in inside.carries)
        return MOST_BESIDE if enough and 2 * held <= TARGET.levels[0].capacity else 1

    state = 2  # whether the loops are to be left, and the threads that have ended

    def form(self) -> None:
        vector = self.vector
        self.statements.append(START)
        self.left = self.var("int64_t", "left", f"{STEPS}", remark="steps to the next look at the clock")
        if vector is None:
            self._block()
            return
        outer = [axis for axis in self.loops.parallel if axis is not vector]
        total, width = self.extents[vector], code(str(self.width))
        if self.beside is not None:
            runs = self.sizes.opaque(self.beside)
            width = code(self.let("int64_t", "width", f"{{}} * {LANES}", runs))
        blocks = self.let("int64_t", "blocks", "({} + {} - 1) / {1}", total, width)
        count = joined([*(self.extents[axis] for axis in outer), blocks], " * ")
        self.shared(len(outer) + 1, code(f"dynamic, 1 + {{}} / {CHUNKS}", count))
        for axis in outer:
            self.loop(axis)
        block = self.count("block", "0", blocks)
        # The last block begins early enough to be whole; the lanes that it shares with its neighbour come out alike.
        start = "{0} * {2} + {2} > {1} ? {1} - {2} : {0} * {2}"
        self.let("int64_t", "base", start, block, total, width)
        self._block()
        for _ in (*outer, vector):
            self.close()
        if self.threads and self.time is None:  # a block may run long after the others, or for ever
            self.do("{}(&{}, &{});", Symbol("attend"), ENDED, STOP)

    def invariants(self) -> list[Scalar]:
        """None: what no lane changes is computed where the loop needs it, not before all loops."""
        return []

    def shares(self) -> Code:
        steps = USUAL_STEPS if self.time is None else self.extents[self.time]
        most = most_alone(self.loop_inside.body, self.loop_inside.stores, TARGET)
        form = f"{{0}} <= {self.width} || {{0}} * {{1}} <= {most} ? 1 : {{2}}"
        return self.argument(code(form, self.total(self.loops.parallel), steps, THREADS))

    # One block.

    def _block(self) -> None:
        before, after = self.kernel.sweeps
        varying = [n for n in before.row if not self._uniform(n)]
        self.define_all([n for n in before.row if self._uniform(n) and n.op != "carry"])
        self._declare_arrays(varying)
        self._begin(varying)
        for carry in self.loop_inside.carries:
            if carry.node not in self.arrays:
                name, initial = f"carry{carry.node.attr.number}", self.operand(carry.initial)
                self.env[carry.node] = self.var(spell.local(carry.node.dtype), name, initial)
        self._iterations()
        for node in after.row:
            if node.op == "final" and node not in self.arrays:
                self.env[node] = self.named(f"carry{node.attr.number}")
        self.define_all([n for n in after.row if self._uniform(n)])
        self._write(after.row, after.row_stores)

    def _declare_arrays(self, varying: Sequence[Scalar]) -> None:
        """Arrays for the carry, and for what was computed before the loop and is needed later."""
        inside = self.loop_inside
        for carry in inside.carries:
            if not self._uniform(carry.node):
                self.arrays[carry.node] = self._array(carry.node, f"carry{carry.node.attr.number}")
        for node in self.kernel.sweeps[1].row:
            if node.op == "final" and not self._uniform(node):
                self.arrays[node] = self.named(f"carry{node.attr.number}")
        later = [*inside.body, *self.kernel.sweeps[1].row]
        needed = {n for node in later for n in operands(node)}
        needed |= {c.following for c in inside.carries} | set(inside.predicates)
        needed |= {n for s in self.kernel.stores for n in (s.value, *computed(s.offset))}
        kept = [n for n in varying if n in needed and n.op != "const"]
        seen_by_others = {n.args[0] for n in inside.body if n.op == "lane"}
        for node in [*kept, *self._transposed()]:
            if self._cheap(node) and node not in seen_by_others:
                self.again.add(node)
            else:
                self.arrays[node] = self._array(node, f"{self.name(node)}_all")

    def _cheap(self, node: Scalar) -> bool:
        """Whether to compute a node again costs no more than to read it from an array: elements that lie apart are gathered once."""
        if node.op not in ("load", "index") or node.args:
            return False
        index = index_of(node)
        if node.op == "load" and self.vector is not None and index.coefficient(self.vector) not in (0, 1):
            return False
        return not computed(index) and not any(isinstance(atom, Div) for atom in index.atoms)

    def _transposed(self) -> list[Scalar]:
        """Nodes of an iteration that differ between lanes and are needed in another run than the one that computes them."""
        runs = [*self.phases[0], *self.phases[1]]
        home = {node: number for number, run in enumerate(runs) for node in run}
        inside = self.loop_inside
        last = [c.following for c in inside.carries] + [s.value for s in inside.stores] + list(inside.predicates)
        used = {(n, number) for number, run in enumerate(runs) for node in run for n in operands(node)}
        used |= {(n, len(runs) - 1) for n in [*last, *(n for s in inside.stores for n in computed(s.offset))]}
        crossing = {n for n, number in used if n in home and home[n] != number and not self._uniform(n)}
        return [n for run in runs for n in run if n in crossing]

    def _array(self, node: Scalar, name: str) -> Variable:
        """An array of the block."""
        strips = self.width // self.strip if self.strip is not None else MOST_BESIDE if self.beside is not None else 1
        return self.buffer(spell.held(node.dtype), name, strips * self._room())

    def _begin(self, varying: Sequence[Scalar]) -> None:
        """What is computed before the loop, and the first carry, into their arrays."""
        carries = [c for c in self.loop_inside.carries if c.node in self.arrays]
        if varying or carries:
            self._across(lambda: self._begin_lane(varying, carries))

    def _begin_lane(self, nodes: Sequence[Scalar], carries: Sequence[Carry]) -> None:
        self._keep(nodes)
        for carry in carries:
            initial = spell.put(carry.node.dtype, self.operand(carry.initial))
            self.set(self.at(self.arrays[carry.node], X), initial)

    def _across(self, write: Callable[[], None], clause: Code = NOTHING) -> None:
        """A vector loop over the lanes of the block."""
        assert self.vector is not None
        with self.scope():
            if self.beside is not None:
                run = self.count("run", "0", code(f"{{}} / {LANES}", self.named("width")))
            if self.strip is not None:
                strip = self.count("strip", "0", self.width // self.strip)
                quotient = self.let("int64_t", "quotient", f"{{base}} / {self.strip} + {{}}", strip)
                self.index.quotients = {(self.strip, 0): code(quotient)}
            self.pragma("omp simd{}", clause)
            x = self._count_lanes("x" if self.strip is None and self.beside is None else "lane")
            if self.beside is not None:
                x = self.let("int64_t", "x", f"{{}} * {LANES} + {{}}", run, x)
            if self.strip is None:
                self.let("int64_t", self.axis_names[self.vector], "{base} + {}", x)
            else:
                self.let("int64_t", "x", f"{{}} * {self._room()} + {{}}", strip, x)
                self.let("int64_t", self.axis_names[self.vector], f"{{base}} + {{}} * {self.strip} + {{}}", strip, x)
            write()
            self.close_masked()
            if self.strip is not None:
                self.index.quotients = {}
                self.close()
            if self.beside is not None:
                self.close()

    def _count_lanes(self, name: str) -> Variable:
        """Open the loop over the lanes of a block or strip, whose last vector may run under a mask."""
        length = self.strip or self.width
        return self.count_masked(name, str(length), self.in_whole) if self.in_whole else self.count(name, "0", length)

    def _room(self) -> int:
        """Elements of an array for the lanes of a block or strip and for what a mask hides, which no other array has."""
        length = self.strip or self.width
        return length + (-length % self.in_whole if self.in_whole else 0)

    def expression(self, node: Scalar) -> Code:
        if node.op == "lane":
            (value,) = node.args
            return code(self.at(self.arrays[value], node.attr) if value in self.arrays else self.operand(value))
        return super().expression(node)

    def operand(self, node: Scalar) -> Part:
        if node.op != "const" and node not in self.env:
            if node in self.arrays:
                form = "{} != 0" if node.dtype == BOOL else "{}"
                element = self.at(self.arrays[node], X)
                self.env[node] = self.let(spell.local(node.dtype), f"{self.arrays[node].name}_x", form, element)
            elif node in self.again:
                self.define(node)
        return super().operand(node)

    # Iterations.

    def _iterations(self) -> None:
        with self.scope():
            left = self.left
            if self.time is not None:
                length = self.extents[self.time]
                t = self._endless("t", "0", "")
                until = self.let("int64_t", "until", "{0} - {1} < {2} ? {0} : {1} + {2}", length, t, left)
                self.set(left, "{} - {}", until, t, operator="-=")
                self._count_steps(t, until)
            else:
                self._endless("running", "1", "{}", kind="int")
                self.open("do", plain=False)
            self._step()
            # The call stands outside of the inner loop, or gcc would keep no carry in registers.
            more = code("({} = {}(&{})) == 0", left, Symbol("more_steps"), STOP)
            if self.time is not None:
                self.close()
                self.do("if (__builtin_expect({} >= {}, 1) || {}) break;", t, length, more)
            else:
                self.close(" while (--{} > 0);", left)
                self.do("if ({} <= 0 && {}) break;", left, more)
            self.close()

    def _count_steps(self, t: Variable, until: Part) -> None:
        """Open the loop over the steps up to the next look at the clock."""
        self.go_on(t, code("{} < {}", t, until), code("++{}", t))

    def _step(self) -> None:
        """One iteration."""
        inside = self.loop_inside
        if self._ends_together():
            first, rest = self.phases
            self._run(first)
            going = joined([self.operand(p) for p in inside.predicates], " | ")
            self.do("if (!({})) {{ {} = 0; break; }}", going, self.named("running"))
        else:
            rest = self.phases[1]
            if self.time is None:
                self.var("int", "any", "0")
        self._run(rest, self._finish_step)
        self._invariant_stores(inside.stores)
        self._hand_on([c for c in inside.carries if c.node not in self.arrays])
        if self.time is None and not self._ends_together():
            self.do("if (!{any}) {{ {} = 0; break; }}", self.named("running"))

    def _endless(self, name: str, first: str, test: str, kind: str = "int64_t") -> Variable:
        """Open a loop that counts nothing by itself."""
        return self.count(name, first, "", "", test, kind)

    def _ends_together(self) -> bool:
        """Whether the loop is a while that ends for all lanes of the block at once."""
        return self.time is None and all(self._uniform(p) for p in self.loop_inside.predicates)

    def _phases(self) -> tuple[list[Sequence[Scalar]], list[Sequence[Scalar]]]:
        """The nodes of an iteration, those that decide on going on first, each in runs over the lanes: a value of another
        lane can be had one run after its own."""
        inside = self.loop_inside
        first = needed(inside.predicates, inside.body) if self._ends_together() else []
        rest = [n for n in inside.body if n not in set(first)]
        return _runs(first), _runs(rest)

    def _run(self, phases: list[Sequence[Scalar]], finish: Callable[[], None] | None = None) -> None:
        """Runs over the lanes; `finish` writes what the last of them has to do besides."""
        varying: list[Scalar] = []
        for number, phase in enumerate(phases):
            self.define_all([n for n in phase if self._uniform(n)])
            varying = [n for n in phase if not self._uniform(n)]
            if varying and (number < len(phases) - 1 or finish is None):
                self._across(lambda nodes=varying: self._keep(nodes))  # type: ignore[misc]
        carried = any(c.node in self.arrays for c in self.loop_inside.carries)
        if finish is not None and (varying or carried or not all(map(self._invariant_store, self.loop_inside.stores))):
            ends_apart = self.time is None and not self._ends_together()
            clause = self.code(" reduction(|:{any})") if ends_apart else NOTHING
            self._across(lambda: self._last(varying, finish), clause)

    def _last(self, nodes: Sequence[Scalar], finish: Callable[[], None]) -> None:
        self._keep(nodes)
        finish()

    def _keep(self, nodes: Sequence[Scalar]) -> None:
        """Compute the nodes of one run, and put into their arrays those that later ones need."""
        self.define_all(nodes)
        for node in nodes:
            if node in self.arrays:
                self.set(self.at(self.arrays[node], X), spell.put(node.dtype, self.env[node]))

    def _finish_step(self) -> None:
        inside = self.loop_inside
        if self.time is None and not self._ends_together():
            going = joined([self.operand(p) for p in inside.predicates], " | ")
            self.set("any", going if self.inside is None else code("{} & ({})", self.inside, going), operator="|=")
        self._guarded_stores([s for s in inside.stores if not self._invariant_store(s)])
        self._hand_on([c for c in inside.carries if c.node in self.arrays])

    def _hand_on(self, carries: Sequence[Carry]) -> None:
        """The carry of the next iteration, all of it computed before any of it changes."""
        guards = self.loop_inside.predicates
        if len(guards) == 1 and self._ends_together():
            guards = ()
        values = []
        for carry in carries:
            value, dtype = self.operand(carry.following), carry.node.dtype
            if spell.storage(dtype) != spell.local(dtype):
                value = spell.load(dtype, spell.store(dtype, value))
            if guards:
                value = code("{} ? {} : {}", self.operand(guards[carry.guard]), value, self.operand(carry.node))
            values.append(value)
        following = [
            self.let(spell.local(carry.node.dtype), f"next{carry.node.attr.number}", value)
            for carry, value in zip(carries, values)
        ]
        for carry, value in zip(carries, following):
            held = self.at(self.arrays[carry.node], X) if carry.node in self.arrays else self.env[carry.node]
            self.set(held, spell.put(carry.node.dtype, value))  # type: ignore[arg-type]

    # Stores.

    def _write(self, nodes: Sequence[Scalar], stores: Sequence[Store]) -> None:
        """What comes after the loop."""
        self._invariant_stores(stores)
        varying = [n for n in nodes if not self._uniform(n) and n.op != "final"]
        rest = [s for s in stores if not self._invariant_store(s)]
        if rest:
            self._across(lambda: self._last(varying, lambda: self._guarded_stores(rest)))

    def _invariant_store(self, store: Store) -> bool:
        """Whether the store writes one element a block."""
        if self.vector is None:
            return True
        place = self._along(index_axes(store.offset)) or any(
            self.follows(n, self.vector) for n in computed(store.offset)
        )
        return not place

    def _invariant_stores(self, stores: Sequence[Store]) -> None:
        for store in stores:
            if self._invariant_store(store):
                tests = self._first(store) if self.vector is None else [self.code("{block} == 0"), *self._first(store)]
                self._store_if(store, tests)

    def _guarded_stores(self, stores: Sequence[Store]) -> None:
        for store in stores:
            self._store_if(store, self._first(store))

    def _store_if(self, store: Store, tests: Sequence[Code]) -> None:
        self.operand(store.value)  # any line that it needs stands before the test
        if tests:
            self.open("if ({})", joined(tests, " && "))
        self.store(store)
        if tests:
            self.close()

    def _first(self, store: Store) -> list[Code]:
        """Tests that only the first of all lanes with the same element writes it."""
        axes = index_axes(store.offset)
        outer = [axis for axis in self.loops.parallel if axis is not self.vector and axis not in axes]
        return [code("{} == 0", self.axes[axis]) for axis in outer]

    # What differs between the lanes of a block.

    def _uniform(self, node: Scalar) -> bool:
        return self.vector is None or not self.follows(node, self.vector)

    def _along(self, axes: set[Axis] | frozenset[Axis]) -> bool:
        return self.vector in axes or bool(axes & self.loops.absorbed)

    def follows(self, node: Scalar, axis: Axis) -> bool:
        if node.op in ("carry", "final") and axis is self.vector:
            return self._along(node.attr.axes)
        if node.op == "lane":
            return False
        return super().follows(node, axis)


def _runs(nodes: Sequence[Scalar]) -> list[Sequence[Scalar]]:
    """Nodes by the run over the lanes in which they can be had, or had best."""
    level: dict[Scalar, int] = {}
    calls = sum(node.op in spell.LIBM for node in nodes)
    apart = sum(COSTS.get(n.op, 1) for n in nodes if n.op not in spell.LIBM) >= APART * calls
    for node in nodes:
        after = node.op == "lane" and node.args[0] in level
        found = [level[n] + (apart and n.op in spell.LIBM) for n in operands(node) if n in level]
        level[node] = max(found, default=0) + after
    return [[n for n in nodes if level[n] == number] for number in range(max(level.values(), default=0) + 1)]


def _power(count: int) -> int:
    """The largest power of two that is at most `count`."""
    return 1 << max(count.bit_length() - 1, 0)
