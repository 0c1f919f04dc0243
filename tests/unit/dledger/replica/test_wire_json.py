"""DLedger's JSON bodies: compared with bodies that Java members of 0.3.1.2 wrote."""

import json
import random
from typing import Any

import pytest

from ledgermq.dledger.entry import EntryCodec
from ledgermq.dledger.messages import (
    AppendRequest,
    CommitRequest,
    CompareRequest,
    DLedgerCode,
    HeartBeatRequest,
    HeartBeatResponse,
    PushKind,
    PushResponse,
    TransferRequest,
    TransferResponse,
    TruncateRequest,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from ledgermq.dledger.replica import wire_json
from ledgermq.dledger.replica.wire_json import JsonCode, MemberRequest
from ledgermq.protocol.checksum import crc32c
from ledgermq.protocol.errors import RemoteProtocolError

CODEC = EntryCodec(crc32c)

VOTE = (
    b'{"code":200,"group":"g1","leaderId":"n0","ledgerEndIndex":-1,"ledgerEndTerm":-1,'
    b'"localId":"n0","remoteId":"n1","term":0}'
)
VOTE_ANSWER = (
    b'{"code":200,"group":"g1","leaderId":"n0","localId":"n0","remoteId":"n1","term":1,'
    b'"voteResult":"ACCEPT"}'
)
HEART_BEAT = b'{"code":200,"group":"g1","leaderId":"n0","localId":"n0","remoteId":"n1","term":1}'
PUSH = (
    b'{"batch":false,"batchEntry":[],"code":200,"commitIndex":0,"count":1,"entry":{"body":'
    b'"aGVsbG8=","bodyCrc":0,"chainCrc":0,"channel":0,"index":1,"magic":1,"pos":53,"size":53,'
    b'"term":1},"firstEntryIndex":1,"group":"g1","lastEntryIndex":1,"leaderId":"n0",'
    b'"localId":"n0","remoteId":"n2","term":1,"totalSize":0,"type":"APPEND"}'
)
COMMIT = (
    b'{"batch":false,"batchEntry":[],"code":200,"commitIndex":4,"count":0,"firstEntryIndex":-1,'
    b'"group":"g1","lastEntryIndex":-1,"leaderId":"n0","localId":"n0","remoteId":"n2","term":1,'
    b'"totalSize":0,"type":"COMMIT"}'
)
BATCH = (
    b'{"batch":true,"batchEntry":[{"body":"YQ==","bodyCrc":0,"chainCrc":0,"channel":0,"index":2,'
    b'"magic":1,"pos":106,"size":49,"term":1},{"body":"Yg==","bodyCrc":0,"chainCrc":0,"channel":0,'
    b'"index":3,"magic":1,"pos":155,"size":49,"term":1}],"code":200,"commitIndex":1,"count":2,'
    b'"firstEntryIndex":2,"group":"g1","lastEntryIndex":3,"leaderId":"n0","localId":"n0",'
    b'"remoteId":"n2","term":1,"totalSize":98,"type":"APPEND"}'
)
TRANSFER = (
    b'{"code":200,"group":"g1","leaderId":"n0","localId":"n0","remoteId":"n2",'
    b'"takeLeadershipLedgerIndex":4,"term":1,"transferId":"n0","transfereeId":"n2"}'
)
PUSH_ANSWER = b'{"beginIndex":0,"code":200,"count":1,"endIndex":4,"group":"g1","index":1,"term":1}'


def message_from(code: int, body: bytes, target: str = "n2") -> MemberRequest:
    request = wire_json.decode_request(code, body)
    return wire_json.message_of(code, request, target=target, codec=CODEC, request_id=77)


def changed(body: bytes, **changes: Any) -> bytes:
    return json.dumps({**json.loads(body), **changes}).encode()


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (JsonCode.VOTE, VOTE),
        (JsonCode.HEART_BEAT, HEART_BEAT),
        (JsonCode.PUSH, PUSH),
        (JsonCode.PUSH, COMMIT),
        (JsonCode.PUSH, BATCH),
        (JsonCode.PUSH, PUSH.replace(b'"APPEND"', b'"COMPARE"')),
        (JsonCode.PUSH, PUSH.replace(b'"APPEND"', b'"TRUNCATE"')),
        (JsonCode.LEADERSHIP_TRANSFER, TRANSFER),
    ],
)
def test_request_is_written_as_java_writes_it(code: int, body: bytes) -> None:
    target = json.loads(body)["remoteId"]
    assert wire_json.encode_request(message_from(code, body, target), "g1") == (code, body)


