"""A cluster inside this process: its clock moves, its nodes come and go, and it leaves no trace."""

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from ledgermq.client import (
    ClientConfig,
    Message,
    ProducerConfig,
    ReceivedMessage,
    TransactionState,
)
from ledgermq.client import Producer as AsyncProducer
from ledgermq.client.blocking import Producer, PushConsumer, TransactionalProducer
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand, encode
from ledgermq.state.errors import BrokerError, ConfigError
from ledgermq.testing import ClusterError, LedgerCluster, NodeState

ROOT = Path(__file__).resolve().parents[2]
# A leader that is lost is missed soon, and so is an answer; both may be tried again for long.
SETTINGS = {"heartBeatTimeIntervalMs": 150}
PATIENT = ProducerConfig(attempt_timeout_s=0.5, timeout_s=60.0)
DELAYED = "SCHEDULE_TOPIC_XXXX"


@pytest.fixture(scope="module")
def single() -> Iterator[LedgerCluster]:
    with LedgerCluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def group() -> Iterator[LedgerCluster]:
    with LedgerCluster(3, settings=SETTINGS) as cluster:
        yield cluster


def bodies(cluster: LedgerCluster, topic: str, node: str | None = None) -> list[bytes]:
    return [message.body for message in cluster.messages(topic, node=node)]


def has_message(cluster: LedgerCluster, topic: str, node: str) -> bool:
    return len(bodies(cluster, topic, node)) > 0


def wait_for_failure(cluster: LedgerCluster, body: bytes, times: int) -> None:
    """Waits until the broker has a message back that failed so many times."""

    def is_back() -> bool:
        found = [message for message in cluster.messages(DELAYED) if message.body == body]
        return times in {message.reconsume_times for message in found}

    cluster.wait_until(is_back, what=f"the broker to have {body!r} back for the {times}. time")


def send(cluster: LedgerCluster, topic: str, body: bytes, delay_level: int = 0) -> None:
    with Producer(cluster.name_server, config=PATIENT) as producer:
        producer.send(Message(topic, body, delay_level=delay_level))


class Caller:
    """A client that speaks to one broker, and may find it silent."""

    def __init__(self, address: str) -> None:
        host, _, port = address.partition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=30)

    def ask(self) -> None:
        self._socket.sendall(encode(RemotingCommand(code=RequestCode.GET_BROKER_RUNTIME_INFO)))

    def is_answered(self, wait_s: float = 30.0) -> bool:
        """Whether bytes come; an answer that does not come cannot come too late."""
        self._socket.settimeout(wait_s)
        try:
            return len(self._socket.recv(65_536)) > 0
        except TimeoutError:
            return False

    def close(self) -> None:
        self._socket.close()


# The clock.


def test_two_hours_pass_in_a_moment(single: LedgerCluster) -> None:
    send(single, "reminders", b"level 18", delay_level=18)
    assert bodies(single, "reminders") == []
    begun_s = time.monotonic()
    single.clock.advance(hours=2)
    single.wait_until(lambda: bodies(single, "reminders"))
    seconds = time.monotonic() - begun_s
    sys.stdout.write(f"two hours took {seconds * 1000:.0f} ms\n")
    assert seconds < 60
    waited_ms = (
        single.messages("reminders")[0].store_timestamp_ms
        - single.messages(DELAYED)[0].store_timestamp_ms
    )
    assert waited_ms >= 2 * 3600 * 1000


def test_clock_does_not_go_back(single: LedgerCluster) -> None:
    before = single.clock.ahead
    with pytest.raises(ValueError, match="ahead"):
        single.clock.advance(hours=1, minutes=-61)
    assert single.clock.ahead == before


