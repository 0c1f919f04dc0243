"""Groups, committed offsets and queue locks as plain tables."""

import json
from collections.abc import Iterator

import pytest

from ledgermq.state import lock_grants, queue_locks
from ledgermq.state.consumer_offsets import ConsumerOffsetTable, offsets_by_queue
from ledgermq.state.errors import InvalidRequestError, SystemBusyError
from ledgermq.state.lock_grants import INHERITED_LIFE_MS, LOCK_LIFE_MS, LockGrants
from ledgermq.state.queue_locks import LockRow, QueueKey, QueueLocks
from ledgermq.state.subscriptions import (
    SubscriptionGroup,
    SubscriptionGroupTable,
    built_in_groups,
    is_created_on_use,
)


def commit(table: ConsumerOffsetTable, group: str, topic: str, queue_id: int, offset: int) -> None:
    """What becomes of a commit, without a log between."""
    table.check(f"{topic}@{group}", queue_id, offset)
    table.room_for(f"{topic}@{group}", queue_id)
    table.put({f"{topic}@{group}": {queue_id: offset}})


class Locks:
    """A leader's locks, without a log between: what it proposes is applied at once."""

    def __init__(self, table: QueueLocks | None = None) -> None:
        self.table = QueueLocks() if table is None else table
        self.grants = LockGrants(self.table)
        # Changes that were applied.
        self.changes: list[dict[str, list[LockRow]]] = []

    def lock(self, group: str, queues: list[QueueKey], client_id: str, now_ms: float) -> object:
        held, rows = self.grants.lock(group, queues, client_id, now_ms)
        self._apply({group: rows})
        return held

    def unlock(self, group: str, queues: list[QueueKey], client_id: str) -> None:
        self._apply({group: self.grants.unlock(group, queues, client_id)})

    def expire(self, now_ms: float) -> None:
        self._apply(self.grants.expire(now_ms))

    def _apply(self, changes: dict[str, list[LockRow]]) -> None:
        self.table.put(changes)
        self.grants.ended(changes)
        self.changes.append(changes)

    def all(self) -> object:
        return self.table.document().whole()["lockTable"]

    def __len__(self) -> int:
        return len(self.table)


def test_last_offset_wins_also_when_smaller() -> None:
    table = ConsumerOffsetTable(10)
    commit(table, "g", "t", 0, 9)
    commit(table, "g", "t", 0, 4)
    assert table.find("g", "t", 0) == 4
    assert table.find("g", "t", 1) is None
    assert table.find("h", "t", 0) is None


@pytest.mark.parametrize(("queue_id", "offset"), [(-1, 0), (65_536, 0), (0, -1), (0, 2**63)])
def test_impossible_offset_is_refused(queue_id: int, offset: int) -> None:
    with pytest.raises(InvalidRequestError):
        commit(ConsumerOffsetTable(10), "g", "t", queue_id, offset)


def test_full_offset_table_refuses() -> None:
    table = ConsumerOffsetTable(1)
    commit(table, "g", "t", 0, 1)
    commit(table, "g", "t", 1, 1)
    with pytest.raises(SystemBusyError, match="allowed are 1"):
        commit(table, "h", "t", 0, 1)


def test_offsets_are_bounded_by_what_they_take_as_json() -> None:
    """What is stored is read at a start, too."""
    table = ConsumerOffsetTable(1000, bytes_max=2000)
    with pytest.raises(SystemBusyError, match=r"take \d+ bytes, allowed are 2000"):
        for number in range(1000):
            commit(table, f"g{number}", "t", 0, 1)
    pairs = len(table)
    assert 10 < pairs < 100 and len(json.dumps(table.all())) <= 2000
    with pytest.raises(SystemBusyError, match="allowed are 2000"):
        for queue_id in range(1000):
            commit(table, "g0", "t", queue_id, 1)
    # Those that are there go on.
    commit(table, "g0", "t", 0, 2)
    assert table.find("g0", "t", 0) == 2 and len(table) == pairs
    table.remove_group("g1")
    commit(table, "new", "t", 0, 1)


