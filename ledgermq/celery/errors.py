"""What goes wrong in this room, beside the errors of the client."""

from ledgermq.client import ClientError


class TransportError(ClientError):
    """A queue or exchange cannot be used as it is asked for; says why."""
