"""How many sends and deliveries there are, and how long they take, for hooks and meters."""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from ledgermq.client import (
    BURY,
    ClientConfig,
    ConsumerConfig,
    Message,
    Producer,
    ProducerConfig,
    PushConsumer,
    ReceivedMessage,
    SendError,
    retry,
)
from ledgermq.client.config import Mode
from ledgermq.client.hooks import Metrics, Sending
from ledgermq.client.otel import OpenTelemetryMetrics
from ledgermq.protocol.codes import ResponseCode
from ledgermq.protocol.command import RemotingCommand
from tests.unit.client.virtual_broker import SENDS, Link
from tests.unit.client.virtual_net import Net, run, true

NAMES = "127.0.0.1:9876"
BROKER = "127.0.0.1:10911"


class Noted:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.sends: list[tuple[str, str, int, str]] = []
        self.deliveries: list[tuple[str, str, str]] = []
        self.seconds: list[float] = []

    def sent(self, topic: str, group: str, count: int, seconds: float, error: str, /) -> None:
        self.sends.append((topic, group, count, error))
        self.seconds.append(seconds)

    def consumed(self, topic: str, group: str, seconds: float, outcome: str, /) -> None:
        assert seconds >= 0
        self.deliveries.append((topic, group, outcome))


async def traffic(net: Net, metrics: Metrics, linger_s: float = 0.0) -> None:
    """Sends that succeed and fail, and a listener that says everything there is to say."""
    broker = net.cluster(NAMES, BROKER)
    client = ClientConfig(metrics=metrics)

    def refuse(link: Link, request: RemotingCommand) -> bool:
        if request.code not in SENDS or request.body != b"no":
            return False
        link.answer(request.response(ResponseCode.MESSAGE_ILLEGAL, "no such thing"))
        return True

    broker.on_request = refuse
    config = ProducerConfig(client=client, linger_s=linger_s)
    async with Producer(NAMES, "p", config=config) as producer:
        for body in (b"done", b"retry", b"bury", b"error"):
            await producer.send(Message("T", body))
        await producer.send_batch([Message("U", b"1"), Message("U", b"2")])
        with pytest.raises(SendError):
            await producer.send(Message("T", b"no"))
    calls = 0

    async def listen(message: ReceivedMessage) -> Any:
        nonlocal calls
        calls += 1
        if message.body == b"error":
            raise ValueError("as the test says")
        return {b"retry": retry(), b"bury": BURY}.get(message.body)

    async with PushConsumer(
        NAMES, "g", "T", listen, start="first", config=ConsumerConfig(client=client)
    ) as consumer:
        await true(lambda: calls == 4 and not consumer.pending_count)


@pytest.mark.parametrize("linger_s", [0.0, 0.5])
def test_each_send_and_each_delivery_is_told_with_its_outcome(linger_s: float) -> None:
    noted = Noted()
    run(lambda net: traffic(net, noted, linger_s))
    sent = [("T", "p", 1, "")] * 4 + [("U", "p", 2, ""), ("T", "p", 1, "SendError")]
    assert noted.sends == sent
    assert sorted(noted.deliveries) == sorted(
        ("T", "g", outcome) for outcome in ("done", "retry", "bury", "error")
    )
    # With all that a send waited for.
    assert all(seconds >= linger_s for seconds in noted.seconds[:4])


class Broken(Noted):
    """Raises whatever it is told."""

    def sent(self, *told: Any) -> None:
        raise ValueError("sent")

    def consumed(self, *told: Any) -> None:
        raise ValueError("consumed")


class BrokenBehind:
    """Hooks that raise when a listener has returned."""

    def send(self, messages: Sequence[Message], group: str, /) -> Sending:
        raise AssertionError("nothing is sent")

    @contextlib.contextmanager
    def consume(self, message: ReceivedMessage, group: str, /) -> Iterator[None]:
        yield
        raise ValueError("behind")

    def receive(self, messages: Sequence[ReceivedMessage], group: str, /) -> None:
        """Nobody polls."""


@pytest.mark.parametrize(
    "broken", [ClientConfig(metrics=Broken()), ClientConfig(hooks=BrokenBehind())]
)
@pytest.mark.parametrize("mode", ["concurrent", "orderly"])
def test_what_raises_behind_a_listener_is_told_once_and_each_message_is_done(
    broken: ClientConfig, mode: Mode, caplog: pytest.LogCaptureFixture
) -> None:
    """The listener was called again and again for a message that it had done."""
    heard: list[bytes] = []

    async def listen(message: ReceivedMessage) -> None:
        heard.append(message.body)

    async def scenario(net: Net) -> None:
        net.cluster(NAMES, BROKER)
        async with Producer(NAMES, "p") as producer:
            for number in range(3):
                await producer.send(Message("T", b"%d" % number))
        config = ConsumerConfig(client=broken)
        async with PushConsumer(
            NAMES, "g", "T", listen, start="first", mode=mode, config=config
        ) as consumer:
            await true(lambda: len(heard) >= 3 and not consumer.pending_count)
            await asyncio.sleep(600)

    run(scenario)
    assert sorted(heard) == [b"0", b"1", b"2"]
    told = [line for line in caplog.messages if "failed" in line]
    assert len(told) == 1 and told[0].endswith("of g failed; this is told once")


def test_metrics_that_raise_do_not_disturb_a_send(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(net: Net) -> None:
        net.cluster(NAMES, BROKER)
        complaints: list[dict[str, Any]] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, complaint: complaints.append(complaint))
        config = ProducerConfig(client=ClientConfig(metrics=Broken()))
        async with Producer(NAMES, "p", config=config) as producer:
            for _ in range(3):
                await producer.send(Message("T", b"x"))
        assert complaints == []

    run(scenario)
    assert caplog.messages == ["metrics of p failed; this is told once"]


def test_meters_have_the_names_of_the_conventions() -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    run(lambda net: traffic(net, OpenTelemetryMetrics(provider)))
    data = reader.get_metrics_data()
    assert data is not None
    (scope,) = data.resource_metrics[0].scope_metrics
    points = {metric.name: list(metric.data.data_points) for metric in scope.metrics}
    counted = {
        (point.attributes["messaging.destination.name"], point.attributes.get("error.type")): (
            point.value
        )
        for point in points["messaging.client.sent.messages"]
    }
    assert counted == {("T", None): 4, ("U", None): 2, ("T", "SendError"): 1}
    outcomes = {
        point.attributes.get("error.type"): point.value
        for point in points["messaging.client.consumed.messages"]
    }
    assert outcomes == {None: 1, "retry": 1, "bury": 1, "error": 1}
    assert sum(one.count for one in points["messaging.client.operation.duration"]) == 6
    assert sum(one.count for one in points["messaging.process.duration"]) == 4
    provider.shutdown()
