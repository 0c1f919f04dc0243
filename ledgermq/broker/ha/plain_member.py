"""PlainMember: what a ledger's member is to a broker, for a broker without a ledger.

It leads from its start on when it is a master, and never when it is a slave. What was appended in a
turn is confirmed at the end of it, or, with SYNC_FLUSH, when it is on the disk: then it is
dispatched and its senders are answered, as after a commit. A disk that gives an error stops it for
good.
"""

from collections.abc import Callable
from typing import Any, Final

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from ledgermq.commitlog import PlainCommitLog
from ledgermq.dledger.disk_job import DiskJob
from ledgermq.dledger.member_state import Role
from ledgermq.dledger.replica.applying import Applier
from ledgermq.dledger.replica.config import FlushDiskType
from ledgermq.dledger.replica.flush_modes import FlushModes
from ledgermq.dledger.replica.membership_report import MembershipReport
from ledgermq.dledger.store.errors import DiskFullError
from ledgermq.dledger.store.keeper import GroupCommit, Keeper
from ledgermq.protocol.transport.refusals import Refusals

# There are no elections, and so no terms to tell apart.
_TERM: Final = 1
_NOTHING_NEEDED: Final = (1 << 63) - 1
# How often ASYNC_FLUSH brings the log to the disk (flushIntervalCommitLog).
_FLUSH_INTERVAL_S: Final = 0.5

_log = Logger()


