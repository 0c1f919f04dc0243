"""Terms and indexes that no member has end their connection, in both dialects."""

from dataclasses import replace
from typing import Any

import pytest

from ledgermq.dledger.messages import (
    DLedgerCode,
    HeartBeatRequest,
    Message,
    TransferRequest,
)
from tests.unit.dledger.replica.callers import (
    COMMIT,
    VOTE,
    Rig,
    binary,
)


@pytest.mark.parametrize("term", [2**63 - 1, 2**62, 2 + (1 << 32), -2])
def test_term_that_no_election_brings_about_closes_its_connection(term: int) -> None:
    """A member enters each higher term for good: one message ended all elections of a group."""
    messages: list[Message] = [
        HeartBeatRequest(term=term, sender="n1", target="n0", commit_index=0, read_round=1),
        replace(VOTE, term=term),
        replace(VOTE, last_term=term),
        replace(VOTE, term=term, pre_vote=True),
        replace(COMMIT, term=term),
        TransferRequest(term=term, sender="n1", target="n0", last_index=0, request_id=1),
    ]
    for message in messages:
        rig = Rig()
        caller, other = rig.connect(), rig.connect()
        caller.greet()
        other.greet("n2")
        caller.send(binary(message))
        assert caller.transport.disconnecting and not other.transport.disconnecting
        assert rig.member.messages == []


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (51001, {"term": 2**63 - 1, "ledgerEndIndex": 3, "ledgerEndTerm": 1}),
        (51001, {"ledgerEndIndex": 2**63 - 1, "ledgerEndTerm": 1}),
        (51001, {"ledgerEndIndex": 1, "ledgerEndTerm": 2**63 - 1}),
        (51002, {"term": 2**63 - 1}),
        (51002, {"term": 2 + (1 << 32)}),
        (51004, {"term": 2**63 - 1, "type": "COMMIT", "commitIndex": 1}),
        (51004, {"type": "COMMIT", "commitIndex": 2**63 - 1}),
        (51005, {"term": 2**63 - 1, "transferId": "n1", "transfereeId": "n0"}),
        (51005, {"takeLeadershipLedgerIndex": 2**63 - 1, "transferId": "n1",
                 "transfereeId": "n0"}),
    ],
)  # fmt: skip
def test_json_request_out_of_bounds_is_refused_and_its_connection_closed(
    code: int, fields: dict[str, Any]
) -> None:
    rig = Rig()
    caller = rig.connect()
    (answer,) = caller.ask_json(code, **fields)
    assert answer[2]["code"] == DLedgerCode.UNEXPECTED_ARGUMENT
    assert caller.transport.disconnecting
    assert rig.member.messages == []
