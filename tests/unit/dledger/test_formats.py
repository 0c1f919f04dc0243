"""What the members of a group are known to read, and who does not go together."""

from ledgermq.dledger.formats import Formats, GroupFormats


class Member:
    """One member, with two others."""

    def __init__(self, reads: int, needs: int = 1) -> None:
        self.own = Formats(reads, needs)
        self.formats = GroupFormats("n0", ("n1", "n2"), lambda: self.own)


def test_a_member_that_was_never_met_reads_the_oldest_only() -> None:
    formats = Member(3).formats
    assert formats.read_by_all() == 1
    formats.greeted("n1", Formats(3))
    assert formats.read_by_all() == 1
    formats.greeted("n2", Formats(2))
    assert formats.read_by_all() == 2
    formats.greeted("n2", Formats(4))
    assert formats.read_by_all() == 3


def test_what_a_member_told_last_holds() -> None:
    formats = Member(2).formats
    for peer_id in ("n1", "n2"):
        formats.greeted(peer_id, Formats(2))
    assert formats.read_by_all() == 2
    formats.greeted("n2", Formats(1))
    assert formats.read_by_all() == 1


def test_a_java_member_hinders_no_format() -> None:
    formats = Member(2).formats
    formats.greeted("n1", None)
    formats.greeted("n2", Formats(2))
    assert formats.read_by_all() == 2
    assert formats.peers == {"n1": None, "n2": 2}
    # It is replaced by one of ours.
    formats.greeted("n1", Formats(1))
    assert formats.read_by_all() == 1


def test_a_greeting_that_comes_in_tells_nothing_of_what_is_read() -> None:
    """It may be that of a process which ended meanwhile."""
    formats = Member(2).formats
    for peer_id in ("n1", "n2"):
        assert formats.asked_by(peer_id, Formats(2)) is None
    assert formats.read_by_all() == 1


def test_who_does_not_read_what_stands_applied_is_refused_by_both() -> None:
    newer, older = Member(2, 2), Member(1)
    refused = "the program of n1 reads formats up to 1, and the state of n0 is in format 2"
    assert refused in (newer.formats.asked_by("n1", older.own) or "")
    assert refused in (newer.formats.greeted("n1", older.own) or "")
    assert refused in (newer.formats.alarm or "")
    found = older.formats.greeted("n2", newer.own) or ""
    assert "n0 reads formats up to 1, and the state of n2 is in format 2" in found
    assert "start n0 with a program that reads format 2" in found
    # It comes back as one that reads it.
    assert newer.formats.greeted("n1", Formats(2)) is None
    assert newer.formats.alarm is None


def test_who_reads_less_is_not_refused_before_that_is_written() -> None:
    newer, older = Member(2), Member(1)
    assert newer.formats.asked_by("n1", older.own) is None
    assert older.formats.greeted("n2", newer.own) is None
    assert newer.formats.alarm is older.formats.alarm is None


def test_peer_that_lacks_the_state_is_noted_until_somebody_asks() -> None:
    formats = Member(1).formats
    assert not formats.take_lack()
    formats.greeted("n1", Formats(lacks_state=True))
    formats.greeted("n2", Formats())
    assert formats.take_lack() and not formats.take_lack()
