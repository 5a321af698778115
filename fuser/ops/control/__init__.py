"""Control flow: `while`, `scan` and `cond`, which hold Graphs in their params; operands and params are those of JAX.

The Graphs are closed: what a body closes over is an operand. The predicate of a while may have a shape, the leading
dimensions of every carry: each lane then runs until its own predicate is false. A cond's index is clamped.
"""

from fuser.ops.control.avals import row_type, stacked
from fuser.ops.control.cond import cond_p
from fuser.ops.control.scan import scan_p, split_scan
from fuser.ops.control.while_loop import lanes, split_while, while_p

__all__ = ["cond_p", "lanes", "row_type", "scan_p", "split_scan", "split_while", "stacked", "while_p"]
