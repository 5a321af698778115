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
