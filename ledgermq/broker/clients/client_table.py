"""Which clients are connected: members of consumer groups with their subscriptions, and producers.

Pure: connections are opaque keys, time is passed in. A membership belongs to a connection: when it
closes, the client is gone from all its groups. The table is made anew from heart beats, so it is
neither stored nor replicated. Sources: `ConsumerManager.java`, `ConsumerGroupInfo.java`,
`ProducerManager.java`.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from ledgermq.broker.clients.client_ids import ClientIds
from ledgermq.broker.clients.producer_turns import ProducerTurns
from ledgermq.broker.selectors.filters import Subscription
from ledgermq.state.errors import SystemBusyError
from ledgermq.state.ordered_names import OrderedNames

_GROUPS_MAX: Final = 50_000
_MEMBERSHIPS_MAX: Final = 200_000
_GROUPS_OF_CONNECTION_MAX: Final = 1000
# Memberships of one look for who is silent: half a millisecond.
_LOOKED_AT_MAX: Final = 2000
# Silent connections that are closed in one turn.
_FOUND_MAX: Final = 64
# Of either, one account has no more than this part of the places while half of all are taken: to be
# a producer of any group takes no right, and who names groups without end shuts nobody out.
_ACCOUNT_PART: Final = 4
# Of all subscriptions: what they take in memory is some times of it.
_SUBSCRIPTIONS_BYTES_MAX: Final = 64 << 20
# What a tag takes besides its text.
_TAG_BYTES: Final = 64


@dataclass(slots=True)
class Client:
    """One client on one connection."""

    client_id: str
    # Number of the language and ordinal of the version, as in its commands.
    language: int
    version: int
    # "ip:port"
    address: str
    # Time of the last heart beat, monotonic.
    seen_ms: int
    # Access key that the heart beat was signed by; None where nobody has to sign.
    account: str | None = None


@dataclass(slots=True)
class ConsumerGroup:
    """The live members of one consumer group; the last heart beat speaks for all of them."""

    name: str
    # CONSUME_ACTIVELY, CONSUME_PASSIVELY or CONSUME_POP.
    consume_type: str = "CONSUME_PASSIVELY"
    # CLUSTERING or BROADCASTING.
    message_model: str = "CLUSTERING"
    # Where a group begins that has no offsets.
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    members: dict[Hashable, Client] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    # What the subscriptions take.
    subscriptions_bytes: int = 0
    # Who speaks for which client id in this group.
    ids: ClientIds = field(default_factory=ClientIds)
    # What each member wants, as a number that is the same for the same things.
    wants: dict[Hashable, int] = field(default_factory=dict)
    # True while they want different things: any of them may get any queue, and what the one that
    # gets it does not want is lost to the group.
    is_divided: bool = False

    def set_want(self, connection: Hashable, wanted: Mapping[str, Subscription]) -> None:
        """Notes what a member wants."""
        want = hash(
            frozenset((topic, one.expression_type, one.expression) for topic, one in wanted.items())
        )
        if self.wants.get(connection) != want:
            self.wants[connection] = want
            self._compare()

    def forget_want(self, connection: Hashable) -> None:
        """Notes that a member has gone."""
        self.wants.pop(connection, None)
        if self.is_divided:
            self._compare()

    def _compare(self) -> None:
        self.is_divided = len(set(self.wants.values())) > 1

    def find_other(self, connection: Hashable) -> Client | None:
        """Returns a member that wants other things than one."""
        if not self.is_divided:
            return None
        own = self.wants[connection]
        other = next((one for one, want in self.wants.items() if want != own), None)
        return None if other is None else self.members[other]


# Whether a client goes on as an account, and as a member of these groups of consumers.
GoesOn = Callable[[str, Iterable[str]], bool]


class ClientTable:
    """All live clients of this broker."""

    def __init__(self, groups_of_connection_max: int = _GROUPS_OF_CONNECTION_MAX) -> None:
        """Begins empty; `groups_of_connection_max` bounds what the clients of one are in."""
        self._groups_of_connection_max = groups_of_connection_max
        self._consumers: dict[str, ConsumerGroup] = {}
        # group -> connection -> client
        self._producers: dict[str, dict[Hashable, Client]] = {}
        # Of both: tens of thousands, which nobody wants to sort for each list and page.
        self._consumer_names = OrderedNames()
        self._producer_names = OrderedNames()
        self._turns = ProducerTurns()
        # Of producers.
        self.producer_ids = ClientIds()
        # client id -> its newest connection; of a connection only the newest id of a producer
        self._producers_by_id: dict[str, Hashable] = {}
        self._producer_ids: dict[Hashable, str] = {}
        # connection -> groups it is a member of, in the order in which it came
        self._consumer_groups_of: dict[Hashable, dict[str, None]] = {}
        self._producer_groups_of: dict[Hashable, dict[str, None]] = {}
        self._memberships_count = 0
        # By account; none where nobody has to sign.
        self._memberships_of: dict[str, int] = {}
        self._subscriptions_bytes = 0
        # Changes of what consumer groups are and subscribe to: whoever caches something of it
        # compares it. Members come and go without.
        self.generation = 0

    def register_consumer(
        self,
        connection: Hashable,
        client: Client,
        group_name: str,
        *,
        consume_type: str,
        message_model: str,
        consume_from_where: str,
        subscriptions: Iterable[Subscription],
    ) -> bool:
        """Takes over what a heart beat says about one consumer group.

        Returns:
            True when a member or a topic came or went, so that the members must be told.

        Raises:
            SystemBusyError: too many groups, members or subscriptions; nothing changed.
            AccessDeniedError: another account's member has this client id; nothing changed.
        """
        wanted = {subscription.topic: subscription for subscription in subscriptions}
        group = self._consumers.get(group_name)
        known = None if group is None else group.members.get(connection)
        if group is not None:
            group.ids.check(client.client_id, client.account)
        if known is None:
            self._check_room(self._consumers, group_name, connection, client.account)
        current = {} if group is None else group.subscriptions
        newer = [
            one
            for topic, one in wanted.items()
            if (old := current.get(topic)) is None or one.version > old.version
        ]
        gone = [topic for topic in current if topic not in wanted]
        growth = self._growth(group_name, current, newer, gone)
        if group is None:
            group = self._consumers[group_name] = ConsumerGroup(group_name)
            self._consumer_names.add(group_name)
            self.generation += 1
        if group.message_model != message_model:
            self.generation += 1
        group.consume_type = consume_type
        group.message_model = message_model
        group.consume_from_where = consume_from_where
        if known is None:
            self._consumer_groups_of.setdefault(connection, {})[group_name] = None
        self._count(known, client)
        group.ids.hold(connection, client.client_id, client.account)
        group.members[connection] = client
        group.set_want(connection, wanted)
        is_new = known is None or known.client_id != client.client_id
        return self._update_subscriptions(group, newer, gone, growth) or is_new

    def _growth(
        self,
        group_name: str,
        current: Mapping[str, Subscription],
        newer: Sequence[Subscription],
        gone: Sequence[str],
    ) -> int:
        """Returns how much more a group's subscriptions will take, in bytes.

        Raises:
            SystemBusyError: so much more is not allowed.
        """
        growth = sum(map(_size_of, newer)) - sum(_size_of(current[topic]) for topic in gone)
        growth -= sum(_size_of(current[one.topic]) for one in newer if one.topic in current)
        size = self._subscriptions_bytes + growth
        if growth > 0 and size > _SUBSCRIPTIONS_BYTES_MAX:
            raise SystemBusyError(
                f"client not registered in group {group_name}: the subscriptions of all groups"
                f" would take {size} bytes, allowed are {_SUBSCRIPTIONS_BYTES_MAX}"
            )
        return growth

    def _update_subscriptions(
        self,
        group: ConsumerGroup,
        newer: Sequence[Subscription],
        gone: Sequence[str],
        growth: int,
    ) -> bool:
        """Newer subscriptions replace older ones; topics that are no longer named go. Tells whether
        a topic came or went.
        """
        count = len(group.subscriptions)
        for one in newer:
            group.subscriptions[one.topic] = one
        changed = bool(gone) or len(group.subscriptions) > count
        for topic in gone:
            del group.subscriptions[topic]
        self.generation += len(newer) + len(gone)
        self._subscriptions_bytes += growth
        group.subscriptions_bytes += growth
        return changed

    def register_producer(self, connection: Hashable, client: Client, group_name: str) -> None:
        """Takes over what a heart beat says about one producer group.

        Raises:
            SystemBusyError: too many groups or members; nothing changed.
            AccessDeniedError: another account's producer has this client id; nothing changed.
        """
        self.producer_ids.check(client.client_id, client.account)
        known = self._producers.get(group_name, {}).get(connection)
        if known is None:
            self._check_room(self._producers, group_name, connection, client.account)
            self._producer_groups_of.setdefault(connection, {})[group_name] = None
        elif known.account != client.account:
            self._turns.remove(group_name, known.account, connection)
        self._count(known, client)
        self.producer_ids.hold(connection, client.client_id, client.account)
        members = self._producers.get(group_name)
        if members is None:
            members = self._producers[group_name] = {}
            self._producer_names.add(group_name)
        members[connection] = client
        self._turns.add(group_name, client.account, connection)
        if self._producer_ids.get(connection) != client.client_id:
            self._forget_producer_id(connection)
            self._producer_ids[connection] = client.client_id
        self._producers_by_id[client.client_id] = connection

    def _forget_producer_id(self, connection: Hashable) -> None:
        client_id = self._producer_ids.pop(connection, None)
        if client_id is not None and self._producers_by_id.get(client_id) is connection:
            del self._producers_by_id[client_id]

    def unregister_consumer(self, connection: Hashable, group_name: str) -> bool:
        """Takes a member out of a group; returns False when it was none."""
        group = self._consumers.get(group_name)
        client = None if group is None else group.members.pop(connection, None)
        if group is None or client is None:
            return False
        group.forget_want(connection)
        group.ids.forget(connection)
        self._count(client, None)
        _discard(self._consumer_groups_of, connection, group_name)
        if not group.members:
            del self._consumers[group_name]
            self._consumer_names.remove(group_name)
            self._subscriptions_bytes -= group.subscriptions_bytes
            self.generation += 1
        return True

    def unregister_producer(self, connection: Hashable, group_name: str) -> None:
        """Takes a producer out of a group."""
        members = self._producers.get(group_name)
        client = None if members is None else members.pop(connection, None)
        if members is None or client is None:
            return
        self._turns.remove(group_name, client.account, connection)
        self._count(client, None)
        _discard(self._producer_groups_of, connection, group_name)
        if not members:
            del self._producers[group_name]
            self._producer_names.remove(group_name)
        if connection not in self._producer_groups_of:
            self._forget_producer_id(connection)
            self.producer_ids.forget(connection)

    def connection_lost(
        self, connection: Hashable, count_max: int = _GROUPS_OF_CONNECTION_MAX
    ) -> list[str]:
        """Takes a lost connection out of so many groups; to be called again while it has others.

        Returns:
            The consumer groups that lost a member.
        """
        self._forget_producer_id(connection)
        self.producer_ids.forget(connection)
        produced = list(islice(self._producer_groups_of.get(connection, ()), count_max))
        for group_name in produced:
            self.unregister_producer(connection, group_name)
        rest = count_max - len(produced)
        consumed = list(islice(self._consumer_groups_of.get(connection, ()), rest))
        for group_name in consumed:
            self.unregister_consumer(connection, group_name)
        return consumed

    def has_groups(self, connection: Hashable) -> bool:
        """Tells whether a connection is in any group."""
        return connection in self._producer_groups_of or connection in self._consumer_groups_of

    def silent_connections(self, now_ms: int, silence_ms_max: int) -> Iterator[list[Hashable]]:
        """Yields the connections on which some client has not sent a heart beat for too long, those
        of some thousand memberships at a time; the table may change meanwhile.
        """
        found: list[Hashable] = []
        looked_at = 0
        for connection in list({**self._producer_groups_of, **self._consumer_groups_of}):
            for client in self._clients_on(connection):
                looked_at += 1
                if now_ms - client.seen_ms > silence_ms_max:
                    found.append(connection)
                    break
            if looked_at >= _LOOKED_AT_MAX or len(found) >= _FOUND_MAX:
                yield found
                found, looked_at = [], 0
        yield found

    def _clients_on(self, connection: Hashable) -> Iterator[Client]:
        for name in self._producer_groups_of.get(connection, ()):
            yield self._producers[name][connection]
        for name in self._consumer_groups_of.get(connection, ()):
            yield self._consumers[name].members[connection]

    def connections_of_others(self, goes_on: GoesOn) -> list[Hashable]:
        """Returns the connections on which a client does not go on as its account."""
        return [
            connection
            for connection in {**self._producer_groups_of, **self._consumer_groups_of}
            if not all(
                client.account is None
                or goes_on(client.account, self._consumer_groups_of.get(connection, ()))
                for client in self._clients_on(connection)
            )
        ]

    def find_group(self, group_name: str) -> ConsumerGroup | None:
        """Returns the live members of a group, None when there are none."""
        return self._consumers.get(group_name)

    def wants(self, group_name: str, topic: str) -> bool:
        """Tells whether a consumer group has a live member and wants a topic."""
        group = self._consumers.get(group_name)
        return group is not None and topic in group.subscriptions

    def producers_of(self, group_name: str) -> list[Client]:
        """Returns the live producers of a group; empty when there are none."""
        return list(self._producers.get(group_name, {}).values())

    def find_producer(self, client_id: str) -> Hashable | None:
        """Returns the connection of a live producer, None when it is not here."""
        return self._producers_by_id.get(client_id)

    def next_producer(
        self, group_name: str, is_meant: Callable[[str | None], bool]
    ) -> Hashable | None:
        """Returns the connection of one live producer of a group, another one each time; None when
        there is none whose account is meant.
        """
        return self._turns.next(group_name, is_meant)

    @property
    def producer_group_names(self) -> list[str]:
        """The producer groups with a live member, in order."""
        return list(self._producer_names)

    @property
    def consumer_group_names(self) -> list[str]:
        """The consumer groups with a live member, in order."""
        return list(self._consumer_names)

    @property
    def memberships_count(self) -> int:
        """Clients times the groups they are in."""
        return self._memberships_count

    def _count(self, before: Client | None, after: Client | None) -> None:
        """Counts a member that comes, goes, or is another account's now."""
        counts = self._memberships_of
        for client, change in ((before, -1), (after, 1)):
            if client is None:
                continue
            self._memberships_count += change
            if client.account is not None:
                count = counts.pop(client.account, 0) + change
                if count:
                    counts[client.account] = count

    def _check_share(self, account: str, is_new_group: bool, groups_count: int) -> None:
        own = self._memberships_of.get(account, 0)
        tables = [(self._memberships_count, _MEMBERSHIPS_MAX)]
        if is_new_group:
            tables.append((groups_count, _GROUPS_MAX))
        for used, limit in tables:
            if used * 2 >= limit and own * _ACCOUNT_PART >= limit:
                raise SystemBusyError(
                    f"client not registered: account {account} has {own} memberships, allowed are"
                    f" {limit // _ACCOUNT_PART} while {used} of {limit} places are taken"
                )

    def _check_room(
        self,
        groups: Mapping[str, object],
        group_name: str,
        connection: Hashable,
        account: str | None,
    ) -> None:
        """Raises SystemBusyError unless one more member fits, in a new group if it is one."""
        consumed, produced = self._consumer_groups_of, self._producer_groups_of
        count = len(consumed.get(connection, ())) + len(produced.get(connection, ()))
        if count >= self._groups_of_connection_max:
            raise SystemBusyError(
                f"client not registered in group {group_name}: its connection is in {count}"
                f" groups, allowed are {self._groups_of_connection_max} (key maxHeartbeatGroups)"
            )
        if account is not None:
            self._check_share(account, group_name not in groups, len(groups))
        has_room = group_name in groups or len(groups) < _GROUPS_MAX
        if not has_room or self._memberships_count >= _MEMBERSHIPS_MAX:
            raise SystemBusyError(
                f"client not registered: there are {self._memberships_count} memberships and"
                f" {len(groups)} groups, allowed are {_MEMBERSHIPS_MAX} and {_GROUPS_MAX}"
            )


def _discard(
    groups_of: dict[Hashable, dict[str, None]], connection: Hashable, group_name: str
) -> None:
    groups = groups_of.get(connection)
    if groups is not None:
        groups.pop(group_name, None)
        if not groups:
            del groups_of[connection]


def _size_of(subscription: Subscription) -> int:
    """About what a subscription takes."""
    tags = sum(map(len, subscription.tags)) + _TAG_BYTES * len(subscription.tags)
    codes = _TAG_BYTES * len(subscription.tags_codes)
    return len(subscription.topic) + len(subscription.expression) + tags + codes
