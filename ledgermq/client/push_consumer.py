"""PushConsumer: the messages of a topic, shared among the members of a group.

Each member tells all brokers that it is there, computes by itself which queues are its own, and
keeps one held pull for each of them on its way. Messages go to a listener, several at a time, or to
an ``async for`` one by one. Delivery is at least once: an offset is committed up to the lowest
message that is not yet consumed, so that after a crash, or when a queue changes hands, some
messages come again.

A message whose listener raises is given back to the broker, which delivers it to the group again
after a while, and after too many times puts it into the group's dead letters.
"""

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Final, Self, TypeAlias

from ledgermq.client.config import ConsumerConfig
from ledgermq.client.errors import ClientError, ConfigError
from ledgermq.client.holding import Holding
from ledgermq.client.instance import ClientInstance, check_open, now_ms, tell_failure
from ledgermq.client.messages import ReceivedMessage
from ledgermq.client.process_queue import ProcessQueue
from ledgermq.client.queue_requests import QueueRequests, tags_of
from ledgermq.client.retry import back_off_ms
from ledgermq.protocol.bodies import MessageQueue
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.heartbeat import (
    ConsumeFromWhere,
    ConsumerData,
    HeartbeatData,
    SubscriptionData,
)
from ledgermq.protocol.java_hash import java_string_hash

# Consumes a message; may be a plain function, which then runs in a thread.
Listener: TypeAlias = Callable[[ReceivedMessage], Awaitable[None] | None]

RETRY_TOPIC_PREFIX: Final = "%RETRY%"
# Messages that a worker consumes before others get their turn of the loop.
_TURN_COUNT: Final = 64
# First pause between rounds of sharing out while something is missing.
_ROUND_PAUSE_S: Final = 0.25
_GIVE_BACK_PAUSE_S: Final = 5.0

_log = logging.getLogger("ledgermq.client")


