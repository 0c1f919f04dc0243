"""Encoded lists are made once for each version of a table and each account that asks."""

from typing import Any

from ledgermq.broker.encoded_list import EncodedList


class Asking:
    """A connection, with an account that sees the names of one letter."""

    def __init__(self, key: object = None) -> None:
        self.sight: Any = None if key is None else Seeing(key)


class Seeing:
    """Made anew for each request, as the guard does."""

    def __init__(self, key: object) -> None:
        self.key = key


class Table:
    """Counts how often it was written."""

    def __init__(self) -> None:
        self.version = 1
        self.written_count = 0
        self.now_s = 100.0
        self.seconds = 0.0

    def write(self, asker: Any) -> bytes:
        self.written_count += 1
        self.now_s += self.seconds
        shown = "all" if asker.sight is None else str(asker.sight.key)
        return f"{shown} of {self.version}".encode()


def test_a_table_is_written_once_for_each_version() -> None:
    table = Table()
    bodies = EncodedList(table.write, lambda: table.version)
    assert [bodies.body_for(Asking()) for _ in range(1000)] == [b"all of 1"] * 1000
    assert table.written_count == 1
    table.version = 2
    assert bodies.body_for(Asking()) == b"all of 2"
    assert table.written_count == 2


def test_each_account_gets_what_it_may_see() -> None:
    table = Table()
    bodies = EncodedList(table.write, lambda: table.version)
    # Equal texts, but of different rules: an account whose rights were changed is another one.
    alice, alice_later = "".join(["al", "ice"]), "".join(["ali", "ce"])
    assert alice is not alice_later
    for _ in range(3):
        assert bodies.body_for(Asking()) == b"all of 1"
        assert bodies.body_for(Asking(alice)) == b"alice of 1"
        assert bodies.body_for(Asking("bob")) == b"bob of 1"
    assert table.written_count == 3
    bodies.body_for(Asking(alice_later))
    assert table.written_count == 4


def test_bodies_of_many_accounts_are_not_all_kept() -> None:
    table = Table()
    bodies = EncodedList(table.write, lambda: table.version)
    for number in range(1000):
        bodies.body_for(Asking(str(number)))
        assert len(bodies._bodies) <= 8


def test_a_table_in_flux_takes_a_tenth_of_the_time() -> None:
    table = Table()
    table.seconds = 2.0
    bodies = EncodedList(table.write, clock_s=lambda: table.now_s)
    begun_s = table.now_s
    while table.now_s < begun_s + 200:
        bodies.body_for(Asking())
        table.now_s += 0.1
    assert 8 <= table.written_count <= 10
