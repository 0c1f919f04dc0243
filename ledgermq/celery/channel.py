"""Channel: kombu's view of queues and messages, on a station.

What kombu calls comes in the threads of its users; consumers are asked for room and given messages
in the loop of the station. Between the two stand the inbox of the transport, and `soon`.
"""

import json
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from amqp.protocol import queue_declare_ok_t
from kombu.exceptions import ChannelError
from kombu.transport import virtual
from kombu.utils.uuid import uuid

from ledgermq.celery.bindings import Binding
from ledgermq.celery.foreign import check_task, read_object
from ledgermq.celery.lane import Lane
from ledgermq.celery.mailbox import Mailbox
from ledgermq.celery.station import Got, OpenStation
from ledgermq.client import ReceivedMessage
from ledgermq.protocol.errors import RemoteProtocolError

# Messages that wait to be delivered, where kombu sets no limit.
_WAITING_MAX: Final = 64

_log = logging.getLogger("ledgermq.celery")


class Window:
    """How many messages a channel may be given. Used in the loop alone."""

    def __init__(self) -> None:
        # Messages without an acknowledgement at most; 0 for any number.
        self.limit = 0
        # Asked for, or not yet delivered.
        self.waiting = 0
        # Delivered and not acknowledged.
        self.unacknowledged = 0

    def room(self) -> int:
        """Messages that may be given now."""
        if self.limit:
            return self.limit - self.waiting - self.unacknowledged
        return _WAITING_MAX - self.waiting


class QueueConsumer:
    """One consumer of a queue: the taker of a lane or mailbox."""

    def __init__(
        self,
        channel: "Channel",
        queue: str,
        window: Window,
        callback: Callable[[dict[str, Any]], Any],
        *,
        no_ack: bool,
    ) -> None:
        self.channel = channel
        # Takes a message as kombu has it.
        self.callback = callback
        self.queue = queue
        self.no_ack = no_ack
        self.window = window
        self.place: Lane | Mailbox | None = None
        self.is_cancelled = False

    def room(self) -> int:
        """Messages that may be given now."""
        return self.window.room()

    def reserve(self, change: int) -> None:
        """Takes room for what is asked for, or gives it back."""
        self.window.waiting += change
        if change < 0:
            self.channel.nudge()

    def give(self, message: ReceivedMessage, times: int, deaths: int = 0) -> None:
        """Puts a message where the next drain of the connection finds it."""
        assert self.place is not None
        self.channel.connection.inbox.put((self, Got(self.place, message, times, deaths)))


@dataclass(slots=True)
class _Delivered:
    """A message that waits for its acknowledgement."""

    got: Got
    window: Window
    # True when who it was handed to raised an error.
    has_raised: bool = False


class QoS(virtual.QoS):
    """Acknowledgements go to the station; nothing is sent anew."""

    def ack(self, delivery_tag: str) -> None:
        """The message is done."""
        self.channel.settle(delivery_tag, is_done=True)
        super().ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """The message is given back, or thrown away."""
        self.channel.settle(delivery_tag, is_done=not requeue)
        super().ack(delivery_tag)

    def restore_unacked(self) -> list[Any]:
        """All that was delivered and not acknowledged is given back."""
        self.channel.settle_all()
        self._delivered.clear()
        self._dirty.clear()
        return []


