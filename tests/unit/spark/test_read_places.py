"""Followers give what they have, and the leader gives the rest; the rows are the same."""

from collections import Counter

import pytest

from ledgermq.protocol.codes import ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers import PullMessageResponseHeader
from ledgermq.spark.errors import OffsetsRemovedError
from ledgermq.spark.partitions import QueueRange
from ledgermq.spark.read_places import ReadFrom, ReadPlaces
from ledgermq.spark.wire import LostError
from tests.unit.spark.broker_in_memory import Broker, pull

MEMBERS = {0: "h:1", 2: "h:2", 3: "h:3"}
COUNT = 300


def range_of(queue_id: int, start_offset: int = 0) -> QueueRange:
    return QueueRange(
        topic="T",
        broker_name="a",
        queue_id=queue_id,
        start_offset=start_offset,
        end_offset=start_offset + 10,
    )


def group() -> tuple[Broker, Broker]:
    """A leader and its follower, with the same messages."""
    leader, follower = Broker(COUNT, per_answer=16), Broker(COUNT, per_answer=16)
    leader.group[2] = follower
    return leader, follower


@pytest.mark.parametrize(
    ("read_from", "expected"),
    [
        (ReadFrom.LEADER, {0: 12}),
        (ReadFrom.FOLLOWER, {2: 6, 3: 6}),
        (ReadFrom.ANY, {0: 4, 2: 4, 3: 4}),
    ],
)
def test_the_queues_of_a_topic_are_shared_out(
    read_from: ReadFrom, expected: dict[int, int]
) -> None:
    chosen = [ReadPlaces(read_from, range_of(queue)).choose(MEMBERS) for queue in range(12)]
    assert Counter(chosen) == expected


def test_the_parts_of_one_queue_are_shared_out() -> None:
    chosen = [
        ReadPlaces(ReadFrom.FOLLOWER, range_of(0, start)).choose(MEMBERS)
        for start in range(0, 10_000, 100)
    ]
    assert min(Counter(chosen).values()) > 30 and set(chosen) == {2, 3}


def test_who_is_left_out_is_followed_by_others_and_at_last_by_the_leader() -> None:
    places = ReadPlaces(ReadFrom.FOLLOWER, range_of(0))
    first = places.choose(MEMBERS)
    places.leave_out(first)
    second = places.choose(MEMBERS)
    assert {first, second} == {2, 3}
    places.leave_out(second)
    assert places.choose(MEMBERS) == 0
    assert ReadPlaces(ReadFrom.FOLLOWER, range_of(0)).choose({0: "h:1"}) == 0
    assert ReadPlaces(ReadFrom.ANY, range_of(0)).choose({}) == 0


def test_a_follower_spares_the_leader() -> None:
    leader, follower = group()
    assert pull(leader, 5, COUNT, read_from=ReadFrom.FOLLOWER) == list(range(5, COUNT))
    assert leader.pulls == 0 and follower.pulls > 0


def test_a_group_without_a_leader_is_read() -> None:
    leader, _ = group()
    del leader.group[0]
    assert pull(leader, 5, COUNT, read_from=ReadFrom.FOLLOWER) == list(range(5, COUNT))


def test_what_a_follower_lacks_comes_from_the_leader() -> None:
    leader, follower = group()
    leader.timeout_s = 10.0
    follower.max_offset = 100
    assert pull(leader, 0, COUNT, read_from=ReadFrom.FOLLOWER) == list(range(COUNT))
    assert follower.pulls >= 100 // 16 and leader.pulls >= 200 // 16


def test_a_follower_that_lacks_the_last_commit_is_asked_again() -> None:
    leader, follower = group()
    leader.timeout_s = 10.0
    follower.max_offset = 100
    whole, misses = follower.answer, []

    def answer(command: RemotingCommand, offset: int, count: int) -> RemotingCommand:
        answered = whole(command, offset, count)
        if offset >= follower.max_offset:
            misses.append(offset)
            follower.max_offset = COUNT
        return answered

    follower.answer = answer  # type: ignore[method-assign]
    assert pull(leader, 0, COUNT, read_from=ReadFrom.FOLLOWER) == list(range(COUNT))
    assert misses and leader.pulls == 0


