"""Opening the derived files: from a checkpoint and whatever a crash left to what the log says.

The checkpoint names an entry up to which everything was durable. The queues and the key index are
taken back to that moment, and dispatch goes on from there. Where the checkpoint, the files and the
log do not fit together, files are made again, never repaired:

    no checkpoint, or one that cannot be read           everything
    the checkpoint is one of a plain log, or the other  everything
    the log has another entry there, or begins behind   everything
    the log ends before that entry                      cut at the log's end
    a queue's files are gone or too short               that queue
    key index files are gone or are others              the key index
    a file cannot be read                               everything
"""

from collections.abc import Callable
from dataclasses import dataclass

from ledgermq.commitlog.byte_indexed_log import ByteIndexedLog
from ledgermq.commitlog.checkpoint import DispatchMark
from ledgermq.commitlog.consume_queue import ConsumeQueue
from ledgermq.commitlog.dispatch import Dispatcher, Watcher
from ledgermq.commitlog.key_index import KeyIndex
from ledgermq.commitlog.message_writer import STATE_TOPIC
from ledgermq.commitlog.queues import ConsumeQueues
from ledgermq.dledger.storage import LedgerStore
from ledgermq.dledger.store.opening_progress import OpeningProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreReport:
    """What opening the store found and did."""

    # Whether the last stop was clean.
    was_clean: bool
    # Why everything was made again; "" when it was not.
    rebuilt_because: str
    # Queues that were made again from the log, as "topic-id".
    rebuilt_queues: list[str]
    # Whether the key index was.
    rebuilt_key_index: bool
    # Entries dispatched between the checkpoint and the committed index.
    dispatched_count: int
    # Where dispatch stands now.
    dispatched_index: int
    # First entry of the log.
    first_index: int


def drop_before(queues: ConsumeQueues, key_index: KeyIndex, position: int) -> None:
    """Forget what points below a position: the log was shortened there by retention."""
    for queue in queues:
        if queue.has_files:
            queue.drop_before(position)
    key_index.drop_before(position)


