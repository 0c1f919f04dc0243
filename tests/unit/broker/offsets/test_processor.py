"""Offsets of groups: when they are answered, and what who asks is told."""

from __future__ import annotations

from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

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
    NotFoundError,
    ServiceUnavailableError,
    SystemBusyError,
    TopicNotFoundError,
)
from ledgermq.state.subscriptions import SubscriptionGroup
from ledgermq.state.topics import TopicConfig
from ledgermq.state.under_way import OnCommitted
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
            lambda header, fields, payer: self.relayed.append(header),
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

    def query(self, group: str = "g", *, zero_if_none: bool = True) -> Any:
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=group, topic="T", queue_id=0, set_zero_if_not_found=zero_if_none
        )
        command = RemotingCommand.request(RequestCode.QUERY_CONSUMER_OFFSET, header)
        return self.processor.query(self.connection, command)


def answers_of(*waiting: Deferred[Any]) -> list[Any]:
    """What came so far."""
    answers: list[Any] = []
    for one in waiting:
        one.addBoth(answers.append)
    return answers


def offset_in(answer: RemotingCommand | Deferred[Any]) -> int:
    if isinstance(answer, Deferred):
        [answer] = answers_of(answer)
    assert isinstance(answer, RemotingCommand)
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
    # Clients of 4.9 would take an error for "there is none", and begin at the end.
    assert answers == [None]
    # What is told from now on is the leader's.
    bench.update(9, one_way=True)
    assert len(bench.relayed) == 1


def confirmations_of(bench: Bench) -> list[OnCommitted]:
    """Who waits, from now on, until it is certain that this member leads."""
    waiting: list[OnCommitted] = []
    bench.parts.state.confirm_lead = waiting.append
    return waiting


def test_a_leader_answers_when_it_is_certain_that_it_led_when_it_was_asked() -> None:
    bench = Bench()
    bench.update(5, one_way=True)
    bench.parts.state.commits.propose()
    bench.parts.commit_state()
    waiting = confirmations_of(bench)
    first, second = answers_of(bench.query()), answers_of(bench.query())
    assert first == second == []
    waiting[0](None)
    assert [offset_in(answer) for answer in first] == [5] and second == []
    waiting[1](ServiceUnavailableError("another member leads"))
    assert second == [None]


def test_an_offset_that_was_on_its_way_is_told_when_that_is_certain_too() -> None:
    """A majority may have acknowledged it before the question, and elected another leader since."""
    bench = Bench()
    bench.update(9, one_way=True)
    waiting = confirmations_of(bench)
    answers = answers_of(bench.query())
    bench.parts.turn.end()
    bench.parts.commit_state()
    assert answers == [] and len(waiting) == 1
    waiting[0](None)
    assert [offset_in(answer) for answer in answers] == [9]


def follower() -> tuple[Bench, list[OnCommitted]]:
    """One that has applied an offset of 5, and who waits until it knows that it is up to date."""
    bench = Bench()
    bench.update(5, one_way=True)
    bench.parts.state.commits.propose()
    bench.parts.commit_state()
    waiting: list[OnCommitted] = []
    bench.parts.leadership.confirm_read = waiting.append
    bench.parts.leadership.changed("FOLLOWER", 2, "n1")
    return bench, waiting


_NOT_KNOWN = ServiceUnavailableError("this member may be behind")


def test_a_follower_answers_when_it_knows_that_it_is_up_to_date() -> None:
    bench, waiting = follower()
    answers, of_others = answers_of(bench.query()), answers_of(bench.query("o", zero_if_none=False))
    assert answers == of_others == []
    # What its leader had committed when it was asked.
    bench.parts.state.offsets.put({"T@g": {0: 9}})
    for done in waiting:
        done(None)
    assert [offset_in(answer) for answer in answers] == [9]
    # Now it is known, too, that there is none.
    assert isinstance(of_others[0], Failure) and of_others[0].check(NotFoundError)


def test_a_follower_whose_leader_does_not_answer_tells_what_it_knows_as_a_slave_does() -> None:
    bench, waiting = follower()
    answers, of_others = answers_of(bench.query()), answers_of(bench.query("o", zero_if_none=False))
    for done in waiting:
        done(_NOT_KNOWN)
    assert [offset_in(answer) for answer in answers] == [5]
    # Of others it may have to hear yet: a consumer that is told "none" begins at the end.
    assert of_others == [None]


def test_nobody_answers_while_no_leader_is_known() -> None:
    bench, waiting = follower()
    answers = answers_of(bench.query())
    bench.parts.leadership.changed("CANDIDATE", 3, None)
    waiting.pop()(_NOT_KNOWN)
    assert answers == [None]


def test_a_follower_that_leads_by_then_answers_as_a_leader() -> None:
    bench, waiting = follower()
    answers, later = answers_of(bench.query()), answers_of(bench.query())
    bench.parts.leadership.changed("LEADER", 3, "n0")
    waiting[0](_NOT_KNOWN)
    assert answers == [None]
    bench.parts.leadership.serve()
    confirming = confirmations_of(bench)
    waiting[1](_NOT_KNOWN)
    assert later == []
    confirming.pop()(None)
    assert [offset_in(answer) for answer in later] == [5]


def test_a_slave_without_a_ledger_asks_nobody() -> None:
    bench, waiting = follower()
    bench.parts.leadership.is_slave = True
    assert offset_in(bench.query()) == 5
    with pytest.raises(NotFoundError):
        bench.query(group="other", zero_if_none=False)
    bench.parts.leadership.changed("CANDIDATE", 2, None)
    assert bench.query() is None and waiting == []


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
