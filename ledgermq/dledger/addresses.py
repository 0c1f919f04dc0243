"""Where the members of a group listen.

Written as DLedger writes them, "n0-host:port;n1-host:port": the id ends at the first dash, the port
begins after the last colon. All members must be given the same list.
"""

import re
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Final, NamedTuple

Network = IPv4Network | IPv6Network

_PORT_MAX: Final = 65535
# No dash, so that "id-host:port" can be told apart; a letter and digits in a broker (n0).
_ID: Final = re.compile(r"[A-Za-z0-9_]+")


class ConfigValueError(ValueError):
    """A value cannot be used; the text names key, value and what is allowed."""

    def __init__(self, key: str, value: object, allowed: str) -> None:
        self.key = key
        self.value = value
        self.allowed = allowed
        super().__init__(f"{key} is {value!r}, allowed: {allowed}")


class PeerAddress(NamedTuple):
    """Where a member listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def parse_peers(text: str) -> dict[str, PeerAddress]:
    """Reads "n0-host:port;n1-host:port" as id -> address, in the order of the text.

    Raises:
        ConfigValueError: a part has another form, or an id or an address stands twice.
    """
    peers: dict[str, PeerAddress] = {}
    for part in filter(None, map(str.strip, text.split(";"))):
        peer_id, dash, address = part.partition("-")
        host, colon, port_text = address.rpartition(":")
        is_port = port_text.isascii() and port_text.isdigit() and len(port_text) <= 5
        if not (dash and colon and host and is_port and _ID.fullmatch(peer_id)):
            raise ConfigValueError("peers", part, "id-host:port, joined by ';'")
        port = int(port_text)
        if not 1 <= port <= _PORT_MAX:
            raise ConfigValueError("peers", part, f"a port from 1 to {_PORT_MAX}")
        if peer_id in peers:
            raise ConfigValueError("peers", text, f"each id once; {peer_id!r} stands twice")
        found = PeerAddress(host.strip("[]"), port)
        if found in peers.values():
            raise ConfigValueError("peers", text, f"each address once; {found} stands twice")
        peers[peer_id] = found
    if not peers:
        raise ConfigValueError("peers", text, "at least one id-host:port")
    return peers


def parse_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Reads addresses and networks: 10.0.0.7, 10.0.0.0/8, fd00::/8.

    Raises:
        ConfigValueError: one of them is neither.
    """
    networks = []
    for text in texts:
        try:
            networks.append(ip_network(text, strict=False))
        except ValueError as error:
            allowed = "an address, or a network as 10.0.0.0/8"
            raise ConfigValueError("member_networks", text, allowed) from error
    return tuple(networks)


def parse_java_members(
    texts: Iterable[str], member_ids: Sequence[str]
) -> dict[str, tuple[Network, ...]]:
    """Reads "n1" and "n1-10.0.0.0/8" as id -> networks; an id may stand several times.

    Raises:
        ConfigValueError: no id of a member, or what follows the dash is no network.
    """
    networks: dict[str, tuple[Network, ...]] = {}
    for text in texts:
        member_id, _, network = text.partition("-")
        if member_id not in member_ids:
            allowed = f"{', '.join(member_ids)}, alone or as {member_ids[0]}-10.0.0.0/8"
            raise ConfigValueError("java_members", text, allowed)
        parsed = parse_networks((network,)) if network else ()
        networks[member_id] = (*networks.get(member_id, ()), *parsed)
    return networks
