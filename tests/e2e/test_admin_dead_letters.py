"""Dead letters through AdminClient: browsed, sent again once, dropped; on real brokers."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledgermq.client import (
    AdminClient,
    ClientConfig,
    ClientError,
    ConfigError,
    ConsumerConfig,
    Message,
    NotFoundError,
    PushConsumer,
    ReceivedMessage,
    blocking,
)
from tests.processes import LiveProgram, broker, name_server
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A name server with two brokers."""
    folder = tmp_path_factory.mktemp("dead_letters")
    with (
        name_server(folder) as address,
        broker(folder, namesrv=address) as first,
        broker(folder, namesrv=address, name="broker-b", log="b.log") as second,
    ):
        wait_for_leaders(address, first, second)
        yield address


def wait_for_leaders(address: str, *programs: LiveProgram) -> None:
    for program in programs:
        program.wait_until_serving()
    with blocking.AdminClient(address) as admin:
        wait_until(
            lambda: sum(one.is_leader for one in admin.brokers()) == len(programs),
            what="registered brokers",
        )


@pytest.fixture
def admin(namesrv: str) -> Iterator[blocking.AdminClient]:
    with blocking.AdminClient(namesrv) as admin:
        yield admin


def bury(namesrv: str, admin: blocking.AdminClient, topic: str, group: str, count: int) -> None:
    """Has a group give up on messages of a topic; each has its own keys and properties."""
    admin.create_topic(topic, queue_count=2)

    async def go() -> None:
        def refuse(message: ReceivedMessage) -> None:
            raise ValueError("this group takes nothing")

        config = ConsumerConfig(reconsume_times_max=0)
        async with PushConsumer(namesrv, group, topic, refuse, start="first", config=config):
            async with AdminClient(namesrv) as tool, asyncio.timeout(120):
                while len(await tool.dead_letters(group, count_max=1000)) < count:
                    await asyncio.sleep(0.05)

    with blocking.Producer(namesrv, "pg_dead") as producer:
        for number in range(count):
            message = Message(
                topic,
                b"body %d " % number + b"z" * (5000 if number == 1 else 0),
                keys=f"key{number}",
                tags="TagA",
                properties={"colour": "blue", "n": str(number)},
                flag=number,
            )
            producer.send(message)
    asyncio.run(go())


def stored(namesrv: str, topic: str) -> list[ReceivedMessage]:
    """All messages of a topic."""
    with blocking.PullConsumer(namesrv, "dl_reader") as consumer:
        found: list[ReceivedMessage] = []
        for queue in consumer.queues(topic):
            offset, end = consumer.min_offset(queue), consumer.max_offset(queue)
            while offset < end:
                result = consumer.pull(queue, offset)
                found += result.messages
                offset = result.next_offset
        return found


def test_sent_again_once_with_all_that_they_had(namesrv: str, admin: blocking.AdminClient) -> None:
    bury(namesrv, admin, "dl_orders", "dl_group", 4)
    letters = admin.dead_letters("dl_group")
    assert [one.state for one in letters] == ["waiting"] * 4
    assert {one.origin for one in letters} == {"dl_orders"}
    assert {one.message.keys for one in letters} == {f"key{n}" for n in range(4)}
    assert admin.describe_group("dl_group").dead_letter_count == 4
    before = {one.message_id: one for one in stored(namesrv, "dl_orders")}

    # By the id of the message, and by its place.
    first, second = letters[0], letters[1]
    told: list[str] = []
    outcomes = admin.resend_dead_letters(
        "dl_group",
        [first.message_id, second.id, second.id, "broker-a/0/777", "00"],
        on_outcome=lambda outcome: told.append(outcome.outcome),
    )
    assert [one.outcome for one in outcomes] == told
    by_id = {one.id: one.outcome for one in outcomes}
    assert by_id == {
        first.id: "resent",
        second.id: "resent",
        "broker-a/0/777": "not found",
        "00": "not found",
    }
    # However often it is asked for, and by whom.
    again = admin.resend_dead_letters("dl_group", [one.id for one in letters])
    assert sorted(one.outcome for one in again) == ["already resent"] * 2 + ["resent"] * 2
    with blocking.AdminClient(namesrv) as other:
        third = other.resend_dead_letters("dl_group", [one.id for one in letters])
        assert [one.outcome for one in third] == ["already resent"] * 4
        assert all(one.is_done for one in third)
        assert other.dead_letters("dl_group") == []
        assert [one.state for one in other.dead_letters("dl_group", waiting_only=False)] == [
            "resent"
        ] * 4
        assert other.describe_group("dl_group").dead_letter_count == 0

    after = stored(namesrv, "dl_orders")
    assert len(after) == 8
    copies = [one for one in after if "LEDGERMQ_RESENT" in one.properties]
    assert len({one.message_id for one in copies}) == 4
    for copy in copies:
        origin = before[copy.message_id]
        assert (copy.body, copy.keys, copy.tags) == (origin.body, origin.keys, origin.tags)
        assert copy.record.flag == origin.record.flag
        assert copy.born_timestamp_ms == origin.born_timestamp_ms
        assert copy.reconsume_times == 0
        own = {n: v for n, v in copy.properties.items() if n != "LEDGERMQ_RESENT"}
        assert own == origin.properties
    outcome = next(one for one in outcomes if one.id == first.id)
    assert outcome.queue is not None
    assert (outcome.queue.queue_id, outcome.queue_offset) in {
        (one.queue.queue_id, one.queue_offset) for one in copies
    }


