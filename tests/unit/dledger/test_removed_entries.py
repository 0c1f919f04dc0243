"""What retention removed was committed, also where the leader has not counted that far yet."""

from ledgermq.dledger.member_state import Role
from ledgermq.dledger.messages import TruncateRequest
from tests.unit.dledger.lab import SEGMENT_BYTES, Lab, answer_to, appends_of


def test_what_retention_removed_needs_no_count() -> None:
    """A leader that does not know yet how far its log is committed removes what it has applied."""
    lab = Lab([1] * 80, term=1)
    (frame,) = appends_of(lab.elect())
    first_index = lab.disk.drop_before(SEGMENT_BYTES)
    assert (first_index > 0, lab.raft.commit_index) == (True, -1)
    cuts = [
        m for m in lab.take(answer_to(frame, 406, end_index=3)) if isinstance(m, TruncateRequest)
    ]
    lab.take(answer_to(cuts[0], 200, end_index=first_index - 1))
    assert lab.raft.role is Role.LEADER
    assert lab.raft.commit_index == first_index - 1
