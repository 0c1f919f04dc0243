"""ReservedPort: a TCP port of loopback that stays its owner's also while nobody listens on it.

The system chooses the number, and a bound socket that never listens keeps it: no other program gets
it for a port or for an outgoing connection. A node that is started again finds its port free, and
clients that connect meanwhile are refused, as by a machine whose broker is down.
"""

import socket
from typing import Final

LOOPBACK: Final = "127.0.0.1"
# Java's server backlog.
_BACKLOG: Final = 1024


class ReservedPort:
    """One port, from its making to `release`."""

    def __init__(self) -> None:
        """Takes a free port."""
        self._holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        # Lets the socket that listens bind beside it. Nobody else can: the kernel gives a port that
        # was chosen by number only to sockets that ask for it so, of the same user.
        self._holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._holder.bind((LOOPBACK, 0))
        self.number: int = self._holder.getsockname()[1]

    @property
    def address(self) -> str:
        """As "host:port"."""
        return f"{LOOPBACK}:{self.number}"

    def listen(self) -> socket.socket:
        """Returns a socket that listens on it; the caller closes it."""
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            listening.bind((LOOPBACK, self.number))
            listening.listen(_BACKLOG)
            listening.setblocking(False)
        except BaseException:
            listening.close()
            raise
        return listening

    def release(self) -> None:
        """Gives the port back."""
        self._holder.close()
