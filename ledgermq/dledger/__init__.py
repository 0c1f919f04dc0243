"""The replicated ledger: DLedger's Raft as a pure core, with its stores, usable without a broker.

Start reading at `ready.py` (the contract of whoever drives the core), then `raft.py` (the face),
then the two sides of replication: `dispatcher.py` (leader) and `handler.py` (follower).
docs/dledger.md has the table part -> file, the pictures of the roles, and every deviation from
upstream.

The core does no I/O: `store/` puts bytes on disk, `replica/` runs a member on Twisted.
"""

from ledgermq.dledger.config import Config, Timing
from ledgermq.dledger.entry import EntryCodec, EntryId, EntrySlice
from ledgermq.dledger.errors import LedgerError, NotLeaderError, ProposalDroppedError
from ledgermq.dledger.member_state import Role
from ledgermq.dledger.raft import Raft
from ledgermq.dledger.ready import Ready, RoleChange
from ledgermq.dledger.storage import HardState, LedgerStore, VoteStore

__all__ = [
    "Config",
    "EntryCodec",
    "EntryId",
    "EntrySlice",
    "HardState",
    "LedgerError",
    "LedgerStore",
    "NotLeaderError",
    "ProposalDroppedError",
    "Raft",
    "Ready",
    "Role",
    "RoleChange",
    "Timing",
    "VoteStore",
]
