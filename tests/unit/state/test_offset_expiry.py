"""Offsets that nobody uses expire: by a command, some at a time, and never too early."""

from __future__ import annotations

import json

import pytest

from ledgermq.state import offset_expiry as module
from ledgermq.state.errors import CommitTimeoutError, SystemBusyError
from ledgermq.state.topics import TopicConfig
from tests.unit.broker.parts import Parts

HOUR_MS = 3_600_000
RETENTION_MS = 24 * HOUR_MS


class Scene:
    """A leader, the groups with a client, and offsets of some groups."""

    def __init__(self, *groups: str, topic: str = "T") -> None:
        self.parts = Parts().lead(is_prompt=False)
        self.state = self.parts.state
        self.live: set[str] = set()
        self.state.put_topic(TopicConfig("T", 4, 4))
        for group in groups:
            self.commit(group, topic)
        self.parts.commit_state()

    def commit(self, group: str, topic: str = "T", offset: int = 5) -> None:
        self.state.commits.tell(group, topic, 0, offset)
        self.state.write_offsets()

    def pass_ms(self, ms: int) -> list[str]:
        """Time passes, a look comes; returns the keys that it lets go."""
        self.parts.now_ms += ms
        self.state.expiry.step(self.live.__contains__, RETENTION_MS)
        return [key for body in self.parts.commit_state() for key in json.loads(body)["put"]]

    def pass_hours(self, hours: int) -> list[str]:
        """A look comes each hour."""
        return [key for _ in range(hours) for key in self.pass_ms(HOUR_MS)]

    @property
    def groups(self) -> list[str]:
        return list(self.state.offsets.groups_behind("T"))


def test_offsets_without_client_and_commit_go_after_their_time() -> None:
    scene = Scene("g", "h")
    assert scene.pass_hours(23) == []
    scene.commit("h", offset=6)
    scene.parts.commit_state()
    assert scene.pass_hours(2) == ["T@g"] and scene.groups == ["h"]
    assert scene.pass_hours(21) == []
    assert scene.pass_hours(2) == ["T@h"] and scene.groups == []


def test_commit_of_the_same_offset_is_a_use() -> None:
    scene = Scene("g")
    for _ in range(4):
        assert scene.pass_hours(20) == []
        scene.commit("g")
        # The log has nothing new.
        assert scene.parts.commit_state() == []


def test_time_begins_when_the_last_client_has_left() -> None:
    scene = Scene("g")
    scene.live = {"g"}
    assert scene.pass_hours(100) == []
    # It may have left just before the look, and committed when it did.
    scene.commit("g", offset=6)
    scene.parts.commit_state()
    scene.live = set()
    assert scene.pass_hours(24) == []
    assert scene.pass_hours(1) == ["T@g"]


def test_new_leader_begins_to_count_anew() -> None:
    scene = Scene("g")
    assert scene.pass_hours(23) == []
    scene.state.follow()
    scene.state.lead("n0/2")
    assert scene.pass_hours(24) == []
    assert scene.pass_hours(1) == ["T@g"]


def test_offsets_of_a_topic_that_is_gone_go_even_while_their_group_is_there() -> None:
    """Left by another broker's files, or committed while the topic was being removed."""
    scene = Scene("g")
    scene.live = {"g"}
    scene.state.offsets.put({"gone@g": {0: 1}})
    assert scene.pass_hours(24) == []
    # One that comes back in time, and is missed again, counts anew.
    scene.state.put_topic(TopicConfig("gone"))
    scene.parts.commit_state()
    scene.pass_hours(2)
    scene.state.remove_topic("gone")
    scene.parts.commit_state()
    scene.state.offsets.put({"gone@g": {0: 1}})
    assert scene.pass_hours(24) == []
    assert scene.pass_hours(1) == ["gone@g"] and scene.groups == ["g"]


def test_the_brokers_own_groups_keep_theirs() -> None:
    scene = Scene("CID_RMQ_SYS_TRANS")
    assert scene.pass_hours(100) == []


def test_nothing_expires_where_it_is_turned_off() -> None:
    scene = Scene("g")
    for _ in range(3):
        scene.parts.now_ms += 1000 * HOUR_MS
        scene.state.expiry.step(scene.live.__contains__, 0)
    assert scene.parts.written == []


def test_a_look_costs_the_same_for_any_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOKED_AT_MAX", 10)
    monkeypatch.setattr(module, "_EXPIRED_MAX", 4)
    names = [f"g{number:02}" for number in range(35)]
    scene = Scene(*names)
    asked: list[str] = []
    met: set[str] = set()

    def is_live(group: str) -> bool:
        asked.append(group)
        met.add(group)
        return False

    gone: list[str] = []
    scene.parts.now_ms += 1
    for step in range(40):
        if step == 8:
            assert sorted(met) == names
            scene.parts.now_ms += RETENTION_MS
        asked.clear()
        scene.state.expiry.step(is_live, RETENTION_MS)
        assert len(asked) <= 10
        bodies = scene.parts.commit_state()
        keys = [key for body in bodies for key in json.loads(body)["put"]]
        assert len(keys) <= 4 and (step >= 8 or not keys)
        gone += keys
    assert sorted(gone) == [f"T@{name}" for name in names] and scene.groups == []


def test_what_the_log_refuses_is_found_again() -> None:
    scene = Scene("g")
    scene.pass_hours(1)
    scene.parts.now_ms += RETENTION_MS
    for error in (SystemBusyError("refused"), CommitTimeoutError("late")):
        scene.state.expiry.step(scene.live.__contains__, RETENTION_MS)
        assert len(scene.parts.written) == 1
        # One at a time.
        scene.state.expiry.step(scene.live.__contains__, RETENTION_MS)
        assert len(scene.parts.written) == 1
        scene.parts.commit_state(error)
    assert scene.groups == ["g"]
    scene.pass_ms(0)
    scene.pass_ms(0)
    assert scene.groups == []


def test_follower_ends_with_the_offsets_of_its_leader_also_after_a_replay() -> None:
    scene = Scene("g", "h")
    follower = Parts()
    follower.state.offsets.replace_all(scene.state.offsets.all())
    scene.pass_hours(1)
    scene.live = {"h"}
    scene.parts.now_ms += RETENTION_MS
    scene.state.expiry.step(scene.live.__contains__, RETENTION_MS)
    [(body, _)] = scene.parts.written
    scene.parts.commit_state()
    for _ in range(2):
        follower.state.apply(body, 7)
        assert follower.state.offsets.all() == scene.state.offsets.all() == {"T@h": {0: 5}}
        assert follower.state.offsets.json_bytes == scene.state.offsets.json_bytes
    assert "offsets" in follower.state.unsaved
    # A commit behind it stands.
    scene.commit("g", offset=9)
    [again] = scene.parts.commit_state()
    follower.state.apply(again, 8)
    assert follower.state.offsets.find("g", "T", 0) == 9


def test_groups_that_are_gone_are_not_remembered() -> None:
    scene = Scene("g")
    for number in range(100):
        scene.state.expiry.note([f"T@other{number}"])
    for _ in range(3):
        scene.pass_ms(1)
    used = scene.state.expiry._used
    assert used._former.keys() | used._present.keys() == {"g"}
