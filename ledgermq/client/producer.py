"""Producer: sends messages and knows what became of each.

Sends are pipelined: any number up to a limit is on the wire at the same time, and beyond the limit
`submit` waits. A send that fails is tried again, on another queue where the order allows, until it
is acknowledged or its time is up: a result means that the message is stored as safely as the broker
is set up to; an error means that it may or may not be stored. A retry may store a message twice
(same message id), so consumers see each message at least once.

Messages with the same ordering key go to one queue, one after the other, so that no retry can
change their order. One that failed, though, may still be stored, and then behind its successors.
"""

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Self

from ledgermq.client.config import ProducerConfig
from ledgermq.client.connection import Answer
from ledgermq.client.errors import MessageError, NoReplyError, NoRouteError
from ledgermq.client.hooks import followed
from ledgermq.client.instance import ClientInstance, now_ms
from ledgermq.client.messages import Message, ReceivedMessage, SendResult
from ledgermq.client.namespaces import with_namespace
from ledgermq.client.replies import Replies, reply_to, request_properties
from ledgermq.client.send_frame import SendBody, batch_body, properties_text, single_body
from ledgermq.client.sends import SendRoad
from ledgermq.client.serializers import Serializer, body_of
from ledgermq.client.trace_records import Kind
from ledgermq.client.tracing import tracer_of
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.heartbeat import HeartbeatData, ProducerData

DEFAULT_GROUP: Final = "ledgermq_producer"
_BATCH_COUNT_MAX: Final = 4096


