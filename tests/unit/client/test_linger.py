"""Sends that wait for others and go as one batch: what each of them gets, and when."""

import asyncio

import pytest

from ledgermq.client import (
    ClosedError,
    ConfigError,
    Message,
    MessageError,
    Producer,
    ProducerConfig,
    SendError,
    SendResult,
)
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from tests.unit.client.virtual_broker import SENDS, Broker, Link
from tests.unit.client.virtual_net import Net, run

NAMES = "127.0.0.1:9876"
BROKER = "127.0.0.1:10911"
LINGER_S = 0.01


def config(**changes: float) -> ProducerConfig:
    return ProducerConfig(**({"linger_s": LINGER_S} | changes))  # type: ignore[arg-type]


def requests(broker: Broker) -> int:
    return sum(broker.count(code) for code in SENDS)


def now_s() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize("key", [None, "k"])
def test_messages_that_come_together_go_together_each_with_its_own_result(key: str | None) -> None:
    async def scenario(net: Net) -> None:
        broker = net.cluster(NAMES, BROKER)
        async with Producer(NAMES, config=config()) as producer:
            await producer.send(Message("T", b"first"))
            begun_s = now_s()
            bodies = [b"%d" % number for number in range(10)]
            futures = [await producer.submit(Message("T", b), ordering_key=key) for b in bodies]
            results = [await future for future in futures]
            assert LINGER_S <= now_s() - begun_s < LINGER_S + 0.01
        assert broker.count(RequestCode.SEND_BATCH_MESSAGE) == 1 and requests(broker) == 2
        (queue,) = {result.queue_id for result in results}
        offsets = [result.queue_offset for result in results]
        assert offsets == list(range(offsets[0], offsets[0] + 10))
        assert [broker.stored[queue][offset] for offset in offsets] == bodies
        assert len({result.message_id for result in results}) == 10
        assert [int(result.offset_message_id, 16) for result in results] == offsets

    run(scenario)


def test_message_alone_goes_as_itself_when_its_time_is_over() -> None:
    async def scenario(net: Net) -> None:
        broker = net.cluster(NAMES, BROKER)
        async with Producer(NAMES, config=config()) as producer:
            await producer.send(Message("T", b"x"))
        assert broker.count(RequestCode.SEND_MESSAGE_V2) == 1

    run(scenario)


def test_full_batch_goes_at_once_by_count_and_by_bytes() -> None:
    async def scenario(net: Net) -> None:
        broker = net.cluster(NAMES, BROKER)
        full = config(linger_s=10.0, batch_count_max=4, batch_bytes_max=4000)
        async with Producer(NAMES, config=full) as producer:
            begun_s = now_s()
            few = [await producer.submit(Message("T", b"x")) for _ in range(8)]
            await asyncio.gather(*few)
            large = [await producer.submit(Message("T", b"x" * 1500)) for _ in range(3)]
            await large[0]
            assert now_s() - begun_s < 1 and requests(broker) == 3
            await producer.flush()
            assert now_s() - begun_s < 1 and all(future.done() for future in large)
        assert requests(broker) <= 5

    run(scenario)


def test_order_of_a_key_survives_messages_that_go_alone_and_retries() -> None:
    async def scenario(net: Net) -> None:
        broker = net.cluster(NAMES, BROKER)
        refusals = iter([True, False, True, False, False, True])

        def refuse_some(link: Link, request: RemotingCommand) -> bool:
            if request.code not in SENDS or not next(refusals, False):
                return False
            link.answer(request.response(ResponseCode.SYSTEM_BUSY, "later"))
            return True

        broker.on_request = refuse_some
        small = config(batch_count_max=7, batch_bytes_max=3000)
        async with Producer(NAMES, config=small) as producer:
            futures = []
            for number in range(100):
                # Now and then one that is too large for a batch.
                body = b"%03d" % number + b"x" * (4000 if number % 13 == 5 else 0)
                futures.append(await producer.submit(Message("T", body), ordering_key="k"))
                if number % 31 == 0:
                    await asyncio.sleep(0.02)
            results = await asyncio.gather(*futures)
        (queue,) = {result.queue_id for result in results}
        assert [body[:3] for body in broker.stored[queue]] == [b"%03d" % n for n in range(100)]
        assert [result.queue_offset for result in results] == list(range(100))

    run(scenario)


