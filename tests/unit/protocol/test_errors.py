"""The text of an error names field, value and limit, and stays short whatever the peer sent."""

import pytest

from ledgermq.protocol.errors import (
    ConnectionClosedError,
    LocalProtocolError,
    ProtocolError,
    RemoteProtocolError,
    RequestTimeoutError,
)

REMARK_BYTES_MAX = 1024


def test_text_is_built_from_the_fields() -> None:
    error = RemoteProtocolError("frame length", -1, "4 to 16777212")
    assert (error.field, error.value, error.limit) == ("frame length", -1, "4 to 16777212")
    assert str(error) == "frame length is -1, allowed: '4 to 16777212'"


def test_missing_value_is_called_missing() -> None:
    assert str(RemoteProtocolError("topic", None)) == "topic is missing"


def test_own_fault_is_told_apart_from_the_peers() -> None:
    error = LocalProtocolError("opaque", 5, "a number not in use")
    assert str(error) == "cannot send: opaque is 5, allowed: 'a number not in use'"
    assert not isinstance(error, RemoteProtocolError)


@pytest.mark.parametrize(
    "value", ["x" * 100_000, b"y" * 100_000, 10**50_000, ["z"] * 50_000], ids=type
)
def test_text_is_short_for_any_value(value: object) -> None:
    assert len(str(RemoteProtocolError("body", value)).encode()) <= REMARK_BYTES_MAX


def test_request_that_ends_without_an_answer_says_whose() -> None:
    errors: list[ProtocolError] = [
        RequestTimeoutError("10.0.0.1:10911", 310, 3000),
        ConnectionClosedError("10.0.0.1:10911", "refused"),
    ]
    assert [str(error) for error in errors] == [
        "no answer from 10.0.0.1:10911 to request 310 in 3000 ms",
        "no connection to 10.0.0.1:10911: refused",
    ]
