"""Commands over TCP with Twisted: the room's only I/O.

Contract: a receiver sees whole decoded commands, one call for each chunk read; what is sent in one
turn of the reactor goes out in one write; every buffer, wait and connection count has a limit;
after `stop` nothing is left that the reactor would call. Read command_protocol.py first.
"""

from ledgermq.protocol.transport.certificate_watch import LOOK_INTERVAL_MS, CertificateWatch
from ledgermq.protocol.transport.client import CommandClient
from ledgermq.protocol.transport.command_protocol import CommandProtocol, Receiver
from ledgermq.protocol.transport.limits import ConnectionLimits
from ledgermq.protocol.transport.server import CommandServer
from ledgermq.protocol.transport.turn import TurnOutput

__all__ = [
    "LOOK_INTERVAL_MS",
    "CertificateWatch",
    "CommandClient",
    "CommandProtocol",
    "CommandServer",
    "ConnectionLimits",
    "Receiver",
    "TurnOutput",
]
