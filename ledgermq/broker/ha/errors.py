"""Errors of replication: each ends one connection, none changes a log."""

from ledgermq.state.errors import BrokerError


class ReplicationError(BrokerError):
    """What a peer sent cannot be taken; the connection ends, both logs stay as they are."""


class OffsetsDisagreeError(ReplicationError):
    """The two logs do not fit together, and nobody but a person can say which one is right.

    Attributes:
        own_offset: where this side's log stands.
        peer_offset: what the peer said of its own.
    """

    def __init__(self, text: str, *, own_offset: int, peer_offset: int) -> None:
        super().__init__(text)
        self.own_offset = own_offset
        self.peer_offset = peer_offset
