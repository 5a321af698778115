"""No program of bench.collectives has more collectives, or sends more bytes, than XLA's for the same devices."""

from __future__ import annotations

import pytest

from bench.collectives import compare, of_xla
from bench.sharded_programs import PROGRAMS


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_more_than_xla(name: str) -> None:
    own, theirs = compare(name)
    assert theirs.collectives and own.collectives <= theirs.collectives, (own, theirs)
    assert own.sent_bytes <= theirs.sent_bytes, (own, theirs)


def test_xlas_text_is_read() -> None:
    text = """
      %a = f32[8,4]{1,0} all-gather(%p), replica_groups={{0,1},{2,3}}, dimensions={0}
      %b = (f32[4]{0}, bf16[2]{0}) all-reduce(%q, %r), replica_groups=[1,8]<=[8], to_apply=%sum
      %c = f32[6]{0} collective-permute(%s), source_target_pairs={{0,1}}
    """
    found = of_xla(text)
    assert found.collectives == 3 and found.sent_bytes == 128 / 2 + 2 * 7 / 8 * 20 + 24
