"""Who leads a group, as far as its members tell a tool, while the leadership moves."""

import json
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any

import pytest

from ledgermq.cli.leader import LedgerGroup
from ledgermq.cli.remote import AdminError, UnreachableError
from ledgermq.dledger.messages import DLedgerCode, JsonCode
from ledgermq.protocol.command import RemotingCommand

PEERS = {"n0": "a:0", "n1": "a:1", "n2": "a:2"}


class Members:
    """Three members; n1 leads term 4 until it hands on."""

    def __init__(self) -> None:
        # What each says: leader and term; one that is missing is down.
        self.says: dict[str, tuple[str | None, int]] = dict.fromkeys(PEERS, ("n1", 4))
        # What they say after a transfer.
        self.after: dict[str, tuple[str | None, int]] = {}

    def ask_ledger(self, address: str, code: int, body: bytes) -> RemotingCommand:
        member_id = next(name for name, at in PEERS.items() if at == address)
        if member_id not in self.says:
            raise UnreachableError(address, "refused")
        leader_id, term = self.says[member_id]
        answer: dict[str, Any] = {"code": 200, "term": term}
        if code == JsonCode.METADATA:
            answer["leaderId"] = leader_id
        elif code == JsonCode.HEART_BEAT:
            answer["code"] = int(DLedgerCode.EXPIRED_TERM)
        elif code == JsonCode.LEADERSHIP_TRANSFER:
            assert leader_id == member_id == json.loads(body)["transferId"]
            self.says = self.after
        return RemotingCommand(code=0, body=json.dumps(answer).encode())


def group(members: Members) -> LedgerGroup:
    remote: Any = members
    return LedgerGroup(remote, "g", PEERS)


def test_leader_is_who_says_so_itself() -> None:
    members = Members()
    assert group(members).find_leader() == ("n1", 4)
    # n0 hears late of it; n1 knows the new term by the vote that it gave.
    members.says = {"n0": ("n1", 4), "n1": (None, 5), "n2": ("n2", 5)}
    assert group(members).find_leader() == ("n2", 5)
    # A former leader that was cut off, and does not know yet.
    members.says = {"n0": ("n0", 4), "n1": ("n2", 5), "n2": ("n2", 5)}
    assert group(members).find_leader() == ("n2", 5)
    del members.says["n2"]
    members.says["n0"] = (None, 4)
    with pytest.raises(AdminError, match="n0 does not lead; n1 does not lead; .*a:2"):
        group(members).find_leader()


def test_transfer_is_done_although_a_member_hears_late_of_it() -> None:
    members = Members()
    members.after = {"n0": ("n1", 4), "n1": (None, 5), "n2": ("n2", 5)}
    assert group(members).hand_over("n2") == ("n1", 5)


def test_transfer_is_done_when_the_other_leads_however_late_its_leader_answers() -> None:
    class SlowLeader(Members):
        """Its disk takes its time to note the new term."""

        may_answer = Event()

        def ask_ledger(self, address: str, code: int, body: bytes) -> RemotingCommand:
            answer = super().ask_ledger(address, code, body)
            if code == JsonCode.LEADERSHIP_TRANSFER:
                assert self.may_answer.wait(60)
            return answer

    members = SlowLeader()
    members.after = {"n0": ("n1", 4), "n1": ("n1", 4), "n2": ("n2", 5)}
    done: SimpleQueue[tuple[str, int]] = SimpleQueue()
    Thread(target=lambda: done.put(group(members).hand_over("n2")), daemon=True).start()
    try:
        assert done.get(timeout=30) == ("n1", 5)
    finally:
        members.may_answer.set()


def test_transfer_to_the_leader_changes_nothing() -> None:
    assert group(Members()).hand_over("n1") == ("n1", 4)


def test_transfer_that_another_member_won_is_told() -> None:
    members = Members()
    members.after = {"n0": ("n0", 5), "n1": ("n0", 5), "n2": ("n0", 5)}
    with pytest.raises(AdminError, match="n2 did not take over: n0 leads term 5"):
        group(members).hand_over("n2")


@pytest.mark.parametrize("term", [None, "5", 1.5, [5]])
def test_member_that_tells_no_term_does_not_lead(term: Any) -> None:
    members = Members()
    members.says["n1"] = ("n1", term)
    with pytest.raises(AdminError, match="has no leader|does not tell its term"):
        group(members).find_leader()
