"""Names of topics and groups with and without their namespace."""

import pytest

from ledgermq.client.config import ClientConfig
from ledgermq.client.errors import ConfigError
from ledgermq.client.namespaces import (
    queue_with_namespace,
    queue_without_namespace,
    with_namespace,
    without_namespace,
)
from ledgermq.protocol.bodies import MessageQueue


@pytest.mark.parametrize(
    ("own", "wire"),
    [
        ("orders", "shop%orders"),
        ("%RETRY%billing", "%RETRY%shop%billing"),
        ("%DLQ%billing", "%DLQ%shop%billing"),
        ("other%orders", "shop%other%orders"),
    ],
)
def test_namespace_goes_in_front_and_comes_off_again(own: str, wire: str) -> None:
    assert with_namespace("shop", own) == wire
    assert with_namespace("shop", wire) == wire
    assert without_namespace("shop", wire) == own
    assert without_namespace("shop", own) == own


@pytest.mark.parametrize(
    "name", ["TBW102", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_x", "CID_RMQ_SYS_TRANS", ""]
)
def test_names_of_the_system_have_none(name: str) -> None:
    assert with_namespace("shop", name) == name


def test_without_a_namespace_nothing_changes() -> None:
    queue = MessageQueue("shop%orders", "b", 3)
    assert with_namespace("", "orders") == "orders"
    assert without_namespace("", "shop%orders") == "shop%orders"
    assert queue_with_namespace("", queue) is queue is queue_without_namespace("", queue)


def test_queues_change_their_topic_only() -> None:
    own, wire = MessageQueue("orders", "b", 3), MessageQueue("shop%orders", "b", 3)
    assert queue_with_namespace("shop", own) == wire
    assert queue_without_namespace("shop", wire) == own


def test_namespace_holds_no_separator() -> None:
    with pytest.raises(ConfigError, match="no %"):
        ClientConfig(namespace="a%b")