def test_what_offsets_take_is_the_same_however_they_came() -> None:
    table = ConsumerOffsetTable(1000)
    for number in range(50):
        for queue_id in range(number % 7 + 1):
            commit(table, f"g{number % 10}", f"t{number % 9}", queue_id, number)
    table.remove_group("g3")
    table.remove_topic("t4")
    other, third = ConsumerOffsetTable(1000), ConsumerOffsetTable(1000)
    other.replace_all(table.all())
    third.put({"old@gone": {0: 1}})
    third.load_json(json.loads(json.dumps(table.document().whole())))
    for key, queues in table.all().items():
        third.put({key: queues})
    assert table.json_bytes == other.json_bytes == third.json_bytes > 0
    for topic in {key.partition("@")[0] for key in table.all()}:
        table.remove_topic(topic)
    assert table.json_bytes == 0


def test_locks_are_bounded_by_what_they_take_as_json() -> None:
    locks = Locks(QueueLocks(bytes_max=2000))
    with pytest.raises(SystemBusyError, match=r"take \d+ bytes, allowed are 2000"):
        for number in range(1000):
            locks.lock("g", [QueueKey("t", "b", number)], "a", 0)
    held = len(locks)
    with pytest.raises(SystemBusyError):
        locks.lock("h", [QueueKey("t", "b", number) for number in range(1000)], "a", 0)
    assert len(locks) == held
    assert 10 < held < 100 and len(json.dumps(locks.all())) <= 2000
    with pytest.raises(SystemBusyError):
        locks.lock("g", [QueueKey("t", "b", 0)], "x" * 2000, LOCK_LIFE_MS + 1)
    assert len(locks) == held
    other = QueueLocks()
    other.load_json(json.loads(json.dumps(locks.table.document().whole())))
    assert other.json_bytes == locks.table.json_bytes
    # Another holder, a longer name; then all goes.
    locks.unlock("g", [QueueKey("t", "b", n) for n in range(5)], "a")
    assert locks.lock("g", [QueueKey("t", "b", 9)], "longer", LOCK_LIFE_MS + 1)
    locks.expire(3 * LOCK_LIFE_MS)
    assert (len(locks), locks.table.json_bytes) == (0, 0)


def test_offsets_of_a_group_and_of_a_topic_go() -> None:
    table = ConsumerOffsetTable(10)
    for group, topic in (("g", "t"), ("g", "u"), ("h", "t")):
        commit(table, group, topic, 0, 1)
    assert table.topics_of("g") == ["t", "u"]
    assert list(table.groups_behind("t")) == ["g", "h"]
    assert list(table.groups_behind("t", "g")) == ["h"]
    assert list(table.groups_behind("u", "g")) == []
    table.remove_group("g")
    assert (table.topics_of("g"), table.topics_of("h")) == ([], ["t"])
    table.remove_topic("t")
    assert len(table) == 0


def test_topics_of_a_group_are_found_without_a_look_at_all_pairs() -> None:
    class Pairs(dict[str, dict[int, int]]):
        def __iter__(self) -> Iterator[str]:
            raise AssertionError("looked at all pairs")

    table = ConsumerOffsetTable(1000)
    table.replace_all({"gone@g3": {0: 1}, "gone@h": {0: 1}})
    retries = {"%RETRY%g@g": {0: 3}, "t@%RETRY%g": {0: 3}}
    table.replace_all({f"t{number}@g{number % 7}": {0: 1} for number in range(99)} | retries)
    table.merge({"u@g3": {0: 5}, "t3@g3": {1: 5}})
    table.replace_range("t3@g3", "t4@g4", {"t31@g": {0: 2}})
    expected: dict[str, list[str]] = {}
    for key in table.all():
        topic, _, group = key.rpartition("@")
        expected[group] = sorted([*expected.get(group, ()), topic])
    assert {"t3", "u"} < set(expected["g3"])
    assert expected["g"] == ["%RETRY%g", "t31"]
    table._offsets = Pairs(table._offsets)
    for group, topics in expected.items():
        assert table.topics_of(group) == topics
    assert table.topics_of("t0") == table.topics_of("h") == table.topics_of("") == []


