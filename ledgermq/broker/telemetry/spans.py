"""Spans: what was stored and given, as spans of OpenTelemetry of kind SERVER.

    store <topic>   below the sender's span: from the reading of a message to its commit
    pull <topic>    below the sender's span when one traced message was given, with links to the
                    senders' spans when there were several

Names and attributes: OpenTelemetry's semantic conventions for messaging with RocketMQ, and
`ledgermq.*` for what they do not know.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from ledgermq.broker.telemetry.contexts import Carried
from ledgermq.broker.telemetry.pull_spans import Given
from ledgermq.broker.telemetry.send_spans import Stored

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.util.types import AttributeValue

NAME: Final = "ledgermq.broker"
_NS_IN_MS: Final = 1_000_000


class Spans:
    """Makes the spans of one broker."""

    def __init__(
        self,
        provider: trace.TracerProvider,
        *,
        broker_name: str,
        store_host_hex: str,
        clock_ms: Callable[[], float],
        now_ms: Callable[[], int],
    ) -> None:
        """Binds the parts.

        Args:
            provider: samples all, as what comes here was sampled by its sender.
            broker_name: told with each span.
            store_host_hex: address and port of this broker as message ids begin.
            clock_ms: monotonic time.
            now_ms: wall clock.
        """
        self._tracer = trace.get_tracer(NAME, tracer_provider=provider)
        self._broker_name, self._id_prefix = broker_name, store_host_hex
        self._clock_ms, self._now_ms = clock_ms, now_ms
        self._propagator = TraceContextTextMapPropagator()

    def stored(self, message: Stored, ended_ms: float, error: str) -> None:
        """Makes the span of a message that was sent to this broker."""
        attributes = self._attributes("store", "send", message.topic, message.queue_id)
        attributes |= {
            "messaging.message.id": f"{self._id_prefix}{message.physical_offset:016X}",
            "messaging.message.body.size": message.body_bytes,
            "ledgermq.queue_offset": message.queue_offset,
            "ledgermq.index": message.index,
            "ledgermq.check_ms": round(message.checked_ms - message.read_ms, 3),
            "ledgermq.append_ms": round(message.appended_ms - message.checked_ms, 3),
            "ledgermq.commit_ms": round(ended_ms - message.appended_ms, 3),
        }
        started_ns, ended_ns = self._wall_ns(message.read_ms, ended_ms)
        span = self._tracer.start_span(
            f"store {message.topic}",
            context=self._context(message.carried),
            kind=trace.SpanKind.SERVER,
            attributes=attributes,
            start_time=started_ns,
        )
        if error:
            span.set_status(trace.Status(trace.StatusCode.ERROR, error))
        span.end(ended_ns)

    def gave(self, given: Given) -> None:
        """Makes the span of an answer to a pull."""
        messages = given.messages
        oldest_ms = min(message.store_timestamp for message in messages)
        attributes = self._attributes("pull", "receive", given.topic, given.queue_id)
        attributes |= {
            "messaging.consumer.group.name": given.group,
            "messaging.batch.message_count": given.message_count,
            "ledgermq.queue_offset": messages[0].queue_offset,
            "ledgermq.stored_ms": max(self._now_ms() - oldest_ms, 0),
        }
        contexts = [self._context(message.carried) for message in messages]
        is_one = len(contexts) == 1
        spans = () if is_one else tuple(map(trace.get_current_span, contexts))
        started_ns, ended_ns = self._wall_ns(given.begun_ms, given.ended_ms)
        self._tracer.start_span(
            f"pull {given.topic}",
            context=contexts[0] if is_one else trace.set_span_in_context(trace.INVALID_SPAN),
            kind=trace.SpanKind.SERVER,
            attributes=attributes,
            links=[trace.Link(span.get_span_context()) for span in spans],
            start_time=started_ns,
        ).end(ended_ns)

    def _attributes(
        self, operation: str, kind: str, topic: str, queue_id: int
    ) -> "dict[str, AttributeValue]":
        return {
            "messaging.system": "rocketmq",
            "messaging.operation.name": operation,
            "messaging.operation.type": kind,
            "messaging.destination.name": topic,
            "messaging.destination.partition.id": str(queue_id),
            "messaging.rocketmq.broker_name": self._broker_name,
        }

    def _context(self, carried: Carried) -> "Context":
        headers = {"traceparent": carried.traceparent, "tracestate": carried.tracestate}
        return self._propagator.extract(headers)

    def _wall_ns(self, begun_ms: float, ended_ms: float) -> tuple[int, int]:
        """Returns when something began and ended by the wall clock, which is read once: of two
        looks at both clocks the second may tell an end before the begin.
        """
        ended_ns = int((self._now_ms() - (self._clock_ms() - ended_ms)) * _NS_IN_MS)
        return ended_ns - round((ended_ms - begun_ms) * _NS_IN_MS), ended_ns
