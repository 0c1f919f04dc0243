"""A closed group: nothing is taken on a connection before both ends have proven the secret."""

from typing import Any

import pytest
from twisted.logger import formatEvent, globalLogPublisher

from ledgermq.dledger.messages import DLedgerCode, JsonCode
from ledgermq.dledger.replica import greeting_bodies, wire_binary
from ledgermq.dledger.replica.greeting_bodies import WIRE_VERSION, HelloAnswer
from ledgermq.dledger.replica.wire_binary import BinaryCode
from ledgermq.protocol.command import RemotingCommand, encode
from ledgermq.protocol.group_secret import GroupSecret
from ledgermq.protocol.member_proof import Challenge, Side
from tests.unit.dledger.replica.callers import COMMIT, SOURCE, VOTE, Caller, Rig, binary

SECRET, OTHER_SECRET = GroupSecret(b"s" * 32), GroupSecret(b"o" * 32)
NONCE = "a" * 64
MEMBERS = "n0-10.0.0.1:1;n1-192.168.1.1:2;n2-192.168.1.2:3"


def closed(**changes: Any) -> Rig:
    return Rig(MEMBERS, **({"group_secret": SECRET} | changes))


def challenge_of(told: HelloAnswer, sender: str = "n1", nonce: str = NONCE) -> Challenge:
    return Challenge(f"ledger {WIRE_VERSION}", "g", sender, "n0", nonce, told.nonce)


def hello(caller: Caller, sender: str = "n1", nonce: str = NONCE) -> HelloAnswer:
    answer = caller.greet(sender, nonce=nonce)
    assert answer.code == 0
    return greeting_bodies.decode_hello_answer(answer.body)


def prove(caller: Caller, proof: str) -> list[RemotingCommand]:
    return caller.ask(BinaryCode.PROOF, greeting_bodies.encode_proof(proof))


def is_closed(caller: Caller) -> bool:
    return caller.transport.disconnecting or caller.transport.disconnected


def greet_well(caller: Caller, secret: GroupSecret = SECRET) -> None:
    told = hello(caller)
    proof = challenge_of(told).proof(secret.key("members"), Side.OPENER)
    (answer,) = prove(caller, proof)
    assert answer.code == 0


def test_both_ends_prove_themselves_before_a_frame_is_taken() -> None:
    rig = closed()
    caller = rig.connect()
    told = hello(caller)
    challenge = challenge_of(told)
    assert challenge.is_proven(SECRET.key("members"), Side.ANSWERER, told.proof)
    assert not rig.listener.is_connected("n1")
    (answer,) = prove(caller, challenge.proof(SECRET.key("members"), Side.OPENER))
    assert answer.code == 0 and rig.listener.is_connected("n1")
    caller.send(binary(COMMIT))
    assert rig.member.messages == [COMMIT]
    assert rig.member.refusals.texts() == []


@pytest.mark.parametrize("frame", [binary(COMMIT), binary(VOTE), wire_binary.ping_frame(7)])
@pytest.mark.parametrize("step", ["nothing", "hello"])
def test_a_frame_before_the_proof_ends_its_connection(frame: bytes, step: str) -> None:
    rig = closed()
    caller = rig.connect()
    if step == "hello":
        hello(caller)
    caller.send(frame)
    assert is_closed(caller) and caller.answers() == [] and rig.member.messages == []


def test_who_has_another_secret_is_refused_and_named() -> None:
    rig = closed()
    caller = rig.connect()
    told = hello(caller)
    (answer,) = prove(caller, challenge_of(told).proof(OTHER_SECRET.key("members"), Side.OPENER))
    assert (answer.code, answer.remark) == (DLedgerCode.UNKNOWN_MEMBER, "another group secret")
    assert is_closed(caller) and not rig.listener.is_connected("n1")
    assert rig.member.refusals.texts() == [f"n1 at {SOURCE}: another group secret"]
    # A secret says nothing about who is a member.
    assert rig.member.refusals.memberships() == {}
    # Until it comes with the right one.
    greet_well(rig.connect())
    assert rig.member.refusals.texts() == []


