"""Proposals: one append a turn, one write a connection, and an answer in every case."""

import pytest
from twisted.internet.defer import Deferred

from ledgermq.broker.sends.proposals import Limits
from ledgermq.commitlog import (
    AppendMessage,
    AppendResult,
    MessageIllegalError,
    SegmentLackingError,
)
from ledgermq.dledger.errors import DropReason, NotLeaderError, ProposalDroppedError
from ledgermq.dledger.store.errors import DiskFullError
from ledgermq.protocol.codes import ResponseCode
from ledgermq.state.errors import BrokerError, ServiceUnavailableError, SystemBusyError
from tests.unit.broker.parts import HOST, HOST_HEX, ListConnection, Parts


def message(body: bytes = b"x") -> AppendMessage:
    return AppendMessage("T", 0, 0, 0, 0, HOST, HOST, 0, 0, body, b"")


def add(parts: Parts, connection: ListConnection | None, opaque: int, size: int = 100) -> None:
    parts.proposals.add(message(), size, connection, opaque, 0, 0)


def test_sends_of_one_turn_are_one_append() -> None:
    parts = Parts()
    first, second = ListConnection(), ListConnection()
    for opaque in range(3):
        add(parts, first, opaque)
    add(parts, second, 9)
    assert parts.store.turns == []
    assert len(parts.turn.waiting) == 1
    parts.turn.end()
    assert parts.store.turns == [4]


def test_answers_go_out_at_commit_in_one_write_a_connection() -> None:
    parts = Parts()
    first, second = ListConnection(), ListConnection()
    for opaque in range(3):
        add(parts, first, opaque)
    add(parts, second, 9)
    parts.turn.end()
    parts.proposals.committed(3)
    assert len(first.writes) == 1 and second.writes == []
    assert [command.opaque for command in first.commands] == [0, 1, 2]
    fields = first.commands[1].ext_fields
    assert fields is not None
    assert fields["msgId"] == f"{HOST_HEX}{148:016X}"
    assert (fields["queueId"], fields["queueOffset"]) == ("0", "1")
    parts.proposals.committed(4)
    assert [command.opaque for command in second.commands] == [9]
    assert (parts.proposals.count, parts.proposals.bytes) == (0, 0)
    assert parts.proposals.is_empty
    assert (parts.proposals.committed_count, parts.proposals.committed_bytes) == (4, 400)


def test_batch_has_one_answer_when_its_last_message_is_committed() -> None:
    parts = Parts()
    connection = ListConnection()
    parts.proposals.add_batch([message(), message()], 200, connection, 5, 1, 3)
    parts.turn.end()
    parts.proposals.committed(1)
    assert connection.commands == []
    parts.proposals.committed(2)
    [answer] = connection.commands
    assert answer.ext_fields is not None and answer.serialize_type == 1
    assert answer.ext_fields["msgId"] == f"{HOST_HEX}{48:016X},{HOST_HEX}{148:016X}"
    assert answer.ext_fields["queueOffset"] == "0"


def test_a_message_may_be_stored_on_fewer_disks_than_was_asked_for() -> None:
    parts = Parts()
    connection = ListConnection()
    add(parts, connection, 1)
    add(parts, None, 2)
    told: list[object] = []
    parts.proposals.add_own([message()], lambda results, error: told.append((results, error)))
    add(parts, connection, 4)
    parts.turn.end()
    parts.proposals.stored(3, ResponseCode.FLUSH_SLAVE_TIMEOUT, "too slow")
    [answer] = connection.commands
    assert (answer.code, answer.opaque, answer.remark) == (12, 1, "too slow")
    assert answer.ext_fields is not None
    assert answer.ext_fields["msgId"] == f"{HOST_HEX}{48:016X}"
    assert (answer.ext_fields["queueId"], answer.ext_fields["queueOffset"]) == ("0", "0")
    [(results, error)] = told
    assert len(results) == 1 and error is None
    assert (parts.proposals.count, parts.proposals.committed_count) == (1, 3)
    parts.proposals.committed(4)
    assert [command.code for command in connection.commands] == [12, 0]
    assert (parts.proposals.count, parts.proposals.bytes) == (0, 0)


