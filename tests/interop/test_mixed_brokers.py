"""Brokers of both kinds in one DLedger group: a stock client sends and consumes through each.

One of Apache's brokers of 4.9.7 (with DLedger 0.3.1.2) and two of ours, at Apache's name server.
In closed mode all ask for accounts, and ours for the secret of the group: the Java member, which
proves nothing, is let in from its address where a key names it, and nobody else is.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ledgermq.cli.main import main
from ledgermq.protocol import lenient_json
from ledgermq.protocol.codes import RequestCode
from tests.e2e.wire_client import WireClient
from tests.interop.closed import broker_settings, java_broker_keys, wire
from tests.interop.mqadmin import CLUSTER_NAME
from tests.interop.programs import PROGRAMS
from tests.interop.replicas import Comparison, compare
from tests.interop.stock_broker import JavaCluster, JavaClusterPlan
from tests.interop.test_stock_clients import Round, require_clean
from tests.processes import LiveProgram
from tests.waiting import wait_until

VERSION = "4.9.7"
SEGMENT_BYTES = 256 * 1024 * 1024
MESSAGE_COUNT = 300
JAVA_CLIENT = next(program for program in PROGRAMS if program.name == "java-4.9.3")
# n0 is Apache's.
OUR_MEMBERS = (1, 2)


def our_broker(cluster: JavaCluster, member: int, *, admits_java: bool = True) -> LiveProgram:
    """Starts a broker of ours in the place of a stock one."""
    folder = cluster.directory / f"ours-{member}"
    folder.mkdir(exist_ok=True)
    keys = cluster.dledger_keys(member) | {
        "brokerClusterName": CLUSTER_NAME,
        "brokerName": "stock",
        "brokerIP1": "127.0.0.1",
        "namesrvAddr": cluster.namesrv,
        "listenPort": str(cluster.broker_ports[member]),
        "storePathRootDir": str(cluster.directory / f"store-{member}"),
        "mappedFileSizeCommitLog": str(SEGMENT_BYTES),
        "diskMaxUsedSpaceRatio": "95",
        # Where a secret is required, nobody may come without one but for these.
        "dLegerJavaMembers": "n0",
        "dLegerToolAddresses": "127.0.0.1",
    }
    keys |= dict(setting.split("=", 1) for setting in broker_settings(folder, is_among_stock=True))
    if not admits_java:
        keys |= {"dLegerJavaMembers": "none", "dLegerFounderIds": "n1;n2"}
    path = folder / "broker.conf"
    path.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    return LiveProgram(["broker", "-c", path], folder / "broker.log")


def mixed_cluster(folder: Path) -> JavaCluster:
    """Apache's name server and n0, with places for the others."""
    plan = JavaClusterPlan(
        version=VERSION,
        dledger_members=3,
        foreign_members=frozenset(OUR_MEMBERS),
        broker_keys=java_broker_keys(folder / "home"),
    )
    return JavaCluster(folder, plan)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaCluster]:
    cluster = mixed_cluster(tmp_path_factory.mktemp("mixed"))
    with ExitStack() as stack:
        for member in OUR_MEMBERS:
            stack.enter_context(our_broker(cluster, member))
        stack.enter_context(cluster)
        yield cluster
    for store in cluster.directory.glob("store-*"):
        shutil.rmtree(store)


def lead(cluster: JavaCluster, member_id: str) -> None:
    """Hands the leadership on by the command; any broker tells it the group."""
    complaints: list[str] = []

    def is_done() -> bool:
        out, err = io.StringIO(), io.StringIO()
        address = f"127.0.0.1:{cluster.broker_ports[OUR_MEMBERS[0]]}"
        words = ["transferLeader", "-n", cluster.namesrv, "-a", address, "--to", member_id]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(["admin", *words])
        complaints.append(err.getvalue())
        return code == 0

    try:
        wait_until(is_done, what=f"{member_id} to lead", deadline_s=60.0)
    except AssertionError as error:
        error.add_note("".join(dict.fromkeys(complaints)))
        raise
    wait_until(lambda: master_port(cluster) == port_of(cluster, member_id), what="its route")


def port_of(cluster: JavaCluster, member_id: str) -> int:
    return cluster.broker_ports[int(member_id[1:])]


def client_of(cluster: JavaCluster, member_id: str) -> WireClient:
    return wire(f"127.0.0.1:{port_of(cluster, member_id)}")


def master_port(cluster: JavaCluster) -> int:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["admin", "clusterList", "--json", "-n", cluster.namesrv])
    rows = json.loads(out.getvalue()) if code == 0 else []
    masters = [row["address"] for row in rows if row["id"] == 0]
    return int(masters[0].rpartition(":")[2]) if len(masters) == 1 else -1


def stores_of(cluster: JavaCluster) -> list[Path]:
    return [cluster.directory / f"store-{i}" / f"dledger-n{i}" for i in range(3)]


