"""Rules of access control in the ledger: nobody but a member reads, makes or changes them."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from ledgermq.broker.access.rules import AccessRules
from ledgermq.broker.access.rules_file import read_rules
from ledgermq.broker.access.rules_seal import RulesSeal
from ledgermq.broker.access.rules_table import RulesTable
from ledgermq.broker.access.sharing import rules_table_of
from ledgermq.broker.config.broker_config import BrokerConfig, load_broker_config
from ledgermq.protocol.group_secret import GroupSecret
from ledgermq.state.errors import AccessRulesError, ConfigError
from tests.unit.broker.access.test_rules_table import ONE, SEAL, TWO, ended, keys, loaded, put
from tests.unit.broker.parts import Parts

OTHER = GroupSecret(b"o" * 32)
THIRD = {"accessKey": "third-app", "secretKey": "secret-3"}


def with_third(rules: AccessRules) -> AccessRules:
    return rules.with_account(THIRD)


def test_what_was_sealed_is_opened_by_a_member_and_reads_as_nothing() -> None:
    rules = {"rules": {"accounts": [THIRD]}}
    record = SEAL.seal(rules, 2000)
    assert SEAL.open(record) == (rules, True)
    text = json.dumps(record)
    raw = base64.b64decode(record["sealed"])
    for word in ("secret-3", "third-app"):
        assert word not in text and word.encode() not in raw
    assert SEAL.seal(rules, 2000)["sealed"] != record["sealed"], "a nonce is never used twice"


def changed_at(text: str, place: int) -> str:
    raw = bytearray(base64.b64decode(text))
    raw[place] ^= 1
    return base64.b64encode(raw).decode()


def test_what_was_changed_on_its_way_does_not_open() -> None:
    record = SEAL.seal({"rules": {}}, 2000)
    text = record["sealed"]
    changes: list[dict[str, Any]] = [
        *({"sealed": changed_at(text, place)} for place in (0, 12, -1)),
        {"changed": 2001},
        {"sealed": text[:-4]},
        {"sealed": text + "AAAA"},
        {"sealed": base64.b64encode(bytes(27)).decode()},
        {"sealed": "ü"},
        {"sealed": "A" * ((4 << 20) + 4)},
        {"sealed": 5},
        {"changed": "2000"},
    ]
    for change in changes:
        with pytest.raises(AccessRulesError):
            SEAL.open({**record, **change})


def test_the_former_secret_opens_and_seals_nothing() -> None:
    both = RulesSeal(OTHER, GroupSecret(b"s" * 32))
    old = SEAL.seal({"rules": {}}, 2000)
    assert both.open(old) == ({"rules": {}}, False)
    new = both.seal({"rules": {}}, 2000)
    with pytest.raises(AccessRulesError, match="dLegerGroupSecretFile"):
        SEAL.open(new)
    assert RulesSeal(OTHER).open(new) == ({"rules": {}}, True)


def test_rules_of_a_former_secret_are_told_on_with_the_present_one(tmp_path: Path) -> None:
    record = loaded(tmp_path / "leader.yml", TWO, 2000).to_record()
    assert record is not None
    put(tmp_path / "plain_acl.yml", ONE, 1000)
    both = RulesSeal(OTHER, GroupSecret(b"s" * 32))
    table = RulesTable(tmp_path / "plain_acl.yml", lambda: 5000, seal=both)
    table.load()
    table.follow(record)
    assert keys(table) == ["orders-app", "second-app"]
    told = table.to_record()
    assert told is not None and RulesSeal(OTHER).open(told)[1]


@pytest.mark.parametrize("seal", [RulesSeal(OTHER), None])
def test_rules_that_do_not_open_are_kept_for_the_day_that_they_do(
    tmp_path: Path, seal: RulesSeal | None
) -> None:
    """Another secret than the group's, or none: nothing changes, and nothing is lost or spread."""
    record = loaded(tmp_path / "leader.yml", TWO, 2000).to_record()
    assert record is not None
    path = tmp_path / "plain_acl.yml"
    put(path, ONE, 1000)
    table = RulesTable(path, lambda: 5000, seal=seal)
    table.load()
    table.follow(record)
    assert keys(table) == ["orders-app"], "the second one is refused"
    assert "dLegerGroupSecretFile" in (table.alarm or "")
    assert table.to_record() == record, "told on as it came, if this member leads"
    with pytest.raises(AccessRulesError, match="not in force here"):
        ended(table.change(with_third))
    assert keys(table) == ["orders-app"] and sorted(read_rules(path).rules.accounts) == keys(table)
    again = RulesTable(path, lambda: 5000, seal=seal)
    again.load()
    assert keys(again) == ["orders-app"] and again.alarm == table.alarm
    assert again.to_record() == record
    mended = RulesTable(path, lambda: 5000, seal=SEAL)
    mended.load()
    assert keys(mended) == ["orders-app", "second-app"] and mended.alarm is None
    assert list(tmp_path.glob("*.taking")) == []


