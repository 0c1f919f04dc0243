"""The client and its commands against a cluster that works: one node, started as a user does."""

import asyncio
import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ledgermq.cli import send
from ledgermq.cli.main import main
from ledgermq.cli.round_trip import check_round_trip
from ledgermq.client import (
    ConfigError,
    Message,
    NoRouteError,
    Producer,
    PullConsumer,
    PullStatus,
    PushConsumer,
    ReceivedMessage,
    blocking,
)
from tests.scenarios import run
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]


async def known(consumer: PullConsumer, topic: str) -> None:
    """Waits until the name server knows a topic that a send has just made."""
    while True:
        try:
            await consumer.queues(topic)
            return
        except NoRouteError as error:
            assert error.retriable
            await asyncio.sleep(0.01)


def is_known(reader: blocking.PullConsumer, topic: str) -> bool:
    """Tells whether the name server knows a topic that a send has just made."""
    try:
        return len(reader.queues(topic)) > 0
    except NoRouteError:
        return False


def test_round_trip_of_up(name_server: str) -> None:
    assert "read back" in asyncio.run(check_round_trip(name_server))


def test_what_is_sent_is_what_is_pulled(name_server: str) -> None:
    async def scenario() -> None:
        body = "ärgerlich ".encode() * 1000
        message = Message("Same", body, keys="k1 k2", tags="A", properties={"p": "ж"}, flag=-7)
        async with Producer(name_server) as producer, PullConsumer(name_server) as consumer:
            sent = await producer.send(message)
            await known(consumer, "Same")
            found = await consumer.pull(sent.queue, sent.queue_offset, suspend_s=2.0)
            assert found.status is PullStatus.FOUND
            got = found.messages[0]
            assert (got.body, got.keys, got.tags, got.topic) == (body, "k1 k2", "A", "Same")
            assert (got.properties["p"], got.record.flag) == ("ж", -7)
            assert got.message_id == sent.message_id
            assert got.offset_message_id == sent.offset_message_id
            assert len(got.record.body) < len(body)

    run(scenario())


def test_batch_lies_in_one_queue_in_its_order(name_server: str) -> None:
    async def scenario() -> None:
        async with Producer(name_server) as producer, PullConsumer(name_server) as consumer:
            batch = [Message("Batch", b"%d" % number, keys=f"k{number}") for number in range(10)]
            sent = await producer.send_batch(batch)
            await known(consumer, "Batch")
            found = await consumer.pull(sent.queue, sent.queue_offset, suspend_s=2.0)
            assert [got.body for got in found.messages] == [one.body for one in batch]
            assert [got.message_id for got in found.messages] == sent.message_id.split(",")

    run(scenario())


def test_reader_assigns_seeks_commits_and_polls(name_server: str) -> None:
    async def scenario() -> None:
        async with Producer(name_server) as producer:
            for number in range(40):
                await producer.send(Message("Read", b"%d" % number))
        async with PullConsumer(name_server, "reader") as consumer:
            await known(consumer, "Read")
            queues = await consumer.queues("Read")
            assert [await consumer.max_offset(queue) for queue in queues] == [10] * 4
            assert [await consumer.min_offset(queue) for queue in queues] == [0] * 4
            await consumer.assign(queues, start="first")
            got: list[ReceivedMessage] = []
            while len(got) < 40:
                got += await consumer.poll(count_max=7, timeout_s=5.0)
            assert sorted(int(one.body) for one in got) == list(range(40))
            await consumer.commit(queues[0])
            await consumer.seek(queues[1], 4)
            again = await consumer.poll(timeout_s=5.0)
            assert [one.queue_offset for one in again] == [4, 5, 6, 7, 8, 9]
            assert await consumer.poll(timeout_s=0.05) == []
        async with PullConsumer(name_server, "reader") as consumer:
            assert await consumer.committed(queues[0]) == 10
            await consumer.assign([queues[0]])
            assert consumer.position(queues[0]) == 10
            with pytest.raises(ConfigError):
                consumer.position(queues[1])
            with pytest.raises(NoRouteError):
                await consumer.queues("NeverMade")

    run(scenario())


def test_only_wanted_tags_arrive(name_server: str) -> None:
    async def scenario() -> None:
        async with Producer(name_server) as producer:
            for number in range(30):
                await producer.send(Message("Tagged", b"%d" % number, tags="ABC"[number % 3]))
        seen: set[int] = set()
        async with PushConsumer(
            name_server, "tagged", "Tagged", tags="A || C", start="first"
        ) as consumer:
            async for message in consumer:
                seen.add(int(message.body))
                if len(seen) == 20:
                    break
        assert seen == {number for number in range(30) if number % 3 != 1}

    run(scenario())


def test_members_share_the_queues_and_take_over_when_one_goes(name_server: str) -> None:
    async def scenario() -> None:
        async with Producer(name_server) as producer:
            await producer.send(Message("Shared", b"0"))
            seen: list[bytes] = []

            async def listener(message: ReceivedMessage) -> None:
                seen.append(message.body)

            def member() -> PushConsumer:
                return PushConsumer(name_server, "sharing", "Shared", listener, start="first")

            async with member() as first:
                while len(first.queues()) != 4:
                    await asyncio.sleep(0.01)
                async with member() as second:
                    while (len(first.queues()), len(second.queues())) != (2, 2):
                        await asyncio.sleep(0.01)
                    assert not set(first.queues()) & set(second.queues())
                while len(first.queues()) != 4:
                    await asyncio.sleep(0.01)
                for number in range(1, 9):
                    await producer.send(Message("Shared", b"%d" % number))
                # At least once: what a member had in hand may come again to the next.
                while set(seen) != {b"%d" % number for number in range(9)}:
                    await asyncio.sleep(0.01)

    run(scenario())


