"""Planted mistakes with snapshots of the state and with files; part of planted_mistakes.py."""

from tests.simulation import broken_snapshot_twins as twins
from tests.simulation.mistake_plans import FULL_DISKS, POWER, WIDE
from tests.simulation.mutation import Mutation
from tests.simulation.scripts import snapshots

SNAPSHOT_MUTATIONS = (
    Mutation(
        "M91",
        "later parts of a snapshot's entry replace the earlier ones",
        twins.later_parts_replace_the_earlier,
        snapshots.entry_in_several_parts,
        60,
        WIDE,
    ),
    Mutation(
        "M92",
        "a snapshot has no delivery cursors",
        twins.snapshot_without_cursors,
        snapshots.cursors_that_only_a_snapshot_tells,
        20,
    ),
    Mutation(
        "M93",
        "disk steps that found no room are begun twice",
        twins.steps_without_room_begun_twice,
        snapshots.flush_on_a_full_disk,
        60,
        FULL_DISKS,
    ),
    Mutation(
        "M94",
        "a small file is renamed before it is synced",
        twins.replaced_before_the_sync,
        snapshots.power_cut_inside_a_replacement,
        60,
        POWER,
    ),
    Mutation(
        "M95",
        "the directory of a replaced file is not synced",
        twins.replaced_without_a_sync_of_the_name,
        snapshots.power_cut_right_after_a_vote,
        60,
        POWER,
    ),
    Mutation(
        "M96",
        "the first part of a snapshot's entry replaces the entry",
        twins.first_part_replaces_the_entry,
        snapshots.entry_whose_last_parts_are_lost,
        60,
        {**WIDE, "fault_every_ms": 300.0},
    ),
)
