"""Who is let in on the ledger's port, what is handed on, and where answers go."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from twisted.logger import globalLogPublisher

from ledgermq.dledger.entry import EntryId
from ledgermq.dledger.errors import (
    DropReason,
    NotLeaderError,
    ProposalDroppedError,
    TransferRefusal,
    TransferRefusedError,
)
from ledgermq.dledger.formats import Formats
from ledgermq.dledger.member_state import Role
from ledgermq.dledger.messages import (
    AppendRequest,
    CommitRequest,
    DLedgerCode,
    HeartBeatRequest,
    HeartBeatResponse,
    JsonCode,
    PushKind,
    PushResponse,
    TransferRequest,
    TransferResponse,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from ledgermq.dledger.replica import greeting_bodies, wire_json
from tests.unit.dledger.replica.callers import (
    CODEC,
    COMMIT,
    COMMIT_ANSWER,
    LOG,
    VOTE,
    Caller,
    Rig,
    binary,
)


@pytest.fixture
def log_lines() -> Iterator[list[str]]:
    lines: list[str] = []

    def observe(event: Any) -> None:
        lines.append(event["log_format"])

    globalLogPublisher.addObserver(observe)
    yield lines
    globalLogPublisher.removeObserver(observe)


def test_greeted_member_speaks_binary_and_is_answered_on_its_connection() -> None:
    rig = Rig()
    caller, other = rig.connect(), rig.connect()
    assert caller.greet().code == 0
    assert other.greet("n2").code == 0
    caller.send(binary(COMMIT))
    assert rig.member.messages == [COMMIT]
    rig.listener.answer(COMMIT_ANSWER)
    (answer,) = caller.answers()
    assert answer.code == 52010
    assert other.answers() == []


def test_answer_goes_to_the_newest_connection_of_a_member() -> None:
    rig = Rig()
    old, new = rig.connect(), rig.connect()
    old.greet()
    new.greet()
    old.connection.connectionLost()
    rig.listener.answer(COMMIT_ANSWER)
    assert len(new.answers()) == 1
    new.connection.connectionLost()
    rig.listener.answer(COMMIT_ANSWER)


def test_vote_is_answered_to_the_process_that_asked_for_it_or_to_nobody() -> None:
    rig = Rig()
    callers = [rig.connect(), rig.connect()]
    for caller in callers:
        caller.greet()
        caller.send(binary(VOTE))
    asked = [message for message in rig.member.messages if isinstance(message, VoteRequest)]
    assert asked == [VOTE, VOTE]
    answers = [
        VoteResponse(
            term=4,
            sender="n0",
            target="n1",
            result=VoteResult.ACCEPT,
            round_term=4,
            asked_on=request.asked_on,
        )
        for request in asked
    ]
    rig.listener.answer(answers[0])
    assert [len(caller.answers()) for caller in callers] == [1, 0]
    callers[0].connection.connectionLost()
    rig.listener.answer(answers[0])
    assert callers[1].answers() == []
    rig.listener.answer(answers[1])
    assert len(callers[1].answers()) == 1


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ({"group": "other"}, 400, "'other'"),
        ({"target": "n9"}, 401, "'n9'"),
        ({"sender": "n9"}, 401, "'n9'"),
        ({"sender": "n0"}, 401, "'n0'"),
        ({"version": 9}, 303, "9"),
        ({"segment_bytes": 4096}, 411, "4096"),
    ],
)
def test_stranger_is_refused_with_the_reason_and_one_log_line(
    changes: dict[str, Any], code: int, said: str, log_lines: list[str]
) -> None:
    caller = Rig().connect()
    for _ in range(3):
        answer = caller.greet(**changes)
        assert answer.code == code
        assert said in (answer.remark or "")
    assert len(log_lines) == 1
    caller.send(binary(COMMIT))
    assert caller.transport.disconnecting
    assert caller.rig.member.messages == []


def test_bad_hello_is_refused() -> None:
    (answer,) = Rig().connect().ask(52001, b"{")
    assert answer.code == 411


def test_bad_binary_frame_closes_its_connection_only() -> None:
    rig = Rig()
    caller, other = rig.connect(), rig.connect()
    caller.greet("n1")
    other.greet("n2")
    caller.ask(52009, b"short")
    assert caller.transport.disconnecting
    assert not other.transport.disconnecting


def append_of(bodies: list[bytes], previous: EntryId, chain_crc: int, position: int) -> bytes:
    entries = CODEC.encode(
        bodies,
        first_index=previous.index + 1,
        term=1,
        position=position,
        previous_chain_crc=chain_crc,
    )
    return binary(
        AppendRequest(
            term=1,
            sender="n1",
            target="n0",
            entries=entries,
            previous=previous,
            commit_index=0,
            request_id=5,
        )
    )


def test_run_must_continue_the_chain_of_the_run_before() -> None:
    rig = Rig()
    caller = rig.connect()
    caller.greet()
    end = len(LOG.data)
    caller.send(append_of([b"d"], EntryId(1, 2), LOG.last_chain_crc, end))
    (first,) = rig.member.messages
    assert isinstance(first, AppendRequest)
    caller.send(append_of([b"e"], EntryId(1, 3), first.entries.last_chain_crc, end + 49))
    assert len(rig.member.messages) == 2
    caller.send(append_of([b"f"], EntryId(1, 4), 12345, end + 98))
    assert caller.transport.disconnecting
    assert len(rig.member.messages) == 2


def test_run_that_breaks_the_chain_of_the_store_is_for_the_core() -> None:
    rig = Rig()
    caller = rig.connect()
    caller.greet()
    caller.send(append_of([b"d"], EntryId(1, 2), 12345, len(LOG.data)))
    (message,) = rig.member.messages
    assert isinstance(message, AppendRequest) and message.chain_mismatch is not None


def test_json_requests_are_answered_under_their_opaque_with_code_200() -> None:
    rig = Rig()
    caller = rig.connect()
    assert caller.ask_json(51001, 1, leaderId="n1", ledgerEndIndex=3, ledgerEndTerm=1) == []
    assert caller.ask_json(51002, 2) == []
    assert caller.ask_json(51004, 3, type="COMMIT", commitIndex=1) == []
    vote, beat, commit = rig.member.messages
    assert isinstance(vote, VoteRequest)
    assert isinstance(beat, HeartBeatRequest)
    assert isinstance(commit, CommitRequest)
    ids = {"sender": "n0", "target": "n1", "term": 1}
    code = DLedgerCode.SUCCESS
    rig.listener.answer(
        PushResponse(
            kind=PushKind.COMMIT,
            code=code,
            index=None,
            count=0,
            begin_index=0,
            end_index=2,
            request_id=commit.request_id,
            **ids,
        )
    )
    rig.listener.answer(HeartBeatResponse(code=code, round=beat.read_round, **ids))
    rig.listener.answer(VoteResponse(result=VoteResult.ACCEPT, round_term=vote.term, **ids))
    answers = caller.answers()
    assert [(answer.code, answer.opaque) for answer in answers] == [(200, 3), (200, 2), (200, 1)]
    assert json.loads(answers[2].body)["voteResult"] == "ACCEPT"


def test_code_of_a_binary_header_is_understood() -> None:
    """Java casts 51002 to 16 bits when its header is in the ROCKETMQ form."""
    rig = Rig()
    caller = rig.connect()
    assert caller.ask_json(51002 - 65536) == []
    assert isinstance(rig.member.messages[0], HeartBeatRequest)


@pytest.mark.parametrize(
    ("code", "fields", "answered"),
    [
        (51002, {"remoteId": "n5"}, 401),
        (51002, {"group": "other"}, 400),
        (51002, {"leaderId": "n5"}, 401),
        (51002, {"leaderId": "n0"}, 402),
        (51004, {"leaderId": "n5", "type": "COMMIT"}, 409),
        (51004, {"type": "APPEND"}, 411),
        (51004, {"type": "NONSENSE"}, 411),
        (50000, {"group": "other"}, 400),
        (51005, {"transferId": "n1", "transfereeId": "n2"}, 411),
        (51005, {"transferId": "n5", "transfereeId": "n0", "leaderId": "n5"}, 409),
        (51005, {"transferId": "n2", "transfereeId": "n0", "leaderId": "n1"}, 411),
    ],
)
def test_wrong_json_request_is_answered_with_its_code(
    code: int, fields: dict[str, Any], answered: int, log_lines: list[str]
) -> None:
    caller = Rig().connect()
    for _ in range(2):
        ((header, opaque, body),) = caller.ask_json(code, **fields)
        assert (header, opaque, body["code"]) == (200, 7, answered)
    assert caller.rig.member.messages == []
    assert len(log_lines) == 1
    assert not caller.transport.disconnecting


@pytest.mark.parametrize(
    ("candidate", "result"), [("n5", "REJECT_UNKNOWN_LEADER"), ("n0", "REJECT_UNEXPECTED_LEADER")]
)
def test_vote_for_a_stranger_is_refused(candidate: str, result: str) -> None:
    ((_, _, body),) = Rig().connect().ask_json(51001, leaderId=candidate)
    assert (body["code"], body["voteResult"]) == (200, result)


def test_unknown_code_and_undecodable_body_are_answered() -> None:
    caller = Rig().connect()
    (answer,) = caller.ask(51006, b"")
    assert answer.code == 3
    (answer,) = caller.ask(51004, b"\xff")
    assert (answer.code, json.loads(answer.body)["code"]) == (1, 411)
    (answer,) = caller.ask(51003, b"{}")
    assert answer.code == 1


def test_waiting_requests_are_bounded_and_forgotten_with_their_connection() -> None:
    rig = Rig(waiting_requests_max=2)
    caller = rig.connect()
    assert caller.ask_json(51004, 1, type="COMMIT") == []
    assert caller.ask_json(51004, 2, type="COMMIT") == []
    ((_, opaque, body),) = caller.ask_json(51004, 3, type="COMMIT")
    assert (opaque, body["code"]) == (1, 421)
    caller.connection.connectionLost()
    second = rig.member.messages[1]
    assert isinstance(second, CommitRequest)
    rig.listener.answer(
        wire_json_answer(second.request_id),
    )


def test_a_request_that_waits_keeps_no_entries() -> None:
    """A Java leader may have a thousand of them waiting for a disk, of 4 MiB each."""
    caller = Rig().connect()
    entries = CODEC.encode([b"x" * 50_000], first_index=0, term=1, position=0, previous_chain_crc=0)
    push = AppendRequest(
        term=1,
        sender="n1",
        target="n0",
        entries=entries,
        previous=None,
        commit_index=-1,
        request_id=1,
    )
    code, body = wire_json.encode_request(push, "g")
    assert caller.ask(code, body) == []
    assert caller.rig.member.messages == [replace(push, request_id=-2)]
    ((_, command, request),) = caller.connection.context.waiting.values()
    assert len(command.body) + len(repr(request)) < 1000


def wire_json_answer(request_id: int) -> PushResponse:
    commit = CommitRequest(term=1, sender="n0", target="n1", commit_index=0, request_id=request_id)
    answer = wire_json.decode_answer(commit, b"{}")
    assert isinstance(answer, PushResponse)
    return answer


def test_metadata_names_leader_and_peers() -> None:
    """And the term, which who hands the leadership over has to name."""
    ((_, _, body),) = Rig().connect().ask_json(50000, leaderId=None, localId=None)
    assert body == {
        "code": 200,
        "group": "g",
        "leaderId": "n0",
        "peers": {"n0": "h:1", "n1": "h:2", "n2": "h:3"},
        "term": 1,
    }


def test_get_gives_committed_entries_of_a_leader() -> None:
    rig = Rig()
    caller = rig.connect()
    ((_, _, body),) = caller.ask_json(JsonCode.GET, beginIndex=1)
    assert [(e["index"], e["body"], e["pos"]) for e in body["entries"]] == [(1, "Yg==", 49)]
    for index in (-1, 2, 3):
        ((_, _, body),) = caller.ask_json(JsonCode.GET, beginIndex=index)
        assert (body["code"], body["entries"]) == (410, [])
    rig.member.role = Role.FOLLOWER
    ((_, _, body),) = caller.ask_json(JsonCode.GET, beginIndex=1)
    assert body["code"] == 404


def test_append_is_answered_when_committed() -> None:
    rig = Rig(serves_append=True)
    caller = rig.connect()
    assert caller.ask_json(JsonCode.APPEND, body="aGVsbG8=") == []
    rig.clients.committed(3)
    assert caller.answers() == []
    rig.clients.committed(4)
    (answer,) = caller.answers()
    body = json.loads(answer.body)
    assert (body["code"], body["index"], body["pos"], body["term"]) == (200, 3, 147, 1)


def test_append_that_waits_too_long_or_loses_its_leader_is_answered() -> None:
    rig = Rig(serves_append=True)
    caller = rig.connect()
    assert rig.clients.deadline_ms() == float("inf")
    caller.ask_json(JsonCode.APPEND, body="aGVsbG8=")
    assert rig.clients.deadline_ms() == 2500.0
    rig.clients.expire(2499.0)
    assert caller.answers() == []
    rig.clients.expire(2500.0)
    assert json.loads(caller.answers()[0].body)["code"] == 502
    caller.ask_json(JsonCode.APPEND, body="aGVsbG8=")
    rig.clients.term_changed()
    assert json.loads(caller.answers()[0].body)["code"] == 501


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotLeaderError("n1", 1), 404),
        (ProposalDroppedError(DropReason.PENDING_FULL, 2, 1), 503),
        (ProposalDroppedError(DropReason.TRANSFERRING, 2, 1), 506),
    ],
)
def test_refused_append_is_answered(error: Exception, code: int) -> None:
    rig = Rig(serves_append=True)
    rig.member.error = error
    ((_, _, body),) = rig.connect().ask_json(JsonCode.APPEND, body="aGVsbG8=")
    assert (body["code"], body["index"]) == (code, -1)


def test_append_is_not_served_where_the_log_belongs_to_a_broker() -> None:
    ((_, _, body),) = Rig().connect().ask_json(JsonCode.APPEND, body="aGVsbG8=")
    assert body["code"] == 303


# -- handing over


def ask_to_hand_over(caller: Caller, target_id: str = "n2", term: int = 1) -> Any:
    fields = {"leaderId": None, "localId": None, "term": term}
    return caller.ask_json(51005, transferId="n0", transfereeId=target_id, **fields)


def test_leader_asks_this_member_to_take_over() -> None:
    rig = Rig()
    caller = rig.connect()
    fields = {"transferId": "n1", "transfereeId": "n0", "takeLeadershipLedgerIndex": 2}
    assert caller.ask_json(51005, **fields) == []
    (message,) = rig.member.messages
    assert message == TransferRequest(
        term=1, sender="n1", target="n0", last_index=2, request_id=message.request_id
    )
    rig.listener.answer(
        TransferResponse(
            term=2,
            sender="n0",
            target="n1",
            code=DLedgerCode.SUCCESS,
            request_id=message.request_id,
        )
    )
    (answer,) = caller.answers()
    assert json.loads(answer.body) == {"code": 200, "term": 2}


@pytest.mark.parametrize(("leader_id", "code"), [("n2", 200), ("n1", 418)])
def test_tool_hears_who_leads_after_a_transfer(leader_id: str, code: int) -> None:
    rig = Rig()
    caller = rig.connect()
    assert ask_to_hand_over(caller) == []
    assert rig.member.transfer_begun.target_id == "n2"
    rig.member.term, rig.member.leader_id = 2, None
    rig.clients.look_at_transfer()
    assert caller.answers() == []
    rig.member.leader_id = leader_id
    rig.clients.look_at_transfer()
    (answer,) = caller.answers()
    assert json.loads(answer.body) == {"code": code, "leaderId": leader_id, "term": 2}
    assert rig.clients.deadline_ms() == float("inf")


def test_who_asked_for_another_leader_is_told() -> None:
    """Whoever may use the port of the ledger changes who leads, without an account."""
    rig = Rig()
    told: list[tuple[str, str, str | None]] = []
    rig.clients.on_hand_over = lambda *words: told.append(words)
    caller = rig.connect()
    ask_to_hand_over(caller)
    rig.member.term, rig.member.leader_id = 2, "n2"
    rig.clients.look_at_transfer()
    rig.member.error = NotLeaderError("n2", 2)
    ask_to_hand_over(caller, term=2)
    (_, target, done), (_, _, failed) = told
    assert (target, done) == ("n2", None) and str(failed).startswith("NOT_LEADER: ")


def test_tool_hears_why_a_transfer_failed() -> None:
    rig = Rig()
    caller = rig.connect()
    ask_to_hand_over(caller)
    rig.member.transfer_begun.code = DLedgerCode.TIMEOUT
    rig.clients.look_at_transfer()
    (answer,) = caller.answers()
    assert json.loads(answer.body) == {"code": 300, "leaderId": "n0", "term": 1}
    ask_to_hand_over(caller)
    assert rig.clients.deadline_ms() == 6000
    rig.clients.expire(6000)
    (answer,) = caller.answers()
    assert json.loads(answer.body)["code"] == 300


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotLeaderError("n1", 1), 404),
        (TransferRefusedError(TransferRefusal.UNKNOWN_MEMBER, "n9", 0, 0), 401),
        (TransferRefusedError(TransferRefusal.UNDER_WAY, "n2", 5, 3000), 506),
        (TransferRefusedError(TransferRefusal.BEHIND, "n2", 5000, 1000), 417),
        (TransferRefusedError(TransferRefusal.SILENT, "n2", 5000, 1000), 417),
        (TransferRefusedError(TransferRefusal.RECOVERING, "n2", 0, 0), 417),
    ],
)
def test_transfer_is_refused_with_java_codes_and_a_reason(error: Exception, code: int) -> None:
    rig = Rig()
    rig.member.error = error
    caller = rig.connect()
    body = {"group": "g", "remoteId": "n0", "transferId": "n0", "transfereeId": "n2", "term": 1}
    (answer,) = caller.ask(51005, json.dumps(body).encode())
    assert answer.remark == str(error)
    assert json.loads(answer.body)["code"] == code


def test_transfer_of_a_past_term_is_refused() -> None:
    rig = Rig()
    rig.member.term = 7
    ((_, _, body),) = ask_to_hand_over(rig.connect(), term=6)
    assert (body["code"], body["term"]) == (407, 7)


def test_a_greeting_is_answered_with_what_this_member_reads() -> None:
    rig = Rig()
    rig.member.own_formats = Formats(3, 2)
    answer = rig.connect().greet(reads=2)
    assert answer.code == 0
    assert greeting_bodies.decode_hello_answer(answer.body).formats == Formats(3, 2)


@pytest.mark.parametrize(
    ("own", "told", "reason"),
    [
        (Formats(2, 2), {"reads": 1}, "of n1 reads formats up to 1, and the state of n0 is in"),
        (Formats(1, 1), {"reads": 2, "needs": 2}, "of n0 reads formats up to 1, and the state of"),
    ],
)
def test_members_of_which_one_does_not_read_the_other_are_not_joined(
    own: Formats, told: dict[str, Any], reason: str, log_lines: list[str]
) -> None:
    rig = Rig()
    rig.member.own_formats = own
    caller = rig.connect()
    answer = caller.greet(**told)
    assert answer.code == DLedgerCode.UNSUPPORTED and reason in (answer.remark or "")
    assert greeting_bodies.decode_hello_answer(answer.body).formats == own
    assert not rig.listener.is_connected("n1")
    assert reason in (rig.member.formats.alarm or "")
    caller.send(binary(COMMIT))
    assert rig.member.messages == []


def test_who_is_refused_for_another_reason_is_told_no_formats() -> None:
    assert Rig().connect().greet(group="other").body == b""


@pytest.mark.parametrize("reads", [0, -1, 65_536, "2", None])
def test_a_format_that_cannot_be_is_no_greeting(reads: Any) -> None:
    caller = Rig().connect()
    hello = {"version": 2, "group": "g", "sender": "n1", "target": "n0", "segment_bytes": 1}
    (answer,) = caller.ask(52001, json.dumps({**hello, "reads": reads}).encode())
    assert answer.code == DLedgerCode.UNEXPECTED_ARGUMENT
