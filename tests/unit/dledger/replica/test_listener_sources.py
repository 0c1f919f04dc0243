"""A caller is believed to be a member only where it comes from that member's address."""

from collections.abc import Iterator
from typing import Any

import pytest
from twisted.logger import globalLogPublisher

from ledgermq.dledger.formats import Formats
from ledgermq.dledger.messages import DLedgerCode
from tests.unit.dledger.replica.callers import COMMIT, SOURCE, Rig, binary

STRANGER = "192.168.1.99"
MEMBERS = "n0-10.0.0.1:1;n1-192.168.1.1:2;n2-192.168.1.2:3"


@pytest.fixture
def log_lines() -> Iterator[list[str]]:
    lines: list[str] = []

    def observe(event: Any) -> None:
        lines.append(str(event.get("reason", event["log_format"])))

    globalLogPublisher.addObserver(observe)
    yield lines
    globalLogPublisher.removeObserver(observe)


@pytest.mark.parametrize("source", [STRANGER, "192.168.1.2", "127.0.0.1", "10.0.0.1"])
def test_greeting_from_elsewhere_is_refused_and_its_connection_closed(
    source: str, log_lines: list[str]
) -> None:
    """Who reached the port was whom it said to be, and could write into the ledger."""
    rig = Rig(MEMBERS)
    for _ in range(3):
        caller = rig.connect(source)
        answer = caller.greet("n1")
        assert answer.code == DLedgerCode.UNKNOWN_MEMBER
        assert f"{source} is no address of n1, whose host 192.168.1.1" in str(answer.remark)
        assert "ledgerMemberAddresses" in str(answer.remark)
        assert caller.transport.disconnecting
        caller.send(binary(COMMIT))
    assert rig.member.messages == [] and not rig.listener.is_connected("n1")
    # Once, however often it comes again.
    assert len(log_lines) == 1
    assert rig.connect(SOURCE).greet("n1").code == 0
    assert rig.connect("192.168.1.2").greet("n2").code == 0


def test_greeting_waits_until_the_name_of_its_sender_is_looked_up() -> None:
    rig = Rig()
    rig.names["h"] = None
    caller, stranger, gone = rig.connect(), rig.connect(STRANGER), rig.connect()
    for one in (caller, stranger, gone):
        one.send_greeting()
        assert one.answers() == []
    gone.connection.connectionLost()
    ((name, waiting),) = rig.asked
    assert name == "h"
    waiting.callback([SOURCE])
    assert [answer.code for answer in caller.answers()] == [0]
    assert [answer.code for answer in stranger.answers()] == [DLedgerCode.UNKNOWN_MEMBER]
    assert gone.answers() == [] and stranger.transport.disconnecting
    caller.send(binary(COMMIT))
    assert rig.member.messages == [COMMIT]


def test_frame_before_the_name_is_looked_up_ends_its_connection() -> None:
    rig = Rig()
    rig.names["h"] = None
    caller = rig.connect()
    caller.send_greeting()
    caller.send(binary(COMMIT))
    assert caller.transport.disconnecting and rig.member.messages == []
    rig.asked[0][1].callback([SOURCE])
    assert not rig.listener.is_connected("n1")


REQUESTS: list[tuple[int, dict[str, Any]]] = [
    (51001, {"ledgerEndIndex": 3, "ledgerEndTerm": 1}),
    (51002, {}),
    (51004, {"type": "COMMIT", "commitIndex": 1}),
    (51005, {"transferId": "n1", "transfereeId": "n0", "takeLeadershipLedgerIndex": 2}),
]


@pytest.mark.parametrize(("code", "fields"), REQUESTS)
def test_json_request_of_a_member_is_taken_from_its_address_only(
    code: int, fields: dict[str, Any], log_lines: list[str]
) -> None:
    rig = Rig(MEMBERS)
    for source in (STRANGER, "192.168.1.2", "127.0.0.1"):
        caller = rig.connect(source)
        for opaque in (1, 2):
            ((_, _, answer),) = caller.ask_json(code, opaque, **fields)
            assert answer["code"] == DLedgerCode.UNKNOWN_MEMBER
    assert rig.member.messages == [] and len(log_lines) == 3
    assert rig.connect(SOURCE).ask_json(code, **fields) == []
    assert len(rig.member.messages) == 1


@pytest.mark.parametrize(("code", "fields"), REQUESTS)
def test_json_member_is_known_when_its_name_is_looked_up(
    code: int, fields: dict[str, Any], log_lines: list[str]
) -> None:
    """What comes before is refused: members repeat what they say."""
    rig = Rig()
    rig.names["h"] = None
    caller, stranger = rig.connect(), rig.connect(STRANGER)
    for one in (caller, stranger, caller):
        ((_, _, answer),) = one.ask_json(code, **fields)
        assert answer["code"] == DLedgerCode.UNKNOWN_MEMBER
    assert log_lines == []
    ((_, waiting),) = rig.asked
    waiting.callback([SOURCE])
    assert len(log_lines) == 1
    assert caller.ask_json(code, **fields) == [] and len(rig.member.messages) == 1
    assert stranger.ask_json(code, **fields) != []


def test_tools_may_ask_from_anywhere() -> None:
    caller = Rig(MEMBERS).connect(STRANGER)
    ((_, _, answer),) = caller.ask_json(50000)
    assert answer["code"] == 200 and sorted(answer["peers"]) == ["n0", "n1", "n2"]


def test_address_behind_a_translation_is_allowed_by_configuration() -> None:
    rig = Rig(MEMBERS, member_networks=("192.168.1.96/28",))
    assert rig.connect(STRANGER).greet("n1").code == 0
    assert rig.connect(STRANGER).ask_json(51002) == []
    assert rig.connect("192.168.1.90").greet("n1").code == DLedgerCode.UNKNOWN_MEMBER


def test_a_stranger_that_tells_formats_of_a_member_is_not_believed() -> None:
    rig = Rig(MEMBERS)
    rig.member.own_formats = Formats(2, 2)
    answer = rig.connect(STRANGER).greet("n1", reads=1)
    assert answer.code == DLedgerCode.UNKNOWN_MEMBER and answer.body == b""
    assert rig.member.formats.alarm is None
