"""Rules of access control as state: proposed, in force everywhere when committed, and swept."""

import json
from pathlib import Path
from typing import Any

import pytest

from ledgermq.broker.access.rules import AccessRules
from ledgermq.broker.access.rules_file import read_rules
from ledgermq.broker.access.rules_table import RulesTable
from ledgermq.state.errors import (
    AccessRulesError,
    BrokerError,
    CommitTimeoutError,
    InvalidRequestError,
    ServiceUnavailableError,
    SystemBusyError,
)
from tests.unit.broker.access.test_rules_table import ONE, SEAL, TWO, ended, keys, loaded, put
from tests.unit.broker.parts import Parts


class Member:
    """A member of a group with its file, whose log the test holds."""

    def __init__(self, path: Path, text: str = ONE, **settings: str) -> None:
        self.parts = Parts(**settings)
        self.state = self.parts.state
        self.path = path
        self.table = loaded(path, text)
        self.join(self.table)

    def join(self, table: RulesTable) -> None:
        self.table = self.state.access = table
        table.propose_by(self.state.access_changes.change)

    def lead(self) -> "Member":
        """Leads, with all applied that it tells by that."""
        self.parts.lead(is_prompt=False)
        self.commit()
        return self

    def commit(self) -> list[bytes]:
        """All that is proposed is committed, what follows from it, too."""
        bodies: list[bytes] = []
        while more := self.parts.commit_state():
            bodies += more
        return bodies

    def add(self, name: str) -> Any:
        account = {"accessKey": name, "secretKey": f"secret-of-{name}"}

        def edit(rules: AccessRules) -> AccessRules:
            return rules.with_account(account)

        return self.table.change_account(name, edit)


@pytest.fixture
def leader(tmp_path: Path) -> Member:
    return Member(tmp_path / "leader.yml").lead()


def test_a_change_is_nowhere_before_it_is_committed(leader: Member, tmp_path: Path) -> None:
    follower = Member(tmp_path / "follower.yml")
    before = leader.path.read_bytes()
    change = leader.add("second-app")
    assert not change.called, "answered when it is committed"
    assert keys(leader.table) == ["orders-app"] and leader.path.read_bytes() == before
    assert leader.table.version.counter == 0
    for index, body in enumerate(leader.commit(), 100):
        assert b"second-app" not in body and b"secret-of" not in body
        follower.state.apply(body, index)
    ended(change)
    for member in (leader, follower):
        assert keys(member.table) == ["orders-app", "second-app"]
        assert sorted(read_rules(member.path).rules.accounts) == ["orders-app", "second-app"]
        assert member.table.version.counter == 1
    assert leader.state.access_record.record == follower.state.access_record.record


def test_a_leader_that_falls_keeps_nothing_of_what_it_proposed(leader: Member) -> None:
    before = leader.path.read_bytes()
    changes = [leader.add("second-app"), leader.add("third-app")]
    leader.state.follow()
    for _, done in leader.parts.written:
        done(ServiceUnavailableError("another member leads"))
    for change in changes:
        with pytest.raises(ServiceUnavailableError, match="another member leads"):
            ended(change)
    assert keys(leader.table) == ["orders-app"] and leader.path.read_bytes() == before
    again = RulesTable(leader.path, lambda: 9000, seal=SEAL)
    again.load()
    assert keys(again) == ["orders-app"]
    with pytest.raises(ServiceUnavailableError):
        ended(leader.add("second-app"))


def test_changes_that_wait_together_build_on_each_other(leader: Member) -> None:
    changes = [leader.add("second-app"), leader.add("third-app"), leader.add("short")]
    remove = leader.table.delete_account("orders-app")
    leader.commit()
    with pytest.raises(AccessRulesError):
        ended(changes.pop())
    for change in (*changes, remove):
        ended(change)
    assert keys(leader.table) == ["second-app", "third-app"]


