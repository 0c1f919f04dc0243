"""How the dialect of a peer is found out, and what is sent to it in each."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from twisted.internet.error import ConnectionDone, ConnectionRefusedError, TimeoutError
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.logger import globalLogPublisher
from twisted.python.failure import Failure

from ledgermq.dledger.entry import EntryCodec
from ledgermq.dledger.formats import Formats, GroupFormats
from ledgermq.dledger.membership import Cluster
from ledgermq.dledger.messages import (
    CommitRequest,
    DLedgerCode,
    HeartBeatRequest,
    HeartBeatResponse,
    Message,
    PeerDialect,
    PushKind,
    PushResponse,
    VoteRequest,
)
from ledgermq.dledger.replica import greeting_bodies, wire_binary
from ledgermq.dledger.replica.clock_exchange import ClockExchange
from ledgermq.dledger.replica.config import FlushDiskType, ReplicaConfig
from ledgermq.dledger.replica.flush_modes import FlushModes
from ledgermq.dledger.replica.peers import Peer
from ledgermq.protocol.checksum import crc32c
from ledgermq.protocol.command import RemotingCommand, decode, encode
from ledgermq.protocol.framing import FrameDecoder
from ledgermq.protocol.transport import TurnOutput
from ledgermq.protocol.transport.refusals import Refusals

COMMIT = CommitRequest(term=2, sender="n0", target="n1", commit_index=4, request_id=9)
BEAT = HeartBeatRequest(term=2, sender="n0", target="n1", commit_index=4, read_round=9)

# Of the transport of memory.
FORMER_HOST = "192.168.1.1"


class Rig:
    """One peer and the other end of its connection."""

    def __init__(self, host: str = "10.0.0.1", **changes: Any) -> None:
        self.clock = MemoryReactorClock()
        self.told: list[Any] = []
        self.term = 7
        self.refused: list[str] = []
        self.own_formats = Formats()
        self.formats = GroupFormats("n0", ("n1",), lambda: self.own_formats)
        self.wall_ms = 1_700_000_000_000
        config = ReplicaConfig(group="g", self_id="n0", peers=f"n0-h:1;n1-{host}:2", **changes)
        self.clocks = ClockExchange(config, lambda: self.wall_ms, self.clock.seconds)
        self.flush_modes = FlushModes("n0", ("n1",), FlushDiskType.SYNC_FLUSH)
        self.cluster = Cluster("0f" * 16, ("n0", "n1"))
        self.refusals = Refusals("n0", self.clock.seconds)
        self.output = TurnOutput(self.clock)
        self.peer = Peer(
            self.clock,
            config,
            "n1",
            EntryCodec(crc32c),
            4096,
            self,
            self.output,
            self.refused.append,
            chance=lambda: 0.5,
        )
        self.peer.start()
        self.transport = StringTransport()
        self.decoder = FrameDecoder()

    def message_received(self, message: Message) -> None:
        self.told.append(message)

    def take_turn(self) -> None: ...

    def dialect_found(self, peer_id: str, dialect: PeerDialect) -> None:
        self.told.append((peer_id, dialect))

    def peer_lost(self, peer_id: str) -> None:
        self.told.append(("lost", peer_id))

    def peer_ended(self, peer_id: str) -> None:
        self.told.append(("ended", peer_id))

    def connect(self) -> RemotingCommand:
        """Accepts the connection; returns the HELLO that came on it."""
        _, port, factory, _, _ = self.clock.tcpClients.pop()
        assert port == 2
        self.transport, self.decoder = StringTransport(), FrameDecoder()
        self.protocol = factory.buildProtocol(None)
        self.protocol.makeConnection(self.transport)
        (hello,) = self.sent()
        return hello

    def sent(self) -> list[RemotingCommand]:
        self.clock.advance(0)
        frames = self.decoder.feed(self.transport.value())
        self.transport.clear()
        return [decode(frame) for frame in frames]

    def receive(self, command: RemotingCommand) -> None:
        self.protocol.dataReceived(encode(command))

    def lose(self) -> None:
        self.protocol.connectionLost(Failure(ConnectionDone()))

    def pass_beats(self, count: int) -> None:
        """Lets so many heart beats pass, each in a turn of its own."""
        for _ in range(count):
            self.clock.advance(0.5)

    def greeted(self, code: int) -> None:
        self.receive(self.connect().response(code))
        for ping in self.sent() if code == 0 else ():
            self.answer_ping(ping)

    def answer_ping(self, ping: RemotingCommand) -> None:
        """The peer's clock goes with ours."""
        assert ping.code == 52013
        wall_ms = self.wall_ms + round(self.clock.seconds() * 1000)
        self.protocol.dataReceived(wire_binary.ping_answer_frame(ping.body, wall_ms))


