"""Planted mistakes with removals and unreadable records; part of planted_mistakes.py."""

from tests.simulation import broken_removal_twins as twins
from tests.simulation.mutation import Mutation
from tests.simulation.scripts import removals

REMOVAL_MUTATIONS = (
    Mutation(
        "M110",
        "offsets of a removed topic are there until they are dropped",
        twins.removals_that_hide_nothing,
        removals.topic_that_comes_back_while_its_offsets_are_dropped,
        20,
    ),
    Mutation(
        "M111",
        "offsets of a topic that came back go with the former ones",
        twins.removals_that_take_later_pairs,
        removals.topic_that_comes_back_while_its_offsets_are_dropped,
        20,
    ),
    Mutation(
        "M112",
        "a second removal of a topic hides nothing more",
        twins.second_removal_that_counts_as_the_first,
        removals.topic_that_comes_back_while_its_offsets_are_dropped,
        20,
    ),
    Mutation(
        "M113",
        "content of a record ends the members",
        twins.content_that_ends_members,
        removals.record_that_cannot_be_read,
        20,
    ),
)
