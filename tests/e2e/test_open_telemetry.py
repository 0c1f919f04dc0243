"""What a collector of OpenTelemetry gets of a broker: spans below those of clients, and metrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from ledgermq.broker.watching.families import FAMILIES
from ledgermq.client import ClientConfig, Message, ProducerConfig, TransactionState
from ledgermq.client.blocking import LitePullConsumer, Producer, TransactionalProducer
from ledgermq.client.otel import OpenTelemetryHooks
from ledgermq.testing import LedgerCluster
from tests.e2e.otlp_collector import Collector, attributes_of, collector
from tests.free_ports import free_ports
from tests.waiting import wait_until

# SPAN_KIND_SERVER, STATUS_CODE_ERROR; temporality of sums since the start.
_SERVER, _CUMULATIVE = 2, 2


@pytest.fixture(scope="module")
def found() -> Iterator[Collector]:
    with collector() as found:
        yield found


@pytest.fixture(scope="module")
def cluster(found: Collector) -> Iterator[LedgerCluster]:
    settings = {"otlpEndpoint": found.endpoint, "otlpMetricsIntervalSeconds": 1}
    with LedgerCluster(nodes=1, settings=settings) as cluster:
        for topic in ("traced", "silent", "several", "traded"):
            cluster.create_topic(topic, queues=1)
        yield cluster


def sent_spans(cluster: LedgerCluster, messages: list[Message], **options: Any) -> list[Any]:
    """Sends messages with a span for each; returns these spans."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(**options)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    client = ClientConfig(hooks=OpenTelemetryHooks(provider))
    with Producer(cluster.name_server, config=ProducerConfig(client=client)) as producer:
        for message in messages:
            producer.send(message)
    return list(exporter.get_finished_spans())


def pulled(cluster: LedgerCluster, topic: str, count: int) -> None:
    with LitePullConsumer(cluster.name_server, f"readers-{topic}", start="first") as consumer:
        consumer.subscribe(topic)
        seen = 0
        while seen < count:
            seen += len(consumer.poll())


def test_store_and_pull_belong_to_the_trace_of_the_send(
    cluster: LedgerCluster, found: Collector
) -> None:
    (sent,) = sent_spans(cluster, [Message("traced", b"body")])
    pulled(cluster, "traced", 1)
    wait_until(lambda: found.spans("store traced") and found.spans("pull traced"), what="spans")
    (stored,), (given,) = found.spans("store traced"), found.spans("pull traced")
    for span in (stored, given):
        assert span.trace_id == sent.context.trace_id.to_bytes(16, "big")
        assert span.parent_span_id == sent.context.span_id.to_bytes(8, "big")
        assert span.kind == _SERVER
        assert span.start_time_unix_nano <= span.end_time_unix_nano
    told = attributes_of(stored)
    assert told["messaging.system"] == "rocketmq"
    assert told["messaging.destination.name"] == "traced"
    assert told["messaging.message.id"] == cluster.messages("traced")[0].offset_message_id
    assert told["messaging.message.body.size"] == 4
    assert told["ledgermq.commit_ms"] >= 0
    told = attributes_of(given)
    assert told["messaging.consumer.group.name"] == "readers-traced"
    assert told["ledgermq.queue_offset"] == 0
    who = found.resources()[0]
    assert who["service.name"] == "ledgermq" and who["service.instance.id"].endswith("/n0")


def test_a_pull_of_several_has_links_and_a_trace_of_its_own(
    cluster: LedgerCluster, found: Collector
) -> None:
    sent = sent_spans(cluster, [Message("several", b"%d" % number) for number in range(3)])
    pulled(cluster, "several", 3)
    wait_until(lambda: found.spans("pull several"), what="the span of the pull")
    linked = [
        (link.trace_id, link.span_id) for span in found.spans("pull several") for link in span.links
    ]
    ids = [(one.context.trace_id, one.context.span_id) for one in sent]
    assert linked == [(trace.to_bytes(16, "big"), span.to_bytes(8, "big")) for trace, span in ids]
    (given,) = found.spans("pull several")
    assert given.parent_span_id == b""


