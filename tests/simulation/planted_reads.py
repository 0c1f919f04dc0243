"""Planted mistakes of members that answer from what they know; part of planted_mistakes.py."""

from tests.simulation import broken_read_twins as twins
from tests.simulation.mistake_plans import DEPOSED
from tests.simulation.mutation import Mutation
from tests.simulation.scripts import reads

READ_MUTATIONS = (
    Mutation(
        "M76",
        "a leader answers without asking whether it leads",
        twins.answers_without_confirmation,
        reads.offset_asked_of_a_deposed_leader,
        60,
        DEPOSED,
    ),
    Mutation(
        "M77",
        "a round that began before a question confirms",
        twins.rounds_that_began_before_the_question,
        reads.answers_to_an_earlier_round,
        60,
        DEPOSED,
    ),
    Mutation(
        "M78",
        "rounds of an earlier term confirm",
        twins.rounds_of_an_earlier_term,
        reads.answers_to_rounds_of_an_earlier_term,
        60,
        DEPOSED,
    ),
    Mutation(
        "M79",
        "a lock is renewed without asking the others",
        twins.locks_renewed_without_confirmation,
        reads.lock_asked_of_a_deposed_leader,
        60,
        DEPOSED,
    ),
    Mutation(
        "M85",
        "a follower answers at once",
        twins.follower_answers_at_once,
        reads.offset_asked_of_a_follower_that_is_behind,
    ),
    Mutation(
        "M86",
        "a follower answers before it has applied what its leader told",
        twins.follower_answers_before_it_has_applied,
        reads.offset_asked_of_a_follower_that_is_behind,
    ),
    Mutation(
        "M87",
        "a question on its way serves those that came later",
        twins.questions_on_their_way_serve_later_ones,
        reads.offset_asked_while_another_question_is_on_its_way,
    ),
    Mutation(
        "M88",
        "a leader tells followers without asking whether it leads",
        twins.followers_told_without_confirmation,
        reads.offset_asked_of_a_follower_of_a_deposed_leader,
    ),
)
