"""Offsets of groups: when they are answered, and what who asks is told."""

from __future__ import annotations

from typing import Any, cast

from twisted.internet.defer import Deferred

from ledgermq.broker.offsets.processor import OffsetProcessor
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from ledgermq.state.errors import ServiceUnavailableError
from tests.unit.broker.parts import ListConnection, Parts


class Bench:
    """A leader that is asked by consumers."""

    def __init__(self) -> None:
        self.parts = Parts().lead(is_prompt=False)
        self.relayed: list[object] = []
        self.processor = OffsetProcessor(
            self.parts.leadership,
            self.parts.state,
            cast(Any, None),
            0,
            lambda header, fields: self.relayed.append(header),
        )
        self.connection = cast(Any, ListConnection())

    def update(self, offset: int, *, one_way: bool) -> Any:
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group="g", topic="T", queue_id=0, commit_offset=offset
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
