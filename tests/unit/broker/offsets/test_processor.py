"""Offsets of groups: when they are answered, and what who asks is told."""

from __future__ import annotations

from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred

from ledgermq.broker.offsets.processor import OffsetProcessor
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from ledgermq.state.errors import (
    GroupNotFoundError,
    InvalidRequestError,
    ServiceUnavailableError,
    SystemBusyError,
    TopicNotFoundError,
)
from ledgermq.state.subscriptions import SubscriptionGroup
from ledgermq.state.topics import TopicConfig
from tests.unit.broker.parts import ListConnection, Parts


class Bench:
    """A leader that is asked by consumers."""

    def __init__(self, **settings: str) -> None:
        self.parts = Parts(**settings).lead(is_prompt=False)
        self.parts.state.put_topic(TopicConfig("T", 4, 4))
        self.parts.state.put_group(SubscriptionGroup("g"))
        self.parts.commit_state()
        self.relayed: list[object] = []
        self.processor = OffsetProcessor(
            self.parts.leadership,
            self.parts.state,
            cast(Any, None),
            0,
            lambda header, fields: self.relayed.append(header),
        )
        self.connection = cast(Any, ListConnection())

    def update(
        self,
        offset: int,
        *,
        one_way: bool,
        group: str = "g",
        topic: str = "T",
        queue_id: int = 0,
    ) -> Any:
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=offset
        )
        command = RemotingCommand.request(
            RequestCode.UPDATE_CONSUMER_OFFSET, header, one_way=one_way
        )
        return self.processor.update(self.connection, command)

    def query(self) -> Any:
        header = QueryConsumerOffsetRequestHeader(consumer_group="g", topic="T", queue_id=0)
        command = RemotingCommand.request(RequestCode.QUERY_CONSUMER_OFFSET, header)
        return self.processor.query(self.connection, command)


def answers_of(*waiting: Deferred[Any]) -> list[Any]:
    """What came so far."""
    answers: list[Any] = []
    for one in waiting:
        one.addBoth(answers.append)
    return answers


def offset_in(answer: RemotingCommand) -> int:
    return answer.header(QueryConsumerOffsetResponseHeader).offset


def test_who_waits_is_answered_when_the_offset_is_committed() -> None:
    bench = Bench()
    answers = answers_of(bench.update(5, one_way=False))
    bench.parts.turn.end()
    assert answers == []
    bench.parts.commit_state()
    assert [answer.code for answer in answers] == [ResponseCode.SUCCESS]
    assert offset_in(bench.query()) == 5


def test_the_last_word_of_a_consumer_that_ends_counts_for_the_next_one() -> None:
    bench = Bench()
    bench.update(5, one_way=False)
    bench.parts.turn.end()
    bench.parts.commit_state()
    # Told one-way, as stock clients do when they end; then another one asks.
    bench.update(9, one_way=True)
    asked = bench.query()
    assert isinstance(asked, Deferred)
    answers = answers_of(asked)
    bench.parts.turn.end()
    # Nobody sees it before it is committed.
    assert answers == [] and bench.parts.state.offsets.find("g", "T", 0) == 5
    assert len(bench.parts.commit_state()) == 1
    assert [offset_in(answer) for answer in answers] == [9]


def test_who_asks_a_leader_that_is_lost_meanwhile_is_not_told_an_old_offset() -> None:
    bench = Bench()
    bench.update(9, one_way=True)
    answers = answers_of(bench.query())
    bench.parts.leadership.changed("FOLLOWER", 2, "n1")
    bench.parts.state.follow()
    bench.parts.turn.end()
    [failure] = answers
    assert failure.check(ServiceUnavailableError) is ServiceUnavailableError
    # What is told from now on is the leader's.
    bench.update(9, one_way=True)
    assert len(bench.relayed) == 1


@pytest.mark.parametrize("one_way", [False, True])
def test_topics_and_queues_that_are_not_there_have_no_offsets(one_way: bool) -> None:
    """Whoever asked could once fill the table for ever."""
    bench = Bench()
    state = bench.parts.state
    with pytest.raises(TopicNotFoundError, match=r"group\[new\] not stored: topic\[gone\] not"):
        bench.update(1, one_way=one_way, topic="gone", group="new")
    with pytest.raises(InvalidRequestError, match=r"queueId is 4, topic\[T\] has 4 queues"):
        bench.update(1, one_way=one_way, queue_id=4, group="new")
    assert not state.is_making
    bench.update(1, one_way=one_way, queue_id=3)


def test_a_group_that_commits_before_its_heart_beat_is_made() -> None:
    """Spark and tools commit for groups that no client is in."""
    bench = Bench()
    answers = answers_of(bench.update(5, one_way=False, group="new"))
    bench.parts.turn.end()
    assert len(bench.parts.commit_state()) == 2
    assert [answer.code for answer in answers] == [ResponseCode.SUCCESS]
    state = bench.parts.state
    assert state.groups.find("new") is not None and state.offsets.find("new", "T", 0) == 5


def test_a_group_that_may_not_come_into_being_has_no_offsets() -> None:
    closed = Bench(autoCreateSubscriptionGroup="false")
    with pytest.raises(GroupNotFoundError, match="autoCreateSubscriptionGroup"):
        closed.update(5, one_way=True, group="new")
    closed.update(5, one_way=True)
    slow = Bench(maxNewGroupsPerAddress="1", maxNewGroupsAtOnce="1")
    slow.update(5, one_way=True, group="new")
    with pytest.raises(SystemBusyError, match="maxNewGroupsPerAddress"):
        slow.update(5, one_way=True, group="other")


def test_a_topic_on_its_way_has_offsets_already() -> None:
    bench = Bench()
    bench.parts.state.make_topic(TopicConfig("new"))
    bench.update(5, one_way=True, topic="new")
    bench.parts.state.write_offsets()
    bench.parts.commit_state()
    assert bench.parts.state.offsets.find("g", "new", 0) == 5


def test_offsets_of_queues_that_a_topic_no_longer_has_go_on() -> None:
    bench = Bench()
    bench.update(5, one_way=True, queue_id=3)
    bench.parts.state.write_offsets()
    bench.parts.state.put_topic(TopicConfig("T", 1, 1))
    bench.parts.commit_state()
    bench.update(6, one_way=True, queue_id=3)


def test_a_slave_keeps_offsets_of_what_it_knows() -> None:
    bench = Bench()
    bench.parts.state.follow()
    bench.parts.leadership.is_slave = True
    bench.parts.leadership.changed("FOLLOWER", 2, None)
    with pytest.raises(GroupNotFoundError, match="does not know the group"):
        bench.update(5, one_way=True, group="new")
    with pytest.raises(TopicNotFoundError):
        bench.update(5, one_way=True, topic="gone")
    bench.update(5, one_way=True)
    assert bench.parts.state.offsets.find("g", "T", 0) == 5
