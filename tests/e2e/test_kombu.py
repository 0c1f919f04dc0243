"""The transport of kombu against a cluster: queues, exchanges, acknowledgements, lost members.

Connections with different options share nothing in this process, so that each is as good as a
process of its own.
"""

import itertools
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kombu import Connection, Consumer, Exchange, Queue
from kombu.exceptions import ChannelError, OperationalError

import ledgermq.celery
from ledgermq.celery.claims import FATAL_DEATHS
from ledgermq.celery.claims_log import ClaimsLog
from ledgermq.celery.errors import TransportError
from ledgermq.client import ClientError
from ledgermq.testing import LedgerCluster
from tests.free_ports import free_ports
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
_WAIT_S = 60.0
Connect = Callable[..., Connection]
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LedgerCluster]:
    with LedgerCluster(nodes=1) as cluster:
        yield cluster


@pytest.fixture
def connect(cluster: LedgerCluster) -> Iterator[Connect]:
    """Makes connections to a namespace of the test, each as of a process of its own."""
    opened: list[Connection] = []
    url = f"ledgermq://{cluster.name_server}/t{next(_numbers)}"

    def make(**options: Any) -> Connection:
        options = {"send_timeout_s": 60.0 + next(_numbers), **options}
        connection = Connection(url, transport_options=options)
        opened.append(connection)
        assert isinstance(connection.transport, ledgermq.celery.Transport)
        return connection

    yield make
    for connection in opened:
        connection.close()


class Got:
    """Messages that a consumer was given, in their order."""

    def __init__(self, connection: Connection, queue: Queue, **options: Any) -> None:
        self.messages: list[Any] = []
        self._connection = connection
        prefetch = options.pop("prefetch", 0)
        channel = connection.channel()
        self.consumer = Consumer(channel, [queue], on_message=self.messages.append, **options)
        if prefetch:
            self.consumer.qos(prefetch_count=prefetch)
        self.consumer.consume()

    def drain(self) -> None:
        """Takes what is there."""
        try:
            while True:
                self._connection.drain_events(timeout=0.01)
        except TimeoutError:
            pass

    def wait(self, count: int) -> list[Any]:
        """Waits for so many messages in all, and returns their payloads."""

        def has() -> bool:
            self.drain()
            return len(self.messages) >= count

        wait_until(has, what=f"{count} messages", deadline_s=_WAIT_S)
        return self.payloads

    @property
    def payloads(self) -> list[Any]:
        return [message.payload for message in self.messages]


def send(connection: Connection, *payloads: Any, **options: Any) -> None:
    producer = connection.Producer()
    for payload in payloads:
        producer.publish(payload, **options)


def declared(connection: Connection, name: str, **options: Any) -> Queue:
    queue = Queue(name, **options)(connection.default_channel)
    queue.declare()
    return queue


def size(connection: Connection, name: str) -> int:
    return int(connection.default_channel.queue_declare(name, passive=True).message_count)


@pytest.mark.parametrize("name", ["tasks", "fast lane @ müll" + "x" * 200])
def test_messages_come_in_their_order_once_and_are_gone(connect: Connect, name: str) -> None:
    writer, reader, late = connect(), connect(), connect()
    queue = declared(writer, name)
    send(writer, *range(20), routing_key=name)
    assert size(writer, name) == 20
    got = Got(reader, queue)
    assert got.wait(20) == list(range(20))
    for message in got.messages:
        message.ack()
    reader.close()
    assert size(late, name) == 0
    send(writer, "last", routing_key=name)
    assert Got(late, queue).wait(1) == ["last"]


def test_members_share_and_prefetch_bounds_what_they_have(connect: Connect) -> None:
    writer = connect()
    queue = declared(writer, "q")
    first, second = (Got(connect(), queue, prefetch=2) for _ in range(2))
    send(writer, *range(6), routing_key="q")
    first.wait(2)
    second.wait(2)
    assert size(writer, "q") == 2
    assert len(first.messages) == len(second.messages) == 2
    first.messages[1].ack()
    first.wait(3)
    second.drain()
    assert len(second.messages) == 2
    first.messages[0].ack()
    first.wait(4)
    assert sorted(first.payloads + second.payloads) == list(range(6))


