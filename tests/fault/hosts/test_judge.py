"""What the harness must see: links, the judgment and the table, without a host."""

from __future__ import annotations

import random

import pytest

from tests.fault.hosts.faults import NAMES, chosen
from tests.fault.hosts.judge import Verdict, judge
from tests.fault.hosts.links import DEAD, WHOLE, Way, decode_ways, draw_delay, encode_ways
from tests.fault.hosts.notes import Note
from tests.fault.hosts.observer import Place
from tests.fault.hosts.producer import STREAMS, body_of, number_of
from tests.fault.hosts.report import exceeded, spread, table
from tests.fault.hosts.trial import Outcome

# Four without an ordering key, then two with one, and how many each stream sent.
KEYED = 2
NUMBERS = [0, STREAMS, 2 * STREAMS, 3 * STREAMS, KEYED, STREAMS + KEYED]
PLACES = [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (0, 3)]
ACKS = [
    Note(number, queue, offset, 0.0)
    for number, (queue, offset) in zip(NUMBERS, PLACES, strict=True)
]
SENT = [4, 0, 2, *[0] * (STREAMS - 3)]
SEEN = {(ack.queue, ack.offset): ack.number for ack in ACKS}
GOOD_TERMS = {1: {"n0"}, 2: {"n1"}}
NODES = ("n0", "n1", "n2")


def bodies() -> dict[Place, bytes]:
    """What a broker holds that holds everything."""
    return {place: body_of(number) for place, number in SEEN.items()}


def complaints_when(
    brokers: dict[str, dict[Place, bytes]], terms: dict[int, set[str]] = GOOD_TERMS
) -> str:
    """All complaints in one text."""
    return "\n".join(judge(ACKS, ACKS, SENT, SEEN, brokers, terms).complaints)


def test_a_body_tells_its_number() -> None:
    assert [number_of(body_of(number)) for number in range(3_000)] == list(range(3_000))
    assert len({body_of(number) for number in range(3_000)}) == 3_000


def test_what_is_whole_is_not_complained_about() -> None:
    assert complaints_when({node: bodies() for node in NODES}) == ""


def test_a_lost_message_is_seen() -> None:
    short = bodies()
    del short[0, 3]
    text = complaints_when({"n0": bodies(), "n1": short, "n2": bodies()})
    assert "n1: of 6 messages that were acknowledged, 1 are lost and 0 are others" in text
    assert "n1: of 6 messages that were seen, 1 are lost" in text
    assert "n1 and n0 differ at 1 places" in text


def test_a_message_that_all_have_lost_is_seen() -> None:
    short = bodies()
    del short[0, 0]
    text = complaints_when(dict.fromkeys(NODES, short))
    assert text.count("that were acknowledged, 1 are lost") == 3


def test_another_message_at_a_place_is_seen() -> None:
    wrong = bodies() | {(0, 1): body_of(0)}
    text = complaints_when({"n0": bodies(), "n1": wrong, "n2": wrong})
    assert "n2: of 6 messages that were acknowledged, 0 are lost and 1 are others" in text


def test_a_message_that_nobody_sent_is_seen() -> None:
    more = bodies() | {(0, 4): body_of(4 * STREAMS)}
    text = complaints_when(dict.fromkeys(NODES, more))
    assert text.count("holds messages that were never sent") == 3


def test_two_acknowledgements_of_one_place_are_seen() -> None:
    acks = [*ACKS, Note(KEYED, 0, 0, 9.0)]
    found = judge(acks, ACKS, SENT, SEEN, {"n0": bodies()}, GOOD_TERMS)
    assert "two messages were acknowledged at one place" in found.complaints


def test_messages_of_a_key_in_another_order_are_seen() -> None:
    first, second = ACKS[4:]
    acks = [*ACKS[:4], first._replace(offset=3), second._replace(offset=2)]
    seen = {(ack.queue, ack.offset): ack.number for ack in acks}
    found = judge(acks, acks, SENT, seen, {}, GOOD_TERMS)
    assert found.complaints == [
        f"key k{KEYED}: message {second.number} at 0:2 was sent after {first.number} at 0:3"
    ]


