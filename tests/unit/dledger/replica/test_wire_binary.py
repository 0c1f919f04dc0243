"""Binary frames between members: what goes in comes out, and nothing else does."""

import random
from dataclasses import replace
from struct import pack

import pytest

from ledgermq.dledger.birth import Birth, Standing
from ledgermq.dledger.entry import EntryCodec, EntryId, EntrySlice
from ledgermq.dledger.messages import (
    AppendRequest,
    BirthReport,
    CommitRequest,
    CompareRequest,
    DLedgerCode,
    HeartBeatRequest,
    HeartBeatResponse,
    LinkMessage,
    Message,
    PushKind,
    PushResponse,
    ReadIndexRequest,
    ReadIndexResponse,
    TransferRequest,
    TransferResponse,
    TruncateRequest,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from ledgermq.dledger.replica import greeting_bodies, wire_binary
from ledgermq.protocol.checksum import crc32c
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.command import decode as decode_command
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.framing import FrameDecoder

CODEC = EntryCodec(crc32c)


def run_of(count: int, *, first_index: int = 7, chain_crc: int = 99) -> EntrySlice:
    return CODEC.encode(
        [b"body %d" % i for i in range(count)],
        first_index=first_index,
        term=3,
        position=1000,
        previous_chain_crc=chain_crc,
    )


def append_of(entries: EntrySlice) -> AppendRequest:
    return AppendRequest(
        term=4,
        sender="n0",
        target="n1",
        entries=entries,
        previous=EntryId(3, 6),
        commit_index=6,
        request_id=1,
    )


def frame_of(message: Message) -> RemotingCommand:
    (frame,) = FrameDecoder().feed(b"".join(wire_binary.encode(message)))
    return decode_command(frame)


def read(code: int, body: bytes, chain_crc: int | None = 99) -> LinkMessage:
    return wire_binary.decode(
        code, body, sender="n0", target="n1", codec=CODEC, chain_crc_of=lambda _: chain_crc
    )


PUSH_ANSWER = PushResponse(
    term=3,
    sender="n0",
    target="n1",
    kind=PushKind.APPEND,
    code=DLedgerCode.SUCCESS,
    index=7,
    count=64,
    begin_index=0,
    end_index=70,
    request_id=12,
    recovering=True,
)
BIRTH = Birth("0123456789abcdef" * 2, ("n0", "n1", "n2"), is_agreed=True)
REPORT = BirthReport(
    term=4,
    sender="n0",
    target="n1",
    life=2**62,
    number=11,
    answers=0,
    wants_answer=True,
    standing=Standing.NEW,
    birth=BIRTH,
    members_digest=2**63 - 1,
)
MESSAGES: list[LinkMessage] = [
    VoteRequest(term=4, sender="n0", target="n1", last_index=-1, last_term=-1, pre_vote=True),
    VoteResponse(
        term=4, sender="n0", target="n1", result=VoteResult.ACCEPT, round_term=5, pre_vote=True
    ),
    HeartBeatRequest(term=4, sender="n0", target="n1", commit_index=None, read_round=8),
    HeartBeatRequest(term=4, sender="n0", target="n1", commit_index=-1, read_round=8),
    HeartBeatResponse(
        term=4, sender="n0", target="n1", code=DLedgerCode.EXPIRED_TERM, round=8, recovering=True
    ),
    CompareRequest(
        term=4, sender="n0", target="n1", entry=run_of(1), commit_index=-1, request_id=2**40
    ),
    TruncateRequest(
        term=4,
        sender="n0",
        target="n1",
        entry=run_of(1),
        commit_index=6,
        request_id=1,
        wants_sync=True,
    ),
    AppendRequest(
        term=4,
        sender="n0",
        target="n1",
        entries=run_of(20),
        previous=EntryId(3, 6),
        commit_index=6,
        request_id=1,
        wants_sync=True,
    ),
    AppendRequest(
        term=4,
        sender="n0",
        target="n1",
        entries=run_of(2, first_index=0, chain_crc=0),
        previous=EntryId(-1, -1),
        commit_index=-1,
        request_id=1,
    ),
    CommitRequest(term=4, sender="n0", target="n1", commit_index=6, request_id=1),
    PUSH_ANSWER,
    PushResponse(
        term=3,
        sender="n0",
        target="n1",
        kind=PushKind.COMMIT,
        code=DLedgerCode.NOT_FOLLOWER,
        index=None,
        count=0,
        begin_index=-1,
        end_index=-1,
        request_id=12,
        is_synced=False,
    ),
    TransferRequest(term=4, sender="n0", target="n1", last_index=-1, request_id=2**50),
    TransferResponse(
        term=5, sender="n0", target="n1", code=DLedgerCode.TAKE_LEADERSHIP_FAILED, request_id=2**50
    ),
    VoteRequest(term=4, sender="n0", target="n1", last_index=2, last_term=1, birth=BIRTH),
    VoteResponse(
        term=4, sender="n0", target="n1", result=VoteResult.UNKNOWN, round_term=5, birth=BIRTH
    ),
    HeartBeatRequest(term=4, sender="n0", target="n1", commit_index=3, birth=BIRTH),
    HeartBeatResponse(
        term=4, sender="n0", target="n1", code=DLedgerCode.UNKNOWN_GROUP, birth=BIRTH
    ),
    REPORT,
    replace(REPORT, standing=Standing.LOST, wants_answer=False, birth=None),
    replace(REPORT, birth=replace(BIRTH, is_agreed=False)),
    ReadIndexRequest(term=4, sender="n0", target="n1", number=2**40),
    ReadIndexResponse(term=4, sender="n0", target="n1", number=9, commit_index=None),
    ReadIndexResponse(term=4, sender="n0", target="n1", number=9, commit_index=-1),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_message_comes_back_equal(message: LinkMessage) -> None:
    command = frame_of(message)
    assert command.is_one_way
    assert read(command.code, command.body) == message


def test_push_answer_has_its_drawn_layout() -> None:
    body = pack(">qqqqqihBBB", 3, 7, 0, 70, 12, 64, 200, 1, 1, 1)
    assert read(52010, body) == PUSH_ANSWER


def test_birth_has_its_drawn_layout() -> None:
    body = pack(">qqqq?Bq", 4, 2**62, 11, 0, True, 1, 2**63 - 1)
    body += pack(">?16s", True, bytes.fromhex(BIRTH.group_id)) + b"n0;n1;n2"
    assert read(52015, body) == REPORT


def test_questions_of_followers_have_their_drawn_layout() -> None:
    asked = ReadIndexRequest(term=4, sender="n0", target="n1", number=9)
    assert read(52017, pack(">qq", 4, 9)) == asked
    answer = ReadIndexResponse(term=4, sender="n0", target="n1", number=9, commit_index=7)
    assert read(52018, pack(">qqq", 4, 9, 7)) == answer
    for code, size in ((52017, 17), (52018, 23)):
        with pytest.raises(RemoteProtocolError, match="READ_INDEX"):
            read(code, bytes(size))


@pytest.mark.parametrize("standing", [0, 4, 255])
def test_unknown_standing_is_refused(standing: int) -> None:
    with pytest.raises(RemoteProtocolError, match="standing"):
        read(52015, pack(">qqqq?Bq", 4, 1, 1, 0, True, standing, 1))


@pytest.mark.parametrize("members", [b"n0;;n1", b"n0;\xff", b"n" * 4097])
def test_birth_with_a_bad_member_list_is_refused(members: bytes) -> None:
    body = pack(">qqqqq?16s", 4, 3, 0, 0, 7, True, bytes(16)) + members
    with pytest.raises(RemoteProtocolError):
        read(52004, body)


def test_birth_may_be_without_a_member_list() -> None:
    beat = read(52004, pack(">qqqqq?16s", 4, 3, 0, 0, 7, True, bytes(16)))
    assert isinstance(beat, HeartBeatRequest) and beat.members_digest == 7
    assert beat.birth == Birth("00" * 16, (), is_agreed=True)


def test_run_is_sent_without_a_copy() -> None:
    entries = run_of(3)
    message = AppendRequest(
        term=4,
        sender="n0",
        target="n1",
        entries=entries,
        previous=EntryId(3, 6),
        commit_index=6,
        request_id=1,
    )
    assert wire_binary.encode(message)[1] is entries.data


def test_run_that_continues_another_entry_is_marked() -> None:
    """Whether that is a contradiction the core decides, by what its log holds."""
    command = frame_of(MESSAGES[7])
    message = read(command.code, command.body, chain_crc=98)
    assert isinstance(message, AppendRequest) and message.chain_mismatch is not None
    assert replace(message, chain_mismatch=None) == MESSAGES[7]


def test_run_with_a_break_in_its_own_chain_is_refused() -> None:
    frames = [frame_of(append_of(run_of(2, chain_crc=chain_crc))) for chain_crc in (99, 98)]
    second = len(run_of(1).data)
    body = frames[0].body[:-second] + frames[1].body[-second:]
    for chain_crc in (99, 98, None):
        with pytest.raises(RemoteProtocolError, match="chain_crc"):
            read(frames[0].code, body, chain_crc=chain_crc)


def test_chain_of_an_unknown_entry_before_is_not_checked() -> None:
    command = frame_of(MESSAGES[7])
    assert read(command.code, command.body, chain_crc=None) == MESSAGES[7]


@pytest.mark.parametrize("previous", [EntryId(3, 5), EntryId(4, 6)])
def test_run_must_continue_the_entry_before(previous: EntryId) -> None:
    message = AppendRequest(
        term=4,
        sender="n0",
        target="n1",
        entries=run_of(2),
        previous=previous,
        commit_index=6,
        request_id=1,
    )
    command = frame_of(message)
    for chain_crc in (99, None):
        with pytest.raises(RemoteProtocolError):
            read(command.code, command.body, chain_crc=chain_crc)


def test_any_damage_is_refused_or_gives_a_message() -> None:
    """Cut, longer, flipped and random bodies raise RemoteProtocolError and nothing else."""
    draws = random.Random(1)
    bodies = [(command.code, command.body) for command in map(frame_of, MESSAGES)]
    codes = [*map(int, wire_binary.BinaryCode), 0, 10]
    for _ in range(3000):
        code, body = draws.choice(bodies)
        damaged = bytearray(body)
        match draws.randrange(4):
            case 0:
                del damaged[draws.randrange(len(damaged)) :]
            case 1:
                damaged += draws.randbytes(draws.randrange(1, 60))
            case 2:
                damaged[draws.randrange(len(damaged))] ^= 1 << draws.randrange(8)
            case 3:
                code, damaged = draws.choice(codes), bytearray(draws.randbytes(len(body)))
        try:
            read(code, bytes(damaged), chain_crc=draws.choice((None, 99)))
        except RemoteProtocolError:
            pass


def test_damaged_entry_is_never_accepted() -> None:
    code, body = 52008, frame_of(MESSAGES[7]).body
    fixed_bytes = 41
    for at in range(fixed_bytes, len(body)):
        damaged = bytearray(body)
        damaged[at] ^= 0x10
        with pytest.raises(RemoteProtocolError):
            read(code, bytes(damaged))


def test_hello_comes_back_equal_and_garbage_is_refused() -> None:
    hello = greeting_bodies.Hello(
        group="g", sender="n0", target="n1", segment_bytes=1 << 30, members=("n0", "n1")
    )
    assert greeting_bodies.decode_hello(greeting_bodies.encode_hello(hello)) == hello
    for body in (b"", b"{}", b"[" * 100_000, b"\xff\xfe", b'{"group":1}'):
        with pytest.raises(RemoteProtocolError):
            greeting_bodies.decode_hello(body)
