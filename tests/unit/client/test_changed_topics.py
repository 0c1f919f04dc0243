"""Topics that change under their clients: fewer queues than the route says."""

import pytest

from ledgermq.client import Message, Producer
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers.send import SendMessageRequestHeaderV2
from tests.unit.client import virtual_broker
from tests.unit.client.virtual_broker import Link
from tests.unit.client.virtual_net import Net, run

NAMES = "127.0.0.1:9876"
BROKER = "127.0.0.1:10911"


@pytest.mark.parametrize("is_keyed", [False, True])
def test_sends_to_a_queue_that_is_no_more_go_to_another_at_once(
    is_keyed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers refuse them as any failure, so all sends of a key failed until the next route."""

    async def scenario(net: Net) -> None:
        broker = net.cluster(NAMES, BROKER)

        def refuse(link: Link, request: RemotingCommand) -> bool:
            if request.code != RequestCode.SEND_MESSAGE_V2:
                return False
            if request.header(SendMessageRequestHeaderV2).queue_id < virtual_broker.QUEUES:
                return False
            link.answer(request.response(ResponseCode.SYSTEM_ERROR, "queueId is illegal"))
            return True

        broker.on_request = refuse
        async with Producer(NAMES) as producer:
            await producer.send(Message("T", b"first"))
            monkeypatch.setattr(virtual_broker, "QUEUES", 1)
            for number in range(20):
                key = f"k{number}" if is_keyed else None
                result = await producer.send(Message("T", b"%d" % number), ordering_key=key)
                assert result.queue_id == 0

    run(scenario)