def test_what_retention_removed_is_believed_of_the_leader_alone() -> None:
    leader, follower = group()
    leader.timeout_s = 10.0
    follower.min_offset = 50
    assert pull(leader, 0, 80, read_from=ReadFrom.FOLLOWER) == list(range(80))
    assert pull(leader, 0, 80, fails=False, read_from=ReadFrom.FOLLOWER) == list(range(80))
    leader.min_offset = 30
    with pytest.raises(OffsetsRemovedError, match="offsets 0 to 30"):
        pull(leader, 0, 80, read_from=ReadFrom.FOLLOWER)


@pytest.mark.parametrize("remark", ["MESSAGE_WAS_REMOVING", "OFFSET_OVERFLOW_BADLY"])
def test_a_follower_may_not_pass_over_messages(remark: str) -> None:
    """Not with a filter either, where one that lets nothing pass is answered with the same code."""
    leader, follower = group()
    leader.timeout_s = 10.0

    def answer(command: RemotingCommand, offset: int, count: int) -> RemotingCommand:
        fields = PullMessageResponseHeader(
            suggest_which_broker_id=0, next_begin_offset=offset + 50, min_offset=0, max_offset=COUNT
        )
        return command.response(ResponseCode.PULL_RETRY_IMMEDIATELY, remark, fields)

    follower.answer = answer  # type: ignore[method-assign]
    assert pull(leader, 0, 80, read_from=ReadFrom.FOLLOWER) == list(range(80))
    found = pull(leader, 0, 80, tags=frozenset({"A"}), read_from=ReadFrom.FOLLOWER)
    assert [offset for offset in found if offset < 80] == list(range(80))


def test_a_filter_is_applied_by_a_follower() -> None:
    leader, follower = group()
    follower.wanted_tags = lambda offset: offset % 50 == 0
    found = pull(leader, 20, 290, tags=frozenset({"A"}), read_from=ReadFrom.FOLLOWER)
    assert [offset for offset in found if offset < 290] == list(range(50, 290, 50))
    assert leader.pulls == 0


@pytest.mark.parametrize(
    ("code", "remark"),
    [
        (ResponseCode.SYSTEM_ERROR, "a disk is full"),
        (ResponseCode.NO_PERMISSION, "no such account yet"),
        (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "no such group yet"),
    ],
)
def test_a_follower_that_refuses_is_no_reason_to_fail(code: ResponseCode, remark: str) -> None:
    leader, follower = group()

    def refuse(command: RemotingCommand, offset: int, count: int) -> RemotingCommand:
        return command.response(code, remark)

    follower.answer = refuse  # type: ignore[method-assign]
    assert pull(leader, 0, COUNT, read_from=ReadFrom.FOLLOWER) == list(range(COUNT))
    # At most those that were on their way.
    assert follower.pulls == 1


def test_a_follower_that_dies_in_the_midst_leaves_no_hole() -> None:
    leader, follower = group()
    whole = follower.answer

    def answer(command: RemotingCommand, offset: int, count: int) -> RemotingCommand:
        if offset >= 100:
            raise LostError("gone")
        return whole(command, offset, count)

    follower.answer = answer  # type: ignore[method-assign]
    assert pull(leader, 0, COUNT, read_from=ReadFrom.FOLLOWER) == list(range(COUNT))
    assert follower.forgotten == 1 and leader.pulls > 0


@pytest.mark.parametrize("seed", range(4))
def test_lost_connections_to_anybody_leave_no_hole(seed: int) -> None:
    lossy = Broker(COUNT, per_answer=16, seed=seed, loss=0.05)
    lossy.timeout_s = 20.0
    lossy.group[2] = Broker(COUNT, per_answer=7, seed=seed + 100, loss=0.05)
    found = pull(lossy, 10, COUNT, fetch_bytes=5_000, read_from=ReadFrom.ANY)
    assert found == list(range(10, COUNT))
