"""BrokerStore: the message store and the broker's state on one disk.

The order in which both are opened, flushed and closed keeps one promise: no mark of the message
store covers a record of the state that the state files may lack. So files are loaded before the
store is opened, which applies what it dispatches while it recovers, and they are made durable
before each mark. The simulated member runs these same steps on a simulated disk.
"""

from collections.abc import Callable, Iterable, Sequence

from twisted.internet.defer import Deferred

from ledgermq.broker.own_messages import state_message
from ledgermq.broker.sends.proposals import Proposals
from ledgermq.broker.storage.acceptance import Acceptance
from ledgermq.broker.storage.flushes import Delayed, Flushes
from ledgermq.broker.storage.state_files import ContentFile
from ledgermq.broker.storage.state_loading import rule_of
from ledgermq.broker.storage.state_repair import StateRepair
from ledgermq.broker.storage.state_tables import SLICE_CHARS, StateTables
from ledgermq.commitlog import STATE_TOPIC, MessageStore, PlainMessageStore, StoreReport
from ledgermq.commitlog.checkpoint import StateMark
from ledgermq.dledger.store.keeper import Keeper
from ledgermq.dledger.store.opening_progress import OpeningProgress
from ledgermq.protocol.record import Host
from ledgermq.state.broker_state import BrokerState
from ledgermq.state.under_way import OnCommitted

# Applies the body of a committed record, at the index of its entry.
Apply = Callable[[bytes, int], None]


class BrokerStore:
    """What the files of one broker's store hold, whatever its log is.

    Attributes:
        flushes: what is on its way to the disk.
        repair: what is wrong with the state.
    """

    def __init__(
        self,
        keeper: Keeper,
        messages: MessageStore,
        state: BrokerState,
        new_file: Callable[[str], ContentFile],
        *,
        name: str,
        root: str,
        acceptance: Acceptance | None = None,
        now_ms: Callable[[], int],
        clock_ms: Callable[[], float],
        call_later: Callable[[float, Callable[[], None]], Delayed],
        slice_chars: int = SLICE_CHARS,
    ) -> None:
        """Binds the parts; nothing is read or written before `open`.

        Args:
            keeper: does what waits for the disk.
            messages: the store of messages, not open.
            state: loaded from its files, and saved to them.
            new_file: makes a state file of its name.
            name: of this store, in the seals of its files.
            root: directory of the store, for people.
            acceptance: tells which files an operator has a start take as they are; None: none.
            now_ms: the clock by which flushes are due.
            clock_ms: monotonic time.
            call_later: calls a function after so many seconds.
            slice_chars: of a table, encoded in one turn.
        """
        self._keeper = keeper
        self._messages = messages
        self._state = state
        self._name, self._acceptance = name, acceptance
        self._is_plain = isinstance(messages, PlainMessageStore)
        self.repair = StateRepair(state.coverage, name, root)
        self._tables = StateTables(
            state,
            new_file,
            clock_ms,
            owner=self.repair.owner_text,
            applied_index=lambda: messages.dispatched_index,
            slice_chars=slice_chars,
        )
        # The state is to be replayed from the log; known after `load_state`.
        self._needs_replay = False
        self.flushes = Flushes(keeper, messages, self._tables, now_ms, call_later)

    @property
    def alarm(self) -> str | None:
        """What is wrong with the state or its files, for operators; None while nothing is."""
        return self.repair.alarm or self._tables.alarm

    def load_state(self) -> None:
        """Fills the state from those of its files that are believed.

        Raises:
            OSError: a file cannot be read.
            UnreadRecordError: a newer program wrote them.
        """
        checkpoints = self._messages.checkpoints
        mark = checkpoints.read()
        # A Java broker was told to go on with the other kind of log in this directory.
        is_of_other_log = mark is not None and mark.is_of_plain_log not in (None, self._is_plain)
        if is_of_other_log:
            mark = None
        accepted = {} if self._acceptance is None else self._acceptance.read()
        rule = rule_of(
            None if is_of_other_log else self._name,
            mark,
            has_mark_file=checkpoints.exists() and not is_of_other_log,
            is_after_java=mark is not None and checkpoints.was_used_by_java(mark),
            accepted=accepted,
        )
        self._needs_replay = self.repair.load(mark, rule, self._tables.load(rule))

    def open(
        self, progress: OpeningProgress | None = None, apply: Apply | None = None
    ) -> StoreReport:
        """Opens the message store, and applies what the state files lack; `load_state` comes first.

        Args:
            progress: reports how far it is.
            apply: applies records of the state, now and later; None for the state's own.

        Raises:
            CommitLogError, OSError: the files cannot be used.
            UnreadRecordError: a newer program wrote a record.
        """
        self._messages.watch_topic(STATE_TOPIC, apply or self._state.apply)
        self._messages.keep_state(self._state_mark, self._state.coverage.restore_sweep_index)

        report = self._messages.open(
            self._save_replayed,
            progress,
            replay_state=self._state.replay if self._needs_replay else None,
            saves_always=self.repair.must_save,
        )
        self.repair.opened(report.dispatched_index)
        if self._acceptance is not None:
            self._acceptance.remove()
        return report

    def _save_replayed(self, report: StoreReport) -> bool:
        self.repair.replayed(report.first_index)
        return self._tables.save()

    def _state_mark(self) -> tuple[int, StateMark]:
        return self._state.sweep_index, self.repair.mark(self._tables.indexes)

    def save(self, names: Iterable[str]) -> None:
        """Replaces files of tables that changed, not durably; a flush under way writes them."""
        self.flushes.save(names)

    def flush_if_due(self, failed: Callable[[BaseException], None]) -> None:
        """Begins a flush when the message store wants one.

        Args:
            failed: called when the disk refuses, which is final for this replica.
        """
        self.flushes.begin_if_due(failed)

    def stop_keeper(self) -> Deferred[None]:
        """Lets disk work under way end; nothing but `close` waits for the disk afterwards."""
        self.flushes.drop()
        return self._keeper.stop()

    def close(self) -> bool:
        """Saves the state durably and closes the message store; blocks.

        Returns:
            Whether the next start may trust all files. Otherwise the mark on disk stays, and the
            next start replays what the files lack.
        """
        is_idle = self.flushes.is_idle
        is_clean = self._messages.failure is None and is_idle
        is_saved = self._tables.save()
        if is_saved and is_idle:
            self._messages.close()
        else:
            self._messages.abandon()
        return is_clean and is_saved


def propose_records(
    proposals: Proposals,
    bodies: Sequence[bytes],
    store_host: Host,
    now_ms: int,
    done: OnCommitted,
) -> None:
    """Proposes records of the broker's state, all or none; `done` gets what became of them."""
    messages = [state_message(body, store_host, now_ms) for body in bodies]
    proposals.add_own(messages, lambda _, error: done(error))
