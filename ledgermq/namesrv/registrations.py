"""What brokers say of themselves, who says it, and how much of it is kept; values only."""

from collections.abc import Mapping
from dataclasses import dataclass

from ledgermq.protocol.route import DataVersion, TopicConfig

# The account that registered a broker (None where nobody has one), and the broker's address.
BrokerKey = tuple[str | None, str]


@dataclass(slots=True, frozen=True, kw_only=True)
class RouteLimits:
    """How much a route table keeps; the first three count over all, the others by registrant."""

    topics_max: int
    # Addresses.
    brokers_max: int
    # Topics of each broker name, added up: what takes memory.
    topic_entries_max: int = 1_000_000
    topics_per_registrant_max: int = 100_000
    brokers_per_registrant_max: int = 1000
    clusters_per_registrant_max: int = 100


@dataclass(slots=True, frozen=True, kw_only=True)
class Registrant:
    """Who registers."""

    # For quotas and for people: "account shop" or "address 10.0.0.1".
    key: str
    # Name of its account, empty for those of white addresses; None where nobody has one.
    account: str | None = None
    # True when no quota counts but those over all.
    is_free: bool = False


@dataclass(slots=True, frozen=True, kw_only=True)
class Registration:
    """What a broker says of itself."""

    cluster_name: str
    broker_name: str
    broker_id: int
    broker_addr: str
    ha_server_addr: str
    data_version: DataVersion
    topics: Mapping[str, TopicConfig]
    filter_servers: tuple[str, ...]
    # Silence after which it is dropped, 0 or None for the table's own.
    expires_after_ms: int | None
    # In which term of its ledger it leads; None for brokers that do not tell.
    ledger_term: int | None = None


@dataclass(slots=True, kw_only=True)
class LiveBroker:
    """An address that one account registered."""

    cluster_name: str
    broker_name: str
    broker_addr: str
    broker_id: int
    ha_server_addr: str
    # None while its topics are taken over.
    data_version: DataVersion | None
    ledger_term: int | None
    registrant: Registrant
    # Monotonic ms of the last registration or version query.
    seen_ms: float
    # Silence after which it is dropped.
    expires_after_ms: int
    # Whose connection brought it; any value that can be a key.
    owner: object

    @property
    def key(self) -> BrokerKey:
        """Its place in the table."""
        return self.registrant.account, self.broker_addr


@dataclass(slots=True, frozen=True)
class MasterAddress:
    """What a replica is told of its master."""

    broker_addr: str
    ha_server_addr: str
