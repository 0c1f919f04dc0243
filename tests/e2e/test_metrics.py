"""Metrics of real brokers, judged by promtool and by prometheus_client."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ledgermq.broker.watching.exporter_families import EXPORTER_FAMILIES
from ledgermq.broker.watching.families import FAMILIES
from ledgermq.protocol.codes import RequestCode
from tests.e2e.prometheus import parsed, parsed_open, run_promtool
from tests.e2e.up_cluster import UpCluster
from tests.e2e.wire_client import WireClient
from tests.free_ports import free_ports
from tests.processes import SMALL_STORE, LiveProgram
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(300)

_SENT = 20
# As Prometheus 2.42 sends it.
_PROMETHEUS_ACCEPTS = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)


def scrape(port: int, path: str = "/metrics", **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("GET", path, headers=headers)
        reply = connection.getresponse()
        return reply.status, reply.read().decode()
    finally:
        connection.close()


def series(text: str) -> dict[str, float]:
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def value(text: str, name: str, **labels: str) -> float:
    """The one series of a name that has these labels."""
    wanted = [f'{label}="{content}"' for label, content in labels.items()]
    found = {
        key: number
        for key, number in series(text).items()
        if key.partition("{")[0] == name and all(label in key for label in wanted)
    }
    assert len(found) == 1, (name, labels, found)
    return next(iter(found.values()))


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A group with a topic and a group that is behind: pages of the leader and of a follower."""
    folder = tmp_path_factory.mktemp("metrics")
    [first] = free_ports(1, spread=(0, 10, 20))
    settings = [*SMALL_STORE, f"httpPort={first}", "metricsLabel=env:test"]
    with UpCluster(folder, settings=settings) as cluster:
        cluster.wait_for_all()
        leader = cluster.wait_for_leader()
        follower = next(node for node in cluster.nodes() if node["id"] != leader["id"])
        with WireClient(leader["address"]) as client:
            for number in range(_SENT):
                assert client.send("Orders", 0, b"%d" % number).code == 0
            fields = {
                "consumerGroup": "billing", "topic": "Orders", "queueId": "0", "commitOffset": "5",
            }  # fmt: skip
            assert client.ask(RequestCode.UPDATE_CONSUMER_OFFSET.value, fields).code == 0
            assert client.ask(9_999).code != 0
            lag = 'rocketmq_consumer_lag_messages{cluster="DefaultCluster",node_type="broker"'
            own = first + 10 * int(leader["id"][1:])

            def page() -> str | None:
                """With the lag of the group, and both followers having all there is."""
                text = scrape(own)[1]
                peers = [
                    number
                    for key, number in series(text).items()
                    if key.startswith("ledgermq_raft_follower_lag_entries")
                ]
                return text if lag in text and peers == [0, 0] else None

            told = wait_until(page, what="a page with the lag of the group")

            def runtime() -> str:
                answer = client.ask(RequestCode.GET_BROKER_RUNTIME_INFO.value)
                return bytes(answer.body).decode()

            # Looked at once a second.
            wait_until(lambda: '"ledgerFollowers":"n' in runtime(), what="followers of the leader")
            table = runtime()
        yield {
            "leader": told,
            "follower": scrape(first + 10 * int(follower["id"][1:]))[1],
            "exporter": scrape(own, "/metrics/exporter")[1],
            "follower id": follower["id"],
            "open": scrape(own, Accept=_PROMETHEUS_ACCEPTS)[1],
            "open exporter": scrape(own, "/metrics/exporter", Accept=_PROMETHEUS_ACCEPTS)[1],
            "runtime": table,
        }


def test_traffic_and_lag_are_told(pages: dict[str, Any]) -> None:
    page = pages["leader"]
    assert value(page, "rocketmq_messages_in_total", topic="Orders", env="test") == _SENT
    assert value(page, "rocketmq_throughput_in_total", topic="Orders") > _SENT
    pair = {"topic": "Orders", "consumer_group": "billing", "is_retry": "false"}
    assert value(page, "rocketmq_consumer_lag_messages", **pair) == _SENT - 5
    assert 0 < value(page, "rocketmq_consumer_lag_latency_milliseconds", **pair) < 300_000
    assert value(page, "ledgermq_raft_proposals_committed_total") >= _SENT
    assert value(page, "ledgermq_raft_commit_duration_seconds_count") > 0
    assert value(page, "ledgermq_disk_sync_duration_seconds_count") > 0
    assert value(page, "ledgermq_disk_sync_duration_seconds_sum") > 0
    assert value(page, "ledgermq_disk_write_duration_seconds_count") > 0
    assert value(page, "rocketmq_message_size_bytes_bucket", le="1024.0") == _SENT
    assert value(page, "rocketmq_message_size_bytes_sum") > _SENT
    assert value(page, "rocketmq_half_messages") == 0
    assert value(page, "rocketmq_storage_flush_behind_bytes") >= 0
    assert value(page, "ledgermq_reactor_lag_seconds_count") > 0
    assert value(page, "ledgermq_refused_total", reason="not_supported") == 1


