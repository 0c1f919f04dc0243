"""PushConsumer: the messages of topics, shared among the members of a group.

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

A listener may also say what is to become of a message: see outcome.py.
"""

import asyncio
import contextlib
import signal
import time
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import Final, Self, TypeAlias

from ledgermq.client.arrived import Arrived
from ledgermq.client.closing import Closing
from ledgermq.client.concurrent_work import ConcurrentWork
from ledgermq.client.config import ConsumerConfig, Mode, Start
from ledgermq.client.connection import Answer
from ledgermq.client.endless import all_of, keep_going
from ledgermq.client.errors import ClientError, ConfigError
from ledgermq.client.failed_tries import FailedTries
from ledgermq.client.holding import Holding
from ledgermq.client.hooks import received
from ledgermq.client.instance import ClientInstance, instance_of, now_ms
from ledgermq.client.listening import Listening
from ledgermq.client.local_offsets import LocalOffsets, offsets_path
from ledgermq.client.messages import ReceivedMessage
from ledgermq.client.namespaces import with_namespace
from ledgermq.client.orderly_work import OrderlyWork
from ledgermq.client.outcome import Outcome
from ledgermq.client.participant import Participant
from ledgermq.client.process_queue import ProcessQueue
from ledgermq.client.questions import Consumer, Questions
from ledgermq.client.queue_locks import RENEW_INTERVAL_S, QueueLocks
from ledgermq.client.queue_requests import QueueRequests
from ledgermq.client.rounds import Rounds
from ledgermq.client.serializers import Serializer
from ledgermq.client.shares import EveryQueue, GroupShare
from ledgermq.client.signals import ENDING, until_told
from ledgermq.client.subscription import EVERYTHING, subscription_of
from ledgermq.client.subscription_check import check_subscriptions
from ledgermq.client.telling import OnQueues, Telling
from ledgermq.client.topic_search import TopicSearch
from ledgermq.client.topics import Topics, WantedTopics
from ledgermq.client.tracing import tracer_of
from ledgermq.client.user_function import UserFunction
from ledgermq.protocol.bodies import MessageQueue
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.heartbeat import (
    ConsumeFromWhere,
    ConsumerData,
    MessageModel,
    SubscriptionData,
)
from ledgermq.protocol.names import RETRY_PREFIX