def wait_until_equal(cluster: JavaCluster) -> None:
    """Waits until the checkpoints of all members say that the same is committed; compares it."""
    stores = stores_of(cluster)

    def comparison() -> Comparison | None:
        try:
            result = compare(stores)
        except (struct.error, AssertionError, FileNotFoundError):
            # Of a member that has no entry yet, or no checkpoint: Java's notes it each three
            # seconds, and for a moment there is none while it is replaced.
            return None
        is_noted = result.compared_bytes > 0 and len(set(result.committed.values())) == 1
        return result if is_noted else None

    result = wait_until(comparison, what="equal checkpoints", deadline_s=60.0)
    print(f"{result.compared_bytes} bytes of log compared, {result.committed}")
    assert result.first_difference is None


@pytest.mark.timeout(400)
def test_a_stock_client_sends_and_consumes_through_a_leader_of_each_kind(
    cluster: JavaCluster, tmp_path: Path
) -> None:
    for member_id in ("n1", "n0", "n2"):
        lead(cluster, member_id)
        verdicts = Round(
            namesrv=cluster.namesrv, topic=f"Led_by_{member_id}", workspace=tmp_path,
            message_count=MESSAGE_COUNT, programs=[JAVA_CLIENT],
        ).play()  # fmt: skip
        require_clean(verdicts, MESSAGE_COUNT, 1)
    wait_until_equal(cluster)


@pytest.mark.timeout(300)
def test_what_a_java_leader_keeps_in_files_its_successor_of_ours_knows(
    cluster: JavaCluster,
) -> None:
    """Topics, offsets and delay progress are copied: nothing delayed is delivered again."""
    lead(cluster, "n0")
    sent = [b"%02d" % number for number in range(20)]
    group = {"consumerGroup": "kept", "topic": "Late", "queueId": "0"}
    with client_of(cluster, "n0") as client:
        for body in sent:
            assert client.send("Late", 0, body, properties="DELAY\x011").code == 0
        fields = group | {"commitOffset": "7"}
        assert client.ask(RequestCode.UPDATE_CONSUMER_OFFSET.value, fields).code == 0
        wait_until(
            lambda: len(client.read_queue("Late", 0)) == len(sent),
            what="deliveries of the Java leader",
            deadline_s=60.0,
        )
    with client_of(cluster, "n2") as client:

        def is_copied() -> bool:
            delays = lenient_json.read(client.ask(RequestCode.GET_ALL_DELAY_OFFSET.value).body)
            offset = client.ask(RequestCode.QUERY_CONSUMER_OFFSET.value, group).ext_fields
            return delays == {"offsetTable": {"1": len(sent)}} and offset == {"offset": "7"}

        wait_until(is_copied, what="a copy of the Java leader's state", deadline_s=60.0)
    lead(cluster, "n2")
    with client_of(cluster, "n2") as client:
        assert client.send("Late", 0, b"after", properties="DELAY\x011").code == 0

        def bodies() -> list[bytes]:
            return [record.body for record in client.read_queue("Late", 0)]

        wait_until(lambda: b"after" in bodies(), what="a delivery of ours", deadline_s=60.0)
        assert Counter(bodies()) == Counter([*sent, b"after"])


@pytest.mark.timeout(300)
def test_a_java_member_comes_in_where_a_key_names_it_and_nowhere_else(tmp_path: Path) -> None:
    cluster = mixed_cluster(tmp_path)
    with ExitStack() as stack:
        ours = {
            member: stack.enter_context(our_broker(cluster, member, admits_java=False))
            for member in OUR_MEMBERS
        }
        stack.enter_context(cluster)
        leaders = [cluster.broker_ports[member] for member in OUR_MEMBERS]
        wait_until(lambda: master_port(cluster) in leaders, what="a leader of ours", deadline_s=60)
        with wire(f"127.0.0.1:{master_port(cluster)}") as client:
            for number in range(20):
                assert client.send("Kept", 0, b"%d" % number).code == 0
        wait_until(lambda: _refusals(cluster), what="a refusal of the Java member", deadline_s=60)
        data = stores_of(cluster)[0] / "data"
        assert not any(path.read_bytes().strip(b"\0") for path in data.glob("[0-9]*"))
        for member, program in ours.items():
            assert program.stop() == 0
            stack.enter_context(our_broker(cluster, member))
        wait_until(lambda: master_port(cluster) != -1, what="a leader", deadline_s=60)
        wait_until_equal(cluster)


def _refusals(cluster: JavaCluster) -> bool:
    """Whether a member of ours says that it does not take n0."""
    found = []
    for member in OUR_MEMBERS:
        with wire(f"127.0.0.1:{cluster.broker_ports[member]}") as client:
            answer = client.ask(RequestCode.GET_BROKER_RUNTIME_INFO.value)
        told = json.loads(answer.body)["table"]["ledgerRejectedPeers"]
        found.append("n0" in told and "dLegerJavaMembers" in told)
    return any(found)
