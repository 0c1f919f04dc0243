"""A wall clock that somebody sets, ahead or back, ends nothing and makes nothing last longer."""

import json

import pytest
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport

from ledgermq.broker.clients.heartbeat import ClientProcessor
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.heartbeat import HeartbeatData, ProducerData
from ledgermq.protocol.transport import CommandProtocol
from ledgermq.state.lock_grants import INHERITED_LIFE_MS, LOCK_LIFE_MS
from ledgermq.state.queue_locks import QueueKey
from ledgermq.state.topics import TopicConfig
from tests.unit.broker.parts import Parts
from tests.unit.protocol.wires import Recorder

HOUR_MS = 3_600_000
JUMPS_MS = (103 * HOUR_MS, -103 * HOUR_MS)


class Bench:
    """What clients tell of themselves, on two clocks."""

    def __init__(self) -> None:
        self.parts = Parts().lead()
        parts = self.parts
        parts.state.lead("n0/1")
        parts.state.put_topic(TopicConfig("t", 1, 1))
        self.processor = ClientProcessor(
            parts.config,
            parts.leadership,
            parts.state,
            parts.clients,
            lambda: parts.now_ms + parts.jump_ms,
            lambda: float(parts.now_ms),
            parts.turn.soon,
        )
        self.connection = CommandProtocol(Clock(), Recorder())
        self.transport = StringTransport()
        self.connection.makeConnection(self.transport)

    def pass_ms(self, ms: int) -> None:
        self.parts.now_ms += ms
        self.processor.close_silent()
        self.parts.turn.end()
        self.parts.commit_state()

    def beat(self) -> None:
        data = HeartbeatData("c1", [ProducerData("g")], [])
        self.processor.heart_beat(self.connection, RemotingCommand(code=34, body=data.encode()))

    def lock(self, client_id: str) -> bool:
        """Asks for the lock of a queue; tells whether it was given."""
        queues = [{"topic": "t", "brokerName": "b", "queueId": 0}]
        body = {"consumerGroup": "g", "clientId": client_id, "mqSet": queues}
        command = RemotingCommand(code=41, body=json.dumps(body).encode())
        self.processor.lock(self.connection, command)
        self.parts.commit_state()
        return self.parts.state.locks.holder("g", QueueKey("t", "b", 0)) == client_id


@pytest.mark.parametrize("jump_ms", JUMPS_MS)
def test_client_that_sends_heart_beats_is_kept_and_a_silent_one_is_closed(jump_ms: int) -> None:
    bench = Bench()
    bench.beat()
    bench.parts.jump_ms = jump_ms
    bench.pass_ms(bench.parts.config.client_expiry_ms)
    assert bench.connection.is_open
    bench.pass_ms(1)
    assert not bench.connection.is_open


@pytest.mark.parametrize("jump_ms", JUMPS_MS)
def test_lock_of_a_queue_lives_as_long_as_its_holder_believes(jump_ms: int) -> None:
    bench = Bench()
    assert bench.lock("c1")
    bench.parts.jump_ms = jump_ms
    bench.pass_ms(LOCK_LIFE_MS)
    assert not bench.lock("c2")
    bench.pass_ms(1)
    assert bench.lock("c2")


@pytest.mark.parametrize("jump_ms", JUMPS_MS)
def test_lock_that_a_new_leader_took_over_lives_as_long(jump_ms: int) -> None:
    bench = Bench()
    bench.lock("c1")
    bench.parts.state.follow()
    bench.parts.state.lead("n0/2")
    bench.parts.jump_ms = jump_ms
    bench.pass_ms(INHERITED_LIFE_MS)
    assert not bench.lock("c2")
    bench.pass_ms(1)
    assert bench.lock("c2")


def test_people_are_told_the_time_of_the_last_heart_beat_by_the_wall_clock() -> None:
    bench = Bench()
    bench.beat()
    bench.parts.jump_ms = HOUR_MS
    bench.pass_ms(5000)
    answer = bench.processor.list_all_producers(bench.connection, RemotingCommand(code=328))
    assert isinstance(answer, RemotingCommand)
    [client] = json.loads(answer.body)["data"]["g"]
    assert client["lastUpdateTimestamp"] == bench.parts.now_ms - 5000 + HOUR_MS
