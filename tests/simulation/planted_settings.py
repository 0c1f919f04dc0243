"""Planted mistakes with flush modes and clocks that differ; part of planted_mistakes.py."""

from tests.simulation import broken_settings_twins as twins
from tests.simulation.mutation import Mutation
from tests.simulation.scripts import clocks, flush_modes

SETTINGS_MUTATIONS = (
    Mutation(
        "M101",
        "a follower in ASYNC_FLUSH answers a leader in SYNC_FLUSH before the sync",
        twins.async_follower_answers_at_once,
        flush_modes.async_followers_of_a_sync_leader,
    ),
    Mutation(
        "M102",
        "a leader counts an answer that is not synced",
        twins.unsynced_answer_counts,
        flush_modes.async_followers_of_a_sync_leader,
    ),
    Mutation(
        "M103",
        "a leader stores with the time of its own clock, whatever the others say",
        twins.own_clock_is_believed,
        clocks.leader_whose_clock_jumps_ahead,
    ),
    Mutation(
        "M104",
        "a leader with a wrong clock goes on taking messages",
        twins.wrong_clock_closes_nothing,
        clocks.leader_with_a_wrong_clock_that_cannot_hand_over,
    ),
    Mutation(
        "M105",
        "store times stay where a wrong clock has brought them",
        twins.store_times_never_go_back,
        clocks.log_that_ends_in_the_future,
    ),
)
