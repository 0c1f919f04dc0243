"""Planted mistakes with member lists, bounds and damage; part of planted_mistakes.py."""

from tests.simulation import broken_membership_twins as twins
from tests.simulation.mistake_plans import LISTS, STATE_FILES, UNREADABLE
from tests.simulation.mutation import Mutation
from tests.simulation.scripts import disks, memberships, snapshots

MEMBERSHIP_MUTATIONS = (
    Mutation(
        "M97",
        "a member starts with another list",
        twins.any_list_runs,
        memberships.start_with_another_list,
        20,
        LISTS,
    ),
    Mutation(
        "M98",
        "HELLO does not compare lists",
        twins.lists_ignored_in_hello,
        memberships.connection_of_another_list,
    ),
    Mutation(
        "M99",
        "votes of another list count",
        twins.lists_ignored_in_votes,
        memberships.votes_of_another_list,
    ),
    Mutation(
        "M100",
        "heart beats of another list count",
        twins.lists_ignored_in_heart_beats,
        memberships.heart_beats_of_another_list,
    ),
    Mutation(
        "M106",
        "an inbox has no bound",
        twins.inbox_without_bound,
        memberships.follower_whose_disk_hangs,
    ),
    Mutation(
        "M107",
        "a file that cannot be read counts as missing",
        twins.failing_reads_are_missing_files,
        disks.mark_of_a_damaged_member_that_cannot_be_read,
        60,
        UNREADABLE,
    ),
    Mutation(
        "M108",
        "a state file that is older than the checkpoint is believed",
        twins.older_files_believed,
        snapshots.older_copy_of_a_state_file,
        60,
        STATE_FILES,
    ),
)
