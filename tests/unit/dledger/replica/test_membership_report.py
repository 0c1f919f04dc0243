"""What a member reports of its group's membership."""

from ledgermq.dledger.birth import Birth
from ledgermq.dledger.messages import PeerDialect
from ledgermq.dledger.replica.membership_report import MembershipReport, membership_report
from tests.unit.dledger.lab import Lab

OWN = Birth("0f" * 16, ("n0", "n1", "n2"), is_agreed=True)
OTHER = Birth("0e" * 16, ("n0", "n1", "n2"), is_agreed=True)


def test_bootstrapped_group_has_a_cluster_id_and_no_alarm() -> None:
    report = membership_report(Lab(birth=OWN).raft, {}, {})
    assert (report.cluster_id, report.bootstrap, report.alarm) == (OWN.group_id, "", None)


def test_new_group_reports_whom_its_bootstrap_waits_for() -> None:
    report = membership_report(Lab(is_new=True).raft, {}, {})
    assert report.cluster_id == "" and "n1 (not reached)" in report.bootstrap
    assert report.alarm is None


def test_group_with_a_java_member_is_not_reported_as_waiting() -> None:
    report = membership_report(Lab(is_new=True, dialect=PeerDialect.JAVA).raft, {}, {})
    assert report == MembershipReport()


def test_member_that_has_not_started_reports_nothing() -> None:
    assert membership_report(None, {}, {}) == MembershipReport()


def test_peer_of_another_cluster_is_an_alarm_with_both_ids() -> None:
    lab = Lab(birth=OWN)
    lab.raft.census.note_birth("n2", OTHER)
    report = membership_report(lab.raft, {}, {})
    assert report.rejected_peers.keys() == {"n2"}
    alarm = report.alarm or ""
    assert alarm.startswith("n2 belongs to a different cluster")
    assert OTHER.group_id in alarm and OWN.group_id in alarm


def test_alarm_names_every_peer_and_every_reason() -> None:
    report = MembershipReport(
        rejected_peers={"n1": "n1 has another member list", "n3": "n3 has another member list"},
        contradictions={"n1": "n1 contradicts committed entries"},
    )
    assert report.alarm == (
        "n1 has another member list; n3 has another member list; n1 contradicts committed entries"
    )
