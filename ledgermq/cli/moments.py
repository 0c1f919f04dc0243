"""Moments as people read and write them; inside, a moment is ms since 1970."""

from __future__ import annotations

import datetime

from ledgermq.cli.remote import AdminError


def local_time(timestamp_ms: int) -> str:
    """Returns a moment in the zone of this machine; empty when there is none."""
    if timestamp_ms <= 0:
        return ""
    moment = datetime.datetime.fromtimestamp(timestamp_ms / 1000).astimezone()
    return moment.isoformat(sep=" ", timespec="milliseconds")


def moment_ms(text: str) -> int:
    """Reads ms since 1970, or mqadmin's yyyy-MM-dd#HH:mm:ss:SSS in the zone of this machine.

    Raises:
        AdminError: it is neither.
    """
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    try:
        moment = datetime.datetime.strptime(text, "%Y-%m-%d#%H:%M:%S:%f")
    except ValueError as error:
        raise AdminError(
            f"time {text!r}: give ms since 1970, or yyyy-MM-dd#HH:mm:ss:SSS"
        ) from error
    return int(moment.timestamp() * 1000)
