"""RouteTable: which brokers are alive, and which of them serve which topic.

Pure: time is passed in, nothing is sent, nothing is stored. A broker is known by its name (a group
of one master and its replicas) and by addresses with broker ids; id 0 is the master. Only a master
brings topics. An entry goes when its broker unregisters, when its connection closes, or when it is
silent for too long; a broker name without addresses goes with all its topics.

Source: RouteInfoManager of RocketMQ 4.9.3 (rules); a broker id is freed only for the address that
held it, so a late farewell of an old master does not remove its successor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ledgermq.namesrv.errors import LimitError, RouteNotFoundError
from ledgermq.protocol.route import (
    MASTER_ID,
    BrokerData,
    ClusterInfo,
    DataVersion,
    QueueData,
    TopicConfig,
    TopicRouteData,
)

PERM_WRITE: Final = 2
PERM_READ_WRITE: Final = 6
UNIT_FLAG: Final = 1
UNIT_SUB_FLAG: Final = 2


@dataclass(slots=True, kw_only=True)
class LiveBroker:
    """One registered address."""

    cluster_name: str
    broker_name: str
    broker_id: int
    ha_server_addr: str
    data_version: DataVersion
    # Monotonic ms of the last registration or version query.
    seen_ms: float
    # Silence after which it is dropped.
    expires_after_ms: int
    # Whose connection brought it; any value that can be compared by identity.
    owner: object


@dataclass(slots=True)
class _BrokerName:
    """A master and its replicas."""

    cluster_name: str
    # Broker id to "ip:port".
    addresses: dict[int, str] = field(default_factory=dict)


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
    expires_after_ms: int | None


@dataclass(slots=True, frozen=True)
class MasterAddress:
    """What a replica is told of its master."""

    broker_addr: str
    ha_server_addr: str


class RouteTable:
    """All routes of one name server."""

    def __init__(self, *, expires_after_ms: int, topics_max: int, brokers_max: int) -> None:
        self._expires_after_ms = expires_after_ms
        self._topics_max = topics_max
        self._brokers_max = brokers_max
        self._live: dict[str, LiveBroker] = {}
        self._names: dict[str, _BrokerName] = {}
        # Topic to broker name to its queues.
        self._topics: dict[str, dict[str, QueueData]] = {}
        self._filter_servers: dict[str, tuple[str, ...]] = {}

    def register(self, told: Registration, owner: object, now_ms: float) -> MasterAddress | None:
        """Takes a registration.

        Args:
            told: what the broker says.
            owner: the connection it came on; its end removes the entry.
            now_ms: monotonic milliseconds.

        Returns:
            For a replica with a living master the master's addresses, else None.

        Raises:
            LimitError: the broker or its topics would not fit; nothing was changed.
        """
        self._check_limits(told)
        self._move_broker_name(told)
        name = self._names.setdefault(told.broker_name, _BrokerName(told.cluster_name))
        name.cluster_name = told.cluster_name
        is_new_id = told.broker_id not in name.addresses
        for broker_id in [i for i, addr in name.addresses.items() if addr == told.broker_addr]:
            if broker_id != told.broker_id:
                del name.addresses[broker_id]
        name.addresses[told.broker_id] = told.broker_addr
        before = self._live.get(told.broker_addr)
        is_changed = before is None or before.data_version != told.data_version
        was_replica = before is not None and before.broker_id != MASTER_ID
        if told.broker_id == MASTER_ID and (is_changed or is_new_id or was_replica):
            for topic, config in told.topics.items():
                self._topics.setdefault(topic, {})[told.broker_name] = QueueData(
                    broker_name=told.broker_name,
                    read_queue_nums=config.read_queue_nums,
                    write_queue_nums=config.write_queue_nums,
                    perm=config.perm,
                    topic_sys_flag=config.topic_sys_flag,
                )
        self._live[told.broker_addr] = LiveBroker(
            cluster_name=told.cluster_name,
            broker_name=told.broker_name,
            broker_id=told.broker_id,
            ha_server_addr=told.ha_server_addr,
            data_version=told.data_version,
            seen_ms=now_ms,
            expires_after_ms=told.expires_after_ms or self._expires_after_ms,
            owner=owner,
        )
        self._restore_master(told.broker_name, name)
        if told.filter_servers:
            self._filter_servers[told.broker_addr] = told.filter_servers
        else:
            self._filter_servers.pop(told.broker_addr, None)
        return self._master_of(told)

    def _check_limits(self, told: Registration) -> None:
        if told.broker_addr not in self._live and len(self._live) >= self._brokers_max:
            raise LimitError("brokersMax", len(self._live) + 1, self._brokers_max)
        count = len(self._topics) + sum(1 for topic in told.topics if topic not in self._topics)
        if count > self._topics_max:
            raise LimitError("topicsMax", count, self._topics_max)

    def _move_broker_name(self, told: Registration) -> None:
        """An address that comes back under another broker name leaves the old one."""
        before = self._live.get(told.broker_addr)
        if before is not None and before.broker_name != told.broker_name:
            self.unregister(told.broker_addr, before.broker_name, before.broker_id)

    def _master_of(self, told: Registration) -> MasterAddress | None:
        if told.broker_id == MASTER_ID:
            return None
        address = self._names[told.broker_name].addresses.get(MASTER_ID)
        master = self._live.get(address) if address is not None else None
        if address is None or master is None:
            return None
        return MasterAddress(address, master.ha_server_addr)

    def unregister(self, broker_addr: str, broker_name: str, broker_id: int) -> None:
        """Removes one address; an id that another address holds by now stays."""
        self._live.pop(broker_addr, None)
        self._filter_servers.pop(broker_addr, None)
        name = self._names.get(broker_name)
        if name is None:
            return
        if name.addresses.get(broker_id) == broker_addr:
            del name.addresses[broker_id]
        self._restore_master(broker_name, name)
        if not name.addresses:
            del self._names[broker_name]
            self._drop_broker_name(broker_name)

    def _restore_master(self, broker_name: str, name: _BrokerName) -> None:
        """Gives id 0, when nobody holds it, back to who said last that it is the master.

        1. A leader is cut off or held up. 2. Another one takes id 0. 3. The first one is back, and
        what it had said before takes id 0 from its successor. 4. It says that it is a replica now.
        Without this nobody would be the master until the successor registers again.
        """
        if MASTER_ID in name.addresses:
            return
        claims = [
            (live.seen_ms, address)
            for address, live in self._live.items()
            if live.broker_name == broker_name and live.broker_id == MASTER_ID
        ]
        if claims:
            name.addresses[MASTER_ID] = max(claims)[1]

    def _drop_broker_name(self, broker_name: str) -> None:
        for topic in [t for t, queues in self._topics.items() if broker_name in queues]:
            del self._topics[topic][broker_name]
            if not self._topics[topic]:
                del self._topics[topic]

    def owner_lost(self, owner: object) -> list[str]:
        """Removes all that came on a connection; returns the addresses removed."""
        return self._remove_where(lambda live: live.owner is owner)

    def expire(self, now_ms: float) -> list[tuple[str, object]]:
        """Removes the silent; returns (address, owner) of each."""
        silent = {
            address: live.owner
            for address, live in self._live.items()
            if now_ms - live.seen_ms > live.expires_after_ms
        }
        self._remove_where(lambda live: now_ms - live.seen_ms > live.expires_after_ms)
        return list(silent.items())

    def _remove_where(self, matches: Callable[[LiveBroker], bool]) -> list[str]:
        gone = [(address, live) for address, live in self._live.items() if matches(live)]
        for address, live in gone:
            self.unregister(address, live.broker_name, live.broker_id)
        return [address for address, _ in gone]

    def refresh(self, broker_addr: str, version: DataVersion, now_ms: float) -> DataVersion | None:
        """QUERY_DATA_VERSION: an equal version counts as a sign of life.

        Returns:
            The version known for this address; None when it is not registered.
        """
        live = self._live.get(broker_addr)
        if live is None:
            return None
        if live.data_version == version:
            live.seen_ms = now_ms
        return live.data_version

    def route(self, topic: str, order_config: str | None = None) -> TopicRouteData:
        """The brokers and queues of a topic.

        Raises:
            RouteNotFoundError: no live broker has it.
        """
        queues = self._topics.get(topic)
        if not queues:
            raise RouteNotFoundError(topic)
        brokers = []
        filter_servers = {}
        for broker_name in sorted(queues):
            name = self._names.get(broker_name)
            if name is None:
                continue
            brokers.append(self._broker_data(broker_name, name))
            for address in name.addresses.values():
                if address in self._filter_servers:
                    filter_servers[address] = list(self._filter_servers[address])
        if not brokers:
            raise RouteNotFoundError(topic)
        return TopicRouteData(
            order_topic_conf=order_config,
            queue_datas=[queues[broker_name] for broker_name in sorted(queues)],
            broker_datas=brokers,
            filter_server_table=filter_servers,
        )

    @staticmethod
    def _broker_data(broker_name: str, name: _BrokerName) -> BrokerData:
        return BrokerData(
            cluster=name.cluster_name,
            broker_name=broker_name,
            broker_addrs=dict(sorted(name.addresses.items())),
        )

    def clusters(self) -> ClusterInfo:
        """All clusters with their brokers."""
        clusters: dict[str, list[str]] = {}
        for broker_name, name in sorted(self._names.items()):
            clusters.setdefault(name.cluster_name, []).append(broker_name)
        return ClusterInfo(
            broker_addr_table={
                broker_name: self._broker_data(broker_name, name)
                for broker_name, name in sorted(self._names.items())
            },
            cluster_addr_table=clusters,
        )

    def topics(self) -> list[str]:
        """All topics, sorted."""
        return sorted(self._topics)

    def topics_of_cluster(self, cluster_name: str) -> list[str]:
        """Topics with a queue on a broker of the cluster, sorted; empty for an unknown cluster."""
        members = {n for n, name in self._names.items() if name.cluster_name == cluster_name}
        return sorted(topic for topic, queues in self._topics.items() if members & queues.keys())

    def unit_topics(self, *, unit: bool | None, unit_sub: bool | None) -> list[str]:
        """Topics whose unit flags are as asked (None: either), sorted."""
        found = []
        for topic, queues in sorted(self._topics.items()):
            flags = next(iter(queues.values())).topic_sys_flag
            is_unit, is_sub = bool(flags & UNIT_FLAG), bool(flags & UNIT_SUB_FLAG)
            if unit in (None, is_unit) and unit_sub in (None, is_sub):
                found.append(topic)
        return found

    def system_topics(self) -> tuple[list[str], str | None]:
        """Cluster names and broker names, which are topics too, and one master's address."""
        clusters = sorted({name.cluster_name for name in self._names.values()})
        masters = [n.addresses[MASTER_ID] for n in self._names.values() if MASTER_ID in n.addresses]
        return clusters + sorted(self._names), min(masters, default=None)

    def delete_topic(self, topic: str, cluster_name: str | None = None) -> None:
        """Forgets a topic on all brokers, or on those of one cluster."""
        queues = self._topics.get(topic, {})
        for broker_name in list(queues):
            name = self._names.get(broker_name)
            if cluster_name in (None, "") or (name and name.cluster_name == cluster_name):
                del queues[broker_name]
        if not queues:
            self._topics.pop(topic, None)

    def set_write_perm(self, broker_name: str, *, writable: bool) -> int:
        """Takes or gives the write permission of all topics of a broker name; returns how many."""
        count = 0
        for queues in self._topics.values():
            data = queues.get(broker_name)
            if data is not None:
                perm = PERM_READ_WRITE if writable else data.perm & ~PERM_WRITE
                queues[broker_name] = QueueData(
                    broker_name=broker_name,
                    read_queue_nums=data.read_queue_nums,
                    write_queue_nums=data.write_queue_nums,
                    perm=perm,
                    topic_sys_flag=data.topic_sys_flag,
                )
                count += 1
        return count
