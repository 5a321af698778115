"""Small kernels that share one launch: finished groups in, groups out, some of them HORIZONTAL groups with the former as `parts`.

A kernel that moves few bytes takes less time than its launch does. Such groups are fused horizontally, whatever axes they run over,
as long as no group outside must run between two of its parts, and all lie behind the same optimization barriers: a launch computes nothing
again before its time. One walk in program order, linear in the edges. Where meetings of devices run beside kernels, what only adds up what
they sent, for them to send on, shares a launch with its like alone.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence

from fuser.ir.graph import Graph, Literal, Operand, Var
from fuser.ir.names import identifier
from fuser.ir.primitive import Fusion, Movement
from fuser.ops.collective import is_meeting
from fuser.ops.window_write import write_window_p
from fuser.partition.changed_operands import windows
from fuser.partition.group import FusionGroup, FusionLimits, Kind

Offer = Callable[[], bool]  # whether one more merge is allowed


def fused_horizontally(
    groups: Sequence[FusionGroup], outputs: Iterable[Operand], limits: FusionLimits, allowed: Offer
) -> tuple[FusionGroup, ...]:
    """The groups, in an order in which they can run, with small ones fused as far as the limits say."""
    if limits.horizontal_parts < 2:
        return tuple(groups)
    sorting = _Sorting(groups, set(outputs), limits, allowed)
    for number in range(len(groups)):
        sorting.place(number)
    return sorting.finish()


def small(group: FusionGroup, limits: FusionLimits) -> bool:
    """Whether the group's launch is what it costs, more than its bytes and its arithmetic."""
    if group.kind not in limits.horizontal_kinds:
        return False
    return group.flops <= limits.horizontal_bytes and touched(group.graph) <= limits.horizontal_bytes


def touched(graph: Graph) -> int:
    """Bytes that a kernel reads and writes; of what it only cuts pieces out of no more than those."""
    pieces = dict.fromkeys(graph.invars, 0)
    for eqn in graph.eqns:
        moved = eqn.primitive.fusion is Fusion.MOVEMENT
        if eqn.primitive is write_window_p:
            continue
        for number, var in enumerate(eqn.operands()):
            if var in pieces:
                pieces[var] += sum(v.aval.nbytes for v in eqn.outvars) if moved and number == 0 else var.aval.nbytes
    read = sum(min(count, var.aval.nbytes) for var, count in pieces.items())
    writes = [eqn for eqn in graph.eqns if eqn.primitive is write_window_p and eqn.outvars[0] in graph.outvars]
    beside = sum(eqn.outvars[0].aval.nbytes - eqn.invars[1].aval.nbytes for eqn in writes)
    return read + sum(v.aval.nbytes for v in dict.fromkeys(graph.outvars)) - beside


def scopes(group: FusionGroup) -> frozenset[int]:
    """Of the optimization barriers through which a group reads."""
    barriers = (eqn for eqn in group.graph.eqns if eqn.primitive.movement is Movement.BARRIER)
    return frozenset(eqn.params["scope"] for eqn in barriers)


def form(group: FusionGroup) -> Hashable:
    """What a group computes, of arrays of which dtypes and ranks, but not how large they are: groups of one form mostly have one text."""
    operand = lambda v: (v.aval.dtype, v.aval.ndim, str(v.val) if isinstance(v, Literal) else "")
    eqns = tuple((eqn.primitive, *map(operand, (*eqn.invars, *eqn.outvars))) for eqn in group.graph.eqns)
    return eqns, tuple(map(operand, group.graph.outvars))


