"""What the broker says of its clocks."""

from collections.abc import Iterator
from typing import Any

import pytest
from twisted.logger import globalLogPublisher


@pytest.fixture
def log_lines() -> Iterator[list[str]]:
    """What the broker has said since the begin of the test."""
    lines: list[str] = []

    def observe(event: Any) -> None:
        if event["log_namespace"].startswith("ledgermq"):
            lines.append(event["log_format"].format(**event))

    globalLogPublisher.addObserver(observe)
    yield lines
    globalLogPublisher.removeObserver(observe)
