"""A range is read whole, whatever the broker gives at a time and however often it goes away."""

import random
import re

import pytest

from ledgermq.client import MessageQueue
from ledgermq.protocol.codes import ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.spark.errors import ClusterError, OffsetsRemovedError
from ledgermq.spark.pulling import Pace
from ledgermq.spark.wire import LostError
from tests.unit.spark.broker_in_memory import Broker, pull


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

    def catch_up(queue: MessageQueue, broker_id: int = 0) -> None:
        forget(queue, broker_id)
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
