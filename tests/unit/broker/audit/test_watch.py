"""What the audit log of a broker tells: each change and each refusal, and never a secret."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from ledgermq.broker.access.codes import CODES
from ledgermq.broker.audit.changes import CHANGES
from ledgermq.broker.config.broker_config import effective_properties, load_broker_config
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.errors import ProtocolError
from ledgermq.protocol.signature import Credentials
from ledgermq.state.errors import BrokerError
from tests.unit.audit.test_audit_log import Noted
from tests.unit.broker.guarded import guarded_table

RULES = {
    "accounts": [
        {"accessKey": "operator", "secretKey": "secret-of-all", "admin": True},
        {
            "accessKey": "orders-app",
            "secretKey": "secret-1",
            "topicPerms": ["orders=PUB|SUB"],
            "groupPerms": ["readers=SUB"],
        },
    ]
}
OPERATOR = Credentials(access_key="operator", secret_key="secret-of-all")
APP = Credentials(access_key="orders-app", secret_key="secret-1")
# What an admin asks and changes nothing by.
READS = {
    RequestCode.GET_BROKER_CONFIG,
    RequestCode.GET_BROKER_RUNTIME_INFO,
    RequestCode.GET_ALL_DELAY_OFFSET,
    RequestCode.QUERY_CORRECTION_OFFSET,
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO,
    RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
}


class Client:
    """A connection, and what it was told."""

    peer, peer_host, own_host = "10.0.0.7:51022", "10.0.0.7", "10.0.0.1"
    account: str | None = None
    sight: object = None
    context = (b"\x0a\0\0\x07", 51022)


class Broker:
    """All processors behind the guard, with an audit log."""

    def __init__(self, folder: Path) -> None:
        self.noted = Noted()
        path = folder / "plain_acl.yml"
        path.write_text(json.dumps(RULES))
        self.bound = guarded_table(folder, RULES, audit=self.noted.log)
        self.bound.rules.load()

    def ask(
        self,
        who: Credentials,
        code: int,
        fields: dict[str, str] | None = None,
        body: bytes = b"",
        opaque: int = 7,
    ) -> RemotingCommand | Exception:
        signed = who.signed(fields or {}, body)
        command = RemotingCommand(code=int(code), opaque=opaque, ext_fields=signed, body=body)
        client: Any = Client()
        try:
            answer = self.bound.table[int(code)](client, command)
        except (BrokerError, ProtocolError) as error:
            return error
        if isinstance(answer, Deferred):
            results: list[Any] = []
            answer.addBoth(results.append)
            [answer] = results
        assert isinstance(answer, RemotingCommand)
        return answer

    def lines(self) -> list[dict[str, Any]]:
        self.noted.thread.work()
        lines, self.noted.file.lines = self.noted.file.lines, []
        return lines


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path)


TOPIC = {
    "topic": "orders", "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4",
    "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
}  # fmt: skip


def test_a_change_tells_who_what_and_from_what_to_what(broker: Broker) -> None:
    broker.ask(OPERATOR, RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC)
    broker.ask(OPERATOR, RequestCode.UPDATE_AND_CREATE_TOPIC, {**TOPIC, "readQueueNums": "8"})
    broker.ask(OPERATOR, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})
    made, changed, removed = broker.lines()
    assert {name: made[name] for name in ("event", "account", "address", "code", "name")} == {
        "event": "change",
        "account": "operator",
        "address": "10.0.0.7:51022",
        "code": 17,
        "name": "UPDATE_AND_CREATE_TOPIC",
    }
    assert made["object"] == "topic orders" and made["outcome"] == "done" and made["request"] == 7
    assert "before" not in made and made["after"]["readQueueNums"] == 4
    assert changed["before"]["readQueueNums"] == 4 and changed["after"]["readQueueNums"] == 8
    assert removed["before"]["readQueueNums"] == 8 and "after" not in removed


def test_changes_that_anybody_makes_drive_no_others_out(broker: Broker) -> None:
    """An account with one group had nine thousand lines in eight seconds, failed ones, too."""
    code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
    fields = {"topic": "orders", "group": "readers", "timestamp": "0", "isForce": "true"}
    for _ in range(500):
        broker.ask(APP, code, fields)
    [line] = broker.lines()
    assert (line["event"], line["account"]) == ("change", "orders-app")
    broker.noted.now_ms += 10_000
    broker.noted.log.tick()
    assert [line["repeated"] for line in broker.lines()] == [499]
    for _ in range(30):
        broker.ask(OPERATOR, RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC)
    assert len(broker.lines()) == 30


def test_a_change_that_fails_is_told_with_the_reason(broker: Broker) -> None:
    broker.ask(OPERATOR, RequestCode.UPDATE_AND_CREATE_TOPIC, {**TOPIC, "perm": "9"})
    broker.ask(OPERATOR, RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": "orders"})
    broker.ask(OPERATOR, RequestCode.UPDATE_BROKER_CONFIG, body=b"\xff")
    first, second, third = broker.lines()
    assert first["outcome"] == "failed" and "perm is 9" in first["reason"]
    assert second["outcome"] == third["outcome"] == "failed"
    assert second["object"] == third["object"] == "not told"


def test_accounts_are_told_without_their_secrets(broker: Broker) -> None:
    late = {"accessKey": "late-app", "secretKey": "secret-2", "defaultTopicPerm": "PUB"}
    broker.ask(OPERATOR, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, late)
    broker.ask(
        OPERATOR,
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
        {**late, "secretKey": "secret-3", "defaultTopicPerm": "DENY"},
    )
    broker.ask(OPERATOR, RequestCode.DELETE_ACL_CONFIG, {"accessKey": "late-app"})
    broker.ask(
        OPERATOR, RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, {"globalWhiteAddrs": "10.9.9.9"}
    )
    made, changed, removed, addresses = broker.lines()
    assert made["object"] == "account late-app" and "before" not in made
    assert made["after"]["defaultTopicPerm"] == "PUB" and "secretKey" not in made["after"]
    assert changed["before"]["defaultTopicPerm"] == "PUB"
    assert changed["after"]["defaultTopicPerm"] == "DENY"
    assert "after" not in removed and addresses["after"] == ["10.9.9.9"]
    text = b"".join(broker.noted.file.raw)
    assert text.count(b"\n") == 4
    for secret in (b"secret-of-all", b"secret-1", b"secret-2", b"secret-3"):
        assert secret not in text


def test_settings_are_told_before_and_after(broker: Broker) -> None:
    broker.ask(OPERATOR, RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=4\n")
    [line] = broker.lines()
    assert line["object"] == "settings brokerPermission"
    assert line["before"] == {"brokerPermission": "6"}
    assert line["after"] == {"brokerPermission": "4"}


def test_a_refusal_tells_who_claims_to_be_whom_and_is_told_once(broker: Broker) -> None:
    stranger = Credentials(access_key="operator", secret_key="guessed-one")
    for opaque in range(100):
        broker.ask(stranger, RequestCode.GET_BROKER_CONFIG, opaque=opaque)
    broker.ask(APP, RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC)
    first, second = broker.lines()
    assert first["event"] == "refused" and first["claims"] == "operator"
    assert "account" not in first and "signature" in first["reason"]
    assert second["claims"] == "orders-app" and second["outcome"] == "refused"
    assert second["code"] == 17 and second["address"] == "10.0.0.7"
    broker.noted.now_ms = 10_000.0
    broker.noted.log.tick()
    [joined] = broker.lines()
    assert joined["repeated"] == 99 and joined["claims"] == "operator"
    assert b"guessed-one" not in b"".join(broker.noted.file.raw)


def test_reads_and_messages_are_no_lines(broker: Broker) -> None:
    broker.ask(OPERATOR, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
    broker.ask(OPERATOR, RequestCode.GET_BROKER_CONFIG)
    assert broker.lines() == []


def test_a_change_that_waits_is_told_when_it_is_over(broker: Broker) -> None:
    told: list[object] = []
    state: Any = broker.bound.parts.state
    state.put_topic = lambda topic, done=None: told.append(done)
    client: Any = Client()
    command = RemotingCommand(
        code=17, opaque=1, ext_fields=OPERATOR.signed(dict(TOPIC), b""), body=b""
    )
    answer = broker.bound.table[17](client, command)
    assert isinstance(answer, Deferred) and broker.lines() == []
    done: Any = told[0]
    done(BrokerError("no majority"))
    answer.addErrback(lambda failure: None)
    [line] = broker.lines()
    assert line["outcome"] == "failed" and line["reason"] == "no majority"


def test_a_line_that_cannot_be_made_harms_no_request(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bad(**members: object) -> None:
        raise RuntimeError("bad")

    monkeypatch.setattr(broker.noted.log, "changed", bad)
    answer = broker.ask(OPERATOR, RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=4\n")
    assert isinstance(answer, RemotingCommand) and answer.code == ResponseCode.SUCCESS


def test_every_request_that_changes_something_has_a_row() -> None:
    """A new code of admins is either in the audit log or known to change nothing."""
    of_admins = {code for code, row in CODES.items() if row.touches is None}
    others = {RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, RequestCode.CLONE_GROUP_OFFSET}
    assert set(CHANGES) == (of_admins - READS) | others
    assert of_admins >= READS


def test_the_log_is_on_with_access_control_and_where_it_is_asked_for(tmp_path: Path) -> None:
    root = {"storePathRootDir": str(tmp_path), "brokerIP1": "127.0.0.1"}
    for settings, path in (
        ({}, "none"),
        ({"aclEnable": "true"}, str(tmp_path / "audit" / "audit.log")),
        ({"aclEnable": "true", "auditLogFile": "none"}, "none"),
        ({"auditLogFile": "~/a.log"}, "~/a.log"),
    ):
        config = load_broker_config(None, {**root, **settings})
        assert config.audit_file == path
        shown = effective_properties(config)
        assert shown["auditLogFile"] == path
        assert load_broker_config(None, shown | root).audit_file == path
