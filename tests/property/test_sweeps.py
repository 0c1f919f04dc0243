"""A member that knows nothing but a sweep, or something else, ends with the state of the leader."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from ledgermq.state.broker_state import BrokerState
from ledgermq.state.queue_progress import HALF_QUEUE, Run
from ledgermq.state.topics import TopicConfig
from tests.unit.broker.parts import Parts


def fill(state: BrokerState, rng: Random) -> None:
    """Puts entries of any width into the tables, as commands that were applied long ago."""
    for number in range(rng.randrange(1, 12)):
        topic = f"topic-{rng.randrange(6)}"
        width = rng.choice((1, 3, 200, 700, 3000))
        queues = rng.sample(range(5000), width)
        state.offsets.put({f"{topic}@group-{number}": {q: rng.randrange(2**62) for q in queues}})
        rows = [(topic, "b", queue, f"client-{rng.randrange(3)}") for queue in queues]
        state.locks.put({f"group-{number}": rows})


def tables(state: BrokerState) -> list[dict[str, Any]]:
    offsets, topics = dict(state.offsets.behind("")), dict(state.topics.behind(""))
    return [offsets, topics, dict(state.groups.behind("")), dict(state.locks.behind(""))]


@pytest.mark.parametrize("seed", range(12))
def test_entries_in_several_parts_arrive_whole(seed: int) -> None:
    rng = Random(seed)
    leader = Parts().lead(is_prompt=False)
    fill(leader.state, rng)
    leader.state.offsets.put({"wide@group": {queue: queue * 7 for queue in range(2000)}})
    # The leader applies its own sweep, too: a mistake there would change what is compared with.
    expected = tables(leader.state)
    fresh, stale = Parts(), Parts()
    fill(stale.state, rng)
    # Queues that the leader has not, and offsets that it has otherwise.
    stale.state.offsets.put({"wide@group": {1: 1, 7: 7, 4711: 5}, "gone@group": {0: 1}})
    bodies = leader.sweep()
    assert sum(b'"goes_on":true' in body for body in bodies) > 3
    for member in (fresh, stale):
        for index, body in enumerate(bodies):
            member.state.apply(body, index)
        assert tables(member.state) == expected
        assert member.state.sweep_index == 0
    assert tables(leader.state) == expected
    # And a sweep of a member that learned all of it by one says the same.
    next_leader = fresh.lead(is_prompt=False)
    for index, body in enumerate(next_leader.sweep()):
        stale.state.apply(body, index)
    assert tables(stale.state) == tables(next_leader.state)


@pytest.mark.parametrize("seed", range(4))
def test_no_part_changes_a_member_that_knows_all(seed: int) -> None:
    """So nothing is lost where the next part never comes."""
    leader, follower = Parts().lead(is_prompt=False), Parts()
    for parts in (leader, follower):
        fill(parts.state, Random(seed))
        parts.state.offsets.put({"wide@group": {queue: queue * 7 for queue in range(2000)}})
    for index, body in enumerate(leader.first):
        follower.state.apply(body, index)
    expected = tables(leader.state)
    for index, body in enumerate(leader.sweep()):
        follower.state.apply(body, index)
        assert tables(follower.state) == expected


def test_a_sweep_has_the_cursors_of_deliveries() -> None:
    leader, fresh = Parts().lead(is_prompt=False), Parts()
    leader.state.progress.advance([Run(3, 17, 4), Run(18, 5, 0), Run(HALF_QUEUE, 9, 1)])
    for index, body in enumerate(leader.sweep()):
        fresh.state.apply(body, index)
    progress = fresh.state.progress
    assert progress.to_json() == {"offsetTable": {3: 20, 18: 5}, "halfOffset": 9}
    fresh.lead()
    assert [progress.cursor(queue) for queue in (3, 18, HALF_QUEUE)] == [20, 5, 9]


def test_a_sweep_begun_before_a_removal_brings_nothing_back() -> None:
    """The topic goes and comes back while the sweep is under way, between any two of its parts."""
    for steps in range(12):
        leader, fresh = Parts().lead(is_prompt=False), Parts()
        state, bodies = leader.state, list[bytes]()
        state.put_topic(TopicConfig("wide", 4, 4))
        bodies += leader.commit_state()
        state.offsets.put({"wide@group": dict.fromkeys(range(1500), 5)})
        state.begin_sweep()
        for _ in range(steps):
            state.sweep()
            bodies += leader.commit_state()
        state.remove_topic("wide")
        state.put_topic(TopicConfig("wide", 4, 4))
        state.commits.tell("group", "wide", 2, 1)
        state.write_offsets()
        while not state.is_swept or leader.written:
            state.sweep()
            bodies += leader.commit_state()
            leader.turn.end()
        for index, body in enumerate(bodies):
            fresh.state.apply(body, index)
        assert fresh.state.offsets.all() == state.offsets.all() == {"wide@group": {2: 1}}
