"""RequestTable: opaque numbers, deadlines, and its limit."""

import random

import pytest

from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.connection import RequestTable
from ledgermq.protocol.errors import LocalProtocolError


def answer(opaque: int) -> RemotingCommand:
    return RemotingCommand(code=0, opaque=opaque, flag=1)


def test_answer_finds_its_request_once() -> None:
    table: RequestTable[str] = RequestTable()
    first = table.register(None, 100, "a")
    second = table.register(None, 100, "b")
    assert (first, second) == (0, 1)
    assert table.resolve(answer(second)) == "b"
    assert table.resolve(answer(second)) is None
    assert len(table) == 1


def test_full_table_refuses_and_stays_as_it_was() -> None:
    table: RequestTable[str] = RequestTable(1)
    table.register(None, 100, "a")
    with pytest.raises(LocalProtocolError, match="outstanding requests is 1, allowed: 1"):
        table.register(None, 100, "b")
    assert table.resolve(answer(0)) == "a"
    assert table.register(None, 100, "c") == 1


def test_given_opaque_must_be_free() -> None:
    table: RequestTable[str] = RequestTable()
    table.register(0, 100, "a")
    with pytest.raises(LocalProtocolError, match="opaque"):
        table.register(0, 100, "b")
    assert table.register(None, 100, "c") == 1


def test_requests_expire_in_order_of_their_deadlines() -> None:
    table: RequestTable[str] = RequestTable()
    table.register(None, 300, "late")
    table.register(None, 100, "early")
    table.register(None, 200, "between")
    assert table.deadline_ms() == 100
    assert table.expire(99) == []
    assert table.expire(200) == ["early", "between"]
    assert table.deadline_ms() == 300
    assert table.fail_all() == ["late"]
    assert table.deadline_ms() is None


def test_answered_request_does_not_expire() -> None:
    table: RequestTable[str] = RequestTable()
    table.resolve(answer(table.register(None, 100, "a")))
    assert table.deadline_ms() is None
    assert table.expire(1000) == []


def test_opaque_used_again_keeps_its_own_deadline() -> None:
    table: RequestTable[str] = RequestTable()
    table.register(5, 100, "first")
    table.resolve(answer(5))
    table.register(5, 900, "second")
    assert table.expire(500) == []
    assert table.expire(900) == ["second"]


def test_opaque_wraps_below_zero_never() -> None:
    table: RequestTable[str] = RequestTable()
    table.register(2**31 - 1, 100, "a")
    table._next_opaque = 2**31 - 1
    assert table.register(None, 100, "b") == 0


def test_forgotten_request_is_gone() -> None:
    table: RequestTable[str] = RequestTable()
    table.forget(table.register(None, 100, "a"))
    assert (len(table), table.expire(1000)) == (0, [])


def test_heap_of_deadlines_stays_small_under_answered_load() -> None:
    table: RequestTable[int] = RequestTable()
    for number in range(10_000):
        opaque = table.register(None, number + 3_000, number)
        assert table.resolve(answer(opaque)) == number
    assert len(table._deadlines) < 200


def test_table_agrees_with_a_plain_dict() -> None:
    rng = random.Random(11)
    table: RequestTable[int] = RequestTable(50)
    plain: dict[int, tuple[int, int]] = {}
    now = 0
    for step in range(5_000):
        now += rng.randrange(3)
        action = rng.random()
        if action < 0.5 and len(plain) < 50:
            deadline = now + rng.randrange(60)
            plain[table.register(None, deadline, step)] = (deadline, step)
        elif action < 0.9 and plain:
            opaque = rng.choice(sorted(plain))
            assert table.resolve(answer(opaque)) == plain.pop(opaque)[1]
        else:
            due = sorted(entry for entry in plain.values() if entry[0] <= now)
            assert sorted(table.expire(now)) == sorted(context for _, context in due)
            plain = {opaque: entry for opaque, entry in plain.items() if entry[0] > now}
        deadlines = [deadline for deadline, _ in plain.values()]
        assert table.deadline_ms() == (min(deadlines) if deadlines else None)
        assert len(table) == len(plain)
