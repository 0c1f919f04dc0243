"""Members that are started with another member list than their group has agreed on.

A member of a group that is whole on its disk is started with a list of one, with members that are
missing, too many or renamed: it must refuse that before it changes a file (I48). Then it is started
as it was.
"""

import random
from collections.abc import Callable
from typing import Final

from ledgermq.testing.simulation.disk_swaps import is_whole
from ledgermq.testing.simulation.member import SimMember
from ledgermq.testing.simulation.scene import Scene

_DOWN_MS: Final = 200.0
# A member that the group has never had.
_OTHER_ID: Final = "n9"


class SettingsFaults:
    """Does it to members."""

    def __init__(self, scene: Scene, end: Callable[[SimMember, float, bool], None]) -> None:
        """Binds the world; `end` ends a process, which is started after so many ms."""
        self._scene = scene
        self._end = end
        self.makers: dict[str, Callable[[random.Random], None]] = {
            "other_list": self._start_with_another_list
        }

    def _start_with_another_list(self, rng: random.Random) -> None:
        scene = self._scene
        member = scene.any_member(rng)
        if not is_whole(member):
            return
        self.give(member, draw_list(rng, scene.plan.ids, member.id), rng.uniform(500, 3_000))

    def give(self, member: SimMember, ids: tuple[str, ...], for_ms: float) -> None:
        """Starts a member with another list, and with its own again later."""
        scene = self._scene
        scene.note("other_list", f"{member.id} {' '.join(ids)}")
        scene.hit("member list changed in a configuration")
        self._end(member, _DOWN_MS, False)
        member.configured_ids = ids
        scene.timeline.at(for_ms, self._take_back, member, ids)

    def mend_all(self) -> None:
        """All members have the right list from now on."""
        for member in self._scene.members.values():
            self._take_back(member, member.configured_ids)

    def _take_back(self, member: SimMember, ids: tuple[str, ...]) -> None:
        if member.configured_ids == ids != self._scene.plan.ids:
            self._end(member, _DOWN_MS, False)
            member.configured_ids = self._scene.plan.ids


def draw_list(rng: random.Random, ids: tuple[str, ...], self_id: str) -> tuple[str, ...]:
    """Returns a list that a group of these members must not count."""
    others = [one for one in ids if one != self_id]
    kind = rng.choice(("one", "subset", "superset", "renamed"))
    if kind == "one":
        return (self_id,)
    if kind == "superset":
        return (*ids, _OTHER_ID, "n8")
    gone = rng.choice(others)
    kept = tuple(one for one in ids if one != gone)
    return (*kept, _OTHER_ID) if kind == "renamed" else kept
