"""PushConsumer: the messages of a topic, shared among the members of a group.

Each member tells all brokers that it is there, computes by itself which queues are its own, and
keeps one held pull for each of them on its way. Messages go to a listener, or to an ``async for``
one by one. Delivery is at least once: an offset is committed up to the lowest message that is not
yet consumed, so that after a crash, or when a queue changes hands, some messages come again.

What a listener that raises means depends on the mode:

    concurrent   several messages at a time; the broker takes the message back, delivers it to the
                 group again after a while, and after too many times puts it into the group's dead
                 letters
    orderly      the messages of a queue one after the other; the queue waits, and the message is
                 tried again. A queue has one member at a time for sure: the broker locks it
    broadcast    every member gets every message, and keeps its offsets in a file; the message is
                 dropped, with a line in the log
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, Self, TypeAlias

from ledgermq.client.closing import Closing
from ledgermq.client.concurrent_work import Arrived, ConcurrentWork
from ledgermq.client.config import ConsumerConfig
from ledgermq.client.connection import Answer
from ledgermq.client.endless import keep_going
from ledgermq.client.errors import ClientError, ConfigError
from ledgermq.client.holding import Holding
from ledgermq.client.instance import ClientInstance, now_ms
from ledgermq.client.listening import Listening
from ledgermq.client.local_offsets import LocalOffsets, offsets_path
from ledgermq.client.messages import ReceivedMessage
from ledgermq.client.namespaces import with_namespace
from ledgermq.client.orderly_work import OrderlyWork
from ledgermq.client.process_queue import ProcessQueue
from ledgermq.client.questions import Consumer, Questions
from ledgermq.client.queue_locks import RENEW_INTERVAL_S, QueueLocks
from ledgermq.client.queue_requests import QueueRequests
from ledgermq.client.rounds import Rounds
from ledgermq.client.serializers import Serializer
from ledgermq.client.shares import EveryQueue, GroupShare
from ledgermq.client.subscription import EVERYTHING, expression_of, subscription_of
from ledgermq.client.tracing import tracer_of
from ledgermq.client.user_function import UserFunction
from ledgermq.protocol.bodies import MessageQueue
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.heartbeat import (
    ConsumeFromWhere,
    ConsumerData,
    HeartbeatData,
    MessageModel,
    SubscriptionData,
)
from ledgermq.protocol.names import RETRY_PREFIX

# Consumes a message; may be a plain function, which then runs in a thread.
Listener: TypeAlias = Callable[[ReceivedMessage], Awaitable[None] | None]

MODES: Final = ("concurrent", "orderly", "broadcast")


class PushConsumer(Closing):
    """A member of a consumer group; use it in an ``async with`` block.

    With a listener, messages are consumed as soon as the block is entered. Without one, iterate:

        async with PushConsumer("127.0.0.1:9876", "billing", "orders") as consumer:
            async for message in consumer:
                ...

    where a message counts as consumed when the next one is asked for.
    """

    def __init__(
        self,
        name_servers: str,
        group: str,
        topic: str,
        listener: Listener | None = None,
        *,
        tags: str = "*",
        sql: str | None = None,
        start: str = "last",
        mode: str = "concurrent",
        serializer: Serializer | None = None,
        config: ConsumerConfig | None = None,
    ) -> None:
        """Opens no connection yet.

        Args:
            name_servers: ``host:port;host:port``.
            group: name of the group.
            topic: what to consume. All members of a group must ask for the same topic and tags.
            listener: called with each message; a coroutine function, or a plain function, which
                runs in a thread. Returning means consumed, raising means what the mode says.
            tags: ``*`` for all, or tags joined by ``||``.
            sql: an SQL92 condition over properties instead; brokers must be set up for it.
            start: where a group that has consumed nothing yet begins: "first" or "last" message.
            mode: "concurrent", "orderly" or "broadcast"; the same for all members of a group.
            serializer: makes `value` of the body of a message.
            config: times and limits.

        Raises:
            ConfigError: an argument is wrong, or the file of a broadcast consumer is none.
        """
        _check(topic, group, start, mode)
        self.topic = topic
        self.group = group
        self.tags = tags
        self.start = start
        self.mode = mode
        self.config = config or ConsumerConfig()
        self._expression = expression_of(tags, sql)
        self._namespace = self.config.client.namespace
        self._serializer = serializer
        self._hooks = self.config.client.hooks
        self._wire_group = with_namespace(self._namespace, group)
        self._instance = ClientInstance(
            name_servers,
            self.config.client,
            on_request=self._requested,
            heartbeat=self._heartbeat,
            # A broker that lost this member would share its queues out to others.
            stays_connected=True,
        )
        self._subscriptions = self._subscribe()
        self._requests = QueueRequests(self._instance, group, self.config, serializer)
        self._tracer = tracer_of(self._instance, group, self.config.client)
        self._arrived: Arrived = asyncio.Queue()
        self._locks = self._make_locks()
        self._listening: Listening | None = None
        self._work: ConcurrentWork | OrderlyWork | None = None
        if listener is not None:
            function = UserFunction(listener, self.config.concurrency)
            self._listening = Listening(group, function, self._tracer, self._hooks)
            self._work = self._make_work(self._listening)
        self._holding = self._make_holding()
        self._rounds = self._make_rounds()
        self._questions = self._make_questions()
        self._tasks: list[asyncio.Task[None]] = []
        self._is_open = False
        # What `async for` gave last.
        self._given: tuple[ProcessQueue, ReceivedMessage] | None = None

    def _subscribe(self) -> tuple[SubscriptionData, ...]:
        # What a group failed comes again in its retry topic; a broadcast consumer has none.
        wanted = {self.topic: self._expression}
        if self.mode != "broadcast":
            wanted[RETRY_PREFIX + self.group] = EVERYTHING
        version = now_ms()
        return tuple(
            subscription_of(topic, expression, version, self._namespace)
            for topic, expression in wanted.items()
        )

    def _make_locks(self) -> QueueLocks | None:
        if self.mode != "orderly":
            return None
        return QueueLocks(self._instance, self.group, time.monotonic, self._namespace)

    def _make_rounds(self) -> Rounds:
        return Rounds(
            self._instance,
            self._holding,
            self.group,
            lambda: self._subscriptions,
            self.config.rebalance_interval_s,
            self._namespace,
        )

    def _make_work(self, listening: Listening) -> ConcurrentWork | OrderlyWork:
        config, requests = self.config, self._requests
        if self._locks is not None:
            return OrderlyWork(
                listening,
                self._arrived,
                self._consumed,
                requests.bury,
                self._locks,
                concurrency=config.concurrency,
                pause_s=config.orderly_pause_s,
                tries_max=config.reconsume_times_max,
            )
        give_back = None if self.mode == "broadcast" else requests.send_back
        return ConcurrentWork(
            listening, self._arrived, self._consumed, give_back, config.concurrency
        )

    def _make_holding(self) -> Holding:
        is_broadcast = self.mode == "broadcast"
        config, work = self.config, self._work
        path = offsets_path(config.offsets_directory, config.client.instance_name, self._wire_group)
        return Holding(
            self._instance,
            self._requests,
            self._arrived,
            config,
            # What was given back is consumed from the begin of the retry topic.
            starts={self.topic: self.start},
            offsets=LocalOffsets(path) if is_broadcast else self._requests,
            shares=EveryQueue() if is_broadcast else GroupShare(self._instance, self._wire_group),
            locks=self._locks,
            settled=work.settled if isinstance(work, OrderlyWork) else None,
        )

    def _make_questions(self) -> Questions:
        return Questions(
            Consumer(
                group=self._wire_group,
                namespace=self._namespace,
                serializer=self._serializer,
                is_orderly=self._locks is not None,
                name_servers=self._instance.name_servers.addresses,
                concurrency=self.config.concurrency,
                body_bytes_max=self.config.body_bytes_max,
                subscriptions=lambda: self._subscriptions,
                holding=self._holding,
                listening=self._listening,
                locks=self._locks,
            )
        )

    async def __aenter__(self) -> Self:
        try:
            await self._meet()
        except BaseException:
            self._instance.abort()
            raise
        self._is_open = True
        if self._tracer is not None:
            self._tracer.start()
        create_task = asyncio.get_running_loop().create_task
        self._tasks = [
            create_task(self._rounds.run()),
            create_task(self._holding.commit_now_and_then()),
        ]
        if self._locks is not None:
            renewing = keep_going(f"renewing the locks of {self.group}", self._renew_locks)
            self._tasks.append(create_task(renewing))
        if self._work is not None:
            self._work.start()
        return self

    async def _meet(self) -> None:
        """Looks for the topic, and tells its brokers of this member.

        Raises:
            ClientError: no name server answers; a topic that is not there yet may come later.
        """
        try:
            await self._instance.routes.refresh(self.topic)
        except ClientError as error:
            if error.code is None:
                raise
        self._instance.start()
        await self._instance.send_heartbeats()

    async def close(self) -> None:
        """Stops in order: no more pulls, running listeners end, offsets are committed.

        A message that ``async for`` gave last is not consumed, unless `acknowledge` said so. Safe
        to call twice.
        """
        if not self._is_open or self._instance.is_foreign:
            return
        self._is_open = False
        try:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks)
            self._holding.stop()
            if self._work is not None:
                await self._work.stop(self.config.close_timeout_s)
            # Whoever iterates in another task learns of the end.
            self._arrived.put_nowait(None)
            if self._listening is not None:
                self._listening.close()
            self._questions.close()
            await self._holding.release()
            if self._tracer is not None:
                await self._tracer.close()
            await self._instance.close(None, self.group)
        finally:
            # Whoever is cancelled while it says good-bye leaves nothing behind either.
            self._abort()

    def _abort(self) -> None:
        self._holding.abort()
        if self._work is not None:
            self._work.abort()
        self._arrived.put_nowait(None)
        if self._listening is not None:
            self._listening.close()
        self._questions.close()
        if self._tracer is not None:
            self._tracer.abort()
        self._instance.abort()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        """Gives the next message, and counts the one before as consumed.

        Raises:
            StopAsyncIteration: the consumer was closed.
        """
        if not self._is_open or self._instance.is_foreign:
            self._instance.check_open(not self._arrived.empty(), "consumer")
        self.acknowledge()
        while True:
            item = await self._arrived.get()
            if item is None:
                raise StopAsyncIteration
            if not item[0].is_dropped:
                self._given = item
                if self._hooks is not None:
                    self._hooks.receive([item[1]], self.group)
                if self._tracer is not None:
                    self._tracer.end(self._tracer.begin(item[1]))
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
        self._instance.check_open(self._is_open, "consumer")
        await self._holding.commit()

    def queues(self) -> list[MessageQueue]:
        """Returns the queues of the topic that this member has now, sorted."""
        return self._holding.queues(self.topic)

    @property
    def client_id(self) -> str:
        """The name under which brokers know this member."""
        return self._instance.client_id

    @property
    def pending_count(self) -> int:
        """Messages that are pulled and not consumed."""
        return self._holding.pending_count

    def _consumed(self, held: ProcessQueue, message: ReceivedMessage) -> None:
        held.consumed(message)
        self._holding.made_room(held)

    async def _renew_locks(self) -> None:
        await asyncio.sleep(RENEW_INTERVAL_S)
        if await self._holding.renew_locks():
            self._rounds.wake()

    def _requested(self, address: str, request: RemotingCommand) -> Answer:
        if request.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            self._rounds.wake()
            return None
        return self._questions.answer(request)

    def _heartbeat(self) -> HeartbeatData:
        where = (
            ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
            if self.start == "first"
            else ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
        )
        model = MessageModel.BROADCASTING if self.mode == "broadcast" else MessageModel.CLUSTERING
        member = ConsumerData(
            group_name=self._wire_group,
            message_model=model,
            consume_from_where=where,
            subscription_data_set=list(self._subscriptions),
        )
        return HeartbeatData(client_id=self._instance.client_id, consumer_data_set=[member])


def _check(topic: str, group: str, start: str, mode: str) -> None:
    if start not in ("first", "last"):
        raise ConfigError(f"start is {start!r}; allowed: first, last")
    if mode not in MODES:
        raise ConfigError(f"mode is {mode!r}; allowed: {', '.join(MODES)}")
    if not topic or not group:
        raise ConfigError("topic and group must not be empty")
