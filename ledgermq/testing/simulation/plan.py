"""What one seed draws: the size of the group, its times, and which kinds of faults there are.

Each kind of fault is wholly off in some runs, and its strength differs from run to run, so that
every combination comes up. Each part of the world has a stream of chance of its own: to take one
kind of fault away does not change the others.
"""

import random
from dataclasses import dataclass, replace
from typing import Final, Self

from ledgermq.dledger.config import FAST_TIMING, JAVA_TIMING, Timing

# Kinds of faults that can be taken away from a run, in the order in which a failure is made
# smaller.
FAULT_KINDS: Final = (
    "programs",
    "late",
    "swap",
    "older",
    "forget",
    "rot",
    "unreadable",
    "wipe",
    "other_list",
    "modes",
    "hang_disk",
    "full_disk",
    "write_error",
    "sync_error",
    "slow_disk",
    "clock",
    "retention",
    "duplication",
    "loss",
    "cut",
    "reset",
    "pause",
    "starve",
    "stop_inside",
    "assertion",
    "transfer",
    "strand",
    "power_all",
    "power",
    "kill",
    "trigger",
)
# Times that a simulated Java-like group has; a fraction of DLedger's own, for shorter runs.
_JAVA_LIKE: Final = Timing(
    heart_beat_ms=600,
    heart_beats_missed_max=3,
    vote_wait_min_ms=100,
    vote_wait_max_ms=400,
    vote_round_ms=500,
)