def test_message_in_work_is_not_committed(name_server: str) -> None:
    """A consumer that breaks off in the middle of a message gets it again."""

    async def scenario() -> None:
        async with Producer(name_server) as producer:
            for number in range(3):
                await producer.send(Message("Unfinished", b"%d" % number), ordering_key="k")
        for expected in (b"0", b"1", b"1"):
            async with PushConsumer(
                name_server, "unfinished", "Unfinished", start="first"
            ) as consumer:
                message = await anext(consumer)
                assert message.body == expected
                if expected == b"0":
                    consumer.acknowledge()

    run(scenario())


def test_blocking_faces_do_the_same(name_server: str) -> None:
    before = set(threading.enumerate())
    with blocking.Producer(name_server) as producer:
        first = producer.send(Message("Block", b"0"), ordering_key="k")
        futures = [
            producer.submit(Message("Block", b"%d" % i), ordering_key="k") for i in range(1, 20)
        ]
        assert [future.result(60).queue_offset for future in futures] == list(range(1, 20))
        producer.send_one_way(Message("Block", b"20"), ordering_key="k")
    with blocking.PullConsumer(name_server) as reader:
        wait_until(lambda: is_known(reader, "Block"), what="a route")
        reader.assign([first.queue], start="first")
        bodies: list[bytes] = []
        while len(bodies) < 21:
            bodies += [message.body for message in reader.poll(timeout_s=5.0)]
        assert bodies == [b"%d" % number for number in range(21)]
    done = threading.Event()
    seen: list[bytes] = []

    def listener(message: ReceivedMessage) -> None:
        seen.append(message.body)
        if len(seen) == 21:
            done.set()

    with blocking.PushConsumer(name_server, "block", "Block", listener, start="first"):
        assert done.wait(60)
    assert sorted(seen) == sorted(bodies)
    with blocking.PushConsumer(name_server, "iter", "Block", start="first") as members:
        assert [next(members).body for _ in range(21)] == bodies
    began = set(threading.enumerate()) - before
    assert not [one for one in began if one.name.startswith("ledgermq")]


def test_commands_send_and_consume(
    name_server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = tmp_path / "lines"
    lines.write_text("".join(f'{{"id":"order-{i % 5}","n":{i}}}\n' for i in range(50)))
    words = ["-n", name_server, "-t", "Commands"]
    assert main(["send", *words, "--file", str(lines), "--key-field", "id", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert (figures["messages"], figures["failed"]) == (50, 0)
    out = tmp_path / "out"
    consume = ["consume", *words, "-g", "commands"]
    assert main([*consume, "--count", "50", "--output", str(out), "--checksum", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["checksum"]["count"] == 50
    assert sorted(out.read_text().splitlines()) == sorted(lines.read_text().splitlines())
    assert main(["send", *words, "one", "more", "--key", "k", "--tags", "T"]) == 0
    capsys.readouterr()
    assert main(["consume", *words, "-g", "commands", "--count", "2"]) == 0
    assert capsys.readouterr().out.splitlines() == ["one", "more"]
    # Nothing new is no failure; a topic that is not there is one.
    assert main([*consume, "--until-idle", "0.5"]) == 0
    assert main(["consume", "-n", name_server, "-t", "Comands", "--until-idle", "0.5"]) == 1
    assert "no name server knows the topic 'Comands'" in capsys.readouterr().err


def test_send_ends_early_when_no_name_server_listens(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It went on for the 30 s that a message has, and told the cause behind the number of tries."""
    monkeypatch.setattr(send, "_PATIENCE_S", 0.5)
    # Nobody listens at port 1.
    assert main(["send", "-n", "127.0.0.1:1", "-t", "T", "one", "two"]) == 1
    told = capsys.readouterr().err
    assert "no name server listens at 127.0.0.1:1 for 0.5 s, the last: Connection refused" in told
    assert "never retrieved" not in told and "not acknowledged after" not in told


def test_send_does_not_end_early_when_a_name_server_listens(
    name_server: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(send, "_PATIENCE_S", 0.0)
    assert main(["send", "-n", f"127.0.0.1:1;{name_server}", "-t", "Early", "one"]) == 0
    assert "stored in" in capsys.readouterr().out


def test_bench_measures(name_server: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["-n", name_server, "-t", "Bench", "--seconds", "0.3", "--json"]
    assert main(["bench", "produce", *words, "--batch", "4", "--size", "100"]) == 0
    produced = json.loads(capsys.readouterr().out)
    assert produced["messages"] > 0 and produced["failed"] == 0
    assert main(["bench", "consume", *words]) == 0
    assert json.loads(capsys.readouterr().out)["messages"] > 0


def test_example_of_a_million_events_in_small(name_server: str) -> None:
    done = subprocess.run(
        [
            sys.executable, str(ROOT / "examples" / "million_events" / "run.py"),
            "-n", name_server, "--count", "3000", "--idle", "8",
        ],
        capture_output=True, text=True, timeout=180, check=False,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "equal: nothing lost, nothing twice" in done.stdout
