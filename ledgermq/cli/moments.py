"""Moments as people read and write them; inside, a moment is ms since 1970."""

from __future__ import annotations

import datetime
import time
from typing import Final

from ledgermq.cli.remote import AdminError

FORMS: Final = (
    "now, ISO 8601 such as 2026-11-23T14:30:00+01:00 (without a zone: that of this machine), or ms"
    " since 1970"
)


def local_time(timestamp_ms: int | None) -> str:
    """Returns a moment as ISO 8601 in the zone of this machine; empty when there is none."""
    if timestamp_ms is None or timestamp_ms <= 0:
        return ""
    try:
        moment = datetime.datetime.fromtimestamp(timestamp_ms / 1000).astimezone()
    except (OverflowError, OSError, ValueError):
        # No year has that many digits; a peer wrote it.
        return f"{timestamp_ms} ms"
    return moment.isoformat(timespec="milliseconds")


def moment_ms(text: str) -> int:
    """Reads a moment: now, ISO 8601, ms since 1970, or mqadmin's yyyy-MM-dd#HH:mm:ss:SSS.

    Raises:
        AdminError: it is none of those.
    """
    if text == "now":
        return time.time_ns() // 1_000_000
    if text.isascii() and text.isdigit() and len(text) < 19 and len(text) != 8:
        return int(text)
    try:
        if "#" in text:
            moment = datetime.datetime.strptime(text, "%Y-%m-%d#%H:%M:%S:%f")
        else:
            moment = datetime.datetime.fromisoformat(text)
        return int(moment.timestamp() * 1000)
    except (ValueError, OverflowError, OSError) as error:
        raise AdminError(f"time {text!r}: give {FORMS}, or yyyy-MM-dd#HH:mm:ss:SSS") from error
