"""Rules of access control in a group: the same on all members, also after the leader is killed."""

from __future__ import annotations

from pathlib import Path

from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.signature import Credentials
from tests.e2e.up_cluster import UpCluster
from tests.e2e.wire_client import WireClient, send_fields
from tests.waiting import wait_until

RULES = "accounts:\n- {accessKey: operator, secretKey: secret-of-all, admin: true}\n"
OPERATOR = Credentials(access_key="operator", secret_key="secret-of-all")
LATE = Credentials(access_key="late-app", secret_key="secret-1")


def may_send(cluster: UpCluster, who: Credentials) -> bool:
    """Whether whoever leads takes a message of an account; False while nobody leads."""
    leader = cluster.find_leader()
    if leader is None:
        return False
    fields = who.signed(send_fields("orders"), b"body")
    try:
        with WireClient(leader["address"]) as client:
            return client.ask(RequestCode.SEND_MESSAGE.value, fields, b"body").code == 0
    except OSError:
        return False


def test_rules_are_those_of_the_leader_everywhere(tmp_path: Path) -> None:
    files = [tmp_path / "data" / f"n{i}" / "config" / "plain_acl.yml" for i in range(3)]
    for file in files:
        file.parent.mkdir(parents=True)
        file.write_text(RULES)
        file.chmod(0o600)
    secret = tmp_path / "secret"
    secret.write_text("of-all-members-and-of-nobody-else")
    secret.chmod(0o600)
    settings = (
        "aclEnable=true",
        f"dLegerGroupSecretFile={secret}",
        "flushDiskType=ASYNC_FLUSH",
    )
    with UpCluster(tmp_path, 3, settings) as cluster:
        leader = cluster.find_leader()
        assert leader is not None
        account = {"accessKey": "late-app", "secretKey": "secret-1", "defaultTopicPerm": "PUB"}
        with WireClient(leader["address"]) as client:
            code = RequestCode.UPDATE_AND_CREATE_ACL_CONFIG.value
            assert client.ask(code, OPERATOR.signed(account, b"")).code == 0
        wait_until(
            lambda: all("late-app" in file.read_text() for file in files),
            what="the account in every file",
            deadline_s=30,
        )
        cluster.kill(leader)
        wait_until(
            lambda: (now := cluster.find_leader()) is not None and now["pid"] != leader["pid"],
            what="another leader",
            deadline_s=60,
        )
        wait_until(lambda: may_send(cluster, LATE), what="a send of the account", deadline_s=60)
