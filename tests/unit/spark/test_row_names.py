"""The ids of rows: of content and count, so that no id ever stands for two contents."""

from __future__ import annotations

import random
import tracemalloc
from collections import Counter

from ledgermq.client import Message
from ledgermq.spark.message_rows import COUNTED_MAX, RowNames

ROWS = [(f"body {number // 3}", "a" if number % 2 else "") for number in range(60)]


def ids_of(rows: list[tuple[str, str]], counted_max: int = COUNTED_MAX) -> dict[str, str]:
    """Returns the body of each id, in the order in which the task got its rows."""
    names = RowNames("write-0", counted_max)
    found = {}
    for position, (body, tags) in enumerate(rows):
        row_id = names.name(Message("T", body.encode(), tags=tags), None, position)
        assert row_id not in found, "no two rows of a task share an id"
        found[row_id] = body + tags
    return found


def test_a_task_that_gets_its_rows_in_another_order_gives_the_same_ids() -> None:
    first = ids_of(ROWS)
    for seed in range(20):
        shuffled = ROWS.copy()
        random.Random(seed).shuffle(shuffled)
        assert ids_of(shuffled) == first


def test_nothing_is_lost_by_dropping_repeats_even_past_what_is_counted() -> None:
    """A try that ended early, and another in another order: what is kept holds every row."""
    for seed in range(50):
        draw = random.Random(seed)
        counted_max = draw.randrange(60)
        early, whole = ROWS.copy(), ROWS.copy()
        draw.shuffle(early)
        draw.shuffle(whole)
        kept = ids_of(early[: draw.randrange(60)], counted_max)
        for row_id, content in ids_of(whole, counted_max).items():
            assert kept.setdefault(row_id, content) == content, "one id, one content"
        assert not Counter(body + tags for body, tags in ROWS) - Counter(kept.values())


def test_every_part_of_a_row_counts_and_parts_do_not_run_into_each_other() -> None:
    names = RowNames("write-0")
    messages = [
        (Message("T", b"ab", keys="c"), None),
        (Message("T", b"a", keys="bc"), None),
        (Message("T", b"ab", tags="c"), None),
        (Message("T", b"ab"), "c"),
        (Message("Tc", b"ab"), None),
        (Message("T", b"ab", properties={"c": "d"}), None),
        (Message("T", b"ab", properties={"cd": ""}), None),
        (Message("T", b"ab", properties={"c": "d", "e": "f"}), None),
    ]
    ids = [names.name(message, key, 0) for message, key in messages]
    assert len(set(ids)) == len(messages)
    assert {row_id.rpartition("-")[2] for row_id in ids} == {"0"}
    again = Message("T", b"ab", properties={"e": "f", "c": "d"})
    assert names.name(again, None, 0) == ids[-1].removesuffix("-0") + "-1"


def test_what_a_task_remembers_is_bounded() -> None:
    names = RowNames("write-0", 1000)
    for number in range(1000):
        names.name(Message("T", b"%d" % number), None, number)
    tracemalloc.start()
    for number in range(1000, 5000):
        names.name(Message("T", b"%d" % number), None, number)
    held_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held_bytes < 20_000
