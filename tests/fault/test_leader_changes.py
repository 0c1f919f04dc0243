"""The leader is killed, and hands on, while a feature is at work: nothing lost, order kept."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator

import pytest

from ledgermq.client import (
    ClientConfig,
    ConsumerConfig,
    Message,
    MessageQueue,
    Producer,
    ProducerConfig,
    PushConsumer,
    ReceivedMessage,
    SendResult,
    TransactionalProducer,
    TransactionState,
)
from ledgermq.protocol.codes import RequestCode
from tests.e2e.wire_client import WireClient
from tests.fault.leader_changes import LeaderChanges, play, until
from tests.fault.up_group import UpGroup
from tests.waiting import wait_until

# What waits, waits for a second; a failed message takes level 3, then 4.
SETTINGS = (
    "messageDelayLevel=1s 1s 1s 2s",
    "transactionCheckInterval=300",
    "transactionTimeOut=300",
    "transactionCheckMax=1000",
    "flushDiskType=ASYNC_FLUSH",
)
# Clients that look soon who leads.
CLIENT = ClientConfig(route_interval_s=0.3, heartbeat_interval_s=0.3)
QUICK = ConsumerConfig(
    client=CLIENT, orderly_pause_s=0.02, commit_interval_s=0.2, rebalance_interval_s=0.5
)
QUEUES = 4
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"


@pytest.fixture(scope="module")
def changes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LeaderChanges]:
    with UpGroup(tmp_path_factory.mktemp("group"), *SETTINGS) as group:
        yield LeaderChanges(group)


class Sender:
    """Sends numbers, one after the other, until it is told to end."""

    def __init__(self, name_server: str, message: Callable[[int], Message], keys: int) -> None:
        self._name_server = name_server
        self._message = message
        self._keys = keys
        self._is_ending = False
        self.acked: list[SendResult] = []
        self._task = asyncio.create_task(self._send())

    async def _send(self) -> None:
        async with Producer(self._name_server) as producer:
            number = 0
            while not self._is_ending:
                key = str(number % self._keys)
                self.acked.append(await producer.send(self._message(number), ordering_key=key))
                number += 1
                await asyncio.sleep(0.002)

    async def wait_for_more(self, count: int) -> None:
        wanted = len(self.acked) + count
        await until(lambda: len(self.acked) >= wanted, f"{count} more acknowledged messages")

    async def end(self) -> None:
        self._is_ending = True
        await self._task


class OrderlyListeners:
    """What the members of a group consumed, in its order."""

    def __init__(self) -> None:
        self.offsets: dict[MessageQueue, list[int]] = defaultdict(list)
        self._in_work: dict[MessageQueue, str] = {}
        # Who was given a message while another of the same queue was still in work.
        self.overlaps: list[str] = []

    def of(self, member: str) -> Callable[[ReceivedMessage], Awaitable[None]]:
        async def consume(message: ReceivedMessage) -> None:
            queue = message.queue
            if queue in self._in_work:
                self.overlaps.append(f"{member} beside {self._in_work[queue]} in {queue}")
            self._in_work[queue] = member
            await asyncio.sleep(0.001)
            self._in_work.pop(queue, None)
            self.offsets[queue].append(message.queue_offset)

        return consume

    @property
    def count(self) -> int:
        return sum(map(len, self.offsets.values()))


def test_orderly_consumption(changes: LeaderChanges) -> None:
    """A queue stays with its member whoever leads, and is consumed in its order."""

    async def scenario() -> None:
        listeners = OrderlyListeners()
        sender = Sender(changes.name_server, lambda n: Message("Ordered", b"%d" % n), 8)

        def member(name: str) -> PushConsumer:
            return PushConsumer(
                changes.name_server, "ordered", "Ordered", listeners.of(name),
                start="first", mode="orderly", config=QUICK,
            )  # fmt: skip

        async def wait_for_more(count: int) -> None:
            wanted = listeners.count + count
            await until(lambda: listeners.count >= wanted, f"{count} more messages")

        async with member("a") as first, member("b") as second:
            await until(lambda: len(first.queues()) == len(second.queues()) == 2, "halves")
            await wait_for_more(50)
            killed = await changes.leader()
            leader = await changes.kill()
            # Nobody else gets a queue from a leader that never heard of its members.
            queues = [
                {"topic": "Ordered", "brokerName": "broker-a", "queueId": queue_id}
                for queue_id in range(QUEUES)
            ]
            asked = {"consumerGroup": "ordered", "clientId": "stranger", "mqSet": queues}
            with WireClient(leader["address"]) as client:
                answer = client.ask(
                    RequestCode.LOCK_BATCH_MQ.value, None, json.dumps(asked).encode()
                )
            assert answer.code == 0 and json.loads(answer.body)["lockOKMQSet"] == []
            await wait_for_more(50)
            await changes.whole()
            await changes.hand_on(killed["id"])
            await wait_for_more(100)
            await sender.end()
            acked = {(sent.queue, sent.queue_offset) for sent in sender.acked}

            def missing() -> set[tuple[MessageQueue, int]]:
                return acked - {(q, n) for q, found in listeners.offsets.items() for n in found}

            await until(lambda: not missing(), "all that was acknowledged")
        assert not listeners.overlaps
        for offsets in listeners.offsets.values():
            # What comes again comes after it came in its order.
            assert list(dict.fromkeys(offsets)) == list(range(max(offsets) + 1))

    play(scenario())


def test_delay_level(changes: LeaderChanges) -> None:
    """What waits in a level is delivered in its order, each message once."""

    async def scenario() -> None:
        sender = Sender(
            changes.name_server, lambda n: Message("Late", b"%d" % n, delay_level=1 + n % 2), 1
        )
        await sender.wait_for_more(300)
        await changes.kill()
        await sender.wait_for_more(200)
        await changes.whole()
        await changes.hand_on()
        await sender.wait_for_more(200)
        await sender.end()

    def queue(topic: str, queue_id: int) -> list[str]:
        with WireClient(changes.leader_address()) as client:
            return [unique_key(record.properties) for record in client.read_queue(topic, queue_id)]

    play(scenario())
    waited = [queue("SCHEDULE_TOPIC_XXXX", level - 1) for level in (1, 2)]
    total = sum(map(len, waited))
    assert total >= 700
    wait_until(
        lambda: sum(len(queue("Late", queue_id)) for queue_id in range(QUEUES)) >= total,
        what="all deliveries",
        deadline_s=60,
    )
    delivered = [key for queue_id in range(QUEUES) for key in queue("Late", queue_id)]
    for keys in waited:
        assert [key for key in delivered if key in set(keys)] == keys


def unique_key(properties: bytes | str) -> str:
    text = properties if isinstance(properties, str) else properties.decode()
    found = re.search("UNIQ_KEY\x01([^\x02]*)", text)
    assert found is not None
    return found.group(1)


def test_transaction_check_back(changes: LeaderChanges) -> None:
    """The next leader knows the half messages that this one asked about, and which are the same."""

    async def scenario() -> None:
        outcome: dict[bytes, TransactionState] = {}
        asked: Counter[bytes] = Counter()

        async def check(message: ReceivedMessage) -> TransactionState:
            asked[message.body] += 1
            return outcome.get(message.body, TransactionState.UNKNOWN)

        def end_of(number: int) -> TransactionState:
            return TransactionState.COMMIT if number % 2 else TransactionState.ROLLBACK

        async with TransactionalProducer(
            changes.name_server, "payers", check, config=ProducerConfig(client=CLIENT)
        ) as producer:
            bodies = [b"%02d" % number for number in range(40)]
            halves = [await producer.send_half(Message("Paid", body)) for body in bodies]
            await until(lambda: len(asked) == len(bodies), "questions about all")
            await changes.kill()
            # Half of them end by what the producer knows, the rest when it is asked again.
            for number, half in enumerate(halves[:20]):
                await (producer.commit if number % 2 else producer.rollback)(half)
                outcome[bodies[number]] = end_of(number)
            await changes.whole()
            await changes.hand_on()
            for number in range(20, 40):
                outcome[bodies[number]] = end_of(number)
            await until(lambda: is_worked_off(changes.leader_address()), "the end of all")

    play(scenario())
    with WireClient(changes.leader_address()) as client:
        halves = client.read_queue(HALF_TOPIC, 0)
        paid = [
            record for queue_id in range(QUEUES) for record in client.read_queue("Paid", queue_id)
        ]
    # A send without an answer is sent again: then there are two transactions.
    sent = Counter(
        half.body for half in halves if b"TRANSACTION_CHECK_TIMES" not in half.properties
    )
    found = Counter(record.body for record in paid)
    assert found.keys() == {body for body in sent if int(body) % 2}
    assert all(count <= sent[body] for body, count in found.items())


def is_worked_off(address: str) -> bool:
    """Whether no half message is left that nobody ended."""
    group = {"consumerGroup": "CID_RMQ_SYS_TRANS", "topic": HALF_TOPIC, "queueId": "0"}
    with WireClient(address) as client:
        begin = client.ask(RequestCode.QUERY_CONSUMER_OFFSET.value, group)
        end = client.ask(RequestCode.GET_MAX_OFFSET.value, group)
    return begin.code == end.code == 0 and begin.ext_fields == end.ext_fields


def test_retries(changes: LeaderChanges, caplog: pytest.LogCaptureFixture) -> None:
    """A message that fails comes again after its delays, whoever leads, until it succeeds."""
    caplog.set_level(logging.ERROR, "ledgermq.client")

    async def scenario() -> None:
        tries: dict[bytes, list[int]] = defaultdict(list)

        async def consume(message: ReceivedMessage) -> None:
            tries[message.body].append(message.reconsume_times)
            if message.reconsume_times < 2:
                raise ValueError("not yet")

        sender = Sender(changes.name_server, lambda n: Message("Tried", b"%d" % n), 1)
        async with PushConsumer(
            changes.name_server, "triers", "Tried", consume, start="first", config=QUICK
        ):
            await until(lambda: len(tries) > 100, "failures")
            await changes.kill()
            await sender.wait_for_more(50)
            await changes.whole()
            await changes.hand_on()
            await sender.wait_for_more(50)
            await sender.end()
            count = len(sender.acked)
            await until(lambda: sum(2 in seen for seen in tries.values()) == count, "successes")
        for seen in tries.values():
            assert list(dict.fromkeys(seen)) == [0, 1, 2]

    play(scenario())
