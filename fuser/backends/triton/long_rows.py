"""Rows longer than a block: programs that walk along them, piece by piece, and keep running results for each lane."""

from __future__ import annotations

from fuser.backends.triton.block_sizes import Tile
from fuser.backends.triton.emitter import Function, required
from fuser.backends.triton.online_sums import near, rescaled, shifted, whole
from fuser.backends.triton.reductions import COLUMN, POSITIONS, ROW, WORDS, Rows, identity, reduced, scans_of, working
from fuser.ir.scalar import Scalar
from fuser.kernel.kernel import Kernel, Sweep
from fuser.kernel.loops import Loops
from fuser.kernel.relative_sums import RelativeSums

LANE = 16  # elements of a piece that lie in one lane, where they lie along memory, and as many as a thread holds


class LongRows(Rows):
    """Rows longer than a block: each sweep walks along them, piece by piece, and keeps running results for each lane.

    A sum in `online` is relative to its lane's largest element so far, until the row's is known; one of `squares` to an early one of its
    lane's. Where rows lie along memory, what a thread reads at once shares a lane with what it reads next, and they are reduced before
    they join it.
    """

    def __init__(self, kernel: Kernel, loops: Loops, name: str, tile: Tile, relative: RelativeSums) -> None:
        super().__init__(kernel, loops, name, tile)
        self.relative, self.online, self.squares = relative, relative.online, relative.squares
        # What a thread reads at once is reduced first; a kernel that reads no rows has no alignment that says how much that is.
        vector = loops.vector
        rows = vector is not None and any(abs(index.coefficient(vector)) == 1 for index in self._indices())
        self.grouped = tile.hints and vector in loops.reduced and rows
        self.shape = "(ROWS, LANES)" if self.grouped else "(ROWS, COLUMNS)"
        self.groups = "(ROWS, COLUMNS // (LANES * ALIGNED), LANES, ALIGNED)"

    def write(self) -> Function:
        self.line(f"program = {self.program()}")
        programs = self.row_block()
        for sweep in self.kernel.sweeps:
            self.row_part(sweep)
            if sweep.loops:
                self.walk(sweep, "0", " * ".join(self.extents[a] for a in self.loops.reduced))
        return self.finish(self.constants(), programs, self.tile.warps, self.tile.hints)

    def constants(self) -> dict[str, int]:
        if not self.grouped:
            return super().constants()
        (together,) = (found for name, _, found in self._alignments() if name == "ALIGNED")
        lane = max(LANE, self.tile.columns // (32 * self.tile.warps), together)
        return super().constants() | {"LANES": max(1, self.tile.columns // lane)}

    def walk(self, sweep: Sweep, first: str, last: str) -> None:
        """Run a sweep over the columns from `first` up to `last`."""
        for reduction in sweep.reductions:
            self._start(reduction)
        scans = scans_of(sweep)
        for node in scans:
            self.start_carry(node)
            if node.attr.compensated:
                self.line(f"{self.name(node)}_lost = tl.zeros((ROWS, 1), {working(node.attr)})")
        with self.scope():
            self.open(f"for start in range({first}, {last}, COLUMNS):")
            begin = "start"
            if any(s.attr.reverse for s in scans):
                begin = f"tl.cdiv({last}, COLUMNS) * COLUMNS - COLUMNS - start" + (
                    f" + {first}" if first != "0" else ""
                )
            cut = (
                self.loops.count(self.loops.reduced) % self.tile.columns != 0
            )  # the last piece of all, and no other one
            self.columns(f"{begin} + tl.arange(0, COLUMNS)[None, :]", masked=cut)
            later = {node for reduction in sweep.reductions for node in self.relative.elements(reduction)}
            for node in self.body(sweep):
                if node not in later:
                    self.scan(node, f"{self.name(node)}_carry") if node.op == "scan" else self.define(node)
            for reduction in sweep.reductions:
                self._step(reduction)
            for store in sweep.stores:
                self.store(store)
            self.close()
        for reduction in sweep.reductions:
            self._end(reduction)

    def start_carry(self, scan: Scalar) -> None:
        """What a scan carries before the first piece."""
        spec = scan.attr
        self.line(f"{self.name(scan)}_carry = tl.full((ROWS, 1), {identity(spec)}, {working(spec)})")

    def body(self, sweep: Sweep) -> list[Scalar]:
        roots = [f.args[0] for f in sweep.reductions] + [s.value for s in sweep.stores]
        return required(roots, sweep.body)

    def _start(self, reduction: Scalar) -> None:
        spec, name = reduction.attr, self.name(reduction)
        if spec.reduction in POSITIONS:
            self.line(f"{name}_value = tl.full((ROWS, COLUMNS), {identity(spec)}, {working(spec)})")
            self.line(f"{name}_at = tl.full((ROWS, COLUMNS), -1, {'tl.int64' if self.wide else 'tl.int32'})")
            return
        self.line(f"{name}_run = tl.full({self.shape}, {identity(spec)}, {working(spec)})")
        zeros = ["lost"] if spec.compensated else []
        zeros += ["shift"] if reduction in self.online else []
        zeros += ["pivot", "near", "count"] if reduction in self.squares else []
        for part in zeros:
            self.line(f"{name}_{part} = tl.zeros({self.shape}, {working(spec)})")

    def joined(self, value: str, reduction: str) -> str:
        """The elements of a piece as one a lane."""
        if not self.grouped:
            return value
        combine = WORDS.get(reduction, f"combine_{reduction}")
        return f"tl.reduce(tl.reduce(tl.reshape({value}, {self.groups}), 3, {combine}), 1, {combine})"

    def spread(self, lanes: str) -> str:
        """What lanes have, for each element of a piece."""
        if not self.grouped:
            return lanes
        return f"tl.reshape(tl.broadcast_to({lanes}[:, None, :, None], {self.groups}), (ROWS, COLUMNS))"

    def _step(self, reduction: Scalar) -> None:
        """Take one piece into the running results."""
        if reduction in self.online:
            self._step_online(reduction)
            return
        if reduction in self.squares:
            self._step_squares(reduction)
            return
        spec, name, (operand,) = reduction.attr, self.name(reduction), reduction.args
        value = self.element(operand, spec)
        if spec.reduction in POSITIONS:
            self.line(f"{name}_next = {value}")
            at = self.within("column", "-1")
            self.line(f"{name}_value, {name}_at = combine_{spec.reduction}({name}_value, {name}_at, {name}_next, {at})")
        elif spec.compensated:
            self.line(f"{name}_run, {name}_lost = two_sum({name}_run, {name}_lost, {self.joined(value, 'sum')})")
        else:
            combine = WORDS.get(spec.reduction, f"combine_{spec.reduction}")
            self.line(f"{name}_run = {combine}({name}_run, {self.joined(value, spec.reduction)})")

    def _step_squares(self, reduction: Scalar) -> None:
        """Take one piece into sums of distances to the lanes' pivots, which are early elements, and of their squares."""
        spec, name = reduction.attr, self.name(reduction)
        self.line(f"{name}_next = {self.element(self.squares[reduction].number, spec)}")
        pivot = self.joined(f"{name}_next", "max")
        self.line(f"{name}_pivot = tl.where({name}_count == 0, {pivot}, {name}_pivot)")
        away = self.within(f"{name}_next - {self.spread(f'{name}_pivot')}", "0.0")
        self.line(f"{name}_next = {away}")
        squares = self.joined(f"{name}_next * {name}_next", "sum")
        self.line(f"{name}_run, {name}_lost = two_sum({name}_run, {name}_lost, {squares})")
        self.line(f"{name}_near = {name}_near + {self.joined(f'{name}_next', 'sum')}")
        self.line(f"{name}_count = {name}_count + {self._inside(working(spec))}")

    def _inside(self, kind: str) -> str:
        """How many elements of a piece lie within the row, for each lane."""
        if COLUMN not in self.masks:
            return "COLUMNS // LANES" if self.grouped else "1"
        inside = f"{self.masks[COLUMN]}.to({kind})"
        return self.joined(f"tl.broadcast_to({inside}, (ROWS, COLUMNS))", "sum") if self.grouped else inside

    def around(self, reduction: Scalar, centre: str) -> str:
        """The row's sum of squares of distances to a centre, from its lanes."""
        name = self.name(reduction)
        self.line(f"{name}_mean = {name}_near / tl.maximum({name}_count, 1.0)")
        self.line(f"{name}_own = {self.lanes(reduction)} - {name}_near * {name}_mean")
        self.line(f"{name}_own = tl.maximum({name}_own, 0.0, propagate_nan=tl.PropagateNan.ALL)")
        self.line(f"{name}_away = ({name}_pivot - {centre}) + {name}_mean")
        lanes = f"tl.where({name}_count > 0, {name}_own + {name}_count * ({name}_away * {name}_away), 0.0)"
        return reduced(reduction.attr, lanes)

    def centre(self, reduction: Scalar) -> str:
        """The centre of a sum of squares, whose base is there."""
        relative = self.squares[reduction]
        self.define_all(relative.chain)
        return f"({self.operand(relative.centre)}).to({working(reduction.attr)})"

    def _step_online(self, reduction: Scalar) -> None:
        """Take one piece into sums relative to the lanes' maxima, which have taken it in before."""
        online, name, kind = self.online[reduction], self.name(reduction), working(reduction.attr)
        largest, lanes = f"{self.name(online.maximum)}_run", frozenset((ROW, COLUMN))
        shift = shifted(self, online, largest, lanes, f"{name}_at")
        self.line(f"{name}_next = {near(shift, largest, kind)}")
        with self.scope():
            if self.grouped:
                self.line(f"{name}_wide = {self.spread(f'{name}_next')}")
            self.env[online.shift], self.varies[online.shift] = f"{name}_{'wide' if self.grouped else 'next'}", lanes
            self.define_all(online.elements)
            value = self.element(reduction.args[0], reduction.attr)
        for part in ("run", "lost"):
            self.line(f"{name}_{part} = {rescaled(f'{name}_{part}', f'{name}_shift', f'{name}_next')}")
        self.line(f"{name}_shift = {name}_next")
        self.line(f"{name}_run, {name}_lost = two_sum({name}_run, {name}_lost, {self.joined(value, 'sum')})")

    def _end_online(self, reduction: Scalar) -> None:
        """The sums of a row, whose maximum is there."""
        online, name = self.online[reduction], self.name(reduction)
        self.define_all(online.chain)
        self.line(f"{name}_lanes = {self.lanes(reduction)}")
        whole(self, reduction, online, f"{name}_lanes", f"{name}_shift")
        self.env[reduction] = name

    def _end(self, reduction: Scalar) -> None:
        """Reduce the lanes' results."""
        spec, name = reduction.attr, self.name(reduction)
        self.varies[reduction] = frozenset(ROW)
        if reduction in self.online:
            self._end_online(reduction)
            return
        if reduction in self.squares:
            self.line(f"{name} = {self.around(reduction, self.centre(reduction))}{self.narrow(reduction)}")
        elif spec.reduction in POSITIONS:
            self._reduce_position(reduction, name)
            self._position(reduction)
        else:
            self.line(f"{name} = {reduced(spec, self.lanes(reduction))}{self.narrow(reduction)}")
        self.env[reduction] = name

    def lanes(self, reduction: Scalar) -> str:
        """The result of each lane."""
        run = f"{self.name(reduction)}_run"
        return f"whole_sum({run}, {self.name(reduction)}_lost)" if reduction.attr.compensated else run
