"""Lines of a program's log as JSON: one object a line, for programs that collect logs.

    ts       RFC 3339, milliseconds, UTC
    level    debug, info, warn, error, critical
    logger   where it was said
    msg      what was said
    ...      labels of the program (node, group), then the event's own fields
    error    of a failure: type, message, and where it came from

A field is a number, a truth value or a text of bounded length; what else was said of an event is in
`msg`. A label or a field never replaces what stands before it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import IO, Any, Final

from twisted.logger import FileLogObserver, LogEvent, formatEvent
from twisted.python.failure import Failure

_CHARS_MAX: Final = 8192
_FIELD_CHARS_MAX: Final = 500
_FIELDS_MAX: Final = 32


def json_observer(file: IO[Any], labels: Mapping[str, str]) -> FileLogObserver:
    """Returns an observer that writes events to a file.

    Args:
        file: text, flushed by each line.
        labels: in each line.
    """
    return FileLogObserver(file, lambda event: json_line_of(event, labels))


def json_line_of(event: LogEvent, labels: Mapping[str, str]) -> str | None:
    """Returns the line of an event; None when it says nothing."""
    text = formatEvent(event)
    failure = event.get("log_failure")
    if not text and not isinstance(failure, Failure):
        return None
    time_s = event.get("log_time") or 0.0
    moment = datetime.fromtimestamp(time_s, UTC)
    line: dict[str, object] = {
        "ts": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": getattr(event.get("log_level"), "name", "info"),
        "logger": str(event.get("log_namespace", "-")),
        "msg": _cut(text, _CHARS_MAX),
    }
    for name, value in labels.items():
        line.setdefault(name, value)
    if isinstance(failure, Failure):
        line["error"] = {
            "type": failure.type.__name__ if failure.type is not None else "",
            "message": _cut(failure.getErrorMessage(), _CHARS_MAX),
            "trace": _cut(failure.getTraceback(), _CHARS_MAX),
        }
    # What Twisted's older kind of events carries beside them says nothing more.
    is_legacy = event.get("log_namespace") == "log_legacy"
    fields = [] if is_legacy else [name for name in event if not name.startswith("log_")]
    for name in fields[:_FIELDS_MAX]:
        value = event[name]
        if isinstance(value, (bool, int, float)) or value is None:
            line.setdefault(name, value)
        elif isinstance(value, str):
            line.setdefault(name, _cut(value, _FIELD_CHARS_MAX))
    # Ends of lines and what a terminal carries out become escapes, as everything beyond ASCII.
    return json.dumps(line, ensure_ascii=True, allow_nan=True) + "\n"


def _cut(text: str, chars_max: int) -> str:
    if len(text) <= chars_max:
        return text
    return f"{text[:chars_max]}... ({len(text)} characters)"
