"""Conditions that a broker would refuse with every pull are refused before the first one.

Source: MQClientInstance.checkClientInBroker of 4.9.
"""

from collections.abc import Iterable
from typing import Final

from ledgermq.client.errors import RefusedError, UnreachableError
from ledgermq.client.instance import ClientInstance
from ledgermq.client.namespaces import without_namespace
from ledgermq.protocol.bodies import CheckClientRequestBody
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.heartbeat import SubscriptionData

_TAG: Final = "TAG"
# It says nothing about the condition: the broker does not know the question, or not now.
_NO_WORD: Final = frozenset(
    {
        int(ResponseCode.SUCCESS),
        int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED),
        int(ResponseCode.SYSTEM_BUSY),
        int(ResponseCode.SERVICE_NOT_AVAILABLE),
    }
)


async def check_subscriptions(
    instance: ClientInstance, group: str, subscriptions: Iterable[SubscriptionData]
) -> None:
    """Asks the brokers of each topic that goes by a condition whether they can apply it.

    Args:
        instance: knows their routes, as far as they are there.
        group: as on the wire.
        subscriptions: as on the wire.

    Raises:
        RefusedError: one of them cannot, ever: SQL92 is switched off, or the text is none.
    """
    for wanted in subscriptions:
        if wanted.expression_type == _TAG:
            continue
        topic = without_namespace(instance.config.namespace, wanted.topic)
        route = instance.routes.find(topic)
        body = CheckClientRequestBody(instance.client_id, group, wanted).encode()
        for address in sorted(route.masters.values()) if route is not None else ():
            command = RemotingCommand.request(RequestCode.CHECK_CLIENT_CONFIG, body=body)
            try:
                answer = await instance.request(address, command)
            except UnreachableError:
                # Its pulls will tell.
                continue
            if answer.code not in _NO_WORD:
                raise RefusedError(answer.code, answer.remark, broker=address, topic=topic)
