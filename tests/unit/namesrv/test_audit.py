"""The audit log of a name server: changes by tools and refusals, and never a secret."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock

from ledgermq.namesrv.accounts import parse_accounts
from ledgermq.namesrv.accounts_file import AccountsFile
from ledgermq.namesrv.audit import NameAudit
from ledgermq.namesrv.config import load_namesrv_config
from ledgermq.namesrv.guard import Guard
from ledgermq.namesrv.kv_table import KvTable
from ledgermq.namesrv.processors import Processors
from ledgermq.namesrv.route_table import RouteTable
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.route import DataVersion, RegisterBrokerBody
from ledgermq.protocol.signature import Credentials
from tests.unit.audit.test_audit_log import Noted

OPERATOR = Credentials(access_key="operator", secret_key="secret-of-all")
BROKERS = Credentials(access_key="brokers", secret_key="secret-of-brokers")
ACCOUNTS = {
    "accounts": [
        {"accessKey": "operator", "secretKey": "secret-of-all", "admin": True},
        {"accessKey": "brokers", "secretKey": "secret-of-brokers", "brokerNames": ["b"]},
        {"accessKey": "rivals-", "secretKey": "secret-of-rivals", "brokerNames": ["b"]},
    ]
}


class Server:
    """Processors of a name server with accounts; it is its own peer."""

    peer_host, certificate_names, is_trusted = "10.0.0.7", (), False
    account, is_open = None, True

    def __init__(self, folder: Path) -> None:
        config = load_namesrv_config(None, {"aclEnable": "true"})
        self.noted, self.clock = Noted(), Clock()
        accounts = parse_accounts(ACCOUNTS)
        self.processors = Processors(
            config,
            RouteTable(expires_after_ms=1000, limits=config.limits, on_leaving=lambda: None),
            KvTable(folder / "kv.json", maybeDeferred, self.clock),
            Guard(lambda: accounts, route_needs_account=True),
            lambda: 0.0,
            lambda function: None,
            NameAudit(self.noted.log),
        )

    def ask(
        self, who: Credentials, code: RequestCode, fields: dict[str, str], body: bytes = b""
    ) -> int:
        signed = who.signed(fields, body)
        command = RemotingCommand(code=int(code), opaque=3, ext_fields=signed, body=body)
        answer: Any = self.processors.answer(command, self)
        if isinstance(answer, Deferred):
            results: list[Any] = []
            answer.addBoth(results.append)
            # Writes of the file have pauses between them.
            self.clock.advance(60)
            [answer] = results
        return int(answer.code)

    def lines(self) -> list[dict[str, Any]]:
        self.noted.thread.work()
        return self.noted.file.lines


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path)


ITEM = {"namespace": "N", "key": "k", "value": "1"}


def test_changes_are_told_with_what_was_there(server: Server) -> None:
    assert server.ask(OPERATOR, RequestCode.PUT_KV_CONFIG, ITEM) == 0
    assert server.ask(OPERATOR, RequestCode.PUT_KV_CONFIG, {**ITEM, "value": "2"}) == 0
    assert server.ask(OPERATOR, RequestCode.DELETE_KV_CONFIG, {"namespace": "N", "key": "k"}) == 0
    body = b"orderMessageEnable=true\n"
    assert server.ask(OPERATOR, RequestCode.UPDATE_NAMESRV_CONFIG, {}, body) == 0
    put, changed, deleted, settings = server.lines()
    assert put["account"] == "operator" and put["address"] == "10.0.0.7"
    assert put["object"] == ITEM and put["outcome"] == "done" and put["code"] == 100
    assert "before" not in put and put["after"] == "1"
    assert (changed["before"], changed["after"]) == ("1", "2")
    assert deleted["before"] == "2" and "after" not in deleted
    assert settings["before"]["orderMessageEnable"] == "false"
    assert settings["after"]["orderMessageEnable"] == "true"


def test_failures_and_refusals_are_told(server: Server) -> None:
    assert server.ask(OPERATOR, RequestCode.UPDATE_NAMESRV_CONFIG, {}, b"listenPort=1\n") != 0
    assert server.ask(BROKERS, RequestCode.PUT_KV_CONFIG, ITEM) != 0
    stranger = Credentials(access_key="operator", secret_key="guessed-one")
    for _ in range(10):
        assert server.ask(stranger, RequestCode.PUT_KV_CONFIG, ITEM) != 0
    failed, refused, unknown = server.lines()
    assert failed["outcome"] == "failed" and "listenPort" in failed["reason"]
    assert refused["event"] == "refused" and refused["claims"] == "brokers"
    assert unknown["claims"] == "operator" and "account" not in unknown
    text = b"".join(server.noted.file.raw)
    for secret in (b"secret-of-all", b"secret-of-brokers", b"guessed-one"):
        assert secret not in text
    server.noted.log.close()
    assert server.lines()[-1]["repeated"] == 9


def test_a_name_that_another_account_holds_is_a_refusal_like_others(server: Server) -> None:
    told = {"brokerName": "b", "brokerAddr": "10.0.0.7:1", "clusterName": "C", "brokerId": "0"}
    told["haServerAddr"] = ""
    body = RegisterBrokerBody({}, DataVersion(1, 1)).encode()
    assert server.ask(BROKERS, RequestCode.REGISTER_BROKER, told, body) == 0
    rival = Credentials(access_key="rivals-", secret_key="secret-of-rivals")
    assert server.ask(rival, RequestCode.REGISTER_BROKER, told, body) == ResponseCode.NO_PERMISSION
    [line] = server.lines()
    assert (line["event"], line["claims"]) == ("refused", "rivals-")
    assert "account brokers registered it" in line["reason"]


def test_the_log_is_on_with_accounts_and_where_it_is_asked_for(tmp_path: Path) -> None:
    kv = {"kvConfigPath": str(tmp_path / "kv.json")}
    for settings, path in (
        ({}, None),
        ({"aclEnable": "true"}, tmp_path / "audit" / "audit.log"),
        ({"aclEnable": "true", "auditLogFile": "none"}, None),
        ({"auditLogFile": str(tmp_path / "a.log")}, tmp_path / "a.log"),
    ):
        assert load_namesrv_config(None, {**kv, **settings}).audit_file == path


def test_an_edit_of_the_file_is_noted_and_its_secrets_are_not(tmp_path: Path) -> None:
    path = tmp_path / "plain_acl.yml"

    def put(*accounts: str) -> None:
        path.write_text("accounts:\n" + "".join(f"- {{{text}}}\n" for text in accounts))
        path.chmod(0o600)

    shop = "accessKey: shop-brokers, secretKey: secret-{}, brokerNames: [{}]"
    stays = "accessKey: other-app, secretKey: secret-of-other, whiteRemoteAddress: 10.0.0.*"
    put(shop.format("old", "shop-a"), stays)
    file, noted = AccountsFile(path), Noted()
    file.on_edited = NameAudit(noted.log).accounts_edited
    put(shop.format("new", "shop-*, stock"), stays, "accessKey: late-app, secretKey: secret-late")
    file.follow()
    path.write_text("accounts: 5\n")
    file.follow()
    noted.thread.work()
    edited, failed = noted.file.lines
    assert (edited["object"], edited["outcome"]) == ("file of accounts", "done")
    assert edited["before"].keys() == edited["after"].keys() == {"shop-brokers", "late-app"}
    assert edited["before"]["late-app"] is None
    assert edited["after"]["shop-brokers"]["brokerNames"] == ["shop-*", "stock"]
    assert failed["outcome"] == "failed" and "accounts is no list" in failed["reason"]
    assert not any(word in json.dumps([edited, failed]) for word in ("secret-", "of-other"))


def test_another_secret_and_other_addresses_are_told(tmp_path: Path) -> None:
    path = tmp_path / "plain_acl.yml"

    def put(secret: str, address: str) -> None:
        path.write_text(
            f"globalWhiteRemoteAddresses: [{address}]\n"
            f"accounts: [{{accessKey: shop-brokers, secretKey: {secret}}}]\n"
        )
        path.chmod(0o600)

    put("secret-old", "10.0.0.1")
    file, noted = AccountsFile(path), Noted()
    file.on_edited = NameAudit(noted.log).accounts_edited
    put("secret-new", "10.0.0.1")
    file.follow()
    put("secret-new", "10.0.0.12")
    file.follow()
    noted.thread.work()
    secret, addresses = noted.file.lines
    assert secret["before"]["shop-brokers"]["secrets"] == 1
    assert secret["after"]["shop-brokers"]["secrets"] == "1, not the same"
    name = "addresses that need no account"
    assert addresses["before"] == {name: ["10.0.0.1"]}
    assert addresses["after"] == {name: ["10.0.0.12"]}
    assert "secret-" not in json.dumps([secret, addresses])
