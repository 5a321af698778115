"""Products of a few numbers, written out: a batch of small matrices, or the many rows of one matrix times a small one.

In: the form of a product whose extents, but for the number of items, are small. Out: C text with these extents in it, in
which an item is a chain of multiplications and additions that the compiler keeps in registers; the items are shared out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fuser.backends.c import library, spell
from fuser.partition.products import Matrices, Run

MOST = 8  # rows, columns and steps of an item
MOST_LINED = 16  # where its rows are vectors
MOST_WORK = 216  # multiplications of an item, where its rows are no vectors
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

    @property
    def lined(self) -> bool:
        """Whether a row of the result is one vector."""
        return self.cb == 1 and self.N in (4, 8, 16)


def items_of(form: Matrices, operand: np.dtype, out: np.dtype) -> Items | None:
    """The product as items that are written out; None if gemm does better."""
    if operand != out or library.accumulator(out) != out:
        return None
    rows, columns = form.rows, form.columns
    if not form.batch:
        found = Items(rows, 1, columns.extent, form.depth, 0, form.ca, form.rb, columns.b, True)
        if rows.extent < FEWEST or columns.extent > MOST or form.depth > MOST:
            return None
    elif len(form.batch) == 1:
        found = Items(
            form.batch[0], rows.extent, columns.extent, form.depth, rows.a, form.ca, form.rb, columns.b, False
        )
    else:
        return None
    near = all(abs(s) <= FARTHEST for s in (found.run.a, found.run.b, found.ra, found.ca, found.rb, found.cb))
    most = MOST_LINED if found.lined else MOST
    few = max(found.M, found.N, found.K) <= most and (found.lined or found.M * found.N * found.K <= MOST_WORK)
    dense = found.run.c == found.M * found.N
    return found if near and few and dense else None


def items_text(name: str, items: Items, dtype: np.dtype, tail: bool) -> str:
    """Two functions: `name_items`, and `name_part`, which does items `first` to `last` and what is done with their results."""
    kind = spell.local(dtype)
    pointers = f"const {kind} *restrict a, const {kind} *restrict b, {kind} *restrict c"
    lines = [
        f"typedef {kind} {name}_row __attribute__((vector_size({items.N * dtype.itemsize}), aligned({dtype.itemsize}), may_alias));"
        if items.lined
        else "",
        f'static __attribute__((optimize("fp-contract=fast"))) void {name}_items({pointers}, int64_t count) {{',
        "" if items.lined else "  #pragma omp simd",
        "  for (int64_t t = 0; t < count; ++t) {",
        *(f"    {line}" for line in (_lined(name, items) if items.lined else _scalars(items, kind))),
        "  }",
        "}",
        "",
        f"static void {name}_part(void **buffers, const int64_t *sizes, {pointers}, int64_t first, int64_t last) {{",
        *_part(name, items, kind, tail),
        "}",
    ]
    return "\n".join(line for n, line in enumerate(lines) if line or n == 7)


def _at(name: str, step: int, row: int, column: int = 0) -> str:
    """An element of item `t`."""
    place = row + column
    return f"{name}[{step} * t + {place}]" if step else f"{name}[{place}]"


def _lined(name: str, items: Items) -> list[str]:
    lines = [
        f"const {name}_row b{p} = *(const {name}_row *)&{_at('b', items.run.b, p * items.rb)};" for p in range(items.K)
    ]
    for m in range(items.M):
        terms = [f"{_at('a', items.run.a, m * items.ra, p * items.ca)} * b{p}" for p in range(items.K)]
        lines.append(f"*({name}_row *)&{_at('c', items.M * items.N, m * items.N)} = {' + '.join(terms)};")
    return lines


def _scalars(items: Items, kind: str) -> list[str]:
    lines = []
    for m in range(items.M):
        for n in range(items.N):
            terms = [
                f"{_at('a', items.run.a, m * items.ra, p * items.ca)} * {_at('b', items.run.b, p * items.rb, n * items.cb)}"
                for p in range(items.K)
            ]
            lines.append(f"{_at('c', items.M * items.N, m * items.N, n)} = {' + '.join(terms)};")
    return lines


def _part(name: str, items: Items, kind: str, tail: bool) -> list[str]:
    size, a, b = items.M * items.N, items.run.a, items.run.b
    if not tail:
        return [f"  {name}_items(a + {a} * first, b + {b} * first, c + {size} * first, last - first);"]
    if items.tall:
        return [
            f"  {kind} block[{CHUNK * items.N}] __attribute__((aligned(64)));",
            f"  {name}_items(a + {a} * first, b, block, last - first);",
            f"  {name}_tail(buffers, sizes, block, {items.N}, 0, first, last, 0, {items.N});",
        ]
    return [
        f"  {kind} block[{size}] __attribute__((aligned(64)));",
        "  for (int64_t t = first; t < last; ++t) {",
        f"    {name}_items(a + {a} * t, b + {b} * t, block, 1);",
        f"    {name}_tail(buffers, sizes, block, {items.N}, t, 0, {items.M}, 0, {items.N});",
        "  }",
    ]


def items_calls(name: str, items: Items, given: str) -> list[str]:
    """The lines that share the items out; `given` are the first arguments of `name_part`, `count` is declared."""
    each = items.M * items.K + items.M * items.N + (0 if items.tall else items.K * items.N)
    call = f"{name}_part({given}, t * {CHUNK}, t * {CHUNK} + {CHUNK} < count ? t * {CHUNK} + {CHUNK} : count);"
    return [
        f"  const int64_t tasks = (count + {CHUNK - 1}) / {CHUNK};",
        f"  if (count > {TEAM // each}) {{",
        "    #pragma omp parallel for schedule(static)",
        f"    for (int64_t t = 0; t < tasks; ++t) {call}",
        "  } else {",
        f"    for (int64_t t = 0; t < tasks; ++t) {call}",
        "  }",
    ]
