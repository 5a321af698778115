"""Steps of native loops that only Python has: NumPy's and SciPy's functions, and callbacks.

In: a group that is no kernel, and the Python function of its inputs. Out: the size arguments of `from_host`, which calls it through
the native core (runtime/core/host.c) on arrays over the loop's buffers. What Python raises ends the loops, as a signal does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fuser.backends.c.function import Symbol
from fuser.ir.graph import Var
from fuser.partition.group import FusionGroup

FROM_HOST = Symbol("from_host")


def host_step(group: FusionGroup, function: Callable[..., Any]) -> list[int | tuple[Any, ...]]:
    """Size arguments as runtime/core/host.c reads them; tuples are what `with_addresses` takes."""
    writes = [v for v in dict.fromkeys(group.graph.outvars) if isinstance(v, Var)]
    label = next((str(source) for source in group.sources if source.file), "")
    sizes: list[int | tuple[Any, ...]] = [
        ("host", "run"),
        ("object", function),
        ("object", group.name),
        ("object", label),
    ]
    sizes += [len(group.graph.invars), len(writes)]
    for aval in (v.aval for v in (*group.graph.invars, *writes)):
        sizes += [("object", aval.dtype), aval.ndim, *aval.shape]
    return sizes
