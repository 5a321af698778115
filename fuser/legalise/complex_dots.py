"""Products of complex matrices as products of their real and imaginary parts, where a backend has real products alone.

(A + iB)(C + iD) = AC - BD + i(AD + BC): four real products, as many operations as the complex one has; two where an
operand is real numbers converted. Their sums are the epilogues of the products. Graph → Graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuser.ir.graph import Eqn, Graph, Operand
from fuser.ir.primitive import Fusion, Primitive
from fuser.ir.rewrite import Rewriter
from fuser.ir.types import is_complex
from fuser.ops.elementwise import add_p, complex_p, convert_element_type_p, imag_p, real_p, sub_p
from fuser.passes.reductions.dot_to_reduce import converted

Parts = tuple[Operand, Operand | None]  # the imaginary part of real numbers is None


def with_real_dots(graph: Graph, supports: Callable[[Eqn], str | None]) -> Graph:
    """The graph with each complex product that the backend refuses as real ones, where it has kernels for the parts."""
    if not any(map(_complex, graph.eqns)):
        return graph
    rewriter = Rewriter(graph)
    known: dict[Operand, Parts] = {}
    for original in graph.eqns:
        eqn = rewriter.resolve(original)
        part = rewriter.make(real_p, eqn.invars[0]) if _complex(eqn) else None
        if part is None or supports(eqn) is None or supports(part) is not None:
            rewriter.keep(eqn)
            continue
        x, y = (_parts(rewriter, v, known) for v in eqn.invars)
        rewriter.replace(eqn.outvars[0], _product(rewriter, eqn, x, y))
    return rewriter.finish()


def _complex(eqn: Eqn) -> bool:
    return eqn.primitive.fusion is Fusion.DOT and is_complex(eqn.invars[0].aval.dtype) and eqn.outvars[0].aval.size > 0


def _parts(rewriter: Rewriter, operand: Operand, known: dict[Operand, Parts]) -> Parts:
    """The real and the imaginary part of an operand; products of one operand share them."""
    if operand not in known:
        made = rewriter.producers.get(operand)  # type: ignore[arg-type]
        real = np.zeros((), operand.aval.dtype).real.dtype
        if made is not None and made.primitive is convert_element_type_p and not is_complex(made.invars[0].aval.dtype):
            before = made.invars[0]
            known[operand] = converted(before, real, rewriter), None
        else:
            known[operand] = rewriter.add(real_p, operand), rewriter.add(imag_p, operand)
    return known[operand]


def _product(rewriter: Rewriter, eqn: Eqn, x: Parts, y: Parts) -> Operand:
    out = eqn.outvars[0].aval.dtype
    part = np.zeros((), out).real.dtype
    params: dict[str, Any] = {**eqn.params}
    if params.get("preferred_element_type") is not None:
        params["preferred_element_type"] = part
    times = lambda a, b: None if a is None or b is None else rewriter.add(eqn.primitive, a, b, **params)
    real = _sum(rewriter, sub_p, times(x[0], y[0]), times(x[1], y[1]))
    imaginary = _sum(rewriter, add_p, times(x[0], y[1]), times(x[1], y[0]))
    if imaginary is None:
        return converted(real, out, rewriter)
    return rewriter.add(complex_p, real, imaginary)


def _sum(rewriter: Rewriter, primitive: Primitive, a: Any, b: Any) -> Any:
    """`a` and `b` added or subtracted; either may be missing."""
    return a if b is None else b if a is None else rewriter.add(primitive, a, b)