# Of the groups without Java.
_PROGRAMS_SHARE: Final = 0.12
_RETURNING_SHARE: Final = 0.4
_FLUSH_MODES_SHARE: Final = 0.2
_TIMINGS_SHARE: Final = 0.2
_DAY_MS: Final = 86_400_000.0
_LONG_FAULT_EVERY_MS: Final = 240_000.0
# Lengths of the chaos, and how often each is drawn: most runs are short, for each seed is another
# group; some are long, for logs and terms that grow.
_CHAOS_MS: Final = ((8_000.0, 12_000.0, 15_000.0, 20_000.0, 60_000.0), (4, 8, 8, 5, 1))
# Waits that differ little: votes are split.
_CLOSE_TIMING: Final = replace(FAST_TIMING, vote_wait_min_ms=150, vote_wait_max_ms=190)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one seed has drawn."""

    seed: int
    member_count: int
    # Acknowledged means synced on a majority; else only in the page caches of a majority.
    is_sync_flush: bool
    # Members with ASYNC_FLUSH in a group of SYNC_FLUSH.
    async_ids: tuple[str, ...] = ()
    # Clocks of members that are further apart do not agree; 0: they are not compared.
    clock_skew_max_ms: int = 0
    # Members that wait longer for a leader, and before they ask for votes.
    patient_ids: tuple[str, ...] = ()
    # Members that speak DLedger's JSON only.
    java_ids: tuple[str, ...]
    chaos_ms: float
    # Mean of the latency of one message, and whether one connection keeps the order.
    delay_ms: float
    keeps_order: bool
    # Share of messages that take up to ten seconds.
    tail: float
    loss: float
    duplication: float
    # Messages under way when a link is cut come later, instead of never.
    holds_cut: bool
    # Every message takes the way through its bytes.
    is_encoded: bool
    # Mean of the time of one sync.
    sync_ms: float
    # Mean time between two faults, and their kinds with their weights.
    fault_every_ms: float
    fault_weights: tuple[tuple[str, float], ...]
    # Chance that a turn of events (elected, voted, truncated, ...) brings a fault with it.
    trigger_chance: float
    # Mean time between two sends of a producer; producers, queues.
    send_every_ms: float
    producer_count: int
    queue_count: int
    body_bytes_max: int
    segment_bytes: int
    # Of one step of a sweep through the broker's state: few are many parts, with faults between.
    sweep_step_bytes: int
    # Of one step in which a state file is encoded.
    file_slice_chars: int = 256
    # Mean time between two pulls of a consumer.
    pull_every_ms: float = 120.0
    # Of the topic that is removed and comes back; 0: there is none.
    returning_queue_count: int = 0
    timing: Timing = FAST_TIMING
    java_timing: Timing = _JAVA_LIKE
    # Chance that a machine stops inside a write of its vote, or inside a roll of its log.
    stop_chance: float = 0.0
    # Chance that a new leader is cut off from all others, or paused for long.
    strand_chance: float = 0.0
    # Members that the group would rather have as leaders.
    preferred_ids: tuple[str, ...] = ()
    # Members that found the group; none named: all.
    founder_ids: tuple[str, ...] = ()
    # Members that start so many ms after the others.
    late_starts: tuple[tuple[str, float], ...] = ()
    # Faults besides those that the weights bring: when, and their kinds.
    added_faults: tuple[tuple[float, str], ...] = ()
    # When some member gets the next program, or the former one back ("upgrade", "downgrade").
    program_changes: tuple[tuple[float, str], ...] = ()
    # Members whose disk may rot or be replaced: never a majority.
    victims: tuple[str, ...] = ()

    @classmethod
    def draw(cls, seed: int) -> Self:
        """Returns the plan of a seed."""
        rng = random.Random(f"plan {seed}")
        count = rng.choice((1, 3, 3, 3, 3, 3, 5))
        ids = [f"n{i}" for i in range(count)]
        java_count = rng.choice((0, 0, 0, 0, 0, 1, count)) if count > 1 else 0
        is_sync_flush = rng.random() < 0.85
        weights = _draw_weights(rng, count, bool(java_count), is_sync_flush)
        weights += _draw_stops(seed) + _draw_write_errors(seed) + _draw_starvation(seed)
        weights += _draw_hangs(seed)
        if count >= 3 and not java_count:
            weights += _draw_other_lists(seed)
            weights += _draw_read_errors(seed) if is_sync_flush else ()
        return (
            cls(
                seed=seed,
                member_count=count,
                is_sync_flush=is_sync_flush,
                java_ids=tuple(sorted(rng.sample(ids, min(java_count, count)))),
                chaos_ms=rng.choices(*_CHAOS_MS)[0],
                delay_ms=rng.choice((0.5, 2.0, 10.0, 60.0, 200.0)),
                keeps_order=rng.random() < 0.6,
                tail=rng.choice((0.0, 0.0, 0.002)),
                loss=rng.choice((0.0, 0.0, 0.02, 0.15)),
                duplication=rng.choice((0.0, 0.0, 0.05, 0.2)),
                holds_cut=rng.random() < 0.5,
                is_encoded=not java_count and rng.random() < 0.15,
                sync_ms=rng.choice((0.1, 2.0, 20.0, 150.0)),
                fault_every_ms=rng.choice((150.0, 400.0, 1_000.0, 3_000.0)),
                fault_weights=weights,
                trigger_chance=rng.choice((0.0, 0.0, 0.15, 0.4)),
                send_every_ms=rng.choice((10.0, 40.0, 150.0, 600.0, 3_000.0)),
                producer_count=rng.choice((1, 2, 3)),
                queue_count=rng.choice((1, 2, 4)),
                body_bytes_max=rng.choice((20, 200, 900)),
                segment_bytes=(segment_bytes := rng.choice((8192, 8192, 16_384, 65_536))),
                # Of many parts where the log has room for them.
                sweep_step_bytes=2048 if segment_bytes == 8192 else 512,
                timing=rng.choice((FAST_TIMING, FAST_TIMING, _CLOSE_TIMING)),
                stop_chance=rng.choice((0.0, 0.0, 0.01, 0.03)),
                strand_chance=rng.choice((0.3, 0.6, 0.9)) if count >= 3 else 0.0,
                preferred_ids=rng.choice(((), (), (), (rng.choice(ids),))),
                victims=tuple(rng.sample(ids, (count - 1) // 2)),
            )
            ._with_births()
            ._with_programs()
            ._with_returning_topic()
            ._with_clocks()
            ._with_flush_modes()
            ._with_timings()
        )

    def _with_births(self) -> Self:
        """Draws who starts late, who founds the group, and what becomes of births; of its own, for
        the other draws stay.
        """
        rng, ids = random.Random(f"births {self.seed}"), self.ids
        if self.member_count < 3:
            return self
        late_starts: tuple[tuple[str, float], ...] = ()
        founder_ids: tuple[str, ...] = ()
        if rng.random() < 0.2:
            late_ids = rng.sample(ids, rng.randint(1, (self.member_count - 1) // 2))
            late_starts = tuple((i, rng.uniform(0, self.chaos_ms / 2)) for i in sorted(late_ids))
            if rng.random() < 0.5:
                founder_ids = tuple(i for i in ids if i not in late_ids)
        added = []
        if not self.java_ids and self.is_sync_flush and rng.random() < 0.35:
            for _ in range(rng.choice((1, 1, 2))):
                kind = rng.choice(("swap", "swap", "older", "forget"))
                added.append((rng.uniform(0.1, 0.9) * self.chaos_ms, kind))
        return replace(
            self,
            late_starts=late_starts,
            founder_ids=founder_ids,
            added_faults=tuple(added),
        )

    def _with_clocks(self) -> Self:
        """Draws whether the members compare their clocks, as they do unless it is switched off; of
        its own, for the other draws stay.
        """
        is_on = random.Random(f"clocks {self.seed}").random() < 0.7
        return replace(self, clock_skew_max_ms=60_000 if is_on else 0)

    def _with_programs(self) -> Self:
        """Draws whether programs are replaced; of its own, for the other draws stay.

        All members get the next one; or some do, and go back; or some go back before all get it; or
        somebody goes back when all have it, which is too late.
        """
        rng, count = random.Random(f"programs {self.seed}"), self.member_count
        if self.java_ids or rng.random() >= _PROGRAMS_SHARE:
            return self
        some = rng.randint(1, max(count - 1, 1))
        kinds = rng.choice(
            (
                ("upgrade",) * count,
                ("upgrade",) * some + ("downgrade",) * some,
                ("upgrade",) * some + ("downgrade",) * some + ("upgrade",) * count,
                ("upgrade",) * count + ("downgrade",) * some,
            )
        )
        times = sorted(rng.uniform(0.05, 0.9) * self.chaos_ms for _ in kinds)
        return replace(self, program_changes=tuple(zip(times, kinds, strict=True)))

    def _with_flush_modes(self) -> Self:
        """Draws members that have another flush mode than the group; of its own, for the other
        draws stay.
        """
        rng = random.Random(f"flush modes {self.seed}")
        is_possible = self.is_sync_flush and self.member_count >= 3 and not self.java_ids
        if not is_possible or rng.random() >= _FLUSH_MODES_SHARE:
            return self
        return replace(self, async_ids=tuple(i for i in self.ids if rng.random() < 0.5))

    def _with_timings(self) -> Self:
        """Draws members with other times; of its own, for the other draws stay."""
        rng = random.Random(f"timings {self.seed}")
        if self.java_ids or rng.random() >= _TIMINGS_SHARE:
            return self
        return replace(self, patient_ids=tuple(i for i in self.ids if rng.random() < 0.4))

    def timing_of(self, member_id: str) -> Timing:
        """Returns the times that a member is configured with."""
        timing = self.timing
        if member_id not in self.patient_ids:
            return timing
        return replace(
            timing,
            heart_beats_missed_max=timing.heart_beats_missed_max + 2,
            vote_wait_min_ms=2 * timing.vote_wait_min_ms,
            vote_wait_max_ms=3 * timing.vote_wait_max_ms,
        )

    def _with_returning_topic(self) -> Self:
        """Draws whether a topic of many queues is removed and comes back; of its own, for the other
        draws stay.
        """
        rng = random.Random(f"returning {self.seed}")
        if rng.random() >= _RETURNING_SHARE:
            return self
        return replace(self, returning_queue_count=rng.choice((12, 40, 80)))

    @classmethod
    def draw_days(cls, seed: int, days: float) -> Self:
        """Returns the plan of a seed as one long life: few faults, many segments, retention."""
        plan = cls.draw(seed)
        weights = dict(plan.fault_weights)
        weights["retention"] = max(1.0, sum(weights.values()))
        return replace(
            plan,
            chaos_ms=days * _DAY_MS,
            fault_every_ms=_LONG_FAULT_EVERY_MS,
            fault_weights=tuple(weights.items()),
            trigger_chance=0.0,
            strand_chance=0.0,
            added_faults=(),
            program_changes=(),
            send_every_ms=4_000.0,
            pull_every_ms=4_000.0,
            producer_count=1,
            body_bytes_max=900,
            segment_bytes=65_536,
            sweep_step_bytes=2048,
            timing=JAVA_TIMING,
            java_timing=JAVA_TIMING,
        )

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of all members."""
        return tuple(f"n{i}" for i in range(self.member_count))

    def without(self, kind: str) -> "Plan":
        """Returns the same plan without one kind of fault."""
        if kind == "trigger":
            return replace(self, trigger_chance=0.0)
        if kind == "loss":
            return replace(self, loss=0.0, tail=0.0)
        if kind == "stop_inside":
            self = replace(self, stop_chance=0.0)
        if kind == "strand":
            self = replace(self, strand_chance=0.0)
        if kind == "programs":
            return replace(self, program_changes=())
        if kind == "late":
            return replace(self, late_starts=(), founder_ids=())
        if kind == "modes":
            return replace(self, async_ids=())
        if kind == "duplication":
            return replace(self, duplication=0.0)
        weights = tuple((name, weight) for name, weight in self.fault_weights if name != kind)
        added = tuple((at_ms, name) for at_ms, name in self.added_faults if name != kind)
        return replace(self, fault_weights=weights, added_faults=added)