def test_a_change_behind_one_that_takes_long_contains_it(leader: Member, tmp_path: Path) -> None:
    """It may be committed yet: one that left it out would take it back."""
    follower = Member(tmp_path / "follower.yml")
    late = leader.add("second-app")
    [(body, done)] = leader.parts.written
    leader.parts.written.clear()
    done(CommitTimeoutError("no majority in time"))
    with pytest.raises(CommitTimeoutError):
        ended(late)
    assert keys(leader.table) == ["orders-app"]
    refused = leader.add("refused-app")
    [(_, refuse)] = leader.parts.written
    leader.parts.written.clear()
    refuse(SystemBusyError("too much is waiting"))
    with pytest.raises(SystemBusyError):
        ended(refused)
    change = leader.add("third-app")
    leader.state.apply(body, 100)
    follower.state.apply(body, 100)
    assert keys(leader.table) == keys(follower.table) == ["orders-app", "second-app"]
    for index, more in enumerate(leader.commit(), 101):
        follower.state.apply(more, index)
    ended(change)
    assert keys(leader.table) == keys(follower.table) == ["orders-app", "second-app", "third-app"]


def test_a_change_that_the_log_refused_is_in_no_later_one(leader: Member) -> None:
    refused = leader.add("second-app")
    [(_, done)] = leader.parts.written
    leader.parts.written.clear()
    done(SystemBusyError("too much is waiting"))
    with pytest.raises(SystemBusyError):
        ended(refused)
    change = leader.add("third-app")
    leader.commit()
    ended(change)
    assert keys(leader.table) == ["orders-app", "third-app"]


def test_changes_that_wait_are_bounded(leader: Member) -> None:
    changes = [leader.add(f"app-{number:03}") for number in range(102)]
    with pytest.raises(SystemBusyError, match="100 changes"):
        ended(changes.pop())
    leader.commit()
    for change in changes:
        ended(change)
    assert len(leader.table.rules.accounts) == 102


def test_rules_that_no_file_or_no_record_takes_are_refused(leader: Member, tmp_path: Path) -> None:
    permissions = [f"{number:0>100}=PUB" for number in range(6000)]
    account = {
        "accessKey": "large-app",
        "secretKey": "secret-2",
        "topicPerms": permissions,
        "groupPerms": permissions,
    }
    change = leader.table.change_account("large-app", lambda rules: rules.with_account(account))
    with pytest.raises(AccessRulesError, match=r"leader.yml would have \d+ bytes, allowed are"):
        ended(change)
    small = Member(tmp_path / "small.yml", mappedFileSizeCommitLog="65536", maxMessageSize="1024")
    small.lead()
    account = {**account, "topicPerms": permissions[:500], "groupPerms": []}
    change = small.table.change_account("large-app", lambda rules: rules.with_account(account))
    with pytest.raises(InvalidRequestError, match=r"bytes .* \(key mappedFileSizeCommitLog\)"):
        ended(change)
    assert leader.commit() == small.commit() == []
    assert keys(leader.table) == keys(small.table) == ["orders-app"]


def parts_of_a_sweep(member: Member) -> list[bytes]:
    member.state.begin_sweep()
    bodies: list[bytes] = []
    while not member.state.is_swept:
        member.state.sweep()
        bodies += member.commit()
    return bodies


def test_a_sweep_carries_the_rules_at_its_place(leader: Member, tmp_path: Path) -> None:
    """Retention drops what is before it: the record of the change may be gone."""
    ended_later = leader.add("second-app")
    leader.commit()
    ended(ended_later)
    bodies = parts_of_a_sweep(leader)
    kinds = [json.loads(body)["kind"] for body in bodies]
    assert set(kinds) == {"sweep"}, "nothing goes before its first part"
    empty = Member(tmp_path / "empty.yml")
    without = Parts()
    for index, body in enumerate(bodies, 1000):
        empty.state.apply(body, index)
        without.state.apply(body, index)
    assert empty.state.sweep_index == 1000
    assert keys(empty.table) == ["orders-app", "second-app"]
    assert sorted(read_rules(empty.path).rules.accounts) == ["orders-app", "second-app"]
    # A member without access control tells them on all the same, if it leads.
    assert without.state.access_record.record == leader.state.access_record.record
    text = b"".join(bodies)
    assert b"second-app" not in text and b"secret-of" not in text


