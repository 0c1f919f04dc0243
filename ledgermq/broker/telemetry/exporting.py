"""Exporting: OpenTelemetry's exporters over HTTP, in threads of their own.

Spans wait in a bounded queue of the SDK, which a thread of its sends each few seconds. Metrics are
sent one reading at a time. What a collector does not take within a few seconds is lost; nothing of
the broker waits for it. `OTEL_EXPORTER_OTLP_HEADERS`, `_CERTIFICATE`, `_CLIENT_CERTIFICATE`,
`_CLIENT_KEY`, `_COMPRESSION` and `OTEL_RESOURCE_ATTRIBUTES` of the environment count, as the SDK
reads them.
"""

import importlib
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from opentelemetry.sdk.metrics.export import Metric, MetricsData, ResourceMetrics, ScopeMetrics
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from twisted.logger import Logger

from ledgermq.broker.telemetry.brief_session import brief_session
from ledgermq.broker.telemetry.spans import NAME

_EXPORTERS: Final = "opentelemetry.exporter.otlp.proto.http"
_TIMEOUT_S: Final = 5.0
_SPANS_MAX: Final = 1024
_SPANS_EACH_MS: Final = 2000

_log = Logger()


class _ToLog(logging.Handler):
    """What the SDK says, which it says by Python's own loggers, into the log of this program."""

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        _log.warn("OpenTelemetry: {text}", text=text, repeats_as=f"OpenTelemetry {record.msg}")


class Exporting:
    """The exporters of one broker; nothing is sent before there is anything to send."""

    def __init__(self, endpoint: str, attributes: Mapping[str, str], version: str) -> None:
        """Makes the exporters.

        Args:
            endpoint: of a collector, as http://127.0.0.1:4318.
            attributes: who sends: service.name and so on.
            version: of this program.

        Raises:
            ImportError: the exporters are not installed.
        """
        _hear_the_sdk()
        traces: Any = importlib.import_module(f"{_EXPORTERS}.trace_exporter")
        metrics: Any = importlib.import_module(f"{_EXPORTERS}.metric_exporter")
        base = endpoint.rstrip("/")
        self._resource = Resource.create(attributes)
        self._scope = InstrumentationScope(NAME, version)
        # Who comes here was sampled by the sender.
        self.provider = TracerProvider(
            sampler=ALWAYS_ON, resource=self._resource, shutdown_on_exit=False
        )
        self.provider.add_span_processor(
            BatchSpanProcessor(
                traces.OTLPSpanExporter(
                    endpoint=f"{base}/v1/traces", timeout=_TIMEOUT_S, session=brief_session()
                ),
                max_queue_size=_SPANS_MAX,
                schedule_delay_millis=_SPANS_EACH_MS,
            )
        )
        self._metrics: Any = metrics.OTLPMetricExporter(
            endpoint=f"{base}/v1/metrics", timeout=_TIMEOUT_S, session=brief_session()
        )

    def send_metrics(self, metrics: Sequence[Metric]) -> None:
        """Sends a reading, in a thread that may wait; what goes wrong is told in the log."""
        scope = ScopeMetrics(self._scope, metrics, "")
        self._metrics.export(MetricsData([ResourceMetrics(self._resource, [scope], "")]))

    def close(self) -> None:
        """Sends what waits and ends the SDK's thread, in a thread that may wait."""
        self.provider.shutdown()
        self._metrics.shutdown()


def _hear_the_sdk() -> None:
    logger = logging.getLogger("opentelemetry")
    if not any(isinstance(handler, _ToLog) for handler in logger.handlers):
        logger.addHandler(_ToLog(logging.WARNING))
        logger.propagate = False
