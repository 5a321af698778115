"""jax.experimental.hijax's names: primitives of the user's own on arrays (`VJPHiPrimitive`), each with a rule for each transform.

Values under transforms are arrays alone: classes can be derived from the others and registered, as libraries do when they
are imported; making or binding one raises AbsentError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fuser.errors import AbsentError
from fuser.experimental.hijax.accumulators import GradAccum, NullAccum, ValAccum
from fuser.experimental.hijax.derived import jvp_from_lin, linearize_from_jvp, vjp_from_jvp, vjp_from_lin
from fuser.experimental.hijax.primitive import VJPHiPrimitive
from fuser.gaps import absent
from fuser.interpreters.ad import Zero, instantiate_zeros, is_undefined_primal
from fuser.ir.types import ArrayType as AbstractValue
from fuser.ref import AbstractRef, Ref, new_ref

__all__ = [
    "AbstractRef",
    "AbstractValue",
    "AvalMutableQDD",
    "AvalQDD",
    "Effect",
    "GradAccum",
    "HiPrimitive",
    "MutableHiType",
    "NullAccum",
    "Ref",
    "VJPHiPrimitive",
    "ValAccum",
    "Zero",
    "aval_method",
    "aval_property",
    "control_flow_allowed_effects",
    "instantiate_zeros",
    "is_undefined_primal",
    "jvp_from_lin",
    "linearize_from_jvp",
    "new_ref",
    "register_hitype",
    "vjp_from_jvp",
    "vjp_from_lin",
]


def _refused(what: str) -> AbsentError:
    return AbsentError(
        f"{what} is not offered: values under fuser's transforms are arrays; instead: pytrees of arrays, registered by fuser.tree_util"
    )


class HiPrimitive:
    """A primitive on values of the user's own types. Binding it raises AbsentError."""

    multiple_results = False

    def __init__(self, name: str) -> None:
        self.name = name

    def bind(self, *args: Any, **params: Any) -> Any:
        raise _refused(f"the primitive {self.name} (jax.experimental.hijax)")


class _Refused:
    """A type that has no values."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise _refused(f"{type(self).__name__} (jax.experimental.hijax)")


class MutableHiType(_Refused):
    """The type of values that can change."""


class AvalQDD(_Refused):
    """A type, and what it is at one moment."""


class AvalMutableQDD(_Refused):
    """A type, and what it becomes."""


class Effect:
    """What a primitive does beside computing its results; libraries derive their own."""


class _Effects:
    """A set of classes of effects."""

    def __init__(self) -> None:
        self._types: set[type] = set()

    def add_type(self, effect: type) -> None:
        """Add a class of effects."""
        self._types.add(effect)

    def contains(self, effect: Any) -> bool:
        """Whether the effect is of one of the classes."""
        return isinstance(effect, tuple(self._types))


control_flow_allowed_effects = _Effects()


class aval_property:
    """A property of tracers, defined by their type."""

    def __init__(self, fget: Callable[..., Any]) -> None:
        self.fget = fget


class aval_method:
    """A method of tracers, defined by their type."""

    def __init__(self, fun: Callable[..., Any]) -> None:
        self.fun = fun


_registered: dict[type, Callable[[Any], Any]] = {}


def register_hitype(val_cls: type, typeof_fn: Callable[[Any], Any]) -> None:
    """Note a type of values; such a value is refused where an array is wanted."""
    _registered[val_cls] = typeof_fn


__getattr__ = absent(__name__)