@pytest.fixture
def log_lines() -> Iterator[list[str]]:
    lines: list[str] = []

    def observe(event: Any) -> None:
        if event["log_namespace"].startswith("ledgermq"):
            lines.append(event["log_format"])

    globalLogPublisher.addObserver(observe)
    yield lines
    globalLogPublisher.removeObserver(observe)


def test_connection_begins_with_hello() -> None:
    hello = Rig().connect()
    assert hello.code == 52001
    assert greeting_bodies.decode_hello(hello.body) == greeting_bodies.Hello(
        group="g",
        sender="n0",
        target="n1",
        segment_bytes=4096,
        flush_mode=FlushDiskType.SYNC_FLUSH,
        cluster_id="0f" * 16,
        members=("n0", "n1"),
    )


def test_flush_mode_of_a_peer_is_that_of_its_answer() -> None:
    rig = Rig()
    mode = FlushDiskType.ASYNC_FLUSH
    body = greeting_bodies.encode_hello_answer(Formats(), flush_mode=mode)
    rig.receive(rig.connect().response(0, body=body))
    assert "n1 ASYNC_FLUSH" in rig.flush_modes.difference


def test_peer_that_answers_hello_speaks_binary_both_ways() -> None:
    rig = Rig()
    rig.greeted(0)
    assert rig.told == [("n1", PeerDialect.LEDGERMQ)]
    rig.peer.send(COMMIT)
    rig.peer.send(BEAT)
    assert [command.code for command in rig.sent()] == [52009, 52004]
    answer = HeartBeatResponse(term=2, sender="n1", target="n0", code=DLedgerCode.SUCCESS, round=9)
    rig.protocol.dataReceived(b"".join(wire_binary.encode(answer)))
    assert rig.told[1:] == [answer]


@pytest.mark.parametrize("code", [1, 3])
def test_peer_that_does_not_know_hello_speaks_json(code: int) -> None:
    rig = Rig()
    rig.greeted(code)
    assert rig.told == [("n1", PeerDialect.JAVA)]
    rig.peer.send(COMMIT)
    (request,) = rig.sent()
    assert (request.code, json.loads(request.body)["type"]) == (51004, "COMMIT")
    body = b'{"beginIndex":0,"code":200,"count":0,"endIndex":4,"group":"g","term":2}'
    rig.receive(request.response(200, body=body))
    assert rig.told[1:] == [
        PushResponse(
            term=2,
            sender="n1",
            target="n0",
            kind=PushKind.COMMIT,
            code=DLedgerCode.SUCCESS,
            index=None,
            count=0,
            begin_index=0,
            end_index=4,
            request_id=9,
        )
    ]


def test_answer_of_a_term_that_no_election_brings_about_ends_its_connection() -> None:
    rig = Rig()
    rig.greeted(0)
    answer = HeartBeatResponse(
        term=2**63 - 1, sender="n1", target="n0", code=DLedgerCode.EXPIRED_TERM, round=9
    )
    rig.protocol.dataReceived(b"".join(wire_binary.encode(answer)))
    assert rig.transport.disconnecting
    assert rig.told == [("n1", PeerDialect.LEDGERMQ)]


def test_json_answer_of_such_a_term_is_no_answer(log_lines: list[str]) -> None:
    rig = Rig()
    rig.greeted(3)
    for message in (BEAT, COMMIT):
        rig.peer.send(message)
        (request,) = rig.sent()
        body = b'{"code":403,"term":9223372036854775807,"group":"g","endIndex":4}'
        rig.receive(request.response(200, body=body))
    assert rig.told == [("n1", PeerDialect.JAVA)]
    assert len(log_lines) == 2


def test_pre_vote_is_not_sent_in_json() -> None:
    rig = Rig()
    rig.greeted(3)
    vote = {"term": 2, "sender": "n0", "target": "n1", "last_index": 1, "last_term": 1}
    rig.peer.send(VoteRequest(pre_vote=True, **vote))
    assert rig.sent() == []
    rig.peer.send(VoteRequest(pre_vote=False, **vote))
    assert len(rig.sent()) == 1


