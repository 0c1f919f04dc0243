"""Sends on their way: tries, retries, and the lanes of ordering keys.

A send is written at once when route and connection are there; everything else (no route, no
connection, a refusal that may pass, no answer) goes through one slow way that waits, asks for the
route and connects before it tries again. Of each ordering key one send is on its way at a time.

A try that gets no answer in time ends nothing but itself, and should its answer come late all the
same, it counts. No try begins with too little time left for an answer.
"""

import asyncio
import functools
import random
from typing import Final

from ledgermq.client.checks import topic_trouble
from ledgermq.client.config import ProducerConfig
from ledgermq.client.endless import tell_failure
from ledgermq.client.errors import (
    ClientError,
    ClosedError,
    MessageError,
    NoRouteError,
    RefusedError,
    SendError,
    UnreachableError,
)
from ledgermq.client.instance import ClientInstance
from ledgermq.client.lanes import Lane
from ledgermq.client.messages import SendResult, SendStatus
from ledgermq.client.namespaces import with_namespace
from ledgermq.client.retry import (
    UNSAFE_STORE_CODES,
    Retry,
    is_retriable,
    retry_after_code,
    retry_after_loss,
    try_s,
    try_s_min,
)
from ledgermq.client.routes import TopicRoute
from ledgermq.client.selection import crowded_brokers, next_queue, queue_of_key
from ledgermq.client.send import Send
from ledgermq.client.send_frame import FrameTemplate, SendBody
from ledgermq.client.window import SendWindow
from ledgermq.protocol import properties as names
from ledgermq.protocol.bodies import MessageQueue
from ledgermq.protocol.codes import ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.headers import SendMessageResponseHeader

_SUCCESS: Final = int(ResponseCode.SUCCESS)
# Region of a broker that tells none. Source: MixAll.DEFAULT_TRACE_REGION_ID.
_DEFAULT_REGION: Final = "DefaultRegion"
# Sends after which to look again which brokers are slow.
_CROWDED_TURNS: Final = 8
# Sends after which the loop gets its turn in any case.
_TURN_COUNT: Final = 64
_OTHER_LOOP: Final = (
    "this producer was opened in another event loop; make and open one in each, or keep one loop"
    " (asyncio.Runner) for all"
)
# Of a send that is over: who still waits for a late answer to it must not keep its message.
_NO_BODY: Final = SendBody(0, 0, 0, 0, b"", b"", is_batch=False)


