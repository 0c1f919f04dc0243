"""What two members of LedgerMQ say when a connection opens, before any message of the core.

HELLO names group, both members, the version of the frames and the segment size, the sender's
cluster id and member list (`membership.py`), what its applier reads of the log and needs
(`formats.py`), and its flush mode; the answer has the last four, too. Where both have the group's
secret, the answer is a challenge, and PROOF follows before anything else
(`protocol/member_proof.py`). Bodies are JSON. No I/O.
"""

from typing import Annotated, Final

import msgspec

from ledgermq.dledger.formats import FORMAT_MAX, OLDEST, Formats
from ledgermq.dledger.membership import Cluster
from ledgermq.dledger.replica.config import FlushDiskType
from ledgermq.protocol.errors import RemoteProtocolError

# Of this format; a peer with another one is rejected.
WIRE_VERSION: Final = 4


_ClusterId = Annotated[str, msgspec.Meta(pattern=r"^([0-9a-f]{32})?\Z")]
_Members = Annotated[
    tuple[Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_]{1,64}\Z")], ...],
    msgspec.Meta(max_length=128),
]
_Format = Annotated[int, msgspec.Meta(ge=OLDEST, le=FORMAT_MAX)]


class Hello(msgspec.Struct, kw_only=True):
    """Who opens a connection to whom; the body of HELLO, as JSON."""

    version: int = WIRE_VERSION
    group: str
    sender: str
    target: str
    segment_bytes: int
    # Empty before the group is bootstrapped.
    cluster_id: _ClusterId = ""
    members: _Members
    reads: _Format = OLDEST
    needs: _Format = OLDEST
    # When entries count as written at the sender.
    flush_mode: FlushDiskType | None = None
    # Empty: the sender has no secret.
    nonce: str = ""

    @property
    def formats(self) -> Formats:
        """What the sender's applier reads and needs."""
        return Formats(self.reads, self.needs)

    @property
    def cluster(self) -> Cluster:
        """What the sender knows of its group."""
        return Cluster(self.cluster_id, self.members)


class HelloAnswer(msgspec.Struct, kw_only=True):
    """What the member that HELLO came to tells of itself, refused or not, as JSON."""

    reads: _Format = OLDEST
    needs: _Format = OLDEST
    lacks_state: bool = False
    flush_mode: FlushDiskType | None = None
    # As in HELLO; None before the other end has proven itself.
    cluster_id: _ClusterId = ""
    members: _Members | None = None
    # Its challenge, and its proof; both empty where one of the two has no secret.
    nonce: str = ""
    proof: str = ""

    @property
    def formats(self) -> Formats:
        """What the applier of who answers reads and needs."""
        return Formats(self.reads, self.needs, self.lacks_state)

    @property
    def cluster(self) -> Cluster | None:
        """What the member that answers knows of its group; None where it does not say."""
        return None if self.members is None else Cluster(self.cluster_id, self.members)


class Proof(msgspec.Struct, kw_only=True):
    """What the opener of a connection answers to a challenge; the body of PROOF, as JSON."""

    # Empty: the other end did not prove itself, so that it gets none.
    proof: str


_encode_hello = msgspec.json.Encoder().encode
_decode_hello = msgspec.json.Decoder(Hello).decode
_decode_hello_answer = msgspec.json.Decoder(HelloAnswer).decode
_decode_proof = msgspec.json.Decoder(Proof).decode


def encode_hello(hello: Hello) -> bytes:
    """Returns the body of HELLO."""
    return _encode_hello(hello)


def decode_hello(body: bytes) -> Hello:
    """Reads the body of HELLO.

    Raises:
        RemoteProtocolError: it is not a JSON object with these members.
    """
    try:
        return _decode_hello(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise RemoteProtocolError("body of HELLO", str(error), "a JSON object") from error


def encode_hello_answer(
    formats: Formats,
    cluster: Cluster | None = None,
    *,
    nonce: str = "",
    proof: str = "",
    flush_mode: FlushDiskType | None = None,
) -> bytes:
    """Returns the body of an answer to HELLO or PROOF."""
    answer = HelloAnswer(
        reads=formats.reads,
        needs=formats.needs,
        lacks_state=formats.lacks_state,
        flush_mode=flush_mode,
        nonce=nonce,
        proof=proof,
    )
    if cluster is not None:
        answer.cluster_id, answer.members = cluster
    return _encode_hello(answer)


def decode_hello_answer(body: bytes) -> HelloAnswer:
    """Reads the body of an answer to HELLO or PROOF; one that is empty tells nothing.

    Raises:
        RemoteProtocolError: it is not a JSON object with these members.
    """
    try:
        return _decode_hello_answer(body) if body else HelloAnswer()
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise RemoteProtocolError("answer to HELLO", str(error), "a JSON object") from error


def encode_proof(proof: str) -> bytes:
    """Returns the body of PROOF."""
    return _encode_hello(Proof(proof=proof))


def decode_proof(body: bytes) -> str:
    """Reads the body of PROOF.

    Raises:
        RemoteProtocolError: it is not a JSON object with these members.
    """
    try:
        return _decode_proof(body).proof
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise RemoteProtocolError("body of PROOF", str(error), "a JSON object") from error
