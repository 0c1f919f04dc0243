"""The mistakes that are planted: what is broken, the script that sees it, plans that bring it out.

M1 to M35 are mistakes that replicated logs are known to have had; those behind them were ours, or
would be.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from tests.simulation import broken_state_twins as state_twins
from tests.simulation import broken_store_twins as store_twins
from tests.simulation import broken_twins as twins
from tests.simulation.mistake_plans import (
    ALL_JAVA,
    BIRTHS,
    CLOCKS,
    DAMAGE,
    ELECTIONS,
    GROUP,
    POWER,
    PROGRAMS,
    PROGRAMS_BACK,
    RETENTION,
    SYNC_ERRORS,
    TAILS,
    WRITE_ERRORS,
)
from tests.simulation.scripts import (
    births,
    brokers,
    disks,
    elections,
    expiry,
    formats,
    new_group,
    pushes,
    starved,
    state,
)

Script = Callable[[], None]


class Mutation(NamedTuple):
    """One planted mistake."""

    name: str
    title: str
    twin: twins.Twin
    # Must see it.
    script: Script
    # So many seeds look for it, too; chance may miss it.
    seeds_max: int = 0
    # Changes of the plan that bring the mistake out sooner.
    focus: dict[str, object] = {}


MUTATIONS = (
    Mutation("M1", "a majority is half", twins.quorum_of_half, pushes.retry_after_a_lost_push, 5),
    Mutation(
        "M2",
        "a vote without a look at the log",
        twins.vote_without_log_check,
        elections.candidate_that_cannot_win,
        20,
    ),
    Mutation(
        "M3",
        "a follower answers before the sync",
        store_twins.ack_before_sync,
        disks.power_cut_right_after_the_ack,
        20,
    ),
    Mutation(
        "M4",
        "a late TRUNCATE is obeyed",
        twins.late_truncate_obeyed,
        pushes.late_truncate_of_the_same_term,
        20,
        ALL_JAVA,
    ),
    Mutation(
        "M5",
        "an error of a sync is ignored",
        store_twins.sync_error_ignored,
        disks.sync_that_fails,
        30,
        SYNC_ERRORS,
    ),
    Mutation(
        "M6",
        "a damaged member votes",
        store_twins.damaged_member_votes,
        disks.damaged_member_asked_for_a_vote,
        30,
        DAMAGE,
    ),
    Mutation(
        "M7",
        "logs are compared by index",
        twins.log_compared_by_index,
        elections.candidate_with_a_present_term_and_an_old_log,
        30,
        TAILS,
    ),
    Mutation(
        "M8",
        "the last term is the present one",
        twins.last_term_is_present_term,
        elections.candidate_with_a_present_term_and_an_old_log,
        30,
    ),
    Mutation(
        "M9",
        "a push of a past term is obeyed",
        twins.push_of_past_term_obeyed,
        pushes.push_of_a_deposed_leader,
    ),
    Mutation(
        "M10",
        "a leader counts its unsynced copy",
        twins.own_copy_counted_unsynced,
        pushes.cut_during_a_sync,
        20,
    ),
    Mutation(
        "M11",
        "COMPARE looks at the index only",
        twins.compare_by_index,
        pushes.double_leader_change,
        20,
        ELECTIONS,
    ),
    Mutation(
        "M12",
        "recovery is kept in memory",
        store_twins.recovery_kept_in_memory,
        disks.damaged_member_after_another_restart,
        30,
        DAMAGE,
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
        elections.stop_inside_the_vote_file,
        20,
        POWER,
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
    Mutation(
        "M18", "old terms are counted", twins.old_terms_counted, pushes.figure_8, 20, ELECTIONS
    ),
    Mutation(
        "M19",
        "the same, without an opening record",
        twins.old_terms_counted_without_opening,
        pushes.figure_8,
        20,
        ELECTIONS,
    ),
    Mutation(
        "M20",
        "match indexes live on",
        twins.match_kept_over_terms,
        pushes.match_index_of_an_earlier_term,
        30,
        TAILS,
    ),
    Mutation(
        "M21",
        "a sync answers for what was appended while it ran",
        store_twins.sync_answers_for_all_at_its_end,
        pushes.sends_during_a_sync,
        20,
        GROUP,
    ),
    Mutation(
        "M22",
        "APPEND without the entry before",
        twins.append_without_previous,
        pushes.append_behind_another_history,
    ),
    Mutation(
        "M23",
        "commit before match",
        twins.commit_before_match,
        pushes.commit_index_ahead_of_the_match,
        30,
        ELECTIONS,
    ),
    Mutation(
        "M24",
        "a leader ignores a higher term; no check-quorum",
        twins.higher_term_ignored,
        elections.leader_that_comes_back,
        20,
    ),
    Mutation(
        "M25",
        "any answer to a vote counts",
        twins.any_vote_answer_counts,
        elections.vote_answer_of_another_round,
        30,
        ELECTIONS,
    ),
    Mutation(
        "M26",
        "serving when elected",
        store_twins.serving_when_elected,
        brokers.send_before_the_term_is_open,
        20,
    ),
    Mutation(
        "M27",
        "queues up to the end of the log",
        store_twins.queues_ahead_of_commit,
        brokers.queues_after_a_restart,
        20,
    ),
    Mutation(
        "M28",
        "queue offsets from memory",
        store_twins.queue_offsets_from_memory,
        brokers.queue_offsets_of_an_earlier_reign,
        30,
        ELECTIONS,
    ),
    Mutation(
        "M29",
        "checksums are not verified",
        store_twins.checksums_not_verified,
        disks.rot_of_an_entry,
        30,
        DAMAGE,
    ),
    Mutation(
        "M30",
        "a rebuilt index is off by one",
        store_twins.index_off_by_one,
        disks.index_that_is_gone,
        30,
        POWER,
    ),
    Mutation(
        "M31",
        "group offsets and topics without their files",
        store_twins.offsets_not_saved_with_mark,
        brokers.group_offsets_of_a_new_leader,
        30,
    ),
    Mutation(
        "M32",
        "leases on the wall clock",
        store_twins.wall_clock_for_leases,
        elections.wall_clock_that_jumps,
        30,
        CLOCKS,
    ),
    Mutation(
        "M33",
        "a follower is never begun afresh",
        twins.follower_never_begun_afresh,
        disks.follower_behind_the_first_entry,
        30,
        RETENTION,
    ),
    Mutation(
        "M34",
        "an answer is sent twice",
        store_twins.answered_twice,
        pushes.retry_after_a_lost_push,
        20,
    ),
    Mutation(
        "M35",
        "a wiped member votes",
        store_twins.wiped_member_votes,
        disks.wiped_member_asked_for_a_vote,
        30,
        DAMAGE,
    ),
    Mutation(
        "M36",
        "commits are told before the loss of the lead",
        store_twins.commits_told_before_the_loss,
        brokers.leader_that_wakes_up_deposed,
    ),
    Mutation(
        "M37",
        "pages that a failed sync lost count as written",
        store_twins.lost_pages_not_rewritten,
        disks.page_lost_by_a_failed_sync,
    ),
    Mutation(
        "M38",
        "queues outlive the log that they are of",
        store_twins.queues_outlive_their_log,
        disks.follower_behind_the_first_entry,
    ),
    Mutation(
        "M39",
        "a queue without messages begins anew",
        store_twins.queue_ends_not_adopted,
        disks.queue_whose_messages_are_all_gone,
    ),
    Mutation(
        "M40",
        "a checkpoint of an empty log",
        store_twins.checkpoint_of_an_empty_log,
        new_group.members_stopped_before_they_met,
    ),
    Mutation(
        "M41",
        "a blank before a torn entry counts",
        store_twins.blank_before_a_torn_entry_counts,
        disks.power_cut_inside_a_roll,
    ),
    Mutation(
        "M42",
        "an error of a write is ignored",
        store_twins.write_error_ignored,
        disks.write_that_fails,
        30,
        WRITE_ERRORS,
    ),
    Mutation(
        "M43",
        "who comes late blames others for it",
        twins.lateness_ignored,
        starved.group_that_stood_still,
    ),
    Mutation(
        "M44",
        "waits that have grown never fall back",
        twins.waits_never_fall_back,
        starved.group_that_has_its_time_again,
    ),
    Mutation(
        "M45",
        "answers to pushes of earlier terms count",
        twins.answers_of_earlier_terms_counted,
        pushes.acknowledgement_of_an_earlier_term,
    ),
    Mutation(
        "M46",
        "a member's recovery ends one entry early",
        twins.recovery_one_entry_early,
        disks.wiped_member_that_caught_up_in_part,
    ),
    Mutation(
        "M47",
        "a log's last entry counts as torn",
        store_twins.last_entry_taken_for_torn,
        disks.power_cut_of_all,
        20,
    ),
    Mutation(
        "M48",
        "retention is ahead of the flushed mark",
        store_twins.retention_ahead_of_the_mark,
        disks.retention_before_the_mark,
        60,
        RETENTION,
    ),
    Mutation(
        "M49",
        "a rebuilt key index has first keys only",
        store_twins.first_key_of_a_rebuilt_index,
        disks.index_that_is_gone,
        20,
    ),
    Mutation(
        "M50",
        "a write that a sync overlapped counts as synced",
        store_twins.overlapped_write_counts_as_synced,
        pushes.sends_during_a_sync,
        20,
        GROUP,
    ),
    Mutation(
        "M51",
        "the durable mark is taken when the sync has ended",
        store_twins.claim_taken_after_the_sync,
        disks.checkpoint_during_a_sync,
        200,
        POWER,
    ),
    Mutation(
        "M52",
        "members without a birth elect",
        twins.members_without_a_birth_elect,
        births.two_new_disks_beside_the_log,
        60,
        BIRTHS,
    ),
    Mutation(
        "M53",
        "a birth counts without catching up",
        twins.birth_without_catching_up,
        births.new_disk_that_has_the_birth_only,
        60,
        DAMAGE,
    ),
    Mutation(
        "M54",
        "a new group is born by a majority",
        twins.birth_by_a_majority,
        births.group_that_waits_for_its_last_member,
        60,
        BIRTHS,
    ),
    Mutation(
        "M55",
        "a new leader stores by its own clock",
        store_twins.store_times_by_the_own_clock,
        brokers.store_times_over_clocks_that_differ,
        20,
        CLOCKS,
    ),
    Mutation(
        "M56",
        "a term opens by what is dispatched, not behind the log",
        store_twins.opening_behind_what_is_dispatched,
        brokers.store_times_over_clocks_that_differ,
        60,
    ),
    Mutation(
        "M57",
        "a commit is noted before its entries are in the store",
        store_twins.commit_index_of_the_core,
        pushes.commit_index_ahead_of_the_cut,
        60,
        {**TAILS, "sync_ms": 150.0, "fault_weights": (("strand", 9.0), ("kill", 2.0))},
    ),
    Mutation(
        "M58",
        "a commit of an offset is answered before it is committed",
        state_twins.offsets_answered_at_once,
        brokers.offsets_that_are_answered,
        20,
    ),
    Mutation(
        "M59",
        "a commit that is made again is answered while the first is under way",
        state_twins.offsets_under_way_count_as_stored,
        brokers.offsets_that_are_answered,
        60,
        {**TAILS, "loss": 0.3, "fault_weights": (("cut", 5.0), ("kill", 2.0))},
    ),
    Mutation(
        "M60",
        "a leader shows a topic before it is committed",
        state_twins.topics_visible_when_proposed,
        state.state_over_a_change_of_leader,
        20,
    ),
    Mutation(
        "M61",
        "a command is applied again behind a later one",
        state_twins.commands_applied_twice,
        state.state_over_a_change_of_leader,
        20,
    ),
    Mutation(
        "M62",
        "a sweep leaves an entry out",
        state_twins.sweeps_that_skip_an_entry,
        state.state_over_a_change_of_leader,
        20,
    ),
    Mutation(
        "M63",
        "a sweep that lacks parts counts as whole",
        state_twins.sweeps_that_lack_a_part,
        state.sweep_whose_leader_is_lost,
        60,
    ),
    Mutation(
        "M64",
        "a part of a sweep does not wait for what stands before it",
        state_twins.parts_that_wait_for_nothing,
        state.changes_in_the_midst_of_a_sweep,
        60,
    ),
    Mutation(
        "M65",
        "the next format is written as soon as the leader has it",
        state_twins.next_format_as_soon_as_the_leader_has_it,
        formats.programs_replaced_one_by_one,
        20,
        PROGRAMS,
    ),
    Mutation(
        "M66",
        "a record that a program does not read is passed over",
        state_twins.unread_records_passed_over,
        formats.records_that_a_former_program_meets,
        60,
        PROGRAMS_BACK,
    ),
    Mutation(
        "M67",
        "the format of the state is forgotten by a restart",
        state_twins.format_forgotten_by_a_restart,
        formats.former_program_on_a_state_of_the_next,
        60,
        PROGRAMS_BACK,
    ),
    Mutation(
        "M68",
        "a member that went back counts as before",
        state_twins.members_that_went_back_count_as_before,
        formats.programs_replaced_one_by_one,
        60,
        PROGRAMS,
    ),
    Mutation(
        "M69",
        "a mark is as of the moment when the state was encoded, not when that began",
        state_twins.marks_as_of_the_end_of_an_encoding,
        state.changes_while_a_file_is_encoded,
        60,
    ),
    Mutation(
        "M70",
        "what changes while a table is encoded is not saved the next time",
        state_twins.tables_saved_when_they_are_encoded,
        state.changes_while_a_file_is_encoded,
        60,
    ),
    Mutation(
        "M71",
        "a member that lost its disk again ends its recovery by what was committed before",
        twins.recovery_of_any_life,
        disks.disk_lost_again_while_its_member_recovers,
        60,
    ),
    Mutation(
        "M72",
        "offsets of a group with a live client expire",
        state_twins.expiry_that_overlooks_clients,
        expiry.offsets_of_a_client_that_says_nothing,
        60,
    ),
    Mutation(
        "M73",
        "a commit does not count as a use of offsets",
        state_twins.expiry_that_overlooks_commits,
        expiry.offsets_of_a_group_that_commits,
        60,
    ),
    Mutation(
        "M74",
        "a leader counts idle time from its former leadership",
        state_twins.expiry_by_former_times,
        expiry.offsets_used_while_another_member_led,
        60,
        {**TAILS, "fault_weights": (("cut", 5.0), ("kill", 1.0))},
    ),
    Mutation(
        "M75",
        "a topic that is removed stays",
        state_twins.removals_that_are_forgotten,
        state.topic_that_is_removed,
        20,
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