def test_one_that_dies_again_is_another_dead_letter(
    namesrv: str, admin: blocking.AdminClient
) -> None:
    bury(namesrv, admin, "dl_again", "dl_again_group", 1)
    (letter,) = admin.dead_letters("dl_again_group")
    assert admin.resend_dead_letters("dl_again_group", [letter.id])[0].outcome == "resent"

    async def die() -> None:
        def refuse(message: ReceivedMessage) -> None:
            raise ValueError("still nothing")

        config = ConsumerConfig(reconsume_times_max=0)
        async with PushConsumer(namesrv, "dl_again_group", "dl_again", refuse, config=config):
            async with AdminClient(namesrv) as tool, asyncio.timeout(120):
                while not await tool.dead_letters("dl_again_group"):
                    await asyncio.sleep(0.05)

    asyncio.run(die())
    (new,) = admin.dead_letters("dl_again_group")
    assert new.message_id == letter.message_id and new.id != letter.id
    found = admin.dead_letter("dl_again_group", letter.message_id)
    assert sorted((one.id, one.state) for one in found) == sorted(
        [(letter.id, "resent"), (new.id, "waiting")]
    )
    outcomes = admin.resend_dead_letters("dl_again_group", [letter.message_id])
    assert {one.id: one.outcome for one in outcomes} == {
        letter.id: "already resent",
        new.id: "resent",
    }


def test_dropped_are_gone_from_lists_and_can_be_seen(
    namesrv: str, admin: blocking.AdminClient
) -> None:
    bury(namesrv, admin, "dl_drop", "dl_drop_group", 4)
    letters = admin.dead_letters("dl_drop_group")
    assert [one.outcome for one in admin.drop_dead_letters("dl_drop_group", [letters[2].id])] == [
        "dropped"
    ]
    assert [one.outcome for one in admin.drop_dead_letters("dl_drop_group", [letters[2].id])] == [
        "already dropped"
    ]
    assert [one.id for one in admin.dead_letters("dl_drop_group")] == [
        one.id for i, one in enumerate(letters) if i != 2
    ]
    (seen,) = admin.dead_letter("dl_drop_group", letters[2].id)
    assert (seen.state, seen.message.body) == ("dropped", letters[2].message.body)
    # Notes are not dead letters.
    assert len(admin.dead_letters("dl_drop_group", waiting_only=False)) == 4
    admin.drop_all_dead_letters("dl_drop_group")
    assert admin.dead_letters("dl_drop_group") == []
    assert [one.state for one in admin.dead_letters("dl_drop_group", waiting_only=False)] == [
        "dropped"
    ] * 4
    # What was dropped by mistake can still be sent again, once.
    for outcome in ("resent", "already resent"):
        assert [
            one.outcome for one in admin.resend_dead_letters("dl_drop_group", [letters[0].id])
        ] == [outcome]
    assert len(stored(namesrv, "dl_drop")) == 5


def test_moments_part_dead_letters_exactly(namesrv: str, admin: blocking.AdminClient) -> None:
    """Brokers tell the message nearest to a time, which may be on its wrong side."""
    bury(namesrv, admin, "moments", "billing_moments", 2)
    letters = admin.dead_letters("billing_moments")
    first, last = sorted(letter.message.store_timestamp_ms for letter in letters)
    later = last + 3_600_000
    browse = admin.dead_letters
    assert len(browse("billing_moments", stop=later)) == 2
    assert browse("billing_moments", start=later) == []
    assert browse("billing_moments", stop=first) == []
    assert len(browse("billing_moments", start=last)) == 1 + (first == last)
    assert len(browse("billing_moments", start=first, stop=last)) == (first < last)
    assert admin.drop_all_dead_letters("billing_moments", stop=first) == 0
    assert admin.drop_all_dead_letters("billing_moments", stop=later) == 2
    assert browse("billing_moments") == []


