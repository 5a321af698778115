"""Where a backward rule adds the cotangent of each argument's leaf."""

from __future__ import annotations

from typing import Any

from fuser.config import config
from fuser.ir.source import current_source
from fuser.ir.types import ArrayType
from fuser.lax.values import as_value, convert
from fuser.trace.core import type_of
from fuser.trace.tangent import Zero, add_tangents, as_array, differentiable, float0


class GradAccum:
    """The cotangent of a value of type `aval`, to which a rule adds."""

    def __init__(self, aval: ArrayType) -> None:
        self.aval = aval

    def accum(self, x: Any) -> None:
        """Add `x`, an array of the shape of `aval`; None and Zero add nothing."""
        raise NotImplementedError

    def freeze(self) -> Any:
        """The sum, a Zero where nothing was added."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.aval})"


class ValAccum(GradAccum):
    """An accumulator that holds the sum as a value."""

    def __init__(self, aval: ArrayType, val: Any = None) -> None:
        super().__init__(aval)
        self.val = Zero(aval) if val is None else val

    def accum(self, x: Any) -> None:
        if x is None or isinstance(x, Zero) or not differentiable(self.aval) or getattr(x, "dtype", None) == float0:
            return
        value = as_array(as_value(x))
        found = type_of(value)
        if found.shape != self.aval.shape and not config.disable_bwd_checks:
            raise ValueError(
                f"Expected cotangent type {self.aval.str_long()} but got {found.str_long()}: a backward rule must give cotangents of "
                f"the types of the arguments ({current_source().short})"
            )
        self.val = add_tangents(self.val, convert(value, self.aval.dtype, found.weak_type))

    def freeze(self) -> Any:
        return self.val


class NullAccum(GradAccum):
    """The accumulator of an argument that is not differentiated: what is added is dropped."""

    def accum(self, x: Any) -> None:
        return

    def freeze(self) -> Any:
        return Zero(self.aval)
