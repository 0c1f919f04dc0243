"""Replies: requests of a producer that wait for their reply, and what makes a reply of an answer.

A request is a message with a correlation id and the name of the client that asks. Whoever consumes
it sends a reply to the reply topic of the cluster, and the broker hands that to the client that
asked, over its own connection. A reply that comes too late is forgotten.

Source: RequestFutureHolder and MessageUtil.createReplyMessage of 4.9.3.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from ledgermq.client.errors import MessageError
from ledgermq.client.messages import Message, ReceivedMessage
from ledgermq.client.namespaces import without_namespace
from ledgermq.client.serializers import Serializer
from ledgermq.protocol.bodies import MessageQueue
from ledgermq.protocol.codes import ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.headers.send import ReplyMessageRequestHeader
from ledgermq.protocol.properties import (
    CLUSTER,
    CORRELATION_ID,
    REPLY_TO_CLIENT,
    parse_properties,
)
from ledgermq.protocol.record import Record

_TYPE: Final = "MSG_TYPE"
_REPLY_TYPE: Final = "reply"
_TIME_TO_LIVE_MS: Final = "TTL"
_REPLY_TOPIC_SUFFIX: Final = "_REPLY_TOPIC"
# What a reply does not tell.
_NOWHERE: Final = (b"\0\0\0\0", 0)


def request_properties(correlation_id: str, client_id: str, timeout_s: float) -> dict[str, str]:
    """Returns what makes a request of a message."""
    return {
        CORRELATION_ID: correlation_id,
        REPLY_TO_CLIENT: client_id,
        _TIME_TO_LIVE_MS: str(int(timeout_s * 1000)),
    }


def reply_to(request: ReceivedMessage, body: Any, properties: Mapping[str, str]) -> Message:
    """Returns the message that answers a request.

    Raises:
        MessageError: it is no request.
    """
    asked = request.properties
    cluster, correlation_id = asked.get(CLUSTER), asked.get(CORRELATION_ID)
    client_id = asked.get(REPLY_TO_CLIENT)
    if not (cluster and correlation_id and client_id):
        raise MessageError(f"{request!r} is no request: nobody waits for a reply")
    own = {_TYPE: _REPLY_TYPE, CORRELATION_ID: correlation_id, REPLY_TO_CLIENT: client_id}
    own[_TIME_TO_LIVE_MS] = asked.get(_TIME_TO_LIVE_MS, "3000")
    return Message(cluster + _REPLY_TOPIC_SUFFIX, body, properties={**properties, **own})


class Replies:
    """The requests of one producer that wait."""

    def __init__(self, body_bytes_max: int, namespace: str, serializer: Serializer | None) -> None:
        self._body_bytes_max = body_bytes_max
        self._namespace = namespace
        self._serializer = serializer
        self._waiting: dict[str, asyncio.Future[ReceivedMessage]] = {}

    def expect(self, correlation_id: str) -> asyncio.Future[ReceivedMessage]:
        """Returns the reply to come; `forget` ends the waiting."""
        future: asyncio.Future[ReceivedMessage] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = future
        return future

    def forget(self, correlation_id: str) -> None:
        """Waits no longer."""
        self._waiting.pop(correlation_id, None)

    def take(self, pushed: RemotingCommand) -> RemotingCommand | None:
        """Takes a reply from a broker.

        Returns:
            The answer to the broker; None when nobody waits here for this reply.
        """
        try:
            header = pushed.header(ReplyMessageRequestHeader)
        except RemoteProtocolError as error:
            return pushed.response(ResponseCode.SYSTEM_ERROR, str(error))
        correlation_id = parse_properties(header.properties or "").get(CORRELATION_ID, "")
        future = self._waiting.pop(correlation_id, None)
        if future is None or future.done():
            return None
        future.set_result(self._message(header, pushed.body))
        return pushed.response(ResponseCode.SUCCESS)

    def _message(self, header: ReplyMessageRequestHeader, body: bytes) -> ReceivedMessage:
        record = Record(
            size_bytes=len(body),
            magic=0,
            body_crc=0,
            queue_id=header.queue_id,
            flag=header.flag,
            queue_offset=0,
            physical_offset=0,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            born_host=_NOWHERE,
            store_timestamp=header.store_timestamp,
            store_host=_NOWHERE,
            reconsume_times=0,
            prepared_transaction_offset=0,
            body=body,
            topic=header.topic,
            properties=(header.properties or "").encode(),
        )
        topic = without_namespace(self._namespace, header.topic)
        queue = MessageQueue(topic, "", header.queue_id)
        return ReceivedMessage(
            record, queue, self._body_bytes_max, self._namespace, self._serializer
        )
