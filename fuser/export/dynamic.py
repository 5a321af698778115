"""`jit(f, dynamic=...)`: a function traced once for all sizes of the extents that are named."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from fuser.api.jitted import jit
from fuser.export.exported import Exported, export
from fuser.export.symbolic import SymbolicScope, symbolic_args_specs
from fuser.lax.values import as_value
from fuser.trace import tree
from fuser.trace.core import type_of


def dynamic_jit(function: Callable[..., Any], dynamic: Mapping[str, Any], **options: Any) -> Callable[..., Any]:
    """`function` jitted; the arguments that `dynamic` names have the symbolic shapes that it says ("b, 4*k").

    `dynamic` maps names of arguments to texts, or trees of texts; "constraints" among them is a sequence of constraints. The function
    is traced for each tree and dtype of the arguments, and each shape of those that are not named, but once for all sizes.
    InconclusiveDimensionOperation where it does something else for other sizes. TypeError for a name that is no argument.
    """
    said = dict(dynamic)
    constraints = tuple(said.pop("constraints", ()))
    signature = inspect.signature(function)
    if unknown := [name for name in said if name not in signature.parameters]:
        raise TypeError(
            f"dynamic names {', '.join(map(repr, unknown))}, and the arguments are {', '.join(signature.parameters)}"
        )
    jitted = jit(function, **options)
    traced: dict[Any, Exported] = {}

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        leaves, structure = tree.flatten(given)
        types = [type_of(as_value(leaf)) for leaf in leaves]
        marks = tree.leaves({name: tree.map(lambda _, name=name: name in said, part) for name, part in given.items()})
        key = (structure, *((t.dtype, t.ndim if mark else t.shape) for t, mark in zip(types, marks)))
        if key not in traced:
            scope = SymbolicScope(constraints)
            specs = {n: symbolic_args_specs(part, said.get(n), scope=scope) for n, part in given.items()}
            traced[key] = export(jitted)(**specs)
        return traced[key].call(**given)

    call.traced = traced  # type: ignore[attr-defined]
    return call
