"""Ports of loopback that are free at the moment, and stay so until their owner listens.

They lie below the range from which the system takes ports for outgoing connections (32768 and up
on Linux): one of that range, given to a member that is down for a moment, may be taken meanwhile by
any connection on the machine, and the member cannot come back.

Each process draws from a lane of ports that it has for itself until it ends, and a port comes again
after half of the lane: so no other test, in this process or beside it, is given one whose owner
does not listen yet, or not at the moment.
"""

import fcntl
import itertools
import os
import socket
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Final

_FIRST: Final = 10_000
_LANE_PORTS: Final = 600
_LANES: Final = 35
# What programs listen on, and look at, that are told nothing; upstream's samples, too. They are
# given to nobody: a command that is tried with its own defaults may be at work beside.
_DEFAULTS: Final = frozenset(range(10_900, 10_950)) | frozenset(range(30_900, 30_950))
# First ports of `ledgermq up`, whose ledger ports are 30,000 above: behind all lanes, and below the
# range of the system.
_FIRST_UP: Final = 1100
_UP_PORTS: Final = 30
# A few groups of a process run through many of its files.
_LANE_UPS: Final = 6
_UP_LANES: Final = 9
_CLAIMS: Final = Path(tempfile.gettempdir()) / "ledgermq-test-ports"
# What this process draws from, by kind, and the files that keep others from it.
_lanes: dict[str, tuple[Iterator[int], IO[str]]] = {}
# Ports that were given last.
_given: deque[int] = deque(maxlen=_LANE_PORTS // 2)


def free_ports(count: int, *, spread: Sequence[int] = (0,)) -> list[int]:
    """Returns so many ports, all different, each also free at the given distances.

    Args:
        count: how many.
        spread: offsets from a port that the owner will listen on as well.
    """
    found: list[int] = []
    for number in itertools.islice(_lane("ports", _LANES, _LANE_PORTS), _LANE_PORTS):
        first, port = _FIRST + number - number % _LANE_PORTS, _FIRST + number
        wanted = {port + distance for distance in spread}
        if (
            wanted <= set(range(first, first + _LANE_PORTS))
            and wanted.isdisjoint(_given)
            and wanted.isdisjoint(_DEFAULTS)
            and all(map(_is_free, wanted))
        ):
            found.append(port)
            _given.extend(wanted)
        if len(found) == count:
            return found
    raise AssertionError(f"{len(found)} free ports where {count} are wanted")


def free_first_port() -> int:
    """Returns a base for `ledgermq up`: up to three brokers, their ledger ports, and a name server
    at base + 5 are free.
    """
    for number in itertools.islice(_lane("ups", _UP_LANES, _LANE_UPS), _LANE_UPS):
        base = _FIRST_UP + number * _UP_PORTS
        ports = [base + 5, *(base + 10 * i + up for i in range(3) for up in (0, 30_000))]
        if all(map(_is_free, ports)):
            return base
    raise AssertionError("no free ports for a group")


def _lane(kind: str, count: int, width: int) -> Iterator[int]:
    """Returns the numbers of the lane that this process has, for ever and in order."""
    if kind not in _lanes:
        _CLAIMS.mkdir(exist_ok=True)
        claims = (_claim(kind, number) for number in range(count))
        found = next(((n, claim) for n, claim in enumerate(claims) if claim is not None), None)
        assert found is not None, f"{count} processes have all lanes of {_CLAIMS}"
        number, claim = found
        _lanes[kind] = itertools.cycle(range(number * width, (number + 1) * width)), claim
    return _lanes[kind][0]


def _claim(kind: str, number: int) -> IO[str] | None:
    """Returns what keeps a lane from others, None when one of them has it."""
    try:
        claim = (_CLAIMS / f"{kind}-{number}").open("a")
    except PermissionError:
        # Of another user.
        return None
    try:
        fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        claim.close()
        return None
    return claim


# The child of a fork takes a lane of its own.
os.register_at_fork(after_in_child=_lanes.clear)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
