"""Whether a request was signed for this broker: by which addresses it is reached.

These are the one that name servers tell, the one that a connection came to, each with the port for
clients or the VIP port, and those that aclSignedAddresses names besides.
"""

from ledgermq.broker.config.broker_config import VIP_PORT_DISTANCE, BrokerConfig
from ledgermq.protocol.signed_for import IsOwn, own_ends


def own_addresses(config: BrokerConfig, port: int) -> IsOwn:
    """Returns the test of a "host:port", and of the address that the request came to.

    Args:
        port: for clients.
    """
    ports = (port, port - VIP_PORT_DISTANCE)
    told = [f"{config.address_host}:{one}" for one in ports]
    return own_ends([*told, *config.signed_addresses.split(";")], lambda: ports)