def test_offset_json_is_read_with_any_keys() -> None:
    table = ConsumerOffsetTable(10)
    table.load_json({"offsetTable": {"t@g": {"0": 1, 2: 3, "x": 4, "5": -1}, "none": {"0": 1}}})
    assert table.document().whole() == {"offsetTable": {"t@g": {0: 1, 2: 3}}}


def test_group_json_goes_both_ways() -> None:
    table = SubscriptionGroupTable(10)
    table.put(SubscriptionGroup("g", can_consume=False, retries_max=3, retry_queue_count=0), 7)
    other = SubscriptionGroupTable(10)
    other.load_json(table.document().whole())
    assert other.all() == table.all()
    assert other.version.timestamp_ms == 7


def test_full_group_table_refuses_with_its_key() -> None:
    table = SubscriptionGroupTable(1)
    table.put(SubscriptionGroup("g"), 1)
    table.check_room("g")
    with pytest.raises(SystemBusyError, match="maxGroupCount"):
        table.check_room("h")


def test_system_groups_come_on_use_always() -> None:
    assert is_created_on_use("CID_RMQ_SYS_X", False)
    assert not is_created_on_use("g", False)
    assert len(built_in_groups()) == 7


Q0 = QueueKey("t", "b", 0)
Q1 = QueueKey("t", "b", 1)


def test_lock_excludes_others_until_it_expires() -> None:
    locks = Locks()
    assert locks.lock("g", [Q0, Q1], "a", 0) == [Q0, Q1]
    assert locks.lock("g", [Q0], "b", LOCK_LIFE_MS) == []
    assert locks.lock("other", [Q0], "b", LOCK_LIFE_MS) == [Q0]
    assert locks.lock("g", [Q0], "b", LOCK_LIFE_MS + 1) == [Q0]


def test_renewed_lock_lives_on() -> None:
    locks = Locks()
    locks.lock("g", [Q0], "a", 0)
    locks.lock("g", [Q0], "a", LOCK_LIFE_MS)
    locks.expire(LOCK_LIFE_MS + 1)
    assert locks.lock("g", [Q0], "b", LOCK_LIFE_MS + 1) == []


def test_only_the_owner_unlocks() -> None:
    locks = Locks()
    locks.lock("g", [Q0], "a", 0)
    locks.unlock("g", [Q0], "b")
    assert locks.lock("g", [Q0], "b", 1) == []
    locks.unlock("g", [Q0], "a")
    assert locks.lock("g", [Q0], "b", 1) == [Q0]
    locks.table.clear()
    assert locks.lock("g", [Q0], "c", 1) == [Q0]


def test_a_queue_that_changes_hands_is_given_to_nobody_else() -> None:
    """Of two who ask before the first change is applied, one holds the queue."""
    table = QueueLocks()
    grants = LockGrants(table)
    held, rows = grants.lock("g", [Q0], "a", 0)
    assert held == [Q0] and table.holder("g", Q0) == ""
    assert grants.lock("g", [Q0], "b", 0) == ([], [])
    # Asked again it is no other change.
    assert grants.lock("g", [Q0, Q0], "a", 0) == ([Q0], [])
    free = grants.unlock("g", [Q0], "a")
    assert grants.lock("g", [Q0], "b", 0) == ([Q0], [("t", "b", 0, "b")])
    for one in (rows, free, [("t", "b", 0, "b")]):
        table.put({"g": one})
        grants.ended({"g": one})
    assert table.holder("g", Q0) == "b"
    # One that the log refused is free for others.
    _, refused = grants.lock("g", [Q1], "a", 0)
    grants.ended({"g": refused})
    assert grants.lock("g", [Q1], "b", 0)[0] == [Q1]


