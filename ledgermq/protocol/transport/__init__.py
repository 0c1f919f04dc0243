"""Commands over TCP with Twisted: the room's only I/O.

Contract: a receiver sees whole decoded commands, those of a chunk in one call or, where they are
many or slow, in several turns; what is sent in one turn goes out in one write; every buffer, wait
and connection count has a limit; after `stop` nothing is left that the reactor would call. Read
command_protocol.py first.
"""

from ledgermq.protocol.transport.budgets import ReceiveBudget, SendBudget
from ledgermq.protocol.transport.certificate_watch import LOOK_INTERVAL_MS, CertificateWatch
from ledgermq.protocol.transport.client import CommandClient
from ledgermq.protocol.transport.command_protocol import CommandProtocol
from ledgermq.protocol.transport.limits import ConnectionLimits
from ledgermq.protocol.transport.receiver import Receiver
from ledgermq.protocol.transport.schedule import Schedule
from ledgermq.protocol.transport.server import CommandServer
from ledgermq.protocol.transport.turn import TurnOutput
from ledgermq.protocol.transport.turn_shares import TurnShares, payer_of

__all__ = [
    "LOOK_INTERVAL_MS",
    "CertificateWatch",
    "CommandClient",
    "CommandProtocol",
    "CommandServer",
    "ConnectionLimits",
    "ReceiveBudget",
    "Receiver",
    "Schedule",
    "SendBudget",
    "TurnOutput",
    "TurnShares",
    "payer_of",
]
