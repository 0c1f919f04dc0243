"""plain_acl.yml on disk: read safely, written whole, read again when it changed, and shared."""

import os
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from ledgermq.broker.access.rules import AccessRules, parse_rules
from ledgermq.broker.access.rules_file import read_rules, write_rules
from ledgermq.broker.access.rules_seal import RulesSeal
from ledgermq.broker.access.rules_table import RulesTable
from ledgermq.dledger.store.keeper import Keeper
from ledgermq.protocol.group_secret import GroupSecret
from ledgermq.state.data_version import DataVersion
from ledgermq.state.errors import AccessRulesError
from tests.unit.broker.parts import Parts
from tests.unit.dledger.hand_pool import DirectReactor, HandPool

UPSTREAM = """
globalWhiteRemoteAddresses:
- 10.10.103.*
- 192.168.0.*

accounts:
- accessKey: RocketMQ
  secretKey: 12345678
  whiteRemoteAddress:
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - topicA=DENY
  - topicB=PUB|SUB
  groupPerms:
  # the group should convert to retry topic
  - groupA=DENY
dataVersion:
- counter: 7
  timestamp: 1636000000000
"""
ONE = "accounts: [{accessKey: orders-app, secretKey: secret-1}]"
# Of all members.
SEAL = RulesSeal(GroupSecret(b"s" * 32))
TWO = ONE.replace("]", ", {accessKey: second-app, secretKey: secret-2}]")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "plain_acl.yml"


def put(path: Path, text: str, at_ms: int) -> None:
    """An operator's edit at a time."""
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    os.utime(path, ns=(at_ms * 1_000_000, at_ms * 1_000_000))


def loaded(path: Path, text: str = ONE, at_ms: int = 1000) -> RulesTable:
    put(path, text, at_ms)
    table = RulesTable(path, lambda: 5000, seal=SEAL)
    table.load()
    return table


def shared(table: RulesTable) -> dict[str, Any]:
    """What a table tells the other members, opened, and when it was changed."""
    record = table.to_record()
    assert record is not None
    return {**SEAL.open(record)[0], "changed": record["changed"]}


def ended(change: Deferred[None]) -> None:
    """Raises what a change that is over has failed with."""
    results: list[None | Failure] = []
    change.addBoth(results.append)
    [result] = results
    if result is not None:
        result.raiseException()


def keys(table: RulesTable) -> list[str]:
    return sorted(table.rules.accounts)


def test_file_of_upstream_is_read(path: Path) -> None:
    put(path, UPSTREAM, 3000)
    found = read_rules(path)
    assert found.version == DataVersion(1636000000000, 7) and found.changed_ms == 3000
    assert not found.is_exposed
    [account] = found.rules.accounts.values()
    assert account.access_key == "RocketMQ" and account.secret_key == "12345678"
    assert found.rules.white_addresses[0].matches("10.10.103.9")
    path.chmod(0o644)
    assert read_rules(path).is_exposed


def test_what_was_written_is_read_and_is_for_its_owner_alone(path: Path) -> None:
    put(path, UPSTREAM, 3000)
    rules = read_rules(path).rules.with_account({"accessKey": "RocketMQ", "topicPerms": ["ü=SUB"]})
    write_rules(path, rules, DataVersion(4000, 8), 4000)
    found = read_rules(path)
    assert found.rules.to_document() == rules.to_document()
    assert found.version == DataVersion(4000, 8) and found.changed_ms == 4000
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no mapping"),
        ("accounts: [", "line 1"),
        ("accounts:\n- accessKey: a\n secretKey: secret-1", "line 3"),
        ("accounts: &a []\nmore: *a", "line 2: an alias"),
        ("accounts: !!python/object/apply:os.system ['true']", "line 1: could not determine"),
        ("accounts: [{accessKey: orders-app}]", "secretKey is missing"),
        ("accounts: [{accessKey: orders-app, secretKey: secret-1, secretKey: \ttab", "line 1"),
        ("x: " + "[" * 20_000, "\\S"),
        ("#" * (1 << 20) + "#", "more than 1048576 bytes"),
    ],
)
def test_file_that_cannot_be_used_is_named_with_the_line_but_not_with_secrets(
    path: Path, text: str, words: str
) -> None:
    put(path, text, 1000)
    with pytest.raises(AccessRulesError, match=words) as caught:
        read_rules(path)
    assert str(path) in str(caught.value) and "secret-1" not in str(caught.value)


