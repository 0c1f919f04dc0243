"""Faults of a run: a schedule drawn before it begins, and those that events bring with them.

Each fault has a number of its own from which it draws its parameters, so that a schedule can be
made smaller without changing what is left of it.
"""

import random
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from ledgermq.testing.simulation.clock import Timeline
from ledgermq.testing.simulation.member import SimMember
from ledgermq.testing.simulation.network import Network
from ledgermq.testing.simulation.plan import Plan

_YEAR_MS: Final = 365 * 86_400_000
_KILL_MAX: Final = 12
# Files that may rot: a part of their path, and the counter.
_ROT_KINDS: Final = (
    ("/data/", "rot in data"),
    ("n0/index/", "rot in index"),
    ("n1/index/", "rot in index"),
    ("n2/index/", "rot in index"),
    ("/consumequeue/", "rot in CQ"),
    ("/store/index/", "rot in key index"),
    ("checkpoint", "rot in checkpoint"),
    ("currterm", "rot in vote file"),
    ("identity", "rot in vote file"),
)


class Fault(NamedTuple):
    """One fault of a schedule."""

    at_ms: float
    kind: str
    seed: int


def draw_schedule(plan: Plan) -> list[Fault]:
    """Returns the faults of a run, in the order of their time."""
    if not plan.fault_weights:
        return []
    rng = random.Random(f"faults {plan.seed}")
    kinds = [kind for kind, _ in plan.fault_weights]
    weights = [weight for _, weight in plan.fault_weights]
    schedule = []
    at_ms = rng.expovariate(1 / plan.fault_every_ms) + rng.choice((0.0, 1_500.0))
    while at_ms < plan.chaos_ms:
        kind = rng.choices(kinds, weights)[0]
        schedule.append(Fault(at_ms, kind, rng.getrandbits(48)))
        at_ms += rng.expovariate(1 / plan.fault_every_ms)
    return schedule


