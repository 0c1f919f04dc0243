"""How long a TCP connection waits for a peer that has fallen silent: the one place for these times.

TCP repeats what was not acknowledged after waits that double, and gives up after a quarter of an
hour; when a network was gone for a minute, the next repetition may be half a minute away although
the way is free again. An idle connection notices nothing at all. So every socket of the product
bounds the time for which its bytes may go unacknowledged, and asks an idle peer for a sign of life.

The kernel of a peer answers, not its process: a process that is stopped or busy stays connected. It
is different for one that reads nothing while its buffers are full: the bound ends that, too.
"""

import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpTimes:
    """Times of one connection."""

    # Bytes that are not acknowledged for so long, and probes that are not answered for so long, end
    # the connection (TCP_USER_TIMEOUT; Linux only).
    unacknowledged_ms: int
    # An idle connection is probed after this, and then this often (keep-alive).
    idle_s: int
    interval_s: int

    def __post_init__(self) -> None:
        assert self.unacknowledged_ms > 0
        assert self.idle_s > 0
        assert self.interval_s > 0


# Between members of a group: twice the silence after which members replace a leader. Shorter would
# end connections for a few lost packets; longer would keep healed networks waiting for them.
MEMBER_TIMES: Final = TcpTimes(unacknowledged_ms=3_000, idle_s=2, interval_s=1)
# From a broker to a name server: a new leader must be found there, so it is as urgent.
REGISTRATION_TIMES: Final = MEMBER_TIMES
# From a client to a broker or name server, and between a slave and its master.
CLIENT_TIMES: Final = TcpTimes(unacknowledged_ms=20_000, idle_s=10, interval_s=5)
# What a broker accepted from a client: as long as a client that reads nothing is borne otherwise.
ACCEPTED_TIMES: Final = TcpTimes(unacknowledged_ms=60_000, idle_s=30, interval_s=10)
# What a name server accepted. The end of a connection takes the broker that registered on it out of
# the routes; one that is merely cut off from its name server is believed as long as a silent one.
NAME_SERVER_TIMES: Final = TcpTimes(unacknowledged_ms=120_000, idle_s=60, interval_s=15)


def set_tcp_times(sock: socket.socket, times: TcpTimes) -> None:
    """Gives a TCP socket its times, as far as the system knows them.

    A socket whose connection has ended meanwhile is left as it is: who owns it is told of that.
    """
    probes_count = -(-times.unacknowledged_ms // (1000 * times.interval_s))
    # Not all systems know them all; macOS calls the first one TCP_KEEPALIVE.
    idle = getattr(socket, "TCP_KEEPIDLE", getattr(socket, "TCP_KEEPALIVE", None))
    options = (
        (idle, times.idle_s),
        (getattr(socket, "TCP_KEEPINTVL", None), times.interval_s),
        (getattr(socket, "TCP_KEEPCNT", None), probes_count),
        (getattr(socket, "TCP_USER_TIMEOUT", None), times.unacknowledged_ms),
    )
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in options:
            if option is not None:
                sock.setsockopt(socket.IPPROTO_TCP, option, value)