class PlainMember:
    """One running plain log.

    Invariant: the applier has heard of all bytes before `_applied_offset`, which the log calls
    confirmed.
    """

    def __init__(
        self,
        reactor: Any,
        log: PlainCommitLog,
        applier: Applier,
        *,
        is_slave: bool,
        is_sync_flush: bool,
        self_id: str,
        opening_record: Callable[[], bytes],
        keeper: Keeper,
    ) -> None:
        """Binds the parts.

        Args:
            reactor: gives time and threads.
            log: open; stays the caller's, who closes it after `stop`.
            applier: told what is confirmed.
            is_slave: the log is filled by a master.
            is_sync_flush: whether what was appended counts only when it is on the disk.
            self_id: named as leader of itself.
            opening_record: makes the record that tells one start of a master from the next.
            keeper: does what waits for the disk; its owner stops it after `stop`.
        """
        self._reactor = reactor
        self._log = log
        self._applier = applier
        self._is_slave = is_slave
        self._is_sync_flush = is_sync_flush
        self._self_id = self_id
        self._opening_record = opening_record
        self._keeper = keeper
        self._syncs = GroupCommit(keeper, self._begin_sync)
        # Up to where the log is confirmed behind the sync that was asked for and has not begun;
        # None: no turn waits for it.
        self._unsynced: list[int] | None = None
        self._applied_offset = 0
        self._turn_call: Any = None
        self._upkeep_call: Any = None
        self._is_running = False
        # The next segment was asked for: one question waits for the disk, not one for each turn.
        self._is_ahead_asked = False
        # Called at the end of a turn in which something was appended.
        self.on_turn: Callable[[], None] = lambda: None
        self.flush_modes = FlushModes(
            self_id, (), FlushDiskType.SYNC_FLUSH if is_sync_flush else FlushDiskType.ASYNC_FLUSH
        )
        # Slaves that are not let in, or the master that this slave does not believe.
        self.refusals = Refusals(self_id, reactor.seconds)
        # Why it stopped by itself; None while it is well.
        self.failure: BaseException | None = None

    @property
    def needed_index(self) -> int:
        """Retention asks nobody."""
        return _NOTHING_NEEDED

    @property
    def membership(self) -> MembershipReport:
        """Without a ledger there are no members to agree on."""
        return MembershipReport()

    def view(self) -> None:
        """There is no group that it could know."""

    def decline_leadership(self, declines: bool) -> None:
        """There is nobody else to lead."""

    def start(self, *, applied_index: int) -> Deferred[None]:
        """Makes what was found durable, and begins to serve.

        Args:
            applied_index: last byte that the applier has heard of.
        """
        self._applied_offset = applied_index + 1
        synced: Deferred[Any] = self._syncs.request() if self._is_sync_flush else succeed(None)
        return synced.addCallback(self._begin)

    def _begin(self, _: object) -> None:
        self._is_running = True
        self._log.on_appended = self._appended
        self._upkeep_call = self._reactor.callLater(_FLUSH_INTERVAL_S, self._keep_up)
        if self._is_slave:
            self._log.waits_for_disk = False
            self._applier.role_changed(Role.FOLLOWER, _TERM, "the master", is_ready=False)
            return
        # In this step, so that the broker serves when its start is told to be over.
        self._log.append([self._opening_record()])
        # The start of a broker may wait for the disk, what follows may not.
        self._log.waits_for_disk = False
        self._confirm(self._log.whole_offset)
        if self._is_running:
            self._applier.role_changed(Role.LEADER, _TERM, self._self_id, is_ready=True)

    def stop(self) -> Deferred[None]:
        """Takes no more; fires when all is synced and the log may be closed."""
        was_running = self._is_running
        if was_running and self._turn_call is not None:
            self._turn_call.cancel()
            self._turn()
        self._leave()
        stopped: Deferred[Any] = self._syncs.request() if was_running else succeed(None)
        return stopped.addErrback(self._not_synced)

    def _leave(self) -> None:
        self._is_running = False
        self._log.on_appended = lambda max_offset: None
        for call in (self._turn_call, self._upkeep_call):
            if call is not None and call.active():
                call.cancel()
        self._turn_call = self._upkeep_call = None

    def _not_synced(self, failure: Failure) -> None:
        assert failure.value is not None
        self._fail(failure.value)

    def _fail(self, error: BaseException) -> None:
        """Stops for good: what is on the disk is not what is in memory."""
        if self.failure is not None:
            return
        self.failure = error
        _log.failure("commit log: stopped at {offset}", Failure(error), offset=self._log.max_offset)
        self._leave()
        self._applier.failed(error)

    # One turn.

    def take_turn(self) -> None:
        """Does at once what is due at the end of the reactor's turn, for who has gathered one."""
        if self._turn_call is not None:
            self._turn_call.cancel()
            self._turn()

    def _appended(self, max_offset: int) -> None:
        if self._turn_call is None:
            self._turn_call = self._reactor.callLater(0, self._turn)

    def _turn(self) -> None:
        """Everything that was appended since the last turn, at once."""
        self._turn_call = None
        if self._log.wants_ahead and not self._is_ahead_asked:
            self._is_ahead_asked = True
            self._keeper.run(self._log.begin_ahead).addBoth(self._ahead_ended)
        end = self._log.whole_offset
        if self._is_sync_flush:
            self._confirm_synced(end)
        else:
            self._confirm(end)
        self.on_turn()

    def _confirm_synced(self, end: int) -> None:
        """Confirms the log up to `end` when that is on the disk; all turns for which the same sync
        is enough are confirmed as one, so that little waits for a disk that hangs.
        """
        if self._unsynced is not None:
            self._unsynced[0] = end
            return
        ends = self._unsynced = [end]
        flushed: Deferred[Any] = self._syncs.request()
        flushed.addCallbacks(lambda _: self._confirm(ends[0]), self._not_synced)

    def _begin_sync(self) -> DiskJob | None:
        self._unsynced = None
        return self._log.begin_sync()

    def make_room(self) -> Deferred[None]:
        """Has files made that the log lacks, and what was cut off it wiped.

        Returns:
            Fires when that is done. Fails with DiskFullError without room, and with the error of a
            disk that stops this member.
        """
        made: Deferred[Any] = self._keeper.run(self._log.begin_room)
        return made.addErrback(self._not_made)

    def _not_made(self, failure: Failure) -> Failure:
        if not failure.check(DiskFullError):
            self._not_synced(failure)
        return failure

    def _ahead_ended(self, result: object) -> None:
        """Without room the segment is made when it is needed, and then a send is refused."""
        self._is_ahead_asked = False
        if isinstance(result, Failure) and not result.check(DiskFullError):
            self._not_synced(result)

    def _confirm(self, end: int) -> None:
        if self.failure is not None or end <= self._log.confirmed_offset:
            return
        # A slave's log may have begun behind its first byte.
        start = max(self._applied_offset, self._log.min_offset)
        try:
            self._log.confirm(end)
            self._applier.committed(start, end)
        except Exception as error:
            self._fail(error)
        self._applied_offset = end

    def _keep_up(self) -> None:
        """Background sync of ASYNC_FLUSH; and a write that failed ends the member."""
        failure = self._log.failure
        if failure is not None:
            self._fail(failure)
            return
        self._upkeep_call = self._reactor.callLater(_FLUSH_INTERVAL_S, self._keep_up)
        if self._log.flushed_offset < self._log.max_offset and not self._syncs.is_asked:
            flushed: Deferred[Any] = self._syncs.request()
            flushed.addErrback(self._not_synced)
