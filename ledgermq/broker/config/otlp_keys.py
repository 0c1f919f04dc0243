"""The configuration keys of what is sent to a collector of OpenTelemetry."""

from typing import Any, Final
from urllib.parse import urlsplit

from ledgermq.broker.config.key import integer, text_key
from ledgermq.state.errors import ConfigError

OTLP_KEYS: Final = (
    text_key(
        "otlpEndpoint",
        "otlp_endpoint",
        "",
        "Collector of OpenTelemetry that gets metrics and spans by HTTP, as http://HOST:4318; needs"
        " the extra ledgermq[otel]; empty: none.",
    ),
    integer(
        "otlpMetricsIntervalSeconds",
        "otlp_metrics_s",
        60,
        "s",
        0,
        86_400,
        "Time between two readings of the metrics for the collector; 0: it gets none.",
    ),
    integer(
        "otlpSpansPerSecond",
        "otlp_spans_per_s",
        100,
        "",
        0,
        10_000,
        "Spans of sampled messages made in a second at most; 0: none are.",
    ),
)


def derive_otlp(values: dict[str, Any]) -> None:
    """Checks the address.

    Raises:
        ConfigError: it is none of HTTP.
    """
    endpoint = values["otlp_endpoint"]
    if not endpoint:
        return
    allowed = "an address as http://127.0.0.1:4318, or nothing"
    try:
        parts = urlsplit(endpoint)
        is_known = parts.scheme in ("http", "https") and bool(parts.hostname)
        is_known = is_known and (parts.port is None or parts.port > 0)
    except ValueError:
        is_known = False
    if not is_known or parts.query or parts.fragment or parts.username:
        raise ConfigError("otlpEndpoint", endpoint, allowed)
