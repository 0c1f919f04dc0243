"""Bindings: which shared queues get what is published."""

import pytest

from ledgermq.celery.bindings import Binding, Bindings, binding_item, mail_item, queue_item


@pytest.mark.parametrize(
    ("pattern", "key", "is_wanted"),
    [
        ("a.b", "a.b", True),
        ("a.b", "a.c", False),
        ("a.*", "a.b", True),
        ("a.*", "a.b.c", False),
        ("a.*", "a", False),
        ("*.b", "a.b", True),
        ("#", "a.b.c", True),
        ("#", "", True),
        ("a.#", "a", True),
        ("a.#", "a.b.c", True),
        ("a.#", "ab.c", False),
        ("#.c", "c", True),
        ("#.c", "a.b.c", True),
        ("a.#.c", "a.c", True),
        ("a.#.c", "a.b.b.c", True),
        ("a.#.c", "a.b.b", False),
        ("a+", "aa", False),
    ],
)
def test_topic_patterns(pattern: str, key: str, is_wanted: bool) -> None:
    assert Binding("e", "topic", pattern).wants("e", key) is is_wanted


def test_kinds_of_exchanges() -> None:
    assert Binding("e", "direct", "k").wants("e", "k")
    assert not Binding("e", "direct", "k").wants("e", "other")
    assert Binding("e", "fanout", "k").wants("e", "other")
    assert not Binding("e", "fanout", "k").wants("other", "k")


def test_the_table_says_who_gets_a_message() -> None:
    items = dict(
        [
            queue_item("q1"),
            queue_item("alone"),
            binding_item("q1", Binding("e", "topic", "a.#")),
            binding_item("q1", Binding("e", "topic", "#.b")),
            binding_item("q2", Binding("e", "topic", "a.b")),
            mail_item("events", "topic"),
            ("broken", "{"),
            ("strange", '{"queue": "x", "exchange": "y"}'),
        ]
    )
    table = Bindings(items)
    assert table.queues == {"q1", "alone"}
    assert table.queues_for("e", "a.b") == ["q1", "q2"]
    assert table.queues_for("e", "c") == []
    assert table.queues_for("events", "a.b") == []
    assert table.mailed == {"events": "topic"}
    assert [table.kind_of(name) for name in ("e", "events", "none")] == ["topic", "topic", None]
    assert [binding.routing_key for binding in table.bindings_of("q1")] == ["a.#", "#.b"]


def test_an_item_replaces_only_its_like() -> None:
    items = [
        queue_item("q"),
        queue_item("r"),
        binding_item("q", Binding("e", "direct", "k")),
        binding_item("q", Binding("e", "direct", "l")),
        binding_item("q", Binding("f", "direct", "k")),
        mail_item("e", "direct"),
    ]
    assert len(dict(items)) == len(items)
    assert queue_item("q") == queue_item("q")
