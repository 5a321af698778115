"""Which loops of a program become one kernel with the loop inside: found once a loop, for every stage that asks."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from fuser.config import config
from fuser.ir.graph import Eqn, Graph, Var
from fuser.ir.primitive import Fusion
from fuser.partition.loop import LoopForm, loop_form
from fuser.partition.structure import loop_structure


class LoopForms:
    """The forms of a program's loops on one backend. A refusal holds for all loops of one structure."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        self.known: dict[Var, LoopForm | str] = {}  # by a loop's first result, which rewrites keep
        self.refused: dict[Hashable, str] = {}

    def of(self, graph: Graph) -> dict[Var, LoopForm | str]:
        """For each control equation of the graph, by its first result: how it becomes one kernel with its loop inside, or
        why it does not. FUSER_FUEL allows the first of them alone."""
        forms: dict[Var, LoopForm | str] = {}
        for eqn in graph.eqns:
            if eqn.primitive.fusion is Fusion.CONTROL:
                made = sum(isinstance(form, LoopForm) for form in forms.values())
                no_fuel = 0 <= config.fuel <= made
                forms[eqn.outvars[0]] = "the merges allowed by FUSER_FUEL are used up" if no_fuel else self._form(eqn)
        return forms

    def _form(self, eqn: Eqn) -> LoopForm | str:
        found = self.known.get(eqn.outvars[0])
        if found is None:
            found = self.known[eqn.outvars[0]] = self._search(eqn)
        return found

    def _search(self, eqn: Eqn) -> LoopForm | str:
        key = loop_structure(eqn)
        if (refusal := self.refused.get(key)) is not None:
            return refusal
        form = loop_form(eqn, self.backend.supports, self.backend.limits.subgroups, self.backend.limits.target)
        if key is not None and isinstance(form, str):
            self.refused[key] = form
        return form
