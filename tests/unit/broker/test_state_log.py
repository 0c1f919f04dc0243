"""The replicated state: a follower that applies the records of a leader ends with its tables."""

import json

import pytest

from ledgermq.broker.errors import (
    BrokerError,
    GroupNotFoundError,
    InvalidRequestError,
    ServiceUnavailableError,
    SystemBusyError,
)
from ledgermq.broker.queue_locks import QueueKey
from ledgermq.broker.subscriptions import SubscriptionGroup
from ledgermq.broker.topics import TopicConfig
from ledgermq.protocol.group_settings import GroupSettings
from tests.unit.broker.parts import Parts


def followed(*bodies: bytes, follower: Parts | None = None) -> Parts:
    follower = follower or Parts()
    for index, body in enumerate(bodies):
        follower.state.apply(body, index)
    return follower


def same_tables(one: Parts, other: Parts) -> bool:
    return (
        one.state.topics.to_json() == other.state.topics.to_json()
        and one.state.groups.to_json() == other.state.groups.to_json()
        and one.state.offsets.to_json() == other.state.offsets.to_json()
        and one.state.locks.to_json() == other.state.locks.to_json()
    )


def busy_leader() -> tuple[Parts, list[bytes]]:
    leader = Parts().lead()
    state = leader.state
    state.put_topic(TopicConfig("A", 2, 3, attributes={"message.type": "FIFO"}))
    state.put_topic(TopicConfig("B", 1, 1, 4))
    settings = GroupSettings(consume_message_orderly=True)
    state.put_group(SubscriptionGroup("g", retries_max=2, settings=settings))
    state.put_group(SubscriptionGroup("gone"))
    state.offsets.commit("g", "A", 0, 5)
    state.offsets.commit("gone", "B", 1, 6)
    state.offsets.commit("h", "B", 0, 7)
    state.write_offsets()
    state.remove_group("gone", True)
    state.remove_topic("B")
    state.offsets.commit("g", "A", 0, 4)
    state.write_offsets()
    queues = [QueueKey("A", "b", 0), QueueKey("A", "b", 1)]
    state.locks.lock("g", queues, "c", leader.now_ms)
    state.write_locks()
    state.locks.unlock("g", queues[1:], "c")
    state.write_locks()
    return leader, leader.commit_state()


def test_follower_ends_with_the_tables_of_its_leader() -> None:
    leader, bodies = busy_leader()
    follower = followed(*bodies)
    assert same_tables(leader, follower)
    assert follower.state.offsets.to_json() == {"offsetTable": {"A@g": {0: 4}}}
    assert follower.state.topics.get("A").message_type == "FIFO"
    group = follower.state.groups.find("g")
    assert group is not None and group.settings.consume_message_orderly
    assert follower.changes > 0


def test_records_that_come_again_change_nothing() -> None:
    leader, bodies = busy_leader()
    assert same_tables(leader, followed(*bodies, *bodies))


def test_snapshot_alone_is_enough_and_replaces_what_was_there() -> None:
    leader, _ = busy_leader()
    leader.state.write_snapshot()
    follower = Parts()
    follower.state.follow()
    follower.state.topics.put(TopicConfig("Stale"), 1)
    follower.state.offsets.commit("g", "Stale", 0, 1)
    followed(*leader.commit_state(), follower=follower)
    assert same_tables(leader, follower)


def test_large_snapshot_counts_when_its_last_part_is_there() -> None:
    leader = Parts(maxTopicCount="5000").lead()
    for number in range(2500):
        leader.state.topics.put(TopicConfig(f"T{number}"), 1)
    leader.commit_state()
    leader.state.write_snapshot()
    parts = leader.commit_state()
    assert len(parts) == 3
    assert max(map(len, parts)) < 1 << 20
    follower = followed(*parts[:2])
    assert len(follower.state.topics) == 0
    assert same_tables(leader, followed(parts[2], follower=follower))
    # A part that is missing makes the rest worthless.
    assert len(followed(parts[0], parts[2]).state.topics) == 0