def test_json_answer_without_sense_or_none_at_all_is_no_answer(log_lines: list[str]) -> None:
    rig = Rig()
    rig.greeted(3)
    rig.peer.send(COMMIT)
    (request,) = rig.sent()
    rig.receive(request.response(1, "exception"))
    rig.peer.send(COMMIT)
    rig.sent()
    for _ in range(4):
        rig.clock.advance(1)
    rig.peer.send(COMMIT)
    rig.lose()
    assert rig.told == [("n1", PeerDialect.JAVA), ("lost", "n1")]
    assert len(log_lines) == 1


def test_refusal_is_logged_once_and_its_connection_is_not_used(log_lines: list[str]) -> None:
    rig = Rig(reconnect_min_ms=100)
    for _ in range(3):
        rig.receive(rig.connect().response(400, "group is 'x', here it is 'g'"))
        rig.peer.send(COMMIT)
        assert rig.sent() == []
        assert not rig.transport.disconnecting
        rig.lose()
        rig.clock.advance(1)
    assert rig.told == []
    assert len(log_lines) == 1
    rig.greeted(0)
    assert rig.told == [("n1", PeerDialect.LEDGERMQ)]


def test_peer_that_does_not_answer_hello_or_goes_away_is_tried_again() -> None:
    rig = Rig(reconnect_min_ms=100)
    rig.connect()
    rig.lose()
    rig.clock.advance(0.1)
    rig.connect()
    rig.pass_beats(5)
    assert rig.transport.disconnecting
    rig.lose()
    rig.clock.advance(1)
    rig.greeted(0)
    assert rig.told == [("n1", PeerDialect.LEDGERMQ)]


def test_attempt_that_is_refused_is_told_and_one_that_gets_no_answer_is_not() -> None:
    rig = Rig(reconnect_min_ms=100)
    for error in (TimeoutError(), ConnectionRefusedError()):
        rig.clock.tcpClients.pop()[2].clientConnectionFailed(None, Failure(error))
        rig.clock.advance(0.2)
    assert rig.refused == ["n1"]
    rig.greeted(0)
    assert rig.told == [("n1", PeerDialect.LEDGERMQ)]


def test_nothing_is_sent_before_hello_is_answered_or_after_the_loss() -> None:
    rig = Rig()
    rig.peer.send(COMMIT)
    hello = rig.connect()
    rig.peer.send(COMMIT)
    assert rig.sent() == []
    rig.receive(hello.response(0))
    rig.lose()
    rig.peer.send(COMMIT)
    assert rig.peer.dropped_count == 3
    assert rig.told == [("n1", PeerDialect.LEDGERMQ), ("lost", "n1")]
    assert rig.peer.dialect is PeerDialect.UNKNOWN


def test_slow_peer_gets_nothing_more_until_its_socket_has_taken_it() -> None:
    rig = Rig(peer_unsent_bytes_max=1)
    rig.greeted(0)
    rig.peer.send(COMMIT)
    rig.peer.send(COMMIT)
    assert rig.peer.dropped_count == 1
    rig.output.flush()
    rig.peer.send(COMMIT)
    assert rig.peer.dropped_count == 1


def test_answer_without_sense_closes_a_binary_connection(log_lines: list[str]) -> None:
    rig = Rig()
    rig.greeted(0)
    rig.receive(RemotingCommand(code=52010, flag=2, body=b"short"))
    assert rig.transport.disconnecting
    assert len(log_lines) == 1


def answer_pings(rig: Rig, beats_count: int) -> int:
    """Plays a living LedgerMQ peer for some heart beats; returns how many pings came."""
    pings_count = 0
    for _ in range(beats_count):
        rig.clock.advance(0.5)
        for command in rig.sent():
            rig.answer_ping(command)
            pings_count += 1
    return pings_count


def test_open_link_is_asked_for_a_sign_of_life_at_each_heart_beat() -> None:
    """Also between two followers, which have nothing else to say to each other."""
    rig = Rig()
    rig.greeted(0)
    assert answer_pings(rig, 200) == 200
    assert not rig.transport.disconnecting
    assert rig.told == [("n1", PeerDialect.LEDGERMQ)]


