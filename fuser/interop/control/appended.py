"""Lists that a loop appends to, one item an iteration: `found.append(x)` and comprehensions. Of a list the loop may read the last
item, `found[-1]`, which is a variable of the loop, and nothing else.

An iteration that is run as it is written appends. Those that are staged write rows of arrays, one for each leaf of the items,
and the list gets the rows when the loop has ended.
"""

from __future__ import annotations

import ast
import types
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from fuser.interop.control.carry import owners
from fuser.interop.control.exits import PREFIX
from fuser.interop.control.names import SCOPES, bound, exposed, reads
from fuser.interop.control.state import UNBOUND, contents
from fuser.interop.control.values import Differs, Kind, kind_of, leaves_of, lifted
from fuser.interop.numpy.context import Context, untraceable
from fuser.interop.numpy.layout import order_of
from fuser.interop.numpy.rows import packed, rows
from fuser.interop.numpy.traced import EITHER, TracedArray
from fuser.lax.values import literal
from fuser.ops import movement as V
from fuser.ops.dynamic import dynamic_update_slice_p
from fuser.trace import tree
from fuser.trace.core import bind

SHARED = "writing to an array that a list holds parts of, which a loop on values made, cannot be traced|append copies"


def with_variables(statements: Sequence[ast.stmt]) -> None:
    """Have loops that append to a list assign to a variable there; `appended` of such a loop has (variable, list) for each, and
    `latest` those whose last item it may read before it appends.
    """
    count = 0
    for loop in [node for s in statements for node in ast.walk(s) if isinstance(node, ast.For)]:
        inside, others = reads([loop]), set(bound([loop.target, *loop.body]))
        latest = _read_at_the_end(loop)
        made, pairs = [], []
        for statement in loop.body:
            name = _appended_to(statement)
            alone = name is not None and inside[name] == 1 + latest[name] and name not in others
            if not alone or getattr(loop, "stop", None) is not None:
                made.append(statement)
                continue
            count += 1
            variable = f"{PREFIX}appended{count}"
            value = statement.value.args[0]  # type: ignore[attr-defined]
            made.append(ast.copy_location(ast.Assign([ast.Name(variable, ast.Store())], value), statement))
            pairs.append((variable, name))
        loop.body = made
        loop.appended = pairs  # type: ignore[attr-defined]
        _with_latest(loop, {name: variable for variable, name in pairs if latest[str(name)]})


def _with_latest(loop: ast.For, variables: dict[str | None, str]) -> None:
    """Have a loop read variables for the last items of lists."""

    class Reads(ast.NodeTransformer):
        def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
            variable = variables.get(_latest_of(node))
            return self.generic_visit(node) if variable is None else ast.copy_location(_load(variable), node)

    loop.body = [Reads().visit(statement) for statement in loop.body]
    early = exposed(loop.body)
    loop.latest = [(variable, name) for name, variable in variables.items() if variable in early]  # type: ignore[attr-defined]