class FaultMaker:
    """Does to the world what a schedule says."""

    def __init__(
        self,
        plan: Plan,
        timeline: Timeline,
        network: Network,
        members: Mapping[str, SimMember],
        hit: Callable[[str], None],
        note: Callable[[str, str], None],
        on_lost: Callable[[SimMember, int | None], None],
    ) -> None:
        """Binds the world; `on_lost` is told of a member that may have lost what it held."""
        self._plan = plan
        self._timeline = timeline
        self._network = network
        self._members = members
        self._hit = hit
        self._note = note
        self._on_lost = on_lost
        self._rng = random.Random(f"trigger {plan.seed}")
        self.is_healed = False
        # How the next stop inside an operation ends: with the power, or with the process only.
        self._stop_cuts_power: dict[str, bool] = {}
        self._makers: dict[str, Callable[[random.Random], None]] = {
            "kill": self._kill,
            "stop_inside": self._stop_inside,
            "power": self._power,
            "power_all": self._power_all,
            "pause": self._pause,
            "cut": self._cut,
            "reset": self._reset,
            "clock": self._clock,
            "slow_disk": self._slow_disk,
            "full_disk": self._full_disk,
            "sync_error": self._sync_error,
            "retention": self._retention,
            "rot": self._rot,
            "wipe": self._wipe,
        }

    def plan_all(self, schedule: list[Fault]) -> None:
        """Plans the faults of a schedule."""
        for fault in schedule:
            self._timeline.at(fault.at_ms - self._timeline.now_ms, self.make, fault)

    def make(self, fault: Fault) -> None:
        """Makes one fault."""
        if not self.is_healed:
            self._makers[fault.kind](random.Random(fault.seed))

    # -- faults that events bring

    def trigger(self, what: str, member: SimMember) -> None:
        """Something happened at a member: perhaps it is hit just now, or a moment later."""
        chance = self._plan.trigger_chance
        if self.is_healed or not chance or self._rng.random() >= chance / 4:
            return
        rng = self._rng
        delay_ms = rng.choice((0.0, rng.uniform(0, 20), rng.uniform(0, 300)))
        kind = rng.choice(("kill", "power", "pause", "lonely"))
        self._timeline.at(delay_ms, self._make_triggered, what, kind, member)

    def _make_triggered(self, what: str, kind: str, member: SimMember) -> None:
        rng = self._rng
        if self.is_healed or not member.is_running:
            return
        self._hit(f"triggered by {what}")
        if kind == "lonely" and self._plan.member_count >= 3:
            others = [other for other in self._plan.ids if other != member.id]
            friend = rng.choice(others)
            for other in others:
                if other != friend:
                    self._network.cuts |= {(member.id, other), (other, member.id)}
            self._heal_cuts_in(rng.uniform(100, 3_000))
        elif kind == "pause":
            self._pause_one(member, rng)
        else:
            is_cut = kind == "power" and self._plan.is_sync_flush
            self.end(member, is_power_cut=is_cut, down_ms=rng.uniform(10, 1_500))

    # -- ends and starts of processes

    def end(self, member: SimMember, *, is_power_cut: bool, down_ms: float) -> None:
        """A process ends, and is started again later."""
        if not member.is_running:
            return
        self._note("power_cut" if is_power_cut else "kill", member.id)
        self._hit("power cut" if is_power_cut else "kill")
        member.end(is_power_cut=is_power_cut)
        self._timeline.at(down_ms, self.start, member)

    def start(self, member: SimMember) -> None:
        """Starts a process, unless it runs."""
        if not member.is_running:
            self._note("start", member.id)
            member.start()

    def stopped_inside(self, member: SimMember) -> None:
        """The machine stopped inside an operation of the disk."""
        is_power_cut = self._stop_cuts_power.pop(member.id, False)
        self._hit("stop inside an operation")
        member.disk.is_stopped = False
        self.end(member, is_power_cut=is_power_cut, down_ms=self._rng.uniform(10, 1_000))

    def _any_member(self, rng: random.Random) -> SimMember:
        """A member; the leader more often than others."""
        members = list(self._members.values())
        if rng.random() < 0.4:
            for member in members:
                if member.broker is not None and member.broker.leadership.is_leader:
                    return member
        return rng.choice(members)

    def _kill(self, rng: random.Random) -> None:
        self.end(self._any_member(rng), is_power_cut=False, down_ms=rng.uniform(10, 2_000))

    def _power(self, rng: random.Random) -> None:
        self.end(self._any_member(rng), is_power_cut=True, down_ms=rng.uniform(10, 2_000))

    def _power_all(self, rng: random.Random) -> None:
        self._hit("all nodes power-cut at once")
        for member in self._members.values():
            self.end(member, is_power_cut=True, down_ms=rng.uniform(10, 1_000))

    def _stop_inside(self, rng: random.Random) -> None:
        member = self._any_member(rng)
        if member.is_running:
            member.disk.stop_at = member.disk.step_count + rng.randrange(1, _KILL_MAX)
            self._stop_cuts_power[member.id] = self._plan.is_sync_flush and rng.random() < 0.6

    def _pause(self, rng: random.Random) -> None:
        self._pause_one(self._any_member(rng), rng)

    def _pause_one(self, member: SimMember, rng: random.Random) -> None:
        self._note("pause", member.id)
        self._hit("pause")
        member.pause()
        pause_ms = rng.choice((rng.uniform(50, 500), rng.uniform(500, 6_000)))
        self._timeline.at(pause_ms, member.resume)

    # -- network

    def _cut(self, rng: random.Random) -> None:
        ids, cuts = self._plan.ids, self._network.cuts
        cuts.clear()
        kind = rng.choice(("half", "alone", "one way", "bridge", "ring"))
        if kind == "half":
            half = set(rng.sample(ids, rng.randint(1, len(ids) - 1)))
            cuts.update((a, b) for a in ids for b in ids if (a in half) != (b in half))
        elif kind == "alone":
            lone = self._any_member(rng).id
            cuts.update((a, b) for a in ids for b in ids if lone in (a, b))
        elif kind == "one way":
            cuts.update((rng.choice(ids), rng.choice(ids)) for _ in ids)
        elif kind == "bridge":
            bridge = rng.choice(ids)
            cuts.update((a, b) for a in ids for b in ids if bridge not in (a, b))
            self._hit_bridge(bridge)
        else:
            around = rng.sample(ids, len(ids))
            near = {(a, b) for a, b in zip(around, [*around[1:], around[0]], strict=True)}
            near |= {(b, a) for a, b in near}
            cuts.update((a, b) for a in ids for b in ids if (a, b) not in near)
        self._note("cut", f"{kind} " + " ".join(f"{a}>{b}" for a, b in sorted(cuts)))
        self._heal_cuts_in(rng.choice((rng.uniform(50, 500), rng.uniform(500, 5_000))))

    def _hit_bridge(self, bridge: str) -> None:
        for member in self._members.values():
            is_leader = member.broker is not None and member.broker.leadership.is_leader
            if is_leader and member.id != bridge:
                self._hit("bridge partition with leader on one arm")

    def _heal_cuts_in(self, delay_ms: float) -> None:
        cuts = frozenset(self._network.cuts)
        self._timeline.at(delay_ms, self._heal_cuts, cuts)

    def _heal_cuts(self, cuts: frozenset[tuple[str, str]]) -> None:
        if self._network.cuts == cuts:
            self._network.cuts.clear()

    def _reset(self, rng: random.Random) -> None:
        for sender in self._plan.ids:
            for target in self._plan.ids:
                if sender != target and rng.random() < 0.4:
                    self._network.break_link(sender, target)
        self._note("reset", "")

    # -- clocks and disks

    def _clock(self, rng: random.Random) -> None:
        member = self._any_member(rng)
        jump_ms = int(rng.choice((1_000, 60_000, 3_600_000, _YEAR_MS, 10 * _YEAR_MS)))
        sign = rng.choice((-1, 1))
        member.wall_offset_ms = max(0, member.wall_offset_ms + sign * jump_ms)
        self._note("clock", f"{member.id} {sign * jump_ms}")
        if member.broker is not None and member.broker.leadership.is_leader:
            self._hit("clock jump while leading")

    def _slow_disk(self, rng: random.Random) -> None:
        member = self._any_member(rng)
        member.sync_ms = rng.choice((50.0, 300.0, 1_500.0))
        self._note("slow_disk", f"{member.id} {member.sync_ms}")
        self._timeline.at(rng.uniform(500, 4_000), self._restore_disk, member)

    def _restore_disk(self, member: SimMember) -> None:
        member.sync_ms = self._plan.sync_ms if not self.is_healed else 0.5
        member.disk.free_bytes = None

    def _full_disk(self, rng: random.Random) -> None:
        member = self._any_member(rng)
        member.disk.free_bytes = 0
        self._note("full_disk", member.id)
        self._timeline.at(rng.uniform(200, 3_000), self._restore_disk, member)

    def _sync_error(self, rng: random.Random) -> None:
        member = self._any_member(rng)
        member.disk.sync_errors = 1
        self._note("sync_error", member.id)

    def _retention(self, rng: random.Random) -> None:
        member = self._any_member(rng)
        if member.broker is not None and not member.is_paused:
            broker = member.broker
            self._note("retention", member.id)
            member.enter(lambda: broker.clean())

    # -- damage, on the disks of victims only

    def _rot(self, rng: random.Random) -> None:
        victim = self._members[rng.choice(self._plan.victims)]
        is_down = not victim.is_running
        if not is_down:
            self.end(victim, is_power_cut=False, down_ms=rng.uniform(10, 500))
        part, counter = rng.choice(_ROT_KINDS)
        index, end = victim.durable_end()
        disk = victim.disk
        texts = [path for path in sorted(disk.texts) if part in path and disk.texts[path]]
        files = [path for path in sorted(disk.files) if part in path]
        if counter in ("rot in vote file", "rot in checkpoint") and texts:
            path = rng.choice(texts)
            data = bytearray(disk.texts[path])
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            disk.texts[path] = bytes(data)
        elif files:
            path = rng.choice(files)
            file = disk.files[path]
            used = len(file.content.rstrip(b"\0"))
            if "/data/" in path:
                # What the store does not vouch for yet cannot be told from a torn end.
                used = min(used, end - int(path.rpartition("/")[2]))
            for _ in range(rng.choice((1, 1, 8))):
                if used > 0:
                    file.rot(rng.randrange(used), 1 << rng.randrange(8))
        else:
            return
        self._note("rot", f"{victim.id} {path}")
        self._hit(counter)
        self._on_lost(victim, index)

    def _wipe(self, rng: random.Random) -> None:
        victim = self._members[rng.choice(self._plan.victims)]
        others = [member for member in self._members.values() if member is not victim]
        if any(member.durable_end()[0] < 0 for member in others):
            # Nobody can tell an emptied member from one that is new, while others are new, too.
            return
        self.end(victim, is_power_cut=False, down_ms=rng.uniform(10, 1_000))
        self.wipe(victim)

    def wipe(self, member: SimMember) -> None:
        """A disk is replaced by an empty one."""
        self._on_lost(member, None)
        member.disk.wipe()
        self._note("wipe", member.id)
        self._hit("disk wiped")
