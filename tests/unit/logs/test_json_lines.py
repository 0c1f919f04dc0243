"""Lines of JSON: one object for each event, whatever a peer has put into it."""

from __future__ import annotations

import io
import json
from typing import Any

from twisted.logger import Logger

from ledgermq.logs.json_lines import json_observer

LABELS = {"node": "n0", "group": "broker-a"}
FORGED = 'a"b\n{"level": "critical"}\x1b[2K\u2028'


def logged(format_: str, **fields: Any) -> dict[str, Any]:
    file = io.StringIO()
    log = Logger(namespace="ledgermq.broker", observer=json_observer(file, LABELS))
    log.warn(format_, **fields)
    [line] = file.getvalue().splitlines()
    assert line.isascii() and "\x1b" not in line
    return dict(json.loads(line))


def test_a_line_says_when_where_what_and_of_whom() -> None:
    line = logged("{name} joins at {index}", name=FORGED, index=7, other=object())
    assert list(line)[:6] == ["ts", "level", "logger", "msg", "node", "group"]
    assert line["ts"].endswith("Z") and len(line["ts"]) == 24
    assert (line["level"], line["logger"]) == ("warn", "ledgermq.broker")
    assert line["msg"] == f"{FORGED} joins at 7"
    assert (line["name"], line["index"]) == (FORGED, 7)
    assert "other" not in line


def test_a_field_replaces_nothing() -> None:
    line = logged("x", logger="other", node="n9", msg="y", ts="1")
    assert (line["logger"], line["node"], line["msg"]) == ("ledgermq.broker", "n0", "x")


def test_long_texts_are_cut() -> None:
    line = logged("{text}", text="x" * 100_000)
    assert line["msg"].endswith("... (100000 characters)") and len(line["msg"]) < 9000
    assert len(line["text"]) < 600


def test_a_failure_keeps_type_text_and_place() -> None:
    file = io.StringIO()
    log = Logger(namespace="ledgermq.broker", observer=json_observer(file, {}))
    try:
        raise ValueError(FORGED)
    except ValueError:
        log.failure("not done")
    [text] = file.getvalue().splitlines()
    error = json.loads(text)["error"]
    assert (error["type"], error["message"]) == ("ValueError", FORGED)
    assert "test_json_lines.py" in error["trace"]