def test_retries_follow_the_clock(single: LedgerCluster) -> None:
    """Ten seconds after the first failure, thirty after the second."""
    tries: list[int] = []

    def bill(message: ReceivedMessage) -> None:
        tries.append(message.reconsume_times)
        if message.reconsume_times < 2:
            raise ConnectionError("the bank does not answer")

    single.create_topic("bills")
    with PushConsumer(single.name_server, "billing", "bills", bill, start="first"):
        send(single, "bills", b"bill")
        for number, seconds in enumerate((10, 30), start=1):
            wait_for_failure(single, b"bill", number)
            single.clock.advance(seconds=seconds)
            single.wait_until(partial(tries.__contains__, number))
    assert single.offsets("billing")["bills"]


def test_transaction_is_checked_by_the_clock(single: LedgerCluster) -> None:
    asked: list[bytes] = []

    def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message.body)
        return TransactionState.COMMIT

    with TransactionalProducer(single.name_server, "shop", check) as producer:
        producer.send_half(Message("payments", b"paid"))
        assert single.clients("shop")
        assert bodies(single, "payments") == []
        single.clock.advance(minutes=2)
        single.wait_until(lambda: bodies(single, "payments"))
    assert set(asked) == {b"paid"}


# Nodes.


@pytest.mark.parametrize(
    ("verb", "state", "undo"),
    [
        ("kill", NodeState.DOWN, "restart"),
        ("shut_down", NodeState.DOWN, "restart"),
        ("pause", NodeState.PAUSED, "resume"),
        ("isolate", NodeState.ISOLATED, "heal"),
    ],
)
def test_group_goes_on_without_its_leader(
    group: LedgerCluster, verb: str, state: NodeState, undo: str
) -> None:
    send(group, verb, b"before")
    lost = group.wait_for_leader()
    getattr(group, verb)(lost)
    assert group.state(lost) is state
    assert group.leader != lost
    assert group.wait_for_leader() != lost
    send(group, verb, b"after")
    assert set(bodies(group, verb)) == {b"before", b"after"}
    if state is not NodeState.DOWN:
        assert b"after" not in bodies(group, verb, node=lost)
    getattr(group, undo)(lost)
    assert group.state(lost) is NodeState.RUNNING
    group.wait_until(lambda: bodies(group, verb, node=lost) == bodies(group, verb))


def test_paused_node_answers_when_it_goes_on(single: LedgerCluster) -> None:
    caller = Caller(single.address("n0"))
    single.pause("n0")
    caller.ask()
    assert not caller.is_answered(0.2)
    single.resume("n0")
    assert caller.is_answered()
    caller.close()


def test_isolated_leader_is_silent_or_reached_by_clients_only(group: LedgerCluster) -> None:
    lost = group.wait_for_leader()
    caller = Caller(group.address(lost))
    group.isolate(lost)
    caller.ask()
    assert not caller.is_answered(0.2)
    group.isolate(lost, from_clients=False)
    assert caller.is_answered()
    newcomer = Caller(group.address(lost))
    newcomer.ask()
    assert newcomer.is_answered()
    assert group.wait_for_leader() != lost
    group.heal(lost)
    for one in (caller, newcomer):
        one.close()


def test_killed_broker_keeps_its_messages_and_its_port(single: LedgerCluster) -> None:
    send(single, "kept", b"before")
    host, port = single.address("n0").split(":")
    single.kill("n0")
    with socket.socket() as probe:
        assert probe.connect_ex((host, int(port))) != 0
    with socket.socket() as thief, pytest.raises(OSError):
        thief.bind((host, int(port)))
    with pytest.raises(ClusterError, match="n0"):
        single.messages("kept", node="n0")
    single.restart("n0")
    single.wait_for_leader()
    send(single, "kept", b"after")
    assert set(bodies(single, "kept")) == {b"before", b"after"}


def test_send_waits_for_the_broker_to_come_back(single: LedgerCluster) -> None:
    single.create_topic("waiting")
    with Producer(single.name_server, config=PATIENT) as producer:
        single.kill("n0")
        sent = producer.submit(Message("waiting", b"patient"))
        single.restart("n0")
        assert sent.result(60).topic == "waiting"
    assert b"patient" in bodies(single, "waiting")


