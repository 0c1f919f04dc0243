"""How a slave and its master prove to each other that they know the group's secret.

    slave  -> 8 mark, 32 nonce
    master -> 8 mark, 32 nonce, 32 proof
    slave  -> 32 proof, then reports as ever

The mark is no report that Java's slaves send: as one it would be negative. Proofs are those of
`protocol/member_proof.py`, with a key for this use. A slave that begins with a report proves
nothing: it is served where its address is allowed. Where the secret is not required yet, who proves
nothing is served and named, and a slave tries without the greeting every second time. Zeros stand
for a proof that is not given, to a master that did not prove itself. By TLS the proofs cover the
connection, too: who stands between the two, with certificates for both, can pass none of them on.

Pure: bytes in, bytes out; a greeting holds less than one of these messages.
"""

from collections.abc import Callable
from ipaddress import ip_address
from typing import Final

from ledgermq.broker.ha.errors import ReplicationError
from ledgermq.dledger.addresses import Network
from ledgermq.protocol.group_secret import GroupSecret
from ledgermq.protocol.member_proof import NONCE_BYTES, Challenge, Side, draw_nonce

MARK: Final = b"\xffLMQ-HA\x01"
# Until it is known who connects.
GREETING_MS_MAX: Final = 10_000
NO_SECRET: Final = "it does not prove the group's secret (key dLegerGroupSecretFile)"
ANOTHER_SECRET: Final = "another group secret"
_PROOF_BYTES: Final = 32
_NO_PROOF: Final = bytes(_PROOF_BYTES)
_USE: Final = "slaves"
_PROTOCOL: Final = "ha 1"
NO_TLS: Final = "it connects without TLS (key tls.ledger.config.file)"

assert len(MARK) == 8 and MARK[0] & 0x80, "as a report the mark is negative"


class HaAdmission:
    """What one end asks of the other."""

    def __init__(
        self,
        group: str,
        secret: GroupSecret | None,
        *,
        is_required: bool,
        networks: tuple[Network, ...] | None,
        needs_tls: bool = False,
    ) -> None:
        """
        Args:
            group: the name that a master and its slaves share.
            secret: None where there is none.
            is_required: whether who does not prove it is refused.
            networks: from where slaves are served that prove nothing; None: as `is_required` says.
            needs_tls: whether who proves the secret without TLS is refused.
        """
        self.needs_tls = needs_tls
        self._group = group
        self.key = None if secret is None else secret.key(_USE)
        self.is_closed = self.key is not None and is_required
        self._networks = networks

    @property
    def greets(self) -> bool:
        """Whether a master looks at what comes first on a connection."""
        return self.key is not None or self._networks is not None or self.needs_tls

    def refusal_of_plain(self, host: str) -> str | None:
        """Says why a slave that proves nothing is not served; None when it is."""
        if self._networks is None:
            return NO_SECRET if self.is_closed else None
        try:
            source = ip_address(host.partition("%")[0])
        except ValueError:
            source = None
        if source is not None and any(source in network for network in self._networks):
            return None
        return f"{host} may not copy without the group's secret (key haSlaveAddresses)"

    def challenge(self, slave_nonce: str, master_nonce: str, binding: str) -> Challenge:
        """Returns what both ends prove; `binding` is that of TLS, empty without it."""
        protocol = f"{_PROTOCOL} tls {binding}" if binding else _PROTOCOL
        return Challenge(protocol, self._group, "slave", "master", slave_nonce, master_nonce)


