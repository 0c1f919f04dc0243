"""Station: what one process has of the broker, shared by all its connections of one URL.

It runs in the loop of a thread of its own (`OpenStation`); a connection of kombu asks it from
whatever thread it is in. A fork does not carry it over: the child makes its own.
"""

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, Self, TypeVar

from ledgermq.celery.bindings import (
    DIRECT,
    TOPIC,
    Binding,
    binding_item,
    mail_item,
    queue_item,
)
from ledgermq.celery.directory import Directory
from ledgermq.celery.errors import TransportError
from ledgermq.celery.lane import Lane, Taker
from ledgermq.celery.mailbox import Mailbox
from ledgermq.celery.names import GROUP, MAIL_TOPIC, claims_topic, mail_tag, task_topic
from ledgermq.celery.options import Settings
from ledgermq.client import ConsumerConfig, Message, MessageQueue, Producer, ReceivedMessage
from ledgermq.client.blocking.twin import Twin
from ledgermq.client.closing import Closing
from ledgermq.client.instance import ClientInstance
from ledgermq.client.queue_requests import QueueRequests

T = TypeVar("T")

# How old the table of bindings may be for a message that finds somebody in it, or is for a topic
# exchange. Any other that finds nobody has it read again.
_TABLE_AGE_S: Final = 1.0
# After how long to look whether a message that was seen waiting still does.
_GET_S: Final = 0.5


@dataclass(slots=True, frozen=True)
class Got:
    """A message, and where to tell what becomes of it."""

    place: Lane | Mailbox
    message: ReceivedMessage
    # How often it was given to somebody.
    times: int
    # The members that ended with it, as claims.py counts them.
    deaths: int = 0


class _One:
    """Somebody who wants one message."""

    def __init__(self) -> None:
        self.given: asyncio.Future[tuple[ReceivedMessage, int, int]] = (
            asyncio.get_running_loop().create_future()
        )
        self._room = 1

    def room(self) -> int:
        return self._room

    def reserve(self, change: int) -> None:
        self._room -= change

    def give(self, message: ReceivedMessage, times: int, deaths: int = 0) -> None:
        self.given.set_result((message, times, deaths))


