"""Which broker a pull is told to ask next: the master, or a slave for readers that are behind."""

from typing import Any

import pytest

from ledgermq.broker.counts.statistics import Statistics
from ledgermq.broker.pulls.pull import PullProcessor
from ledgermq.commitlog import GetMessageResult, GetMessageStatus
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.state.subscriptions import SubscriptionGroup
from ledgermq.state.topics import TopicConfig
from tests.unit.broker.parts import ListConnection, Parts

MEMORY_BYTES = 1000


class BehindStore:
    """Nothing is wanted of its queue, whose reader is so far behind."""

    def __init__(self, behind_bytes: int, status: GetMessageStatus) -> None:
        self._result = GetMessageResult(status, 7, 0, 5, [], 0, 0, behind_bytes)

    def lend_message(
        self, *arguments: object, may_wait: bool = True
    ) -> GetMessageResult[memoryview]:
        return self._result

    def max_offset(self, topic: str, queue_id: int) -> int:
        return 5


def pulled(parts: Parts, store: BehindStore) -> tuple[int, dict[str, str]]:
    """Code and fields of the answer."""
    pulls = PullProcessor(
        parts.config, parts.leadership, parts.state, parts.clients, store, parts.parked,
        lambda: 0.0, MEMORY_BYTES, Statistics("C", 0),
    )  # fmt: skip
    fields = {
        "consumerGroup": "g", "topic": "T", "queueId": "0", "queueOffset": "6",
        "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
        "subscription": "*", "subVersion": "1",
    }  # fmt: skip
    command = RemotingCommand(code=int(RequestCode.PULL_MESSAGE), ext_fields=dict(fields))
    connection: Any = ListConnection()
    answer = pulls.pull(connection, command)
    assert isinstance(answer, RemotingCommand)
    return int(answer.code), answer.ext_fields or {}


@pytest.mark.parametrize(
    ("is_on", "behind_bytes", "expected"),
    [("true", 1001, "3"), ("true", 1000, "0"), ("false", 1001, "0")],
)
def test_slow_readers_are_sent_to_a_slave(is_on: str, behind_bytes: int, expected: str) -> None:
    parts = Parts(slaveReadEnable=is_on).lead()
    parts.state.put_topic(TopicConfig("T", 1, 1))
    parts.state.put_group(SubscriptionGroup("g", slow_reader_broker_id=3))
    store = BehindStore(behind_bytes, GetMessageStatus.NO_MATCHED_MESSAGE)
    _, fields = pulled(parts, store)
    assert fields["suggestWhichBrokerId"] == expected


@pytest.mark.parametrize(
    ("is_on", "code", "next_offset"),
    [
        ("false", ResponseCode.PULL_RETRY_IMMEDIATELY, "6"),
        ("true", ResponseCode.PULL_OFFSET_MOVED, "7"),
    ],
)
def test_a_slave_corrects_an_offset_only_when_it_may(
    is_on: str, code: ResponseCode, next_offset: str
) -> None:
    parts = Parts(offsetCheckInSlave=is_on)
    parts.leadership.changed("FOLLOWER", 1, "the master")
    parts.state.topics.put(TopicConfig("T", 1, 1), 0)
    found, fields = pulled(parts, BehindStore(0, GetMessageStatus.OFFSET_OVERFLOW_BADLY))
    assert (found, fields["nextBeginOffset"]) == (code, next_offset)