def test_link_that_falls_silent_is_made_anew_after_a_few_heart_beats(log_lines: list[str]) -> None:
    rig = Rig()
    rig.greeted(0)
    answer_pings(rig, 10)
    rig.pass_beats(4)
    assert not rig.transport.disconnecting
    rig.pass_beats(1)
    # Aborted: what waits for the network is not waited for.
    assert rig.transport.disconnected
    rig.lose()
    assert rig.told == [("n1", PeerDialect.LEDGERMQ), ("lost", "n1")]
    rig.clock.advance(0.1)
    rig.greeted(0)
    assert rig.told[2:] == [("n1", PeerDialect.LEDGERMQ)]
    assert len(log_lines) == 1


def test_any_message_of_the_peer_is_a_sign_of_life() -> None:
    rig = Rig()
    rig.greeted(0)
    answer = HeartBeatResponse(term=2, sender="n1", target="n0", code=DLedgerCode.SUCCESS, round=9)
    for _ in range(20):
        rig.pass_beats(3)
        rig.protocol.dataReceived(b"".join(wire_binary.encode(answer)))
    assert not rig.transport.disconnecting


def test_member_that_was_held_up_itself_blames_nobody() -> None:
    rig = Rig()
    rig.greeted(0)
    answer_pings(rig, 5)
    for _ in range(5):
        # A minute without a turn; then timers run before the socket is read.
        rig.clock.advance(60)
        rig.answer_ping(rig.sent()[0])
    assert not rig.transport.disconnecting


def test_process_that_answers_slowly_gets_more_time_on_each_link() -> None:
    rig = Rig()
    looks = []
    for _ in range(3):
        rig.connect()
        beats_count = 0
        while not rig.transport.disconnecting:
            rig.pass_beats(1)
            beats_count += 1
        looks.append(beats_count)
        rig.lose()
        rig.clock.advance(1)
    assert looks == [4, 8, 16]


def test_json_peer_that_owes_an_answer_for_longer_than_dledger_allows_is_silent() -> None:
    rig = Rig()
    rig.greeted(3)
    rig.pass_beats(100)
    assert rig.sent() == []
    assert not rig.transport.disconnecting
    rig.peer.send(BEAT)
    rig.pass_beats(6)
    assert not rig.transport.disconnecting
    rig.pass_beats(1)
    assert rig.transport.disconnected


def test_json_peer_that_answers_something_is_not_silent() -> None:
    rig = Rig()
    rig.greeted(3)
    for _ in range(20):
        rig.peer.send(BEAT)
        rig.peer.send(COMMIT)
        rig.pass_beats(4)
        first, *_ = rig.sent()
        rig.receive(first.response(200, body=b'{"code":200,"term":2}'))
    assert not rig.transport.disconnecting


def test_attempts_go_on_each_second_while_the_network_is_gone() -> None:
    """The one after the network came back succeeds: a second at most is lost."""
    rig = Rig()
    for _ in range(6000):
        rig.clock.advance(0.01)
    attempts_count = len(rig.clock.tcpClients)
    assert 57 <= attempts_count <= 62
    rig.greeted(0)
    assert rig.told == [("n1", PeerDialect.LEDGERMQ)]


def test_wait_between_attempts_grows_to_a_second_and_has_some_chance_in_it() -> None:
    rig = Rig()
    waits = []
    for _ in range(6):
        rig.clock.tcpClients.pop()[2].clientConnectionFailed(
            None, Failure(ConnectionRefusedError())
        )
        begun_at = rig.clock.seconds()
        while not rig.clock.tcpClients:
            rig.clock.advance(0.001)
        waits.append(rig.clock.seconds() - begun_at)
    # 0.1 s and doubled, 1 s at most, of which chance leaves between a half and all.
    assert waits == pytest.approx([0.075, 0.15, 0.3, 0.6, 0.75, 0.75], abs=0.01)
    rig.greeted(0)
    rig.lose()
    rig.clock.advance(0.1)
    assert rig.clock.tcpClients


def test_stopped_peer_leaves_no_call() -> None:
    rig = Rig()
    rig.greeted(0)
    rig.pass_beats(2)
    rig.peer.stop()
    rig.lose()
    rig.clock.advance(10)
    rig.output.stop()
    assert rig.clock.getDelayedCalls() == []


