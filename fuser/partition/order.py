"""The order of a plan's kernels: as in the program, unless another one needs less memory at once.

In: candidates that depend on each other by what they read. Out: the same, each after those that it needs. A step that
frees more than it writes, such as the update of a parameter by the gradient that only it reads, runs as soon as it can.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Collection, Sequence

from fuser.ir.graph import Eqn, Graph, Operand, Var
from fuser.ops.control import scan_p
from fuser.partition.axes import Views
from fuser.partition.candidate import Candidate
from fuser.partition.group import FusionLimits
from fuser.partition.in_place_updates import carries, is_one_step

MOST_CHANGED = 64  # arrays that are updated where they are, whose readers are asked for
WORTH_BYTES = 1 << 20  # and a sixteenth of the peak: what leaving the program's order has to save


def ordered(
    candidates: Sequence[Candidate], graph: Graph, results: Collection[Var], limits: FusionLimits
) -> list[Candidate]:
    """The candidates, their equations in program order; `results` are the values that outlive the program."""
    position = {eqn: n for n, eqn in enumerate(graph.eqns)}
    for candidate in candidates:
        candidate.eqns.sort(key=position.__getitem__)
    first = _readers_first(candidates, limits, Views(graph.eqns))
    found = _in_program_order(candidates, {c: position[c.eqns[0]] for c in candidates}, first)
    values = _Values(found, results, first)
    best = values.peak(found)
    worth = max(WORTH_BYTES, best // 16)
    if best <= worth:
        return found
    orders = [values.scheduled(lambda net: min(net, 0) and -1), values.scheduled(lambda net: net)]
    peaks = [values.peak(order) for order in orders]
    least = min(peaks)
    return found if best - least < worth else orders[peaks.index(least)]


def _readers_first(
    candidates: Sequence[Candidate], limits: FusionLimits, views: Views
) -> dict[Candidate, list[Candidate]]:
    """Of candidates that write into the memory of an array (`donated_updates.py`), the largest ones, the others that read it, but for those
    that need what they make of it: after these it would have to be copied."""
    changed: dict[Candidate, list[Var]] = {}
    for candidate in candidates:
        operand = _changed(candidate.eqns[-1], limits)
        arrays = [*candidate.windows.values(), None if operand is None else views(operand).source]
        if found := [array for array in arrays if array is not None and array in candidate.inputs]:
            changed[candidate] = found
    if not changed:
        return {}
    home = {v: c for c in candidates for v in c.produced}
    readers: dict[Var, list[Candidate]] = {array: [] for arrays in changed.values() for array in arrays}
    followers: dict[Candidate, list[Candidate]] = {c: [] for c in candidates}
    for candidate in candidates:
        for var in candidate.inputs:
            if var in home:
                followers[home[var]].append(candidate)
            if var in readers:
                readers[var].append(candidate)
    before: dict[Candidate, list[Candidate]] = {}
    for candidate in sorted(changed, key=lambda c: -sum(v.aval.nbytes for v in changed[c]))[:MOST_CHANGED]:
        after = _after(candidate, followers)
        others = dict.fromkeys(c for array in changed[candidate] for c in readers[array])
        before[candidate] = [c for c in others if c not in after]
        for reader in before[candidate]:
            followers[reader].append(candidate)  # so that no other choice makes a circle of them
    return before


def _changed(eqn: Eqn, limits: FusionLimits) -> Operand | None:
    """The array in whose memory an update writes."""
    if eqn.primitive in limits.calls_in_place:
        return eqn.invars[0]
    return eqn.invars[carries(eqn)[0]] if eqn.primitive is scan_p and is_one_step(eqn) else None


def _after(candidate: Candidate, followers: dict[Candidate, list[Candidate]]) -> set[Candidate]:
    """The candidate, and those that need it, by way of others too."""
    found, stack = {candidate}, [candidate]
    while stack:
        new = set(followers[stack.pop()]) - found
        found |= new
        stack += new
    return found


def _in_program_order(
    candidates: Sequence[Candidate], position: dict[Candidate, int], first: dict[Candidate, list[Candidate]]
) -> list[Candidate]:
    """Each after those that it needs and those that are to run `first`; otherwise by its first equation."""
    home = {v: c for c in candidates for v in c.produced}
    result: list[Candidate] = []
    state: dict[Candidate, int] = {}
    for root in sorted(candidates, key=position.__getitem__):
        stack = [root]
        while stack:
            candidate = stack[-1]
            if state.get(candidate) == 2:
                stack.pop()
                continue
            makers = [*(home[v] for v in candidate.inputs if v in home), *first.get(candidate, ())]
            needs = [maker for maker in makers if state.get(maker) != 2]
            if state.get(candidate) == 1 or not needs:
                assert not needs, "the candidates depend on each other in a circle"
                state[candidate] = 2
                result.append(candidate)
                stack.pop()
            else:
                state[candidate] = 1
                stack.extend(sorted(needs, key=lambda c: -position[c]))
    return result


class _Values:
    """What candidates hand on through memory: who reads each value, and what is left when a candidate has run."""

    def __init__(
        self, candidates: Sequence[Candidate], results: Collection[Var], first: dict[Candidate, list[Candidate]]
    ) -> None:
        self.candidates, self.results, self.first = candidates, results, first
        self.number = {c: n for n, c in enumerate(candidates)}
        self.home = {v: n for n, c in enumerate(candidates) for v in c.live_out}
        self.reads = [[v for v in c.inputs if v in self.home] for c in candidates]
        self.readers: dict[Var, list[int]] = {v: [] for v in self.home}
        for number, read in enumerate(self.reads):
            for var in read:
                self.readers[var].append(number)
        self.written = [sum(v.aval.nbytes for v in c.live_out) for c in candidates]

    def peak(self, order: Sequence[Candidate]) -> int:
        """Bytes of values and results so far that are needed at once at the worst moment."""
        left = {v: len(readers) for v, readers in self.readers.items()}
        alive = most = 0
        for number in map(self.number.__getitem__, order):
            alive += self.written[number]
            most = max(most, alive)
            alive -= sum(v.aval.nbytes for v in self._freed(number, left))
            for var in self.reads[number]:
                left[var] -= 1
        return most

    def scheduled(self, key: Callable[[int], int]) -> list[Candidate]:
        """Of those that can run always the one with the least key of the bytes that it adds, and of these the first."""
        left = {v: len(readers) for v, readers in self.readers.items()}
        needs = [{self.home[v] for v in read} for read in self.reads]
        for candidate, others in self.first.items():
            needs[self.number[candidate]].update(self.number[other] for other in others)
        effects = [n for n, c in enumerate(self.candidates) if any(e.primitive.effect for e in c.eqns)]
        for before, after in itertools.pairwise(effects):
            needs[after].add(before)  # what can be seen from outside keeps its order
        followers: list[list[int]] = [[] for _ in needs]
        for number, makers in enumerate(needs):
            for other in makers:
                followers[other].append(number)
        waiting = [len(makers) for makers in needs]
        added = lambda n: key(self.written[n] - sum(v.aval.nbytes for v in self._freed(n, left)))
        ready = [(added(n), n) for n, count in enumerate(waiting) if not count]
        heapq.heapify(ready)
        done, order = [False] * len(needs), list[Candidate]()
        while ready:
            _, number = heapq.heappop(ready)
            if done[number]:
                continue
            done[number] = True
            order.append(self.candidates[number])
            fresh = []
            for follower in followers[number]:
                waiting[follower] -= 1
                fresh += [follower] if not waiting[follower] else []
            for var in self.reads[number]:
                left[var] -= 1
                if left[var] == 1:  # its last reader frees it now
                    fresh += [n for n in self.readers[var] if not done[n] and not waiting[n]]
            for other in fresh:
                heapq.heappush(ready, (added(other), other))
        return order

    def _freed(self, number: int, left: dict[Var, int]) -> list[Var]:
        """The values that nobody needs once a candidate has run, what it writes and nobody reads among them."""
        unread = [v for v in self.candidates[number].live_out if not self.readers[v]]
        last = [v for v in self.reads[number] if left[v] == 1]
        return [v for v in (*unread, *last) if v not in self.results]
