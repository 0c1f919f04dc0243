"""The statements about programs of different versions, which replace one another.

I42  a leader chooses a format for a record only when each member has told its process, last, that
     it reads it, or when a record of it is committed already; the record may wait for the disk then
I43  a member goes on with no state of which its program does not read a record
"""

from collections.abc import Callable, Mapping

from ledgermq.commitlog import UnreadRecordError
from ledgermq.dledger.member_state import Role
from ledgermq.testing.simulation.invariants import demand
from ledgermq.testing.simulation.member import SimMember
from ledgermq.testing.simulation.next_format import NEXT_VERSION


class FormatWatch:
    """What each process was told, and what stands in the log."""

    def __init__(self, members: Mapping[str, SimMember], hit: Callable[[str], None]) -> None:
        """Nothing is written, nobody has met."""
        self._members = members
        self._hit = hit
        # What a peer told a process of a member last, by member, process and peer.
        self._told: dict[tuple[str, int, str], int] = {}
        # First committed record of the next version.
        self.next_index: int | None = None
        # Members that went back to the former program, and have not run since.
        self._went_back: set[str] = set()

    def on_greeted(self, member_id: str, peer_id: str, reads: int) -> None:
        """A process connected to a peer, which told what it reads."""
        self._told[(member_id, self._members[member_id].incarnation, peer_id)] = reads

    def on_chosen(self, member: SimMember, version: int) -> None:
        """I42: a member has chosen the format of a record that it is about to propose."""
        raft = member.raft
        if raft is None or raft.role is not Role.LEADER:
            return
        if version < NEXT_VERSION or self.next_index is not None:
            return
        if member.broker is not None and member.broker.state.formats.applied >= NEXT_VERSION:
            # Committed in this turn, at whose end the log is looked at.
            return
        for peer_id in raft.config.members:
            if peer_id != member.id:
                reads = self._told.get((member.id, member.incarnation, peer_id), 0)
                is_known = reads >= NEXT_VERSION
                demand(is_known, "I42 written before all read it", member.id, peer_id, reads)
        self._hit("next format proposed")

    def on_record(self, index: int, version: int) -> None:
        """A record of the state is committed."""
        if version == NEXT_VERSION and self.next_index is None:
            self.next_index = index
            self._hit("next format written")

    def on_applied(self, member: SimMember, index: int) -> None:
        """I43: a member has applied everything up to an index, or has it from before its start."""
        broker = member.broker
        assert broker is not None
        is_met = self.next_index is not None and index >= self.next_index
        reads = broker.state.formats.reads
        demand(reads >= NEXT_VERSION or not is_met, "I43 passed over", member.id, index, reads)
        if member.id in self._went_back and self.next_index is None:
            self._went_back.discard(member.id)
            self._hit("way back before the next format was written")

    def went_back(self, member: SimMember) -> None:
        """A member is given the former program."""
        self._went_back.add(member.id)

    def on_unread(self, member: SimMember, error: UnreadRecordError) -> None:
        """A member ended for a record: I43 the other way around, only where it must."""
        is_there = self.next_index is not None
        is_older = member.running_reads < NEXT_VERSION
        demand(is_there and is_older, "I43 ended without need", member.id, str(error))
        self._went_back.discard(member.id)
        self._hit("older program ended by a record of the next format")
