"""How a library says what a primitive of its own is compiled as: a function, whose operations take the primitive's place.

These are the two names of jax.interpreters.mlir that need no MLIR.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fuser.errors import AbsentError
from fuser.ir.primitive import Primitive

__all__ = ["lower_fun", "register_lowering"]


@dataclass(frozen=True)
class _Lowering:
    """A function of the operands and params, and whether it gives several results."""

    function: Callable[..., Any]
    multiple_results: bool


def lower_fun(fun: Callable[..., Any], multiple_results: bool = True) -> _Lowering:
    """`fun(*operands, **params)` as what `register_lowering` takes."""
    return _Lowering(fun, multiple_results)


def register_lowering(
    prim: Primitive, rule: Any, platform: str | None = None, inline: bool = True, cacheable: bool = True
) -> Any:
    """Compile `prim` as the operations of a function given by `lower_fun`. A rule that writes MLIR is refused when it is used."""
    if platform is not None:
        return rule
    if not isinstance(rule, _Lowering):
        prim.inline = lambda *operands, **params: _refuse(prim)
    elif rule.multiple_results == prim.multiple_results:
        prim.inline = rule.function
    else:
        prim.inline = lambda *operands, **params: [rule.function(*operands, **params)]
    return rule


def _refuse(prim: Primitive) -> Any:
    raise AbsentError(
        f"the primitive {prim.name} is lowered by a rule that writes MLIR, which fuser has not; "
        "instead: register_lowering(primitive, lower_fun(function))"
    )
