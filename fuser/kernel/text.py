"""Kernels as text: parameters, axes, and each sweep's nodes, reductions and stores."""

from __future__ import annotations

from collections.abc import Callable

from fuser.ir.scalar import Scalar
from fuser.ir.types import short_dtype
from fuser.kernel.kernel import Kernel, Loop


def show(kernel: Kernel) -> str:
    """The kernel as a readable loop program."""
    names: dict[Scalar, str] = {}

    def name(node: Scalar) -> str:
        if node.op == "const":
            return str(node.attr)
        if node.op in ("carry", "final"):
            return f"carry{node.attr.number}"
        return names.setdefault(node, f"v{len(names)}")

    def line(node: Scalar) -> str:
        args = " ".join(name(a) for a in node.args)
        if node.op == "load":
            return f"{name(node)}:{short_dtype(node.dtype)} = {kernel.params[node.attr.param].name}[{node.attr.offset}] {args}".rstrip()
        attr = f"[{node.attr}]" if node.attr is not None else ""
        return f"{name(node)}:{short_dtype(node.dtype)} = {node.op}{attr} {args}".rstrip()

    params = ", ".join(f"{p.name}:{short_dtype(p.dtype)}[{','.join(map(str, p.shape))}]" for p in kernel.params)
    lines = [f"kernel {kernel.name}({params})"]
    lines.append("  for " + ", ".join(f"{a} < {a.extent}" for a in kernel.parallel) if kernel.parallel else "  once")
    for number, sweep in enumerate(kernel.sweeps):
        if kernel.loop is not None and number == 1:
            lines += _loop(kernel.loop, kernel, name, line)
        lines += ["    " + line(n) for n in sweep.row if n.op not in ("const", "final")]
        lines += [f"    {kernel.params[s.param].name}[{s.offset}] = {name(s.value)}" for s in sweep.row_stores]
        if sweep.loops and kernel.reduced:
            lines.append("    for " + ", ".join(f"{a} < {a.extent}" for a in kernel.reduced))
        pad = "      " if kernel.reduced else "    "
        lines += [pad + line(n) for n in sweep.body if n.op != "const"]
        lines += [f"{pad}{name(f)} = reduction {f.attr.reduction} {name(f.args[0])}" for f in sweep.reductions]
        lines += [f"{pad}{kernel.params[s.param].name}[{s.offset}] = {name(s.value)}" for s in sweep.stores]
    return "\n".join(lines)


def _loop(loop: Loop, kernel: Kernel, name: Callable[[Scalar], str], line: Callable[[Scalar], str]) -> list[str]:
    """The loop between the sweeps: the carry's first values, and one iteration."""
    lines = [f"    {name(c.node)}:{short_dtype(c.node.dtype)} = {name(c.initial)}" for c in loop.carries]
    steps = "any of its lanes goes on" if loop.time is None else f"{loop.time} < {loop.time.extent}"
    lines.append(f"    while {steps}")
    lines += ["      " + line(n) for n in loop.body if n.op != "const"]
    lines += [f"      {kernel.params[s.param].name}[{s.offset}] = {name(s.value)}" for s in loop.stores]
    for carry in loop.carries:
        guard = f" where {name(loop.predicates[carry.guard])}" if loop.predicates else ""
        lines.append(f"      {name(carry.node)} = {name(carry.following)}{guard}")
    return lines
