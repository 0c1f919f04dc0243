"""Which format of records a leader writes, and what becomes of a record that nobody here reads."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from ledgermq.commitlog import UnreadRecordError
from ledgermq.state.commands import SWEPT
from ledgermq.state.formats import FORMATS, StateFormats
from ledgermq.state.topics import TopicConfig
from ledgermq.testing.simulation.next_format import NEXT_FORMATS, members_of
from tests.unit.broker.parts import Parts
from tests.unit.state.test_broker_state import busy_leader, followed, same_tables


class Group:
    """The members of a group, as far as they told what they read."""

    alarm: str | None = None

    def __init__(self, reads: int) -> None:
        self.peers: Mapping[str, int | None] = {"n1": reads}

    def read_by_all(self) -> int:
        told = self.peers["n1"]
        assert told is not None
        return told


def next_leader(reads: int) -> Parts:
    """A leader with the next program; the other member reads up to `reads`."""
    parts = Parts(formats=NEXT_FORMATS)
    parts.state.formats.group = Group(reads)
    return parts.lead()


def versions(bodies: list[bytes]) -> set[int]:
    return {json.loads(body)["v"] for body in bodies}


def test_the_oldest_format_is_written_until_all_members_read_the_next_one() -> None:
    leader = next_leader(1)
    leader.is_prompt = False
    leader.state.put_topic(TopicConfig("A", 1, 1))
    assert versions(leader.commit_state()) == {1}
    leader.state.formats.group = Group(2)
    leader.state.put_topic(TopicConfig("B", 1, 1))
    assert versions(leader.commit_state()) == {2}


def test_a_member_that_goes_back_in_time_keeps_the_former_format() -> None:
    leader = next_leader(2)
    leader.state.formats.applied = 1
    leader.is_prompt = False
    leader.state.formats.group = Group(1)
    leader.state.put_topic(TopicConfig("A", 1, 1))
    assert versions(leader.commit_state()) == {1}


def test_what_stands_in_the_state_is_written_on_whoever_is_met() -> None:
    leader = next_leader(2)
    assert leader.state.formats.applied == 2 and leader.state.formats.is_unsaved
    leader.state.formats.group = Group(1)
    leader.is_prompt = False
    leader.state.put_topic(TopicConfig("A", 1, 1))
    assert versions(leader.commit_state()) == {2}


def test_a_format_that_this_program_lacks_is_not_written() -> None:
    leader = Parts()
    leader.state.formats.group = Group(7)
    leader.lead()
    assert versions(leader.first) == {1}


def test_members_with_the_next_program_end_with_equal_tables() -> None:
    former, bodies = busy_leader()
    leader = Parts(formats=NEXT_FORMATS)
    leader.state.formats.group = Group(2)
    followed(*bodies, follower=leader)
    assert same_tables(former, leader)
    leader.state.lead("n0/2")
    leader.state.put_topic(TopicConfig("Later", 3, 3))
    swept = [*leader.commit_state(), *leader.sweep()]
    assert versions(swept) == {2} and {members_of(body)["kind"] for body in swept[1:]} == {"sweep"}
    # One that knows nothing but what the sweep tells, and one that knew all before.
    for member in (
        Parts(formats=NEXT_FORMATS),
        followed(*bodies, follower=Parts(formats=NEXT_FORMATS)),
    ):
        followed(*swept, follower=member)
        assert same_tables(leader, member)
        assert member.state.formats.applied == 2


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b'{"v":2,"kind":"topics","put":{"T":{}},"removed":[]}', "version 2"),
        (b'{"v":9}', "version 9"),
        (b'{"v":1,"kind":"later"}', "version 1 and kind 'later'"),
        (
            b'{"v":1,"kind":"sweep","id":"1","part":0,"table":"none","put":{"T":{}}}',
            "version 1 and table 'none'",
        ),
    ],
)
def test_a_record_of_a_newer_program_is_not_passed_over(body: bytes, found: str) -> None:
    parts = Parts()
    with pytest.raises(UnreadRecordError) as raised:
        parts.state.apply(body, 41)
    assert raised.value.index == 41
    text = str(raised.value)
    assert f"at index 41 has {found}, this program reads versions 1 to 1: start" in text
    assert len(parts.state.topics) == 0 and parts.state.formats.applied == 1


def test_the_file_tells_the_format_and_stops_a_program_that_lacks_it() -> None:
    written = StateFormats(NEXT_FORMATS)
    written.note(2)
    again = StateFormats(NEXT_FORMATS)
    again.load_json(written.to_json())
    assert again.applied == again.written.version == 2
    older = StateFormats()
    with pytest.raises(
        UnreadRecordError, match="state has version 2, this program reads versions 1"
    ):
        older.load_json(written.to_json())


def test_operators_see_the_formats() -> None:
    formats = StateFormats(NEXT_FORMATS)
    group = Group(1)
    group.peers = {"n1": 1, "n2": None}
    formats.group = group
    assert formats.describe() == {
        "stateFormat": "1",
        "stateFormatWritten": "1",
        "stateFormatRead": "2",
        "stateFormatReadByPeers": "n1=1;n2=Java",
        "stateRecordsRejected": "0",
    }


def test_an_alarm_of_the_group_is_one_of_the_state() -> None:
    parts = Parts().lead()
    assert parts.state.alarm is None
    group = Group(1)
    group.alarm = "n1 reads less"
    parts.state.formats.group = group
    assert parts.state.alarm == "n1 reads less"


def test_all_tables_that_are_swept_have_a_name_in_the_format() -> None:
    assert tuple(Parts().state._machine.swept) == SWEPT
    assert [one.version for one in NEXT_FORMATS] == [len(FORMATS), len(FORMATS) + 1]
