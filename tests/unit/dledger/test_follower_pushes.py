"""What a follower answers, and what it refuses to do to its log."""

from dataclasses import replace

import pytest

from ledgermq.dledger.entry import EntryId, EntrySlice
from ledgermq.dledger.errors import BrokenInvariantError, ContradictionError
from ledgermq.dledger.messages import CompareRequest, DLedgerCode, PeerDialect, PushResponse
from tests.unit.dledger.lab import (
    CODEC,
    SEGMENT_BYTES,
    Lab,
    append,
    beat,
    commit,
    compare,
    disk_of,
    joined,
    only_push_response,
    run_of,
    truncate,
)

JAVA = PeerDialect.JAVA


def follower(terms: list[int], term: int, *, checkpoint: int = -1, java: bool = False) -> Lab:
    """A follower of n1."""
    dialect = JAVA if java else PeerDialect.LEDGERMQ
    lab = Lab(terms, term=term, checkpoint=checkpoint, dialect=dialect)
    lab.take(beat(term))
    assert lab.raft.leader_id == "n1"
    return lab


def terms_of(lab: Lab) -> list[int]:
    return [lab.disk.term_at(i) for i in range(lab.disk.first_index, lab.disk.last_index + 1)]


def facts(response: PushResponse) -> tuple[int, int, int]:
    return int(response.code), response.begin_index, response.end_index


def entry(terms: list[int], index: int) -> EntrySlice:
    return run_of(terms)[index]


def test_append_behind_a_matching_entry() -> None:
    lab = follower([1, 1], 2)
    runs = run_of([1, 1, 2, 2])
    response = only_push_response(lab.take(append(2, joined(runs[2:]), EntryId(1, 1))))
    assert facts(response) == (200, 0, 3)
    assert (response.index, response.count, response.term) == (2, 2, 2)
    assert terms_of(lab) == [1, 1, 2, 2]


def test_append_with_gap_is_refused() -> None:
    lab = follower([1], 2)
    response = only_push_response(lab.take(append(2, entry([1, 1, 1, 2], 3), EntryId(1, 2))))
    assert facts(response) == (406, 0, 0)


def test_append_behind_a_different_entry_is_refused() -> None:
    lab = follower([1, 1], 3)
    response = only_push_response(lab.take(append(3, entry([1, 2, 3], 2), EntryId(2, 1))))
    assert facts(response) == (406, 0, 1)


def test_append_cuts_what_contradicts_it() -> None:
    """Raft 5.3: if an existing entry conflicts with a new one, delete it and all that follow."""
    lab = follower([1, 1, 1, 1], 3)
    runs = run_of([1, 1, 3])
    response = only_push_response(lab.take(append(3, joined(runs[1:]), EntryId(1, 0))))
    assert facts(response) == (200, 0, 2)
    assert terms_of(lab) == [1, 1, 3]


def test_append_that_is_known_already_cuts_nothing() -> None:
    """Raft figure 2: a late AppendEntries must not remove what came after it."""
    lab = follower([1, 1, 1, 1], 1)
    response = only_push_response(lab.take(append(1, entry([1, 1], 1), EntryId(1, 0))))
    assert facts(response) == (200, 0, 3)


def test_append_never_cuts_a_committed_entry() -> None:
    lab = follower([1, 1, 1], 3, checkpoint=1)
    with pytest.raises(BrokenInvariantError):
        lab.take(append(3, entry([1, 3], 1), EntryId(1, 0)))


def test_previous_entry_that_contradicts_a_committed_one_stops_the_member() -> None:
    lab = follower([1, 1, 1], 3, checkpoint=1)
    with pytest.raises(BrokenInvariantError):
        lab.take(append(3, entry([1, 2, 3], 2), EntryId(2, 1)))