class Station(Closing):
    """Queues, bindings and sends of one process; everything runs in one loop."""

    def __init__(self, settings: Settings) -> None:
        """Opens nothing yet."""
        self._settings = settings
        client = settings.client()
        self._instance = ClientInstance(settings.name_servers, client)
        self._producer = Producer(settings.name_servers, GROUP, config=settings.producer())
        self._requests = QueueRequests(self._instance, GROUP, ConsumerConfig(client=client))
        self._directory = Directory(
            self._instance, settings.namespace, settings.broker, settings.send_timeout_s
        )
        self._lanes: dict[str, Lane] = {}
        self._mailboxes: dict[str, Mailbox] = {}
        self.loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> Self:
        self.loop = asyncio.get_running_loop()
        self._instance.start()
        await self._producer.__aenter__()
        try:
            await self._directory.refresh()
        except BaseException:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        """Gives back what is not done, within the time that is set for it, and ends."""
        timeout_s = self._settings.close_timeout_s
        ends = [lane.stop(timeout_s) for lane in self._lanes.values()]
        ends += [mailbox.stop(timeout_s) for mailbox in self._mailboxes.values()]
        await asyncio.gather(*ends)
        await self._producer.close()
        await self._instance.close()

    # Queues.

    async def declare_shared(self, queue: str) -> None:
        """Makes a queue that all processes share, unless it is there."""
        await self._directory.put(dict([queue_item(queue)]))
        await self._lane(queue)

    async def declare_own(self, queue: str) -> None:
        """Makes a queue of this process, unless it is there."""
        if queue not in self._mailboxes:
            mail = await self._directory.queue(MAIL_TOPIC)
            offset = await self._requests.max_offset(mail)
            self._mailboxes.setdefault(queue, Mailbox(self._requests, mail, queue, offset))

    async def exists(self, queue: str) -> bool:
        """Tells whether a queue was declared."""
        if queue not in self._mailboxes and queue not in self._directory.bindings.queues:
            await self._directory.refresh()
        return queue in self._mailboxes or queue in self._directory.bindings.queues

    async def bind(self, queue: str, binding: Binding) -> None:
        """Gives a queue what an exchange has for it."""
        mailbox = self._mailboxes.get(queue)
        if mailbox is None:
            await self._directory.put(dict([binding_item(queue, binding)]))
            return
        await self._directory.put(dict([mail_item(binding.exchange, binding.kind)]))
        mailbox.bind(binding)

    async def unbind(self, queue: str, binding: Binding) -> None:
        """Gives a queue no more of it."""
        mailbox = self._mailboxes.get(queue)
        if mailbox is None:
            await self._directory.delete([binding_item(queue, binding)[0]])
        else:
            mailbox.unbind(binding)

    async def delete(self, queue: str) -> None:
        """Forgets a queue with all that waits in it; its topics stay."""
        mailbox = self._mailboxes.pop(queue, None)
        if mailbox is not None:
            await mailbox.stop(0.0)
        elif queue in self._directory.bindings.queues:
            await (await self._lane(queue)).purge()
            bound = self._directory.bindings.bindings_of(queue)
            keys = [binding_item(queue, binding)[0] for binding in bound]
            await self._directory.delete([*keys, queue_item(queue)[0]])

    async def size(self, queue: str) -> int:
        """Returns how many messages wait in a queue."""
        return await (await self.find(queue)).size()

    async def purge(self, queue: str) -> int:
        """Removes what waits in a queue, and returns how much that was."""
        return await (await self.find(queue)).purge()

    async def consume(self, place: Lane | Mailbox, taker: Taker) -> None:
        """Gives what comes into a queue to somebody."""
        if isinstance(place, Lane):
            await place.start()
        place.add(taker)

    async def get(self, queue: str) -> "Got | None":
        """Returns the next message of a queue, None when there is none now."""
        place = await self.find(queue)
        if isinstance(place, Mailbox):
            found = await place.get()
            return None if found is None else Got(place, *found)
        if not await place.size():
            return None
        taker = _One()
        await place.start()
        place.add(taker)
        try:
            while not taker.given.done():
                await asyncio.wait([taker.given], timeout=_GET_S)
                if taker.given.done() or await place.size():
                    continue
                if not taker.given.done():
                    # Others were quicker.
                    return None
        finally:
            place.remove(taker)
        return Got(place, *taker.given.result())

    # Messages.

    async def publish(self, exchange: str, declared: str, routing_key: str, body: bytes) -> bool:
        """Sends a message to all queues that it is for; returns when it is safe in all.

        Args:
            exchange: its name; empty sends to the queue that the key names.
            declared: the kind that this process knows it by.
            routing_key: of the message.
            body: as kombu reads it.

        Returns:
            False when it is for nobody.

        Raises:
            SendError: it is not acknowledged by all; some may have it.
        """
        if TOPIC in (declared, self.kind_of(exchange)):
            # Mostly events, many of them, that often nobody wants.
            await self._directory.refresh(older_than_s=_TABLE_AGE_S)
        elif not self._topics(exchange, routing_key):
            await self._directory.refresh()
        elif self.kind_of(exchange) != DIRECT:
            await self._directory.refresh(older_than_s=_TABLE_AGE_S)
        kind = self.kind_of(exchange) or DIRECT
        topics = self._topics(exchange, routing_key)
        if not topics and not exchange:
            # For a queue of some process; whether it lives is not known here.
            topics = [MAIL_TOPIC]
        sends = []
        for topic in topics:
            await self._directory.queue(topic)
            tags = mail_tag(exchange, kind, routing_key) if topic == MAIL_TOPIC else ""
            sends.append(self._producer.send(Message(topic, body, tags=tags)))
        await asyncio.gather(*sends)
        return bool(topics)

    def _topics(self, exchange: str, routing_key: str) -> list[str]:
        bindings = self._directory.bindings
        if not exchange:
            return [task_topic(routing_key)] if routing_key in bindings.queues else []
        topics = [task_topic(queue) for queue in bindings.queues_for(exchange, routing_key)]
        return [*topics, MAIL_TOPIC] if exchange in bindings.mailed else topics

    def kind_of(self, exchange: str) -> str | None:
        """Returns the kind of an exchange, when anything is bound to it."""
        return self._directory.bindings.kind_of(exchange) if exchange else DIRECT

    async def find(self, queue: str) -> Lane | Mailbox:
        """Returns a queue that was declared.

        Raises:
            TransportError: it was not.
        """
        if queue in self._mailboxes:
            return self._mailboxes[queue]
        if not await self.exists(queue):
            raise TransportError(f"no queue {queue!r} was declared")
        return await self._lane(queue)

    async def _lane(self, queue: str) -> Lane:
        if queue not in self._lanes:
            tasks = await self._directory.queue(task_topic(queue))
            log = await self._directory.queue(claims_topic(queue))
            lane = Lane(
                self._requests, self._appender(log), tasks, log, self._settings.lost_after_s
            )
            self._lanes.setdefault(queue, lane)
        return self._lanes[queue]

    def _appender(self, log: MessageQueue) -> Callable[[bytes], Coroutine[Any, Any, int]]:
        async def append(body: bytes) -> int:
            return (await self._producer.send(Message(log.topic, body))).queue_offset

        return append


class OpenStation(Twin[Station]):
    """A station in a thread of its own, for callers in any thread."""

    def __init__(self, settings: Settings) -> None:
        """Opens nothing yet; use it in a ``with`` block, or enter and close it."""
        super().__init__(Station(settings))
        self.station = self._twin
        # Open connections that use it.
        self.users = 0

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine of the station and returns its result, or raises its error."""
        return self._call(coroutine)

    def soon(self, function: Callable[[], None]) -> None:
        """Has a function called in the loop; nothing happens when that has ended."""
        loop = self.station.loop
        assert loop is not None
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(function)


@dataclass(slots=True)
class _Open:
    """The open stations of one process."""

    process_id: int
    lock: threading.Lock
    stations: dict[Settings, OpenStation]


class Stations:
    """The open stations of this process; in the child of a fork there are none."""

    def __init__(self) -> None:
        self._open = _Open(os.getpid(), threading.Lock(), {})

    def enter(self, settings: Settings) -> OpenStation:
        """Returns the station for some settings, open; each enter needs a leave."""
        open_ = self._own()
        with open_.lock:
            station = open_.stations.get(settings)
            if station is None:
                station = OpenStation(settings).__enter__()
                open_.stations[settings] = station
            station.users += 1
            return station

    def leave(self, settings: Settings, station: OpenStation) -> None:
        """Ends a use; the last one closes the station. One of before a fork is left alone."""
        open_ = self._own()
        with open_.lock:
            if open_.stations.get(settings) is not station:
                return
            station.users -= 1
            if station.users:
                return
            del open_.stations[settings]
        station.close()

    def _own(self) -> _Open:
        if self._open.process_id != os.getpid():
            self._open = _Open(os.getpid(), threading.Lock(), {})
        return self._open
