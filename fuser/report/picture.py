"""The graph of a plan as a picture: inputs, each group's equations, results, and who reads what of whom.

In: a plan and names for its inputs. Out: a `GraphPicture`. A movement equation that several groups look through is in
each of them, so it gets a node in each.
"""

from __future__ import annotations

from collections.abc import Sequence

from fuser.ir.graph import Operand, Var
from fuser.partition.group import Plan
from fuser.report.data import GraphNode, GraphPicture


def picture(plan: Plan, input_names: Sequence[str]) -> GraphPicture:
    """Nodes and edges for drawing; inputs that nothing reads are left out."""
    drawing = Drawing()
    for index, var in enumerate(plan.graph.invars):
        name = input_names[index] if index < len(input_names) else f"input {index}"
        drawing.value(var, name, "input")
    for var in plan.graph.constvars:
        drawing.value(var, "constant", "constant")
    for number in range(len(plan.groups)):
        drawing.group(plan, number)
    for index, result in enumerate(plan.outputs):
        label = f"result {index}" if len(plan.outputs) > 1 else "result"
        found = plan.aliases.get(result, result) if isinstance(result, Var) else result
        drawing.read(drawing.node(label, "result", str(result.aval)), found, drawing.written)
    return drawing.finished()


class Drawing:
    """Nodes and edges so far; `written` holds the node of each value that lies in memory."""

    def __init__(self) -> None:
        self.nodes: list[GraphNode] = []
        self.edges: dict[tuple[int, int], None] = {}
        self.written: dict[Var, int] = {}

    def node(self, label: str, primitive: str, type: str, group: int = -1, line: str = "") -> int:
        """Add a node and give its id."""
        self.nodes.append(GraphNode(len(self.nodes), label, primitive, type, group, line))
        return len(self.nodes) - 1

    def value(self, var: Var, label: str, kind: str) -> None:
        """Add a value that no group makes."""
        self.written[var] = self.node(label, kind, str(var.aval))

    def read(self, reader: int, operand: Operand, made: dict[Var, int]) -> None:
        """Connect a reader with the node that made its operand, here or in an earlier group."""
        if isinstance(operand, Var):
            source = made.get(operand, self.written.get(operand))
            if source is not None:
                self.edges[source, reader] = None

    def group(self, plan: Plan, number: int) -> None:
        """Add the equations of one group."""
        group = plan.groups[number]
        made: dict[Var, int] = {}
        for eqn in group.graph.eqns:
            types = ", ".join(str(var.aval) for var in eqn.outvars)
            reader = self.node(eqn.primitive.name, eqn.primitive.name, types, number, str(eqn.source))
            for operand in eqn.invars:
                self.read(reader, operand, made)
            made |= dict.fromkeys(eqn.outvars, reader)
        self.written |= {var: made[var] for var in group.graph.outvars if isinstance(var, Var) and var in made}

    def finished(self) -> GraphPicture:
        """The picture, without values that nothing reads."""
        used = {end for edge in self.edges for end in edge}
        nodes = tuple(node for node in self.nodes if node.id in used or node.group >= 0 or node.primitive == "result")
        return GraphPicture(nodes, tuple(self.edges))
