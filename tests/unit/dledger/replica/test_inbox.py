"""Messages that wait for the disk: which ones are kept, and how much memory they take."""

from ledgermq.dledger.entry import EntryId, EntrySlice
from ledgermq.dledger.messages import (
    AppendRequest,
    CompareRequest,
    HeartBeatRequest,
    Message,
    VoteRequest,
)
from ledgermq.dledger.replica.inbox import Inbox, memory_bytes
from tests.unit.dledger.lab import CODEC

MIB = 1 << 20


def run(bodies: list[bytes], index: int) -> EntrySlice:
    return CODEC.encode(bodies, first_index=index, term=3, position=0, previous_chain_crc=0)


def push(index: int, request_id: int = 1, sender: str = "n0", size: int = 100) -> AppendRequest:
    return AppendRequest(
        term=3,
        sender=sender,
        target="n1",
        entries=run([b"x" * size], index),
        previous=EntryId(3, index - 1),
        commit_index=0,
        request_id=request_id,
    )


def heart_beat(number: int, sender: str = "n0") -> HeartBeatRequest:
    return HeartBeatRequest(term=3, sender=sender, target="n1", read_round=number)


def vote(term: int, sender: str, *, pre_vote: bool = False) -> VoteRequest:
    return VoteRequest(
        term=term, sender=sender, target="n1", last_index=5, last_term=3, pre_vote=pre_vote
    )


def taken(*messages: Message, bytes_max: int = MIB, replaces: bool = True) -> list[Message]:
    inbox = Inbox(bytes_max)
    for message in messages:
        inbox.add(message, replaces=replaces)
    assert inbox.size_bytes <= bytes_max
    result = list(inbox.take())
    assert inbox.size_bytes == 0 and list(inbox.take()) == []
    return result


def test_a_window_of_pushes_keeps_its_order() -> None:
    window = [push(index) for index in range(5, 9)]
    again = [push(index, 2) for index in range(5, 9)]
    assert taken(*window, *again[:1]) == [again[0], *window[1:]]
    assert taken(*window, *again) == again


def test_of_one_turn_each_message_is_kept() -> None:
    messages = [heart_beat(1), push(5), heart_beat(2), push(5, 2)]
    assert taken(*messages, replaces=False) == messages


def test_a_push_replaces_the_former_one_of_the_same_range() -> None:
    first, other, again = push(5, 1), push(6, 2), push(5, 3)
    assert taken(first, other, again) == [again, other]


def test_pushes_of_two_leaders_are_both_kept() -> None:
    both = [push(5), push(5, sender="n2")]
    assert taken(*both) == both


def test_of_heart_beats_and_votes_the_newest_of_each_sender_is_kept() -> None:
    beats = [heart_beat(number, sender) for number in range(100) for sender in ("n0", "n2")]
    votes = [vote(term, "n2", pre_vote=asks) for term in range(9) for asks in (True, False)]
    assert taken(*beats, *votes) == [*beats[-2:], *votes[-2:]]
    assert len(taken(*beats, *votes, replaces=False)) == 218


def test_repeated_windows_take_no_more_memory_than_one() -> None:
    inbox = Inbox(64 * MIB)
    sizes = []
    for request_id in range(1000):
        inbox.add(push(5 + request_id % 4, request_id, size=10_000), replaces=True)
        inbox.add(heart_beat(request_id), replaces=True)
        sizes.append(inbox.size_bytes)
    assert sizes[3:] == [sizes[3]] * 997


def test_above_the_limit_pushes_are_dropped_and_votes_taken() -> None:
    inbox = Inbox(MIB)
    for index in range(1000):
        inbox.add(push(index, size=100_000), replaces=True)
        assert inbox.size_bytes <= MIB
    asked = vote(9, "n2")
    inbox.add(asked, replaces=True)
    messages = list(inbox.take())
    assert inbox.dropped_count > 900
    # The first ones are those that continue the log.
    assert messages == [push(index, size=100_000) for index in range(len(messages) - 1)] + [asked]


def test_a_push_that_would_exceed_the_limit_leaves_the_former() -> None:
    former = push(5)
    assert taken(former, push(5, 2, size=2 * MIB)) == [former]


def test_a_view_counts_with_all_that_it_keeps_in_memory() -> None:
    whole = run([b"x" * 50_000, b"y"], 5)
    request = CompareRequest(
        term=3,
        sender="n0",
        target="n1",
        entry=whole.slice_from(6),
        commit_index=0,
        request_id=1,
    )
    assert memory_bytes(request) > 50_000