def test_missing_file_and_bad_text_are_refused(path: Path) -> None:
    with pytest.raises(AccessRulesError, match="No such file"):
        RulesTable(path, lambda: 0).load()
    path.write_bytes(b"accounts: \xff")
    with pytest.raises(AccessRulesError, match="can't decode"):
        read_rules(path)


def test_changed_file_is_read_again(path: Path) -> None:
    table = loaded(path)
    assert not table.reload()
    put(path, TWO, 2000)
    assert table.reload() and keys(table) == ["orders-app", "second-app"]
    assert table.version.counter == 1
    put(path, TWO, 3000)
    assert not table.reload(), "the same rules are no news"


@pytest.mark.parametrize("text", ["accounts: [", "accounts: [{accessKey: second-app}]", ""])
def test_bad_file_changes_nothing_and_says_so(path: Path, text: str) -> None:
    table = loaded(path)
    put(path, text, 2000)
    assert not table.reload()
    assert keys(table) == ["orders-app"] and str(path) in (table.alarm or "")
    put(path, TWO, 3000)
    assert table.reload() and table.alarm is None
    path.unlink()
    assert not table.reload()
    assert keys(table) == ["orders-app", "second-app"] and "No such file" in (table.alarm or "")


def test_change_by_a_tool_stands_in_the_file(path: Path) -> None:
    table = loaded(path)
    account = {"accessKey": "second-app", "secretKey": "secret-2"}
    ended(table.change_account("second-app", lambda rules: rules.with_account(account)))
    assert table.version == DataVersion(5000, 1)
    assert read_rules(path).changed_ms == 5000
    assert sorted(read_rules(path).rules.accounts) == keys(table) == ["orders-app", "second-app"]
    assert not table.reload()


def test_change_that_cannot_be_written_is_none(tmp_path: Path) -> None:
    table = loaded(tmp_path / "plain_acl.yml")
    table.path = tmp_path / "gone" / "plain_acl.yml"
    with pytest.raises(AccessRulesError, match="cannot be written"):
        ended(table.change(lambda _: parse_rules({})))
    assert keys(table) == ["orders-app"]


def test_permissions_that_are_the_same_twice_are_written_so_that_they_can_be_read(
    path: Path,
) -> None:
    table = loaded(path)
    permissions = ["orders=PUB", "invoices=SUB"]
    account = {
        "accessKey": "second-app",
        "secretKey": "secret-2",
        "topicPerms": permissions,
        "groupPerms": permissions,
    }
    ended(table.change_account("second-app", lambda rules: rules.with_account(account)))
    assert read_rules(path).rules.to_document() == table.rules.to_document()


def test_change_that_no_start_would_read_is_none(path: Path) -> None:
    table = loaded(path)
    permissions = [f"{number:0>100}=PUB" for number in range(6000)]
    account = {
        "accessKey": "second-app",
        "secretKey": "secret-2",
        "topicPerms": permissions,
        "groupPerms": permissions,
    }
    with pytest.raises(AccessRulesError, match=r"plain_acl.yml would have \d+ bytes, allowed are"):
        ended(table.change_account("second-app", lambda rules: rules.with_account(account)))
    assert keys(table) == ["orders-app"]
    assert sorted(read_rules(path).rules.accounts) == ["orders-app"]
    assert [found.name for found in path.parent.iterdir()] == [path.name]


def record_of(path: Path, text: str, at_ms: int) -> dict[str, Any]:
    record = loaded(path, text, at_ms).to_record()
    assert record is not None
    return dict(record)