def test_followers_know_who_holds_a_queue() -> None:
    """A new leader gives it to nobody else for as long as its holder may count on it."""
    leader, follower = Locks(), Locks()
    leader.lock("g", [Q0, Q1], "a", 0)
    leader.lock("gone", [Q0], "a", 0)
    leader.unlock("gone", [Q0], "a")
    leader.lock("g", [Q0], "a", 5)
    for changes in leader.changes:
        follower.table.put(changes)
    assert follower.all() == leader.all() == {"g": [("t", "b", 0, "a"), ("t", "b", 1, "a")]}
    assert len(follower) == len(leader) == 2
    now_ms = 1_700_000_000_000
    follower.grants.lead(now_ms)
    assert follower.lock("g", [Q0, Q1], "b", now_ms + INHERITED_LIFE_MS) == []
    assert follower.lock("g", [Q0], "a", now_ms + INHERITED_LIFE_MS) == [Q0]
    assert follower.lock("g", [Q0, Q1], "b", now_ms + INHERITED_LIFE_MS + 1) == [Q1]
    leader.expire(LOCK_LIFE_MS + 1)
    assert leader.changes[-1] == {"g": [("t", "b", 1, "")]}


def test_lock_json_goes_both_ways_and_leaves_out_what_it_does_not_know() -> None:
    locks = Locks()
    locks.lock("g", [Q1, Q0], "a", 0)
    other = QueueLocks()
    other.load_json(json.loads(json.dumps(locks.table.document().whole())))
    assert other.document().whole() == locks.table.document().whole()
    other.load_json({"lockTable": {"g": [["t", "b", "0", "a"], 7], "h": 8}})
    assert other.document().whole() == {"lockTable": {}} and len(other) == 0
    other.load_json({})
    assert len(other) == 0


def test_offsets_of_light_groups_stand_apart_as_upstream_has_it() -> None:
    table = ConsumerOffsetTable(100, knows_light_queues=True)
    commit(table, "g", "%LMQ%t", 0, 1)
    commit(table, "%LMQ%g", "%LMQ%t", 0, 2)
    told = table.document().whole()
    assert told == {
        "lmqOffsetTable": {"%LMQ%t@%LMQ%g": 2},
        "offsetTable": {"%LMQ%t@g": {0: 1}},
    }
    for knows in (True, False):
        other = ConsumerOffsetTable(100, knows_light_queues=knows)
        other.load_json(told | {"lmqOffsetTable": {**told["lmqOffsetTable"], "x": 1, "t@h": -1}})
        assert other.find("g", "%LMQ%t", 0) == 1
        assert other.find("%LMQ%g", "%LMQ%t", 0) == 2
        assert other.find("h", "t", 0) is None


def test_a_pair_of_a_light_group_with_another_queue_is_kept_with_the_others() -> None:
    table = ConsumerOffsetTable(100, knows_light_queues=True)
    commit(table, "%LMQ%g", "%LMQ%t", 0, 2)
    commit(table, "%LMQ%g", "%LMQ%u", 1, 3)
    commit(table, "g", "%LMQ%t", 0, 1)
    assert list(table.groups_behind("%LMQ%t")) == ["%LMQ%g", "g"]
    commit(table, "%LMQ%g", "%LMQ%t", 1, 5)
    told = table.document().whole()
    assert told == {
        "lmqOffsetTable": {},
        "offsetTable": {
            "%LMQ%t@%LMQ%g": {0: 2, 1: 5},
            "%LMQ%t@g": {0: 1},
            "%LMQ%u@%LMQ%g": {1: 3},
        },
    }
    other = ConsumerOffsetTable(100, knows_light_queues=True)
    other.load_json(told)
    assert other.all() == table.all()
    for one in (table, other):
        assert [key for key, _ in one.behind("")] == sorted(one.all())
        one.remove_topic("%LMQ%t")
        one.remove_group("%LMQ%g")
        assert len(one) == 0 and list(one.behind("")) == []


