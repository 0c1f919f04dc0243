"""Producer: sends messages and knows what became of each.

Sends are pipelined: any number up to a limit is on the wire at the same time, and beyond the limit
`submit` waits. A send that fails is tried again, on another queue where the order allows, until it
is acknowledged or its time is up: a result means that the message is stored as safely as the broker
is set up to; an error means that it may or may not be stored. A retry may store a message twice
(same message id), so consumers see each message at least once.

Messages with the same ordering key go to one queue, one after the other, so that no retry can
change their order.
"""

import asyncio
import random
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from ledgermq.client.config import ProducerConfig
from ledgermq.client.errors import (
    ClientError,
    ClosedError,
    MessageError,
    NoRouteError,
    RefusedError,
    SendError,
    UnreachableError,
)
from ledgermq.client.instance import ClientInstance, check_open, now_ms
from ledgermq.client.messages import Message, SendResult, SendStatus
from ledgermq.client.retry import (
    UNSAFE_STORE_CODES,
    Retry,
    is_retriable,
    retry_after_code,
    retry_after_loss,
)
from ledgermq.client.selection import next_queue, queue_of_key
from ledgermq.client.send_frame import (
    FrameTemplate,
    SendBody,
    batch_body,
    properties_text,
    single_body,
)
from ledgermq.client.window import SendWindow
from ledgermq.protocol.bodies import MessageQueue
from ledgermq.protocol.codes import ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.errors import ProtocolError, RemoteProtocolError
from ledgermq.protocol.headers import SendMessageResponseHeader
from ledgermq.protocol.heartbeat import HeartbeatData, ProducerData

DEFAULT_GROUP: Final = "ledgermq_producer"
_SUCCESS: Final = int(ResponseCode.SUCCESS)
_BATCH_COUNT_MAX: Final = 4096
# Sends after which the loop gets its turn in any case.
_TURN_COUNT: Final = 64


class _Send:
    """One send on its way: a message or a batch. It is also the sink of its answer."""

    __slots__ = (
        "attempts", "avoided_broker", "body", "deadline_s", "future", "lane", "message_id",
        "queue", "road", "template", "topic",
    )  # fmt: skip

    def __init__(
        self,
        road: "_Road",
        template: FrameTemplate,
        topic: str,
        message_id: str,
        body: SendBody,
        deadline_s: float,
        lane: str | None,
    ) -> None:
        self.road = road
        self.template = template
        self.topic = topic
        self.message_id = message_id
        self.body = body
        # On the loop's clock.
        self.deadline_s = deadline_s
        # Ordering key.
        self.lane = lane
        self.future: asyncio.Future[SendResult] = road.loop.create_future()
        self.attempts = 0
        self.queue: MessageQueue | None = None
        self.avoided_broker: str | None = None

    def answered(self, answer: RemotingCommand) -> None:
        """The broker has answered the last try."""
        self.road.answered(self, answer)

    def failed(self, error: ProtocolError) -> None:
        """The last try got no answer."""
        queue = self.queue
        name = queue.broker_name if queue is not None else None
        self.road.lost(
            self, UnreachableError(str(error), retriable=True, broker=name, topic=self.topic)
        )


