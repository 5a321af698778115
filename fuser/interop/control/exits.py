"""`break`, `continue` and `return` within loops and branches, written with flags, so that every statement list runs to its end.

In: the statements of a function. Out: statements of the same meaning in which loops and branches have one entry and one exit.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

PREFIX = "_fuser_"  # of the names that are added
RESULT, RETURNED = PREFIX + "result", PREFIX + "returned"
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


class NotStructured(Exception):
    """A function whose exits this cannot write with flags."""


def structured(statements: Sequence[ast.stmt]) -> list[ast.stmt]:
    """The statements of a function, without exits from within its loops and branches."""
    if not any("return" in exits(s) for s in statements if isinstance(s, (ast.If, ast.While, ast.For))):
        return _Flags(False).block(statements, None)
    flags = _Flags(True)
    first = [_assign(RESULT, ast.Constant(None)), _assign(RETURNED, ast.Constant(False))]
    return [*first, *flags.block(statements, None), ast.Return(ast.Name(RESULT, ast.Load()))]


def exits(node: ast.AST, in_loop: bool = False) -> set[str]:
    """How control may leave a statement other than by its end."""
    if isinstance(node, _FUNCTIONS):
        return set()
    if isinstance(node, ast.Return):
        return {"return"}
    if isinstance(node, (ast.Break, ast.Continue)):
        return set() if in_loop else {"break" if isinstance(node, ast.Break) else "continue"}
    if isinstance(node, (ast.While, ast.For)):
        inside: set[str] = set().union(*(exits(s, True) for s in node.body))
        return inside.union(*(exits(s, in_loop) for s in node.orelse))
    return set().union(*(exits(child, in_loop) for child in ast.iter_child_nodes(node)))


def always_exits(statements: Sequence[ast.stmt]) -> bool:
    """Whether control never comes to the end of these statements."""
    for s in statements:
        if isinstance(s, (ast.Return, ast.Break, ast.Continue, ast.Raise)):
            return True
        if isinstance(s, ast.If) and always_exits(s.body) and always_exits(s.orelse):
            return True
        if isinstance(s, ast.With) and always_exits(s.body):
            return True
    return False


def _assign(name: str, value: ast.expr) -> ast.stmt:
    return ast.Assign([ast.Name(name, ast.Store())], value)


def _unless(flag: str, statements: list[ast.stmt]) -> ast.stmt:
    return ast.If(ast.UnaryOp(ast.Not(), ast.Name(flag, ast.Load())), statements, [])


class _Flags:
    """Rewrites statement lists; `returns`: `return` becomes an assignment."""

    def __init__(self, returns: bool) -> None:
        self.returns = returns
        self._count = 0

    def block(self, statements: Sequence[ast.stmt], stop: str | None) -> list[ast.stmt]:
        """The statements; `stop` is the flag that a `break` here sets."""
        made: list[ast.stmt] = []
        for n, s in enumerate(statements):
            rest = statements[n + 1 :]
            if isinstance(s, ast.Return) and self.returns:
                return made + self._return(s, stop)
            if isinstance(s, ast.Break):
                return [*made, ast.copy_location(_assign(str(stop), ast.Constant(True)), s)]
            if isinstance(s, ast.Continue):
                return made
            if isinstance(s, (ast.While, ast.For)):
                loop, after = self._loop(s, rest, stop)
                made += loop
                if after is not None:
                    return made + after
                continue
            if isinstance(s, ast.If) and exits(s) & self._rewritten:
                branch, ends = self._branch(s, rest, stop)
                made.append(branch)
                if ends:
                    return made
                continue
            made.append(self._other(s, rest, stop))
        return made

    @property
    def _rewritten(self) -> set[str]:
        return {"break", "continue", "return"} if self.returns else {"break", "continue"}

    def _return(self, s: ast.Return, stop: str | None) -> list[ast.stmt]:
        made = [_assign(RESULT, s.value or ast.Constant(None)), _assign(RETURNED, ast.Constant(True))]
        made += [] if stop is None else [_assign(stop, ast.Constant(True))]
        return [ast.copy_location(each, s) for each in made]

    def _branch(self, s: ast.If, rest: Sequence[ast.stmt], stop: str | None) -> tuple[ast.stmt, bool]:
        """A branch that may exit, with what follows in the branch that does not; whether it holds all that follows."""
        first, second = always_exits(s.body), always_exits(s.orelse)
        if not (first or second) and rest:
            raise NotStructured
        body = [*s.body, *([] if first else rest)]
        orelse = [*s.orelse, *([] if second else rest)] if first or second else s.orelse
        made = ast.If(s.test, self.block(body, stop) or [ast.Pass()], self.block(orelse, stop))
        return ast.copy_location(made, s), True

    def _loop(
        self, s: ast.While | ast.For, rest: Sequence[ast.stmt], stop: str | None
    ) -> tuple[list[ast.stmt], list[ast.stmt] | None]:
        """A loop with its exits as flags, and, where a `return` leaves it, all that follows."""
        inside: set[str] = set().union(*(exits(child) for child in s.body))
        leaves = bool(inside & ({"break", "return"} if self.returns else {"break"}))
        self._count += 1
        flag = f"{PREFIX}stop{self._count}" if leaves else None
        body = self.block(s.body, flag) or [ast.Pass()]
        loop: ast.stmt
        if isinstance(s, ast.While):
            loop = ast.While(s.test, body, [])
        else:
            loop = ast.For(s.target, s.iter, body, [])
        loop.stop = flag  # type: ignore[union-attr,attr-defined]
        made: list[ast.stmt] = [] if flag is None else [_assign(flag, ast.Constant(False))]
        made.append(loop)
        after: Sequence[ast.stmt] = rest
        if s.orelse:
            completed = [_unless(flag, list(s.orelse))] if flag else list(s.orelse)
            after = [*completed, *rest]
        made = [ast.copy_location(each, s) for each in made]
        if self.returns and "return" in inside:
            outer = [] if stop is None else [_assign(stop, ast.Constant(True))]
            returned = ast.If(ast.Name(RETURNED, ast.Load()), outer or [ast.Pass()], self.block(after, stop))
            return made, [ast.copy_location(returned, s)]
        return (made, self.block(after, stop)) if s.orelse else (made, None)

    def _other(self, s: ast.stmt, rest: Sequence[ast.stmt], stop: str | None) -> ast.stmt:
        """A statement that is no exit; those within it."""
        left = exits(s) & self._rewritten
        if isinstance(s, ast.If):
            made: ast.stmt = ast.If(s.test, self.block(s.body, stop), self.block(s.orelse, stop))
        elif isinstance(s, ast.With):
            if left and rest and not always_exits(s.body):
                raise NotStructured
            made = ast.With(s.items, self.block(s.body, stop) or [ast.Pass()])
        elif left:
            raise NotStructured
        else:
            return s
        return ast.copy_location(made, s)
