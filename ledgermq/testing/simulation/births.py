"""The statements about the birth of a group, as a watcher of what members save.

    I36  a group has one birth, from the moment at which the first member knows it as agreed
    I37  nobody leads a group that has a birth without it, nor by less than a majority that has it

Where a Java member is in the group there is no birth.
"""

from collections.abc import Callable, Mapping

from ledgermq.dledger.birth import Birth
from ledgermq.dledger.storage import HardState
from ledgermq.testing.simulation.invariants import demand
from ledgermq.testing.simulation.member import SimMember


class BirthWatch:
    """Who holds which birth."""

    def __init__(self, members: Mapping[str, SimMember], hit: Callable[[str], None]) -> None:
        """Nobody holds one."""
        self._members = members
        self._hit = hit
        # The id that is agreed.
        self.agreed_id: str | None = None
        # What each disk holds, and who has ever held what is agreed.
        self._held: dict[str, Birth] = {}
        self._knew: set[str] = set()
        # Members with a disk of another group.
        self.foreign_ids: set[str] = set()

    def on_started(self, member: SimMember) -> None:
        """A process runs on what its disk holds."""
        raft = member.raft
        assert raft is not None
        if raft.birth is None:
            self._lose(member.id)
        else:
            self._held.pop(member.id, None)
            self._take(member, raft.birth)

    def on_saved(self, member: SimMember, state: HardState) -> None:
        """Term, vote and birth are durable."""
        before = self._held.get(member.id)
        if state.birth != before:
            self._take(member, state.birth)
            self._count(member, before, state.birth)

    def forget(self, member_id: str) -> None:
        """A disk was emptied."""
        self._lose(member_id)
        self.foreign_ids.discard(member_id)

    def _lose(self, member_id: str) -> None:
        """A disk holds no birth any more; when none does, another one may come."""
        self._held.pop(member_id, None)
        if not self._held:
            self.agreed_id = None
            self._knew.clear()

    def on_elected(self, member: SimMember) -> None:
        """I37: a member leads."""
        if self.agreed_id is None or member.plan.java_ids:
            return
        holders = [i for i, birth in self._held.items() if birth.group_id == self.agreed_id]
        demand(member.id in holders, "I37 leads without the birth", member.id, self.agreed_id)
        # Who voted may have lost its disk since.
        knew = self._knew.union(holders)
        is_majority = len(knew) > len(self._members) // 2
        demand(is_majority, "I37 no majority has the birth", member.id, knew)

    def _take(self, member: SimMember, birth: Birth | None) -> None:
        if birth is None or member.id in self.foreign_ids:
            return
        self._held[member.id] = birth
        if birth.is_agreed:
            if self.agreed_id is None:
                self.agreed_id = birth.group_id
                self._hit("group born")
                for each in self._members.values():
                    each.founder_ids = ()
            if len(self._members) == 1:
                # One that loses its power before the birth is on its disk is born again: nobody was
                # told of the other one.
                self.agreed_id = birth.group_id
            is_one = self.agreed_id == birth.group_id
            demand(is_one, "I36 two births", member.id, self.agreed_id, birth)
        if birth.group_id == self.agreed_id:
            self._knew.add(member.id)

    def _count(self, member: SimMember, before: Birth | None, birth: Birth | None) -> None:
        raft = member.raft
        if birth is None or not birth.is_agreed or raft is None:
            return
        if before is None:
            self._hit("birth brought by a leader")
        elif raft.last_index >= 0:
            self._hit("older store born")
