"""What the broker's replicated state costs: a large one beside an empty one, in this process.

python -m bench.state_cost [--topics 20000] [--groups 3] [--queues 8]

A leader proposes, and what it proposes is applied at once, here and on a follower: no log, no
network. Prints the time in which a leader begins to lead, the longest step of a sweep and the
longest time a follower takes for its parts, what a name server is told of all topics and of one,
and what 5,000 commits a second of 100 groups cost.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from ledgermq.broker.config.broker_config import load_broker_config
from ledgermq.broker.leadership import Leadership
from ledgermq.broker.registration.announcements import Announcements, Known
from ledgermq.protocol.command import encode
from ledgermq.state.broker_state import BrokerState
from ledgermq.state.consumer_offsets import ConsumerOffsetTable
from ledgermq.state.subscriptions import SubscriptionGroup, SubscriptionGroupTable
from ledgermq.state.topics import TopicConfig, TopicTable
from ledgermq.state.under_way import OnCommitted

_BODY_BYTES_MAX: Final = 4 << 20
_COMMITS_S: Final = 5_000
_GROUPS: Final = 100
_SECONDS: Final = 20
# Reactor turns of a second, each of which ends with what was told in it.
_TURNS: Final = 50


class Member:
    """The state of one member; what it proposes is applied when `commit` is called."""

    def __init__(self, keys_max: int) -> None:
        self.index = 0
        self.proposed: list[tuple[Sequence[bytes], OnCommitted]] = []
        self.turn: list[Callable[[], None]] = []
        self.state = BrokerState(
            TopicTable(keys_max),
            SubscriptionGroupTable(keys_max),
            ConsumerOffsetTable(keys_max),
            write=lambda bodies, done: self.proposed.append((bodies, done)),
            body_bytes_max=_BODY_BYTES_MAX,
            now_ms=lambda: 1,
            clock_ms=lambda: 0.0,
            call_at_end_of_turn=self.turn.append,
            auto_create_groups=True,
            on_topics_changed=lambda: None,
            on_topic_removed=lambda name: None,
        )

    def commit(self) -> list[bytes]:
        """Applies what was proposed; returns the records."""
        proposed, self.proposed = self.proposed, []
        for bodies, done in proposed:
            self.apply(bodies)
            done(None)
        return [body for bodies, _ in proposed for body in bodies]

    def apply(self, bodies: Sequence[bytes]) -> None:
        """Applies records, as a follower does."""
        for body in bodies:
            self.state.apply(body, self.index)
            self.index += 1

    def end_turn(self) -> None:
        """Does what waits for the end of a turn of the reactor."""
        turn, self.turn[:] = list(self.turn), []
        for function in turn:
            function()


def filled(topics: int, groups: int, queues: int) -> Member:
    """A leader with that many topics, and offsets of so many groups for each."""
    leader = Member(topics * groups + 1_000)
    leader.state.lead("n0/1")
    for number in range(groups):
        leader.state.put_group(SubscriptionGroup(f"group-{number}"))
    for number in range(topics):
        leader.state.put_topic(TopicConfig(f"topic-{number:06}", queues, queues))
        for group in range(groups):
            for queue_id in range(queues):
                leader.state.commits.tell(f"group-{group}", f"topic-{number:06}", queue_id, 10**9)
    leader.state.write_offsets()
    leader.commit()
    return leader


def lead_ms(member: Member) -> float:
    """How long a member takes to begin to lead."""
    member.state.follow()
    began = time.perf_counter()
    member.state.lead("n0/2")
    member.state.adopt([TopicConfig("topic-000000")], [], lambda error: None)
    taken = time.perf_counter() - began
    member.commit()
    return taken * 1000


def sweep_ms(leader: Member, follower: Member) -> tuple[float, float, int, int]:
    """Sweeps once: the leader's longest step, the follower's, in ms; steps, and bytes."""
    longest = followed = 0.0
    steps = size = 0
    leader.state.begin_sweep()
    while not leader.state.is_swept:
        began = time.perf_counter()
        leader.state.sweep()
        longest = max(longest, time.perf_counter() - began)
        bodies = leader.commit()
        began = time.perf_counter()
        follower.apply(bodies)
        followed = max(followed, time.perf_counter() - began)
        steps += 1
        size += sum(map(len, bodies))
    return longest * 1000, followed * 1000, steps, size


class Told(NamedTuple):
    """What a name server was told until it lacked nothing."""

    known: Known | None
    # Bytes of each frame.
    sizes: list[int]
    # Longest turn, ms of a processor.
    longest_ms: float

    def __str__(self) -> str:
        size = sum(self.sizes)
        return f"{len(self.sizes)} frames, {size:,} bytes, longest turn {self.longest_ms:.2f} ms"


def tell(announcements: Announcements, known: Known | None) -> Told:
    """Tells a name server what it lacks."""
    identity = announcements.identity()
    assert identity is not None
    sizes: list[int] = []
    longest_s = 0.0
    while True:
        began_s = time.process_time()
        announcement = announcements.next(identity, known)
        if announcement is None:
            return Told(known, sizes, longest_s * 1000)
        sizes.append(len(encode(announcement.request)))
        longest_s = max(longest_s, time.process_time() - began_s)
        known = announcement.known


def registrations(topics: TopicTable) -> tuple[Told, Told]:
    """What a leader tells a name server: all topics, then one that changed."""
    leadership = Leadership("n0", 1)
    leadership.changed("LEADER", 1, "n0")
    leadership.serve()
    announcements = Announcements(
        load_broker_config(None, {}),
        leadership,
        topics,
        address=lambda: "127.0.0.1:10911",
        ha_address=lambda: "127.0.0.1:10912",
        chance=lambda: 0.5,
    )
    whole = tell(announcements, None)
    topics.put(TopicConfig("fresh"), 1)
    return whole, tell(announcements, whole.known)


def commits_share() -> float:
    """What commits of many groups take of a core, in percent, proposed once in a turn."""
    leader, follower = Member(10_000), Member(10_000)
    leader.state.lead("n0/1")
    began = time.process_time()
    offset = 0
    for _ in range(_SECONDS * _TURNS):
        for number in range(_COMMITS_S // _TURNS):
            offset += 1
            leader.state.commits.commit(
                f"group-{number % _GROUPS}", "topic", number % 8, offset, lambda error: None
            )
        leader.end_turn()
        follower.apply(leader.commit())
    return (time.process_time() - began) / _SECONDS * 100


def main(arguments: Sequence[str]) -> int:
    """Prints the figures."""
    parser = argparse.ArgumentParser(prog="bench.state_cost")
    parser.add_argument("--topics", type=int, default=20_000)
    parser.add_argument("--groups", type=int, default=3)
    parser.add_argument("--queues", type=int, default=8)
    options = parser.parse_args(arguments)
    leader = filled(options.topics, options.groups, options.queues)
    empty = filled(1, 1, 1)
    pairs = options.topics * options.groups
    sys.stdout.write(f"{options.topics:,} topics, {pairs:,} pairs, {options.queues} queues each\n")
    sys.stdout.write(f"begins to lead: {lead_ms(leader):.1f} ms, empty {lead_ms(empty):.1f} ms\n")
    follower = Member(pairs + 1_000)
    for what in ("new", "equal"):
        step, followed, steps, size = sweep_ms(leader, follower)
        sys.stdout.write(
            f"sweep, follower {what}: longest step {step:.1f} ms, follower's {followed:.1f} ms,"
            f" {steps} steps, {size:,} bytes\n"
        )
    whole, change = registrations(leader.state.topics)
    sys.stdout.write(f"a name server is told all topics: {whole}\n")
    sys.stdout.write(f"a name server is told one changed topic: {change}\n")
    sys.stdout.write(f"{_COMMITS_S:,} commits a second: {commits_share():.1f} % of a core, both\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
