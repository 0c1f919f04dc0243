"""Proof that the simulation sees: each known mistake, planted, must be found.

python -m tests.simulation.mutations [NAME ...] runs them and prints a table: mistake, the script or
the number of seeds that it took, and the statement that was broken. A mistake that is not found is
a failure of the simulation. What chance meets rarely has a script, and so has what a second guard
of the product would hide: its twin takes both guards away.
"""

import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from twisted.logger import globalLogBeginner

from ledgermq.testing.simulation.faults import draw_schedule
from ledgermq.testing.simulation.plan import Plan
from ledgermq.testing.simulation.shrink import reason_of
from tests.simulation import broken_store_twins as store_twins
from tests.simulation import broken_twins as twins
from tests.simulation.scripts import brokers, disks, elections, pushes

Script = Callable[[], None]


class Mutation(NamedTuple):
    """One planted mistake."""

    name: str
    title: str
    twin: twins.Twin
    # The script that sees it, or after how many seeds it must have been seen.
    seen_by: Script | int
    # Changes of the plan that bring the mistake out sooner.
    focus: dict[str, object] = {}


class Evidence(NamedTuple):
    """How a mistake was seen."""

    # The name of the script, or how many seeds it took.
    seen_by: str
    # The statement that was broken, with its facts.
    reason: str
    elapsed_s: float


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
MUTATIONS = (
    Mutation("M1", "a majority is half", twins.quorum_of_half, 5),
    Mutation("M2", "a vote without a look at the log", twins.vote_without_log_check, 20),
    Mutation("M3", "a follower answers before the sync", store_twins.ack_before_sync, 20),
    Mutation(
        "M4",
        "a late TRUNCATE is obeyed",
        twins.late_truncate_obeyed,
        pushes.late_truncate_of_the_same_term,
    ),
    Mutation(
        "M5",
        "an error of a sync is ignored",
        store_twins.sync_error_ignored,
        100,
        {**_GROUP, "fault_weights": (("sync_error", 3.0), ("power", 1.0))},
    ),
    Mutation(
        "M6",
        "a damaged member votes",
        store_twins.damaged_member_votes,
        disks.damaged_member_asked_for_a_vote,
    ),
    Mutation(
        "M7",
        "logs are compared by index",
        twins.log_compared_by_index,
        elections.candidate_with_a_present_term_and_an_old_log,
    ),
    Mutation(
        "M8",
        "the last term is the present one",
        twins.last_term_is_present_term,
        elections.candidate_with_a_present_term_and_an_old_log,
    ),
    Mutation(
        "M9",
        "a push of a past term is obeyed",
        twins.push_of_past_term_obeyed,
        pushes.push_of_a_deposed_leader,
    ),
    Mutation("M10", "a leader counts its unsynced copy", twins.own_copy_counted_unsynced, 150),
    Mutation("M11", "COMPARE looks at the index only", twins.compare_by_index, 100, _ELECTIONS),
    Mutation(
        "M12",
        "recovery is kept in memory",
        store_twins.recovery_kept_in_memory,
        disks.damaged_member_after_another_restart,
    ),
    Mutation(
        "M13",
        "a cut is not synced; no checksums",
        store_twins.cut_not_synced,
        disks.truncated_tail_after_a_power_cut,
    ),
    Mutation(
        "M14",
        "a cut moves a pointer; no checksums",
        store_twins.cut_by_pointer,
        disks.truncated_tail_after_a_kill,
    ),
    Mutation(
        "M15",
        "a vote is answered before it is durable",
        store_twins.vote_not_durable,
        300,
        _POWER,
    ),
    Mutation(
        "M16",
        "any term resets timers; no pre-vote",
        twins.timer_reset_by_any_term,
        elections.candidate_that_cannot_win,
    ),
    Mutation(
        "M17",
        "the vote file is deleted first; one copy",
        store_twins.vote_file_deleted_first,
        elections.stop_inside_the_vote_file,
    ),
    Mutation("M18", "old terms are counted", twins.old_terms_counted, pushes.figure_8),
    Mutation(
        "M19",
        "the same, without an opening record",
        twins.old_terms_counted_without_opening,
        pushes.figure_8,
    ),
    Mutation(
        "M20",
        "match indexes live on",
        twins.match_kept_over_terms,
        pushes.match_index_of_an_earlier_term,
    ),
    Mutation(
        "M21", "a late report of a sync counts", twins.late_report_counts, pushes.cut_during_a_sync
    ),
    Mutation(
        "M22",
        "APPEND without the entry before",
        twins.append_without_previous,
        pushes.append_behind_another_history,
    ),
    Mutation("M23", "commit before match", twins.commit_before_match, 300, _ELECTIONS),
    Mutation(
        "M24",
        "a leader ignores a higher term; no check-quorum",
        twins.higher_term_ignored,
        elections.leader_that_comes_back,
    ),
    Mutation("M25", "any answer to a vote counts", twins.any_vote_answer_counts, 1_000, _ELECTIONS),
    Mutation(
        "M26",
        "serving when elected",
        store_twins.serving_when_elected,
        brokers.send_before_the_term_is_open,
    ),
    Mutation("M27", "queues up to the end of the log", store_twins.queues_ahead_of_commit, 50),
    Mutation(
        "M28",
        "queue offsets from memory",
        store_twins.queue_offsets_from_memory,
        brokers.queue_offsets_of_an_earlier_reign,
    ),
    Mutation(
        "M29",
        "checksums are not verified",
        store_twins.checksums_not_verified,
        disks.rot_of_an_entry,
    ),
    Mutation(
        "M30",
        "a rebuilt index is off by one",
        store_twins.index_off_by_one,
        disks.index_that_is_gone,
    ),
    Mutation(
        "M31", "group offsets without their file", store_twins.offsets_not_saved_with_mark, 500
    ),
    Mutation(
        "M32",
        "leases on the wall clock",
        store_twins.wall_clock_for_leases,
        elections.wall_clock_that_jumps,
    ),
    Mutation(
        "M33",
        "a follower is never begun afresh",
        twins.follower_never_begun_afresh,
        disks.follower_behind_the_first_entry,
    ),
    Mutation("M34", "an answer is sent twice", store_twins.answered_twice, 20),
    Mutation(
        "M35",
        "a wiped member votes",
        store_twins.wiped_member_votes,
        disks.wiped_member_asked_for_a_vote,
    ),
    Mutation(
        "M36",
        "commits are told before the loss of the lead",
        store_twins.commits_told_before_the_loss,
        brokers.leader_that_wakes_up_deposed,
    ),
)


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