@pytest.mark.parametrize("checkpoint", [1, -1])
def test_same_entry_with_another_history_is_a_contradiction(checkpoint: int) -> None:
    """Two leaders wrote in one term; not committed here, it may be committed elsewhere."""
    lab = follower([1, 1], 1, checkpoint=checkpoint)
    other = replace(append(1, entry([1, 1, 1], 2), EntryId(1, 1)), chain_mismatch=(7, 8))
    with pytest.raises(ContradictionError, match="entry 1 of term 1 is the same on all members"):
        lab.take(other)
    assert terms_of(lab) == [1, 1] and lab.raft.contradicting == {"n1"}


@pytest.mark.parametrize("terms", [[1, 1, 1], [1, 1, 3]])
def test_run_over_entries_with_another_history_is_a_contradiction(terms: list[int]) -> None:
    """What has the term of an own entry is compared before what follows it is cut or appended."""
    lab = follower([1, 1], 3)
    runs = run_of(terms, salt=b"!")
    with pytest.raises(ContradictionError, match="entry 1 of term 1"):
        lab.take(append(3, joined(runs[1:]), EntryId(1, 0)))
    assert terms_of(lab) == [1, 1]


def test_other_history_behind_the_log_is_only_inconsistent() -> None:
    lab = follower([1], 1)
    other = replace(append(1, entry([1, 1, 1], 2), EntryId(1, 1)), chain_mismatch=(7, 8))
    assert facts(only_push_response(lab.take(other)))[0] == 406


def test_entry_at_another_position_is_refused_before_a_byte_is_written() -> None:
    lab = follower([1], 1)
    moved = run_of([1, 1], position=8)[1]
    assert facts(only_push_response(lab.take(append(1, moved, EntryId(1, 0))))) == (414, 0, 0)


def test_truncate_to_an_entry_of_an_older_term_than_the_log_is_refused() -> None:
    """Nothing a peer sends may break an assertion."""
    lab = follower([3, 3], 3, checkpoint=1, java=True)
    response = only_push_response(lab.take(truncate(3, entry([3, 3, 1], 2))))
    assert facts(response) == (406, 0, 1)


def test_request_that_contradicts_itself_is_refused() -> None:
    lab = follower([1], 1)
    assert facts(only_push_response(lab.take(append(1, entry([1, 2], 1), EntryId(1, 0)))))[0] == 411
    assert facts(only_push_response(lab.take(append(1, entry([1, 1], 1), EntryId(1, 3)))))[0] == 411


def test_push_of_a_past_term_is_told_the_present_one() -> None:
    lab = follower([1], 5)
    response = only_push_response(lab.take(append(4, entry([1, 4], 1), EntryId(1, 0))))
    assert (response.code, response.term) == (407, 5)


def test_push_of_another_leader_of_the_term_is_refused() -> None:
    lab = follower([1], 5)
    response = only_push_response(lab.take(append(5, entry([1, 5], 1), EntryId(1, 0), sender="n2")))
    assert response.code == 409


def test_push_of_a_stranger_is_refused() -> None:
    lab = follower([1], 5)
    response = only_push_response(lab.take(append(9, entry([1, 9], 1), EntryId(1, 0), sender="x")))
    assert (response.code, lab.raft.term) == (401, 5)


def test_leader_does_not_take_pushes_of_its_term() -> None:
    lab = Lab([1], term=1)
    lab.elect()
    term = lab.raft.term
    response = only_push_response(lab.take(compare(term, entry([1], 0))))
    assert response.code == 405


def test_commit_index_counts_only_up_to_what_was_verified() -> None:
    """The end may differ from the leader's: only entries behind a matching one are its."""
    lab = follower([1, 1, 1], 2)
    lab.take(beat(2, commit_index=2))
    assert lab.raft.commit_index == -1
    lab.take(compare(2, entry([1, 1], 1), commit_index=2))
    assert lab.raft.commit_index == 1
    lab.take(append(2, entry([1, 1, 1, 2], 3), EntryId(1, 2), commit_index=2))
    assert lab.raft.commit_index == 2
    lab.take(beat(2, commit_index=9))
    assert lab.raft.commit_index == 3


