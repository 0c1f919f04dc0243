"""Access control on real brokers: who is let in, rules that change while they run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.signature import Credentials
from tests.e2e.wire_client import WireClient, pull_fields, send_fields
from tests.processes import LiveProgram, broker, run_ledgermq
from tests.waiting import wait_until

RULES = """
accounts:
- {accessKey: operator, secretKey: secret-of-all, admin: true}
- accessKey: orders-app
  secretKey: secret-1
  topicPerms: [orders=PUB|SUB]
  groupPerms: [wire-consumers=SUB]
"""
OPERATOR = Credentials(access_key="operator", secret_key="secret-of-all")
# Of a record, at its fifth byte.
_RECORD_MAGIC = bytes.fromhex("daa320a7")
USER = Credentials(access_key="orders-app", secret_key="secret-1")


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("acl") / "plain_acl.yml"
    path.write_text(RULES)
    path.chmod(0o600)
    return path


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("broker") / "broker-a"


@pytest.fixture(scope="module")
def program(rules: Path, store: Path) -> Iterator[LiveProgram]:
    settings = ("flushDiskType=ASYNC_FLUSH", "aclEnable=true", f"aclFile={rules}")
    with broker(store.parent, *settings) as running:
        yield running.wait_until_serving()


@pytest.fixture
def client(program: LiveProgram) -> Iterator[WireClient]:
    with WireClient(program.address) as connected:
        yield connected


def ask(
    client: WireClient, who: Credentials, code: RequestCode, body: bytes = b"", **fields: Any
) -> RemotingCommand:
    texts = {name: str(value) for name, value in fields.items()}
    return client.ask(code.value, who.signed(texts, body), body)


def send(client: WireClient, who: Credentials, topic: str) -> RemotingCommand:
    return ask(client, who, RequestCode.SEND_MESSAGE, b"body", **send_fields(topic))


def test_account_sends_and_pulls_what_is_its_own(client: WireClient) -> None:
    assert send(client, USER, "orders").code == 0
    pulled = ask(client, USER, RequestCode.PULL_MESSAGE, **pull_fields("orders", 0, 0))
    assert pulled.code == 0 and b"body" in pulled.body


def test_others_are_told_why_they_are_refused(client: WireClient) -> None:
    nobody = client.ask(RequestCode.SEND_MESSAGE.value, send_fields("orders"), b"body")
    assert nobody.code == ResponseCode.SYSTEM_ERROR
    assert nobody.remark == "No accessKey is configured (access control is on)"
    wrong = Credentials(access_key="orders-app", secret_key="secret-2")
    refused = send(client, wrong, "orders")
    assert refused.remark == "Check signature failed for accessKey=orders-app"
    # A stock client reads these without looking whether they are there.
    assert refused.ext_fields is not None and "MSG_REGION" in refused.ext_fields
    foreign = send(client, USER, "payments")
    assert (
        foreign.remark == "No default permission for topic:payments: accessKey=orders-app needs PUB"
    )
    settings = ask(client, USER, RequestCode.UPDATE_BROKER_CONFIG, b"brokerPermission=4")
    assert "Need admin permission" in str(settings.remark)


def test_tools_change_the_rules_at_once(client: WireClient, rules: Path) -> None:
    late = Credentials(access_key="late-app", secret_key="secret-3")
    assert "No acl config" in str(send(client, late, "orders").remark)
    made = ask(
        client, OPERATOR, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
        accessKey="late-app", secretKey="secret-3", admin="false", topicPerms="orders=PUB",
    )  # fmt: skip
    assert made.code == 0
    assert send(client, late, "orders").code == 0
    assert "late-app" in rules.read_text()
    bad = ask(
        client, OPERATOR, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
        accessKey="bad-app", secretKey="short", admin="false",
    )  # fmt: skip
    assert bad.code == ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED
    assert "secretKey has 5 characters" in str(bad.remark)
    listed = ask(client, OPERATOR, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
    accounts = json.loads(listed.body)["plainAccessConfigs"]
    assert [account["accessKey"] for account in accounts] == ["operator", "orders-app", "late-app"]
    shown = ask(client, OPERATOR, RequestCode.GET_BROKER_CLUSTER_ACL_INFO)
    assert json.loads((shown.ext_fields or {})["version"])["counter"] == 1
    assert ask(client, OPERATOR, RequestCode.DELETE_ACL_CONFIG, accessKey="late-app").code == 0
    assert "No acl config" in str(send(client, late, "orders").remark)
    gone = ask(client, OPERATOR, RequestCode.DELETE_ACL_CONFIG, accessKey="late-app")
    assert gone.code == ResponseCode.DELETE_ACL_CONFIG_FAILED


def test_edited_file_counts_and_a_broken_one_does_not(
    client: WireClient, program: LiveProgram, rules: Path
) -> None:
    before = rules.read_text()
    later = Credentials(access_key="later-app", secret_key="secret-4")
    rules.write_text(before + "accounts: [")
    wait_until(lambda: "stay as they were" in program.log_text(), what="alarm", deadline_s=30)
    assert send(client, USER, "orders").code == 0
    entry = "- {accessKey: later-app, secretKey: secret-4, defaultTopicPerm: PUB}\n"
    rules.write_text(RULES.rstrip() + "\n" + entry)
    wait_until(lambda: send(client, later, "orders").code == 0, what="the account", deadline_s=30)
    assert "secret-" not in program.log_text()


def test_records_of_the_state_are_no_messages(client: WireClient, store: Path) -> None:
    """Nobody reads them by their place, nor has them copied; and no secret stands in any."""
    assert send(client, USER, "orders").code == 0
    path = store / "dledger-n0" / "data" / "00000000000000000000"
    log = path.read_bytes()[: 1 << 20]
    assert b"secret-of-all" not in log
    place, record = (
        log.rindex(_RECORD_MAGIC, 0, log.index(content)) - 4
        for content in (b"body", b'"kind":"topics"')
    )
    back = {"group": "wire-consumers", "delayLevel": "0"}
    for who, remark in ((OPERATOR, "by the offset"), (USER, "no message that a client may read")):
        assert b"body" in ask(client, who, RequestCode.VIEW_MESSAGE_BY_ID, offset=place).body
        refused = ask(client, who, RequestCode.VIEW_MESSAGE_BY_ID, offset=record)
        assert refused.code == ResponseCode.SYSTEM_ERROR and remark in str(refused.remark)
        refused = ask(client, who, RequestCode.CONSUMER_SEND_MSG_BACK, offset=record, **back)
        assert refused.code == ResponseCode.SYSTEM_ERROR and f"{record}" in str(refused.remark)
        assert ask(client, who, RequestCode.CONSUMER_SEND_MSG_BACK, offset=place, **back).code == 0
    after = path.read_bytes()[: 1 << 20]
    start = log.index(b'"kind":"topics"')
    body = log[start : start + 200]
    assert after.count(body) == log.count(body) == 1


def test_broker_without_usable_rules_does_not_start(tmp_path: Path) -> None:
    words = ("broker", f"storePathRootDir={tmp_path}", "brokerIP1=127.0.0.1", "aclEnable=true")
    missing = run_ledgermq(*words)
    assert missing.returncode == 1
    assert f"{tmp_path}/config/plain_acl.yml: No such file" in missing.stderr
    (tmp_path / "bad.yml").write_text("accounts: {}")
    bad = run_ledgermq(*words, f"aclFile={tmp_path / 'bad.yml'}")
    assert bad.returncode == 1 and "bad.yml: accounts is no list" in bad.stderr


def test_an_operator_changes_accounts_by_admin_commands(
    program: LiveProgram, tmp_path: Path
) -> None:
    who = tmp_path / "tools.yml"
    who.write_text("accessKey: operator\nsecretKey: secret-of-all\n")
    who.chmod(0o600)

    def admin(command: str, *words: str) -> list[dict[str, Any]]:
        asked = ("--json", "--acl-config", who, "-b", program.address, *words)
        done = run_ledgermq("admin", command, *asked)
        assert done.returncode == 0, done.stderr
        assert "secret" not in done.stdout
        rows: list[dict[str, Any]] = json.loads(done.stdout)
        return rows

    before = admin("clusterAclConfigVersion")[0]["changes"]
    rights = ("-t", "paid=PUB", "-i", "DENY")
    secret = tmp_path / "secret"
    secret.write_text("secret-2\n")
    secret.chmod(0o600)
    admin("updateAclConfig", "-a", "temporary", "--secretKeyFile", str(secret), *rights)
    accounts = {row["account"]: row for row in admin("getAccessConfigSubCommand")}
    assert accounts["temporary"]["topics"] == "paid=PUB"
    assert accounts["operator"]["admin"] is True
    admin("deleteAccessConfig", "-a", "temporary")
    assert "temporary" not in {row["account"] for row in admin("getAccessConfigSubCommand")}
    (version,) = admin("clusterAclConfigVersion")
    assert version["changes"] == before + 2 and version["file"].endswith(".yml")
    refused = run_ledgermq("admin", "clusterAclConfigVersion", "-b", program.address)
    assert refused.returncode == 1 and len(refused.stderr.splitlines()) == 1
