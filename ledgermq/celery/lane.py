"""Lane: this process's part in one shared queue.

Three tasks of the loop do the work while somebody here consumes. `_follow` reads the log of events
and keeps the state (claims.py); `_watch` waits for new messages while there is room for them;
`_write` tells the log what is done, given back and wanted, all that has come together in one
message, one message at a time. A fourth, `_judge`, tells now and then that this member lives, and
looks who does not.

A member that is silent for too long is taken for dead. Silence is counted only while the log can be
read and this process runs: after an outage, or a pause of this process, the count begins anew. One
that works on nothing need not speak; it is forgotten after an hour, and begins with a new name.

Only messages that are committed are given, for a take names an end of the queue that was seen. What
is given is fetched by its offset, also when it was given back and lies far behind.
"""

import asyncio
import contextlib
import functools
import logging
import random
import uuid
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from ledgermq.celery.claims import HELD_MAX, OFFSETS_MAX, TAKE_MAX, Claims, Event, Given, Held
from ledgermq.celery.claims_log import ClaimsLog, Requests
from ledgermq.client import ClientError, MessageQueue, PullResult, PullStatus, ReceivedMessage
from ledgermq.client.endless import keep_going, tell_failure

# Events after which a snapshot is written; seconds after which one is written when there were any,
# well below the time that brokers keep messages.
_SNAPSHOT_EVENTS: Final = 256
_SNAPSHOT_S: Final = 3600.0
# Silence after which one who works on nothing is forgotten.
_IDLE_S: Final = 3600.0
# Messages kept from looking for new ones.
_SEEN_MAX: Final = 64
_RETRY_S: Final = 0.2
# How often the group's offset is told, in beats.
_TELL_BEATS: Final = 4

_log = logging.getLogger("ledgermq.celery")


class Taker(Protocol):
    """Somebody of this process who consumes; all calls come from the loop."""

    def room(self) -> int:
        """Messages that may be given now."""

    def reserve(self, change: int) -> None:
        """Takes room for what is asked for, or gives it back."""

    def give(self, message: ReceivedMessage, times: int, deaths: int = 0) -> None:
        """A message is this one's now; room was reserved for it.

        Args:
            message: what was taken.
            times: how often it was given to somebody, with this time.
            deaths: the members that ended with it, as claims.py counts them.
        """


@dataclass(slots=True)
class _Purge:
    """A purge that somebody waits for."""

    end: int
    purged: asyncio.Future[int]
    # Of the event that says it, 0 before.
    number: int = 0


@dataclass(slots=True)
class _Asked:
    """A take on its way: for whom, and how many."""

    number: int
    takers: list[tuple[Taker, int]] = field(default_factory=list)


