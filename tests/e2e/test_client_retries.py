"""What a producer does when a broker refuses, falls silent or hangs up: a scripted broker."""

import asyncio
from collections import deque
from typing import Any

import pytest

from ledgermq.client import (
    ClientConfig,
    ClosedError,
    Message,
    MessageError,
    NameServerError,
    Producer,
    ProducerConfig,
    PushConsumer,
    ReceivedMessage,
    RefusedError,
    SendError,
    SendResult,
    TransactionalProducer,
    TransactionState,
    blocking,
)
from ledgermq.protocol import sysflag
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.headers import EndTransactionRequestHeader
from ledgermq.protocol.properties import parse_properties
from tests.e2e.scripted_broker import HANG_UP, QUEUES, ScriptedBroker
from tests.free_ports import free_ports
from tests.scenarios import run

QUICK = ProducerConfig(attempt_timeout_s=0.2, timeout_s=5.0)


@pytest.mark.parametrize(
    "trouble", [int(ResponseCode.SERVICE_NOT_AVAILABLE), int(ResponseCode.SYSTEM_BUSY), None, -1]
)
def test_send_is_tried_again_until_it_is_acknowledged(trouble: int | None) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Producer(broker.address, config=QUICK) as producer:
            broker.send_script.extend([trouble, trouble])
            result = await producer.send(Message("T", b"x"))
            assert broker.stored[result.queue_id] == [b"x"]
            assert broker.count(RequestCode.SEND_MESSAGE_V2) == 3

    run(scenario())


def test_lost_leadership_makes_the_client_ask_for_the_route_at_once() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Producer(broker.address, config=QUICK) as producer:
            await producer.send(Message("T", b"x"))
            before = broker.count(RequestCode.GET_ROUTEINFO_BY_TOPIC)
            broker.send_script.append(int(ResponseCode.SERVICE_NOT_AVAILABLE))
            await producer.send(Message("T", b"y"))
            assert broker.count(RequestCode.GET_ROUTEINFO_BY_TOPIC) == before + 1

    run(scenario())


def test_send_waits_for_a_leader() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Producer(broker.address, config=QUICK) as producer:
            broker.has_leader = False
            future = await producer.submit(Message("T", b"x"))
            while broker.count(RequestCode.GET_ROUTEINFO_BY_TOPIC) < 4:
                await asyncio.sleep(0.01)
            broker.has_leader = True
            await future

    run(scenario())


def test_refusal_that_stays_fails_the_send_with_its_code_and_place() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Producer(broker.address, config=QUICK) as producer:
            broker.send_script.append(int(ResponseCode.MESSAGE_ILLEGAL))
            with pytest.raises(SendError) as caught:
                await producer.send(Message("T", b"x"))
            error = caught.value
            assert (error.code, error.retriable, error.attempts) == (13, False, 1)
            assert (error.broker, error.topic) == ("scripted", "T")
            assert "as the script says" in str(error)

    run(scenario())


def test_time_for_a_message_is_bounded() -> None:
    async def scenario() -> None:
        config = ProducerConfig(timeout_s=2)
        async with ScriptedBroker() as broker, Producer(broker.address, config=config) as producer:
            broker.send_script.extend([int(ResponseCode.SYSTEM_BUSY)] * 1000)
            with pytest.raises(SendError) as caught:
                await producer.send(Message("T", b"x"))
            assert caught.value.retriable
            assert caught.value.attempts > 1

    run(scenario())


def test_no_more_than_the_limit_is_in_flight() -> None:
    async def scenario() -> None:
        config = ProducerConfig(in_flight_max=8)
        async with ScriptedBroker() as broker, Producer(broker.address, config=config) as producer:
            await producer.send(Message("T", b"first"))
            broker.is_holding = True

            async def load() -> list[asyncio.Future[SendResult]]:
                return [await producer.submit(Message("T", b"%d" % i)) for i in range(40)]

            task = asyncio.ensure_future(load())
            while not task.done():
                await asyncio.sleep(0.005)
                broker.release()
            broker.is_holding = False
            broker.release()
            await asyncio.gather(*await task)
            assert 1 < broker.most_waiting <= 8

    run(scenario())


def test_messages_of_one_key_keep_their_order_through_retries() -> None:
    """Each failure is answered late enough for later messages to overtake, were they sent."""

    async def scenario() -> None:
        async with ScriptedBroker() as broker, Producer(broker.address, config=QUICK) as producer:
            busy = int(ResponseCode.SYSTEM_BUSY)
            broker.send_script.extend([busy, busy, HANG_UP, busy, None, busy])
            futures = [
                await producer.submit(Message("T", b"%d:%d" % (i % 3, i)), ordering_key=str(i % 3))
                for i in range(60)
            ]
            results = await asyncio.gather(*futures)
            for key in range(3):
                queues = {result.queue_id for result in results[key::3]}
                assert len(queues) == 1
                mark = b"%d:" % key
                stored = [body for body in broker.stored[queues.pop()] if body.startswith(mark)]
                # A message may be stored twice, but none before its predecessor.
                numbers = [int(body.partition(b":")[2]) for body in stored]
                assert sorted(set(numbers)) == list(range(key, 60, 3))
                assert numbers == sorted(numbers)

    run(scenario())


