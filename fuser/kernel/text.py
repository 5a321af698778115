"""Kernels as text: parameters, axes, and each stage's nodes, folds and stores."""

from __future__ import annotations

from fuser.ir.scalar import Scalar
from fuser.ir.types import short_dtype
from fuser.kernel.kernel import Kernel


def show(kernel: Kernel) -> str:
    """The kernel as a readable loop program."""
    names: dict[Scalar, str] = {}

    def name(node: Scalar) -> str:
        if node.op == "const":
            return str(node.attr)
        return names.setdefault(node, f"v{len(names)}")

    def line(node: Scalar) -> str:
        args = " ".join(name(a) for a in node.args)
        if node.op == "load":
            return f"{name(node)}:{short_dtype(node.dtype)} = {kernel.params[node.attr.param].name}[{node.attr.offset}] {args}".rstrip()
        attr = f"[{node.attr}]" if node.attr is not None else ""
        return f"{name(node)}:{short_dtype(node.dtype)} = {node.op}{attr} {args}".rstrip()

    params = ", ".join(f"{p.name}:{short_dtype(p.dtype)}[{','.join(map(str, p.shape))}]" for p in kernel.params)
    lines = [f"kernel {kernel.name}({params})"]
    lines.append("  for " + ", ".join(f"{a} < {a.extent}" for a in kernel.rows) if kernel.rows else "  once")
    for stage in kernel.stages:
        lines += ["    " + line(n) for n in stage.row if n.op != "const"]
        lines += [f"    {kernel.params[s.param].name}[{s.offset}] = {name(s.value)}" for s in stage.row_stores]
        if stage.loops and kernel.cols:
            lines.append("    for " + ", ".join(f"{a} < {a.extent}" for a in kernel.cols))
        pad = "      " if kernel.cols else "    "
        lines += [pad + line(n) for n in stage.body if n.op != "const"]
        lines += [f"{pad}{name(f)} = fold {f.attr.fold} {name(f.args[0])}" for f in stage.folds]
        lines += [f"{pad}{kernel.params[s.param].name}[{s.offset}] = {name(s.value)}" for s in stage.stores]
    return "\n".join(lines)
