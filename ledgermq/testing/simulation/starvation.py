"""Starved members: processes that get a small share of their time, in slices.

Between two slices nothing of the process runs; what came due or arrived meanwhile comes in one
burst at the beginning of the next, timers that were due before a message arrived in front of it, as
on a machine that has far more to do than it can.
"""

import random
from typing import Final, NamedTuple

from ledgermq.testing.simulation.member import SimMember
from ledgermq.testing.simulation.scene import Scene

# Shares of the time that a fault leaves to its members, and the shortest and longest slice.
_SHARES: Final = (0.05, 0.05, 0.1, 0.3)
_SLICES_MS: Final = ((3.0, 20.0), (50.0, 150.0), (50.0, 1_000.0))


class Ration(NamedTuple):
    """What a starved process gets."""

    # Part of the time in which it runs.
    share: float
    # Each slice is drawn between these; the gap behind it follows from the share.
    slice_min_ms: float
    slice_max_ms: float


class Starvation:
    """Pauses and resumes members again and again."""

    def __init__(self, scene: Scene) -> None:
        """Nobody starves yet."""
        self._scene = scene
        # When each member gets all of its time again.
        self._end_ms: dict[str, float] = {}

    def draw(self, rng: random.Random) -> None:
        """A fault of a schedule: all members, or some, starve for a while."""
        scene = self._scene
        ration = Ration(rng.choice(_SHARES), *rng.choice(_SLICES_MS))
        members = list(scene.members.values())
        if rng.random() < 0.5:
            members = [scene.any_member(rng)]
        else:
            scene.hit("all members starved at once")
        length_ms = rng.choice((rng.uniform(1_000, 5_000), rng.uniform(5_000, 40_000)))
        for member in members:
            self.starve(member, ration, length_ms, random.Random(rng.getrandbits(48)))

    def starve(
        self, member: SimMember, ration: Ration, length_ms: float, rng: random.Random
    ) -> None:
        """From now on and for so long, a member gets a ration of its time."""
        scene, end_ms = self._scene, self._scene.timeline.now_ms + length_ms
        if self._end_ms.get(member.id, -1.0) >= scene.timeline.now_ms:
            self._end_ms[member.id] = max(self._end_ms[member.id], end_ms)
            return
        self._end_ms[member.id] = end_ms
        scene.hit("starved")
        scene.note("starve", f"{member.id} {ration.share:g} for {length_ms:.0f} ms")
        gap_ms = self._draw_slice_ms(ration, rng) / ration.share
        scene.timeline.at(rng.uniform(0.0, gap_ms), self._take, member, ration, rng)

    def _take(self, member: SimMember, ration: Ration, rng: random.Random) -> None:
        """A slice is over."""
        timeline = self._scene.timeline
        if self._scene.is_healed or timeline.now_ms >= self._end_ms[member.id]:
            return
        member.pause()
        slice_ms = self._draw_slice_ms(ration, rng)
        gap_ms = slice_ms * (1.0 - ration.share) / ration.share
        timeline.at(gap_ms, self._give, member, ration, slice_ms, rng)

    def _give(self, member: SimMember, ration: Ration, slice_ms: float, rng: random.Random) -> None:
        """A slice begins."""
        member.resume()
        self._scene.timeline.at(slice_ms, self._take, member, ration, rng)

    def _draw_slice_ms(self, ration: Ration, rng: random.Random) -> float:
        return rng.uniform(ration.slice_min_ms, ration.slice_max_ms)
