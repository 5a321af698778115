"""The scalar vocabulary in torch: what an elementwise equation computes of one element, on whole tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuser.backends.triton.library import small_dtypes
from fuser.ir.cost import lowered, nodes
from fuser.ir.graph import Eqn
from fuser.ir.scalar import Scalar
from fuser.ir.types import BOOL, SMALL, UNSIGNED, is_complex, is_integer
from fuser.ops.cumulative import cumprod_p, cumsum_p
from fuser.ops.elementwise import gcd_p, lcm_p
from fuser.ops.reduce import reduce_prod_p, reduce_sum_p
from fuser.runtime.array import torch_dtype

_NAMED = {
    **{
        name: name
        for name in ("neg", "abs", "floor", "ceil", "round", "trunc", "sqrt", "exp", "exp2", "expm1", "log", "log1p")
    },
    **{
        name: name
        for name in ("log2", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh")
    },
    **{
        name: name
        for name in ("atanh", "erf", "erfc", "lgamma", "real", "imag", "add", "sub", "mul", "pow", "atan2", "nextafter")
    },
    **{name: name for name in ("eq", "ne", "lt", "le", "gt", "ge", "complex")},
    "div": "div",
    "select": "where",
    "not": "bitwise_not",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "conj": "conj_physical",
    "max": "maximum",
    "min": "minimum",
}
_LEAVES = ("input", "const", "cast", "cast_unchecked", "bitcast")


def _operands_first(root: Scalar) -> list[Scalar]:
    """The nodes of an expression, each once and behind its operands."""
    known: dict[int, Scalar] = {}

    def visit(node: Scalar) -> None:
        if id(node) not in known:
            for arg in node.args:
                visit(arg)
            known[id(node)] = node

    visit(root)
    return list(known.values())


def supported(eqn: Eqn) -> bool:
    """Whether torch has all that the equation's expression is made of: of wide unsigned integers it has but conversions."""
    if eqn.primitive in RULES:
        return eqn.primitive in (gcd_p, lcm_p) or eqn.invars[0].aval.dtype not in UNSIGNED[1:]
    used = list(nodes(lowered(eqn)))
    computed = [v for node in used if node.op not in _LEAVES for v in (node, *node.args)]
    return all(n.op in _LEAVES or n.op in _NAMED for n in used) and all(v.dtype not in UNSIGNED[1:] for v in computed)


def elementwise(eqn: Eqn, *operands: Any) -> Any:
    """The equation's expression on tensors."""
    import torch

    values: dict[int, Any] = {}
    root = lowered(eqn)
    for node in _operands_first(root):
        values[id(node)] = _value(torch, node, [values[id(a)] for a in node.args], operands)
    return values[id(root)].expand(eqn.outvars[0].aval.shape)


def _value(torch: Any, node: Scalar, args: list[Any], operands: tuple[Any, ...]) -> Any:
    if node.op == "input":
        return operands[node.attr]
    if node.op == "const":
        number = np.asarray(node.attr).astype(np.float32 if node.dtype in SMALL else node.dtype).item()
        return torch.full((), number, dtype=torch_dtype(node.dtype), device=operands[0].device)
    if node.op in ("cast", "cast_unchecked"):
        if node.dtype in SMALL:
            return small_dtypes.decoded(small_dtypes.encoded(args[0], node.dtype), node.dtype)
        return converted(args[0], node.dtype)
    if node.op == "bitcast":
        return args[0].view(torch_dtype(node.dtype))
    if node.op == "div":
        return _divided(torch, *args)
    if node.op in ("max", "min") and is_complex(node.dtype):
        return extreme(node.op, *args)
    if node.op in ("add", "sub", "mul", "max", "min") and node.dtype == BOOL:
        return getattr(
            torch, {"add": "logical_or", "max": "logical_or", "mul": "logical_and", "min": "logical_and"}[node.op]
        )(*args)
    return getattr(torch, _NAMED[node.op])(*args)


def _divided(torch: Any, x: Any, y: Any) -> Any:
    """Towards zero for integers, which torch divides by 0 as it likes: -1 then."""
    if x.is_floating_point() or x.is_complex():
        return x / y
    quotient = torch.div(x, torch.where(y == 0, 1, y), rounding_mode="trunc")
    return torch.where(y == 0, -1, quotient).to(x.dtype)


