"""TlsFiles: certificates and rules of one program, which follow the files that they came from.

A tls.properties and the files that it names are looked at again by `reload`. When one of them
has other bytes, everything is read anew: connections that begin later use what was read, those that
are open keep what they began with. Files that cannot be used, or not together, change nothing: a
certificate and its key may be replaced one after the other.
"""

import hashlib
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ledgermq.protocol.properties_file import parse_properties_file
from ledgermq.protocol.regular_file import read_regular_file
from ledgermq.protocol.tls.contexts import (
    ServerTls,
    client_context,
    load_server_tls,
    read_tls_file,
    server_context,
)

# Of a file that is read to see whether it changed; a longer one counts by its size.
_BYTES_MAX: Final = 4 << 20
# Ends the keys that name files.
_NAMES_A_FILE: Final = "Path"


@dataclass(slots=True, kw_only=True)
class ClientTls:
    """What connections to other programs need."""

    # For connections that begin now; replaced when its files changed.
    context: ssl.SSLContext


class TlsFiles:
    """A tls.properties and what it names.

    Invariant: `server` and `client` were read from the same bytes, or one of them is None.
    """

    def __init__(self, path: str, server_mode: str, *, is_client: bool = False) -> None:
        """Reads the files.

        Args:
            path: of a tls.properties; empty when there is none, which a client may do without.
            server_mode: as `load_server_tls` takes it.
            is_client: whether this program connects to others by TLS.

        Raises:
            TlsSettingsError: something is missing or cannot be used.
        """
        self.path = path
        self._looks = self._look()
        # None for a program without a port for TLS.
        self.server: ServerTls | None = load_server_tls(path, server_mode)
        # None for a program that connects to others without TLS.
        self.client: ClientTls | None = None
        if is_client:
            self.client = ClientTls(context=client_context(read_tls_file(path) if path else {}))

    @property
    def is_in_use(self) -> bool:
        """True when there are files to follow."""
        return bool(self.path) and (self.server is not None or self.client is not None)

    def reload(self) -> bool:
        """Reads the files again when one of them changed; returns whether they did.

        Raises:
            TlsSettingsError: they cannot be used now, and nothing changed; raised once for each
                state of the files.
        """
        looks = self._look()
        if looks == self._looks:
            return False
        self._looks = looks
        settings = read_tls_file(self.path)
        served = server_context(settings) if self.server is not None else None
        connected = client_context(settings) if self.client is not None else None
        if self.server is not None and served is not None:
            self.server.context = served
        if self.client is not None and connected is not None:
            self.client.context = connected
        return True

    def _look(self) -> list[str]:
        """What tells changed files from those that are known."""
        if not self.path:
            return []
        data, looks = _read(self.path)
        try:
            settings = parse_properties_file(data)
        except ValueError:
            return [looks]
        named = sorted(
            path for key, path in settings.items() if key.endswith(_NAMES_A_FILE) and path
        )
        return [looks, *(_read(path)[1] for path in named)]


def _read(path: str) -> tuple[bytes, str]:
    """The bytes of a file, and what stands for them; no bytes when it cannot be read."""
    try:
        data, _ = read_regular_file(Path(path).expanduser(), _BYTES_MAX)
    except (OSError, RuntimeError, ValueError) as error:
        return b"", repr(error)
    return data, hashlib.sha256(data).hexdigest()
