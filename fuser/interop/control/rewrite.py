"""A function's code with its loops and branches as calls: `while test: body` is `control.while_loop(test, body)`.

In: a function of the user's. Out: a code object of the same variables, lines and file, whose free variables are those of the
function and `control`, and in which bodies are functions that share its variables; None where the source is not at hand or
holds what this cannot rewrite. Source counts only where it compiles to the very code that the function has.
"""

from __future__ import annotations

import ast
import copy
import dis
import functools
import inspect
import os
import textwrap
import types
from collections.abc import Sequence
from typing import Any

from fuser.interop.control.appended import with_variables
from fuser.interop.control.assignments import with_assignments
from fuser.interop.control.exits import PREFIX, NotStructured, structured
from fuser.interop.control.names import bound, exposed, reads

CONTROL = PREFIX + "control"
ITEM = PREFIX + "item"
_FACTORY = PREFIX + "factory"
_REFUSED = (ast.Global, ast.Nonlocal, ast.Delete, ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Await, ast.AsyncFor)
_REFUSED_NAMES = frozenset(("locals", "vars", "eval", "exec", "super", "__class__", "globals"))
SEQUENCES = ("range", "zip", "enumerate", "reversed")  # functions of Python's that loops go over
NUMBERS = ("float", "int", "bool", "max", "min", "abs")  # functions of Python's that ask for values


@functools.lru_cache(1024)
def rewritten(code: types.CodeType) -> types.CodeType | None:
    """The code with control flow as calls, or None."""
    tree = _source(code)
    if tree is None or not any(map(_asks, ast.walk(tree))):
        return None
    tree.body = with_assignments(tree.body)
    if any(isinstance(node, _REFUSED) for node in ast.walk(tree)):
        return None
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    if names & _REFUSED_NAMES or any(name.startswith(PREFIX) for name in names):
        return None
    try:
        tree.body = _with_calls(tree)
    except NotStructured:
        return None
    return _compiled(tree, code, (*code.co_freevars, CONTROL))


def _asks(node: ast.AST) -> bool:
    """Whether an expression or statement may need a value."""
    if isinstance(node, ast.Call):
        return _is_number(node) or _is_item(node) or _is_sum(node)
    return isinstance(node, (ast.While, ast.For, ast.If, ast.IfExp, ast.ListComp))


def _is_number(node: ast.Call) -> bool:
    """A call of a function of Python's that asks for values: `float(x)`."""
    plain = not node.keywords and not any(isinstance(arg, ast.Starred) for arg in node.args)
    return plain and isinstance(node.func, ast.Name) and node.func.id in NUMBERS


def _is_sum(node: ast.Call) -> bool:
    """`sum(f(x) for x in items)`."""
    plain = isinstance(node.func, ast.Name) and node.func.id == "sum" and len(node.args) == 1 and not node.keywords
    return plain and isinstance(node.args[0], (ast.GeneratorExp, ast.ListComp))


def _is_item(node: ast.Call) -> bool:
    """`x.item()`."""
    return isinstance(node.func, ast.Attribute) and node.func.attr == "item" and not node.args and not node.keywords


def _with_calls(function: ast.FunctionDef) -> list[ast.stmt]:
    """A function's statements with control flow as calls; NotStructured where they have exits that cannot be written so."""
    body = structured(function.body)
    with_variables(body)
    made = _Calls(body).block(body)
    parameters = {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}
    declared = [name for name in bound(body) if name not in parameters]
    if declared:  # variables that bodies alone bind belong to the function all the same
        none = ast.Assign([ast.Name(name, ast.Store()) for name in declared], ast.Constant(None))
        made.insert(0, ast.If(ast.Constant(0), [none], []))
    return made


def _source(code: types.CodeType) -> ast.FunctionDef | None:
    """The function's syntax tree, where its source still is what the code was compiled from. What is named like a device is not
    read, which would never end."""
    if os.path.exists(code.co_filename) and not os.path.isfile(code.co_filename):  # a notebook's cell is no file
        return None
    try:
        lines, first = inspect.getsourcelines(code)
        parsed = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError, ValueError):
        return None
    tree = parsed.body[0] if len(parsed.body) == 1 else None
    if not isinstance(tree, ast.FunctionDef) or tree.name != code.co_name:
        return None
    tree.decorator_list = []
    ast.increment_lineno(tree, max(first, 1) - 1)
    found = _compiled(copy.deepcopy(tree), code, code.co_freevars)
    return tree if found is not None and _same(found, code) else None


def _same(a: types.CodeType, b: types.CodeType) -> bool:
    return _operations(a) == _operations(b)


