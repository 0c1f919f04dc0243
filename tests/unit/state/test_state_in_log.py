"""The state in a real log: whatever the tables hold is stored, and a member that reads the log
knows all of it. What the log refuses is not forgotten, and operators see it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from twisted.logger import LogEvent, formatEvent, globalLogPublisher

from ledgermq.broker.access.rules_table import RulesTable
from ledgermq.broker.own_messages import state_message
from ledgermq.commitlog import STATE_TOPIC
from ledgermq.state.broker_state import BrokerState
from ledgermq.state.errors import BrokerError, CommitTimeoutError, IllegalMessageError
from ledgermq.state.queue_locks import QueueKey
from ledgermq.state.records import body_bytes_max, cut_bytes
from ledgermq.state.subscriptions import SubscriptionGroup
from ledgermq.state.topics import TopicConfig
from tests.unit.broker.access.test_rules_table import SEAL
from tests.unit.broker.parts import HOST, Parts
from tests.unit.commitlog.single_member import Broker

MESSAGE_BYTES_MAX = 65_536
SEGMENT_BYTES = 1 << 20


class Log:
    """A store on a ledger, into which a leader writes and out of which a follower reads."""

    def __init__(self, folder: Path, segment_bytes: int, message_bytes_max: int) -> None:
        self.broker = Broker(
            folder, segment_bytes=segment_bytes, body_bytes_max=message_bytes_max
        ).lead()
        self.leader = Parts(
            mappedFileSizeCommitLog=str(segment_bytes),
            maxMessageSize=str(message_bytes_max),
            maxTopicCount="100000",
        )
        self.follower = Parts().state
        self.broker.store.watch_topic(STATE_TOPIC, self.follower.apply)
        self.leader.lead(is_prompt=False)
        self.store(self.leader.first)

    def store(self, bodies: list[bytes]) -> None:
        """Brings what the leader proposed into the log, as turns of the broker do."""
        for body in bodies:
            self.broker.send(state_message(body, HOST, 1))

    def check_follower(self) -> None:
        leader, follower = self.leader.state, self.follower
        for one, other in (
            (leader.topics, follower.topics),
            (leader.groups, follower.groups),
            (leader.offsets, follower.offsets),
            (leader.locks, follower.locks),
        ):
            assert one.document().whole() == other.document().whole()


def many_topics(state: BrokerState) -> None:
    for number in range(500):
        state.put_topic(TopicConfig(f"Topic_{number:0>120}"))


def many_offsets(state: BrokerState) -> None:
    for number in range(1000):
        for queue_id in range(400):
            state.commits.tell(f"group-{number}", "Orders", queue_id, 10**9 + queue_id)
    state.write_offsets()


def one_wide_topic(state: BrokerState) -> None:
    for queue_id in range(65_536):
        state.commits.tell("g", "Wide", queue_id, 2**62)
    state.write_offsets()


def many_locks(state: BrokerState) -> None:
    queues = [QueueKey("Orders", "broker-a", queue_id) for queue_id in range(20_000)]
    state.lock_requests.lock("g", queues, "10.0.0.1@4711#1", lambda held, error: None)


def all_together(state: BrokerState) -> None:
    many_topics(state)
    for number in range(500):
        state.put_group(SubscriptionGroup(f"group-{number:0>240}"))
    many_locks(state)


TABLES = (many_topics, many_offsets, one_wide_topic, many_locks, all_together)


@pytest.mark.parametrize("message_bytes_max", [1024, MESSAGE_BYTES_MAX])
@pytest.mark.parametrize("fill", TABLES)
def test_a_sweep_is_stored_whatever_the_tables_hold(
    tmp_path: Path, fill: Callable[[BrokerState], None], message_bytes_max: int
) -> None:
    log = Log(tmp_path, SEGMENT_BYTES, message_bytes_max)
    fill(log.leader.state)
    log.leader.commit_all()
    end = log.broker.ledger_store.last_index + 1
    log.store(log.leader.sweep())
    assert log.broker.ledger_store.last_index >= end
    # Retention may drop what is before it.
    assert log.follower.sweep_index == end
    log.check_follower()
    log.broker.close()


@pytest.mark.parametrize("fill", TABLES)
def test_changes_are_stored_however_many_there_are(
    tmp_path: Path, fill: Callable[[BrokerState], None]
) -> None:
    log = Log(tmp_path, SEGMENT_BYTES, MESSAGE_BYTES_MAX)
    fill(log.leader.state)
    log.store(log.leader.commit_all())
    log.check_follower()
    log.broker.close()


def test_records_suit_the_smallest_segment(tmp_path: Path) -> None:
    log = Log(tmp_path, 65_536, 1024)
    all_together(log.leader.state)
    one_wide_topic(log.leader.state)
    log.store(log.leader.commit_all())
    log.store(log.leader.sweep())
    log.check_follower()
    log.broker.close()


@pytest.mark.parametrize("segment_bytes", [65_536, SEGMENT_BYTES, 1 << 30])
def test_records_are_well_below_what_the_log_takes(segment_bytes: int) -> None:
    parts = Parts(mappedFileSizeCommitLog=str(segment_bytes), maxMessageSize="1024")
    parts.lead(is_prompt=False)
    all_together(parts.state)
    one_wide_topic(parts.state)
    bodies = parts.commit_all()
    swept = parts.sweep()
    limit = cut_bytes(body_bytes_max(segment_bytes))
    # The members around the tables are few.
    assert max(map(len, bodies + swept)) <= limit + 1024 <= segment_bytes // 3
    assert sum(map(len, swept)) > 2_000_000
    # What one step encodes does not depend on what there is.
    assert max(map(len, swept)) <= 70_000


class Refusing(Parts):
    """A leader whose log refuses, and later does not."""

    def __init__(self) -> None:
        super().__init__()
        self.lead(is_prompt=False)
        self.sweep()

    def second(self) -> None:
        """What the broker does each second."""
        self.now_ms += 1000
        self.state.write_offsets()
        self.state.sweep()


@pytest.fixture
def error_lines() -> Iterator[list[str]]:
    """Lines of the log at the level of errors."""
    lines: list[str] = []

    def observer(event: LogEvent) -> None:
        if event["log_level"].name == "error":
            lines.append(formatEvent(event))

    globalLogPublisher.addObserver(observer)
    yield lines
    globalLogPublisher.removeObserver(observer)


REFUSAL = IllegalMessageError("body bytes 65537, allowed 65536")


def test_offsets_that_were_refused_are_proposed_again() -> None:
    leader = Refusing()
    leader.state.commits.tell("g", "T", 0, 5)
    leader.second()
    assert leader.commit_state(REFUSAL)
    leader.state.commits.tell("g", "T", 1, 6)
    follower = Parts()
    for _ in range(10):
        leader.second()
        for index, body in enumerate(leader.commit_all()):
            follower.state.apply(body, index)
    assert follower.state.offsets.to_json() == {"offsetTable": {"T@g": {0: 5, 1: 6}}}
    assert leader.state.alarm is None
    leader.second()
    assert leader.commit_all() == []


def test_what_stays_refused_is_tried_less_and_less_often_and_seen_by_operators(
    error_lines: list[str],
) -> None:
    leader = Refusing()
    assert leader.state.alarm is None
    leader.state.begin_sweep()
    tries: list[int] = []
    for second in range(300):
        leader.second()
        if leader.commit_state(REFUSAL):
            tries.append(second)
    assert tries[0] == 0 and len(tries) <= 10
    gaps = [later - earlier for earlier, later in zip(tries, tries[1:], strict=False)]
    assert gaps == sorted(gaps) and gaps[0] == 1 and gaps[-1] == 60
    assert leader.state.alarm is not None and "65537" in leader.state.alarm
    # One line a minute at most.
    assert 1 <= len(error_lines) <= 6 and "65537" in error_lines[0]
    # The log takes it again: the next try brings all.
    follower = Parts()
    for _ in range(61):
        leader.second()
        for index, body in enumerate(leader.commit_all()):
            follower.state.apply(body, index)
    assert follower.state.topics.to_json() == leader.state.topics.to_json()
    assert leader.state.alarm is None and leader.state.is_swept


def test_a_record_that_only_takes_long_is_not_written_again() -> None:
    """It is in the leader's log and stays there; whoever waits is told, all the same."""
    leader = Refusing()
    told: list[BrokerError | None] = []
    late = CommitTimeoutError("no majority confirmed in 2500 ms")
    leader.state.put_topic(TopicConfig("T"), told.append)
    leader.commit_state(late)
    leader.state.commits.tell("g", "T", 0, 5)
    leader.state.write_offsets()
    leader.commit_state(late)
    assert told == [late] and leader.state.alarm is None
    leader.second()
    assert leader.commit_all() == []


