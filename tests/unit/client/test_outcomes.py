"""What a listener says about a message, in every mode, alone and in batches."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from ledgermq.client import (
    BURY,
    DONE,
    ConfigError,
    ConsumerConfig,
    Message,
    MessageError,
    Producer,
    PushConsumer,
    ReceivedMessage,
    retry,
)
from ledgermq.client.config import Mode
from ledgermq.client.delays import DELAYS_S, level_of
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers import ConsumerSendMsgBackRequestHeader
from tests.unit.client.virtual_broker import Broker, Link
from tests.unit.client.virtual_net import Net, run, true

NAMES = "127.0.0.1:9876"
BROKER = "127.0.0.1:10911"
MINUTE = timedelta(minutes=1)


def now_s() -> float:
    return asyncio.get_running_loop().time()


class GivenBack:
    """The levels that consumers gave messages back with."""

    def __init__(self, broker: Broker) -> None:
        self.levels: list[int] = []
        broker.on_request = self._take

    def _take(self, link: Link, request: RemotingCommand) -> bool:
        if request.code == RequestCode.CONSUMER_SEND_MSG_BACK:
            header = request.header(ConsumerSendMsgBackRequestHeader)
            self.levels.append(header.delay_level)
        return False


async def fill(*bodies: bytes) -> None:
    async with Producer(NAMES) as producer:
        for body in bodies:
            await producer.send(Message("T", body), ordering_key="k")


def committed(broker: Broker) -> int:
    return max([at for (_, topic, _), at in broker.disk.offsets.items() if topic == "T"], default=0)


def test_listener_says_when_a_message_comes_again_or_that_it_is_buried() -> None:
    said = {b"a": None, b"b": retry(), b"c": retry(delay=timedelta(seconds=90)), b"d": BURY}

    async def scenario(net: Net) -> None:
        broker = net.cluster(NAMES, BROKER)
        given = GivenBack(broker)
        await fill(*said, b"e")

        async def listen(message: ReceivedMessage) -> Any:
            return said.get(message.body, DONE)

        async with PushConsumer(NAMES, "g", "T", listener=listen, start="first") as consumer:
            await true(lambda: len(given.levels) == 3 and not consumer.pending_count)
        # The dead letters; as the broker has it; 2 minutes.
        assert sorted(given.levels) == [-1, 0, 6]
        assert committed(broker) == 5

    run(scenario)


def test_orderly_message_comes_again_after_its_own_pause_and_the_queue_waits() -> None:
    async def scenario(net: Net) -> None:
        given = GivenBack(net.cluster(NAMES, BROKER))
        await fill(b"a", b"b", b"c")
        calls: list[tuple[bytes, float]] = []

        async def listen(message: ReceivedMessage) -> Any:
            calls.append((message.body, now_s()))
            if message.body == b"b" and len(calls) < 4:
                return retry(delay=MINUTE)
            return BURY if message.body == b"c" else None

        async with PushConsumer(NAMES, "g", "T", listen, start="first", mode="orderly") as consumer:
            await true(lambda: len(given.levels) == 1 and not consumer.pending_count)
        assert [body for body, _ in calls] == [b"a", b"b", b"b", b"b", b"c"]
        times = [at for body, at in calls if body == b"b"]
        assert all(late - early >= 60 for early, late in zip(times, times[1:], strict=False))
        assert given.levels == [-1]

    run(scenario)


def test_queue_whose_message_waits_for_its_turn_is_given_up_at_once() -> None:
    async def scenario(net: Net) -> None:
        broker = net.cluster(NAMES, BROKER)
        await fill(b"a")
        called = asyncio.Event()

        async def listen(message: ReceivedMessage) -> Any:
            called.set()
            return retry(delay=timedelta(hours=1))

        consumer = PushConsumer(NAMES, "g", "T", listen, start="first", mode="orderly")
        async with consumer:
            await called.wait()
            begun_s = now_s()
            await asyncio.wait(await consumer._rounds.drop("T"))
            assert now_s() - begun_s < 1
            assert not [one for one in broker.disk.locks if one.topic == "T"]
        assert committed(broker) == 0

    run(scenario)


def test_broadcast_message_comes_again_from_here_and_holds_up_no_other(tmp_path: Path) -> None:
    async def scenario(net: Net) -> None:
        given = GivenBack(net.cluster(NAMES, BROKER))
        await fill(b"a", b"b", b"c", b"d")
        calls: list[bytes] = []

        async def listen(message: ReceivedMessage) -> Any:
            calls.append(message.body)
            if message.body == b"a":
                return retry(delay=MINUTE) if calls.count(b"a") < 3 else None
            if message.body == b"b":
                raise ValueError("dropped, as ever")
            return BURY if message.body == b"c" else None

        config = ConsumerConfig(offsets_directory=tmp_path, concurrency=1)
        begun_s = now_s()
        async with PushConsumer(
            NAMES, "g", "T", listen, start="first", mode="broadcast", config=config
        ) as consumer:
            await true(lambda: len(calls) == 4)
            held = next(one for one in consumer._holding.held() if one.pending_count)
            # What is behind it is consumed, and not committed.
            assert held.committable() == 0 and held.pending_count == 1
            await true(lambda: calls.count(b"a") == 3)
            assert now_s() - begun_s >= 120
            await true(lambda: not consumer.pending_count)
            assert held.committable() == 4
        assert given.levels == [-1]

    run(scenario)


@pytest.mark.parametrize("mode", ["concurrent", "orderly"])
def test_batch_is_settled_message_by_message(mode: Mode) -> None:
    async def scenario(net: Net) -> None:
        broker = net.cluster(NAMES, BROKER)
        given = GivenBack(broker)
        await fill(*(b"%d" % number for number in range(8)))
        batches: list[list[bytes]] = []

        async def listen(messages: list[ReceivedMessage]) -> Any:
            batches.append([one.body for one in messages])
            return [
                BURY if one.body == b"1" else retry() if one.body == b"2" and len(batches) == 1
                else None
                for one in messages
            ]  # fmt: skip

        config = ConsumerConfig(concurrency=1)
        async with PushConsumer(
            NAMES, "g", "T", listen, start="first", mode=mode, batch_max=5, config=config
        ) as consumer:
            await true(lambda: len(batches) > 1 and not consumer.pending_count)
        assert committed(broker) == 8
        if mode == "orderly":
            # What comes before the one that comes again is settled, the rest comes with it.
            assert batches == [
                [b"0", b"1", b"2", b"3", b"4"], [b"2", b"3", b"4", b"5", b"6"], [b"7"]
            ] or batches == [[b"0", b"1", b"2", b"3", b"4"], [b"2", b"3", b"4"],
                             [b"5", b"6", b"7"]]  # fmt: skip
            assert given.levels == [-1]
        else:
            assert batches == [[b"0", b"1", b"2", b"3", b"4"], [b"5", b"6", b"7"]]
            assert sorted(given.levels) == [-1, 0]

    run(scenario)


@pytest.mark.parametrize("wrong", [[None], [DONE] * 3, ["done", None], 7])
def test_batch_with_a_wrong_answer_fails_as_a_whole(
    wrong: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(net: Net) -> None:
        given = GivenBack(net.cluster(NAMES, BROKER))
        await fill(b"a", b"b")

        async def listen(messages: list[ReceivedMessage]) -> Any:
            return wrong

        config = ConsumerConfig(concurrency=1)
        async with PushConsumer(
            NAMES, "g", "T", listen, start="first", batch_max=10, config=config
        ) as consumer:
            await true(lambda: len(given.levels) == 2 and not consumer.pending_count)
        assert given.levels == [0, 0]

    run(scenario)
    assert "wanted: " in caplog.text


def test_message_that_was_iterated_to_can_be_given_back_or_buried() -> None:
    async def scenario(net: Net) -> None:
        broker = net.cluster(NAMES, BROKER)
        given = GivenBack(broker)
        await fill(b"a", b"b", b"c")
        async with PushConsumer(NAMES, "g", "T", start="first") as consumer:
            first = await anext(consumer)
            await consumer.retry(first, delay=MINUTE)
            with pytest.raises(ConfigError, match="not the message that was given last"):
                await consumer.bury(first)
            await consumer.bury(await anext(consumer))
            await anext(consumer)
        assert given.levels == [5, -1] and committed(broker) == 2

    run(scenario)


@pytest.mark.parametrize(
    ("seconds", "level"),
    [(0, 0), (0.001, 1), (1, 1), (1.5, 2), (5, 2), (59, 5), (61, 6), (3600, 17), (7200, 18)],
)
def test_delay_gets_the_shortest_level_that_is_not_shorter(seconds: float, level: int) -> None:
    delay = timedelta(seconds=seconds)
    assert level_of(delay) == level
    message = Message("T", b"", delay=delay)
    assert message.delay_level == level and replace(message, body=b"x").delay_level == level
    assert len(DELAYS_S) == 18


@pytest.mark.parametrize("seconds", [-1, 7200.001, 1e9])
def test_delay_that_no_broker_knows_is_refused(seconds: float) -> None:
    delay = timedelta(seconds=seconds)
    with pytest.raises(MessageError, match="allowed: 0:00:00 to 2:00:00"):
        Message("T", b"", delay=delay)
    with pytest.raises(MessageError, match="allowed"):
        retry(delay=delay)
    with pytest.raises(MessageError, match="exclude each other"):
        Message("T", b"", delay=MINUTE, delay_level=3)