class Producer:
    """Sends messages to a cluster; use it in an ``async with`` block.

    Delivery is at least once: a message whose answer got lost is sent again.
    """

    def __init__(
        self,
        name_servers: str = "127.0.0.1:9876",
        group: str = DEFAULT_GROUP,
        *,
        serializer: Serializer | None = None,
        config: ProducerConfig | None = None,
    ) -> None:
        """Opens nothing yet.

        Args:
            name_servers: ``host:port;host:port``.
            group: name under which brokers know this kind of producer.
            serializer: makes bytes of the bodies of messages; None takes bytes only.
            config: times and limits.

        Raises:
            ConfigError: the addresses are wrong.
        """
        self.group = group
        self.config = config or ProducerConfig()
        self._serializer = serializer
        self._hooks = self.config.client.hooks
        self._instance = ClientInstance(
            name_servers,
            self.config.client,
            default_queue_nums=self.config.default_topic_queue_nums,
            on_request=self._requested,
            heartbeat=self._heartbeat,
        )
        client = self.config.client
        self._replies = Replies(self.config.body_bytes_max, client.namespace, serializer)
        self._road: SendRoad | None = None
        self._tracer = tracer_of(self._instance, group, self.config.client)

    async def __aenter__(self) -> Self:
        self._instance.start()
        self._road = SendRoad(self._instance, self.group, self.config)
        if self._tracer is not None:
            self._tracer.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None and self._road is not None and not self._instance.is_foreign:
                await self.flush()
        finally:
            await self.close()

    async def close(self) -> None:
        """Closes at once: sends without an answer fail. Safe to call twice."""
        road, self._road = self._road, None
        if road is None or self._instance.is_foreign:
            return
        try:
            await road.close()
            if self._tracer is not None:
                await self._tracer.close()
            await self._instance.close(self.group, None)
        finally:
            # Whoever is cancelled while it says good-bye leaves nothing behind either.
            if self._tracer is not None:
                self._tracer.abort()
            self._instance.abort()

    async def flush(self) -> None:
        """Returns when every send has its result or its error."""
        await self._opened().idle()

    async def send(self, message: Message, *, ordering_key: str | None = None) -> SendResult:
        """Sends a message and waits until it is acknowledged.

        Args:
            message: what to send.
            ordering_key: messages of one key are stored in one queue, in the order of their sends.

        Raises:
            MessageError: it cannot be sent as it is.
            SendError: it was not acknowledged in time.
            LaneFullError: too many messages of its key wait already; it was not sent.
            ClosedError: the producer is not open.
        """
        return await (await self.submit(message, ordering_key=ordering_key))

    async def submit(
        self, message: Message, *, ordering_key: str | None = None
    ) -> asyncio.Future[SendResult]:
        """Puts a message on its way, and returns as soon as there is room for it.

        Returns:
            A future with the result, or the SendError. Cancelling it does not take the message
            back.

        Raises:
            MessageError: it cannot be sent as it is.
            LaneFullError: too many messages of its key wait already; it was not sent.
            ClosedError: the producer is not open.
        """
        if self._hooks is not None:
            sending = self._hooks.send([message], self.group)
            return await followed(sending, self._submit(sending.messages[0], ordering_key))
        if self._tracer is not None:
            return await self._submit(message, ordering_key)
        message_id, body = self._prepare(message, now_ms())
        return await self._opened().submit(message.topic, message_id, body, ordering_key)

    async def request(
        self,
        message: Message,
        *,
        timeout_s: float = 3.0,
        ordering_key: str | None = None,
    ) -> ReceivedMessage:
        """Sends a message, and returns the reply of whoever consumes it.

        Args:
            message: what to ask.
            timeout_s: how long to wait for the reply, sending included.
            ordering_key: as for send.

        Raises:
            NoReplyError: no reply came in time.
            MessageError, SendError, ClosedError: as for send.
        """
        correlation_id = uuid.uuid4().hex
        own = request_properties(correlation_id, self._instance.client_id, timeout_s)
        asked = replace(message, properties={**message.properties, **own})
        reply = self._replies.expect(correlation_id)
        try:
            async with asyncio.timeout(timeout_s):
                await self.send(asked, ordering_key=ordering_key)
                return await reply
        except TimeoutError as error:
            raise NoReplyError(
                f"no reply in {timeout_s:g} s", retriable=True, topic=message.topic
            ) from error
        finally:
            self._replies.forget(correlation_id)

    async def reply(
        self,
        request: ReceivedMessage,
        body: Any,
        *,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Answers a message that was sent with `request`, and returns when the asker has the reply.

        Args:
            request: what was consumed.
            body: of the reply.
            properties: further ones of the reply.

        Raises:
            MessageError: the message is no request, or the reply cannot be sent as it is.
            SendError: the reply was not taken in time: the asker may have gone.
            ClosedError: the producer is not open.
        """
        message = reply_to(request, body, properties or {})
        if self._hooks is None:
            await (await self._submit(message, None, is_reply=True))
            return
        sending = self._hooks.send([message], self.group)
        submitted = self._submit(sending.messages[0], None, is_reply=True)
        await (await followed(sending, submitted))

    async def _submit(
        self, message: Message, ordering_key: str | None, *, is_reply: bool = False
    ) -> asyncio.Future[SendResult]:
        now = now_ms()
        message_id, body = self._prepare(message, now)
        if is_reply:
            body = body._replace(code=int(RequestCode.SEND_REPLY_MESSAGE_V2))
        sent = await self._opened().submit(message.topic, message_id, body, ordering_key)
        if self._tracer is not None:
            kind = Kind.DELAYED if message.delay_level else Kind.NORMAL
            self._tracer.follow(sent, [message], len(body.body), now, kind)
        return sent

    def _prepare(self, message: Message, now: int) -> tuple[str, SendBody]:
        """Returns a new id, and what every try to send the message repeats."""
        if self._serializer is not None or type(message.body) is not bytes:
            message = self._with_bytes(message)
        config = self.config
        message_id = self._instance.unique_ids.create(now)
        text = properties_text(message, message_id, config.client.namespace)
        return message_id, single_body(
            message, text, now, config.compress_from_bytes, config.body_bytes_max
        )

    async def send_batch(
        self, messages: Sequence[Message], *, ordering_key: str | None = None
    ) -> SendResult:
        """Sends messages of one topic as one request: all are stored in one queue, or none.

        Returns:
            The result with the offset of the first message; ids are joined by commas.

        Raises:
            MessageError: they cannot be sent as they are.
            SendError: they were not acknowledged in time.
            ClosedError: the producer is not open.
        """
        return await (await self.submit_batch(messages, ordering_key=ordering_key))

    async def submit_batch(
        self, messages: Sequence[Message], *, ordering_key: str | None = None
    ) -> asyncio.Future[SendResult]:
        """Puts messages of one topic on their way as one request; see submit and send_batch."""
        if not 0 < len(messages) <= _BATCH_COUNT_MAX:
            raise MessageError(f"a batch of {len(messages)}; allowed: 1 to {_BATCH_COUNT_MAX}")
        if self._hooks is None:
            return await self._submit_batch(messages, ordering_key)
        sending = self._hooks.send(messages, self.group)
        return await followed(sending, self._submit_batch(sending.messages, ordering_key))

    async def _submit_batch(
        self, given: Sequence[Message], ordering_key: str | None
    ) -> asyncio.Future[SendResult]:
        messages = [self._with_bytes(message) for message in given]
        now = now_ms()
        ids = [self._instance.unique_ids.create(now) for _ in messages]
        namespace = self.config.client.namespace
        texts = [
            properties_text(message, id_, namespace)
            for message, id_ in zip(messages, ids, strict=True)
        ]
        body = batch_body(messages, texts, now, self.config.body_bytes_max)
        sent = await self._opened().submit(messages[0].topic, ",".join(ids), body, ordering_key)
        if self._tracer is not None:
            self._tracer.follow(sent, messages, len(body.body), now, Kind.NORMAL)
        return sent

    async def send_one_way(self, message: Message, *, ordering_key: str | None = None) -> None:
        """Sends a message without asking for an answer: it may get lost, and nobody will know.

        Raises:
            MessageError: it cannot be sent as it is.
            NoRouteError, UnreachableError: there is nobody to send it to.
        """
        if self._hooks is None:
            await self._send_one_way(message, ordering_key)
            return
        sending = self._hooks.send([message], self.group)
        try:
            await self._send_one_way(sending.messages[0], ordering_key)
        except BaseException as error:
            sending.failed(error)
            raise
        sending.acknowledged(None)

    async def _send_one_way(self, message: Message, ordering_key: str | None) -> None:
        road = self._opened()
        instance = self._instance
        _, body = self._prepare(message, now_ms())
        route = instance.routes.find(message.topic)
        if route is None or not route.masters:
            route = await instance.routes.refresh(message.topic, may_create=True)
        queue = road.choose(message.topic, ordering_key, None)
        if queue is None or queue.broker_name not in route.masters:
            raise NoRouteError("no leader now", retriable=True, topic=message.topic)
        connection = await instance.connections.open(route.masters[queue.broker_name])
        frame = road.template(message.topic).frame(body, queue.queue_id, 0, one_way=True)
        connection.write(frame)
        await connection.drained()

    def _with_bytes(self, message: Message) -> Message:
        return replace(message, body=body_of(message.body, self._serializer, message.topic))

    def _opened(self) -> SendRoad:
        road = self._road
        if road is None or self._instance.is_foreign:
            self._instance.check_open(road is not None, "producer")
        assert road is not None
        return road

    def _requested(self, address: str, request: RemotingCommand) -> Answer:
        if request.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT:
            return self._replies.take(request)
        return None

    def _heartbeat(self) -> HeartbeatData:
        wire_group = with_namespace(self.config.client.namespace, self.group)
        return HeartbeatData(
            client_id=self._instance.client_id, producer_data_set=[ProducerData(wire_group)]
        )