def test_who_proves_nothing_is_refused_with_the_key() -> None:
    rig = closed()
    caller = rig.connect()
    answer = caller.greet("n1")
    assert answer.code == DLedgerCode.UNKNOWN_MEMBER
    assert "dLegerGroupSecretFile" in str(answer.remark) and is_closed(caller)


def test_a_proof_that_is_reflected_or_replayed_proves_nothing() -> None:
    rig = closed()
    caller = rig.connect()
    told = hello(caller)
    own = challenge_of(told).proof(SECRET.key("members"), Side.OPENER)
    (reflected,) = prove(caller, told.proof)
    assert reflected.code == DLedgerCode.UNKNOWN_MEMBER and is_closed(caller)
    # What was right for one connection, on the next one.
    caller = rig.connect()
    hello(caller)
    (replayed,) = prove(caller, own)
    assert replayed.code == DLedgerCode.UNKNOWN_MEMBER and not rig.listener.is_connected("n1")


def test_a_proof_of_one_member_makes_no_other() -> None:
    rig = closed()
    caller = rig.connect("192.168.1.2")
    told = hello(caller, "n2")
    (answer,) = prove(caller, challenge_of(told, "n1").proof(SECRET.key("members"), Side.OPENER))
    assert answer.code == DLedgerCode.UNKNOWN_MEMBER and not rig.listener.is_connected("n2")


def test_a_challenge_serves_once_and_a_greeting_comes_once() -> None:
    rig = closed()
    caller = rig.connect()
    assert prove(caller, "0" * 64) == [] and is_closed(caller)
    caller = rig.connect()
    hello(caller)
    caller.send_greeting("n1", nonce=NONCE)
    assert caller.answers() == [] and is_closed(caller)
    caller = rig.connect()
    greet_well(caller)
    caller.send_greeting("n2", nonce=NONCE)
    assert caller.answers() == [] and is_closed(caller)


@pytest.mark.parametrize("nonce", ["a", "A" * 64, "a" * 65])
def test_a_nonce_that_is_none_is_refused(nonce: str) -> None:
    caller = closed().connect()
    assert caller.greet("n1", nonce=nonce).code == DLedgerCode.UNKNOWN_MEMBER
    assert is_closed(caller)


@pytest.mark.parametrize("changes", [{"group": "h"}, {"target": "n2"}, {"segment_bytes": 1}])
def test_a_stranger_of_a_closed_group_is_told_nothing_of_it(changes: dict[str, Any]) -> None:
    rig = closed()
    answer = rig.connect().greet("n1", nonce=NONCE, **changes)
    assert answer.code == DLedgerCode.UNKNOWN_MEMBER and answer.body == b""
    assert answer.remark == "refused; the log of the other end says why"
    assert len(rig.member.refusals.texts()) == 1


JSON = [
    (JsonCode.METADATA, {}),
    (JsonCode.GET, {"beginIndex": 0}),
    (JsonCode.APPEND, {"body": "QQ=="}),
    (JsonCode.VOTE, {"ledgerEndIndex": 3, "ledgerEndTerm": 1}),
    (JsonCode.VOTE, {"leaderId": "nobody", "ledgerEndIndex": 3, "ledgerEndTerm": 1}),
    (JsonCode.HEART_BEAT, {}),
    (JsonCode.PUSH, {"type": "COMMIT", "commitIndex": 1}),
    (JsonCode.LEADERSHIP_TRANSFER, {"transferId": "n0", "transfereeId": "n1"}),
    (JsonCode.LEADERSHIP_TRANSFER, {"transferId": "n1", "transfereeId": "n0"}),
]


@pytest.mark.parametrize(("code", "fields"), JSON)
def test_json_is_served_to_nobody_in_a_closed_group(code: int, fields: dict[str, Any]) -> None:
    rig = closed()
    caller = rig.connect()
    ((_, _, answer),) = caller.ask_json(code, **fields)
    assert answer["code"] == DLedgerCode.UNKNOWN_MEMBER
    # Not even who leads.
    assert answer.get("leaderId") is None and "entries" not in answer
    assert is_closed(caller) and rig.member.messages == []


