"""SQL92 filters: what Apache's filter module answers, limits, and where an error stands."""

import json
from pathlib import Path

import pytest

from ledgermq.broker.pulls.matching_reads import read_matching
from ledgermq.broker.selectors.filters import Subscription, subscription_of
from ledgermq.broker.selectors.sql_filter import CompiledExpressions, compile_node, compile_sql
from ledgermq.broker.selectors.sql_nodes import And, Literal, Node, Not, Property, is_higher
from ledgermq.broker.selectors.sql_syntax import (
    DEPTH_MAX,
    EXPRESSION_BYTES_MAX,
    parse_sql,
)
from ledgermq.broker.selectors.sql_tokens import SqlSyntaxError
from ledgermq.broker.selectors.sql_values import SqlValueError
from ledgermq.commitlog import GetMessageResult, GetMessageStatus
from ledgermq.protocol.properties import format_properties
from ledgermq.protocol.record import encode_record
from ledgermq.state.errors import InvalidRequestError, SubscriptionParseError

# One line a case: outcome, expression, properties; recorded by running the filter module of 4.9.3.
# T, F, N: true, false, null. E: the evaluation fails. P: the expression does not parse.
OUTCOMES = Path(__file__).with_name("sql_outcomes.jsonl")


@pytest.mark.timeout(20)
def test_property_of_digits_is_no_number_at_once() -> None:
    """Each way to part them was tried: forty seconds, of all."""
    for text in ("1" * 32_000 + "x", "1" * 999 + "x", "." + "1" * 900 + "e"):
        assert outcome("a > 1.5", {"a": text}) == "E"


def outcome(expression: str, properties: dict[str, str]) -> str:
    try:
        evaluate = compile_node(parse_sql(expression))
    except SubscriptionParseError:
        return "P"
    try:
        value = evaluate(properties)
    except SqlValueError:
        return "E"
    return {True: "T", False: "F", None: "N"}[value]  # type: ignore[index]


def test_outcomes_are_those_of_apaches_filter_module() -> None:
    cases = [json.loads(line) for line in OUTCOMES.read_text().splitlines()]
    assert {case[0] for case in cases} == set("TFNEP") and len(cases) > 900
    wrong = [case for case in cases if outcome(case[1], case[2]) != case[0]]
    assert not wrong


@pytest.mark.parametrize("value", ["N", "F", "E"])
def test_only_true_matches(value: str) -> None:
    expression = {"N": "zz > 1", "F": "a > 99", "E": "s > 1"}[value]
    properties = {"a": "10", "s": "abc"}
    assert outcome(expression, properties) == value
    assert not compile_sql(expression)(properties)
    assert compile_sql("a > 1")(properties)


@pytest.mark.parametrize(
    ("expression", "position"),
    [
        ("a != 1", 2),
        ("a > ", 4),
        ("", 0),
        ("a >= '9'", 2),
        ("(a = 1", 6),
        ("b = 1 AND 5", 10),
        ("(((5)) AND TRUE)", 1),
        ("((a) = 1 AND 5)", 13),
        ("NOT NOT 5", 8),
        ("(- -5 OR a)", 1),
    ],
)
def test_error_names_the_position(expression: str, position: int) -> None:
    with pytest.raises(SqlSyntaxError) as raised:
        compile_sql(expression)
    assert raised.value.position == position
    where = f"character {position + 1}," if position < len(expression) else "at its end"
    assert where in str(raised.value)


@pytest.mark.parametrize(
    ("expression", "properties", "expected"),
    [
        ("a = 1 -- c\n AND b = --2", {"a": "1", "b": "2"}, "T"),
        ("a = '--\n' AND b = --2", {"a": "--\n", "b": "2"}, "T"),
        ("a = 1 -- c\r-- d\n", {"a": "1"}, "T"),
        ("a = 1 -- c", {"a": "1"}, "T"),
        ("a = -- c\n\n - - 1", {"a": "1"}, "T"),
        ("a = 1 AND -- b", {"a": "1"}, "P"),
        ("a = 1 /* c -- \n */ AND b = 2", {"a": "1", "b": "3"}, "F"),
        ("a = 1 /* c", {"a": "1"}, "P"),
        ("a = 1 b = 2 ?", {"a": "1"}, "T"),
        ("a = 1 ? b = 2", {"a": "1"}, "P"),
    ],
)
def test_comment_ends_with_its_line_and_two_signs_have_none(
    expression: str, properties: dict[str, str], expected: str
) -> None:
    assert outcome(expression, properties) == expected


