"""Settings are checked when they are made."""

import pytest

from ledgermq.client.config import ClientConfig, ConsumerConfig, ProducerConfig, parse_addresses
from ledgermq.client.errors import ClientError, ConfigError, RefusedError


def test_addresses_are_separated_by_semicolons_or_commas() -> None:
    assert parse_addresses("a:1; b:2,[::1]:3;") == ("a:1", "b:2", "[::1]:3")


@pytest.mark.parametrize("text", ["", ";", "host", "host:", ":1", "h:0", "h:65536", "h:x"])
def test_wrong_address_is_named(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_addresses(text)


def test_wrong_values_name_the_setting_and_its_range() -> None:
    with pytest.raises(ConfigError, match="in_flight_max is 0; allowed: 1 to 65535"):
        ProducerConfig(in_flight_max=0)
    with pytest.raises(ConfigError, match="concurrency"):
        ConsumerConfig(concurrency=0)
    with pytest.raises(ConfigError, match="heartbeat_interval_s"):
        ClientConfig(heartbeat_interval_s=200)
    # A body that fits, but not with its header in one frame.
    with pytest.raises(ConfigError, match="body_bytes_max"):
        ProducerConfig(body_bytes_max=16 * 1024 * 1024)


def test_error_shows_the_fields_it_carries() -> None:
    error = ClientError("what", broker="b", topic="t", queue_id=3, code=14)
    assert str(error) == "what (broker b, topic t, queue 3, code 14 SERVICE_NOT_AVAILABLE)"
    assert str(RefusedError(77, None)) == "refused: no reason given (code 77)"
