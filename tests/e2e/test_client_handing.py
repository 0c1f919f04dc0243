"""Sends that threads hand to the loop: bounded, each with an end, whatever happens meanwhile."""

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from concurrent.futures import wait as wait_for

import pytest

from ledgermq.client import (
    ClientError,
    ClosedError,
    Message,
    MessageError,
    ProducerConfig,
    SendError,
    SendResult,
    blocking,
)
from ledgermq.protocol.codes import ResponseCode
from ledgermq.protocol.command import RemotingCommand
from tests.e2e.loopback_broker import LoopbackBroker
from tests.unit.client.virtual_broker import SENDS, Link

# So long may a thread take that has nothing to wait for.
_PATIENCE_S = 60.0


@pytest.fixture
def broker() -> Iterator[LoopbackBroker]:
    with LoopbackBroker() as broker:
        yield broker


def outcomes(futures: list[Future[SendResult]]) -> list[object]:
    done, not_done = wait_for(futures, timeout=_PATIENCE_S)
    assert not not_done, "a send has no end"
    return [future.exception() or future.result() for future in futures]


def test_threads_hand_over_and_each_send_has_its_own_result(broker: LoopbackBroker) -> None:
    results: list[object] = []
    with blocking.Producer(broker.address) as producer:

        def send(thread: int) -> None:
            futures = [producer.submit(Message("T", b"%d.%d" % (thread, n))) for n in range(500)]
            results.extend(outcomes(futures))

        threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(_PATIENCE_S)
        producer.send(Message("T", b"visits"))
    found = [one for one in results if isinstance(one, SendResult)]
    assert len(found) == 2000 == len({one.message_id for one in found})
    assert len({(one.queue_id, one.queue_offset) for one in found}) == 2000
    assert len(broker.bodies()) == 2001


def test_leaving_the_block_and_flush_wait_for_what_was_handed_over(broker: LoopbackBroker) -> None:
    with blocking.Producer(broker.address) as producer:
        first = [producer.submit(Message("T", b"x")) for _ in range(300)]
        producer.flush()
        assert all(future.done() for future in first)
        last = [producer.submit(Message("T", b"y")) for _ in range(300)]
    assert all(isinstance(one, SendResult) for one in outcomes(first + last))


def test_no_more_than_the_limit_is_handed_over(broker: LoopbackBroker) -> None:
    waiting: list[tuple[Link, RemotingCommand]] = []
    is_open = threading.Event()

    def hold(link: Link, request: RemotingCommand) -> bool:
        if request.code not in SENDS or is_open.is_set():
            return False
        waiting.append((link, request))
        return True

    broker.on_request = hold
    config = ProducerConfig(in_flight_max=10, attempt_timeout_s=300, timeout_s=300)
    submitted: list[Future[SendResult]] = []
    with blocking.Producer(broker.address, config=config) as producer:

        def submit() -> None:
            with contextlib.suppress(ClosedError):
                for _ in range(50):
                    submitted.append(producer.submit(Message("T", b"x")))

        thread = threading.Thread(target=submit)
        thread.start()
        broker.wait_until(lambda: len(waiting) == 10)
        # It waits for room, as long as nothing is acknowledged.
        broker.wait_until(lambda: len(submitted) == 10)
        thread.join(0.2)
        assert thread.is_alive() and len(submitted) == 10
        is_open.set()
        broker.answer(waiting)
        thread.join(_PATIENCE_S)
        assert not thread.is_alive()
    assert len(outcomes(submitted)) == 50


def test_close_ends_what_waits_for_room_and_what_was_handed_over(broker: LoopbackBroker) -> None:
    broker.on_request = lambda link, request: request.code in SENDS
    for _ in range(10):
        futures: list[Future[SendResult]] = []
        failures: list[BaseException] = []
        producer = blocking.Producer(broker.address, config=ProducerConfig(in_flight_max=5))
        producer.__enter__()

        def submit(
            producer: blocking.Producer = producer,
            futures: list[Future[SendResult]] = futures,
            failures: list[BaseException] = failures,
        ) -> None:
            try:
                while True:
                    futures.append(producer.submit(Message("T", b"x")))
            except ClosedError as error:
                failures.append(error)

        threads = [threading.Thread(target=submit) for _ in range(4)]
        for thread in threads:
            thread.start()
        broker.wait_until(lambda futures=futures: len(futures) >= 5)
        producer.close()
        for thread in threads:
            thread.join(_PATIENCE_S)
            assert not thread.is_alive(), "a submit has no end"
        assert len(failures) == 4
        assert all(isinstance(one, ClientError) for one in outcomes(futures))
        with pytest.raises(ClosedError):
            producer.submit(Message("T", b"x"))


def test_what_cannot_be_sent_is_refused_at_once_and_a_refusal_is_the_outcome(
    broker: LoopbackBroker,
) -> None:
    def refuse(link: Link, request: RemotingCommand) -> bool:
        if request.code not in SENDS or request.body != b"no":
            return False
        link.answer(request.response(ResponseCode.MESSAGE_ILLEGAL, "no such thing"))
        return True

    broker.on_request = refuse
    with blocking.Producer(broker.address) as producer:
        for wrong in (Message("", b""), Message("T", b"", properties={"": "x"})):
            with pytest.raises(MessageError):
                producer.submit(wrong)
        no, yes = producer.submit(Message("T", b"no")), producer.submit(Message("T", b"yes"))
        refused, stored = outcomes([no, yes])
        assert isinstance(refused, SendError) and refused.code == 13
        assert isinstance(stored, SendResult)


def test_callback_in_the_loops_thread_may_not_submit(broker: LoopbackBroker) -> None:
    """Without room it would wait for itself. A callback that comes late runs in its own thread."""
    caught: list[BaseException] = []
    called = threading.Event()
    with blocking.Producer(broker.address) as producer:

        def again(_: Future[SendResult]) -> None:
            try:
                producer.submit(Message("T", b"y"))
            except ClientError as error:
                caught.append(error)
            called.set()

        producer.submit(Message("T", b"x")).add_done_callback(again)
        assert called.wait(_PATIENCE_S)
    if caught:
        assert "own thread" in str(caught[0])
