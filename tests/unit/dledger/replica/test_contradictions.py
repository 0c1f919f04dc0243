"""One member that contradicts another loses its connection; a majority of them ends the other."""

from typing import Any, cast

import pytest

from ledgermq.dledger.errors import ContradictionError
from ledgermq.dledger.messages import Message
from ledgermq.dledger.raft import Raft
from ledgermq.dledger.replica.config import ReplicaConfig
from ledgermq.dledger.replica.contradictions import Contradictions
from tests.unit.dledger.replica.callers import COMMIT, VOTE, Rig, binary

CONFIG = ReplicaConfig(
    group="g", self_id="n0", peers="n0-10.0.0.1:1;n1-192.168.1.1:2;n2-192.168.1.2:3"
)


class FakeRaft:
    """A core that is contradicted by whoever it was told."""

    def __init__(self, liars: set[str]) -> None:
        self.liars = self.contradicting = liars
        self.taken: list[Message] = []

    def receive(self, message: Message, now_ms: float) -> None:
        if message.sender in self.liars:
            raise ContradictionError("a committed entry is never truncated", 5, 3)
        self.taken.append(message)


class Ends:
    def __init__(self) -> None:
        self.senders: list[str] = []

    def contradicted(self, sender: str, error: ContradictionError) -> None:
        self.senders.append(sender)


def test_a_report_says_which_directory_of_which_host_to_move() -> None:
    said = Contradictions(CONFIG)
    said.receive(cast(Raft, FakeRaft({"n1"})), commit("n1"), 0.0, Ends())
    report = said.reports["n1"]
    assert "stop n1 on 192.168.1.1" in report and "storePathRootDir" in report


def commit(sender: str) -> Any:
    return type(COMMIT)(term=1, sender=sender, target="n0", commit_index=0, request_id=5)


def test_one_member_ends_its_connections_only_and_raises_an_alarm() -> None:
    raft, ends, said = FakeRaft({"n1"}), Ends(), Contradictions(CONFIG)
    assert said.reports == {}
    for _ in range(100):
        said.receive(cast(Raft, raft), commit("n1"), 0.0, ends)
        said.receive(cast(Raft, raft), commit("n2"), 0.0, ends)
    assert ends.senders == ["n1"] * 100 and len(raft.taken) == 100
    (report,) = said.reports.values()
    assert said.reports.keys() == {"n1"} and "broken invariant" in report


def test_a_majority_ends_the_member() -> None:
    raft, ends, said = FakeRaft({"n1", "n2"}), Ends(), Contradictions(CONFIG)
    said.receive(cast(Raft, raft), commit("n1"), 0.0, ends)
    with pytest.raises(ContradictionError):
        said.receive(cast(Raft, raft), commit("n2"), 0.0, ends)


def test_the_connections_of_one_member_end_in_both_dialects() -> None:
    rig = Rig("n0-10.0.0.1:1;n1-192.168.1.1:2;n2-192.168.1.2:3")
    first, second, other = rig.connect(), rig.connect(), rig.connect("192.168.1.2")
    for caller, sender in ((first, "n1"), (second, "n1"), (other, "n2")):
        assert caller.greet(sender).code == 0
    speaking = rig.connect()
    assert speaking.ask_json(51004, type="COMMIT", commitIndex=1) == []
    rig.listener.end("n1", "what cannot be")
    callers = (first, second, speaking, other)
    assert [caller.connection.is_open for caller in callers] == [False, False, False, True]
    other.send(binary(VOTE))
    assert rig.member.refusals.texts() == ["n1 at 192.168.1.1: what cannot be"]
