"""Settings of the ledger member of a broker, and what it tells other members of the broker."""

from collections.abc import Callable
from typing import Final

from ledgermq.broker.config.broker_config import BrokerConfig
from ledgermq.broker.config.group_secret import find_group_secret
from ledgermq.broker.storage.state_repair import StateRepair
from ledgermq.dledger.config import FAST_TIMING, JAVA_TIMING, MIB, Timing
from ledgermq.dledger.errors import LedgerError
from ledgermq.dledger.formats import Formats
from ledgermq.dledger.member_view import MemberView
from ledgermq.dledger.replica.config import FlushDiskType, ReplicaConfig
from ledgermq.dledger.replica.driver import Replica
from ledgermq.dledger.replica.member_tls import MemberTls
from ledgermq.state.broker_state import BrokerState
from ledgermq.state.errors import ServiceUnavailableError
from ledgermq.state.under_way import OnCommitted

# What the broker itself may have waiting besides messages: state records, and the batch that was
# just admitted. Offsets that were told meanwhile are one command, and may be all there are.
_OWN_ENTRIES: Final = 20_000
_OWN_BYTES: Final = 128 * MIB


def replica_config(config: BrokerConfig) -> ReplicaConfig:
    """Returns what the ledger member is told.

    The limits of the ledger lie above those of the broker, so that a send is refused by the
    broker, with the key to change, and a turn's append is not refused as a whole.
    """
    own = config.own_peer
    if own.host.startswith("127."):
        listen_host = own.host
    elif own.host == "localhost":
        listen_host = "127.0.0.1"
    else:
        listen_host = "" if config.bind_host == "0.0.0.0" else config.bind_host
    return ReplicaConfig(
        group=config.ledger_group,
        self_id=config.ledger_self_id,
        peers=";".join(str(peer) for peer in config.ledger_peers),
        listens=config.is_group_member,
        listen_host=listen_host,
        flush_disk_type=FlushDiskType(config.flush_disk_type),
        clock_skew_max_ms=config.clock_skew_max_ms,
        founder_ids=config.ledger_founder_ids,
        preferred_leader_ids=config.preferred_leader_ids,
        member_networks=config.ledger_member_networks,
        group_secret=find_group_secret(config),
        requires_secret=config.group_secret_mode == "require",
        tls=_member_tls(config),
        java_members=config.ledger_java_members,
        tool_networks=config.ledger_tool_networks,
        tool_requests=config.ledger_tool_requests,
        append_timeout_ms=config.commit_timeout_ms,
        timing=_timing(config, FAST_TIMING),
        timing_with_java=_timing(config, JAVA_TIMING),
        proposals_max=max(config.ledger_pending_max, config.waiting_sends_max) + _OWN_ENTRIES,
        proposal_bytes_max=config.waiting_bytes_max + _OWN_BYTES,
    )


def _member_tls(config: BrokerConfig) -> MemberTls | None:
    """
    Raises:
        TlsSettingsError: a certificate cannot be used.
    """
    if not config.member_tls_file or config.member_tls_mode == "disabled":
        return None
    return MemberTls(
        config.member_tls_file,
        {peer.member_id: peer.host for peer in config.ledger_peers},
        is_required=config.member_tls_mode == "enforcing",
        serves_plain=bool(config.ledger_java_members or config.ledger_tool_networks),
    )


def told_formats(state: BrokerState, repair: StateRepair) -> Callable[[], Formats]:
    """Returns what tells which formats of the state's records are read here, and needed, and
    whether this member lacks what they said.
    """
    formats = state.formats
    return lambda: Formats(formats.reads, formats.applied, repair.wants_sweep)


def followers_text(view: MemberView | None) -> str:
    """Returns how far the followers of a leader are, for people; empty for all others."""
    if view is None:
        return ""
    return "; ".join(
        f"{one.peer_id} {view.last_index - one.match_index} entries and {one.behind_bytes} bytes"
        f" behind, heard {int(one.silent_ms)} ms ago{'' if one.counts else ', not counted'}"
        for one in view.followers
    )


def lead_confirmation(replica: Replica) -> Callable[[OnCommitted], None]:
    """Returns what tells whether a member leads at the moment it is called, or why that is not
    known: then whoever asked tries again, with the leader that a name server tells.
    """

    def confirm(done: OnCommitted) -> None:
        def told(error: LedgerError | None) -> None:
            done(None if error is None else ServiceUnavailableError(str(error)))

        replica.confirming.ask(told)

    return confirm


def read_confirmation(
    replica: Replica, state: BrokerState, first_index: Callable[[], int]
) -> Callable[[OnCommitted], None]:
    """Returns what tells when a follower has applied all that was granted before it was called, or
    that this is not known: it has no leader that answers in time, or only a part of the state.

    Args:
        first_index: tells where its log begins.
    """

    def confirm(done: OnCommitted) -> None:
        def told(error: LedgerError | None) -> None:
            if error is not None:
                done(ServiceUnavailableError(str(error)))
            elif not state.is_whole_from(first_index()):
                done(ServiceUnavailableError("a sweep has yet to tell what the log does not hold"))
            else:
                done(None)

        replica.confirming.follower_reads.ask(told)

    return confirm


def reads_text(replica: Replica) -> str:
    """Tells how many questions to a follower were answered with and without its leader's word."""
    reads = replica.confirming.follower_reads
    return f"{reads.certain_count} certain, {reads.uncertain_count} not"


def _timing(config: BrokerConfig, defaults: Timing) -> Timing:
    """Configured times replace the defaults; 0 is "not configured"."""
    return Timing(
        heart_beat_ms=config.ledger_heartbeat_ms or defaults.heart_beat_ms,
        heart_beats_missed_max=config.ledger_heartbeats_missed_max,
        vote_wait_min_ms=config.ledger_vote_wait_min_ms or defaults.vote_wait_min_ms,
        vote_wait_max_ms=config.ledger_vote_wait_max_ms or defaults.vote_wait_max_ms,
        vote_round_ms=defaults.vote_round_ms,
    )