class SendRoad:
    """The way of sends to brokers and back: room, tries, retries, lanes of ordering keys."""

    def __init__(self, instance: ClientInstance, group: str, config: ProducerConfig) -> None:
        self.loop = asyncio.get_running_loop()
        self._window = SendWindow(config.in_flight_max, config.in_flight_bytes_max)
        self._instance = instance
        self._group = group
        self._config = config
        self._is_traced = config.client.trace
        self._turn = random.randrange(1 << 16)
        # Brokers that get nothing for a while, of the topic that was looked at last.
        self._crowded: frozenset[str] = frozenset()
        self._try_s_min = try_s_min(config.timeout_s)
        # By topic and key; none is unused.
        self._lanes: dict[tuple[str, str], Lane[Send]] = {}
        self._retries: set[asyncio.Task[None]] = set()
        self._on_way: set[Send] = set()
        # Done when nothing is on its way any more; None while nobody waits for that.
        self._nothing_left: asyncio.Future[None] | None = None
        self._is_closed = False
        self._templates: dict[str, FrameTemplate] = {}
        self._submitted = 0

    def template(self, topic: str) -> FrameTemplate:
        """Returns the template of frames to a topic.

        Raises:
            MessageError: a topic cannot have that name.
        """
        template = self._templates.get(topic)
        if template is None:
            config = self._config
            namespace = config.client.namespace
            if (trouble := topic_trouble(with_namespace(namespace, topic))) is not None:
                raise MessageError(trouble)
            template = FrameTemplate(
                with_namespace(namespace, self._group),
                with_namespace(namespace, topic),
                config.default_topic_queue_nums,
                config.client.credentials,
            )
            self._templates[topic] = template
        return template

    async def submit(
        self, topic: str, message_id: str, body: SendBody, ordering_key: str | None
    ) -> asyncio.Future[SendResult]:
        """Puts a send on its way as soon as there is room for it, and returns its outcome to be.

        Raises:
            MessageError: a topic cannot have that name.
            LaneFullError: too many sends of its ordering key wait already.
            ClosedError: the producer was closed meanwhile, or opened in another event loop.
        """
        # Asked so, for to ask for the running one costs a system call before Python 3.12.
        if not self.loop.is_running():
            raise ClosedError(_OTHER_LOOP)
        template = self.template(topic)
        lane = None if ordering_key is None else await self._enter_lane(topic, ordering_key)
        try:
            if not self._window.enter(body.size_bytes):
                await self._window.wait(body.size_bytes)
            if self._is_closed:
                # Others wait for room to learn the same.
                self._window.release(body.size_bytes)
                raise ClosedError("the producer was closed")
        except BaseException:
            if lane is not None and ordering_key is not None:
                self._leave_lane(lane, topic, ordering_key)
            raise
        deadline_s = self.loop.time() + self._config.timeout_s
        send = Send(self, template, topic, message_id, body, deadline_s, ordering_key, lane)
        self._start(send)
        self._submitted += 1
        if self._submitted % _TURN_COUNT == 0:
            # While there is room nothing else would let the loop write and read. Not before the
            # send has its place: others of its ordering key would overtake it.
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                send.future.cancel()
                raise
        return send.future

    async def _enter_lane(self, topic: str, key: str) -> Lane[Send]:
        lane = self._lanes.get((topic, key))
        if lane is None:
            lane = Lane(topic, self._config.timeout_s, self._config.in_flight_max // 2)
            self._lanes[topic, key] = lane
        try:
            await lane.enter(key)
        except BaseException:
            self._forget_unused(lane, topic, key)
            raise
        return lane

    def _leave_lane(self, lane: Lane[Send], topic: str, key: str) -> None:
        lane.leave()
        self._forget_unused(lane, topic, key)

    def _forget_unused(self, lane: Lane[Send], topic: str, key: str) -> None:
        if lane.is_unused:
            self._lanes.pop((topic, key), None)

    def _start(self, send: Send) -> None:
        """Sends for the first time, unless another message of the same key is on its way."""
        self._on_way.add(send)
        if send.lane is not None:
            if send.lane.is_busy:
                send.lane.waiting.append(send)
                return
            send.lane.begin(self.loop.time())
        self._try(send, left_s=self._config.timeout_s)

    def answered(self, send: Send, answer: RemotingCommand) -> None:
        """Takes the answer to the last try."""
        queue = send.queue
        assert queue is not None
        code = answer.code
        if code == _SUCCESS or self._is_stored(code):
            self._acknowledged(send, queue, answer)
            return
        refused = RefusedError(
            code,
            answer.remark,
            retriable=is_retriable(code, answer.remark),
            broker=queue.broker_name,
            topic=send.topic,
            queue_id=queue.queue_id,
        )
        retry = retry_after_code(
            code, answer.remark, send.attempts, self._left_ms(send), random.random()
        )
        self._again_or_not(send, refused, None if self._config.written_once else retry)

    def answered_late(self, send: Send, queue: MessageQueue, answer: RemotingCommand) -> None:
        """Takes the answer to a try whose time was over.

        A refusal is of no use, for there is another try. The next one of an ordering key must not
        overtake a copy that is on its way, so there the answer to the copy counts.
        """
        if send in self._on_way and self._is_stored(answer.code):
            if send.lane is None or not send.is_out:
                self._acknowledged(send, queue, answer)

    def _is_stored(self, code: int) -> bool:
        return code == _SUCCESS or (code in UNSAFE_STORE_CODES and self._config.accept_unsafe_store)

    def _acknowledged(self, send: Send, queue: MessageQueue, answer: RemotingCommand) -> None:
        """Takes the news that a message is stored in a queue."""
        code = answer.code
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
                _region_of(answer) if self._is_traced else "",
            ),
        )

    def lost(self, send: Send, error: ClientError) -> None:
        """Takes the news that the last try will have no answer."""
        retry = None
        # Only a try that was written has a number.
        is_last = self._config.written_once and send.opaque > 0
        if error.retriable and not self._is_closed and not is_last:
            retry = retry_after_loss(max(1, send.attempts), self._left_ms(send), random.random())
        self._again_or_not(send, error, retry)

    async def close(self) -> None:
        """Fails whatever is still on its way."""
        self.abort()
        if self._retries:
            await asyncio.wait(list(self._retries))

    def abort(self) -> None:
        """Fails whatever is still on its way, and waits for nothing."""
        self._is_closed = True
        for task in list(self._retries):
            task.cancel()
        for send in list(self._on_way):
            self._give_up(send, ClosedError("the producer was closed"))

    async def idle(self) -> None:
        """Returns when nothing is on its way.

        What a program cancelled is on its way until its broker has answered, for it may be stored.

        Raises:
            ClosedError: the producer was opened in another event loop.
        """
        if asyncio.get_running_loop() is not self.loop:
            raise ClosedError(_OTHER_LOOP)
        while self._on_way:
            if self._nothing_left is None:
                self._nothing_left = self.loop.create_future()
            # Others wait for it, too.
            await asyncio.shield(self._nothing_left)

    def choose(self, topic: str, key: str | None, avoided: str | None) -> MessageQueue | None:
        """Returns the queue for a send by the route as it is known; None when that has none."""
        route = self._instance.routes.find(topic)
        if route is None or not route.write_queues:
            return None
        if key is not None:
            return queue_of_key(route.write_queues, key)
        self._turn += 1
        if len(route.masters) < 2:
            return next_queue(route.write_queues, route.masters, self._turn, avoided)
        if self._turn % _CROWDED_TURNS == 0:
            self._crowded = self._find_crowded(route)
        return next_queue(route.write_queues, route.masters, self._turn, avoided, self._crowded)

    def _find_crowded(self, route: TopicRoute) -> frozenset[str]:
        find = self._instance.connections.find
        return crowded_brokers(
            {
                name: connection.waiting_count
                for name, address in route.masters.items()
                if (connection := find(address)) is not None
            }
        )

    def _try(
        self, send: Send, chosen: MessageQueue | None = None, left_s: float | None = None
    ) -> None:
        """Writes the request when route and connection are there, else goes to get them.

        Args:
            send: what to send.
            chosen: the queue whose broker was made ready for it; None chooses one. A new choice
                after each wait could fall on a broker that is not ready, time and again.
            left_s: time that is left for it, where that is known; None looks.
        """
        if left_s is None:
            if send not in self._on_way:
                return
            left_s = send.deadline_s - self.loop.time()
            if left_s < self._try_s_min:
                self._give_up(send, send.failure or _too_late(send))
                return
        queue = send.queue = chosen or self.choose(send.topic, send.key, send.avoided_broker)
        if queue is not None:
            route = self._instance.routes.find(send.topic)
            address = route.masters.get(queue.broker_name) if route is not None else None
            connection = self._instance.connections.find(address) if address else None
            if connection is not None and connection.is_open:
                timeout_s = self._config.attempt_timeout_s
                if send.timeouts or timeout_s > left_s:
                    timeout_s = try_s(timeout_s, send.timeouts, left_s)
                send.attempts += 1
                try:
                    opaque = send.opaque = connection.expect(send.body.code, send, timeout_s)
                except ClientError as error:
                    self.lost(send, error)
                    return
                send.is_out = True
                frame = send.template.frame(
                    send.body, queue.queue_id, opaque, signed_for=connection.signed_for
                )
                connection.write(frame)
                return
        self._later(send, Retry(delay_ms=0, needs_route=False), queue)

    def _later(self, send: Send, retry: Retry, chosen: MessageQueue | None = None) -> None:
        task = self.loop.create_task(self._try_again(send, retry, chosen))
        self._retries.add(task)
        task.add_done_callback(functools.partial(self._tried_again, send))

    def _tried_again(self, send: Send, task: asyncio.Task[None]) -> None:
        """Whatever made a try fail, its send has an end."""
        self._retries.discard(task)
        tell_failure(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            failed = ClientError(f"{type(error).__name__}: {error}", topic=send.topic)
            failed.__cause__ = error
            self._give_up(send, failed)
        elif task.cancelled() and not self._is_closed:
            # The event loop ends, and so does whoever waits.
            send.future.cancel()
            self._give_up(send, ClosedError("the event loop ended"))

    async def _try_again(self, send: Send, retry: Retry, chosen: MessageQueue | None) -> None:
        """Waits, makes sure of a route and a connection, and sends."""
        await asyncio.sleep(retry.delay_ms / 1000)
        if send not in self._on_way:
            # An answer came late.
            return
        routes = self._instance.routes
        try:
            route = routes.find(send.topic)
            if retry.needs_route or route is None:
                route = await routes.refresh(send.topic, may_create=True)
            queue = chosen or self.choose(send.topic, send.key, send.avoided_broker)
            if queue is None or queue.broker_name not in route.masters:
                name = queue.broker_name if queue is not None else None
                raise NoRouteError("no leader now", retriable=True, broker=name, topic=send.topic)
            await self._instance.connections.open(route.masters[queue.broker_name])
        except ClientError as error:
            send.attempts += 1
            self.lost(send, error)
            return
        self._try(send, queue)

    def _again_or_not(self, send: Send, error: ClientError, retry: Retry | None) -> None:
        if retry is None or self._is_closed or send.future.done():
            self._give_up(send, error)
            return
        send.failure = error
        send.avoided_broker = send.queue.broker_name if send.queue is not None else None
        self._later(send, retry)

    def _give_up(self, send: Send, error: ClientError) -> None:
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

    def _finish(self, send: Send, outcome: SendResult | SendError) -> None:
        if send not in self._on_way:
            return
        self._on_way.discard(send)
        if not self._on_way and self._nothing_left is not None:
            self._nothing_left.set_result(None)
            self._nothing_left = None
        self._window.release(send.body.size_bytes)
        send.body = _NO_BODY
        future = send.future
        if not future.done():
            if isinstance(outcome, SendError):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
        if send.lane is not None:
            self._next_of_lane(send, send.lane, outcome)

    def _next_of_lane(self, send: Send, lane: Lane[Send], outcome: SendResult | SendError) -> None:
        """Makes the next send of an ordering key begin when one has ended."""
        assert send.key is not None
        now_s = self.loop.time()
        if isinstance(outcome, SendResult):
            lane.acknowledged(now_s)
        if lane.waiting:
            lane.begin(now_s)
            following = lane.waiting.popleft()
            if isinstance(outcome, SendError):
                # Why it has no time left, if it has none.
                following.held_up_by = outcome
            # Not from here: a row of failures would nest as deep as it is long.
            self.loop.call_soon(self._try, following)
        else:
            lane.is_busy = False
        self._leave_lane(lane, send.topic, send.key)

    def _left_ms(self, send: Send) -> float:
        """Returns in how many ms a try may still begin."""
        return (send.deadline_s - self._try_s_min - self.loop.time()) * 1000


def _too_late(send: Send) -> ClientError:
    """Returns why a send was never tried: those before it took its time, and what held them up."""
    what = "no time was left when its turn came"
    cause = send.held_up_by.__cause__ if send.held_up_by is not None else None
    if isinstance(cause, ClientError) and cause.what.startswith(what):
        # Of a whole row of sends, what the first one met.
        cause = cause.__cause__
    if not isinstance(cause, ClientError):
        return UnreachableError(what, retriable=True, topic=send.topic)
    late = UnreachableError(
        f"{what}; the one before it: {cause.what}",
        retriable=True,
        broker=cause.broker,
        topic=send.topic,
        queue_id=cause.queue_id,
        code=cause.code,
    )
    late.__cause__ = cause
    return late


def _region_of(answer: RemotingCommand) -> str:
    """Returns the region of a broker that wants traces, else an empty text."""
    fields = answer.ext_fields or {}
    if fields.get(names.TRACE_SWITCH) == "false":
        return ""
    return fields.get(names.MSG_REGION) or _DEFAULT_REGION
