"""Where a collector may be."""

from __future__ import annotations

import pytest

from ledgermq.broker.config.broker_config import load_broker_config
from ledgermq.state.errors import ConfigError


@pytest.mark.parametrize(
    "endpoint", ["", "http://127.0.0.1:4318", "https://collector/otlp", "http://[::1]:4318/"]
)
def test_collectors_that_can_be_asked(endpoint: str) -> None:
    assert load_broker_config(None, {"otlpEndpoint": endpoint}).otlp_endpoint == endpoint


@pytest.mark.parametrize(
    "endpoint",
    [
        "127.0.0.1:4318",
        "grpc://127.0.0.1:4317",
        "http://",
        "http://host:port",
        "http://host:0",
        "http://host:99999",
        "http://user:secret@host:4318",
        "http://host:4318?a=b",
    ],
)
def test_others_are_refused(endpoint: str) -> None:
    with pytest.raises(ConfigError, match="otlpEndpoint"):
        load_broker_config(None, {"otlpEndpoint": endpoint})
