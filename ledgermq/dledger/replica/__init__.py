"""One running member of a group: the pure core on a reactor, with its disk and its peers.

Replica takes what arrived in one turn of the reactor to the core and does what the core answers, in
the order that `Ready` prescribes. Between LedgerMQ members it speaks binary frames, to others
DLedger's JSON; both on one port. Read driver.py first, then durability.py and applying.py; the wire
is in peers.py (outgoing), listener.py (incoming), greeting_bodies.py, wire_binary.py and
wire_json.py.
"""

from ledgermq.dledger.replica.applying import Applier
from ledgermq.dledger.replica.config import FlushDiskType, ReplicaConfig
from ledgermq.dledger.replica.driver import Replica

__all__ = [
    "Applier",
    "FlushDiskType",
    "Replica",
    "ReplicaConfig",
]