# Consumes a message, and may say what became of it; a plain function runs in a thread.
OneListener: TypeAlias = Callable[[ReceivedMessage], Awaitable[Outcome | None] | Outcome | None]
# The same for batches: nothing, or an outcome for each message.
Outcomes: TypeAlias = list[Outcome] | list[Outcome | None] | None
BatchListener: TypeAlias = Callable[[list[ReceivedMessage]], Awaitable[Outcomes] | Outcomes]
Listener: TypeAlias = OneListener | BatchListener
MODES: Final = ("concurrent", "orderly", "broadcast")
_BATCH_MAX: Final = 4096


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
        name_servers: str | ClientInstance,
        group: str,
        topic: Topics,
        listener: Listener | None = None,
        *,
        tags: str = "*",
        sql: str | None = None,
        start: Start = "last",
        mode: Mode = "concurrent",
        batch_max: int | None = None,
        on_assigned: OnQueues | None = None,
        on_revoked: OnQueues | None = None,
        serializer: Serializer | None = None,
        config: ConsumerConfig | None = None,
    ) -> None:
        """Opens no connection yet.

        Args:
            name_servers: ``host:port;host:port``.
            group: name of the group.
            topic: what to consume: a topic, several, a mapping of topics to their tags, or a
                compiled pattern that whole names match. All members of a group must ask for the
                same topics and tags.
            listener: called with each message; a coroutine function, or a plain function, which
                runs in a thread. Returning means consumed, or what the returned outcome says
                (`retry(delay=)`, `BURY`); raising means what the mode says.
            tags: ``*`` for all, or tags joined by ``||``.
            sql: an SQL92 condition over properties instead; brokers must be set up for it.
            start: where a new group begins: "first" or "last" message; "first" in a young queue.
            mode: "concurrent", "orderly" or "broadcast"; the same for all members of a group.
            batch_max: calls the listener with a list of up to so many messages, those that are
                there; in orderly mode all of one queue. None calls it with one message.
            on_assigned: called with queues that this member gets, before their first message; a
                coroutine function, or a plain one, which runs in a thread.
            on_revoked: called with queues that go, when what is consumed of them is committed. In
                orderly mode no other member has them before it returns.
            serializer: makes `value` of the body of a message.
            config: times and limits.

        Raises:
            ConfigError: an argument is wrong, or the file of a broadcast consumer is none.
        """
        _check(group, start, mode, batch_max)
        self.topic = topic
        self.group = group
        self.tags = tags
        self.start = start
        self.mode = mode
        self.config = config or ConsumerConfig()
        self._wanted = WantedTopics(topic, tags, sql)
        self._namespace = self.config.client.namespace
        self._serializer = serializer
        self._hooks = self.config.client.hooks
        self._wire_group = with_namespace(self._namespace, group)
        self._instance = instance_of(name_servers, self.config.client)
        self._participant = Participant(
            consumer_group=self._wire_group,
            on_request=self._requested,
            heartbeat=self._heartbeat,
            # A broker that lost this member would share its queues out to others.
            stays_connected=True,
        )
        self._tasks: list[asyncio.Task[None]] = []
        # Done when it is closed.
        self._ended = asyncio.Event()
        # What `async for` gave last.
        self._given: tuple[ProcessQueue, ReceivedMessage] | None = None
        self._make_parts(listener, batch_max, on_assigned, on_revoked)

    def _make_parts(
        self,
        listener: Listener | None,
        batch_max: int | None,
        on_assigned: OnQueues | None,
        on_revoked: OnQueues | None,
    ) -> None:
        """Makes what the consumer consists of, each part from those before."""
        self._starts: dict[str, str] = {}
        self._subscriptions = self._subscribe(self.start)
        self._requests = QueueRequests(self._instance, self.group, self.config, self._serializer)
        self._tracer = tracer_of(self._instance, self.group, self.config.client)
        self._arrived = Arrived()
        self._locks = self._make_locks()
        self._listening = None if listener is None else self._make_listening(listener, batch_max)
        self._work = None if self._listening is None else self._make_work(self._listening)
        self._assigned = self._make_telling("on_assigned", on_assigned)
        self._revoked = self._make_telling("on_revoked", on_revoked)
        self._holding = self._make_holding()
        self._rounds = self._make_rounds()
        self._search = self._make_search()
        self._questions = self._make_questions()

    def _subscribe(self, start: str) -> tuple[SubscriptionData, ...]:
        wanted = dict(self._wanted.by_name)
        for topic in wanted:
            self._starts.setdefault(topic, start)
        # What a group failed comes again in its retry topic; a broadcast consumer has none.
        if self.mode != "broadcast":
            wanted[RETRY_PREFIX + self.group] = EVERYTHING
        version = now_ms()
        return tuple(
            subscription_of(topic, expression, version, self._namespace)
            for topic, expression in wanted.items()
        )

    def _make_listening(self, listener: Listener, batch_max: int | None) -> Listening:
        function = UserFunction[object](listener, self.config.concurrency)
        config = self.config
        tries = FailedTries(self.mode, config.reconsume_times_max, config.orderly_pause_s)
        return Listening(
            self.group,
            function,
            self._tracer,
            self._hooks,
            metrics=config.client.metrics,
            batch_max=batch_max,
            tries=tries,
        )

    def _make_telling(self, name: str, function: OnQueues | None) -> Telling | None:
        if function is None:
            return None
        return Telling(name, self.group, function, self.config.callback_timeout_s)

    def _make_search(self) -> TopicSearch | None:
        if self._wanted.pattern is None:
            return None
        interval_s = self.config.pattern_interval_s
        return TopicSearch(self._instance, self._wanted, self._topics_changed, interval_s)

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
            listening,
            self._arrived,
            self._consumed,
            give_back,
            config.concurrency,
            bury=requests.bury,
        )

    def _make_holding(self) -> Holding:
        is_broadcast = self.mode == "broadcast"
        config, work = self.config, self._work
        offsets = self._requests if not is_broadcast else self._make_local_offsets()
        return Holding(
            self._instance,
            self._requests,
            self._arrived,
            config,
            # What was given back is consumed from the begin of the retry topic.
            starts=self._starts,
            offsets=offsets,
            shares=EveryQueue() if is_broadcast else GroupShare(self._instance, self._wire_group),
            locks=self._locks,
            settled=work.settled if isinstance(work, OrderlyWork) else None,
            on_assigned=None if self._assigned is None else self._assigned.tell,
            on_revoked=None if self._revoked is None else self._revoked.tell,
        )

    def _make_local_offsets(self) -> LocalOffsets:
        directory, client = self.config.offsets_directory, self.config.client
        return LocalOffsets(offsets_path(directory, client.instance_name, self._wire_group))

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
            self._instance.drop(self._participant)
            raise
        self._is_open = True
        if self._tracer is not None:
            self._tracer.start()
        create_task = asyncio.get_running_loop().create_task
        self._tasks = [
            create_task(self._rounds.run()),
            create_task(self._holding.commit_now_and_then()),
        ]
        if self._search is not None:
            self._tasks.append(create_task(self._search.run(self.group)))
        if self._locks is not None:
            renewing = keep_going(f"renewing the locks of {self.group}", self._renew_locks)
            self._tasks.append(create_task(renewing))
        if self._work is not None:
            self._work.start()
        return self

    async def _meet(self) -> None:
        """Looks for the topics, and tells their brokers of this member.

        Raises:
            ClientError: no name server answers, or a broker refuses the SQL condition; a topic that
                is not there yet may come later.
        """
        self._instance.check_new(self._participant)
        if self._search is not None and await self._search.look():
            self._subscriptions = self._subscribe(self.start)
        await self._find_routes()
        await check_subscriptions(self._instance, self._wire_group, self._subscriptions)
        self._instance.join(self._participant)
        await self._instance.send_heartbeats()

    async def _find_routes(self) -> None:
        async def find(topic: str) -> None:
            try:
                await self._instance.routes.get(topic)
            except ClientError as error:
                if error.code is None:
                    raise

        await all_of(map(find, self._wanted.by_name))

    async def _topics_changed(self) -> None:
        """Goes over to other topics; called when a pattern has found some, or lost some."""
        before = set(self._starts)
        # What was sent to a topic before it was found is not to be missed.
        self._subscriptions = self._subscribe("first")
        for topic in before - set(self._wanted.by_name):
            del self._starts[topic]
            await self._rounds.drop(topic)
        with contextlib.suppress(ClientError):
            # The next round asks again.
            await self._find_routes()
        await self._instance.send_heartbeats()
        self._rounds.wake()

    async def run(self, *, signals: Iterable[signal.Signals] = ENDING) -> None:
        """Consumes until the program is asked to end (SIGTERM, Ctrl-C), and closes in order.

        Messages that the listener has end, as far as close_timeout_s lets them, and what is
        consumed is committed. Opens the consumer, unless it is open; a signal ends that, too.
        Returns also when it is closed meanwhile. A second signal ends the program as without this
        call.

        Args:
            signals: which ones ask.
        """
        try:
            await until_told(signals, self._open_until_ended())
        finally:
            await self.close()

    async def _open_until_ended(self) -> None:
        if not self._is_open:
            await self.__aenter__()
        await self._ended.wait()

    async def close(self) -> None:
        """Stops in order: no more pulls, running listeners end, offsets are committed.

        A message that ``async for`` gave last is not consumed, unless `acknowledge` said so. Safe
        to call twice.
        """
        if not self._is_open or self._instance.is_foreign:
            return
        self._is_open = False
        self._ended.set()
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
            self._requests.close()
            await self._instance.quit(self._participant)
        finally:
            # Whoever is cancelled while it says good-bye leaves nothing behind either.
            self._abort()

    def _abort(self) -> None:
        self._holding.abort()
        if self._locks is not None:
            self._locks.abandon()
        if self._work is not None:
            self._work.abort()
        self._arrived.put_nowait(None)
        for telling in (self._assigned, self._revoked):
            if telling is not None:
                telling.close()
        if self._listening is not None:
            self._listening.close()
        self._questions.close()
        if self._tracer is not None:
            self._tracer.abort()
        self._requests.close()
        self._instance.drop(self._participant)

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
                    received(self._hooks, [item[1]], self.group)
                if self._tracer is not None:
                    self._tracer.end(self._tracer.begin(item[1]))
                return item[1]

    def acknowledge(self) -> None:
        """Counts the message that ``async for`` gave last as consumed."""
        if self._given is not None:
            given, self._given = self._given, None
            self._consumed(*given)

    async def retry(self, message: ReceivedMessage, *, delay: timedelta | None = None) -> None:
        """Gives back the message that ``async for`` gave last: the broker delivers it again.

        Args:
            message: that one.
            delay: after how long, see retry(); None: longer each time.

        Raises:
            ConfigError: another message was given last, or the mode is broadcast.
            ClientError: the broker could not be told; the message is still the one given last.
        """
        if self.mode == "broadcast":
            raise ConfigError("a broadcast message has no broker that takes it back")
        given = self._check_given(message)
        await self._requests.send_back(message, delay)
        self._settle_given(given)

    async def bury(self, message: ReceivedMessage) -> None:
        """Puts the message that ``async for`` gave last among the dead letters of the group.

        Raises:
            ConfigError: another message was given last.
            ClientError: the broker could not be told; the message is still the one given last.
        """
        given = self._check_given(message)
        await self._requests.bury(message)
        self._settle_given(given)

    def _check_given(self, message: ReceivedMessage) -> tuple[ProcessQueue, ReceivedMessage]:
        self._instance.check_open(self._is_open, "consumer")
        if self._given is None or self._given[1] is not message:
            raise ConfigError(f"{message!r} is not the message that was given last")
        return self._given

    def _settle_given(self, given: tuple[ProcessQueue, ReceivedMessage]) -> None:
        if self._given is given:
            self.acknowledge()

    async def commit(self) -> None:
        """Tells the brokers now what is consumed, instead of within commit_interval_s.

        Raises:
            ClientError: one of them could not be told; the next time will tell it.
        """
        self._instance.check_open(self._is_open, "consumer")
        await self._holding.commit()

    def queues(self) -> list[MessageQueue]:
        """Returns the queues of its topics that this member has now, sorted."""
        return self._holding.all_queues()

    @property
    def topics(self) -> list[str]:
        """The topics that it consumes now, sorted; a pattern may find others later."""
        return sorted(self._wanted.by_name)

    @property
    def client_id(self) -> str:
        """The name under which brokers know this member."""
        return self._instance.client_id

    @property
    def pending_count(self) -> int:
        """Messages that are pulled and not consumed."""
        return self._holding.pending_count

    @property
    def pending_bytes(self) -> int:
        """Their bytes, as they came."""
        return self._holding.pending_bytes

    def _is_elsewhere(self) -> bool:
        return self._instance.is_foreign

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

    def _heartbeat(self) -> ConsumerData:
        where = (
            ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
            if self.start == "first"
            else ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
        )
        model = MessageModel.BROADCASTING if self.mode == "broadcast" else MessageModel.CLUSTERING
        return ConsumerData(
            group_name=self._wire_group,
            message_model=model,
            consume_from_where=where,
            subscription_data_set=list(self._subscriptions),
        )


def _check(group: str, start: str, mode: str, batch_max: int | None) -> None:
    if start not in ("first", "last"):
        raise ConfigError(f"start is {start!r}; allowed: first, last")
    if mode not in MODES:
        raise ConfigError(f"mode is {mode!r}; allowed: {', '.join(MODES)}")
    if batch_max is not None and not 0 < batch_max <= _BATCH_MAX:
        raise ConfigError(f"batch_max is {batch_max}; allowed: 1 to {_BATCH_MAX}")
    if not group:
        raise ConfigError("group must not be empty")
