"""A range is read whole, whatever the broker gives at a time and however often it goes away."""

import itertools
import random
import re
from typing import Any

import pytest

from ledgermq.client import MessageQueue
from ledgermq.protocol.codes import ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers import PullMessageRequestHeader, PullMessageResponseHeader
from ledgermq.protocol.record import decode_record, encode_record
from ledgermq.spark.cluster import PassingError
from ledgermq.spark.errors import ClusterError, OffsetsRemovedError
from ledgermq.spark.partitions import QueueRange
from ledgermq.spark.pulling import Pace, RangePull
from ledgermq.spark.wire import LostError

HOST = (b"\x7f\0\0\1", 1)


class Broker:
    """A queue in memory; as cluster and as connection, which may be lost at any answer."""

    def __init__(self, count: int, *, per_answer: int, seed: int = 0, loss: float = 0.0) -> None:
        self.records = [
            encode_record(
                b"T", 0, 0, n, n, 0, 0, HOST, 0, HOST, 0, 0, b"x" * (n % 90), b"TAGS\x01A\x02"
            )
            for n in range(count)
        ]
        self.min_offset = 0
        self.per_answer = per_answer
        self.timeout_s = 0.3
        self.address = "b:1"
        # What a new leader has dispatched so far.
        self.max_offset = count
        self.wanted_tags = lambda n: True
        self.forgotten = 0
        self.pulls = 0
        self._draws = random.Random(seed)
        self._loss = loss
        self._requests: dict[int, RemotingCommand] = {}
        self._numbers = itertools.count()

    def wire_to_master(self, queue: MessageQueue) -> "Broker":
        assert queue == MessageQueue("T", "a", 0)
        if self._draws.random() < self._loss:
            raise PassingError("no leader")
        return self

    def forget(self, queue: MessageQueue) -> None:
        self.forgotten += 1
        self._requests.clear()

    def send(self, command: RemotingCommand) -> int:
        if self._draws.random() < self._loss:
            raise LostError("gone")
        number = next(self._numbers)
        self._requests[number] = command
        return number

    def receive(self, number: int) -> RemotingCommand:
        if self._draws.random() < self._loss:
            raise LostError("gone")
        self.pulls += 1
        command = self._requests.pop(number)
        header = command.header(PullMessageRequestHeader)
        return self.answer(command, header.queue_offset, header.max_msg_nums)

    def answer(self, command: RemotingCommand, offset: int, count: int) -> RemotingCommand:
        code, next_offset, body = ResponseCode.SUCCESS, offset, b""
        if offset < self.min_offset:
            code, next_offset = ResponseCode.PULL_OFFSET_MOVED, self.min_offset
        elif offset >= self.max_offset:
            code = ResponseCode.PULL_NOT_FOUND
        else:
            stop = min(self.max_offset, offset + min(count, self.per_answer))
            found = [n for n in range(offset, stop) if self.wanted_tags(n)]
            body, next_offset = b"".join(self.records[n] for n in found), stop
            if not found:
                code = ResponseCode.PULL_RETRY_IMMEDIATELY
        fields = PullMessageResponseHeader(
            suggest_which_broker_id=0,
            next_begin_offset=next_offset,
            min_offset=self.min_offset,
            max_offset=self.max_offset,
        )
        return command.response(code, None, fields, body)


def pull(
    broker: Any,
    start: int,
    end: int,
    *,
    fetch_bytes: int = 20_000,
    tags: frozenset[str] = frozenset(),
    fails: bool = True,
) -> list[int]:
    """Queue offsets that come, with the bounds of each run checked."""
    wanted = QueueRange(topic="T", broker_name="a", queue_id=0, start_offset=start, end_offset=end)
    found: list[int] = []
    reached = start
    for run in RangePull(
        broker, wanted, group="g", tags=tags, fetch_bytes=fetch_bytes, fails_on_data_loss=fails
    ).runs():
        assert run.start_offset >= reached and run.end_offset <= end
        reached, at = run.end_offset, 0
        while at < len(run.records):
            record = decode_record(run.records, at)
            at += record.size_bytes
            assert run.start_offset <= record.queue_offset
            found.append(record.queue_offset)
    return found


@pytest.mark.parametrize("per_answer", [1, 7, 32, 5000])
def test_any_answer_size_gives_the_whole_range(per_answer: int) -> None:
    broker = Broker(500, per_answer=per_answer)
    assert pull(broker, 3, 490) == list(range(3, 490))
    assert pull(broker, 0, 500, fetch_bytes=500_000) == list(range(500))
    assert pull(broker, 5, 5) == []


