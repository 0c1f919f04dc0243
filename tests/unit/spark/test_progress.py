"""The lag of a query, from what Spark tells of its progress."""

import json

import pytest

from ledgermq.client import MessageQueue
from ledgermq.spark import lag_of
from ledgermq.spark.offsets import to_document

Q0, Q1, Q2 = (MessageQueue("T", "a", number) for number in range(3))
ENDS = to_document({Q0: 5, Q1: 6})
LATEST = to_document({Q0: 9, Q1: 4, Q2: 3})


@pytest.mark.parametrize("is_text", [True, False])
def test_what_topics_hold_beyond_the_end_is_the_lag(is_text: bool) -> None:
    source = {"startOffset": None, "endOffset": ENDS, "latestOffset": LATEST}
    if is_text:
        source = {name: json.dumps(offset) for name, offset in source.items()}
    assert lag_of({"sources": [source]}) == {Q0: 4, Q1: 0, Q2: 3}


@pytest.mark.parametrize("latest", [None, "null", "17", '{"logOffset": 3}', {"rate": 1}, "x"])
def test_other_sources_and_what_was_not_asked_have_no_lag(latest: object) -> None:
    other = {"endOffset": latest, "latestOffset": latest}
    ours = {"endOffset": json.dumps(ENDS), "latestOffset": json.dumps(ENDS)}
    assert lag_of({"sources": [other, ours]}) == {Q0: 0, Q1: 0}
    assert lag_of({"sources": [other]}) == {} == lag_of({})
