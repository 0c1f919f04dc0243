"""`ledgermq admin` about groups, messages and settings, against a cluster and a consumer of it."""

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from ledgermq.cli.remote import Remote
from ledgermq.client import Message, NoRouteError, ReceivedMessage, SendResult, blocking
from tests.e2e.test_cli_admin import run
from tests.e2e.up_cluster import UpCluster
from tests.waiting import wait_until

TOPIC, GROUP, CLUSTER = "AdminOrders", "admin-orders", "DefaultCluster"
COUNT = 8


class Place:
    """The cluster, what was sent to it, and what its consumer saw."""

    def __init__(self, name_server: str, broker: str) -> None:
        self.name_server = name_server
        self.broker = broker
        self.sent: list[SendResult] = []
        self.seen: list[bytes] = []
        self.client_id = ""

    def admin(self, *words: object) -> Any:
        """The JSON that a subcommand prints."""
        code, out, err = run("admin", words[0], "--json", "-n", self.name_server, *words[1:])
        assert code == 0, err
        return json.loads(out)

    def fails(self, *words: object) -> str:
        """The one line in which a subcommand says why it failed."""
        code, out, err = run("admin", words[0], "-n", self.name_server, *words[1:])
        assert (code, out, len(err.splitlines())) == (1, "", 1), err
        return err

    def behind(self, group: str = GROUP) -> int:
        """How many messages of the topic a group has not consumed."""
        rows = self.admin("consumerProgress", "-g", group)
        return sum(row["behind"] for row in rows if row["topic"] == TOPIC)


@pytest.fixture(scope="module")
def place(up_cluster: UpCluster) -> Iterator[Place]:
    """Eight messages, all consumed by a member of a group that stays online."""
    place = Place(up_cluster.name_server, up_cluster.nodes()[0]["address"])
    place.admin("updateTopic", "-c", CLUSTER, "-t", TOPIC, "-r", 2, "-w", 2)
    done = threading.Event()

    def listen(message: ReceivedMessage) -> None:
        place.seen.append(message.body)
        if len(place.seen) == COUNT:
            done.set()

    def is_known() -> bool:
        try:
            return len(reader.queues(TOPIC)) == 2
        except NoRouteError:
            return False

    with blocking.PullConsumer(place.name_server) as reader:
        wait_until(is_known, what="the topic")
    with blocking.Producer(place.name_server) as producer:
        for number in range(COUNT):
            message = Message(TOPIC, b"%d" % number, keys=f"k{number} all", tags="AB"[number % 2])
            place.sent.append(producer.send(message))
    with blocking.PushConsumer(place.name_server, GROUP, TOPIC, listen, start="first") as consumer:
        assert done.wait(30)
        consumer.commit()
        # Subcommands find the group's brokers by the route of this topic.
        retries = ("admin", "topicRoute", "-n", place.name_server, "-t", f"%RETRY%{GROUP}")
        wait_until(lambda: run(*retries)[0] == 0, what="the route of the retry topic")
        place.client_id = consumer.client_id

        def has_all_queues() -> bool:
            topics = {row["topic"] for row in place.admin("consumerStatus", "-g", GROUP)}
            return topics == {TOPIC, f"%RETRY%{GROUP}"}

        wait_until(has_all_queues, what="the queue of the retry topic")
        yield place


def test_consumer_tells_its_state(place: Place) -> None:
    rows = place.admin("consumerStatus", "-g", GROUP)
    own = [row for row in rows if row["topic"] == TOPIC]
    assert {row["client"] for row in rows} == {place.client_id}
    assert sum(row["next_offset"] for row in own) == COUNT
    assert place.admin("consumerStatus", "-g", GROUP, "-i", place.client_id) == rows
    assert "'nobody'" in place.fails("consumerStatus", "-g", GROUP, "-i", "nobody")


def test_messages_are_found_by_id_key_and_place(place: Place) -> None:
    first = place.sent[0]
    for words in (
        ("queryMsgById", "-i", first.offset_message_id),
        ("queryMsgByUniqueKey", "-t", TOPIC, "-i", first.message_id),
        ("queryMsgByKey", "-t", TOPIC, "-k", "k0"),
        (
            "queryMsgByOffset", "-t", TOPIC, "-b", first.broker_name, "-i", first.queue_id,
            "-o", first.queue_offset,
        ),
    ):  # fmt: skip
        (found,) = place.admin(*words)
        assert (found["body"], found["id"], found["keys"]) == ("0", first.message_id, "k0 all")
        assert (found["topic"], found["queue"]) == (TOPIC, first.queue_id)
        # A place alone does not tell the name of its broker.
        assert words[0] == "queryMsgById" or found["broker"] == first.broker_name
    assert len(place.admin("queryMsgByKey", "-t", TOPIC, "-k", "all")) == COUNT
    assert place.admin("queryMsgByKey", "-t", TOPIC, "-k", "k") == []
    _, text, _ = run(
        "admin", "queryMsgById", "-n", place.name_server, "-i", first.offset_message_id
    )
    assert text.splitlines()[0].split()[:3] == ["topic", "broker", "queue"]
    beyond = ("-b", first.broker_name, "-i", first.queue_id, "-o", 1000)
    assert "1000" in place.fails("queryMsgByOffset", "-t", TOPIC, *beyond)
    assert "hexadecimal" in place.fails("queryMsgById", "-i", "xyz")


