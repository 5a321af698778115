"""Collectives between processes: what each member of a group sends to which other, and what it makes of what it gets.

Values are reduced in the order of the group, element by element, as threads of one process reduce them: the same bits. A
long sum is shared out: every member reduces its share of the elements and sends it to all others, so that each sends
2n(p-1)/p of n bytes (Rabenseifner's all-reduce); a short one is reduced by all members in one round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fuser.ops.collective import combined

Kind = tuple[str, tuple[tuple[str, Any], ...]]  # a collective's name and its own params
Swap = Callable[[dict[tuple[int, int], list[np.ndarray]], dict[tuple[int, int], list[np.ndarray]]], None]

SHORT_BYTES = 4096  # of a sum that one round is quicker for
_SUMS = ("psum", "psum_invariant", "pmax", "pmin")


def _shared_out(name: str, value: np.ndarray) -> bool:
    return name in _SUMS and value.nbytes > SHORT_BYTES


def _share(value: np.ndarray, member: int, count: int) -> np.ndarray:
    """The elements that a member reduces."""
    flat = value.reshape(-1)
    return flat[flat.size * member // count : flat.size * (member + 1) // count]


def portion(kind: Kind, value: np.ndarray, source: int, target: int, count: int) -> np.ndarray:
    """What the member `source` sends of its value to `target`, both counted within the group."""
    name, params = kind[0], dict(kind[1])
    if _shared_out(name, value):
        return _share(value, target, count)
    if name == "psum_scatter":
        return value[(slice(None),) * params["axis"] + (target,)]
    if name == "all_to_all":
        return value[(slice(None),) * params["split_axis"] + (target,)]
    if name == "ppermute" and (source, target) not in params["perm"]:
        return value.reshape(-1)[:0]
    if name == "pbroadcast" and source != params["source"]:
        return value.reshape(-1)[:0]
    return value


def _received(kind: Kind, value: np.ndarray, portions: Sequence[np.ndarray], own: int) -> np.ndarray:
    """What a member makes of its portions of all members' values; of a sum that is shared out, its share."""
    name, params = kind[0], dict(kind[1])
    if name == "psum_scatter":
        return combined("psum", list(portions))[0]
    if name == "all_to_all":
        return np.stack(portions, params["concat_axis"])
    if name == "ppermute":
        sources = [s for s, d in params["perm"] if d == own]
        return portions[sources[0]].reshape(value.shape).copy() if sources else np.zeros_like(value)
    if name == "pbroadcast":
        return portions[params["source"]].reshape(value.shape).copy()
    return combined(name, list(portions), **params)[0]


def exchange(
    members: Sequence[int], brought: Mapping[int, Sequence[np.ndarray]], kinds: Sequence[Kind], swap: Swap
) -> dict[int, list[np.ndarray]]:
    """The results of the members in this process, who have `brought` one value for each of `kinds`.

    `swap(outgoing, incoming)` sends lists of arrays by (source, target) and fills others by the same keys.
    """
    count, place = len(members), {rank: n for n, rank in enumerate(members)}
    remote = [m for m in members if m not in brought]

    def rounds(sent: Callable[[int, int], list[np.ndarray]], like: Callable[[int, int], list[np.ndarray]]) -> Any:
        """For each member here, the arrays that every member sent to it, in the order of the group."""
        outgoing = {(a, b): [np.ascontiguousarray(v) for v in sent(a, b)] for a in brought for b in remote}
        incoming = {(a, b): [np.empty(v.shape, v.dtype) for v in like(a, b)] for a in remote for b in brought}
        swap(outgoing, incoming)
        return {b: [sent(a, b) if a in brought else incoming[a, b] for a in members] for b in brought}

    def portions(a: int, b: int, values: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [portion(k, v, place[a], place[b], count) for k, v in zip(kinds, values)]

    got = rounds(lambda a, b: portions(a, b, brought[a]), lambda a, b: portions(a, b, brought[b]))
    results: dict[int, list[np.ndarray]] = {}
    for rank, values in brought.items():
        each = zip(kinds, values, zip(*got[rank]))
        results[rank] = [_received(k, v, list(given), place[rank]) for k, v, given in each]
    shared = [n for n, (k, v) in enumerate(zip(kinds, next(iter(brought.values())))) if _shared_out(k[0], v)]
    if shared:
        reduced = lambda a, b: [results[a][n] for n in shared]
        shares = lambda a, b: [_share(brought[b][n], place[a], count) for n in shared]
        got = rounds(reduced, shares)
        for rank, parts in got.items():
            for n, given in zip(shared, zip(*parts)):
                results[rank] = list(results[rank])
                results[rank][n] = np.concatenate(given).reshape(brought[rank][n].shape)
    return results
