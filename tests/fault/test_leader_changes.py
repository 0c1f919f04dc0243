"""The leader is killed, and hands on, while features are at work: nothing is lost, order is kept.

The scenarios run side by side, once, and each test judges one of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator
from typing import NamedTuple

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
from ledgermq.protocol.codes import ONE_WAY_FLAG, RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.properties import decode_properties
from ledgermq.protocol.record import Record
from tests.e2e.wire_client import WireClient, request
from tests.fault.leader_changes import LeaderChanges
from tests.fault.up_group import small_group
from tests.scenarios import until
from tests.waiting import wait_until

# A few seconds on an idle machine; a starved one must not be cut off before it is done.
pytestmark = pytest.mark.timeout(400)
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
        config = ProducerConfig(timeout_s=90.0)
        async with Producer(self._name_server, config=config) as producer:
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

    def places(self) -> set[tuple[MessageQueue, int]]:
        """Where all that was consumed stands."""
        return {(queue, offset) for queue, found in self.offsets.items() for offset in found}

    @property
    def count(self) -> int:
        return sum(map(len, self.offsets.values()))


class Orderly:
    """Two members of a group share the queues of a topic."""

    def __init__(self, changes: LeaderChanges) -> None:
        self._changes = changes
        self.listeners = OrderlyListeners()
        # What a stranger was given by a leader that had not heard of all members.
        self.given: object = None
        self.acked: set[tuple[MessageQueue, int]] = set()

    async def play(self) -> None:
        changes, listeners = self._changes, self.listeners
        sender = Sender(changes.name_server, lambda n: Message("Ordered", b"%d" % n), 8)
        async with self._member("a") as first, self._member("b") as second:
            await until(lambda: len(first.queues()) == len(second.queues()) == 2, "halves")
            await self._wait_for_more(50)
            await changes.kill()
            self.given = await asyncio.to_thread(self._ask_for_all)
            await self._wait_for_more(50)
            await changes.hand_back()
            await self._wait_for_more(100)
            await sender.end()
            self.acked = {(sent.queue, sent.queue_offset) for sent in sender.acked}
            await until(lambda: not self.acked - listeners.places(), "all acknowledged messages")

    def _member(self, name: str) -> PushConsumer:
        return PushConsumer(
            self._changes.name_server, "ordered", "Ordered", self.listeners.of(name),
            start="first", mode="orderly", config=QUICK,
        )  # fmt: skip

    async def _wait_for_more(self, count: int) -> None:
        wanted = self.listeners.count + count
        await until(lambda: self.listeners.count >= wanted, f"{count} more messages in order")

    def _ask_for_all(self) -> object:
        queues = [
            {"topic": "Ordered", "brokerName": "broker-a", "queueId": queue_id}
            for queue_id in range(QUEUES)
        ]
        asked = {"consumerGroup": "ordered", "clientId": "stranger", "mqSet": queues}
        body = json.dumps(asked).encode()

        def answer() -> RemotingCommand | None:
            told = self._changes.ask_leader(
                lambda client: client.ask(RequestCode.LOCK_BATCH_MQ.value, None, body)
            )
            return told if told is not None and told.code == 0 else None

        told = wait_until(answer, what="a leader that serves", deadline_s=60)
        assert told is not None
        return json.loads(told.body)["lockOKMQSet"]


class Late:
    """Messages wait in two levels."""

    def __init__(self, changes: LeaderChanges) -> None:
        self._changes = changes

    async def play(self) -> None:
        sender = Sender(
            self._changes.name_server,
            lambda n: Message("Late", b"%d" % n, delay_level=1 + n % 2),
            1,
        )
        await sender.wait_for_more(200)
        await self._changes.kill()
        await sender.wait_for_more(100)
        await self._changes.hand_back()
        await sender.wait_for_more(100)
        await sender.end()


class Paid:
    """A producer of transactions does not know yet how they end when it is asked."""

    def __init__(self, changes: LeaderChanges) -> None:
        self._changes = changes
        self._outcome: dict[bytes, TransactionState] = {}
        self._asked: set[bytes] = set()

    async def _check(self, message: ReceivedMessage) -> TransactionState:
        self._asked.add(message.body)
        return self._outcome.get(message.body, TransactionState.UNKNOWN)

    async def play(self) -> None:
        changes = self._changes
        async with TransactionalProducer(
            changes.name_server,
            "payers",
            self._check,
            config=ProducerConfig(client=CLIENT, timeout_s=90.0),
        ) as producer:
            halves = [await producer.send_half(Message("Paid", b"%02d" % n)) for n in range(40)]
            await until(lambda: len(self._asked) == 40, "questions about all")
            await changes.kill()
            # Half of them end by what the producer knows, the rest when it is asked again.
            for number, half in enumerate(halves[:20]):
                await (producer.commit if number % 2 else producer.rollback)(half)
                self._decide(number)
            await changes.hand_back()
            for number in range(20, 40):
                self._decide(number)
            await asyncio.to_thread(self._wait_for_the_end)

    def _wait_for_the_end(self) -> None:
        wait_until(
            lambda: is_worked_off(self._changes),
            what="the end of all transactions",
            deadline_s=120,
        )

    def _decide(self, number: int) -> None:
        state = TransactionState.COMMIT if number % 2 else TransactionState.ROLLBACK
        self._outcome[b"%02d" % number] = state


def is_worked_off(changes: LeaderChanges) -> bool:
    """Whether no half message is left that nobody ended."""
    group = {"consumerGroup": "CID_RMQ_SYS_TRANS", "topic": HALF_TOPIC, "queueId": "0"}

    def ends_meet(client: WireClient) -> bool:
        begin = client.ask(RequestCode.QUERY_CONSUMER_OFFSET.value, group)
        end = client.ask(RequestCode.GET_MAX_OFFSET.value, group)
        return begin.code == end.code == 0 and begin.ext_fields == end.ext_fields

    return changes.ask_leader(ends_meet) is True


class Tried:
    """Each message fails twice."""

    def __init__(self, changes: LeaderChanges) -> None:
        self._changes = changes
        # How often each had failed when it came.
        self.tries: dict[bytes, list[int]] = defaultdict(list)

    async def _consume(self, message: ReceivedMessage) -> None:
        self.tries[message.body].append(message.reconsume_times)
        if message.reconsume_times < 2:
            raise ValueError("not yet")

    async def play(self) -> None:
        changes, tries = self._changes, self.tries
        sender = Sender(changes.name_server, lambda n: Message("Tried", b"%d" % n), 1)
        await sender.wait_for_more(1)
        async with PushConsumer(
            changes.name_server, "triers", "Tried", self._consume, start="first", config=QUICK
        ):
            await until(lambda: len(tries) > 100, "failures")
            await changes.kill()
            await sender.wait_for_more(50)
            await changes.hand_back()
            await sender.wait_for_more(50)
            await sender.end()
            count = len(sender.acked)
            await until(lambda: sum(2 in seen for seen in tries.values()) == count, "successes")


class Told:
    """A stock client goes on telling a member that leads no longer what it consumed."""

    def __init__(self, changes: LeaderChanges) -> None:
        self._changes = changes
        # Of queue 0, as the leader knows them in the end.
        self.offsets: list[str] = []

    async def play(self) -> None:
        await asyncio.to_thread(wait_until, self._make_topic, what="the topic")
        for change in (self._changes.kill, self._changes.hand_back):
            await change()
            number = len(self.offsets) + 1
            await asyncio.to_thread(self._tell, 10 * number)
            await asyncio.to_thread(self._wait_for, 10 * number)

    def _make_topic(self) -> bool:
        sent = self._changes.ask_leader(lambda client: client.send("Told", 0, b"first"))
        return sent is not None and sent.code == 0

    def _tell(self, offset: int) -> None:
        group = {"consumerGroup": "told", "topic": "Told", "queueId": "0"}
        asked = request(
            RequestCode.UPDATE_CONSUMER_OFFSET.value,
            {**group, "commitOffset": str(offset)},
            flag=ONE_WAY_FLAG,
        )

        def is_told() -> bool:
            # At the leader it would be stored at once.
            for address in self._changes.follower_addresses():
                with contextlib.suppress(OSError), WireClient(address) as client:
                    client.write(asked)
                    return True
            return False

        wait_until(is_told, what="a follower that listens")

    def _wait_for(self, offset: int) -> None:
        group = {"consumerGroup": "told", "topic": "Told", "queueId": "0"}

        def found() -> str | None:
            answer = self._changes.ask_leader(
                lambda client: client.ask(RequestCode.QUERY_CONSUMER_OFFSET.value, group)
            )
            told = None if answer is None else (answer.ext_fields or {}).get("offset")
            return told if told == str(offset) else None

        known = wait_until(found, what=f"offset {offset} at the leader", deadline_s=60)
        assert known is not None
        self.offsets.append(known)


class Played(NamedTuple):
    """All scenarios at their end."""

    told: Told
    orderly: Orderly
    tried: Tried
    # The leader's queues.
    queues: dict[tuple[str, int], list[Record]]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    logger = logging.getLogger("ledgermq.client")
    level = logger.level
    # Of failures that are wanted.
    logger.setLevel(logging.ERROR)
    try:
        with small_group(tmp_path_factory.mktemp("group"), *SETTINGS) as group:
            changes = LeaderChanges(group)
            told, orderly, tried = Told(changes), Orderly(changes), Tried(changes)
            scenarios = (told, orderly, tried, Late(changes), Paid(changes))
            changes.play(*(scenario.play() for scenario in scenarios))
            yield Played(told, orderly, tried, read_queues(changes))
    finally:
        logger.setLevel(level)


def read_queues(changes: LeaderChanges) -> dict[tuple[str, int], list[Record]]:
    """Reads what tests look at, when all that waits was delivered."""
    places = [("SCHEDULE_TOPIC_XXXX", 0), ("SCHEDULE_TOPIC_XXXX", 1), (HALF_TOPIC, 0)]
    places += [(topic, queue_id) for topic in ("Late", "Paid") for queue_id in range(QUEUES)]

    def read() -> dict[tuple[str, int], list[Record]]:
        found = changes.ask_leader(
            lambda client: {place: client.read_queue(*place) for place in places}
        )
        if found is None:
            return {}
        waited = sum(len(found["SCHEDULE_TOPIC_XXXX", queue_id]) for queue_id in (0, 1))
        come = sum(len(found["Late", queue_id]) for queue_id in range(QUEUES))
        return found if come >= waited else {}

    return wait_until(read, what="all deliveries", deadline_s=60)


def test_orderly_consumption(played: Played) -> None:
    """A queue stays with its member whoever leads, and is consumed in its order."""
    orderly = played.orderly
    assert orderly.given == []
    assert not orderly.listeners.overlaps
    for offsets in orderly.listeners.offsets.values():
        # What comes again comes after it came in its order.
        assert list(dict.fromkeys(offsets)) == list(range(max(offsets) + 1))


def test_delay_level(played: Played) -> None:
    """What waits in a level is delivered in its order, each message once."""

    def keys(topic: str, queue_id: int) -> list[str]:
        records = played.queues[topic, queue_id]
        return [decode_properties(record.properties)["UNIQ_KEY"] for record in records]

    delivered = [key for queue_id in range(QUEUES) for key in keys("Late", queue_id)]
    assert len(delivered) >= 400
    for level in (1, 2):
        waited = keys("SCHEDULE_TOPIC_XXXX", level - 1)
        of_level = set(waited)
        assert [key for key in delivered if key in of_level] == waited


def test_transaction_check_back(played: Played) -> None:
    """The next leader knows the half messages that this one asked about, and which are the same."""
    # A send without an answer is sent again: then there are two transactions.
    sent = Counter(
        half.body
        for half in played.queues[HALF_TOPIC, 0]
        if "TRANSACTION_CHECK_TIMES" not in decode_properties(half.properties)
    )
    paid = [record for queue_id in range(QUEUES) for record in played.queues["Paid", queue_id]]
    found = Counter(record.body for record in paid)
    assert found.keys() == {body for body in sent if int(body) % 2}
    assert all(count <= sent[body] for body, count in found.items())


def test_retries(played: Played) -> None:
    """A message that fails comes again after its delays, whoever leads, until it succeeds."""
    for seen in played.tried.tries.values():
        assert list(dict.fromkeys(seen)) == [0, 1, 2]


def test_offsets_that_are_told_to_the_wrong_member(played: Played) -> None:
    """They reach the leader."""
    assert played.told.offsets == ["10", "20"]
