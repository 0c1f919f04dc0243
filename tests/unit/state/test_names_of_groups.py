"""A group has its own topics once; names that would give those topics groups are refused."""

import pytest

from ledgermq.state import names
from ledgermq.state.errors import InvalidRequestError

GOOD = ("readers", "%LMQ%readers", "a%RETRY%b", "RETRY")
ODD = ("%RETRY%readers", "%RETRY%", "%DLQ%readers", "%RETRY%%RETRY%readers", "%DLQ%%RETRY%x")


@pytest.mark.parametrize("group", GOOD)
def test_group_and_its_topics_have_names(group: str) -> None:
    names.check_group_name(group)
    names.check_topic_name(f"%RETRY%{group}")
    names.check_topic_name(f"%DLQ%{group}")


@pytest.mark.parametrize("group", ODD)
def test_topic_of_a_group_is_no_group(group: str) -> None:
    for check, name in (
        (names.check_group_name, group),
        (names.check_topic_name, f"%RETRY%{group}"),
        (names.check_topic_name, f"%DLQ%{group}"),
    ):
        with pytest.raises(InvalidRequestError, match="stand before the name of a group, once"):
            check(name)