def reason_of_script(script: Script) -> str | None:
    """How a script fails, None when it does not."""
    try:
        script()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def find_evidence(mutation: Mutation) -> Evidence | None:
    """Looks for a mistake; None when it is not seen.

    A script or a seed counts only when it holds without the mistake.
    """
    began = time.process_time()
    script = mutation.seen_by
    if not isinstance(script, int):
        with planted(mutation):
            reason = reason_of_script(script)
        if reason is None or reason_of_script(script) is not None:
            return None
        return Evidence(script.__name__, reason, time.process_time() - began)
    for seed in range(script):
        plan = plan_of(mutation, seed)
        with planted(mutation):
            reason = reason_of(plan, draw_schedule(plan))
        if reason is not None and reason_of(plan, draw_schedule(plan)) is None:
            return Evidence(f"{seed + 1} seeds", reason, time.process_time() - began)
    return None


def main(names: Sequence[str]) -> int:
    """Runs the chosen mutations, or all, in two processes, and prints the table."""
    globalLogBeginner.beginLoggingTo([], redirectStandardIO=False, discardBuffer=True)
    chosen = [mutation for mutation in MUTATIONS if not names or mutation.name in names]
    missed = []
    with multiprocessing.get_context("fork").Pool(2) as pool:
        for mutation, found in zip(chosen, pool.imap(_look_for, _numbers(chosen)), strict=True):
            seen_by, reason, elapsed_s = found or ("NOT SEEN", "", 0.0)
            if found is None:
                missed.append(mutation.name)
            reason = reason.partition("\n")[0][:60]
            line = (
                f"{mutation.name:4} {mutation.title:46} {seen_by:45} {elapsed_s:6.1f} s  {reason}"
            )
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
    sys.stdout.write(f"not seen: {', '.join(missed) or 'none'}\n")
    return 1 if missed else 0


def _numbers(chosen: Sequence[Mutation]) -> list[int]:
    return [MUTATIONS.index(mutation) for mutation in chosen]


def _look_for(number: int) -> Evidence | None:
    """In a process of its own: twins cannot be pickled."""
    return find_evidence(MUTATIONS[number])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