def _draw_weights(
    rng: random.Random, count: int, has_java: bool, is_sync_flush: bool
) -> tuple[tuple[str, float], ...]:
    """Draws which kinds of faults a run has, and how often each comes."""
    is_group = count >= 3
    possible = {
        "kill": True,
        "stop_inside": True,
        "power": is_sync_flush,
        "power_all": is_sync_flush,
        "pause": True,
        "cut": is_group,
        "strand": is_group,
        "reset": is_group,
        "transfer": is_group,
        "assertion": is_group and not has_java,
        "clock": True,
        "slow_disk": True,
        "full_disk": True,
        "sync_error": is_sync_flush,
        "retention": True,
        "rot": is_group and not has_java and is_sync_flush,
        "wipe": is_group and not has_java and is_sync_flush,
    }
    weights = []
    for kind, is_possible in possible.items():
        # Most rot is found late and only once, and not each stranded leader gets a tail of its own.
        is_rare = kind in ("rot", "wipe", "strand")
        is_drawn = rng.random() < (0.8 if is_rare else 0.5)
        weight = rng.choice((0.3, 1.0, 3.0)) * (3 if is_rare else 1)
        if is_possible and is_drawn:
            weights.append((kind, weight))
    return tuple(weights)


def _draw_stops(seed: int) -> tuple[tuple[str, float], ...]:
    """Draws whether processes are stopped in order, too; of its own, for the other draws stay."""
    rng = random.Random(f"stops {seed}")
    return (("stop", rng.choice((1.0, 3.0))),) if rng.random() < 0.3 else ()


