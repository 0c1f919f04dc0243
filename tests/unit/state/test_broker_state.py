"""The replicated state: a follower that applies the records of a leader ends with its tables."""

import json

import pytest

from ledgermq.protocol.group_settings import GroupSettings
from ledgermq.state import lock_grants, lock_requests
from ledgermq.state.errors import (
    GroupNotFoundError,
    InvalidRequestError,
    ServiceUnavailableError,
    SystemBusyError,
)
from ledgermq.state.lock_grants import LOCK_LIFE_MS
from ledgermq.state.queue_locks import QueueKey
from ledgermq.state.subscriptions import SubscriptionGroup
from ledgermq.state.topics import TopicConfig
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
        and one.state.locks.document().whole() == other.state.locks.document().whole()
    )


def busy_leader() -> tuple[Parts, list[bytes]]:
    leader = Parts().lead(is_prompt=False)
    state = leader.state
    # What the leader applied before belongs to what a follower must read.
    assert len(state.topics)
    state.put_topic(TopicConfig("A", 2, 3, attributes={"message.type": "FIFO"}))
    state.put_topic(TopicConfig("B", 1, 1, 4))
    settings = GroupSettings(consume_message_orderly=True)
    state.put_group(SubscriptionGroup("g", retries_max=2, settings=settings))
    state.put_group(SubscriptionGroup("gone"))
    state.commits.tell("g", "A", 0, 5)
    state.commits.tell("gone", "B", 1, 6)
    state.commits.tell("h", "B", 0, 7)
    state.write_offsets()
    state.remove_group("gone", True)
    state.remove_topic("B")
    state.commits.tell("g", "A", 0, 4)
    state.write_offsets()
    queues = [QueueKey("A", "b", 0), QueueKey("A", "b", 1)]
    state.lock_requests.lock("g", queues, "c", lambda held, error: None)
    state.lock_requests.unlock("g", queues[1:], "c", lambda error: None)
    return leader, [*leader.first, *leader.commit_state()]


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


def test_nothing_is_visible_before_it_is_committed() -> None:
    leader = Parts().lead(is_prompt=False)
    state, changes = leader.state, leader.changes
    told: list[object] = []
    state.put_topic(TopicConfig("A"), told.append)
    state.put_group(SubscriptionGroup("g"), told.append)
    state.commits.commit("g", "A", 0, 5, told.append)
    state.lock_requests.lock(
        "g", [QueueKey("A", "b", 0)], "c", lambda held, error: told.append(held)
    )
    leader.turn.end()
    assert (state.topics.find("A"), state.groups.find("g")) == (None, None)
    assert (len(state.offsets), len(state.locks)) == (0, 0)
    assert told == [] and leader.changes == changes
    assert len(leader.commit_state()) == 4
    assert told == [None, None, [QueueKey("A", "b", 0)], None]
    assert state.topics.find("A") is not None and state.groups.find("g") is not None
    assert state.offsets.find("g", "A", 0) == 5 and len(state.locks) == 1
    assert leader.changes > changes


def test_what_is_lost_with_a_leadership_was_never_there() -> None:
    leader = Parts().lead(is_prompt=False)
    state, told = leader.state, list[object]()
    before = state.topics.to_json()
    state.put_topic(TopicConfig("A"), told.append)
    state.make_topic(TopicConfig("B"))
    state.commits.commit("g", "A", 0, 5, told.append)
    leader.turn.end()
    state.commits.commit("g", "A", 0, 6, told.append)
    state.follow()
    leader.commit_state(ServiceUnavailableError("another member leads"))
    assert len(told) == 3 and all(isinstance(one, ServiceUnavailableError) for one in told)
    assert state.topics.to_json() == before and state.find_topic("B") is None
    leader.turn.end()
    assert leader.written == []
    state.lead("n0/2")
    assert not state.commits.is_on_its_way("g", "A", 0)


