"""Light queues of a running group: filled, counted on by the next leader, waited at, limited."""

from collections.abc import Iterator
from functools import partial
from itertools import product

import pytest

from ledgermq.client import Message, ProducerConfig
from ledgermq.client.blocking import Producer
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.properties import decode_properties
from ledgermq.testing import LedgerCluster
from tests.e2e.wire_client import WireClient, end_fields, half_fields, pull_fields

SETTINGS = {"heartBeatTimeIntervalMs": 150, "enableLmq": True, "enableMultiDispatch": True}
# Of an answer.
PATIENCE_S = 60.0
PATIENT = ProducerConfig(attempt_timeout_s=5.0, timeout_s=PATIENCE_S)
A, B = "%LMQ%a", "%LMQ%b"


@pytest.fixture(scope="module")
def single() -> Iterator[LedgerCluster]:
    """One broker: its leadership does not move, however slow the machine is."""
    with LedgerCluster(settings=SETTINGS) as cluster:
        yield cluster


def send(cluster: LedgerCluster, body: bytes, *names: str, delay_level: int = 0) -> None:
    properties = {"INNER_MULTI_DISPATCH": ",".join(names)}
    message = Message("T", body, properties=properties, delay_level=delay_level)
    with Producer(cluster.name_server, config=PATIENT) as producer:
        producer.send(message)


def read(cluster: LedgerCluster, topic: str, node: str | None = None) -> list[bytes]:
    with WireClient(cluster.address(node or cluster.wait_for_leader()), PATIENCE_S) as client:
        return [record.body for record in client.read_queue(topic, 0)]


def is_filled(cluster: LedgerCluster, name: str, node: str, bodies: set[bytes]) -> bool:
    """Whether a light queue of a node has the messages that name it, in the order of the log, each
    at the offset that it says itself; a send that was tried again may be there twice.
    """
    messages = cluster.messages("T", node=node)
    wanted = [m for m in messages if name in m.properties["INNER_MULTI_DISPATCH"].split(",")]
    for number, message in enumerate(wanted):
        named = message.properties["INNER_MULTI_DISPATCH"].split(",")
        offsets = message.properties["INNER_MULTI_QUEUE_OFFSET"].split(",")
        assert dict(zip(named, offsets, strict=True))[name] == str(number)
    if {message.body for message in wanted} != bodies:
        return False
    return read(cluster, name, node) == [message.body for message in wanted]


def test_next_leader_goes_on_where_the_former_one_counted() -> None:
    with LedgerCluster(3, settings=SETTINGS) as group:
        first = group.wait_for_leader()
        send(group, b"1", A, B)
        send(group, b"2", A)
        group.kill(first)
        group.wait_until(lambda: group.leader not in (None, first), what="another leader")
        send(group, b"3", B, A)
        group.restart(first)
        for node, (name, bodies) in product(
            group.nodes, {A: {b"1", b"2", b"3"}, B: {b"1", b"3"}}.items()
        ):
            group.wait_until(
                partial(is_filled, group, name, node, bodies), what=f"{name} of {node}"
            )


def test_pull_of_a_light_queue_waits_for_its_first_message(single: LedgerCluster) -> None:
    with WireClient(single.address(single.wait_for_leader()), PATIENCE_S) as client:
        waiting = pull_fields("%LMQ%late", 0, 0, sysFlag="6", suspendTimeoutMillis="50000")
        opaque = client.ask_later(RequestCode.PULL_MESSAGE.value, waiting)
        answer = client.send("T", 0, b"now", properties="INNER_MULTI_DISPATCH\x01%LMQ%late")
        assert answer.code == ResponseCode.SUCCESS
        found = client.read()
    assert found is not None
    assert (found.opaque, found.code) == (opaque, ResponseCode.SUCCESS)
    assert found.ext_fields["nextBeginOffset"] == "1"


def test_message_is_in_its_light_queues_when_its_time_has_come(single: LedgerCluster) -> None:
    name = "%LMQ%delayed"
    send(single, b"later", name, delay_level=18)
    send(single, b"now", name)
    assert read(single, name) == [b"now"]
    single.clock.advance(hours=2)
    single.wait_until(lambda: read(single, name) == [b"now", b"later"], what="the delayed message")


def test_message_is_in_its_light_queues_when_its_transaction_ends(single: LedgerCluster) -> None:
    name = "%LMQ%transaction"
    with WireClient(single.address(single.wait_for_leader()), PATIENCE_S) as client:
        for body, outcome in ((b"commit", 8), (b"rollback", 12)):
            named = half_fields("g", single.clock.now_ms(), INNER_MULTI_DISPATCH=name)
            half = client.send("T", 0, body, **named)
            assert read(single, name) == ([] if outcome == 8 else [b"commit"])
            ended = client.ask(
                RequestCode.END_TRANSACTION, end_fields(half.ext_fields, "g", outcome)
            )
            assert ended.code == ResponseCode.SUCCESS
    assert read(single, name) == [b"commit"]


def test_message_that_a_consumer_gives_back_is_not_put_into_them_again(
    single: LedgerCluster,
) -> None:
    name = "%LMQ%returned"
    with WireClient(single.address(single.wait_for_leader()), PATIENCE_S) as client:
        sent = client.send("T", 0, b"once", properties=f"INNER_MULTI_DISPATCH\x01{name}")
        place = int(sent.ext_fields["msgId"][-16:], 16)
        back = {"group": "g", "offset": str(place), "delayLevel": "1", "originMsgId": "m"}
        assert client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, back).code == ResponseCode.SUCCESS
        single.clock.advance(minutes=1)
        single.wait_until(lambda: read(single, "%RETRY%g") == [b"once"], what="the message again")
        retried = client.pull("%RETRY%g", 0, 0)[0]
    assert "INNER_MULTI_QUEUE_OFFSET" not in decode_properties(retried.properties)
    assert read(single, name) == [b"once"]


def test_name_that_is_no_light_queue_is_refused_with_the_reason(single: LedgerCluster) -> None:
    with WireClient(single.address(single.wait_for_leader()), PATIENCE_S) as client:
        answer = client.send("T", 0, b"x", properties="INNER_MULTI_DISPATCH\x01orders")
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "'orders'" in (answer.remark or "")


def test_light_queue_is_deleted_as_a_topic_and_goes_on_behind(single: LedgerCluster) -> None:
    name = "%LMQ%deleted"
    send(single, b"1", name)
    with WireClient(single.address(single.wait_for_leader()), PATIENCE_S) as client:
        deleted = client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": name})
        assert deleted.code == ResponseCode.SUCCESS
        send(single, b"2", name)
        assert [record.body for record in client.pull(name, 0, 1)] == [b"2"]
