"""One event is one line of the log, whatever a peer has put into it."""

from __future__ import annotations

import io
from typing import Any

from twisted.logger import Logger, LogLevel
from twisted.python.failure import Failure

from ledgermq.logs.lines import line_of, log_observer

FORGED = "10.0.0.1:10911\n2026-01-01T00:00:00+0000 [ledgermq.broker#info] leader\x1b[2K\r"


def lines_of(*events: tuple[str, dict[str, Any]]) -> list[str]:
    file = io.StringIO()
    log = Logger(namespace="ledgermq.broker", observer=log_observer(file))
    for format_, fields in events:
        log.info(format_, **fields)
    return file.getvalue().splitlines()


def test_line_says_when_where_and_what() -> None:
    [line] = lines_of(("{name} joins", {"name": "n0"}))
    time, system, text = line.split(" ", 2)
    assert time.startswith("20") and "T" in time
    assert (system, text) == ("[ledgermq.broker#info]", "n0 joins")


def test_peer_forges_no_line_and_no_colour() -> None:
    [line] = lines_of(("registers {address}", {"address": FORGED}))
    assert line.endswith(r"leader\x1b[2K\r")
    assert r"10911\n2026" in line


def test_long_event_is_cut() -> None:
    [line] = lines_of(("{name}", {"name": "x" * 100_000}))
    assert len(line) < 9000 and line.endswith("... (100000 characters)")


def test_error_keeps_its_lines_and_what_it_says_adds_none() -> None:
    try:
        raise ValueError(FORGED)
    except ValueError:
        failure = Failure()
    event: Any = {
        "log_format": "failed", "log_failure": failure, "log_level": LogLevel.critical,
        "log_namespace": "a\nb", "log_time": 0.0,
    }  # fmt: skip
    text = line_of(event)
    assert text is not None
    first, *others = text.splitlines()
    assert first.endswith(r"[a\nb#critical] failed")
    assert others and all(line.startswith("\t") for line in others)
    assert "\x1b" not in text and "\r" not in text


def test_event_without_text_is_no_line() -> None:
    assert line_of({}) is None