@pytest.mark.parametrize("looked_for", ["light", "others"])
def test_a_piece_of_light_offsets_costs_no_look_at_the_others(looked_for: str) -> None:
    looks: list[str] = []

    class Pairs(dict[str, dict[int, int]]):
        def __getitem__(self, key: str) -> dict[int, int]:
            looks.append(key)
            return super().__getitem__(key)

    table = ConsumerOffsetTable(2000, knows_light_queues=True)
    other_group = "g" if looked_for == "light" else "%LMQ%g"
    for number in range(1000):
        commit(table, other_group, f"%LMQ%{number:04}", 0, 1)
    commit(table, "%LMQ%h" if looked_for == "light" else "h", "%LMQ%z", 0, 7)
    table._offsets = Pairs(table.all())
    behind = dict(table.document().tables)
    found = list(behind["lmqOffsetTable" if looked_for == "light" else "offsetTable"](""))
    assert len(found) == len(looks) == 1


def test_a_look_for_expired_locks_costs_the_same_for_any_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lock_grants, "_LOOKED_AT_MAX", 10)
    locks = Locks()
    for number in range(40):
        queues = [QueueKey("t", "b", queue_id) for queue_id in range(3)]
        assert locks.lock(f"g{number:02}", queues, "c", 0) == queues
    left: list[int] = []
    for _ in range(12):
        locks.expire(LOCK_LIFE_MS + 1)
        left.append(len(locks.table))
    # It ends within a group, and goes on there.
    assert left[:3] == [110, 100, 90] and left[10:] == [10, 0]


def test_the_locks_of_one_large_group_are_given_up_some_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each member drops in one turn what a look gives up."""
    monkeypatch.setattr(lock_grants, "_LOOKED_AT_MAX", 40)
    monkeypatch.setattr(lock_grants, "GIVEN_UP_MAX", 10)
    locks = Locks()
    locks.lock("g", queues(100), "a", 0)
    locks.lock("h", queues(5), "c", 0)
    # Of the even ones nobody is asked again; some change hands while the others are looked at.
    locks.lock("g", queues(100)[1::2], "a", LOCK_LIFE_MS)
    left = []
    for number in range(8):
        locks.expire(LOCK_LIFE_MS + 1)
        left.append(len(locks))
        assert sum(map(len, locks.changes[-1].values())) <= 10
        locks.unlock("g", [QueueKey("t", "b", 99 - 2 * number)], "a")
        locks.lock("g", [QueueKey("t", "b", 99 - 2 * number)], "b", LOCK_LIFE_MS + 1)
    assert left[:5] == [95, 85, 75, 65, 55] and left[5:] == [50, 50, 50]
    held = {queue.queue_id for _, holders in locks.table.holders_behind("") for queue in holders}
    assert held == set(range(1, 100, 2))
    # Whoever has them, all are come to again and again.
    for _ in range(20):
        locks.expire(3 * LOCK_LIFE_MS)
    assert len(locks) == 0


def test_a_sweep_changes_only_locks_that_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says all of them, a large group's in one turn."""
    locks = Locks()
    for group in ("g", "h", "other"):
        locks.lock(group, queues(100), "a", 0)
    table, counted = locks.table, list[str]()

    def row_bytes(group: str, queue: QueueKey, client_id: str) -> int:
        counted.append(client_id)
        return 100

    before_bytes = table.json_bytes
    told = {group: json.loads(json.dumps(table._rows(group))) for group in ("g", "h")}
    with monkeypatch.context() as patch:
        patch.setattr(queue_locks, "row_bytes", row_bytes)
        assert not table.replace_range("", "h", told)
        assert not table.merge(told) and counted == []
        told["g"][7][3] = "b"
        del told["h"][50:52]
        assert table.replace_range("", "h", told)
        assert sorted(counted) == ["a", "a", "a", "b"]
    assert table.json_bytes == before_bytes - 200
    assert table.holder("g", queues(8)[7]) == "b" and len(table._rows("h")) == 98
    assert table.replace_range("", "g", {}) and len(table) == 198
    assert not table.replace_range("", "g", {})


