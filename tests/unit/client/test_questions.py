"""What a consumer answers to its broker."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from ledgermq.client.listening import Listening
from ledgermq.client.messages import ReceivedMessage
from ledgermq.client.process_queue import ProcessQueue
from ledgermq.client.questions import Consumer, Questions
from ledgermq.client.user_function import UserFunction
from ledgermq.protocol.bodies import ConsumeMessageDirectlyResult, MessageQueue, ResetOffsetBody
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    Header,
    ResetOffsetRequestHeader,
)
from ledgermq.protocol.record import encode_record
from ledgermq.protocol.running_info import ConsumerRunningInfo, ConsumerStatusBody
from tests.unit.client.parts import HOST, OTHER, QUEUE, messages, run


class Holding:
    """One queue with three messages, one of them consumed."""

    def __init__(self) -> None:
        self.queue = ProcessQueue(QUEUE, 0)
        pulled = self.queue.add(messages(0, 3), 3)
        self.queue.consumed(pulled[0])
        self.moved: dict[MessageQueue, int] = {}

    def positions(self, topic: str) -> dict[MessageQueue, int]:
        return {QUEUE: self.queue.committable()} if topic == QUEUE.topic else {}

    def held(self) -> list[ProcessQueue]:
        return [self.queue]

    async def move(self, offsets: Mapping[MessageQueue, int]) -> None:
        self.moved.update(offsets)


async def refuse_odd(message: ReceivedMessage) -> None:
    if message.queue_offset % 2:
        raise ValueError("odd")


def questions(holding: Holding, *, has_listener: bool = True) -> Questions:
    return Questions(
        Consumer(
            group="g",
            is_orderly=False,
            name_servers=("ns:9876",),
            concurrency=7,
            body_bytes_max=1000,
            subscriptions=tuple,
            holding=holding,  # type: ignore[arg-type]
            listening=Listening("g", UserFunction(refuse_odd, 1)) if has_listener else None,
            locks=None,
        )
    )


def request(code: RequestCode, header: Header, body: bytes = b"") -> RemotingCommand:
    return RemotingCommand.request(code, header, body)


def asked_of(group: str) -> list[RemotingCommand]:
    """All four, asked of a group."""
    return [
        request(
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
            ResetOffsetRequestHeader(topic="T", group=group, timestamp=0),
            ResetOffsetBody({QUEUE: 1}).encode(),
        ),
        request(
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
            GetConsumerStatusRequestHeader(topic="T", group=group),
        ),
        request(
            RequestCode.GET_CONSUMER_RUNNING_INFO,
            GetConsumerRunningInfoRequestHeader(consumer_group=group, client_id="me"),
        ),
        trial(group, 0),
    ]


def trial(group: str, offset: int) -> RemotingCommand:
    header = ConsumeMessageDirectlyResultRequestHeader(consumer_group=group, broker_name="b")
    body = encode_record(b"T", 0, 0, offset, 0, 0, 0, HOST, 0, HOST, 0, 0, b"body", b"")
    return request(RequestCode.CONSUME_MESSAGE_DIRECTLY, header, body)


async def answered(answer: Any) -> RemotingCommand:
    assert answer is not None
    found: RemotingCommand = await answer if isinstance(answer, asyncio.Task) else answer
    return found


def test_offsets_and_state_are_told() -> None:
    async def scenario() -> None:
        asked = questions(Holding())
        _, offsets, state, _ = asked_of("g")
        told = await answered(asked.answer(offsets))
        assert b'"messageQueueTable":{{"brokerName":"b","queueId":0,"topic":"T"}:1}' in told.body
        assert told.body == ConsumerStatusBody({QUEUE: 1}).encode()
        info = ConsumerRunningInfo.decode((await answered(asked.answer(state))).body)
        queue = info.mq_table[QUEUE]
        assert (queue.commit_offset, queue.cached_msg_count) == (1, 2)
        assert (queue.cached_msg_min_offset, queue.cached_msg_max_offset) == (1, 2)
        assert info.properties["PROP_THREADPOOL_CORE_SIZE"] == "7"
        assert info.properties["PROP_NAMESERVER_ADDR"] == "ns:9876"

    run(scenario())


@pytest.mark.parametrize("as_list", [False, True])
def test_queues_go_on_where_the_broker_says(as_list: bool) -> None:
    """In the form for Java, and in the one for C++."""

    async def scenario() -> None:
        holding = Holding()
        asked = questions(holding)
        body = ResetOffsetBody({QUEUE: 5, OTHER: 6})
        header = ResetOffsetRequestHeader(topic="T", group="g", timestamp=0)
        data = body.encode_list() if as_list else body.encode()
        asked.answer(request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, header, data))
        while not holding.moved:
            await asyncio.sleep(0)
        assert holding.moved == {QUEUE: 5, OTHER: 6}

    run(scenario())


@pytest.mark.parametrize(("offset", "result"), [(0, "CR_SUCCESS"), (1, "CR_THROW_EXCEPTION")])
def test_a_message_is_consumed_on_demand(offset: int, result: str) -> None:
    async def scenario() -> None:
        told = await answered(questions(Holding()).answer(trial("g", offset)))
        found = ConsumeMessageDirectlyResult.decode(told.body)
        assert found.consume_result == result
        assert found.remark == (None if result == "CR_SUCCESS" else "ValueError: odd")

    run(scenario())


def test_what_is_none_of_its_business_is_refused() -> None:
    async def scenario() -> None:
        holding = Holding()
        asked = questions(holding)
        for command in asked_of("other"):
            told = await answered(asked.answer(command))
            assert (told.code, told.body) == (1, b"")
            assert "<other> not exist" in (told.remark or "")
        assert holding.moved == {}
        told = await answered(questions(holding, has_listener=False).answer(trial("g", 0)))
        assert told.code == 1 and "no listener" in (told.remark or "")
        assert asked.answer(RemotingCommand(code=4711)) is None

    run(scenario())


def test_bytes_that_are_none_of_these_are_refused() -> None:
    async def scenario() -> None:
        asked = questions(Holding())
        for command in asked_of("g"):
            broken = RemotingCommand(code=command.code, body=b"{")
            told = await answered(asked.answer(broken))
            assert told.code == 1 and told.remark
        cut = trial("g", 0)
        cut.body = cut.body[:-1]
        assert (await answered(asked.answer(cut))).code == 1

    run(scenario())