class Lane:
    """One shared queue as this process sees it."""

    def __init__(
        self,
        requests: Requests,
        append: Callable[[bytes], Awaitable[int]],
        tasks: MessageQueue,
        log: MessageQueue,
        lost_after_s: float,
    ) -> None:
        """Does nothing yet.

        Args:
            requests: to the brokers.
            append: writes a message into the log and returns its offset; raises ClientError.
            tasks: where the messages are.
            log: where the events are.
            lost_after_s: silence after which a member is taken for dead.
        """
        self._requests = requests
        self._append = append
        self._tasks_queue = tasks
        self._lost_after_s = lost_after_s
        self._log = ClaimsLog(
            requests, append, tasks, log, applied=self._applied, begun_anew=self._begin_anew
        )
        self._owner = ""
        self._number = 0
        self._takers: list[Taker] = []
        # The queue of tasks ends here, as far as is known.
        self._end = 0
        self._done: deque[int] = deque()
        self._free: deque[int] = deque()
        # Those of `_free` that ended whom they were handed to.
        self._fatal: set[int] = set()
        self._gone: set[str] = set()
        self._purge: _Purge | None = None
        self._asked: _Asked | None = None
        self._beats = False
        self._is_leaving = False
        self._snapshot_due = False
        # Owner -> when its last event came, on the loop's clock.
        self._heard: dict[str, float] = {}
        self._spoke_s = 0.0
        self._told = -1
        self._seen: dict[int, ReceivedMessage] = {}
        self._wake = asyncio.Event()
        self._hungry = asyncio.Event()
        self._running: list[asyncio.Task[None]] = []
        self._fetching: set[asyncio.Task[None]] = set()
        self._new_owner()

    # For whoever consumes.

    async def start(self) -> None:
        """Begins to take part. Safe to call twice."""
        await self._log.load()
        if not self._running:
            self._log.is_followed = True
            create_task = asyncio.get_running_loop().create_task
            name = self._tasks_queue.topic
            steps = (self._follow, self._watch, self._write, self._judge)
            self._running = [
                create_task(keep_going(f"queue {name}", functools.partial(self._forever, step)))
                for step in steps
            ]

    def add(self, taker: Taker) -> None:
        """Gives messages to somebody from now on."""
        self._takers.append(taker)
        self.nudge()

    def remove(self, taker: Taker) -> None:
        """Gives nothing more to somebody."""
        if taker in self._takers:
            self._takers.remove(taker)

    def nudge(self) -> None:
        """Somebody has room again."""
        self._wake.set()
        self._hungry.set()

    def done(self, message: ReceivedMessage) -> None:
        """A message is done; the log is told soon."""
        self._done.append(message.queue_offset)
        self._wake.set()

    def put_back(
        self, message: ReceivedMessage, times: int, *, has_ended_worker: bool = False
    ) -> None:
        """A message is given back; the log is told soon, also whether it ended this worker."""
        self._free.append(message.queue_offset)
        if has_ended_worker:
            self._fatal.add(message.queue_offset)
        self._wake.set()

    async def size(self) -> int:
        """Returns how many messages wait for somebody."""
        await self._log.load()
        return self.claims.ready_count(await self._requests.max_offset(self._tasks_queue))

    async def purge(self) -> int:
        """Removes what waits for somebody, and returns how much that was."""
        await self.start()
        return await self._purge_to(await self._requests.max_offset(self._tasks_queue))

    async def _purge_to(self, end: int) -> int:
        while self._purge is not None:
            await asyncio.wait([self._purge.purged])
        self._purge = _Purge(end, asyncio.get_running_loop().create_future())
        self._wake.set()
        return await self._purge.purged

    async def stop(self, timeout_s: float) -> None:
        """Gives everything back that is not done, and ends."""
        if not self._running:
            return
        self._takers.clear()
        self._is_leaving = True
        self._wake.set()
        writer = self._running[2]
        await asyncio.wait([writer], timeout=timeout_s)
        ending = [*self._running, *self._fetching]
        for task in ending:
            task.cancel()
        await asyncio.wait(ending)
        self._running = []
        if self._purge is not None:
            self._purge.purged.cancel()

    # The state.

    @property
    def claims(self) -> Claims:
        """Who works on what, as far as the log was read."""
        return self._log.claims

    def _applied(self, event: Event, given: Given) -> None:
        self._heard[event.owner] = asyncio.get_running_loop().time()
        for owner in event.gone:
            self._heard.pop(owner, None)
            if owner == self._owner:
                if self._running and self.claims.held:
                    _log.info("others took this worker for dead; some tasks may be done twice")
                self._begin_anew()
        if event.owner == self._owner:
            self._snapshot_due |= self._log.event_count >= _SNAPSHOT_EVENTS
            if self._asked is not None and self._asked.number == event.number:
                self._settle(given)
            if self._purge is not None and self._purge.number == event.number:
                purge, self._purge = self._purge, None
                if not purge.purged.done():
                    purge.purged.set_result(given.purged)
        self._wake.set()
        self._hungry.set()

    def _begin_anew(self) -> None:
        """What this member had is others' now; it goes on with a new name."""
        self._new_owner()
        self._settle(None)

    def _new_owner(self) -> None:
        self._owner, self._number = uuid.uuid4().hex, 0
        if self._purge is not None:
            self._purge.number = 0

    def _settle(self, given: Given | None) -> None:
        """What was asked for has come, or never will."""
        asked, self._asked = self._asked, None
        if asked is None:
            return
        offsets = deque(given.offsets if given is not None else ())
        for taker, count in asked.takers:
            mine = [offsets.popleft() for _ in range(min(count, len(offsets)))]
            taker.reserve(len(mine) - count)
            if mine:
                task = asyncio.get_running_loop().create_task(self._fetch(taker, mine))
                self._fetching.add(task)
                task.add_done_callback(self._fetching.discard)
                task.add_done_callback(tell_failure)

    # Messages.

    async def _fetch(self, taker: Taker, offsets: list[int]) -> None:
        for offset in offsets:
            while True:
                try:
                    message = await self._read(offset)
                    break
                except ClientError as error:
                    _log.info("message %d cannot be read yet: %s", offset, error)
                    await asyncio.sleep(_RETRY_S)
            self._wake.set()
            if message is None:
                _log.warning("message %d of %s is gone", offset, self._tasks_queue.topic)
                taker.reserve(-1)
                self._done.append(offset)
            elif taker in self._takers:
                held = self.claims.held.get(offset) or Held(self._owner, 1)
                taker.give(message, held.times, held.deaths)
            else:
                taker.reserve(-1)
                self._free.append(offset)

    async def _read(self, offset: int) -> ReceivedMessage | None:
        """Returns a message; None when brokers have it no more."""
        message = self._seen.pop(offset, None)
        if message is not None:
            return message
        result = await self._requests.pull(self._tasks_queue, offset, suspend_s=0.0)
        self._keep(result)
        message = self._seen.pop(offset, None)
        is_gone = offset < result.min_offset or (
            result.messages and result.messages[0].queue_offset > offset
        )
        if message is None and not is_gone:
            raise ClientError("a new leader does not know it yet", retriable=True)
        return message

    def _keep(self, result: PullResult) -> None:
        for message in result.messages:
            self._seen[message.queue_offset] = message
        while len(self._seen) > _SEEN_MAX:
            del self._seen[next(iter(self._seen))]

    def _room(self) -> int:
        return sum(taker.room() for taker in self._takers)

    # What runs while somebody consumes.

    async def _forever(self, step: Callable[[], Awaitable[bool]]) -> bool:
        """Repeats a step until it says that it was the last; failures that may pass do."""
        while True:
            try:
                if not await step():
                    return True
            except ClientError as error:
                self._heard.clear()
                _log.log(
                    logging.INFO if error.retriable else logging.WARNING,
                    "queue %s: %s",
                    self._tasks_queue.topic,
                    error,
                )
                await asyncio.sleep(_RETRY_S)

    async def _follow(self) -> bool:
        await self._log.pull(suspend_s=15.0)
        return True

    async def _watch(self) -> bool:
        is_full = len(self.claims.held) >= HELD_MAX
        if is_full or not self._room() or self.claims.has_work(self._end):
            self._hungry.clear()
            await self._hungry.wait()
            return True
        offset = self.claims.next_offset
        result = await self._requests.pull(self._tasks_queue, offset, suspend_s=15.0)
        if result.status is PullStatus.OFFSET_ILLEGAL:
            if offset < result.min_offset:
                # Never taken, and older than what brokers keep.
                await self._purge_to(result.min_offset)
            else:
                await asyncio.sleep(_RETRY_S)
            return True
        self._keep(result)
        self._end = max(self._end, result.max_offset, result.next_offset)
        others = len(self.claims.owners)
        if others > 2:
            # All who wait have seen the same message: let one be first.
            await asyncio.sleep(random.random() * 0.001 * min(others, 20))
        self._wake.set()
        return True

    async def _write(self) -> bool:
        await self._wake.wait()
        self._wake.clear()
        while (event := self._compose()) is not None:
            await self._tell(event.encode())
            if event.owner != self._owner:
                # Declared gone meanwhile, so it may be void.
                self._done.extend(event.done)
            self._spoke_s = asyncio.get_running_loop().time()
            if event.is_bye:
                with contextlib.suppress(ClientError):
                    await self._tell_offset()
                return False
        if self._snapshot_due:
            self._snapshot_due = False
            await self._log.write_snapshot()
        return True

    async def _tell(self, body: bytes) -> None:
        """Writes an event, however long it takes: one that is stored twice counts once."""
        while True:
            try:
                await self._append(body)
                return
            except ClientError as error:
                self._heard.clear()
                level = logging.INFO if error.retriable else logging.WARNING
                _log.log(level, "event not written yet: %s", error)
                await asyncio.sleep(_RETRY_S if error.retriable else 1.0)

    def _compose(self) -> Event | None:
        """Returns the next event, None when there is nothing to say."""
        done = self._cut(self._done)
        free = self._cut(self._free)
        fatal = tuple(offset for offset in free if offset in self._fatal)
        self._fatal.difference_update(fatal)
        gone = tuple(sorted(self._gone)[:OFFSETS_MAX])
        purge = self._purge if self._purge is not None and not self._purge.number else None
        is_bye = self._is_leaving and not self._done and not self._free
        takers: list[tuple[Taker, int]] = []
        if self._asked is None and not self._is_leaving and self.claims.has_work(self._end):
            left = TAKE_MAX
            for taker in self._takers:
                if (count := min(taker.room(), left)) > 0:
                    taker.reserve(count)
                    takers.append((taker, count))
                    left -= count
        if not (done or free or gone or purge or is_bye or takers or self._beats):
            return None
        self._number += 1
        self._beats = False
        self._gone.difference_update(gone)
        if purge is not None:
            purge.number = self._number
        if takers:
            self._asked = _Asked(self._number, takers)
        return Event(
            owner=self._owner,
            number=self._number,
            done=done,
            free=free,
            fatal=fatal,
            gone=gone,
            purge=0 if purge is None else purge.end,
            is_bye=is_bye,
            take=sum(count for _, count in takers),
            end=self._end if takers else 0,
        )

    @staticmethod
    def _cut(offsets: deque[int]) -> tuple[int, ...]:
        return tuple(offsets.popleft() for _ in range(min(len(offsets), OFFSETS_MAX)))

    async def _judge(self) -> bool:
        """One beat: tells that this member lives, and declares the silent dead."""
        loop = asyncio.get_running_loop()
        beat_s = self._lost_after_s / 5
        begin_s = loop.time()
        await asyncio.sleep(beat_s)
        now_s = loop.time()
        if now_s - begin_s > 2 * beat_s:
            # This process stood still, and has heard nobody meanwhile.
            self._heard.clear()
        snapshot_age_s = now_s - self._log.snapshot_s
        if self._log.event_count and snapshot_age_s > _SNAPSHOT_S * (1 + random.random()):
            self._snapshot_due = True
        busy = self.claims.busy_owners()
        if self._owner in busy and now_s - self._spoke_s > beat_s / 2:
            self._beats = True
        for owner in self.claims.owners.keys() - {self._owner}:
            silent_s = now_s - self._heard.setdefault(owner, now_s)
            if silent_s > (self._lost_after_s if owner in busy else _IDLE_S):
                _log.info("a worker is silent; what it had of %s goes on elsewhere", self.name)
                self._gone.add(owner)
        self._wake.set()
        await self._tell_offset()
        return True

    async def _tell_offset(self) -> None:
        """Lets tools see how far the queue is done."""
        floor = self.claims.floor()
        if floor != self._told:
            await self._requests.commit(self._tasks_queue, floor)
            self._told = floor

    @property
    def name(self) -> str:
        """The topic of the messages."""
        return self._tasks_queue.topic