def test_ordering_key_takes_a_batch_for_each_round_trip() -> None:
    async def scenario(net: Net) -> None:
        net.cluster(NAMES, BROKER)
        net.round_trip_s = 0.1
        async with Producer(NAMES, config=config(batch_count_max=50)) as producer:
            await producer.send(Message("T", b"x"))
            begun_s = now_s()
            futures = [
                await producer.submit(Message("T", b"x"), ordering_key="k") for _ in range(500)
            ]
            await asyncio.gather(*futures)
            # Ten round trips, where 500 single ones would be 50 s.
            assert now_s() - begun_s < 1.2

    run(scenario)


def test_refused_batch_fails_all_of_its_messages_and_no_other() -> None:
    async def scenario(net: Net) -> None:
        broker = net.cluster(NAMES, BROKER)

        def refuse(link: Link, request: RemotingCommand) -> bool:
            if request.code != RequestCode.SEND_BATCH_MESSAGE:
                return False
            link.answer(request.response(ResponseCode.MESSAGE_ILLEGAL, "no such thing"))
            return True

        broker.on_request = refuse
        async with Producer(NAMES, config=config()) as producer:
            together = [await producer.submit(Message("T", b"x")) for _ in range(3)]
            other = await producer.submit(Message("U", b"y"))
            outcomes = await asyncio.gather(*together, return_exceptions=True)
            assert all(isinstance(one, SendError) and one.code == 13 for one in outcomes)
            await other
            # A message that cannot be is told to its sender alone.
            fine = await producer.submit(Message("U", b"z"))
            for wrong in (Message("U", b"", properties={"": "x"}), Message("", b"")):
                with pytest.raises(MessageError):
                    await producer.submit(wrong)
            await fine

    run(scenario)


def test_close_fails_what_waits_and_leaving_the_block_sends_it() -> None:
    async def scenario(net: Net) -> None:
        broker = net.cluster(NAMES, BROKER)
        async with Producer(NAMES, config=config(linger_s=10.0)) as producer:
            sent = await producer.submit(Message("T", b"x"))
        assert sent.result().queue_offset == 0
        async with Producer(NAMES, config=config(linger_s=10.0)) as producer:
            lost = await producer.submit(Message("T", b"y"))
            await producer.close()
            with pytest.raises(SendError) as caught:
                await lost
            assert isinstance(caught.value.__cause__, ClosedError)
        assert requests(broker) == 1

    run(scenario)


def test_cancelled_sender_takes_no_message_of_others_along() -> None:
    async def scenario(net: Net) -> None:
        broker = net.cluster(NAMES, BROKER)
        net.round_trip_s = 0.5
        tight = config(linger_s=10.0, batch_count_max=2, in_flight_max=1)
        async with Producer(NAMES, config=tight) as producer:
            loop = asyncio.get_running_loop()
            first = [await producer.submit(Message("T", b"a")) for _ in range(2)]
            theirs = await producer.submit(Message("T", b"b"))
            # It fills a batch, and waits for room.
            mine = loop.create_task(producer.submit(Message("T", b"c")))
            await asyncio.sleep(0.1)
            mine.cancel()
            await asyncio.wait([mine])
            await asyncio.gather(*first, theirs)
        assert sorted(body for queue in broker.stored.values() for body in queue) == [
            b"a", b"a", b"b", b"c"
        ]  # fmt: skip

    run(scenario)


def test_what_waits_is_bounded_when_nothing_gets_through() -> None:
    async def scenario(net: Net) -> None:
        broker = net.cluster(NAMES, BROKER)
        broker.on_request = lambda link, request: request.code in SENDS
        tight = config(in_flight_max=2, timeout_s=600.0)
        async with Producer(NAMES, config=tight) as producer:
            loop = asyncio.get_running_loop()
            submitted: list[asyncio.Future[SendResult]] = []

            async def submit_on() -> None:
                while True:
                    submitted.append(await producer.submit(Message("T", b"x")))
                    await asyncio.sleep(LINGER_S * 2)

            task = loop.create_task(submit_on())
            await asyncio.sleep(60)
            assert len(submitted) < 100
            task.cancel()
            await asyncio.wait([task])
            await producer.close()
            outcomes = await asyncio.gather(*submitted, return_exceptions=True)
            assert {type(one) for one in outcomes} == {SendError}

    run(scenario)


@pytest.mark.parametrize(
    "changes", [{"linger_s": -1}, {"batch_count_max": 0}, {"batch_bytes_max": 5 * 1024 * 1024}]
)
def test_wrong_settings_are_refused(changes: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="allowed"):
        config(**changes)