class PushConsumer:
    """A member of a consumer group; use it in an ``async with`` block.

    With a listener, messages are consumed as soon as the block is entered. Without one, iterate:

        async with PushConsumer("orders", "billing") as consumer:
            async for message in consumer:
                ...

    where a message counts as consumed when the next one is asked for.
    """

    def __init__(
        self,
        topic: str,
        group: str,
        listener: Listener | None = None,
        *,
        name_servers: str = "127.0.0.1:9876",
        tags: str = "*",
        start: str = "last",
        config: ConsumerConfig | None = None,
    ) -> None:
        """Opens nothing yet.

        Args:
            topic: what to consume. All members of a group must ask for the same topic and tags.
            group: name of the group.
            listener: called with each message; a coroutine function, or a plain function, which
                runs in a thread. Returning means consumed, raising means "again later".
            name_servers: ``host:port;host:port``.
            tags: ``*`` for all, or tags joined by ``||``.
            start: where a group that has consumed nothing yet begins: "first" or "last" message.
            config: times and limits.

        Raises:
            ConfigError: an argument is wrong.
        """
        if start not in ("first", "last"):
            raise ConfigError(f"start is {start!r}; allowed: first, last")
        if not topic or not group:
            raise ConfigError("topic and group must not be empty")
        self.topic = topic
        self.group = group
        self.tags = tags
        self.start = start
        self.config = config or ConsumerConfig()
        self._listener = listener
        self._retry_topic = RETRY_TOPIC_PREFIX + group
        self._wake = asyncio.Event()
        self._instance = ClientInstance(
            name_servers, self.config.client, on_request=self._requested
        )
        self._instance.heartbeat = self._heartbeat
        self._instance.stays_connected = True
        self._subscription_version = now_ms()
        self._requests = QueueRequests(self._instance, group, self.config)
        self._arrived: asyncio.Queue[tuple[ProcessQueue, ReceivedMessage] | None] = asyncio.Queue()
        self._holding = Holding(self._instance, self._requests, self._arrived, self.config)
        self._holding.begin_at(topic, start)
        self._tasks: list[asyncio.Task[None]] = []
        self._workers: list[asyncio.Task[None]] = []
        self._threads: ThreadPoolExecutor | None = None
        self._is_open = False
        # What `async for` gave last.
        self._given: tuple[ProcessQueue, ReceivedMessage] | None = None

    async def __aenter__(self) -> Self:
        # Fails here when no name server answers; a topic that is not there yet may come later.
        try:
            await self._instance.routes.refresh(self.topic)
        except ClientError as error:
            if error.code is None:
                await self._instance.connections.close()
                raise
        self._instance.start()
        self._is_open = True
        await self._instance.send_heartbeats()
        create_task = asyncio.get_running_loop().create_task
        self._tasks = [create_task(self._share_out()), create_task(self._commit_now_and_then())]
        for task in self._tasks:
            task.add_done_callback(tell_failure)
        if self._listener is not None:
            if not _is_coroutine_function(self._listener):
                self._threads = ThreadPoolExecutor(
                    self.config.concurrency, thread_name_prefix=f"ledgermq-{self.group}"
                )
            self._workers = [create_task(self._work()) for _ in range(self.config.concurrency)]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stops in order: no more pulls, running listeners end, offsets are committed.

        A message that ``async for`` gave last is not consumed, unless `acknowledge` said so. Safe
        to call twice.
        """
        if not self._is_open:
            return
        self._is_open = False
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        self._holding.stop()
        if self._workers:
            for _ in self._workers:
                self._arrived.put_nowait(None)
            _, late = await asyncio.wait(self._workers, timeout=self.config.close_timeout_s)
            for task in late:
                task.cancel()
        # Whoever iterates in another task learns of the end.
        self._arrived.put_nowait(None)
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        await self._holding.commit_at_end()
        await self._instance.close(None, self.group)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        """Gives the next message, and counts the one before as consumed.

        Raises:
            StopAsyncIteration: the consumer was closed.
        """
        check_open(self._is_open or not self._arrived.empty(), "consumer")
        self.acknowledge()
        while True:
            item = await self._arrived.get()
            if item is None:
                raise StopAsyncIteration
            if not item[0].is_dropped:
                self._given = item
                return item[1]

    def acknowledge(self) -> None:
        """Counts the message that ``async for`` gave last as consumed."""
        if self._given is not None:
            given, self._given = self._given, None
            self._consumed(*given)

    async def commit(self) -> None:
        """Tells the brokers now what is consumed, instead of within commit_interval_s.

        Raises:
            ClientError: one of them could not be told; the next time will tell it.
        """
        check_open(self._is_open, "consumer")
        await self._holding.commit()

    def queues(self) -> list[MessageQueue]:
        """Returns the queues of the topic that this member has now, sorted."""
        return self._holding.queues(self.topic)

    @property
    def pending_count(self) -> int:
        """Messages that are pulled and not consumed."""
        return self._holding.pending_count

    def _consumed(self, held: ProcessQueue, message: ReceivedMessage) -> None:
        held.consumed(message)
        self._holding.made_room(held)

    async def _work(self) -> None:
        """Consumes messages one after the other until there is a None."""
        turns = 0
        while True:
            turns += 1
            if turns % _TURN_COUNT == 0:
                await asyncio.sleep(0)
            item = await self._arrived.get()
            if item is None:
                return
            held, message = item
            if not held.is_dropped and await self._consume(held, message):
                self._consumed(held, message)

    async def _consume(self, held: ProcessQueue, message: ReceivedMessage) -> bool:
        """Calls the listener; False when the message could neither be consumed nor given back."""
        assert self._listener is not None
        try:
            if self._threads is not None:
                loop = asyncio.get_running_loop()
                awaitable = await loop.run_in_executor(self._threads, self._listener, message)
            else:
                awaitable = self._listener(message)
            if awaitable is not None:
                await awaitable
        except Exception:
            _log.warning("listener of %s failed on %r", self.group, message, exc_info=True)
        else:
            return True
        attempts = 0
        while not held.is_dropped:
            attempts += 1
            try:
                await self._requests.send_back(message, self.config.reconsume_times_max)
                return True
            except ClientError as error:
                _log.warning("%s could not give back %r: %s", self.group, message, error)
                pause_s = back_off_ms(attempts, 1.0) / 1000
                await asyncio.sleep(pause_s if error.retriable else _GIVE_BACK_PAUSE_S)
        return False

    async def _share_out(self) -> None:
        """Rounds of sharing out: at once when the members change, else each interval."""
        misses = 0
        while True:
            self._wake.clear()
            is_settled = True
            for topic in (self.topic, self._retry_topic):
                try:
                    settled = await self._holding.share_out(topic, self.group, self._tags(topic))
                except ClientError as error:
                    settled = False
                    # A group that never failed anything may have no retry topic.
                    if topic == self.topic and misses % 20 == 0:
                        _log.info("%s has no queues of %s yet: %s", self.group, topic, error)
                is_settled = is_settled and settled
            misses = 0 if is_settled else misses + 1
            pause_s = self.config.rebalance_interval_s
            if misses:
                pause_s = min(pause_s, _ROUND_PAUSE_S * 2 ** min(misses - 1, 10))
                await self._instance.send_heartbeats()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._wake.wait()

    async def _commit_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(self.config.commit_interval_s)
            with contextlib.suppress(ClientError):
                await self._holding.commit()

    def _tags(self, topic: str) -> str:
        return self.tags if topic == self.topic else "*"

    def _requested(self, address: str, request: RemotingCommand) -> RemotingCommand | None:
        if request.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            self._wake.set()
        return None

    def _heartbeat(self) -> HeartbeatData:
        where = (
            ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
            if self.start == "first"
            else ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
        )
        subscriptions = []
        for topic in (self.topic, self._retry_topic):
            tags = tags_of(self._tags(topic))
            subscriptions.append(
                SubscriptionData(
                    topic=topic,
                    sub_string=self._tags(topic),
                    sub_version=self._subscription_version,
                    tags_set=tags,
                    code_set=frozenset(map(java_string_hash, tags)),
                )
            )
        return HeartbeatData(
            client_id=self._instance.client_id,
            consumer_data_set=[
                ConsumerData(
                    group_name=self.group,
                    consume_from_where=where,
                    subscription_data_set=subscriptions,
                )
            ],
        )


def _is_coroutine_function(listener: Listener) -> bool:
    # Of an object with __call__, that is what counts.
    call = type(listener).__call__
    return inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(call)
