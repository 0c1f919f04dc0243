"""Lines of the audit log: written off the reactor, whole, bounded, and lost only with a word."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from twisted.python.failure import Failure

from ledgermq.audit import audit_log
from ledgermq.audit.audit_file import AuditFile
from ledgermq.audit.audit_log import LINES_MAX, AuditLog
from ledgermq.audit.joined_lines import KINDS_MAX, KINDS_OF_SOURCE_MAX, WINDOW_MS, JoinedLines

ROOM_BYTES = 160 << 20
FULL = OSError(errno.ENOSPC, "No space left on device")


class Hand:
    """A thread that does its work when the test says so."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[bool, Any], object], Callable[..., object], Any]] = []

    def callInThreadWithCallback(
        self, answer: Callable[[bool, Any], object], function: Callable[..., object], *rest: Any
    ) -> None:
        self.jobs.append((answer, function, rest))

    def work(self) -> None:
        while self.jobs:
            answer, function, rest = self.jobs.pop(0)
            try:
                result = function(*rest)
            except OSError:
                answer(False, Failure())
            else:
                answer(True, result)


class Kept:
    """A file in memory, whose disk may refuse."""

    def __init__(self) -> None:
        self.room_bytes = ROOM_BYTES
        self.lines: list[dict[str, Any]] = []
        self.raw: list[bytes] = []
        self.error: OSError | None = None

    def write(self, lines: list[bytes]) -> None:
        if self.error is not None:
            raise self.error
        self.raw += lines
        self.lines += map(json.loads, lines)


class Noted:
    """A log with a thread by hand and a clock."""

    def __init__(self) -> None:
        self.file, self.thread, self.now_ms = Kept(), Hand(), 0.0
        self.log = AuditLog(
            self.file,
            self.thread,
            lambda function, *rest: function(*rest),
            clock_ms=lambda: self.now_ms,
            now_ms=lambda: 1_772_357_400_123,
            fixed={"broker": "b"},
        )


def test_a_line_is_one_line_whatever_is_in_it() -> None:
    noted = Noted()
    noted.log.changed(object="topic a\n{}\x1b[2J\u2028", before=None, after={"n": 1})
    assert noted.file.raw == [], "nothing is written in the reactor"
    noted.thread.work()
    [raw] = noted.file.raw
    assert raw.count(b"\n") == 1 and raw.endswith(b"\n") and b"\x1b" not in raw
    assert noted.file.lines == [
        {
            "time": "2026-03-01T09:30:00.123Z",
            "broker": "b",
            "event": "change",
            "object": "topic a\n{}\x1b[2J\u2028",
            "after": {"n": 1},
        }
    ]


def test_what_is_long_is_cut() -> None:
    noted = Noted()
    noted.log.changed(object="x" * 10_000, before={"n": "y" * 10_000}, after=["z"])
    noted.thread.work()
    [line] = noted.file.lines
    assert line["object"] == "x" * 512 + "..." and line["after"] == ["z"]
    assert line["before"].startswith('{"n": "yyy') and line["before"].endswith("yyy...")


@pytest.mark.parametrize("character", ["x", '"', "\n", "\xe9", "\u2028", "\U0001f600"])
def test_what_a_text_takes_in_the_file_is_bounded(character: str) -> None:
    noted = Noted()
    noted.log.changed(object=character * 10_000, before={character * 9: character * 10_000})
    noted.thread.work()
    [raw] = noted.file.raw
    assert len(raw) < 512 + 2048 + 200
    assert len(json.dumps(noted.file.lines[0]["object"])) <= 512 + len('"..."')
    assert noted.file.lines[0]["object"].startswith(character * 40)


