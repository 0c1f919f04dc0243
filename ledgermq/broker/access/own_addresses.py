"""Whether a request was signed for this broker: by which addresses it is reached.

These are the one that name servers tell, the one that a connection came to, each with the port for
clients or the VIP port, and those that aclSignedAddresses names besides: where addresses are
translated on the way, or by a name that only clients know.
"""

from collections.abc import Callable

from ledgermq.broker.config.broker_config import VIP_PORT_DISTANCE, BrokerConfig


def own_addresses(config: BrokerConfig, port: int) -> Callable[[str, str], bool]:
    """Returns the test of a "host:port", and of the address that the request came to.

    Args:
        port: for clients.
    """
    ports = (port, port - VIP_PORT_DISTANCE)
    told = {_plain(f"{config.address_host}:{one}") for one in ports}
    told |= {_plain(text) for text in config.signed_addresses.split(";") if text}

    def is_own(named: str, own_host: str) -> bool:
        text = _plain(named)
        return text in told or text in {_plain(f"{own_host}:{one}") for one in ports}

    return is_own


def _plain(address: str) -> str:
    host, _, port = address.strip().rpartition(":")
    return f"{host.strip('[]').lower()}:{port}"
