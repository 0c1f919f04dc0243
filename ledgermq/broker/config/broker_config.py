"""BrokerConfig: a broker's settings, read once from upstream's properties format into typed
fields.

A wrong value refuses to start with key, value and allowed range (`ConfigError`). Keys nobody
knows, and keys of upstream without effect here, are kept in the result, so that the service can
report each set once. After this module no code sees a configuration text. The keys themselves are
listed in `keys.py`.
"""

import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from ledgermq.broker.config.delay_levels import LEVELS_MAX, DelayLevels
from ledgermq.broker.config.http_keys import derive_http
from ledgermq.broker.config.ignored_keys import IGNORED_KEYS
from ledgermq.broker.config.key import Key, Kind
from ledgermq.broker.config.keys import KEY_BY_NAME, KEYS
from ledgermq.broker.config.member_keys import derive_members
from ledgermq.broker.config.otlp_keys import derive_otlp
from ledgermq.dledger.addresses import ConfigValueError, parse_networks, parse_peers
from ledgermq.protocol.properties_file import parse_properties_file
from ledgermq.state.errors import ConfigError

# DLedger's DLedgerUtils and our vote file both expect a short id; upstream derives the broker id
# from its digits.
_SELF_ID: Final = re.compile(r"[A-Za-z][0-9]{1,4}")
_NAME: Final = re.compile(r"[%|a-zA-Z0-9_.-]{1,127}")
# Roles of upstream that mean nothing on a ledger; its configuration files with them name no log.
_PLAIN_ROLES: Final = ("SYNC_MASTER", "SLAVE")
_REGISTER_PERIOD_MS: Final = (10_000, 60_000)
# The ledger of a broker without a group opens no port; an address has to have a number.
_NO_PORT: Final = 1
# What a key says where there shall be no file.
NO_FILE: Final = "none"
# Upstream's port for the VIP channel is so far below the port for clients.
VIP_PORT_DISTANCE: Final = 2
# What DLedger keeps free behind an entry, so that a blank fits.
_SEGMENT_SLACK_BYTES: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One member of a DLedger group: id and the address of its ledger port."""

    member_id: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.member_id}-{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """All settings of one broker; each field is explained in `keys.KEYS` by its key."""

    # Identity and name servers.
    cluster_name: str
    broker_name: str
    address_host: str
    bind_host: str
    listen_port: int
    has_vip_port: bool
    namesrv_addresses: tuple[str, ...]
    namesrv_access_key: str
    namesrv_secret_file: str
    namesrv_signature: str
    register_period_ms: int
    register_timeout_ms: int
    region_id: str
    is_trace_on: bool
    is_acl_on: bool
    acl_file: Path
    signature_wanted: str
    # Joined with a semicolon.
    signed_addresses: str
    secret_keys_shown: str
    log_form: str
    tls_file: str
    tls_mode: str
    uses_tls: bool
    broker_role: str
    # Topics and groups.
    broker_permission: int
    default_queue_count: int
    auto_create_topics: bool
    is_cluster_topic_open: bool
    is_broker_topic_open: bool
    auto_create_groups: bool
    has_trace_topic: bool
    trace_topic: str
    knows_light_queues: bool
    dispatches_to_light_queues: bool
    light_queues_max: int
    topics_max: int
    groups_max: int
    checks_message_types: bool
    allows_mixed_types: bool
    # Traffic.
    accept_sends_from_ms: int
    message_bytes_max: int
    delay_levels: DelayLevels
    stores_replies: bool
    refuses_transactions: bool
    transaction_check_ms: int
    transaction_immunity_ms: int
    transaction_checks_max: int
    filters_by_properties: bool
    is_long_polling_on: bool
    short_polling_ms: int
    notifies_members: bool
    steers_reads_to_slaves: bool
    corrects_offsets_on_follower: bool
    offsets_flush_ms: int
    offsets_replication_ms: int
    offsets_retention_minutes: int
    unique_key_hits_max: int
    query_hits_max: int
    # Limits.
    waiting_sends_max: int
    waiting_bytes_max: int
    commit_timeout_ms: int
    parked_pulls_max: int
    connections_max: int
    connections_per_host_max: int
    connections_per_host_rate: int
    receive_budget_bytes: int
    send_budget_bytes: int
    unsigned_frame_bytes_max: int
    slow_request_ms: int
    account_messages_s: int
    account_bytes_s: int
    account_connections: int
    new_topics_rate: int
    account_topics_rate: int
    new_topics_burst: int
    new_groups_rate: int
    account_groups_rate: int
    new_groups_burst: int
    heart_beat_bytes_max: int
    heart_beat_groups_max: int
    lock_queues_max: int
    idle_seconds_max: int
    client_expiry_ms: int
    drain_seconds_max: int
    # Store.
    store_root: Path
    commit_log_path: Path
    flush_disk_type: str
    clock_skew_max_ms: int
    trusts_clock: bool
    segment_bytes: int
    index_segment_bytes: int
    queue_segment_bytes: int
    has_key_index: bool
    index_slots: int
    index_units: int
    delete_hours: tuple[int, ...]
    retention_hours: int
    disk_used_percent_max: int
    cleans_forcibly: bool
    clean_interval_ms: int
    scrub_bytes_s: int
    pull_bytes_max: int
    pull_count_max: int
    # Ledger.
    is_group_member: bool
    ledger_group: str
    ledger_peers: tuple[Peer, ...]
    ledger_self_id: str
    ledger_founder_ids: tuple[str, ...]
    preferred_leader_ids: tuple[str, ...]
    ledger_member_networks: tuple[str, ...]
    ledger_heartbeat_ms: int
    ledger_heartbeats_missed_max: int
    ledger_vote_wait_min_ms: int
    ledger_vote_wait_max_ms: int
    ledger_pending_max: int
    # Who may be a member or a slave.
    group_secret_file: str
    group_secret_mode: str
    member_tls_file: str
    member_tls_mode: str
    # None: as the key says of an empty text.
    ledger_java_members: tuple[str, ...] | None
    ledger_tool_networks: tuple[str, ...] | None
    ledger_tool_requests: tuple[str, ...]
    ha_slave_networks: tuple[str, ...] | None
    # A path, or NO_FILE.
    audit_file: str
    audit_file_bytes: int
    audit_files: int
    # The HTTP port.
    http_port: int
    http_bind_host: str
    http_token_file: str
    http_tls_file: str
    is_http_insecure: bool
    http_host_names: tuple[str, ...]
    metric_labels: str
    metric_series_max: int
    # What a collector of OpenTelemetry gets.
    otlp_endpoint: str
    otlp_metrics_s: int
    otlp_spans_per_s: int
    # Master and slave without a ledger.
    broker_id: int
    ha_host: str
    ha_listen_port: int
    ha_master_address: str
    ha_batch_bytes: int
    ha_heartbeat_ms: int
    ha_silence_ms: int
    slave_behind_bytes: int
    slave_timeout_ms: int
    memory_percent: int
    # enableDLegerCommitLog says false in so many words, or brokerRole names a role that only
    # a plain log has.
    wants_plain_log: bool = False
    # Keys that are not in the table, and keys of upstream that have no effect here, in the order
    # of the file.
    unknown_keys: tuple[str, ...] = ()
    ineffective_keys: tuple[str, ...] = ()

    @property
    def follower_broker_id(self) -> int:
        """Broker id of this broker while it does not lead: a member's are the digits of its id
        plus one.
        """
        if not self.is_group_member:
            return max(self.broker_id, 1)
        return int(self.ledger_self_id[1:]) + 1

    @property
    def is_slave(self) -> bool:
        """Whether this broker follows a master, without a ledger."""
        return self.broker_role == "SLAVE" and not self.is_group_member

    @property
    def own_peer(self) -> Peer:
        """The entry of `ledger_peers` that stands for this member."""
        return next(peer for peer in self.ledger_peers if peer.member_id == self.ledger_self_id)


def load_broker_config(
    path: str | Path | None,
    overrides: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> BrokerConfig:
    """Reads a properties file, lays it over what the environment sets, and the overrides of the
    command line over both.

    Args:
        path: file in upstream's format; None for the defaults alone.
        overrides: keys as in the file, with their texts.
        environment: likewise.

    Raises:
        ConfigError: a value is out of its range, or two values contradict each other.
        OSError: the file cannot be read.
    """
    entries: dict[str, str] = {}
    if path is not None:
        try:
            entries = parse_properties_file(Path(path).read_bytes())
        except ValueError as error:
            raise ConfigError(str(path), str(error), "a Java properties file") from error
    entries = {**(environment or {}), **entries, **(overrides or {})}
    values: dict[str, Any] = {key.field: _read(key, entries.get(key.name)) for key in KEYS}
    _derive_identity(values)
    _derive_store(values)
    _derive_access(values, path)
    _derive_delays(values)
    _derive_ledger(values)
    derive_members(values)
    _derive_replication(values)
    derive_http(values)
    derive_otlp(values)
    values["wants_plain_log"] = not values["is_group_member"] and (
        bool(entries.get("enableDLegerCommitLog")) or values["broker_role"] in _PLAIN_ROLES
    )
    others = [name for name in entries if name not in KEY_BY_NAME]
    values["unknown_keys"] = tuple(name for name in others if name not in IGNORED_KEYS)
    values["ineffective_keys"] = tuple(name for name in others if name in IGNORED_KEYS)
    config = BrokerConfig(**values)
    _check_together(config)
    return config


def change_settings(config: BrokerConfig, settings: Mapping[str, str]) -> None:
    """Gives keys new values while the broker runs: only ones that are read at each use.

    Raises:
        ConfigError: a value is not allowed; nothing was changed.
    """
    values = {name: _read(KEY_BY_NAME[name], text) for name, text in settings.items()}
    for name, value in values.items():
        # Whoever shares the configuration sees the change; nobody else may make one.
        object.__setattr__(config, KEY_BY_NAME[name].field, value)


def effective_properties(config: BrokerConfig) -> dict[str, str]:
    """Returns every key with the value in force, as a properties file would say it."""
    return {key.name: _as_text(getattr(config, key.field)) for key in KEYS}


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return ""
    if isinstance(value, tuple):
        if value and all(isinstance(hour, int) for hour in value):
            return ";".join(f"{hour:02d}" for hour in value)
        return ";".join(str(part) for part in value)
    return str(value)


def _read(key: Key, text: str | None) -> object:
    """One value as its kind says; None when it is to be derived."""
    if text is None or (text == "" and key.kind is not Kind.TEXT):
        text = key.default
    if text is None:
        return None
    if key.kind is Kind.INTEGER:
        return _read_integer(key, text)
    if key.kind is Kind.BOOLEAN:
        if text.lower() not in key.choices:
            raise ConfigError(key.name, text, "true or false")
        return text.lower() == "true"
    if key.choices and text not in key.choices:
        raise ConfigError(key.name, text, " or ".join(key.choices) + f" ({key.doc})")
    return text


def _read_integer(key: Key, text: str) -> int:
    assert key.low is not None and key.high is not None
    allowed = f"a whole number from {key.low} to {key.high} {key.unit}".rstrip()
    if not re.fullmatch(r"[+-]?[0-9]{1,20}", text.strip()):
        raise ConfigError(key.name, text, allowed)
    number = int(text)
    if not key.low <= number <= key.high:
        raise ConfigError(key.name, text, allowed)
    return number


def _derive_identity(values: dict[str, Any]) -> None:
    values["broker_name"] = values["broker_name"] or socket.gethostname() or "DEFAULT_BROKER"
    for name, field in (("brokerName", "broker_name"), ("brokerClusterName", "cluster_name")):
        if not _NAME.fullmatch(values[field]):
            raise ConfigError(
                name, values[field], "1 to 127 of the characters a-z A-Z 0-9 % | _ . -"
            )
    host = values["address_host"] or _first_local_address()
    values["address_host"] = host
    if not values["bind_host"]:
        values["bind_host"] = host if host.startswith("127.") else "0.0.0.0"
    values["namesrv_addresses"] = _split_addresses("namesrvAddr", values["namesrv_addresses"])
    low, high = _REGISTER_PERIOD_MS
    values["register_period_ms"] = min(max(values["register_period_ms"], low), high)
    if values["cluster_name"] == values["broker_name"]:
        # Both are topics of their own at start; upstream lets the second one overwrite the first.
        values["is_broker_topic_open"] = values["is_cluster_topic_open"]


def _derive_store(values: dict[str, Any]) -> None:
    root = values["store_root"]
    root = values["store_root"] = Path(root).expanduser() if root else Path.home() / "store"
    folder = values["commit_log_path"]
    if "," in folder:
        raise ConfigError("storePathCommitLog", folder, "one folder: a list is not supported")
    values["commit_log_path"] = Path(folder).expanduser() if folder else root / "commitlog"
    hours: list[int] = []
    for part in values["delete_hours"].split(";"):
        if not re.fullmatch(r"\s*[0-9]{1,2}\s*", part) or int(part) > 23:
            raise ConfigError(
                "deleteWhen", values["delete_hours"], "hours from 00 to 23, joined with ;"
            )
        hours.append(int(part))
    values["delete_hours"] = tuple(hours)


def _derive_access(values: dict[str, Any], config_path: str | Path | None) -> None:
    """Upstream's place is `conf`, where the broker's own file lies."""
    folder = values["store_root"] / "config" if config_path is None else Path(config_path).parent
    named = values["acl_file"]
    values["acl_file"] = Path(named).expanduser() if named else folder / "plain_acl.yml"
    if not values["audit_file"]:
        path = values["store_root"] / "audit" / "audit.log"
        values["audit_file"] = str(path) if values["is_acl_on"] else NO_FILE


def _derive_delays(values: dict[str, Any]) -> None:
    text = values["delay_levels"]
    try:
        values["delay_levels"] = DelayLevels.parse(text)
    except ValueError as error:
        allowed = f"1 to {LEVELS_MAX} delays joined with blanks, each a number with s, m, h or d"
        raise ConfigError("messageDelayLevel", text, allowed) from error


def _derive_ledger(values: dict[str, Any]) -> None:
    text = values["ledger_member_networks"]
    networks = tuple(part.strip() for part in text.split(";") if part.strip())
    try:
        parse_networks(networks)
    except ConfigValueError as error:
        allowed = "addresses and networks as 10.0.0.0/8, joined with a semicolon"
        raise ConfigError("ledgerMemberAddresses", text, allowed) from error
    values["ledger_member_networks"] = networks
    for field in ("preferred_leader_ids", "ledger_founder_ids"):
        values[field] = tuple(part.strip() for part in values[field].split(";") if part.strip())
    values["ledger_group"] = values["ledger_group"] or values["broker_name"]
    if not values["is_group_member"]:
        values["ledger_self_id"] = "n0"
        values["ledger_peers"] = (Peer(member_id="n0", host="127.0.0.1", port=_NO_PORT),)
        values["preferred_leader_ids"] = values["ledger_founder_ids"] = ()
        return
    self_id = values["ledger_self_id"] or ""
    if not _SELF_ID.fullmatch(self_id):
        raise ConfigError("dLegerSelfId", self_id, "a letter and 1 to 4 digits, as n0")
    values["ledger_peers"] = _parse_peers(values["ledger_peers"] or "")
    if self_id not in {peer.member_id for peer in values["ledger_peers"]}:
        raise ConfigError("dLegerSelfId", self_id, "one of the ids in dLegerPeers")
    known = {peer.member_id for peer in values["ledger_peers"]}
    for preferred in values["preferred_leader_ids"]:
        if preferred not in known:
            raise ConfigError("preferredLeaderId", preferred, "ids in dLegerPeers, joined with ;")
    founders = values["ledger_founder_ids"]
    majority = len(known) // 2 + 1
    if founders and (not known.issuperset(founders) or len(set(founders)) < majority):
        allowed = f"{majority} or more ids in dLegerPeers, joined with ;"
        raise ConfigError("dLegerFounderIds", ";".join(founders), allowed)


def _derive_replication(values: dict[str, Any]) -> None:
    values["ha_host"] = values["ha_host"] or values["address_host"]
    if not values["ha_listen_port"] and values["listen_port"]:
        values["ha_listen_port"] = min(values["listen_port"] + 1, 65_535)
    address = values["ha_master_address"]
    if address and len(_split_addresses("haMasterAddress", address)) != 1:
        raise ConfigError("haMasterAddress", address, "one host:port")


def _parse_peers(text: str) -> tuple[Peer, ...]:
    try:
        addresses = parse_peers(text)
    except ConfigValueError as error:
        raise ConfigError("dLegerPeers", str(error.value), error.allowed) from error
    for member_id in addresses:
        if not _SELF_ID.fullmatch(member_id):
            raise ConfigError("dLegerPeers", member_id, "ids of a letter and 1 to 4 digits, as n0")
    return tuple(
        Peer(member_id=member_id, host=address.host, port=address.port)
        for member_id, address in addresses.items()
    )


def _split_addresses(name: str, text: str) -> tuple[str, ...]:
    addresses = tuple(part.strip() for part in text.split(";") if part.strip())
    for address in addresses:
        host, colon, port = address.rpartition(":")
        if not (colon and host and _is_port(port)):
            raise ConfigError(name, text, "host:port joined with ;")
    return addresses


def _is_port(text: str) -> bool:
    return bool(re.fullmatch(r"[0-9]{1,5}", text)) and 0 < int(text) <= 65_535


def _check_together(config: BrokerConfig) -> None:
    if config.has_vip_port and config.listen_port <= VIP_PORT_DISTANCE:
        raise ConfigError(
            "vipChannelEnable",
            "true",
            f"false with listenPort={config.listen_port}: the port {VIP_PORT_DISTANCE} below it"
            " must exist",
        )
    if config.is_slave and config.broker_id == 0:
        raise ConfigError("brokerId", "0", "1 and above with brokerRole=SLAVE, 0 is the master")
    if config.segment_bytes < config.message_bytes_max + _SEGMENT_SLACK_BYTES:
        raise ConfigError(
            "mappedFileSizeCommitLog",
            str(config.segment_bytes),
            f"at least maxMessageSize + {_SEGMENT_SLACK_BYTES}"
            f" = {config.message_bytes_max + _SEGMENT_SLACK_BYTES} bytes",
        )
    if config.queue_segment_bytes % 20:
        raise ConfigError(
            "mappedFileSizeConsumeQueue", str(config.queue_segment_bytes), "a multiple of 20 bytes"
        )
    if config.index_segment_bytes % 32:
        raise ConfigError(
            "mappedFileSizeDLedgerIndex", str(config.index_segment_bytes), "a multiple of 32 bytes"
        )
    if config.ha_silence_ms < 2 * config.ha_heartbeat_ms:
        raise ConfigError(
            "haHousekeepingInterval",
            str(config.ha_silence_ms),
            f"at least twice haSendHeartbeatInterval = {config.ha_heartbeat_ms} ms",
        )
    low, high = config.ledger_vote_wait_min_ms, config.ledger_vote_wait_max_ms
    if high and low >= high:
        raise ConfigError("minVoteIntervalMs", str(low), f"less than maxVoteIntervalMs = {high} ms")


def _first_local_address() -> str:
    """The address a packet to the outside would leave from; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


assert {key.field for key in KEYS} == {field.name for field in fields(BrokerConfig)} - {
    "unknown_keys",
    "wants_plain_log",
    "ineffective_keys",
}, "keys.KEYS and BrokerConfig must name the same fields"
