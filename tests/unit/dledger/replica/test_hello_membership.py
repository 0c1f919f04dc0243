"""HELLO between members with different member lists or cluster ids: both ends reject and log."""

from collections.abc import Iterator
from typing import Any

import pytest
from twisted.logger import formatEvent, globalLogPublisher

from ledgermq.dledger.formats import Formats
from ledgermq.dledger.membership import Cluster
from ledgermq.dledger.messages import DLedgerCode
from ledgermq.dledger.replica import greeting_bodies
from ledgermq.protocol.member_proof import Side
from tests.unit.dledger.replica import test_greetings, test_peers
from tests.unit.dledger.replica.callers import COMMIT, Rig, binary

ADDRESSES = "n0-10.0.0.1:1;n1-192.168.1.1:2;n2-192.168.1.2:3"
FIVE = ("n0", "n1", "n2", "n3", "n4")
CLUSTER_ID, OTHER_ID = "0f" * 16, "0e" * 16
LIST_TEXT = "n1 has another member list: n0, n1, n2, n3, n4; expected n0, n1, n2 (key dLegerPeers)"
CLUSTER_TEXT = f"n1 belongs to a different cluster (cluster id {OTHER_ID}, expected {CLUSTER_ID})"


@pytest.fixture
def lines() -> Iterator[list[str]]:
    found: list[str] = []

    def observe(event: Any) -> None:
        if event["log_namespace"].startswith("ledgermq"):
            found.append(formatEvent(event))

    globalLogPublisher.addObserver(observe)
    yield found
    globalLogPublisher.removeObserver(observe)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"members": FIVE}, LIST_TEXT),
        ({"members": ("n0", "n1")}, "n1 has another member list: n0, n1; expected n0, n1, n2"),
        ({"members": ("n0", "n1", "n9")}, "n1 has another member list: n0, n1, n9; expected"),
        ({"cluster_id": OTHER_ID}, CLUSTER_TEXT),
    ],
)
def test_hello_of_another_membership_is_rejected(
    fields: dict[str, Any], reason: str, lines: list[str]
) -> None:
    rig = Rig(ADDRESSES)
    rig.member.cluster = Cluster(CLUSTER_ID, ("n0", "n1", "n2"))
    for _ in range(3):
        caller = rig.connect()
        answer = caller.greet("n1", **fields)
        assert answer.code == DLedgerCode.UNEXPECTED_MEMBER
        # The remark is for the log of the sender.
        assert answer.remark is not None and answer.remark.startswith("n0 ")
        told = greeting_bodies.decode_hello_answer(answer.body)
        assert told.cluster == rig.member.cluster
        caller.send(binary(COMMIT))
        assert rig.member.messages == [] and not rig.listener.is_connected("n1")
    (text,) = rig.member.refusals.texts()
    assert text.startswith(f"n1 at 192.168.1.1: {reason}")
    reported = rig.member.refusals.memberships()
    assert reported.keys() == {"n1"} and reported["n1"].startswith(reason)
    assert len([line for line in lines if reason in line]) == 1


def test_a_member_of_a_cluster_may_greet_before_it_knows_its_id() -> None:
    rig = Rig(ADDRESSES)
    rig.member.cluster = Cluster(CLUSTER_ID, ("n0", "n1", "n2"))
    for cluster_id in ("", CLUSTER_ID):
        assert rig.connect().greet("n1", cluster_id=cluster_id).code == 0


def test_an_unknown_member_is_rejected_with_both_lists(lines: list[str]) -> None:
    rig = Rig(ADDRESSES)
    for _ in range(3):
        answer = rig.connect().greet("n3", members=FIVE)
        assert answer.code == DLedgerCode.UNKNOWN_MEMBER
    expected = (
        "member 'n3', whose member list is n0, n1, n2, n3, n4, is not a member of this group:"
        " n0, n1, n2 (key dLegerPeers)"
    )
    assert answer.remark == expected
    assert len([line for line in lines if expected in line]) == 1


def test_a_closed_group_compares_lists_after_the_proof() -> None:
    rig = test_greetings.closed()
    caller = rig.connect()
    answer = caller.greet("n1", nonce=test_greetings.NONCE, members=FIVE)
    told = greeting_bodies.decode_hello_answer(answer.body)
    assert answer.code == 0 and told.cluster is None
    key = test_greetings.SECRET.key("members")
    proof = test_greetings.challenge_of(told).proof(key, Side.OPENER)
    (answer,) = test_greetings.prove(caller, proof)
    assert answer.code == DLedgerCode.UNEXPECTED_MEMBER
    assert rig.member.refusals.texts() == [f"n1 at 192.168.1.1: {LIST_TEXT}"]


@pytest.mark.parametrize("code", [0, DLedgerCode.UNEXPECTED_MEMBER])
@pytest.mark.parametrize(
    ("cluster", "reason"),
    [
        (
            Cluster("", ("n0", "n1", "n2")),
            "n1 has another member list: n0, n1, n2; expected n0, n1",
        ),
        (Cluster(OTHER_ID, ("n0", "n1")), CLUSTER_TEXT),
    ],
)
def test_a_peer_of_another_membership_is_not_used(
    code: int, cluster: Cluster, reason: str, lines: list[str]
) -> None:
    """It may accept this member: a program with a fault, or one that was changed meanwhile."""
    rig = test_peers.Rig()
    for _ in range(3):
        hello = rig.connect()
        rig.receive(
            hello.response(code, body=greeting_bodies.encode_hello_answer(Formats(), cluster))
        )
        assert rig.told == [] and not rig.peer.is_open
        rig.lose()
        rig.clock.advance(2)
    (text,) = rig.refusals.texts()
    assert reason in text
    assert rig.refusals.memberships().keys() == {"n1"}
    assert len([line for line in lines if reason in line]) == 1


def test_a_rejected_member_asks_again() -> None:
    """The other end lists it for as long as it is rejected, and takes it once it is right."""
    rig = test_peers.Rig()
    hello = rig.connect()
    rig.receive(hello.response(DLedgerCode.UNEXPECTED_MEMBER, "another list"))
    assert rig.transport.disconnecting
    rig.lose()
    rig.clock.advance(2)
    rig.greeted(0)
    assert rig.peer.is_open and rig.refusals.texts() == []


def test_a_hello_with_a_bad_list_is_refused() -> None:
    rig = Rig(ADDRESSES)
    for members in ((), ("",), ("n" * 65,), tuple(f"n{i}" for i in range(129))):
        assert rig.connect().greet("n1", members=members).code != 0