@pytest.mark.parametrize("code", [1, 3, 401])
def test_stranger_at_the_former_address_of_a_peer_is_left(code: int, log_lines: list[str]) -> None:
    """Neither is it taken for a peer of another kind, nor waited for."""
    rig = Rig(host="broker-b")
    rig.greeted(0)
    rig.lose()
    while len(rig.clock.tcpClients) < 2:
        rig.clock.advance(0.1)
    assert [host for host, *_ in rig.clock.tcpClients] == ["broker-b", FORMER_HOST]
    rig.receive(rig.connect().response(code, "who is n1?"))
    assert rig.transport.disconnecting
    assert rig.told[2:] == [] and log_lines == []
    rig.lose()
    rig.clock.tcpClients.clear()
    for _ in range(40):
        rig.clock.advance(0.1)
    assert {host for host, *_ in rig.clock.tcpClients} == {"broker-b"}
    rig.greeted(0)
    assert rig.told[2:] == [("n1", PeerDialect.LEDGERMQ)]


def test_a_greeting_and_its_answer_tell_what_members_read() -> None:
    rig = Rig()
    rig.own_formats = Formats(3, 2)
    hello = rig.connect()
    assert greeting_bodies.decode_hello(hello.body).formats == Formats(3, 2)
    assert rig.formats.read_by_all() == 1
    rig.receive(hello.response(0, body=greeting_bodies.encode_hello_answer(Formats(2, 1))))
    assert rig.formats.read_by_all() == 2
    assert rig.told == [("n1", PeerDialect.LEDGERMQ)]


def test_a_peer_that_is_of_java_hinders_no_format() -> None:
    rig = Rig()
    rig.own_formats = Formats(2, 1)
    rig.greeted(3)
    assert rig.formats.read_by_all() == 2


def test_a_peer_that_does_not_read_what_is_needed_is_not_spoken_to(log_lines: list[str]) -> None:
    """Also when it does not see that itself."""
    rig = Rig()
    rig.own_formats = Formats(2, 2)
    rig.receive(rig.connect().response(0, body=greeting_bodies.encode_hello_answer(Formats(1, 1))))
    assert rig.told == [] and not rig.peer.is_open
    assert "n1 reads formats up to 1" in (rig.formats.alarm or "")
    assert any("do not work together" in line for line in log_lines)
    rig.lose()
    rig.clock.advance(1)
    rig.receive(rig.connect().response(0, body=greeting_bodies.encode_hello_answer(Formats(2, 1))))
    assert rig.peer.is_open and rig.formats.alarm is None


def test_a_peer_that_refuses_tells_what_this_member_lacks() -> None:
    rig = Rig()
    answer = greeting_bodies.encode_hello_answer(Formats(2, 2))
    rig.receive(rig.connect().response(303, "no", body=answer))
    assert not rig.peer.is_open
    assert "n0 reads formats up to 1, and the state of n1 is in format 2" in rig.formats.alarm


def test_an_answer_that_makes_no_sense_ends_the_connection() -> None:
    rig = Rig()
    rig.receive(rig.connect().response(0, body=b'{"reads":0}'))
    assert rig.told == [] and not rig.peer.is_open
    assert rig.transport.disconnecting or rig.transport.disconnected


def test_a_peer_that_is_not_reached_is_told_once_and_again_when_it_is(log_lines: list[str]) -> None:
    rig = Rig()
    rig.pass_beats(19)
    assert not log_lines
    rig.pass_beats(30)
    (line,) = log_lines
    assert "no way to {peer_id} at {host}:{port}" in line
    rig.greeted(1)
    assert "{peer_id} is reached again" in log_lines[-1] and len(log_lines) == 2
    rig.pass_beats(2)
    assert len(log_lines) == 2


def test_clock_of_a_peer_is_known_while_it_is_connected() -> None:
    rig = Rig()
    rig.greeted(0)
    rig.wall_ms += 3_600_000
    assert rig.clocks.judge().apart == {"n1": -3_600_000}
    rig.lose()
    assert rig.clocks.judge().apart == {}


def test_ping_answer_without_sense_closes_the_connection() -> None:
    rig = Rig()
    rig.greeted(0)
    rig.protocol.dataReceived(wire_binary.ping_answer_frame(bytes(8), 1 << 60))
    assert rig.transport.disconnecting