class Channel(virtual.Channel):
    """A channel; see kombu.transport.virtual.Channel."""

    QoS = QoS
    supports_fanout = True

    def __init__(self, connection: Any, **kwargs: Any) -> None:
        super().__init__(connection, **kwargs)
        self._process_id = os.getpid()
        self._window = Window()
        self._by_tag: dict[str, QueueConsumer] = {}
        self._unsettled: dict[str, _Delivered] = {}

    @property
    def _open(self) -> OpenStation:
        station: OpenStation = self.connection.station
        return station

    # Queues and exchanges.

    def queue_declare(
        self,
        queue: str | None = None,
        passive: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Declares a queue: of this process when it ends with it, else one that all share."""
        queue = queue or f"amq.gen-{uuid()}"
        open_ = self._open
        if passive:
            if not self._has_queue(queue):
                raise ChannelError(
                    f"NOT_FOUND - no queue {queue!r}", (50, 10), "Channel.queue_declare", "404"
                )
            return queue_declare_ok_t(queue, self._size(queue), 0)
        if exclusive or auto_delete:
            open_.run(open_.station.declare_own(queue))
        else:
            open_.run(open_.station.declare_shared(queue))
        return queue_declare_ok_t(queue, 0, 0)

    def queue_bind(
        self,
        queue: str,
        exchange: str | None = None,
        routing_key: str = "",
        arguments: Any = None,
        **kwargs: Any,
    ) -> None:
        """Gives a queue what an exchange has for it."""
        self._open.run(self._open.station.bind(queue, self._binding(exchange, routing_key)))

    def queue_unbind(
        self,
        queue: str,
        exchange: str | None = None,
        routing_key: str = "",
        arguments: Any = None,
        **kwargs: Any,
    ) -> None:
        """Gives a queue no more of it."""
        self._open.run(self._open.station.unbind(queue, self._binding(exchange, routing_key)))

    def _binding(self, exchange: str | None, routing_key: str) -> Binding:
        exchange = exchange or "amq.direct"
        return Binding(exchange, self._kind(exchange), routing_key or "")

    def queue_delete(
        self, queue: str, if_unused: bool = False, if_empty: bool = False, **kwargs: Any
    ) -> None:
        """Forgets a queue and what is in it."""
        if if_empty and self._size(queue):
            return
        self._open.run(self._open.station.delete(queue))

    def exchange_delete(self, exchange: str, if_unused: bool = False, nowait: bool = False) -> None:
        """Forgets an exchange here; bindings stay until their queues are deleted."""
        self.state.exchanges.pop(exchange, None)

    def _has_queue(self, queue: str, **kwargs: Any) -> bool:
        return self._open.run(self._open.station.exists(queue))

    def _size(self, queue: str) -> int:
        return self._open.run(self._open.station.size(queue))

    def _purge(self, queue: str) -> int:
        return self._open.run(self._open.station.purge(queue))

    def _kind(self, exchange: str) -> str:
        declared = self.state.exchanges.get(exchange)
        if declared is not None:
            return str(declared["type"])
        return self._open.station.kind_of(exchange) or "direct"

    # Messages out.

    def basic_publish(
        self, message: dict[str, Any], exchange: str, routing_key: str, **kwargs: Any
    ) -> None:
        """Sends a message; returns when it is safe in all queues that it is for."""
        exchange = exchange or ""
        self._inplace_augment_message(message, exchange, routing_key)
        body = json.dumps(message).encode()
        station = self._open.station
        kind = self._kind(exchange) if exchange else "direct"
        is_wanted = self._open.run(station.publish(exchange, kind, routing_key or "", body))
        if not is_wanted and self.deadletter_queue:
            self._publish_dead(self.deadletter_queue, body)

    def _publish_dead(self, queue: str, body: bytes) -> None:
        """Sends what can go nowhere else to the queue of dead letters."""
        self._open.run(self._open.station.declare_shared(queue))
        self._open.run(self._open.station.publish("", "direct", queue, body))

    # Messages in.

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Any, consumer_tag: str, **kwargs: Any
    ) -> None:
        """Has messages of a queue delivered by the drains of the connection."""
        super().basic_consume(queue, no_ack, callback, consumer_tag, **kwargs)
        deliver = self.connection._callbacks[queue]
        window = Window() if no_ack else self._window
        consumer = QueueConsumer(self, queue, window, deliver, no_ack=no_ack)
        self._by_tag[consumer_tag] = consumer
        self._open.run(self._begin(consumer))

    async def _begin(self, consumer: QueueConsumer) -> None:
        station = self._open.station
        consumer.place = await station.find(consumer.queue)
        await station.consume(consumer.place, consumer)

    def basic_cancel(self, consumer_tag: str) -> None:
        """Has no more delivered; what waits for it is given back."""
        super().basic_cancel(consumer_tag)
        consumer = self._by_tag.pop(consumer_tag, None)
        if consumer is not None:
            consumer.is_cancelled = True
            if not self.is_foreign:
                self._open.run(self._end(consumer))
                self.connection.withdraw()

    @staticmethod
    async def _end(consumer: QueueConsumer) -> None:
        if consumer.place is not None:
            consumer.place.remove(consumer)

    def deliver(self, consumer: QueueConsumer, got: Got) -> bool:
        """Hands a message to the callback of its consumer; False when that has gone."""
        if consumer.is_cancelled:
            self._soon_back(got, consumer.window)
            return False
        try:
            raw = self._raw(got, consumer.queue)
        except BaseException:
            self._soon_back(got, consumer.window)
            raise
        if raw is None:
            self._soon_done(got, consumer.window)
            return False
        if consumer.no_ack:
            self._soon_done(got, consumer.window)
        else:
            self._note(raw, got, consumer.window, waited=1)
        self._hand_over(raw, consumer.callback)
        return True

    def _hand_over(self, raw: dict[str, Any], callback: Callable[[dict[str, Any]], Any]) -> None:
        """Calls who consumes, and notes when that raises an error: it may end the worker."""
        try:
            callback(raw)
        except (ConnectionError, *self.connection.connection_errors):
            # The message has no part in it.
            raise
        except Exception:
            delivered = self._unsettled.get(raw["properties"]["delivery_tag"])
            if delivered is not None:
                delivered.has_raised = True
            raise

    def basic_get(self, queue: str, no_ack: bool = False, **kwargs: Any) -> Any:
        """Returns the next message of a queue, None when there is none now."""
        while True:
            got = self._open.run(self._open.station.get(queue))
            if got is None:
                return None
            try:
                raw = self._raw(got, queue)
            except BaseException:
                self._open.soon(partial(got.place.put_back, got.message, got.times))
                raise
            if raw is None or no_ack:
                self._open.soon(partial(got.place.done, got.message))
            if raw is not None:
                break
        if not no_ack:
            self._note(raw, got, self._window, waited=0)
        message = self.Message(raw, channel=self)
        if not no_ack:
            self.qos.append(message, message.delivery_tag)
        return message

    def basic_qos(
        self, prefetch_size: int = 0, prefetch_count: int = 0, apply_global: bool = False
    ) -> None:
        """Sets how many messages may be without an acknowledgement; 0 for any number."""
        super().basic_qos(prefetch_size, prefetch_count, apply_global)

        def change() -> None:
            self._window.limit = prefetch_count
            self.nudge()

        self._open.soon(change)

    def nudge(self) -> None:
        """There is room for messages of any queue. Called in the loop."""
        for consumer in list(self._by_tag.values()):
            if consumer.place is not None:
                consumer.place.nudge()

    # What becomes of messages.

    @property
    def is_foreign(self) -> bool:
        """True in the child of a fork, where nothing is to be said for the parent."""
        return os.getpid() != self._process_id

    def settle(self, delivery_tag: str, *, is_done: bool, is_end: bool = False) -> None:
        """A message was acknowledged, or is given back. Any thread may say so.

        Args:
            delivery_tag: of the message.
            is_done: acknowledged.
            is_end: given back because this channel ends.
        """
        delivered = self._unsettled.pop(delivery_tag, None)
        if delivered is None or self.is_foreign:
            return
        got, window = delivered.got, delivered.window
        has_ended_worker = is_end and delivered.has_raised

        def tell() -> None:
            window.unacknowledged -= 1
            if is_done:
                got.place.done(got.message)
            else:
                got.place.put_back(got.message, got.times + 1, has_ended_worker=has_ended_worker)
            self.nudge()

        self._open.soon(tell)

    def settle_all(self) -> None:
        """Gives back all that was not acknowledged."""
        for delivery_tag in list(self._unsettled):
            self.settle(delivery_tag, is_done=False, is_end=True)

    def _note(self, raw: dict[str, Any], got: Got, window: Window, *, waited: int) -> None:
        """A message is delivered, and waits for its acknowledgement."""
        self._unsettled[raw["properties"]["delivery_tag"]] = _Delivered(got, window)

        def tell() -> None:
            window.waiting -= waited
            window.unacknowledged += 1
            if not window.limit:
                self.nudge()

        self._open.soon(tell)

    def _soon_done(self, got: Got, window: Window) -> None:
        def tell() -> None:
            window.waiting -= 1
            got.place.done(got.message)
            self.nudge()

        self._open.soon(tell)

    def _soon_back(self, got: Got, window: Window) -> None:
        def tell() -> None:
            window.waiting -= 1
            got.place.put_back(got.message, got.times)
            self.nudge()

        self._open.soon(tell)

    def _raw(self, got: Got, queue: str) -> dict[str, Any] | None:
        """Returns a message as kombu has it; None when it is not to be handed over: it is done.

        Raises:
            SendError: it belongs to the dead letters, and cannot be sent there now.
        """
        if 0 < self.connection.worker_deaths_max <= got.deaths:
            self._bury(got, queue)
            return None
        try:
            raw = read_object(got.message.body)
            check_task(raw)
            properties = raw["properties"]
            properties["delivery_tag"] = uuid()
            properties["delivery_info"]["redelivered"] = got.times > 1
        except (ValueError, KeyError, TypeError, RemoteProtocolError) as error:
            _log.warning("%r is no message of kombu and is dropped: %s", got.message, error)
            return None
        if got.times > 1:
            raw["redelivered"] = True
        return raw

    def _bury(self, got: Got, queue: str) -> None:
        """A message with which too many workers ended goes to the dead letters, or nowhere."""
        letters = self.deadletter_queue
        if letters == queue:
            letters = None
        if letters:
            self._publish_dead(letters, got.message.body)
        _log.error(
            "%r is %s: workers ended with it, %d deaths are counted, worker_deaths_max is %d",
            got.message,
            f"moved to {letters!r}" if letters else "dropped",
            got.deaths,
            self.connection.worker_deaths_max,
        )