def test_verified_is_forgotten_with_the_leader() -> None:
    lab = follower([1, 1, 1], 2)
    lab.take(compare(2, entry([1, 1], 1)))
    lab.take(beat(3, sender="n2"))
    lab.take(beat(3, sender="n2", commit_index=1))
    assert lab.raft.commit_index == -1


# -- under a Java leader


def test_java_append_needs_a_compare_first() -> None:
    lab = follower([1], 1, java=True)
    push = append(1, entry([1, 1], 1), None)
    assert facts(only_push_response(lab.take(push))) == (406, 0, 0)
    assert only_push_response(lab.take(compare(1, entry([1], 0)))).code == 200
    assert facts(only_push_response(lab.take(push))) == (200, 0, 1)


def test_java_append_that_comes_twice_is_a_success() -> None:
    lab = follower([1], 1, java=True)
    lab.take(compare(1, entry([1], 0)))
    push = append(1, entry([1, 1], 1), None)
    lab.take(push)
    assert facts(only_push_response(lab.take(push))) == (200, 0, 1)


def test_java_truncate_cuts_the_rest() -> None:
    lab = follower([1, 1, 1], 2, java=True)
    response = only_push_response(lab.take(truncate(2, entry([1], 0))))
    assert facts(response) == (200, 0, 0)


def test_java_truncate_at_the_commit_index_cuts_the_rest() -> None:
    """A follower once answered 200 and kept its tail; the leader pushed in vain for ever."""
    lab = follower([1, 1, 1, 1], 2, checkpoint=1, java=True)
    response = only_push_response(lab.take(truncate(2, entry([1, 1], 1))))
    assert facts(response) == (200, 0, 1)


def test_late_truncate_does_not_cut_what_was_pushed_since() -> None:
    """A copy of a TRUNCATE that comes after entries of the same leader were acknowledged."""
    lab = follower([1], 2, java=True)
    cut = truncate(2, entry([1], 0))
    lab.take(cut)
    lab.take(append(2, entry([1, 1], 1), None))
    assert facts(only_push_response(lab.take(cut))) == (200, 0, 1)


def test_truncate_of_a_past_term_changes_nothing() -> None:
    """A request of a deposed leader that sat in a socket."""
    lab = follower([1, 1, 1], 3, java=True)
    response = only_push_response(lab.take(truncate(2, entry([1], 0))))
    assert facts(response) == (406, 0, 2)


def test_truncate_of_a_committed_entry_stops_the_member() -> None:
    lab = follower([1, 1, 1], 3, checkpoint=2, java=True)
    with pytest.raises(BrokenInvariantError):
        lab.take(truncate(3, entry([1, 3], 1)))


def test_truncate_starts_an_empty_log() -> None:
    """As DLedger does it: COMPARE 406 with -1 and -1, then TRUNCATE with entry 0."""
    lab = follower([], 1, java=True)
    assert facts(only_push_response(lab.take(compare(1, entry([1], 0))))) == (406, -1, -1)
    assert facts(only_push_response(lab.take(truncate(1, entry([1], 0))))) == (200, 0, 0)


def test_truncate_behind_the_end_starts_the_log_afresh() -> None:
    """The leader's retention has removed what this follower lacks."""
    lab = follower([1, 1], 1, checkpoint=0)
    far = run_of([1], first_index=90, position=8192)[0]
    assert facts(only_push_response(lab.take(truncate(1, far, commit_index=90)))) == (200, 90, 90)
    assert lab.disk.first_position == 8192
    assert lab.raft.commit_index == 90
    assert lab.committed[-1] == (90, 91)


def test_an_empty_log_that_begins_later_goes_on_there() -> None:
    """It was begun afresh, and lost what came then: another leader, whose log begins before, asked
    for its first entries again and again."""
    disk = disk_of([])
    disk.reset(9, 8192)
    lab = Lab(term=1, disk=disk, recovering=True)
    lab.take(beat(1))
    far = run_of([1], first_index=20, position=16_384)[0]
    response = only_push_response(lab.take(append(1, far, EntryId(1, 19))))
    assert (response.code, response.end_index) == (406, 8)
    (ninth,) = run_of([1], first_index=9, position=8192)
    assert facts(only_push_response(lab.take(append(1, ninth, EntryId(1, 8))))) == (200, 9, 9)


