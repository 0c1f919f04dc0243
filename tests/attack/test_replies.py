"""Client ids belong to who holds them: replies and locks do not go to who says the same id."""

from __future__ import annotations

import json

import pytest

from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.properties import format_properties
from ledgermq.protocol.signature import Credentials
from tests.attack.closed_broker import SHOP, THIEF, ask, beat
from tests.e2e.wire_client import WireClient, send_fields
from tests.processes import LiveProgram

REPLIES = "DefaultCluster_REPLY_TOPIC"


def test_foreign_client_id_takes_no_replies(
    program: LiveProgram, shop: WireClient, thief: WireClient
) -> None:
    assert beat(shop, SHOP, "shop@1", producers=("askers",)).code == 0
    stolen = beat(thief, THIEF, "shop@1", producers=("askers",))
    assert stolen.code != 0 and "client id shop@1" in str(stolen.remark)
    with WireClient(program.address) as replying:
        properties = format_properties({"CORRELATION_ID": "c1", "REPLY_TO_CLIENT": "shop@1"})
        fields = send_fields(REPLIES, 0, properties=properties)
        replying.ask_later(
            RequestCode.SEND_REPLY_MESSAGE.value,
            SHOP.signed(fields, b"for the shop"),
            b"for the shop",
        )
        pushed = shop.read()
    assert pushed is not None and pushed.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
    assert pushed.body == b"for the shop"
    # The same account may have it on a second connection, and who leaves frees it.
    with WireClient(program.address) as second:
        assert beat(second, SHOP, "shop@1", producers=("askers",)).code == 0


def test_id_is_free_when_its_holder_has_left(program: LiveProgram, thief: WireClient) -> None:
    with WireClient(program.address) as shop:
        assert beat(shop, SHOP, "shop@2", producers=("askers",)).code == 0
        assert beat(thief, THIEF, "shop@2", producers=("askers",)).code != 0
        left = ask(
            shop, SHOP, RequestCode.UNREGISTER_CLIENT,
            {"clientID": "shop@2", "producerGroup": "askers"},
        )  # fmt: skip
        assert left.code == 0
        assert beat(thief, THIEF, "shop@2", producers=("askers",)).code == 0


def lock(client: WireClient, who: Credentials, code: RequestCode, client_id: str) -> list[object]:
    """Returns the queues that the client holds; raises when it is refused."""
    body = {
        "consumerGroup": "shared-readers",
        "clientId": client_id,
        "mqSet": [{"topic": "stock", "brokerName": "broker-a", "queueId": 0}],
    }
    answer = ask(client, who, code, {}, json.dumps(body).encode())
    if answer.code != 0:
        raise PermissionError(str(answer.remark))
    queues: list[object] = json.loads(answer.body or b"{}").get("lockOKMQSet", [])
    return queues


def test_foreign_client_id_has_no_locks(shop: WireClient, thief: WireClient) -> None:
    """The two accounts share a group and a topic, so that no right tells them apart."""
    assert ask(shop, SHOP, RequestCode.SEND_MESSAGE, send_fields("stock", 0), b"m").code == 0
    assert beat(shop, SHOP, "shop@3", consumers=("shared-readers",)).code == 0
    assert beat(thief, THIEF, "thief@3", consumers=("shared-readers",)).code == 0
    assert lock(shop, SHOP, RequestCode.LOCK_BATCH_MQ, "shop@3")
    with pytest.raises(PermissionError, match="client id shop@3"):
        lock(thief, THIEF, RequestCode.UNLOCK_BATCH_MQ, "shop@3")
    with pytest.raises(PermissionError, match="client id shop@3"):
        lock(thief, THIEF, RequestCode.LOCK_BATCH_MQ, "shop@3")
    assert not lock(thief, THIEF, RequestCode.LOCK_BATCH_MQ, "thief@3")


def test_topics_for_replies_are_made_by_nobody(shop: WireClient, thief: WireClient) -> None:
    """Only the cluster's own is open; a name that ends like it is a topic like all others."""
    for topic in ("thief_REPLY_TOPIC", "orders_REPLY_TOPIC", "orders"):
        fields = send_fields(topic, 0, properties=format_properties({"REPLY_TO_CLIENT": "nobody"}))
        refused = ask(thief, THIEF, RequestCode.SEND_REPLY_MESSAGE, fields, b"stored")
        assert f"topic:{topic}" in str(refused.remark)
    topics = ask(shop, SHOP, RequestCode.GET_ALL_TOPIC_CONFIG)
    assert b"thief_REPLY_TOPIC" not in topics.body and b"orders_REPLY_TOPIC" not in topics.body
