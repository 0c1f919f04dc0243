"""All limits at once: many topics, many groups, small records, and everybody in a hurry.

One leader with its real limits gets sends, heart beats, commits, locks, tools' changes and removals
in an order that is drawn; the log takes them late, refuses some and forgets to answer others. What
is refused must say why, no table may pass a limit, and whoever has the log, or a sweep of it, or
the files of a restart, must have the leader's state.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport

from ledgermq.broker.admin.topics import TopicProcessor
from ledgermq.broker.clients.client_table import ClientTable
from ledgermq.broker.clients.heartbeat import ClientProcessor
from ledgermq.broker.clients.request_limits import with_limits
from ledgermq.broker.dispatch import Processor
from ledgermq.broker.offsets.processor import OffsetProcessor
from ledgermq.broker.storage.state_files import StateFile
from ledgermq.broker.storage.state_tables import StateTables
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.errors import ProtocolError
from ledgermq.protocol.transport import CommandProtocol
from ledgermq.state.errors import BrokerError, CommitTimeoutError, SystemBusyError
from tests.unit.broker.parts import Parts
from tests.unit.protocol.wires import Recorder

SETTINGS: Final = {
    "maxMessageSize": "65536",
    "mappedFileSizeCommitLog": "69632",
    "maxTopicCount": "50",
    "maxGroupCount": "25",
    "maxNewTopicsPerAddress": "1",
    "maxNewTopicsAtOnce": "2",
    "maxNewGroupsPerAddress": "1",
    "maxNewGroupsAtOnce": "5",
    "maxHeartbeatGroups": "12",
    "maxHeartbeatBytes": "8192",
    "maxLockQueues": "8",
    "offsetsRetentionMinutes": "30",
    "fileReservedTime": "1",
}
OFFSETS_BYTES_MAX: Final = 2_500
LOCKS_BYTES_MAX: Final = 1_200
TABLE_BYTES_MAX: Final = 150_000
STEPS: Final = 600
# What a refusal has besides its number: a limit, a key, or what is not there.
_REASONS: Final = ("allowed", "key ", "not exist", "does not", "illegal", "allowing", "longer than")


def machine(**settings: str) -> Parts:
    """A member with the small limits."""
    parts = Parts(**{**SETTINGS, **settings})
    state = parts.state
    state.offsets._bytes_max = OFFSETS_BYTES_MAX
    state.locks._bytes_max = LOCKS_BYTES_MAX
    state.topics._bytes_max = state.groups._bytes_max = TABLE_BYTES_MAX
    return parts


def documents(parts: Parts) -> str:
    """All tables of a member."""
    state = parts.state
    tables = (state.topics, state.groups, state.offsets, state.locks)
    return json.dumps([table.document().whole() for table in tables], sort_keys=True)


class Hurry:
    """Clients and tools of one leader."""

    def __init__(self, seed: int, **settings: str) -> None:
        self.rng = random.Random(seed)
        self.parts = machine(**settings).lead(is_prompt=False)
        parts = self.parts
        parts.clients = ClientTable(parts.config.heart_beat_groups_max)
        self.clients = ClientProcessor(
            parts.config, parts.leadership, parts.state, parts.clients,
            lambda: parts.now_ms, lambda: float(parts.now_ms), parts.turn.soon,
        )  # fmt: skip
        offsets = OffsetProcessor(parts.leadership, parts.state, _NoStore(), 0, _relay)
        tools = TopicProcessor(
            parts.config, parts.leadership, parts.state, frozenset(), lambda: succeed(None)
        )
        code = RequestCode
        table: dict[int, Processor] = {
            int(code.HEART_BEAT): self.clients.heart_beat,
            int(code.LOCK_BATCH_MQ): self.clients.lock,
            int(code.UNLOCK_BATCH_MQ): self.clients.unlock,
            int(code.UPDATE_CONSUMER_OFFSET): offsets.update,
            int(code.UPDATE_AND_CREATE_TOPIC): tools.put_topic,
            int(code.DELETE_TOPIC_IN_BROKER): tools.delete_topic,
            int(code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP): tools.put_group,
            int(code.DELETE_SUBSCRIPTIONGROUP): tools.delete_group,
            int(code.SEND_MESSAGE): parts.sends.send,
        }
        self.processors = with_limits(table, parts.config)
        self.connections = [_connection(number) for number in range(4)]
        # All that is committed, in its order; and why something was refused.
        self.log: list[bytes] = list(parts.first)
        self.refusals: set[str] = set()
        self.count = 0

    # What is drawn.

    def topic(self) -> str:
        return f"T{self.rng.randrange(90)}" + "x" * self.rng.choice((0, 0, 100))

    def group(self) -> str:
        return f"g{self.rng.randrange(70)}" + "y" * self.rng.choice((0, 0, 0, 100, 200))

    def ask(self, code: int, body: Any = b"", **fields: object) -> None:
        """One request; a refusal must say why."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        command = RemotingCommand(code=int(code), body=content)
        command.ext_fields = {name: str(value) for name, value in fields.items()}
        self.count += 1
        try:
            answer = self.processors[int(code)](self.rng.choice(self.connections), command)
        except (BrokerError, ProtocolError) as error:
            self._refused(error)
        else:
            if isinstance(answer, Deferred):
                answer.addErrback(lambda failure: self._refused(failure.value))

    def _refused(self, error: BaseException) -> None:
        text = str(error)
        is_clear = text == "the log says no" or any(reason in text for reason in _REASONS)
        assert isinstance(error, BrokerError | ProtocolError) and is_clear, text
        self.refusals.add(type(error).__name__)

    def beat(self) -> None:
        count = self.rng.choice((1, 2, 3, 11, 30))
        wanted = {"topic": self.topic(), "subString": "A||" * self.rng.choice((0, 1, 900))}
        consumers = [
            {"groupName": self.group(), "subscriptionDataSet": [wanted]} for _ in range(count)
        ]
        body = {"clientID": f"c{self.rng.randrange(9)}", "consumerDataSet": consumers}
        self.ask(RequestCode.HEART_BEAT, body)

    def commit(self) -> None:
        for _ in range(self.rng.choice((1, 10, 60))):
            self.ask(
                RequestCode.UPDATE_CONSUMER_OFFSET,
                consumerGroup=self.group(),
                topic=self.topic(),
                queueId=self.rng.randrange(10),
                commitOffset=self.rng.randrange(100),
            )

    def lock(self) -> None:
        queues = [
            {"topic": self.topic(), "brokerName": "b", "queueId": self.rng.randrange(9)}
            for _ in range(self.rng.choice((1, 6, 8, 20)))
        ]
        body = {
            "consumerGroup": self.group(),
            "clientId": f"c{self.rng.randrange(9)}" + "z" * self.rng.choice((0, 200)),
            "mqSet": queues,
        }
        code = self.rng.choice((RequestCode.LOCK_BATCH_MQ,) * 4 + (RequestCode.UNLOCK_BATCH_MQ,))
        self.ask(code, body)

    def send(self) -> None:
        fields = {
            "producerGroup": "pg", "topic": self.topic(), "defaultTopic": "TBW102",
            "defaultTopicQueueNums": 4, "queueId": 1, "sysFlag": 0, "bornTimestamp": 17,
            "flag": 0, "properties": "",
        }  # fmt: skip
        self.ask(RequestCode.SEND_MESSAGE, b"x" * self.rng.choice((1, 1000, 70_000)), **fields)

    def put_topic(self) -> None:
        self.ask(
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            topic=self.topic(), defaultTopic="TBW102", readQueueNums=self.rng.choice((1, 8)),
            writeQueueNums=8, perm=6, topicFilterType="SINGLE_TAG", topicSysFlag=0, order="false",
            attributes=self.rng.choice(("", "+message.type=FIFO")),
        )  # fmt: skip

    def put_group(self) -> None:
        # Some are as large as a record just takes, where each character is six bytes.
        length = self.rng.choice((10, 9_000, 20_000, 59_000, self.rng.randrange(10_900, 11_450)))
        text = self.rng.choice(("", "a", "\u4e2d", "\u4e2d")) * length
        wanted = [{"topic": "T", "expression": text}] if text else None
        body = {"groupName": self.group(), "subscriptionDataSet": wanted}
        self.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)

    def remove(self) -> None:
        if self.rng.random() < 0.5:
            self.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic=self.topic())
        else:
            forgets = self.rng.choice(("true", "false"))
            code = RequestCode.DELETE_SUBSCRIPTIONGROUP
            self.ask(code, groupName=self.group(), cleanOffset=forgets)

    def leave(self) -> None:
        number = self.rng.randrange(len(self.connections))
        self.clients.connection_lost(self.connections[number])
        self.connections[number] = _connection(number)

    def time_passes(self) -> None:
        self.parts.now_ms += self.rng.choice((200, 200, 900, 3_000, 61_000, 1_000_000))
        self.parts.state.write_offsets()
        self.clients.close_silent()

    def sweep(self) -> None:
        self.parts.state.begin_sweep()
        for _ in range(3):
            self.parts.state.sweep()
            self.settle()

    def settle(self) -> None:
        """The log takes what is on its way, refuses it, or says nothing for long."""
        self.parts.turn.end()
        chance = self.rng.random()
        if chance < 0.15:
            self.parts.commit_state(SystemBusyError("the log says no"))
        elif chance < 0.25:
            late = [body for body, _ in self.parts.written]
            self.parts.commit_state(CommitTimeoutError("allowed time is over"))
            for body in late:
                self.parts.state.apply(body, self.parts.index)
                self.parts.index += 1
            self._take(late)
        else:
            self._take(self.parts.commit_state())
        self.parts.proposals.committed(1 << 60)

    def _take(self, bodies: list[bytes]) -> None:
        limit = self.parts.config.segment_bytes
        assert all(len(body) <= limit - 1024 for body in bodies)
        self.log += bodies

    def finish(self) -> None:
        """All is quiet, and the log takes everything."""
        for _ in range(5):
            self.parts.now_ms += 120_000
            self.parts.turn.end()
            self.parts.state.write_offsets()
            self._take(self.parts.commit_state())

    def check(self) -> None:
        """No table passes a limit."""
        state, config = self.parts.state, self.parts.config
        assert len(state.topics) <= config.topics_max and len(state.groups) <= config.groups_max
        assert state.topics.json_bytes <= TABLE_BYTES_MAX >= state.groups.json_bytes
        assert len(state.offsets) <= 1000 and state.offsets.json_bytes <= OFFSETS_BYTES_MAX
        assert state.locks.json_bytes <= LOCKS_BYTES_MAX
        groups = config.heart_beat_groups_max * len(self.connections)
        assert self.parts.clients.memberships_count <= groups


