"""What one try of a task sends: no row that is stored, and none again before it has looked."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest

from ledgermq.client import ClientError, Message, MessageError
from ledgermq.client.errors import UnreachableError
from ledgermq.spark.errors import ClusterError, RowError
from ledgermq.spark.message_rows import RowMessage
from ledgermq.spark.once.sender import OnceSender
from ledgermq.spark.options import WriteOptions, write_options

OPTIONS = write_options({"nameServer": "127.0.0.1:9876", "topic": "T", "once": "true"})


class Topic:
    """A topic, the road to it, and what a look at it finds; the road may lose what goes over it."""

    def __init__(self, seed: int = 0, loss: float = 0.0) -> None:
        self.stored: list[str] = []
        # Stored by their senders' view, or lost with them.
        self.in_doubt = 0
        self.looks = 0
        self._random = random.Random(seed)
        self._loss = loss
        self._known: set[str] = set()
        self.refusal: ClientError | None = None

    async def send(self, message: Message, *, ordering_key: str | None = None) -> object:
        await asyncio.sleep(0)
        if self.refusal is not None:
            raise self.refusal
        draw = self._random.random()
        if draw >= self._loss / 2:
            self.stored.append(message.properties["SPARK_ROW_ID"])
        if draw < self._loss:
            self.in_doubt += 1
            raise UnreachableError("no answer", retriable=True)
        return None

    def look(self) -> None:
        self.looks += 1
        self._known = set(self.stored)

    def __contains__(self, row_id: str) -> bool:
        return row_id in self._known


class FreeTurn:
    """A turn that begins with the first call, and again whenever the test says so."""

    is_valid = True

    def __init__(self) -> None:
        self.is_lost = True
        self.given_back = 0

    def hold(self) -> bool:
        was_lost, self.is_lost = self.is_lost, False
        return was_lost

    def give_back(self) -> None:
        self.given_back += 1


def rows_of(ids: Sequence[int], key_count: int = 0) -> list[RowMessage]:
    return [
        RowMessage(
            Message("T", b"x", properties={"SPARK_ROW_ID": str(number)}),
            f"key-{number % key_count}" if key_count else None,
        )
        for number in ids
    ]


def sender_of(topic: Topic, turn: FreeTurn, options: WriteOptions = OPTIONS) -> OnceSender:
    return OnceSender(topic, turn, topic, options, ["T"], settle_s=0.0)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("key_count", [0, 3])
def test_rows_whose_answers_get_lost_are_stored_once(seed: int, key_count: int) -> None:
    topic, turn = Topic(seed, loss=0.2), FreeTurn()
    sender = sender_of(topic, turn)
    asyncio.run(sender.send(rows_of(range(200), key_count)))
    sender.close()
    assert topic.in_doubt > 5
    assert sorted(map(int, topic.stored)) == list(range(200))
    assert turn.given_back == 1
    for key in range(key_count):
        of_key = [int(row) for row in topic.stored if int(row) % key_count == key]
        assert of_key == sorted(of_key), "rows of a key stay in their order"


def test_the_next_try_leaves_out_what_the_one_before_it_stored() -> None:
    topic = Topic()
    asyncio.run(sender_of(topic, FreeTurn()).send(rows_of(range(50))))
    asyncio.run(sender_of(topic, FreeTurn()).send(rows_of(range(80))))
    assert sorted(map(int, topic.stored)) == list(range(80))


def test_a_try_that_lost_its_turn_looks_again_before_it_sends() -> None:
    """Another one had it meanwhile, and has sent the rest."""
    topic, turn = Topic(), FreeTurn()
    sender = sender_of(topic, turn)
    asyncio.run(sender.send(rows_of(range(10))))
    topic.stored += map(str, range(10, 20))
    turn.is_lost = True
    asyncio.run(sender.send(rows_of(range(10, 30))))
    assert sorted(map(int, topic.stored)) == list(range(30))


def test_what_no_other_try_would_change_ends_the_task() -> None:
    cases = [
        (MessageError("too large"), RowError, 0),
        (ClientError("refused", retriable=False), ClusterError, 0),
    ]
    for refusal, kind, given_back in cases:
        topic, turn = Topic(), FreeTurn()
        topic.refusal = refusal
        sender = sender_of(topic, turn)
        with pytest.raises(kind):
            asyncio.run(sender.send(rows_of([1])))
        sender.close()
        assert turn.given_back == given_back, "what became of others is not known"


def test_a_row_to_a_topic_that_nobody_looks_at_is_refused() -> None:
    topic = Topic()
    row = RowMessage(Message("Other", b"x", properties={"SPARK_ROW_ID": "1"}), None)
    with pytest.raises(RowError, match="its topic Other is none of onceTopics"):
        asyncio.run(sender_of(topic, FreeTurn()).send([*rows_of([2]), row]))
    assert topic.stored == []


def test_a_broker_that_stays_away_ends_the_task_when_its_time_is_over() -> None:
    topic = Topic()
    topic.refusal = UnreachableError("no answer", retriable=True)
    given = {"nameServer": "h:1", "topic": "T", "once": "true", "sendTimeoutMs": "100"}
    with pytest.raises(ClusterError, match=r"row 1: no answer.*tried for 0.1 s"):
        asyncio.run(sender_of(topic, FreeTurn(), write_options(given)).send(rows_of([1])))
