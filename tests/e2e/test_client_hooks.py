"""Serializers and OpenTelemetry spans on the way of a message through a real cluster."""

import asyncio
import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from ledgermq.client import (
    ClientConfig,
    ConsumerConfig,
    LitePullConsumer,
    Message,
    MessageError,
    Producer,
    ProducerConfig,
    PushConsumer,
    ReceivedMessage,
    SendError,
    TransactionalProducer,
    TransactionState,
    blocking,
    json_serializer,
)
from ledgermq.client.otel import OpenTelemetryHooks
from ledgermq.protocol.codes import ResponseCode
from tests.e2e.scripted_broker import ScriptedBroker
from tests.scenarios import run

ROOT = Path(__file__).resolve().parents[2]
_numbers = itertools.count()


@pytest.fixture
def topic() -> str:
    """A topic of a test's own."""
    return f"Hooked{next(_numbers)}"


class Spans:
    """A tracer provider of a test's own, and what it has exported."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.client = ClientConfig(hooks=OpenTelemetryHooks(self.provider))

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return {name.removeprefix("messaging."): value for name, value in span.attributes.items()}


def test_values_travel_through_a_serializer(name_server: str, topic: str) -> None:
    with (
        blocking.Producer(name_server, serializer=json_serializer) as producer,
        blocking.LitePullConsumer(
            name_server, f"g{topic}", start="first", serializer=json_serializer
        ) as consumer,
    ):
        producer.send(Message(topic, {"order": 1}))
        producer.send_batch([Message(topic, [2]), Message(topic, None)])
        with pytest.raises(MessageError, match="cannot be serialized"):
            producer.send(Message(topic, object()))
        consumer.subscribe(topic)
        values: list[Any] = []
        while len(values) < 3:
            values += [message.value for message in consumer.poll()]
    assert sorted(map(str, values)) == sorted(map(str, [{"order": 1}, [2], None]))


@pytest.mark.parametrize("kind", ["coroutine", "plain"])
def test_delivery_belongs_to_the_trace_of_its_send(name_server: str, topic: str, kind: str) -> None:
    async def scenario() -> None:
        spans = Spans()
        tracer = trace.get_tracer("test", tracer_provider=spans.provider)
        done = asyncio.Event()
        loop = asyncio.get_running_loop()

        def plain(message: ReceivedMessage) -> None:
            with tracer.start_as_current_span("work"):
                loop.call_soon_threadsafe(done.set)

        async def coroutine(message: ReceivedMessage) -> None:
            plain(message)

        async with Producer(name_server, config=ProducerConfig(client=spans.client)) as producer:
            with tracer.start_as_current_span("order"):
                message = Message(topic, b"12345", keys="k1 k2", tags="A")
                sent = await producer.send(message)
        assert message.properties == {}
        listener = plain if kind == "plain" else coroutine
        async with PushConsumer(
            name_server, f"g{topic}", topic, listener, start="first",
            config=ConsumerConfig(client=spans.client),
        ):  # fmt: skip
            await done.wait()
        (order,), (send,) = spans.named("order"), spans.named(f"send {topic}")
        (process,), (work,) = spans.named(f"process {topic}"), spans.named("work")
        parents = [
            (child.parent.span_id, child.context.trace_id) for child in (send, process, work)
        ]
        trace_id = order.context.trace_id
        assert parents == [(parent.context.span_id, trace_id) for parent in (order, send, process)]
        assert (send.kind, process.kind) == (trace.SpanKind.PRODUCER, trace.SpanKind.CONSUMER)
        told = attributes(send)
        assert told["system"] == "rocketmq"
        assert told["destination.name"] == topic
        assert told["message.id"] == sent.message_id == attributes(process)["message.id"]
        assert told["message.body.size"] == 5
        assert told["rocketmq.message.tag"] == "A"
        assert told["rocketmq.message.keys"] == ("k1", "k2")
        assert attributes(process)["consumer.group.name"] == f"g{topic}"

    run(scenario())


def test_batches_transactions_and_polls_have_spans(name_server: str, topic: str) -> None:
    async def scenario() -> None:
        spans = Spans()

        async def check(message: ReceivedMessage) -> TransactionState:
            return TransactionState.UNKNOWN

        config = ProducerConfig(client=spans.client)
        async with (
            Producer(name_server, config=config) as producer,
            TransactionalProducer(name_server, f"t{topic}", check, config=config) as shop,
        ):
            await producer.send_batch([Message(topic, b"1"), Message(topic, b"2")])
            await producer.send_one_way(Message(topic, b"3"))
            async with shop.transaction(Message(topic, b"4")):
                pass
        batch, one_way, half = spans.named(f"send {topic}")
        assert attributes(batch)["batch.message_count"] == 2
        assert "message.id" not in attributes(one_way)
        assert "message.id" in attributes(half)
        count = 0
        async with LitePullConsumer(
            name_server, f"g{topic}", start="first", config=ConsumerConfig(client=spans.client)
        ) as consumer:
            await consumer.subscribe(topic)
            while count < 4:
                count += len(await consumer.poll())
        links = [
            link.context.span_id for span in spans.named(f"poll {topic}") for link in span.links
        ]
        expected = [batch, batch, one_way, half]
        assert sorted(links) == sorted(span.context.span_id for span in expected)

    run(scenario())


def test_failures_are_noted_in_their_spans(topic: str) -> None:
    async def scenario() -> None:
        spans = Spans()
        async with (
            ScriptedBroker() as broker,
            Producer(broker.address, config=ProducerConfig(client=spans.client)) as producer,
        ):
            broker.send_script.append(int(ResponseCode.MESSAGE_ILLEGAL))
            with pytest.raises(SendError):
                await producer.send(Message(topic, b"x"))
            with pytest.raises(MessageError):
                await producer.send(Message(topic, 5))
        refused, wrong = spans.named(f"send {topic}")
        for span, error in ((refused, "SendError"), (wrong, "MessageError")):
            assert span.status.status_code is trace.StatusCode.ERROR
            assert span.attributes["error.type"] == error

    run(scenario())


def test_listener_that_raises_fails_its_span_and_the_message_goes_back(
    name_server: str, topic: str
) -> None:
    async def scenario() -> None:
        spans = Spans()
        failed = asyncio.Event()

        async def listener(message: ReceivedMessage) -> None:
            failed.set()
            raise ValueError("no")

        async with Producer(name_server) as producer:
            await producer.send(Message(topic, b"x"))
        async with PushConsumer(
            name_server, f"g{topic}", topic, listener, start="first",
            config=ConsumerConfig(client=spans.client),
        ):  # fmt: skip
            await failed.wait()
        (span,) = spans.named(f"process {topic}")
        assert span.status.status_code is trace.StatusCode.ERROR
        assert span.attributes["error.type"] == "ValueError"
        # It was sent without a span.
        assert span.parent is None

    run(scenario())


def test_hooks_say_when_the_package_is_missing() -> None:
    program = """
import sys
sys.modules["opentelemetry"] = None
from ledgermq.client import ConfigError
from ledgermq.client.otel import OpenTelemetryHooks
try:
    OpenTelemetryHooks()
except ConfigError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.stderr == ""
    assert done.stdout == "OpenTelemetry is not installed; install LedgerMQ with its extra otel\n"