def test_requests_are_read() -> None:
    assert message_from(JsonCode.VOTE, VOTE) == VoteRequest(
        term=0, sender="n0", target="n2", last_index=-1, last_term=-1
    )
    assert message_from(JsonCode.HEART_BEAT, HEART_BEAT) == HeartBeatRequest(
        term=1, sender="n0", target="n2", commit_index=None, read_round=77
    )
    append = message_from(JsonCode.PUSH, BATCH)
    assert isinstance(append, AppendRequest)
    assert [bytes(body) for body in append.entries.bodies()] == [b"a", b"b"]
    assert (append.entries.first_index, append.entries.position) == (2, 106)
    assert (append.previous, append.commit_index, append.request_id) == (None, 1, 77)
    assert message_from(JsonCode.PUSH, COMMIT) == CommitRequest(
        term=1, sender="n0", target="n2", commit_index=4, request_id=77
    )
    compare = message_from(JsonCode.PUSH, changed(PUSH, type="COMPARE"))
    assert isinstance(compare, CompareRequest)
    truncate = message_from(JsonCode.PUSH, changed(PUSH, type="TRUNCATE"))
    assert isinstance(truncate, TruncateRequest)


def test_transfer_is_read_and_answered() -> None:
    request = TransferRequest(term=1, sender="n0", target="n2", last_index=4, request_id=77)
    assert message_from(JsonCode.LEADERSHIP_TRANSFER, TRANSFER) == request
    with pytest.raises(RemoteProtocolError, match="transferId"):
        message_from(JsonCode.LEADERSHIP_TRANSFER, changed(TRANSFER, transferId="n1"))
    answer = TransferResponse(
        term=2, sender="n2", target="n0", code=DLedgerCode.SUCCESS, request_id=77
    )
    body = wire_json.decode_request(JsonCode.LEADERSHIP_TRANSFER, TRANSFER)
    assert wire_json.encode_answer(answer, body) == b'{"code":200,"term":2}'
    assert wire_json.decode_answer(request, b'{"code":200,"term":2}') == answer
    refused = wire_json.decode_answer(
        request, b'{"code":407,"group":"g1","leaderId":"n2","remoteId":"n0","term":7}'
    )
    assert isinstance(refused, TransferResponse)
    assert (refused.code, refused.term) == (DLedgerCode.INCONSISTENT_TERM, 7)


def test_request_without_optional_keys_and_with_unknown_ones_is_read() -> None:
    """0.2.x writes no localId; computed getters are not trusted; later releases add keys."""
    sent = json.loads(PUSH)
    for key in ("localId", "batch", "batchEntry", "count", "totalSize", "code", "firstEntryIndex"):
        del sent[key]
    sent |= {"lastEntryIndex": "nonsense", "preLogIndex": [{}], "group": None}
    append = message_from(JsonCode.PUSH, json.dumps(sent).encode())
    assert isinstance(append, AppendRequest)
    assert append.entries.last_index == 1


def test_batch_that_rolls_into_the_next_segment_is_read_up_to_there() -> None:
    batch = json.loads(BATCH)["batchEntry"]
    batch[1]["pos"] = 1024
    append = message_from(JsonCode.PUSH, changed(BATCH, batchEntry=batch))
    assert isinstance(append, AppendRequest)
    assert append.entries.last_index == 2


def test_checksums_cross_the_wire_as_java_ints() -> None:
    entries = CODEC.encode(
        [b"%d" % i for i in range(8)], first_index=0, term=1, position=0, previous_chain_crc=0
    )
    request = AppendRequest(
        term=1,
        sender="n0",
        target="n2",
        entries=entries,
        previous=None,
        commit_index=-1,
        request_id=77,
    )
    _, body = wire_json.encode_request(request, "g1")
    crcs = [entry["chainCrc"] for entry in json.loads(body)["batchEntry"]]
    assert min(crcs) < 0
    assert all(-(2**31) <= crc < 2**31 for crc in crcs)
    assert message_from(JsonCode.PUSH, body) == request


