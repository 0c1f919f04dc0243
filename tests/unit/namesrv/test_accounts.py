"""Accounts of a name server: what a file may say, whose a request is, what it needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from ledgermq.access.strict_yaml import parse_document
from ledgermq.broker.access.rules import parse_rules
from ledgermq.namesrv.accounts import NameAccounts, parse_accounts
from ledgermq.namesrv.accounts_file import AccountsFile
from ledgermq.namesrv.errors import AccountsError, NotAllowedError
from ledgermq.namesrv.guard import Caller, Guard, Need
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.signature import Credentials

TEXT: Final = """
globalWhiteRemoteAddresses: [10.9.*.*]
accounts:
- accessKey: shop-brokers
  secretKey: secret-of-shop
  formerSecretKey: former-of-shop
  brokerNames: [shop-*, stock]
- accessKey: by-certificate
  certificateNames: [n0.shop, n1.shop]
  brokerNames: [other]
- accessKey: by-address
  whiteRemoteAddress: 10.1.2.*
  brokerNames: [java-*]
- {accessKey: operator, secretKey: secret-of-operator, admin: true}
- {accessKey: reader-app, secretKey: secret-of-reader, topicPerms: [orders=SUB]}
"""
ACCOUNTS: Final = parse_accounts(parse_document(TEXT))


class Connection:
    def __init__(self, host: str = "10.7.7.7", *certificate_names: str) -> None:
        self.peer_host = host
        self.certificate_names = certificate_names
        self.is_trusted = False
        self.account: str | None = None
        self.is_open = True


def signed(access_key: str, secret_key: str, body: bytes = b"body") -> RemotingCommand:
    command = RemotingCommand.request(RequestCode.REGISTER_BROKER, None, body)
    who = Credentials(access_key=access_key, secret_key=secret_key)
    command.ext_fields = who.signed({"brokerName": "shop-a"}, body)
    return command


UNSIGNED: Final = RemotingCommand.request(RequestCode.REGISTER_BROKER, None, b"body")


def admit(
    command: RemotingCommand,
    connection: Connection,
    need: Need = Need.REGISTER,
    *,
    accounts: NameAccounts | None = ACCOUNTS,
    route_needs_account: bool = False,
) -> Caller:
    find = None if accounts is None else lambda: ACCOUNTS
    return Guard(find, route_needs_account=route_needs_account).admit(need, command, connection)


def account_of(command: RemotingCommand, connection: Connection) -> str:
    account = admit(command, connection).account
    assert account is not None
    return account.access_key


@pytest.mark.parametrize("secret", ["secret-of-shop", "former-of-shop"])
def test_a_signature_with_either_secret_names_the_account(secret: str) -> None:
    assert account_of(signed("shop-brokers", secret), Connection()) == "shop-brokers"


@pytest.mark.parametrize(
    ("command", "connection", "account"),
    [
        (UNSIGNED, Connection("10.7.7.7", "n1.shop"), "by-certificate"),
        (UNSIGNED, Connection("10.1.2.3"), "by-address"),
        (UNSIGNED, Connection("10.1.2.3", "n0.shop"), "by-certificate"),
        (signed("operator", "secret-of-operator"), Connection("10.1.2.3"), "operator"),
        # Everybody from there may do everything, and has no account.
        (UNSIGNED, Connection("10.9.1.1"), ""),
        (signed("operator", "a-wrong-secret"), Connection("10.9.1.1"), ""),
        (signed("shop-brokers", "secret-of-shop"), Connection("10.9.1.1"), "shop-brokers"),
    ],
)
def test_whose_a_request_is(command: RemotingCommand, connection: Connection, account: str) -> None:
    assert account_of(command, connection) == account


@pytest.mark.parametrize(
    ("command", "connection", "words"),
    [
        (UNSIGNED, Connection(), "needs an account .* namesrvAccessKey .* 10.7.7.7 is none"),
        (UNSIGNED, Connection("10.7.7.7", "n9.shop"), "needs an account"),
        (signed("nobody-knows", "secret-of-shop"), Connection(), "has no account 'nobody-knows'"),
        (signed("shop-brokers", "secret-guessed"), Connection(), "signature .* is wrong"),
        (signed("by-address", "secret-guessed"), Connection(), "signature .* is wrong"),
        # A wrong name is not made right by what the connection has.
        (signed("operator", "secret-guessed"), Connection("10.1.2.3"), "signature .* is wrong"),
    ],
)
def test_who_is_refused_and_why(
    command: RemotingCommand, connection: Connection, words: str
) -> None:
    with pytest.raises(NotAllowedError, match=words):
        admit(command, connection)


@pytest.mark.parametrize(
    ("command", "connection", "may_be"),
    [
        (UNSIGNED, Connection(), False),
        (signed("nobody-knows", "secret-of-shop"), Connection(), False),
        (signed("operator", "not-looked-at"), Connection(), True),
        (UNSIGNED, Connection("10.9.1.1"), True),
        (UNSIGNED, Connection("10.1.2.3"), True),
        (UNSIGNED, Connection("10.7.7.7", "n0.shop"), True),
    ],
)
def test_whose_request_may_be_large_before_anything_is_proven(
    command: RemotingCommand, connection: Connection, may_be: bool
) -> None:
    guard = Guard(lambda: ACCOUNTS, route_needs_account=False)
    assert guard.admits_large(connection, command) == may_be
    assert not connection.is_trusted


def test_a_proven_account_makes_its_connection_trusted() -> None:
    connection = Connection()
    reader = signed("reader-app", "secret-of-reader")
    admit(reader, connection, Need.READ, route_needs_account=True)
    assert connection.is_trusted


def test_a_signature_is_of_one_body() -> None:
    command = signed("shop-brokers", "secret-of-shop")
    command.body = b"another body"
    with pytest.raises(NotAllowedError, match="signature"):
        admit(command, Connection())


@pytest.mark.parametrize(
    ("access_key", "needs"),
    [
        ("operator", [True, True, True]),
        ("shop-brokers", [True, True, False]),
        ("reader-app", [True, False, False]),
        (None, [True, False, False]),
    ],
)
def test_what_each_need_asks_for(access_key: str | None, needs: list[bool]) -> None:
    command = UNSIGNED
    if access_key is not None:
        command = signed(access_key, f"secret-of-{access_key.split('-')[0]}")
    allowed = []
    for need in (Need.READ, Need.REGISTER, Need.ADMIN):
        try:
            admit(command, Connection(), need)
        except NotAllowedError:
            allowed.append(False)
        else:
            allowed.append(True)
    assert allowed == needs
    if access_key is None:
        with pytest.raises(NotAllowedError):
            admit(command, Connection(), Need.READ, route_needs_account=True)


def test_without_accounts_everybody_may_do_everything() -> None:
    for need in Need:
        caller = admit(UNSIGNED, Connection(), need, accounts=None)
        caller.check_broker_name("shop-a")
        assert caller.registrant.key == "address 10.7.7.7" and caller.registrant.account is None


@pytest.mark.parametrize(
    ("broker_name", "is_allowed"),
    [("shop-a", True), ("shop-", True), ("stock", True), ("stock2", False), ("shop", False),
     ("a-shop-a", False), ("", False), ("SHOP-a", False)],
)  # fmt: skip
def test_which_brokers_an_account_may_register(broker_name: str, is_allowed: bool) -> None:
    caller = admit(signed("shop-brokers", "secret-of-shop"), Connection())
    if is_allowed:
        caller.check_broker_name(broker_name)
    else:
        with pytest.raises(NotAllowedError, match="may not register"):
            caller.check_broker_name(broker_name)


def test_who_counts_as_whom_in_quotas() -> None:
    shop = admit(signed("shop-brokers", "secret-of-shop"), Connection()).registrant
    assert (shop.key, shop.account, shop.is_free) == ("account shop-brokers", "shop-brokers", False)
    assert admit(signed("operator", "secret-of-operator"), Connection()).registrant.is_free
    white = admit(UNSIGNED, Connection("10.9.1.1")).registrant
    assert (white.key, white.account, white.is_free) == ("address 10.9.1.1", "", True)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (None, "no mapping"),
        ({"accounts": {}}, "accounts is no list"),
        ({"accounts": [3]}, "an account is no mapping"),
        ({"accounts": [{"secretKey": "1234567"}]}, "accessKey is missing"),
        ({"accounts": [{"accessKey": "short", "secretKey": "1234567"}]}, "accessKey has 5"),
        ({"accounts": [{"accessKey": "account", "secretKey": "short"}]}, "secretKey has 5"),
        ({"accounts": [{"accessKey": ["account"]}]}, "accessKey is no text"),
        ({"accounts": [{"accessKey": "account"}]}, "secretKey is missing"),
        ({"accounts": [{"accessKey": "account", "certificateNames": [""]}]}, "empty name"),
        (
            {"accounts": [{"accessKey": "account", "secretKey": "1234567", "brokerName": "x"}]},
            "unknown member 'brokerName'",
        ),
        (
            {"accounts": [{"accessKey": "account", "secretKey": "1234567", "admin": "true"}]},
            "admin is 'true'",
        ),
        (
            {"accounts": [{"accessKey": "account", "secretKey": "1234567", "brokerNames": "*"}]},
            "brokerNames is no list",
        ),
        (
            {
                "accounts": [
                    {"accessKey": "account", "secretKey": "1234567", "brokerNames": ["a*b"]}
                ]
            },
            "a star stands at the end",
        ),
        ({"accounts": [{"accessKey": "account", "whiteRemoteAddress": "1.2"}]}, "no address"),
        ({"globalWhiteRemoteAddresses": ["10.*.1.1"]}, "stars stand at the end"),
        ({"accounts": [{"accessKey": "account", "secretKey": "1234567"}] * 2}, "two accounts"),
        ({"accounts": [{}] * 10_001}, "10001 entries, allowed are 10000"),
    ],
)
def test_a_file_with_a_mistake_is_refused_with_its_place(document: Any, words: str) -> None:
    with pytest.raises(AccountsError, match=words):
        parse_accounts(document)


def test_one_file_serves_brokers_and_name_servers() -> None:
    text = """