def _connection(number: int) -> CommandProtocol:
    connection = CommandProtocol(Clock(), Recorder())
    connection.context = (bytes((10, 0, 0, number)), 5555)
    connection.makeConnection(StringTransport())
    return connection


class _NoStore:
    """Offsets are stored without a look at the queues."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


def _relay(header: object, fields: object, payer: str) -> None:
    raise AssertionError("the leader passed an offset on")


def actions(hurry: Hurry) -> list[tuple[Callable[[], None], float]]:
    """What may come next, and how often."""
    return [
        (hurry.beat, 4), (hurry.commit, 9), (hurry.lock, 4), (hurry.send, 4), (hurry.put_topic, 3),
        (hurry.put_group, 4), (hurry.remove, 2), (hurry.leave, 1), (hurry.time_passes, 4),
        (hurry.settle, 8), (hurry.sweep, 1),
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_limits_hold_together_and_every_copy_is_equal(seed: int, tmp_path: Path) -> None:
    hurry = Hurry(seed)
    parts, state = hurry.parts, hurry.parts.state
    chosen, weights = zip(*actions(hurry), strict=True)
    for _ in range(STEPS):
        hurry.rng.choices(chosen, weights)[0]()
        hurry.check()
    hurry.finish()
    hurry.check()
    expected = documents(parts)

    # Whoever has the log.
    follower = machine()
    for index, body in enumerate(hurry.log):
        follower.state.apply(body, index)
    assert documents(follower) == expected
    # Whoever has a sweep, which comes to its end: no entry is too large for its part.
    newcomer = machine()
    swept: list[bytes] = []
    state.begin_sweep()
    for _ in range(2000):
        parts.now_ms += 50
        state.sweep()
        swept += parts.commit_state()
        if state.is_swept:
            break
    assert state.is_swept and state.alarm is None
    for index, body in enumerate(swept):
        newcomer.state.apply(body, index)
    assert documents(newcomer) == expected and newcomer.state.sweep_index >= 0
    # Whoever starts from the files.
    files = _tables(tmp_path, parts)
    assert files.save() and files.alarm is None
    restarted = machine()
    _tables(tmp_path, restarted).load()
    assert documents(restarted) == expected
    for one, other in (
        (restarted.state.offsets, state.offsets),
        (restarted.state.topics, state.topics),
        (restarted.state.groups, state.groups),
        (restarted.state.locks, state.locks),
    ):
        assert one.json_bytes == other.json_bytes  # type: ignore[attr-defined]


def test_the_largest_group_that_is_taken_has_room_in_a_sweep() -> None:
    """A part of a sweep says more around an entry than the record that brought it."""
    hurry = Hurry(0)
    state, name = hurry.parts.state, "g" * 255

    def is_taken(length: int) -> bool:
        wanted = [{"topic": "T", "expression": "\u4e2d" * length}]
        body = {"groupName": name, "subscriptionDataSet": wanted}
        hurry.refusals.clear()
        hurry.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)
        hurry._take(hurry.parts.commit_state())
        return not hurry.refusals

    low, high = 1000, 20_000
    assert is_taken(low) and not is_taken(high)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_taken(middle) else (low, middle)
    assert is_taken(low) and low > 10_000
    state.begin_sweep()
    for _ in range(100):
        hurry.parts.now_ms += 120_000
        state.sweep()
        hurry._take(hurry.parts.commit_state())
    assert state.alarm is None and state.is_swept


def _tables(folder: Path, parts: Parts) -> StateTables:
    return StateTables(parts.state, lambda name: StateFile(folder / name), lambda: 0.0)


def test_the_hurry_meets_every_kind_of_limit() -> None:
    """Otherwise the test above would say nothing."""
    seen: set[str] = set()

    def note(error: BaseException) -> None:
        seen.update(word for word in _WORDS if word in str(error))

    # A full table is told before a rate.
    for hurry in (Hurry(1), Hurry(1, maxTopicCount="1000", maxGroupCount="1000")):
        hurry._refused = note  # type: ignore[method-assign]
        chosen, weights = zip(*actions(hurry), strict=True)
        for _ in range(STEPS):
            hurry.rng.choices(chosen, weights)[0]()
    assert set(_WORDS) - seen == set()


_WORDS: Final = (
    "maxTopicCount", "maxGroupCount", "maxNewTopicsPerAddress", "maxNewGroupsPerAddress",
    "maxHeartbeatGroups", "maxHeartbeatBytes", "maxLockQueues", "maxMessageSize",
    "mappedFileSizeCommitLog", "pairs of topic and group take", "locks take", "would take",
    "not exist",
)  # fmt: skip
