"""Contradictions: a leader contradicts an entry that this member knows to be committed.

Raft rules that out, so one of the two logs is damaged or comes from another group. One message does
not show which. The sender's connection is closed, an alarm names the directory to remove, and the
core takes nothing of the sender for a while: no vote, no heartbeat answer. So members
with the same log elect another leader and go on. When as many members contradict this one as make a
majority without it, its own log is the wrong one: it stops.
"""

from collections.abc import Mapping
from typing import Final, Protocol

from twisted.logger import Logger

from ledgermq.dledger.errors import ContradictionError
from ledgermq.dledger.messages import Message
from ledgermq.dledger.raft import Raft
from ledgermq.dledger.replica.config import ReplicaConfig

_REJECTED: Final = (
    "{self_id}: {report} ({count} of the {quorum_count} members that make a majority contradict"
    " this one)"
)
_OUTVOTED: Final = (
    "{self_id}: stopping: a majority of the group ({senders}) contradicts entries committed here."
    " Move the store directory of this member (storePathRootDir) away and start it again with an"
    " empty one: it is filled from the group"
)

_log = Logger()


class EndsConnections(Protocol):
    """What is needed of the ways to the other members."""

    def contradicted(self, sender: str, error: ContradictionError) -> None:
        """Ends the connections that a member has made."""


class Contradictions:
    """Who contradicted this member while its process runs."""

    def __init__(self, config: ReplicaConfig) -> None:
        """
        Args:
            config: of this member; its majority and where its peers are.
        """
        self._self_id = config.self_id
        self._quorum_count = config.core().quorum_count
        self._hosts = {peer_id: one.host for peer_id, one in config.addresses().items()}
        # In the order in which they said so first.
        self._senders: dict[str, ContradictionError] = {}

    @property
    def reports(self) -> Mapping[str, str]:
        """What each sender contradicts, and the remedy, for operators."""
        return {sender: self._report(sender, error) for sender, error in self._senders.items()}

    def _report(self, sender: str, error: ContradictionError) -> str:
        host = self._hosts.get(sender, "its host")
        return (
            f"{sender} contradicts entries that are committed on {self._self_id} ({error}), so it"
            " gets no vote and no answer here. If the other members report the same, stop"
            f" {sender} on {host}, move its store directory (storePathRootDir) away and start it"
            " again with an empty one: it is filled from the group"
        )

    def receive(
        self, raft: Raft, message: Message, now_ms: float, connections: EndsConnections
    ) -> None:
        """Gives the core a message, of which nothing is taken when it contradicts it.

        Raises:
            ContradictionError: a majority says so.
        """
        try:
            raft.receive(message, now_ms)
            if self._senders and len(self._senders) != len(raft.contradicting):
                # A member that lost its log, as its operator was asked to see to, counts again.
                self._senders = {
                    sender: error
                    for sender, error in self._senders.items()
                    if sender in raft.contradicting
                }
        except ContradictionError as error:
            is_new = message.sender not in self._senders
            self._senders[message.sender] = error
            if is_new:
                _log.error(
                    _REJECTED,
                    self_id=self._self_id,
                    report=self._report(message.sender, error),
                    count=len(self._senders),
                    quorum_count=self._quorum_count,
                )
            connections.contradicted(message.sender, error)
            if len(self._senders) >= self._quorum_count:
                senders = ", ".join(self._senders)
                _log.error(_OUTVOTED, self_id=self._self_id, senders=senders)
                raise
