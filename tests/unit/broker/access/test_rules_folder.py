"""plain_acl.yml and the folder `acl` beside it: read together, changed one by one, shared whole."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.logger import LogEvent, globalLogPublisher

from ledgermq.broker.access.rules import parse_rules
from ledgermq.broker.access.rules_file import read_rules
from ledgermq.broker.access.rules_folder import check_file_name
from ledgermq.broker.access.rules_table import RulesTable
from ledgermq.state.data_version import DataVersion
from ledgermq.state.errors import AccessRulesError
from tests.unit.broker.access.test_rules_table import SEAL, ended, keys, put, shared
from tests.unit.broker.parts import Parts

NOW_MS = 4_000_000_000_000


def accounts(*names: str, secret: str = "secret-1") -> str:
    entries = ", ".join(f"{{accessKey: {name}, secretKey: {secret}}}" for name in names)
    return f"accounts: [{entries}]"


class Member:
    """The files of one broker, and its table."""

    def __init__(self, root: Path) -> None:
        self.path = root / "plain_acl.yml"
        self.folder = root / "acl"
        (self.folder / "teams").mkdir(parents=True)
        self.table = RulesTable(self.path, lambda: NOW_MS, seal=SEAL)

    def put(self, name: str, text: str, at_ms: int = 1000) -> None:
        path = self.path.parent / name
        put(path, text, at_ms)
        self.age(at_ms)

    def age(self, at_ms: int) -> None:
        """Makes the folders as old as an edit."""
        for folder in (self.folder, self.folder / "teams"):
            os.utime(folder, ns=(at_ms * 1_000_000, at_ms * 1_000_000))

    def loaded(self) -> RulesTable:
        self.table.load()
        return self.table

    def started_again(self) -> RulesTable:
        self.table = RulesTable(self.path, lambda: NOW_MS, seal=SEAL)
        return self.loaded()


@pytest.fixture
def member(tmp_path: Path) -> Member:
    """Four accounts in three files."""
    member = Member(tmp_path / "n0")
    member.put("plain_acl.yml", "globalWhiteRemoteAddresses: [10.0.0.1]\n" + accounts("main-app"))
    orders = "globalWhiteRemoteAddresses: [10.0.0.2]\n" + accounts("orders-a", "order-2")
    member.put("acl/orders.yml", orders)
    member.put("acl/teams/paying.yaml", accounts("paying-app"))
    member.put("acl/readme.txt", "no rules")
    member.put("acl/.hidden.yml", "accounts: [")
    return member


@pytest.fixture
def told() -> Iterator[list[LogEvent]]:
    events: list[LogEvent] = []
    # Twisted's interfaces are unknown to the type checker.
    observer: Any = events.append
    globalLogPublisher.addObserver(observer)
    yield events
    globalLogPublisher.removeObserver(observer)


def test_all_files_count_together(member: Member) -> None:
    table = member.loaded()
    assert keys(table) == ["main-app", "order-2", "orders-a", "paying-app"]
    assert [pattern.text for pattern in table.rules.white_addresses] == ["10.0.0.2", "10.0.0.1"]
    assert sorted(table.versions) == [
        str(member.folder / "orders.yml"),
        str(member.folder / "teams" / "paying.yaml"),
        str(member.path),
    ]


def test_an_account_counts_where_it_is_met_first_and_the_log_says_so(
    member: Member, told: list[LogEvent]
) -> None:
    member.put("plain_acl.yml", accounts("main-app", "orders-a", secret="secret-9"))
    member.put("acl/teams/paying.yaml", accounts("orders-a", secret="secret-8"))
    table = member.loaded()
    assert table.rules.accounts["orders-a"].secret_key == "secret-1"
    assert table.rules.accounts["main-app"].secret_key == "secret-9"
    warned = {str(event["path"]) for event in told if "access_key" in event}
    assert warned == {str(member.path), str(member.folder / "teams" / "paying.yaml")}
    assert "secret-" not in "".join(str(event.get("log_format")) for event in told)


def test_the_folder_alone_is_enough_and_nothing_is_not(member: Member, tmp_path: Path) -> None:
    member.path.unlink()
    assert keys(member.loaded()) == ["order-2", "orders-a", "paying-app"]
    with pytest.raises(AccessRulesError, match="plain_acl.yml: No such file"):
        Member(tmp_path / "bare").loaded()


def test_one_bad_file_keeps_a_broker_from_starting(member: Member) -> None:
    member.put("acl/teams/paying.yaml", "accounts: [")
    with pytest.raises(AccessRulesError, match=r"teams/paying.yaml: line 1"):
        member.loaded()


def test_too_many_files_are_refused(member: Member) -> None:
    for number in range(99):
        member.put(f"acl/{number}.yml", "{}")
    with pytest.raises(AccessRulesError, match="acl: more than 100 files"):
        member.loaded()


def test_edited_added_and_removed_files_count_while_the_broker_runs(member: Member) -> None:
    table = member.loaded()
    assert not table.reload()
    member.put("acl/orders.yml", accounts("orders-a"), 2000)
    assert table.reload() and keys(table) == ["main-app", "orders-a", "paying-app"]
    assert table.versions[str(member.folder / "orders.yml")] == DataVersion(2000, 1)
    assert table.version == DataVersion()
    member.put("acl/new.yml", accounts("new-app"), 3000)
    assert table.reload() and "new-app" in keys(table)
    (member.folder / "new.yml").unlink()
    assert table.reload() and "new-app" not in keys(table)
    (member.folder / "orders.yml").unlink()
    (member.folder / "teams" / "paying.yaml").unlink()
    assert table.reload() and keys(table) == ["main-app"]
    member.put("acl/readme.txt", "still no rules", 5000)
    assert not table.reload()


@pytest.mark.parametrize("name", ["plain_acl.yml", "acl/orders.yml", "acl/teams/paying.yaml"])
def test_one_bad_file_changes_nothing_while_the_broker_runs(member: Member, name: str) -> None:
    table = member.loaded()
    before = keys(table)
    member.put("acl/new.yml", accounts("new-app"), 2000)
    good = (member.path.parent / name).read_text()
    member.put(name, good + "\nno: [", 2000)
    assert not table.reload()
    assert keys(table) == before and name in (table.alarm or "")
    member.put(name, good, 3000)
    assert table.reload() and keys(table) == sorted([*before, "new-app"])
    assert table.alarm is None


def test_a_tool_changes_the_file_that_has_the_account(member: Member) -> None:
    table = member.loaded()
    change = {"accessKey": "paying-app", "topicPerms": ["paid=PUB"]}
    ended(table.change_account("paying-app", lambda rules: rules.with_account(change)))
    table.change_account(
        "fresh-app", lambda r: r.with_account({"accessKey": "fresh-app", "secretKey": "secret-5"})
    )
    ended(table.delete_account("order-2"))
    table.change(lambda rules: rules.with_white_addresses(["10.9.9.9"]))
    orders = str(member.folder / "orders.yml")
    table.change(lambda rules: rules.with_white_addresses([]), orders)
    teams = read_rules(member.folder / "teams" / "paying.yaml").rules
    assert teams.accounts["paying-app"].source["topicPerms"] == ["paid=PUB"]
    assert sorted(read_rules(member.path).rules.accounts) == ["fresh-app", "main-app"]
    assert sorted(read_rules(Path(orders)).rules.accounts) == ["orders-a"]
    assert [pattern.text for pattern in table.rules.white_addresses] == ["10.9.9.9"]
    assert not table.reload()
    with pytest.raises(AccessRulesError, match="none of .*orders.yml"):
        ended(table.change(lambda rules: rules, "/etc/passwd"))
    assert shared(member.started_again()) == shared(table)


def test_an_account_that_two_files_have_is_not_deleted_halfway(member: Member) -> None:
    member.put("plain_acl.yml", accounts("main-app", "orders-a", secret="secret-9"))
    table = member.loaded()
    with pytest.raises(AccessRulesError, match=r"several files have the account: .*orders.yml"):
        ended(table.delete_account("orders-a"))
    assert "orders-a" in keys(table)
    with pytest.raises(AccessRulesError, match="no account with the accessKey 'nobody'"):
        ended(table.delete_account("nobody"))


def follower_of(member: Member, root: Path) -> tuple[Member, dict[str, Any]]:
    """Another member with an older file of its own, and the record that it gets."""
    other = Member(root)
    other.put("plain_acl.yml", accounts("main-app"), 500)
    other.put("acl/old.yml", accounts("old-app"), 500)
    record: dict[str, Any] = json.loads(json.dumps(member.loaded().to_record()))
    return other, record


def test_a_member_takes_over_all_files_of_the_leader(member: Member, tmp_path: Path) -> None:
    other, record = follower_of(member, tmp_path / "n1")
    table = other.loaded()
    table.follow(record)
    assert keys(table) == keys(member.table) and table.to_record() == record
    assert sorted(read_rules(other.folder / "orders.yml").rules.accounts) == ["order-2", "orders-a"]
    assert [path.name for path in other.folder.glob("old*")] == ["old.yml.replaced"]
    assert not table.reload() and other.path.with_name("plain_acl.yml.taking").exists() is False
    again = other.started_again()
    assert shared(again) == shared(table)
    again.follow(SEAL.seal({"rules": parse_rules({}).to_document()}, record["changed"]))
    assert shared(again) == shared(table), "a record that comes again changes nothing"


def test_a_file_that_is_removed_while_the_broker_is_down_stays_removed(
    member: Member, tmp_path: Path
) -> None:
    other, record = follower_of(member, tmp_path / "n1")
    other.loaded().follow(record)
    (other.folder / "orders.yml").unlink()
    table = other.started_again()
    table.follow(record)
    assert keys(table) == ["main-app", "paying-app"]


@pytest.mark.parametrize("writes", range(4))
def test_a_member_that_is_killed_while_it_takes_them_over_goes_on_with_it(
    member: Member, tmp_path: Path, writes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, record = follower_of(member, tmp_path / "n1")
    table = other.loaded()
    left = [writes]

    def replace(self: Path, target: Path) -> Path:
        # The first is the note of what is to come.
        if self.name != "plain_acl.yml.taking.tmp":
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
        os.replace(self, target)
        return target

    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(KeyboardInterrupt):
        table.follow(record)
    monkeypatch.undo()
    table = other.started_again()
    assert shared(table) == shared(member.table)
    assert not list(other.path.parent.glob("*.taking"))


def test_an_edit_after_such_a_death_counts(member: Member, tmp_path: Path) -> None:
    other, record = follower_of(member, tmp_path / "n1")
    other.loaded()
    other.path.with_name("plain_acl.yml.taking").write_text(json.dumps(record))
    other.put("plain_acl.yml", accounts("edited-app"), 9000)
    assert keys(other.started_again()) == ["edited-app", "old-app"]
    other.path.with_name("plain_acl.yml.taking").write_text("{")
    with pytest.raises(AccessRulesError, match="plain_acl.yml.taking: "):
        other.started_again()


def test_rules_count_also_where_the_folder_cannot_be_written(
    member: Member, tmp_path: Path
) -> None:
    other, record = follower_of(member, tmp_path / "n1")
    table = other.loaded()
    (other.path.with_name("plain_acl.yml.taking.tmp")).mkdir()
    table.follow(record)
    assert keys(table) == keys(member.table) and "cannot be written" in (table.alarm or "")


@pytest.mark.parametrize(
    "change",
    [
        {"more": []},
        {"more": {"acl/a.yml": []}},
        {"more": {"acl/a.yml": {"rules": {"accounts": {}}}}},
        {"more": {"../a.yml": {"rules": {}}}},
    ],
)
def test_record_of_files_that_makes_no_sense_is_left_out(
    member: Member, tmp_path: Path, change: dict[str, Any]
) -> None:
    other, record = follower_of(member, tmp_path / "n1")
    table = other.loaded()
    rules, _ = SEAL.open(record)
    table.follow(SEAL.seal({**rules, **change}, record["changed"]))
    assert keys(table) == ["main-app", "old-app"]


@pytest.mark.parametrize(
    "name",
    ["", "a.yml", "acl", "acl/../a.yml", "/acl/a.yml", "acl/a.txt", "acl/.a.yml", "acl/a\n.yml",
     "acl/" + "a" * 300 + ".yml", "other/a.yml", "acl\\a.yml", 5, None],
)  # fmt: skip
def test_names_outside_of_the_folder_are_none(name: object) -> None:
    with pytest.raises(AccessRulesError, match="no file of the folder"):
        check_file_name(name)
    assert check_file_name("acl/teams/a.yaml") == "acl/teams/a.yaml"


def test_an_edit_in_the_leaders_folder_reaches_all_members(tmp_path: Path) -> None:
    members = [Member(tmp_path / name) for name in ("n0", "n1")]
    sides = []
    for one in members:
        one.put("plain_acl.yml", accounts("main-app"))
        parts = Parts()
        parts.state.access = one.loaded()
        sides.append(parts)
    leader, follower = sides
    leader.lead(is_prompt=False)
    leader.commit_state()
    members[0].put("acl/team.yml", accounts("team-app"), 2000)
    leader.state.access_changes.reload()
    for index, body in enumerate(leader.commit_state()):
        follower.state.apply(body, index)
    assert keys(members[1].table) == ["main-app", "team-app"]
    (members[0].folder / "team.yml").unlink()
    leader.state.access_changes.reload()
    for index, body in enumerate(leader.commit_state(), start=10):
        follower.state.apply(body, index)
    assert keys(members[1].table) == ["main-app"]
    assert not (members[1].folder / "team.yml").exists()
