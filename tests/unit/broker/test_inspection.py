"""A look at a consume queue costs a part of a turn, whatever the condition of the group is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

from ledgermq.broker.admin.inspection import InspectionProcessor
from ledgermq.broker.selectors.filters import PropertyMatcher, Subscription
from ledgermq.protocol.command import RemotingCommand
from tests.unit.broker.guarded import record_of

UNITS = 1000


class Queue:
    """One queue with many messages."""

    def queues(self, topic: str) -> list[int]:
        return [0]

    def max_offset(self, topic: str, queue_id: int) -> int:
        return UNITS

    def min_offset(self, topic: str, queue_id: int) -> int:
        return 0

    def queue_units(
        self, topic: str, queue_id: int, offset: int, count_max: int
    ) -> list[tuple[int, int, int]]:
        return [(number * 100, 100, 0) for number in range(offset, offset + count_max)]

    def record_at(self, physical_offset: int) -> bytes:
        return record_of("T", b"")


def look(milliseconds: float) -> tuple[list[dict[str, Any]], float]:
    """Asks for all units, with a condition that takes so long; returns them and the time."""
    now_ms = 0.0

    def is_wanted(properties: Mapping[str, str]) -> bool:
        nonlocal now_ms
        now_ms += milliseconds
        return True

    class Slow(Subscription):
        def find_property_matcher(self) -> PropertyMatcher:
            return is_wanted

    live = SimpleNamespace(subscriptions={"T": Slow("T", "a = 1", "SQL92", 0)})
    unused: Any = MagicMock()
    clients: Any = MagicMock(find_group=lambda group: live)
    store: Any = Queue()
    processor = InspectionProcessor(
        unused, unused, clients, store, unused, lambda: now_ms, lambda: None
    )
    fields = {"topic": "T", "queueId": "0", "index": "0", "count": "9999", "consumerGroup": "g"}
    answer = processor.query_queue(unused, RemotingCommand(code=321, ext_fields=fields))
    assert isinstance(answer, RemotingCommand)
    rows: list[dict[str, Any]] = json.loads(answer.body)["queueData"]
    return rows, now_ms


def test_condition_is_asked_for_as_many_units_as_there_is_time() -> None:
    rows, used_ms = look(0.9)
    assert used_ms < 6 and len(rows) == 6
    assert [row["physicOffset"] for row in rows] == [0, 100, 200, 300, 400, 500]
    assert all(row["eval"] for row in rows)
    # One at least.
    assert len(look(50.0)[0]) == 1


def test_quick_condition_is_asked_for_all_units() -> None:
    assert len(look(0.001)[0]) == UNITS