@pytest.mark.parametrize(
    ("expression", "position"),
    [("a = 1 -- c\n ! b", 12), ("x = --\n'y", 7), ("a = 1 OR -- -- b", 9), ("a = 1 OR  ", 10)],
)
def test_positions_count_comments(expression: str, position: int) -> None:
    with pytest.raises(SqlSyntaxError) as raised:
        compile_sql(expression)
    assert raised.value.position == position


def test_length_is_limited() -> None:
    text = "a = '" + "x" * (EXPRESSION_BYTES_MAX - 6) + "'"
    assert compile_sql(text)({"a": text[5:-1]})
    with pytest.raises(SubscriptionParseError, match=f"{EXPRESSION_BYTES_MAX + 1} bytes"):
        compile_sql(text + " ")


def test_depth_is_limited() -> None:
    allowed = DEPTH_MAX - 1
    assert compile_sql("(" * allowed + "a = 1" + ")" * allowed)({"a": "1"})
    for deep in (
        "(" * (DEPTH_MAX + 1) + "a = 1" + ")" * (DEPTH_MAX + 1),
        "NOT " * (DEPTH_MAX + 1) + "(a = 1)",
        "- " * (DEPTH_MAX + 1) + "1 = a",
        "a" + " = a" * (DEPTH_MAX + 1),
    ):
        with pytest.raises(SqlSyntaxError, match=f"deeper than {DEPTH_MAX}"):
            compile_sql(deep)


