"""Rules of windows: a part of each window that is as wide as the windows are apart is a plain slice in another shape."""

from __future__ import annotations

from typing import Any

from fuser.ir.graph import Eqn
from fuser.ir.rewrite import Rewriter
from fuser.ir.types import BOOL, FLOATS, INTEGERS
from fuser.ops import movement as M
from fuser.ops.windows import sliding_windows_p
from fuser.passes.algebra.rule import Result, Rule
from fuser.trace.stage import stage


def _slice_of_windows(eqn: Eqn, rewriter: Rewriter) -> Result:
    """Blocks with a halo, shifted within the halo, lie side by side again: no element is in two of them."""
    turned = rewriter.producer(eqn.invars[0], M.transpose_p)
    windows = rewriter.producer(turned.invars[0] if turned else eqn.invars[0], sliding_windows_p)
    if windows is None or len(windows.params["dimensions"]) != 1 or windows.params["dilation"] != (1,):
        return None
    (d,), (apart,) = windows.params["dimensions"], windows.params["strides"]
    rank = windows.outvars[0].aval.ndim
    order = tuple(turned.params["permutation"]) if turned else tuple(range(rank))
    low, high = eqn.params["start_indices"], eqn.params["limit_indices"]
    place, number = order.index(rank - 1), order.index(d)
    plain = all(s == 1 for s in eqn.params["strides"] or (1,))
    if not plain or high[place] - low[place] != apart or high[number] == low[number]:
        return None
    first = low[number] * apart + low[place]
    count = high[number] - low[number]

    def function(x: Any) -> list[Any]:
        start = [low[order.index(k)] for k in range(rank - 1)]
        limit = [high[order.index(k)] for k in range(rank - 1)]
        start[d], limit[d] = first, first + count * apart
        if (*start, *limit) != (*[0] * x.ndim, *x.shape):
            x = M.slice_p.bind(x, start_indices=tuple(start), limit_indices=tuple(limit), strides=None)
        x = M.reshaped(x, (*x.shape[:d], count, apart, *x.shape[d + 1 :]))
        # Its dimensions are the windows', the place in the window right behind the window's number.
        at = {k: k if k <= d else k + 1 for k in range(rank - 1)} | {rank - 1: d + 1}
        permutation = tuple(at[k] for k in order)
        return [x if permutation == tuple(range(rank)) else M.transpose_p.bind(x, permutation=permutation)]

    graph = stage(function, [windows.invars[0].aval], "part_of_windows")
    [result] = rewriter.splice(graph, [windows.invars[0]], eqn.source)
    return result


def _sample(x: Any) -> Any:
    windows = sliding_windows_p.bind(x, dimensions=(0,), window=(4,), strides=(2,), dilation=(1,))
    turned = M.transpose_p.bind(windows, permutation=(0, 2, 1))
    return M.slice_p.bind(turned, start_indices=(1, 1, 2), limit_indices=(3, 3, 5), strides=None)


WINDOWS: tuple[Rule, ...] = (
    Rule("slice of windows", (M.slice_p,), _slice_of_windows, _sample, (BOOL, *INTEGERS, *FLOATS), ((9, 5), (8, 6))),
)
