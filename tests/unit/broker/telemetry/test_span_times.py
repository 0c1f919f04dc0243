"""A span ends no earlier than it begins, however the clocks look at each other."""

from itertools import count

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from ledgermq.broker.telemetry.contexts import Carried
from ledgermq.broker.telemetry.pull_spans import Given, GivenMessage
from ledgermq.broker.telemetry.send_spans import Stored
from ledgermq.broker.telemetry.spans import Spans

_CARRIED = Carried(f"00-{'1' * 32}-{'2' * 16}-01", "")


def test_both_ends_are_told_by_one_look_at_the_clocks() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    # The wall clock stands within a millisecond, the other one goes on.
    looks = count()
    spans = Spans(
        provider,
        broker_name="broker-a",
        store_host_hex="7F00000100002A9F",
        clock_ms=lambda: 1_000.0 + next(looks) * 0.01,
        now_ms=lambda: 1_700_000_000_000,
    )
    spans.gave(Given("T", "G", 0, 1, (GivenMessage(_CARRIED, 5, 1),), 999.0, 999.002))
    spans.stored(Stored(_CARRIED, "T", 0, 7, 100, 5, 4, 999.0, 999.001, 999.001), 999.002, "")
    gave, stored = exporter.get_finished_spans()
    for span in (gave, stored):
        assert span.start_time is not None and span.end_time is not None
        assert span.end_time - span.start_time == 2_000