def test_chains_inside_of_chains_are_limited_too() -> None:
    text = "a"
    for _ in range(5):
        text = f"({text}" + " = a" * (DEPTH_MAX // 2) + ")"
    with pytest.raises(SqlSyntaxError, match=f"deeper than {2 * DEPTH_MAX}"):
        compile_sql(text)


def test_comparisons_are_limited_but_for_those_that_are_joined() -> None:
    chain = "a" + " = a" * 60
    assert compile_sql("(" + ") OR (".join([chain] * 10) + ")")({"a": "1"}) is False
    with pytest.raises(SqlSyntaxError, match="more than 600 comparisons") as raised:
        compile_sql(" OR ".join([chain] * 11))
    # The sign of the first one too many.
    assert raised.value.position == 10 * (len(chain) + 4) + 2
    joined = "a=1" + " OR a=1" * 584
    assert len(joined) > EXPRESSION_BYTES_MAX - 7 and compile_sql(joined)({"a": "1"})


def test_height_of_a_tree_is_the_number_of_its_levels() -> None:
    root: Node = Property("a")
    for levels in range(1, 10):
        assert not is_higher(root, levels) and is_higher(root, levels - 1)
        root = And((Literal(value=True), root)) if levels % 2 else Not(root)


def test_wide_expression_is_no_deep_one() -> None:
    text = " OR ".join(f"a = {number}" for number in range(300))
    assert compile_sql(text)({"a": "299"}) and not compile_sql(text)({"a": "300"})


# Subscriptions.


def test_subscription_by_sql_needs_the_switch() -> None:
    with pytest.raises(InvalidRequestError, match="enablePropertyFilter is false"):
        subscription_of("T", "a > 1", "SQL92", 1)
    subscription = subscription_of("T", "a > 1", "SQL92", 1, is_sql_on=True)
    matches = subscription.find_property_matcher()
    assert subscription.matcher is None and matches is not None and matches({"a": "2"})
    with pytest.raises(SubscriptionParseError):
        subscription_of("T", "a >", "SQL92", 1, is_sql_on=True)
    with pytest.raises(InvalidRequestError, match="LUA"):
        subscription_of("T", "a", "LUA", 1, is_sql_on=True)


def test_wrong_expression_of_a_heart_beat_has_no_matcher() -> None:
    assert Subscription("T", "a >", "SQL92", 1).find_property_matcher() is None
    assert Subscription("T", "TagA", "TAG", 1).find_property_matcher() is None
    assert Subscription("T", "a > 1", "SQL92", 1).find_property_matcher() is not None


# Reads.


class Queue:
    """Messages with the property n = their offset; every read returns at most `run` of them."""

    def __init__(self, count: int, run: int = 32) -> None:
        host = (b"\x7f\x00\x00\x01", 10911)
        self.records = [
            encode_record(
                b"T", 0, 0, n, 0, 0, 0, host, 0, host, 0, 0, b"body",
                format_properties({"n": str(n)}).encode(),
            )
            for n in range(count)
        ]  # fmt: skip
        self.run = run
        self.reads = 0

    def read(self, offset: int, count: int) -> GetMessageResult[bytes]:
        self.reads += 1
        end = len(self.records)
        parts = self.records[offset : offset + min(count, self.run)]
        status = GetMessageStatus.FOUND if parts else GetMessageStatus.OFFSET_OVERFLOW_ONE
        size = sum(map(len, parts))
        return GetMessageResult(status, offset + len(parts), 0, end, parts, len(parts), size, 0)


def test_read_collects_over_several_runs_and_stops_behind_the_last_wanted() -> None:
    queue = Queue(100)
    result = read_matching(queue.read, 0, 2, compile_sql("n = 40 OR n = 70 OR n = 71"))
    assert result.status is GetMessageStatus.FOUND
    assert result.parts == [queue.records[40], queue.records[70]]
    assert result.next_begin_offset == 71
    assert result.bytes == sum(map(len, result.parts))


def test_read_without_a_wanted_message_passes_what_it_looked_at() -> None:
    result = read_matching(Queue(100).read, 10, 32, compile_sql("n < 0"))
    assert result.status is GetMessageStatus.NO_MATCHED_MESSAGE
    assert (result.next_begin_offset, result.max_offset) == (100, 100)


def test_read_of_nothing_says_why() -> None:
    result = read_matching(Queue(5).read, 5, 32, compile_sql("n < 0"))
    assert result.status is GetMessageStatus.OFFSET_OVERFLOW_ONE


def test_read_stops_within_a_run_when_its_time_is_over_and_passes_what_it_looked_at() -> None:
    queue, looks = Queue(100), iter(range(100))
    result = read_matching(queue.read, 3, 32, compile_sql("n = 90"), lambda: next(looks) < 6)
    assert result.status is GetMessageStatus.NO_MATCHED_MESSAGE
    assert result.next_begin_offset == 10
    looks = iter(range(100))
    result = read_matching(queue.read, 3, 32, compile_sql("n > 4"), lambda: next(looks) < 3)
    assert result.parts == queue.records[5:7] and result.next_begin_offset == 7
    # One at least.
    result = read_matching(queue.read, 3, 32, compile_sql("n = 90"), lambda: False)
    assert result.next_begin_offset == 4


def test_read_looks_at_a_bounded_number() -> None:
    queue = Queue(5000)
    result = read_matching(queue.read, 0, 32, compile_sql("n = 4999"))
    assert result.status is GetMessageStatus.NO_MATCHED_MESSAGE
    assert result.next_begin_offset == 800 and queue.reads == 25


def test_compiled_expressions_are_kept_up_to_so_many_characters() -> None:
    """A thousand long conditions, each compiled once, took a hundred megabytes for good."""
    expressions = CompiledExpressions(chars_max=1000)
    first = expressions.find("a = 1")
    for number in range(100):
        expressions.find(f"b{number:03} = '{'1' * 91}'")
        # Asked for again and again, it stays.
        assert expressions.find("a = 1") is first
        assert expressions.char_count <= 1000
    assert 5 <= len(expressions) <= 10
    again = expressions.find(f"b099 = '{'1' * 91}'")
    assert expressions.find(f"b099 = '{'1' * 91}'") is again