class Recovery:
    """One opening; used once."""

    def __init__(
        self,
        store: LedgerStore,
        queues: ConsumeQueues,
        key_index: KeyIndex,
        dispatcher: Dispatcher,
        tell: Callable[[DispatchMark], None],
        progress: OpeningProgress,
        replay_state: Watcher | None = None,
    ) -> None:
        """Bind the parts.

        Args:
            tell: replaces the checkpoint, durably.
            progress: told how far it is.
            replay_state: gets the records of the broker's state below the checkpoint once more,
                from the beginning of the last whole sweep on.
        """
        self._replay_state = replay_state
        self._progress = progress
        self._store = store
        self._queues = queues
        self._key_index = key_index
        self._dispatcher = dispatcher
        self._tell = tell

    def run(self, mark: DispatchMark | None, damage: str = "") -> StoreReport:
        """Bring queues, key index and dispatch to the committed index that the log knows of.

        Args:
            mark: of the last checkpoint that can be trusted, None when there is none.
            damage: why another run ended with a `DamagedFileError`; then everything is made again.

        Raises:
            DispatchError: the log and the files do not fit; nothing can be dispatched.
            DamagedFileError: a file cannot be read.
        """
        self._progress.begin("looks for its queues")
        self._queues.load()
        reason = damage or self._reason_to_rebuild(mark)
        rebuilt: list[ConsumeQueue] = []
        index_rebuilt = False
        if mark is None or reason:
            self._trust_nothing(mark)
            self._clear(mark)
        else:
            rebuilt = self._restore_queues(mark)
            index_rebuilt = not self._key_index.restore(
                mark.key_index, is_clean=mark.is_clean, log_start=self._store.first_position
            )
            index_rebuilt |= self._cut_surplus(mark)
            self._dispatcher.dispatched_timestamp = mark.timestamp
            if rebuilt or index_rebuilt:
                self._trust_nothing(mark)
                self._rebuild(mark, rebuilt, with_keys=index_rebuilt)
            drop_before(self._queues, self._key_index, self._store.first_position)
        if mark is not None and not reason:
            self._replay(mark)
        before = self._dispatcher.dispatched_index
        committed = min(self._store.read_checkpoint(), self._store.last_index)
        if committed > before:
            self._watch("replays its log", before + 1, committed + 1)
            self._dispatcher.committed(before + 1, committed + 1)
        self._dispatcher.tell_reached(None)
        return StoreReport(
            was_clean=mark is not None and mark.is_clean,
            rebuilt_because=reason,
            rebuilt_queues=[f"{queue.topic}-{queue.queue_id}" for queue in rebuilt],
            rebuilt_key_index=index_rebuilt,
            dispatched_count=self._dispatcher.dispatched_index - before,
            dispatched_index=self._dispatcher.dispatched_index,
            first_index=self._store.first_index,
        )

    def _replay(self, mark: DispatchMark) -> None:
        """Hand the records of the state up to the checkpoint over, where they are needed."""
        if self._replay_state is None:
            return
        end_index = self._dispatcher.dispatched_index + 1
        first = self._store.first_index
        if first <= mark.state_index < end_index:
            first = mark.state_index
        self._watch("replays the broker's state", first, end_index)
        self._dispatcher.replay(STATE_TOPIC, self._replay_state, first, end_index)

    def _watch(self, name: str, first: int, end: int) -> None:
        """Have the progress tell which of the entries [first, end) are done."""
        progress = self._progress
        unit = "bytes" if isinstance(self._store, ByteIndexedLog) else "entries"
        progress.begin(name, end - first, unit)
        self._dispatcher.tell_reached(lambda index: progress.reach(index - first))

    def _reason_to_rebuild(self, mark: DispatchMark | None) -> str:
        store = self._store
        if mark is None:
            return "there is no checkpoint of dispatch"
        if mark.is_of_plain_log not in (None, isinstance(store, ByteIndexedLog)):
            return "the checkpoint is that of another kind of log"
        if mark.index > store.last_index or mark.index == store.first_index - 1:
            return ""
        if mark.index < store.first_index:
            return f"the log begins at entry {store.first_index}, behind {mark.index}"
        head = store.head_at(mark.index)
        found = (head.term, head.position + head.size)
        if found != (mark.term, mark.end_position):
            return f"entry {mark.index} is another one than was dispatched"
        return ""

    def _trust_nothing(self, mark: DispatchMark | None) -> None:
        """Have a start that comes before this one has ended make everything again.

        Files are about to be replaced by ones that are filled little by little, and the checkpoint
        would call them whole.
        """
        if mark is None:
            return
        empty = [queue for queue in mark.queues if queue[2] == queue[3]]
        first_index, position = self._store.first_index, self._store.first_position
        self._tell(
            DispatchMark(
                index=first_index - 1,
                term=-1,
                end_position=position,
                timestamp=mark.timestamp,
                is_clean=False,
                queues=empty,
                state_index=mark.state_index,
                state=mark.state,
            )
        )

    def _clear(self, mark: DispatchMark | None) -> None:
        """Start from the log's first entry; only the numbers of deleted queues are kept."""
        for queue in self._queues:
            queue.restore(0, 0)
        for topic, queue_id, low, high in mark.queues if mark is not None else []:
            if low == high:
                self._queues.get(topic, queue_id).restore(high, high)
        self._key_index.clear()
        # Of a mixed store that hands over all of its plain part.
        self._progress.begin("begins with its first message", unit="bytes")
        self._dispatcher.tell_reached(self._progress.reach)
        self._dispatcher.restart()

    def _restore_queues(self, mark: DispatchMark) -> list[ConsumeQueue]:
        """Take the queues back to the checkpoint; returns those that must be made again."""
        broken = []
        known = set()
        self._progress.begin("looks at its queues", len(mark.queues), "queues")
        for count, (topic, queue_id, low, high) in enumerate(mark.queues):
            self._progress.reach(count)
            queue = self._queues.get(topic, queue_id)
            known.add(queue)
            if queue.covers(low, high):
                queue.restore(low, high, wipe=not mark.is_clean)
            else:
                broken.append(queue)
        for queue in self._queues:
            if queue not in known:
                queue.restore(0, 0)
        return broken

    def _cut_surplus(self, mark: DispatchMark) -> bool:
        """Drop what points behind the log's end; tells whether the key index must be made again."""
        store = self._store
        self._dispatcher.start_at(min(mark.index, store.last_index))
        if mark.index <= store.last_index:
            return False
        for queue in self._queues:
            if queue.has_files:
                queue.cut_at(store.end_position)
        if self._key_index.cut_at(store.end_position):
            return False
        self._key_index.clear()
        return True

    def _rebuild(self, mark: DispatchMark, queues: list[ConsumeQueue], *, with_keys: bool) -> None:
        for queue in queues:
            queue.restore(0, 0)
        end_index = self._dispatcher.dispatched_index + 1
        self._watch("makes queues again", self._store.first_index, end_index)
        self._dispatcher.rebuild(set(queues), with_keys=with_keys, end_index=end_index)
        was_cut = mark.index > self._store.last_index
        ends = {
            (topic, queue_id): low if was_cut else high
            for topic, queue_id, low, high in mark.queues
        }
        lows = {(topic, queue_id): low for topic, queue_id, low, _ in mark.queues}
        for queue in queues:
            name = (queue.topic, queue.queue_id)
            # None of its records is in the log any more: only the numbering goes on. It goes back
            # to the first of them when they went with the log's end.
            if queue.max_offset == 0:
                queue.restore(ends[name], ends[name])
            # The log still has what a topic held that was deleted and made again.
            low = min(lows[name], queue.max_offset)
            if queue.min_offset < low:
                queue.restore(low, queue.max_offset, wipe=False)