def test_answers_of_changing_size_leave_no_hole() -> None:
    broker = Broker(1500, per_answer=40)
    draws = random.Random(3)
    whole = broker.answer

    def answer(command: RemotingCommand, offset: int, count: int) -> RemotingCommand:
        broker.per_answer = draws.choice([1, 3, 40, 200])
        return whole(command, offset, count)

    broker.answer = answer  # type: ignore[method-assign]
    assert pull(broker, 0, 1500) == list(range(1500))


@pytest.mark.parametrize("seed", range(6))
def test_lost_connections_and_leaders_leave_no_hole(seed: int) -> None:
    broker = Broker(600, per_answer=16, seed=seed, loss=0.05)
    broker.timeout_s = 20.0
    assert pull(broker, 10, 600, fetch_bytes=5_000) == list(range(10, 600))
    assert broker.forgotten > 0


def test_a_filter_goes_over_what_the_broker_skips() -> None:
    broker = Broker(400, per_answer=16)
    broker.wanted_tags = lambda n: n % 50 == 0
    found = pull(broker, 20, 390, tags=frozenset({"A"}))
    assert [n for n in found if n < 390] == list(range(50, 390, 50))


def test_removed_messages_are_an_error_or_a_gap() -> None:
    broker = Broker(100, per_answer=8)
    broker.min_offset = 30
    with pytest.raises(OffsetsRemovedError, match="offsets 10 to 30 of queue 0 of topic T"):
        pull(broker, 10, 60)
    assert pull(broker, 10, 60, fails=False) == list(range(30, 60))
    assert pull(broker, 10, 20, fails=False) == []


def test_retention_in_the_midst_of_a_read_is_seen() -> None:
    broker = Broker(100, per_answer=8)
    whole = broker.answer

    def answer(command: RemotingCommand, offset: int, count: int) -> RemotingCommand:
        if offset >= 16:
            broker.min_offset = 50
        return whole(command, offset, count)

    broker.answer = answer  # type: ignore[method-assign]
    assert pull(broker, 0, 80, fails=False) == [*range(16), *range(50, 80)]


def test_a_leader_that_lacks_the_range_is_waited_for_and_then_named() -> None:
    broker = Broker(100, per_answer=8)
    broker.max_offset = 40
    with pytest.raises(ClusterError, match="nothing at offset 40, the queue holds 0 up to 40"):
        pull(broker, 0, 60)
    broker = Broker(100, per_answer=8)
    broker.max_offset, broker.timeout_s = 40, 10.0
    forget = broker.forget

    def catch_up(queue: MessageQueue) -> None:
        forget(queue)
        broker.max_offset = 100

    broker.forget = catch_up  # type: ignore[method-assign]
    assert pull(broker, 0, 60) == list(range(60))


def test_a_broker_that_dies_in_the_middle_and_stays_dead_is_named() -> None:
    broker = Broker(100, per_answer=8)
    whole = broker.answer

    def answer(command: RemotingCommand, offset: int, count: int) -> RemotingCommand:
        if offset >= 16:
            raise LostError("no answer from b:1: it closed the connection")
        return whole(command, offset, count)

    broker.answer = answer  # type: ignore[method-assign]
    with pytest.raises(ClusterError, match="queue 0 of topic T on a: no answer from b:1: it close"):
        pull(broker, 0, 80)


@pytest.mark.parametrize(
    ("code", "remark"),
    [
        (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "no such group"),
        (ResponseCode.NO_PERMISSION, "the topic[T] pulling message is forbidden"),
        (ResponseCode.SYSTEM_ERROR, "Check signature failed for accessKey=me"),
    ],
)
def test_a_refusal_that_does_not_pass_is_told_at_once(code: ResponseCode, remark: str) -> None:
    broker = Broker(10, per_answer=8)
    # Would end the test by its time limit.
    broker.timeout_s = 3600.0
    broker.answer = lambda command, offset, count: command.response(  # type: ignore[method-assign]
        code, remark
    )
    with pytest.raises(ClusterError, match=re.escape(remark)):
        pull(broker, 0, 5)
    assert broker.pulls == 1


def test_a_pace_is_kept_on_the_average_and_idle_time_is_not_saved_up() -> None:
    now_s = [0.0]

    def wait(seconds: float) -> None:
        now_s[0] += seconds

    pace = Pace(1000, lambda: now_s[0], wait)
    for _ in range(5):
        pace.spend(500)
    assert now_s[0] == pytest.approx(2.5)
    now_s[0] = 100.0
    pace.spend(0)
    pace.spend(2000)
    assert now_s[0] == pytest.approx(102.0)
