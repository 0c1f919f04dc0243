"""Holding: the queues that one member of a group has, with a pull on its way for each.

It takes and drops queues as they are shared out, pulls while there is room, follows the leader, and
commits what is consumed. What it pulls goes into the queue that its owner gave. A program that is
told of its queues is told beside all that: what it does then holds up the queues that it hears of.

A queue that is dropped leaves in a task of its own: when the listener has nothing of it any more,
what is consumed is committed, and its lock given back. A listener that takes long holds up its own
queue, and not the sharing out of all others; and whoever cancels a round stops no queue half-way.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from ledgermq.client.config import ConsumerConfig
from ledgermq.client.endless import Lasting, all_of, keep_going, tell_failure
from ledgermq.client.errors import ClientError
from ledgermq.client.instance import ClientInstance, now_ms
from ledgermq.client.messages import ReceivedMessage
from ledgermq.client.process_queue import ProcessQueue, offset_after_illegal
from ledgermq.client.queue_locks import QueueLocks
from ledgermq.client.queue_requests import PullResult, PullStatus, QueueRequests
from ledgermq.client.retry import back_off_ms, is_refusal
from ledgermq.client.shares import Shares
from ledgermq.client.subscription import Expression
from ledgermq.protocol.bodies import MessageQueue
from ledgermq.protocol.names import RETRY_PREFIX

# What a message takes in memory beside its bytes, when a listener has read its properties.
MESSAGE_BYTES: Final = 1280
# Tries of the last commit, and how long all of them may take; a leader may just be changing.
_LAST_COMMIT_TRIES: Final = 4
_LAST_COMMIT_S: Final = 6.0
# So many times as long is the pause before a pull when pulls have been refused for long: a broker
# that refuses many queues of many members must not have to do it ever so often.
_LASTING_PAUSES: Final = 4
# How long the end waits for brokers to hear that queues are free.
_UNLOCK_S: Final = 2.0
# How long the end waits for queues that leave.
_LEAVING_S: Final = 5.0

# How long the end waits at least for the program to hear of the queues that go.
_TOLD_AT_END_S: Final = 1.0

# How long another member gets to commit what it consumed of a queue that is now this member's.
# Without it most of the messages that it had in hand would come twice.
_HANDOVER_S: Final = 0.25

_log = logging.getLogger("ledgermq.client")


class Told(Protocol):
    """Told of queues that come or go; never raises."""

    def __call__(
        self, queues: list[MessageQueue], patience_s: float | None = None, /
    ) -> Coroutine[Any, Any, None]:
        """Returns when the program has heard it, or takes too long to."""


class OffsetStore(Protocol):
    """Where it stands up to where queues are consumed; both raise ClientError."""

    async def committed(self, queue: MessageQueue) -> int | None: ...

    async def commit(self, queue: MessageQueue, offset: int) -> None: ...


class Arrivals(Protocol):
    """Takes what is pulled."""

    def put_all(self, process_queue: ProcessQueue, messages: list[ReceivedMessage], /) -> None:
        """Takes what a pull brought of one queue, in order."""

    def forget_dropped(self) -> None:
        """Drops what it has of queues that were dropped."""


class _Held:
    """One queue with the task that pulls it."""

    __slots__ = ("counted_bytes", "expression", "process_queue", "puller", "room", "told")

    def __init__(
        self, process_queue: ProcessQueue, expression: Expression, told: asyncio.Task[None] | None
    ) -> None:
        self.process_queue = process_queue
        self.expression = expression
        # Tells the program of the queue: nothing is pulled before, and only then it may be told
        # that the queue goes. None of one that nobody is told of.
        self.told = told
        self.puller: asyncio.Task[None] | None = None
        # Set when a message was consumed.
        self.room = asyncio.Event()
        # What it has in the account of all queues.
        self.counted_bytes = 0


class Holding:
    """The queues of one member."""

    def __init__(
        self,
        instance: ClientInstance,
        requests: QueueRequests,
        arrived: Arrivals,
        config: ConsumerConfig,
        *,
        starts: Mapping[str, str],
        offsets: OffsetStore,
        shares: Shares,
        locks: QueueLocks | None,
        settled: Callable[[MessageQueue], Awaitable[None]] | None = None,
        failed: Callable[[ClientError], None] | None = None,
        on_assigned: Told | None = None,
        on_revoked: Told | None = None,
    ) -> None:
        """Holds nothing yet.

        Args:
            instance: knows the routes.
            requests: asks brokers.
            arrived: gets what is pulled.
            config: limits.
            starts: topic -> where to begin without an offset, "last" or (by default) "first".
            offsets: where to begin, and what to tell of what is consumed.
            shares: which queues are this member's.
            locks: taken for each queue, given back after it; None takes none.
            settled: waits until the listener has nothing of a queue; None does not wait.
            failed: told of a pull that fails and is not retriable; it is tried again all the same.
            on_assigned: told of queues that are taken, before anything is pulled of them.
            on_revoked: told of queues that are given up, when what is consumed of them is committed
                and before another member can have locked them.
        """
        self._instance = instance
        self._requests = requests
        self._arrived = arrived
        self._config = config
        self._starts = starts
        self._offsets = offsets
        self._shares = shares
        self._locks = locks
        self._settled = settled
        self._failed = failed
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        # Memory of what is pulled and not consumed, of all queues; who waits until there is less.
        self._bytes = 0
        self._crowded: set[_Held] = set()
        self._held: dict[MessageQueue, _Held] = {}
        self._claims = Lasting(f"{requests.group} takes queues")
        self._commits = Lasting(f"{requests.group} commits")
        # What tells of queues that have come.
        self._telling: set[asyncio.Task[None]] = set()
        # True while what was pulled of dropped queues is about to be forgotten.
        self._is_forgetting = False
        # Queues that were dropped and have not left yet; they are not taken again before.
        self._leaving: dict[MessageQueue, asyncio.Task[None]] = {}

    @property
    def pending_count(self) -> int:
        """Messages that are pulled and not consumed."""
        return sum(held.process_queue.pending_count for held in self._held.values())

    @property
    def pending_bytes(self) -> int:
        """Their bytes, as they came."""
        return sum(held.process_queue.pending_bytes for held in self._held.values())

    def all_queues(self) -> list[MessageQueue]:
        """Returns the queues of all topics that this member has now, without retry topics."""
        return sorted(queue for queue in self._held if not queue.topic.startswith(RETRY_PREFIX))

    def queues(self, topic: str) -> list[MessageQueue]:
        """Returns the queues of a topic that this member has now, sorted."""
        return sorted(queue for queue in self._held if queue.topic == topic)

    async def share_out(self, topic: str, expression: Expression) -> bool:
        """Takes and drops queues of a topic until they are this member's part.

        Returns:
            False when another round is needed soon: this member is not known yet, a queue could
            not be taken, or it has not left since it was dropped.

        Raises:
            ClientError: route or members are not to be had; everything stays as it is.
        """
        route = await self._instance.routes.get(topic)
        share = await self._shares.of(route)
        if share is None:
            return False
        for queue in self.queues(topic):
            # One of which other messages are wanted now is taken again.
            if queue not in share.queues or self._held[queue].expression != expression:
                self._drop(queue)
        wanted = sorted(share.queues.difference(self._held, self._leaving))
        if wanted and not share.is_alone:
            # The member that had them commits as it learns that it has them no more.
            await asyncio.sleep(_HANDOVER_S)
        if self._on_assigned is None or topic.startswith(RETRY_PREFIX):
            await all_of(self._take(queue, expression) for queue in wanted)
        else:
            await self._take_and_tell(wanted, expression, self._on_assigned)
        return share.queues.issubset(self._held)

    def made_room(self, process_queue: ProcessQueue) -> None:
        """Notes that a message of a queue was consumed."""
        # While nobody waits for the account it may lag behind: it is brought up to date when it
        # seems to be full.
        if not process_queue.is_awaited and not self._crowded:
            return
        held = self._held.get(process_queue.queue)
        if held is not None:
            held.room.set()
            if self._crowded:
                if held.process_queue is process_queue:
                    self._count(held)
                self._wake_crowded()

    def _wake_crowded(self) -> None:
        if self._bytes < self._config.cached_bytes_total_max:
            crowded, self._crowded = self._crowded, set()
            for waiting in crowded:
                waiting.room.set()

    def _count(self, held: _Held) -> None:
        """Brings the account up to date with one queue."""
        process_queue = held.process_queue
        now_bytes = process_queue.pending_bytes + process_queue.pending_count * MESSAGE_BYTES
        self._bytes += now_bytes - held.counted_bytes
        held.counted_bytes = now_bytes

    async def commit(self) -> None:
        """Tells the brokers what is consumed and not yet told.

        Raises:
            ClientError: one of them could not be told; the others were.
        """
        await all_of(self._commit(held.process_queue) for held in list(self._held.values()))

    async def commit_now_and_then(self) -> None:
        """Runs until it is cancelled."""
        await keep_going(f"committing offsets of {self._requests.group}", self._commit_later)

    async def _commit_later(self) -> None:
        await asyncio.sleep(self._config.commit_interval_s)
        try:
            await self.commit()
            self._commits.succeeded()
        except ClientError as error:
            level = self._commits.level_of(error)
            _log.log(level, "%s could not commit all offsets: %s", self._requests.group, error)

    def positions(self, topic: str) -> dict[MessageQueue, int]:
        """Returns up to where the queues of a topic are consumed."""
        return {
            queue: self._held[queue].process_queue.committable() for queue in self.queues(topic)
        }

    def held(self) -> list[ProcessQueue]:
        """Returns all queues that this member has now, sorted."""
        return [held.process_queue for _, held in sorted(self._held.items())]

    async def move(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Makes queues go on at other offsets, and tells so; those that others have are ignored.

        Raises:
            ClientError: an offset could not be told; the next commit will tell it.
        """
        moved: list[ProcessQueue] = []
        for queue, offset in offsets.items():
            held = self._held.get(queue)
            if held is not None:
                self._end(held)
                moved.append(self._hold(queue, offset, held.expression, held.told))
        for process_queue in moved:
            await self._commit(process_queue)

    async def renew_locks(self) -> bool:
        """Asks for all locks again, and drops the queues that other members have now.

        Returns:
            True when there was such a queue.
        """
        # The listener may still be at work on one that leaves.
        wanted = [*self._held, *self._leaving]
        lost = [] if self._locks is None else await self._locks.renew(wanted)
        for queue in lost:
            held = self._held.pop(queue, None)
            if held is not None:
                self._end(held)
                self._let_leave(queue, self._tell_revoked([held]))
        return bool(lost)

    async def beginning(self, queue: MessageQueue) -> int:
        """Returns where to begin with a queue: where the group stands, or else as set up.

        Raises:
            ClientError: its broker could not be asked.
        """
        offset = await self._offsets.committed(queue)
        if offset is not None:
            return offset
        if self._starts.get(queue.topic, "first") == "last":
            return await self._requests.max_offset(queue)
        return await self._requests.min_offset(queue)

    def find(self, queue: MessageQueue) -> ProcessQueue | None:
        """Returns a queue when this member has it now."""
        held = self._held.get(queue)
        return None if held is None else held.process_queue

    def seek(self, process_queue: ProcessQueue, offset: int) -> None:
        """Makes a queue go on at another offset; what is pulled of it is dropped."""
        held = self._held[process_queue.queue]
        self._end(held)
        self._hold(process_queue.queue, offset, held.expression, held.told)

    def drop(self, queues: Iterable[MessageQueue]) -> list[asyncio.Task[None]]:
        """Drops queues; returns what is done when they have left, which may take long."""
        return [task for queue in queues if (task := self._drop(queue)) is not None]

    async def let_go(self, queues: Iterable[MessageQueue]) -> None:
        """Drops queues, and returns when they have left."""
        if leaving := self.drop(queues):
            await asyncio.wait(leaving)

    def assign(self, offsets: Mapping[MessageQueue, int], expression: Expression) -> None:
        """Takes queues at offsets, whatever the shares say; none of them is this member's yet."""
        for queue, offset in offsets.items():
            self._hold(queue, offset, expression)

    def stop(self) -> None:
        """Ends all pulls; nothing that is pulled shall be consumed any more."""
        for held in self._held.values():
            self._end(held)

    def abort(self) -> None:
        """Ends everything, and waits for nothing."""
        self.stop()
        for task in (*self._leaving.values(), *self._telling):
            task.cancel()

    async def release(self) -> None:
        """Commits for the last time, with some tries, and lets others have the queues."""
        if self._leaving:
            # Their listeners have ended, or were cancelled and do not mind.
            await asyncio.wait(list(self._leaving.values()), timeout=_LEAVING_S)
        await self._commit_last()
        patience_s = max(self._config.close_timeout_s, _TOLD_AT_END_S)
        everything = [held for _, held in sorted(self._held.items())]
        await self._tell_revoked(everything, min(patience_s, self._config.callback_timeout_s))
        if self._locks is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_UNLOCK_S):
                    await self._locks.give_all_back()

    async def _commit_last(self) -> None:
        failure: ClientError | None = None
        try:
            async with asyncio.timeout(_LAST_COMMIT_S):
                for attempt in range(1, _LAST_COMMIT_TRIES + 1):
                    try:
                        await self.commit()
                        return
                    except ClientError as error:
                        failure = error
                        _log.info("last commit: %s", error)
                        await asyncio.sleep(back_off_ms(attempt + 2, 1.0) / 1000)
        except TimeoutError:
            pass
        _log.warning(
            "%s ends without telling all that it has consumed; some messages come again: %s",
            *(self._requests.group, failure or f"no answer within {_LAST_COMMIT_S:g} s"),
        )

    def _end(self, held: _Held) -> None:
        """Nothing of a queue is pulled or consumed from now on."""
        held.process_queue.is_dropped = True
        self._bytes -= held.counted_bytes
        held.counted_bytes = 0
        self._crowded.discard(held)
        self._wake_crowded()
        if held.puller is not None:
            held.puller.cancel()
        if held.process_queue.pending_count and not self._is_forgetting:
            # Once for all that are dropped in this turn of the loop.
            self._is_forgetting = True
            asyncio.get_running_loop().call_soon(self._forget_dropped)

    def _forget_dropped(self) -> None:
        self._is_forgetting = False
        self._arrived.forget_dropped()

    async def _take(self, queue: MessageQueue, expression: Expression) -> None:
        """Takes a queue, unless another member has it or its broker cannot be asked now."""
        offset = await self._claim(queue)
        if offset is not None:
            self._hold(queue, offset, expression)

    async def _take_and_tell(
        self, queues: list[MessageQueue], expression: Expression, tell: Told
    ) -> None:
        """Takes queues, and tells of those that can be had before anything of them is pulled."""
        offsets: dict[MessageQueue, int] = {}

        async def claim(queue: MessageQueue) -> None:
            offset = await self._claim(queue)
            if offset is not None:
                offsets[queue] = offset

        await all_of(map(claim, queues))
        if offsets:
            told = asyncio.get_running_loop().create_task(tell(sorted(offsets)))
            self._telling.add(told)
            told.add_done_callback(self._telling.discard)
            for queue, offset in offsets.items():
                self._hold(queue, offset, expression, told)

    async def _tell_revoked(
        self, dropped: Sequence[_Held], patience_s: float | None = None
    ) -> None:
        """Tells of queues that go, when they have been told of as queues that came."""
        coming = {held.told for held in dropped if held.told is not None}
        if coming:
            await asyncio.wait(coming, timeout=patience_s)
        queues = [held.process_queue.queue for held in dropped]
        queues = [queue for queue in queues if not queue.topic.startswith(RETRY_PREFIX)]
        if self._on_revoked is not None and queues:
            await self._on_revoked(queues, patience_s)

    async def _claim(self, queue: MessageQueue) -> int | None:
        """Returns where to begin with a queue; None when it cannot be had now."""
        try:
            if self._locks is not None and not await self._locks.take(queue):
                return None
            offset = await self.beginning(queue)
            self._claims.succeeded()
            return offset
        except ClientError as error:
            _log.log(self._claims.level_of(error), "cannot take %s yet: %s", queue, error)
            if self._locks is not None and self._locks.is_valid(queue):
                await self._locks.give_back(queue)
            return None

    def _hold(
        self,
        queue: MessageQueue,
        offset: int,
        expression: Expression,
        told: asyncio.Task[None] | None = None,
    ) -> ProcessQueue:
        held = _Held(ProcessQueue(queue, offset), expression, told)
        self._held[queue] = held
        pulling = keep_going(f"pulling {queue}", lambda: self._pull(held))
        held.puller = asyncio.get_running_loop().create_task(pulling)
        return held.process_queue

    def _drop(self, queue: MessageQueue) -> asyncio.Task[None] | None:
        """Gives a queue up; returns what lets it leave, None when there is nothing to leave."""
        held = self._held.pop(queue, None)
        if held is None:
            return self._leaving.get(queue)
        self._end(held)
        return self._let_leave(queue, self._leave(queue, held))

    def _let_leave(
        self, queue: MessageQueue, leave: Coroutine[Any, Any, None]
    ) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(leave)
        self._leaving[queue] = task
        task.add_done_callback(lambda _: self._leaving.pop(queue, None))
        task.add_done_callback(tell_failure)
        return task

    async def _leave(self, queue: MessageQueue, held: _Held) -> None:
        """Commits what is consumed of a queue, and lets others have it."""
        if self._settled is not None:
            await self._settled(queue)
        with contextlib.suppress(ClientError):
            await self._commit(held.process_queue)
        await self._tell_revoked([held])
        if self._locks is not None:
            await self._locks.give_back(queue)

    async def _commit(self, process_queue: ProcessQueue) -> None:
        offset = process_queue.committable()
        if offset != process_queue.committed:
            process_queue.moved_ms = now_ms()
            await self._offsets.commit(process_queue.queue, offset)
            process_queue.committed = offset

    async def _pull(self, held: _Held) -> bool:
        """Pulls one queue until it is dropped; returns when another task pulls it from now on."""
        process_queue = held.process_queue
        # As stock clients do, each pull tells the broker what is consumed; commit() tells the rest.
        tells_offset = self._offsets is self._requests
        loop = asyncio.get_running_loop()
        failures = 0
        pulls = Lasting(f"{self._requests.group} pulls")
        illegal_since_s: float | None = None
        if held.told is not None:
            await asyncio.wait([held.told])
        while True:
            await self._room(held)
            offset = process_queue.next_offset
            try:
                result = await self._requests.pull(
                    process_queue.queue,
                    offset,
                    expression=held.expression,
                    commit_offset=(process_queue.committable() or None) if tells_offset else None,
                )
            except ClientError as error:
                failures += 1
                group = self._requests.group
                _log.log(pulls.level_of(error), "%s could not pull: %s", group, error)
                if self._failed is not None and not error.retriable:
                    self._failed(error)
                pause_s = back_off_ms(failures, random.random()) / 1000
                is_refused = pulls.is_lasting and is_refusal(error)
                await asyncio.sleep(pause_s * (_LASTING_PAUSES if is_refused else 1))
                continue
            failures = 0
            pulls.succeeded()
            if result.status is not PullStatus.OFFSET_ILLEGAL:
                illegal_since_s = None
                self._arrive(held, result)
                continue
            illegal_since_s = illegal_since_s or loop.time()
            waited_s = loop.time() - illegal_since_s
            moved = offset_after_illegal(offset, result.min_offset, result.max_offset, waited_s)
            if moved is not None:
                _log.warning(
                    "offset %d of %s is gone, on at %d", offset, process_queue.queue, moved
                )
                held.puller = None
                self._end(held)
                self._hold(process_queue.queue, moved, held.expression, held.told)
                return True
            await asyncio.sleep(back_off_ms(5, random.random()) / 1000)

    def _is_over(self) -> bool:
        """Tells whether all queues together have as much as they may."""
        most = self._config.cached_bytes_total_max
        if self._bytes < most:
            return False
        for held in self._held.values():
            self._count(held)
        return self._bytes >= most

    async def _room(self, held: _Held) -> None:
        """Returns when there is room for more of a queue."""
        process_queue, config = held.process_queue, self._config
        while True:
            if process_queue.is_full(config.cached_messages_max, config.cached_bytes_max):
                held.room.clear()
            elif self._is_over() and process_queue.pending_count:
                held.room.clear()
                self._crowded.add(held)
            else:
                return
            process_queue.is_awaited = True
            await held.room.wait()
            process_queue.is_awaited = False

    def _arrive(self, held: _Held, result: PullResult) -> None:
        process_queue = held.process_queue
        process_queue.pulled_ms = now_ms()
        fresh = process_queue.add(result.messages, result.next_offset)
        self._arrived.put_all(process_queue, fresh)
        self._count(held)
