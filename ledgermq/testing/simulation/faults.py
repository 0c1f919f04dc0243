"""Faults of a run: a schedule drawn before it begins, and those that events bring with them.

Each fault has a number of its own from which it draws its parameters, so that a schedule can be
made smaller without changing what is left of it. Here are those of processes and leaders; those of
links and disks are in files of their own.
"""

import random
from collections.abc import Callable
from typing import Final, NamedTuple

from ledgermq.dledger.entry import EntryId
from ledgermq.dledger.errors import LedgerError
from ledgermq.dledger.member_state import Role
from ledgermq.dledger.messages import AppendRequest
from ledgermq.testing.simulation.disk_faults import DiskFaults
from ledgermq.testing.simulation.disk_swaps import DiskSwaps
from ledgermq.testing.simulation.formats import FormatWatch
from ledgermq.testing.simulation.invariants import RaftWatch
from ledgermq.testing.simulation.member import SimMember
from ledgermq.testing.simulation.network_faults import NetworkFaults
from ledgermq.testing.simulation.plan import Plan
from ledgermq.testing.simulation.program_changes import ProgramChanges
from ledgermq.testing.simulation.scene import Scene
from ledgermq.testing.simulation.settings_faults import SettingsFaults
from ledgermq.testing.simulation.starvation import Starvation

_STEPS_MAX: Final = 12
# Operations of a roll: the new file, its sync, the sync of its name.
_ROLL_STEPS: Final = 3
# Operations that replace a small file: the write, its sync, the rename, the sync of the name.
_REPLACE_STEPS: Final = 4


class Fault(NamedTuple):
    """One fault of a schedule."""

    at_ms: float
    kind: str
    seed: int


def draw_schedule(plan: Plan) -> list[Fault]:
    """Returns the faults of a run, in the order of their time."""
    added = random.Random(f"added {plan.seed}")
    schedule = [Fault(at_ms, kind, added.getrandbits(48)) for at_ms, kind in plan.added_faults]
    changed = random.Random(f"changed {plan.seed}")
    schedule += [Fault(at, kind, changed.getrandbits(48)) for at, kind in plan.program_changes]
    if not plan.fault_weights:
        return sorted(schedule)
    rng = random.Random(f"faults {plan.seed}")
    kinds = [kind for kind, _ in plan.fault_weights]
    weights = [weight for _, weight in plan.fault_weights]
    at_ms = rng.expovariate(1 / plan.fault_every_ms) + rng.choice((0.0, 1_500.0))
    while at_ms < plan.chaos_ms:
        kind = rng.choices(kinds, weights)[0]
        schedule.append(Fault(at_ms, kind, rng.getrandbits(48)))
        at_ms += rng.expovariate(1 / plan.fault_every_ms)
    return sorted(schedule)


