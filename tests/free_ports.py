"""Ports of loopback that are free at the moment, and stay so until their owner listens.

They lie below the range from which the system takes ports for outgoing connections (32768 and up
on Linux): one of that range, given to a member that is down for a moment, may be taken meanwhile by
any connection on the machine, and the member cannot come back.
"""

import itertools
import os
import random
import socket
from collections.abc import Sequence
from typing import Final

_FIRST: Final = 10_000
_END: Final = 32_700
# Runs side by side draw apart.
_RNG: Final = random.SystemRandom()
# First ports of `ledgermq up`, whose ledger ports are 30,000 above: both stay below that range.
# Processes begin apart.
_FIRST_UP_PORTS: Final = itertools.cycle(range(1100 + os.getpid() % 50 * 30, 2650, 30))


def free_ports(count: int, *, spread: Sequence[int] = (0,)) -> list[int]:
    """Returns so many ports, all different, each also free at the given distances.

    Args:
        count: how many.
        spread: offsets from a port that the owner will listen on as well.
    """
    found: list[int] = []
    taken: set[int] = set()
    while len(found) < count:
        candidate = _RNG.randrange(_FIRST, _END)
        wanted = {candidate + distance for distance in spread}
        if not wanted & taken and all(map(_is_free, wanted)):
            found.append(candidate)
            taken |= wanted
    return found


def free_first_port() -> int:
    """Returns a base for `ledgermq up`: up to three brokers, their ledger ports, and a name server
    at base + 5 are free.
    """
    for base in itertools.islice(_FIRST_UP_PORTS, 60):
        ports = [base + 5, *(base + 10 * i + up for i in range(3) for up in (0, 30_000))]
        if all(map(_is_free, ports)):
            return base
    raise AssertionError("no free ports for a group")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
