"""NamesrvConfig: the name server's settings, read once from upstream's properties format.

`KEYS` lists every key with its default, range and meaning. A wrong value refuses to start; unknown
keys are kept in `unknown_keys`, so that the service reports them once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

from ledgermq.namesrv.errors import ConfigError, SettingsRefusedError
from ledgermq.namesrv.registrations import RouteLimits
from ledgermq.protocol.properties_file import parse_properties_file
from ledgermq.protocol.signature_check import ANY, STRONG
from ledgermq.protocol.tls.contexts import SERVER_MODES


class Key(NamedTuple):
    """One configuration key.

    Attributes:
        default: text used when the key is absent.
        low: smallest allowed number; None for text.
        high: largest allowed number; None for text.
        doc: what the key does, one sentence.
    """

    default: str
    low: int | None
    high: int | None
    doc: str


KEYS: Final = {
    "listenPort": Key("9876", 0, 65_535, "TCP port; 0 lets the system choose"),
    "bindAddress": Key("0.0.0.0", None, None, "address to listen on"),
    "kvConfigPath": Key("~/namesrv/kvConfig.json", None, None, "file of the key-value table"),
    "orderMessageEnable": Key("false", None, None, "give order configuration with routes"),
    "returnOrderTopicConfigToBroker": Key(
        "true", None, None, "answer registrations with the order configuration"
    ),
    "scanNotActiveBrokerInterval": Key(
        "10000", 100, 3_600_000, "ms between two looks for silent brokers"
    ),
    "brokerExpiredTimeout": Key(
        "120000", 1_000, 3_600_000, "ms of silence after which a broker is dropped"
    ),
    "serverChannelMaxIdleTimeSeconds": Key(
        "120", 1, 86_400, "seconds without traffic after which a connection is closed"
    ),
    "serverConnectionsMax": Key("10000", 1, 1_000_000, "open connections at the most"),
    "serverConnectionsPerAddressMax": Key(
        "1000", 1, 1_000_000, "open connections of one address at the most"
    ),
    "receiveBudgetBytes": Key(
        str(256 << 20),
        1 << 20,
        1 << 40,
        "bytes of requests that came in and are not worked on, of all connections together",
    ),
    "topicsMax": Key("200000", 1, 10_000_000, "topics in the route table at the most"),
    "topicEntriesMax": Key(
        "1000000", 1, 100_000_000, "topics of each broker name, added up, at the most"
    ),
    "topicsPerRegistrantMax": Key(
        "100000", 1, 100_000_000, "topics of the broker names of one account, or of one address"
    ),
    "brokersMax": Key("10000", 1, 1_000_000, "brokers in the route table at the most"),
    "brokersPerRegistrantMax": Key(
        "1000", 1, 1_000_000, "brokers of one account, or of one address, at the most"
    ),
    "clustersPerRegistrantMax": Key(
        "100", 1, 1_000_000, "cluster names of one account, or of one address, at the most"
    ),
    "registrationBytesMax": Key(
        str(12 * 1024 * 1024), 65_536, 16 * 1024 * 1024, "bytes of the body of a registration"
    ),
    "aclEnable": Key(
        "false", None, None, "registrations and all that changes something need an account"
    ),
    "aclFile": Key("~/namesrv/plain_acl.yml", None, None, "accounts, in a file of mode 0600"),
    "routeNeedsAccount": Key(
        "false", None, None, "with aclEnable, reading routes and lists needs an account, too"
    ),
    "aclSignature": Key(
        "any", None, None, "forms of signatures: any, or strong, which nobody can repeat"
    ),
    "aclSignedAddresses": Key(
        "", None, None, "host:port;... by which it is reached: strong signatures name one of them"
    ),
    "auditLogFile": Key(
        "", None, None, "where changes and refusals are noted, or none; beside kvConfigPath"
    ),
    "auditLogFileBytes": Key("16777216", 65_536, 2**31 - 1, "size of one file of the audit log"),
    "auditLogFiles": Key("10", 1, 1000, "files of the audit log that are kept"),
    "logFormat": Key("text", None, None, "lines of the log: text, or json for programs"),
    "tls.config.file": Key("", None, None, "certificates, as upstream's tls.properties names them"),
    "tls.server.mode": Key(
        "", None, None, "TLS: disabled, permissive (the default with a tls.config.file), enforcing"
    ),
}

# Upstream's keys that describe threads and folders which do not exist here.
WITHOUT_EFFECT: Final = frozenset(
    {
        "rocketmqHome", "configStorePath", "productEnvName", "clusterTest", "serverWorkerThreads",
        "serverCallbackExecutorThreads", "serverSelectorThreads", "serverOnewaySemaphoreValue",
        "serverAsyncSemaphoreValue", "serverSocketSndBufSize", "serverSocketRcvBufSize",
        "serverSocketBacklog", "serverPooledByteBufAllocatorEnable", "useEpollNativeSelector",
        "writeBufferHighWaterMark", "writeBufferLowWaterMark", "configBlackList",
        "clientRequestThreadPoolNums", "defaultThreadPoolNums", "needWaitForService",
        "clientRequestThreadPoolQueueCapacity", "defaultThreadPoolQueueCapacity",
    }
)  # fmt: skip


# What a tool may change while the name server runs: read each time they are used, and harmless.
# Without accounts anybody may, so paths, ports, times and limits are none of them.
CHANGEABLE_KEYS: Final = ("orderMessageEnable", "returnOrderTopicConfigToBroker")


@dataclass(slots=True, frozen=True, kw_only=True)
class NamesrvConfig:
    """All settings of one name server; KEYS explains each."""

    listen_port: int
    bind_address: str
    kv_config_path: Path
    order_message_enable: bool
    return_order_topic_config_to_broker: bool
    scan_interval_ms: int
    broker_expired_ms: int
    idle_timeout_s: int
    connections_max: int
    connections_per_host_max: int
    receive_budget_bytes: int
    limits: RouteLimits
    registration_bytes_max: int
    is_acl_on: bool
    acl_file: Path
    route_needs_account: bool
    signature_wanted: str
    # Each "host:port"; empty: nobody looks for whom a strong signature is.
    signed_addresses: tuple[str, ...]
    # None: nothing is noted.
    audit_file: Path | None
    audit_file_bytes: int
    audit_files: int
    log_form: str
    tls_file: str
    tls_mode: str
    # Effective values by upstream's key, for GET_NAMESRV_CONFIG and `-p`.
    texts: dict[str, str]
    # Keys nobody knows, sorted.
    unknown_keys: tuple[str, ...]


def load_namesrv_config(
    path: Path | None,
    overrides: Mapping[str, str],
    environment: Mapping[str, str] | None = None,
) -> NamesrvConfig:
    """Reads a properties file, puts it over what the environment sets, and the overrides over both.

    Raises:
        ConfigError: a value is outside its range.
        OSError: the file cannot be read.
        ValueError: the file is no properties text.
    """
    given = {} if path is None else parse_properties_file(path.read_bytes())
    return _read({**(environment or {}), **given, **overrides})


def with_settings(config: NamesrvConfig, settings: Mapping[str, str]) -> NamesrvConfig:
    """Returns a configuration with other values for some keys.

    Raises:
        SettingsRefusedError: a key is none of CHANGEABLE_KEYS.
        ConfigError: a value is outside its range.
    """
    refused = sorted(set(settings) - set(CHANGEABLE_KEYS))
    if refused:
        raise SettingsRefusedError(refused, CHANGEABLE_KEYS)
    return replace(_read({**config.texts, **settings}), unknown_keys=config.unknown_keys)


def _read(given: Mapping[str, str]) -> NamesrvConfig:
    texts = {name: given.get(name, key.default) for name, key in KEYS.items()}
    return NamesrvConfig(
        listen_port=_number(texts, "listenPort"),
        bind_address=texts["bindAddress"],
        kv_config_path=Path(texts["kvConfigPath"]).expanduser(),
        order_message_enable=_boolean(texts, "orderMessageEnable"),
        return_order_topic_config_to_broker=_boolean(texts, "returnOrderTopicConfigToBroker"),
        scan_interval_ms=_number(texts, "scanNotActiveBrokerInterval"),
        broker_expired_ms=_number(texts, "brokerExpiredTimeout"),
        idle_timeout_s=_number(texts, "serverChannelMaxIdleTimeSeconds"),
        connections_max=_number(texts, "serverConnectionsMax"),
        connections_per_host_max=_number(texts, "serverConnectionsPerAddressMax"),
        receive_budget_bytes=_number(texts, "receiveBudgetBytes"),
        limits=RouteLimits(
            topics_max=_number(texts, "topicsMax"),
            topic_entries_max=_number(texts, "topicEntriesMax"),
            topics_per_registrant_max=_number(texts, "topicsPerRegistrantMax"),
            brokers_max=_number(texts, "brokersMax"),
            brokers_per_registrant_max=_number(texts, "brokersPerRegistrantMax"),
            clusters_per_registrant_max=_number(texts, "clustersPerRegistrantMax"),
        ),
        registration_bytes_max=_number(texts, "registrationBytesMax"),
        is_acl_on=_boolean(texts, "aclEnable"),
        acl_file=Path(texts["aclFile"]).expanduser(),
        route_needs_account=_route_needs_account(texts),
        signature_wanted=_one_of(texts, "aclSignature", (ANY, STRONG)),
        signed_addresses=_addresses(texts),
        audit_file=_audit_file(texts),
        audit_file_bytes=_number(texts, "auditLogFileBytes"),
        audit_files=_number(texts, "auditLogFiles"),
        log_form=_one_of(texts, "logFormat", ("text", "json")),
        tls_file=texts["tls.config.file"],
        tls_mode=_one_of(texts, "tls.server.mode", SERVER_MODES),
        texts=texts,
        unknown_keys=tuple(sorted(set(given) - set(KEYS) - WITHOUT_EFFECT)),
    )


def _audit_file(texts: Mapping[str, str]) -> Path | None:
    """With accounts there is one unless it is refused."""
    named = texts["auditLogFile"]
    if named:
        return None if named == "none" else Path(named).expanduser()
    if not _boolean(texts, "aclEnable"):
        return None
    return Path(texts["kvConfigPath"]).expanduser().parent / "audit" / "audit.log"


def _route_needs_account(texts: Mapping[str, str]) -> bool:
    """Without accounts it would have everybody refused, or nobody."""
    needs = _boolean(texts, "routeNeedsAccount")
    if needs and not _boolean(texts, "aclEnable"):
        raise ConfigError("routeNeedsAccount", "true", "with aclEnable=true and its aclFile")
    return needs


def _addresses(texts: Mapping[str, str]) -> tuple[str, ...]:
    name = "aclSignedAddresses"
    found = tuple(part.strip() for part in texts[name].split(";") if part.strip())
    for address in found:
        host, _, port = address.rpartition(":")
        if not (host and port.isascii() and port.isdigit()):
            raise ConfigError(name, texts[name], "host:port joined with ;")
    return found


def _number(texts: Mapping[str, str], name: str) -> int:
    key, text = KEYS[name], texts[name].strip()
    low, high = key.low or 0, key.high or 0
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
        raise ConfigError(name, text, f"a whole number from {low} to {high}")
    if not low <= int(text) <= high:
        raise ConfigError(name, text, f"{low} to {high}")
    return int(text)


def _one_of(texts: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    if texts[name] not in choices:
        raise ConfigError(name, texts[name], " or ".join(filter(None, choices)))
    return texts[name]


def _boolean(texts: Mapping[str, str], name: str) -> bool:
    text = texts[name].strip().lower()
    if text not in ("true", "false"):
        raise ConfigError(name, texts[name], "true or false")
    return text == "true"