class _Road:
    """The way of sends to brokers and back: tries, retries, lanes of ordering keys."""

    def __init__(self, instance: ClientInstance, config: ProducerConfig) -> None:
        self.loop = asyncio.get_running_loop()
        self.window = SendWindow(config.in_flight_max, config.in_flight_bytes_max)
        self._instance = instance
        self._config = config
        self._turn = random.randrange(1 << 16)
        # (topic, key) -> sends that wait for the one on its way.
        self._lanes: dict[tuple[str, str], deque[_Send]] = {}
        self._retries: set[asyncio.Task[None]] = set()
        self._on_way: set[_Send] = set()
        self._is_closed = False

    def start(self, send: _Send) -> None:
        """Sends for the first time, unless another message of the same key is on its way."""
        self._on_way.add(send)
        if send.lane is not None:
            waiting = self._lanes.get((send.topic, send.lane))
            if waiting is not None:
                waiting.append(send)
                return
            self._lanes[send.topic, send.lane] = deque()
        self._try(send)

    def answered(self, send: _Send, answer: RemotingCommand) -> None:
        """Takes the answer to the last try."""
        queue = send.queue
        assert queue is not None
        code = answer.code
        if code == _SUCCESS or (code in UNSAFE_STORE_CODES and self._config.accept_unsafe_store):
            try:
                header = answer.header(SendMessageResponseHeader)
            except RemoteProtocolError as error:
                self._give_up(send, UnreachableError(f"unreadable answer: {error}"))
                return
            self._finish(
                send,
                SendResult(
                    SendStatus.SEND_OK if code == _SUCCESS else SendStatus(code),
                    send.message_id,
                    header.msg_id,
                    send.topic,
                    header.queue_id,
                    header.queue_offset,
                    queue.broker_name,
                ),
            )
            return
        refused = RefusedError(
            code,
            answer.remark,
            retriable=is_retriable(code),
            broker=queue.broker_name,
            topic=send.topic,
            queue_id=queue.queue_id,
        )
        retry = retry_after_code(code, send.attempts, self._left_ms(send), random.random())
        self._again_or_not(send, refused, retry)

    def lost(self, send: _Send, error: ClientError) -> None:
        """Takes the news that the last try will have no answer."""
        retry = None
        if error.retriable and not self._is_closed:
            retry = retry_after_loss(max(1, send.attempts), self._left_ms(send), random.random())
        self._again_or_not(send, error, retry)

    async def close(self) -> None:
        """Fails whatever is still on its way."""
        self._is_closed = True
        for task in list(self._retries):
            task.cancel()
        if self._retries:
            await asyncio.wait(list(self._retries))
        self._lanes.clear()
        for send in list(self._on_way):
            self._give_up(send, ClosedError("the producer was closed"))

    async def idle(self) -> None:
        """Returns when nothing is on its way."""
        while self._on_way:
            await asyncio.wait([send.future for send in self._on_way])

    def choose(self, topic: str, lane: str | None, avoided: str | None) -> MessageQueue | None:
        """Returns the queue for a send by the route as it is known; None when that has none."""
        route = self._instance.routes.find(topic)
        if route is None or not route.write_queues:
            return None
        if lane is not None:
            return queue_of_key(route.write_queues, lane)
        self._turn += 1
        return next_queue(route.write_queues, route.masters, self._turn, avoided)

    def _try(self, send: _Send) -> None:
        """Writes the request when route and connection are there, else goes to get them."""
        if send not in self._on_way:
            return
        if send.deadline_s <= self.loop.time():
            self.lost(send, UnreachableError("no time left", retriable=True, topic=send.topic))
            return
        queue = send.queue = self.choose(send.topic, send.lane, send.avoided_broker)
        if queue is not None:
            route = self._instance.routes.find(send.topic)
            address = route.masters.get(queue.broker_name) if route is not None else None
            connection = self._instance.connections.find(address) if address else None
            if connection is not None and connection.is_open:
                timeout_s = min(self._config.attempt_timeout_s, send.deadline_s - self.loop.time())
                send.attempts += 1
                try:
                    opaque = connection.expect(send.body.code, send, max(timeout_s, 0.001))
                except ClientError as error:
                    self.lost(send, error)
                    return
                connection.write(send.template.frame(send.body, queue.queue_id, opaque))
                return
        self._later(send, Retry(delay_ms=0, needs_route=False))

    def _later(self, send: _Send, retry: Retry) -> None:
        task = self.loop.create_task(self._try_again(send, retry))
        self._retries.add(task)
        task.add_done_callback(self._retries.discard)

    async def _try_again(self, send: _Send, retry: Retry) -> None:
        """Waits, makes sure of a route and a connection, and sends."""
        await asyncio.sleep(retry.delay_ms / 1000)
        routes = self._instance.routes
        try:
            route = routes.find(send.topic)
            if retry.needs_route or route is None:
                route = await routes.refresh(send.topic, may_create=True)
            queue = self.choose(send.topic, send.lane, send.avoided_broker)
            if queue is None or queue.broker_name not in route.masters:
                name = queue.broker_name if queue is not None else None
                raise NoRouteError("no leader now", retriable=True, broker=name, topic=send.topic)
            await self._instance.connections.open(route.masters[queue.broker_name])
        except ClientError as error:
            send.attempts += 1
            self.lost(send, error)
            return
        self._try(send)

    def _again_or_not(self, send: _Send, error: ClientError, retry: Retry | None) -> None:
        if retry is None or self._is_closed or send.future.done():
            self._give_up(send, error)
            return
        send.avoided_broker = send.queue.broker_name if send.queue is not None else None
        self._later(send, retry)

    def _give_up(self, send: _Send, error: ClientError) -> None:
        failure = SendError(
            f"not acknowledged after {send.attempts} tries: {error.what}",
            attempts=send.attempts,
            retriable=error.retriable,
            broker=error.broker,
            topic=send.topic,
            queue_id=error.queue_id,
            code=error.code,
        )
        failure.__cause__ = error
        self._finish(send, failure)

    def _finish(self, send: _Send, outcome: SendResult | SendError) -> None:
        if send not in self._on_way:
            return
        self._on_way.discard(send)
        self.window.release(send.body.size_bytes)
        future = send.future
        if not future.done():
            if isinstance(outcome, SendError):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
        if send.lane is not None:
            lane = (send.topic, send.lane)
            waiting = self._lanes.get(lane)
            if waiting:
                # Not from here: a row of failures would nest as deep as it is long.
                self.loop.call_soon(self._try, waiting.popleft())
            else:
                self._lanes.pop(lane, None)

    def _left_ms(self, send: _Send) -> float:
        return (send.deadline_s - self.loop.time()) * 1000


