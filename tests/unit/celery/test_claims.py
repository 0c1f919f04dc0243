"""Claims: the state that all members compute from the log of a shared queue."""

import json
import random
from typing import Any

import pytest

from ledgermq.celery import claims as module
from ledgermq.celery.claims import Claims, Event, Given, Snapshot, decode_entry


class Log:
    """Events of some members, and the state after them."""

    def __init__(self, claims: Claims | None = None) -> None:
        self.claims = claims or Claims()
        self.events: list[Event] = []
        self._numbers: dict[str, int] = {}

    def say(self, owner: str, **fields: Any) -> Given:
        number = self._numbers[owner] = self._numbers.get(owner, 0) + 1
        event = Event(owner=owner, number=number, **fields)
        self.events.append(event)
        given = self.claims.apply(event)
        assert given is not None
        return given

    def begin_anew(self, owner: str) -> None:
        self._numbers.pop(owner, None)


def test_two_members_are_never_given_the_same_message() -> None:
    log = Log()
    assert log.say("a", take=2, end=3).offsets == [0, 1]
    assert log.say("b", take=2, end=3).offsets == [2]
    assert log.say("a", take=2, end=3).offsets == []
    assert log.say("b", take=9, end=5).offsets == [3, 4]


def test_acknowledgements_may_come_in_any_order() -> None:
    log = Log()
    log.say("a", take=3, end=3)
    log.say("a", done=(2, 1))
    assert (log.claims.floor(), list(log.claims.held)) == (0, [0])
    log.say("a", done=(0,))
    assert (log.claims.floor(), log.claims.held) == (3, {})


def test_what_is_given_back_comes_first_and_is_counted() -> None:
    log = Log()
    log.say("a", take=3, end=5)
    log.say("a", free=(2, 1))
    assert log.say("b", take=3, end=5).offsets == [1, 2, 3]
    assert [log.claims.held[offset].times for offset in (0, 1, 2, 3)] == [1, 2, 2, 1]


def test_nobody_gives_back_what_another_has() -> None:
    log = Log()
    log.say("a", take=1, end=1)
    log.say("b", free=(0,))
    assert log.say("b", take=1, end=1).offsets == []


def test_what_a_dead_member_had_goes_to_others() -> None:
    log = Log()
    log.say("dead", take=3, end=3)
    log.say("dead", done=(1,))
    log.say("b", gone=("dead",))
    assert log.say("b", take=9, end=3).offsets == [0, 2]


def test_deaths_are_counted_of_members_that_ended_with_a_message_only() -> None:
    log = Log()
    log.say("a", take=4, end=4)
    log.say("a", free=(1, 2, 3), fatal=(2, 3))
    log.say("b", take=3, end=4)
    # What another has, nobody gives back.
    log.say("a", free=(1,), fatal=(1,))
    log.say("b", is_bye=True)
    log.say("a", take=1, end=4)
    log.say("c", gone=("a",))
    assert [log.claims.held[offset].deaths for offset in range(4)] == [1, 1, 10, 10]
    log.say("c", take=2, end=4)
    log.say("d", gone=("c",))
    assert [log.claims.held[offset].deaths for offset in range(4)] == [2, 2, 10, 10]
    entry = decode_entry(log.claims.snapshot(9).encode())
    assert isinstance(entry, Snapshot)
    assert Claims.restored(entry).held == log.claims.held


def test_a_worker_that_ends_in_order_costs_a_message_nothing() -> None:
    log = Log()
    for number in range(100):
        log.say(f"deployment {number}", take=1, end=1)
        log.say(f"deployment {number}", free=(0,))
        log.say(f"deployment {number}", take=1, end=1)
        log.say(f"deployment {number}", is_bye=True)
    assert (log.claims.held[0].times, log.claims.held[0].deaths) == (200, 0)


