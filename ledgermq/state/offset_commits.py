"""OffsetCommits: offsets that consumers tell a leader, on their way into the table.

Who waits for an answer gets it when the offset is applied, and the next leader would know of it,
too: all commits of a turn become one command. What is told one-way costs a note; it is proposed
together with the next commit, or when its time has come. Who asks for an offset that is on its way
waits until it is there: so the last word of a consumer that ends counts for the one that follows
it, and nobody sees an offset that is lost with its leader.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from ledgermq.protocol.group_keys import group_key
from ledgermq.state.consumer_offsets import (
    NO_ROOM,
    ConsumerOffsetTable,
    OffsetsByKey,
    Room,
)
from ledgermq.state.errors import BrokerError, CommitTimeoutError, SystemBusyError
from ledgermq.state.refusals import Refusals
from ledgermq.state.under_way import OnCommitted

# Brings offsets into the log.
ProposeOffsets = Callable[[OffsetsByKey, OnCommitted], None]
_OFFSETS: Final = "consumer offsets"


class _Proposed(NamedTuple):
    """A command on its way."""

    told: OffsetsByKey
    # What of it the table has not, and no command before it.
    room: Room
    waiting: list[OnCommitted]


class OffsetCommits:
    """The offsets that a leader was told and that are not applied yet.

    Invariant: what a consumer waits for stands in `_told` or in `_proposed` until it is answered.
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
        self._told: OffsetsByKey = {}
        # What of it the table has not, and no command before it.
        self._room = NO_ROOM
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
        self._told, self._proposed = {}, []
        self._room = self._proposed_room = self._late_room = NO_ROOM
        self._refusals.forget()

    def follow(self, error: BrokerError) -> None:
        """Tells those who wait that this member leads no longer, and forgets what was told."""
        self.forget()
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done(error)

    def tell(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Takes an offset for which nobody waits.

        Raises:
            InvalidRequestError: a number that no offset or queue can have.
            SystemBusyError: there are too many.
        """
        key = group_key(topic, group)
        self._offsets.check(key, queue_id, offset)
        queues = self._told.get(key)
        if queues is None or queue_id not in queues:
            if queue_id not in self._offsets.of_key(key):
                self._take_room(key, queue_id)
            queues = self._told.setdefault(key, {})
        queues[queue_id] = offset

    def _take_room(self, key: str, queue_id: int) -> None:
        """Counts what an offset takes that the table has not, unless a command on its way brings
        it, too.
        """
        proposed = [one.told[key] for one in self._proposed if key in one.told]
        if any(queue_id in queues for queues in proposed):
            return
        if self._late_room.bytes and self._is_settled():
            self._late_room = NO_ROOM
        more = self._room.plus(self._proposed_room).plus(self._late_room)
        is_pair_coming = bool(proposed) or key in self._told
        room = self._offsets.room_for(key, queue_id, more, is_pair_coming=is_pair_coming)
        self._room = self._room.plus(room)

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
        if queue_id in self._told.get(key, ()):
            return True
        return any(queue_id in one.told.get(key, ()) for one in self._proposed)

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
        """Proposes what was told since the last call."""
        waiting, self._waiting = self._waiting, []
        if self._refusals.is_waiting:
            # What the log refused is told to operators, and proposed again.
            _tell(waiting, SystemBusyError(self._refusals.alarm or _OFFSETS))
            return
        self._on_told(self._told)
        told, room = self._take_told()
        if told:
            self._begin(_Proposed(told, room, waiting))
        elif self._proposed:
            self._proposed[-1].waiting.extend(waiting)
        else:
            _tell(waiting, None)

    def _take_told(self) -> tuple[OffsetsByKey, Room]:
        """Returns what was told, but for what the table has, and what it takes."""
        told, self._told = self._told, {}
        room, self._room = self._room, NO_ROOM
        if not self._is_settled():
            # The table may have another offset in a moment.
            return told, room
        changes: OffsetsByKey = {}
        for key, queues in told.items():
            known = self._offsets.of_key(key)
            changed = {n: offset for n, offset in queues.items() if known.get(n) != offset}
            if changed:
                changes[key] = changed
        return changes, room

    def _begin(self, proposed: "_Proposed") -> None:
        self._proposed.append(proposed)
        self._proposed_room = self._proposed_room.plus(proposed.room)

        def done(error: BrokerError | None) -> None:
            is_current = any(one is proposed for one in self._proposed)
            if is_current:
                self._proposed = [one for one in self._proposed if one is not proposed]
                self._proposed_room = self._proposed_room.minus(proposed.room)
            if error is None:
                self._refusals.stored()
            elif is_current and isinstance(error, CommitTimeoutError):
                self._late_room = self._late_room.plus(proposed.room)
            elif is_current:
                self._refusals.refused(error)
                self._put_back(proposed)
            _tell(proposed.waiting, error)

        self._propose(proposed.told, done)

    def _put_back(self, refused: "_Proposed") -> None:
        """Nobody knows of these; what was told since then is newer."""
        self._room = self._room.plus(refused.room)
        for key, queues in refused.told.items():
            self._told[key] = {**queues, **self._told.get(key, {})}


def _tell(waiting: list[OnCommitted], error: BrokerError | None) -> None:
    for done in waiting:
        done(error)
