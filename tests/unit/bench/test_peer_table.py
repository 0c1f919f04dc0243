"""The table of figures of several groups: medians, ratios of rounds, and rounds that failed."""

from __future__ import annotations

import json

from bench.page import renewed
from bench.peer_table import Report, cell, rows_of, text_of

ABOUT = {
    "ledgermq": "1", "python": "3", "system": "Linux", "cores": 2, "load_average_before": 0.5,
    "rounds": 2, "seconds": 4.0, "heap_mb": 1024, "java": "4.9.3", "flush": "ASYNC_FLUSH",
}  # fmt: skip


def report() -> Report:
    """Two rounds of two groups: a kill row, and a start row that failed once."""
    made = Report(["LedgerMQ", "RocketMQ 4.9.3"], {"kill": "killed, s", "start": "start, s"}, ABOUT)
    for mine, theirs in ((1.0, 4.0), (3.0, 6.0)):
        made.add("kill", "LedgerMQ", {"s": mine})
        made.add("kill", "RocketMQ 4.9.3", {"s": theirs})
    made.add("start", "LedgerMQ", {"s": 1.0})
    made.add("start", "LedgerMQ", {"s": 1.0})
    made.add("start", "RocketMQ 4.9.3", {"failed": "no leader"})
    made.add("start", "RocketMQ 4.9.3", {"s": 8.0})
    return made


def test_row_gives_medians_with_spread_and_the_ratio_of_each_round() -> None:
    rows = {row[0]: row[1:] for row in rows_of(report(), "RocketMQ 4.9.3")}
    assert rows["killed, s"] == (
        "2.00 (1.00..3.00)",
        "5.00 (4.00..6.00)",
        "0.38 (0.25..0.50)",
    )


def test_failed_round_is_counted_and_its_ratio_left_out() -> None:
    rows = {row[0]: row[1:] for row in rows_of(report(), "RocketMQ 4.9.3")}
    assert rows["start, s"] == ("1.00 (1.00..1.00)", "8.00, 1 failed", "0.12")


def test_row_that_always_failed_says_so_and_the_text_gives_the_reason() -> None:
    made = report()
    made.results["start"]["RocketMQ 4.9.3"] = [{"failed": "no leader"}]
    assert cell(made, "start", "RocketMQ 4.9.3", "s", 2) == "failed"
    assert "RocketMQ 4.9.3, start, s: failed, no leader" in text_of(made)


def test_report_is_the_same_after_json() -> None:
    made = report()
    again = Report.of(json.loads(json.dumps(made.document())))
    assert text_of(again) == text_of(made)


def test_only_the_marked_part_of_a_page_is_renewed() -> None:
    page = "before <!-- peer: begin -->\nold\n<!-- peer: end --> after <!-- growth: begin -->"
    assert renewed(page, "peer", "new") == page.replace("old", "new")
