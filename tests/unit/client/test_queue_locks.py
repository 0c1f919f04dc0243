"""Locks of queues: what a broker grants, and what a member may count on."""

import asyncio

import pytest

from ledgermq.client.errors import ClientError, RefusedError
from ledgermq.client.queue_locks import VALID_S, QueueLocks
from ledgermq.protocol.bodies import LockBatchRequestBody, LockBatchResponseBody, MessageQueue
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from tests.unit.client.parts import OTHER, QUEUE, Instance, run


class Broker:
    """Grants what nobody else has."""

    def __init__(self) -> None:
        self.taken_by_others: set[MessageQueue] = set()
        self.given_back: list[MessageQueue] = []
        # A response code in place of an answer; None is silence.
        self.trouble: int | None = 0
        # The member's clock.
        self.now_s = 100.0

    def answer(self, command: RemotingCommand) -> RemotingCommand | None:
        if self.trouble is None:
            return None
        if self.trouble:
            return command.response(self.trouble, "as the test says")
        body = LockBatchRequestBody.decode(command.body)
        assert (body.consumer_group, body.client_id) == ("g", "me@1")
        if command.code == RequestCode.UNLOCK_BATCH_MQ:
            self.given_back += body.mq_set
            return command.response(0)
        granted = [queue for queue in body.mq_set if queue not in self.taken_by_others]
        return command.response(0, body=LockBatchResponseBody(granted).encode())


def locks_of(broker: Broker) -> QueueLocks:
    return QueueLocks(Instance(broker.answer), "g", lambda: broker.now_s)  # type: ignore[arg-type]


def test_a_lock_is_valid_for_a_while_after_it_was_granted() -> None:
    async def scenario() -> None:
        broker = Broker()
        locks = locks_of(broker)
        assert not locks.is_valid(QUEUE)
        assert await locks.take(QUEUE)
        assert locks.is_valid(QUEUE) and not locks.is_valid(OTHER)
        broker.now_s += VALID_S
        assert not locks.is_valid(QUEUE)
        assert await locks.renew([QUEUE]) == []
        assert locks.is_valid(QUEUE)

    run(scenario())


def test_a_lock_of_another_member_is_not_had() -> None:
    async def scenario() -> None:
        broker = Broker()
        broker.taken_by_others = {QUEUE}
        locks = locks_of(broker)
        assert not await locks.take(QUEUE)
        assert await locks.take(OTHER)
        broker.taken_by_others = {OTHER}
        assert await locks.renew([QUEUE, OTHER]) == [OTHER]
        assert locks.is_valid(QUEUE) and not locks.is_valid(OTHER)

    run(scenario())


@pytest.mark.parametrize("trouble", [1, None])
def test_a_broker_that_does_not_grant_anything_takes_nothing_away(trouble: int | None) -> None:
    async def scenario() -> None:
        broker = Broker()
        locks = locks_of(broker)
        await locks.take(QUEUE)
        broker.trouble = trouble
        broker.now_s += VALID_S - 1
        assert await locks.renew([QUEUE]) == []
        assert locks.is_valid(QUEUE)
        with pytest.raises(ClientError) as caught:
            await locks.take(QUEUE)
        assert caught.value.retriable
        assert isinstance(caught.value, RefusedError) == (trouble is not None)

    run(scenario())


def test_a_queue_that_is_given_back_is_not_counted_on() -> None:
    async def scenario() -> None:
        broker = Broker()
        locks = locks_of(broker)
        await locks.take(QUEUE)
        await locks.give_back(QUEUE)
        assert (broker.given_back, locks.is_valid(QUEUE)) == ([QUEUE], False)
        broker.trouble = None
        await asyncio.wait_for(locks.give_back(OTHER), 1)

    run(scenario())