def test_two_at_the_same_time_and_a_rate(namesrv: str, admin: blocking.AdminClient) -> None:
    bury(namesrv, admin, "dl_two", "dl_two_group", 5)
    ids = [one.id for one in admin.dead_letters("dl_two_group")]

    async def go() -> None:
        async with AdminClient(namesrv) as first, AdminClient(namesrv) as second:
            begun_s = time.monotonic()
            began = asyncio.Event()
            slow = asyncio.create_task(
                first.resend_dead_letters(
                    "dl_two_group", ids, rate=4.0, on_outcome=lambda _: began.set()
                )
            )
            await began.wait()
            for other in (second, first):
                with pytest.raises(ClientError, match="somebody else works on") as caught:
                    await other.resend_dead_letters("dl_two_group", ids)
                assert caught.value.retriable
            assert [one.outcome for one in await slow] == ["resent"] * 5
            # The first goes at once, each other one a quarter of a second later.
            assert time.monotonic() - begun_s >= 1.0
            told = await second.resend_dead_letters("dl_two_group", ids)
            assert [one.outcome for one in told] == ["already resent"] * 5

    asyncio.run(go())
    assert len(stored(namesrv, "dl_two")) == 10


def test_what_cannot_be_done_says_why(namesrv: str, admin: blocking.AdminClient) -> None:
    assert admin.dead_letters("dl_nobody") == []
    with pytest.raises(NotFoundError, match="no dead letter 'broker-a/0/1'"):
        admin.dead_letter("dl_nobody", "broker-a/0/1")
    with pytest.raises(ConfigError, match="broker/queue/offset"):
        admin.dead_letter("dl_nobody", "broker-a/x/1")
    with pytest.raises(ConfigError, match="above 0 messages/s"):
        admin.resend_dead_letters("dl_nobody", [], rate=0)
    bury(namesrv, admin, "dl_gone", "dl_gone_group", 1)
    admin.delete_topic("dl_gone")
    (letter,) = admin.dead_letters("dl_gone_group")
    (outcome,) = admin.resend_dead_letters("dl_gone_group", [letter.id])
    assert outcome.outcome == "failed" and "no topic 'dl_gone'" in outcome.reason


def test_no_answer_is_told_as_unknown_and_not_sent_twice(tmp_path: Path) -> None:
    """Its broker stops after the question and before the send; later it stores it after all."""
    with name_server(tmp_path) as namesrv, broker(tmp_path, namesrv=namesrv) as program:
        wait_for_leaders(namesrv, program)
        config = ClientConfig(request_timeout_s=2, silence_max_s=600)
        with blocking.AdminClient(namesrv, config=config) as admin:
            bury(namesrv, admin, "dl_silent", "dl_silent_group", 2)
            letters = admin.dead_letters("dl_silent_group")

            def stop(_: object) -> None:
                # Between the first and the second.
                os.kill(program.pid, signal.SIGSTOP)

            try:
                outcomes = admin.resend_dead_letters(
                    "dl_silent_group", [one.id for one in letters], on_outcome=stop
                )
            finally:
                os.kill(program.pid, signal.SIGCONT)
            assert outcomes[0].outcome == "resent"
            assert outcomes[1].outcome in ("failed", "unknown") and outcomes[1].reason

            def all_are_done() -> bool:
                try:
                    told = admin.resend_dead_letters("dl_silent_group", [one.id for one in letters])
                except ClientError as error:
                    assert error.retriable
                    return False
                return all(one.is_done for one in told)

            wait_until(all_are_done, what="both sent")
            assert len(stored(namesrv, "dl_silent")) == 4


def test_without_an_index_nothing_is_sent(tmp_path: Path) -> None:
    with (
        name_server(tmp_path) as namesrv,
        broker(tmp_path, "messageIndexEnable=false", namesrv=namesrv) as program,
    ):
        wait_for_leaders(namesrv, program)
        with blocking.AdminClient(namesrv) as admin:
            bury(namesrv, admin, "dl_blind", "dl_blind_group", 1)
            (letter,) = admin.dead_letters("dl_blind_group")
            assert letter.state == "unknown"
            (outcome,) = admin.resend_dead_letters("dl_blind_group", [letter.id])
            assert outcome.outcome == "failed" and "messageIndexEnable" in outcome.reason
            assert len(stored(namesrv, "dl_blind")) == 1