@pytest.mark.parametrize("code", [1, 10, 310, 51003, 51999, 52013, 52017, 0xFFFF])
def test_no_other_code_is_answered_in_a_closed_group(code: int) -> None:
    rig = closed()
    caller = rig.connect()
    answers = caller.ask(code, b"{}")
    assert all(b"leaderId" not in answer.body for answer in answers)
    assert is_closed(caller) and rig.member.messages == []


def test_a_java_member_is_taken_where_it_is_named_from_its_own_address() -> None:
    rig = closed(java_members=("n1",), member_networks=("0.0.0.0/0",))
    fields = {"type": "COMMIT", "commitIndex": 1}
    assert rig.connect().ask_json(JsonCode.PUSH, **fields) == []
    assert len(rig.member.messages) == 1
    ((_, _, answer),) = rig.connect("192.168.1.9").ask_json(JsonCode.PUSH, **fields)
    assert answer["code"] == DLedgerCode.UNKNOWN_MEMBER
    ((_, _, answer),) = rig.connect("192.168.1.2").ask_json(JsonCode.PUSH, leaderId="n2", **fields)
    assert answer["code"] == DLedgerCode.UNKNOWN_MEMBER and len(rig.member.messages) == 1


def test_a_java_member_may_have_addresses_of_its_own() -> None:
    rig = closed(java_members=("n1-172.16.0.0/12",))
    fields = {"type": "COMMIT", "commitIndex": 1}
    assert rig.connect("172.16.3.4").ask_json(JsonCode.PUSH, **fields) == []
    # It is no longer strange: large frames come next.
    assert rig.member.messages != []


def test_an_open_group_may_name_its_java_members_too() -> None:
    rig = Rig(MEMBERS, java_members=("n2",))
    ((_, _, answer),) = rig.connect().ask_json(JsonCode.HEART_BEAT)
    assert answer["code"] == DLedgerCode.UNKNOWN_MEMBER and rig.member.messages == []


def test_tools_are_served_from_their_addresses_for_their_requests() -> None:
    rig = closed(tool_networks=("192.168.1.50",), tool_requests=("METADATA",))
    tool = rig.connect("192.168.1.50")
    ((_, _, answer),) = tool.ask_json(JsonCode.METADATA)
    assert answer["leaderId"] == "n0"
    ((_, _, answer),) = tool.ask_json(JsonCode.GET, beginIndex=0)
    assert answer["code"] == DLedgerCode.UNKNOWN_MEMBER and is_closed(tool)
    ((_, _, answer),) = rig.connect().ask_json(JsonCode.METADATA)
    assert answer["code"] == DLedgerCode.UNKNOWN_MEMBER


@pytest.mark.parametrize("nonce", ["", NONCE])
def test_a_group_on_its_way_takes_who_proves_nothing_and_names_it(nonce: str) -> None:
    rig = closed(requires_secret=False)
    caller = rig.connect()
    if nonce:
        hello(caller)
        (answer,) = prove(caller, "")
        reason = "another group secret"
    else:
        answer = caller.greet("n1")
        reason = "it does not prove the group's secret (key dLegerGroupSecretFile)"
    assert answer.code == 0 and rig.listener.is_connected("n1")
    assert rig.member.refusals.texts() == [f"n1 at {SOURCE}: let in: {reason}"]
    caller.send(binary(COMMIT))
    assert rig.member.messages == [COMMIT]
    # A tool would have to be named then, and has to be now.
    ((_, _, told),) = rig.connect().ask_json(JsonCode.METADATA)
    assert told["code"] == DLedgerCode.UNKNOWN_MEMBER