accounts:
- {accessKey: one-account, secretKey: 1234567, brokerNames: [a], certificateNames: [b],
   defaultTopicPerm: PUB, topicPerms: [t=SUB]}
"""
    assert parse_rules(parse_document(text)).accounts.keys() == {"one-account"}
    assert parse_accounts(parse_document(text)).accounts.keys() == {"one-account"}


def written(path: Path, text: str, mode: int = 0o600) -> Path:
    path.touch()
    path.chmod(mode)
    path.write_text(text)
    return path


def test_the_file_is_followed_and_a_broken_one_changes_nothing(tmp_path: Path) -> None:
    path = written(tmp_path / "accounts.yml", TEXT)
    file = AccountsFile(path)
    assert len(file.accounts.accounts) == 5
    written(path, "accounts: [")
    file.follow()
    assert len(file.accounts.accounts) == 5
    path.unlink()
    file.follow()
    assert len(file.accounts.accounts) == 5
    written(path, "accounts: []\n# changed")
    file.follow()
    assert file.accounts.accounts == {}


@pytest.mark.parametrize(
    ("text", "mode", "words"),
    [
        (TEXT, 0o644, "mode 0644: others may read or write it; chmod 0600"),
        (TEXT, 0o620, "mode 0620"),
        ("a: &a [x]\nb: *a", 0o600, "alias"),
        ("#" * ((1 << 20) + 1), 0o600, "more than 1048576 bytes"),
        ("secretKey: [hidden", 0o600, "accounts.yml: line"),
    ],
)
def test_a_file_that_is_not_used_is_named_and_its_secrets_are_not(
    tmp_path: Path, text: str, mode: int, words: str
) -> None:
    path = written(tmp_path / "accounts.yml", text, mode)
    with pytest.raises(AccountsError, match=words) as refusal:
        AccountsFile(path)
    assert "hidden" not in str(refusal.value)
    with pytest.raises(AccountsError, match="No such file"):
        AccountsFile(tmp_path / "none.yml")


def test_who_has_no_account_counts_with_the_whole_network_of_ipv6() -> None:
    hosts = ("2001:db8:1:2::3", "2001:db8:1:2:ffff::4", "2001:db8:1:3::3", "10.0.0.1")
    keys = [Caller(Connection(host), None, has_accounts=False).registrant.key for host in hosts]
    network = "address 2001:db8:1:2::/64"
    assert keys == [network, network, "address 2001:db8:1:3::/64", "address 10.0.0.1"]