def test_a_sweep_heals_a_file_that_was_put_back(leader: Member, tmp_path: Path) -> None:
    """The record has not changed; the file of this member is older than it."""
    change = leader.add("second-app")
    bodies = leader.commit()
    ended(change)
    follower = Member(tmp_path / "follower.yml")
    for index, body in enumerate(bodies):
        follower.state.apply(body, index)
    follower.join(loaded(follower.path, ONE, 1000))
    assert keys(follower.table) == ["orders-app"]
    for index, body in enumerate(parts_of_a_sweep(leader), 1000):
        follower.state.apply(body, index)
    assert keys(follower.table) == ["orders-app", "second-app"]


def test_a_new_leader_tells_its_rules_where_the_log_has_others(tmp_path: Path) -> None:
    member = Member(tmp_path / "one.yml").lead()
    told = member.state.access_record.record
    assert told is not None and SEAL.open(told)[1]
    member.state.follow()
    member.parts.lead(is_prompt=False)
    assert not any(b'"access"' in body for body in member.commit()), "the log has them"
    member.state.follow()
    put(member.path, TWO, 7000)
    member.state.access_changes.reload()
    assert member.commit() == [], "a follower tells nothing"
    member.parts.lead(is_prompt=False)
    member.commit()
    record = member.state.access_record.record
    assert record is not None and record["changed"] == 7000


def test_an_edit_of_the_leaders_file_is_proposed_behind_what_is_on_its_way(
    leader: Member, tmp_path: Path
) -> None:
    follower = Member(tmp_path / "follower.yml")
    change = leader.add("second-app")
    put(leader.path, ONE.replace("orders-app", "edited-app"), 9000)
    leader.state.access_changes.reload()
    for index, body in enumerate(leader.commit()):
        follower.state.apply(body, index)
    ended(change)
    # Whoever changed them last is right.
    assert keys(leader.table) == keys(follower.table) == ["edited-app"]


def test_rules_of_the_state_outlive_a_restart(leader: Member) -> None:
    change = leader.add("second-app")
    leader.commit()
    ended(change)
    known = leader.state.access_record
    text = json.dumps(known.document().whole())
    assert "second-app" not in text and "rules" in leader.state.unsaved
    again = Parts().state.access_record
    again.load_json(json.loads(text))
    assert again.record == known.record
    for bad in ({}, {"table": 5}, {"table": {"record": {"changed": "x", "sealed": ""}}}):
        again.load_json(bad)
        assert again.record is None


@pytest.mark.parametrize("change", [{"changed": True}, {"changed": "5"}, {"sealed": None}])
def test_a_record_without_sense_leaves_what_is_known(
    leader: Member, change: dict[str, object]
) -> None:
    known = leader.state.access_record.record
    assert known is not None
    assert not leader.state.access_record.put({**known, **change})
    assert leader.state.access_record.record == known


def test_where_nothing_is_shared_the_file_is_first(tmp_path: Path) -> None:
    parts = Parts().lead()
    put(tmp_path / "plain_acl.yml", ONE, 1000)
    table = RulesTable(tmp_path / "plain_acl.yml", lambda: 5000)
    table.load()
    table.propose_by(lambda make, done: done(BrokerError("nobody asks the log")))
    parts.state.access = table
    account = {"accessKey": "second-app", "secretKey": "secret-2"}
    ended(table.change_account("second-app", lambda rules: rules.with_account(account)))
    assert keys(table) == ["orders-app", "second-app"]
    assert sorted(read_rules(table.path).rules.accounts) == ["orders-app", "second-app"]
    assert parts.state.access_record.record is None