def test_messages_without_a_key_spread_over_all_queues() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Producer(broker.address) as producer:
            for number in range(2 * QUEUES):
                await producer.send(Message("T", b"%d" % number))
            assert [len(bodies) for bodies in broker.stored.values()] == [2] * QUEUES

    run(scenario())


def test_one_way_send_is_not_answered_and_arrives() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Producer(broker.address) as producer:
            await producer.send_one_way(Message("T", b"gone"), ordering_key="k")
            while not any(broker.stored.values()):
                await asyncio.sleep(0.005)

    run(scenario())


def test_close_fails_what_is_on_its_way_and_says_goodbye() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            producer = Producer(broker.address)
            async with producer:
                await producer.send(Message("T", b"x"))
                broker.is_holding = True
                future = await producer.submit(Message("T", b"y"))
                while not broker.most_waiting:
                    await asyncio.sleep(0.005)
                await producer.close()
                with pytest.raises(SendError):
                    await future
            assert broker.count(RequestCode.UNREGISTER_CLIENT) == 1
            with pytest.raises(ClosedError):
                await producer.send(Message("T", b"z"))

    run(scenario())


def test_next_name_server_is_asked_when_one_is_gone() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            servers = f"127.0.0.1:{free_ports(1)[0]};{broker.address}"
            async with Producer(servers) as producer:
                await producer.send(Message("T", b"x"))

    run(scenario())


def test_consumer_without_a_name_server_fails_to_start() -> None:
    async def scenario() -> None:
        consumer = PushConsumer(f"127.0.0.1:{free_ports(1)[0]}", "g", "T")
        with pytest.raises(NameServerError) as caught:
            async with consumer:
                pass
        assert caught.value.retriable

    run(scenario())


def test_consumer_whose_group_the_broker_does_not_list_takes_no_queue() -> None:
    """A broker that has not heard of this member yet must not make it drop or take anything."""

    async def scenario() -> None:
        async with ScriptedBroker() as broker:

            def answer(request: Any) -> Any:
                if request.code == RequestCode.GET_CONSUMER_LIST_BY_GROUP:
                    return request.response(0, body=b'{"consumerIdList":["somebody@else"]}')
                return None

            broker.on_request = answer
            async with PushConsumer(broker.address, "g", "T") as consumer:
                while broker.count(RequestCode.GET_CONSUMER_LIST_BY_GROUP) < 3:
                    await asyncio.sleep(0.01)
                assert consumer.queues() == []
            assert broker.count(RequestCode.PULL_MESSAGE) == 0

    run(scenario())


def test_blocking_producer_without_a_name_server_fails_in_time() -> None:
    config = ProducerConfig(timeout_s=0.3, client=ClientConfig(request_timeout_s=0.2))
    with blocking.Producer(f"127.0.0.1:{free_ports(1)[0]}", config=config) as producer:
        with pytest.raises(SendError) as caught:
            producer.send(Message("T", b"x"))
    assert caught.value.retriable
    with pytest.raises(ClosedError):
        producer.send(Message("T", b"x"))


async def unknown(message: ReceivedMessage) -> TransactionState:
    return TransactionState.UNKNOWN


def test_end_of_a_transaction_is_told_until_the_broker_takes_it() -> None:
    """A leader may change between the half message and its end; what stays refused is raised."""

    async def scenario() -> None:
        async with (
            ScriptedBroker() as broker,
            TransactionalProducer(broker.address, "g", unknown, config=QUICK) as producer,
        ):
            ends: list[Any] = []
            script: deque[Any] = deque([int(ResponseCode.SLAVE_NOT_AVAILABLE), HANG_UP, 0])

            def answer(request: Any) -> Any:
                if request.code != RequestCode.END_TRANSACTION:
                    return None
                ends.append(request.header(EndTransactionRequestHeader))
                code = script.popleft()
                return HANG_UP if code == HANG_UP else request.response(code, "as the script says")

            broker.on_request = answer
            half = await producer.send_half(Message("T", b"x"))
            await producer.commit(half)
            assert [end.commit_or_rollback for end in ends] == [8, 8, 8]
            assert ends[-1].tran_state_table_offset == half.queue_offset
            script.append(int(ResponseCode.INVALID_PARAMETER))
            with pytest.raises(RefusedError) as caught:
                await producer.rollback(half)
            assert ends[-1].commit_or_rollback == 12
            assert (caught.value.code, caught.value.retriable) == (29, False)

    run(scenario())


def test_half_message_says_what_it_is() -> None:
    async def scenario() -> None:
        async with (
            ScriptedBroker() as broker,
            TransactionalProducer(broker.address, "g", unknown, config=QUICK) as producer,
        ):
            await producer.send_half(Message("T", b"x", properties={"mine": "1"}))
            header = broker.headers[-1]
            properties = parse_properties(header.properties or "")
            assert header.sys_flag & sysflag.TRANSACTION_PREPARED
            assert (properties["TRAN_MSG"], properties["PGROUP"]) == ("true", "g")
            assert properties["mine"] == "1"
            with pytest.raises(MessageError, match="delayed"):
                await producer.send_half(Message("T", b"x", delay_level=3))
            with pytest.raises(MessageError, match="no half message"):
                await producer.commit(
                    (await producer.send_half(Message("T", b"x")))._replace(
                        offset_message_id="nowhere"
                    )
                )

    run(scenario())
