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
from typing import Any, Final

from ledgermq.client.config import ProducerConfig
from ledgermq.client.connection import Answer
from ledgermq.client.errors import MessageError, NoReplyError, NoRouteError
from ledgermq.client.hooks import followed, measure, tell_acknowledged, tell_failed
from ledgermq.client.instance import ClientInstance, now_ms
from ledgermq.client.linger import Linger
from ledgermq.client.messages import Message, ReceivedMessage, SendResult
from ledgermq.client.replies import Replies, reply_to, request_properties
from ledgermq.client.send_frame import (
    SendBody,
    batch_body,
    json_text,
    properties_text,
    single_body,
)
from ledgermq.client.sending import Sending
from ledgermq.client.sends import SendRoad
from ledgermq.client.serializers import Serializer, body_of
from ledgermq.client.trace_records import Kind
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand

DEFAULT_GROUP: Final = "ledgermq_producer"
_BATCH_COUNT_MAX: Final = 4096


class Producer(Sending):
    """Sends messages to a cluster; use it in an ``async with`` block.

    Delivery is at least once: a message whose answer got lost is sent again.
    """

    def __init__(
        self,
        name_servers: str | ClientInstance = "127.0.0.1:9876",
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
        super().__init__(name_servers, group, serializer, config)
        namespace = self.config.client.namespace
        self._lingers = self.config.linger_s > 0
        # Of each send more is to be done than to send it.
        self._is_followed = self._lingers or self.config.client.trace or self._metrics is not None
        # Made with the first message that lingers.
        self._linger: Linger | None = None
        self._replies = Replies(self.config.body_bytes_max, namespace, serializer)

    async def __aexit__(self, *error: object) -> None:
        try:
            if not any(error) and self._road is not None and not self._instance.is_foreign:
                await self.flush()
        finally:
            await self.close()

    async def flush(self) -> None:
        """Returns when every send has its result or its error."""
        road = self._opened()
        if self._linger is not None:
            await self._linger.flush()
        await road.idle()

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
        if self._is_followed:
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
        # Brokers hand replies to who is connected, also a leader that is new meanwhile.
        self._participant.stays_connected = True
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
        road = self._opened()
        begun_s = road.loop.time()
        if self._lingers and not is_reply:
            message = self._with_bytes(message)
            linger = self._lingering(road)
            if linger.takes(message, self.config.compress_from_bytes):
                sent = await self._linger_with(linger, message, ordering_key, now)
                self._follow(sent, message, len(message.body), now, begun_s)
                return sent
            # What was submitted before goes before.
            await linger.go(message.topic, ordering_key)
        message_id, body = self._prepare(message, now)
        if is_reply:
            body = body._replace(code=int(RequestCode.SEND_REPLY_MESSAGE_V2))
        sent = await road.submit(message.topic, message_id, body, ordering_key)
        self._follow(sent, message, len(body.body), now, begun_s)
        return sent

    def _follow(
        self,
        sent: asyncio.Future[SendResult],
        message: Message,
        body_bytes: int,
        now: int,
        begun_s: float,
    ) -> None:
        if self._metrics is not None:
            measure(self._metrics, sent, message.topic, self.group, begun_s)
        if self._tracer is not None:
            kind = Kind.DELAYED if message.delay_level else Kind.NORMAL
            self._tracer.follow(sent, [message], body_bytes, now, kind)

    def _lingering(self, road: SendRoad) -> Linger:
        """Returns the batches that are not full yet."""
        if self._linger is None:
            self._linger = Linger(road, self._batch_of, self.config)
        return self._linger

    def _batch_of(self, messages: list[Message], texts: list[str]) -> SendBody:
        config = self.config
        if len(messages) > 1:
            return batch_body(messages, texts, now_ms(), config.body_bytes_max)
        return single_body(messages[0], texts[0], now_ms(), 0, config.body_bytes_max)

    async def _linger_with(
        self, linger: Linger, message: Message, ordering_key: str | None, now: int
    ) -> asyncio.Future[SendResult]:
        # Refused here, a name or text that cannot be is no failure of the others.
        self._opened().template(message.topic)
        message_id = self._instance.unique_ids.create(now)
        text = properties_text(message, message_id, self.config.client.namespace)
        json_text(text)
        return await linger.submit(message, message_id, text, ordering_key)

    def _closed(self) -> None:
        if self._linger is not None:
            self._linger.abort()
            self._linger = None

    def _prepare(
        self, message: Message, now: int, message_id: str | None = None
    ) -> tuple[str, SendBody]:
        """Returns an id, a new one unless it is given, and what every try repeats."""
        if self._serializer is not None or type(message.body) is not bytes:
            message = self._with_bytes(message)
        config = self.config
        if message_id is None:
            message_id = self._instance.unique_ids.create(now)
        text = properties_text(message, message_id, config.client.namespace, config.delay_level_max)
        return message_id, single_body(
            message,
            text,
            now,
            config.compress_from_bytes,
            config.body_bytes_max,
            config.compression,
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
        begun_s = self._opened().loop.time()
        ids = [self._instance.unique_ids.create(now) for _ in messages]
        namespace = self.config.client.namespace
        texts = [
            properties_text(message, id_, namespace, self.config.delay_level_max)
            for message, id_ in zip(messages, ids, strict=True)
        ]
        body = batch_body(messages, texts, now, self.config.body_bytes_max)
        sent = await self._opened().submit(messages[0].topic, ",".join(ids), body, ordering_key)
        if self._metrics is not None:
            measure(self._metrics, sent, messages[0].topic, self.group, begun_s)
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
            tell_failed(sending, error)
            raise
        tell_acknowledged(sending, None)

    async def _send_one_way(self, message: Message, ordering_key: str | None) -> None:
        road = self._opened()
        instance = self._instance
        _, body = self._prepare(message, now_ms())
        template = road.template(message.topic)
        route = instance.routes.find(message.topic)
        if route is None or not route.masters:
            route = await instance.routes.refresh(message.topic, may_create=True)
        queue = road.choose(message.topic, ordering_key, None)
        if queue is None or queue.broker_name not in route.masters:
            raise NoRouteError("no leader now", retriable=True, topic=message.topic)
        connection = await instance.connections.open(route.masters[queue.broker_name])
        frame = template.frame(
            body, queue.queue_id, 0, one_way=True, signed_for=connection.signed_for
        )
        connection.write(frame)
        await connection.drained()

    def _with_bytes(self, message: Message) -> Message:
        return replace(message, body=body_of(message.body, self._serializer, message.topic))

    def _requested(self, address: str, request: RemotingCommand) -> Answer:
        if request.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT:
            return self._replies.take(request)
        return None
