"""The address of this broker as records and message ids hold it."""

import socket

from ledgermq.broker.dispatch import born_host


def resolved(host: str) -> bytes:
    """Returns the address of a host name, 4 bytes; of an address itself, 4 or 16."""
    address, _ = born_host(host, 0)
    if address == b"\x7f\x00\x00\x01" and not host.startswith("127."):
        return socket.inet_aton(socket.gethostbyname(host))
    return address


def hex_of(host: tuple[bytes, int]) -> str:
    """Returns address and port as a message id begins."""
    address, port = host
    return (address + port.to_bytes(4, "big")).hex().upper()
