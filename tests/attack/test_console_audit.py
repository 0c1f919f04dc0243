"""Who has no account, and the audit log of the console: it is neither filled nor emptied."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ledgermq.console.audit import Audit
from ledgermq.console.shapes.brokers import AuditEntry
from tests.attack.closed_broker import ROOT, write_rules
from tests.e2e.console.api_client import Api
from tests.e2e.up_cluster import UpCluster
from tests.waiting import wait_until

_TRIES = 300


def test_tries_that_are_not_made_are_no_lines(tmp_path: Path) -> None:
    """Each was a line, as fast as requests come: 10,000 drove out what admins had done."""
    settings = ("aclEnable=true", f"aclFile={write_rules(tmp_path)}")
    with UpCluster(tmp_path / "up", node_count=1, settings=settings, console=True) as cluster:
        root, nobody = Api(cluster.console), Api(cluster.console)
        wait_until(lambda: root.call("get_session").sign_in_needed, what="a broker that asks")
        root.sign_in(ROOT.access_key, ROOT.secret_key)
        wrong = {"access_key": "n" * 64, "secret_key": "x" * 64}
        told = [nobody.raw("POST", "/api/v1/session", wrong)[0] for _ in range(_TRIES)]
        assert told.count(401) + told.count(429) == _TRIES and told.count(401) == 4
        lines = root.call("get_audit", query={"limit": 200})
        assert lines.total <= 6
        assert [entry.outcome for entry in lines.entries].count("refused") >= 4
        assert lines.entries[-1].account == ROOT.access_key


def entry(number: int) -> AuditEntry:
    return AuditEntry(
        at_ms=number, account="root-app", address="10.0.0.1", cluster="c", action="sign_in",
        object="", outcome="done", detail="x" * 900, action_id="",
    )  # fmt: skip


def test_file_is_bounded_and_what_was_last_is_read_again(tmp_path: Path) -> None:
    """Who may do something may do it for ever: the disk is not filled with it."""
    path = tmp_path / "audit.jsonl"
    audit = Audit(path, file_bytes_max=10_000, files_max=3)
    for number in range(100):
        audit.add(entry(number))
    sizes = {file.name: file.stat().st_size for file in tmp_path.iterdir()}
    assert sorted(sizes) == ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2"]
    assert max(sizes.values()) <= 10_000
    assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o600}
    again = [one.at_ms for one in Audit(path, file_bytes_max=10_000, files_max=3).newest_first()]
    # That of the last file, and of the one before it.
    assert len(again) >= 10 and again == list(range(99, 99 - len(again), -1))


def test_line_that_was_cut_takes_none_along(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    Audit(path).add(entry(1))
    with path.open("ab") as file:
        file.write(b'{"at_ms": 2, "acc')
    Audit(path).add(entry(3))
    assert [one.at_ms for one in Audit(path).newest_first()] == [3, 1]


def test_file_is_not_written_by_way_of_a_link_or_a_pipe(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("of somebody else\n")
    link, pipe = tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(other)
    os.mkfifo(pipe)
    for path in (link, pipe):
        with pytest.raises(OSError, match=path.name):
            Audit(path)
    assert other.read_text() == "of somebody else\n"
