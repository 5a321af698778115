"""Checks that an export can do without, each at the caller's own risk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fuser.ir.graph import Graph, graphs_in


@dataclass(frozen=True)
class DisabledSafetyCheck:
    """A check that is not made for an exported function; `word` is how files name it."""

    word: str

    @classmethod
    def platform(cls) -> DisabledSafetyCheck:
        """Let the function be called on platforms that it was not exported for."""
        return cls("platform")

    @classmethod
    def custom_call(cls, target_name: str) -> DisabledSafetyCheck:
        """Let the function call the foreign function `target_name` (fuser.ffi); "ALL" for any."""
        return cls(f"custom_call:{target_name}")

    def is_custom_call(self) -> str | None:
        """The foreign function that may be called; None for another check."""
        return self.word.removeprefix("custom_call:") if self.word.startswith("custom_call:") else None

    def __str__(self) -> str:
        return self.word


def foreign_calls(graph: Graph) -> Iterator[str]:
    """The names of the foreign functions that a graph calls."""
    for eqn in graph.eqns:
        if "target_name" in eqn.params:
            yield eqn.params["target_name"]
        for inner in graphs_in(eqn.params):
            yield from foreign_calls(inner)


def check_foreign_calls(graph: Graph, disabled: Sequence[DisabledSafetyCheck]) -> None:
    """ValueError where a graph calls foreign functions that no disabled check allows."""
    allowed = {check.is_custom_call() for check in disabled}
    if "ALL" in allowed:
        return
    if refused := sorted({*foreign_calls(graph)} - allowed):
        raise ValueError(
            f"Cannot serialize code with custom calls whose targets have no compatibility guarantees: {', '.join(refused)}; "
            "give disabled_checks=[DisabledSafetyCheck.custom_call(name)] for each, and register it where the file is loaded"
        )
