"""Planted mistakes with rules of access control and deliveries; part of planted_mistakes.py."""

from tests.simulation import broken_rules_twins as twins
from tests.simulation.mistake_plans import TAILS
from tests.simulation.mutation import Mutation
from tests.simulation.scripts import rules

RULES_MUTATIONS = (
    Mutation(
        "M80",
        "a leader goes by changed rules before they are committed",
        twins.rules_in_force_when_proposed,
        rules.rules_over_a_change_of_leader,
        20,
    ),
    Mutation(
        "M81",
        "a sweep leaves the rules out",
        twins.sweeps_without_rules,
        rules.rules_that_only_a_sweep_tells,
        20,
    ),
    Mutation(
        "M82",
        "what a sweep tells of the rules is passed over",
        twins.rules_of_sweeps_passed_over,
        rules.rules_that_only_a_sweep_tells,
        60,
    ),
    Mutation(
        "M83",
        "plans of deliveries are not followed",
        twins.plans_that_do_not_count,
        rules.deliveries_over_changes_of_leader,
        20,
    ),
    Mutation(
        "M84",
        "a leader goes on by what it planned when it led before",
        twins.deliveries_by_former_cursors,
        rules.deliveries_over_changes_of_leader,
        60,
        TAILS,
    ),
)
