"""LitePullConsumer: the program asks for messages when it wants some, and may move about.

Either `subscribe`: the members of a group share the queues out among themselves, as push consumers
do; or `assign`: the program names the queues. Both pull ahead, within the limits of the
configuration. Delivery is at least once: what `poll` returned counts as consumed when `poll` is
called again, or when `acknowledge` or `commit` says so; only that is committed.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from typing import Final, Self

from ledgermq.client.config import ConsumerConfig, Start
from ledgermq.client.connection import Answer
from ledgermq.client.endless import all_of
from ledgermq.client.errors import ClientError, ConfigError
from ledgermq.client.holding import Holding
from ledgermq.client.hooks import received
from ledgermq.client.inbox import Inbox, Item
from ledgermq.client.instance import ClientInstance, instance_of, now_ms
from ledgermq.client.messages import ReceivedMessage
from ledgermq.client.namespaces import with_namespace
from ledgermq.client.participant import Participant
from ledgermq.client.process_queue import ProcessQueue
from ledgermq.client.questions import Consumer, Questions
from ledgermq.client.queue_requests import QueueRequests
from ledgermq.client.queue_view import QueueView
from ledgermq.client.rounds import Rounds
from ledgermq.client.serializers import Serializer
from ledgermq.client.shares import GroupShare
from ledgermq.client.subscription import EVERYTHING, expression_of, subscription_of
from ledgermq.client.subscription_check import check_subscriptions
from ledgermq.client.tracing import tracer_of
from ledgermq.protocol.bodies import MessageQueue
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.heartbeat import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    SubscriptionData,
)

_BEGINNINGS: Final = {
    "first": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    "last": ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
}


class _ByHand:
    """Offsets of the group, told by the program alone."""

    def __init__(self, requests: QueueRequests) -> None:
        self._requests = requests

    async def committed(self, queue: MessageQueue) -> int | None:
        return await self._requests.committed(queue)

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Leaves it to the program."""


