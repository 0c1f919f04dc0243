"""Cases against closed programs: frames that are almost right, signed before or after that.

What was changed before it is signed passes the guard, and shows what processors do with it; what is
changed afterwards shows what the guard does. A slave that knows the secret of the group, and then
talks nonsense, is a case, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any, Final

from ledgermq.broker.ha.greetings import MARK
from ledgermq.protocol.command import decode, encode
from ledgermq.protocol.errors import ProtocolError
from ledgermq.protocol.group_secret import GroupSecret
from ledgermq.protocol.member_proof import Challenge, Side
from ledgermq.protocol.signature import Credentials
from tests.attack.mutations import mutated

ADMIN: Final = Credentials(access_key="root-app", secret_key="secret-of-root")
SMALL: Final = Credentials(access_key="small-app", secret_key="secret-of-small")
RULES: Final = """
accounts:
- {accessKey: root-app, secretKey: secret-of-root, admin: true}
- {accessKey: small-app, secretKey: secret-of-small, topicPerms: [Fuzzed=PUB|SUB],
   groupPerms: [cg=SUB], brokerNames: [cg]}
"""
SECRET: Final = b"secret-of-the-group, 32 bytes or more"
_SIGNERS: Final = (
    ADMIN,
    ADMIN,
    SMALL,
    replace(ADMIN, form="strong"),
    replace(SMALL, form="strong"),
)
# A challenge of the port for slaves: its mark, nonce and proof.
_CHALLENGE_BYTES: Final = 72


def draw(rng: Random, frames: Sequence[bytes]) -> bytes:
    """Returns a case: changed before it is signed, afterwards, or both."""
    order = rng.choice(("before", "after", "both"))
    data = rng.choice(frames) if order == "after" else mutated(rng, frames)
    data = signed(data, rng.choice(_SIGNERS))
    return data if order == "before" else mutated(rng, [data])


def signed(data: bytes, who: Credentials) -> bytes:
    """Returns a frame with a signature; as it is when it cannot have one."""
    if len(data) != int.from_bytes(data[:4], "big") + 4:
        return data
    try:
        command = decode(data[4:])
        command.ext_fields = who.signed(command.ext_fields, command.body, command.code)
        return encode(command)
    except (ProtocolError, UnicodeError):
        return data


def greet_as_slave(protocol: Any, link: Any) -> None:
    """Proves the secret to a master; what comes then is a slave's."""
    nonce = bytes(range(32))
    link.keeps = True
    protocol.dataReceived(MARK + nonce)
    told = link.kept[:_CHALLENGE_BYTES]
    assert len(told) == _CHALLENGE_BYTES, "the master says nothing"
    challenge = Challenge("ha 1", "broker-a", "slave", "master", nonce.hex(), told[8:40].hex())
    proof = challenge.proof(GroupSecret(SECRET).key("slaves"), Side.OPENER)
    link.keeps = False
    protocol.dataReceived(bytes.fromhex(proof))
