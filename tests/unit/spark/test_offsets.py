"""Offsets as documents, and their share of a micro-batch."""

import json
import random

import pytest

from ledgermq.client import MessageQueue
from ledgermq.spark.offsets import backlog, from_document, limited, read_offsets, to_document

Q0, Q1 = MessageQueue("T", "a", 0), MessageQueue("T", "a", 1)
OTHER = MessageQueue("S", "b", 10)


def test_a_document_is_the_same_text_in_any_order() -> None:
    one = to_document({Q0: 5, Q1: 6, OTHER: 0})
    other = to_document({OTHER: 0, Q1: 6, Q0: 5})
    assert json.dumps(one) == json.dumps(other)
    assert one == {"v": 1, "topics": {"S": {"b": {"10": 0}}, "T": {"a": {"0": 5, "1": 6}}}}
    assert from_document(json.loads(json.dumps(one))) == {Q0: 5, Q1: 6, OTHER: 0}


def test_the_version_may_be_left_out() -> None:
    assert from_document({"T": {"a": {"0": 5}}}) == {Q0: 5}
    assert read_offsets('{"T": {"a": {"0": 5}}}') == {Q0: 5}
    assert read_offsets("Earliest") == "earliest"


@pytest.mark.parametrize(
    ("document", "word"),
    [
        ({"v": 2, "topics": {}}, "version 2"),
        ({"T": {"a": {"0": "5"}}}, "'5'"),
        ({"T": {"a": {"0": True}}}, "True"),
        ({"T": {"a": {"0": -1}}}, "-1"),
        ({"T": {"a": {"x": 1}}}, "'x'"),
        ({"T": [1]}, "object is expected"),
        ("latest", "object is expected"),
    ],
)
def test_other_documents_are_refused(document: object, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        from_document(document)


@pytest.mark.parametrize("text", ["", "first", "[", "[" * 100_000])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        read_offsets(text)


def test_a_limit_is_kept_and_used_up() -> None:
    draws = random.Random(1)
    for _ in range(200):
        queues = [MessageQueue("T", "a", i) for i in range(draws.randint(1, 9))]
        start = {queue: draws.randint(0, 100) for queue in queues}
        end = {queue: start[queue] + draws.choice([0, 1, 7, 1000]) for queue in queues}
        count_max = draws.randint(1, 500)
        found = limited(start, end, count_max)
        assert all(start[queue] <= found[queue] <= end[queue] for queue in queues)
        assert backlog(start, found) == min(count_max, backlog(start, end))
