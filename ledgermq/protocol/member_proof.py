"""Proofs that two ends of a connection know the same secret, without telling it.

    opener                                   answerer
    who it is, whom it means, nonce A  ->
                                       <-    nonce B, proof of the answerer
    proof of the opener                ->
                                       <-    taken, or not

A proof is HMAC-SHA256, with a key made of the secret, over all that the two have agreed on: the
protocol and its version, the group, the names of both, both nonces, and which of them proves. So no
proof serves on another connection, for another member or another group, and none can be sent back
to who made it. Nonces are drawn for each connection. Proofs are compared in constant time.

What a proof says is who connects. It does not guard what follows on the connection against somebody
who stands between the two: TLS does.
"""

import hmac
import re
import secrets
from enum import Enum
from struct import Struct
from typing import Final, NamedTuple

NONCE_BYTES: Final = 32
_HEX: Final = re.compile(r"[0-9a-f]{64}")
# 4 length of the field that follows
_LENGTH: Final = Struct(">I")


class Side(Enum):
    """Which end of a connection proves."""

    OPENER = "opener"
    ANSWERER = "answerer"


class Challenge(NamedTuple):
    """What the two ends of a connection have agreed on; equal at both."""

    # Name and version of what is spoken, as "ledger 3".
    protocol: str
    group: str
    # Names of the two members.
    opener: str
    answerer: str
    # As `draw_nonce` gives them.
    opener_nonce: str
    answerer_nonce: str

    def proof(self, key: bytes, side: Side) -> str:
        """Returns what one end sends.

        Args:
            key: of the secret, for this use alone.
            side: the end that proves.
        """
        fields = ("LedgerMQ", *self, side.value)
        parts = [part for field in fields for part in _parts(field)]
        return hmac.digest(key, b"".join(parts), "sha256").hex()

    def is_proven(self, key: bytes, side: Side, proof: str) -> bool:
        """Tells whether what came is the proof of the other end.

        Args:
            key: as the other end has it, if it knows the secret.
            side: the end that proves.
            proof: what came; any text.
        """
        right = self.proof(key, side)
        return proof.isascii() and hmac.compare_digest(right, proof)


def _parts(field: str) -> tuple[bytes, bytes]:
    data = field.encode()
    return _LENGTH.pack(len(data)), data


def draw_nonce() -> str:
    """Returns 32 bytes that nobody can foretell, as 64 hexadecimal digits."""
    return secrets.token_hex(NONCE_BYTES)


def is_nonce(text: str) -> bool:
    """Tells whether a text is a nonce."""
    return _HEX.fullmatch(text) is not None
