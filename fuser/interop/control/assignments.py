"""Assignments within the tests of loops and branches, and within other statements, as statements before them.

`while (error := f(x)) > limit: body` is `while True: error = f(x); if not error > limit: break; body`. Only what is evaluated first is
moved; other assignments stay where they are.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

_EXPRESSION = {ast.Expr: "value", ast.Assign: "value", ast.AugAssign: "value", ast.Return: "value", ast.If: "test"}


def with_assignments(statements: Sequence[ast.stmt]) -> list[ast.stmt]:
    """The statements with such assignments as statements of their own."""
    return [new for statement in statements for new in _statement(statement)]


def _statement(statement: ast.stmt) -> list[ast.stmt]:
    for name in ("body", "orelse", "finalbody"):
        if isinstance(inner := getattr(statement, name, None), list) and not isinstance(statement, ast.ClassDef):
            setattr(statement, name, with_assignments(inner))
    if isinstance(statement, ast.Try):
        for handler in statement.handlers:
            handler.body = with_assignments(handler.body)
    if isinstance(statement, ast.While):
        return [_endless(statement)]
    field = _EXPRESSION.get(type(statement))
    if field is None or (value := getattr(statement, field)) is None:
        return [statement]
    if isinstance(statement, ast.AugAssign):
        return [statement]  # the target is read first
    made, rest = _taken(value)
    setattr(statement, field, rest)
    return [*made, statement]


def _endless(loop: ast.While) -> ast.While:
    made, test = _taken(loop.test)
    if not made or loop.orelse:
        return loop
    ends = ast.If(ast.UnaryOp(ast.Not(), test), [ast.Break()], [])
    new = ast.While(ast.Constant(True), [*made, ends, *loop.body], [])
    for node in (ends, new):
        ast.fix_missing_locations(ast.copy_location(node, loop.test))
    return new


def _taken(value: ast.expr) -> tuple[list[ast.stmt], ast.expr]:
    """The assignments that an expression begins with, and what is left of it."""
    if isinstance(value, ast.NamedExpr):
        made, rest = _taken(value.value)
        assigned = ast.copy_location(ast.Assign([value.target], rest), value)
        return [*made, assigned], ast.copy_location(ast.Name(value.target.id, ast.Load()), value)
    for field in ("left", "operand", "value"):
        if isinstance(part := getattr(value, field, None), ast.expr) and not isinstance(value, _LATER):
            made, rest = _taken(part)
            setattr(value, field, rest)
            return made, value
    if isinstance(value, ast.BoolOp):
        made, value.values[0] = _taken(value.values[0])
        return made, value
    if isinstance(value, ast.Call):
        if not isinstance(value.func, ast.Name) and not _is_path(value.func):
            made, value.func = _taken(value.func)
            return made, value
        if value.args:
            made, value.args[0] = _taken(value.args[0])
            return made, value
    return [], value


_LATER = (ast.Yield, ast.YieldFrom, ast.Await, ast.Starred, ast.FormattedValue)


def _is_path(node: ast.expr) -> bool:
    """`np.linalg.norm`."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)