def test_a_group_has_a_bounded_number_of_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Applied or on their way; those of other groups do not count."""
    monkeypatch.setattr(queue_locks, "_GROUP_LOCKS_MAX", 10)
    locks = Locks()
    locks.lock("other", queues(10), "c", 0)
    locks.lock("g", queues(6), "a", 0)
    grants = locks.grants
    with pytest.raises(SystemBusyError, match="group g has 10 locks, allowed are 10"):
        grants.lock("g", queues(11), "a", 0)
    _, rows = grants.lock("g", queues(9), "a", 0)
    with pytest.raises(SystemBusyError, match="group g has 10 locks"):
        grants.lock("g", queues(12)[9:], "a", 0)
    locks.table.put({"g": rows})
    grants.ended({"g": rows})
    assert locks.lock("g", queues(10), "a", 0) == queues(10)
    # Renewed, or of another client now, it is no lock more.
    assert locks.lock("g", queues(10), "a", 1) == queues(10)
    assert locks.lock("g", queues(10)[:2], "b", LOCK_LIFE_MS + 2) == queues(10)[:2]
    with pytest.raises(SystemBusyError, match="group g has 10 locks"):
        grants.lock("g", queues(11)[10:], "a", 0)
    locks.unlock("g", queues(10)[:1], "b")
    assert locks.lock("g", queues(11)[10:], "a", 0) == queues(11)[10:]


def test_locks_on_their_way_count_by_their_own_bytes() -> None:
    """Long names that were not applied yet counted as those of the next request."""
    table = QueueLocks(bytes_max=4000)
    grants = LockGrants(table)
    proposed = []
    with pytest.raises(SystemBusyError, match=r"take \d+ bytes, allowed are 4000"):
        for number in range(1000):
            client_id = "c" * (250 if number < 8 else 1)
            _, rows = grants.lock("g", [QueueKey("t", "b", number)], client_id, 0)
            proposed.append(rows)
    for rows in proposed:
        table.put({"g": rows})
        grants.ended({"g": rows})
    assert 3900 < table.json_bytes <= 4000 and grants._asked_bytes == 0


def test_locks_on_their_way_are_no_other_groups_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The room of a group is taken by its own ones only, applied or on their way."""
    monkeypatch.setattr(queue_locks, "_GROUP_BYTES_MAX", 4000)
    table = QueueLocks()
    grants = LockGrants(table)
    refused = 0
    for number in range(60):
        for group in ("g", "h"):
            try:
                grants.lock(group, [QueueKey("t", "b", number)], "c" * 90, 0)
            except SystemBusyError as error:
                assert f"group {group} take 3" in str(error)
                refused += 1
    counts = {group: len(grants.unlock(group, queues(60), "c" * 90)) for group in ("g", "h")}
    assert counts["g"] == counts["h"] > 20 and refused == 120 - 2 * counts["g"]


def queues(count: int) -> list[QueueKey]:
    return [QueueKey("t", "b", number) for number in range(count)]


def test_what_is_no_queue_id_is_left_out() -> None:
    """Python refuses to make a number of five thousand digits: a record with one ended members."""
    table = {"0": 5, 1: 6, "9" * 5000: 7, "x": 8, "2": -1, "3": "9", "-4": 10, "5": 2**63}
    assert offsets_by_queue(table) == {0: 5, 1: 6}