@pytest.mark.parametrize("is_refused", [True, False])
def test_lines_that_anybody_may_cause_take_days_to_fill_the_files(is_refused: bool) -> None:
    """Whatever they say, and how often: a day of them has a small part of the room."""
    noted = Noted()
    windows_a_day = int(86_400_000 / WINDOW_MS)
    told_late = 0
    for window in range(windows_a_day):
        noted.now_ms = window * (WINDOW_MS + 1.0)
        for host in range(3):
            kind = (f"{window}/{host}" + "\U0001f600" * 500,)
            if is_refused:
                noted.log.refused(f"10.0.0.{host}", kind, claims=kind[0], reason=kind[0])
            else:
                noted.log.changed_by(f"account-{host}", kind, object=kind[0], before=kind[0])
        noted.log.tick()
        noted.thread.work()
        if window == windows_a_day - 100:
            told_late = len(noted.file.lines)
    noted.log.close()
    noted.thread.work()
    assert sum(map(len, noted.file.raw)) < noted.file.room_bytes / 10
    # The first ones have lines of their own, and of the later ones it is told how many there were.
    assert len({line.get("reason") or line.get("object") for line in noted.file.lines}) > 500
    assert len(noted.file.lines) > told_late
    counts = [line.get("repeated", 1) for line in noted.file.lines]
    assert sum(counts) == 3 * windows_a_day


def test_the_addresses_of_one_network_are_one_source() -> None:
    noted = Noted()
    for host in range(50):
        for number in range(5):
            noted.log.refused(f"2001:db8::{host:x}", (str(number),), reason="no right")
    noted.thread.work()
    assert len(noted.file.lines) <= KINDS_OF_SOURCE_MAX


def test_a_slow_disk_costs_lines_that_are_counted_and_no_memory() -> None:
    noted = Noted()
    noted.log.changed(object="first")
    for number in range(LINES_MAX + 5):
        noted.log.changed(object=number)
    assert noted.log.lost_count == 5 and "does not keep up" in (noted.log.alarm or "")
    noted.thread.work()
    lost = [line for line in noted.file.lines if line["event"] == "lost"]
    assert [line["lines"] for line in lost] == [5]
    assert len(noted.file.lines) == LINES_MAX + 2 and noted.log.alarm is None


def test_lines_that_wait_are_bounded_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "BYTES_MAX", 1000)
    noted = Noted()
    for _ in range(100):
        noted.log.changed(object="x" * 200)
    assert noted.log.lost_count > 90


def test_a_full_disk_stops_nothing_and_is_told_when_it_has_room() -> None:
    noted = Noted()
    noted.file.error = FULL
    noted.log.changed(object="one")
    noted.log.changed(object="two")
    noted.thread.work()
    assert noted.log.lost_count == 2 and "No space" in (noted.log.alarm or "")
    noted.log.tick()
    noted.thread.work()
    assert noted.log.lost_count == 2, "the word about it is no line that could be lost"
    noted.file.error = None
    noted.log.tick()
    noted.thread.work()
    noted.log.tick()
    noted.thread.work()
    assert [(line["event"], line["lines"]) for line in noted.file.lines] == [("lost", 2)]
    assert noted.log.alarm is None


def test_a_thread_that_takes_nothing_harms_nobody() -> None:
    noted = Noted()

    def refuse(*_: object) -> None:
        raise RuntimeError("no thread")

    noted.thread.callInThreadWithCallback = refuse  # type: ignore[method-assign]
    noted.log.changed(object="one")
    noted.log.tick()
    assert noted.log.lost_count == 1 and "no thread" in (noted.log.alarm or "")


def test_a_close_writes_what_waits_and_then_nothing() -> None:
    noted = Noted()
    noted.log.refused("h", ("k",), object="a")
    noted.log.refused("h", ("k",), object="a")
    noted.log.changed(object="b")
    closed: list[None] = []
    noted.log.close().addCallback(closed.append)
    assert closed == []
    noted.thread.work()
    assert closed == [None]
    noted.log.changed(object="late")
    noted.thread.work()
    assert [line.get("repeated") for line in noted.file.lines] == [None, None, 1]
    idle: list[None] = []
    Noted().log.close().addCallback(idle.append)
    assert idle == [None]


