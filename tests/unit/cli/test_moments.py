"""Moments: what is read and what is written."""

from __future__ import annotations

import datetime
import time

import pytest

from ledgermq.cli.moments import local_time, moment_ms
from ledgermq.cli.remote import AdminError


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("0", 0),
        ("1700000000123", 1_700_000_000_123),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-14T23:13:20.123+01:00", 1_700_000_000_123),
        ("2023-11-14 22:13:20+00:00", 1_700_000_000_000),
    ],
)
def test_moment_is_read(text: str, ms: int) -> None:
    assert moment_ms(text) == ms


def test_a_moment_without_a_zone_is_of_this_machine() -> None:
    local = datetime.datetime(2023, 11, 14, 9, 30).timestamp() * 1000
    for text in ("2023-11-14T09:30", "2023-11-14 09:30:00", "2023-11-14#09:30:00:000"):
        assert moment_ms(text) == local
    assert moment_ms("2023-11-14") == datetime.datetime(2023, 11, 14).timestamp() * 1000
    assert abs(moment_ms("now") - time.time() * 1000) < 60_000


@pytest.mark.parametrize("text", ["", "soon", "2023-13-01", "-5", "1e5", "2023-11-14T25:00"])
def test_other_texts_are_refused_with_the_forms(text: str) -> None:
    with pytest.raises(AdminError, match="ISO 8601"):
        moment_ms(text)


def test_what_is_written_is_read_back() -> None:
    for ms in (1, 1_700_000_000_123):
        text = local_time(ms)
        assert moment_ms(text) == ms and "T" in text
    assert local_time(0) == local_time(-1) == local_time(None) == ""
    # A number that a peer wrote and no calendar holds.
    assert local_time(2**62) == f"{2**62} ms"
