"""Messages as binary frames between LedgerMQ members, on the same port as DLedger's JSON.

A frame is a RemotingCommand frame as on any RocketMQ port, so that a peer which does not know the
code can say so; its header is constant for each code, its body is

    fixed fields, big-endian, then for COMPARE, TRUNCATE and APPEND the raw run of entries,
    for votes, heart beats, their answers and BIRTH the birth that the sender holds, if any:
    1 whether it is agreed, 16 id, the ids of its members joined by semicolons (empty: the sender
    does not know that all members have the same list)

No Base64, no work for each entry: the run goes out as the leader encoded it, in its own piece, and
is not copied. All frames but HELLO are one-way; answers travel back on the connection on which the
requests came, as frames of their own codes. Who sends and who is meant is settled once, by HELLO,
which opens a connection (`greeting_bodies.py`). PING is answered on the connection on which it
came, by the connection's owner and not by the core; the answer carries the wall clock.
A Java peer answers HELLO with "not supported", and the connection goes on in JSON.

`decode` takes any bytes and gives a message or raises RemoteProtocolError. No I/O.
"""

from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from typing import Any, Final, NoReturn

from ledgermq.dledger.birth import Birth, Standing
from ledgermq.dledger.entry import HEAD_BYTES, EntryCodec, EntryId, EntrySlice, read_head
from ledgermq.dledger.errors import CorruptEntryError
from ledgermq.dledger.messages import (
    AppendRequest,
    BirthReport,
    CommitRequest,
    CompareRequest,
    DLedgerCode,
    HeartBeatRequest,
    HeartBeatResponse,
    LinkMessage,
    PushKind,
    PushResponse,
    ReadIndexRequest,
    ReadIndexResponse,
    ReadMessage,
    TransferRequest,
    TransferResponse,
    TruncateRequest,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from ledgermq.protocol.codes import ONE_WAY_FLAG, LanguageCode
from ledgermq.protocol.command import RemotingCommand, encode_parts
from ledgermq.protocol.errors import RemoteProtocolError


class BinaryCode(IntEnum):
    """Request codes of the frames; no other program is known to use this range."""

    HELLO = 52001
    VOTE = 52002
    VOTE_ANSWER = 52003
    HEART_BEAT = 52004
    HEART_BEAT_ANSWER = 52005
    COMPARE = 52006
    TRUNCATE = 52007
    APPEND = 52008
    COMMIT = 52009
    PUSH_ANSWER = 52010
    TRANSFER = 52011
    TRANSFER_ANSWER = 52012
    PING = 52013
    PING_ANSWER = 52014
    BIRTH = 52015
    PROOF = 52016
    READ_INDEX = 52017
    READ_INDEX_ANSWER = 52018


# What names its sender's birth and member list.
Voice = VoteRequest | VoteResponse | HeartBeatRequest | HeartBeatResponse | BirthReport
# Tells the chain checksum of an entry that the receiver holds, or None when it does not know.
ChainCrcOf = Callable[[EntryId], int | None]

# 8 term, 8 last_index, 8 last_term, 1 pre_vote, 8 members_digest
_VOTE: Final = Struct(">qqq?q")
# 8 term, 8 round_term, 1 result, 1 pre_vote, 8 members_digest
_VOTE_ANSWER: Final = Struct(">qqB?q")
# 8 term, 8 commit_index (-2: None), 8 read_round, 8 life, 8 members_digest
_HEART_BEAT: Final = Struct(">qqqqq")
# 8 term, 8 round, 2 code, 1 recovering, 8 life, 8 members_digest
_HEART_BEAT_ANSWER: Final = Struct(">qqh?qq")
# 8 term, 8 commit_index, 8 request_id, 1 wants_sync; then one entry
_ONE_ENTRY: Final = Struct(">qqq?")
# 8 term, 8 commit_index, 8 request_id, 8 term and 8 index of previous (-2: None), 1 wants_sync;
# then entries
_APPEND: Final = Struct(">qqqqq?")
# 8 term, 8 commit_index, 8 request_id
_COMMIT: Final = Struct(">qqq")
# 8 term, 8 index (-1: None), 8 begin_index, 8 end_index, 8 request_id, 4 count, 2 code, 1 kind,
# 1 recovering, 1 is_synced
_PUSH_ANSWER: Final = Struct(">qqqqqihB??")
# 8 term, 8 last_index, 8 request_id
_TRANSFER: Final = Struct(">qqq")
# 8 term, 8 request_id, 2 code
_TRANSFER_ANSWER: Final = Struct(">qqh")
# 8 term, 8 number; in an answer 8 commit_index (-2: None)
_READ_INDEX: Final = Struct(">qq")
_READ_INDEX_ANSWER: Final = Struct(">qqq")
# 8 term, 8 life, 8 number, 8 answers, 1 wants_answer, 1 standing, 8 members_digest
_BIRTH: Final = Struct(">qqqq?Bq")
_VOICES: Final[dict[int, Struct]] = {
    BinaryCode.HEART_BEAT: _HEART_BEAT,
    BinaryCode.HEART_BEAT_ANSWER: _HEART_BEAT_ANSWER,
    BinaryCode.VOTE: _VOTE,
    BinaryCode.VOTE_ANSWER: _VOTE_ANSWER,
    BinaryCode.BIRTH: _BIRTH,
}
# 8 monotonic time of the sender, us; in an answer the same, and 8 wall clock, ms since 1970
_PING: Final = Struct(">q")
_PING_ANSWER: Final = Struct(">qq")
# 1 is_agreed, 16 id; then ids of members
_HELD_BIRTH: Final = Struct(">?16s")
# Ids of members joined: more than any group has.
_MEMBERS_BYTES_MAX: Final = 4096
# Of a wall clock: far behind what store times have room for.
_WALL_MS_MAX: Final = 1 << 53
# Stands for None where -1 has a meaning of its own.
_NONE: Final = -2

# 4 length of all that follows
_LENGTH: Final = Struct(">I")
# The rest of the head of a frame, the same in every frame of a code.
_HEADER: Final[dict[int, bytes]] = {
    code: bytes(
        encode_parts(
            RemotingCommand(code=code, flag=ONE_WAY_FLAG, language=LanguageCode.PYTHON), ()
        )[0]
    )[4:]
    for code in map(int, BinaryCode)
}

_VOTE_RESULTS: Final = {int(result): result for result in VoteResult}
_CODES: Final = {int(code): code for code in DLedgerCode}
_KINDS: Final = {int(kind): kind for kind in PushKind}
_STANDINGS: Final = {int(standing): standing for standing in Standing}


def encode(message: LinkMessage) -> list[bytes | memoryview]:
    """Returns a message as the pieces of one whole frame; a run of entries is not copied."""
    match message:
        case AppendRequest():
            previous = message.previous or EntryId(_NONE, _NONE)
            fixed = _APPEND.pack(
                message.term,
                message.commit_index,
                message.request_id,
                previous.term,
                previous.index,
                message.wants_sync,
            )
            return _frame(BinaryCode.APPEND, fixed, message.entries.data)
        case PushResponse():
            return _frame(BinaryCode.PUSH_ANSWER, _pack_push_answer(message))
        case CommitRequest():
            fixed = _COMMIT.pack(message.term, message.commit_index, message.request_id)
            return _frame(BinaryCode.COMMIT, fixed)
        case CompareRequest() | TruncateRequest():
            fixed = _ONE_ENTRY.pack(
                message.term, message.commit_index, message.request_id, message.wants_sync
            )
            is_compare = isinstance(message, CompareRequest)
            code = BinaryCode.COMPARE if is_compare else BinaryCode.TRUNCATE
            return _frame(code, fixed, message.entry.data)
        case TransferRequest():
            fixed = _TRANSFER.pack(message.term, message.last_index, message.request_id)
            return _frame(BinaryCode.TRANSFER, fixed)
        case TransferResponse():
            fixed = _TRANSFER_ANSWER.pack(message.term, message.request_id, message.code)
            return _frame(BinaryCode.TRANSFER_ANSWER, fixed)
        case ReadIndexRequest():
            return _frame(BinaryCode.READ_INDEX, _READ_INDEX.pack(message.term, message.number))
        case ReadIndexResponse():
            commit_index = _NONE if message.commit_index is None else message.commit_index
            fixed = _READ_INDEX_ANSWER.pack(message.term, message.number, commit_index)
            return _frame(BinaryCode.READ_INDEX_ANSWER, fixed)
        case _:
            return _encode_voice(message)


def _encode_voice(message: Voice) -> list[bytes | memoryview]:
    """Writes what names its sender's membership: heart beats, votes and reports."""
    fields: tuple[object, ...]
    match message:
        case HeartBeatRequest():
            code, layout = BinaryCode.HEART_BEAT, _HEART_BEAT
            commit_index = _NONE if message.commit_index is None else message.commit_index
            fields = commit_index, message.read_round, message.life
        case HeartBeatResponse():
            code, layout = BinaryCode.HEART_BEAT_ANSWER, _HEART_BEAT_ANSWER
            fields = message.round, message.code, message.recovering, message.life
        case VoteRequest():
            code, layout = BinaryCode.VOTE, _VOTE
            fields = message.last_index, message.last_term, message.pre_vote
        case VoteResponse():
            code, layout = BinaryCode.VOTE_ANSWER, _VOTE_ANSWER
            fields = message.round_term, message.result, message.pre_vote
        case BirthReport():
            code, layout = BinaryCode.BIRTH, _BIRTH
            fields = (
                message.life,
                message.number,
                message.answers,
                message.wants_answer,
                message.standing,
            )
    fixed = layout.pack(message.term, *fields, message.members_digest)
    return _frame(code, fixed + _pack_birth(message.birth))


def decode(
    code: int,
    body: bytes,
    *,
    sender: str,
    target: str,
    codec: EntryCodec,
    chain_crc_of: ChainCrcOf,
) -> LinkMessage:
    """Reads the body of one frame.

    Args:
        code: code of the frame; one of BinaryCode but HELLO and PING with its answer.
        body: kept by the message when it holds entries.
        sender: member at the other end of the connection, as HELLO said.
        target: this member.
        codec: checks the entries, checksums included.
        chain_crc_of: asked for the entry before a run, to check that the run continues its chain.

    Raises:
        RemoteProtocolError: the code is none of ours, a size or number does not fit, or an entry is
            damaged.
    """
    match code:
        case BinaryCode.APPEND:
            return _decode_append(body, sender, target, codec, chain_crc_of)
        case BinaryCode.PUSH_ANSWER:
            return _decode_push_answer(body, sender, target)
        case BinaryCode.COMMIT:
            term, commit_index, request_id = _unpack(_COMMIT, code, body)
            return CommitRequest(
                term=term,
                sender=sender,
                target=target,
                commit_index=commit_index,
                request_id=request_id,
            )
        case BinaryCode.COMPARE | BinaryCode.TRUNCATE:
            return _decode_one_entry(code, body, sender, target, codec)
        case BinaryCode.TRANSFER:
            term, last_index, request_id = _unpack(_TRANSFER, code, body)
            return TransferRequest(
                term=term,
                sender=sender,
                target=target,
                last_index=last_index,
                request_id=request_id,
            )
        case BinaryCode.TRANSFER_ANSWER:
            term, request_id, answer_code = _unpack(_TRANSFER_ANSWER, code, body)
            return TransferResponse(
                term=term,
                sender=sender,
                target=target,
                code=_CODES.get(answer_code) or _refuse("code", answer_code, DLedgerCode),
                request_id=request_id,
            )
        case BinaryCode.READ_INDEX | BinaryCode.READ_INDEX_ANSWER:
            return _decode_read(code, body, sender, target)
        case _:
            return _decode_voice(code, body, sender, target)


def ping_frame(sent_us: int) -> bytes:
    """Returns a PING, which is about the connection and not about the log."""
    return bytes(_frame(BinaryCode.PING, _PING.pack(sent_us))[0])


def ping_answer_frame(ping_body: bytes, wall_ms: int) -> bytes:
    """Returns the answer to a PING.

    Raises:
        RemoteProtocolError: the body is none of a PING.
    """
    (sent_us,) = _unpack(_PING, BinaryCode.PING, ping_body)
    return bytes(_frame(BinaryCode.PING_ANSWER, _PING_ANSWER.pack(sent_us, wall_ms))[0])


def decode_ping_answer(body: bytes) -> tuple[int, int]:
    """Returns the time that the PING carried, and the wall clock of the peer.

    Raises:
        RemoteProtocolError: it is no answer to a PING.
    """
    sent_us, wall_ms = _unpack(_PING_ANSWER, BinaryCode.PING_ANSWER, body)
    if not 0 <= wall_ms <= _WALL_MS_MAX:
        raise RemoteProtocolError("wall clock", wall_ms, f"0 to {_WALL_MS_MAX}")
    return sent_us, wall_ms


def _frame(code: int, fixed: bytes, data: bytes | memoryview = b"") -> list[bytes | memoryview]:
    header = _HEADER[code]
    head = _LENGTH.pack(len(header) + len(fixed) + len(data)) + header + fixed
    return [head, data] if data else [head]


def _decode_read(code: int, body: bytes, sender: str, target: str) -> ReadMessage:
    if code == BinaryCode.READ_INDEX:
        term, number = _unpack(_READ_INDEX, code, body)
        return ReadIndexRequest(term=term, sender=sender, target=target, number=number)
    term, number, index = _unpack(_READ_INDEX_ANSWER, code, body)
    commit_index = None if index == _NONE else index
    return ReadIndexResponse(
        term=term, sender=sender, target=target, number=number, commit_index=commit_index
    )


def _decode_voice(code: int, body: bytes, sender: str, target: str) -> Voice:
    """Reads what names its sender's membership: heart beats, votes and reports."""
    layout = _VOICES.get(code)
    if layout is None:
        _refuse("code of a binary frame", code, BinaryCode)
    (term, *fields, digest), birth = _unpack_voice(layout, code, body)
    known: dict[str, Any] = {"term": term, "sender": sender, "target": target}
    known |= {"birth": birth, "members_digest": digest}
    match code:
        case BinaryCode.HEART_BEAT:
            commit_index, read_round, life = fields
            known["commit_index"] = None if commit_index == _NONE else commit_index
            return HeartBeatRequest(read_round=read_round, life=life, **known)
        case BinaryCode.HEART_BEAT_ANSWER:
            round_number, answer_code, recovering, life = fields
            known["code"] = _CODES.get(answer_code) or _refuse("code", answer_code, DLedgerCode)
            return HeartBeatResponse(round=round_number, recovering=recovering, life=life, **known)
        case BinaryCode.VOTE:
            last_index, last_term, pre_vote = fields
            return VoteRequest(
                last_index=last_index, last_term=last_term, pre_vote=pre_vote, **known
            )
        case BinaryCode.VOTE_ANSWER:
            round_term, result, pre_vote = fields
            if result not in _VOTE_RESULTS:
                _refuse("vote result", result, VoteResult)
            known["result"] = _VOTE_RESULTS[result]
            return VoteResponse(round_term=round_term, pre_vote=pre_vote, **known)
        case _:
            life, number, answers, wants_answer, standing = fields
            known["standing"] = _STANDINGS.get(standing) or _refuse("standing", standing, Standing)
            return BirthReport(
                life=life, number=number, answers=answers, wants_answer=wants_answer, **known
            )


def _pack_birth(birth: Birth | None) -> bytes:
    if birth is None:
        return b""
    fixed = _HELD_BIRTH.pack(birth.is_agreed, bytes.fromhex(birth.group_id))
    return fixed + ";".join(birth.members).encode()


def _unpack_voice(layout: Struct, code: int, body: bytes) -> tuple[tuple[Any, ...], Birth | None]:
    """Reads the fixed fields, and the birth behind them."""
    if len(body) == layout.size:
        return layout.unpack(body), None
    start = layout.size + _HELD_BIRTH.size
    if not start <= len(body) <= start + _MEMBERS_BYTES_MAX:
        allowed = f"{layout.size}, or {start} to {start + _MEMBERS_BYTES_MAX}"
        raise RemoteProtocolError(f"body of {BinaryCode(code).name}", len(body), allowed)
    is_agreed, group_id = _HELD_BIRTH.unpack_from(body, layout.size)
    try:
        text = body[start:].decode()
        members = tuple(text.split(";")) if text else ()
    except UnicodeDecodeError as error:
        raise RemoteProtocolError("members of a birth", str(error), "UTF-8") from error
    if not all(members):
        raise RemoteProtocolError("members of a birth", members, "ids that are not empty")
    return layout.unpack_from(body), Birth(group_id.hex(), members, is_agreed)


def _pack_push_answer(message: PushResponse) -> bytes:
    return _PUSH_ANSWER.pack(
        message.term,
        -1 if message.index is None else message.index,
        message.begin_index,
        message.end_index,
        message.request_id,
        message.count,
        message.code,
        message.kind,
        message.recovering,
        message.is_synced,
    )


def _decode_push_answer(body: bytes, sender: str, target: str) -> PushResponse:
    (term, index, begin_index, end_index, request_id, count, code, kind, recovering, is_synced) = (
        _unpack(_PUSH_ANSWER, BinaryCode.PUSH_ANSWER, body)
    )
    if code not in _CODES:
        _refuse("code", code, DLedgerCode)
    if kind not in _KINDS:
        _refuse("kind of a push", kind, PushKind)
    return PushResponse(
        term=term,
        sender=sender,
        target=target,
        kind=_KINDS[kind],
        code=_CODES[code],
        index=None if index == -1 else index,
        count=count,
        begin_index=begin_index,
        end_index=end_index,
        request_id=request_id,
        recovering=recovering,
        is_synced=is_synced,
    )


def _decode_one_entry(
    code: int, body: bytes, sender: str, target: str, codec: EntryCodec
) -> CompareRequest | TruncateRequest:
    entry = _parse(codec, _data_after(_ONE_ENTRY, code, body), None, 0)
    term, commit_index, request_id, wants_sync = _ONE_ENTRY.unpack_from(body, 0)
    if entry.count != 1:
        raise RemoteProtocolError("count of entries", entry.count, 1)
    request = CompareRequest if code == BinaryCode.COMPARE else TruncateRequest
    return request(
        term=term,
        sender=sender,
        target=target,
        entry=entry,
        commit_index=commit_index,
        request_id=request_id,
        wants_sync=wants_sync,
    )


def _decode_append(
    body: bytes, sender: str, target: str, codec: EntryCodec, chain_crc_of: ChainCrcOf
) -> AppendRequest:
    data = _data_after(_APPEND, BinaryCode.APPEND, body)
    term, commit_index, request_id, before_term, before_index, wants_sync = _APPEND.unpack_from(
        body
    )
    previous = None if before_index == _NONE else EntryId(before_term, before_index)
    chain_crc = chain_crc_of(previous) if previous is not None and previous.index >= 0 else None
    chain_mismatch = None
    if previous is None or chain_crc is None:
        entries = _parse(codec, data, None, 0)
    else:
        try:
            entries = _parse(codec, data, previous, chain_crc)
        except RemoteProtocolError as error:
            wrong = error.__cause__
            if not isinstance(wrong, CorruptEntryError) or wrong.field != "chain_crc":
                raise
            # Where the run is whole without the entry before it, it continues another entry.
            entries = _parse(codec, data, None, 0)
            chain_mismatch = wrong.expected, wrong.found
    if previous is not None and previous.index >= 0:
        if entries.first_index != previous.index + 1:
            raise RemoteProtocolError("index", entries.first_index, previous.index + 1)
        if entries.first_term < previous.term:
            raise RemoteProtocolError("term", entries.first_term, f"at least {previous.term}")
    return AppendRequest(
        term=term,
        sender=sender,
        target=target,
        entries=entries,
        previous=previous,
        commit_index=commit_index,
        request_id=request_id,
        wants_sync=wants_sync,
        chain_mismatch=chain_mismatch,
    )


def _parse(
    codec: EntryCodec, data: memoryview, previous: EntryId | None, previous_chain_crc: int
) -> EntrySlice:
    """Reads entries whose position is what their first head says; the core checks that."""
    position = read_head(data).position
    try:
        return codec.parse(
            data, position=position, previous=previous, previous_chain_crc=previous_chain_crc
        )
    except CorruptEntryError as error:
        raise RemoteProtocolError(error.field, str(error), "a whole, valid entry") from error


def _unpack(layout: Struct, code: int, body: bytes) -> tuple[Any, ...]:
    if len(body) != layout.size:
        raise RemoteProtocolError(f"body of {BinaryCode(code).name}", len(body), layout.size)
    return layout.unpack(body)


def _data_after(layout: Struct, code: int, body: bytes) -> memoryview:
    """The run of entries behind the fixed fields: at least one head is there."""
    size_min = layout.size + HEAD_BYTES
    if len(body) < size_min:
        limit = f"at least {size_min}"
        raise RemoteProtocolError(f"body of {BinaryCode(code).name}", len(body), limit)
    return memoryview(body)[layout.size :]


def _refuse(field: str, value: object, allowed: type[IntEnum]) -> NoReturn:
    raise RemoteProtocolError(field, value, allowed.__name__)
