"""AuditLog: takes lines in the reactor, and has them written by a thread, never waiting for it.

A line is one JSON object on one line, which escapes control characters. Lines wait in one queue
with a limit: when the disk is slow or full they are lost, rather than that the program stops; how
many, a line says as soon as one can be written again.
"""

import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any, Final, Protocol

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger

from ledgermq.audit.joined_lines import JoinedLines
from ledgermq.protocol.networks import network_of

# Lines and bytes that may wait for the disk.
LINES_MAX: Final = 10_000
BYTES_MAX: Final = 4 << 20
# Of one text as it stands in a line, escaped; and of what a thing was before a change or is after.
TEXT_BYTES_MAX: Final = 512
VALUE_BYTES_MAX: Final = 2048
_CUT: Final = "..."

_log = Logger()


class File(Protocol):
    """Where lines go."""

    @property
    def room_bytes(self) -> int:
        """Of all files that are kept."""
        ...

    def write(self, lines: list[bytes]) -> None: ...


class Thread(Protocol):
    """Calls functions one by one outside of the reactor."""

    def callInThreadWithCallback(
        self,
        answer: Callable[[bool, Any], object],
        function: Callable[..., object],
        *arguments: Any,
    ) -> None: ...


class AuditLog:
    """Lines on their way to a file."""

    def __init__(
        self,
        file: File,
        thread: Thread,
        call_in_reactor: Callable[..., object],
        *,
        clock_ms: Callable[[], float],
        now_ms: Callable[[], int],
        fixed: Mapping[str, Any],
    ) -> None:
        """
        Args:
            file: written in the thread only.
            thread: waits for the disk.
            call_in_reactor: has a function called in the reactor's thread; may be called in others.
            clock_ms: monotonic time.
            now_ms: wall clock, for the lines.
            fixed: members of every line, such as the name of this program.
        """
        self._file, self._thread = file, thread
        self._call_in_reactor = call_in_reactor
        self._clock_ms, self._now_ms = clock_ms, now_ms
        self._fixed = dict(fixed)
        self._refusals = JoinedLines(file.room_bytes)
        self._changes = JoinedLines(file.room_bytes, are_sources_few=True)
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        # With the thread at this moment: how many lines; 0: it has nothing to do.
        self._writing_count = 0
        # Since the last line that said so, and since the start.
        self._untold_count = self.lost_count = 0
        # Why lines were lost last; None while all are written.
        self.alarm: str | None = None
        self._closed: Deferred[None] | None = None

    def changed(self, **members: Any) -> None:
        """Notes a change, whatever came of it."""
        self._add({"event": "change", **members})

    def changed_by(self, who: str, kind: tuple[str, ...], /, **members: Any) -> None:
        """Notes a change by who may change little, as often as it likes; equal ones are joined.

        Args:
            who: the account that did it.
            kind: what makes two of one account equal.
        """
        line = {"event": "change", **members}
        self._tell(self._changes, self._changes.take(who, kind, line, self._clock_ms()))

    def refused(self, host: str, kind: tuple[str, ...], **members: Any) -> None:
        """Notes a request that had no right to what it wanted; equal ones are joined.

        Args:
            host: where it came from; a network of IPv6 counts as one address.
            kind: what makes two of one address equal.
        """
        line = {"event": "refused", **members}
        source = network_of(host)
        self._tell(self._refusals, self._refusals.take(source, kind, line, self._clock_ms()))

    def tick(self) -> None:
        """Tells what is due; called about each second."""
        for joined in (self._refusals, self._changes):
            self._tell(joined, joined.due(self._clock_ms()))
        if self._untold_count and not self._waiting:
            self._write()

    def close(self) -> Deferred[None]:
        """Writes what waits; nothing is noted any more.

        Returns:
            Fires when all that the disk takes is written.
        """
        for joined in (self._refusals, self._changes):
            self._tell(joined, joined.end())
        self._closed = Deferred()
        if not self._writing_count:
            return succeed(None)
        return self._closed

    def _tell(self, joined: JoinedLines, lines: Iterable[Mapping[str, Any]]) -> None:
        for line in lines:
            joined.spend(self._add(line))

    def _add(self, line: Mapping[str, Any]) -> int:
        """Has a line written, unless that is too late; returns how many bytes it has."""
        if self._closed is not None:
            return 0
        data = self._encoded(line)
        if len(self._waiting) >= LINES_MAX or self._waiting_bytes + len(data) > BYTES_MAX:
            self._lose(1, "the disk does not keep up")
            return 0
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        self._write()
        return len(data)

    def _encoded(self, line: Mapping[str, Any]) -> bytes:
        now = datetime.fromtimestamp(self._now_ms() / 1000, UTC)
        time = now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        members = {name: _small(value) for name, value in line.items() if value is not None}
        return json.dumps({"time": time, **self._fixed, **members}).encode("ascii") + b"\n"

    def _write(self) -> None:
        """Hands all that waits to the thread, unless it is busy."""
        if self._writing_count:
            return
        lines = list(self._waiting)
        self._waiting.clear()
        self._waiting_bytes = 0
        untold = self._untold_count
        if untold:
            lines.insert(0, self._encoded({"event": "lost", "lines": untold}))
        self._writing_count = len(lines)

        def answer(is_written: bool, result: Any) -> None:
            self._call_in_reactor(self._written, is_written, result, untold)

        try:
            self._thread.callInThreadWithCallback(answer, self._file.write, lines)
        except Exception as error:
            # Without a thread there is no log; whoever noted something goes on all the same.
            self._writing_count = 0
            self._lose(len(lines) - (1 if untold else 0), str(error))

    def _written(self, is_written: bool, result: Any, told: int) -> None:
        count, self._writing_count = self._writing_count, 0
        if is_written:
            self._untold_count -= told
            self.alarm = None
        else:
            # The line that told of others tells again.
            self._lose(count - (1 if told else 0), result.getErrorMessage())
        if self._waiting:
            self._write()
        elif self._closed is not None:
            self._closed.callback(None)

    def _lose(self, count: int, reason: str) -> None:
        self._untold_count += count
        self.lost_count += count
        if self.alarm is None:
            self.alarm = f"lines of the audit log are lost: {reason}"
            _log.error("{alarm}", alarm=self.alarm)


def _small(value: Any) -> Any:
    """A value that fits a line; what is longer is cut, and becomes a text."""
    if isinstance(value, str):
        return _cut(value, TEXT_BYTES_MAX)
    if isinstance(value, dict | list):
        text = json.dumps(value)
        return value if len(text) <= VALUE_BYTES_MAX else _cut(text, VALUE_BYTES_MAX)
    return value


def _cut(text: str, bytes_max: int) -> str:
    """As much of a text as takes so many bytes between its quotation marks; one character may take
    twelve.
    """
    begin = text[:bytes_max]
    if len(json.dumps(begin)) - 2 > bytes_max:
        sizes = accumulate(len(json.dumps(character)) - 2 for character in begin)
        begin = begin[: sum(1 for size in sizes if size <= bytes_max)]
    return text if len(begin) == len(text) else begin + _CUT
