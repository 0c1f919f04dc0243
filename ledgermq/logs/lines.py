"""Lines of a program's log: one event is one line, whatever peers have put into it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import IO, Any, Final

from twisted.logger import FileLogObserver, LogEvent, formatEvent, formatTime
from twisted.python.failure import Failure

from ledgermq.protocol.plain_text import escaped, escaped_lines

# Of one event, without where an error came from; what is longer is cut.
_CHARS_MAX: Final = 8192
# Of syslog, as the journal takes them from the beginning of a line (sd-daemon(3)).
_PRIORITIES: Final = {"debug": 7, "info": 6, "warn": 4, "error": 3, "critical": 2}


def log_observer(file: IO[Any], *, tells_priority: bool = False) -> FileLogObserver:
    """Returns an observer that writes events to a file, in Twisted's form of lines.

    Args:
        file: of text.
        tells_priority: whether each line begins with its priority.
    """
    return FileLogObserver(file, _with_priority if tells_priority else line_of)


def is_journal(file: IO[Any], environment: Mapping[str, str]) -> bool:
    """Whether systemd's journal reads a file, as it says in JOURNAL_STREAM (systemd.exec(5))."""
    stream = environment.get("JOURNAL_STREAM")
    if stream is None:
        return False
    try:
        status = os.fstat(file.fileno())
    except (OSError, ValueError):
        return False
    return stream == f"{status.st_dev}:{status.st_ino}"


def _with_priority(event: LogEvent) -> str | None:
    text = line_of(event)
    if text is None:
        return None
    priority = _PRIORITIES.get(getattr(event.get("log_level"), "name", "info"), 6)
    return "".join(f"<{priority}>{line}\n" for line in text.splitlines())


def line_of(event: LogEvent) -> str | None:
    """Returns the line of an event, with the lines of its failure indented; None without either."""
    text = formatEvent(event)
    failure = event.get("log_failure")
    if len(text) > _CHARS_MAX:
        text = f"{text[:_CHARS_MAX]}... ({len(text)} characters)"
    text = escaped(text)
    if isinstance(failure, Failure):
        text += "\n" + escaped_lines(failure.getTraceback())
    if not text:
        return None
    level = event.get("log_level")
    system = event.get("log_system") or (
        f"{event.get('log_namespace', '-')}#{getattr(level, 'name', '-')}"
    )
    indented = text.replace("\n", "\n\t")
    return f"{formatTime(event.get('log_time'))} [{escaped(str(system))}] {indented}\n"