def test_place_of_the_last_whole_snapshot_is_known() -> None:
    """Retention must not drop it: a log that begins behind it lacks the state."""
    leader = Parts(maxTopicCount="5000").lead()
    for number in range(2500):
        leader.state.topics.put(TopicConfig(f"T{number}"), 1)
    leader.commit_state()
    leader.state.write_snapshot()
    bodies = leader.commit_state()
    follower = Parts().state
    assert follower.snapshot_index == -1
    for index, body in enumerate(bodies, 70):
        assert follower.snapshot_index == -1
        follower.apply(body, index)
    assert len(bodies) == 3
    assert follower.snapshot_index == 70
    leader.state.apply(bodies[1], 81)
    assert leader.state.snapshot_index < 70


def test_leader_skips_its_own_records_but_deletes_queues() -> None:
    leader = Parts().lead()
    leader.commit_state()
    leader.state.put_topic(TopicConfig("A", 1, 1))
    [older] = leader.commit_state()
    leader.state.put_topic(TopicConfig("A", 9, 9))
    leader.state.apply(older, 1)
    topic = leader.state.topics.find("A")
    assert topic is not None and topic.read_queue_count == 9
    leader.state.remove_topic("A")
    for index, body in enumerate(leader.commit_state()):
        leader.state.apply(body, index)
    assert leader.removed_topics == ["A"]
    # In its next term the same records come from a former leader.
    leader.state.follow()
    leader.state.apply(older, 9)
    assert leader.state.topics.find("A") is not None


def test_lost_record_makes_a_snapshot_due_while_leading() -> None:
    leader = Parts().lead()
    told: list[BrokerError | None] = []
    leader.commit_state()
    leader.state.put_topic(TopicConfig("A"), told.append)
    error = ServiceUnavailableError("busy")
    leader.commit_state(error)
    assert told == [error]
    assert leader.state.is_snapshot_due
    leader.state.write_snapshot()
    assert not leader.state.is_snapshot_due
    leader.state.follow()
    assert not leader.state.is_leading


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"kind":"later"}',
        b'{"kind":"topics","put":[1],"removed":{"a":1},"version":7}',
        b'{"kind":"topics","put":{"T":5},"removed":[3]}',
        b'{"kind":"groups","put":"x"}',
        b'{"kind":"offsets","put":{"t@g":{"0":"x","-1":2}}}',
        b'{"kind":"snapshot","id":1,"part":"0","parts":null}',
    ],
)
def test_strange_records_are_left_out(body: bytes) -> None:
    parts = followed(body)
    assert len(parts.state.topics) == 0 and len(parts.state.groups) == 0


def test_unknown_group_is_made_by_its_first_use_on_a_leader() -> None:
    leader = Parts().lead()
    leader.commit_state()
    assert leader.state.group_for_use("new") == SubscriptionGroup("new")
    [body] = leader.commit_state()
    assert json.loads(body)["put"]["new"]["retryMaxTimes"] == 16
    follower = Parts()
    assert follower.state.group_for_use("new") == SubscriptionGroup("new")
    assert len(follower.state.groups) == 0 and follower.written == []


def test_unknown_group_is_refused() -> None:
    closed = Parts(autoCreateSubscriptionGroup="false").lead()
    with pytest.raises(GroupNotFoundError, match="autoCreateSubscriptionGroup"):
        closed.state.group_for_use("new")
    assert closed.state.group_for_use("CID_RMQ_SYS_X").name == "CID_RMQ_SYS_X"
    with pytest.raises(InvalidRequestError):
        Parts().state.group_for_use("a/b")
    full = Parts(maxGroupCount="10").lead()
    for number in range(10):
        full.state.group_for_use(f"g{number}")
    with pytest.raises(SystemBusyError, match="maxGroupCount"):
        full.state.group_for_use("one-more")


def test_default_topic_closes_when_automatic_creation_is_off() -> None:
    leader = Parts(autoCreateTopicEnable="false")
    leader.state.topics.put(TopicConfig("TBW102", 8, 8, 7), 1)
    leader.lead()
    topic = leader.state.topics.find("TBW102")
    assert topic is not None and topic.permission == 6