def test_a_half_message_and_its_commit_belong_to_the_trace_of_the_send(
    cluster: LedgerCluster, found: Collector
) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    config = ProducerConfig(client=ClientConfig(hooks=OpenTelemetryHooks(provider)))
    producer = TransactionalProducer(
        cluster.name_server, "traders", lambda _: TransactionState.UNKNOWN, config=config
    )
    with producer:
        producer.rollback(producer.send_half(Message("traded", b"1")))
        producer.commit(producer.send_half(Message("traded", b"2")))
    wait_until(lambda: found.spans("store traded"), what="the span of the commit")
    ids = [one.context.trace_id.to_bytes(16, "big") for one in exporter.get_finished_spans()]
    assert [one.trace_id for one in found.spans("store RMQ_SYS_TRANS_HALF_TOPIC")] == ids
    # Nothing is stored for the one that was rolled back.
    assert [one.trace_id for one in found.spans("store traded")] == ids[1:]


def test_what_is_not_sampled_has_no_span(cluster: LedgerCluster, found: Collector) -> None:
    with Producer(cluster.name_server) as producer:
        producer.send(Message("silent", b"traceparent\x0100-" + b"1" * 32 + b"-" + b"2" * 16))
        unsampled = {"traceparent": f"00-{'1' * 32}-{'2' * 16}-00"}
        producer.send(Message("silent", b"2", properties=unsampled))
        wrong = {"traceparent": f"00-{'0' * 32}-{'2' * 16}-01"}
        producer.send(Message("silent", b"3", properties=wrong))
    sent_spans(cluster, [Message("silent", b"4")], sampler=ALWAYS_OFF)
    pulled(cluster, "silent", 4)
    # Spans are sent in their order: what comes behind is there.
    before = len(found.spans("store traced"))
    sent_spans(cluster, [Message("traced", b"behind")])
    wait_until(lambda: len(found.spans("store traced")) > before, what="a later span")
    assert found.spans("store silent") == found.spans("pull silent") == []


def test_metrics_are_those_of_the_page(cluster: LedgerCluster, found: Collector) -> None:
    with Producer(cluster.name_server) as producer:
        producer.send(Message("counted", b"1"))

    def counted() -> list[Any]:
        metric = found.metrics().get("rocketmq_messages_in_total")
        points = [] if metric is None else metric.sum.data_points
        return [point for point in points if attributes_of(point)["topic"] == "counted"]

    wait_until(lambda: counted(), what="a reading of the metrics")
    (point,) = counted()
    labels = attributes_of(point)
    assert point.as_int == 1
    assert labels["node_type"] == "broker" and labels["message_type"] == "normal"
    metrics = found.metrics()
    assert set(metrics) <= set(FAMILIES)
    assert {"ledgermq_raft_term", "ledgermq_disk_sync_duration_seconds"} <= set(metrics)
    sums = metrics["rocketmq_messages_in_total"].sum
    assert sums.is_monotonic and sums.aggregation_temporality == _CUMULATIVE
    turns = metrics["ledgermq_raft_commit_duration_seconds"].histogram.data_points[0]
    assert turns.count == sum(turns.bucket_counts) > 0
    assert len(turns.bucket_counts) == len(turns.explicit_bounds) + 1
    assert not turns.HasField("min") and not turns.HasField("max")
    assert metrics["ledgermq_raft_is_leader"].gauge.data_points[0].as_int == 1


def test_a_collector_that_is_not_there_harms_nobody() -> None:
    [port] = free_ports(1)
    settings = {"otlpEndpoint": f"http://127.0.0.1:{port}", "otlpMetricsIntervalSeconds": 1}
    with LedgerCluster(nodes=1, settings=settings) as cluster:
        sent_spans(cluster, [Message("alone", b"%d" % number) for number in range(20)])
        assert len(cluster.messages("alone")) == 20
