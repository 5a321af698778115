"""Sharding rules in the notation of einsum: which dimensions of a call's operands and results may be split alike.

"... i j, j k -> ... i k" names the factor of each dimension. `...` stands for any number of leading dimensions, `(i j)` for one dimension of
two factors, the first of which is the major one. In: the rule's text. Out: for each array the factor of each dimension.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fuser.ir.source import current_source

BATCHING = "…"
_TOKENS = re.compile(r"\s*(?:(…\d*)|([^\W\d_]\w*)|([(),]))")
Dims = tuple[tuple[int, int], ...]


class CompoundFactor(tuple[str, ...]):
    """One dimension that is several factors, the major one first. ValueError for fewer than two."""

    def __new__(cls, *factors: str) -> CompoundFactor:
        if len(factors) < 2:
            raise ValueError(
                f"A compound factor should contain at least two factors, got {factors} ({current_source().short})"
            )
        return super().__new__(cls, factors)


class ArrayMapping(tuple[Any, ...]):
    """The factors of one array's dimensions: names, CompoundFactors, and BATCHING in front for any number of leading ones."""

    def __new__(cls, *dims: str | CompoundFactor) -> ArrayMapping:
        if any(isinstance(d, str) and d.startswith(BATCHING) for d in dims[1:]):
            raise ValueError(
                f"Ellipsis can only be used at the beginning of a dimension, got {dims} ({current_source().short})"
            )
        return super().__new__(cls, dims)

    def of_rank(self, rank: int) -> list[str | CompoundFactor]:
        """One factor for each of so many dimensions. ValueError where they are more or fewer than the mapping's."""
        if self and isinstance(self[0], str) and self[0].startswith(BATCHING):
            leading = rank - len(self) + 1
            if leading >= 0:
                group = self[0].removeprefix(BATCHING) or "0"
                return [*(f"{BATCHING}{group}:{n}" for n in range(leading)), *self[1:]]
        elif len(self) == rank:
            return list(self)
        raise ValueError(
            f"a sharding rule names {len(self)} dimensions, {tuple(self)}, of an array of rank {rank} ({current_source().short}); name each, or "
            "put ... in front for leading ones"
        )


class SdyShardingRule:
    """How the dimensions of operands and results go together.

    A factor is split alike wherever it stands. `reduction_factors` are those along which the function of one device has a share of the results, which it
    adds itself; `need_replication_factors` and `permutation_factors` are not split. `factor_sizes` say how long those are that only stand in
    CompoundFactors. ValueError for factors that do not occur, and for sizes that are missing.
    """

    def __init__(
        self,
        operand_mappings: Sequence[ArrayMapping],
        result_mappings: Sequence[ArrayMapping],
        *,
        reduction_factors: tuple[str, ...] = (),
        need_replication_factors: tuple[str, ...] = (),
        permutation_factors: tuple[str, ...] = (),
        **factor_sizes: int,
    ) -> None:
        self.operand_mappings, self.result_mappings = tuple(operand_mappings), tuple(result_mappings)
        self.factor_sizes = factor_sizes
        self.reduction_factors = reduction_factors
        self.need_replication_factors, self.permutation_factors = need_replication_factors, permutation_factors
        entries = [d for mapping in (*self.operand_mappings, *self.result_mappings) for d in mapping]
        alone = {d for d in entries if isinstance(d, str)}
        compound = {f for d in entries if not isinstance(d, str) for f in d}
        for factor in (*reduction_factors, *need_replication_factors, *permutation_factors, *factor_sizes):
            if factor not in alone | compound:
                raise ValueError(f"Factor {factor} is not used in the rule ({current_source().short})")
        for factor in sorted(compound - alone - set(factor_sizes)):
            raise ValueError(
                f"Factor {factor} is only used in compound factors; must specify its size ({current_source().short})"
            )

    def __str__(self) -> str:
        return f"SdyShardingRule({self.operand_mappings}, {self.result_mappings}, {self.factor_sizes})"

    def together(
        self, operands: Sequence[Sequence[int]], results: Sequence[Sequence[int]], parts: int
    ) -> Iterator[tuple[Dims, Dims]]:
        """Which dimensions of operands and of results of these shapes are split alike into so many parts, factor by factor."""
        places: dict[str, tuple[list[Any], list[Any]]] = defaultdict(lambda: ([], []))
        extents: dict[str, int] = dict(self.factor_sizes)
        fixed = {*self.need_replication_factors, *self.permutation_factors}
        for side, (mappings, shapes) in enumerate(((self.operand_mappings, operands), (self.result_mappings, results))):
            if len(mappings) != len(shapes):
                raise ValueError(
                    f"a sharding rule has {len(mappings)} {('operands', 'results')[side]} and the call {len(shapes)} ({current_source().short})"
                )
            for number, (mapping, shape) in enumerate(zip(mappings, shapes)):
                for dim, factor in enumerate(mapping.of_rank(len(shape))):
                    if isinstance(factor, str):
                        extents.setdefault(factor, shape[dim])
                    major = factor if isinstance(factor, str) else factor[0]
                    places[major][side].append((number, dim))
        for factor, (before, after) in places.items():
            if factor not in fixed and extents[factor] % parts == 0:
                yield tuple(before), tuple(after)


def sharding_rule(text: str, factors: Mapping[str, tuple[str, ...]], sizes: Mapping[str, int]) -> SdyShardingRule:
    """The rule that "operands -> results" says. ValueError where it cannot be read."""
    sides = text.replace("...", BATCHING).split("->")
    if len(sides) != 2:
        raise ValueError(f"There is no -> in rule: '{text}' ({current_source().short}); write operands -> results")
    operands, results = (_mappings(side, text) for side in sides)
    return SdyShardingRule(operands, results, **factors, **sizes)  # type: ignore[arg-type]


def _mappings(side: str, text: str) -> list[ArrayMapping]:
    """The arrays of one side."""
    found: list[list[Any]] = [[]]
    inner: list[str] | None = None
    place, side = 0, side.rstrip()
    while place < len(side):
        token = _TOKENS.match(side, place)
        if token is None:
            raise ValueError(
                f"Unknown character '{side[place:].lstrip()[0]}' in rule: '{text}' ({current_source().short})"
            )
        place = token.end()
        batching, factor, sign = token.groups()
        if batching or factor:
            (found[-1] if inner is None else inner).append(batching or factor)
        elif sign == "(" and inner is None:
            inner = []
        elif sign == ")" and inner is not None:
            found[-1].append(CompoundFactor(*inner))
            inner = None
        elif sign == "," and inner is None:
            found.append([])
        else:
            raise ValueError(f"Brackets are not balanced in rule: '{text}' ({current_source().short})")
    if inner is not None:
        raise ValueError(f"Brackets are not balanced in rule: '{text}' ({current_source().short})")
    return [ArrayMapping(*dims) for dims in found]