def test_a_group_on_its_way_names_who_speaks_json_without_being_named() -> None:
    rig = closed(requires_secret=False)
    fields = {"type": "COMMIT", "commitIndex": 1}
    assert rig.connect().ask_json(JsonCode.PUSH, **fields) == [] and rig.member.messages
    (text,) = rig.member.refusals.texts()
    assert text.startswith(f"n1 at {SOURCE}: let in: it speaks JSON, which proves nothing")
    named = closed(requires_secret=False, java_members=("n1",), tool_networks=(SOURCE,))
    assert named.connect().ask_json(JsonCode.PUSH, **fields) == [] and named.member.messages
    assert named.member.refusals.texts() == []
    ((_, _, told),) = named.connect().ask_json(JsonCode.METADATA)
    assert told["leaderId"] == "n0"


def test_the_first_frame_of_a_java_member_may_be_large() -> None:
    rig = closed(java_members=("n1",))
    fields = {"type": "COMMIT", "commitIndex": 1, "filler": "x" * 20_000}
    assert rig.connect().ask_json(JsonCode.PUSH, **fields) == [] and rig.member.messages
    stranger = rig.connect("203.0.113.9")
    assert stranger.ask_json(JsonCode.PUSH, **fields) == [] and is_closed(stranger)


def test_frames_are_small_and_time_is_short_before_the_proof() -> None:
    rig = closed()
    big = encode(RemotingCommand(code=BinaryCode.HELLO, body=bytes(10_000)))
    caller = rig.connect()
    caller.send(big[:100])
    assert is_closed(caller)
    slow = rig.connect()
    told = hello(slow)
    for _ in range(9):
        rig.clock.advance(1)
        slow.connection.check(rig.clock.seconds())
        slow.send(b"")
    assert not is_closed(slow)
    proven = rig.connect()
    greet_well(proven)
    rig.clock.advance(1)
    for one in (slow, proven):
        one.connection.check(rig.clock.seconds())
    assert is_closed(slow) and told.nonce
    # Whoever is known sends as much as it likes.
    proven.send(encode(RemotingCommand(code=52009, body=bytes(10_000)))[:5000])
    rig.clock.advance(11)
    proven.connection.check(rig.clock.seconds())
    assert not is_closed(proven)


def test_half_greetings_by_the_hundred_keep_no_member_out() -> None:
    rig = closed()
    member = rig.connect()
    told = hello(member)
    strangers = []
    for i in range(500):
        strangers.append(rig.connect(f"203.0.113.{i % 7}"))
        strangers[-1].send(b"\0\0")
    assert sum(not is_closed(one) for one in strangers) <= 64
    (answer,) = prove(member, challenge_of(told).proof(SECRET.key("members"), Side.OPENER))
    assert answer.code == 0 and rig.listener.is_connected("n1")
    assert len(rig.member.refusals.texts()) <= 32


@pytest.mark.parametrize("named", [{}, {"java_members": ("n1",)}, {"tool_networks": (SOURCE,)}])
def test_strangers_of_many_addresses_push_out_no_member(named: dict[str, Any]) -> None:
    rig = closed(**named)
    member = rig.connect()
    told = hello(member)
    strangers = [rig.connect(f"203.0.113.{i}") for i in range(200)]
    assert sum(not is_closed(one) for one in strangers) < 64
    (answer,) = prove(member, challenge_of(told).proof(SECRET.key("members"), Side.OPENER))
    assert answer.code == 0 and rig.listener.is_connected("n1")


def test_what_a_stranger_of_an_open_group_says_is_cut_in_log_and_answer() -> None:
    rig = Rig(MEMBERS)
    lines: list[str] = []
    observer: Any = lambda event: lines.append(formatEvent(event))  # noqa: E731
    globalLogPublisher.addObserver(observer)
    try:
        answer = rig.connect().greet("n1", group="g\x1b[2J" * 100_000)
    finally:
        globalLogPublisher.removeObserver(observer)
    assert answer.code == DLedgerCode.UNKNOWN_GROUP and len(answer.remark or "") <= 300
    (line,) = lines
    assert len(line) < 1000 and line.isprintable()