# Pop, tiers, rocksdb, proxies and controllers are not here. What is left out of a delayed message's
# way: it is in its queue when it is stored. What a client has beyond its offset is not kept.
_OF_ROCKETMQ_5 = """
processor_watermark broker_permission topic_number consumer_group_number messages_in_total
throughput_in_total messages_out_total throughput_out_total message_size_bytes
topic_create_execution_time_milliseconds consumer_group_create_execution_time_milliseconds
producer_connections consumer_connections consumer_lag_messages consumer_lag_latency_milliseconds
consumer_ready_messages send_to_dlq_messages_total commit_messages_total rollback_messages_total
finish_message_latency_milliseconds half_messages rpc_latency_milliseconds storage_size_bytes
storage_flush_behind_bytes storage_dispatch_behind_bytes storage_message_reserve_time_milliseconds
timer_dequeue_lag timer_dequeue_latency_milliseconds timing_messages timer_message_snapshot
timer_enqueue_total timer_dequeue_total delay_message_latency_seconds
"""
# There with the first client, dead letter or end of a transaction.
_LATER = {"producer_connections", "consumer_connections", "send_to_dlq_messages_total"}
_LATER |= {"messages_out_total", "throughput_out_total", "commit_messages_total"}
_LATER |= {"rollback_messages_total"}


def test_names_of_rocketmq_5_are_there(pages: dict[str, Any]) -> None:
    page = pages["leader"]
    names = set(_OF_ROCKETMQ_5.split())
    there = {
        line.split()[2].removeprefix("rocketmq_") for line in page.splitlines() if "# T" in line
    }
    assert {f"rocketmq_{name}" for name in names} <= set(FAMILIES)
    assert names - there <= _LATER
    sent = {"request_code": "send_message", "protocol_type": "remoting"}
    assert value(page, "rocketmq_rpc_latency_milliseconds_count", **sent) == _SENT
    assert value(page, "rocketmq_timer_enqueue_total") == 0
    assert value(page, "rocketmq_timer_message_snapshot", timer_bound_s="60") == 0


def test_ledger_is_told_by_each_member(pages: dict[str, Any]) -> None:
    leader, follower = pages["leader"], pages["follower"]
    assert value(leader, "ledgermq_raft_is_leader") == 1
    assert value(follower, "ledgermq_raft_is_leader") == 0
    for page in (leader, follower):
        assert value(page, "ledgermq_raft_has_leader") == 1
        assert value(page, "ledgermq_raft_members") == 3
        assert value(page, "ledgermq_ledger_failed") == 0
    assert value(leader, "ledgermq_raft_last_index") >= _SENT
    peer = {"peer": pages["follower id"]}
    assert value(leader, "ledgermq_raft_follower_lag_entries", **peer) == 0
    assert value(leader, "ledgermq_raft_follower_lag_bytes", **peer) == 0
    assert value(leader, "ledgermq_raft_follower_last_contact_seconds", **peer) < 60
    assert value(leader, "ledgermq_raft_peer_round_trip_seconds_count", **peer) > 0
    for page in (leader, follower):
        assert value(page, "ledgermq_ledger_corruptions_total") == 0
        assert value(page, "ledgermq_deleted_files_total", reason="disk_forced") == 0
    # Topics and groups are the leader's: added up over members they must not count thrice.
    assert "rocketmq_messages_in_total" not in follower
    assert "ledgermq_raft_follower_lag_entries" not in follower


def test_runtime_information_has_times_and_followers(pages: dict[str, Any]) -> None:
    table = pages["runtime"]
    assert '"putMessageDistributeTime":"[<=0ms]:' in table
    assert '"putMessageEntireTimeMax":"0"' not in table
    assert f"{pages['follower id']} " in table.partition('"ledgerFollowers":"')[2]


def test_prometheus_tool_finds_nothing_wrong_with_our_names(pages: dict[str, Any]) -> None:
    for page in (pages["leader"], pages["follower"]):
        code, text = run_promtool("check", "metrics", text=page)
        assert code in (0, 3), text
        # RocketMQ's own names have units and suffixes that the tool dislikes.
        ours = [line for line in text.splitlines() if line and not line.startswith("rocketmq_")]
        assert ours == []


def test_prometheus_parser_reads_the_page(pages: dict[str, Any]) -> None:
    families = parsed(pages["leader"])
    assert families["ledgermq_raft_term"].type == "gauge"
    assert families["ledgermq_raft_commit_duration_seconds"].type == "histogram"
    samples = [
        (sample.name, tuple(sorted(sample.labels.items())))
        for family in families.values()
        for sample in family.samples
    ]
    assert len(samples) == len(set(samples)), "a series comes twice"
    assert len(samples) == len(series(pages["leader"]))


