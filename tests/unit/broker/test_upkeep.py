"""What a broker does from time to time takes a bounded part of its reactor's time."""

from collections.abc import Callable
from typing import Any
from unittest.mock import MagicMock

import pytest

from ledgermq.broker.config import load_broker_config
from ledgermq.broker.service import upkeep
from ledgermq.broker.service.schedule import Schedule
from ledgermq.broker.service.upkeep import Upkeep
from ledgermq.commitlog import DamagedFileError
from ledgermq.commitlog.scrub import Scrub
from tests.unit.commitlog.single_member import Broker, message


class CountedClock:
    """Monotonic seconds; each look at it takes 3 ms."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        self.seconds += 0.003
        return self.seconds


def scrubbing(scrub: Any, told: list[Exception], **settings: str) -> Callable[[], None]:
    """Returns the periodic look of a broker with that scrub."""
    config = load_broker_config(None, {"brokerName": "b", "brokerIP1": "127.0.0.1", **settings})
    periodic: dict[str, Callable[[], None]] = {}
    schedule = MagicMock(spec=Schedule)
    schedule.every.side_effect = lambda _, function: periodic.update(
        {getattr(function, "__name__", ""): function}
    )
    parts: Any = MagicMock()
    storage: Any = MagicMock(scrub=scrub)
    Upkeep(
        config, parts, parts, storage, parts, parts, parts, parts, parts,
        clock_ms=lambda: 0.0, flush_failed=parts, damage_found=told.append,
    ).start(schedule)  # fmt: skip
    return periodic["_scrub"]


def test_look_at_the_log_ends_with_its_time_whatever_was_stored(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few messages with thousands of keys kept a broker from answering for minutes."""
    broker: Any = Broker(tmp_path, index_slot_count=1, index_entry_count=10_000)
    broker.lead()
    keys = b"KEYS\x01" + b" ".join(b"%d" % number for number in range(3000))
    for _ in range(3):
        broker.send(message(properties=keys))
    scrub: Scrub = broker.store.make_scrub()
    clock = CountedClock()
    monkeypatch.setattr(upkeep.time, "monotonic", clock)
    told: list[Exception] = []
    # Bytes are no bound here.
    look = scrubbing(scrub, told, scrubBytesPerSecond="1073741824")
    looks = longest_ms = 0.0
    while scrub.round_count == 0:
        begin = clock.seconds
        look()
        longest_ms = max(longest_ms, (clock.seconds - begin) * 1000)
        looks += 1
    # 3 messages of 12 pieces of work each, and some 6 pieces a look.
    assert 5 <= looks <= 12 and longest_ms < 30
    assert told == []


def test_damage_is_told_and_ends_no_look(monkeypatch: pytest.MonkeyPatch) -> None:
    error = DamagedFileError("key index", "x", 1, 2)
    scrub = MagicMock(spec=Scrub)
    scrub.step.side_effect = error
    told: list[Exception] = []
    scrubbing(scrub, told)()
    assert told == [error]