def test_versions_are_the_same_on_all_members_also_after_a_replay() -> None:
    leader = Parts().lead(is_prompt=False)
    for count in (1, 2, 3):
        leader.state.put_topic(TopicConfig("A", count, count))
        leader.now_ms += 1
    # Of several in one turn each leads to the next version.
    bodies = [*leader.first, *leader.commit_state()]
    follower = followed(*bodies)
    # A restart applies the last of them again.
    followed(*bodies[-2:], follower=follower)
    assert same_tables(leader, follower)
    version = leader.state.topics.version
    leader.state.put_topic(TopicConfig("A", 3, 3))
    leader.commit_state()
    assert leader.state.topics.version == version


def test_sweep_alone_is_enough_and_replaces_what_was_there() -> None:
    leader, _ = busy_leader()
    follower = Parts()
    follower.state.topics.put(TopicConfig("Stale"), 1)
    follower.state.offsets.put({"Stale@g": {0: 1}, "A@g": {1: 9}})
    follower.state.locks.put({"old": [("t", "b", 0, "c")]})
    changes = leader.changes
    followed(*leader.sweep(), follower=follower)
    assert same_tables(leader, follower)
    # For who has all of the log it changes nothing.
    assert leader.changes == changes


def many_topics(count: int) -> Parts:
    leader = Parts(maxTopicCount="5000").lead(is_prompt=False)
    for number in range(count):
        leader.state.put_topic(TopicConfig(f"T{number}"))
    leader.commit_state()
    return leader


def test_large_sweep_counts_when_its_last_part_is_there() -> None:
    """Retention must not drop it: a log that begins behind it lacks the state."""
    leader = many_topics(2500)
    bodies = leader.sweep()
    assert len(bodies) > 6 and max(map(len, bodies)) < 70_000
    follower = Parts().state
    for index, body in enumerate(bodies, 70):
        assert follower.sweep_index == -1
        follower.apply(body, index)
    assert follower.sweep_index == 70
    assert len(follower.topics) == len(leader.state.topics)
    # One that lacks a part is none.
    for lacking in range(len(bodies)):
        follower = Parts().state
        for index, body in enumerate(bodies):
            if index != lacking:
                follower.apply(body, index)
        assert follower.sweep_index == -1
    # Nor is one that a former leader began, together with another's.
    other = many_topics(2500)
    other.state.follow()
    other.state.lead("n1/2")
    for index, body in enumerate([*bodies[:3], *other.sweep()[3:]]):
        follower.apply(body, index)
    assert follower.sweep_index == -1


def test_a_table_may_change_while_it_is_swept() -> None:
    leader = many_topics(2500)
    state, follower = leader.state, Parts(maxTopicCount="5000")
    state.begin_sweep()
    bodies: list[bytes] = []
    number = 0
    while not state.is_swept:
        # Before the step, so that its parts must wait; and behind it.
        state.put_topic(TopicConfig(f"New{number}"))
        state.sweep()
        state.remove_topic(f"T{number * 7}")
        state.put_topic(TopicConfig(f"T{number * 11 + 1}", 1, 1))
        bodies += leader.commit_state()
        bodies += leader.commit_state()
        number += 1
    assert number > 2
    followed(*bodies, follower=follower)
    # Whoever reads from the first part on knows all: what was before, and what came between.
    assert follower.state.topics.all() == state.topics.all()
    assert same_tables(leader, follower)


def test_a_change_back_while_another_is_on_its_way_is_a_change() -> None:
    leader = Parts().lead(is_prompt=False)
    one, two = TopicConfig("A", 1, 1), TopicConfig("A", 2, 2)
    leader.state.put_topic(one)
    leader.commit_state()
    leader.state.put_topic(two)
    leader.state.put_topic(one)
    seen = []
    for body, _ in leader.written:
        leader.state.apply(body, 50)
        seen.append((leader.state.topics.find("A"), leader.state.topics.version.counter))
    assert [topic for topic, _ in seen] == [two, one]
    # Name servers would not hear of it.
    assert seen[0][1] < seen[1][1]


