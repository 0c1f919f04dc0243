"""A collector of OpenTelemetry for tests: it takes what comes by HTTP, and decodes all of it."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


class Collector:
    """What has come.

    Attributes:
        endpoint: for otlpEndpoint.
        status: what requests are answered with.
    """

    def __init__(self) -> None:
        self.endpoint = ""
        self.status = 200
        self._lock = threading.Lock()
        self._spans: list[Any] = []
        self._metrics: dict[str, Any] = {}
        self._resources: list[dict[str, Any]] = []

    def spans(self, name: str) -> list[Any]:
        """The spans of a name."""
        with self._lock:
            return [span for span in self._spans if span.name == name]

    def metrics(self) -> dict[str, Any]:
        """The newest of each metric by its name."""
        with self._lock:
            return dict(self._metrics)

    def resources(self) -> list[dict[str, Any]]:
        """Who has sent something."""
        with self._lock:
            return list(self._resources)

    def take(self, path: str, body: bytes) -> bytes:
        with self._lock:
            if path == "/v1/traces":
                traces = ExportTraceServiceRequest.FromString(body)
                for group in traces.resource_spans:
                    self._resources.append(attributes_of(group.resource))
                    for scope in group.scope_spans:
                        self._spans += scope.spans
                return bytes(ExportTraceServiceResponse().SerializeToString())
            assert path == "/v1/metrics", path
            metrics = ExportMetricsServiceRequest.FromString(body)
            for group in metrics.resource_metrics:
                self._resources.append(attributes_of(group.resource))
                for scope in group.scope_metrics:
                    self._metrics |= {metric.name: metric for metric in scope.metrics}
            return bytes(ExportMetricsServiceResponse().SerializeToString())


def attributes_of(owner: Any) -> dict[str, Any]:
    """Attributes of a span, a point or a resource as plain values."""
    return {
        pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in owner.attributes
    }


@contextmanager
def collector() -> Iterator[Collector]:
    """One that listens."""
    found = Collector()

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            answer = found.take(self.path, body) if found.status == 200 else b""
            self.send_response(found.status)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    found.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
