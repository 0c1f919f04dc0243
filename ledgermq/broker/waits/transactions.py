"""Transactions: half messages, their end, and the question to a producer that forgot the end.

A half message waits in the topic RMQ_SYS_TRANS_HALF_TOPIC, where no consumer sees it, with its real
topic and queue as properties. The producer ends it: the message is stored again in its real topic
(commit) or not (roll back), and in both cases a record with its offset goes to the topic
RMQ_SYS_TRANS_OP_HALF_TOPIC. From time to time the leader walks the half queue. What has ended is
passed; what is old enough is stored again at the end of the queue with its count of checks raised,
and its producer is asked; what was asked about too often goes to TRANS_CHECK_MAX_TIME_TOPIC.

The place of the walk is a cursor of `queue_progress.py`, so that a lost leader neither forgets a
half message nor stores it twice; the offsets of the group CID_RMQ_SYS_TRANS follow it, because
upstream keeps its place there. What has ended, and what was stored again, is known from the records
of former leaders, read once, and from then on by heart, because every end comes to the leader.
Source: `TransactionalMessageServiceImpl.java`, `TransactionalMessageBridge.java`.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from twisted.logger import Logger

from ledgermq.broker.records.half_messages import (
    HALF_GROUP,
    HalfMessage,
    ended_offsets,
    half_from,
    op_message,
    renewed,
    set_aside,
)
from ledgermq.broker.sends.waiting import Done
from ledgermq.broker.waits.delay import Appends, Batch, DelayQueues
from ledgermq.broker.waits.former_copies import FormerCopies
from ledgermq.commitlog import AppendMessage, AppendResult, MessageIllegalError, check_message
from ledgermq.protocol.record import Host
from ledgermq.state import names
from ledgermq.state.broker_state import BrokerState
from ledgermq.state.errors import BrokerError, CommitTimeoutError, SystemBusyError, is_refused
from ledgermq.state.queue_progress import HALF_QUEUE

# Units of the half queue that are looked at in one turn, and records of ends.
_WALK_MAX: Final = 512
_ENDS_READ_MAX: Final = 512
# So many times that are read before the first end that comes to a new leader is refused.
_CHUNKS_BEFORE_END_MAX: Final = 8
# Ends that may wait for copies of their half messages.
_HELD_MAX: Final = 1024
# Ended half messages that are remembered although the walk has passed them, and copies of such that
# are not passed: a late second end is recognized by them.
_REMEMBERED_MAX: Final = 100_000
_PAUSE_MS: Final = 1000
# transactionCheckInterval by default: a time of immunity is not shorter where rounds are closer.
_ROUND_MS: Final = 60_000
# Half messages that are looked at to count those without an end, and how many at once.
_COUNTED_MAX: Final = 1_000_000
_COUNTED_AT_ONCE: Final = 5000

_log = Logger()


class Rules(NamedTuple):
    """When a producer is asked, and how often."""

    check_interval_ms: int
    immunity_ms: int
    checks_max: int
    # A half message older than that is put aside.
    age_max_ms: int
    body_bytes_max: int

    @property
    def immunity_max_ms(self) -> int:
        """As long as a message may ask for not to be asked about. Its copies of that time are not
        counted, so without a bound each round stores it once more. With this one they are no more
        than the copies of its checks, where rounds are not closer together than by default.
        """
        return max(self.immunity_ms, self.checks_max * max(self.check_interval_ms, _ROUND_MS))


class OwnAppends(Protocol):
    """What is needed to append records outside of a plan."""

    def add_own(self, messages: Sequence[AppendMessage], done: Done) -> None: ...


# Asks one live producer about the copy of a half message that was stored at a place.
Ask = Callable[[HalfMessage, AppendMessage, AppendResult], None]


class Transactions:
    """What a leader knows about half messages, and its walk.

    Invariant: at most one append of the walk is on its way.
    """

    def __init__(
        self,
        store: DelayQueues,
        state: BrokerState,
        deliveries: Appends,
        own_appends: OwnAppends,
        ask: Ask,
        rules: Rules,
        store_host: Host,
        *,
        has_room: Callable[[], bool],
        now_ms: Callable[[], int],
        expiry_ms: Callable[[], int],
        soon: Callable[[Callable[[], None]], None],
    ) -> None:
        """Binds the parts.

        Args:
            has_room: False while so much waits for its commit that the walk has to wait.
            now_ms: wall clock.
            expiry_ms: the same without its jumps ahead: by it half messages grow too old.
            soon: has a function called at the end of the turn.
        """
        self._store = store
        self._state = state
        self._progress = state.progress
        self._deliveries = deliveries
        self._own_appends = own_appends
        self._ask = ask
        self._rules = rules
        self._store_host = store_host
        self._has_room = has_room
        self._now_ms = now_ms
        self._expiry_ms = expiry_ms
        self._soon = soon
        self._is_waiting = False
        self._paused_until_ms = 0
        # Which leadership the following belongs to.
        self._leadership = -1
        # Offsets of half messages that have ended, or are about to.
        self._ended: dict[int, None] = {}
        # Of those whose end is on its way: who else waits for it. And those of which nobody knows
        # whether their end is in the log, as its commit took too long.
        self._ending: dict[int, list[Callable[[BrokerError | None], None]]] = {}
        self._unsure: set[int] = set()
        # Offset of a half message -> of its newest copy.
        self._copies: dict[int, int] = {}
        self._former_copies = FormerCopies(store)
        # Half messages whose copies are on their way, and the ends that wait for that.
        self._copying: frozenset[int] = frozenset()
        self._held: list[
            tuple[HalfMessage, AppendMessage | None, Callable[[BrokerError | None], None]]
        ] = []
        # Record of ends -> offsets in it; only records that are not below the op offset.
        self._ends: dict[int, tuple[int, ...]] = {}
        # First record of ends that tells something about the rest of the walk; next one to read.
        self._op_offset = 0
        self._op_read = 0
        self._next_round_ms = 0
        # Of the round under way: the end of the half messages when it began. What came since is
        # for the next one; store times would not tell, where the log's are ahead of this clock.
        self._round_end: int | None = None

    # The end of a transaction.

    def end(
        self,
        half: HalfMessage,
        message: AppendMessage | None,
        done: Callable[[BrokerError | None], None],
    ) -> None:
        """Ends the transaction of a half message; a second end of the same one changes nothing.

        Args:
            half: as it was stored first, or again.
            message: what is stored in the real topic; None to roll back.
            done: told when that is committed, or why it is not known to be.

        Raises:
            SystemBusyError: it is not known yet what former leaders ended, or whether a former end
                is stored.
        """
        self._adopt_leadership()
        for _ in range(_CHUNKS_BEFORE_END_MAX):
            if self._has_ends_to_read:
                self._read_ends()
            elif self._former_copies.has_more and self._former_copies.concerns(half):
                self._former_copies.read()
            else:
                break
        else:
            raise SystemBusyError("system busy: the ends of former transactions are being read")
        offset = self._newest(half)
        if offset in self._copying:
            # 1. A copy of it is on its way. 2. An end stored now would name the original. 3. This
            # leader is lost. 4. The next one takes the copy for open: the message is stored twice.
            if len(self._held) >= _HELD_MAX:
                raise SystemBusyError(
                    f"system busy: {len(self._held)} ends wait for copies of their half messages"
                )
            self._held.append((half, message, done))
            return
        waiting = self._ending.get(offset)
        if waiting is not None:
            if len(waiting) >= _HELD_MAX:
                raise SystemBusyError(
                    f"system busy: {len(waiting)} ends wait for the first one of a half message"
                )
            waiting.append(done)
            return
        if offset in self._unsure:
            raise SystemBusyError("system busy: a former end of the half message may commit yet")
        if offset in self._ended:
            done(None)
            return
        self._ended[offset] = None
        self._append_end(offset, [] if message is None else [message], done)

    def _append_end(
        self,
        offset: int,
        before: list[AppendMessage],
        done: Callable[[BrokerError | None], None],
    ) -> None:
        messages = [*before, op_message(offset, self._store_host, self._now_ms())]
        leadership = self._leadership
        waiting = self._ending[offset] = [done]

        def stored(results: Sequence[AppendResult] | None, error: BrokerError | None) -> None:
            if leadership == self._leadership:
                self._ending.pop(offset, None)
                if results is not None and error is None:
                    self._ends[results[-1].queue_offset] = (offset,)
                elif is_refused(error):
                    self._ended.pop(offset, None)
                else:
                    self._unsure.add(offset)
            for tell in waiting:
                tell(error)

        self._own_appends.add_own(messages, stored)

    def _end_held(self, error: BrokerError | None) -> None:
        """Goes on with the ends that waited for copies.

        After a time-out of the copies nobody knows which half message to name: the ends fail, and
        the producers are asked again.
        """
        self._copying = frozenset()
        held, self._held = self._held, []
        is_unknown = isinstance(error, CommitTimeoutError) or not self._progress.is_leading
        for half, message, done in held:
            if error is not None and is_unknown:
                done(error)
                continue
            try:
                self.end(half, message, done)
            except BrokerError as refusal:
                done(refusal)

    def _newest(self, half: HalfMessage) -> int:
        offset = self._former_copies.find(half)
        if offset is None:
            offset = half.record.queue_offset
        while offset in self._copies:
            offset = self._copies[offset]
        return offset

    def count_open(self) -> Iterator[int | None]:
        """Counts the half messages that have no end: None after each part of the work, then how
        many there are; nothing while it is not known what former leaders ended.
        """
        if self._leadership != self._progress.leadership or self._has_ends_to_read:
            return
        end = self._store.max_offset(names.HALF_TOPIC, 0)
        first = self._progress.cursor(HALF_QUEUE)
        looked_end = min(end, first + _COUNTED_MAX)
        count = end - looked_end
        for begin in range(first, looked_end, _COUNTED_AT_ONCE):
            part = range(begin, min(begin + _COUNTED_AT_ONCE, looked_end))
            count += len(part) - sum(map(self._ended.__contains__, part))
            yield None
        yield count

    # The walk.

    def run(self) -> None:
        """Goes on with the walk as far as one turn and one append take it."""
        now_ms = self._now_ms()
        if not self._progress.is_leading or not self._has_room():
            return
        if self._is_waiting or 0 < self._paused_until_ms - now_ms <= _PAUSE_MS:
            return
        self._adopt_leadership()
        if self._has_ends_to_read:
            self._read_ends()
            self._soon(self.run)
        elif self._former_copies.has_more:
            self._former_copies.read()
            self._soon(self.run)
        elif self._round_end is not None:
            self._walk(now_ms)
        elif not 0 < self._next_round_ms - now_ms <= self._rules.check_interval_ms:
            self._round_end = self._store.max_offset(names.HALF_TOPIC, 0)
            self._walk(now_ms)

    def _adopt_leadership(self) -> None:
        """Forgets what belongs to an earlier leadership."""
        if self._leadership == self._progress.leadership:
            return
        self._leadership = self._progress.leadership
        self._ended.clear()
        self._ending.clear()
        self._unsure.clear()
        self._copies.clear()
        self._ends.clear()
        offsets = self._state.offsets
        # Where a leader of upstream's kind left off, if that is further on.
        stored = offsets.find(HALF_GROUP, names.HALF_TOPIC, 0) or 0
        begin = max(stored, self._store.min_offset(names.HALF_TOPIC, 0))
        self._progress.raise_to(HALF_QUEUE, begin)
        self._former_copies.begin(self._progress.cursor(HALF_QUEUE))
        first = self._store.min_offset(names.HALF_DONE_TOPIC, 0)
        self._op_offset = max(offsets.find(HALF_GROUP, names.HALF_DONE_TOPIC, 0) or 0, first)
        self._op_read = self._op_offset
        self._round_end = None
        self._next_round_ms = self._now_ms() + self._rules.check_interval_ms

    @property
    def _has_ends_to_read(self) -> bool:
        return self._op_read < self._store.max_offset(names.HALF_DONE_TOPIC, 0)

    def _read_ends(self) -> None:
        """Reads records of ends: those of former leaders, and ends whose commit took too long."""
        units = self._store.queue_units(names.HALF_DONE_TOPIC, 0, self._op_read, _ENDS_READ_MAX)
        for physical_offset, _, _ in units:
            if self._op_read not in self._ends:
                raw = self._store.record_at(physical_offset)
                offsets = () if raw is None else ended_offsets(raw)
                self._ends[self._op_read] = offsets
                self._ended.update(dict.fromkeys(offsets))
                self._unsure.difference_update(offsets)
            self._op_read += 1

    def _walk(self, now_ms: int) -> None:
        """Takes the half messages from the cursor on, each as it deserves."""
        batch = Batch()
        # Copies in this batch: the half message each is of, and whether its producer is asked.
        copies: list[tuple[HalfMessage, bool]] = []
        cursor = self._progress.cursor(HALF_QUEUE)
        units = self._store.queue_units(names.HALF_TOPIC, 0, cursor, _WALK_MAX)
        for physical_offset, _, _ in units:
            half: HalfMessage | None = None
            if cursor not in self._ended:
                raw = self._store.record_at(physical_offset)
                half = None if raw is None else half_from(raw)
            if half is not None and half.prepared_offset in self._ended:
                # A copy of what ended by its first offset.
                self._ended[cursor] = None
                half = None
            if half is None or not self._fits(half):
                batch.skip(HALF_QUEUE, cursor + 1)
            elif self._is_worn_out(half):
                batch.deliver(HALF_QUEUE, cursor + 1, set_aside(half, self._store_host))
                copies.append((half, False))
            elif cursor >= (self._round_end or 0):
                break
            else:
                age_ms = now_ms - half.record.born_timestamp
                immunity_ms = min(
                    half.immunity_ms or self._rules.immunity_ms, self._rules.immunity_max_ms
                )
                is_asked = not 0 <= age_ms < immunity_ms
                if not is_asked and half.immunity_ms is None:
                    break
                batch.deliver(HALF_QUEUE, cursor + 1, renewed(half, is_asked=is_asked))
                copies.append((half, is_asked))
            cursor += 1
            if batch.is_full:
                break
        if batch.runs:
            self._append_walk(batch, copies, now_ms)
        else:
            self._round_end = None
            self._next_round_ms = now_ms + self._rules.check_interval_ms

    def _is_worn_out(self, half: HalfMessage) -> bool:
        rules, record = self._rules, half.record
        # A copy tells no more when the first one was stored; its producer's clock is believed.
        since_ms = record.born_timestamp if half.is_copy else record.store_timestamp
        age_ms = self._expiry_ms() - since_ms
        return half.check_count >= rules.checks_max or age_ms > rules.age_max_ms

    def _fits(self, half: HalfMessage) -> bool:
        """Whether a copy can be stored; a longest record may have no room for one more count."""
        try:
            check_message(renewed(half, is_asked=True), self._rules.body_bytes_max)
        except MessageIllegalError as error:
            _log.warn(
                "half message {offset} is given up: {error}",
                offset=half.record.queue_offset,
                error=error,
            )
            return False
        return True

    def _append_walk(
        self, batch: Batch, copies: list[tuple[HalfMessage, bool]], now_ms: int
    ) -> None:
        if any(message.topic == names.HALF_EXPIRED_TOPIC for message in batch.messages):
            self._state.topic_for_group(names.HALF_EXPIRED_TOPIC, 1, 0)
        former = self._progress.advance(batch.runs)
        leadership = self._leadership
        self._is_waiting = True
        self._copying = frozenset(half.record.queue_offset for half, _ in copies)

        def delivered(results: Sequence[AppendResult], error: BrokerError | None) -> None:
            self._is_waiting = False
            settled(results, error)
            self._end_held(error)

        def settled(results: Sequence[AppendResult], error: BrokerError | None) -> None:
            if leadership != self._progress.leadership or not self._progress.is_leading:
                return
            if error is not None:
                self._paused_until_ms = now_ms + _PAUSE_MS
                if is_refused(error):
                    self._progress.take_back(former)
                return
            for (half, is_asked), message, result in zip(
                copies, batch.messages, results, strict=True
            ):
                self._copied(half, is_asked, message, result)
            self._tell_place()
            self._soon(self.run)

        self._deliveries.append(batch.runs, batch.messages, delivered)

    def _copied(
        self, half: HalfMessage, is_asked: bool, message: AppendMessage, result: AppendResult
    ) -> None:
        """A half message stands at the end of its queue now, or was put aside."""
        if message.topic != names.HALF_TOPIC:
            return
        self._copies[half.record.queue_offset] = result.queue_offset
        if is_asked:
            self._ask(half, message, result)

    def _tell_place(self) -> None:
        """Moves the offsets that upstream reads, and forgets what lies far behind them."""
        cursor = self._progress.cursor(HALF_QUEUE)
        while all(offset < cursor for offset in self._ends.get(self._op_offset, (cursor,))):
            del self._ends[self._op_offset]
            self._op_offset += 1
        commits = self._state.commits
        commits.tell(HALF_GROUP, names.HALF_TOPIC, 0, cursor)
        commits.tell(HALF_GROUP, names.HALF_DONE_TOPIC, 0, self._op_offset)
        for table in (self._ended, self._copies):
            while len(table) > _REMEMBERED_MAX and (oldest := next(iter(table))) < cursor:
                del table[oldest]
