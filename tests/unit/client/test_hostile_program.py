"""What a program may do to its client: nothing hangs, nothing is lost, and everything is told."""

import asyncio
import pwd
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from ledgermq.client import (
    Client,
    ClientConfig,
    ClosedError,
    ConfigError,
    ConsumerConfig,
    LitePullConsumer,
    Message,
    MessageError,
    Producer,
    ProducerConfig,
    PushConsumer,
    ReceivedMessage,
    SendResult,
    TransactionalProducer,
    TransactionState,
)
from ledgermq.client.config import Mode
from ledgermq.protocol import properties as names
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers import CheckTransactionStateRequestHeader
from ledgermq.protocol.properties import format_properties
from ledgermq.protocol.record import encode_record
from tests.e2e.scripted_broker import ScriptedBroker
from tests.unit.client.virtual_net import Net, run, true

NAMES = "127.0.0.1:9876"
BROKER = "127.0.0.1:10911"
MODES: tuple[Mode, ...] = ("concurrent", "orderly", "broadcast")


async def nothing(message: ReceivedMessage) -> None:
    """Consumes."""


@pytest.mark.parametrize("mode", MODES[:2])
def test_listener_that_raises_what_is_no_exception_has_failed(mode: Mode) -> None:
    """As `pytest.fail` does: a worker that ended of it would be missed at the end."""

    class Odd(BaseException):
        pass

    async def scenario(net: Net) -> None:
        broker = net.cluster(NAMES, BROKER)
        for number in range(60):
            broker.put("T", number % 4, b"%d" % number)
        came: list[bytes] = []

        async def listen(message: ReceivedMessage) -> None:
            came.append(message.body)
            if len(came) <= 30:
                raise Odd

        config = ConsumerConfig(orderly_pause_s=0.1)
        async with PushConsumer(NAMES, "g", "T", listen, start="first", mode=mode, config=config):
            await true(lambda: len(set(came)) == 60)
        if mode == "concurrent":
            assert broker.count(RequestCode.CONSUMER_SEND_MSG_BACK) == 30

    run(scenario)


