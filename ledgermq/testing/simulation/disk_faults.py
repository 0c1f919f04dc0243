"""Faults of clocks and disks: jumps, slow and full disks, failed writes and syncs, rot, disks that
are replaced by empty ones.
"""

import random
from collections.abc import Callable
from typing import Final

from ledgermq.testing.simulation.disk_swaps import DiskSwaps
from ledgermq.testing.simulation.member import SimMember
from ledgermq.testing.simulation.scene import Scene

_YEAR_MS: Final = 365 * 86_400_000
# Files that may rot: a part of their path, and what they are called; what is named twice rots
# twice as often.
_ROT_KINDS: Final = (
    ("/data/", "data"),
    ("/data/", "data"),
    ("/data/", "data"),
    ("ledger/index/", "index"),
    ("/consumequeue/", "CQ"),
    ("/consumequeue/", "CQ"),
    ("/consumequeue/", "CQ"),
    ("/store/index/", "key index"),
    ("dispatch.checkpoint", "checkpoint"),
    ("/checkpoint", "checkpoint"),
    ("currterm", "vote file"),
    ("identity", "vote file"),
    ("/store/config/", "state file"),
)
# How often retention looks, and the time between.
_CLEAN_TRIES_MAX: Final = 30
_CLEAN_AGAIN_MS: Final = 100.0
# Kinds whose files are texts, replaced as a whole.
_TEXTS: Final = ("checkpoint", "vote file", "state file")
# What becomes of a state file besides a flipped bit.
_STATE_DAMAGES: Final = ("bit", "older", "empty", "cut")


