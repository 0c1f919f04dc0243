"""Faults of births: a majority of new disks, and disks that hold no word of a birth.

swap           a majority of the machines run on empty disks for a while, beside one or two that
               have the log; their own disks are put back later, as if nothing had been. So an
               empty disk must neither vote nor acknowledge: what it did would be unsaid then.
older          all stores lose their births, as Java's never had one; each has a log
forget         one member loses its birth, and nothing else
"""

import random
from collections.abc import Callable
from typing import Final, NamedTuple

from ledgermq.dledger.store.text_file import unseal
from ledgermq.testing.simulation.disk import DiskContent
from ledgermq.testing.simulation.invariants import Aside, RaftWatch
from ledgermq.testing.simulation.member import SimMember
from ledgermq.testing.simulation.scene import Scene

# Longest wait before a process is started again, and longest time on an empty disk.
_DOWN_MS: Final = 1_500.0
_AWAY_MS: Final = 5_000.0
# How often it is looked for enough members that are whole, and the time between.
_TRIES_MAX: Final = 20
_AGAIN_MS: Final = 150.0


class _Shelf(NamedTuple):
    """A disk that was taken out."""

    content: DiskContent
    aside: Aside


class DiskSwaps:
    """Takes disks out and puts them back; takes births away."""

    def __init__(
        self,
        scene: Scene,
        end: Callable[[SimMember, float, bool], None],
        watch: RaftWatch,
        on_forgotten: Callable[[str], None],
    ) -> None:
        """Binds the world.

        Args:
            scene: what is changed.
            end: ends a process, which is started again after so many ms, by a kill or a power cut.
            watch: knows what each disk holds.
            on_forgotten: told of a member whose disk holds no birth any more.
        """
        self._scene = scene
        self._end = end
        self._watch = watch
        self._on_forgotten = on_forgotten
        self._shelves: dict[str, _Shelf] = {}
        self.makers: dict[str, Callable[[random.Random], None]] = {
            "swap": self._swap,
            "older": self._make_older,
            "forget": self._forget_one,
        }

    @property
    def has_disks_out(self) -> bool:
        """Whether somebody runs on an empty disk now, and has another one."""
        return bool(self._shelves)

    def put_all_back(self) -> None:
        """All that are out are put back, each with a restart of its machine."""
        shelves, self._shelves = self._shelves, {}
        for member_id, shelf in shelves.items():
            member = self._scene.members[member_id]
            self._scene.note("put_back", member.id)
            self._end(member, 100.0, False)
            member.disk.put_back(shelf.content)
            self._watch.put_back(member, shelf.aside)

    def _swap(self, rng: random.Random) -> None:
        scene = self._scene
        members = list(scene.members.values())
        chosen = rng.sample(members, len(members) // 2 + 1)
        others = [member for member in members if member not in chosen]
        # Somebody else has the birth and a log; who has lost both is as new as an empty disk.
        if self._shelves or not any(map(is_whole, others)):
            return
        scene.note("swap", " ".join(member.id for member in chosen))
        scene.hit("majority on empty disks")
        is_power_cut = scene.plan.is_sync_flush and rng.random() < 0.5
        # All at once: with one of them the group is whole, and the others may catch up and count.
        scene.timeline.at(rng.uniform(_DOWN_MS, _AWAY_MS), self.put_all_back)
        for member in chosen:
            self._end(member, rng.uniform(10, _DOWN_MS), is_power_cut)
            aside = self._watch.set_aside(member)
            self._shelves[member.id] = _Shelf(member.disk.wipe(), aside)
        if rng.random() < 0.5:
            # In any order of starting.
            for member in others:
                self._end(member, rng.uniform(10, _DOWN_MS), False)

    def _make_older(self, rng: random.Random, tries_left: int = _TRIES_MAX) -> None:
        scene = self._scene
        members = list(scene.members.values())
        if scene.is_healed or tries_left == 0:
            return
        # A store without a log cannot be told from a new disk then.
        have_logs = all(member.durable_end()[0] >= 0 for member in members)
        whole_count = sum(map(is_whole, members))
        if self._shelves or not have_logs or whole_count <= len(members) // 2:
            scene.timeline.at(_AGAIN_MS, self._make_older, rng, tries_left - 1)
            return
        scene.note("older", "")
        scene.hit("all stores older than births")
        for member in members:
            late_ms = rng.choice((0.0, 0.0, _AWAY_MS))
            self._end(member, rng.uniform(10, _DOWN_MS) + late_ms, False)
            self._forget(member)

    def _forget_one(self, rng: random.Random, tries_left: int = _TRIES_MAX) -> None:
        scene = self._scene
        if scene.is_healed or tries_left == 0:
            return
        victim = scene.members[rng.choice(scene.plan.victims)]
        # The others have it: all but those whose disks may be lost, too.
        others = [m for m in scene.members.values() if m.id not in scene.plan.victims]
        if self._shelves or not all(map(is_whole, [victim, *others])):
            scene.timeline.at(_AGAIN_MS, self._forget_one, rng, tries_left - 1)
            return
        scene.note("forget", victim.id)
        scene.hit("birth forgotten")
        self._end(victim, rng.uniform(10, _DOWN_MS), False)
        self._forget(victim)

    def _forget(self, member: SimMember) -> None:
        member.disk.texts.pop(f"{member.directory}/identity", None)
        self._on_forgotten(member.id)


def is_whole(member: SimMember) -> bool:
    """Whether a member has its birth and a log on disk, and lacks nothing, as far as it knows."""
    texts, directory = member.disk.texts, member.directory
    values = unseal(texts.get(f"{directory}/identity", b"")) or {}
    is_told = member.raft is None or not member.raft.recovering
    is_marked = f"{directory}/repair" in texts
    has_birth = values.get("birth_agreed") == "1"
    return has_birth and is_told and not is_marked and member.durable_end()[0] >= 0
