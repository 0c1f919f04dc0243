"""TlsEngine: one TLS connection as bytes in and bytes out.

Ciphertext of the peer goes into `receive`, which gives plaintext; plaintext goes into `write`; what
is to be sent to the peer is taken by `take`. No socket, no time: who owns the engine ends a
handshake that takes too long. After an error the engine is dead.
"""

import re
import ssl
from collections.abc import Iterator
from typing import Any, Final

from ledgermq.protocol.errors import ProtocolError

# First byte of a TLS connection: a handshake record. A frame would be above every limit.
HANDSHAKE_BYTE: Final = 0x16
_READ_BYTES: Final = 262_144
# How OpenSSL says that one end does not trust the other.
_DISTRUST: Final = re.compile("CERTIFICATE|UNKNOWN_CA")


class TlsError(ProtocolError):
    """The peer does not speak TLS as it must, or is not who it should be."""


class TlsEngine:
    """One connection, either end."""

    def __init__(
        self, context: ssl.SSLContext, *, is_server: bool, server_name: str | None = None
    ) -> None:
        """Begins; a client's first message waits to be taken.

        Args:
            context: certificates and rules of this end.
            is_server: which end this is.
            server_name: the name that a client connects to.
        """
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(
            self._incoming, self._outgoing, server_side=is_server, server_hostname=server_name
        )
        # True from the end of the handshake on.
        self.is_open = False
        # True when the peer said that nothing more comes.
        self.is_ended = False
        if not is_server:
            self._shake()

    def receive(self, data: bytes) -> bytes:
        """Takes bytes of the peer and returns the plaintext they bring, often nothing.

        Raises:
            TlsError: says what is wrong; what `take` still gives is for the peer.
        """
        self._incoming.write(data)
        if not self.is_open and not self._shake():
            return b""
        parts: list[bytes] = []
        try:
            while not self.is_ended:
                part = self._object.read(_READ_BYTES)
                self.is_ended = not part
                parts.append(part)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.is_ended = True
        except ssl.SSLError as error:
            raise TlsError(reason_of(error)) from error
        return b"".join(parts)

    def write(self, data: bytes) -> None:
        """Encrypts; only when the engine is open.

        Raises:
            TlsError: the connection cannot go on.
        """
        try:
            self._object.write(data)
        except ssl.SSLError as error:
            raise TlsError(reason_of(error)) from error

    def take(self) -> bytes:
        """Returns what is to be sent to the peer now."""
        return self._outgoing.read()

    def certificate_names(self) -> tuple[str, ...]:
        """Returns the names in the peer's certificate: its common name, DNS names,
        addresses and URIs.

        Empty before the handshake ended, and where no certificate was asked for or shown.
        """
        certificate = self._object.getpeercert() if self.is_open else None
        return tuple(dict.fromkeys(_names_in(certificate))) if certificate else ()

    def binding(self) -> str:
        """Returns what both ends of this connection know and no other connection has: the first
        Finished message. Who stands between two ends has one connection with each, and so two.
        Empty before the handshake ended.
        """
        found = self._object.get_channel_binding("tls-unique") if self.is_open else None
        return (found or b"").hex()

    def end(self) -> None:
        """Tells the peer that nothing more comes."""
        if self.is_open:
            try:
                self._object.unwrap()
            except ssl.SSLError:
                # The peer's own end is not waited for.
                return

    def _shake(self) -> bool:
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except (ssl.SSLError, ssl.CertificateError) as error:
            raise TlsError(reason_of(error)) from error
        self.is_open = True
        return True


def _names_in(certificate: dict[str, Any]) -> Iterator[str]:
    """As Python gives it: the subject is a tuple of tuples of pairs."""
    for part in certificate.get("subject", ()):
        for kind, value in part:
            if kind == "commonName":
                yield value
    for kind, value in certificate.get("subjectAltName", ()):
        if kind in ("DNS", "IP Address", "URI"):
            yield value


def is_distrust(error: BaseException | None) -> bool:
    """Tells whether one end refused the certificate of the other, which does not pass by itself."""
    return isinstance(error, ssl.SSLError) and _DISTRUST.search(error.reason or "") is not None


def reason_of(error: BaseException) -> str:
    """Returns what a person can use of an error of the TLS library."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.replace("_", " ").lower()
    return str(error)
