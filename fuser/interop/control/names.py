"""Which variables statements bind and read: what a loop must carry."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Sequence

SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def bound(nodes: Iterable[ast.AST]) -> list[str]:
    """The variables that statements bind, in order."""
    found: dict[str, None] = {}
    waiting = list(reversed(list(nodes)))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found[node.id] = None
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.ExceptHandler)):
            found[str(node.name)] = None
        elif isinstance(node, ast.alias):
            found[(node.asname or node.name).partition(".")[0]] = None
        if not isinstance(node, (*SCOPES, *_COMPREHENSIONS)):
            waiting.extend(reversed(list(ast.iter_child_nodes(node))))
    return list(found)


def reads(nodes: Iterable[ast.AST]) -> Counter[str]:
    """How often each variable is read. What functions defined there read of their own variables is not counted."""
    found: Counter[str] = Counter()
    for node in nodes:
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            body = node.body if isinstance(node.body, list) else [node.body]
            own = {each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg)} | set(bound(body))
            inside = reads(body)
            found.update({name: count for name, count in inside.items() if name not in own})
            decorators = node.decorator_list if isinstance(node, ast.FunctionDef) else []
            found.update(reads([*decorators, *node.args.defaults, *filter(None, node.args.kw_defaults)]))
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            found[node.id] += 1
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] += 1
        found.update(reads(ast.iter_child_nodes(node)))
    return found


def exposed(nodes: Sequence[ast.AST]) -> set[str]:
    """The variables that may be read before these statements bind them."""
    return _exposed(nodes, set())[0]


def _exposed(nodes: Sequence[ast.AST], killed: set[str]) -> tuple[set[str], set[str]]:
    """What is read of values from before, and what is surely bound afterwards."""
    found: set[str] = set()
    killed = set(killed)
    for node in nodes:
        if isinstance(node, ast.If):
            found |= set(reads([node.test])) - killed
            parts = [_exposed(part, killed) for part in (node.body, node.orelse)]
            found |= parts[0][0] | parts[1][0]
            killed |= parts[0][1] & parts[1][1]
        elif isinstance(node, (ast.While, ast.For)):
            head = [node.test] if isinstance(node, ast.While) else [node.iter]
            found |= set(reads(head)) - killed
            inside = set() if isinstance(node, ast.While) else set(bound([node.target]))
            found |= _exposed(node.body, killed | inside)[0]
        elif isinstance(node, ast.With):
            found |= set(reads(node.items)) - killed
            read, after = _exposed(node.body, killed | set(bound(node.items)))
            found, killed = found | read, after
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            found |= set(reads([node])) - killed
            killed |= set(bound([node])) if node.value is not None else set()
        else:
            found |= set(reads([node])) - killed
    return found, killed
