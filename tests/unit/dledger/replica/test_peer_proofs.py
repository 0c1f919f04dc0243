"""What a member asks of whom it connects to, where its group has a secret."""

from typing import Any

import pytest

from ledgermq.dledger.formats import Formats
from ledgermq.dledger.messages import PeerDialect
from ledgermq.dledger.replica import greeting_bodies, wire_binary
from ledgermq.dledger.replica.greeting_bodies import WIRE_VERSION
from ledgermq.dledger.replica.wire_binary import BinaryCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.group_secret import GroupSecret
from ledgermq.protocol.member_proof import Challenge, Side
from tests.unit.dledger.replica.test_peers import BEAT, COMMIT, Rig

KEY = GroupSecret(b"s" * 32).key("members")
NONCE = "b" * 64
OPEN = ("n1", PeerDialect.LEDGERMQ)


def closed(**changes: Any) -> Rig:
    return Rig(**({"group_secret": GroupSecret(b"s" * 32)} | changes))


def answer_hello(rig: Rig, key: bytes = KEY, side: Side = Side.ANSWERER) -> Challenge:
    """The peer's challenge and proof."""
    hello = rig.connect()
    nonce = greeting_bodies.decode_hello(hello.body).nonce
    challenge = Challenge(f"ledger {WIRE_VERSION}", "g", "n0", "n1", nonce, NONCE)
    proof = challenge.proof(key, side)
    rig.receive(
        hello.response(
            0, body=greeting_bodies.encode_hello_answer(Formats(), nonce=NONCE, proof=proof)
        )
    )
    return challenge


def texts(rig: Rig) -> list[str]:
    return [text.partition(": ")[2] for text in rig.refusals.texts()]


def test_a_peer_that_proves_itself_gets_a_proof_and_is_spoken_to_when_it_was_taken() -> None:
    rig = closed()
    challenge = answer_hello(rig)
    (proof,) = rig.sent()
    assert proof.code == BinaryCode.PROOF and rig.told == []
    assert challenge.is_proven(KEY, Side.OPENER, greeting_bodies.decode_proof(proof.body))
    rig.peer.send(COMMIT)
    assert rig.sent() == [] and rig.peer.dropped_count == 1
    rig.receive(proof.response(0))
    assert rig.told == [OPEN] and texts(rig) == []
    rig.peer.send(COMMIT)
    assert [command.code for command in rig.sent()] == [BinaryCode.PING, BinaryCode.COMMIT]


@pytest.mark.parametrize(
    ("key", "side"), [(b"o" * 32, Side.ANSWERER), (KEY, Side.OPENER)], ids=["other", "reflected"]
)
def test_a_peer_with_another_secret_gets_no_proof_and_nothing_else(key: bytes, side: Side) -> None:
    rig = closed()
    answer_hello(rig, key, side)
    rig.peer.send(BEAT)
    assert rig.sent() == [] and rig.told == []
    assert texts(rig) == ["another group secret"]


def test_each_connection_has_a_nonce_of_its_own() -> None:
    rig = closed()
    nonces = set()
    for _ in range(5):
        nonces.add(greeting_bodies.decode_hello(rig.connect().body).nonce)
        rig.lose()
        rig.clock.advance(2)
    assert len(nonces) == 5


def test_a_peer_without_a_secret_is_not_spoken_to() -> None:
    rig = closed()
    rig.greeted(0)
    assert rig.sent() == [] and rig.told == []
    assert "dLegerGroupSecretFile" in texts(rig)[0]


def test_what_comes_before_the_proof_is_not_looked_at() -> None:
    rig = closed()
    hello = rig.connect()
    beat = wire_binary.encode(BEAT)
    rig.protocol.dataReceived(b"".join(beat))
    rig.receive(RemotingCommand(code=BinaryCode.VOTE_ANSWER, flag=2, body=b"junk"))
    assert rig.told == [] and hello.code == BinaryCode.HELLO


def test_a_peer_that_speaks_json_only_is_spoken_to_where_it_is_named() -> None:
    rig = closed()
    rig.greeted(3)
    assert rig.told == [] and "dLegerJavaMembers" in texts(rig)[0]
    named = closed(java_members=("n1",))
    named.greeted(3)
    assert named.told == [("n1", PeerDialect.JAVA)]


def test_a_member_on_its_way_speaks_to_all_and_names_who_proves_nothing() -> None:
    rig = closed(requires_secret=False)
    rig.greeted(0)
    assert rig.told == [OPEN] and texts(rig)[0].startswith("let in: it does not prove")
    rig = closed(requires_secret=False)
    answer_hello(rig, b"o" * 32)
    (proof,) = rig.sent()
    # Who may be anybody gets no proof that could serve elsewhere.
    assert greeting_bodies.decode_proof(proof.body) == ""
    rig.receive(proof.response(0))
    assert rig.told == [OPEN] and texts(rig) == ["let in: another group secret"]


def test_a_peer_that_refuses_the_proof_is_told_about() -> None:
    rig = closed()
    answer_hello(rig)
    (proof,) = rig.sent()
    rig.receive(proof.response(401, "another group secret"))
    assert rig.told == [] and texts(rig) == ["another group secret (code 401)"]


def test_a_peer_that_keeps_a_member_waiting_is_left() -> None:
    rig = closed()
    rig.connect()
    for _ in range(12):
        rig.clock.advance(1)
        rig.protocol.dataReceived(b"\0")
        if rig.transport.disconnecting:
            break
    assert rig.transport.disconnecting
