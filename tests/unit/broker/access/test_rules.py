"""plain_acl.yml as a value: what is read, what is refused with its reason, what a change makes."""

from pathlib import Path
from typing import Any

import pytest

from ledgermq.access.addresses import AddressPattern
from ledgermq.broker.access.rules import AccessRules, Permission, allows, parse_rules
from ledgermq.broker.access.rules_file import read_rules
from ledgermq.state.errors import AccessRulesError


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("", [], ["10.0.0.1", "::1"]),
        ("*", ["10.0.0.1", "::1"], ["nonsense"]),
        ("*.*.*.*", ["10.0.0.1"], []),
        ("192.168.1.10", ["192.168.1.10", "::ffff:192.168.1.10"], ["192.168.1.1", "::1"]),
        ("10.0.0.1, 10.0.0.2", ["10.0.0.1", "10.0.0.2"], ["10.0.0.3"]),
        ("192.168.*.*", ["192.168.0.0", "192.168.255.1"], ["192.169.0.1"]),
        ("192.168.1-3.*", ["192.168.1.9", "192.168.3.0"], ["192.168.0.9", "192.168.4.9"]),
        ("192.168.1.100-200", ["192.168.1.100", "192.168.1.200"], ["192.168.1.201"]),
        ("10.0.0.{1,3}", ["10.0.0.1", "10.0.0.3"], ["10.0.0.2"]),
        ("10.0.0.{1,3},10.1.0.1", ["10.0.0.3", "10.1.0.1"], ["10.1.0.3"]),
        ("::1", ["::1", "0:0:0:0:0:0:0:1", "::1%lo"], ["::2", "127.0.0.1"]),
        ("1050::0005:0600:300c:*", ["1050::5:600:300c:1"], ["1050::5:600:300d:1", "10.80.0.1"]),
        ("fe80::1:{a,b}", ["fe80::1:a"], ["fe80::1:c"]),
        ("fe80::1:1-20", ["fe80::1:20"], ["fe80::1:21"]),
    ],
)
def test_pattern_fits_the_addresses_it_means(
    pattern: str, matching: list[str], others: list[str]
) -> None:
    parsed = AddressPattern(pattern)
    assert [host for host in [*matching, *others] if parsed.matches(host)] == matching


@pytest.mark.parametrize(
    "pattern",
    ["10.0.0", "10.*.0.1", "10.0.0.256", "10.0.0.9-1", "10.0.0.{}", "1-2.3-4.*.*", "a.b.c.d",
     "1.2.3.4.*", "12345::*", "1::2::*", "10.0.0.-5"],
)  # fmt: skip
def test_pattern_that_means_nothing_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="\\S"):
        AddressPattern(pattern)


def account(**members: Any) -> dict[str, Any]:
    return {"accessKey": "orders-app", "secretKey": "secret-1", **members}


def test_account_is_read_with_its_defaults() -> None:
    rules = parse_rules({"accounts": [account(topicPerms=["a=PUB|SUB", "b=DENY"], extra=None)][:0]})
    assert rules == AccessRules()
    [found] = parse_rules({"accounts": [account()]}).accounts.values()
    assert not found.is_admin and not found.has_lists
    assert found.default_topic_permission == found.default_group_permission == Permission.DENY
    full = account(
        admin=True, defaultTopicPerm="PUB", defaultGroupPerm="SUB", whiteRemoteAddress="10.0.0.*",
        topicPerms=["a=PUB|SUB", "b = DENY"], groupPerms=["g=SUB"],
    )  # fmt: skip
    [found] = parse_rules({"accounts": [full]}).accounts.values()
    assert found.is_admin and found.has_lists
    assert found.topic_permissions == {
        "a": Permission.PUB | Permission.SUB, "b": Permission.DENY,
    }  # fmt: skip
    assert found.group_permissions == {"g": Permission.SUB}
    assert found.white_remote_address.matches("10.0.0.7")


