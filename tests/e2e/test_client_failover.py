"""Leaders are killed while a producer sends and a group consumes: nothing acknowledged is lost."""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from ledgermq.client import (
    Message,
    MessageQueue,
    Producer,
    ProducerConfig,
    PushConsumer,
    ReceivedMessage,
    SendResult,
)
from tests.e2e.up_cluster import UpCluster
from tests.scenarios import until

TOPIC = "Failover"
KILLS = 2
KEYS = 20
# Acknowledged between two kills, so that each hits a cluster at work.
BETWEEN_COUNT = 1500


class Traffic:
    """Sends until it is told to stop, and remembers what was acknowledged and what came."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self.is_ending = False
        # Message id -> body.
        self.acknowledged: dict[str, bytes] = {}
        self.failures: list[BaseException] = []
        # Place -> body; and all bodies by message id.
        self.places: dict[tuple[MessageQueue, int], bytes] = {}
        self.received: dict[str, bytes] = {}
        self.twice = 0

    async def send(self) -> None:
        """Sends pipelined, half of it with ordering keys."""
        number = 0
        while not self.is_ending:
            key = str(number % KEYS) if number % 2 else None
            body = b"%s:%d" % ((key or "-").encode(), number)
            future = await self.producer.submit(Message(TOPIC, body), ordering_key=key)
            future.add_done_callback(self._settle(body))
            number += 1
            if number % 16 == 0:
                # A load that leaves the processes of a small machine time to elect.
                await asyncio.sleep(0.004)
        await self.producer.flush()
        await asyncio.sleep(0)

    async def consume(self, message: ReceivedMessage) -> None:
        """The listener of both members."""
        place = (message.queue, message.queue_offset)
        self.twice += place in self.places
        self.places[place] = message.body
        self.received[message.message_id] = message.body

    def missing(self) -> set[str]:
        """Ids that were acknowledged and have not come."""
        return self.acknowledged.keys() - self.received.keys()

    def check_order(self) -> None:
        """Messages of one key lie in one queue, none before its predecessor."""
        of_key: dict[bytes, list[tuple[MessageQueue, int, int]]] = defaultdict(list)
        for (queue, offset), body in self.places.items():
            key, _, number = body.partition(b":")
            if key != b"-":
                of_key[key].append((queue, offset, int(number)))
        assert len(of_key) == KEYS // 2
        for entries in of_key.values():
            assert len({queue for queue, _, _ in entries}) == 1
            numbers = [number for _, _, number in sorted(entries)]
            assert numbers == sorted(numbers)

    def _settle(self, body: bytes) -> Callable[[asyncio.Future[SendResult]], None]:
        def settle(future: asyncio.Future[SendResult]) -> None:
            error = future.exception()
            if error is None:
                self.acknowledged[future.result().message_id] = body
            else:
                self.failures.append(error)

        return settle


async def kill_leaders(cluster: UpCluster, traffic: Traffic) -> None:
    """Kills the leader several times, each time when a good number of messages has passed."""
    for _ in range(KILLS):
        goal = len(traffic.acknowledged) + BETWEEN_COUNT
        await until(lambda goal=goal: len(traffic.acknowledged) >= goal, "acknowledgements")
        await until(lambda: cluster.find_leader() is not None, "a leader")
        leader = cluster.find_leader()
        assert leader is not None
        cluster.kill(leader)
    goal = len(traffic.acknowledged) + BETWEEN_COUNT
    await until(lambda: len(traffic.acknowledged) >= goal, "acknowledgements after the last kill")


def test_acknowledged_messages_survive_the_leader_and_reach_the_group(tmp_path: Path) -> None:
    async def scenario(cluster: UpCluster) -> None:
        name_server = cluster.name_server
        config = ProducerConfig(timeout_s=90.0)
        async with Producer(name_server, config=config) as producer:
            await producer.send(Message(TOPIC, b"-:-1"))
            traffic = Traffic(producer)
            async with (
                PushConsumer(
                    name_server, "readers", TOPIC, traffic.consume, start="first"
                ) as first,
                PushConsumer(
                    name_server, "readers", TOPIC, traffic.consume, start="first"
                ) as second,
            ):
                sending = asyncio.create_task(traffic.send())
                await kill_leaders(cluster, traffic)
                traffic.is_ending = True
                await sending
                await until(lambda: not traffic.missing(), "every acknowledged message")
                await until(lambda: len(first.queues()) == len(second.queues()) == 2, "halves")
        assert traffic.failures == []
        assert all(traffic.received[id_] == body for id_, body in traffic.acknowledged.items())
        traffic.check_order()
        # A group that comes back goes on where it stopped: a new message is the first it sees.
        async with Producer(name_server) as producer:
            last = await producer.send(Message(TOPIC, b"-:last"))
        async with PushConsumer(name_server, "readers", TOPIC) as consumer:
            async with asyncio.timeout(90):
                assert (await anext(consumer)).message_id == last.message_id

    with UpCluster(tmp_path) as cluster:
        asyncio.run(scenario(cluster))
