"""Attacks on the secret keys of accounts: who reads files, the ledger or its records finds none.

A group of three real members whose rules a tool changes while they run. Then everything that can be
read is searched: each file of each member but the rules themselves, each entry of the ledger, each
place in the log as a message, what a consumer gives back by its place, and each topic.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.signature import Credentials
from tests.e2e.up_cluster import UpCluster
from tests.e2e.wire_client import WireClient, pull_fields, send_fields
from tests.waiting import wait_until

OPERATOR: Final = Credentials(access_key="operator", secret_key="secret-of-the-operator")
THIEF: Final = Credentials(access_key="thief-app", secret_key="secret-of-the-thief")
LATE: Final = Credentials(access_key="late-app", secret_key="secret-that-came-late")
SECRETS: Final = tuple(who.secret_key.encode() for who in (OPERATOR, THIEF, LATE))
RULES: Final = f"""
accounts:
- {{accessKey: operator, secretKey: {OPERATOR.secret_key}, admin: true}}
- accessKey: thief-app
  secretKey: {THIEF.secret_key}
  topicPerms: [bait=PUB|SUB]
  groupPerms: [bait-readers=SUB]
"""
# Topics of the broker's own, which no list names.
HIDDEN: Final = (
    "rmq_sys_LEDGERMQ_STATE",
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "SCHEDULE_TOPIC_XXXX",
    "%RETRY%bait-readers",
)
GET: Final = 50002
ENTRY_HEAD_BYTES: Final = 48
ENTRIES_MAX: Final = 2000


def ask(
    client: WireClient,
    who: Credentials,
    code: RequestCode,
    fields: Mapping[str, object],
    body: bytes = b"",
) -> RemotingCommand:
    texts = {name: str(value) for name, value in fields.items()}
    return client.ask(code.value, who.signed(texts, body), body)


def entries_of(address: str, leader_id: str) -> list[tuple[int, bytes]]:
    """Position and body of each entry, as DLedger's own tools read them."""
    found = []
    with WireClient(address) as tool:
        for index in range(ENTRIES_MAX):
            request = {"group": "broker-a", "remoteId": leader_id, "beginIndex": index, "term": 1}
            answer = json.loads(tool.ask(GET, None, json.dumps(request).encode()).body or b"{}")
            entries = answer.get("entries")
            if not entries:
                break
            found += [(one["pos"], b64decode(one["body"])) for one in entries]
    return found


def read_by_clients(address: str, places: list[int]) -> Iterator[tuple[str, bytes]]:
    """What the port for clients gives to an admin, and to an account of one topic."""
    with WireClient(address) as client:
        for place in places:
            for who in (OPERATOR, THIEF):
                answer = ask(client, who, RequestCode.VIEW_MESSAGE_BY_ID, {"offset": place})
                yield f"33 of {place} by {who.access_key}", answer.body
            # Waits where messages of the first delay do.
            back = {"offset": place, "group": "bait-readers", "delayLevel": 1}
            answer = ask(client, THIEF, RequestCode.CONSUMER_SEND_MSG_BACK, back)
            yield f"36 of {place}", answer.body
        yield "26", ask(client, OPERATOR, RequestCode.GET_BROKER_CONFIG, {}).body
        yield "28", ask(client, OPERATOR, RequestCode.GET_BROKER_RUNTIME_INFO, {}).body
        table = json.loads(ask(client, OPERATOR, RequestCode.GET_ALL_TOPIC_CONFIG, {}).body)
        for topic in (*table["topicConfigTable"], *HIDDEN):
            for queue_id in range(2):
                for who in (OPERATOR, THIEF):
                    fields = pull_fields(topic, queue_id, 0, consumerGroup="bait-readers")
                    answer = ask(client, who, RequestCode.PULL_MESSAGE, fields)
                    yield f"11 of {topic} by {who.access_key}", answer.body


def files_of(data: Path) -> Iterator[tuple[str, bytes]]:
    """All files but those that hold the rules for their owner."""
    for path in data.rglob("*"):
        if path.is_file() and path.name != "plain_acl.yml":
            yield str(path.relative_to(data)), path.read_bytes()


def has_secret(content: bytes) -> bool:
    return any(secret in content for secret in SECRETS)


def leaks(folder: Path, environment: Mapping[str, str] | None = None) -> dict[str, list[str]]:
    """Runs a group, changes its rules and searches; returns by way of attack where a secret stood.

    Args:
        folder: for its data.
        environment: of its processes, besides that of this one.
    """
    for i in range(3):
        rules = folder / "data" / f"n{i}" / "config" / "plain_acl.yml"
        rules.parent.mkdir(parents=True)
        rules.write_text(RULES)
        rules.chmod(0o600)
    secret = folder / "secret"
    secret.write_text("of-all-members-and-of-nobody-else")
    secret.chmod(0o600)
    settings = (
        "aclEnable=true", f"dLegerGroupSecretFile={secret}", "dLegerToolAddresses=127.0.0.1",
        "flushDiskType=ASYNC_FLUSH",
    )  # fmt: skip
    with UpCluster(folder, 3, settings, environment) as cluster:
        wait_until(cluster.has_all, what="a leader and its followers", deadline_s=60)
        leader = cluster.wait_for_leader()
        account = {"accessKey": LATE.access_key, "secretKey": LATE.secret_key, "admin": "false"}
        with WireClient(leader["address"]) as client:
            code = RequestCode.UPDATE_AND_CREATE_ACL_CONFIG
            assert ask(client, OPERATOR, code, account).code == 0
            assert ask(client, THIEF, RequestCode.SEND_MESSAGE, send_fields("bait")).code == 0
        files = [cluster.data / f"n{i}" / "config" / "plain_acl.yml" for i in range(3)]
        wait_until(
            lambda: all(LATE.access_key in file.read_text() for file in files),
            what="the account in every file",
            deadline_s=60,
        )
        entries = entries_of(leader["dledger"], leader["id"])
        assert any(b"bait" in body for _, body in entries), "the tool reads the ledger"
        places = [position + ENTRY_HEAD_BYTES for position, _ in entries]
        told = list(read_by_clients(leader["address"], places))
        found = {
            "ledger": [str(position) for position, body in entries if has_secret(body)],
            "clients": [name for name, content in told if has_secret(content)],
        }
    found["files"] = [name for name, content in files_of(cluster.data) if has_secret(content)]
    return found


def test_no_secret_is_found_anywhere_after_rules_were_changed(tmp_path: Path) -> None:
    assert leaks(tmp_path) == {"ledger": [], "clients": [], "files": []}


def test_the_search_finds_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x").write_bytes(b"\0" + SECRETS[1] + b"\0")
    (tmp_path / "plain_acl.yml").write_bytes(SECRETS[0])
    assert [name for name, content in files_of(tmp_path) if has_secret(content)] == ["a/x"]
