"""Messages that wait to be asked for."""

import asyncio

import pytest

from ledgermq.client.errors import UnreachableError
from ledgermq.client.inbox import Inbox
from ledgermq.client.process_queue import ProcessQueue
from ledgermq.protocol.bodies import MessageQueue
from tests.unit.client.parts import OTHER, QUEUE, messages, run


def filled(*queues: ProcessQueue, count: int = 3) -> Inbox:
    inbox = Inbox()
    for held in queues:
        inbox.put_all(held, messages(0, count))
    return inbox


def offsets(inbox: Inbox, count_max: int) -> list[tuple[MessageQueue, int]]:
    return [(held.queue, message.queue_offset) for held, message in inbox.take(count_max)]


def test_queues_take_turns_and_keep_their_order() -> None:
    inbox = filled(ProcessQueue(QUEUE, 0), ProcessQueue(OTHER, 0))
    assert offsets(inbox, 2) == [(QUEUE, 0), (QUEUE, 1)]
    assert offsets(inbox, 2) == [(OTHER, 0), (OTHER, 1)]
    assert offsets(inbox, 9) == [(QUEUE, 2), (OTHER, 2)]
    assert inbox.take(9) == []


def test_paused_queue_waits_with_all_it_has() -> None:
    inbox = filled(ProcessQueue(QUEUE, 0), ProcessQueue(OTHER, 0))
    inbox.pause(QUEUE)
    assert inbox.paused() == [QUEUE]
    assert offsets(inbox, 9) == [(OTHER, 0), (OTHER, 1), (OTHER, 2)]
    assert inbox.take(9) == []
    inbox.resume(QUEUE)
    assert offsets(inbox, 9) == [(QUEUE, 0), (QUEUE, 1), (QUEUE, 2)]


def test_messages_of_a_dropped_queue_are_left_out() -> None:
    held = ProcessQueue(QUEUE, 0)
    inbox = filled(held, ProcessQueue(OTHER, 0), count=1)
    held.is_dropped = True
    assert offsets(inbox, 9) == [(OTHER, 0)]


def test_forgotten_queue_is_empty_and_not_paused() -> None:
    inbox = filled(ProcessQueue(QUEUE, 0))
    inbox.pause(QUEUE)
    inbox.forget(QUEUE)
    assert (inbox.take(9), inbox.paused()) == ([], [])


def test_failure_is_seen_once() -> None:
    inbox = filled(ProcessQueue(QUEUE, 0), count=1)
    inbox.fail(UnreachableError("no"))
    with pytest.raises(UnreachableError):
        inbox.take(1)
    assert offsets(inbox, 1) == [(QUEUE, 0)]


def test_news_is_what_can_be_taken_a_failure_or_the_end() -> None:
    async def scenario() -> None:
        held = ProcessQueue(QUEUE, 0)
        inbox = Inbox()
        inbox.pause(QUEUE)
        waiting = asyncio.create_task(inbox.news())
        inbox.put_all(held, messages(0, 1))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting.done()
        inbox.resume(QUEUE)
        await waiting
        inbox.take(1)
        for tell in (lambda: inbox.fail(UnreachableError("no")), inbox.close):
            waiting = asyncio.create_task(inbox.news())
            await asyncio.sleep(0)
            assert not waiting.done()
            tell()
            await waiting
            if not inbox.is_closed:
                with pytest.raises(UnreachableError):
                    inbox.take(1)

    run(scenario())
