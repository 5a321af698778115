"""What forms of long rows share of sums of exponentials whose maximum is not known yet: shifts, and sums moved from one shift to another."""

from __future__ import annotations

from fuser.backends.triton.emitter import Dims, Emitter
from fuser.backends.triton.reductions import Rows, reduced, working
from fuser.ir.scalar import Scalar
from fuser.kernel.online import Online


def shifted(emitter: Emitter, online: Online, maximum: str, dims: Dims, prefix: str) -> str:
    """The shift of an online sum where the maximum is that text, which varies along `dims`; what it is made of is computed into
    names with the prefix."""
    if online.shift is online.maximum:
        return maximum
    names = {node: emitter.name(node) for node in online.chain}
    with emitter.scope():
        emitter.env[online.maximum], emitter.varies[online.maximum] = maximum, dims
        for number, node in enumerate(online.chain):
            emitter.env.pop(node, None)
            emitter.names[node] = f"{prefix}{number}"
        emitter.define_all(online.chain)
        found: str = emitter.operand(online.shift)
    emitter.names |= names
    return found


def rescaled(sums: str, before: str, after: str) -> str:
    """Sums of exponentials relative to shifts `before` as relative to `after`; 0 stays 0, whatever the factor."""
    return f"tl.where({sums} == 0.0, 0.0, {sums} * libdevice.exp({before} - {after}))"


def near(shift: str, maximum: str, kind: str) -> str:
    """The shift that exponentials of some elements are relative to: 0 where all of them are −∞, whose exponentials are 0."""
    return f'tl.where({maximum} == float("-inf"), 0.0, ({shift}).to({kind}))'


def whole(emitter: Rows, reduction: Scalar, online: Online, sums: str, before: str) -> None:
    """Define an online sum by parts that are relative to the shifts `before`; of −∞ alone it is 0, or nan where the shift is −∞."""
    name, kind = emitter.name(reduction), working(reduction.attr)
    shift = f"({emitter.operand(online.shift)}).to({kind})"
    emitter.line(f"{name}_whole = {reduced(reduction.attr, rescaled(sums, before, shift))}")
    largest = emitter.env[online.maximum]
    nothing = f"{name}_whole + libdevice.exp(({largest}).to({kind}) - {shift})"
    emitter.line(f'{name}_whole = tl.where({largest} == float("-inf"), {nothing}, {name}_whole)')
    emitter.line(f"{name} = {name}_whole{emitter.narrow(reduction)}")
