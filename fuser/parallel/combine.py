"""One meeting for many sums: those over the same devices that do not wait for each other become one group of collectives.

What depends on a sum is put off until nothing else is left to compute; then the sums that have come up are taken together,
those first over whose devices no other sum will come up meanwhile. Between processes sums do not wait for the last one where they fill a bucket, so that
they travel while the devices compute. Gathers stay where they are, so that what they make lives no longer than it must.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fuser.ir.graph import Eqn, Graph, Var
from fuser.ir.primitive import Fusion
from fuser.ops.collective import collective_group_p, own_params, psum_invariant_p, psum_p, psum_scatter_p
from fuser.trace.batch import axis_names

_SUMS = (psum_p, psum_invariant_p, psum_scatter_p)


Bucket = Callable[[tuple[Any, ...]], float]  # the bytes of a bucket of sums over some axes


def combine_sums(graph: Graph, bucket: Bucket | None = None) -> Graph:
    """The graph of one device with its sums in as few meetings as there are sums that wait for one another.

    Sums that fill a `bucket` do not wait for others where something is left to compute.
    """
    if sum(eqn.primitive in _SUMS for eqn in graph.eqns) < 2:
        return graph
    done: list[Eqn] = []
    left = list(graph.eqns)
    while left:
        waiting: set[Var] = set()
        sums: dict[Any, list[Eqn]] = {}
        nbytes: Counter[Any] = Counter()
        later: list[Eqn] = []
        for eqn in left:
            if any(v in waiting for v in eqn.operands()):
                later.append(eqn)
            elif eqn.primitive in _SUMS:
                sums.setdefault(_key(eqn), []).append(eqn)
                nbytes[_key(eqn)] += sum(v.aval.nbytes for v in eqn.operands())
            else:
                if bucket is not None and eqn.primitive.fusion not in (Fusion.MOVEMENT, Fusion.LIBRARY):
                    full = [key for key in sums if nbytes[key] >= bucket(key[0])]
                    done += [_together(sums.pop(key), *key) for key in full]
                    nbytes.subtract({key: nbytes[key] for key in full})
                done.append(eqn)
                continue
            waiting.update(eqn.outvars)
        ripe = [key for key, each in sums.items() if not _more(key, each, later)] or list(sums)
        done += [_together(sums.pop(key), *key) for key in ripe]
        left = [*(e for each in sums.values() for e in each), *later]
    return replace(graph, eqns=tuple(done))


def _key(eqn: Eqn) -> Any:
    """Over which devices a sum is taken."""
    return axis_names(eqn.params), eqn.params.get("axis_index_groups")


def _more(key: Any, sums: list[Eqn], later: list[Eqn]) -> bool:
    """Whether among what is still to come a sum over the same devices does not wait for these."""
    waiting = {v for eqn in sums for v in eqn.outvars}
    for eqn in later:
        if any(v in waiting for v in eqn.operands()):
            waiting.update(eqn.outvars)
        elif eqn.primitive in _SUMS and _key(eqn) == key:
            return True
    return False


def _together(sums: list[Eqn], axis_name: Any, groups: Any) -> Eqn:
    if len(sums) == 1:
        return sums[0]
    kinds = tuple((e.primitive.name, own_params(e.params)) for e in sums)
    params = {"axis_name": axis_name, "axis_index_groups": groups, "kinds": kinds}
    invars, outvars = tuple(v for e in sums for v in e.invars), tuple(v for e in sums for v in e.outvars)
    return Eqn(collective_group_p, invars, params, outvars, sums[0].source)