def test_messages_of_a_topic_are_printed(place: Place) -> None:
    bodies = [row["body"] for row in place.admin("printMsg", "-t", TOPIC)]
    assert sorted(map(int, bodies)) == list(range(COUNT))
    tagged = [row["body"] for row in place.admin("printMsg", "-t", TOPIC, "-s", "A")]
    assert sorted(map(int, tagged)) == [0, 2, 4, 6]
    assert len(place.admin("printMsg", "-t", TOPIC, "-m", 3)) == 3
    assert place.admin("printMsg", "-t", TOPIC, "-e", 1) == []
    queue = ("-a", place.sent[0].broker_name, "-i", place.sent[0].queue_id)
    assert len(place.admin("printMsgByQueue", "-t", TOPIC, *queue)) == COUNT // 2
    assert "'later'" in place.fails("printMsg", "-t", TOPIC, "-b", "later")


def test_messages_are_read_and_their_units(place: Place) -> None:
    first = place.sent[0]
    queue = ("-b", first.broker_name, "-i", first.queue_id)
    some = place.admin("consumeMessage", "-t", TOPIC, *queue, "-c", 2)
    assert [(row["queue"], row["offset"]) for row in some] == [(first.queue_id, n) for n in (0, 1)]
    assert len(place.admin("consumeMessage", "-t", TOPIC)) == COUNT
    assert "-b and -i" in place.fails("consumeMessage", "-t", TOPIC, "-i", 0)
    units = place.admin("queryCq", "-t", TOPIC, "-q", first.queue_id, "-i", 0, "-c", 2)
    assert [unit["offset"] for unit in units] == [0, 1]
    assert f"{units[0]['physical_offset']:016X}" == first.offset_message_id[-16:]


def test_a_consumer_consumes_a_message_again(place: Place) -> None:
    before = len(place.seen)
    words = ("-i", place.sent[3].offset_message_id, "-g", GROUP, "-d", place.client_id)
    (told,) = place.admin("queryMsgById", *words)
    assert told["result"] == "CR_SUCCESS"
    assert place.seen[before:] == [b"3"]
    assert "-d" in place.fails("queryMsgById", *words[:4])


