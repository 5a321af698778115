"""`FUSER_DUMP=dir` writes what each stage made as numbered files: graphs, plan, explanation, kernel texts."""

from __future__ import annotations

import itertools
import pathlib
from typing import TYPE_CHECKING

from fuser.config import config
from fuser.ir.graph import Graph
from fuser.ir.names import identifier

if TYPE_CHECKING:
    from fuser.compile import Lowering

_number = itertools.count()
_SUFFIX = {"c": ".c", "triton": ".py", "pallas": ".py", "jax": ".py", "graph": ".txt"}


def dump(graph: Graph, lowering: Lowering) -> None:
    """Write the artefacts of one program where the setting says; nothing without it."""
    if not config.dump:
        return
    folder = pathlib.Path(config.dump) / f"{next(_number):03}_{identifier(graph.name)}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "0_traced.txt").write_text(str(graph) + "\n", encoding="utf-8")
    (folder / "1_optimised.txt").write_text(str(lowering.graph) + "\n", encoding="utf-8")
    (folder / "2_legal.txt").write_text(str(lowering.plan.graph) + "\n", encoding="utf-8")
    (folder / "3_plan.txt").write_text(str(lowering.plan) + "\n", encoding="utf-8")
    (folder / "4_explain.txt").write_text(lowering.plan.explain() + "\n", encoding="utf-8")
    for source in lowering.sources:
        (folder / f"5_{source.name}{_SUFFIX.get(source.language, '.txt')}").write_text(
            source.text + "\n", encoding="utf-8"
        )
