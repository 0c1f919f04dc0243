"""Addresses of name servers and masters, as configurations and name servers tell them."""


def split_address(address: str) -> tuple[str, int]:
    """Returns host and port of "host:port"; raises ValueError when there is no port."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
