"""Settings of clients, checked when they are made.

Times are seconds unless the name says otherwise. Every default is what a stock client uses, or is
explained where it is not. The limits bound what a client holds in memory and has on the wire.
"""

import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

from ledgermq.client.errors import ConfigError
from ledgermq.client.hooks import Hooks, Metrics
from ledgermq.client.namespaces import TRACE_TOPIC
from ledgermq.protocol.framing import FRAME_BYTES_MAX
from ledgermq.protocol.signature import Credentials

# Where a group that has consumed nothing yet begins: at the first message, or behind the last.
Start: TypeAlias = Literal["first", "last"]
# How the members of a group share messages; see push_consumer.py.
Mode: TypeAlias = Literal["concurrent", "orderly", "broadcast"]

# How large bodies are compressed.
Compression: TypeAlias = Literal["zlib", "lz4", "zstd"]

MIB: Final = 1024 * 1024
# A name, or an address of IPv4 or IPv6; nothing that stands before or behind one in a URL.
_HOST: Final = re.compile(r"[^\s/@\[\]?#:]+|\[?[0-9a-fA-F:.]+(%\w+)?\]?")
# Brokers take ids of 255 characters.
_INSTANCE_NAME_CHARS_MAX: Final = 128
# Bytes of a send request beside body and properties, generously.
_FRAME_HEAD_BYTES: Final = 256 * 1024


def parse_addresses(text: str) -> tuple[str, ...]:
    """Returns the addresses of a list such as ``10.0.0.1:9876;10.0.0.2:9876``.

    Raises:
        ConfigError: the list is empty, or a part is not of the form host:port.
    """
    addresses = tuple(part.strip() for part in text.replace(",", ";").split(";") if part.strip())
    for address in addresses:
        host, _, port = address.rpartition(":")
        is_port = port.isascii() and port.isdecimal() and len(port) < 6 and 0 < int(port) < 65536
        if not _HOST.fullmatch(host) or not is_port:
            raise ConfigError(f"name server address {address!r} is not of the form host:port")
    if not addresses:
        raise ConfigError("no name server address is given; form: host:port;host:port")
    return addresses


