"""Messages as DLedger's JSON RPC (0.3.1.2), exactly as Java members write and read it.

A request carries its group and both ids, so each one is checked by itself; an answer carries
little, so it is read together with the request that it answers. Java parses the body whatever the
header says: every answer has a JSON object as body, with the result in `code`.

`decode_request` and `decode_answer` take any bytes and give a value or raise RemoteProtocolError.
Our words and Java's: member ids in `leaderId` (who sends) and `remoteId` (who
is meant), `voteResult` and `type` by name, checksums as signed numbers. Pre-votes, `previous` and
`recovering` do not exist there. No I/O.

Source: DLedgerRpcNettyService.java and protocol/*.java.
"""

from collections.abc import Callable
from struct import Struct
from typing import Any, Final

import msgspec
from msgspec import UNSET

from ledgermq.dledger.entry import HEAD_BYTES, EntryCodec, EntrySlice
from ledgermq.dledger.errors import CorruptEntryError
from ledgermq.dledger.messages import (
    AppendRequest,
    CommitRequest,
    CompareRequest,
    DLedgerCode,
    HeartBeatRequest,
    HeartBeatResponse,
    JsonCode,
    PushKind,
    PushRequest,
    PushResponse,
    TransferRequest,
    TransferResponse,
    TruncateRequest,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from ledgermq.dledger.replica.json_bodies import (
    AppendBody,
    EntryBody,
    GetBody,
    PushAnswerBody,
    PushBody,
    RequestBody,
    RpcBody,
    TransferBody,
    VoteAnswerBody,
    VoteBody,
)
from ledgermq.protocol.errors import RemoteProtocolError

MemberRequest = VoteRequest | HeartBeatRequest | PushRequest | TransferRequest
MemberAnswer = VoteResponse | HeartBeatResponse | PushResponse | TransferResponse

# The head of an entry with its checksums signed, as a Java int holds them.
_HEAD: Final = Struct(">iiqqqiiii")
assert _HEAD.size == HEAD_BYTES

# Any of the declared bodies as JSON.
encode_struct = msgspec.json.Encoder().encode
_REQUEST_DECODERS: Final[dict[int, Callable[[bytes], RequestBody]]] = {
    JsonCode.METADATA: msgspec.json.Decoder(RpcBody).decode,
    JsonCode.APPEND: msgspec.json.Decoder(AppendBody).decode,
    JsonCode.GET: msgspec.json.Decoder(GetBody).decode,
    JsonCode.VOTE: msgspec.json.Decoder(VoteBody).decode,
    JsonCode.HEART_BEAT: msgspec.json.Decoder(RpcBody).decode,
    JsonCode.PUSH: msgspec.json.Decoder(PushBody).decode,
    JsonCode.LEADERSHIP_TRANSFER: msgspec.json.Decoder(TransferBody).decode,
}
_decode_vote_answer = msgspec.json.Decoder(VoteAnswerBody).decode
_decode_rpc_answer = msgspec.json.Decoder(RpcBody).decode
_decode_push_answer = msgspec.json.Decoder(PushAnswerBody).decode
# What msgspec raises on bad bytes; the last one for nesting deeper than the interpreter's stack.
_DECODE_ERRORS: Final = (msgspec.MsgspecError, ValueError, RecursionError)

_CODES: Final = {int(code): code for code in DLedgerCode}
_VOTE_RESULTS: Final = {result.name: result for result in VoteResult}
# 0.1 spelled this one with two underscores.
_VOTE_RESULTS["REJECT_ALREADY__HAS_LEADER"] = VoteResult.REJECT_ALREADY_HAS_LEADER
_KINDS: Final = {kind.name: kind for kind in PushKind}


def encode_request(message: MemberRequest, group: str) -> tuple[int, bytes]:
    """Returns the request code and the body of a request to a Java member."""
    match message:
        case VoteRequest():
            body: msgspec.Struct = VoteBody(
                group=group,
                leader_id=message.sender,
                local_id=message.sender,
                remote_id=message.target,
                term=message.term,
                ledger_end_index=message.last_index,
                ledger_end_term=message.last_term,
            )
            return JsonCode.VOTE, encode_struct(body)
        case HeartBeatRequest():
            body = RpcBody(
                group=group,
                leader_id=message.sender,
                local_id=message.sender,
                remote_id=message.target,
                term=message.term,
            )
            return JsonCode.HEART_BEAT, encode_struct(body)
        case TransferRequest():
            body = TransferBody(
                group=group,
                leader_id=message.sender,
                local_id=message.sender,
                remote_id=message.target,
                take_leadership_ledger_index=message.last_index,
                term=message.term,
                transfer_id=message.sender,
                transferee_id=message.target,
            )
            return JsonCode.LEADERSHIP_TRANSFER, encode_struct(body)
        case _:
            return JsonCode.PUSH, encode_struct(_push_body(message, group))


def decode_request(code: int, body: bytes) -> RequestBody:
    """Reads the body of a request.

    Raises:
        RemoteProtocolError: the code has no body we know, or the bytes are no JSON object of the
            right types.
    """
    decoder = _REQUEST_DECODERS.get(code)
    if decoder is None:
        raise RemoteProtocolError("request code", code, "a request of DLedger")
    try:
        return decoder(body)
    except _DECODE_ERRORS as error:
        raise RemoteProtocolError("JSON body", str(error), JsonCode(code).name) from error


def message_of(
    code: int, body: RequestBody, *, target: str, codec: EntryCodec, request_id: int
) -> MemberRequest:
    """Turns a decoded request of a member into a message.

    Args:
        target: this member.
        codec: checks the entries.
        request_id: number under which the answer finds its way back; ours, Java has none.

    Raises:
        RemoteProtocolError: no sender, an unknown type, no entry where one is needed, or a damaged
            entry.
    """
    sender = body.leader_id
    if not isinstance(sender, str):
        raise RemoteProtocolError("leaderId", None)
    match body:
        case VoteBody():
            return VoteRequest(
                term=body.term,
                sender=sender,
                target=target,
                last_index=body.ledger_end_index,
                last_term=body.ledger_end_term,
            )
        case PushBody():
            return _push_message(body, sender, target, codec, request_id)
        case TransferBody():
            if body.transfer_id != sender:
                raise RemoteProtocolError("transferId", body.transfer_id, f"leaderId {sender!r}")
            return TransferRequest(
                term=body.term,
                sender=sender,
                target=target,
                last_index=body.take_leadership_ledger_index,
                request_id=request_id,
            )
        case _ if code == JsonCode.HEART_BEAT:
            return HeartBeatRequest(
                term=body.term, sender=sender, target=target, read_round=request_id
            )
    raise RemoteProtocolError("request code", code, "a request of a member")


def encode_answer(message: MemberAnswer, request: RequestBody) -> bytes:
    """Returns the body of the answer to a request of a Java member.

    A vote repeats the ids of its request; heart beat and transfer are answered bare; a push with
    the request's group.
    """
    match message:
        case VoteResponse():
            answer: msgspec.Struct = VoteAnswerBody(
                group=request.group or UNSET,
                leader_id=request.leader_id or UNSET,
                local_id=request.local_id or UNSET,
                remote_id=request.remote_id or UNSET,
                term=message.term,
                vote_result=message.result.name,
            )
        case HeartBeatResponse():
            is_told = message.code not in (
                DLedgerCode.SUCCESS,
                DLedgerCode.TERM_NOT_READY,
                DLedgerCode.INCONSISTENT_LEADER,
            )
            answer = RpcBody(code=message.code, term=message.term if is_told else -1)
        case PushResponse():
            index, count = message.index, message.count
            if index is not None and count > 1 and not request.local_id:
                # A leader before 0.3.0. What it takes for acknowledged is `index` (up to 0.2.5) or
                # `index + count - 1`; this is the last entry to all of them.
                index, count = index + count - 1, 1
            answer = PushAnswerBody(
                begin_index=message.begin_index,
                code=message.code,
                count=count,
                end_index=message.end_index,
                group=request.group or UNSET,
                index=UNSET if index is None else index,
                term=request.term,
            )
        case TransferResponse():
            answer = RpcBody(code=message.code, term=message.term)
    return encode_struct(answer)


def encode_refusal(
    code: int, request: RequestBody, result: DLedgerCode, leader_id: str | None
) -> bytes:
    """Returns the answer to a request that failed before it was looked into.

    It repeats group, term and ids of the request, and names the leader this member knows.
    """
    fields: dict[str, Any] = {
        "code": int(result),
        "group": request.group or UNSET,
        "leader_id": leader_id or UNSET,
        "local_id": request.local_id or UNSET,
        "remote_id": request.remote_id or UNSET,
        "term": request.term,
    }
    if code == JsonCode.PUSH:
        return encode_struct(PushAnswerBody(begin_index=0, end_index=0, **fields))
    if code == JsonCode.VOTE:
        return encode_struct(VoteAnswerBody(**fields))
    return encode_struct(RpcBody(**fields))


def drop_entries(request: RequestBody) -> None:
    """Leaves of a request what its answer repeats."""
    if isinstance(request, PushBody):
        request.entry, request.batch_entry = UNSET, None


def decode_answer(request: MemberRequest, body: bytes) -> MemberAnswer:
    """Reads the answer of a Java member to `request`, and adds from it what Java does not repeat.

    Raises:
        RemoteProtocolError: the bytes are no JSON object of the right types.
    """
    sender, target = request.target, request.sender
    try:
        match request:
            case VoteRequest():
                vote = _decode_vote_answer(body)
                result = _VOTE_RESULTS.get(vote.vote_result or "", VoteResult.UNKNOWN)
                return VoteResponse(
                    term=vote.term,
                    sender=sender,
                    target=target,
                    result=result,
                    round_term=request.term,
                )
            case HeartBeatRequest():
                beat = _decode_rpc_answer(body)
                return HeartBeatResponse(
                    term=beat.term if beat.code == DLedgerCode.EXPIRED_TERM else request.term,
                    sender=sender,
                    target=target,
                    code=_CODES.get(beat.code, DLedgerCode.UNKNOWN),
                    round=request.read_round,
                )
            case TransferRequest():
                taken = _decode_rpc_answer(body)
                return TransferResponse(
                    term=taken.term,
                    sender=sender,
                    target=target,
                    code=_CODES.get(taken.code, DLedgerCode.UNKNOWN),
                    request_id=request.request_id,
                )
            case _:
                push = _decode_push_answer(body)
    except _DECODE_ERRORS as error:
        raise RemoteProtocolError("JSON body", str(error), type(request).__name__) from error
    return PushResponse(
        term=push.term,
        sender=sender,
        target=target,
        kind=_kind_of(request),
        code=_CODES.get(push.code, DLedgerCode.UNKNOWN),
        index=push.index if isinstance(push.index, int) else None,
        count=push.count,
        begin_index=push.begin_index,
        end_index=push.end_index,
        request_id=request.request_id,
    )


def entry_bodies(entries: EntrySlice) -> list[EntryBody]:
    """Returns a run of entries as JSON has them."""
    bodies = []
    for start, body in zip(entries.starts, entries.bodies(), strict=True):
        (magic, size, index, term, position, channel, chain_crc, body_crc, _) = _HEAD.unpack_from(
            entries.data, start
        )
        bodies.append(
            EntryBody(
                body=bytes(body),
                body_crc=body_crc,
                chain_crc=chain_crc,
                channel=channel,
                index=index,
                magic=magic,
                pos=position,
                size=size,
                term=term,
            )
        )
    return bodies


def _kind_of(message: PushRequest) -> PushKind:
    match message:
        case AppendRequest():
            return PushKind.APPEND
        case CommitRequest():
            return PushKind.COMMIT
        case CompareRequest():
            return PushKind.COMPARE
        case TruncateRequest():
            return PushKind.TRUNCATE


def _push_body(message: PushRequest, group: str) -> PushBody:
    entries: EntrySlice | None = None
    if isinstance(message, AppendRequest):
        entries = message.entries
    elif not isinstance(message, CommitRequest):
        entries = message.entry
    body = PushBody(
        group=group,
        leader_id=message.sender,
        local_id=message.sender,
        remote_id=message.target,
        term=message.term,
        commit_index=message.commit_index,
        type=_kind_of(message).name,
    )
    if entries is not None:
        body.count = entries.count
        body.first_entry_index = entries.first_index
        body.last_entry_index = entries.last_index
        if entries.count == 1:
            body.entry = entry_bodies(entries)[0]
        else:
            body.batch = True
            body.batch_entry = entry_bodies(entries)
            body.total_size = len(entries.data)
    return body


def _push_message(
    body: PushBody, sender: str, target: str, codec: EntryCodec, request_id: int
) -> PushRequest:
    kind = _KINDS.get(body.type or "")
    if kind is None:
        raise RemoteProtocolError("type", body.type, "APPEND, COMMIT, COMPARE or TRUNCATE")
    fields: dict[str, Any] = {
        "term": body.term,
        "sender": sender,
        "target": target,
        "commit_index": body.commit_index,
        "request_id": request_id,
    }
    if kind is PushKind.COMMIT:
        return CommitRequest(**fields)
    bodies = body.batch_entry or ([body.entry] if isinstance(body.entry, EntryBody) else [])
    if not bodies:
        raise RemoteProtocolError("entry", None)
    if kind is PushKind.APPEND:
        return AppendRequest(entries=_run_of(bodies, codec), previous=None, **fields)
    request = CompareRequest if kind is PushKind.COMPARE else TruncateRequest
    return request(entry=_run_of(bodies[:1], codec), **fields)


def _run_of(bodies: list[EntryBody], codec: EntryCodec) -> EntrySlice:
    """Returns the entries as bytes, up to where a batch rolls into the next segment.

    What is left out of such a batch is sent again by the leader, because the answer's count does
    not cover it.
    """
    parts: list[bytes] = []
    position = bodies[0].pos
    for entry in bodies:
        if entry.pos != position or entry.body is None:
            break
        parts += (
            _HEAD.pack(
                entry.magic,
                entry.size,
                entry.index,
                entry.term,
                entry.pos,
                entry.channel,
                entry.chain_crc,
                entry.body_crc,
                len(entry.body),
            ),
            entry.body,
        )
        position += HEAD_BYTES + len(entry.body)
    try:
        return codec.parse(
            b"".join(parts), position=bodies[0].pos, previous=None, previous_chain_crc=0
        )
    except CorruptEntryError as error:
        raise RemoteProtocolError(error.field, str(error), "a whole, valid entry") from error