def test_prometheus_parser_reads_open_metrics(pages: dict[str, Any]) -> None:
    page = pages["open"]
    assert page.endswith("\n# EOF\n") and page.count("# EOF") == 1
    families = parsed_open(page)
    assert families["ledgermq_raft_proposals_committed"].type == "counter"
    assert families["ledgermq_request_duration_seconds"].type == "histogram"
    # The same names but for those of counters, as families.
    plain = set(parsed(pages["leader"]))
    assert set(families) == plain
    assert "rocketmq_producer_offset" in parsed_open(pages["open exporter"])


def test_durations_are_told_by_code(pages: dict[str, Any]) -> None:
    page = pages["leader"]
    name = "ledgermq_request_duration_seconds"
    assert value(page, f"{name}_count", code="send_message") == _SENT
    assert value(page, f"{name}_sum", code="send_message") > 0
    assert value(page, f"{name}_count", code="update_consumer_offset") >= 1
    assert value(page, "ledgermq_slow_requests_total", code="update_consumer_offset") >= 0
    # What nobody answers makes no series.
    assert 'code="other"' not in page


# Only consumers themselves know these.
_OF_CLIENTS = {
    "rocketmq_client_consume_fail_msg_count",
    "rocketmq_client_consume_fail_msg_tps",
    "rocketmq_client_consume_ok_msg_tps",
    "rocketmq_client_consume_rt",
    "rocketmq_client_consumer_pull_rt",
    "rocketmq_client_consumer_pull_tps",
}


def test_exporter_has_apaches_names() -> None:
    assert len(set(EXPORTER_FAMILIES) | _OF_CLIENTS) == 89


def test_exporter_page_tells_traffic_lag_and_runtime(pages: dict[str, Any]) -> None:
    page = pages["exporter"]
    topic = {"cluster": "DefaultCluster", "broker": "broker-a", "topic": "Orders"}
    assert value(page, "rocketmq_producer_offset", **topic) == _SENT
    assert value(page, "rocketmq_group_diff", group="billing", topic="Orders") == _SENT - 5
    pair = {**topic, "group": "billing"}
    assert value(page, "rocketmq_group_consume_total_offset", **pair) == 5
    assert value(page, "rocketmq_consumer_offset", **pair) == _SENT
    assert value(page, "rocketmq_group_get_latency_by_storetime", **pair) > 0
    assert value(page, "rocketmq_brokeruntime_putmessage_times_total") >= _SENT
    put = [number for key, number in series(page).items() if "brokeruntime_pmdt_" in key]
    assert len(put) == 13 and sum(put) >= _SENT
    assert value(page, "rocketmq_brokeruntime_commitlogdir_capacity_total") > 1 << 20
    # The same measure as the one by which messages are refused, but for its rounding.
    used = value(pages["leader"], "ledgermq_disk_used_ratio")
    assert abs(value(page, "rocketmq_brokeruntime_commitlog_disk_ratio") - used) < 0.02
    families = {line.split(" ")[2] for line in page.splitlines() if line.startswith("# TYPE")}
    # Nobody is connected, and nothing was given up, given back or sent again here.
    missing = {name.removeprefix("rocketmq_") for name in set(EXPORTER_FAMILIES) - families}
    assert missing <= {
        "consumer_message_size", "consumer_tps", "group_consume_tps", "group_count",
        "group_dlqdiff", "group_retrydiff", "producer_count", "send_back_nums",
        "topic_dlq_offset", "topic_retry_offset",
    }  # fmt: skip
    parsed(page)


def test_token_is_asked_for_metrics_and_not_for_health(tmp_path: Path) -> None:
    [port] = free_ports(1, spread=(0, 1, 2))
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    token.chmod(0o600)
    words = [
        "broker", "--json", f"listenPort={port}", "brokerIP1=127.0.0.1", "brokerName=alone",
        f"storePathRootDir={tmp_path / 'store'}", *SMALL_STORE, f"httpPort={port + 2}",
        f"httpTokenFile={token}",
    ]  # fmt: skip
    with LiveProgram(words, tmp_path / "broker.log") as program:
        program.wait_until_serving(90.0)
        for path in ("/metrics", "/metrics/exporter"):
            for wrong in ({}, {"Authorization": "Bearer s3cre"}, {"Authorization": "Basic s3cret"}):
                assert scrape(port + 2, path, **wrong)[0] == 401
            assert scrape(port + 2, path, Authorization="Bearer s3cret")[0] == 200
        assert scrape(port + 2, "/readyz")[0] == 200