def test_compare_tells_equal_from_different() -> None:
    lab = follower([1, 1], 2, java=True)
    assert only_push_response(lab.take(compare(2, entry([1, 1], 1)))).code == 200
    other_body = run_of([1, 1], salt=b"!")[1]
    assert only_push_response(lab.take(compare(2, other_body))).code == 406
    assert only_push_response(lab.take(compare(2, entry([1, 2], 1)))).code == 406
    assert only_push_response(lab.take(compare(2, entry([1, 1, 1], 2)))).code == 406


@pytest.mark.parametrize(
    ("kind", "code"), [("append", 406), ("truncate", 406), ("compare", 407), ("commit", 200)]
)
def test_codes_to_a_java_leader_of_a_past_term(kind: str, code: int) -> None:
    lab = follower([1], 5, java=True)
    requests = {
        "append": append(4, entry([1, 4], 1), None),
        "truncate": truncate(4, entry([1], 0)),
        "compare": compare(4, entry([1], 0)),
        "commit": commit(4, 0),
    }
    response = only_push_response(lab.take(requests[kind]))
    assert (response.code, response.term) == (code, 4)
    assert lab.raft.commit_index == -1


def test_java_leader_that_led_the_term_before_its_restart_is_compared_again() -> None:
    """DLedger: a leader may lead one term twice, with other entries under the same numbers."""
    lab = follower([1], 1, java=True)
    lab.take(compare(1, entry([1], 0)))
    lab.take(append(1, entry([1, 1], 1), None))
    other = run_of([1, 1], salt=b"!")
    request = CompareRequest(
        term=1, sender="n1", target="n0", entry=other[1], commit_index=-1, request_id=1
    )
    assert only_push_response(lab.take(request)).code == 406
    assert only_push_response(lab.take(truncate(1, other[0]))).code == 200
    assert lab.disk.read(0, 1).same_as(other[0])


@pytest.mark.parametrize(
    ("position", "size"),
    [(3 * SEGMENT_BYTES - 20, 100), (3 * SEGMENT_BYTES, SEGMENT_BYTES)],
    ids=["crossing", "large"],
)
def test_a_log_is_not_begun_anew_with_an_entry_that_cannot_stand_there(
    position: int, size: int
) -> None:
    """It was emptied first, of what is committed as well, and then the entry was refused."""
    lab = follower([1, 1, 1], 1, checkpoint=2)
    entry = encoded(1, size, first_index=100, position=position, previous_chain_crc=0)
    response = only_push_response(lab.take(truncate(2, entry)))
    assert response.code == DLedgerCode.DISK_ERROR
    assert terms_of(lab) == [1, 1, 1] and lab.disk.first_index == 0


def test_a_run_beyond_the_end_of_its_segment_is_refused() -> None:
    """It was taken, and could not be written: the member stopped."""
    lab = follower([1, 1, 1], 2, checkpoint=2)
    behind = {
        "first_index": 3,
        "position": lab.disk.end_position,
        "previous_chain_crc": lab.disk.last_chain_crc,
    }
    crossing = append(2, encoded(3, 1800, **behind), EntryId(1, 2))
    assert only_push_response(lab.take(crossing)).code == DLedgerCode.DISK_ERROR
    assert terms_of(lab) == [1, 1, 1]
    fitting = append(2, encoded(2, 1800, **behind), EntryId(1, 2))
    assert only_push_response(lab.take(fitting)).code == DLedgerCode.SUCCESS
    assert terms_of(lab) == [1, 1, 1, 2, 2]


def encoded(count: int, size: int, **where: int) -> EntrySlice:
    return CODEC.encode([b"x" * size] * count, term=2, **where)
