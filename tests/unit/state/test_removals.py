"""A topic with many offsets is removed: what clients, files, sweeps and a restart see meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from ledgermq.broker.storage.state_files import parse_tolerant, pretty_slices
from ledgermq.state.broker_state import BrokerState
from ledgermq.state.consumer_offsets import ConsumerOffsetTable
from ledgermq.state.topics import TopicConfig
from tests.unit.broker.parts import Parts

PAIRS = {f"T@g{number:03}": {0: 5} for number in range(200)}
OTHERS = {"U@g000": {0: 7}, "U@g001": {1: 8}}


class SlowParts(Parts):
    dropped_max = 8


def busy() -> Parts:
    parts = SlowParts().lead(is_prompt=False)
    for name in ("T", "U"):
        parts.state.put_topic(TopicConfig(name, 4, 4))
    for key, queues in (PAIRS | OTHERS).items():
        topic, _, group = key.rpartition("@")
        for queue_id, offset in queues.items():
            parts.state.commits.tell(group, topic, queue_id, offset)
    parts.state.write_offsets()
    parts.commit_all()
    assert parts.state.offsets.all() == PAIRS | OTHERS
    return parts


def remove(parts: Parts, topic: str) -> list[bytes]:
    parts.state.remove_topic(topic)
    return parts.commit_state()


def saved(state: BrokerState) -> Any:
    """Returns what a file that is written now holds."""
    text = "".join(pretty_slices(state.offsets.document(), 64))
    return parse_tolerant(text)["offsetTable"]


def as_saved(offsets: dict[str, dict[int, int]]) -> dict[str, dict[str, int]]:
    return {key: {str(n): at for n, at in queues.items()} for key, queues in offsets.items()}


def test_a_topic_that_comes_back_begins_without_offsets() -> None:
    leader = busy()
    remove(leader, "T")
    state = leader.state
    # Its memory is still being freed when it is made again, and consumed from.
    state.put_topic(TopicConfig("T", 4, 4))
    state.commits.tell("g003", "T", 0, 1)
    state.commits.tell("g150", "T", 1, 2)
    state.write_offsets()
    leader.commit_all()
    expected = OTHERS | {"T@g003": {0: 1}, "T@g150": {1: 2}}
    for _ in range(30):
        assert state.offsets.all() == expected and saved(state) == as_saved(expected)
        assert state.offsets.find("g150", "T", 0) is None
        state.sweep()
        leader.commit_state()
    assert len(state.offsets) == len(expected)


def test_a_topic_that_is_removed_twice_stays_removed() -> None:
    leader = busy()
    remove(leader, "T")
    for offset in (1, 2):
        leader.state.put_topic(TopicConfig("T", 4, 4))
        leader.state.commits.tell("g003", "T", 0, offset)
        leader.state.write_offsets()
        leader.commit_all()
        assert leader.state.offsets.find("g003", "T", 0) == offset
        leader.state.sweep()
        remove(leader, "T")
        assert leader.state.offsets.all() == OTHERS
    while leader.state.offsets.drop_some():
        assert leader.state.offsets.all() == OTHERS
    assert len(leader.state.offsets) == len(OTHERS)


@pytest.mark.parametrize("turns", [0, 3])
def test_a_sweep_holds_nothing_that_is_removed(turns: int) -> None:
    leader, fresh = busy(), Parts()
    remove(leader, "T")
    for _ in range(turns):
        leader.state.offsets.drop_some()
    assert len(leader.state.offsets) > len(OTHERS)
    for index, body in enumerate(leader.sweep()):
        fresh.state.apply(body, index)
    assert fresh.state.offsets.all() == OTHERS and len(fresh.state.offsets) == len(OTHERS)
    assert fresh.state.sweep_index >= 0


def test_a_sweep_removes_what_another_member_still_drops() -> None:
    """A follower is slower than its leader: neither does what it drops come back."""
    leader = busy()
    follower = SlowParts()
    follower.state.offsets.put(PAIRS | OTHERS)
    for index, body in enumerate([*remove(leader, "T"), *leader.sweep()]):
        follower.state.apply(body, index)
        assert follower.state.offsets.all() == OTHERS
    while follower.state.offsets.drop_some():
        assert follower.state.offsets.all() == OTHERS
    assert len(follower.state.offsets) == len(OTHERS)


def test_a_member_that_does_not_lead_frees_memory_as_well() -> None:
    follower = SlowParts()
    follower.state.offsets.put(PAIRS | OTHERS)
    for index, body in enumerate(remove(busy(), "T")):
        follower.state.apply(body, index)
    for turn in range(1, 26):
        follower.state.sweep()
        assert len(follower.state.offsets) == len(OTHERS) + 200 - 8 * turn


def test_a_full_table_takes_a_pair_that_comes_back() -> None:
    table = ConsumerOffsetTable(200, dropped_max=8)
    table.put(PAIRS)
    table.remove_topic("T")
    while table.drop_some():
        pass
    assert table.room_for("T@g000", 0).pairs == 1
