"""MemberAddresses: from which addresses each member of the group may speak.

A member speaks from an address that its host in the list of members resolves to. Members on one
machine may speak from any address of that machine: the system chooses which of them a connection
between them has. Where addresses are translated on the way, others are allowed by configuration.

An address proves no member: whoever is on its machine, or between the machines, can speak from
there. It keeps out all the others that reach the port.

A host that is an address needs nobody to be asked. A name is looked up in threads of the reactor,
never in its own turn: when a member speaks from an address that is not known as its own, and not
again within a second. What was found stays when a later look-up fails.
"""

from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, Final

from twisted.internet.defer import Deferred, gatherResults, succeed
from twisted.internet.interfaces import IResolutionReceiver
from zope.interface import implementer

from ledgermq.dledger.addresses import Network, parse_networks
from ledgermq.dledger.replica.config import ReplicaConfig
from ledgermq.protocol.transport import CommandProtocol

Address = IPv4Address | IPv6Address
# Asks for the addresses of a host by its name; fires with none when it has none or nobody answers.
LookUp = Callable[[str], Deferred[list[str]]]

# Names change when machines do; a stranger that connects again and again asks no more often.
_LOOK_UP_INTERVAL_S: Final = 1.0
_LOCAL_HOST: Final = "localhost"
_LOCAL_ADDRESSES: Final[frozenset[Address]] = frozenset(
    (IPv4Address("127.0.0.1"), IPv6Address("::1"))
)


class _Host:
    """What is known of one host of the list."""

    __slots__ = ("addresses", "asked_s", "is_name", "name", "under_way")

    def __init__(self, name: str) -> None:
        self.name = name
        address = address_of(name)
        self.is_name = address is None and name != _LOCAL_HOST
        self.addresses: frozenset[Address] = frozenset()
        if address is not None:
            self.addresses = frozenset((address,))
        elif not self.is_name:
            self.addresses = _LOCAL_ADDRESSES
        # When it was asked for last, in seconds of the reactor; None before.
        self.asked_s: float | None = None
        # Those who wait for the present look-up; None while there is none.
        self.under_way: list[Deferred[None]] | None = None


class MemberAddresses:
    """Says who may be whom."""

    def __init__(
        self, config: ReplicaConfig, look_up: LookUp, seconds: Callable[[], float]
    ) -> None:
        """Asks nobody yet.

        Args:
            config: members and their hosts, and what else is allowed.
            look_up: finds the addresses of a name.
            seconds: the reactor's clock.
        """
        self._self_id = config.self_id
        self._networks = parse_networks(config.member_networks)
        peers = config.addresses()
        by_name = {peer.host: _Host(peer.host) for peer in peers.values()}
        # Host of each member; members on one machine may share it.
        self._hosts = {peer_id: by_name[peer.host] for peer_id, peer in peers.items()}
        self._look_up = look_up
        self._seconds = seconds

    def may_be(
        self,
        peer_id: str,
        connection: CommandProtocol,
        networks: tuple[Network, ...] | None = None,
    ) -> bool:
        """Tells whether a connection comes from where a member of the list may speak.

        Args:
            networks: what is allowed besides the host of the member; None: as configured for all.
        """
        source = address_of(connection.peer_host)
        if source is None:
            return False
        known = self._hosts[peer_id].addresses
        allowed = self._networks if networks is None else networks
        if source in known or any(source in network for network in allowed):
            return True
        # Both on this machine: its own addresses are those of its own host in the list, that which
        # the connection came to, and the loopback.
        here = address_of(connection.own_host)
        if not source.is_loopback and source != here:
            return False
        own = self._hosts[self._self_id].addresses
        return any(address.is_loopback or address == here or address in own for address in known)

    def may_be_any(self, connection: CommandProtocol) -> bool:
        """Tells whether a connection comes from where some other member of the list may speak."""
        return any(
            self.may_be(peer_id, connection) for peer_id in self._hosts if peer_id != self._self_id
        )

    def look_again(self, peer_id: str) -> Deferred[None]:
        """Has the name of a member looked up, and that of this one, if that was not just done.

        Returns: a Deferred that fires when `may_be` knows what was found; it never fails.
        """
        hosts = [self._hosts[peer_id], self._hosts[self._self_id]]
        return gatherResults([self._ask_for(host) for host in hosts]).addCallback(lambda _: None)

    def refusal(self, peer_id: str, connection: CommandProtocol) -> str:
        """Says why a connection may not be a member's, and what to do about it."""
        host = self._hosts[peer_id]
        found = ", ".join(sorted(map(str, host.addresses))) or "no address that was found"
        return (
            f"{connection.peer_host} is no address of {peer_id}, whose host {host.name} has {found}"
            " (key ledgerMemberAddresses allows others)"
        )

    def _ask_for(self, host: _Host) -> Deferred[None]:
        now_s = self._seconds()
        waiting: Deferred[None] = Deferred()
        if host.under_way is not None:
            host.under_way.append(waiting)
            return waiting
        is_early = host.asked_s is not None and now_s - host.asked_s < _LOOK_UP_INTERVAL_S
        if not host.is_name or is_early:
            return succeed(None)
        host.asked_s = now_s
        host.under_way = [waiting]
        self._look_up(host.name).addBoth(self._found, host)
        return waiting

    def _found(self, result: object, host: _Host) -> None:
        # A look-up that failed says nothing: what was known stays.
        texts = result if isinstance(result, list) else []
        found = frozenset([found for text in texts if (found := address_of(text)) is not None])
        if found:
            host.addresses = found
        waiting, host.under_way = host.under_way or [], None
        for deferred in waiting:
            deferred.callback(None)


def address_of(text: str) -> Address | None:
    """Returns an address in the one form that compares; None for a text that is none."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


@implementer(IResolutionReceiver)
class _Found:
    """Gathers what a look-up finds."""

    def __init__(self) -> None:
        self.done: Deferred[list[str]] = Deferred()
        self._hosts: list[str] = []

    def resolutionBegan(self, resolution: object) -> None:
        """Nothing is found yet."""

    def addressResolved(self, address: Any) -> None:
        """One address more."""
        self._hosts.append(str(address.host))

    def resolutionComplete(self) -> None:
        """That was all."""
        self.done.callback(self._hosts)


def look_up_by(reactor: Any) -> LookUp:
    """Returns the look-up of a reactor, which asks the system's resolver in its threads."""

    def look_up(name: str) -> Deferred[list[str]]:
        found = _Found()
        reactor.nameResolver.resolveHostName(found, name)
        return found.done

    return look_up