def _operations(code: types.CodeType) -> list[tuple[str, Any]]:
    """What code does. How a method is looked up depends on the module's imports, which are not compiled again."""
    found = []
    for each in dis.get_instructions(code):
        jumps = each.opcode in dis.hasjrel or each.opcode in dis.hasjabs
        if each.opname not in ("PUSH_NULL", "NOP", "EXTENDED_ARG"):
            value = None if jumps or isinstance(each.argval, types.CodeType) else repr(each.argval)
            name = "LOAD_ATTR" if each.opname == "LOAD_METHOD" else each.opname
            found.append((name, value if name.startswith(("LOAD", "STORE", "COMPARE", "BINARY")) else None))
    return found


def _compiled(tree: ast.FunctionDef, code: types.CodeType, free: Sequence[str]) -> types.CodeType | None:
    """The code of a function of the user's file, with these free variables."""
    arguments = ast.arguments([], [ast.arg(name) for name in free], None, [], [], None, [])
    factory = ast.copy_location(ast.FunctionDef(_FACTORY, arguments, [tree], []), tree)
    if hasattr(factory, "type_params"):
        factory.type_params = []
    module = ast.fix_missing_locations(ast.Module([factory], []))
    try:
        compiled = compile(module, code.co_filename, "exec", flags=code.co_flags & _FUTURE, dont_inherit=True)
    except (SyntaxError, ValueError):
        return None
    outer = next(c for c in compiled.co_consts if isinstance(c, types.CodeType) and c.co_name == _FACTORY)
    return next(c for c in outer.co_consts if isinstance(c, types.CodeType) and c.co_name == tree.name)


_FUTURE = 0x1000000  # from __future__ import annotations


