"""Attributes of topics: how a change is written, what is refused, what is kept."""

import pytest

from ledgermq.state.errors import InvalidParameterError, InvalidRequestError
from ledgermq.state.topic_attributes import (
    CHANGE_CHARS_MAX,
    change_attributes,
    kept_attributes,
)


def change(current: dict[str, str], text: str, *, is_new: bool = False) -> dict[str, str]:
    return change_attributes(current, text, is_new=is_new, allows_mixed=False)


def test_new_topic_gets_what_is_added() -> None:
    assert change({}, "", is_new=True) == {}
    both = change({}, "+message.type=FIFO,+queue.type=SimpleCQ", is_new=True)
    assert both == {"message.type": "FIFO", "queue.type": "SimpleCQ"}


def test_change_leaves_what_it_does_not_name() -> None:
    known = {"message.type": "FIFO", "of.later": "x"}
    assert change(known, "") == known
    assert change(known, "+message.type=DELAY") == {"message.type": "DELAY", "of.later": "x"}
    assert change(known, "-message.type") == {"of.later": "x"}
    assert change({}, "+message.type=NORMAL") == {"message.type": "NORMAL"}
    assert known == {"message.type": "FIFO", "of.later": "x"}


@pytest.mark.parametrize(
    ("text", "is_new", "reason"),
    [
        ("message.type=FIFO", True, "kv string format wrong"),
        ("+", True, "kv string format wrong"),
        ("+message.type=FIFO,", True, "kv string format wrong"),
        ("++message.type=FIFO", True, "kv string format wrong"),
        ("+message.type", True, "add/alter attribute format is wrong"),
        ("+message.type=", True, "add/alter attribute format is wrong"),
        ("-message.type=FIFO", False, "delete attribute format is wrong"),
        ("+message.type=FIFO,-message.type", False, "key duplication: message.type"),
        ("-message.type", True, "only add attribute is supported while creating topic"),
        ("-message.type", False, "attempt to delete a nonexistent key: message.type"),
        ("+color=red", True, "unsupported key: color; known are .*message.type"),
        ("+message.type=fifo", True, "'fifo', value is not in set: .*FIFO"),
        ("+queue.type=SimpleCQ", False, "unchangeable attribute. key: queue.type"),
        ("+queue.type=BatchCQ", True, "no batch consume queues"),
        ("+cleanup.policy=COMPACTION", True, "no compaction"),
        ("+reserve.time=5", True, "reserveTime not supported"),
        ("+" + "x" * CHANGE_CHARS_MAX, True, f"allowed are {CHANGE_CHARS_MAX}"),
    ],
)
def test_change_is_refused_with_its_reason(text: str, is_new: bool, reason: str) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        change({}, text, is_new=is_new)


def test_mixed_type_needs_its_key() -> None:
    with pytest.raises(InvalidParameterError, match="enableMixedMessageType"):
        change({}, "+message.type=MIXED", is_new=True)
    allowed = change_attributes({}, "+message.type=MIXED", is_new=True, allows_mixed=True)
    assert allowed == {"message.type": "MIXED"}


def test_what_others_tell_is_kept_within_bounds() -> None:
    assert kept_attributes({"of.later": "x", "n": 5, "long": "x" * 300}) == {"of.later": "x"}
    assert len(kept_attributes({f"a{n}": "x" for n in range(100)})) == 32
    for nothing in (None, [], "x", 5):
        assert kept_attributes(nothing) == {}
