"""What a loop carries or branches join: variables that are bound anew, and arrays from before that are written to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fuser.interop.control.exits import RESULT
from fuser.interop.control.state import UNBOUND, Log
from fuser.interop.control.values import Differs, Kind, agreed, is_exact, kind_of, leaves_of, lifted, same
from fuser.interop.numpy.checks import Checks
from fuser.interop.numpy.context import Context, untraceable
from fuser.interop.numpy.traced import TracedArray
from fuser.lax.values import broadcast_to, literal
from fuser.ops import elementwise as E
from fuser.ops import movement as V
from fuser.ops import reduce as R
from fuser.runtime.array import Array
from fuser.trace import tree
from fuser.trace.core import Tracer, bind

BOOL = np.dtype(bool)


@dataclass
class Carry:
    """Variables with the kinds of their leaves, and arrays. Leaves stand in the order of the variables, then of the arrays."""

    context: Context
    structures: dict[str, Any] = field(default_factory=dict)
    kinds: dict[str, list[Kind]] = field(default_factory=dict)
    arrays: list[TracedArray] = field(default_factory=list)
    exact: dict[str, list[bool]] = field(default_factory=dict)  # whether a leaf is no int, or one that float64 holds
    shared: dict[str, list[int]] = field(default_factory=dict)  # memory that variables may have afterwards

    def add(self, name: str, value: Any) -> None:
        """Carry a variable, of the kind of this value."""
        leaves, structure = leaves_of(value, name)
        self.structures[name], self.kinds[name] = structure, [kind_of(leaf, name) for leaf in leaves]
        self.exact[name] = [kind.weak is not int or is_exact(leaf) for kind, leaf in zip(self.kinds[name], leaves)]

    def join(self, name: str, values: Sequence[Any], either: bool = True) -> None:
        """Have a variable be of a kind that these values have too. Differs where there is none."""
        for value in values:
            if name == RESULT and value is None:
                continue
            leaves, structure = leaves_of(value, name)
            if structure != self.structures[name]:
                raise Differs(name)
            kinds = [kind_of(leaf, name) for leaf in leaves]
            self.exact[name] = [
                old and (kind.weak is not int or is_exact(leaf))
                for old, kind, leaf in zip(self.exact[name], kinds, leaves)
            ]
            known = zip(self.kinds[name], kinds, self.exact[name])
            self.kinds[name] = [agreed(old, kind, name, either, exact) for old, kind, exact in known]

    def values(self, variables: dict[str, Any]) -> list[Any]:
        """The leaves' values now, of the kinds that were agreed upon."""
        found = []
        for name in self.kinds:
            kinds = self.kinds[name]
            if name == RESULT and variables[name] is None:  # which nothing reads then
                found += [broadcast_to(literal(0, kind.dtype), kind.shape) for kind in kinds]
                continue
            if variables[name] is UNBOUND:
                raise Differs(name)
            leaves = leaves_of(variables[name], name)[0]
            found += [lifted(self.context, leaf, kind) for leaf, kind in zip(leaves, kinds)]
        return found + [array.lifted() for array in self.arrays]

    def place(
        self, values: Sequence[Any], guards: dict[str, str], shared: dict[str, list[int]] | None = None
    ) -> dict[str, Any]:
        """Write values to the arrays, and return those of the variables, as new arrays; `guards` say why some must not be written to,
        and `shared` whose memory they may have."""
        rest = iter([np.asarray(v) if isinstance(v, Array) else v for v in values])
        made = {}
        for name, kinds in self.kinds.items():
            leaves = [kind.array(self.context, next(rest), guards.get(name, "")) for kind in kinds]
            made[name] = tree.unflatten(self.structures[name], leaves)
            if shared and shared.get(name):
                self.context.may_share += [
                    (self.context.number_of(leaf), shared[name]) for leaf in leaves if not leaf.scalar
                ]
        for array, value in zip(self.arrays, rest):
            array.will_change()
            array.assignments = None
            array._replace(value)
        return made


def truth(value: Any) -> Any:
    """Whether a value is true: a bool, or a traced one."""
    if not isinstance(value, TracedArray) or value.known or value.size != 1:
        return bool(value.value if type(value) is TracedArray and value.known else value)
    found = value.lifted()
    if found.dtype != BOOL:
        found = bind(E.ne_p, found, literal(0, found.dtype))
    return bind(V.reshape_p, found, new_sizes=(), dimensions=None) if found.shape else found


def as_flag(value: Any) -> Any:
    """A bool as primitives take it."""
    return value if isinstance(value, Tracer) else literal(bool(value), BOOL)


def told(checks: Checks, results: Sequence[Any], precise: bool) -> Any:
    """One bool: whether anything happened in a block whose results are these."""
    if checks.always:
        return literal(True, BOOL)
    found = None
    for flag in checks.status(results, precise):
        flag = bind(R.reduce_or_p, flag, axes=tuple(range(len(flag.shape)))) if flag.shape else flag
        found = flag if found is None else bind(E.or_p, found, flag)
    return literal(False, BOOL) if found is None else found


def changed_names(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """The variables that have other values."""
    return [name for name in before if not same(before[name], after[name])]


def owners(value: Any, name: str) -> list[TracedArray]:
    """The arrays whose memory a variable's value is."""
    if value is UNBOUND:
        return []
    return [leaf._owner for leaf in leaves_of(value, name)[0] if type(leaf) is TracedArray and not leaf.scalar]


def sharing(context: Context, heads: dict[str, Any], after: dict[str, Any], level: int) -> dict[str, list[int]]:
    """For variables of a loop, arrays from before it, or of other variables, that they may be when it ends, by their numbers."""
    fresh = {id(array) for name, value in heads.items() for array in owners(value, name)}
    ended = {name: owners(after[name], name) for name in heads}
    often = Counter(id(array) for arrays in ended.values() for array in arrays)
    older = lambda array: array._level < level and id(array) not in fresh
    return {
        name: [context.number_of(a) for a in arrays if older(a) or often[id(a)] > 1] for name, arrays in ended.items()
    }


def check_memory(
    heads: dict[str, Any], after: dict[str, Any], initial: dict[str, Any], alone: set[str], log: Log, level: int
) -> dict[str, str]:
    """Refuse writes by which iterations would see each other's memory otherwise than they do; the guards of arrays that a loop leaves.

    `heads` are the variables' values where an iteration began, `after` where it ended, and `initial` before the loop.
    """
    heads = {
        name: value for name, value in heads.items() if name != RESULT
    }  # once that is set, nothing is written any more
    fresh = {id(array): name for name, value in heads.items() for array in owners(value, name)}
    written = {id(array) for array in log.arrays()}
    begun = {name: owners(value, name) for name, value in initial.items() if name in heads}
    ended = [array for name in heads for array in owners(after[name], name)]
    shared = len({id(array) for array in ended}) < len(ended)
    guards = {}
    for name in heads:
        old = any(array._level < level and id(array) not in fresh for array in owners(after[name], name))
        if (
            shared
            or old
            or any(array._guard for array in owners(after[name], name))
            or (begun[name] and name not in alone)
        ):
            guards[name] = "writing to an array that a loop on values has left cannot be traced|write to a copy of it"
    mine = [array for name in heads for array in owners(heads[name], name)]
    if any(array._version for array in mine) and guards:
        raise untraceable(
            "an array that a loop both binds anew and writes to cannot be traced", "write to a copy of it"
        )
    for name in heads:
        if any(id(array) in written for array in (*begun[name], *owners(after[name], name)) if id(array) not in fresh):
            raise untraceable("memory that a loop shares between variables cannot be traced", "bind a copy of it")
    return guards
