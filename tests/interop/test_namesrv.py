"""Apache's broker, clients and mqadmin meet at LedgerMQ's name server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop import corpus
from tests.interop.corpus import QUEUE_COUNT
from tests.interop.judging import Consuming, Sending, judge, table
from tests.interop.mqadmin import CLUSTER_NAME, LOGBACK, make_topic, mqadmin
from tests.interop.programs import PROGRAMS, StockProgram, consume_command, run, send_command
from tests.interop.stock_broker import JavaCluster, JavaClusterPlan
from tests.processes import LOOPBACK, name_server
from tests.waiting import wait_until

MESSAGE_COUNT = 200
SEED = 7


@pytest.fixture(scope="module")
def mixed_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaCluster]:
    """A stock broker that registered with LedgerMQ's name server."""
    directory = tmp_path_factory.mktemp("mixed")
    with name_server(directory) as address:
        plan = JavaClusterPlan(foreign_namesrv_port=int(address.rpartition(":")[2]))
        with JavaCluster(directory, plan) as cluster:
            yield cluster


@pytest.mark.timeout(240)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_stock_client_finds_a_stock_broker_through_our_name_server(
    mixed_cluster: JavaCluster, tmp_path: Path, program: StockProgram
) -> None:
    topic = f"Routed_{program.name.replace('.', '_')}"
    make_topic(mixed_cluster.namesrv, topic, QUEUE_COUNT)
    path = tmp_path / "corpus"
    expected = corpus.write(path, program.name, MESSAGE_COUNT, SEED)
    sending = Sending(program.name)
    consuming = Consuming(program.name, {program.name: expected}, program.orderly)
    run(
        send_command(
            program, namesrv=mixed_cluster.namesrv, topic=topic, corpus=path, queues=QUEUE_COUNT
        ),
        sending.hear,
        log_path=tmp_path / "send.log",
        deadline_seconds=100,
    )
    run(
        consume_command(
            program, namesrv=mixed_cluster.namesrv, topic=topic,
            expect=len(sending.acknowledged),
        ),
        consuming.hear,
        log_path=tmp_path / "consume.log",
        deadline_seconds=100,
    )  # fmt: skip
    verdict = judge(consuming, {program.name: sending})
    assert verdict.sent == MESSAGE_COUNT and verdict.is_clean, (
        table([verdict], {}, 1.0) + "\n" + "\n".join(verdict.problems)
    )


@pytest.mark.timeout(240)
def test_mqadmin_reads_our_name_server(mixed_cluster: JavaCluster) -> None:
    """The subcommands whose answers come from the name server, or start there."""
    link = ("-n", mixed_cluster.namesrv)
    broker = f"{LOOPBACK}:{mixed_cluster.broker_ports[0]}"
    make_topic(mixed_cluster.namesrv, "Admin", QUEUE_COUNT)
    assert broker in mqadmin("clusterList", *link)
    assert "Admin" in mqadmin("topicList", *link).split()
    assert "Admin" in mqadmin("topicList", *link, "-c", CLUSTER_NAME)
    route = "".join(mqadmin("topicRoute", *link, "-t", "Admin").split())
    assert f'"writeQueueNums":{QUEUE_COUNT}' in route and broker in route
    assert CLUSTER_NAME in mqadmin("topicClusterList", *link, "-t", "Admin")
    mqadmin("updateKvConfig", *link, "-s", "space", "-k", "key", "-v", "v\u00e4lue")
    mqadmin("deleteKvConfig", *link, "-s", "space", "-k", "key")
    mqadmin("deleteTopic", *link, "-c", CLUSTER_NAME, "-t", "Admin")
    assert "Admin" not in mqadmin("topicList", *link).split()


@pytest.mark.timeout(240)
def test_stock_broker_and_tools_use_a_name_server_with_accounts(tmp_path: Path) -> None:
    """A stock broker cannot sign what it tells name servers: its address is an account. mqadmin
    signs with its tools.yml, and without it is nobody who may change anything.
    """
    accounts = tmp_path / "accounts.yml"
    accounts.touch(0o600)
    accounts.write_text(
        "accounts:\n"
        f"- {{accessKey: stock-brokers, whiteRemoteAddress: {LOOPBACK}, brokerNames: ['*']}}\n"
        "- {accessKey: operator, secretKey: secret-of-operator, admin: true}\n"
    )
    homes = {name: tmp_path / name for name in ("nobody", "operator")}
    for home in homes.values():
        (home / "conf").mkdir(parents=True)
        (home / "conf" / "logback_tools.xml").write_text(LOGBACK)
    tools = homes["operator"] / "conf" / "tools.yml"
    tools.write_text("accessKey: operator\nsecretKey: secret-of-operator\n")
    settings = ["aclEnable=true", f"aclFile={accounts}", "routeNeedsAccount=true"]
    with name_server(tmp_path, *settings) as address:
        put = ("updateKvConfig", "-n", address, "-s", "space", "-k", "key", "-v", "1")
        plan = JavaClusterPlan(foreign_namesrv_port=int(address.rpartition(":")[2]))
        with JavaCluster(tmp_path, plan) as cluster:

            def listed() -> str | None:
                """A stock broker that began just now has no figures, and says so by an error."""
                try:
                    return mqadmin("clusterList", "-n", address, home=homes["nobody"])
                except AssertionError as error:
                    if "NoSuchElementException" not in str(error):
                        raise
                    return None

            found = wait_until(listed, what="figures of the stock broker", deadline_s=60.0)
            assert str(cluster.broker_ports[0]) in str(found)
            with pytest.raises(AssertionError, match="admin: true"):
                mqadmin(*put, home=homes["nobody"])
            assert "success" in mqadmin(*put, home=homes["operator"])
