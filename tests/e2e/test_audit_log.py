"""The audit log of a real broker: what was changed and refused stands in its file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.signature import Credentials
from tests.e2e.test_plain_broker import connected, plain_broker
from tests.e2e.wire_client import pull_fields, send_fields
from tests.waiting import wait_until

RULES = "accounts:\n- {accessKey: operator, secretKey: secret-of-all, admin: true}\n"
OPERATOR = Credentials(access_key="operator", secret_key="secret-of-all")
STRANGER = Credentials(access_key="stranger", secret_key="secret-of-none")


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_changes_and_refusals_stand_in_the_file_and_secrets_do_not(tmp_path: Path) -> None:
    (tmp_path / "store" / "config").mkdir(parents=True)
    rules = tmp_path / "store" / "config" / "plain_acl.yml"
    rules.write_text(RULES)
    rules.chmod(0o600)
    file = tmp_path / "store" / "audit" / "audit.log"
    late = {"accessKey": "late-app", "secretKey": "secret-of-late", "defaultTopicPerm": "PUB"}
    code = RequestCode.UPDATE_AND_CREATE_ACL_CONFIG.value
    with plain_broker(tmp_path, "aclEnable=true") as program, connected(program) as client:
        assert client.ask(code, OPERATOR.signed(dict(late), b"")).code == 0
        for _ in range(5):
            assert client.ask(code, STRANGER.signed(dict(late), b"")).code != 0
        wait_until(lambda: len(lines_of(file)) >= 3, what="three lines", deadline_s=30)
    lines = lines_of(file)
    assert [line["object"] for line in lines if "object" in line] == [
        "leadership",
        "account late-app",
    ]
    [first, joined] = [line for line in lines if line["event"] == "refused"]
    assert first["claims"] == "stranger" and joined["repeated"] == 4, "told at the stop at last"
    assert file.stat().st_mode & 0o777 == 0o600
    for secret in ("secret-of-all", "secret-of-late", "secret-of-none"):
        assert secret not in file.read_text()


def test_what_nobody_asked_for_by_a_request_of_its_own_stands_in_the_file(tmp_path: Path) -> None:
    """Topics and groups that are made by their use, and rules that an operator edits."""
    (tmp_path / "store" / "config").mkdir(parents=True)
    rules = tmp_path / "store" / "config" / "plain_acl.yml"
    rules.write_text(RULES)
    rules.chmod(0o600)
    file = tmp_path / "store" / "audit" / "audit.log"

    def about(name: str) -> list[dict[str, Any]]:
        return [line for line in lines_of(file) if line.get("object") == name]

    with plain_broker(tmp_path, "aclEnable=true") as program, connected(program) as client:
        sent = OPERATOR.signed({k: str(v) for k, v in send_fields("made-up").items()}, b"x")
        for _ in range(2):
            assert client.ask(RequestCode.SEND_MESSAGE.value, sent, b"x").code == 0
        pulled = pull_fields("made-up", 0, 0, consumerGroup="new-readers")
        answer = client.ask(RequestCode.PULL_MESSAGE.value, OPERATOR.signed(pulled, b""))
        assert answer.code == 0, answer.remark
        wait_until(lambda: about("topic made-up"), what="the topic's line", deadline_s=30)
        wait_until(lambda: about("group new-readers"), what="the group's line", deadline_s=30)
        added = "- {accessKey: late-app, secretKey: secret-of-late, defaultTopicPerm: PUB}\n"
        rules.write_text(RULES.replace("secret-of-all", "secret-is-new") + added)
        wait_until(lambda: about("files of access control"), what="the edit", deadline_s=30)
        rules.write_text("accounts: 5\n")
        wait_until(lambda: len(about("files of access control")) == 2, what="2nd", deadline_s=30)
    (topic,), (group,) = about("topic made-up"), about("group new-readers")
    for line in (topic, group):
        assert (line["account"], line["outcome"]) == ("operator", "done"), line
        assert line["address"].startswith("127.0.0.1:") and line["reason"] == "made by its use"
    assert topic["after"]["topicName"] == "made-up" and topic.get("before") is None
    edited, failed = about("files of access control")
    assert edited["outcome"] == "done" and edited["before"]["late-app"] is None
    assert edited["after"]["late-app"] == {"accessKey": "late-app", "defaultTopicPerm": "PUB"}
    assert edited["after"]["operator"]["secret"] == "another one"
    assert failed["outcome"] == "failed" and "accounts is no list" in failed["reason"]
    for secret in ("secret-of-all", "secret-of-late", "secret-is-new"):
        assert secret not in file.read_text()
