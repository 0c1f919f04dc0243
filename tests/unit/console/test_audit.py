"""The audit log of a console: nobody drives out what others did."""

import asyncio
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from ledgermq.console import audit as module
from ledgermq.console.actions.planners import PLANNERS
from ledgermq.console.api import records
from ledgermq.console.api.records import get_audit
from ledgermq.console.audit import Audit, Outcome
from ledgermq.console.shapes.actions import CreateGroup, CreateTopic
from ledgermq.console.shapes.brokers import AuditEntry, AuditQuery
from ledgermq.http.replies import RequestError


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


def test_nothing_in_the_file_acts_on_a_terminal(tmp_path: Path) -> None:
    """Anybody may try to sign in with any account."""
    path = tmp_path / "audit.jsonl"
    audit = Audit(path)
    odd = "x\x1b[2J\x9b31m\u202eadmin\x7f\n\u2028\U0001f600é"
    audit.add(entry(1, odd, "sign_in", "refused"))
    (line,) = path.read_bytes().split(b"\n")[:-1]
    assert line.isascii() and all(0x20 <= byte < 0x7F for byte in line)
    assert read(path)[0].account == odd
    assert Audit(path).newest_first()[0].account == odd


def test_the_file_has_so_many_lines_a_minute_of_one_account(tmp_path: Path) -> None:
    """What changed nothing is counted by itself: it would hide what its account changes."""
    path = tmp_path / "audit.jsonl"
    audit = Audit(path)
    for number in range(1000):
        audit.add(entry(number, "app"))
        audit.add(entry(number, "app", "delete_topic", "failed"))
    for number in range(1000, 2000):
        audit.add(entry(number, "app", "delete_topic"))
        audit.add(entry(number, "root", "delete_topic"), is_admin=True)
        audit.add(entry(number, "root"), is_admin=True)
    audit.add(entry(2000, "other"))
    audit.add(entry(60_000, "app"))
    lines = Counter(one.account for one in read(path))
    assert lines == {"app": 600 + 600 + 1, "root": 1000 + 600, "other": 1}


def test_the_file_has_so_many_bytes_a_minute_of_one_account(tmp_path: Path) -> None:
    """Control characters have six bytes each: all files were written over within minutes."""
    path = tmp_path / "audit.jsonl"
    audit = Audit(path)
    long = "\x01" * 3000
    for number in range(100):
        one = entry(number, "app", "create_topic")
        audit.add(msgspec.structs.replace(one, object=long, detail=long))
        audit.add(entry(number, "root", "create_topic"), is_admin=True)
    audit.add(entry(100, "app", "create_topic"))
    audit.add(entry(60_000, "app", "create_topic"))
    written = [one for one in read(path) if one.account == "app"]
    assert len(written) == 17 + 1
    assert (len(written[0].object), len(written[0].detail)) == (512, 2000)
    assert sum(one.account == "root" for one in read(path)) == 100


def read(path: Path) -> list[AuditEntry]:
    lines = path.read_bytes().splitlines()
    return [msgspec.json.decode(line, type=AuditEntry) for line in lines]


@pytest.mark.parametrize("kind", [CreateTopic, CreateGroup])
def test_a_new_name_has_no_control_characters(kind: type) -> None:
    class Empty:
        async def groups(self) -> object:
            return SimpleNamespace(by_name={})

        async def brokers(self) -> object:
            raise KeyError("the name was let in")

    call = cast(Any, SimpleNamespace(cluster=Empty()))
    plan = PLANNERS[kind]
    field = "topic" if kind is CreateTopic else "group"
    for name in ("\x01" * 255, "a\n", "a\x7f", "a\x85"):
        with pytest.raises(RequestError) as refused:
            asyncio.run(cast(Any, plan(call, kind(**{field: name}))))
        assert (refused.value.status, refused.value.field) == (400, field)


def shown_call(audit: Audit, query: AuditQuery) -> Any:
    return SimpleNamespace(
        audit=audit, cluster=SimpleNamespace(id="c"), asks=lambda _: query,
        sees_account=lambda _: True,
    )  # fmt: skip


def test_others_have_their_turn_while_the_log_is_shown() -> None:
    """Ten thousand entries were looked through in one turn of 67 ms."""
    audit = Audit(None)
    for number in range(10_000):
        audit.add(entry(number, f"app-{number % 7}"))
    turns = 0

    async def look(query: AuditQuery) -> Any:
        nonlocal turns
        task = asyncio.ensure_future(get_audit(cast(Any, shown_call(audit, query))))
        while not task.done():
            turns += 1
            # What comes meanwhile harms nobody who looks.
            audit.add(entry(10_000 + turns, "new"))
            await asyncio.sleep(0)
        return await task

    shown = asyncio.run(look(AuditQuery(filter="APP-3", limit=200)))
    assert shown.total in (1428, 1429) and turns >= 20
    assert [one.account for one in shown.entries] == ["app-3"] * 200


def test_no_text_is_made_where_none_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_text_of", None)
    audit = Audit(None)
    audit.add(entry(1, "app"))
    call = cast(Any, shown_call(audit, AuditQuery()))
    assert asyncio.run(get_audit(call)).total == 1
