"""PullConsumer: reads queues at offsets of the caller's choice.

Nothing happens by itself: no queue is shared out and no offset committed unless it is asked for.
For readers that keep their own offsets, and for looking into a topic.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Final, Literal, Self

from ledgermq.client.config import ConsumerConfig
from ledgermq.client.errors import ClientError, ConfigError
from ledgermq.client.instance import ClientInstance, instance_of
from ledgermq.client.messages import ReceivedMessage
from ledgermq.client.participant import Participant
from ledgermq.client.process_queue import offset_after_illegal
from ledgermq.client.queue_requests import PullResult, PullStatus, QueueRequests
from ledgermq.client.queue_view import QueueView
from ledgermq.client.retry import back_off_ms
from ledgermq.client.serializers import Serializer
from ledgermq.client.subscription import expression_of
from ledgermq.protocol.bodies import MessageQueue

DEFAULT_READER: Final = "ledgermq_reader"


class PullConsumer(QueueView):
    """Reads queues; use it in an ``async with`` block.

    Every call that reaches a broker raises RefusedError, UnreachableError, NoRouteError or
    NameServerError, whose `retriable` says whether to call again.
    """

    def __init__(
        self,
        name_servers: str | ClientInstance = "127.0.0.1:9876",
        group: str = DEFAULT_READER,
        *,
        tags: str = "*",
        sql: str | None = None,
        serializer: Serializer | None = None,
        config: ConsumerConfig | None = None,
    ) -> None:
        """Opens nothing yet.

        Args:
            name_servers: ``host:port;host:port``.
            group: for committed offsets, and for the broker's permission to read.
            tags: ``*`` for all, or tags joined by ``||``.
            sql: an SQL92 condition over properties instead; brokers must be set up for it.
            serializer: makes `value` of the body of a message.
            config: times and limits.

        Raises:
            ConfigError: the addresses are wrong, or tags and sql are both given.
        """
        self.group = group
        self.tags = tags
        self._expression = expression_of(tags, sql)
        self.config = config or ConsumerConfig()
        self._instance = instance_of(name_servers, self.config.client)
        # Only its own connections know of its group, and only to the end.
        self._participant = Participant()
        self._requests = QueueRequests(self._instance, group, self.config, serializer)
        self._is_open = False
        # Assigned queues with the offset of the next message to hand out.
        self._positions: dict[MessageQueue, int] = {}
        self._pulls: dict[MessageQueue, asyncio.Task[PullResult]] = {}
        # Pulled by poll, but more than its caller wanted.
        self._ready: list[ReceivedMessage] = []
        self._failures = 0
        # When a broker first said that the position of a queue is not in it.
        self._illegal_since_s: dict[MessageQueue, float] = {}

    async def __aenter__(self) -> Self:
        self._instance.join(self._participant)
        self._is_open = True
        return self

    async def close(self) -> None:
        """Closes at once; nothing is committed. Safe to call twice."""
        if self._is_open and not self._instance.is_foreign:
            self._is_open = False
            try:
                self._requests.close()
                await self._cancel_pulls(list(self._pulls))
                await self._instance.quit(self._participant)
            finally:
                self._instance.drop(self._participant)

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        count_max: int | None = None,
        suspend_s: float = 0.0,
    ) -> PullResult:
        """Asks once for messages from an offset on.

        Args:
            queue: where.
            offset: of the first message wanted.
            count_max: messages at most; a broker may give fewer.
            suspend_s: how long the broker may wait for a message when there is none.
        """
        self._check_open()
        return await self._requests.pull(
            queue,
            offset,
            expression=self._expression,
            count_max=count_max,
            suspend_s=suspend_s,
        )

    async def commit(self, queue: MessageQueue, offset: int | None = None) -> None:
        """Commits an offset for the group; None commits the position of an assigned queue."""
        self._check_open()
        await self._requests.commit(queue, self.position(queue) if offset is None else offset)

    async def assign(
        self,
        queues: Iterable[MessageQueue],
        *,
        start: Literal["first", "last", "committed"] = "committed",
    ) -> None:
        """Chooses the queues that poll reads, in place of those before.

        Args:
            queues: any, of any topics.
            start: "first" or "last" message, or "committed", which falls back on the first.
        """
        self._check_open()
        if start not in ("first", "last", "committed"):
            raise ConfigError(f"start is {start!r}; allowed: first, last, committed")
        positions = {}
        for queue in queues:
            offset = await self._requests.committed(queue) if start == "committed" else None
            if offset is None and start == "last":
                offset = await self._requests.max_offset(queue)
            positions[queue] = await self._requests.min_offset(queue) if offset is None else offset
        await self._cancel_pulls(list(self._pulls))
        self._ready.clear()
        self._positions = positions

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Makes poll go on at an offset of an assigned queue.

        Raises:
            ConfigError: the queue is not assigned, or the offset is negative.
        """
        self._check_open()
        if offset < 0:
            raise ConfigError(f"offset is {offset}; allowed: 0 and more", topic=queue.topic)
        self.position(queue)
        await self._cancel_pulls([queue])
        self._ready = [message for message in self._ready if message.queue != queue]
        self._positions[queue] = offset

    def position(self, queue: MessageQueue) -> int:
        """Returns the offset of the next message that poll will hand out from a queue.

        Raises:
            ConfigError: the queue is not assigned.
        """
        if queue not in self._positions:
            raise ConfigError(f"queue {queue} is not assigned", topic=queue.topic)
        return self._positions[queue]

    async def poll(self, *, count_max: int = 1000, timeout_s: float = 1.0) -> list[ReceivedMessage]:
        """Returns the next messages of the assigned queues, as soon as there are any.

        Failures that may pass are tried again until the time is up.

        Args:
            count_max: messages at most.
            timeout_s: how long to wait for the first.

        Returns:
            Messages, those of one queue in their order; none when nothing came in time.

        Raises:
            ConfigError: count_max is not positive.
            ClientError: pulls fail with an error that is not retriable.
        """
        self._check_open()
        if count_max < 1:
            raise ConfigError(f"count_max is {count_max}; allowed: 1 and more")
        # Also a program that polls without waiting lets messages come.
        await asyncio.sleep(0)
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        while not self._ready:
            for queue in self._positions:
                if queue not in self._pulls:
                    self._pulls[queue] = loop.create_task(self._pull_on(queue))
            left_s = deadline_s - loop.time()
            if not self._pulls or left_s < 0:
                break
            await asyncio.wait(
                self._pulls.values(), timeout=left_s, return_when=asyncio.FIRST_COMPLETED
            )
            for queue, task in list(self._pulls.items()):
                if task.done():
                    del self._pulls[queue]
                    self._take(queue, task)
        given, self._ready = self._ready[:count_max], self._ready[count_max:]
        for message in given:
            self._positions[message.queue] = message.queue_offset + 1
        return given

    async def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """Gives the messages of the assigned queues, for ever."""
        while True:
            for message in await self.poll(count_max=self.config.pull_count_max, timeout_s=60.0):
                yield message

    async def _pull_on(self, queue: MessageQueue) -> PullResult:
        """Pulls behind what is ready already, after a pause when pulls failed."""
        if self._failures:
            await asyncio.sleep(back_off_ms(self._failures, 1.0) / 1000)
        return await self._requests.pull(queue, self._positions[queue], expression=self._expression)

    def _take(self, queue: MessageQueue, task: asyncio.Task[PullResult]) -> None:
        try:
            result = task.result()
        except ClientError as error:
            if not error.retriable:
                raise
            self._failures += 1
            return
        if result.status is PullStatus.OFFSET_ILLEGAL:
            self._move(queue, result)
            return
        self._failures = 0
        self._illegal_since_s.pop(queue, None)
        if result.messages:
            self._ready += result.messages
        elif not any(message.queue == queue for message in self._ready):
            self._positions[queue] = result.next_offset

    def _move(self, queue: MessageQueue, result: PullResult) -> None:
        """Takes the news that the position is not in the queue; a new leader may just lag."""
        now_s = asyncio.get_running_loop().time()
        waited_s = now_s - self._illegal_since_s.setdefault(queue, now_s)
        moved = offset_after_illegal(
            self._positions[queue], result.min_offset, result.max_offset, waited_s
        )
        if moved is None:
            self._failures += 1
        else:
            self._illegal_since_s.pop(queue)
            self._positions[queue] = moved

    async def _cancel_pulls(self, queues: list[MessageQueue]) -> None:
        tasks = [self._pulls.pop(queue) for queue in queues if queue in self._pulls]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
