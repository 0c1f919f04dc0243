"""Receiver: who gets the commands of a connection."""

from typing import Protocol, TypeVar

from ledgermq.protocol.command import RemotingCommand

# The connection.
_C = TypeVar("_C", contravariant=True)


class Receiver(Protocol[_C]):
    """What a connection tells its owner."""

    def connection_made(self, connection: _C) -> None:
        """The connection is open; called once, before anything else."""

    def commands_received(self, connection: _C, commands: list[RemotingCommand]) -> int | None:
        """Requests of the peer, in order; never empty, never answers to own requests.

        Returns:
            How many were taken from their front, one at least; the others come again in a later
            turn. None: all. Whoever may need long asks `goes_on` before each but the first.
        """

    def connection_lost(self, connection: _C, reason: str) -> None:
        """The connection is gone; called once, after everything else."""