def _check(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise ConfigError(f"{name} is {value}; allowed: {low} to {high}")


@dataclass(slots=True, frozen=True, kw_only=True)
class ClientConfig:
    """What producers and consumers have in common."""

    # How long to wait for a connection.
    connect_timeout_s: float = 3.0
    # How long to wait for the answer to an ordinary request.
    request_timeout_s: float = 5.0
    # A connection on which requests wait, and over which nothing has come for so long, is given up;
    # after half of that the other side is asked whether it lives.
    silence_max_s: float = 3.0
    # How often a client tells all brokers that it is there.
    heartbeat_interval_s: float = 30.0
    # How often all routes are asked for again; a failure asks at once.
    route_interval_s: float = 30.0
    # Stands in the id of the client (`10.0.0.7@name#`, and 16 digits that make it unique) in the
    # place of the process id; 1 to 128 characters.
    instance_name: str | None = None
    # Put in front of topics and groups on the wire (`shop%orders`), so that tenants of one cluster
    # may use the same names; programs see their own names only.
    namespace: str = ""
    # True tells a topic what becomes of each message, as stock clients with tracing on.
    trace: bool = False
    trace_topic: str = TRACE_TOPIC
    # Told of every send and delivery; see ledgermq.client.otel.
    hooks: Hooks | None = None
    # Told of how many sends and deliveries there are, and how long they take.
    metrics: Metrics | None = None
    # Signs every request, for brokers with access control.
    credentials: Credentials | None = None
    # TLS to name servers and brokers, as load_client_tls makes it; None for plain connections.
    tls: ssl.SSLContext | None = None

    def __post_init__(self) -> None:
        if "%" in self.namespace:
            raise ConfigError(f"namespace is {self.namespace!r}; it must hold no %")
        if self.instance_name is not None:
            count = len(self.instance_name)
            if not 0 < count <= _INSTANCE_NAME_CHARS_MAX:
                raise ConfigError(
                    f"instance_name has {count} characters; allowed: 1 to"
                    f" {_INSTANCE_NAME_CHARS_MAX}"
                )
        _check("connect_timeout_s", self.connect_timeout_s, 0.01, 600)
        _check("request_timeout_s", self.request_timeout_s, 0.01, 600)
        _check("silence_max_s", self.silence_max_s, 0.1, 600)
        _check("heartbeat_interval_s", self.heartbeat_interval_s, 0.05, 100)
        _check("route_interval_s", self.route_interval_s, 0.05, 3600)


@dataclass(slots=True, frozen=True, kw_only=True)
class ProducerConfig:
    """Settings of a producer."""

    client: ClientConfig = field(default_factory=ClientConfig)
    # How long a message may take with all its retries. Stock clients give up after 3 s, which is
    # less than some groups need to elect a leader.
    timeout_s: float = 15.0
    # How long one try may take before the next one.
    attempt_timeout_s: float = 3.0
    # Bodies from this size on are compressed; 0 never.
    compress_from_bytes: int = 4096
    # How: zlib, which every consumer reads; lz4 is quicker and zstd smaller, and consumers of
    # RocketMQ 5.0 and later, and of LedgerMQ, read them.
    compression: Compression = "zlib"
    # Largest body before compression.
    body_bytes_max: int = 4 * MIB
    # How long a message may wait for others of its topic (and its ordering key) to go with it as
    # one batch; 0 sends each at once by itself.
    linger_s: float = 0.0
    # Messages, and bytes of them, of such a batch at most.
    batch_count_max: int = 128
    batch_bytes_max: int = 256 * 1024
    # Messages on the wire or waiting for a retry; submit waits for room beyond that.
    in_flight_max: int = 1024
    # Their bytes. One message is always let through.
    in_flight_bytes_max: int = 32 * MIB
    # Queues of a topic that a send creates.
    default_topic_queue_nums: int = 4
    # Delays that the brokers know (their key messageDelayLevel); a higher level is refused.
    delay_level_max: int = 18
    # True returns a result also for a message that is stored, but not yet as safely as the broker
    # is set up to (FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT, SLAVE_NOT_AVAILABLE), as stock clients
    # do; False sends it again.
    accept_unsafe_store: bool = False
    # True never sends again what was written to a broker: a send that is not acknowledged fails,
    # and its program looks whether it is stored before it sends it once more.
    written_once: bool = False

    def __post_init__(self) -> None:
        _check("timeout_s", self.timeout_s, 0.01, 86_400)
        _check("attempt_timeout_s", self.attempt_timeout_s, 0.01, 600)
        if self.compression not in get_args(Compression):
            allowed = ", ".join(get_args(Compression))
            raise ConfigError(f"compression is {self.compression!r}; allowed: {allowed}")
        _check("linger_s", self.linger_s, 0, 10)
        _check("batch_count_max", self.batch_count_max, 1, 4096)
        _check("batch_bytes_max", self.batch_bytes_max, 1, self.body_bytes_max)
        _check("compress_from_bytes", self.compress_from_bytes, 0, 2**31 - 1)
        _check("body_bytes_max", self.body_bytes_max, 1, FRAME_BYTES_MAX - _FRAME_HEAD_BYTES)
        _check("in_flight_max", self.in_flight_max, 1, 65_535)
        _check("in_flight_bytes_max", self.in_flight_bytes_max, 1, 2**40)
        _check("delay_level_max", self.delay_level_max, 0, 1024)
        _check("default_topic_queue_nums", self.default_topic_queue_nums, 1, 65_535)


@dataclass(slots=True, frozen=True, kw_only=True)
class ConsumerConfig:
    """Settings of pull and push consumers; the lower part counts for push consumers only."""

    client: ClientConfig = field(default_factory=ClientConfig)
    # Messages asked for at a time.
    pull_count_max: int = 32
    # How long a broker may hold a pull that finds nothing.
    suspend_s: float = 15.0
    # Largest body after decompression.
    body_bytes_max: int = 64 * MIB
    # Per queue: messages, and bytes of them, that are pulled but not yet consumed.
    cached_messages_max: int = 1000
    cached_bytes_max: int = 100 * MIB
    # Of all queues together, with the 1,280 bytes that each message takes in memory beside its own;
    # beyond it only a queue that has nothing is asked for more, so that each brings one answer (256
    # KiB, or one message) at most above it.
    cached_bytes_total_max: int = 256 * MIB
    # Calls of the listener that run at the same time.
    concurrency: int = 20
    # How often a message is delivered again whose listener fails, before it goes to the dead
    # letters; None: 16 times, and in orderly mode without an end.
    reconsume_times_max: int | None = None
    # Orderly mode: how long a queue waits before a message is tried again.
    orderly_pause_s: float = 1.0
    # Broadcast mode: where offsets are kept, by instance_name ("default" when it is None) and
    # group. Two consumers of one group need different directories or names.
    offsets_directory: Path = Path("~/.ledgermq_offsets")
    # How often queues are shared out again, beside each time the members change.
    rebalance_interval_s: float = 20.0
    # How long on_assigned and on_revoked may take, before the queues go on without them.
    callback_timeout_s: float = 60.0
    # How often to look for topics that match a pattern.
    pattern_interval_s: float = 10.0
    # How often consumed offsets are told to the brokers.
    commit_interval_s: float = 5.0
    # How long close waits for listeners that are running.
    close_timeout_s: float = 10.0

    def __post_init__(self) -> None:
        _check("pull_count_max", self.pull_count_max, 1, 4096)
        _check("suspend_s", self.suspend_s, 0, 600)
        _check("body_bytes_max", self.body_bytes_max, 1, 2**40)
        _check("cached_messages_max", self.cached_messages_max, 1, 1_000_000)
        _check("cached_bytes_max", self.cached_bytes_max, 1, 2**40)
        _check("cached_bytes_total_max", self.cached_bytes_total_max, 1, 2**40)
        _check("pattern_interval_s", self.pattern_interval_s, 0.05, 3600)
        _check("callback_timeout_s", self.callback_timeout_s, 0.01, 3600)
        _check("concurrency", self.concurrency, 1, 10_000)
        _check("reconsume_times_max", self.reconsume_times_max or 0, 0, 2**31 - 1)
        _check("orderly_pause_s", self.orderly_pause_s, 0.01, 30)
        _check("rebalance_interval_s", self.rebalance_interval_s, 0.05, 3600)
        _check("commit_interval_s", self.commit_interval_s, 0.01, 3600)
        _check("close_timeout_s", self.close_timeout_s, 0, 3600)