def test_an_event_of_a_member_that_was_declared_gone_is_void() -> None:
    log = Log()
    log.say("a", take=1, end=1)
    log.say("b", gone=("a",))
    assert log.claims.apply(Event(owner="a", number=2, take=1, end=1)) is None
    assert log.say("b", take=1, end=1).offsets == [0]


def test_what_a_member_did_all_the_same_is_done() -> None:
    """Declared gone, a worker ends its task, and tells so under its new name."""
    log = Log()
    log.say("a", take=1, end=1)
    log.say("b", gone=("a",))
    log.say("b", take=1, end=1)
    log.say("a-again", done=(0,))
    assert log.claims.held == {}


def test_nobody_declares_himself_gone() -> None:
    log = Log()
    log.say("a", take=1, end=1)
    log.say("a", gone=("a",))
    assert log.claims.busy_owners() == {"a"}


def test_an_event_that_was_stored_twice_counts_once() -> None:
    log = Log()
    log.say("a", take=1, end=3)
    assert log.claims.apply(log.events[0]) is None
    log.say("a", free=(0,))
    log.say("b", take=1, end=3)
    assert log.claims.apply(log.events[1]) is None
    assert log.claims.held[0].owner == "b"


def test_who_goes_leaves_everything() -> None:
    log = Log()
    log.say("a", take=2, end=2)
    log.say("a", is_bye=True, take=5, end=5)
    assert log.claims.busy_owners() == set()
    assert "a" not in log.claims.owners
    assert log.say("b", take=2, end=2).offsets == [0, 1]


def test_purge_removes_what_nobody_works_on() -> None:
    log = Log()
    log.say("a", take=3, end=10)
    log.say("a", free=(1,))
    assert log.say("b", purge=10).purged == 8
    assert list(log.claims.held) == [0, 2]
    assert log.say("b", take=9, end=10).offsets == []
    assert log.say("b", purge=10).purged == 0


def test_ready_are_those_that_wait() -> None:
    log = Log()
    log.say("a", take=3, end=10)
    log.say("a", free=(1,))
    assert log.claims.ready_count(10) == 8


def test_there_is_a_limit_to_what_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HELD_MAX", 3)
    log = Log()
    assert log.say("a", take=9, end=9).offsets == [0, 1, 2]
    assert not log.claims.has_work(9)
    log.say("a", done=(1,))
    assert log.claims.has_work(9)
    assert log.say("a", take=9, end=9).offsets == [3]


@pytest.mark.parametrize(
    "entry",
    [
        Event(owner="a", number=1),
        Event(owner="a", number=7, done=(1, 2), free=(3,), gone=("b",), purge=4, take=5, end=6),
        Event(owner="a", number=8, is_bye=True),
        Event(owner="a", number=9, free=(3, 4), fatal=(4,)),
        Snapshot(log_offset=9, next_offset=4, held=((1, "a", 2), (3, "", 1)), owners={"a": 3}),
        Snapshot(
            log_offset=9,
            next_offset=4,
            held=((1, "a", 2), (3, "", 1)),
            owners={"a": 3},
            deaths=(0, 1),
        ),
    ],
)
def test_an_entry_is_read_as_it_was_written(entry: Event | Snapshot) -> None:
    assert decode_entry(entry.encode()) == entry


@pytest.mark.parametrize("body", [b"", b"hello", b"[]", b"7", b"{}", b'{"o":1}', b'{"at":"x"}'])
def test_what_is_no_entry_is_left_out(body: bytes) -> None:
    assert decode_entry(body) is None


def _random_event(chance: random.Random, log: Log, owner: str, end: int) -> dict[str, Any]:
    held = [offset for offset, one in log.claims.held.items() if one.owner == owner]
    some = tuple(offset for offset in held if chance.random() < 0.4)
    kind = chance.randrange(10)
    if kind < 4:
        return {"take": chance.randrange(5), "end": end, "done": some}
    if kind < 7:
        return {"done": some}
    if kind < 9:
        return {"free": some}
    return {"gone": tuple(sorted(log.claims.owners.keys() - {owner}))[:1]}