def test_name_server_that_comes_back_hears_of_the_broker(single: LedgerCluster) -> None:
    single.kill("namesrv")
    assert single.leader == "n0"
    single.restart("namesrv")
    single.wait_for_leader()
    send(single, "known_again", b"x")
    assert bodies(single, "known_again")


def test_restart_of_a_running_node_shuts_it_down_before(group: LedgerCluster) -> None:
    send(group, "rolled", b"x")
    for node in group.nodes:
        group.restart(node)
        group.wait_until(partial(has_message, group, "rolled", node))
    assert b"x" in bodies(group, "rolled")


def test_wrong_calls_say_what_is_wrong(single: LedgerCluster) -> None:
    with pytest.raises(ClusterError, match="'n1', only n0, namesrv"):
        single.kill("n1")
    with pytest.raises(ClusterError, match="n0 is running, it starts"):
        single._call(single._find("n0").start)
    with pytest.raises(ClusterError, match="namesrv is no broker"):
        single.messages("T", node="namesrv")
    with pytest.raises(BrokerError, match="illegal characters"):
        single.create_topic("no topic")
    with pytest.raises(ClusterError, match="waiting for a miracle"):
        single.wait_until(lambda: False, timeout_s=0.01, what="a miracle")
    with pytest.raises(ClusterError, match="started once"):
        single.start()
    single.kill("n0")
    try:
        with pytest.raises(ClusterError, match="n0 is down"):
            single.pause("n0")
        with pytest.raises(ClusterError, match="waiting for a leader"):
            single.wait_for_leader(timeout_s=0.01)
    finally:
        single.restart("n0")


# The whole.


@pytest.mark.parametrize("nodes", [0, 10])
def test_number_of_nodes_has_its_limits(nodes: int) -> None:
    with pytest.raises(ValueError, match="allowed are 1 to 9"):
        LedgerCluster(nodes)


def test_wrong_setting_is_refused_by_the_line_that_makes_the_cluster() -> None:
    with pytest.raises(ConfigError, match="maxMessageSize"):
        LedgerCluster(settings={"maxMessageSize": -1})
    with pytest.raises(ValueError, match="unknown configuration keys: maxMesageSize"):
        LedgerCluster(settings={"maxMesageSize": 1024})


def test_closed_cluster_can_be_closed_and_not_used() -> None:
    cluster = LedgerCluster()
    with pytest.raises(ClusterError, match="not started"):
        cluster.kill("n0")
    with cluster:
        assert cluster.leader == "n0"
    cluster.close()
    with pytest.raises(ClusterError, match="closed"):
        cluster.kill("n0")


def test_clusters_stand_side_by_side_in_an_event_loop() -> None:
    """Two of them, one client of asyncio, and the loop of that client is running meanwhile."""

    async def scenario() -> None:
        with LedgerCluster() as first, LedgerCluster() as second:
            for cluster in (first, second):
                config = ProducerConfig(client=ClientConfig(), timeout_s=60.0)
                async with AsyncProducer(cluster.name_server, config=config) as producer:
                    await producer.send(Message("orders", cluster.name_server.encode()))
            for cluster in (first, second):
                assert set(bodies(cluster, "orders")) == {cluster.name_server.encode()}

    asyncio.run(scenario())


@pytest.mark.timeout(240)
def test_clusters_leave_nothing_behind() -> None:
    """No port, thread, descriptor, delayed call, mapping or file; interop starts a hundred."""
    count = 20
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.e2e.many_clusters", str(count)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        timeout=200,
        check=True,
    )
    result = json.loads(done.stdout)
    sys.stdout.write(
        f"{result['count']} clusters in {result['seconds']} s, ready in the median after"
        f" {result['start_median_ms']} ms, {result['start_max_ms']} ms at most\n"
    )
    assert result["count"] == count
    assert result["threads"] == ["MainThread"]
    left = {key: result[key] for key in ("ports", "descriptors", "calls", "mappings", "files")}
    assert left == {"ports": [], "descriptors": 0, "calls": [], "mappings": 0, "files": []}
    assert result["brokers"] == 0
