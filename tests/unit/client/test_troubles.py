"""What goes wrong again and again: told loudly at first, then rarely; causes survive."""

from __future__ import annotations

import asyncio
import logging

import pytest

from ledgermq.client import (
    ClientConfig,
    Message,
    NameServerError,
    Producer,
    ProducerConfig,
    PushConsumer,
    ReceivedMessage,
    RefusedError,
    SendError,
    UnreachableError,
)
from ledgermq.client.failed_tries import FailedTries
from ledgermq.client.retry import is_passing
from ledgermq.client.troubles import Troubles
from ledgermq.protocol.bodies import MessageQueue
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.record import decode_record, encode_record
from tests.unit.client.virtual_broker import SENDS, Link
from tests.unit.client.virtual_net import Net, run

ADDRESS = "127.0.0.1:9876"
BROKER = "127.0.0.1:10911"
HOST = (b"\x7f\x00\x00\x01", 10911)


def test_a_trouble_is_loud_at_first_and_then_ever_more_rarely() -> None:
    troubles = Troubles()
    loud = [at for at in range(0, 500, 10) if troubles.level_of("x", at) == logging.WARNING]
    assert loud == [0, 60, 180, 420]
    assert troubles.level_of("another", 500) == logging.WARNING
    assert troubles.is_over("x") and not troubles.is_over("x")
    assert troubles.level_of("x", 501) == logging.WARNING
    # What is remembered is bounded.
    for number in range(1000):
        troubles.level_of(f"trouble {number}", 0.0)
    assert len(troubles._told) <= 256


@pytest.mark.parametrize(
    ("code", "remark", "passes"),
    [
        (ResponseCode.SYSTEM_ERROR, "elections", True),
        (
            ResponseCode.SYSTEM_ERROR,
            "The broker does not support consumer to filter message",
            False,
        ),
        (ResponseCode.SYSTEM_ERROR, "AclException: no", False),
        (ResponseCode.SYSTEM_ERROR, "the topic contains illegal characters", False),
        (ResponseCode.SUBSCRIPTION_PARSE_FAILED, "no SQL", False),
    ],
)
def test_refusals_that_may_pass(code: int, remark: str, passes: bool) -> None:
    assert is_passing(code, remark, frozenset({int(ResponseCode.SYSTEM_ERROR)})) == passes


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]


def test_wrong_address_speaks_after_a_second(caplog: pytest.LogCaptureFixture) -> None:
    async def refused(net: Net) -> None:
        config = ProducerConfig(timeout_s=15)
        async with Producer("127.0.0.1:9999", config=config) as producer:
            future = await producer.submit(Message("T", b""))
            await asyncio.sleep(0.9)
            assert warnings(caplog) == []
            await asyncio.sleep(1.0)
            (said,) = warnings(caplog)
            assert "no connection to 127.0.0.1:9999" in said
            with pytest.raises(SendError, match="no name server answers, the last: no connection"):
                await future
            # Once, though it was tried dozens of times.
            assert len(warnings(caplog)) == 1

    run(refused)
    caplog.clear()

    async def silent(net: Net) -> None:
        net.silent.add(ADDRESS)
        async with Producer(ADDRESS) as producer:
            future = await producer.submit(Message("T", b""))
            await asyncio.sleep(1.1)
            (said,) = warnings(caplog)
            assert ADDRESS in said and "for 1 s" in said
            future.cancel()

    run(silent)


def test_who_is_no_name_server_is_named() -> None:
    async def scenario(net: Net) -> None:
        broker = net.listen(ADDRESS)

        def refuse(link: Link, request: RemotingCommand) -> bool:
            code = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            link.answer(request.response(code, " request type 105 not supported"))
            return True

        broker.on_request = refuse
        async with Producer(ADDRESS) as producer:
            begun_s = asyncio.get_running_loop().time()
            with pytest.raises(SendError, match=f"{ADDRESS} is no name server") as caught:
                await producer.send(Message("T", b""))
            # It does not heal: nothing is tried again.
            assert asyncio.get_running_loop().time() - begun_s < 1
            assert not caught.value.retriable
            assert isinstance(caught.value.__cause__, NameServerError)
        with pytest.raises(NameServerError, match="is no name server"):
            async with PushConsumer(ADDRESS, "g", "T"):
                pass

    run(scenario)


def test_no_time_left_carries_what_held_the_key_up() -> None:
    async def scenario(net: Net) -> None:
        broker = net.listen(ADDRESS)

        def refuse(link: Link, request: RemotingCommand) -> bool:
            if request.code not in SENDS:
                return False
            link.answer(request.response(ResponseCode.SERVICE_NOT_AVAILABLE, "the disk is full"))
            # The program does something else meanwhile, and all of its messages have no time left.
            net.pass_time(10)
            return True

        broker.on_request = refuse
        async with Producer(ADDRESS, config=ProducerConfig(timeout_s=5)) as producer:
            futures = [
                await producer.submit(Message("T", b"%d" % number), ordering_key="k")
                for number in range(5)
            ]
            outcomes = await asyncio.gather(*futures, return_exceptions=True)
        for outcome in outcomes:
            assert isinstance(outcome, SendError) and "the disk is full" in str(outcome)
            assert outcome.retriable and outcome.code == ResponseCode.SERVICE_NOT_AVAILABLE
        # Those that were never tried name the refusal, too, and not a chain of one another.
        assert [getattr(outcome, "attempts", None) for outcome in outcomes] == [1, 0, 0, 0, 0]
        last = outcomes[-1]
        assert isinstance(last, SendError) and isinstance(last.__cause__, UnreachableError)
        assert isinstance(last.__cause__.__cause__, RefusedError)
        assert str(last).count("no time was left") == 1

    run(scenario)


