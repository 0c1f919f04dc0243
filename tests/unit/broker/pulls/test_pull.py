"""Parked pulls: who runs them again must not suffer from one that fails."""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from ledgermq.broker.counts.statistics import Statistics
from ledgermq.broker.pulls.offset_moved import OffsetMovedEvents
from ledgermq.broker.pulls.pull import PullProcessor
from ledgermq.commitlog import GetMessageResult, GetMessageStatus
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.properties import decode_properties
from ledgermq.state.topics import TopicConfig
from tests.unit.broker.parts import HOST, ListConnection, Parts


class OneQueue:
    """A store whose queues are empty, or fail."""

    def __init__(self) -> None:
        self.failing_queue = -1

    def lend_message(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *arguments: object,
        may_wait: bool = True,
    ) -> GetMessageResult[memoryview]:
        if queue_id == self.failing_queue:
            raise ZeroDivisionError("a bug")
        if offset > 5:
            return GetMessageResult(GetMessageStatus.OFFSET_OVERFLOW_BADLY, 5, 0, 5, [], 0, 0, 0)
        return GetMessageResult(GetMessageStatus.OFFSET_OVERFLOW_ONE, 5, 0, 5, [], 0, 0, 0)

    def max_offset(self, topic: str, queue_id: int) -> int:
        return 5


def pull_of(queue_id: int, offset: int = 5) -> RemotingCommand:
    fields = {
        "consumerGroup": "g",
        "topic": "T",
        "queueId": str(queue_id),
        "queueOffset": str(offset),
        "maxMsgNums": "32",
        # Suspend; the subscription comes with the pull.
        "sysFlag": "6",
        "commitOffset": "0",
        "suspendTimeoutMillis": "15000",
        "subscription": "*",
        "subVersion": "1",
    }
    return RemotingCommand(
        code=int(RequestCode.PULL_MESSAGE), opaque=queue_id, ext_fields=dict(fields)
    )


class ParkedPullTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.parts = Parts().lead()
        self.parts.state.put_topic(TopicConfig("T", 4, 4))
        self.store = OneQueue()
        self.moved = OffsetMovedEvents(
            self.parts.leadership,
            self.parts.proposals,
            broker_name="b",
            store_host=HOST,
            now_ms=lambda: self.parts.now_ms,
            clock_ms=lambda: float(self.parts.now_ms),
        )
        self.pulls = PullProcessor(
            self.parts.config,
            self.parts.leadership,
            self.parts.state,
            self.parts.clients,
            self.store,
            self.parts.parked,
            lambda: float(self.parts.now_ms),
            1 << 30,
            Statistics("C", 0),
            self.moved.note,
        )
        self.connection: Any = ListConnection()
        for queue_id in range(3):
            self.assertIsNone(self.pulls.pull(self.connection, pull_of(queue_id)))

    def test_pull_that_fails_is_answered_and_the_others_are_too(self) -> None:
        self.assertEqual(self.parts.parked.count, 3)
        self.store.failing_queue = 1
        self.pulls.messages_dispatched([("T", queue_id, 6, 0) for queue_id in range(3)])
        answers = {one.opaque: one for one in self.connection.take()}
        self.assertEqual(
            [answers[opaque].code for opaque in range(3)],
            [ResponseCode.PULL_NOT_FOUND, ResponseCode.SYSTEM_ERROR, ResponseCode.PULL_NOT_FOUND],
        )
        self.assertEqual(answers[1].remark, "ZeroDivisionError: a bug")
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_pulls_that_one_message_wakes_are_spread_over_turns(self) -> None:
        now_ms, later = [0.0], []

        def clock_ms() -> float:
            now_ms[0] += 0.2
            return now_ms[0]

        pulls = PullProcessor(
            self.parts.config,
            self.parts.leadership,
            self.parts.state,
            self.parts.clients,
            self.store,
            self.parts.parked,
            clock_ms,
            1 << 30,
            Statistics("C", 0),
            soon=later.append,
        )
        others = [ListConnection() for _ in range(50)]
        for other in others:
            connection: Any = other
            self.assertIsNone(pulls.pull(connection, pull_of(3)))
        others[40].is_open = False
        pulls.messages_dispatched([("T", 3, 6, 0)])
        answered = [len(other.take()) for other in others]
        self.assertTrue(0 < sum(answered) < 25)
        # What is woken meanwhile waits behind, and one call is enough for all.
        pulls.messages_dispatched([("T", 0, 6, 0)])
        self.assertEqual(len(later), 1)
        turns_count = 0
        while later:
            later.pop()()
            turns_count += 1
        self.assertTrue(3 < turns_count < 50)
        for index, other in enumerate(others):
            answered[index] += len(other.take())
        self.assertEqual(answered, [1] * 40 + [0] + [1] * 9)
        self.assertEqual(len(self.connection.take()), 1)

    def test_corrected_offset_is_told_in_a_topic_but_not_without_end(self) -> None:
        for _ in range(50):
            answer = self.pulls.pull(self.connection, pull_of(1, 99))
            assert isinstance(answer, RemotingCommand)
            self.assertEqual(answer.code, ResponseCode.PULL_OFFSET_MOVED)
        self.parts.turn.end()
        events = [m for m in self.parts.store.messages if m.topic == "OFFSET_MOVED_EVENT"]
        self.assertEqual(len(events), 32)
        self.assertEqual(
            events[0].body,
            b'{"consumerGroup":"g","messageQueue":{"brokerName":"b","queueId":1,"topic":"T"},'
            b'"offsetNew":5,"offsetRequest":99}',
        )
        self.assertEqual(decode_properties(events[0].properties), {"KEYS": "g", "TAGS": "g"})

    def test_pulls_are_answered_when_the_broker_stops(self) -> None:
        self.parts.leadership.stop()
        self.pulls.answer_all()
        self.assertEqual(len(self.connection.take()), 3)
        self.assertEqual(self.parts.parked.count, 0)