def test_one_way_sends_are_counted_but_not_answered() -> None:
    parts = Parts()
    add(parts, None, 1)
    parts.turn.end()
    assert parts.proposals.count == 1
    parts.proposals.committed(1)
    assert parts.proposals.count == 0


@pytest.mark.parametrize(
    ("limits", "key"),
    [(Limits(2, 1 << 20, 1), "sendThreadPoolQueueCapacity"), (Limits(9, 150, 1), "maxSendBytes")],
)
def test_full_queue_refuses_with_numbers_and_key(limits: Limits, key: str) -> None:
    parts = Parts(limits=limits)
    add(parts, None, 1)
    add(parts, None, 2)
    with pytest.raises(SystemBusyError, match=f"2 messages with 200 bytes .*{key}"):
        add(parts, None, 3)
    parts.turn.end()
    parts.proposals.committed(2)
    add(parts, None, 3)


def test_batch_that_does_not_fit_is_refused_whole() -> None:
    parts = Parts(limits=Limits(2, 1 << 20, 1))
    with pytest.raises(SystemBusyError, match="3 more"):
        parts.proposals.add_batch([message()] * 3, 300, None, 1, 0, 0)
    assert parts.proposals.count == 0


@pytest.mark.parametrize(
    ("error", "code", "remark"),
    [
        (NotLeaderError("n2", 7), ResponseCode.SERVICE_NOT_AVAILABLE, "n2"),
        (ProposalDroppedError(DropReason.PENDING_FULL, 5, 4), ResponseCode.SYSTEM_BUSY, "limit 4"),
        (OSError(28, "No space left on device"), ResponseCode.SERVICE_NOT_AVAILABLE, "space"),
    ],
)
def test_refused_append_fails_the_turn(error: Exception, code: int, remark: str) -> None:
    parts = Parts()
    connection = ListConnection()
    add(parts, connection, 1)
    add(parts, connection, 2)
    parts.store.error = error
    parts.turn.end()
    assert [(answer.opaque, answer.code) for answer in connection.commands] == [
        (1, code),
        (2, code),
    ]
    assert all(remark in str(answer.remark) for answer in connection.commands)
    # Java reads these without looking.
    assert all(
        answer.ext_fields == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
        for answer in connection.commands
    )
    assert (parts.proposals.count, parts.proposals.bytes) == (0, 0)
    assert parts.proposals.failed_count == 2


def test_illegal_message_fails_alone() -> None:
    parts = Parts()
    connection = ListConnection()
    add(parts, connection, 1)
    parts.proposals.add_batch([message(), message()], 200, connection, 2, 0, 0)
    add(parts, connection, 3)
    parts.store.error = MessageIllegalError("body bytes", 9, 8, 2)
    parts.turn.end()
    assert parts.store.turns == [2]
    [refused] = connection.take()
    assert (refused.opaque, refused.code) == (2, ResponseCode.MESSAGE_ILLEGAL)
    parts.proposals.committed(2)
    assert [answer.opaque for answer in connection.commands] == [1, 3]


def test_late_commit_is_told_once_and_only_as_unknown() -> None:
    parts = Parts(limits=Limits(9, 900, 2500))
    connection = ListConnection()
    add(parts, connection, 1)
    parts.turn.end()
    parts.now_ms += 2499
    parts.proposals.expire()
    assert connection.commands == []
    parts.now_ms += 1
    parts.proposals.expire()
    [answer] = connection.take()
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "2500 ms (key maxWaitAckTimeMs)" in str(answer.remark)
    parts.proposals.committed(1)
    assert connection.commands == []
    assert parts.proposals.is_empty


def test_lost_leadership_fails_everything_at_once() -> None:
    parts = Parts()
    connection = ListConnection()
    add(parts, connection, 1)
    parts.turn.end()
    add(parts, connection, 2)
    parts.proposals.fail_all(ServiceUnavailableError("n1 leads"))
    assert sorted(answer.opaque for answer in connection.take()) == [1, 2]
    parts.turn.end()
    parts.proposals.committed(5)
    assert connection.commands == [] and parts.store.turns == [1]
    assert parts.proposals.is_empty and parts.proposals.count == 0


