"""Handing: sends that any thread prepares, and that the loop's thread takes many at a time.

A visit to the loop for each send costs two changes of threads, many times what the send itself
does. So a thread checks and encodes its message by itself, leaves it in a queue and goes on; the
loop is woken when it does not look at the queue already. What is left there counts as on its way:
it has the same bounds, and a thread that finds no room waits until something is acknowledged.
"""

import asyncio
import functools
import threading
from collections import deque
from concurrent.futures import Future
from typing import NamedTuple

from ledgermq.client.blocking.twin import LoopThread
from ledgermq.client.config import ProducerConfig
from ledgermq.client.endless import tell_failure
from ledgermq.client.errors import ClientError, ClosedError
from ledgermq.client.instance import ClientInstance, now_ms
from ledgermq.client.messages import Message, SendResult
from ledgermq.client.producer import Producer
from ledgermq.client.send_frame import SendBody
from ledgermq.client.serializers import Serializer


class _Handed(NamedTuple):
    """A send that a thread has prepared."""

    topic: str
    message_id: str
    body: SendBody
    outcome: Future[SendResult]


class _Room:
    """How many sends, and bytes of them, are handed over and have no outcome; for all threads."""

    def __init__(self, config: ProducerConfig) -> None:
        self._count_max = config.in_flight_max
        self._bytes_max = config.in_flight_bytes_max
        self._count = 0
        self._bytes = 0
        self._is_closed = False
        # Guards all fields; waited on by threads without room.
        self._changed = threading.Condition(threading.Lock())

    def take(self, size_bytes: int) -> None:
        """Returns with room taken.

        Raises:
            ClosedError: the producer was closed.
        """
        with self._changed:
            while not self._is_closed and not self._has_room(size_bytes):
                self._changed.wait()
            if self._is_closed:
                raise ClosedError("the producer was closed")
            self._count += 1
            self._bytes += size_bytes

    def give(self, size_bytes: int) -> None:
        """Gives room back; called in the loop's thread, which never waits for any."""
        with self._changed:
            self._count -= 1
            self._bytes -= size_bytes
            self._changed.notify()

    def close(self) -> None:
        """Refuses all who wait and who come."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _has_room(self, size_bytes: int) -> bool:
        return self._count == 0 or (
            self._count < self._count_max and self._bytes + size_bytes <= self._bytes_max
        )


class HandingProducer(Producer):
    """The asyncio producer, with a way in for other threads."""

    def __init__(
        self,
        name_servers: str | ClientInstance,
        group: str,
        *,
        serializer: Serializer | None,
        config: ProducerConfig | None,
    ) -> None:
        """Opens nothing yet; see Producer."""
        super().__init__(name_servers, group, serializer=serializer, config=config)
        self._room = _Room(self.config)
        # Of its own, so that the loop's thread and others never make one id.
        self._own_ids = self._instance.new_unique_ids()
        # Guards the ids and the flag.
        self._gate = threading.Lock()
        # Set by who wakes the loop, cleared by the loop when the queue is empty, under the gate.
        self._is_awake = False
        # Filled by all threads, emptied by the loop's.
        self._handed: deque[_Handed] = deque()
        # In the loop's thread only.
        self._taking: asyncio.Task[None] | None = None

    def takes(self, ordering_key: str | None) -> bool:
        """Tells whether sends may be handed over: without a key, and followed by nobody."""
        return ordering_key is None and not self._is_followed and self._hooks is None

    def hand_over(self, message: Message, thread: LoopThread) -> Future[SendResult]:
        """Leaves a send for the loop as soon as there is room; called in any thread but the loop's.

        Raises:
            MessageError: it cannot be sent as it is.
            ClosedError: the producer is closed.
        """
        self._opened().template(message.topic)
        with self._gate:
            message_id = self._own_ids.create(now_ms())
        _, body = self._prepare(message, now_ms(), message_id)
        outcome: Future[SendResult] = Future()
        outcome.set_running_or_notify_cancel()
        self._room.take(body.size_bytes)
        self._handed.append(_Handed(message.topic, message_id, body, outcome))
        with self._gate:
            is_awake, self._is_awake = self._is_awake, True
        if not is_awake:
            try:
                thread.post(self._wake)
            except ClosedError:
                self._refuse_all()
                raise
        return outcome

    async def flush(self) -> None:
        """Returns when every send has its result or its error, also what was handed over."""
        self._opened()
        # A thread that has just left something wakes the loop after that.
        while self._handed or self._taking is not None:
            if self._taking is None:
                self._wake()
            else:
                await asyncio.wait([self._taking])
        await super().flush()

    def _wake(self) -> None:
        if self._taking is None:
            self._taking = asyncio.get_running_loop().create_task(self._take_all())
            self._taking.add_done_callback(self._taken)

    def _taken(self, task: asyncio.Task[None]) -> None:
        self._taking = None
        tell_failure(task)
        if self._handed:
            # Whoever left it may have woken the loop before this task was seen to be done.
            self._wake()

    async def _take_all(self) -> None:
        """Takes what threads have left, until there is nothing more."""
        try:
            while True:
                while self._handed:
                    await self._take(self._handed.popleft())
                with self._gate:
                    if not self._handed:
                        self._is_awake = False
                        return
        except BaseException:
            with self._gate:
                self._is_awake = False
            self._refuse_all()
            raise

    async def _take(self, handed: _Handed) -> None:
        try:
            sent = await self._opened().submit(handed.topic, handed.message_id, handed.body, None)
        except ClientError as error:
            self._end(handed, error)
        except BaseException:
            self._end(handed, ClosedError("the producer was closed"))
            raise
        else:
            sent.add_done_callback(functools.partial(self._sent, handed))

    def _sent(self, handed: _Handed, sent: asyncio.Future[SendResult]) -> None:
        if sent.cancelled():
            self._end(handed, ClosedError("the producer was closed"))
        elif (error := sent.exception()) is not None:
            self._end(handed, error)
        else:
            self._room.give(handed.body.size_bytes)
            handed.outcome.set_result(sent.result())

    def _end(self, handed: _Handed, error: BaseException) -> None:
        self._room.give(handed.body.size_bytes)
        handed.outcome.set_exception(error)

    def _refuse_all(self) -> None:
        """Fails what nobody will take any more."""
        while self._handed:
            try:
                handed = self._handed.popleft()
            except IndexError:
                # Another thread refuses, too.
                return
            self._end(handed, ClosedError("the producer was closed"))

    def _closed(self) -> None:
        super()._closed()
        self._room.close()
        self._refuse_all()