def test_a_topic_that_is_made_never_waits_for_a_sweep() -> None:
    """Its first message is stored in the same turn, and must not stand before it."""
    leader = Parts().lead(is_prompt=False)
    state = leader.state
    state.put_group(SubscriptionGroup("slow"))
    state.begin_sweep()
    state.sweep()
    state.commits.tell("g", "Old", 0, 5)
    state.write_offsets()
    assert len(leader.written) == 1
    state.make_topic(TopicConfig("New"))
    # What was held before it goes before it.
    kinds = [json.loads(body)["kind"] for body, _ in leader.written]
    assert kinds == ["groups", "offsets", "topics"]
    follower = followed(*leader.first, *leader.commit_state(), *leader.sweep())
    assert same_tables(leader, follower)


def test_a_part_of_a_sweep_goes_before_what_is_held_for_it() -> None:
    leader = Parts().lead(is_prompt=False)
    leader.state.put_group(SubscriptionGroup("slow"))
    leader.state.begin_sweep()
    leader.state.sweep()
    leader.state.commits.tell("g", "A", 0, 5)
    leader.state.write_offsets()
    leader.commit_state()
    kinds = [json.loads(body)["kind"] for body, _ in leader.written]
    assert kinds == ["sweep"] * 4 + ["offsets"]


def test_who_is_held_back_when_the_leadership_ends_was_not_refused_by_the_log() -> None:
    leader = Parts().lead(is_prompt=False)
    state, told = leader.state, list[object]()
    state.put_group(SubscriptionGroup("slow"))
    state.begin_sweep()
    state.sweep()
    state.commits.commit("g", "A", 0, 5, told.append)
    leader.turn.end()
    refused: list[object] = []
    state.commits._refusals.refused = refused.append  # type: ignore[method-assign]
    state.follow()
    assert len(told) == 1 and isinstance(told[0], ServiceUnavailableError)
    assert refused == []


def test_changes_do_not_wait_long_for_a_sweep() -> None:
    leader = Parts().lead(is_prompt=False)
    state, told = leader.state, list[object]()
    state.put_group(SubscriptionGroup("A"), told.append)
    state.begin_sweep()
    state.sweep()
    state.put_group(SubscriptionGroup("B"), told.append)
    # A majority is slow: what comes meanwhile is held back, for a moment.
    assert len(leader.written) == 1
    leader.now_ms += 200
    state.sweep()
    # The sweep waits now, again, for what is on its way.
    assert len(leader.written) == 2 and not state.is_swept
    leader.commit_state()
    assert told == [None, None]
    assert leader.sweep() and state.is_swept


def test_refused_parts_of_a_sweep_are_proposed_again() -> None:
    leader = many_topics(2500)
    state = leader.state
    state.begin_sweep()
    bodies: list[bytes] = []
    tries = 0
    while not state.is_swept or leader.written:
        leader.now_ms += 61_000
        state.sweep()
        tries += 1
        if leader.written and tries % 3:
            leader.commit_state(SystemBusyError("refused"))
            assert state.alarm is not None and "refused" in state.alarm
        else:
            bodies += leader.commit_state()
    assert state.alarm is None
    assert same_tables(leader, followed(*bodies))
    assert leader.state.sweep_index >= 0