class _Calls(ast.NodeTransformer):
    """Loops, branches and the tests of them as calls of `control`'s methods."""

    def __init__(self, function: list[ast.stmt]) -> None:
        self._all = reads(function)
        self._count = 0

    def block(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        """The statements, rewritten."""
        made: list[ast.stmt] = []
        for s in statements:
            found = self.visit(s)
            made += found if isinstance(found, list) else [found]
        return made

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        made = copy.deepcopy(node)
        try:
            made.body = _with_calls(made)
        except NotStructured:
            return node
        return made

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.stmt:
        return node

    def visit_If(self, node: ast.If) -> list[ast.stmt]:
        then = self._function("then", node.body, node)
        orelse = self._function("else", node.orelse, node)
        return [then, orelse, self._call("branch", node, self._test(node.test), _name(then), _name(orelse))]

    def visit_While(self, node: ast.While) -> list[ast.stmt]:
        carried = self._carried(node)
        test = self._function("test", [ast.copy_location(ast.Return(node.test), node)], node, is_test=True)
        body = self._function("body", node.body, node)
        return [test, body, self._call("while_loop", node, _name(test), _name(body), *carried)]

    def visit_For(self, node: ast.For) -> list[ast.stmt]:
        before = [
            ast.copy_location(
                ast.Assign(
                    [ast.Name(variable, ast.Store())], self._of_control("latest", node, ast.Name(name, ast.Load()))
                ),
                node,
            )
            for variable, name in getattr(node, "latest", ())
        ]
        carried = self._carried(node)
        target = ast.copy_location(ast.Assign([node.target], ast.Name(ITEM, ast.Load())), node)
        body = self._function("body", [target, *node.body], node, (ITEM,))
        pairs: list[ast.expr] = [
            ast.Tuple([ast.Constant(variable), _lambda(ast.Name(name, ast.Load()))], ast.Load())
            for variable, name in getattr(node, "appended", ())
        ]
        lists = ast.Tuple(pairs, ast.Load())
        return [*before, body, self._call("for_loop", node, self._items(node.iter), _name(body), *carried, lists)]

    def _items(self, node: ast.expr) -> ast.expr:
        """What a loop goes over, made where it can be read at positions that values decide."""
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id not in SEQUENCES:
            return self.visit(node)  # type: ignore[no-any-return]
        if node.keywords or any(isinstance(arg, ast.Starred) for arg in node.args):
            return self.visit(node)  # type: ignore[no-any-return]
        return self._of_control("items", node, node.func, *map(self._items, node.args))

    def visit_ListComp(self, node: ast.ListComp) -> ast.AST:
        """`[f(x) for x in items]` as a loop over the items."""
        made = self._listed("listed", node)
        return self.generic_visit(node) if made is None else made

    def _listed(self, method: str, node: Any, *before: ast.expr) -> ast.expr | None:
        """A comprehension's items by a method of `control`; None where it has more clauses, or targets within targets."""
        clause = node.generators[0]
        several = isinstance(clause.target, (ast.Tuple, ast.List))
        names = clause.target.elts if several else [clause.target]
        plain = len(node.generators) == 1 and not clause.ifs and not clause.is_async
        if not plain or not all(isinstance(name, ast.Name) for name in names):
            return None
        function: Any = _lambda(self.visit(node.elt))
        function.args.args = [ast.arg(name.id) for name in names]
        return self._of_control(method, node, *before, self._items(clause.iter), function, ast.Constant(several))

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        branches = [_lambda(self.visit(part)) for part in (node.body, node.orelse)]
        return self._of_control("choose", node, self._test(node.test), *branches)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if _is_sum(node) and (made := self._listed("summed", node.args[0], node.func)) is not None:
            return made
        self.generic_visit(node)
        if _is_number(node):
            return self._of_control("number", node, node.func, *node.args)
        if _is_item(node):
            return self._of_control("item", node, node.func.value)  # type: ignore[attr-defined]
        return node

    def _carried(self, node: ast.While | ast.For) -> list[ast.expr]:
        """The flag that ends a loop, and the variables whose values no other iteration and nothing after the loop reads."""
        stop = getattr(node, "stop", None)
        parts: list[ast.AST] = [node.target, *node.body] if isinstance(node, ast.For) else [node.test, *node.body]
        head = [node.test, *node.body] if isinstance(node, ast.While) else _with_target(node)
        inside, live = reads([node]), exposed(head)
        dead = [n for n in bound(parts) if n != stop and n not in live and self._all[n] == inside[n]]
        return [ast.Constant(stop), ast.Tuple([ast.Constant(name) for name in dead], ast.Load())]

    def _function(
        self,
        kind: str,
        statements: Sequence[ast.stmt],
        node: ast.AST,
        parameters: tuple[str, ...] = (),
        is_test: bool = False,
    ) -> ast.FunctionDef:
        self._count += 1
        names = [name for name in bound(statements) if name not in parameters]
        if is_test:
            value = statements[0].value  # type: ignore[attr-defined]
            body: list[ast.stmt] = [ast.copy_location(ast.Return(self._test(value)), node)]
        else:
            body = self.block(statements)
        shared: list[ast.stmt] = [ast.Nonlocal(names)] if names else []
        arguments = ast.arguments([], [ast.arg(name) for name in parameters], None, [], [], None, [])
        made = ast.FunctionDef(f"{PREFIX}{kind}{self._count}", arguments, [*shared, *body] or [ast.Pass()], [])
        if not made.body:
            made.body = [ast.Pass()]
        if hasattr(made, "type_params"):
            made.type_params = []
        return ast.copy_location(made, node)  # type: ignore[no-any-return]

    def _test(self, node: ast.expr) -> ast.expr:
        """An expression of which Python asks whether it is true."""
        if isinstance(node, ast.BoolOp):
            made = self._test(node.values[-1])
            for part in reversed(node.values[:-1]):
                name = "both" if isinstance(node.op, ast.And) else "either"
                made = self._of_control(name, node, self._test(part), _lambda(made))
            return made
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return self._of_control("negated", node, self._test(node.operand))
        if isinstance(node, ast.Compare) and len(node.ops) == 2 and _is_plain(node.comparators[0]):
            middle = node.comparators[0]
            first = ast.copy_location(ast.Compare(node.left, [node.ops[0]], [middle]), node)
            second = ast.copy_location(ast.Compare(copy.deepcopy(middle), [node.ops[1]], [node.comparators[1]]), node)
            return self._of_control("both", node, self.visit(first), _lambda(self.visit(second)))
        return self.visit(node)  # type: ignore[no-any-return]

    def _of_control(self, method: str, node: ast.AST, *arguments: ast.expr) -> ast.expr:
        function = ast.Attribute(ast.Name(CONTROL, ast.Load()), method, ast.Load())
        return ast.copy_location(ast.Call(function, list(arguments), []), node)  # type: ignore[return-value,type-var]

    def _call(self, method: str, node: ast.AST, *arguments: ast.expr) -> ast.stmt:
        return ast.copy_location(ast.Expr(self._of_control(method, node, *arguments)), node)  # type: ignore[return-value,type-var]


def _with_target(node: ast.For) -> list[ast.AST]:
    return [ast.Assign([node.target], ast.Constant(None)), *node.body]


def _is_plain(node: ast.expr) -> bool:
    """Whether an expression may be evaluated twice."""
    return isinstance(node, (ast.Name, ast.Constant))


def _name(function: ast.FunctionDef) -> ast.expr:
    return ast.Name(function.name, ast.Load())


def _lambda(body: ast.expr) -> ast.expr:
    return ast.copy_location(ast.Lambda(ast.arguments([], [], None, [], [], None, []), body), body)  # type: ignore[return-value,type-var]
