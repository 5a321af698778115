"""The text form: one row for each thing, at every width, with nobody's text taken for markup."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuser.report.data import Refusal
from fuser.report.text import FIGURES, SHOWN, kernel_table, lines_table, refusal_table, stage_table


def columns(table) -> dict[str, list[str]]:
    return {str(column.header): [str(cell) for cell in column.cells] for column in table.columns}


def test_kernel_table_has_a_row_for_each_kernel(profile):
    found = columns(kernel_table(profile, 160))
    assert list(found) == ["#", "kernel", "kind", *(heading for heading in FIGURES if heading != "on chip")]
    assert found["kernel"] == [kernel.name for kernel in profile.kernels]
    assert found["median"] == ["2.50 ms", "10.0 ms", "5.00 ms", "2.00 ms", "20.0 ms"]
    assert (found["must move"][2], found["moved"][2]) == ("80.0 MB", "160 MB")
    assert found["of copy"] == ["80 %", "24 %", "80 %", "50 %", "5 %"]
    assert found["compile"] == ["cached", "31.0 ms", "31.0 ms", "31.0 ms", "–"]


@pytest.mark.parametrize("width", [80, 100, 120, 160])
def test_text_keeps_its_width_and_cuts_nothing(profile, width):
    text = profile.text(width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    assert all(kernel.name in text for kernel in profile.kernels)


def test_lines_stand_beside_their_kernel(profile):
    found = columns(lines_table(profile))
    assert found["operations"][1] == "dot_general, erf, mul ×2, add"
    assert found["your lines"][1].splitlines() == [
        "attention.py:11 (attend)  hidden = x @ weights",
        "activation.py:5 (gelu)  return 0.5 * x * (1 + erf(x / np.sqrt(2)))",
    ]
    assert found["your lines"][4] == ""


def test_every_refusal_has_its_reason(profile):
    found = columns(refusal_table(profile))
    assert list(zip(found["first"], found["second"], found["because"])) == [
        (refusal.first, refusal.second, refusal.reason) for refusal in profile.refused
    ]


def test_many_refusals_are_counted(profile):
    many = replace(profile, refused=tuple(Refusal(f"a{n}", f"b{n}", "far apart") for n in range(SHOWN + 7)))
    table = refusal_table(many)
    assert table.row_count == SHOWN
    assert str(table.caption) == "and 7 more, all in the JSON and HTML forms"


def test_stages_and_their_shares(profile):
    found = columns(stage_table(profile))
    assert found["stage"] == ["trace", "optimise", "partition", "emit", "load"]
    assert found["share"] == ["4 %", "3 %", "1 %", "2 %", "90 %"]


def test_colour_only_where_asked(profile):
    assert "\x1b[" not in profile.text()
    assert "\x1b[" in profile.text(colour=True)
    assert str(profile) == profile.text()


def test_brackets_are_not_markup(profile):
    odd = replace(profile, name="f[red]x[/red]", notes=("a[0] and [/]",))
    assert "f[red]x[/red]" in odd.text()
    assert "a[0] and [/]" in odd.text()


def test_a_bare_program_prints(bare):
    assert "0 kernels" in bare.text()
