"""What of a topic is wanted, as a user says it and as brokers hear it."""

import pytest

from ledgermq.client.errors import ConfigError
from ledgermq.client.subscription import EVERYTHING, expression_of, subscription_of, tags_of


@pytest.mark.parametrize(
    ("expression", "tags"),
    [("*", set()), ("", set()), ("A", {"A"}), (" A || B ||", {"A", "B"})],
)
def test_expression_lists_tags(expression: str, tags: set[str]) -> None:
    assert tags_of(expression) == tags


def test_tags_are_told_with_their_hashes() -> None:
    told = subscription_of("T", expression_of("A || B", None), 7)
    assert (told.topic, told.sub_string, told.expression_type) == ("T", "A || B", "TAG")
    assert (told.tags_set, told.code_set, told.sub_version) == ({"A", "B"}, {65, 66}, 7)


def test_sql_condition_is_told_as_it_is_and_selects_by_no_tag() -> None:
    expression = expression_of("*", "a > 5 || b = 'x'")
    told = subscription_of("T", expression, 7)
    assert (told.sub_string, told.expression_type) == ("a > 5 || b = 'x'", "SQL92")
    assert (expression.tags, told.tags_set, told.code_set) == (set(), set(), set())


def test_tags_and_sql_exclude_each_other() -> None:
    assert expression_of("*", None) == EVERYTHING
    with pytest.raises(ConfigError, match="exclude each other"):
        expression_of("A", "a > 5")
    with pytest.raises(ConfigError, match="empty"):
        expression_of("*", " ")
