"""Producers and consumers of one Client: one connection, one id, one heartbeat, and their ends."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from ledgermq.client import (
    Client,
    ClientConfig,
    ClosedError,
    ConfigError,
    ConsumerConfig,
    Message,
    MessageQueue,
    ProducerConfig,
    ReceivedMessage,
    TransactionState,
    blocking,
)
from ledgermq.protocol import properties as names
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers import (
    CheckTransactionStateRequestHeader,
    UnregisterClientRequestHeader,
)
from ledgermq.protocol.headers.send import ReplyMessageRequestHeader
from ledgermq.protocol.heartbeat import HeartbeatData
from ledgermq.protocol.properties import format_properties
from ledgermq.protocol.record import encode_record
from ledgermq.protocol.running_info import ConsumerRunningInfo
from tests.unit.client.virtual_broker import Broker, Link
from tests.unit.client.virtual_net import Net, run, true

NAMES = "127.0.0.1:9876"
BROKER = "127.0.0.1:10911"
_HOST = (b"\x7f\x00\x00\x01", 1)


class Heard:
    """What a broker heard of its clients."""

    def __init__(self, broker: Broker) -> None:
        # Groups of producers and consumers of the last heartbeat; groups that were left.
        self.groups: tuple[set[str], set[str]] = (set(), set())
        self.ids: set[str] = set()
        self.left: list[str | None] = []
        broker.on_request = self._take

    def _take(self, link: Link, request: RemotingCommand) -> bool:
        if request.code == RequestCode.HEART_BEAT:
            data = HeartbeatData.decode(request.body)
            self.ids.add(data.client_id)
            if data.producer_data_set or data.consumer_data_set:
                self.groups = (
                    {one.group_name for one in data.producer_data_set},
                    {one.group_name for one in data.consumer_data_set},
                )
        if request.code == RequestCode.UNREGISTER_CLIENT:
            header = request.header(UnregisterClientRequestHeader)
            self.left += [g for g in (header.producer_group, header.consumer_group) if g]
        return False


async def nothing(message: ReceivedMessage) -> None:
    """Consumes."""


def test_all_share_one_connection_one_id_and_one_heartbeat() -> None:
    async def scenario(net: Net) -> None:
        heard = Heard(net.cluster(NAMES, BROKER))
        came: list[bytes] = []

        async def listen(message: ReceivedMessage) -> None:
            came.append(message.body)

        async with Client(NAMES) as client:
            async with (
                client.producer("p") as producer,
                client.push_consumer("one", "T", listen, start="first"),
                client.push_consumer("two", "T", listen, start="first", mode="orderly"),
                client.lite_pull_consumer("three", start="first") as lite,
                client.pull_consumer("four") as reader,
            ):
                await lite.subscribe("T")
                sent = await producer.send(Message("T", b"x"))
                await true(lambda: came == [b"x"] * 2)
                assert [one.body for one in await lite.poll(timeout_s=60)] == [b"x"]
                found = await reader.pull(sent.queue, sent.queue_offset)
                assert [one.body for one in found.messages] == [b"x"]
                assert heard.groups == ({"p"}, {"one", "two", "three"})
                assert heard.ids == {client.client_id}
                assert sorted(net.connected) == [BROKER, NAMES]
            assert sorted(heard.left) == ["one", "p", "three", "two"]
            await asyncio.sleep(60)
            # It stays open, and makes others.
            async with client.producer() as producer:
                await producer.send(Message("T", b"y"))
            assert sorted(net.connected) == [BROKER, NAMES]

    run(scenario)


def test_group_stays_as_long_as_one_of_its_producers() -> None:
    async def scenario(net: Net) -> None:
        heard = Heard(net.cluster(NAMES, BROKER))
        async with Client(NAMES) as client:
            async with client.producer("p") as first:
                await first.send(Message("T", b"x"))
                async with client.producer("p") as second:
                    await second.send(Message("T", b"y"))
                assert heard.left == []
                await first.send(Message("T", b"z"))
            assert heard.left == ["p"]

    run(scenario)


def test_second_consumer_of_a_group_is_refused_while_the_first_is_open() -> None:
    async def scenario(net: Net) -> None:
        net.cluster(NAMES, BROKER)
        async with Client(NAMES) as client:
            async with client.push_consumer("g", "T", nothing):
                with pytest.raises(ConfigError, match="group g has a consumer of this client"):
                    await client.push_consumer("g", "T", nothing).__aenter__()
            async with client.push_consumer("g", "T", nothing) as again:
                await true(lambda: len(again.queues()) == 4)

    run(scenario)


@pytest.mark.parametrize(
    "make",
    [
        lambda client: client.producer("p"),
        lambda client: client.push_consumer("g", "T", nothing),
        lambda client: client.push_consumer("g", "T"),
        lambda client: client.lite_pull_consumer("g"),
        lambda client: client.pull_consumer("g"),
    ],
)
def test_what_was_closed_is_not_opened_again(make: Callable[[Client], Any]) -> None:
    async def scenario(net: Net) -> None:
        net.cluster(NAMES, BROKER)
        async with Client(NAMES) as client:
            made = make(client)
            async with made:
                await asyncio.sleep(1)
            with pytest.raises(ClosedError, match="was closed; make a new one"):
                await made.__aenter__()
            await made.close()
            async with make(client):
                await asyncio.sleep(1)

    run(scenario)


@pytest.mark.parametrize("is_all", [False, True])
def test_held_call_ends_when_its_consumer_or_the_client_is_closed(is_all: bool) -> None:
    async def scenario(net: Net) -> None:
        net.cluster(NAMES, BROKER)
        loop = asyncio.get_running_loop()
        client = Client(NAMES)
        async with client:
            reader = client.pull_consumer()
            await reader.__aenter__()
            queue = MessageQueue("T", "b", 0)
            held = loop.create_task(reader.pull(queue, 0, suspend_s=600))
            await asyncio.sleep(10)
            begun_s = loop.time()
            await (client if is_all else reader).close()
            with pytest.raises(ClosedError):
                await held
            assert loop.time() - begun_s < 0.1
            assert len([one for one in net.wires if not one.is_closing()]) == (0 if is_all else 2)

    run(scenario)


def test_client_closes_what_was_made_of_it() -> None:
    async def scenario(net: Net) -> None:
        heard = Heard(net.cluster(NAMES, BROKER))
        async with Client(NAMES) as client:
            producer = client.producer("p")
            await producer.__aenter__()
            sent = await producer.submit(Message("T", b"x"))
            consumer = client.push_consumer("g", "T", nothing, start="first")
            await consumer.__aenter__()
            await sent
            await true(lambda: len(consumer.queues()) == 4)
        assert sorted(heard.left) == ["g", "p"]
        with pytest.raises(ClosedError):
            await producer.send(Message("T", b"y"))
        with pytest.raises(ClosedError, match="client"):
            await client.producer().__aenter__()
        before = len(asyncio.all_tasks())
        assert before == 1

    run(scenario)


def test_question_goes_to_the_consumer_of_its_group() -> None:
    async def scenario(net: Net) -> None:
        broker = net.cluster(NAMES, BROKER)
        answers: list[RemotingCommand] = []
        broker.on_answer = answers.append
        async with (
            Client(NAMES) as client,
            client.push_consumer("one", "T", nothing),
            client.push_consumer("two", "U", nothing),
        ):
            for group in ("two", "one", "none"):
                question = RemotingCommand.request(RequestCode.GET_CONSUMER_RUNNING_INFO)
                question.ext_fields = {"consumerGroup": group, "clientId": client.client_id}
                net.ask(BROKER, question)
            await true(lambda: len(answers) == 3)
        topics = [
            {one.topic for one in ConsumerRunningInfo.decode(answer.body).subscription_set}
            for answer in answers[:2]
        ]
        assert topics == [{"U", "%RETRY%two"}, {"T", "%RETRY%one"}]
        assert answers[2].code == 1 and "<none> not exist" in (answers[2].remark or "")

    run(scenario)


def test_reply_goes_to_the_producer_that_asked() -> None:
    async def scenario(net: Net) -> None:
        broker = net.cluster(NAMES, BROKER)
        async with (
            Client(NAMES) as client,
            client.producer("first"),
            client.producer("second") as asker,
        ):
            loop = asyncio.get_running_loop()
            asked = loop.create_task(asker.request(Message("T", b"?"), timeout_s=60))
            await true(lambda: any(broker.stored.values()))
            (waiting,) = asker._replies._waiting
            pushed = RemotingCommand.request(
                RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
                ReplyMessageRequestHeader(
                    producer_group="x", topic="R", default_topic="", default_topic_queue_nums=4,
                    queue_id=0, sys_flag=0, born_timestamp=0, flag=0, born_host="h",
                    store_host="h", store_timestamp=0,
                    properties=format_properties({names.CORRELATION_ID: waiting}),
                ),
                body=b"!",
            )  # fmt: skip
            net.ask(BROKER, pushed)
            assert (await asked).body == b"!"

    run(scenario)


def test_check_goes_to_the_producer_of_its_group() -> None:
    async def scenario(net: Net) -> None:
        net.cluster(NAMES, BROKER)
        asked: list[str] = []

        def noting(group: str) -> Any:
            async def check(message: ReceivedMessage) -> TransactionState:
                asked.append(group)
                return TransactionState.UNKNOWN

            return check

        async with (
            Client(NAMES) as client,
            client.transactional_producer("one", noting("one")) as one,
            client.transactional_producer("two", noting("two")),
        ):
            await one.send_half(Message("T", b"x"))
            text = format_properties({names.PRODUCER_GROUP: "two"}).encode()
            record = encode_record(b"T", 0, 0, 0, 0, 0, 0, _HOST, 0, _HOST, 0, 0, b"half", text)
            header = CheckTransactionStateRequestHeader(
                tran_state_table_offset=0, commit_log_offset=0
            )
            question = RemotingCommand.request(
                RequestCode.CHECK_TRANSACTION_STATE, header, one_way=True
            )
            question.body = record
            net.ask(BROKER, question)
            await true(lambda: asked)
            await asyncio.sleep(10)
        assert asked == ["two"]

    run(scenario)


def test_settings_of_connections_are_those_of_the_client() -> None:
    own = ClientConfig(namespace="shop")
    client = Client(NAMES, config=own)
    other = ClientConfig(namespace="bank")
    for make in (
        lambda config: client.producer(config=ProducerConfig(client=config)),
        lambda config: client.pull_consumer(config=ConsumerConfig(client=config)),
    ):
        with pytest.raises(ConfigError, match="those of the Client"):
            make(other)
        assert make(own).config.client is own
        assert make(ClientConfig()).config.client is own


def test_nothing_of_a_client_can_be_used_before_it_is_open() -> None:
    async def scenario(net: Net) -> None:
        client = Client(NAMES)
        with pytest.raises(ClosedError, match="client is not open"):
            await client.producer().__aenter__()

    run(scenario)
    twin = blocking.Client(NAMES)
    with pytest.raises(ClosedError, match="not open"):
        twin.producer().__enter__()


def test_blocking_client_has_one_thread_for_all() -> None:
    with blocking.Client("127.0.0.1:1") as client:
        thread = client._thread
        with client.producer() as producer, client.pull_consumer() as reader:
            assert producer._thread is thread and reader._thread is thread
        # Its thread goes on.
        with client.producer() as producer:
            pass
        with pytest.raises(ClosedError):
            producer.flush()
        left = client.producer()
        left.__enter__()
    left.close()
    with pytest.raises(ClosedError):
        left.flush()
