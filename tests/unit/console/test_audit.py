"""The audit log of a console: nobody drives out what others did."""

from pathlib import Path

import pytest

from ledgermq.console import audit as module
from ledgermq.console.audit import Audit, Outcome
from ledgermq.console.shapes.brokers import AuditEntry


def entry(
    number: int, account: str, action: str = "view_message", outcome: Outcome = "done"
) -> AuditEntry:
    return AuditEntry(
        at_ms=number, account=account, address="10.0.0.1", cluster="c", action=action,
        object="", outcome=outcome, detail="", action_id="",
    )  # fmt: skip


def test_who_has_most_loses_its_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ENTRIES_MAX", 100)
    audit = Audit(None)
    for number in range(40):
        audit.add(entry(number, "admin", "delete_topic"))
    for number in range(40, 1000):
        audit.add(entry(number, "app"))
    found = list(audit.newest_first())
    assert [one.at_ms for one in found] == [*range(999, 939, -1), *range(39, -1, -1)]


def test_names_that_were_tried_drive_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever signs in chooses what account a refusal names."""
    monkeypatch.setattr(module, "_ENTRIES_MAX", 100)
    audit = Audit(None)
    for number in range(40):
        audit.add(entry(number, "admin", "delete_topic"))
    for number in range(40, 1000):
        audit.add(entry(number, f"n{number}", "sign_in", "refused"))
    assert sum(one.account == "admin" for one in audit.newest_first()) == 40


def test_the_file_has_so_many_lines_a_minute_of_what_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    audit = Audit(path)
    for number in range(2000):
        audit.add(entry(number, "app"))
        audit.add(entry(number, "app", "delete_topic", "failed"))
        audit.add(entry(number, "app", "delete_topic"))
    audit.add(entry(2000, "other"))
    audit.add(entry(60_000, "app"))
    lines = path.read_text().splitlines()
    assert len(lines) == 600 + 2000 + 1 + 1
