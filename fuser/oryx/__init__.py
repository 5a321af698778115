"""Two interpreters of traced functions: inverses with the logarithms of their Jacobians' determinants, and effect handlers.

The names are those of Oryx's core. Both work on the Graph of a function, so what they give can be jitted, differentiated and
batched like any other function.
"""

from fuser.oryx.harvest import call_and_reap, harvest, plant, reap, sow
from fuser.oryx.inverse import ildj, inverse, inverse_and_ildj

__all__ = ["call_and_reap", "harvest", "ildj", "inverse", "inverse_and_ildj", "plant", "reap", "sow"]