def test_room_of_one_queue_is_room_for_the_other(connect: Connect) -> None:
    connection = connect()
    queues = [declared(connection, name) for name in "ab"]
    got = Got(connection, queues[0], prefetch=1)
    got.consumer.add_queue(queues[1])
    got.consumer.consume()
    for name in "aabb":
        send(connection, name, routing_key=name)
    for number in range(4):
        got.wait(number + 1)
        got.drain()
        assert len(got.messages) == number + 1
        got.messages[number].ack()
    assert sorted(got.payloads) == list("aabb")


@pytest.mark.parametrize("no_ack", [True, False])
def test_more_come_than_may_wait(connect: Connect, no_ack: bool) -> None:
    connection = connect()
    queue = declared(connection, "q")
    send(connection, *range(150), routing_key="q")
    assert Got(connection, queue, no_ack=no_ack).wait(150) == list(range(150))


def test_nobody_to_connect_to_may_be_tried_again() -> None:
    (port,) = free_ports(1)
    with Connection(f"ledgermq://127.0.0.1:{port}") as connection:
        with pytest.raises(OperationalError):
            connection.ensure_connection(max_retries=1, interval_start=0, interval_step=0)


def test_the_application_of_the_guide_sends(cluster: LedgerCluster) -> None:
    page = (ROOT / "docs" / "celery.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert "127.0.0.1:9876/shop" in program
    shop: dict[str, Any] = {"__name__": "shop"}
    exec(program.replace("127.0.0.1:9876", cluster.name_server), shop)
    shop["add"].delay(2, 3)
    with Connection(f"ledgermq://{cluster.name_server}/shop") as connection:
        assert size(connection, "celery") == 1
    shop["app"].close()


def test_keys_of_access_control_stand_in_the_url(tmp_path: Path) -> None:
    rules = tmp_path / "plain_acl.yml"
    rules.write_text("accounts:\n- {accessKey: celery-app, secretKey: s@cret-1, admin: true}\n")
    rules.chmod(0o600)
    settings = {"aclEnable": True, "aclFile": str(rules)}
    with LedgerCluster(nodes=1, settings=settings) as cluster:
        with Connection(f"ledgermq://celery-app:s%40cret-1@{cluster.name_server}") as connection:
            queue = declared(connection, "q")
            send(connection, "in", routing_key="q")
            assert Got(connection, queue).wait(1) == ["in"]
            assert "cret" not in connection.as_uri()
        with Connection(f"ledgermq://{cluster.name_server}?send_timeout_s=1") as stranger:
            with pytest.raises(ClientError, match="access"):
                declared(stranger, "q2")


def test_what_is_not_acknowledged_comes_again_at_the_end(connect: Connect) -> None:
    writer, reader = connect(), connect()
    queue = declared(writer, "q")
    send(writer, *range(5), routing_key="q")
    got = Got(reader, queue)
    got.wait(5)
    for number in (4, 1, 3):
        got.messages[number].ack()
    reader.close()
    again = Got(connect(), queue)
    assert again.wait(2) == [0, 2]
    assert [message.delivery_info["redelivered"] for message in again.messages] == [True, True]
    assert not got.messages[0].delivery_info["redelivered"]


def test_reject_and_requeue(connect: Connect) -> None:
    connection = connect()
    queue = declared(connection, "q")
    send(connection, 1, 2, routing_key="q")
    got = Got(connection, queue, prefetch=1)
    got.wait(1)
    got.messages[0].requeue()
    assert got.wait(2) == [1, 1]
    got.messages[1].reject()
    assert got.wait(3) == [1, 1, 2]
    got.messages[2].ack()
    wait_until(lambda: size(connect(), "q") == 0, what="an empty queue")


def test_get_and_purge(connect: Connect) -> None:
    connection = connect()
    queue = declared(connection, "q")
    assert queue.get() is None
    send(connection, *range(5), routing_key="q")
    message = queue.get()
    assert message.payload == 0
    assert queue.get(no_ack=True).payload == 1
    assert queue.purge() == 3
    assert queue.get() is None
    message.requeue()
    wait_until(lambda: size(connection, "q") == 1, what="the message that was given back")


def test_get_passes_over_what_is_no_message_of_kombu(connect: Connect) -> None:
    writer, late = connect(), connect()
    queue = declared(writer, "q")
    open_ = writer.connection.station
    for body in (b"no json", b"[]", b"{}"):
        open_.run(open_.station.publish("", "direct", "q", body))
    send(writer, "first", "second", routing_key="q")
    for payload, no_ack in (("first", True), ("second", False)):
        message = queue.get(no_ack=no_ack)
        assert message.payload == payload
    message.ack()
    assert queue.get() is None
    writer.close()
    # Nothing of it waits for the next process.
    assert size(late, "q") == 0
    open_ = late.connection.station
    assert not open_.run(open_.station.find("q")).claims.held


class BrokenError(Exception):
    """What a worker does not get over."""


def end_a_worker(connect: Connect, queue: Queue, error: Exception, **options: Any) -> list[Any]:
    """A worker that ends with the first message; returns the payloads that it was given."""
    connection = connect(**options)
    given = []

    def take(message: Any) -> None:
        given.append(message.payload)
        raise error

    channel = connection.channel()
    with Consumer(channel, [queue(channel)], on_message=take, prefetch_count=1):
        try:
            connection.drain_events(timeout=2.0)
        except (TimeoutError, type(error)):
            pass
    connection.close()
    return given


@pytest.mark.parametrize("letters", [None, "letters"])
def test_a_message_with_which_workers_end_is_given_to_so_many_and_no_more(
    connect: Connect, letters: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"worker_deaths_max": 2 * FATAL_DEATHS, "deadletter_queue": letters}
    writer = connect()
    queue = declared(writer, "q")
    send(writer, "poison", "good", routing_key="q")
    for _ in range(3):
        # Neither the end of a connection counts, nor that it was given back.
        assert end_a_worker(connect, queue, ConnectionError(), **options) == ["poison"]
    for _ in range(2):
        assert end_a_worker(connect, queue, BrokenError(), **options) == ["poison"]
    last = Got(connect(**options), queue)
    assert last.wait(1) == ["good"]
    last.messages[0].ack()
    told = [record.getMessage() for record in caplog.records if "worker_deaths_max" in record.msg]
    assert len(told) == 1
    assert ("moved to 'letters'" if letters else "is dropped: workers ended") in told[0]
    if letters:
        assert declared(writer, letters).get(no_ack=True).payload == "poison"


def test_shared_queues_are_bound_for_all_processes(connect: Connect) -> None:
    reader, writer = connect(), connect()
    topic, fanout = Exchange("t", "topic"), Exchange("f", "fanout")
    declared(reader, "a", exchange=topic, routing_key="a.#")
    declared(reader, "b", exchange=topic, routing_key="*.b")
    declared(reader, "c", exchange=fanout)
    send(writer, 1, exchange="t", routing_key="a.b")
    send(writer, 2, exchange="t", routing_key="a.c.d")
    send(writer, 3, exchange="t", routing_key="nobody")
    send(writer, 4, exchange="f", routing_key="whatever")
    assert [size(writer, name) for name in "abc"] == [2, 1, 1]
    reader.default_channel.queue_unbind("c", "f", "")
    reader.default_channel.queue_delete("b")
    late = connect()
    send(late, 5, exchange="t", routing_key="a.b")
    send(late, 6, exchange="f", routing_key="")
    assert [size(late, name) for name in "ac"] == [3, 1]
    with pytest.raises(ChannelError, match="no queue 'b'"):
        size(late, "b")


@pytest.mark.parametrize("kind", ["direct", "topic", "fanout", ""])
def test_queues_of_processes_get_what_is_sent_from_their_declaration_on(
    connect: Connect, kind: str
) -> None:
    writer, *readers = connect(), connect(), connect()
    exchange = Exchange("events", kind) if kind else None
    key = "here" if kind else "own0"
    send(writer, "before", exchange=exchange, routing_key=key)
    queues = [
        declared(one, f"own{number}", exchange=exchange, routing_key=key, auto_delete=True)
        for number, one in enumerate(readers)
    ]
    send(writer, "after", exchange=exchange, routing_key=key)
    send(writer, "elsewhere", exchange=exchange, routing_key="else")
    send(writer, "end", exchange=exchange, routing_key=key)
    wanted = ["after", "elsewhere", "end"] if kind == "fanout" else ["after", "end"]
    assert Got(readers[0], queues[0], no_ack=True).wait(len(wanted)) == wanted
    if kind:
        assert size(readers[1], "own1") == len(wanted)
        assert queues[1].get().payload == "after"
        assert queues[1].purge() == len(wanted) - 1


def test_a_queue_that_nobody_declared_is_refused(connect: Connect) -> None:
    connection = connect()
    with pytest.raises(TransportError, match="no queue 'none'"):
        connection.default_channel.basic_consume("none", False, print, "tag")


def test_newcomers_begin_with_a_snapshot(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ledgermq.celery.lane._SNAPSHOT_EVENTS", 5)
    writer, reader = connect(), connect()
    queue = declared(writer, "q")
    send(writer, *range(40), routing_key="q")
    got = Got(reader, queue, prefetch=2)
    kept = None
    for number in range(39):
        got.wait(number + 1)
        if number == 1:
            kept = got.messages[number]
        else:
            got.messages[number].ack()
    assert kept is not None
    pulled: list[int] = []
    watch_pulls(monkeypatch, pulled)
    late = connect()
    assert size(late, "q") == 0 and max(pulled) < 30
    reader.close()
    assert sorted(Got(late, queue).wait(2)) == [1, 39]


def watch_pulls(monkeypatch: pytest.MonkeyPatch, counts: list[int]) -> None:
    """Notes how many entries of logs each pull brings."""
    plain = ClaimsLog.pull

    async def pull(log: ClaimsLog, suspend_s: float) -> None:
        before = log.event_count
        await plain(log, suspend_s)
        counts.append(log.event_count - before)

    monkeypatch.setattr(ClaimsLog, "pull", pull)


def test_a_member_that_stands_still_loses_its_messages_and_goes_on(connect: Connect) -> None:
    writer, still, other = connect(), connect(lost_after_s=2), connect(lost_after_s=2)
    queue = declared(writer, "q")
    send(writer, "slow", routing_key="q")
    first = Got(still, queue, prefetch=1)
    first.wait(1)
    second = Got(other, queue, prefetch=1)
    go_on = threading.Event()
    still.transport.station.soon(go_on.wait)
    try:
        assert second.wait(1) == ["slow"]
    finally:
        go_on.set()
    assert second.messages[0].delivery_info["redelivered"]
    # Done is done, whoever says so.
    first.messages[0].ack()
    second.messages[0].ack()
    send(writer, "next", "more", routing_key="q")
    first.wait(2)
    second.wait(2)
    assert {"next", "more"} <= {*first.payloads, *second.payloads}


def test_a_group_goes_on_without_its_leader() -> None:
    with LedgerCluster(nodes=3) as cluster:
        url = f"ledgermq://{cluster.name_server}"
        options = {"send_timeout_s": _WAIT_S}
        with (
            Connection(url, transport_options=options) as writer,
            Connection(url, transport_options={**options, "lost_after_s": 20}) as reader,
        ):
            queue = declared(writer, "q")
            got = Got(reader, queue, prefetch=3)
            send(writer, *range(5), routing_key="q")
            got.wait(3)
            cluster.kill(cluster.leader)
            send(writer, *range(5, 10), routing_key="q")
            # A send whose answer got lost is stored twice.
            count = 0
            while set(got.payloads) != set(range(10)):
                count += 1
                got.wait(count)
                got.messages[count - 1].ack()
