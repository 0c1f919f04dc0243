"""OpenTelemetry: a span for each send and each delivery, tied together across processes; meters.

    ClientConfig(hooks=OpenTelemetryHooks(), metrics=OpenTelemetryMetrics())

The context of the sending span travels in the properties of the message (`traceparent` and what
else the propagator writes), so that a delivery belongs to the trace of its send, also when a client
of another language sent it. A listener runs inside of its span. Polling and iterating give a span
that links to the sends. Needs the extra `ledgermq[otel]`.

Names and attributes: OpenTelemetry's semantic conventions for messaging with RocketMQ.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ledgermq.client.errors import ConfigError
from ledgermq.client.messages import Message, ReceivedMessage, SendResult
from ledgermq.protocol.errors import RemoteProtocolError

try:
    from opentelemetry import metrics, propagate, trace

    _MISSING: ImportError | None = None
except ImportError as missing:
    _MISSING = missing

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.util.types import AttributeValue

_NAME: Final = "ledgermq.client"
# As the conventions advise.
_BOUNDS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)


class _Span:
    """A send that has begun."""

    def __init__(self, span: "trace.Span", messages: list[Message]) -> None:
        self.messages = messages
        self._span = span

    def acknowledged(self, result: SendResult | None, /) -> None:
        if result is not None:
            self._span.set_attribute("messaging.message.id", result.message_id)
            self._span.set_attribute("messaging.destination.partition.id", str(result.queue_id))
            self._span.set_attribute("messaging.rocketmq.broker_name", result.broker_name)
        self._span.end()

    def failed(self, error: BaseException, /) -> None:
        _note_failure(self._span, error)
        self._span.end()


class OpenTelemetryHooks:
    """Hooks of a client that make spans."""

    def __init__(self, tracer_provider: "trace.TracerProvider | None" = None) -> None:
        """Makes no span yet.

        Args:
            tracer_provider: None takes the global one.

        Raises:
            ConfigError: OpenTelemetry is not installed.
        """
        _check_installed()
        self._tracer = trace.get_tracer(_NAME, tracer_provider=tracer_provider)

    def send(self, messages: Sequence[Message], group: str, /) -> _Span:
        """Begins a span, and puts its context into the properties of the messages."""
        first = messages[0]
        attributes = _attributes("send", "send", first.topic)
        attributes["messaging.rocketmq.client_group"] = group
        if len(messages) > 1:
            attributes["messaging.batch.message_count"] = len(messages)
        elif isinstance(first.body, bytes):
            attributes["messaging.message.body.size"] = len(first.body)
        if len(messages) == 1:
            attributes |= _words(first.tags, first.keys)
        if first.delay_level:
            attributes["messaging.rocketmq.message.delay_time_level"] = first.delay_level
        span = self._tracer.start_span(
            f"send {first.topic}", kind=trace.SpanKind.PRODUCER, attributes=attributes
        )
        carrier: dict[str, str] = {}
        propagate.inject(carrier, trace.set_span_in_context(span))
        # A context that the program wrote itself stays.
        carried = [
            replace(message, properties={**carrier, **message.properties}) for message in messages
        ]
        return _Span(span, carried)

    def consume(self, message: ReceivedMessage, group: str, /) -> AbstractContextManager[None]:
        """Returns what a listener is called in: a span below the one that sent the message."""
        return self._consuming(message, group)

    @contextmanager
    def _consuming(self, message: ReceivedMessage, group: str) -> Iterator[None]:
        attributes = _attributes("process", "process", message.topic)
        attributes["messaging.consumer.group.name"] = group
        attributes["messaging.destination.partition.id"] = str(message.queue.queue_id)
        attributes["messaging.rocketmq.broker_name"] = message.queue.broker_name
        attributes["messaging.message.body.size"] = len(message.record.body)
        if message.reconsume_times:
            attributes["messaging.rocketmq.message.reconsume_times"] = message.reconsume_times
        context = _context_of(message)
        if context is not None:
            attributes["messaging.message.id"] = message.message_id
            attributes |= _words(message.tags, message.keys)
        with self._tracer.start_as_current_span(
            f"process {message.topic}",
            context=context,
            kind=trace.SpanKind.CONSUMER,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except Exception as error:
                _note_failure(span, error)
                raise

    def receive(self, messages: Sequence[ReceivedMessage], group: str, /) -> None:
        """Makes a span that links to the sends of what is given."""
        topic = messages[0].topic
        attributes = _attributes("poll", "receive", topic)
        attributes["messaging.consumer.group.name"] = group
        attributes["messaging.batch.message_count"] = len(messages)
        spans = [trace.get_current_span(_context_of(message)) for message in messages]
        links = [
            trace.Link(context) for span in spans if (context := span.get_span_context()).is_valid
        ]
        self._tracer.start_span(
            f"poll {topic}", kind=trace.SpanKind.CLIENT, attributes=attributes, links=links
        ).end()


class OpenTelemetryMetrics:
    """Metrics of a client as OpenTelemetry's instruments.

    messaging.client.sent.messages, messaging.client.consumed.messages: counters of messages;
    messaging.client.operation.duration (send), messaging.process.duration: histograms in seconds.
    """

    def __init__(self, meter_provider: "metrics.MeterProvider | None" = None) -> None:
        """Makes the instruments.

        Args:
            meter_provider: None takes the global one.

        Raises:
            ConfigError: OpenTelemetry is not installed.
        """
        _check_installed()
        meter = metrics.get_meter(_NAME, meter_provider=meter_provider)
        self._sent = meter.create_counter(
            "messaging.client.sent.messages",
            unit="{message}",
            description="Messages that a producer tried to send.",
        )
        self._send_s = meter.create_histogram(
            "messaging.client.operation.duration",
            unit="s",
            description="Time of a send, with all its tries.",
            explicit_bucket_boundaries_advisory=_BOUNDS_S,
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages",
            unit="{message}",
            description="Messages that a listener was called with.",
        )
        self._process_s = meter.create_histogram(
            "messaging.process.duration",
            unit="s",
            description="Time of a call of a listener.",
            explicit_bucket_boundaries_advisory=_BOUNDS_S,
        )

    def sent(self, topic: str, group: str, count: int, seconds: float, error: str, /) -> None:
        """Counts a send."""
        attributes = _attributes("send", "send", topic)
        attributes["messaging.rocketmq.client_group"] = group
        if error:
            attributes["error.type"] = error
        self._sent.add(count, attributes)
        self._send_s.record(seconds, attributes)

    def consumed(self, topic: str, group: str, seconds: float, outcome: str, /) -> None:
        """Counts a delivery."""
        attributes = _attributes("process", "process", topic)
        attributes["messaging.consumer.group.name"] = group
        if outcome != "done":
            attributes["error.type"] = outcome
        self._consumed.add(1, attributes)
        self._process_s.record(seconds, attributes)


def _check_installed() -> None:
    if _MISSING is not None:
        raise ConfigError(
            "OpenTelemetry is not installed; install LedgerMQ with its extra otel"
        ) from _MISSING


def _attributes(operation: str, kind: str, topic: str) -> "dict[str, AttributeValue]":
    return {
        "messaging.system": "rocketmq",
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
        "messaging.destination.name": topic,
    }


def _words(tags: str, keys: str) -> "dict[str, AttributeValue]":
    words: dict[str, AttributeValue] = {}
    if tags:
        words["messaging.rocketmq.message.tag"] = tags
    if keys:
        words["messaging.rocketmq.message.keys"] = tuple(keys.split())
    return words


def _context_of(message: ReceivedMessage) -> "Context | None":
    """Returns the context that a message carries; None when its properties are not readable."""
    try:
        return propagate.extract(message.properties)
    except RemoteProtocolError:
        return None


def _note_failure(span: "trace.Span", error: BaseException) -> None:
    span.record_exception(error)
    span.set_status(trace.Status(trace.StatusCode.ERROR, f"{type(error).__name__}: {error}"))
    span.set_attribute("error.type", type(error).__qualname__)