def test_refusals_end_with_the_leadership() -> None:
    leader = Refusing()
    leader.state.commits.tell("g", "T", 0, 5)
    leader.second()
    leader.commit_state(REFUSAL)
    assert leader.state.alarm is not None
    leader.state.follow()
    assert leader.state.alarm is None
    leader.state.lead("n0/2")
    leader.state.sweep()
    assert leader.commit_all() != []


def test_a_record_that_cannot_be_cut_spoils_no_other(tmp_path: Path) -> None:
    """Handed to the log it would have all refused that is written in the same turn."""
    accounts = "\n".join(
        f"- accessKey: account-{number:0>200}\n  secretKey: secret-12-{number}\n"
        for number in range(500)
    )
    path = tmp_path / "plain_acl.yml"
    path.write_text(f"accounts:\n{accounts}\n")
    leader = Parts(mappedFileSizeCommitLog="65536", maxMessageSize="1024")
    leader.state.access = RulesTable(path, lambda: leader.now_ms, seal=SEAL)
    leader.state.access.load()
    leader.lead(is_prompt=False)
    assert leader.sweep()
    alarm = leader.state.alarm or ""
    assert "access control" in alarm and "mappedFileSizeCommitLog" in alarm
    # Tried again now and then; what can be stored is stored all the while.
    before = leader.written.copy()
    leader.state.access_changes.reload()
    leader.now_ms += 60_000
    leader.state.access_changes.reload()
    assert leader.written == before and leader.state.alarm is not None


def test_offsets_of_a_topic_that_was_made_anew_are_its_own() -> None:
    leader = Refusing()
    leader.state.put_topic(TopicConfig("T"))
    leader.state.commits.tell("g", "T", 7, 5)
    leader.state.write_offsets()
    leader.state.remove_topic("T")
    leader.state.put_topic(TopicConfig("T"))
    leader.state.commits.tell("g", "T", 0, 6)
    leader.state.write_offsets()
    leader.commit_all()
    assert leader.state.offsets.to_json() == {"offsetTable": {"T@g": {0: 6}}}