class Producer:
    """Sends messages to a cluster; use it in an ``async with`` block.

    Delivery is at least once: a message whose answer got lost is sent again.
    """

    def __init__(
        self,
        name_servers: str = "127.0.0.1:9876",
        group: str = DEFAULT_GROUP,
        *,
        config: ProducerConfig | None = None,
    ) -> None:
        """Opens nothing yet.

        Args:
            name_servers: ``host:port;host:port``.
            group: name under which brokers know this kind of producer.
            config: times and limits.

        Raises:
            ConfigError: the addresses are wrong.
        """
        self.group = group
        self.config = config or ProducerConfig()
        self._instance = ClientInstance(
            name_servers,
            self.config.client,
            default_queue_nums=self.config.default_topic_queue_nums,
        )
        self._instance.heartbeat = self._heartbeat
        self._templates: dict[str, FrameTemplate] = {}
        self._road: _Road | None = None
        self._submitted = 0

    async def __aenter__(self) -> Self:
        self._road = _Road(self._instance, self.config)
        self._instance.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None and self._road is not None:
            await self.flush()
        await self.close()

    async def close(self) -> None:
        """Closes at once: sends without an answer fail. Safe to call twice."""
        road, self._road = self._road, None
        if road is not None:
            await road.close()
            await self._instance.close(self.group, None)

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
            ClosedError: the producer is not open.
        """
        now = now_ms()
        message_id = self._instance.unique_ids.create(now)
        text = properties_text(message, message_id)
        config = self.config
        body = single_body(message, text, now, config.compress_from_bytes, config.body_bytes_max)
        return await self._start(message.topic, message_id, body, ordering_key)

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
        now = now_ms()
        ids = [self._instance.unique_ids.create(now) for _ in messages]
        texts = [properties_text(message, id_) for message, id_ in zip(messages, ids, strict=True)]
        body = batch_body(list(messages), texts, now, self.config.body_bytes_max)
        return await self._start(messages[0].topic, ",".join(ids), body, ordering_key)

    async def send_one_way(self, message: Message, *, ordering_key: str | None = None) -> None:
        """Sends a message without asking for an answer: it may get lost, and nobody will know.

        Raises:
            MessageError: it cannot be sent as it is.
            NoRouteError, UnreachableError: there is nobody to send it to.
        """
        road = self._opened()
        instance = self._instance
        now = now_ms()
        text = properties_text(message, instance.unique_ids.create(now))
        config = self.config
        body = single_body(message, text, now, config.compress_from_bytes, config.body_bytes_max)
        route = instance.routes.find(message.topic)
        if route is None or not route.masters:
            route = await instance.routes.refresh(message.topic, may_create=True)
        queue = road.choose(message.topic, ordering_key, None)
        if queue is None or queue.broker_name not in route.masters:
            raise NoRouteError("no leader now", retriable=True, topic=message.topic)
        connection = await instance.connections.open(route.masters[queue.broker_name])
        template = self._template(message.topic)
        connection.write(template.frame(body, queue.queue_id, 0, one_way=True))
        await connection.drained()

    async def _start(
        self, topic: str, message_id: str, body: SendBody, ordering_key: str | None
    ) -> asyncio.Future[SendResult]:
        road = self._opened()
        template = self._template(topic)
        self._submitted += 1
        if self._submitted % _TURN_COUNT == 0:
            # While there is room nothing else would let the loop write and read.
            await asyncio.sleep(0)
        if not road.window.enter(body.size_bytes):
            await road.window.wait(body.size_bytes)
        check_open(self._road is road, "producer")
        deadline_s = road.loop.time() + self.config.timeout_s
        send = _Send(road, template, topic, message_id, body, deadline_s, ordering_key)
        road.start(send)
        return send.future

    def _template(self, topic: str) -> FrameTemplate:
        template = self._templates.get(topic)
        if template is None:
            template = FrameTemplate(self.group, topic, self.config.default_topic_queue_nums)
            self._templates[topic] = template
        return template

    def _opened(self) -> _Road:
        check_open(self._road is not None, "producer")
        assert self._road is not None
        return self._road

    def _heartbeat(self) -> HeartbeatData:
        return HeartbeatData(
            client_id=self._instance.client_id, producer_data_set=[ProducerData(self.group)]
        )
