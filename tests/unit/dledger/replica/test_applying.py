"""What an applier hears, and in which order."""

from ledgermq.dledger.member_state import Role
from ledgermq.dledger.ready import RoleChange
from ledgermq.dledger.replica.applying import Applier, Applying


class HeardApplier:
    def __init__(self) -> None:
        self.heard: list[object] = []

    def committed(self, start_index: int, end_index: int) -> None:
        self.heard.append((start_index, end_index))

    def role_changed(self, role: Role, term: int, leader_id: str | None, is_ready: bool) -> None:
        self.heard.append((role.name, term, leader_id, is_ready))

    def failed(self, error: BaseException) -> None:
        self.heard.append(error)


fits: type[Applier] = HeardApplier


def leading(*, is_ready: bool) -> RoleChange:
    return RoleChange(role=Role.LEADER, term=2, leader_id="n0", is_ready_leader=is_ready)


def test_committed_range_is_told_in_bounded_parts() -> None:
    applier = HeardApplier()
    applying = Applying(applier, 10)
    applying.advance(25)
    assert applying.apply()
    assert applying.has_more
    assert applying.apply()
    assert applying.apply()
    assert not applying.has_more
    assert not applying.apply()
    assert applier.heard == [(0, 10), (10, 20), (20, 25)]
    assert applying.applied_index == 24


def test_entries_the_applier_had_before_are_not_told_again() -> None:
    applier = HeardApplier()
    applying = Applying(applier, 10)
    applying.begin_after(4)
    applying.advance(5)
    assert not applying.apply()
    applying.advance(6)
    applying.apply()
    assert applier.heard == [(5, 6)]


def test_log_begun_afresh_is_told_from_its_first_entry() -> None:
    applier = HeardApplier()
    applying = Applying(applier, 10)
    applying.begin_after(4)
    applying.skip_to(100)
    applying.advance(103)
    applying.apply()
    assert applier.heard == [(100, 103)]


def test_leader_is_ready_when_its_opening_entry_is_applied() -> None:
    applier = HeardApplier()
    applying = Applying(applier, 10)
    applying.change_role(leading(is_ready=False), 14)
    applying.advance(15)
    applying.apply()
    applying.change_role(leading(is_ready=True), 14)
    assert applying.is_leader_coming
    applying.apply()
    assert not applying.is_leader_coming
    assert applier.heard == [
        ("LEADER", 2, "n0", False),
        (0, 10),
        (10, 15),
        ("LEADER", 2, "n0", True),
    ]


def test_leader_that_steps_down_before_it_was_ready_never_becomes_ready() -> None:
    applier = HeardApplier()
    applying = Applying(applier, 10)
    applying.advance(15)
    applying.change_role(leading(is_ready=True), 14)
    applying.change_role(RoleChange(role=Role.CANDIDATE, term=3, leader_id=None), None)
    applying.apply()
    applying.apply()
    assert applier.heard == [("CANDIDATE", 3, None, False), (0, 10), (10, 15)]


def test_failure_is_told_once_and_a_coming_leader_is_forgotten() -> None:
    applier = HeardApplier()
    error = OSError("disk")
    applying = Applying(applier, 10)
    applying.advance(15)
    applying.change_role(leading(is_ready=True), 14)
    assert applying.is_leader_coming
    applying.fail(error)
    assert not applying.is_leader_coming
    assert applier.heard == [error]
