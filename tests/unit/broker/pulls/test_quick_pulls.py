"""The quick road of pulls: the bytes of the long one, and nothing that is no longer so."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ledgermq.broker.clients.client_table import Client
from ledgermq.broker.counts.statistics import Statistics
from ledgermq.broker.dispatch import Dispatcher
from ledgermq.broker.pulls import quick_pulls
from ledgermq.broker.pulls.pull import PullProcessor
from ledgermq.broker.pulls.quick_pulls import QuickPulls, RunReader
from ledgermq.broker.selectors.filters import subscription_of
from ledgermq.commitlog import MessageStore
from ledgermq.protocol.codes import ResponseCode
from ledgermq.protocol.command import RemotingCommand, decode
from ledgermq.state.subscriptions import SubscriptionGroup
from ledgermq.state.topics import PERM_READ, PERM_WRITE, TopicConfig
from tests.unit.broker.parts import ListConnection, Parts
from tests.unit.commitlog.single_member import Broker, message

USUAL = {
    "consumerGroup": "g", "topic": "T", "queueId": "0", "queueOffset": "0", "maxMsgNums": "2",
    "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "15000", "subscription": "*",
    "subVersion": "0",
}  # fmt: skip


def frame_of(opaque: int = 7, **fields: object) -> bytes:
    """A pull; a field that is None is left out."""
    wanted = {name: str(value) for name, value in {**USUAL, **fields}.items() if value is not None}
    header = {
        "code": 11, "extFields": wanted, "flag": 0, "language": "JAVA", "opaque": opaque,
        "serializeTypeCurrentRPC": "JSON", "version": 399,
    }  # fmt: skip
    text = json.dumps(header, separators=(",", ":")).encode()
    return len(text).to_bytes(4, "big") + text


class Both:
    """Both roads over one store."""

    def __init__(self, root: Path, settings: dict[str, str], **store: Any) -> None:
        self.parts = Parts(**settings).lead()
        for name in ("T", "U"):
            self.parts.state.put_topic(TopicConfig(name, 4, 4))
        self.broker = Broker(root, **{"segment_bytes": 16_384, **store}).lead()
        self.statistics = Statistics("C", 0)
        self.pulls = PullProcessor(
            self.parts.config,
            self.parts.leadership,
            self.parts.state,
            self.parts.clients,
            self.broker.store,
            self.parts.parked,
            lambda: 0.0,
            20_000,
            self.statistics,
        )
        reader: RunReader = self.broker.store
        self.quick_pulls = QuickPulls(self.pulls, reader)
        self.dispatcher = Dispatcher(send_fields={}, on_connection_lost=lambda connection: None)
        self.dispatcher.install({11: self.pulls.pull})

    def fill(self, count: int, seed: int = 1) -> None:
        """Messages of many sizes in three queues, some with tags."""
        rng = Random(seed)
        for n in range(count):
            properties = b"TAGS\x01%d" % (n % 5) if n % 3 else b""
            body = rng.randbytes(rng.choice((0, 10, 900, 3000)))
            self.broker.send(message(body, topic="T", queue_id=n % 3, properties=properties))

    def quick(self, frame: bytes) -> bytes | None:
        """The answer of the quick road, None when it leaves the frame to the other."""
        connection: Any = ListConnection()
        taken = self.quick_pulls.take(connection, [frame])
        assert taken == len(connection.writes)
        return b"".join(connection.writes) if taken else None

    def long(self, frame: bytes) -> bytes:
        """The answer of the long road; b"" when the pull waits."""
        connection: Any = ListConnection()
        self.dispatcher.commands_received(connection, [decode(frame)])
        return b"".join(connection.writes)

    def said(self, frame: bytes) -> RemotingCommand:
        """The answer of the long road as a command, for those that bring no messages."""
        connection: Any = ListConnection()
        self.dispatcher.commands_received(connection, [decode(frame)])
        (answer,) = connection.commands
        assert isinstance(answer, RemotingCommand)
        return answer

    def is_same(self, frame: bytes) -> bool:
        """Whether the quick road took a frame; then both answer, note and count the same."""
        connection: Any = ListConnection()
        counted = []
        noted = []
        answers = []
        fields = decode(frame).ext_fields or {}
        place = str(fields.get("consumerGroup")), str(fields.get("topic"))
        for road in (self.quick, self.long):
            before = self.counts()
            pulled = self.parts.state.pulled.of(*place)
            pulled.clear()
            answers.append(road(frame))
            noted.append(dict(pulled))
            counted.append([a - b for a, b in zip(self.counts(), before, strict=True)])
        assert not connection.writes
        if answers[0] is None:
            return False
        assert answers[0] == answers[1]
        assert counted[0] == counted[1]
        assert noted[0] == noted[1] and len(noted[0]) == 1
        return True

    def counts(self) -> list[int]:
        got = self.statistics.gets.get("T@g", [0, 0, 0])
        return [self.pulls.found_count, self.pulls.message_count, *got]


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Both]:
    made = Both(tmp_path, {}, segment_bytes=1 << 20)
    made.fill(120)
    yield made
    made.broker.close()


def random_frame(rng: Random) -> bytes:
    """Mostly usual pulls, with an odd part now and then."""
    fields: dict[str, object] = {
        "queueId": rng.choice((0, 0, 1, 2)),
        "queueOffset": rng.choice((rng.randrange(45), 0, 38, 39, 40, 41)),
        "maxMsgNums": rng.choice((1, 2, 32, 33, 64, 2000)),
        "sysFlag": rng.choice((4, 5, 6)),
        "commitOffset": rng.randrange(40),
    }
    odd = {
        "queueId": (-1, 3, 4, "x"), "queueOffset": (-1, 2**40, "", "1.5", 2**70),
        "maxMsgNums": (0, -5, None), "sysFlag": (0, 12, 16, 2**31), "commitOffset": (-1, 2**62),
        "subscription": (None, "", "1 || 2", "*", "\\"), "subVersion": (5, None),
        "expressionType": ("TAG", "", "SQL92"), "consumerGroup": ("h", "", "g\u00e9"),
        "topic": ("U", "V", "T\u00e9"), "maxMsgBytes": (7, "x"), "suspendTimeoutMillis": ("",),
        "requestSource": (1, "-"), "other": ("x", "\n"),
    }  # fmt: skip
    if rng.random() < 0.4:
        name = rng.choice(list(odd))
        fields[name] = rng.choice(odd[name])
    return frame_of(rng.randrange(2**31), **fields)


@pytest.mark.parametrize(
    ("settings", "store"),
    [
        ({}, {}),
        ({}, {"memory_bytes_max": 5000}),
        ({}, {"machine_memory_bytes": 60_000}),
        ({"slaveReadEnable": "true"}, {"memory_count_max": 5, "segment_bytes": 1 << 20}),
    ],
)
def test_both_roads_give_the_same_bytes(
    tmp_path: Path, settings: dict[str, str], store: dict[str, Any]
) -> None:
    both = Both(tmp_path, settings, **store)
    both.fill(120)
    rng = Random(5)
    taken = 0
    for n in range(700):
        if n == 300:
            both.broker.ledger_store.drop_before(16_384)
        taken += both.is_same(random_frame(rng))
    assert taken > 60
    both.broker.close()


def test_damaged_frames_are_taken_only_for_what_they_are(both: Both) -> None:
    rng = Random(6)
    for _ in range(1500):
        frame = bytearray(frame_of(queueOffset=rng.randrange(30)))
        for _ in range(rng.choice((1, 1, 2))):
            frame[rng.randrange(len(frame))] = rng.randrange(256)
        if both.quick(bytes(frame)) is not None:
            assert both.is_same(bytes(frame))


def test_offset_that_comes_with_a_pull_is_stored(both: Both) -> None:
    assert both.quick(frame_of(sysFlag=5, commitOffset=3, queueOffset=4)) is not None
    both.parts.state.write_offsets()
    assert both.parts.state.offsets.find("g", "T", 0) == 3
    # The long road says why not.
    assert both.quick(frame_of(sysFlag=5, commitOffset=-3, queueOffset=4)) is None
    both.parts.state.write_offsets()
    assert both.parts.state.offsets.find("g", "T", 0) == 3


def flip(both: Both, offset: int, at: int) -> None:
    """Flips a bit of a record of queue 0."""
    queue = both.broker.store.find_queue("T", 0)
    assert queue is not None
    place = queue.unit(offset).physical_offset + at
    segment = both.broker.ledger_store.data.segment_at(place)
    at = place - segment.start_offset
    segment.write(at, bytes([segment.read(at, 1)[0] ^ 1]))


@pytest.mark.parametrize("at", [-12, -8, -1, 15, 27, 35, 60])
def test_damaged_record_is_left_to_the_long_road(both: Both, at: int) -> None:
    # The chain checksum of a filled entry is another's business.
    is_seen = at not in (-12, -1)
    assert both.is_same(frame_of(queueOffset=3, maxMsgNums=2))
    flip(both, 4, at)
    answer = both.quick(frame_of(queueOffset=3, maxMsgNums=2))
    assert (answer is None) == is_seen
    assert both.is_same(frame_of(queueOffset=5, maxMsgNums=2))
    if is_seen:
        said = both.said(frame_of(queueOffset=4))
        assert said.code == ResponseCode.SYSTEM_ERROR


def test_changes_are_seen_by_the_next_pull(both: Both) -> None:
    state, frame = both.parts.state, frame_of()
    assert both.is_same(frame)
    state.put_topic(TopicConfig("T", 4, 4, PERM_WRITE))
    assert both.quick(frame) is None
    assert both.said(frame).code == ResponseCode.NO_PERMISSION
    state.put_topic(TopicConfig("T", 4, 4, PERM_READ))
    assert both.is_same(frame)
    state.put_topic(TopicConfig("T", 0, 4))
    assert both.quick(frame) is None
    state.put_topic(TopicConfig("T", 4, 4))
    state.put_group(SubscriptionGroup("g", can_consume=False))
    assert both.quick(frame) is None
    assert both.said(frame).code == ResponseCode.NO_PERMISSION
    state.remove_group("g", False)
    # The long road makes it anew.
    assert both.is_same(frame) or both.is_same(frame)
    state.remove_topic("T")
    assert both.quick(frame) is None
    assert both.said(frame).code == ResponseCode.TOPIC_NOT_EXIST


def test_deleted_group_that_is_not_made_on_use_is_seen(tmp_path: Path) -> None:
    both = Both(tmp_path, {"autoCreateSubscriptionGroup": "false"})
    both.fill(9)
    assert both.quick(frame_of()) is None
    both.parts.state.put_group(SubscriptionGroup("g"))
    assert both.is_same(frame_of())
    both.parts.state.groups.follow([], ["g"], both.parts.state.groups.version)
    assert both.quick(frame_of()) is None
    assert both.said(frame_of()).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    both.broker.close()


def test_permission_of_the_broker_is_seen(both: Both) -> None:
    assert both.is_same(frame_of())
    closed = replace(both.parts.config, broker_permission=PERM_WRITE)
    both.pulls._config = closed
    both.parts.state.permission_changed()
    assert both.quick(frame_of()) is None


def beat(both: Both, expression: str, version: int, *, model: str = "CLUSTERING") -> None:
    both.parts.clients.register_consumer(
        "c1",
        Client("c1", 0, 399, "10.0.0.9:5555", 0),
        "g",
        consume_type="CONSUME_PASSIVELY",
        message_model=model,
        consume_from_where="CONSUME_FROM_LAST_OFFSET",
        subscriptions=[subscription_of("T", expression, "TAG", version)],
    )


def test_subscription_of_a_heart_beat_is_followed(both: Both) -> None:
    frame = frame_of(sysFlag=2, subscription=None, subVersion=1)
    assert both.quick(frame) is None
    beat(both, "*", 1)
    assert both.is_same(frame)
    known = both.quick_pulls._known
    beat(both, "*", 1)
    assert both.is_same(frame)
    # A heart beat that says nothing new has nothing forgotten.
    assert both.quick_pulls._known is known
    beat(both, "1 || 2", 2)
    assert both.quick(frame) is None
    beat(both, "*", 3)
    assert both.is_same(frame)
    assert both.quick(frame_of(sysFlag=2, subscription=None, subVersion=4)) is None
    both.parts.state.put_group(SubscriptionGroup("g", can_broadcast=False))
    assert both.is_same(frame)
    beat(both, "*", 3, model="BROADCASTING")
    assert both.quick(frame) is None
    beat(both, "*", 3)
    assert both.is_same(frame)
    both.parts.clients.connection_lost("c1")
    assert both.quick(frame) is None
    assert both.said(frame).code == ResponseCode.SUBSCRIPTION_NOT_EXIST


def test_only_so_many_pulls_are_remembered(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick_pulls, "KNOWN_MAX", 10)
    for n in range(100):
        assert both.is_same(frame_of(subVersion=n))
        assert len(both.quick_pulls._known) <= 10
    # Of a text that is too long nothing is.
    assert both.quick(frame_of(subscription=" " * 1000 + "*")) is None


def test_pull_with_a_filter_is_checked_once(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    both.parts.state.put_group(SubscriptionGroup("g"))
    frame = frame_of(subscription="1 || 2")
    assert both.quick(frame) is None
    monkeypatch.setattr(both.pulls, "admit", None)
    assert both.quick(frame) is None


def test_pulls_are_taken_from_the_front_up_to_one_that_is_not_quick(both: Both) -> None:
    connection: Any = ListConnection()
    frames = [frame_of(n, queueOffset=n, maxMsgNums=1) for n in range(4)]
    frames.insert(2, frame_of(9, queueOffset=99))
    assert both.quick_pulls.take(connection, frames) == 2
    assert connection.writes == [both.long(frame) for frame in frames[:2]]


def test_client_that_does_not_read_is_left_to_the_long_road(both: Both) -> None:
    connection: Any = ListConnection()
    connection.unsent_bytes = 9 << 20
    assert both.quick_pulls.take(connection, [frame_of()]) == 0


def test_queue_whose_messages_were_deleted_has_none(both: Both) -> None:
    assert both.is_same(frame_of())
    store: MessageStore = both.broker.store
    store.delete_topic("T")
    assert both.quick(frame_of()) is None
    both.broker.send(message(b"new", topic="T"))
    assert both.is_same(frame_of(queueOffset=40))