def test_member_takes_over_newer_rules_and_writes_them(path: Path, tmp_path: Path) -> None:
    record = record_of(tmp_path / "leader.yml", TWO, 2000)
    table = loaded(path)
    table.follow(record)
    assert keys(table) == ["orders-app", "second-app"]
    restarted = RulesTable(path, lambda: 0, seal=SEAL)
    restarted.load()
    assert keys(restarted) == keys(table) and shared(restarted) == shared(table)


def test_record_that_comes_again_does_not_undo_an_edit(path: Path, tmp_path: Path) -> None:
    """A broker that is started again applies some records twice; the file was edited meanwhile."""
    record = record_of(tmp_path / "leader.yml", TWO, 2000)
    table = loaded(path)
    table.follow(record)
    put(path, ONE, 2500)
    restarted = RulesTable(path, lambda: 0, seal=SEAL)
    restarted.load()
    restarted.follow(record)
    assert keys(restarted) == ["orders-app"]
    restarted.follow(record_of(tmp_path / "leader.yml", TWO, 2501))
    assert keys(restarted) == ["orders-app", "second-app"]


@pytest.mark.parametrize(
    "change", [{"changed": "x"}, {"changed": None}, {"changed": True}, {"sealed": None}]
)
def test_record_that_makes_no_sense_is_left_out(
    path: Path, tmp_path: Path, change: dict[str, Any]
) -> None:
    table = loaded(path)
    table.follow({**record_of(tmp_path / "leader.yml", TWO, 2000), **change})
    assert keys(table) == ["orders-app"] and table.alarm is None
    assert [entry.name for entry in path.parent.glob("*.taking")] == []


@pytest.mark.parametrize("rules", [{"rules": None}, {"rules": {"accounts": [{}]}}, {}])
def test_sealed_rules_that_make_no_sense_are_kept_and_not_in_force(
    path: Path, rules: dict[str, Any]
) -> None:
    table = loaded(path)
    record = SEAL.seal(rules, 2000)
    table.follow(record)
    assert keys(table) == ["orders-app"] and "not in force here" in (table.alarm or "")
    assert table.to_record() == record


def test_rules_count_also_where_the_file_cannot_be_written(path: Path, tmp_path: Path) -> None:
    table = loaded(path)
    table.path = tmp_path / "gone" / "plain_acl.yml"
    table.follow(record_of(tmp_path / "leader.yml", TWO, 2000))
    assert keys(table) == ["orders-app", "second-app"] and "cannot be written" in str(table.alarm)


def with_rules(parts: Parts, path: Path) -> Parts:
    parts.state.access = loaded(path)
    return parts


def test_edit_of_the_leaders_file_reaches_all_members(tmp_path: Path) -> None:
    files = [tmp_path / "leader.yml", tmp_path / "follower.yml"]
    leader, follower = (with_rules(Parts(), file) for file in files)
    leader.lead(is_prompt=False)
    assert leader.state.access is not None and follower.state.access is not None
    leader.commit_state()
    put(files[0], TWO, 2000)
    leader.state.access_changes.reload()
    for index, body in enumerate(leader.commit_state()):
        follower.state.apply(body, index)
    assert keys(follower.state.access) == ["orders-app", "second-app"]
    assert "second-app" in files[1].read_text()
    put(files[1], ONE, 3000)
    follower.state.access_changes.reload()
    assert keys(follower.state.access) == ["orders-app"], "an edit counts where it was made"
    assert follower.commit_state() == [], "a follower writes nothing"


