"""What a producer stores twice when leaders die: at most once for each try that failed."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ledgermq.client import Message, Producer, ProducerConfig, PullConsumer, SendResult
from ledgermq.client.sends import SendRoad
from tests.e2e.up_cluster import UpCluster
from tests.fault.up_group import small_group, wait_until_whole
from tests.scenarios import run, until

TOPIC = "Copies"
KILLS = 3
BETWEEN = 300


class FailedTries:
    """Counts the tries of each message that failed, as its producer is told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.by_id: Counter[str] = Counter()
        again_or_not = SendRoad._again_or_not

        def count(road: SendRoad, send: Any, error: Any, retry: Any) -> None:
            self.by_id[send.message_id] += 1
            again_or_not(road, send, error, retry)

        monkeypatch.setattr(SendRoad, "_again_or_not", count)


async def send_through_kills(group: UpCluster, acknowledged: dict[str, SendResult]) -> None:
    """Sends pipelined while the leader is killed several times."""
    loop = asyncio.get_running_loop()
    config = ProducerConfig(timeout_s=30.0, in_flight_max=64)
    async with Producer(group.name_server, config=config) as producer:

        async def send() -> None:
            number = 0
            while True:
                number += 1
                key = f"k{number % 7}" if number % 2 else None
                message = Message(TOPIC, b"%d" % number)
                future = await producer.submit(message, ordering_key=key)
                future.add_done_callback(note)
                if number % 8 == 0:
                    await asyncio.sleep(0.004)

        def note(future: asyncio.Future[SendResult]) -> None:
            if future.exception() is None:
                acknowledged[future.result().message_id] = future.result()

        task = loop.create_task(send())
        for _ in range(KILLS):
            goal = len(acknowledged) + BETWEEN
            await until(lambda goal=goal: len(acknowledged) >= goal, "acknowledgements")
            await until(lambda: group.find_leader() is not None, "a leader")
            leader = group.find_leader()
            assert leader is not None
            group.kill(leader)
        goal = len(acknowledged) + BETWEEN
        await until(lambda: len(acknowledged) >= goal, "acknowledgements at the end")
        task.cancel()
        await asyncio.wait([task])


async def stored(name_server: str) -> Counter[str]:
    """How often each message lies in the log, by its id."""
    copies: Counter[str] = Counter()
    async with PullConsumer(name_server) as consumer:
        for queue in await consumer.queues(TOPIC):
            offset = await consumer.min_offset(queue)
            while found := (await consumer.pull(queue, offset)).messages:
                copies.update(one.message_id for one in found)
                offset = found[-1].queue_offset + 1
    return copies


def test_no_send_is_stored_more_often_than_once_for_each_try_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = FailedTries(monkeypatch)

    async def scenario(group: UpCluster) -> None:
        acknowledged: dict[str, SendResult] = {}
        await send_through_kills(group, acknowledged)
        copies = await stored(group.name_server)
        assert acknowledged.keys() <= copies.keys()
        too_many = {id_: n for id_, n in copies.items() if n > 1 + failed.by_id[id_]}
        twice = sum(1 for count in copies.values() if count > 1)
        logging.getLogger(__name__).warning(
            "%d acknowledged, %d failed tries, %d stored more than once",
            *(len(acknowledged), failed.by_id.total(), twice),
        )
        assert too_many == {}

    with small_group(tmp_path) as group:
        wait_until_whole(group)
        run(scenario(group), 200)