class MasterGreeting:
    """The master's end of one greeting.

    Attributes:
        is_done: what comes now are reports.
        doubt: why a slave that is served did not prove itself; None when it did.
    """

    def __init__(
        self, admission: HaAdmission, host: str, now_ms: float, binding: Callable[[], str]
    ) -> None:
        """Waits for the slave, at `host`; `binding` tells that of TLS when something has come."""
        self._admission = admission
        self._binding = binding
        self._host = host
        self.end_ms = now_ms + GREETING_MS_MAX
        self._buffer = b""
        self._challenge: Challenge | None = None
        self.is_done = False
        self.doubt: str | None = None

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """Takes bytes of the slave.

        Returns: what to send to it, and bytes behind the greeting once it is done.

        Raises:
            ReplicationError: it is refused.
        """
        self._buffer += data
        if self._challenge is not None:
            return b"", self._take_proof()
        if len(self._buffer) < len(MARK) and MARK.startswith(self._buffer):
            return b"", b""
        if not self._buffer.startswith(MARK):
            refusal = self._admission.refusal_of_plain(self._host)
            if refusal is not None:
                raise ReplicationError(refusal)
            if self._admission.key is not None:
                self.doubt = NO_SECRET
            return b"", self._finish(0)
        key, end = self._admission.key, len(MARK) + NONCE_BYTES
        if key is None:
            raise ReplicationError("it proves a secret, and this master has none")
        binding = self._binding()
        if self._admission.needs_tls and not binding:
            raise ReplicationError(NO_TLS)
        if len(self._buffer) < end:
            return b"", b""
        own = draw_nonce()
        slave_nonce = self._buffer[len(MARK) : end].hex()
        self._challenge = self._admission.challenge(slave_nonce, own, binding)
        self._buffer = self._buffer[end:]
        proof = self._challenge.proof(key, Side.ANSWERER)
        return MARK + bytes.fromhex(own) + bytes.fromhex(proof), self._take_proof()

    def _take_proof(self) -> bytes:
        key, challenge = self._admission.key, self._challenge
        assert key is not None and challenge is not None
        if len(self._buffer) < _PROOF_BYTES:
            return b""
        proof = self._buffer[:_PROOF_BYTES].hex()
        if not challenge.is_proven(key, Side.OPENER, proof):
            if self._admission.is_closed:
                raise ReplicationError(ANOTHER_SECRET)
            self.doubt = ANOTHER_SECRET
        return self._finish(_PROOF_BYTES)

    def _finish(self, taken: int) -> bytes:
        rest, self._buffer = self._buffer[taken:], b""
        self.is_done = True
        return rest


class SlaveGreeting:
    """The slave's end of one greeting; attributes as those of MasterGreeting."""

    def __init__(self, admission: HaAdmission, now_ms: float, binding: Callable[[], str]) -> None:
        """Has `opening` to be sent; `binding` tells that of TLS when something has come."""
        assert admission.key is not None
        self._binding = binding
        self._admission, self._key = admission, admission.key
        self._nonce = draw_nonce()
        self.end_ms = now_ms + GREETING_MS_MAX
        self.opening = MARK + bytes.fromhex(self._nonce)
        self._buffer = b""
        self.is_done = False
        self.doubt: str | None = None

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """Takes bytes of the master; see MasterGreeting.feed.

        Raises:
            ReplicationError: the master does not prove itself, and has to.
        """
        self._buffer += data
        buffer, nonce_end = self._buffer, len(MARK) + NONCE_BYTES
        if not buffer.startswith(MARK[: len(buffer)]):
            raise ReplicationError(f"the master at the other end: {NO_SECRET}")
        end = nonce_end + _PROOF_BYTES
        if len(buffer) < end:
            return b"", b""
        master_nonce = buffer[len(MARK) : nonce_end].hex()
        challenge = self._admission.challenge(self._nonce, master_nonce, self._binding())
        proof = _NO_PROOF
        if challenge.is_proven(self._key, Side.ANSWERER, buffer[nonce_end:end].hex()):
            proof = bytes.fromhex(challenge.proof(self._key, Side.OPENER))
        elif self._admission.is_closed:
            raise ReplicationError(f"the master at the other end: {ANOTHER_SECRET}")
        else:
            self.doubt = ANOTHER_SECRET
        self._buffer, self.is_done = b"", True
        return proof, buffer[end:]