def test_keys_that_yaml_takes_for_numbers_are_texts() -> None:
    [found] = parse_rules({"accounts": [account(accessKey=12345678, secretKey=87654321)]}).accounts
    assert found == "12345678"


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (None, "no mapping"),
        ([], "no mapping"),
        ({"accounts": {"a": 1}}, "accounts is no list"),
        ({"accounts": ["a"]}, "an account is no mapping"),
        ({"accounts": [{"secretKey": "secret-1"}]}, "accessKey is missing"),
        ({"accounts": [account(secretKey=["secret-1"])]}, "secretKey is no text"),
        ({"accounts": [account(secretKey="short")]}, "secretKey has 5 characters"),
        ({"accounts": [account(), account()]}, "two accounts have the accessKey 'orders-app'"),
        ({"accounts": [account(admin="yes")]}, "admin is 'yes', allowed are true and false"),
        ({"accounts": [account(defaultTopicPerm="PUBSUB")]}, "permission 'PUBSUB' is unknown"),
        ({"accounts": [account(topicPerms=["a"])]}, "not of the form name=PUB"),
        ({"accounts": [account(topicPerms="a=PUB")]}, "topicPerms is no list"),
        ({"accounts": [account(topicPerm=["a=PUB"])]}, "unknown member 'topicPerm'"),
        ({"accounts": [account(whiteRemoteAddress="10.*.1.1")]}, "stars stand at the end"),
        ({"globalWhiteRemoteAddresses": "10.0.0.1"}, "globalWhiteRemoteAddresses is no list"),
        ({"globalWhiteRemoteAddresses": ["10.0.0"]}, "is no address"),
    ],
)
def test_rules_that_cannot_be_meant_are_refused_with_the_reason(
    document: object, words: str
) -> None:
    with pytest.raises(AccessRulesError, match=words) as caught:
        parse_rules(document)
    assert "secret-1" not in str(caught.value)


def test_secrets_are_not_shown() -> None:
    rules = parse_rules({"accounts": [account()]})
    assert "secret-1" not in repr(rules)


def test_change_of_an_account_keeps_what_it_does_not_name() -> None:
    rules = parse_rules({"accounts": [account(topicPerms=["a=PUB"], defaultGroupPerm="SUB")]})
    changed = rules.with_account({"accessKey": "orders-app", "topicPerms": ["b=SUB"]})
    [found] = changed.accounts.values()
    assert found.secret_key == "secret-1" and found.topic_permissions == {"b": Permission.SUB}
    assert found.default_group_permission == Permission.SUB
    with pytest.raises(AccessRulesError, match="secretKey is missing"):
        rules.with_account({"accessKey": "another-one"})
    assert parse_rules(changed.to_document()).to_document() == changed.to_document()


def test_account_is_removed_and_addresses_are_replaced() -> None:
    rules = parse_rules({"accounts": [account()], "globalWhiteRemoteAddresses": ["10.0.0.1"]})
    assert rules.without_account("orders-app").accounts == {}
    with pytest.raises(AccessRulesError, match="no account with the accessKey 'nobody'"):
        rules.without_account("nobody")
    others = rules.with_white_addresses(["10.0.0.2", "10.0.1.*"])
    assert others.to_document()["globalWhiteRemoteAddresses"] == ["10.0.0.2", "10.0.1.*"]


@pytest.mark.parametrize(
    ("owned", "needed", "is_enough"),
    [
        (Permission.PUB, Permission.PUB, True),
        (Permission.SUB, Permission.PUB, False),
        (Permission.PUB | Permission.SUB, Permission.SUB, True),
        (Permission.DENY, Permission.SUB, False),
        (Permission.SUB, Permission.ANY, True),
        (Permission.DENY, Permission.ANY, False),
    ],
)
def test_permissions_are_compared_as_upstream_does(
    owned: Permission, needed: Permission, is_enough: bool
) -> None:
    assert allows(owned, needed) is is_enough


@pytest.mark.parametrize(
    "lines",
    [
        "    admin: false\n    admin: true\n",
        "    topicPerms: [a=SUB]\n    topicPerms: [b=SUB]\n",
        "    topicPerms: [a=DENY, b=SUB, a=PUB]\n",
    ],
)
def test_what_is_said_twice_is_an_error(tmp_path: Path, lines: str) -> None:
    """The last of them counted, whichever was meant."""
    path = tmp_path / "plain_acl.yml"
    path.write_text("accounts:\n  - accessKey: shop-app\n    secretKey: secret-1\n" + lines)
    with pytest.raises(AccessRulesError, match=r"(is there twice|'a' twice, not alike)"):
        read_rules(path)


def test_retry_topic_among_the_topics_is_its_group(tmp_path: Path) -> None:
    """Such an entry, of which a denial is one, meant nothing here, and its group upstream."""
    path = tmp_path / "plain_acl.yml"
    account_lines = "accounts:\n  - accessKey: shop-app\n    secretKey: secret-1\n"
    text = account_lines + "    topicPerms: ['%RETRY%g=DENY']\n"
    path.write_text(text)
    account = read_rules(path).rules.accounts["shop-app"]
    assert account.group_permissions == {"g": Permission.DENY}
    assert not account.topic_permissions
    # Who writes retries wants no other right than who reads them.
    path.write_text(text.replace("DENY", "PUB|SUB") + "    groupPerms: [g=SUB]\n")
    account = read_rules(path).rules.accounts["shop-app"]
    assert account.group_permissions == {"g": Permission.SUB}
    path.write_text(text + "    groupPerms: [g=SUB]\n")
    with pytest.raises(AccessRulesError, match="unlike 'g' of groupPerms"):
        read_rules(path)
