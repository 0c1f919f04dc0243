"""Faults of the network: links that carry nothing for a while, connections that are reset."""

import random
from collections.abc import Callable
from typing import Final

from ledgermq.testing.simulation.member import SimMember
from ledgermq.testing.simulation.scene import Scene

_STRANDED_SENDS_MAX: Final = 8


class NetworkFaults:
    """Cuts and heals links."""

    def __init__(self, scene: Scene, send_to: Callable[[SimMember, int], None]) -> None:
        """Binds the world; `send_to` has producers send so many messages to one member."""
        self._scene = scene
        self._send_to = send_to
        self.makers: dict[str, Callable[[random.Random], None]] = {
            "cut": self._cut,
            "strand": self.strand,
            "reset": self._reset,
        }

    def _cut(self, rng: random.Random) -> None:
        scene = self._scene
        ids, cuts = scene.plan.ids, scene.network.cuts
        cuts.clear()
        kind = rng.choice(("half", "alone", "one way", "bridge", "bridge", "ring"))
        if kind == "half":
            half = set(rng.sample(ids, rng.randint(1, len(ids) - 1)))
            cuts.update((a, b) for a in ids for b in ids if (a in half) != (b in half))
        elif kind == "alone":
            lone = scene.any_member(rng).id
            cuts.update((a, b) for a in ids for b in ids if lone in (a, b))
        elif kind == "one way":
            cuts.update((rng.choice(ids), rng.choice(ids)) for _ in ids)
        elif kind == "bridge":
            leader = scene.find_leader()
            bridge = rng.choice([name for name in ids if leader is None or name != leader.id])
            cuts.update((a, b) for a in ids for b in ids if bridge not in (a, b))
            if leader is not None:
                scene.hit("bridge partition with leader on one arm")
        else:
            around = rng.sample(ids, len(ids))
            near = {(a, b) for a, b in zip(around, [*around[1:], around[0]], strict=True)}
            near |= {(b, a) for a, b in near}
            cuts.update((a, b) for a in ids for b in ids if (a, b) not in near)
        scene.note("cut", f"{kind} " + " ".join(f"{a}>{b}" for a, b in sorted(cuts)))
        self.heal_in(rng.choice((rng.uniform(50, 500), rng.uniform(500, 5_000))))

    def strand(self, rng: random.Random) -> None:
        """A leader is cut off from all others, but not from those who send to it."""
        scene = self._scene
        leader, cuts = scene.find_leader(), scene.network.cuts
        if leader is None or cuts:
            # With others cut off, too, nobody would be elected in its place.
            return
        for other in scene.plan.ids:
            if other != leader.id:
                cuts |= {(leader.id, other), (other, leader.id)}
        scene.note("strand", leader.id)
        scene.hit("leader stranded")
        for _ in range(rng.randrange(1, 4)):
            count = rng.randrange(1, _STRANDED_SENDS_MAX)
            scene.timeline.at(rng.uniform(0, 1_000), self._send_to, leader, count)
        self.heal_in(rng.choice((rng.uniform(2_500, 4_000), rng.uniform(3_000, 6_000))))

    def leave_one_friend(self, member: SimMember, rng: random.Random) -> None:
        """Cuts a member off from all others but one."""
        others = [other for other in self._scene.plan.ids if other != member.id]
        friend = rng.choice(others)
        for other in others:
            if other != friend:
                self._scene.network.cuts |= {(member.id, other), (other, member.id)}
        self.heal_in(rng.uniform(100, 3_000))

    def heal_in(self, delay_ms: float) -> None:
        """Heals the present cuts later, unless there are others by then."""
        cuts = frozenset(self._scene.network.cuts)
        self._scene.timeline.at(delay_ms, self._heal, cuts)

    def _heal(self, cuts: frozenset[tuple[str, str]]) -> None:
        if self._scene.network.cuts == cuts:
            self._scene.network.cuts.clear()

    def _reset(self, rng: random.Random) -> None:
        for sender in self._scene.plan.ids:
            for target in self._scene.plan.ids:
                if sender != target and rng.random() < 0.4:
                    self._scene.network.break_link(sender, target)
        self._scene.note("reset", "")