def test_equal_refusals_are_one_line_and_their_number() -> None:
    refusals = JoinedLines(ROOM_BYTES)
    line = {"reason": "no right"}
    told = [refusals.take("h", ("a", "17"), line, 0.0) for _ in range(50_000)]
    assert told[0] == [line] and not any(told[1:])
    assert refusals.due(WINDOW_MS - 1.0) == []
    assert refusals.due(WINDOW_MS) == [{**line, "repeated": 49_999}]
    assert refusals.due(WINDOW_MS * 9.0) == []
    assert refusals.take("h", ("a", "17"), line, WINDOW_MS * 9.0) == [line]


def test_refusals_that_all_differ_are_few_lines_whose_number_is_told() -> None:
    refusals = JoinedLines(ROOM_BYTES)
    count = 0
    told: list[dict[str, Any]] = []
    for host in range(300):
        for number in range(40):
            line = {"reason": f"{host}/{number}", "address": str(host)}
            told += refusals.take(str(host), (str(number),), line, 0.0)
            count += 1
    told += refusals.end()
    assert sum(line.get("repeated", 1) for line in told) == count
    assert len(told) <= 2 * KINDS_MAX
    firsts = [line["address"] for line in told if "repeated" not in line]
    assert firsts.count("0") == firsts.count("1") == KINDS_OF_SOURCE_MAX
    assert told[-1]["address"] == "*" and told[-1]["repeated"] > 200 * 40


def test_changes_that_all_differ_say_whose_they_are_and_nothing_that_is_not_so() -> None:
    changes, told = JoinedLines(ROOM_BYTES, are_sources_few=True), []
    for account in range(30):
        for name in range(40):
            line = {"account": str(account), "name": str(name), "outcome": "done"}
            told += changes.take(str(account), (str(name),), line, 0.0)
    told += changes.end()
    for account in range(30):
        own = [line for line in told if line["account"] == str(account)]
        assert sum(line.get("repeated", 1) for line in own) == 40
        assert own[-1]["name"] == own[-1]["outcome"] == "*" and own[-1]["repeated"] >= 30
    assert not [line for line in told if "repeated" in line and line["outcome"] == "done"]


def lines_in(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines()


def test_files_roll_and_the_oldest_goes(tmp_path: Path) -> None:
    path = tmp_path / "audit" / "audit.log"
    file = AuditFile(path, 30, 3)
    file.write([b"line %d\n" % number for number in range(10)])
    file.write([b"line 10\n"])
    assert sorted(found.name for found in path.parent.iterdir()) == [
        "audit.log", "audit.log.1", "audit.log.2",
    ]  # fmt: skip
    assert lines_in(path) == [b"line 8", b"line 9", b"line 10"]
    assert lines_in(path.with_name("audit.log.1")) == [
        b"line %d" % number for number in range(4, 8)
    ]
    assert lines_in(path.with_name("audit.log.2")) == [b"line %d" % number for number in range(4)]
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    file.write([b"x" * 100 + b"\n"])
    assert lines_in(path) == [b"x" * 100], (
        "a line that is larger than a file is written all the same"
    )
    single = AuditFile(tmp_path / "one", 10, 1)
    single.write([b"line 1\n", b"line 2\n"])
    assert lines_in(tmp_path / "one") == [b"line 2"]


def test_a_disk_that_fills_up_leaves_whole_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = AuditFile(tmp_path / "audit.log", 1000, 2)
    file.write([b"line 1\n"])
    real = os.write
    room = [3]

    def write(number: int, data: bytes) -> int:
        if not room:
            raise FULL
        return real(number, data[: room.pop()])

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(OSError, match="No space"):
        file.write([b"line 2\n"])
    monkeypatch.undo()
    file.write([b"line 3\n"])
    assert lines_in(tmp_path / "audit.log") == [b"line 1", b"line 3"]


def test_a_link_in_the_place_of_the_file_is_not_written_through(tmp_path: Path) -> None:
    target = tmp_path / "of-somebody"
    target.write_bytes(b"precious")
    (tmp_path / "audit.log").symlink_to(target)
    with pytest.raises(OSError, match="audit.log"):
        AuditFile(tmp_path / "audit.log", 1000, 2).write([b"line\n"])
    assert target.read_bytes() == b"precious"