def test_own_records_pass_every_limit_and_are_told() -> None:
    parts = Parts(limits=Limits(0, 0, 1))
    told: list[tuple[int, BrokerError | None]] = []

    def done(results: object, error: BrokerError | None) -> None:
        told.append((len(results) if isinstance(results, list) else -1, error))

    parts.proposals.add_own([message(), message()], done)
    parts.turn.end()
    parts.proposals.committed(2)
    assert told == [(2, None)]
    parts.proposals.add_own([message()], done)
    error = ServiceUnavailableError("gone")
    parts.proposals.fail_all(error)
    assert told[1] == (-1, error)


def test_results_are_told_of_own_records() -> None:
    parts = Parts()
    seen: list[AppendResult] = []
    parts.proposals.add_own([message()], lambda results, error: seen.extend(results or ()))
    parts.turn.end()
    parts.proposals.committed(1)
    assert [result.physical_offset for result in seen] == [48]


class Waiting:
    """Proposals whose log lacks a file, which is made when the test says so."""

    def __init__(self) -> None:
        self.parts = Parts(limits=Limits(9, 900, 2500))
        self.connection = ListConnection()
        self.made: list[Deferred[None]] = []
        self.parts.proposals.make_room = self._make_room
        self.lack()

    def _make_room(self) -> Deferred[None]:
        self.made.append(Deferred())
        return self.made[-1]

    def lack(self) -> None:
        """The next append needs a file that is not there."""
        self.parts.store.error = SegmentLackingError("commitlog", 100)

    def send(self, opaque: int) -> None:
        add(self.parts, self.connection, opaque)

    @property
    def opaques(self) -> list[int]:
        return [answer.opaque for answer in self.connection.take()]


def test_sends_wait_for_a_file_with_all_that_comes_meanwhile() -> None:
    waiting = Waiting()
    parts = waiting.parts
    waiting.send(1)
    waiting.send(2)
    parts.turn.end()
    assert parts.store.turns == [] and waiting.opaques == []
    waiting.send(3)
    parts.turn.end()
    assert parts.store.turns == [] and parts.proposals.count == 3
    [made] = waiting.made
    made.callback(None)
    assert parts.store.turns == [3]
    parts.proposals.committed(3)
    assert waiting.opaques == [1, 2, 3] and parts.proposals.is_empty


def test_sends_wait_again_where_they_need_one_more_file() -> None:
    waiting = Waiting()
    waiting.send(1)
    waiting.parts.turn.end()
    waiting.lack()
    waiting.made[0].callback(None)
    assert waiting.parts.store.turns == []
    waiting.made[1].callback(None)
    assert waiting.parts.store.turns == [1]


def test_sends_are_refused_when_there_is_no_room_for_a_file() -> None:
    waiting = Waiting()
    waiting.send(1)
    waiting.parts.turn.end()
    waiting.send(2)
    waiting.made[0].errback(DiskFullError("commitlog/1", 100))
    answers = waiting.connection.take()
    assert [answer.opaque for answer in answers] == [1, 2]
    assert all("no room on the disk" in str(answer.remark) for answer in answers)
    assert waiting.parts.proposals.is_empty and waiting.parts.proposals.count == 0
    # The next turn tries again.
    waiting.send(3)
    waiting.parts.turn.end()
    assert waiting.parts.store.turns == [1]


def test_sends_that_wait_for_a_file_are_failed_with_all_others() -> None:
    waiting = Waiting()
    waiting.send(1)
    waiting.parts.turn.end()
    waiting.parts.proposals.fail_all(ServiceUnavailableError("stopped"))
    assert waiting.opaques == [1] and waiting.parts.proposals.is_empty
    waiting.made[0].callback(None)
    assert waiting.parts.store.turns == []


def test_sizes_are_those_of_what_clients_sent() -> None:
    parts = Parts()
    connection = ListConnection()
    for size in (1024, 1025, 4096, 600_000, 5 << 20):
        add(parts, connection, 1, size)
    parts.proposals.add_batch([message(), message()], 4000, connection, 2, 0, 0)
    parts.proposals.add_own([message()], lambda results, error: None)
    parts.turn.end()
    sizes = parts.proposals.message_sizes()
    assert sizes.bounds == (1024, 4096, 524_288, 1 << 20, 2 << 20, 4 << 20)
    assert sizes.counts == [1, 4, 0, 1, 0, 0, 1]
    assert sizes.total == 1024 + 1025 + 4096 + 600_000 + (5 << 20) + 4000
