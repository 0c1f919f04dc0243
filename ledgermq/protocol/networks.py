"""Whose an address is, as far as limits are concerned; pure."""

from functools import lru_cache
from ipaddress import IPv6Address, IPv6Network
from typing import Final

# Who has a network of IPv6 has at least so much of it, 2^64 addresses.
_PREFIX_BITS: Final = 64
_KNOWN_MAX: Final = 4096


def network_of(host: str) -> str:
    """Returns for whom something is counted that came from an address: for the address itself, but
    for the whole network, "2001:db8::/64", where its owner has addresses without end.
    """
    return _network_of(host) if ":" in host else host


@lru_cache(_KNOWN_MAX)
def _network_of(host: str) -> str:
    try:
        address = IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    if address.is_loopback or address.is_link_local:
        return host
    return str(IPv6Network((address, _PREFIX_BITS), strict=False))