@pytest.mark.parametrize("is_nested", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_listener_may_close_its_consumer(mode: Mode, is_nested: bool, tmp_path: Path) -> None:
    """It waited for itself, was cancelled, and what was consumed was not committed."""

    async def scenario(net: Net) -> None:
        broker = net.cluster(NAMES, BROKER)
        for queue in range(4):
            broker.put("T", queue, b"%d" % queue)
        loop = asyncio.get_running_loop()
        ended: list[float] = []

        async def listen(message: ReceivedMessage) -> None:
            if message.body == b"3":
                begun_s = loop.time()
                await (asyncio.wait_for(consumer.close(), 60) if is_nested else consumer.close())
                ended.append(loop.time() - begun_s)

        config = ConsumerConfig(offsets_directory=tmp_path)
        consumer = PushConsumer(NAMES, "g", "T", listen, start="first", mode=mode, config=config)
        await consumer.__aenter__()
        await true(lambda: ended)
        assert ended[0] < 2
        if mode != "broadcast":
            assert sum(broker.disk.offsets.values()) == 3
            assert not broker.disk.locks
        await asyncio.sleep(0.1)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(scenario)


class RaisingHooks:
    """Raises when it is told for the first time."""

    def __init__(self) -> None:
        self.calls = 0

    def send(self, messages: Sequence[Message], group: str) -> Any:
        raise AssertionError("nothing is sent")

    def consume(self, message: ReceivedMessage, group: str) -> AbstractContextManager[None]:
        return nullcontext()

    def receive(self, messages: Sequence[ReceivedMessage], group: str) -> None:
        self.calls += 1
        if self.calls == 1:
            raise KeyError("unforeseen")


@pytest.mark.parametrize("kind", ["push", "lite"])
def test_message_whose_hooks_raise_is_given_all_the_same(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It counted as given, so it was committed and never seen."""

    async def scenario(net: Net) -> None:
        broker = net.cluster(NAMES, BROKER)
        for number in range(4):
            broker.put("T", 0, b"%d" % number)
        config = ConsumerConfig(client=ClientConfig(hooks=RaisingHooks()))
        consumer: Any
        if kind == "push":
            consumer = PushConsumer(NAMES, "g", "T", start="first", config=config)
        else:
            consumer = LitePullConsumer(NAMES, "g", start="first", config=config)
        async with consumer:
            if kind == "lite":
                await consumer.subscribe("T")
            came = [(await anext(consumer)).body for _ in range(4)]
        assert came == [b"0", b"1", b"2", b"3"]

    run(scenario)
    assert "KeyError: 'unforeseen'" in caplog.text


@pytest.mark.parametrize("said", [None, "COMMIT", True])
def test_check_that_says_nothing_of_use_is_told(
    said: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(net: Net) -> None:
        net.cluster(NAMES, BROKER)

        async def check(message: ReceivedMessage) -> TransactionState:
            return said  # type: ignore[no-any-return]

        async with TransactionalProducer(NAMES, "g", check) as producer:
            await producer.send_half(Message("T", b"x"))
            net.ask(BROKER, question())
            await asyncio.sleep(1)

    run(scenario)
    assert f"check of g returned {said!r}" in caplog.text
    assert "wanted: a TransactionState" in caplog.text


def question() -> RemotingCommand:
    """What a broker asks about a half message."""
    header = CheckTransactionStateRequestHeader(tran_state_table_offset=0, commit_log_offset=0)
    asked = RemotingCommand.request(RequestCode.CHECK_TRANSACTION_STATE, header, one_way=True)
    host = (b"\x7f\x00\x00\x01", 1)
    properties = format_properties({names.PRODUCER_GROUP: "g"}).encode()
    asked.body = encode_record(b"T", 0, 0, 0, 0, 0, 0, host, 0, host, 0, 0, b"x", properties)
    return asked


def test_question_that_comes_while_a_producer_closes_leaves_no_task() -> None:
    """Its threads have ended, so that the check would wait for one for ever."""

    async def scenario(net: Net) -> None:
        net.cluster(NAMES, BROKER)
        net.round_trip_s = 0.5
        # The last traces take their time.
        config = ProducerConfig(client=ClientConfig(trace=True))
        producer = TransactionalProducer(
            NAMES, "g", lambda message: TransactionState.COMMIT, config=config
        )
        await producer.__aenter__()
        await producer.send_half(Message("T", b"x"))
        closing = asyncio.get_running_loop().create_task(producer.close())
        await asyncio.sleep(0.01)
        net.ask(BROKER, question())
        await closing
        await asyncio.sleep(1)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(scenario)


def test_producer_of_another_event_loop_says_so() -> None:
    """Two calls of asyncio.run with one producer."""
    kept: list[Producer] = []

    async def first() -> None:
        async with ScriptedBroker() as broker:
            producer = Producer(broker.address)
            await producer.__aenter__()
            await producer.send(Message("T", b"x"))
            kept.append(producer)

    async def second() -> None:
        with pytest.raises(ClosedError, match="another event loop"):
            await kept[0].send(Message("T", b"y"))
        with pytest.raises(ClosedError, match="another event loop"):
            await kept[0].flush()

    asyncio.run(first())
    asyncio.run(second())
    # Its loop has gone, and its connections with it.
    kept[0]._is_open = False


def test_client_of_another_event_loop_says_so() -> None:
    client = Client(NAMES)

    async def first() -> None:
        await client.__aenter__()

    async def second() -> None:
        with pytest.raises(ClosedError, match="another event loop"):
            await client.producer().__aenter__()

    asyncio.run(first())
    asyncio.run(second())
    client._is_open = False


def test_user_without_a_home_may_consume(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in containers with a user of their own: only broadcast consumers keep files."""

    def unknown(user_id: int) -> None:
        raise KeyError(user_id)

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for mode in MODES[:2]:
        PushConsumer(NAMES, "g", "T", nothing, mode=mode)
    with pytest.raises(ConfigError, match="offsets_directory"):
        PushConsumer(NAMES, "g", "T", nothing, mode="broadcast")


def test_who_asks_stays_connected_while_it_waits() -> None:
    """Brokers give replies to who is connected, so a lost connection is made again at once."""

    async def scenario(net: Net) -> None:
        net.cluster(NAMES, BROKER)
        async with Producer(NAMES) as producer:
            loop = asyncio.get_running_loop()
            asking = loop.create_task(producer.request(Message("T", b"?"), timeout_s=20))
            await asyncio.sleep(1)
            before = net.connected.count(BROKER)
            net.hang_up(BROKER)
            begun_s = loop.time()
            await true(lambda: net.connected.count(BROKER) > before)
            assert loop.time() - begun_s < 2
            asking.cancel()
            await asyncio.wait([asking])

    run(scenario)


@pytest.mark.parametrize("content", ['{"T": {"b": {"0": null}}}', '{"T": {"b": [1]}}', "[]"])
def test_file_of_offsets_that_is_none_is_told(tmp_path: Path, content: str) -> None:
    folder = tmp_path / "default"
    folder.mkdir()
    (folder / "g.json").write_text(content)
    config = ConsumerConfig(offsets_directory=tmp_path)
    with pytest.raises(ConfigError, match="holds no offsets"):
        PushConsumer(NAMES, "g", "T", nothing, mode="broadcast", config=config)


class RaisingSend:
    """Raises whatever it is told."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.messages = list(messages)

    def acknowledged(self, result: SendResult | None, /) -> None:
        raise KeyError("unforeseen")

    def failed(self, error: BaseException, /) -> None:
        raise KeyError("unforeseen")


class HooksOfSends(RaisingHooks):
    """Follows sends, badly."""

    def send(self, messages: Sequence[Message], group: str) -> RaisingSend:
        return RaisingSend(messages)


def test_hooks_that_raise_behind_a_send_change_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """What was sent one-way seemed to have failed, and failures had lost their reason."""

    async def scenario(net: Net) -> None:
        broker = net.cluster(NAMES, BROKER)
        config = ProducerConfig(client=ClientConfig(hooks=HooksOfSends()))
        async with Producer(NAMES, config=config) as producer:
            assert (await producer.send(Message("T", b"one"))).queue_offset == 0
            await producer.send_one_way(Message("T", b"two"))
            await true(lambda: broker.copies.keys() == {b"one", b"two"})
            too_large = Message("T", b"x" * (config.body_bytes_max + 1))
            for send in (producer.send, producer.send_one_way):
                with pytest.raises(MessageError):
                    await send(too_large)

    run(scenario)
    assert "hooks failed on a send that is over" in caplog.text