def test_an_edit_of_the_file_counts_over_rules_that_do_not_open(tmp_path: Path) -> None:
    record = loaded(tmp_path / "leader.yml", TWO, 2000).to_record()
    assert record is not None
    path = tmp_path / "plain_acl.yml"
    put(path, ONE, 1000)
    table = RulesTable(path, lambda: 5000, seal=RulesSeal(OTHER))
    table.load()
    table.follow(record)
    put(path, ONE.replace("orders-app", "edited-app"), 3000)
    table.reload()
    assert keys(table) == ["edited-app"] and table.alarm is None
    table.follow(record)
    assert keys(table) == ["edited-app"] and table.alarm is None


def test_a_command_and_a_note_hold_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, follower = Parts(), Parts()
    leader.state.access = loaded(tmp_path / "leader.yml", TWO, 2000)
    follower.state.access = loaded(tmp_path / "follower.yml")
    noted: list[bytes] = []
    real = Path.replace

    def replace(self: Path, target: Path) -> Path:
        if self.name.endswith(".taking.tmp"):
            noted.append(self.read_bytes())
        return real(self, target)

    monkeypatch.setattr(Path, "replace", replace)
    bodies = leader.lead().first
    for index, body in enumerate(bodies):
        follower.state.apply(body, index)
    told = [body for body in bodies if b'"access"' in body]
    assert len(told) == len(noted) == 1
    for content in told + noted:
        assert b"second-app" not in content and b"secret-2" not in content
    assert keys(follower.state.access) == ["orders-app", "second-app"]


def test_a_member_without_secret_or_peers_tells_nothing(tmp_path: Path) -> None:
    path = tmp_path / "plain_acl.yml"
    put(path, ONE, 1000)
    alone = Parts()
    alone.state.access = table = RulesTable(path, lambda: 5000)
    table.load()
    assert not any(b'"access"' in body for body in alone.lead().first)
    ended(table.change(with_third))
    told: list[object] = []
    alone.state.access_changes.write(told.append)
    assert told == [None] and alone.commit_state() == []
    assert keys(table) == ["orders-app", "third-app"]


def config_of(tmp_path: Path, **settings: str) -> BrokerConfig:
    given = {"brokerIP1": "127.0.0.1", "storePathRootDir": str(tmp_path / "s"), **settings}
    return load_broker_config(None, given)


GROUP = {
    "aclEnable": "true",
    "enableDLegerCommitLog": "true",
    "dLegerSelfId": "n0",
    "dLegerPeers": "n0-127.0.0.1:40911;n1-127.0.0.1:40912;n2-127.0.0.1:40913",
}


def test_tools_change_the_rules_of_a_group_only_where_members_can_seal_them(
    tmp_path: Path,
) -> None:
    (tmp_path / "s" / "config").mkdir(parents=True)
    put(tmp_path / "s" / "config" / "plain_acl.yml", ONE, 1000)
    table = rules_table_of(config_of(tmp_path, **GROUP), lambda: 5000)
    assert table is not None
    table.load()
    with pytest.raises(AccessRulesError, match=r"3 members .* dLegerGroupSecretFile"):
        ended(table.change(with_third))
    assert keys(table) == ["orders-app"] and table.to_record() is None
    secret = tmp_path / "secret"
    secret.write_bytes(b"s" * 32)
    secret.chmod(0o600)
    given = {**GROUP, "dLegerGroupSecretFile": str(secret)}
    table = rules_table_of(config_of(tmp_path, **given), lambda: 5000)
    assert table is not None
    table.load()
    ended(table.change(with_third))
    record = table.to_record()
    assert record is not None and SEAL.open(record)[1]
    # The secret changes: the former one lies beside it.
    secret.rename(tmp_path / "secret.former")
    secret.write_bytes(b"o" * 32)
    secret.chmod(0o600)
    after = rules_table_of(config_of(tmp_path, **given), lambda: 5000)
    assert after is not None
    after.load()
    after.follow({**SEAL.seal(SEAL.open(record)[0], 9000)})
    assert after.alarm is None
    (tmp_path / "secret.former").chmod(0o644)
    with pytest.raises(ConfigError, match="secret.former"):
        rules_table_of(config_of(tmp_path, **given), lambda: 5000)


@pytest.mark.parametrize(
    "settings",
    [
        {"aclEnable": "true"},
        {**GROUP, "dLegerPeers": "n0-127.0.0.1:40911"},
    ],
)
def test_one_broker_alone_has_its_files(tmp_path: Path, settings: dict[str, str]) -> None:
    (tmp_path / "s" / "config").mkdir(parents=True)
    put(tmp_path / "s" / "config" / "plain_acl.yml", ONE, 1000)
    table = rules_table_of(config_of(tmp_path, **settings), lambda: 5000)
    assert table is not None
    table.load()
    ended(table.change(with_third))
    assert keys(table) == ["orders-app", "third-app"] and table.to_record() is None
