"""Programs are replaced while the group works: by the next one, and by the former one again.

upgrade        some member is stopped, in order or not, and starts with the next program
downgrade      some member that has it goes back

Whoever runs the group looks at it: a member whose program does not read what the others wrote, and
which ends or is refused for that, is given the next one.
"""

import random
from collections.abc import Callable, Sequence
from typing import Final

from ledgermq.commitlog import UnreadRecordError
from ledgermq.state.formats import FORMATS, Format
from ledgermq.testing.simulation.formats import FormatWatch
from ledgermq.testing.simulation.member import SimMember
from ledgermq.testing.simulation.next_format import NEXT_FORMATS
from ledgermq.testing.simulation.scene import Scene

# Longest time between two programs.
_DOWN_MS: Final = 1_500.0
# When an operator has seen that a member is refused, or has ended.
_SEEN_MS: Final = 500.0


class ProgramChanges:
    """Installs programs."""

    def __init__(
        self,
        scene: Scene,
        formats: FormatWatch,
        end: Callable[[SimMember, float, bool], None],
        stop: Callable[[SimMember, float], None],
    ) -> None:
        """Binds the world.

        Args:
            scene: what is changed.
            formats: knows what stands in the log.
            end: ends a process, which is started again after so many ms, by a kill or a power cut.
            stop: stops one in order if it can hear of that; it is started again likewise.
        """
        self._scene = scene
        self._formats = formats
        self._end = end
        self._stop = stop
        self.makers: dict[str, Callable[[random.Random], None]] = {
            "upgrade": self._upgrade,
            "downgrade": self._downgrade,
        }

    def _upgrade(self, rng: random.Random) -> None:
        self._replace_one(rng, FORMATS, NEXT_FORMATS)

    def _downgrade(self, rng: random.Random) -> None:
        member = self._replace_one(rng, NEXT_FORMATS, FORMATS)
        if member is not None:
            self._formats.went_back(member)

    def _replace_one(
        self, rng: random.Random, former: Sequence[Format], formats: Sequence[Format]
    ) -> SimMember | None:
        members = [one for one in self._scene.members.values() if one.formats is former]
        if not members:
            return None
        member = rng.choice(members)
        self._install(member, formats)
        if rng.random() < 0.5 and member.is_running and not member.is_paused:
            self._stop(member, rng.uniform(10, _DOWN_MS))
        else:
            self._end(member, rng.uniform(10, _DOWN_MS), False)
        return member

    def _install(self, member: SimMember, formats: Sequence[Format]) -> None:
        self._scene.note("install", f"{member.id} reads {formats[-1].version}")
        self._scene.hit("program replaced")
        member.formats = formats

    def on_refused(self, member_id: str, peer_id: str) -> None:
        """Two members do not work together: the older one is replaced, when that is seen."""
        members = self._scene.members
        older = min((members[member_id], members[peer_id]), key=lambda one: one.running_reads)
        self._scene.note("not_greeted", f"{member_id} {peer_id}")
        self._scene.hit("older program refused at the greeting")
        self._scene.timeline.at(_SEEN_MS, self._mend, older)

    def _mend(self, member: SimMember) -> None:
        if member.formats is not NEXT_FORMATS:
            self._install(member, NEXT_FORMATS)
            self._end(member, 100.0, False)

    def on_unread(self, member: SimMember, error: UnreadRecordError) -> None:
        """A member has ended for a record that its program does not read."""
        self._formats.on_unread(member, error)
        self._install(member, NEXT_FORMATS)
        self._end(member, _SEEN_MS, False)

    def mend_all(self) -> None:
        """Where the next format is written, all members get the next program."""
        if self._formats.next_index is not None:
            for member in self._scene.members.values():
                self._mend(member)
