"""Receiver: who gets the commands of a connection."""

from typing import TYPE_CHECKING, Protocol

from ledgermq.protocol.command import RemotingCommand

if TYPE_CHECKING:
    from ledgermq.protocol.transport.command_protocol import CommandProtocol


class Receiver(Protocol):
    """What a connection tells its owner."""

    def connection_made(self, connection: "CommandProtocol") -> None:
        """The connection is open; called once, before anything else."""

    def commands_received(
        self, connection: "CommandProtocol", commands: list[RemotingCommand]
    ) -> int | None:
        """Requests of the peer, in order; never empty, never answers to own requests.

        Returns:
            How many were taken from their front, one at least; the others come again in a later
            turn. None: all. Whoever may need long asks `goes_on` before each but the first.
        """

    def connection_lost(self, connection: "CommandProtocol", reason: str) -> None:
        """The connection is gone; called once, after everything else."""
