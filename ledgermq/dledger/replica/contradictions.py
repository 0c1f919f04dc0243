"""Contradictions: a member says of a committed entry what this member knows to be otherwise.

Raft rules that out, so one of the two is damaged, or is none of the group. Which one, a single word
does not tell: it ends the connection on which it came and raises an alarm, and nothing of it is
taken. Only when so many members have said so as make a majority without this one is it this one
that has to stop, for a person to look at.
"""

from collections.abc import Mapping
from typing import Final, Protocol

from twisted.logger import Logger

from ledgermq.dledger.errors import ContradictionError
from ledgermq.dledger.messages import Message
from ledgermq.dledger.raft import Raft
from ledgermq.dledger.replica.config import ReplicaConfig

_LINE: Final = (
    "{self_id}: {sender} {report}; {count} of {quorum_count} members that would outvote this one"
    " contradict it, and the connection is closed"
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
            f"contradicts entries that are committed on {self._self_id} ({error}): if the other"
            f" members agree with {self._self_id}, stop {sender} on {host}, move its store"
            " directory (storePathRootDir) away and start it again with an empty one;"
            " it is filled from the group"
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
        except ContradictionError as error:
            is_new = message.sender not in self._senders
            self._senders[message.sender] = error
            if is_new:
                _log.error(
                    _LINE,
                    self_id=self._self_id,
                    sender=message.sender,
                    report=self._report(message.sender, error),
                    count=len(self._senders),
                    quorum_count=self._quorum_count,
                )
            connections.contradicted(message.sender, error)
            if len(self._senders) >= self._quorum_count:
                raise
