"""RouteTable: which brokers are alive, and which of them serve which topic.

Pure: time is passed in, nothing is sent, nothing is stored. A broker is known by its name (a group
of one master and its replicas) and by addresses with broker ids; id 0 is the master. Only a master
brings topics. An entry goes when its broker unregisters, when its connection closes, or when it is
silent for too long; a broker name without addresses goes with all its topics.

Who holds what:
- Where brokers have accounts, a broker name stays with the account that registered it until all
  that it has there is gone, and when its connections closed until it would have been silent for too
  long. An address is nobody's, since nothing proves whose it is: each account
  has its own entry for it, under names of its own, and takes it from no other. Among brokers of one
  account, one that leads in a later term of its ledger takes the id of the master; one of an
  earlier or equal term does not.
- Otherwise the last word counts, as upstream: a registration proves nothing. But only the
  connection that registered an address takes it out again.

Source: RouteInfoManager of RocketMQ 4.9.3 (rules); a broker id is freed only for the address that
held it, so a late farewell of an old master does not remove its successor.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from typing import Final

from ledgermq.namesrv.errors import HeldError, LimitError, RouteNotFoundError
from ledgermq.namesrv.kept_names import KeptNames
from ledgermq.namesrv.registrations import (
    BrokerKey,
    LiveBroker,
    MasterAddress,
    Registrant,
    Registration,
    RouteLimits,
)
from ledgermq.namesrv.topic_queues import TopicQueues
from ledgermq.protocol.route import (
    MASTER_ID,
    BrokerData,
    ClusterInfo,
    DataVersion,
    TopicRouteData,
)

# Brokers of one route that are told with their filter servers.
_WITH_SERVERS_MAX: Final = 100


@dataclass(slots=True)
class _BrokerName:
    """A master and its replicas."""

    cluster_name: str
    # Of all that is registered under it.
    account: str | None
    # Broker id to "ip:port".
    addresses: dict[int, str] = field(default_factory=dict)
    # All live addresses of this name, also those whose id another one took.
    live: set[str] = field(default_factory=set)


class RouteTable:
    """All routes of one name server.

    Invariants: each address in a name's `addresses` is in its `live` and has the id that its broker
    said last; a name's `live`, what an
    owner brought, and what a registrant has, are exactly the live brokers of that name, owner or
    registrant; none of these sets is empty.
    """

    def __init__(
        self, *, expires_after_ms: int, limits: RouteLimits, on_leaving: Callable[[], None]
    ) -> None:
        """Begins empty.

        Args:
            expires_after_ms: silence after which a broker is dropped that says nothing else.
            limits: how much is kept.
            on_leaving: told when there is something for `forget_some`, to be called soon.
        """
        self._on_leaving = on_leaving
        self._expires_after_ms = expires_after_ms
        self._limits = limits
        self._live: dict[BrokerKey, LiveBroker] = {}
        self._names: dict[str, _BrokerName] = {}
        self._kept_names = KeptNames(limits)
        self._topics = TopicQueues(limits)
        self._filter_servers: dict[BrokerKey, tuple[str, ...]] = {}
        # By owner, and by the key of a registrant.
        self._of_owner: dict[object, set[BrokerKey]] = {}
        self._of_registrant: dict[str, set[BrokerKey]] = {}
        # Counts up when lists of clusters, brokers or topics change; what is made of them is good
        # as long as it stays.
        self.version = 0

    def register(
        self, told: Registration, registrant: Registrant, owner: object, now_ms: float
    ) -> MasterAddress | None:
        """Takes a registration in one piece; as `registering`."""
        steps = self.registering(told, registrant, owner, now_ms)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                master: MasterAddress | None = end.value
                return master

    def registering(
        self, told: Registration, registrant: Registrant, owner: object, now_ms: float
    ) -> Generator[None, None, MasterAddress | None]:
        """Takes a registration, piece by piece: the broker first, then its topics.

        Args:
            told: what the broker says.
            registrant: who says it.
            owner: the connection it came on; its end removes the entry.
            now_ms: monotonic milliseconds.

        Returns:
            For a replica with a living master the master's addresses, else None.

        Raises:
            HeldError: somebody else holds the name, or the master's id.
            LimitError: the broker or its topics would not fit.
            Nothing was changed then.
        """
        takes_topics = self._takes_topics(told, registrant)
        self._check(told, registrant, now_ms)
        if takes_topics:
            yield from self._topics.checking(told.broker_name, registrant, told.topics)
            # Somebody else may have come meanwhile.
            self._check(told, registrant, now_ms)
        live = self._put_broker(told, registrant, owner, now_ms, takes_topics=takes_topics)
        master = self._master_of(told)
        if takes_topics:
            for _ in self._topics.putting(told.broker_name, registrant, told.topics):
                yield
                if not self._is_master(told, live):
                    break
            else:
                live.data_version = told.data_version
            # Lists that were made meanwhile lack some.
            self.version += 1
        return master

    def _is_master(self, told: Registration, live: LiveBroker) -> bool:
        """False when it left, said something else, or another one is the master by now."""
        if self._live.get(live.key) is not live:
            return False
        return self._names[told.broker_name].addresses.get(MASTER_ID) == told.broker_addr

    def _check(self, told: Registration, registrant: Registrant, now_ms: float) -> None:
        before = self._live.get((registrant.account, told.broker_addr))
        if registrant.account is not None:
            self._check_holder(told, registrant, now_ms)
        self._check_brokers(told, registrant, before)

    def _put_broker(
        self,
        told: Registration,
        registrant: Registrant,
        owner: object,
        now_ms: float,
        *,
        takes_topics: bool,
    ) -> LiveBroker:
        key = registrant.account, told.broker_addr
        before = self._live.get(key)
        former_servers = self._filter_servers.get(key, ())
        if before is not None:
            if before.broker_name == told.broker_name:
                self._drop_live(key)
            else:
                # An address that comes back under another broker name leaves the old one.
                self._remove(key)
        name = self._names.setdefault(
            told.broker_name, _BrokerName(told.cluster_name, registrant.account)
        )
        former = name.cluster_name, name.addresses.get(told.broker_id)
        name.cluster_name = told.cluster_name
        if before is not None and before.broker_name == told.broker_name:
            self._free_id(name, before)
        name.addresses[told.broker_id] = told.broker_addr
        is_known = before is not None and (before.broker_name, before.broker_id) == (
            told.broker_name,
            told.broker_id,
        )
        if not is_known or former != (told.cluster_name, told.broker_addr) or takes_topics:
            self.version += 1
        # No version until all of its topics are there: if they stay out, it brings them again.
        version = None if takes_topics else told.data_version
        live = self._put_live(told, registrant, owner, now_ms, version)
        self._restore_master(name)
        if told.filter_servers:
            self._filter_servers[key] = told.filter_servers
        if told.filter_servers != former_servers:
            self.version += 1
        return live

    def _takes_topics(self, told: Registration, registrant: Registrant) -> bool:
        """Upstream takes the topics of a master that is new, or has another version."""
        if told.broker_id != MASTER_ID:
            return False
        before = self._live.get((registrant.account, told.broker_addr))
        name = self._names.get(told.broker_name)
        return (
            before is None
            or before.broker_name != told.broker_name
            or before.data_version != told.data_version
            or before.broker_id != MASTER_ID
            or name is None
            or MASTER_ID not in name.addresses
        )

    def _check_holder(self, told: Registration, registrant: Registrant, now_ms: float) -> None:
        name = self._names.get(told.broker_name)
        if name is not None:
            holder: Registrant | None = self._live[name.account, next(iter(name.live))].registrant
        else:
            holder = self._kept_names.find_holder(told.broker_name, now_ms)
        if holder is not None and holder.account != registrant.account:
            raise HeldError(f"broker name {told.broker_name}", f"{holder.key} registered it")
        if name is None or told.broker_id != MASTER_ID or told.ledger_term is None:
            return
        address = name.addresses.get(MASTER_ID, told.broker_addr)
        is_other = address != told.broker_addr
        held = self._live[name.account, address].ledger_term if is_other else None
        if held is not None and told.ledger_term <= held:
            raise HeldError(
                f"broker id {MASTER_ID} of {told.broker_name}",
                f"{address} leads term {held}, {told.broker_addr} says {told.ledger_term}",
            )

    def _check_brokers(
        self, told: Registration, registrant: Registrant, before: LiveBroker | None
    ) -> None:
        limits = self._limits
        if before is None and len(self._live) >= limits.brokers_max:
            raise LimitError("brokersMax", len(self._live) + 1, limits.brokers_max)
        if registrant.is_free:
            return
        own = {(registrant.account, told.broker_addr)}
        others = self._of_registrant.get(registrant.key, set()) - own
        if len(others) >= limits.brokers_per_registrant_max:
            limit = limits.brokers_per_registrant_max
            raise LimitError("brokersPerRegistrantMax", len(others) + 1, limit, registrant.key)
        if before is not None and before.cluster_name == told.cluster_name:
            return
        clusters = {self._live[key].cluster_name for key in others} | {told.cluster_name}
        if len(clusters) > limits.clusters_per_registrant_max:
            limit = limits.clusters_per_registrant_max
            raise LimitError("clustersPerRegistrantMax", len(clusters), limit, registrant.key)

    def _put_live(
        self,
        told: Registration,
        registrant: Registrant,
        owner: object,
        now_ms: float,
        version: DataVersion | None,
    ) -> LiveBroker:
        live = LiveBroker(
            cluster_name=told.cluster_name,
            broker_name=told.broker_name,
            broker_addr=told.broker_addr,
            broker_id=told.broker_id,
            ha_server_addr=told.ha_server_addr,
            data_version=version,
            ledger_term=told.ledger_term,
            registrant=registrant,
            seen_ms=now_ms,
            expires_after_ms=told.expires_after_ms or self._expires_after_ms,
            owner=owner,
        )
        self._kept_names.taken(told.broker_name)
        self._live[live.key] = live
        self._names[told.broker_name].live.add(told.broker_addr)
        self._of_owner.setdefault(owner, set()).add(live.key)
        self._of_registrant.setdefault(registrant.key, set()).add(live.key)
        return live

    def _drop_live(self, key: BrokerKey) -> LiveBroker:
        """Forgets a broker; what it has in the table of names is the caller's business."""
        live = self._live.pop(key)
        self._filter_servers.pop(key, None)
        self._names[live.broker_name].live.discard(live.broker_addr)
        owned = self._of_owner[live.owner]
        owned.remove(key)
        if not owned:
            del self._of_owner[live.owner]
        own = self._of_registrant[live.registrant.key]
        own.remove(key)
        if not own:
            del self._of_registrant[live.registrant.key]
        return live

    def _master_of(self, told: Registration) -> MasterAddress | None:
        if told.broker_id == MASTER_ID:
            return None
        name = self._names[told.broker_name]
        address = name.addresses.get(MASTER_ID)
        if address is None:
            return None
        return MasterAddress(address, self._live[name.account, address].ha_server_addr)

    def unregister(
        self, broker_addr: str, broker_name: str, registrant: Registrant, owner: object
    ) -> None:
        """Removes one address; an id that another address holds by now stays.

        An address that is not registered under this name changes nothing.

        Raises:
            HeldError: another account, or without accounts another connection, registered it.
        """
        name = self._names.get(broker_name)
        if name is None:
            self._kept_names.left(broker_name, registrant.account)
        if name is None or broker_addr not in name.live:
            return
        live = self._live[name.account, broker_addr]
        if registrant.account is None:
            if live.owner != owner:
                raise HeldError(broker_addr, "it was registered on another connection")
        elif name.account != registrant.account:
            raise HeldError(broker_addr, f"{live.registrant.key} registered it")
        self._remove(live.key)

    def _remove(self, key: BrokerKey) -> None:
        self._settle(self._take_out(key))

    def _take_out(self, key: BrokerKey) -> str:
        """Forgets a broker; returns the broker name that has to be settled behind it."""
        self.version += 1
        live = self._drop_live(key)
        name = self._names[live.broker_name]
        self._free_id(name, live)
        return live.broker_name

    @staticmethod
    def _free_id(name: _BrokerName, live: LiveBroker) -> None:
        """Takes a broker's id from it, unless another address has it by now."""
        if name.addresses.get(live.broker_id) == live.broker_addr:
            del name.addresses[live.broker_id]

    def _settle(self, broker_name: str) -> None:
        name = self._names[broker_name]
        self._restore_master(name)
        if not name.live:
            del self._names[broker_name]
            if self._topics.drop_broker(broker_name):
                self._on_leaving()

    def _restore_master(self, name: _BrokerName) -> None:
        """Gives id 0, when nobody holds it, back to who said last that it is the master.

        1. A leader is cut off or held up. 2. Another one takes id 0. 3. The first one is back, and
        what it had said before takes id 0 from its successor. 4. It says that it is a replica now.
        Without this nobody would be the master until the successor registers again.
        """
        if MASTER_ID in name.addresses:
            return
        claims = [
            (live.ledger_term, live.seen_ms, address)
            for address in name.live
            if (live := self._live[name.account, address]).broker_id == MASTER_ID
        ]
        # Terms count where all of them have one.
        has_terms = all(term is not None for term, _, _ in claims)
        if claims:
            name.addresses[MASTER_ID] = max(
                (term if has_terms and term is not None else 0, seen_ms, address)
                for term, seen_ms, address in claims
            )[2]

    def owner_lost(self, owner: object) -> list[str]:
        """Removes all that came on a connection; returns the addresses removed."""
        gone = [self._live[key] for key in self._of_owner.get(owner, ())]
        addresses = self._remove_all([live.key for live in gone])
        # Of each name that which was seen last.
        gone.sort(key=lambda live: live.seen_ms)
        for name, live in {live.broker_name: live for live in gone}.items():
            if name not in self._names:
                self._kept_names.keep(live)
        return addresses

    def expire(self, now_ms: float) -> list[tuple[str, object]]:
        """Removes the silent; returns (address, owner) of each."""
        silent = {
            key: live.owner
            for key, live in self._live.items()
            if now_ms - live.seen_ms > live.expires_after_ms
        }
        self._remove_all(silent)
        self._kept_names.expire(now_ms)
        return [(address, owner) for (_, address), owner in silent.items()]

    def _remove_all(self, keys: Iterable[BrokerKey]) -> list[str]:
        gone = list(keys)
        # A thousand of one name are looked through for its master once.
        for broker_name in dict.fromkeys([self._take_out(key) for key in gone]):
            self._settle(broker_name)
        return sorted(address for _, address in gone)

    def refresh(
        self, broker_addr: str, version: DataVersion, registrant: Registrant, now_ms: float
    ) -> DataVersion | None:
        """QUERY_DATA_VERSION: an equal version counts as a sign of life.

        Returns:
            The version known for this address; None when it is not registered by this account.
        """
        live = self._live.get((registrant.account, broker_addr))
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
        queues = self._topics.of(topic)
        if not queues:
            raise RouteNotFoundError(topic)
        brokers, shown = [], []
        filter_servers: dict[str, list[str]] = {}
        for broker_name in sorted(queues):
            name = self._names.get(broker_name)
            if name is None:
                # It left, and its topics go one after the other.
                continue
            shown.append(queues[broker_name])
            brokers.append(self._broker_data(broker_name, name))
            for address in name.addresses.values():
                # Those of too many brokers are left out: nobody has them any more, and a route that
                # became too large to be sent would be taken from all who want it.
                key = name.account, address
                if key in self._filter_servers and len(filter_servers) < _WITH_SERVERS_MAX:
                    filter_servers[address] = list(self._filter_servers[key])
        if not brokers:
            raise RouteNotFoundError(topic)
        return TopicRouteData(
            order_topic_conf=order_config,
            queue_datas=shown,
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
        """All topics, in no order."""
        return self._topics.names()

    def topics_of_cluster(self, cluster_name: str) -> list[str]:
        """Topics with a queue on a broker of the cluster, in no order; empty for an unknown one."""
        members = {n for n, name in self._names.items() if name.cluster_name == cluster_name}
        return self._topics.names_with(members)

    def unit_topics(self) -> list[str]:
        """Topics with the unit flag, in no order."""
        return self._topics.unit_names()

    def unit_sub_topics(self, *, also_unit: bool) -> list[str]:
        """Topics with the flag of subscribers in units, in no order; those with the unit flag if
        asked for.
        """
        return self._topics.unit_sub_names(also_unit=also_unit)

    def system_topics(self) -> tuple[list[str], str | None]:
        """Cluster names and broker names, which are topics too, and one master's address."""
        clusters = sorted({name.cluster_name for name in self._names.values()})
        masters = [n.addresses[MASTER_ID] for n in self._names.values() if MASTER_ID in n.addresses]
        return clusters + sorted(self._names), min(masters, default=None)

    def delete_topic(self, topic: str, cluster_name: str | None = None) -> None:
        """Forgets a topic on all brokers, or on those of one cluster."""
        broker_names = [
            broker_name
            for broker_name in self._topics.of(topic)
            if not cluster_name or self._cluster_of(broker_name) == cluster_name
        ]
        self._topics.delete(topic, broker_names)
        self.version += 1

    def _cluster_of(self, broker_name: str) -> str | None:
        name = self._names.get(broker_name)
        return None if name is None else name.cluster_name

    def forget_some(self) -> bool:
        """Forgets some of the topics of brokers that left, a piece of work for one turn; tells
        whether there are more.
        """
        if self._topics.forget_some():
            return True
        # Lists that were made meanwhile have some.
        self.version += 1
        return False

    def set_write_perm(self, broker_name: str, *, writable: bool) -> int:
        """Takes or gives the write permission of all topics of a broker name; returns how many."""
        self.version += 1
        return self._topics.set_write_perm(broker_name, writable=writable)
