"""Contradictions: a member says of a committed entry what this member knows to be otherwise.

Raft rules that out, so one of the two is damaged, or is none of the group. Which one, a single word
does not tell: it ends the connection on which it came and raises an alarm, and nothing of it is
taken. Only when so many members have said so as make a majority without this one is it this one
that has to stop, for a person to look at.
"""

from typing import Final, Protocol

from twisted.logger import Logger

from ledgermq.dledger.errors import ContradictionError
from ledgermq.dledger.messages import Message
from ledgermq.dledger.raft import Raft

_LINE: Final = (
    "{self_id}: {sender} contradicts what is committed here, its connection is closed: {error};"
    " {count} of {quorum_count} members that would outvote this one have said so"
)

_log = Logger()


class EndsConnections(Protocol):
    """What is needed of the ways to the other members."""

    def contradicted(self, sender: str, error: ContradictionError) -> None:
        """Ends the connections that a member has made."""


class Contradictions:
    """Who contradicted this member while its process runs."""

    def __init__(self, self_id: str, quorum_count: int) -> None:
        """
        Args:
            self_id: this member.
            quorum_count: members that make a majority.
        """
        self._self_id = self_id
        self._quorum_count = quorum_count
        # In the order in which they said so first.
        self._senders: dict[str, ContradictionError] = {}

    @property
    def alarm(self) -> str | None:
        """Who says what that cannot be, for operators; None when nobody does."""
        if not self._senders:
            return None
        said = "; ".join(f"{sender}: {error}" for sender, error in self._senders.items())
        return f"contradicted by {said}"

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
                    error=error,
                    count=len(self._senders),
                    quorum_count=self._quorum_count,
                )
            connections.contradicted(message.sender, error)
            if len(self._senders) >= self._quorum_count:
                raise
