"""ReadSize: how much of a connection is read at a time.

What is read is received, and decrypted, before anybody asks whether there is time for it, and a
hundred connections may have a large request at the same moment. So the first reads are small; a
connection that fills them has larger ones, as long as few wait for their part of a turn. What is
not read waits in the kernel, and costs nothing.
"""

from collections.abc import Sized
from typing import Any, Final

from ledgermq.protocol.transport.tls_link import TlsLink

# Twisted's 64 KiB a read costs a fifth of the throughput.
BYTES_MAX: Final = 262_144
FIRST_BYTES: Final = 8192
_GROWTH: Final = 4
# So many that wait make a crowd. A few that send all they can are quicker with large reads.
CROWD: Final = 16


class ReadSize:
    """That of one connection."""

    __slots__ = ("_line", "bytes")

    def __init__(self, line: Sized | None) -> None:
        """Begins with small reads.

        Args:
            line: the connections that wait for a part of a turn; None: there are no parts, and
                all reads are large.
        """
        self._line = line
        self.bytes = BYTES_MAX if line is None else FIRST_BYTES

    def apply(self, transport: Any) -> None:
        """Has the transport read so much at a time."""
        if isinstance(transport, TlsLink):
            transport.limit_reads(self.bytes)
        else:
            transport.bufferSize = self.bytes

    def count(self, read_bytes: int, transport: Any) -> None:
        """Says how much the next read brings at most, after one that brought so much.

        Args:
            read_bytes: without what TLS adds, which holds whole records back.
            transport: what reads.
        """
        size = self.bytes
        if self._line is None:
            return
        if len(self._line) >= CROWD:
            size = FIRST_BYTES
        elif read_bytes * 2 >= size < BYTES_MAX:
            size = min(size * _GROWTH, BYTES_MAX)
        if size != self.bytes:
            self.bytes = size
            self.apply(transport)