def _draw_write_errors(seed: int) -> tuple[tuple[str, float], ...]:
    """Draws whether writes fail, too; of its own, for the other draws stay."""
    rng = random.Random(f"write errors {seed}")
    return (("write_error", rng.choice((0.3, 1.0, 3.0))),) if rng.random() < 0.4 else ()


def _draw_starvation(seed: int) -> tuple[tuple[str, float], ...]:
    """Draws whether members starve, too; of its own, for the other draws stay."""
    rng = random.Random(f"starvation {seed}")
    return (("starve", rng.choice((0.3, 1.0, 3.0))),) if rng.random() < 0.3 else ()


def _draw_hangs(seed: int) -> tuple[tuple[str, float], ...]:
    """Draws whether disks hang, too; of its own, for the other draws stay."""
    rng = random.Random(f"hangs {seed}")
    return (("hang_disk", rng.choice((0.3, 1.0, 3.0))),) if rng.random() < 0.3 else ()


def _draw_other_lists(seed: int) -> tuple[tuple[str, float], ...]:
    """Draws whether members get other member lists, too; of its own, for the other draws stay."""
    rng = random.Random(f"other lists {seed}")
    return (("other_list", rng.choice((0.3, 1.0, 3.0))),) if rng.random() < 0.3 else ()


def _draw_read_errors(seed: int) -> tuple[tuple[str, float], ...]:
    """Draws whether reads fail, too; of its own, for the other draws stay."""
    rng = random.Random(f"read errors {seed}")
    return (("unreadable", rng.choice((0.9, 3.0, 9.0))),) if rng.random() < 0.4 else ()
