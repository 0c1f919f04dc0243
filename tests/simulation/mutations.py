"""Proof that the simulation sees: each known mistake, planted, must be found within so many seeds.

python -m tests.simulation.mutations [NAME ...] runs them and prints a table: mistake, seeds needed,
and the statement that was broken. A mistake that is not found is a failure of the simulation.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from twisted.logger import globalLogBeginner

from ledgermq.testing.simulation.faults import draw_schedule
from ledgermq.testing.simulation.plan import Plan
from ledgermq.testing.simulation.shrink import reason_of
from tests.simulation import broken_twins as twins


class Mutation(NamedTuple):
    """One planted mistake."""

    name: str
    title: str
    twin: twins.Twin
    seeds_max: int
    # Changes of the plan that bring the mistake out sooner.
    focus: dict[str, object] = {}


_GROUP: dict[str, object] = {"java_ids": (), "is_sync_flush": True}
_POWER: dict[str, object] = {
    **_GROUP,
    "fault_every_ms": 400.0,
    "fault_weights": (("power_all", 1.0), ("power", 2.0), ("kill", 1.0), ("cut", 2.0)),
}
_ELECTIONS: dict[str, object] = {
    **_GROUP,
    "member_count": 5,
    "fault_every_ms": 250.0,
    "delay_ms": 60.0,
    "fault_weights": (("kill", 2.0), ("cut", 3.0), ("pause", 2.0)),
    "trigger_chance": 0.4,
}
# A leader that is cut off gathers a long tail that nobody else has.
_TAILS: dict[str, object] = {
    **_GROUP,
    "member_count": 3,
    "fault_every_ms": 500.0,
    "delay_ms": 5.0,
    "sync_ms": 2.0,
    "loss": 0.0,
    "fault_weights": (("kill", 2.0), ("cut", 4.0), ("pause", 1.0)),
    "send_every_ms": 10.0,
    "chaos_ms": 20_000.0,
    "trigger_chance": 0.15,
}
_PAUSES: dict[str, object] = {
    **_TAILS,
    "fault_weights": (("pause", 3.0), ("reset", 1.0)),
    "fault_every_ms": 800.0,
    "delay_ms": 30.0,
    "send_every_ms": 40.0,
    "trigger_chance": 0.0,
}
_LATE: dict[str, object] = {
    **_TAILS,
    "keeps_order": False,
    "holds_cut": True,
    "tail": 0.15,
    "duplication": 0.2,
    "delay_ms": 60.0,
    "send_every_ms": 40.0,
    "trigger_chance": 0.4,
}
_SLOW_TAILS: dict[str, object] = {**_TAILS, "sync_ms": 150.0, "delay_ms": 60.0}
_DAMAGE: dict[str, object] = {
    **_GROUP,
    "member_count": 3,
    "victims": ("n1",),
    "fault_every_ms": 300.0,
    "fault_weights": (("rot", 2.0), ("kill", 2.0), ("wipe", 1.0), ("cut", 1.0)),
    "send_every_ms": 40.0,
}
_ALL_JAVA: dict[str, object] = {
    "member_count": 3,
    "java_ids": ("n0", "n1", "n2"),
    "is_sync_flush": True,
    "keeps_order": False,
    "duplication": 0.2,
    "delay_ms": 60.0,
    "fault_every_ms": 250.0,
    "fault_weights": (("kill", 2.0), ("cut", 3.0), ("pause", 2.0), ("reset", 1.0)),
    "send_every_ms": 40.0,
    "victims": (),
}

MUTATIONS = (
    Mutation("M1", "a majority is half", twins.quorum_of_half, 5),
    Mutation("M2", "a vote without a look at the log", twins.vote_without_log_check, 20),
    Mutation("M3", "a follower answers before the sync", twins.ack_before_sync, 20),
    Mutation("M4", "a late TRUNCATE is obeyed", twins.late_truncate_obeyed, 150, _ALL_JAVA),
    Mutation(
        "M5",
        "an error of a sync is ignored",
        twins.sync_error_ignored,
        100,
        {**_GROUP, "fault_weights": (("sync_error", 3.0), ("power", 1.0))},
    ),
    Mutation("M6", "a damaged member votes", twins.damaged_member_votes, 100, _DAMAGE),
    Mutation("M7", "logs are compared by index", twins.log_compared_by_index, 100, _TAILS),
    Mutation("M8", "the last term is the present one", twins.last_term_is_present_term, 300),
    Mutation("M9", "a push of a past term is obeyed", twins.push_of_past_term_obeyed, 150, _LATE),
    Mutation("M10", "a leader counts its unsynced copy", twins.own_copy_counted_unsynced, 150),
    Mutation("M11", "COMPARE looks at the index only", twins.compare_by_index, 100, _ELECTIONS),
    Mutation("M12", "recovery is kept in memory", twins.recovery_kept_in_memory, 300, _DAMAGE),
    Mutation("M15", "a vote is answered before it is durable", twins.vote_not_durable, 300, _POWER),
    Mutation("M18", "old terms are counted", twins.old_terms_counted, 100, _ELECTIONS),
    Mutation(
        "M19",
        "the same, without an opening record",
        twins.old_terms_counted_without_opening,
        100,
        _ELECTIONS,
    ),
    Mutation("M20", "match indexes live on", twins.match_kept_over_terms, 200, _TAILS),
    Mutation("M21", "a late report of a sync counts", twins.late_report_counts, 300, _SLOW_TAILS),
    Mutation("M22", "APPEND without the entry before", twins.append_without_previous, 100),
    Mutation("M23", "commit before match", twins.commit_before_match, 300, _ELECTIONS),
    Mutation("M25", "any answer to a vote counts", twins.any_vote_answer_counts, 1_000, _ELECTIONS),
    Mutation("M26", "ready when elected", twins.ready_when_elected, 300),
    Mutation("M27", "queues up to the end of the log", twins.queues_ahead_of_commit, 50),
    Mutation("M28", "queue offsets from memory", twins.queue_offsets_from_memory, 300, _ELECTIONS),
    Mutation("M29", "checksums are not verified", twins.checksums_not_verified, 300, _DAMAGE),
    Mutation("M30", "a rebuilt index is off by one", twins.index_off_by_one, 50, _POWER),
    Mutation("M31", "group offsets without their file", twins.offsets_not_saved_with_mark, 500),
    Mutation(
        "M32",
        "leases on the wall clock",
        twins.wall_clock_for_leases,
        300,
        {**_GROUP, "fault_weights": (("clock", 1.0), ("kill", 1.0))},
    ),
    Mutation("M34", "an answer is sent twice", twins.answered_twice, 20),
    Mutation("M35", "a wiped member votes", twins.wiped_member_votes, 200, _DAMAGE),
    Mutation(
        "M36",
        "commits are told before the loss of the lead",
        twins.commits_told_before_the_loss,
        300,
        _PAUSES,
    ),
)
# Planted mistakes that other guards of the product make harmless, and why.
MASKED = {
    "M13": "answer before the cut is durable: what a power cut brings back fails the chain checksum"
    " or is the log as it was before an answer that nobody got",
    "M14": "cut by pointer only: the old bytes fail the chain checksum behind any new entry",
    "M16": "timer reset by any higher term: pre-vote keeps those who cannot win from raising terms",
    "M17": "vote file deleted, then renamed: its second copy is there, and a missing pair makes the"
    " member recover",
    "M24": "a leader that ignores a higher term loses its majority, and check-quorum ends it",
    "M33": "segments deleted while a follower needs them: the follower is begun afresh at the"
    " leader's first entry",
}


@contextmanager
def planted(mutation: Mutation) -> Iterator[None]:
    """Puts the twins in place for the length of a `with` block."""
    patches = mutation.twin()
    originals = [(owner, name, vars(owner)[name]) for owner, name, _ in patches]
    for owner, name, twin in patches:
        setattr(owner, name, twin)
    try:
        yield
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)


def plan_of(mutation: Mutation, seed: int) -> Plan:
    """The plan of a seed, with what brings the mistake out."""
    return replace(Plan.draw(seed), **mutation.focus)


def seeds_needed(mutation: Mutation) -> tuple[int, str] | None:
    """How many seeds it takes to see a mistake, and how it shows; None when it does not.

    A seed counts only when it holds without the mistake.
    """
    for seed in range(mutation.seeds_max):
        plan = plan_of(mutation, seed)
        with planted(mutation):
            reason = reason_of(plan, draw_schedule(plan))
        if reason is not None and reason_of(plan, draw_schedule(plan)) is None:
            return seed + 1, reason
    return None


def main(names: Sequence[str]) -> int:
    """Runs the chosen mutations, or all, and prints the table."""
    globalLogBeginner.beginLoggingTo([], redirectStandardIO=False, discardBuffer=True)
    missed = []
    for mutation in MUTATIONS:
        if names and mutation.name not in names:
            continue
        found = seeds_needed(mutation)
        if found is None:
            missed.append(mutation.name)
            count, reason = f">{mutation.seeds_max}", "NOT SEEN"
        else:
            count, reason = str(found[0]), found[1].partition("\n")[0][:70]
        line = f"{mutation.name:4} {mutation.title:42} {count:>6} {mutation.seeds_max:>6}  {reason}"
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    for name, why in MASKED.items():
        if not names:
            sys.stdout.write(f"{name:4} not applicable: {why}\n")
    sys.stdout.write(f"not seen: {', '.join(missed) or 'none'}\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