def _load(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _read_at_the_end(loop: ast.For) -> Counter[str | None]:
    """How often a loop's body reads the last item of each list."""
    inner = [node for s in loop.body for node in ast.walk(s) if isinstance(node, SCOPES)]
    elsewhere = {
        id(node) for scope in inner for node in ast.walk(scope)
    }  # in functions that may be called at other times
    nodes = [node for s in loop.body for node in ast.walk(s) if id(node) not in elsewhere]
    return Counter(_latest_of(node) for node in nodes if isinstance(node, ast.Subscript))


def _latest_of(node: ast.Subscript) -> str | None:
    """The variable in `variable[-1]`."""
    index = node.slice
    last = isinstance(index, ast.UnaryOp) and isinstance(index.op, ast.USub) and isinstance(index.operand, ast.Constant)
    plain = last and index.operand.value == 1 and type(index.operand.value) is int  # type: ignore[attr-defined]
    read = plain and isinstance(node.ctx, ast.Load) and isinstance(node.value, ast.Name)
    return node.value.id if read else None  # type: ignore[attr-defined]


def latest(found: Any) -> Any:
    """The last item of a list that a loop appends to. UnsupportedError where it has none, or is no list."""
    if type(found) is not list or not found:
        raise untraceable(
            "a loop that reads the last item of what it appends to needs a list that has one", "begin with an item"
        )
    return found[-1]


def _appended_to(statement: ast.stmt) -> str | None:
    """The variable in `variable.append(value)`."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    method = call.func if isinstance(call, ast.Call) and len(call.args) == 1 and not call.keywords else None
    plain = isinstance(method, ast.Attribute) and method.attr == "append" and isinstance(method.value, ast.Name)
    if not plain or isinstance(call.args[0], ast.Starred):  # type: ignore[union-attr]
        return None
    return method.value.id  # type: ignore[union-attr,no-any-return]


class Appended:
    """One list, and the cell of the variable that holds the next item after each iteration."""

    def __init__(self, cell: types.CellType, found: list[Any]) -> None:
        self.cell, self.found = cell, found
        self._kinds: list[Kind] = []
        self._structure: Any = None
        self._whole = False  # whether items are lists of rows themselves, each stored as one array
        self._weak: type | None = None  # of the numbers in such lists
        self._arrays: list[TracedArray] | None = None  # one for each leaf, once it is known what they hold
        self.owners: list[TracedArray] = []  # of the arrays in the item of the last iteration

    @property
    def arrays(self) -> list[TracedArray]:
        """The arrays that rows are written to."""
        return self._arrays or []

    def append(self) -> None:
        """Append the item of an iteration that was run as it is written."""
        self.found.append(self.cell.cell_contents)

    def begin(self) -> None:
        """Begin to stage: nothing is known of the items."""
        self._arrays = None

    def store(self, context: Context, row: Any) -> None:
        """Write the item of a staged iteration to a row, or note of which kind it is. Differs where no array can hold such items."""
        value = contents(self.cell)
        if value is UNBOUND:
            raise Differs("a list")
        leaves, structure, whole = self._leaves(value)
        is_array = [type(leaf) is TracedArray and not leaf.scalar for leaf in leaves]
        self.owners = [leaf._owner for leaf, array in zip(leaves, is_array) if array]
        if any(order_of(leaf) is not None for leaf, array in zip(leaves, is_array) if array):
            raise Differs("a list")  # rows have the order of C
        copies = [TracedArray(context, leaf.value) if array else leaf for leaf, array in zip(leaves, is_array)]
        kinds = [kind_of(leaf, "an item of a list") for leaf in copies]
        if not kinds or any(kind.weak in EITHER for kind in kinds):
            raise Differs("a list")  # of items without leaves a row tells nothing
        if self._arrays is None:
            self._kinds, self._structure, self._whole = kinds, structure, whole
            return
        if (kinds, structure, whole) != (self._kinds, self._structure, self._whole):
            raise Differs("a list")
        for array, leaf, kind in zip(self._arrays, copies, kinds):
            _write(context, array, row, leaf, kind)

    def _leaves(self, value: Any) -> tuple[list[Any], Any, bool]:
        array = packed(value)
        if array is not None:
            self._weak = getattr(value[-1], "weak", None)
            return [array], None, True
        leaves, structure = leaves_of(value, "an item of a list")
        return leaves, structure, False

    def made(self, context: Context, count: int) -> bool:
        """Make the arrays for so many rows, once it is known what they hold; whether this did."""
        if self._arrays is not None:
            return False
        nothing = [np.broadcast_to(np.zeros((), kind.dtype), (count, *kind.shape)) for kind in self._kinds]
        self._arrays = [TracedArray(context, value) for value in nothing]
        return True

    def finish(self, context: Context, shared: bool, old: Sequence[TracedArray]) -> None:
        """Append what the staged iterations made; `shared` where variables may have the same memory, and `old` is memory from before
        the loop that items of lists are parts of."""
        assert self._arrays is not None
        if any(owner is mine for owner in old for mine in self.owners):
            context.parts += self._arrays
        guard = SHARED if shared else ""
        columns = [
            rows(array, kind.scalar, kind.weak, guard) for array, kind in zip(self._arrays, self._kinds, strict=True)
        ]
        self.found += map(self._item, zip(*columns))

    def _item(self, leaves: tuple[TracedArray, ...]) -> Any:
        if self._whole:
            (array,) = leaves
            return rows(array, array.ndim == 1, self._weak, array._guard)
        return tree.unflatten(self._structure, list(leaves))


def shared_memory(
    appended: Sequence[Appended],
    heads: dict[str, Any],
    after: dict[str, Any],
    written: Sequence[TracedArray],
    level: int,
) -> tuple[set[str], list[TracedArray]]:
    """Of arrays that an iteration appends: the variables that have their memory afterwards, and those that are older than the loop.

    `heads` are what the loop carries as an iteration begins, `after` as it ends; `written` was written to. UnsupportedError where
    writes of one iteration would be seen in the items of another.
    """
    owners_of = [owner for each in appended for owner in each.owners]
    appended_ids = {id(owner) for owner in owners_of}
    mine = {id(owner) for name, value in heads.items() for owner in owners(value, name)}
    names = {name for name in heads if any(id(owner) in appended_ids for owner in owners(after[name], name))}
    old = [owner for owner in owners_of if owner._level < level]
    lasting = names or old or len(appended_ids) < len(owners_of) or appended_ids & mine
    if lasting and any(id(array) in appended_ids | mine for array in written):
        raise untraceable("a list of arrays that a loop on values writes to cannot be traced", "append copies")
    return names, old


def _write(context: Context, array: TracedArray, row: Any, leaf: Any, kind: Kind) -> None:
    value = bind(V.reshape_p, lifted(context, leaf, kind), new_sizes=(1, *kind.shape), dimensions=None)
    starts = (row, *(literal(0, row.dtype) for _ in kind.shape))
    array.write(bind(dynamic_update_slice_p, array.lifted(), value, *starts))