class LitePullConsumer(QueueView):
    """Polls the queues of a group, or queues of its own choice; use it in an ``async with`` block.

    async with LitePullConsumer("127.0.0.1:9876", "billing") as consumer:
        await consumer.subscribe("orders")
        while True:
            for message in await consumer.poll():
                ...

    One task polls or iterates at a time. Calls that reach a broker raise RefusedError,
    UnreachableError, NoRouteError or NameServerError, whose `retriable` says whether to call again.
    """

    def __init__(
        self,
        name_servers: str | ClientInstance,
        group: str,
        *,
        start: Start = "last",
        auto_commit: bool = True,
        serializer: Serializer | None = None,
        config: ConsumerConfig | None = None,
    ) -> None:
        """Opens nothing yet.

        Args:
            name_servers: ``host:port;host:port``.
            group: name of the group, also for committed offsets.
            start: where queues without a committed offset begin: "first" or "last" message.
            auto_commit: commit each commit_interval_s, when a queue is lost, and at the end; False
                leaves it to `commit`.
            serializer: makes `value` of the body of a message.
            config: times and limits.

        Raises:
            ConfigError: an argument is wrong.
        """
        if start not in _BEGINNINGS:
            raise ConfigError(f"start is {start!r}; allowed: first, last")
        if not group:
            raise ConfigError("group must not be empty")
        self.group = group
        self.start = start
        self.auto_commit = auto_commit
        self.config = config or ConsumerConfig()
        self._namespace = self.config.client.namespace
        self._serializer = serializer
        self._hooks = self.config.client.hooks
        self._wire_group = with_namespace(self._namespace, group)
        self._instance = instance_of(name_servers, self.config.client)
        self._participant = Participant(
            consumer_group=self._wire_group,
            on_request=self._requested,
            heartbeat=self._heartbeat,
            stays_connected=True,
        )
        self._requests = QueueRequests(self._instance, group, self.config, serializer)
        self._tracer = tracer_of(self._instance, group, self.config.client)
        self._inbox = Inbox()
        self._subscriptions: dict[str, SubscriptionData] = {}
        # What of the assigned queues is wanted.
        self._assigned = EVERYTHING
        self._is_assigned = False
        self._starts: dict[str, str] = {}
        # Returned by poll, not yet consumed.
        self._given: list[Item] = []
        self._holding = self._make_holding()
        self._rounds = Rounds(
            self._instance,
            self._holding,
            group,
            lambda: list(self._subscriptions.values()),
            self.config.rebalance_interval_s,
            self._namespace,
        )
        self._questions = self._make_questions()
        self._tasks: list[asyncio.Task[None]] = []
        self._is_open = False

    def _make_holding(self) -> Holding:
        return Holding(
            self._instance,
            self._requests,
            self._inbox,
            self.config,
            starts=self._starts,
            offsets=self._requests if self.auto_commit else _ByHand(self._requests),
            shares=GroupShare(self._instance, self._wire_group),
            locks=None,
            settled=self._lost,
            failed=self._inbox.fail,
        )

    def _make_questions(self) -> Questions:
        return Questions(
            Consumer(
                group=self._wire_group,
                namespace=self._namespace,
                serializer=self._serializer,
                is_orderly=False,
                name_servers=self._instance.name_servers.addresses,
                concurrency=1,
                body_bytes_max=self.config.body_bytes_max,
                subscriptions=lambda: list(self._subscriptions.values()),
                holding=self._holding,
                listening=None,
                locks=None,
                consume_type=ConsumeType.CONSUME_ACTIVELY,
            )
        )

    async def __aenter__(self) -> Self:
        self._instance.join(self._participant)
        self._is_open = True
        if self._tracer is not None:
            self._tracer.start()
        create_task = asyncio.get_running_loop().create_task
        self._tasks = [create_task(self._rounds.run())]
        if self.auto_commit:
            self._tasks.append(create_task(self._holding.commit_now_and_then()))
        return self

    async def close(self) -> None:
        """Stops pulling, and commits what is consumed when that happens by itself.

        What `poll` returned last is not consumed, unless `acknowledge` said so. Safe to call twice.
        """
        if not self._is_open or self._instance.is_foreign:
            return
        self._is_open = False
        try:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks)
            self._holding.stop()
            self._inbox.close()
            self._questions.close()
            if self.auto_commit:
                await self._holding.release()
            if self._tracer is not None:
                await self._tracer.close()
            self._requests.close()
            await self._instance.quit(self._participant)
        finally:
            # Whoever is cancelled while it says good-bye leaves nothing behind either.
            self._abort()

    def _abort(self) -> None:
        self._holding.abort()
        self._inbox.close()
        self._questions.close()
        if self._tracer is not None:
            self._tracer.abort()
        self._requests.close()
        self._instance.drop(self._participant)

    async def subscribe(self, topic: str, *, tags: str = "*", sql: str | None = None) -> None:
        """Takes part in a topic: its queues are shared out among the members of the group.

        May be called for several topics, and again for other tags. All members of a group must ask
        for the same. A topic that is not there yet may come later.

        Args:
            topic: its name.
            tags: ``*`` for all, or tags joined by ``||``.
            sql: an SQL92 condition over properties instead; brokers must be set up for it.

        Raises:
            ConfigError: an argument is wrong, or queues are assigned.
            RefusedError: a broker refuses the SQL condition.
        """
        self._check_open()
        if self._is_assigned:
            raise ConfigError("subscribe and assign exclude each other", topic=topic)
        if not topic:
            raise ConfigError("topic must not be empty")
        expression = expression_of(tags, sql)
        try:
            await self._instance.routes.refresh(topic)
        except ClientError as error:
            if error.code is None:
                raise
        wanted = subscription_of(topic, expression, now_ms(), self._namespace)
        await check_subscriptions(self._instance, self._wire_group, [wanted])
        was_wanted = topic in self._subscriptions
        self._starts[topic] = self.start
        self._subscriptions[topic] = wanted
        if was_wanted and (leaving := await self._rounds.drop(topic)):
            await asyncio.wait(leaving)
        await self._instance.send_heartbeats()
        self._rounds.wake()

    async def unsubscribe(self, topic: str) -> None:
        """Gives the queues of a topic to the other members; one that is not subscribed is none."""
        self._check_open()
        if self._subscriptions.pop(topic, None) is None:
            return
        if leaving := await self._rounds.drop(topic):
            await asyncio.wait(leaving)
        if self._subscriptions:
            await self._instance.send_heartbeats()
        else:
            await self._instance.leave(None, self._wire_group)

    async def assign(
        self, queues: Iterable[MessageQueue], *, tags: str = "*", sql: str | None = None
    ) -> None:
        """Chooses the queues to poll, in place of those before; they are shared with nobody.

        Queues that were assigned before go on where they are, new ones begin at the committed
        offset of the group, or else as `start` says.

        Raises:
            ConfigError: an argument is wrong, or a topic is subscribed.
            ClientError: the beginning of a queue is not to be had; nothing has changed.
        """
        self._check_open()
        if self._subscriptions:
            raise ConfigError("subscribe and assign exclude each other")
        expression = expression_of(tags, sql)
        wanted = list(dict.fromkeys(queues))
        is_same = expression == self._assigned
        offsets: dict[MessageQueue, int] = {}
        for queue in wanted:
            self._starts[queue.topic] = self.start
            if self._holding.find(queue) is None:
                offsets[queue] = await self._holding.beginning(queue)
            elif not is_same:
                offsets[queue] = self.position(queue)
        held = [process_queue.queue for process_queue in self._holding.held()]
        gone = [queue for queue in held if queue in offsets or queue not in wanted]
        await self._holding.let_go(gone)
        self._is_assigned, self._assigned = bool(wanted), expression
        self._holding.assign(offsets, expression)

    def assignment(self) -> list[MessageQueue]:
        """Returns the queues that are polled now, sorted."""
        return [process_queue.queue for process_queue in self._holding.held()]

    async def poll(self, *, count_max: int = 1000, timeout_s: float = 1.0) -> list[ReceivedMessage]:
        """Returns the next messages as soon as there are any; those before count as consumed.

        Args:
            count_max: messages at most.
            timeout_s: how long to wait for the first.

        Returns:
            Messages, those of one queue in their order; none when nothing came in time.

        Raises:
            ClientError: pulls fail with an error that is not retriable.
            ConfigError: count_max is not positive.
        """
        self._check_open()
        if count_max < 1:
            raise ConfigError(f"count_max is {count_max}; allowed: 1 and more")
        self.acknowledge()
        # Also a program that polls without waiting lets messages come.
        await asyncio.sleep(0)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not self._inbox.is_closed and not self._give(count_max):
                    await self._inbox.news()
        return [message for _, message in self._given]

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        """Gives the next message, and counts those before as consumed.

        Raises:
            StopAsyncIteration: the consumer was closed.
        """
        self._instance.check_open(self._is_open or self._inbox.is_closed, "consumer")
        self.acknowledge()
        while self._is_open:
            if self._give(1):
                return self._given[0][1]
            await self._inbox.news()
        raise StopAsyncIteration

    def acknowledge(self) -> None:
        """Counts all messages that were given as consumed."""
        given, self._given = self._given, []
        for process_queue, message in given:
            process_queue.consumed(message)
            self._holding.made_room(process_queue)

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Tells the brokers up to where the group has consumed, and waits for their word.

        Args:
            offsets: of the next message to consume, by queue. None counts all messages that were
                given as consumed, and commits the position of each queue.

        Raises:
            ClientError: a broker could not be told; others may have been.
        """
        self._check_open()
        if offsets is None:
            self.acknowledge()
            offsets = {held.queue: held.committable() for held in self._holding.held()}
        await all_of(self._requests.commit(queue, offset) for queue, offset in offsets.items())

    def position(self, queue: MessageQueue) -> int:
        """Returns the offset of the next message that will be given of a queue.

        Raises:
            ConfigError: the queue is not this consumer's now.
        """
        return self._polled(queue).position()

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Makes a queue go on at an offset; what was given of it before is no longer committed.

        Raises:
            ConfigError: the queue is not this consumer's now, or the offset is negative.
        """
        self._check_open()
        if offset < 0:
            raise ConfigError(f"offset is {offset}; allowed: 0 and more", topic=queue.topic)
        self._holding.seek(self._polled(queue), offset)
        self._inbox.clear(queue)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Makes a queue go on at its oldest message."""
        await self.seek(queue, await self.min_offset(queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Makes a queue go on behind its newest message."""
        await self.seek(queue, await self.max_offset(queue))

    async def seek_to_time(self, queue: MessageQueue, timestamp_ms: int) -> None:
        """Makes a queue go on at the message stored nearest to a time (ms since 1970).

        That is what `offset_at` returns; it may be one stored before the time.
        """
        await self.seek(queue, await self.offset_at(queue, timestamp_ms))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Keeps queues back: nothing of them is given until `resume`.

        A queue that is lost and comes back is no longer paused.

        Raises:
            ConfigError: a queue is not this consumer's now; none is paused.
        """
        wanted = [self._polled(queue).queue for queue in queues]
        for queue in wanted:
            self._inbox.pause(queue)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Ends what `pause` began; queues that are not paused are ignored."""
        for queue in queues:
            self._inbox.resume(queue)

    def paused(self) -> list[MessageQueue]:
        """Returns the paused queues, sorted."""
        return self._inbox.paused()

    def _polled(self, queue: MessageQueue) -> ProcessQueue:
        process_queue = self._holding.find(queue)
        if process_queue is None:
            raise ConfigError(f"queue {queue} is not this consumer's now", topic=queue.topic)
        return process_queue

    def _give(self, count_max: int) -> bool:
        self._given = self._inbox.take(count_max)
        for process_queue, message in self._given:
            process_queue.given_offset = message.queue_offset + 1
            if self._tracer is not None:
                self._tracer.end(self._tracer.begin(message))
        if self._given and self._hooks is not None:
            received(self._hooks, [message for _, message in self._given], self.group)
        return bool(self._given)

    async def _lost(self, queue: MessageQueue) -> None:
        self._inbox.forget(queue)

    def _requested(self, address: str, request: RemotingCommand) -> Answer:
        if request.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            self._rounds.wake()
            return None
        return self._questions.answer(request)

    def _heartbeat(self) -> ConsumerData | None:
        if not self._subscriptions:
            return None
        return ConsumerData(
            group_name=self._wire_group,
            consume_type=ConsumeType.CONSUME_ACTIVELY,
            consume_from_where=_BEGINNINGS[self.start],
            subscription_data_set=list(self._subscriptions.values()),
        )
