"""LeaderTrust: whether who answers where name servers say the leader is, is the leader.

A member of ours proves the group's secret by each answer (`member_questions.py`). A Java member
cannot; in a group with a secret it is believed at its own address alone, as on the ledger port: its
host in dLegerPeers, or what dLegerJavaMembers names beside it. Without a secret anybody is.
"""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from twisted.internet.defer import Deferred, succeed

from ledgermq.broker.member_questions import MemberQuestions
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.transport.refusals import Refusals
from ledgermq.state.errors import BrokerError

# What is asked only to have it proven who answers; the least of the tables.
_PROBE: Final = RequestCode.GET_ALL_DELAY_OFFSET
_LEADER: Final = "the leader"


class Peer(Protocol):
    """A connection to the leader's broker."""

    def request(self, command: RemotingCommand, timeout_ms: int) -> Deferred[RemotingCommand]: ...

    def stop(self) -> Deferred[None]: ...


class NotLeaderProvenError(BrokerError):
    """Who answers is not known to be the leader; nothing is taken from it, and it gets nothing."""


class LeaderTrust:
    """Asks for proofs, and judges them."""

    def __init__(
        self,
        questions: MemberQuestions,
        is_java: Callable[[str], bool],
        is_java_host: Callable[[str, str], bool],
        refusals: Refusals,
    ) -> None:
        """
        Args:
            questions: of this member.
            is_java: whether a member is one of Java.
            is_java_host: whether that may be at a host, as the configuration says.
            refusals: told of who does not prove itself; may be set later.
        """
        self._questions = questions
        self._is_java = is_java
        self._is_java_host = is_java_host
        self.refusals = refusals

    def doubt_of_address(self, leader_id: str, address: str) -> str | None:
        """Says why nobody is asked at "host:port"; None where somebody is."""
        host = _host_of(address)
        if not self._questions.is_required or not self._is_java(leader_id):
            return None
        if self._is_java_host(leader_id, host):
            return None
        return (
            f"a Java member proves nothing, and {host} is not where {leader_id} may be"
            " (keys dLegerPeers, dLegerJavaMembers)"
        )

    def ask(
        self, peer: Peer, leader_id: str, code: RequestCode, address: str, timeout_ms: int
    ) -> Deferred[RemotingCommand]:
        """Asks who should be the leader; fails with NotLeaderProvenError where that is in doubt."""
        question = self._questions.ask(code, address)

        def judged(answer: RemotingCommand) -> RemotingCommand:
            self._judge(question, answer, leader_id, _host_of(address))
            return answer

        return peer.request(question, timeout_ms).addCallback(judged)

    def _judge(
        self, question: RemotingCommand, answer: RemotingCommand, leader_id: str, host: str
    ) -> None:
        if self._is_java(leader_id):
            return
        doubt = self._questions.doubt(question, answer)
        if doubt is None:
            self.refusals.forget(_LEADER, host)
        elif self._questions.is_required:
            self.refusals.note(_LEADER, host, doubt)
            is_refusal = answer.code != ResponseCode.SUCCESS
            raise NotLeaderProvenError(f"{doubt}: {answer.remark}" if is_refusal else doubt)
        else:
            self.refusals.note(_LEADER, host, f"believed all the same: {doubt}")

    def telling(
        self, leader_id: str, code: RequestCode, address: str, fields: Mapping[str, str]
    ) -> RemotingCommand:
        """Returns a request of a client as it is passed on: in this member's name where there is a
        secret, as it came to a Java leader and where there is none.
        """
        if self._questions.has_secret and not self._is_java(leader_id):
            return self._questions.ask(code, address, fields)
        command = RemotingCommand.request(code)
        command.ext_fields = dict(fields)
        return command

    def prove(self, peer: Peer, leader_id: str, address: str, timeout_ms: int) -> Deferred[None]:
        """Fires when who is connected has proven that it is the leader, or need not; fails as `ask`
        does.
        """
        if not self._questions.is_required or self._is_java(leader_id):
            return succeed(None)
        asked = self.ask(peer, leader_id, _PROBE, address, timeout_ms)
        return asked.addCallback(lambda _: None)


def _host_of(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")
