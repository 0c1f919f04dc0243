"""Planted mistakes with files that say what others hold; part of planted_mistakes.py."""

from tests.simulation import broken_mark_twins as twins
from tests.simulation.mutation import Mutation
from tests.simulation.scripts import marks

MARK_MUTATIONS = (
    Mutation(
        "M89",
        "a save of a vote that was cut is not ended",
        twins.cut_saves_of_votes_not_ended,
        marks.vote_whose_save_was_cut_between_its_files,
    ),
    Mutation(
        "M90",
        "a mark stands before its flush is whole",
        twins.mark_before_the_last_file,
        marks.flush_without_room_for_its_last_file,
    ),
)
