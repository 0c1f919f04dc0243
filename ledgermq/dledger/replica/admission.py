"""Admission: what a member asks of the others before it believes them, and of tools.

A group is closed where its members prove that they know its secret. Java members and DLedger's
tools cannot prove anything: in a closed group they are let in where the configuration names
them, by their addresses; in an open one wherever it does not say otherwise.
"""

from typing import Final

from ledgermq.dledger.addresses import parse_java_members, parse_networks
from ledgermq.dledger.messages import JsonCode
from ledgermq.dledger.replica.config import ReplicaConfig
from ledgermq.dledger.replica.greeting_bodies import WIRE_VERSION
from ledgermq.dledger.replica.member_addresses import MemberAddresses, address_of
from ledgermq.protocol.member_proof import Challenge
from ledgermq.protocol.transport import CommandProtocol

# What the keys of the greeting are made for.
_USE: Final = "members"
# Until it is known who connects. A greeting has a few hundred bytes.
GREETING_S_MAX: Final = 10.0
GREETING_BYTES_MAX: Final = 8192
NO_SECRET: Final = "it does not prove the group's secret (key dLegerGroupSecretFile)"
ANOTHER_SECRET: Final = "another group secret"


class Admission:
    """Who is let in to one member; what proofs are made of."""

    def __init__(self, config: ReplicaConfig) -> None:
        self._group = config.group
        secret = config.group_secret
        # Of the proofs; None: this member has no secret.
        self.key = None if secret is None else secret.key(_USE)
        # Only who proves the secret, and who is named, is let in.
        self.is_closed = config.is_closed
        # What closes it: the secret, certificates, or both.
        self.requires_proof = config.requires_proof
        self.tls = config.tls
        # Where each member that may speak JSON is, besides its host; None: all may.
        self._java = None
        if config.java_members is not None:
            self._java = parse_java_members(config.java_members, tuple(config.addresses()))
        self._tool_networks = (
            None if config.tool_networks is None else parse_networks(config.tool_networks)
        )
        self._tool_codes = frozenset(JsonCode[name] for name in config.tool_requests)

    def challenge(
        self, opener: str, answerer: str, opener_nonce: str, answerer_nonce: str
    ) -> Challenge:
        """Returns what both ends of a connection of members prove."""
        protocol = f"ledger {WIRE_VERSION}"
        return Challenge(protocol, self._group, opener, answerer, opener_nonce, answerer_nonce)

    def refusal_of_certificate(self, peer_id: str, connection: CommandProtocol) -> str | None:
        """Says why a certificate is not that of a member; None when it is, or none is asked for."""
        if self.tls is None:
            return None
        return self.tls.refusal(peer_id, connection.certificate_names)

    def is_named_java(self, peer_id: str) -> bool:
        """Tells whether the configuration names a member as one that speaks JSON, without TLS."""
        return self._java is not None and peer_id in self._java

    def is_unproven_java(self, peer_id: str) -> bool:
        """Tells whether it speaks JSON now, and could not where all prove the secret."""
        return self.key is not None and not self.is_named_java(peer_id)

    def is_known_place(self, connection: CommandProtocol, sources: MemberAddresses) -> bool:
        """Tells whether a connection comes from where a member or a tool is."""
        source = address_of(connection.peer_host)
        if source is not None and any(source in one for one in self._tool_networks or ()):
            return True
        return self.is_java_place(connection, sources) or sources.may_be_any(connection)

    def is_java_place(self, connection: CommandProtocol, sources: MemberAddresses) -> bool:
        """Tells whether a connection comes from where a member is that is named as Java's."""
        return any(
            sources.may_be(peer_id, connection, networks)
            for peer_id, networks in (self._java or {}).items()
        )

    def may_be_java(self, peer_id: str) -> bool:
        """Tells whether a member may speak JSON."""
        return peer_id in self._java if self._java is not None else not self.is_closed

    def is_java_source(
        self, peer_id: str, connection: CommandProtocol, sources: MemberAddresses
    ) -> bool:
        """Tells whether a connection comes from where a member that may speak JSON is."""
        networks = self._java.get(peer_id) if self._java is not None else None
        return sources.may_be(peer_id, connection, networks)

    def refusal_of_tool(self, code: int, connection: CommandProtocol) -> str | None:
        """Says why a tool's request is not served; None when it is."""
        if self._tool_networks is None:
            # Also where members need not prove the secret yet: a tool has no use for that.
            if self.is_closed or self.key is not None:
                return "tools are not served by a group with a secret (key dLegerToolAddresses)"
        else:
            source = address_of(connection.peer_host)
            if source is None or not any(source in network for network in self._tool_networks):
                return "tools are not served there (key dLegerToolAddresses)"
        if code not in self._tool_codes:
            return f"request {code} is not served (key dLegerToolRequests)"
        return None
