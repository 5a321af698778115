"""Products of a few numbers, written out: a batch of small matrices, or the many rows of one matrix times a small one.

In: the form of a product whose extents, but for the number of items, are small. Out: C functions with these extents in them, in
which an item is a chain of multiplications and additions that the compiler keeps in registers; the items are shared out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fuser.backends.c import spell
from fuser.backends.c.builder import Builder
from fuser.backends.c.function import (
    ARGUMENTS,
    Code,
    Definition,
    Element,
    Function,
    Own,
    Part,
    Statement,
    Variable,
    code,
    joined,
)
from fuser.backends.c.library import on_demand
from fuser.legalise.strided_operands import Matrices, Run

MOST = 8  # rows, columns and steps of an item
MOST_LINED = 16  # where its rows are vectors
MOST_WORK = 216  # multiplications of an item, where its rows are no vectors
MOST_WRITTEN = 256  # of an item whose rows are written out; more rows than these are a loop
MOST_ROWS = 128  # of an item whose rows of up to half a vector are a loop
MOST_HELD = 48  # rows of the second matrix, most of which stay in registers
MOST_ALONE = 16  # rows, columns and steps of a product that is one item
FEWEST = 32  # rows of a matrix that are taken as items
FARTHEST = 4096  # elements between neighbours
TEAM = 1 << 18  # numbers read and written from which a second thread pays
CHUNK = 64  # items that are one task


@dataclass(frozen=True)
class Items:
    """What is repeated: `run` over items, each of M×K times K×N; `tall` says that items are rows of one matrix."""

    run: Run
    M: int
    N: int
    K: int
    ra: int
    ca: int
    rb: int
    cb: int
    tall: bool
    c: int = 0  # elements from an item's result to the next one's, and from row to row
    rc: int = 0

    @property
    def alone(self) -> bool:
        """Whether there is one item."""
        return self.run.extent == 1 and not self.tall

    @property
    def lined(self) -> bool:
        """Whether a row of the result is one vector; of one item it may be a part of one."""
        return self.alone or (self.cb == 1 and self.N in (4, 8, 16)) or self.narrow

    @property
    def narrow(self) -> bool:
        """Whether rows of the result are at most half a vector, and those of the second matrix stay in registers: gemm computes whole
        vectors of columns, most of which would be in vain."""
        return self.cb == 1 and not self.tall and 1 < self.N <= MOST_LINED // 2 and self.K <= MOST_HELD

    @property
    def looped(self) -> bool:
        """Whether rows are a loop."""
        return self.alone or self.M * self.K > MOST_WRITTEN

    @property
    def lanes(self) -> int:
        """Numbers of a vector that holds a row."""
        return max(4, 1 << (self.N - 1).bit_length())


def items_of(form: Matrices, operand: np.dtype, out: np.dtype, inside: bool, bare: bool) -> Items | None:
    """The product as items that are written out; None if gemm does better. One small product is written out `inside` a loop
    alone: its text is for one size, and elsewhere a new size is to compile nothing. `bare`: nothing follows it in its kernel."""
    if operand != out or on_demand.accumulator(out) != out:
        return None
    rows, columns = form.rows, form.columns
    if not form.batch and rows.extent < FEWEST:
        if not inside:
            return None
        one = Run((), 1, 0, 0, rows.extent * columns.extent)
        found = Items(one, rows.extent, columns.extent, form.depth, rows.a, form.ca, form.rb, columns.b, False)
        dense = (rows.c, columns.c) in ((columns.extent, 1), (0, 1)) or (columns.extent, rows.c) == (1, 1)
        return found if max(found.M, found.N, found.K) <= MOST_ALONE and dense else None
    if not form.batch:
        found = Items(rows, 1, columns.extent, form.depth, 0, form.ca, form.rb, columns.b, True, columns.extent)
        if columns.extent > MOST or form.depth > MOST:
            return None
    elif len(form.batch) == 1:
        [run] = form.batch
        strides = rows.a, form.ca, form.rb, columns.b
        size = rows.extent * columns.extent
        places = (run.c, rows.c) if bare else (size, columns.extent)  # what follows reads a block
        found = Items(run, rows.extent, columns.extent, form.depth, *strides, False, *places)
    else:
        return None
    if found.narrow:
        few = found.M <= MOST_ROWS
    else:
        most = MOST_LINED if found.lined else MOST
        few = max(found.M, found.N, found.K) <= most and (found.lined or found.M * found.N * found.K <= MOST_WORK)
    near = all(abs(s) <= FARTHEST for s in (found.run.a, found.run.b, found.ra, found.ca, found.rb, found.cb))
    dense = (found.narrow and columns.c == 1) or found.run.c == found.M * found.N
    return found if near and few and (dense or not bare) else None


POINTERS = ("a", "b", "c")


def items_functions(
    items: Items, dtype: np.dtype, epilogue: bool, one_row: bool = False
) -> tuple[Definition | Function, ...]:
    """Two functions: `name_items`, and `name_part`, which does items `first` to `last` and what is done with their results; with
    `one_row`, as if an item were one row."""
    kind = spell.local(dtype)
    matrices = [(f"{const}{kind} *restrict", Variable(v, kind, pointer=True)) for const, v in zip(_CONST, POINTERS)]
    row = f"{kind}_row{items.lanes}"
    bytes_of_row = f"vector_size({items.lanes * dtype.itemsize}), aligned({dtype.itemsize}), may_alias"
    types = (Definition(f"typedef {kind} {row} __attribute__(({bytes_of_row}));"),) if items.lined else ()
    count = Variable("count", "int64_t")
    inner = Function(
        Own("_items"),
        _one(items, matrices, row, dtype.itemsize) if items.alone else _items(items, matrices, row, count),
        (*matrices, ("int64_t", count)),
        attributes='__attribute__((optimize("fp-contract=fast"))) ',
        static=True,
    )
    ends = [("int64_t", Variable(end, "int64_t")) for end in ("first", "last")]
    part = Function(Own("_part"), _part(items, kind, epilogue, one_row), (*ARGUMENTS, *matrices, *ends), static=True)
    return (*types, inner, part)


_CONST = ("const ", "const ", "")


def _items(items: Items, matrices: Sequence[tuple[str, Variable]], row: str, count: Variable) -> tuple[Statement, ...]:
    """The loop over items."""
    builder = Builder()
    a, b, c = (variable for _, variable in matrices)
    if not items.lined:
        builder.pragma("omp simd")
    t = builder.count("t", "0", count)

    def at(array: Variable, step: int, row: int | Code, column: int = 0) -> Element:
        """An element of item `t`."""
        of_item = [code(f"{step} * {{}}", t)] if step else []
        return builder.at(array, *of_item, *([row + column] if isinstance(row, int) else [row, column]))

    def terms(m: int, factors: Sequence[Part]) -> Code:
        """The sum of products of a row of the first matrix with these."""
        of_row = [at(a, items.run.a, m * items.ra, p * items.ca) for p in range(items.K)]
        return _in_order(of_row, factors)

    if items.lined:
        rows = [_row(builder, items, row, f"b{p}", at(b, items.run.b, p * items.rb)) for p in range(items.K)]
    if items.looped and items.lined:
        turn = builder.count("m", "0", items.M)
        of_row = [at(a, items.run.a, code(f"{items.ra} * {{}}", turn), p * items.ca) for p in range(items.K)]
        _leave_row(builder, items, row, at(c, items.c, code(f"{items.rc} * {{}}", turn)), _in_order(of_row, rows))
        builder.close()
        builder.close()
        return tuple(builder.statements)
    for line in range(items.M):
        if items.lined:
            _leave_row(builder, items, row, at(c, items.c, line * items.rc), terms(line, rows))
            continue
        for n in range(items.N):
            column = [at(b, items.run.b, p * items.rb, n * items.cb) for p in range(items.K)]
            builder.set(at(c, items.c, line * items.rc, n), terms(line, column))
    builder.close()
    return tuple(builder.statements)


def _row(builder: Builder, items: Items, row: str, name: str, first: Element) -> Variable:
    """A row of the second matrix in a register; a part of a vector is gathered from its numbers."""
    if items.lanes == items.N:
        return builder.let(row, name, f"*(const {row} *)&{{}}", first)
    value = builder.var(row, name, "{{0}}")
    for n in range(items.N):
        builder.do(f"{{}}[{n}] = (&{{}})[{n}];", value, first)
    return value


def _leave_row(builder: Builder, items: Items, row: str, first: Element, value: Code) -> None:
    """Store a row of the result."""
    if items.lanes == items.N:
        builder.do(f"*({row} *)&{{}} = {{}};", first, value)
        return
    builder.open()
    result = builder.let(row, "result", value)
    for n in range(items.N):
        builder.do(f"(&{{}})[{n}] = {{}}[{n}];", first, result)
    builder.close()


def _in_order(left: Sequence[Part], right: Sequence[Part]) -> Code:
    """The sum of the products of these, contracted one after the other as BLAS does: without the 0 the first two could be either way."""
    return joined([code("0"), *[code("{} * {}", x, y) for x, y in zip(left, right)]], " + ")


def _one(items: Items, matrices: Sequence[tuple[str, Variable]], row: str, itemsize: int) -> tuple[Statement, ...]:
    """One item: the rows of the second matrix in registers, and of the result one after the other."""
    builder = Builder()
    a, b, c = (variable for _, variable in matrices)
    rows: list[Part] = []
    for p in range(items.K):
        value = builder.var(row, f"b{p}", "{{0}}")
        first = builder.at(b, p * items.rb)
        if items.cb == 1:
            builder.do(f"__builtin_memcpy(&{{}}, &{{}}, {items.N * itemsize});", value, first)
        else:
            for n in range(items.N):
                builder.do(f"{{}}[{n}] = {{}};", value, builder.at(b, p * items.rb + n * items.cb))
        rows.append(value)
    m = builder.count("m", "0", items.M)
    factors = [builder.at(a, code(f"{items.ra} * {{}}", m), p * items.ca) for p in range(items.K)]
    result = builder.let(row, "result", _in_order(factors, rows))
    builder.do(
        f"__builtin_memcpy(&{{}}, &{{}}, {items.N * itemsize});", builder.at(c, code(f"{items.N} * {{}}", m)), result
    )
    builder.close()
    return tuple(builder.statements)


def _part(items: Items, kind: str, epilogue: bool, one_row: bool) -> tuple[Statement, ...]:
    size, a, b, c = items.M * items.N, items.run.a, items.run.b, items.c
    of_items, of_epilogue = Own("_items"), Own("_epilogue")
    builder = Builder()
    if not epilogue:
        builder.do(f"{{}}(a + {a} * first, b + {b} * first, c + {c} * first, last - first);", of_items)
    elif items.tall:
        builder.buffer(kind, "block", CHUNK * items.N)
        builder.do(f"{{}}(a + {a} * first, b, block, last - first);", of_items)
        builder.do(f"{{}}(buffers, sizes, block, {items.N}, 0, first, last, 0, {items.N});", of_epilogue)
    else:
        builder.buffer(kind, "block", size)
        builder.count("t", "first", "last")
        builder.do(f"{{}}(a + {a} * t, b + {b} * t, block, 1);", of_items)
        rows, columns = (1, size) if one_row else (items.M, items.N)
        builder.do(f"{{}}(buffers, sizes, block, {items.N}, t, 0, {rows}, 0, {columns});", of_epilogue)
        builder.close()
    return tuple(builder.statements)


def share_out(builder: Builder, items: Items, given: Code) -> None:
    """Write the loops that share the items out; `given` are the first arguments of `name_part`, `count` is declared."""
    each = items.M * items.K + items.M * items.N + (0 if items.tall else items.K * items.N)
    end = f"t * {CHUNK} + {CHUNK} < count ? t * {CHUNK} + {CHUNK} : count"
    tasks = builder.let("int64_t", "tasks", f"({{count}} + {CHUNK - 1}) / {CHUNK}")
    for head in (f"if (count > {TEAM // each})", "else"):
        builder.open(head)
        if head != "else":
            builder.pragma("omp parallel for schedule(static)")
        builder.count("t", "0", tasks)
        builder.do(f"{{}}({{}}, t * {CHUNK}, {end});", Own("_part"), given)
        builder.close(flat=True)
        builder.close()
