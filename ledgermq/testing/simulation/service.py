"""The statements about the service, as a watcher that is asked after every event.

I29  a request that a member took is answered in time, while the member runs
I30  what waits is bounded: proposals, entries without a majority, frames to followers
I31  no file stays mapped that was removed, and no more are mapped than there should be
I33  a member whose assertion failed is silent from then on
I34  retention drops nothing behind the mark on disk: only the mark tells where its queues go on
"""

from collections.abc import Callable, Mapping
from typing import Final

from ledgermq.dledger.dispatcher import LATE_FRAMES_MAX
from ledgermq.dledger.leader import Leader
from ledgermq.dledger.messages import LinkMessage
from ledgermq.dledger.replica.memory import memory_bounds
from ledgermq.testing.simulation.broker import LIMITS
from ledgermq.testing.simulation.invariants import demand
from ledgermq.testing.simulation.member import OPEN_FILES_MAX, PROPOSALS_MAX, SimMember

# Beyond the limit of the broker: what a turn and the look at the clock may add.
_GRACE_MS: Final = 1_000.0
# Records that the broker adds by itself, whatever waits.
_OWN_RECORDS_MAX: Final = 50
# Bytes that one turn may add when the limit was not reached before it.
_TURN_BYTES_MAX: Final = 1 << 17


class ServiceWatch:
    """What members owe to whoever asks them."""

    def __init__(
        self,
        members: Mapping[str, SimMember],
        now_ms: Callable[[], float],
        hit: Callable[[str], None],
    ) -> None:
        """Nobody has asked."""
        self._members = members
        self._hit = hit
        self._now_ms = now_ms
        # Requests that each member took and has not answered, oldest first: which process of it
        # took them, and when.
        self._open: dict[str, dict[tuple[str, int], tuple[int, float]]] = {
            name: {} for name in members
        }

    def on_taken(self, member_id: str, client_id: str, opaque: int) -> None:
        """A member takes a send."""
        incarnation = self._members[member_id].incarnation
        self._open[member_id][client_id, opaque] = (incarnation, self._now_ms())

    def on_answer(self, member_id: str, client_id: str, opaque: int) -> None:
        """A member answers it."""
        self._open[member_id].pop((client_id, opaque), None)

    def on_sent(self, message: LinkMessage) -> None:
        """I33: a message leaves a process."""
        replica = self._members[message.sender].replica
        failure = replica.failure if replica is not None else None
        demand(failure is None, "I33 speaks after it stopped", message.sender, repr(failure))

    def check(self, member: SimMember) -> None:
        """Checks what one event may have changed at one member."""
        broker, raft = member.broker, member.raft
        if broker is None or raft is None:
            return
        proposals = broker.proposals
        is_bounded = proposals.count <= LIMITS.messages_max + _OWN_RECORDS_MAX
        is_bounded &= proposals.bytes <= LIMITS.bytes_max + _TURN_BYTES_MAX
        demand(is_bounded, "I30 proposals", member.id, proposals.count, proposals.bytes)
        self._check_memory(member)
        duty = raft._duty
        if isinstance(duty, Leader):
            waiting = raft.last_index - max(raft.commit_index, duty.ready_index)
            demand(waiting <= PROPOSALS_MAX + 1, "I30 uncommitted", member.id, waiting)
            frames_max = max(raft.config.push_frames_max, raft.config.java_push_frames_max)
            for dispatcher in duty._dispatchers.values():
                frames, late = len(dispatcher._in_flight), len(dispatcher._late)
                is_bounded &= frames <= frames_max and late <= LATE_FRAMES_MAX
                demand(is_bounded, "I30 frames", member.id, frames, late)

    def _check_memory(self, member: SimMember) -> None:
        """I30, of what waits for a disk."""
        replica = member.replica
        assert replica is not None
        use, bounds = replica.memory_use, memory_bounds(replica.config)
        is_bounded = all(size <= limit for size, limit in zip(use, bounds, strict=True))
        demand(is_bounded, "I30 memory", member.id, use, bounds)
        if use.inbox_bytes > bounds.inbox_bytes // 2:
            self._hit("inbox more than half full")

    def check_time(self) -> None:
        """I29, of all members; asked now and then."""
        for member_id, waiting in self._open.items():
            member = self._members[member_id]
            if not member.is_running:
                # Its connections are closed: whoever waits knows.
                waiting.clear()
            while waiting and next(iter(waiting.values()))[0] != member.incarnation:
                del waiting[next(iter(waiting))]
            if not waiting or member.is_paused:
                continue
            request, (_, taken_ms) = next(iter(waiting.items()))
            waited_ms = self._now_ms() - max(taken_ms, member.resumed_ms)
            limit_ms = LIMITS.commit_timeout_ms + _GRACE_MS
            demand(waited_ms <= limit_ms, "I29 not answered", member_id, request, waited_ms)

    def check_end(self) -> None:
        """I31: what is open when all is quiet."""
        for member in self._members.values():
            store, broker = member.store, member.broker
            if store is None or broker is None:
                continue
            files = broker.messages._files
            is_bounded = files.open_count <= OPEN_FILES_MAX
            demand(is_bounded, "I31 files", member.id, files.open_count, OPEN_FILES_MAX)
            for segments in (store.data, store._index.segments):
                opened = (*segments._open.values(), *segments._ahead.values())
                removed = [file.path for file in opened if file.path not in member.disk.files]
                demand(not removed, "I31 a removed file is open", member.id, removed)


def check_drop(member: SimMember) -> None:
    """I34: retention of a member has just dropped a part of its log."""
    store, broker = member.store, member.broker
    if store is None or broker is None:
        return
    mark = broker.messages.checkpoints.read()
    if mark is None and member.id in member.plan.victims:
        # It has rotted.
        return
    covered = mark.end_position if mark is not None else 0
    is_covered = store.first_position <= covered
    demand(
        is_covered, "I34 log dropped ahead of the mark", member.id, store.first_position, covered
    )