def test_pulls_that_are_refused_for_good_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(net: Net) -> None:
        broker = net.cluster(ADDRESS, BROKER)

        def refuse(link: Link, request: RemotingCommand) -> bool:
            if request.code != RequestCode.PULL_MESSAGE:
                return False
            code = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
            link.answer(request.response(code, "subscription group [g] does not exist"))
            return True

        broker.on_request = refuse
        async with PushConsumer(ADDRESS, "g", "T", start="first"):
            await asyncio.sleep(50)
        said = [one for one in warnings(caplog) if "does not exist" in one]
        pulls = broker.count(RequestCode.PULL_MESSAGE)
        # Once, of hundreds of tries at all queues.
        assert len(said) == 1 and pulls > 100

    run(scenario)


@pytest.mark.parametrize(
    ("code", "remark"),
    [
        (
            ResponseCode.SYSTEM_ERROR,
            "The broker does not support consumer to filter message by SQL92",
        ),
        (ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed"),
    ],
)
def test_condition_that_the_broker_does_not_take_raises_at_the_open(code: int, remark: str) -> None:
    async def scenario(net: Net) -> None:
        broker = net.cluster(ADDRESS, BROKER)

        def refuse(link: Link, request: RemotingCommand) -> bool:
            if request.code != RequestCode.CHECK_CLIENT_CONFIG:
                return False
            link.answer(request.response(code, remark))
            return True

        broker.on_request = refuse
        with pytest.raises(RefusedError, match=remark) as caught:
            async with PushConsumer(ADDRESS, "g", "T", sql="a > 3"):
                pass
        assert not caught.value.retriable
        assert (caught.value.topic, caught.value.broker) == ("T", BROKER)
        # Conditions on tags need no question.
        broker.codes.clear()
        async with PushConsumer(ADDRESS, "g", "T", tags="A"):
            pass
        assert RequestCode.CHECK_CLIENT_CONFIG not in broker.codes

    run(scenario)


def received(times: int, offset: int = 7, keys: str = "order-5") -> ReceivedMessage:
    properties = f"KEYS\x01{keys}\x02UNIQ_KEY\x01ID5\x02RETRY_TOPIC\x01T"
    record = decode_record(
        encode_record(
            b"T", 1, 0, offset, 0, 0, 0, HOST, 0, HOST, times, 0, b"body", properties.encode()
        )
    )
    return ReceivedMessage(record, MessageQueue("T", "b", 1), 1024)


def test_failed_tries_say_which_and_what_comes_next() -> None:
    now_ms = 1_700_000_000_000
    tries = FailedTries("concurrent", None, 1.0)
    assert tries.told(received(0), now_ms) == (
        "ID5 with keys 'order-5' of T at b/1@7, try 1 of 17, next in 10 s, at"
        " 2023-11-14T22:13:30+00:00"
    )
    assert "try 2 of 17, next in 30 s" in tries.told(received(1), now_ms)
    assert "try 16 of 17, next in 7200 s" in tries.told(received(15), now_ms)
    # Its sender says so.
    for times in (-1, -3, -4, -22, -(2**31)):
        assert "try 1 of 17, next in 10 s" in tries.told(received(times), now_ms)
    assert tries.told(received(16), now_ms).endswith("try 17 of 17, it goes to the dead letters")
    assert "try 1 of 1, it goes to the dead letters" in FailedTries("concurrent", 0, 1.0).told(
        received(0), now_ms
    )
    assert (
        FailedTries("broadcast", None, 1.0)
        .told(received(0), now_ms)
        .endswith("which does not come again")
    )
    in_order = FailedTries("orderly", 2, 0.5)
    said = [in_order.told(received(0), now_ms) for _ in range(3)]
    assert ["try 1 of 3, next in 0.5 s" in said[0], "try 2 of 3" in said[1]] == [True, True]
    assert said[2].endswith("try 3 of 3, it goes to the dead letters")
    assert "try 1 of 3" in in_order.told(received(0, offset=8), now_ms)


def test_log_of_a_failing_listener_names_the_message(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(net: Net) -> None:
        broker = net.cluster(ADDRESS, BROKER)
        broker.put("T", 0, b"body", "KEYS\x01order-5\x02UNIQ_KEY\x01ID5")

        def fail(message: ReceivedMessage) -> None:
            raise ValueError("no such order")

        async def listener(message: ReceivedMessage) -> None:
            fail(message)

        async with PushConsumer(ADDRESS, "g", "T", listener, start="first"):
            await asyncio.sleep(5)
        (said,) = [one for one in warnings(caplog) if "listener" in one]
        assert "ID5 with keys 'order-5' of T at b/0@0, try 1 of 17, next in 10 s" in said
        assert "no such order" in caplog.text

    run(scenario)


def test_what_brokers_add_to_a_heart_beat_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(net: Net) -> None:
        broker = net.cluster(ADDRESS, BROKER)

        def answer(link: Link, request: RemotingCommand) -> bool:
            if request.code != RequestCode.HEART_BEAT:
                return False
            link.answer(request.response(0, "members of group g subscribe to different things"))
            return True

        broker.on_request = answer
        config = ClientConfig(heartbeat_interval_s=1.0)
        async with Producer(ADDRESS, config=ProducerConfig(client=config)) as producer:
            await producer.send(Message("T", b""))
            await asyncio.sleep(30)
        assert len([one for one in warnings(caplog) if "different things" in one]) == 1

    run(scenario)
