"""ReplicaConfig: what one running member is told, checked when it is made."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from ledgermq.dledger.addresses import (
    ConfigValueError,
    PeerAddress,
    parse_java_members,
    parse_networks,
    parse_peers,
)
from ledgermq.dledger.config import FAST_TIMING, JAVA_TIMING, KIB, MIB, Config, Timing
from ledgermq.dledger.replica.member_tls import MemberTls
from ledgermq.protocol.group_secret import GroupSecret

# What DLedger's own tools ask for.
TOOL_REQUESTS: Final = ("METADATA", "GET", "APPEND", "LEADERSHIP_TRANSFER")


class FlushDiskType(Enum):
    """When an entry counts as written (flushDiskType)."""

    # After fdatasync, many entries in one.
    SYNC_FLUSH = "SYNC_FLUSH"
    # In the page cache; fdatasync follows within `flush_interval_ms`.
    ASYNC_FLUSH = "ASYNC_FLUSH"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaConfig:
    """Identity, addresses, flush and limits of one running member; nothing of it changes later."""

    # Name of the group; a peer of another group is refused.
    group: str
    # This member; one of the ids in `peers`.
    self_id: str
    # All members, this one included, as parse_peers reads them.
    peers: str
    # Where members may speak from besides the addresses of their hosts, as parse_networks reads it.
    member_networks: tuple[str, ...] = ()
    # What members prove to each other that they know; None: nothing is asked for.
    group_secret: GroupSecret | None = None
    # Whether who does not prove the secret is refused; else it is let in, and named.
    requires_secret: bool = True
    # Certificates of the members; None: no TLS between them.
    tls: MemberTls | None = None
    # Members that may speak Java's JSON: "n1" from its host in `peers`, "n1-10.0.0.0/8" from there,
    # too. None: nobody in a closed group, else all.
    java_members: tuple[str, ...] | None = None
    # Addresses and networks from which DLedger's tools are served, and which of their requests.
    # None: nowhere in a closed group, else everywhere.
    tool_networks: tuple[str, ...] | None = None
    tool_requests: tuple[str, ...] = TOOL_REQUESTS
    # Whether a port is opened for other members and tools; a member that is alone needs none.
    listens: bool = True
    # Interface to listen on; empty: all of them.
    listen_host: str = ""
    # Wall clocks of members that differ by more do not agree; 0: they are not compared.
    clock_skew_max_ms: int = 60_000
    flush_disk_type: FlushDiskType = FlushDiskType.SYNC_FLUSH
    # Longest time that an entry stays in the page cache alone under ASYNC_FLUSH.
    flush_interval_ms: int = 500
    # How often the commit index is noted on disk while it moves (checkPointInterval).
    checkpoint_interval_ms: int = 3000
    # Bytes waiting for a peer's socket; above it messages to that peer are dropped, and the core
    # sends them again. More than a whole push window, less than would hurt.
    peer_unsent_bytes_max: int = 64 * MIB
    # What messages of peers may take in memory while the disk is waited for; a whole window of the
    # largest entries twice, as the leader may change in that time.
    inbox_bytes_max: int = 32 * MIB
    # Requests of one Java peer or tool that wait for their answer (DLedger: 1024).
    waiting_requests_max: int = 1024
    # Entries applied in one reactor turn while catching up.
    apply_count_max: int = 2048
    # One attempt to connect to a peer. It is over before TCP would repeat a first packet that was
    # lost; the next attempt sends one at once.
    connect_timeout_ms: int = 1000
    # Wait between the beginnings of two attempts to connect, from the first to the longest.
    reconnect_min_ms: int = 100
    reconnect_max_ms: int = 1000
    # How long a peer may take to answer a request (DLedger: 3000).
    request_timeout_ms: int = 3000
    # A foreign APPEND that is not committed in this time is answered 502 (maxWaitAckTimeMs).
    append_timeout_ms: int = 2500
    # Serve APPEND of DLedger's own tools. Off in a broker, whose log holds records only.
    serves_append: bool = False
    # Handed on to the core.
    timing: Timing = field(default=FAST_TIMING)
    timing_with_java: Timing = field(default=JAVA_TIMING)
    entry_bytes_max: int = 4 * MIB
    proposals_max: int = 10_000
    proposal_bytes_max: int = 64 * MIB
    push_frames_max: int = 4
    push_bytes_max: int = 256 * KIB
    throttle_far_bytes: int = 300 * MIB
    throttle_quota_bytes: int = 20 * MIB
    founder_ids: tuple[str, ...] = ()
    preferred_leader_ids: tuple[str, ...] = ()
    transfer_lag_max: int = 1000
    transfer_timeout_ms: int = 3000
    takeover_wait_ms: int = 1000

    def __post_init__(self) -> None:
        if not self.group:
            raise ConfigValueError("group", self.group, "a name")
        ids = tuple(parse_peers(self.peers))
        if self.self_id not in ids:
            raise ConfigValueError("self_id", self.self_id, f"one of {', '.join(ids)}")
        for key in (
            "flush_interval_ms",
            "checkpoint_interval_ms",
            "peer_unsent_bytes_max",
            "inbox_bytes_max",
            "waiting_requests_max",
            "apply_count_max",
            "connect_timeout_ms",
            "reconnect_min_ms",
            "request_timeout_ms",
            "append_timeout_ms",
        ):
            if getattr(self, key) < 1:
                raise ConfigValueError(key, getattr(self, key), "1 or more")
        if self.reconnect_max_ms < self.reconnect_min_ms:
            allowed = f"{self.reconnect_min_ms} or more"
            raise ConfigValueError("reconnect_max_ms", self.reconnect_max_ms, allowed)
        parse_networks(self.member_networks)
        parse_networks(self.tool_networks or ())
        parse_java_members(self.java_members or (), ids)
        for name in self.tool_requests:
            if name not in TOOL_REQUESTS:
                raise ConfigValueError("tool_requests", name, ", ".join(TOOL_REQUESTS))
        self.core()

    @property
    def is_closed(self) -> bool:
        """Whether only who proves to be a member, and who is named, is let in."""
        return self.requires_proof or (self.tls is not None and self.tls.is_required)

    @property
    def requires_proof(self) -> bool:
        """Whether members prove the group's secret."""
        return self.group_secret is not None and self.requires_secret

    def addresses(self) -> dict[str, PeerAddress]:
        """Returns the address of each member, this one included."""
        return parse_peers(self.peers)

    def core(self) -> Config:
        """Returns what the core is told.

        Raises:
            ValueError: a value is outside its range; the text names it.
        """
        return Config(
            group=self.group,
            self_id=self.self_id,
            members=tuple(parse_peers(self.peers)),
            timing=self.timing,
            timing_with_java=self.timing_with_java,
            entry_bytes_max=self.entry_bytes_max,
            proposals_max=self.proposals_max,
            proposal_bytes_max=self.proposal_bytes_max,
            push_frames_max=self.push_frames_max,
            push_bytes_max=self.push_bytes_max,
            throttle_far_bytes=self.throttle_far_bytes,
            throttle_quota_bytes=self.throttle_quota_bytes,
            founder_ids=self.founder_ids,
            preferred_leader_ids=self.preferred_leader_ids,
            is_sync_flush=self.flush_disk_type is FlushDiskType.SYNC_FLUSH,
            transfer_lag_max=self.transfer_lag_max,
            transfer_timeout_ms=self.transfer_timeout_ms,
            takeover_wait_ms=self.takeover_wait_ms,
        )