def test_two_leaders_of_a_term_are_seen() -> None:
    text = complaints_when({"n0": bodies()}, {1: {"n0"}, 2: {"n1", "n2"}})
    assert text == "term 2 had the leaders n1, n2"


def test_copies_are_counted_and_no_fault() -> None:
    more = bodies() | {(0, 4): body_of(0)}
    found = judge(ACKS, ACKS, SENT, SEEN, dict.fromkeys(NODES, more), GOOD_TERMS)
    assert found == Verdict([], unknown_count=1, copies_count=1, again_count=0)


def test_what_the_consumer_was_not_given_is_seen() -> None:
    wrong = [*ACKS[1:], Note(3 * STREAMS, 0, 1, 9.0), ACKS[5]]
    found = judge(ACKS, wrong, SENT, SEEN, {"n0": bodies()}, GOOD_TERMS)
    assert found.complaints == [
        "the consumer was given two messages of 0:1",
        "the consumer: of 6 messages that were acknowledged, 1 are lost and 0 are others"
        " (queue:offset 0:0)",
    ]
    assert found.again_count == 2


def test_ways_drop_delay_and_overtake() -> None:
    rng = random.Random(1)
    assert {draw_delay(WHOLE, rng) for _ in range(100)} == {0.0}
    assert {draw_delay(DEAD, rng) for _ in range(100)} == {None}
    assert {draw_delay(Way(delay_s=0.05), rng) for _ in range(100)} == {0.05}
    lost = sum(draw_delay(Way(loss=0.05), rng) is None for _ in range(10_000))
    assert 400 < lost < 600
    late = [draw_delay(Way(late_share=0.1, late_s=0.02), rng) for _ in range(10_000)]
    assert 900 < sum(delay != 0.0 for delay in late) < 1_100
    assert max(delay or 0.0 for delay in late) < 0.02
    ways = {("10.99.0.2", "10.99.0.3"): Way(0.1, 0.2, 0.3, 0.4)}
    assert decode_ways(encode_ways(ways)) == ways


def outcome(name: str, **changes: float | None) -> Outcome:
    """A fault that took no time."""
    found = Outcome(name, name, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0, 0.0)
    return found._replace(**changes)  # type: ignore[arg-type]


def test_the_table_tells_medians_and_ranges() -> None:
    assert [spread([]), spread([None]), spread([1.0, None])] == ["-", "-", "1.0"]
    assert spread([5.0, 1.0, 2.0]) == "2.0 (1.0 to 5.0)"
    rows = table([outcome("a", gap_s=1.0), outcome("b"), outcome("a", gap_s=3.0)])
    assert len(rows) == 3 and rows[1].startswith("a      2      2.0 (1.0 to 3.0)")


def test_limits_are_minded() -> None:
    slow = [outcome("blackout", first_s=first_s) for first_s in (2.0, 9.0, 1.0)]
    assert exceeded([*slow, outcome("loss", healed_s=99.0), outcome("leader-cut")]) == []
    assert len(exceeded([*slow, outcome("blackout", first_s=None)])) == 1
    assert len(exceeded([outcome("leader-cut-again", replaced_s=4.1)])) == 1
    assert len(exceeded([outcome("leader-cut", replaced_s=None)])) == 1
    assert exceeded([outcome("loss", healed_s=None)]) == ["loss: healed by a restart by hand only"]


def test_faults_are_chosen_by_name() -> None:
    assert sum(map(len, chosen("all"))) == len(NAMES) == len(set(NAMES))
    # What belongs together stays so.
    pair = [[fault.name for fault in faults] for faults in chosen("leader-cut-again,loss,blackout")]
    assert pair == [["blackout", "leader-cut-again"], ["loss"]]
    with pytest.raises(ValueError, match="no fault is named storm"):
        chosen("loss,storm")