def test_topic_that_was_removed_takes_its_queues_along_on_every_member() -> None:
    leader, bodies = busy_leader()
    assert leader.removed_topics == ["B"]
    assert followed(*bodies).removed_topics == ["B"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"v":1,"kind":7}',
        b'{"v":0,"kind":"topics","put":{"T":{}},"removed":[]}',
        b'{"v":true,"kind":"topics","put":{"T":{}},"removed":[]}',
        b'{"v":"2","kind":"topics","put":{"T":{}},"removed":[]}',
        b'{"kind":"topics","put":{"T":{}},"removed":[]}',
        b'{"v":1,"kind":"topics","put":[1],"removed":{"a":1},"version":7}',
        b'{"v":1,"kind":"topics","put":{"T":5},"removed":[3]}',
        b'{"v":1,"kind":"groups","put":"x"}',
        b'{"v":1,"kind":"offsets","put":{"t@g":{"0":"x","-1":2}}}',
        b'{"v":1,"kind":"locks","put":{"g":[7,["t","b","0","c"]]}}',
        b'{"v":1,"kind":"sweep","id":1,"part":"0","table":"topics","put":{}}',
        b'{"v":1,"kind":"sweep","id":"1","part":0,"table":"topics","after":7,"put":{"T":1}}',
        b'{"v":1,"kind":"plan","runs":7}',
    ],
)
def test_strange_records_are_left_out(body: bytes) -> None:
    parts = followed(body)
    assert len(parts.state.topics) == 0 and len(parts.state.groups) == 0


def test_unknown_group_is_made_by_its_first_use_on_a_leader() -> None:
    leader = Parts().lead(is_prompt=False)
    assert leader.state.group_for_use("new") == SubscriptionGroup("new")
    # Used again it is not made again.
    assert leader.state.group_for_use("new") == SubscriptionGroup("new")
    assert leader.state.is_making
    [body] = leader.commit_state()
    assert json.loads(body)["put"]["new"]["retryMaxTimes"] == 16
    assert not leader.state.is_making and leader.state.groups.find("new") is not None
    follower = Parts()
    assert follower.state.group_for_use("new") == SubscriptionGroup("new")
    assert len(follower.state.groups) == 0 and follower.written == []


def test_unknown_group_is_refused() -> None:
    closed = Parts(autoCreateSubscriptionGroup="false").lead(is_prompt=False)
    with pytest.raises(GroupNotFoundError, match="autoCreateSubscriptionGroup"):
        closed.state.group_for_use("new")
    assert closed.state.group_for_use("CID_RMQ_SYS_X").name == "CID_RMQ_SYS_X"
    with pytest.raises(InvalidRequestError):
        Parts().state.group_for_use("a/b")
    full = Parts(maxGroupCount="10").lead(is_prompt=False)
    for number in range(10):
        full.state.group_for_use(f"g{number}")
    with pytest.raises(SystemBusyError, match="maxGroupCount"):
        full.state.group_for_use("one-more")
    # One that the log refused leaves its place to another.
    full.commit_state(SystemBusyError("refused"))
    assert full.state.group_for_use("one-more").name == "one-more"


def test_default_topic_closes_when_automatic_creation_is_off() -> None:
    leader = Parts(autoCreateTopicEnable="false")
    leader.state.topics.put(TopicConfig("TBW102", 8, 8, 7), 1)
    leader.lead(is_prompt=False)
    topic = leader.state.topics.find("TBW102")
    assert topic is not None and topic.permission == 6


def test_locks_that_clients_left_behind_are_given_up_one_lot_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each as a change of its own, when the one before is applied; a bounded number of them."""
    monkeypatch.setattr(lock_grants, "GIVEN_UP_MAX", 10)
    monkeypatch.setattr(lock_requests, "GIVEN_UP_MAX", 10)
    leader = Parts().lead(is_prompt=False)
    requests, locks = leader.state.lock_requests, leader.state.locks
    queues = [QueueKey("A", "b", number) for number in range(125)]
    requests.lock("g", queues, "c", lambda held, error: None)
    leader.commit_state()
    leader.now_ms += LOCK_LIFE_MS + 1
    left = []
    requests.expire()
    while leader.commit_state():
        left.append(len(locks))
    assert left == [115 - 10 * number for number in range(10)]
    requests.expire()
    assert [len(leader.commit_state()) for _ in range(4)] == [1, 1, 1, 0]
    assert len(locks) == 0