def test_any_history_gives_each_message_to_one_and_forgets_none() -> None:
    """Against a plain model; a second reader begins with a snapshot somewhere and ends the same."""
    for seed in range(40):
        chance = random.Random(seed)
        log, end = Log(), 0
        owner_of: dict[int, str] = {}
        done: set[int] = set()
        restored: Claims | None = None
        for step in range(200):
            end += chance.randrange(3)
            owner = chance.choice("abc")
            if owner not in log.claims.owners:
                log.begin_anew(owner)
            fields = _random_event(chance, log, owner, end)
            given = log.say(owner, **fields)
            done |= set(fields.get("done", ()))
            for offset in (*fields.get("done", ()), *fields.get("free", ())):
                owner_of.pop(offset, None)
            for gone in fields.get("gone", ()):
                owner_of = {offset: who for offset, who in owner_of.items() if who != gone}
            assert not done.intersection(given.offsets), seed
            assert not owner_of.keys() & set(given.offsets), seed
            owner_of |= dict.fromkeys(given.offsets, owner)
            if step == 100:
                entry = decode_entry(log.claims.snapshot(step).encode())
                assert isinstance(entry, Snapshot)
                restored = Claims.restored(entry)
            elif restored is not None:
                restored.apply(log.events[-1])
        told = {offset: one.owner for offset, one in log.claims.held.items() if one.owner}
        assert told == owner_of, seed
        assert done | log.claims.held.keys() == set(range(log.claims.next_offset)), seed
        assert restored is not None
        assert restored.snapshot(0) == log.claims.snapshot(0), seed
        everything = log.say("z", take=10_000, end=end).offsets
        assert done | owner_of.keys() | set(everything) == set(range(end)), seed


@pytest.mark.parametrize(
    "fields",
    [
        {"o": ""},
        {"o": "o" * 65},
        {"o": 7},
        {"t": 257},
        {"t": -1},
        {"e": 1 << 63},
        {"d": [-1]},
        {"d": [0] * 1001},
        {"f": [0] * 1001},
        {"x": [0] * 1001},
        {"g": ["o" * 65]},
        {"g": ["x"] * 1001},
        {"n": -1},
    ],
)
def test_an_event_that_no_member_writes_is_void(fields: dict[str, Any]) -> None:
    """A name of megabytes stopped all writers, an empty one made readers disagree."""
    event = {"o": "a" * 32, "n": 1, "t": 1, "e": 1}
    assert decode_entry(json.dumps(event).encode()) is not None
    assert decode_entry(json.dumps({**event, **fields}).encode()) is None


def test_an_entry_longer_than_a_message_is_not_looked_into() -> None:
    assert decode_entry(b'{"o":"a","n":1}' + b" " * (4 << 20)) is None


def test_a_snapshot_that_no_member_writes_is_void() -> None:
    log = Log()
    log.say("a", take=2, end=3)
    fields = json.loads(log.claims.snapshot(1).encode())
    assert isinstance(decode_entry(json.dumps(fields).encode()), Snapshot)
    for change in ({"next": 1 << 63}, {"at": -1}, {"owners": [["", 1]]}, {"held": [[-1, 0, 1]]},
                   {"deaths": [1]}, {"deaths": [-1, 0]}, {"deaths": 7}):  # fmt: skip
        assert decode_entry(json.dumps({**fields, **change}).encode()) is None


def test_members_beyond_what_a_queue_may_have_are_not_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "OWNERS_MAX", 2)
    log = Log()
    log.say("a", take=1, end=9)
    log.say("b", take=1, end=9)
    assert log.claims.apply(Event(owner="c", number=1, take=1, end=9)) is None
    log.say("a", gone=("b",))
    assert log.say("c", take=1, end=9).offsets == [1]
