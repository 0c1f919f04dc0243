"""MemberTls: TLS between members, each with a certificate that names it.

    tls.server.certPath, tls.server.keyPath, tls.server.trustCertPath   of the port
    tls.server.need.client.auth=require                                 must be so
    tls.client.certPath, tls.client.keyPath, tls.client.trustCertPath   of connections to others
    tls.member.names=n0=broker-a.lan,10.0.0.1;n1=...                    names of each member

A member is the one in whose certificate one of its names stands: common name, DNS name, address or
URI. Without `tls.member.names` they are its id and its host in the list of members. Names are not
compared by the TLS library: it knows who signed, this file knows who that is.

enforcing    nobody connects without TLS, but Java members and tools where they are named
permissive   both ways are taken, each with TLS first; who has no fitting certificate is named
"""

from collections.abc import Mapping
from typing import Final

from ledgermq.protocol.tls.contexts import ServerTls, TlsSettingsError, read_tls_file
from ledgermq.protocol.tls.files import ClientTls, TlsFiles

NAMES_KEY: Final = "tls.member.names"
_NEEDED: Final = (
    "tls.server.trustCertPath",
    "tls.client.certPath",
    "tls.client.trustCertPath",
)
_CLIENT_AUTH: Final = "tls.server.need.client.auth"


class MemberTls:
    """Certificates of one member, and the names that those of the others bear."""

    def __init__(
        self, path: str, hosts: Mapping[str, str], *, is_required: bool, serves_plain: bool
    ) -> None:
        """Reads the files.

        Args:
            path: of the properties.
            hosts: of each member, by its id.
            is_required: whether who shows no fitting certificate is refused.
            serves_plain: whether some may connect without TLS all the same, by their addresses.

        Raises:
            TlsSettingsError: something is missing or cannot be used; names the key.
        """
        self.is_required = is_required
        is_enforcing = is_required and not serves_plain
        self.files = TlsFiles(path, "enforcing" if is_enforcing else "permissive", is_client=True)
        settings = read_tls_file(path)
        for key in _NEEDED:
            if not settings.get(key):
                raise TlsSettingsError(f"{path}: {key} is missing")
        if settings.get(_CLIENT_AUTH) != "require":
            raise TlsSettingsError(f"{path}: {_CLIENT_AUTH} must be require between members")
        self._names = _names_of(settings.get(NAMES_KEY, ""), hosts, path)

    @property
    def server(self) -> ServerTls:
        """For the port of this member."""
        assert self.files.server is not None
        return self.files.server

    @property
    def client(self) -> ClientTls:
        """For connections to the others."""
        assert self.files.client is not None
        return self.files.client

    def refusal(self, member_id: str, shown: tuple[str, ...]) -> str | None:
        """Says why a connection is not a member's; None when its certificate names it.

        Args:
            member_id: who it says it is.
            shown: the names in its certificate, empty without one.
        """
        if not shown:
            return "it shows no certificate (key tls.ledger.config.file)"
        wanted = self._names[member_id]
        if not wanted.isdisjoint(name.lower() for name in shown):
            return None
        return f"its certificate names {', '.join(shown)}, not {' or '.join(sorted(wanted))}"


def _names_of(text: str, hosts: Mapping[str, str], path: str) -> dict[str, frozenset[str]]:
    names = {member_id: frozenset((member_id, host.lower())) for member_id, host in hosts.items()}
    for part in filter(None, map(str.strip, text.split(";"))):
        member_id, _, listed = part.partition("=")
        own = frozenset(name.strip().lower() for name in listed.split(",") if name.strip())
        if member_id.strip() not in hosts or not own:
            raise TlsSettingsError(
                f"{path}: {NAMES_KEY} has {part!r}; allowed: id=name,name joined with a semicolon,"
                f" ids of {', '.join(hosts)}"
            )
        names[member_id.strip()] = own
    return names
