"""When a broker serves: what is built in is there first, and nothing of an earlier role counts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ledgermq.broker.config.built_in_topics import built_in_topics
from ledgermq.broker.leadership import Leadership
from ledgermq.broker.storage.applier import BrokerApplier
from ledgermq.commitlog import FilesBehindError
from ledgermq.dledger.errors import ApplierBehindError
from ledgermq.dledger.member_state import Role
from ledgermq.state.errors import SystemBusyError
from tests.unit.broker.parts import Parts


class Bench:
    """An applier whose broker has never led."""

    def __init__(self) -> None:
        self.parts = Parts()
        self.state = self.parts.state
        self.leadership = Leadership("n0", 1)
        # What was told: changes of role, and that it serves.
        self.told: list[str] = []
        # Why the state is not complete.
        self.doubt = ""
        nothing = cast(Any, lambda *arguments: None)
        self.are_files_behind = False
        self.dispatched: list[tuple[int, int]] = []
        messages = SimpleNamespace(
            on_dispatched=nothing,
            become_leader=nothing,
            resign=nothing,
            check_files=self._check_files,
            committed=lambda start, end: self.dispatched.append((start, end)),
        )
        self.applier = BrokerApplier(
            "n0",
            self.leadership,
            self.state,
            cast(Any, messages),
            self.parts.proposals,
            cast(Any, SimpleNamespace(messages_dispatched=nothing)),
            cast(Any, SimpleNamespace(flush=nothing)),
            topics=built_in_topics(self.parts.config),
            groups=[],
            answer=nothing,
            answer_first=nothing,
            on_role_changed=lambda: self.told.append("role"),
            on_ready=lambda: self.told.append("ready"),
            doubt=lambda: self.doubt,
        )

    def _check_files(self) -> None:
        if self.are_files_behind:
            raise FilesBehindError(2, 1)

    def lead(self, term: int) -> None:
        self.applier.role_changed(Role.LEADER, term, "n0", is_ready=True)


def test_a_new_broker_serves_when_what_is_built_in_is_committed() -> None:
    bench = Bench()
    bench.lead(1)
    assert not bench.leadership.is_serving and bench.told == ["role"]
    assert bench.state.topics.find("TBW102") is None
    # Told again, it begins nothing anew.
    written = len(bench.parts.written)
    bench.lead(1)
    assert len(bench.parts.written) == written > 0
    bench.parts.commit_state()
    assert bench.leadership.is_serving and bench.told == ["role", "ready", "role"]
    assert bench.state.topics.find("TBW102") is not None


def test_a_broker_that_has_all_serves_at_once_and_tells_it_once() -> None:
    bench = Bench()
    bench.lead(1)
    bench.parts.commit_state()
    bench.applier.role_changed(Role.FOLLOWER, 2, "n1", is_ready=False)
    bench.told.clear()
    bench.lead(3)
    assert bench.leadership.is_serving and bench.told == ["ready", "role"]
    assert bench.parts.written == []


def test_a_broker_serves_also_when_what_is_built_in_cannot_be_stored() -> None:
    bench = Bench()
    bench.lead(1)
    bench.parts.commit_state(SystemBusyError("the disk is full"))
    assert bench.leadership.is_serving and bench.told == ["role", "ready", "role"]


def test_what_is_built_in_and_could_not_be_stored_is_tried_again() -> None:
    """Topics were missing until the next leader: what clients told of them was of unknown ones."""
    bench = Bench()
    bench.lead(1)
    bench.parts.commit_state(SystemBusyError("the disk is full"))
    assert bench.parts.written == []
    bench.applier.look()
    bench.parts.commit_state(SystemBusyError("the disk is full"))
    assert bench.state.topics.find("TBW102") is None
    bench.applier.look()
    # One try at a time.
    written = len(bench.parts.written)
    bench.applier.look()
    assert len(bench.parts.written) == written > 0
    bench.parts.commit_state()
    assert bench.state.topics.find("TBW102") is not None
    bench.applier.look()
    assert bench.parts.written == []


def test_a_follower_dispatches_later_what_its_files_do_not_take() -> None:
    """Else units of queues and key index would gather in memory behind a flush that hangs."""
    bench = Bench()
    bench.are_files_behind = True
    with pytest.raises(ApplierBehindError):
        bench.applier.committed(0, 5)
    assert bench.dispatched == []
    bench.are_files_behind = False
    bench.applier.committed(0, 5)
    bench.lead(1)
    bench.parts.commit_state()
    # A leader refuses messages instead; what it has taken it dispatches.
    bench.are_files_behind = True
    bench.applier.committed(5, 7)
    assert bench.dispatched == [(0, 5), (5, 7)]


def test_a_member_that_leads_no_more_stores_nothing() -> None:
    bench = Bench()
    bench.lead(1)
    bench.parts.commit_state(SystemBusyError("the disk is full"))
    bench.applier.role_changed(Role.FOLLOWER, 2, "n1", is_ready=False)
    bench.applier.look()
    assert bench.parts.written == []


def test_what_is_committed_for_an_earlier_leadership_opens_nothing() -> None:
    bench = Bench()
    bench.lead(1)
    written, bench.parts.written = bench.parts.written, []
    bench.applier.role_changed(Role.FOLLOWER, 2, "n1", is_ready=False)
    assert not bench.leadership.is_serving and "ready" not in bench.told
    bench.lead(3)
    for _, done in written:
        done(None)
    assert not bench.leadership.is_serving
    bench.parts.commit_state()
    assert bench.leadership.is_serving


def test_a_leader_whose_state_is_in_doubt_neither_serves_nor_writes_it() -> None:
    bench = Bench()
    bench.doubt = "topics.json: it is missing"
    bench.lead(1)
    assert not bench.leadership.is_serving and not bench.state.is_leading
    assert bench.parts.written == []
    assert "in doubt: topics.json: it is missing" in str(bench.leadership.refusal())
    # Another member has led meanwhile, and told all of it.
    bench.applier.role_changed(Role.FOLLOWER, 2, "n1", is_ready=False)
    bench.doubt = ""
    bench.lead(3)
    bench.parts.commit_state()
    assert bench.leadership.is_serving