class DiskFaults:
    """Does it to machines; rot and empty disks are for victims only."""

    def __init__(
        self,
        scene: Scene,
        end: Callable[[SimMember, float], None],
        on_lost: Callable[[SimMember, int | None], None],
        on_forgotten: Callable[[str], None],
        swaps: DiskSwaps,
    ) -> None:
        """Binds the world.

        Args:
            scene: what is changed.
            end: kills a process, which is started again after so many ms.
            on_lost: told of a member that may have lost what it held.
            on_forgotten: told of a member whose disk holds no birth any more.
            swaps: while they have disks out, none is lost for good.
        """
        self._scene = scene
        self._end = end
        self._on_lost = on_lost
        self._on_forgotten = on_forgotten
        self._swaps = swaps
        self.makers: dict[str, Callable[[random.Random], None]] = {
            "clock": self._clock,
            "slow_disk": self._slow_disk,
            "full_disk": self._full_disk,
            "hang_disk": self._hang_disk,
            "write_error": self._write_error,
            "sync_error": self._sync_error,
            "retention": self._retention,
            "rot": self._rot,
            "unreadable": self._fail_reads,
            "wipe": self._wipe,
        }

    def _clock(self, rng: random.Random) -> None:
        member = self._scene.any_member(rng)
        jump_ms = int(rng.choice((1_000, 60_000, 3_600_000, _YEAR_MS, 10 * _YEAR_MS)))
        sign = rng.choice((-1, 1))
        member.wall_offset_ms = max(0, member.wall_offset_ms + sign * jump_ms)
        self._scene.note("clock", f"{member.id} {sign * jump_ms}")
        if member.broker is not None and member.broker.leadership.is_leader:
            self._scene.hit("clock jump while leading")

    def _slow_disk(self, rng: random.Random) -> None:
        member = self._scene.any_member(rng)
        member.sync_ms = rng.choice((50.0, 300.0, 1_500.0))
        self._scene.note("slow_disk", f"{member.id} {member.sync_ms}")
        self._scene.timeline.at(rng.uniform(500, 4_000), self._restore_disk, member)

    def _restore_disk(self, member: SimMember) -> None:
        member.sync_ms = self._scene.plan.sync_ms if not self._scene.is_healed else 0.5
        member.disk.free_bytes = None

    def _hang_disk(self, rng: random.Random) -> None:
        member = self._scene.any_member(rng)
        member.disk.is_hanging = True
        self._scene.note("hang_disk", member.id)
        self._scene.hit("disk hangs")
        self._scene.timeline.at(rng.uniform(500, 8_000), member.disk.end_hang)

    def _full_disk(self, rng: random.Random) -> None:
        member = self._scene.any_member(rng)
        member.disk.free_bytes = 0
        self._scene.note("full_disk", member.id)
        self._scene.timeline.at(rng.uniform(200, 3_000), self._restore_disk, member)

    def _write_error(self, rng: random.Random) -> None:
        member = self._scene.any_member(rng)
        member.disk.write_errors = 1
        self._scene.note("write_error", member.id)

    def _sync_error(self, rng: random.Random) -> None:
        member = self._scene.any_member(rng)
        member.disk.sync_errors = 1
        self._scene.note("sync_error", member.id)

    def _retention(self, rng: random.Random) -> None:
        member = self._scene.any_member(rng)
        self._scene.note("retention", member.id)
        self._clean(member, member.incarnation, _CLEAN_TRIES_MAX)

    def _clean(self, member: SimMember, incarnation: int, tries_left: int) -> None:
        """Retention looks again and again while the disk is full, as the broker's does."""
        broker, store, scene = member.broker, member.store, self._scene
        is_same = member.incarnation == incarnation and not scene.is_healed
        if broker is None or store is None or broker.is_leaving or not is_same:
            return
        first_index = store.first_index
        if not member.is_paused:
            member.enter(broker.clean)
        if tries_left > 0 and member.store is store and store.first_index == first_index:
            again = (member, incarnation, tries_left - 1)
            scene.timeline.at(_CLEAN_AGAIN_MS, self._clean, *again)

    def _rot(self, rng: random.Random) -> None:
        self._damage(rng, is_read_error=False)

    def _fail_reads(self, rng: random.Random) -> None:
        self._damage(rng, is_read_error=True)

    def _damage(self, rng: random.Random, *, is_read_error: bool) -> None:
        """Flips bits of a file, or has its sectors not read any more."""
        scene = self._scene
        if self._swaps.has_disks_out:
            return
        victim = scene.members[rng.choice(scene.plan.victims)]
        if victim.is_running:
            self._end(victim, rng.uniform(10, 500))
        part, kind = rng.choice(_ROT_KINDS)
        index, end = victim.durable_end()
        disk = victim.disk
        if kind in _TEXTS:
            texts = [path for path in sorted(disk.texts) if part in path and disk.texts[path]]
            if not texts:
                return
            path = rng.choice(texts)
            self._on_lost(victim, index)
            data = bytearray(disk.texts[path])
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            damage = rng.choice(_STATE_DAMAGES) if kind == "state file" else "bit"
            if is_read_error:
                disk.unreadable_texts.add(path)
            elif damage == "older":
                disk.texts[path] = disk.older_texts.get(path, bytes(data))
                scene.hit("older copy of a state file")
            elif damage != "bit":
                disk.texts[path] = bytes(data[: 0 if damage == "empty" else len(data) // 2])
            else:
                disk.texts[path] = bytes(data)
        else:
            if kind == "index":
                part = f"{victim.directory}/index/"
            files = [path for path in sorted(disk.files) if part in path]
            if not files:
                return
            path = rng.choice(files)
            file = disk.files[path]
            used = len(file.content.rstrip(b"\0"))
            if kind == "data":
                # What the store does not vouch for yet cannot be told from a torn end.
                used = min(used, end - int(path.rpartition("/")[2]))
            if used <= 0:
                return
            self._on_lost(victim, index)
            for _ in range(rng.choice((1, 1, 8))):
                at, value = rng.randrange(used), 1 << rng.randrange(8)
                if is_read_error:
                    file.fail_reads(at)
                else:
                    file.rot(at, value)
        what = "read error" if is_read_error else "rot"
        scene.note(what, f"{victim.id} {path}")
        scene.hit(f"{what} in {kind}")
        scene.coverage.on_rot(victim.id, kind)

    def _wipe(self, rng: random.Random) -> None:
        scene = self._scene
        victim = scene.members[rng.choice(scene.plan.victims)]
        others = [member for member in scene.members.values() if member is not victim]
        is_second = len(scene.plan.victims) > 1
        if is_second and any(member.durable_end()[0] < 0 for member in others):
            # Two disks that are lost while the group is born: a person has to look.
            return
        if self._swaps.has_disks_out:
            return
        self._end(victim, rng.uniform(10, 1_000))
        self.wipe(victim)

    def wipe(self, member: SimMember) -> None:
        """A disk is replaced by an empty one."""
        self._on_lost(member, None)
        member.disk.wipe()
        self._on_forgotten(member.id)
        self._scene.coverage.on_wiped(member.id)
        self._scene.note("wipe", member.id)
        self._scene.hit("disk wiped")