def test_snapshot_of_a_leader_brings_its_rules(tmp_path: Path) -> None:
    leader = with_rules(Parts(), tmp_path / "leader.yml")
    put(tmp_path / "leader.yml", TWO, 2000)
    leader.state.access_changes.reload()
    follower = with_rules(Parts(), tmp_path / "follower.yml")
    # A member without access control leaves the rules out.
    plain = Parts()
    for index, body in enumerate(leader.lead().first):
        follower.state.apply(body, index)
        plain.state.apply(body, index)
    assert follower.state.access is not None
    assert keys(follower.state.access) == ["orders-app", "second-app"]
    assert plain.state.access is None
    assert plain.state.topics.to_json() == follower.state.topics.to_json()


class Running:
    """A table whose files are written when the test says so, and what asked for a sync when."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch, text: str = ONE) -> None:
        self.table = loaded(path, text)
        self.pool = HandPool()
        # True for each sync that the keeper's thread asked for.
        self.syncs: list[bool] = []
        self._is_in_thread = False
        reactor: Any = DirectReactor()
        pool: Any = self.pool
        self.table.write_by(Keeper(reactor, pool))
        real = os.fsync

        def fsync(number: int) -> None:
            self.syncs.append(self._is_in_thread)
            real(number)

        monkeypatch.setattr(os, "fsync", fsync)

    def finish_all(self) -> None:
        """The keeper does its work."""
        self._is_in_thread = True
        self.pool.finish_all()
        self._is_in_thread = False


def with_second(rules: AccessRules) -> AccessRules:
    return rules.with_account({"accessKey": "second-app", "secretKey": "secret-2"})


def test_change_by_a_tool_waits_for_the_disk_in_the_keepers_thread(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = Running(path, monkeypatch)
    table = running.table
    change = table.change_account("second-app", with_second)
    assert running.syncs == [] and not change.called
    assert keys(table) == ["orders-app"], "in force when it is on the disk"
    # Half of it may be in the file: it is looked at when all is.
    assert not table.reload()
    running.finish_all()
    ended(change)
    assert running.syncs == [True, True], "the file, and its name"
    assert sorted(read_rules(path).rules.accounts) == keys(table) == ["orders-app", "second-app"]
    assert not table.reload()


def test_changes_that_wait_together_build_on_each_other(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = Running(path, monkeypatch)
    table = running.table
    third = {"accessKey": "third-app", "secretKey": "secret-3"}
    changes = [
        table.change_account("second-app", with_second),
        table.change_account("bad", lambda rules: rules.with_account({"accessKey": "bad"})),
        table.change_account("third-app", lambda rules: rules.with_account(third)),
        table.delete_account("orders-app"),
    ]
    running.finish_all()
    with pytest.raises(AccessRulesError):
        ended(changes.pop(1))
    for change in changes:
        ended(change)
    assert sorted(read_rules(path).rules.accounts) == keys(table) == ["second-app", "third-app"]


def test_rules_of_the_leader_count_at_once_and_are_written_by_the_keeper(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = record_of(tmp_path / "leader.yml", TWO, 2000)
    running = Running(path, monkeypatch)
    table = running.table
    table.follow(record)
    assert keys(table) == ["orders-app", "second-app"] and running.syncs == []
    assert not table.reload(), "the old files are no edit"
    running.finish_all()
    assert running.syncs == [True] * 4, "the note, and the file, each with its name"
    assert not table.reload()
    restarted = RulesTable(path, lambda: 0, seal=SEAL)
    restarted.load()
    assert shared(restarted) == shared(table)


def test_keeper_is_well_after_rules_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = record_of(tmp_path / "leader.yml", TWO, 9000)
    running = Running(tmp_path / "plain_acl.yml", monkeypatch)
    table = running.table
    table.path = tmp_path / "gone" / "plain_acl.yml"
    change = table.change(lambda _: parse_rules({}))
    running.finish_all()
    with pytest.raises(AccessRulesError, match="cannot be written"):
        ended(change)
    table.follow(record)
    running.finish_all()
    assert keys(table) == ["orders-app", "second-app"] and "cannot be written" in str(table.alarm)
    table.path = tmp_path / "plain_acl.yml"
    ended_later = table.change_account("third-app", with_second)
    running.finish_all()
    ended(ended_later)
