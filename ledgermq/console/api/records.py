"""What is written down: the logs of programs on this machine, and the console's audit log."""

import asyncio
import os
import re
from pathlib import Path
from typing import Final

from ledgermq.console.call import Call, page_of
from ledgermq.console.shapes import brokers as shapes
from ledgermq.http.replies import RequestError

# Of each program's log so much is read.
_TAIL_BYTES: Final = 512 * 1024
_NODES_MAX: Final = 50
_TEXT_CHARS_MAX: Final = 4_000
# 2026-11-23T22:33:24+0000 [ledgermq.broker#info] text
_LINE: Final = re.compile(r"^(\S{19,32}) \[([^\]]*)\] (.*)$", re.DOTALL)
_ENTRIES_A_TURN: Final = 500
_LEVELS: Final = ("debug", "info", "warn", "error", "critical")


async def get_log(call: Call) -> shapes.Log:
    """The last lines of logs.

    Raises:
        RequestError: 403 an account asks that is no admin at all name servers of the console; they
            name topics and groups of all.
    """
    if not call.sees_console:
        message = "logs tell of everybody: they are shown to admins at all name servers"
        raise RequestError(403, message)
    query, folder = call.asks(shapes.LogQuery), call.terms.log_folder
    if folder is None:
        return shapes.Log(available=False, nodes=[], lines=[])
    files = {path.stem: path for path in sorted(folder.glob("*.log"))[:_NODES_MAX]}
    least = _LEVELS.index(query.level) if query.level else 0
    wanted = query.filter.casefold()
    lines = [
        line
        for node, path in files.items()
        if query.node in ("", node)
        for line in _tail(node, path)
        if _rank(line.level) >= least and wanted in line.text.casefold()
    ]
    lines.sort(key=lambda line: line.time)
    return shapes.Log(available=True, nodes=list(files), lines=lines[-query.limit :])


def _rank(level: str) -> int:
    return _LEVELS.index(level) if level in _LEVELS else len(_LEVELS)


def _tail(node: str, path: Path) -> list[shapes.LogLine]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - _TAIL_BYTES, 0))
            text = file.read(_TAIL_BYTES).decode("utf-8", "replace")
    except OSError as error:
        reason = f"this log cannot be read: {error.strerror}"
        return [shapes.LogLine(node=node, time="", level="error", text=reason)]
    found: list[shapes.LogLine] = []
    for line in text.split("\n"):
        match = _LINE.match(line)
        if match is not None:
            level = match[2].rpartition("#")[2]
            level = level if level in _LEVELS else "info"
            text_of = match[3][:_TEXT_CHARS_MAX]
            found.append(shapes.LogLine(node=node, time=match[1], level=level, text=text_of))
        elif line and found and len(found[-1].text) < _TEXT_CHARS_MAX:
            # Further lines of an event belong to it.
            last = found.pop()
            joined = f"{last.text}\n{line}"[:_TEXT_CHARS_MAX]
            found.append(shapes.LogLine(node=node, time=last.time, level=last.level, text=joined))
    return found


async def get_audit(call: Call) -> shapes.Audit:
    """What was done through this console, at this cluster: by all for admins, else by oneself."""
    query = call.asks(shapes.AuditQuery)
    wanted = query.filter.casefold()
    entries = []
    for number, entry in enumerate(call.audit.newest_first(), 1):
        if number % _ENTRIES_A_TURN == 0:
            # Of ten thousand: all others have their turn.
            await asyncio.sleep(0)
        if (
            _is_shown(entry, call)
            and query.outcome in ("", entry.outcome)
            and (not wanted or wanted in _text_of(entry))
        ):
            entries.append(entry)
    return shapes.Audit(entries=list(page_of(entries, query)), total=len(entries))


def _is_shown(entry: shapes.AuditEntry, call: Call) -> bool:
    if not entry.cluster:
        return call.sees_sign_in(entry.account)
    return entry.cluster == call.cluster.id and call.sees_account(entry.account)


def _text_of(entry: shapes.AuditEntry) -> str:
    return f"{entry.account} {entry.action} {entry.object} {entry.detail}".casefold()
