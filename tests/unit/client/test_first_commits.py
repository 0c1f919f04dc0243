"""The first offset of a group for a topic is told alone: stock brokers forget others beside it."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from ledgermq.client.config import ConsumerConfig
from ledgermq.client.first_commits import FirstCommits
from ledgermq.client.queue_requests import QueueRequests
from ledgermq.protocol.bodies import MessageQueue
from ledgermq.protocol.headers import PullMessageRequestHeader
from ledgermq.protocol.sysflag import PULL_COMMIT_OFFSET
from tests.scenarios import run

_S = 20.0


class StockTable:
    """Offsets as a stock broker takes them over: two threads may both find no table of a topic."""

    def __init__(self) -> None:
        self.tables: dict[tuple[str, str], dict[int, int]] = {}
        self.failures_left = 0
        self.most = self.now = 0

    async def put(self, queue: MessageQueue, offset: int) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        place = queue.broker_name, queue.topic
        table = self.tables.get(place)
        try:
            await asyncio.sleep(0.001)
            if self.failures_left:
                self.failures_left -= 1
                raise ConnectionError("gone")
        finally:
            self.now -= 1
        if table is None:
            table = self.tables[place] = {}
        table[queue.queue_id] = offset


def _queues(topic: str = "T", broker: str = "b") -> list[MessageQueue]:
    return [MessageQueue(topic, broker, number) for number in range(8)]


async def _tell(commits: FirstCommits, table: StockTable, queues: list[MessageQueue]) -> list[bool]:
    """Tells 10 for each queue at once; returns which of them the broker said yes to."""
    told = await asyncio.gather(
        *(commits.tell(queue, lambda queue=queue: table.put(queue, 10)) for queue in queues),
        return_exceptions=True,
    )
    return [one is None for one in told]


def test_all_offsets_that_the_broker_said_yes_to_are_there() -> None:
    async def scenario() -> None:
        table, commits = StockTable(), FirstCommits()
        queues = [*_queues(), *_queues("U"), *_queues("T", "c")]
        assert all(await _tell(commits, table, queues))
        assert table.tables == {
            place: dict.fromkeys(range(8), 10) for place in (("b", "T"), ("b", "U"), ("c", "T"))
        }
        # The others went out together.
        assert table.most == 21

    run(scenario(), _S)


def test_a_stock_broker_forgets_offsets_without_it() -> None:
    """The broker of these tests is as bad as a real one."""

    async def scenario() -> None:
        table = StockTable()
        await asyncio.gather(*(table.put(queue, 10) for queue in _queues()))
        assert len(table.tables["b", "T"]) == 1

    run(scenario(), _S)


def test_a_first_one_that_fails_keeps_none_back_and_the_next_is_the_first() -> None:
    async def scenario() -> None:
        table, commits = StockTable(), FirstCommits()
        table.failures_left = 8
        assert not any(await _tell(commits, table, _queues()))
        assert table.most == 7 and not commits.is_behind(_queues()[0])
        assert all(await _tell(commits, table, _queues()))
        assert table.tables["b", "T"] == dict.fromkeys(range(8), 10)

    run(scenario(), _S)


def test_one_that_is_given_up_keeps_none_back() -> None:
    async def scenario() -> None:
        table, commits = StockTable(), FirstCommits()
        first, *others = _queues()

        async def hang() -> None:
            await asyncio.Event().wait()

        stuck = asyncio.create_task(commits.tell(first, hang))
        await asyncio.sleep(0)
        waiting = asyncio.create_task(_tell(commits, table, others))
        await asyncio.sleep(0.01)
        assert not waiting.done() and not table.tables and not commits.is_behind(first)
        stuck.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stuck
        assert all(await waiting)

    run(scenario(), _S)


def test_pulls_tell_offsets_behind_the_first() -> None:
    async def scenario() -> None:
        table, commits = StockTable(), FirstCommits()
        first, second, *_ = _queues()
        assert not commits.is_behind(first)
        telling = asyncio.create_task(_tell(commits, table, [first]))
        await asyncio.sleep(0)
        assert not commits.is_behind(second)
        await telling
        assert commits.is_behind(second) and not commits.is_behind(_queues("U")[0])

    run(scenario(), _S)


def test_requests_of_a_group_go_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits go out behind the first one, and no pull tells an offset before."""
    flags: list[int] = []

    class Sent(Exception):
        pass

    async def scenario() -> None:
        table = StockTable()

        async def ask_well(_: QueueRequests, queue: MessageQueue, *told: Any) -> None:
            await table.put(queue, told[1].commit_offset)

        async def ask(_: QueueRequests, queue: MessageQueue, command: Any, **__: Any) -> None:
            flags.append(command.header(PullMessageRequestHeader).sys_flag)
            raise Sent

        monkeypatch.setattr(QueueRequests, "_ask_well", ask_well)
        monkeypatch.setattr(QueueRequests, "_ask", ask)
        requests = QueueRequests(cast(Any, None), "g", ConsumerConfig())
        for _ in range(2):
            with pytest.raises(Sent):
                await requests.pull(_queues()[0], 0, commit_offset=5)
            await asyncio.gather(*(requests.commit(queue, 10) for queue in _queues()))
        assert table.tables["b", "T"] == dict.fromkeys(range(8), 10)

    run(scenario(), _S)
    assert [bool(told & PULL_COMMIT_OFFSET) for told in flags] == [False, True]
