"""What send, consume and bench show while they run, and what they say at the end.

On a terminal one line is rewritten on stderr a few times a second; elsewhere nothing is shown
before the end.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from typing import Final, TextIO

MB: Final = 1_000_000
_SHOW_INTERVAL_S: Final = 0.2
_BAR_CHARS: Final = 30


@dataclass(slots=True)
class Progress:
    """Counts messages and bytes, and shows them."""

    # What is done to messages, as in "sent".
    verb: str
    # Messages in all, None when nobody knows.
    expected: int | None = None
    # What is counted.
    unit: str = "messages"
    stream: TextIO = field(default_factory=lambda: sys.stderr)
    # False where something else is written to the same terminal meanwhile.
    is_shown: bool = True
    count: int = 0
    size_bytes: int = 0
    begun_s: float = field(default_factory=time.perf_counter)
    # When the first and the last message were counted.
    first_s: float | None = None
    last_s: float | None = None
    _shown_s: float = 0.0

    def add(self, size_bytes: int) -> None:
        """Counts one message."""
        self.add_many(1, size_bytes)

    def add_many(self, count: int, size_bytes: int) -> None:
        """Counts messages, given their bytes in all."""
        now_s = time.perf_counter()
        if self.first_s is None:
            self.first_s = now_s
        self.last_s = now_s
        self.count += count
        self.size_bytes += size_bytes
        if now_s - self._shown_s >= _SHOW_INTERVAL_S:
            self._shown_s = now_s
            if self.is_shown and self.stream.isatty():
                self._show()

    @property
    def elapsed_s(self) -> float:
        """Seconds from the begin to the last message."""
        return max((self.last_s or time.perf_counter()) - self.begun_s, 1e-9)

    def clear(self) -> None:
        """Takes the line off the terminal."""
        if self.stream.isatty():
            self.stream.write("\r\x1b[K")
            self.stream.flush()

    def summary(self, elapsed_s: float | None = None) -> str:
        """Returns what was done, for a person."""
        if self.count == 0:
            return f"{self.verb} no messages"
        seconds = self.elapsed_s if elapsed_s is None else elapsed_s
        return (
            f"{self.verb} {self.count:,} messages, {self.size_bytes / MB:,.1f} MB in "
            f"{seconds:.2f} s: {self.count / seconds:,.0f} messages/s, "
            f"{self.size_bytes / MB / seconds:.1f} MB/s"
        )

    def figures(self, elapsed_s: float | None = None) -> dict[str, object]:
        """Returns the same for a program."""
        seconds = self.elapsed_s if elapsed_s is None else elapsed_s
        return {
            "messages": self.count,
            "bytes": self.size_bytes,
            "seconds": round(seconds, 3),
            "messages_per_second": round(self.count / seconds, 1),
            "mb_per_second": round(self.size_bytes / MB / seconds, 2),
        }

    def _show(self) -> None:
        seconds = max(time.perf_counter() - self.begun_s, 1e-9)
        text = f"{self.verb} {self.count:,}"
        if self.expected:
            filled = min(_BAR_CHARS, self.count * _BAR_CHARS // self.expected)
            bar = "#" * filled + "-" * (_BAR_CHARS - filled)
            text = f"[{bar}] {text} of {self.expected:,}"
        rate = self.count / seconds
        mb_rate = self.size_bytes / MB / seconds
        self.stream.write(f"\r\x1b[K{text}  {rate:,.0f} {self.unit}/s  {mb_rate:.1f} MB/s")
        self.stream.flush()