def extreme(op: str, x: Any, y: Any) -> Any:
    """The larger or smaller of two complex numbers, by real part first; nan where one has one."""
    import torch

    more = (x.real > y.real) | ((x.real == y.real) & (x.imag > y.imag))
    chosen = torch.where(more == (op == "max"), x, y)
    return torch.where(torch.isnan(x), x, torch.where(torch.isnan(y), y, chosen))


def converted(x: Any, dtype: np.dtype) -> Any:
    """The tensor's numbers in `dtype`, as XLA converts: ≠ 0 to bool, floats held to the limits of integers, nan to 0."""
    import torch

    kind = torch_dtype(dtype)
    if x.is_complex() and not is_complex(dtype):
        x = x.real
    if dtype == BOOL:
        return x != 0
    if not (x.is_floating_point() and is_integer(dtype)):
        return x.to(kind)
    info = np.iinfo(dtype)
    wide = torch.nan_to_num(x.double(), nan=0.0, posinf=float("inf"), neginf=float("-inf")).trunc()
    top, bottom = wide >= float(info.max), wide <= float(info.min)
    inside = torch.where(top | bottom, 0.0, wide)
    if dtype == np.dtype("uint64"):
        high = inside >= 2.0**63
        whole = torch.where(high, inside - 2.0**63, inside).long() ^ torch.where(high, -(2**63), 0)
        return torch.where(top, -1, torch.where(bottom, 0, whole)).view(torch.uint64)
    return torch.where(top, info.max, torch.where(bottom, info.min, inside.long())).to(kind)


def _reduction(name: str) -> Callable[..., Any]:
    def rule(eqn: Eqn, x: Any) -> Any:
        import torch

        kind, axes = torch_dtype(eqn.outvars[0].aval.dtype), tuple(eqn.params["axes"])
        if name == "sum":
            return torch.sum(x, axes, dtype=kind) if axes else x.clone()
        for axis in sorted(axes, reverse=True):
            x = torch.prod(x, axis, dtype=kind)
        return x

    return rule


def _scan(name: str) -> Callable[..., Any]:
    def rule(eqn: Eqn, x: Any) -> Any:
        import torch

        axis, kind = eqn.params["axis"], torch_dtype(eqn.outvars[0].aval.dtype)
        x = x.flip(axis) if eqn.params.get("reverse") else x
        result = getattr(torch, name)(x, axis, dtype=kind)
        return result.flip(axis) if eqn.params.get("reverse") else result

    return rule


def _gcd(eqn: Eqn, x: Any, y: Any) -> Any:
    """torch's, in signed 64 bits; unsigned numbers are below 2^63 after three of Euclid's steps."""
    import torch

    if x.dtype != torch.uint64:
        return torch.gcd(x.long(), y.long()).to(x.dtype)
    x, y = x.view(torch.int64), y.view(torch.int64)
    for _ in range(3):
        rest = x - _unsigned_quotient(x, y) * y
        x, y = torch.where(y == 0, x, y), torch.where(y == 0, 0, rest)
    return torch.where(y == 0, x, torch.gcd(x, y)).view(torch.uint64)


def _lcm(eqn: Eqn, x: Any, y: Any) -> Any:
    """x / gcd · y without its sign, modulo 2^bits."""
    import torch

    common = _gcd(eqn, x, y)
    if x.dtype == torch.uint64:
        x, y, common = (v.view(torch.int64) for v in (x, y, common))
        return (_unsigned_quotient(x, common) * y).view(torch.uint64)
    quotient = torch.div(x.long(), torch.where(common == 0, 1, common.long()), rounding_mode="trunc")
    return (quotient * y.long()).abs().to(x.dtype)


def _unsigned_quotient(x: Any, y: Any) -> Any:
    """x / y of unsigned numbers that lie in int64; 0 where y is 0."""
    import torch

    least = torch.iinfo(torch.int64).min
    below = lambda a, b: (a ^ least) < (b ^ least)
    divisor = torch.where(y > 0, y, 1)
    double = torch.div((x >> 1) & ~least, divisor, rounding_mode="trunc") << 1
    quotient = double + (~below(x - double * divisor, divisor)).long()
    return torch.where(y > 0, quotient, torch.where(y == 0, 0, (~below(x, y)).long()))


RULES: dict[Any, Any] = {
    gcd_p: _gcd,
    lcm_p: _lcm,
    reduce_sum_p: _reduction("sum"),
    reduce_prod_p: _reduction("prod"),
    cumsum_p: _scan("cumsum"),
    cumprod_p: _scan("cumprod"),
}
