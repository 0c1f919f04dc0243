"""Apache's broker, clients and mqadmin meet at LedgerMQ's name server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.live_program import LEDGERMQ
from tests.free_ports import free_ports
from tests.interop import corpus
from tests.interop.corpus import QUEUE_COUNT
from tests.interop.judging import Consuming, Sending, judge, table
from tests.interop.mqadmin import CLUSTER_NAME, make_topic, mqadmin
from tests.interop.processes import LOOPBACK, ChildProcess, is_listening, wait_until
from tests.interop.programs import PROGRAMS, StockProgram, consume_command, run, send_command
from tests.interop.stock_broker import JavaCluster, JavaClusterPlan

MESSAGE_COUNT = 200
SEED = 7


@pytest.fixture(scope="module")
def mixed_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaCluster]:
    """A stock broker that registered with LedgerMQ's name server."""
    directory = tmp_path_factory.mktemp("mixed")
    port = free_ports(1)[0]
    words = [f"listenPort={port}", f"bindAddress={LOOPBACK}", f"kvConfigPath={directory}/kv.json"]
    namesrv = ChildProcess(
        "namesrv", [*LEDGERMQ, "namesrv", *words], log_path=directory / "ledgermq-namesrv.log"
    )
    try:
        wait_until(
            lambda: is_listening(port),
            "the name server listens",
            seconds=30,
            detail=namesrv.log_tail,
        )
        with JavaCluster(directory, JavaClusterPlan(foreign_namesrv_port=port)) as cluster:
            yield cluster
    finally:
        namesrv.stop()


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
            expect=len(sending.acknowledged), idle_seconds=30,
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
