"""Parked pulls: they are small, none is dear among many, and those of lost connections are gone."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import pytest

from ledgermq.broker.counts.statistics import Statistics
from ledgermq.broker.pulls import long_polling
from ledgermq.broker.pulls.long_polling import ParkedPulls
from ledgermq.broker.pulls.parked_rows import BLOCK_ROWS, ParkedPull
from ledgermq.broker.pulls.pull import PullProcessor
from ledgermq.broker.selectors.filters import Matcher
from ledgermq.protocol.codes import ResponseCode
from ledgermq.protocol.command import RemotingCommand, decode, encode
from ledgermq.state.topics import TopicConfig
from tests.unit.broker.parts import ListConnection, Parts
from tests.unit.broker.pulls.test_pull import OneQueue, pull_of

# Java's hash codes.
TAG_A = 2598919
TAG_B = 2598920
# What one of many parked pulls may take, its place in the tables included.
_PULL_BYTES_MAX = 60


class Peer(str):
    """A connection with a name, of an account of the same name, or of another one."""

    is_open = True
    account: str

    def __new__(cls, name: str, account: str = "") -> Peer:
        peer = super().__new__(cls, name)
        peer.account = account or name
        return peer


class Compared:
    """A connection that counts how often it is looked at among others."""

    is_open = True
    account, peer_host = None, "10.0.0.9"
    count = 0

    def __hash__(self) -> int:
        Compared.count += 1
        return id(self) >> 4

    def __eq__(self, other: object) -> bool:
        Compared.count += 1
        return self is other


def parked(
    connection: Any = "a",
    queue_id: int = 0,
    weight_bytes: int = 0,
    *,
    offset: int = 5,
    matcher: Matcher | None = None,
    deadline_ms: float = 1000,
) -> ParkedPull:
    if type(connection) is str:
        connection = Peer(connection)
    return ParkedPull(
        connection, None, "T", queue_id, offset, matcher, deadline_ms, 0, 0, weight_bytes
    )


def asked(number: int, subscription: str = "*") -> RemotingCommand:
    """A pull as it comes in: none of its texts is that of another one."""
    pull = pull_of(number % 4)
    pull.opaque = 100_000 + number
    assert pull.ext_fields is not None
    pull.ext_fields |= {"subscription": subscription, "AccessKey": "app", "Signature": "s" * 28}
    return decode(encode(pull)[4:])


def processor(parts: Parts) -> PullProcessor:
    parts.state.put_topic(TopicConfig("T", 4, 4))
    store: Any = OneQueue()
    return PullProcessor(
        parts.config, parts.leadership, parts.state, parts.clients, store, parts.parked,
        lambda: float(parts.now_ms), 1 << 30, Statistics("C", 0),
    )  # fmt: skip


def test_a_hundred_thousand_parked_pulls_would_take_some_megabytes() -> None:
    parts = Parts().lead()
    pulls = processor(parts)
    connections: list[Any] = [ListConnection() for _ in range(10)]
    for connection in connections:
        assert pulls.pull(connection, asked(0)) is None
    tracemalloc.start()
    try:
        before_bytes = tracemalloc.get_traced_memory()[0]
        for number in range(1000):
            assert pulls.pull(connections[number % 10], asked(number)) is None
        taken_bytes = tracemalloc.get_traced_memory()[0] - before_bytes
    finally:
        tracemalloc.stop()
    assert parts.parked.count == 1010
    assert taken_bytes / 1000 < _PULL_BYTES_MAX


def test_a_parked_pull_is_answered_by_its_number_with_its_own_place() -> None:
    parts = Parts().lead()
    pulls = processor(parts)
    connection: Any = ListConnection()
    for number, subscription in enumerate(("*", "a || b", "a || b", "c", "*")):
        assert pulls.pull(connection, asked(number, subscription)) is None
    wanted = [parts.parked._queues["T", queue].few for queue in range(4)]
    assert [pull.matcher is None for pull in wanted[0]] == [True, True]
    # The same condition of two queues is kept once, another one is not mistaken for it.
    assert wanted[1][0].request is wanted[2][0].request
    assert wanted[1][0].matcher is wanted[2][0].matcher
    assert wanted[3][0].request.subscription == "c"
    pulls.messages_dispatched([("T", queue, 6, 0) for queue in range(4)])
    assert [answer.opaque for answer in connection.take()] == [100_000, 100_004]
    pulls.end_waits("other rules")
    answers = connection.take()
    assert {answer.opaque for answer in answers} == {100_001, 100_002, 100_003}
    assert {answer.code for answer in answers} == {ResponseCode.PULL_RETRY_IMMEDIATELY}


def test_long_conditions_together_have_a_bound() -> None:
    parts = Parts().lead()
    parts.parked = ParkedPulls(100_000, weight_bytes_max=100_000)
    pulls = processor(parts)
    connection: Any = ListConnection()
    tags = " || ".join(f"tag{number}" for number in range(100))
    answers = [pulls.pull(connection, asked(number, tags)) for number in range(20)]
    assert 5 < parts.parked.count < 15
    assert all(answer is None for answer in answers[: parts.parked.count])
    refused = answers[parts.parked.count]
    assert isinstance(refused, RemotingCommand) and refused.code == ResponseCode.PULL_NOT_FOUND
    # Usual ones are parked all the same, and room comes back.
    assert pulls.pull(connection, asked(0)) is None
    parts.parked.connection_lost(connection)
    assert (parts.parked.count, parts.parked.weight_bytes) == (0, 0)
    assert pulls.pull(connection, asked(0, tags)) is None


def test_weight_comes_back_with_those_that_are_woken() -> None:
    pulls = ParkedPulls(10, weight_bytes_max=160)
    assert pulls.park(parked("a", 0, 60)) and not pulls.park(parked("b", 0, 120))
    assert pulls.park(parked("b", 1, 40)) and pulls.weight_bytes == 100
    assert len(pulls.wake([("T", 0, 6, 0)])) == 1
    assert pulls.weight_bytes == 40
    assert pulls.park(parked("a", 0, 60))
    pulls.connection_lost("a")
    assert [pull.connection for pull in pulls.take_all()] == ["b"]
    assert (pulls.count, pulls.weight_bytes) == (0, 0)


def test_one_more_is_not_compared_with_those_that_wait() -> None:
    """Each of a hundred thousand once was, with every other one of its queue."""
    pulls = ParkedPulls(100_000)
    connections = [Compared() for _ in range(20)]
    for connection in connections:
        for _ in range(100):
            assert pulls.park(parked(connection))
        assert not pulls.park(parked(connection))
    Compared.count = 0
    assert pulls.park(parked(connections[0], 1))
    assert Compared.count < 20
    # Nor is each looked at once more for each connection that is lost.
    Compared.count = 0
    for connection in connections:
        pulls.connection_lost(connection)
    assert pulls.count == 0 and not pulls._queues
    assert Compared.count < 3 * 2000


def test_pulls_of_lost_connections_are_not_woken() -> None:
    pulls = ParkedPulls(100)
    for connection in ("a", "b", "b", "b", "c"):
        assert pulls.park(parked(connection))
    pulls.connection_lost("a")
    assert pulls.count == 4
    assert [pull.connection for pull in pulls.wake([("T", 0, 6, 0)])] == ["b", "b", "b", "c"]
    assert pulls.count == 0 and not pulls._queues
    assert not pulls._counts_of and not pulls._asked_of


def test_a_lost_connection_parks_nothing_more() -> None:
    pulls = ParkedPulls(100)
    lost, other = Peer("lost"), Peer("other")
    for connection in (lost, lost, other, other, other):
        assert pulls.park(parked(connection))
    lost.is_open = False
    pulls.connection_lost(lost)
    # What was asked before, and is worked on only now.
    assert not pulls.park(parked(lost))
    assert pulls.count == 3
    assert pulls.wake([("T", 0, 6, 0)]) and not pulls.count and not pulls._counts_of


def test_message_behind_the_offset_wakes_once() -> None:
    pulls = ParkedPulls(10)
    pull = parked(offset=5)
    pulls.park(pull)
    assert list(pulls.wake([("T", 0, 5, 0), ("T", 1, 9, 0), ("U", 0, 9, 0)])) == []
    assert list(pulls.wake([("T", 0, 6, 0), ("T", 0, 7, 0)])) == [pull]
    assert pulls.count == 0


def test_message_with_another_tag_does_not_wake() -> None:
    pulls = ParkedPulls(10)
    pull = parked(offset=5, matcher=frozenset([TAG_A]).__contains__)
    pulls.park(pull)
    assert list(pulls.wake([("T", 0, 6, TAG_B)])) == []
    assert list(pulls.wake([("T", 0, 7, TAG_A)])) == [pull]


def test_each_waiting_pull_is_asked_once_however_many_messages_come() -> None:
    """A turn may bring ten thousand that none of a hundred thousand pulls wants."""
    asked_count = 0

    def matcher(tags_code: int) -> bool:
        nonlocal asked_count
        asked_count += 1
        return tags_code == TAG_A

    pulls = ParkedPulls(1000)
    for number in range(210):
        assert pulls.park(parked(f"c{number}", int(number < 10), matcher=matcher))
    codes = range(3)
    for queue_id in (0, 1):
        came = [("T", queue_id, 6 + number, codes[number % 3]) for number in range(1000)]
        assert not pulls.wake(came)
    assert 0 < asked_count <= 210 * len(codes)
    came.append(("T", 1, 2000, TAG_A))
    assert len(pulls.wake(came)) == 10 and pulls.count == 200


@pytest.mark.parametrize("count", [3, 100])
def test_a_pull_is_woken_by_what_is_behind_its_offset_only(count: int) -> None:
    """Of its own tag; another message of the same turn is no reason."""
    pulls = ParkedPulls(1000)
    for offset in (5, 6, 7):
        for number in range(count):
            matcher = frozenset([TAG_A]).__contains__
            assert pulls.park(parked(f"c{number}", offset=offset, matcher=matcher))
    came = [("T", 0, 6, TAG_A), ("T", 0, 7, TAG_B), ("T", 1, 9, TAG_A), ("T", 0, 9, TAG_B)]
    assert {pull.queue_offset for pull in pulls.wake(came)} == {5}
    assert pulls.count == 2 * count


@pytest.mark.parametrize("count", [3, 100])
def test_messages_of_very_many_tags_wake_all_that_they_stand_behind(count: int) -> None:
    pulls = ParkedPulls(1000)
    for offset in (5, 300):
        for number in range(count):
            matcher = frozenset([TAG_A]).__contains__
            assert pulls.park(parked(f"c{number}", offset=offset, matcher=matcher))
    assert not pulls.wake(("T", 0, 101 + number, number) for number in range(16))
    woken = pulls.wake(("T", 0, 201 + number, number) for number in range(100))
    assert [pull.queue_offset for pull in woken] == [5] * count


def test_scan_finds_longer_queues_and_late_pulls() -> None:
    pulls = ParkedPulls(10)
    late, behind, waiting = (
        parked(offset=9, deadline_ms=10),
        parked(offset=5, queue_id=1),
        parked(offset=9, queue_id=2),
    )
    for pull in (late, behind, waiting):
        pulls.park(pull)
    assert list(pulls.scan(10, lambda topic, queue_id: 9)) == [late, behind]
    assert pulls.count == 1
    assert list(pulls.due(999)) == []
    assert list(pulls.due(1000)) == [waiting]
    assert list(pulls.due(5000)) == []


def test_full_table_does_not_park() -> None:
    pulls = ParkedPulls(20)
    assert all(pulls.park(parked(connection=f"c{number}")) for number in range(20))
    assert not pulls.park(parked(connection="late"))
    assert pulls.count == 20


def test_nobody_takes_the_places_of_all_others() -> None:
    """Who finds none is answered at once, and asks again at once."""
    pulls = ParkedPulls(1000)

    def park_all(payer: str) -> int:
        number = 0
        while pulls.park(parked(connection=Peer(f"{payer}{number // 100}", payer))):
            number += 1
        return number

    assert park_all("greedy") == 750
    assert park_all("other") == 125
    assert park_all("third") == 125 and pulls.count == 1000
    assert park_all("fourth") == 0
    for number in range(8):
        pulls.connection_lost(Peer(f"greedy{number}", "greedy"))
    assert pulls.count == 250
    # Taken out by a message, they count no more for whoever parked them.
    assert len(pulls.wake([("T", 0, 6, 0)])) == 250
    assert (pulls.count, pulls._count_by, pulls._payer_of) == (0, {}, {})
    assert park_all("greedy") == 750


def test_nobody_takes_the_memory_of_all_others_for_conditions() -> None:
    pulls = ParkedPulls(100_000, weight_bytes_max=1000)
    weighing = [pulls.park(parked(Peer("a", "greedy"), n, 10)) for n in range(100)]
    assert weighing.count(True) == 75
    assert [pulls.park(parked(Peer("b", "other"), n, 10)) for n in range(20)].count(True) == 12
    assert pulls.park(parked(Peer("a", "greedy"), 0, 0))
    pulls.connection_lost(Peer("a", "greedy"))
    assert pulls.weight_bytes == 120 and pulls._weight_by == {"other": 120}


def test_one_connection_parks_a_bounded_number_for_a_queue() -> None:
    pulls = ParkedPulls(1000)
    for _ in range(100):
        assert pulls.park(parked())
    assert not pulls.park(parked())
    assert pulls.park(parked(connection="b"))
    assert pulls.park(parked(queue_id=1))


def test_pulls_of_a_closed_connection_are_forgotten() -> None:
    pulls = ParkedPulls(10)
    other = parked(connection="b")
    pulls.park(parked())
    pulls.park(other)
    pulls.connection_lost("a")
    assert list(pulls.take_all()) == [other]
    assert pulls.count == 0


class Model:
    """The same as one plain list."""

    def __init__(self) -> None:
        self.pulls: list[ParkedPull] = []

    def lose(self, connection: Peer) -> None:
        self._take(lambda pull: pull.connection == connection)

    def wake(self, came: list[tuple[str, int, int, int]]) -> list[ParkedPull]:
        return self._take(
            lambda pull: any(
                (pull.queue_id == queue_id and offset > pull.queue_offset)
                and (pull.matcher is None or pull.matcher(tag))
                for _, queue_id, offset, tag in came
            )
        )

    def scan(self, now_ms: int, max_offset: int) -> list[ParkedPull]:
        return self._take(lambda p: p.deadline_ms <= now_ms or p.queue_offset < max_offset)

    def _take(self, is_out: Callable[[ParkedPull], bool]) -> list[ParkedPull]:
        out = list(filter(is_out, self.pulls))
        self.pulls = [pull for pull in self.pulls if not is_out(pull)]
        return out


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("block_rows", [4, BLOCK_ROWS])
def test_few_and_many_are_taken_out_in_the_order_in_which_they_were_parked(
    block_rows: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_polling, "BLOCK_ROWS", block_rows)
    rng = random.Random(seed)
    pulls, model, opaque = ParkedPulls(100_000), Model(), 0
    peers = [Peer(f"c{number}") for number in range(8)]
    matchers: list[Matcher | None] = [None, frozenset([TAG_A]).__contains__]

    def by_queue(all_pulls: Iterable[ParkedPull]) -> list[ParkedPull]:
        return sorted(all_pulls, key=lambda pull: pull.queue_id)

    for turn in range(200):
        for _ in range(rng.randrange(60)):
            opaque += 1
            pull = ParkedPull(
                rng.choice(peers), rng.randrange(2), "T", rng.randrange(3), rng.randrange(4),
                rng.choice(matchers), float(turn + rng.randrange(30)), opaque, 0, rng.randrange(2),
            )  # fmt: skip
            if pulls.park(pull):
                model.pulls.append(pull)
        step = rng.randrange(4)
        if step == 0:
            lost = peers.pop(0)
            peers.append(Peer(f"c{turn + 8}"))
            pulls.connection_lost(lost)
            model.lose(lost)
        elif step == 1:
            offsets = sorted(rng.choices(range(6), k=rng.randrange(1, 5)))
            came = [
                ("T", rng.randrange(3), offset, rng.choice([TAG_A, TAG_B])) for offset in offsets
            ]
            assert by_queue(pulls.wake(came)) == by_queue(model.wake(came))
        elif step == 2:
            late: list[ParkedPull] = []
            while pulls._due and pulls._due[0][0] <= turn:
                late += pulls.due(turn)
            assert by_queue(late) == by_queue(model.scan(turn, -1))
        else:
            woken = pulls.scan(turn, lambda topic, queue: 1)
            assert by_queue(woken) == by_queue(model.scan(turn, 1))
        assert pulls.count == len(model.pulls)
        assert pulls.weight_bytes == sum(pull.weight_bytes for pull in model.pulls)
    assert by_queue(pulls.take_all()) == by_queue(model.pulls)
    assert not pulls._queues and not pulls._counts_of and not pulls._asked_of


def test_the_late_of_a_hundred_thousand_are_taken_out_some_at_a_time() -> None:
    pulls = ParkedPulls(100_000)
    for number in range(1000):
        connection = Peer(f"c{number}")
        for _ in range(100):
            assert pulls.park(parked(connection, number % 2, deadline_ms=1000 + number % 7))
    taken = [len(pulls.due(2000))]
    assert 8 * BLOCK_ROWS <= taken[0] <= 10 * BLOCK_ROWS
    while taken[-1]:
        taken.append(len(pulls.due(2000)))
    assert sum(taken) == 100_000 and max(taken) <= 10 * BLOCK_ROWS
    assert not pulls._queues and not pulls._counts_of


def test_what_lost_connections_leave_behind_is_taken_out_some_at_a_time() -> None:
    pulls = ParkedPulls(100_000)
    peers = [Peer(f"c{number}") for number in range(1000)]
    for peer in peers:
        for _ in range(100):
            assert pulls.park(parked(peer))
    (queue,) = pulls._queues.values()
    for peer in peers[::2]:
        pulls.connection_lost(peer)
    assert pulls.count == 50_000
    sizes = [len(queue)]
    for _ in range(20):
        assert not pulls.due(0)
        sizes.append(len(queue))
    assert sizes[-1] == 50_000 and queue.lost_count == 0
    assert max(before - after for before, after in pairwise(sizes)) <= 8 * BLOCK_ROWS


def test_queues_that_come_and_go_leave_no_places_behind() -> None:
    pulls = ParkedPulls(100)
    for number in range(20_000):
        assert pulls.park(parked(queue_id=number % 7, deadline_ms=15_000 + number))
        assert len(pulls.wake([("T", number % 7, 6, 0)])) == 1
    assert len(pulls._due) < 2000