def test_offsets_are_cloned_reset_and_skipped(place: Place) -> None:
    copy = "admin-copy"
    place.admin("updateSubGroup", "-c", CLUSTER, "-g", copy)
    with Remote(place.name_server) as remote:
        assert remote.masters(CLUSTER) == [place.broker]
    cloned = place.admin("cloneGroupOffset", "-s", GROUP, "-d", copy, "-t", TOPIC)
    assert sum(row["offset"] for row in cloned) == COUNT
    before = len(place.seen)
    reset = place.admin("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", 1)
    assert [row["offset"] for row in reset] == [0, 0]
    wait_until(lambda: len(place.seen) == before + COUNT, what="all messages again")
    wait_until(lambda: place.behind() == 0, what="their commit")
    skipped = place.admin("skipAccumulatedMessage", "-g", GROUP, "-t", TOPIC)
    assert [row["offset"] for row in skipped] == [COUNT // 2] * 2
    assert "'soon'" in place.fails("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "soon")


def test_offsets_of_a_group_without_members_are_written(place: Place) -> None:
    group = "admin-gone"
    with blocking.PushConsumer(place.name_server, group, TOPIC, start="first") as consumer:
        assert sum(1 for _ in zip(range(COUNT), consumer, strict=False)) == COUNT
        consumer.acknowledge()
    wait_until(lambda: place.behind(group) == 0, what="the commit")
    place.admin("resetOffsetByTime", "-g", group, "-t", TOPIC, "-s", 1)
    assert place.behind(group) == COUNT
    place.admin("skipAccumulatedMessage", "-g", group, "-t", TOPIC)
    assert place.behind(group) == 0


def test_consumers_are_watched(place: Place) -> None:
    wait_until(lambda: place.behind() == 0, what="all consumed")
    words = ("admin", "startMonitoring", "-n", place.name_server, "-i", 1, "-r", 2)
    code, out, err = run(*words, "--json")
    assert (code, err) == (0, "")
    rows = [row for line in out.splitlines() if (row := json.loads(line))["group"] == GROUP]
    assert [row["topic"] for row in rows] == [f"%RETRY%{GROUP}", TOPIC] * 2
    assert {row["behind"] for row in rows} == {0}
    with socket.socket() as silent:
        # Taken, so that nobody else listens there.
        silent.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{silent.getsockname()[1]}"
        code, out, err = run("admin", "startMonitoring", "-n", nobody, "-r", 1)
    assert code == 0 and out.split()[0] == "time" and f"no answer from {nobody}" in err


def test_a_group_is_made_shown_and_deleted(place: Place) -> None:
    group = "admin-made"
    place.admin("updateSubGroup", "-b", place.broker, "-g", group, "-r", 3, "-s", "false")
    (row,) = place.admin("getConsumerConfig", "-g", group)
    assert (row["group"], row["retries"], row["enabled"]) == (group, 3, False)
    place.admin("deleteSubGroup", "-c", CLUSTER, "-g", group)
    assert group in place.fails("getConsumerConfig", "-g", group)


def test_key_values_and_settings(place: Place) -> None:
    place.admin("updateKvConfig", "-s", "AdminTest", "-k", "a", "-v", "1")
    place.admin("deleteKvConfig", "-s", "AdminTest", "-k", "a")
    order = ("updateOrderConf", "-t", TOPIC, "-m")
    assert place.admin(*order, "put", "-v", "broker-a:2") == place.admin(*order, "get")
    place.admin(*order, "delete")
    assert TOPIC in place.fails(*order, "get")
    assert "get, put, delete" in place.fails(*order, "guess")
    told = {row["key"]: row["value"] for row in place.admin("getNamesrvConfig")}
    assert told["bindAddress"] == "127.0.0.1"
    change = ("updateBrokerConfig", "-b", place.broker, "-k", "defaultQueryMaxNum", "-v")
    place.admin(*change, "33")
    told = {row["key"]: row["value"] for row in place.admin("getBrokerConfig", "-c", CLUSTER)}
    assert told["defaultQueryMaxNum"] == "33"
    assert "defaultQueryMaxNum" in place.fails(*change, "many")


def test_what_has_expired_is_deleted_when_told(place: Place) -> None:
    assert len(place.admin("deleteExpiredCommitLog", "-b", place.broker)) == 1
    assert len(place.admin("deleteExpiredCommitLog", "-c", CLUSTER)) >= 1


def test_permissions_of_topics(place: Place) -> None:
    topic = "AdminPerm"
    place.admin("updateTopic", "-c", CLUSTER, "-t", topic, "-r", 3, "-w", 3)

    def perms() -> list[int]:
        code, out, _ = run("admin", "topicRoute", "--json", "-n", place.name_server, "-t", topic)
        return [row["perm"] for row in json.loads(out)["queueDatas"]] if code == 0 else []

    wait_until(lambda: perms() == [6], what="the topic")
    (row,) = place.admin("updateTopicPerm", "-c", CLUSTER, "-t", topic, "-p", 4)
    assert (row["read"], row["write"], row["perm"]) == (3, 3, 4)
    wait_until(lambda: perms() == [4], what="its new permission")
    assert topic in place.fails("updateTopicPerm", "-b", "127.0.0.1:1", "-t", topic, "-p", 6)
    assert place.admin("topicClusterList", "-t", topic) == [{"cluster": CLUSTER}]
    assert [row["topics"] for row in place.admin("wipeWritePerm", "-b", "nobody")] == [0]
    (row,) = place.admin("addWritePerm", "-b", place.sent[0].broker_name)
    assert row["topics"] > 1


def test_statistics_and_shares(place: Place) -> None:
    rows = [row for row in place.admin("statsAll", "-t", TOPIC) if row["group"] == GROUP]
    assert rows[0]["in_today"] >= 0
    assert any(
        row["group"] == GROUP for row in place.admin("brokerConsumeStats", "-b", place.broker)
    )
    shares = place.admin("allocateMQ", "-t", TOPIC, "-i", "b,a")
    assert [(row["member"], row["queue"]) for row in shares] == [("a", 0), ("b", 1)]
    place.admin("cleanExpiredCQ", "-b", place.broker)
    place.admin("cleanUnusedTopic", "-c", CLUSTER)


def test_a_message_is_sent(place: Place) -> None:
    words = ("-t", "AdminSent", "-p", "hello", "-k", "key", "-c", "tag")
    (sent,) = place.admin("sendMessage", *words)
    assert sent["offset"] == 0
    assert "topic 'a b' holds ' '" in place.fails("sendMessage", "-t", "a b", "-p", "x")
    timed = place.admin("checkMsgSendRT", "-t", "AdminSent", "-a", 3)
    assert len(timed) == 3 and all(row["ms"] > 0 for row in timed)
    timed = place.admin("sendMsgStatus", "-b", "broker-a", "-c", 2)
    assert [row["broker"] for row in timed] == ["broker-a"] * 2
    (times,) = place.admin("clusterRT", "-a", 3)
    assert (times["cluster"], times["messages"]) == (CLUSTER, 3)
    assert 0 < times["mean_ms"] <= times["longest_ms"]
    assert CLUSTER in place.fails("clusterRT", "-c", "nowhere")
