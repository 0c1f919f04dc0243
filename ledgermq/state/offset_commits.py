"""OffsetCommits: offsets that consumers tell a leader, on their way into the table.

Who waits for an answer gets it when the offset is applied, and the next leader would know of it,
too: all commits of a turn become one command. What is told one-way costs a note; it is proposed
together with the next commit, or when its time has come. Who asks for an offset that is on its way
waits until it is there: so the last word of a consumer that ends counts for the one that follows
it, and nobody sees an offset that is lost with its leader.

A great many go a piece after the other, each when the one before it has ended: no turn of the
reactor encodes and applies them all. What is told meanwhile goes behind them.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from ledgermq.protocol.group_keys import group_key
from ledgermq.state.consumer_offsets import NO_ROOM, ConsumerOffsetTable, OffsetsByKey, Room
from ledgermq.state.errors import BrokerError, CommitTimeoutError, SystemBusyError
from ledgermq.state.offset_notes import OffsetNotes
from ledgermq.state.refusals import Refusals
from ledgermq.state.under_way import OnCommitted

# Brings offsets into the log.
ProposeOffsets = Callable[[OffsetsByKey, OnCommitted], None]
_OFFSETS: Final = "consumer offsets"
# Offsets of one command: to encode and to apply them takes two milliseconds.
PIECE_MAX: Final = 512


class _Proposed(NamedTuple):
    """A command on its way, or what becomes some commands, and who waits for the last of it."""

    notes: OffsetNotes
    waiting: list[OnCommitted]


class OffsetCommits:
    """The offsets that a leader was told and that are not applied yet.

    Invariant: what a consumer waits for stands in `_gathered`, `_leaving` or `_proposed` until it
    is answered.
    """

    def __init__(
        self,
        offsets: ConsumerOffsetTable,
        *,
        propose: ProposeOffsets,
        on_told: Callable[[Iterable[str]], None],
        is_settled: Callable[[], bool],
        call_at_end_of_turn: Callable[[Callable[[], None]], object],
        clock_ms: Callable[[], float],
    ) -> None:
        """Nothing was told.

        Args:
            offsets: those that are applied.
            propose: brings offsets into the log.
            on_told: told the keys that are committed, before that, if only with the same offsets.
            is_settled: tells whether all is applied that this leader brought into the log.
            call_at_end_of_turn: has a function called when the reactor has served all that was
                readable.
            clock_ms: monotonic time.
        """
        self._offsets = offsets
        self._propose = propose
        self._on_told = on_told
        self._is_settled = is_settled
        self._call_at_end_of_turn = call_at_end_of_turn
        self._gathered = OffsetNotes()
        # What goes piece by piece, less those that went; and whether what was gathered since then
        # follows at once.
        self._leaving: _Proposed | None = None
        self._is_more_due = False
        # The piece of it whose end is waited for, and whether a call for the next one is due.
        self._awaited: _Proposed | None = None
        self._is_call_due = False
        # Commands that are neither applied nor refused, in their order.
        self._proposed: list[_Proposed] = []
        self._proposed_room = NO_ROOM
        # What took too long: it may come yet, and counts until all is settled.
        self._late_room = NO_ROOM
        # Those who wait for what is proposed at the end of this turn.
        self._waiting: list[OnCommitted] = []
        self._is_called = False
        self._refusals = Refusals(_OFFSETS, clock_ms)

    @property
    def alarm(self) -> str | None:
        """Why offsets cannot be stored, for operators; None while they can."""
        return self._refusals.alarm

    def forget(self) -> None:
        """Forgets what was told: this member begins to lead."""
        self._gathered, self._proposed = OffsetNotes(), []
        self._leaving, self._awaited, self._is_more_due = None, None, False
        self._proposed_room = self._late_room = NO_ROOM
        self._refusals.forget()

    def follow(self, error: BrokerError) -> None:
        """Tells those who wait that this member leads no longer, and forgets what was told."""
        leaving = [] if self._leaving is None else self._leaving.waiting
        self.forget()
        waiting, self._waiting = self._waiting, []
        _tell([*leaving, *waiting], error)

    def tell(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Takes an offset for which nobody waits.

        Raises:
            InvalidRequestError: a number that no offset or queue can have.
            SystemBusyError: there are too many.
        """
        key = group_key(topic, group)
        self._offsets.check(key, queue_id, offset)
        room = NO_ROOM
        if queue_id not in self._gathered.of_key(key) and queue_id not in self._offsets.of_key(key):
            room = self._room_for(key, queue_id)
        self._gathered.put(key, queue_id, offset, room)

    def _room_for(self, key: str, queue_id: int) -> Room:
        """Returns what an offset takes that the table has not: nothing when something on its way
        brings it, too.
        """
        before = [notes.of_key(key) for notes in self._on_their_way() if key in notes.told]
        if any(queue_id in queues for queues in before):
            return NO_ROOM
        if self._late_room.bytes and self._is_settled():
            self._late_room = NO_ROOM
        more = self._gathered.room.plus(self._proposed_room).plus(self._late_room)
        if self._leaving is not None:
            more = more.plus(self._leaving.notes.room)
        is_pair_coming = bool(before) or key in self._gathered.told
        return self._offsets.room_for(key, queue_id, more, is_pair_coming=is_pair_coming)

    def _on_their_way(self) -> Iterator[OffsetNotes]:
        """Yields what was told before what is gathered now."""
        for one in self._proposed:
            yield one.notes
        if self._leaving is not None:
            yield self._leaving.notes

    def commit(self, group: str, topic: str, queue_id: int, offset: int, done: OnCommitted) -> None:
        """Takes an offset whose consumer waits; `done` is told when it is applied.

        Raises:
            As `tell`.
        """
        self.tell(group, topic, queue_id, offset)
        self._wait(done)

    def is_on_its_way(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether a queue's offset in the table is not the last one that was told."""
        key = group_key(topic, group)
        if queue_id in self._gathered.of_key(key):
            return True
        return any(queue_id in notes.of_key(key) for notes in self._on_their_way())

    def wait(self, done: OnCommitted) -> None:
        """Has `done` told when all is applied that was told so far."""
        self._wait(done)

    def _wait(self, done: OnCommitted) -> None:
        self._waiting.append(done)
        if not self._is_called:
            self._is_called = True
            self._call_at_end_of_turn(self._turn_ends)

    def _turn_ends(self) -> None:
        self._is_called = False
        if self._waiting:
            self.propose()

    def propose(self) -> None:
        """Proposes what was told since the last call, some of it at once."""
        if self._refusals.is_waiting:
            # What the log refused is told to operators, and proposed again.
            self._give_up()
        else:
            self._is_more_due = True
            if not self._is_call_due:
                self._go_on()

    def _give_up(self) -> None:
        """What leaves waits with what is gathered until the log is asked again."""
        waiting, self._waiting = self._waiting, []
        leaving, self._leaving, self._is_more_due = self._leaving, None, False
        if leaving is not None:
            self._gathered = leaving.notes.joined(self._gathered)
            waiting = [*leaving.waiting, *waiting]
        _tell(waiting, SystemBusyError(self._refusals.alarm or _OFFSETS))

    def _go_on(self) -> None:
        """Proposes the next piece, unless one is on its way that it has to wait for."""
        self._is_call_due = False
        if self._awaited is not None:
            return
        if self._leaving is None and self._is_more_due:
            self._leaving = _Proposed(self._gathered, self._waiting)
            self._gathered, self._waiting, self._is_more_due = OffsetNotes(), [], False
        leaving = self._leaving
        if leaving is None:
            return
        if self._refusals.is_waiting:
            self._give_up()
            return
        piece = leaving.notes.take(PIECE_MAX)
        self._on_told(piece.told)
        is_last = not leaving.notes.told
        if is_last:
            self._leaving = None
        waiting = leaving.waiting if is_last else []
        if changes := self._changes_of(piece):
            self._propose_piece(_Proposed(piece, waiting), changes, leaving)
        elif is_last and self._proposed:
            self._proposed[-1].waiting.extend(waiting)
        else:
            _tell(waiting, None)
        if self._is_more_due if is_last else not changes:
            self._go_on_soon()

    def _go_on_soon(self) -> None:
        """In a turn of its own."""
        if not self._is_call_due:
            self._is_call_due = True
            self._call_at_end_of_turn(self._go_on)

    def _changes_of(self, piece: OffsetNotes) -> OffsetsByKey:
        """Returns what was told, but for what the table has."""
        if not self._is_settled():
            # The table may have another offset in a moment.
            return piece.told
        changes: OffsetsByKey = {}
        for key, queues in piece.told.items():
            known = self._offsets.of_key(key)
            changed = {n: offset for n, offset in queues.items() if known.get(n) != offset}
            if changed:
                changes[key] = changed
        return changes

    def _propose_piece(self, proposed: _Proposed, changes: OffsetsByKey, whole: _Proposed) -> None:
        """Proposes a piece of `whole`; the next one follows in a turn of its own."""
        self._proposed.append(proposed)
        if self._leaving is whole:
            self._awaited = proposed
        room = proposed.notes.room
        self._proposed_room = self._proposed_room.plus(room)

        def done(error: BrokerError | None) -> None:
            before = self._proposed
            at = next((n for n, one in enumerate(before) if one is proposed), None)
            if at is not None:
                self._proposed = before[:at] + before[at + 1 :]
                self._proposed_room = self._proposed_room.minus(room)
            if error is None:
                self._refusals.stored()
            elif at is not None and isinstance(error, CommitTimeoutError):
                self._late_room = self._late_room.plus(room)
            elif at is not None:
                self._refusals.refused(error)
                # Nobody knows of these; what was told since then is newer.
                newer = [one.notes for one in before[at + 1 :]]
                leaving = [] if self._leaving is None else [self._leaving.notes]
                self._gathered.put_back(proposed.notes, newer + leaving)
            waiting = proposed.waiting
            if self._awaited is proposed:
                self._awaited = None
                if error is not None:
                    # Who waits for the last piece waits for this one, too.
                    waiting = [*waiting, *whole.waiting]
                    whole.waiting.clear()
                self._go_on_soon()
            _tell(waiting, error)

        self._propose(changes, done)


def _tell(waiting: list[OnCommitted], error: BrokerError | None) -> None:
    for done in waiting:
        done(error)