class FaultMaker:
    """Does to the world what a schedule says."""

    def __init__(
        self,
        scene: Scene,
        on_ended: Callable[[SimMember], None],
        send_to: Callable[[SimMember, int], None],
        watch: RaftWatch,
        on_forgotten: Callable[[str], None],
        formats: FormatWatch,
    ) -> None:
        """Binds the world.

        Args:
            scene: what is changed.
            on_ended: told of a process that is about to end.
            send_to: has producers send so many messages to one member.
            watch: told of members that lose what they held.
            on_forgotten: told of a member whose disk holds no birth any more.
            formats: knows what stands in the log.
        """
        self._scene = scene
        self._on_ended = on_ended
        self._rng = random.Random(f"trigger {scene.plan.seed}")
        # How the next stop inside an operation ends: with the power, or with the process only.
        self._stop_cuts_power: dict[str, bool] = {}
        # Who was asked to lead the term after this one, and how often it goes on at once.
        self._transfers: dict[int, str] = {}
        self._hops_left = 0
        self.swaps = DiskSwaps(scene, self._end_for, watch, on_forgotten)
        self._disks = DiskFaults(scene, self._kill_for, watch.on_lost, on_forgotten, self.swaps)
        self._links = NetworkFaults(scene, send_to)
        self.starvation = Starvation(scene)
        self.programs = ProgramChanges(scene, formats, self._end_for, self.stop)
        self.settings = SettingsFaults(scene, self._end_for)
        self._watch = watch
        self._makers: dict[str, Callable[[random.Random], None]] = {
            "kill": self._kill,
            "stop": self._stop,
            "stop_inside": self._stop_inside,
            "power": self._power,
            "power_all": self._power_all,
            "pause": self._pause,
            "starve": self.starvation.draw,
            "transfer": self._transfer,
            "assertion": self._break_assertion,
            **self._links.makers,
            **self._disks.makers,
            **self.swaps.makers,
            **self.programs.makers,
            **self.settings.makers,
        }
        for member in scene.members.values():
            self._watch_disk(member)

    def plan_all(self, schedule: list[Fault]) -> None:
        """Plans the faults of a schedule."""
        timeline = self._scene.timeline
        for fault in schedule:
            timeline.at(fault.at_ms - timeline.now_ms, self.make, fault)

    def make(self, fault: Fault) -> None:
        """Makes one fault."""
        if not self._scene.is_healed:
            self._makers[fault.kind](random.Random(fault.seed))

    def wipe(self, member: SimMember) -> None:
        """A disk is replaced by an empty one."""
        self._disks.wipe(member)

    # -- faults that events bring

    def trigger(self, what: str, member: SimMember) -> None:
        """Something happened at a member: perhaps it is hit just now, or a moment later."""
        scene = self._scene
        chance = scene.plan.trigger_chance
        if scene.is_healed or not chance or self._rng.random() >= chance / 4:
            return
        rng = self._rng
        delay_ms = rng.choice((0.0, rng.uniform(0, 20), rng.uniform(0, 300)))
        kind = rng.choice(("kill", "power", "pause", "lonely"))
        scene.timeline.at(delay_ms, self._make_triggered, what, kind, member)

    def on_serving(self, member: SimMember) -> None:
        """A new leader takes sends: perhaps it is left alone with them, or stops for long."""
        scene, rng = self._scene, self._rng
        if scene.is_healed or rng.random() >= scene.plan.strand_chance:
            return
        if rng.random() < 0.7:
            seeded = random.Random(rng.getrandbits(48))
            scene.timeline.at(rng.uniform(0, 1_500), self._strand, member, seeded)
        else:
            scene.timeline.at(rng.uniform(0, 1_500), self._pause_long, member)

    def _strand(self, member: SimMember, rng: random.Random) -> None:
        if self._scene.is_healed or member is not self._scene.find_leader():
            return
        if self._scene.network.cuts:
            # The leader before is still alone: this one comes next.
            self._scene.timeline.at(rng.uniform(500, 3_000), self._strand, member, rng)
        else:
            self._links.strand(rng)

    def _pause_long(self, member: SimMember) -> None:
        if not self._scene.is_healed and member.is_running:
            self._scene.hit("leader paused for long")
            member.pause()
            self._scene.timeline.at(self._rng.uniform(2_500, 5_000), member.resume)

    def _make_triggered(self, what: str, kind: str, member: SimMember) -> None:
        rng, scene = self._rng, self._scene
        if scene.is_healed or not member.is_running:
            return
        scene.hit(f"triggered by {what}")
        if kind == "lonely" and scene.plan.member_count >= 3:
            self._links.leave_one_friend(member, rng)
        elif kind == "pause":
            self._pause_one(member, rng)
        else:
            is_cut = kind == "power" and scene.plan.is_sync_flush
            self.end(member, is_power_cut=is_cut, down_ms=rng.uniform(10, 1_500))

    def _watch_disk(self, member: SimMember) -> None:
        """Has machines stop inside votes and rolls more often than chance alone would."""
        chance, scene, disk = self._scene.plan.stop_chance, self._scene, member.disk

        def stops_in(kind: str, path: str) -> bool:
            if scene.is_healed or self._rng.random() >= chance:
                return False
            if kind == "write_text" and path.endswith(("/currterm.tmp", "/identity.tmp")):
                self._stop_cuts_power[member.id] = scene.plan.is_sync_flush
                disk.stop_at = disk.step_count + self._rng.randrange(_REPLACE_STEPS)
            if kind == "create" and "/data/" in path:
                scene.hit("crash inside a segment roll")
                self._stop_cuts_power[member.id] = scene.plan.is_sync_flush
                disk.stop_at = disk.step_count + self._rng.randrange(_ROLL_STEPS)
            return False

        if chance:
            disk.stops_in = stops_in

    # -- ends and starts of processes

    def end(self, member: SimMember, *, is_power_cut: bool, down_ms: float) -> None:
        """A process ends, and is started again later."""
        if not member.is_running:
            return
        scene = self._scene
        if is_power_cut and scene.plan.async_ids:
            # What a leader with ASYNC_FLUSH acknowledged may be lost with the power.
            is_power_cut = not any(i in scene.plan.async_ids for i in self._watch.leaders.values())
            if is_power_cut:
                scene.hit("power cut with different flush modes")
        scene.note("power_cut" if is_power_cut else "kill", member.id)
        scene.hit("power cut" if is_power_cut else "kill")
        self._on_ended(member)
        member.end(is_power_cut=is_power_cut)
        scene.timeline.at(down_ms, self.start, member)

    def start(self, member: SimMember) -> None:
        """Starts a process, unless it runs."""
        if not member.is_running:
            self._scene.note("start", member.id)
            member.start()

    def stopped_inside(self, member: SimMember) -> None:
        """The machine stopped inside an operation of the disk."""
        is_power_cut = self._stop_cuts_power.pop(member.id, False)
        self._scene.hit("stop inside an operation")
        member.disk.is_stopped = False
        self.end(member, is_power_cut=is_power_cut, down_ms=self._rng.uniform(10, 1_000))

    def _end_for(self, member: SimMember, down_ms: float, is_power_cut: bool) -> None:
        """Ends a process that runs, and starts it later in any case."""
        if member.is_running:
            self.end(member, is_power_cut=is_power_cut, down_ms=down_ms)
        else:
            self._scene.timeline.at(down_ms, self.start, member)

    def _kill_for(self, member: SimMember, down_ms: float) -> None:
        self.end(member, is_power_cut=False, down_ms=down_ms)

    def _kill(self, rng: random.Random) -> None:
        member = self._scene.any_member(rng)
        self.end(member, is_power_cut=False, down_ms=rng.uniform(10, 2_000))

    def _stop(self, rng: random.Random) -> None:
        self.stop(self._scene.any_member(rng), rng.uniform(10, 1_000))

    def stop(self, member: SimMember, down_ms: float) -> None:
        """Stops a process in order if it can hear of it; it is started again later."""
        if member.is_running and not member.is_paused:
            self._scene.note("stop", member.id)
            member.leave(lambda left: self._stopped_in_order(left, down_ms))

    def _stopped_in_order(self, member: SimMember, down_ms: float) -> None:
        self._scene.hit("stopped in order")
        self._kill_for(member, down_ms)

    def _power(self, rng: random.Random) -> None:
        member = self._scene.any_member(rng)
        self.end(member, is_power_cut=True, down_ms=rng.uniform(10, 2_000))

    def _power_all(self, rng: random.Random) -> None:
        self._scene.hit("all nodes power-cut at once")
        for member in self._scene.members.values():
            self.end(member, is_power_cut=True, down_ms=rng.uniform(10, 1_000))

    def _stop_inside(self, rng: random.Random) -> None:
        member = self._scene.any_member(rng)
        if member.is_running:
            member.disk.stop_at = member.disk.step_count + rng.randrange(1, _STEPS_MAX)
            is_power_cut = self._scene.plan.is_sync_flush and rng.random() < 0.6
            self._stop_cuts_power[member.id] = is_power_cut

    def _pause(self, rng: random.Random) -> None:
        self._pause_one(self._scene.any_member(rng), rng)

    def _pause_one(self, member: SimMember, rng: random.Random) -> None:
        self._scene.note("pause", member.id)
        self._scene.hit("pause")
        member.pause()
        pause_ms = rng.choice((rng.uniform(50, 500), rng.uniform(500, 6_000)))
        self._scene.timeline.at(pause_ms, member.resume)

    # -- leaders

    def _transfer(self, rng: random.Random) -> None:
        leader = self._scene.find_leader()
        if leader is not None and not leader.is_paused:
            self._hops_left = rng.choice((0, 0, 2, 3))
            leader.enter(self._hand_over, leader, rng.choice(self._scene.plan.ids))

    def _hand_over(self, leader: SimMember, target_id: str) -> None:
        if leader.replica is None or leader.is_paused or self._scene.is_healed:
            return
        try:
            self._transfers[leader.replica.transfer(target_id).term] = target_id
        except LedgerError:
            self._scene.hit("transfer refused")
            return
        self._scene.hit("transfer begun")
        self._scene.note("transfer", f"{leader.id} to {target_id}")

    def on_elected(self, member: SimMember, term: int) -> None:
        """Somebody leads: perhaps because it was asked to, perhaps to hand on at once."""
        if self._transfers.get(term - 1) != member.id:
            return
        self._scene.hit("leader hands over")
        if self._hops_left > 0:
            self._hops_left -= 1
            others = [peer for peer in self._scene.plan.ids if peer != member.id]
            target_id = self._rng.choice(others)
            delay_ms = self._rng.uniform(1, 100)
            self._scene.timeline.at(delay_ms, self._hop, member, target_id)

    def _hop(self, leader: SimMember, target_id: str) -> None:
        if leader.reactor is not None:
            leader.enter(self._hand_over, leader, target_id)

    def _break_assertion(self, rng: random.Random) -> None:
        """A follower is told that the entry before the last committed one has another term."""
        followers = [member for member in self._scene.members.values() if _is_deceivable(member)]
        if not followers:
            return
        member = rng.choice(followers)
        raft, replica = member.raft, member.replica
        assert raft is not None and replica is not None and raft.leader_id is not None
        index = raft.commit_index - 1
        forged = AppendRequest(
            term=raft.term,
            sender=raft.leader_id,
            target=member.id,
            entries=raft._log.read(index + 1, 1, 1),
            previous=EntryId(raft._log.term_at(index) - 1, index),
            commit_index=raft.commit_index,
            request_id=-1,
        )
        self._scene.note("assertion", member.id)
        # It reads the message when its disk has done what was asked for before.
        member.deceived_about = f"committed entry {index} keeps its term"
        member.enter(replica.message_received, forged)


def _is_deceivable(member: SimMember) -> bool:
    raft = member.raft
    if raft is None or member.is_paused or member.plan.java_ids:
        return False
    index = raft.commit_index - 1
    return raft.role is Role.FOLLOWER and index > raft._log.first_index and not raft.recovering