class _Sorting:
    """Groups by number. The `open` launch takes what depends on nothing that waits for it; `last` what nobody waits for."""

    def __init__(
        self, groups: Sequence[FusionGroup], outputs: set[Operand], limits: FusionLimits, allowed: Offer
    ) -> None:
        self.groups, self.outputs, self.limits, self.allowed = groups, outputs, limits, allowed
        self.home = home = {v: n for n, group in enumerate(groups) for v in group.graph.outvars}
        self.needs = [{home[v] for v in group.graph.invars if v in home} for group in groups]
        self.readers: dict[Operand, set[int]] = {}
        for number, group in enumerate(groups):
            for var in group.graph.invars:
                self.readers.setdefault(var, set()).add(number)
        for number, group in enumerate(groups):  # what is changed is read before
            for array, _ in windows(group):
                self.needs[number] |= {reader for reader in self.readers.get(array, ()) if reader < number}
        self.needed = set().union(*self.needs)
        self.forms: dict[int, Hashable] = {}
        self.open: list[int] = []
        self.last: list[int] = []
        self.launches: list[list[int]] = [self.last]
        self.behind: set[int] = set()  # what waits for the open launch and is not in it
        self.meetings = {
            n for n, group in enumerate(groups) if limits.concurrent_meetings and any(map(is_meeting, group.graph.eqns))
        }
        self.between: dict[frozenset[int], list[int]] = {}  # the launches of what serves meetings, by what it reads

    def place(self, number: int) -> None:
        """Put the group into a launch, or leave it alone."""
        members = set(self.open)
        needs = self.needs[number]
        if small(self.groups[number], self.limits) and self._serves_meetings(number):
            self._join_between(number)
            self.behind |= {number} if needs & (self.behind | members) else set()
            return
        waits = bool(needs & self.behind) or (not self.limits.horizontal_chains and bool(needs & members))
        if small(self.groups[number], self.limits):
            if number not in self.needed and (waits or not needs & members):
                self._join(self.last, number)
                return
            if waits or not self.open or scopes(self.groups[number]) != scopes(self.groups[self.open[0]]):
                self.open, self.behind, waits = [], set(), False
                self.launches.append(self.open)
            self._join(self.open, number)
        elif waits or needs & members:
            self.behind.add(number)

    def _serves_meetings(self, number: int) -> bool:
        """Whether it reads only what devices met for, and only meetings read what it makes."""
        made = [v for v in self.groups[number].graph.outvars if isinstance(v, Var)]
        readers = set().union(*(self.readers.get(v, set()) for v in made))
        sources = {self.home.get(v, -1) for v in self.groups[number].graph.invars}
        return bool(sources and readers) and sources | readers <= self.meetings and not self.outputs.intersection(made)

    def _join_between(self, number: int) -> None:
        key = frozenset(self.needs[number])
        launch = self.between.get(key)
        if launch is None or self._full(launch, number) or not self.allowed():
            launch = self.between[key] = []
            self.launches.append(launch)
        launch.append(number)

    def _full(self, launch: list[int], number: int) -> bool:
        return (
            len(launch) >= self.limits.horizontal_parts
            or self._arrays([*launch, number]) > self.limits.horizontal_params > 0
            or self._forms([*launch, number]) > self.limits.horizontal_forms > 0
        )

    def _join(self, launch: list[int], number: int) -> None:
        full = self._full(launch, number)
        if full and launch is self.last:
            self.last = launch = []
            self.launches.append(launch)
        elif full:
            self.open, self.behind, launch = [], set(), []
            self.open = launch
            self.launches.append(launch)
        if launch and not self.allowed():
            self.behind |= {number} if self.needs[number] & set(launch) else set()
            return
        launch.append(number)

    def _arrays(self, numbers: Iterable[int]) -> int:
        """Arrays that groups read and write, each by itself."""
        graphs = [self.groups[n].graph for n in numbers]
        return sum(len(graph.invars) + len(graph.outvars) for graph in graphs)

    def _forms(self, numbers: Sequence[int]) -> int:
        """Groups that differ by more than extents."""
        if not self.limits.horizontal_forms:
            return 0
        for number in numbers:
            if number not in self.forms:
                self.forms[number] = form(self.groups[number])
        return len({self.forms[number] for number in numbers})

    def finish(self) -> tuple[FusionGroup, ...]:
        """All groups, each behind what it needs, otherwise as late as the last of its parts stood."""
        unit_of = {n: launch for launch in self.launches if len(launch) > 1 for n in launch}
        result: list[FusionGroup] = []
        done: set[int] = set()

        def emit(root: int) -> None:
            stack = [root]
            while stack:
                number = stack[-1]
                unit = unit_of.get(number, [number])
                if number in done:
                    stack.pop()
                    continue
                missing = {m for n in unit for m in self.needs[n]} - done - set(unit)
                if missing:
                    stack.extend(sorted(missing, reverse=True))
                    continue
                done.update(unit)
                result.append(self._bundle(unit) if len(unit) > 1 else self.groups[number])

        for number in range(len(self.groups)):
            if number == max(unit_of.get(number, [number])):
                emit(number)
        return tuple(result)

    def _bundle(self, numbers: list[int]) -> FusionGroup:
        """One group of several, with one graph; what only its own parts read stays inside."""
        inside = set(numbers)
        parts = tuple(self.groups[n] for n in numbers)
        made = {v for part in parts for v in part.graph.outvars}
        eqns = tuple(dict.fromkeys(eqn for part in parts for eqn in part.graph.eqns))
        invars = tuple(dict.fromkeys(v for part in parts for v in part.graph.invars if v not in made))
        needed = {v for v in made if v in self.outputs or self.readers.get(v, set()) - inside}
        outvars = tuple(dict.fromkeys(v for part in parts for v in part.graph.outvars if v in needed))
        name = _name(parts)
        sources = tuple(dict.fromkeys(source for part in parts for source in part.sources))
        graph = Graph(invars, (), (), eqns, outvars, name)
        return FusionGroup(Kind.HORIZONTAL, graph, (), (), name, sources, parts=parts)


def _name(parts: Sequence[FusionGroup]) -> str:
    """`k3_20_kernels_mul_add`: the number of the first part, how many there are, and their last operations."""
    number, _, _ = parts[0].name.partition("_")
    words = [word for part in parts for word in dict.fromkeys(part.ops) if word not in ("copy", "convert_element_type")]
    tail = "_".join(list(dict.fromkeys(words))[-3:])
    return f"{number}_{len(parts)}_kernels{'_' if tail else ''}{identifier(tail) if tail else ''}"


def levels(parts: Sequence[FusionGroup]) -> list[list[int]]:
    """The parts of a launch by how many others must run before them, one after the other."""
    level: dict[Var, int] = {}
    result: list[list[int]] = []
    for number, part in enumerate(parts):
        own = max((level[v] + 1 for v in part.graph.invars if v in level), default=0)
        level.update({v: own for v in part.graph.outvars if isinstance(v, Var)})
        result += [[]] if own == len(result) else []
        result[own].append(number)
    return result
