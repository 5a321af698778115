"""What a primitive costs an element, in additions: enough to say what is cheaper to compute again than to load."""

from __future__ import annotations

from fuser.ir.graph import Eqn
from fuser.ir.scalar import COSTS

_NAMES = {
    **{"logistic": "exp", "rsqrt": "sqrt", "erf_inv": "erf", "integer_pow": "mul", "convert_element_type": "cast"},
    **dict.fromkeys(("random_bits", "random_fold_in"), "threefry0"),
    **dict.fromkeys(("digamma", "polygamma", "zeta", "bessel_i0e", "bessel_i1e"), "lgamma"),
}


def cost(eqn: Eqn) -> int:
    """Additions an element that one elementwise equation is worth."""
    name = eqn.primitive.name
    return COSTS.get(_NAMES.get(name, name), 1)


def operations(eqn: Eqn) -> int:
    """Vector operations that one equation is written in, about: conversions into fewer numbers test for each end."""
    if eqn.primitive.name != "convert_element_type":
        return 1
    before, after = eqn.invars[0].aval.dtype, eqn.outvars[0].aval.dtype
    if before.kind != "f" and after.kind != "f":
        return 1
    return 8 if after.kind in "iu" or min(before.itemsize, after.itemsize) < 4 else 1