@pytest.mark.parametrize(
    "body",
    [
        changed(PUSH, type="INSTALL_SNAPSHOT"),
        changed(PUSH, type=None),
        changed(PUSH, entry=None),
        changed(PUSH, leaderId=None),
        changed(PUSH, term=2**63),
        changed(PUSH, term="1"),
        changed(PUSH, entry={**json.loads(PUSH)["entry"], "size": 54}),
        changed(PUSH, entry={**json.loads(PUSH)["entry"], "body": "aGVsbG8"}),
        changed(PUSH, entry={**json.loads(PUSH)["entry"], "body": None}),
        changed(PUSH, entry={**json.loads(PUSH)["entry"], "bodyCrc": 5}),
        b"",
        b"null",
        b"[" * 100_000,
        b'{"group":' + b"9" * 5000,
        b"\xff\xfe",
    ],
)
def test_bad_request_is_refused(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        message_from(JsonCode.PUSH, body)


def test_flipped_and_cut_bodies_give_a_message_or_a_protocol_error() -> None:
    draws = random.Random(2)
    bodies = [(JsonCode.VOTE, VOTE), (JsonCode.PUSH, BATCH), (JsonCode.HEART_BEAT, HEART_BEAT)]
    for _ in range(3000):
        code, body = draws.choice(bodies)
        damaged = bytearray(body)
        for _ in range(draws.randrange(1, 4)):
            damaged[draws.randrange(len(damaged))] = draws.choice(b'0{}[],:"x\x00\xff9-')
        try:
            message_from(code, bytes(damaged[: draws.choice((len(damaged), 50))]))
            wire_json.decode_answer(
                CommitRequest(term=1, sender="a", target="b", commit_index=0, request_id=1),
                bytes(damaged),
            )
        except RemoteProtocolError:
            pass


def test_answers_are_written_as_java_writes_them() -> None:
    vote = wire_json.decode_request(JsonCode.VOTE, VOTE)
    answer = VoteResponse(term=1, sender="n1", target="n0", result=VoteResult.ACCEPT, round_term=0)
    assert wire_json.encode_answer(answer, vote) == VOTE_ANSWER
    push = wire_json.decode_request(JsonCode.PUSH, PUSH)
    pushed = PushResponse(
        term=1,
        sender="n2",
        target="n0",
        kind=PushKind.APPEND,
        code=DLedgerCode.SUCCESS,
        index=1,
        count=1,
        begin_index=0,
        end_index=4,
        request_id=77,
    )
    assert wire_json.encode_answer(pushed, push) == PUSH_ANSWER
    beat = wire_json.decode_request(JsonCode.HEART_BEAT, HEART_BEAT)
    for code, body in (
        (200, b'{"code":200,"term":-1}'),
        (403, b'{"code":403,"term":7}'),
        (409, b'{"code":409,"term":-1}'),
        (416, b'{"code":416,"term":-1}'),
    ):
        beaten = HeartBeatResponse(
            term=7, sender="n1", target="n0", code=DLedgerCode(code), round=77
        )
        assert wire_json.encode_answer(beaten, beat) == body


@pytest.mark.parametrize(
    ("local_id", "index", "count"), [("n0", 2, 2), (None, 3, 1)], ids=["0.3", "before 0.3"]
)
def test_batch_is_acknowledged_as_its_leader_understands_it(
    local_id: str | None, index: int, count: int
) -> None:
    """DLedger up to 0.2.5 takes `index` for the last entry that was acknowledged, later releases
    for the first one of `count`; none before 0.3.0 writes a localId."""
    request = wire_json.decode_request(JsonCode.PUSH, changed(BATCH, localId=local_id))
    pushed = PushResponse(
        term=1,
        sender="n2",
        target="n0",
        kind=PushKind.APPEND,
        code=DLedgerCode.SUCCESS,
        index=2,
        count=2,
        begin_index=0,
        end_index=3,
        request_id=77,
    )
    answer = json.loads(wire_json.encode_answer(pushed, request))
    assert (answer["index"], answer["count"]) == (index, count)


def test_refusals_are_written_as_java_writes_them() -> None:
    push = wire_json.decode_request(JsonCode.PUSH, changed(PUSH, localId=None, remoteId="n1"))
    assert wire_json.encode_refusal(JsonCode.PUSH, push, DLedgerCode.UNEXPECTED_ARGUMENT, "n0") == (
        b'{"beginIndex":0,"code":411,"count":0,"endIndex":0,"group":"g1","leaderId":"n0",'
        b'"remoteId":"n1","term":1}'
    )
    beat = wire_json.decode_request(JsonCode.HEART_BEAT, HEART_BEAT)
    assert json.loads(
        wire_json.encode_refusal(JsonCode.HEART_BEAT, beat, DLedgerCode.UNKNOWN_GROUP, None)
    ) == {"code": 400, "group": "g1", "localId": "n0", "remoteId": "n1", "term": 1}


def test_answers_are_read_with_what_their_request_says() -> None:
    vote = VoteRequest(term=5, sender="n0", target="n1", last_index=3, last_term=4)
    assert wire_json.decode_answer(vote, VOTE_ANSWER) == VoteResponse(
        term=1, sender="n1", target="n0", result=VoteResult.ACCEPT, round_term=5
    )
    strange = wire_json.decode_answer(vote, b'{"voteResult":"REJECT_BY_MOON"}')
    assert isinstance(strange, VoteResponse)
    assert strange.result is VoteResult.UNKNOWN
    beat = HeartBeatRequest(term=5, sender="n0", target="n1", read_round=9)
    for body, term, code in (
        (b'{"code":200,"term":-1}', 5, DLedgerCode.SUCCESS),
        (b'{"code":403,"term":7}', 7, DLedgerCode.EXPIRED_TERM),
        (b'{"code":999,"term":7}', 5, DLedgerCode.UNKNOWN),
    ):
        assert wire_json.decode_answer(beat, body) == HeartBeatResponse(
            term=term, sender="n1", target="n0", code=code, round=9
        )
    commit = CommitRequest(term=1, sender="n0", target="n1", commit_index=4, request_id=12)
    body = b'{"beginIndex":0,"code":200,"count":0,"endIndex":4,"group":"g1","term":1}'
    assert wire_json.decode_answer(commit, body) == PushResponse(
        term=1,
        sender="n1",
        target="n0",
        kind=PushKind.COMMIT,
        code=DLedgerCode.SUCCESS,
        index=None,
        count=0,
        begin_index=0,
        end_index=4,
        request_id=12,
    )
