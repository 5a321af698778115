"""One meeting for many collectives: those over the same devices that do not wait for each other become one group.

Sums meet with sums, permutations (of blocks, too: all-to-alls) with permutations. What depends on one is put off until nothing else is left to compute; then those that have
come up are taken together, first where no other over the same devices will come up meanwhile. Between processes they do not wait for the last one where they fill a
bucket, so that they travel while the devices compute. Gathers stay where they are, so that what they make lives no longer than it must.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from heapq import heappop, heappush
from itertools import islice
from typing import Any

from fuser.ir.graph import Eqn, Graph
from fuser.ir.primitive import Fusion
from fuser.ops.collective import (
    all_to_all_p,
    collective_group_p,
    own_params,
    ppermute_p,
    psum_invariant_p,
    psum_p,
    psum_scatter_p,
)
from fuser.trace.batch import axis_names

_SUMS = (psum_p, psum_invariant_p, psum_scatter_p)
_PERMUTATIONS = (all_to_all_p, ppermute_p)
LOOKAHEAD = 32  # collectives of one kind that are still to come and are looked at

Bucket = Callable[[tuple[Any, ...]], float]  # the bytes of a bucket of collectives over some axes
Key = tuple[Any, Any, bool]  # the axes, their groups, and whether it is a sum


def combine_collectives(graph: Graph, bucket: Bucket | None = None) -> Graph:
    """The graph of one device with its sums and permutations in as few meetings as there are that wait for one another.

    Those that fill a `bucket` do not wait for others where something is left to compute.
    """
    places = [n for n, eqn in enumerate(graph.eqns) if _key(eqn) is not None]
    return graph if len(places) < 2 else replace(graph, eqns=tuple(_Order(graph, places, bucket).eqns()))


def _key(eqn: Eqn) -> Key | None:
    """What it has in common with those that it can meet with."""
    if eqn.primitive not in _SUMS and eqn.primitive not in _PERMUTATIONS:
        return None
    return axis_names(eqn.params), eqn.params.get("axis_index_groups"), eqn.primitive in _SUMS


class _Order:
    """List scheduling: equations in program order as their operands come, collectives when nothing else is left."""

    def __init__(self, graph: Graph, collectives: list[int], bucket: Bucket | None) -> None:
        self.graph, self.bucket = graph, bucket
        self.bits = {n: 1 << bit for bit, n in enumerate(collectives)}
        self.keys = {n: _key(graph.eqns[n]) for n in collectives}
        self.coming: dict[Any, dict[int, None]] = {}  # by key those whose operands are not there yet, in order
        for n, key in self.keys.items():
            self.coming.setdefault(key, {})[n] = None
        self.before: dict[int, int] = {}  # of each collective the bits of those that it waits for
        self.users: list[list[int]] = [[] for _ in graph.eqns]
        self.missing = [0] * len(graph.eqns)  # how many of the producers of its operands are not done
        self._link()
        self.ready: list[int] = []
        self.held: list[int] = []  # what waits for a bucket that is on its way
        self.pool: dict[Any, list[int]] = {}
        self.nbytes: Counter[Any] = Counter()
        self.done: list[Eqn] = []

    def _link(self) -> None:
        producer: dict[Any, int] = {}
        waits: list[int] = []
        for n, eqn in enumerate(self.graph.eqns):
            sources = {producer[v] for v in eqn.operands() if v in producer}
            self.missing[n], mask = len(sources), 0
            for source in sources:
                self.users[source].append(n)
                mask |= waits[source] | self.bits.get(source, 0)
            waits.append(mask)
            if n in self.bits:
                self.before[n] = mask
            producer.update(dict.fromkeys(eqn.outvars, n))

    def eqns(self) -> list[Eqn]:
        self._take([n for n, count in enumerate(self.missing) if not count])
        while self.ready or self.pool or self.held:
            while self.ready:
                n = heappop(self.ready)
                self._send_full(self.graph.eqns[n])
                self.done.append(self.graph.eqns[n])
                self._take(self._released([n]))
            held, self.held = self.held, []
            self._take([*held, *(n for key in self._ripe() for n in self._meet(key))])
        return self.done

    def _take(self, numbers: Iterable[int]) -> None:
        """Equations whose operands are there."""
        for n in numbers:
            if n not in self.bits:
                heappush(self.ready, n)
                continue
            self.pool.setdefault(self.keys[n], []).append(n)
            del self.coming[self.keys[n]][n]
            self.nbytes[self.keys[n]] += sum(v.aval.nbytes for v in self.graph.eqns[n].operands())

    def _released(self, numbers: Iterable[int]) -> list[int]:
        """What only waited for these."""
        found = []
        for n in numbers:
            for user in self.users[n]:
                self.missing[user] -= 1
                if not self.missing[user]:
                    found.append(user)
        return found

    def _send_full(self, following: Eqn) -> None:
        """Let buckets that are full meet before what is computed next."""
        if self.bucket is None or following.primitive.fusion in (Fusion.MOVEMENT, Fusion.LIBRARY):
            return
        for key in [k for k in self.pool if self.nbytes[k] >= self.bucket(k[0])]:
            self.held += self._meet(key)

    def _ripe(self) -> list[Any]:
        """The collectives that no other could meet with that is still to come; all where there are none such."""
        if len(self.pool) < 2:
            return list(self.pool)
        return [key for key in self.pool if not self._more(key)] or list(self.pool)

    def _more(self, key: Any) -> bool:
        waiting = sum(self.bits[n] for n in self.pool[key])
        return any(not self.before[n] & waiting for n in islice(self.coming[key], LOOKAHEAD))

    def _meet(self, key: Any) -> list[int]:
        """Let those of this key meet; what only waited for them."""
        numbers = sorted(self.pool.pop(key))
        self.nbytes[key] = 0
        self.done.append(_together([self.graph.eqns[n] for n in numbers], key))
        return self._released(numbers)


def _together(eqns: list[Eqn], key: Any) -> Eqn:
    if len(eqns) == 1:
        return eqns[0]
    kinds = tuple((e.primitive.name, own_params(e.params)) for e in eqns)
    params = {"axis_name": key[0], "axis_index_groups": key[1], "kinds": kinds}
    invars, outvars = tuple(v for e in eqns for v in e.invars), tuple(v for e in eqns for v in e.outvars)
    return Eqn(collective_group_p, invars, params, outvars, eqns[0].source)
