"""ClaimsLog: where a reader begins, and that all readers come to the same state."""

import asyncio
from types import SimpleNamespace
from typing import Any

from ledgermq.celery.claims import Claims, Event, Given, Snapshot
from ledgermq.celery.claims_log import ClaimsLog
from ledgermq.client import MessageQueue, PullResult, PullStatus

TASKS = MessageQueue("tasks", "broker", 0)
LOG = MessageQueue("log", "broker", 0)
BATCH = 3


class Broker:
    """A log in memory, and the offsets of the group."""

    def __init__(self) -> None:
        self.entries: list[bytes] = []
        # What lies before was deleted.
        self.least = 0
        self.told: dict[MessageQueue, int] = {}

    async def append(self, body: bytes) -> int:
        self.entries.append(body)
        return len(self.entries) - 1

    async def pull(
        self, queue: MessageQueue, offset: int, *, suspend_s: float | None = None
    ) -> PullResult:
        assert queue == LOG
        found: list[Any] = [
            SimpleNamespace(queue_offset=at, body=self.entries[at])
            for at in range(offset, min(offset + BATCH, len(self.entries)))
        ]
        status = PullStatus.FOUND if found else PullStatus.NO_NEW_MESSAGE
        if offset < self.least:
            status, found = PullStatus.OFFSET_ILLEGAL, []
        return PullResult(
            status=status,
            messages=found,
            next_offset=offset + len(found),
            min_offset=self.least,
            max_offset=len(self.entries),
        )

    async def max_offset(self, queue: MessageQueue) -> int:
        return len(self.entries)

    async def min_offset(self, queue: MessageQueue) -> int:
        return self.least if queue == LOG else 7

    async def committed(self, queue: MessageQueue) -> int | None:
        return self.told.get(queue)

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        self.told[queue] = offset


class Reader:
    """A log that is read, and what it told."""

    def __init__(self, broker: Broker) -> None:
        self.seen: list[tuple[int, list[int]]] = []
        self.beginnings = 0
        self.log = ClaimsLog(
            broker, broker.append, TASKS, LOG, applied=self._applied, begun_anew=self._begun_anew
        )

    def _applied(self, event: Event, given: Given) -> None:
        self.seen.append((event.number, given.offsets))

    def _begun_anew(self) -> None:
        self.beginnings += 1


def state(claims: Claims) -> Snapshot:
    return claims.snapshot(0)


async def takes(broker: Broker, *numbers: int, owner: str = "a") -> None:
    for number in numbers:
        await broker.append(Event(owner=owner, number=number, take=1, end=100).encode())


def test_a_reader_begins_at_the_begin_and_reads_nothing_twice() -> None:
    async def run() -> None:
        broker = Broker()
        await takes(broker, 1, 2, 3, 4)
        await broker.append(b"strange")
        reader = Reader(broker)
        await asyncio.gather(reader.log.load(), reader.log.load())
        await takes(broker, 5)
        await reader.log.load()
        assert reader.seen == [(number, [number - 1]) for number in (1, 2, 3, 4, 5)]

    asyncio.run(run())


def test_a_newcomer_begins_with_the_snapshot_and_what_was_written_beside_it() -> None:
    async def run() -> None:
        broker = Broker()
        old = Reader(broker)
        await takes(broker, 1, 2)
        await old.log.load()
        # Written while the snapshot was on its way.
        await takes(broker, 3)
        await old.log.write_snapshot()
        await takes(broker, 4)
        await old.log.load()
        newcomer = Reader(broker)
        await newcomer.log.load()
        assert [number for number, _ in newcomer.seen] == [3, 4]
        assert state(newcomer.log.claims) == state(old.log.claims)

    asyncio.run(run())


def test_a_snapshot_is_found_without_the_offset_of_the_group() -> None:
    async def run() -> None:
        broker = Broker()
        old = Reader(broker)
        await takes(broker, *range(1, 6))
        await old.log.load()
        await old.log.write_snapshot()
        await takes(broker, 6)
        await old.log.load()
        broker.least, broker.told = 2, {}
        newcomer = Reader(broker)
        await newcomer.log.load()
        assert state(newcomer.log.claims) == state(old.log.claims)

    asyncio.run(run())


def test_without_a_begin_all_readers_begin_anew_alike() -> None:
    async def run() -> None:
        broker = Broker()
        old = Reader(broker)
        await takes(broker, *range(1, 6))
        await old.log.load()
        broker.least, broker.told = 3, {TASKS: 2}
        first, second = Reader(broker), Reader(broker)
        await asyncio.gather(first.log.load(), second.log.load())
        await takes(broker, 1, owner="b")
        for reader in (old, first, second):
            await reader.log.load()
        late = Reader(broker)
        await late.log.load()
        states = [state(reader.log.claims) for reader in (old, first, second, late)]
        assert states[0].held == ((2, "b", 1),)
        assert states[1:] == states[:-1]
        assert old.beginnings > 0

    asyncio.run(run())


def test_a_reader_that_was_left_behind_begins_with_a_snapshot() -> None:
    async def run() -> None:
        broker = Broker()
        slow, quick = Reader(broker), Reader(broker)
        await takes(broker, 1)
        await slow.log.load()
        await takes(broker, 2, 3, 4, 5)
        await quick.log.load()
        await quick.log.write_snapshot()
        broker.least = 5
        await takes(broker, 6)
        await slow.log.load()
        await quick.log.load()
        assert slow.beginnings == 1
        assert state(slow.log.claims) == state(quick.log.claims)

    asyncio.run(run())
