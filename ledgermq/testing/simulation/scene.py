"""What faults are made of: the parts of a world that they change."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ledgermq.testing.simulation.clock import Timeline
from ledgermq.testing.simulation.coverage import Coverage
from ledgermq.testing.simulation.member import SimMember
from ledgermq.testing.simulation.network import Network
from ledgermq.testing.simulation.plan import Plan


@dataclass(slots=True, kw_only=True)
class Scene:
    """Handed to all that makes faults."""

    plan: Plan
    timeline: Timeline
    network: Network
    members: Mapping[str, SimMember]
    coverage: Coverage
    # Counts something that was met.
    hit: Callable[[str], None]
    # Notes something for the trace.
    note: Callable[[str, str], None]
    # Faults are over.
    is_healed: bool = False

    def find_leader(self) -> SimMember | None:
        """Returns a member that leads, if there is one."""
        for member in self.members.values():
            if member.broker is not None and member.broker.leadership.is_leader:
                return member
        return None

    def any_member(self, rng: random.Random) -> SimMember:
        """Returns a member; the leader more often than others."""
        members = list(self.members.values())
        if rng.random() < 0.4:
            leader = self.find_leader()
            if leader is not None:
                return leader
        return rng.choice(members)
