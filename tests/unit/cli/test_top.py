"""What `ledgermq top` shows first, and how it fits a terminal."""

from __future__ import annotations

import pytest

from ledgermq.cli.live import folded
from ledgermq.cli.table import print_table
from ledgermq.cli.top import alarms_of, headlines
from tests.unit.cli.brokers import member

NOW = "2026-11-27T01:09:31.660+00:00"


def test_what_is_wrong_stands_first_and_whole() -> None:
    """A terminal of 80 columns ends before the end of a table."""
    alarm = "the disk refused a write 3 s ago, and this member takes part in nothing any more"
    brokers = [member(1, ledgerAlarm=alarm), member(2, failure="no answer within 5 s")]
    lines = headlines(NOW, brokers, [])
    assert lines[:-1] == [
        "NO LEADER: g",
        f"g 1 (10.0.0.1:10911): {alarm}",
        "g 2 (10.0.0.2:10911): no answer within 5 s",
    ]
    assert lines[-1].startswith(NOW)
    shown = folded(lines, 40)
    assert max(map(len, shown)) <= 40
    assert "".join(shown).replace(" ", "") == "".join(lines).replace(" ", "")


def test_cluster_that_is_well_is_one_line() -> None:
    (line,) = headlines(NOW, [member(0), member(1), member(2)], [])
    assert line == f"{NOW}  3 brokers, in 0/s, out 0/s, 0 messages behind"


@pytest.mark.parametrize("digits", ["9" * 5000, "9" * 20])
def test_figure_beyond_64_bits_is_none(digits: str) -> None:
    lost = f"n1 3 entries and 5 bytes behind, heard {digits} ms ago"
    one = member(0, commitLogMaxOffset=digits, putTps="inf nan 1", ledgerFollowers=lost)
    assert one.number("commitLogMaxOffset") is None and one.rate("putTps") is None
    assert alarms_of(one) == []


def test_one_long_name_does_not_make_all_lines_long(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [("n", number) for number in range(1000)]
    print_table(("name", "number"), [*rows, ("x" * 100_000, 7)], False)
    shown = capsys.readouterr().out
    assert len(shown) < 500_000 and "x" * 100_000 in shown


@pytest.mark.parametrize(
    ("columns", "wanted"),
    [
        (9, ["one two", "", "a longer", "  line"]),
        (80, ["one two", "", "a longer line"]),
        (2, ["on", "e", "tw", "o", "", "a", "lo", "ng", "er", "li", "ne"]),
        (0, ["one two", "", "a longer line"]),
    ],
)
def test_lines_go_on_where_the_terminal_ends(columns: int, wanted: list[str]) -> None:
    assert folded(["one two", "", "a longer line"], columns) == wanted
