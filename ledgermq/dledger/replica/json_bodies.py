"""The JSON bodies of DLedger's RPC, declared: one struct for each request and answer.

Keys are DLedger 0.3.1.2's (`protocol/*.java`), written in alphabetical order as its JSON library
writes them; a key whose value is UNSET is left out, as that library leaves out nulls. Unknown keys
are ignored, a missing key has Java's default, `byte[]` is Base64 with padding. Numbers are limited
to what a Java long holds. What the bodies mean is in `wire_json`.
"""

from typing import Annotated, Final

import msgspec
from msgspec import UNSET, UnsetType

I64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
I32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
# Absent, or null: both mean that Java has no value there.
Text = str | None | UnsetType
SUCCESS: Final = 200


class EntryBody(msgspec.Struct, rename="camel"):
    """One entry: the fields of its head, signed as Java has them, and its body."""

    body: bytes | None = None
    body_crc: I32 = 0
    chain_crc: I32 = 0
    channel: I32 = 0
    index: I64 = -1
    magic: I32 = 0
    pos: I64 = -1
    size: I32 = 0
    term: I64 = -1


class RpcBody(msgspec.Struct, rename="camel", kw_only=True):
    """The fields of every message; alone, the request METADATA."""

    code: I32 = SUCCESS
    group: Text = UNSET
    leader_id: Text = UNSET
    local_id: Text = UNSET
    remote_id: Text = UNSET
    term: I64 = -1


class VoteBody(msgspec.Struct, rename="camel", kw_only=True):
    """Request VOTE; the ends of the candidate's log are -1 when it is empty."""

    code: I32 = SUCCESS
    group: Text = UNSET
    leader_id: Text = UNSET
    ledger_end_index: I64 = -1
    ledger_end_term: I64 = -1
    local_id: Text = UNSET
    remote_id: Text = UNSET
    term: I64 = -1


class VoteAnswerBody(RpcBody, kw_only=True):
    """Answer to VOTE; `vote_result` is the name of a VoteResult."""

    vote_result: str | None = "UNKNOWN"


class PushBody(msgspec.Struct, rename="camel", kw_only=True):
    """Request PUSH. `batch`, `count` and the two indexes are written for the reader's convenience.

    Java computes them anew from the entries, so here they are not read: any value is accepted.
    """

    batch: object = False
    batch_entry: list[EntryBody] | None = msgspec.field(default_factory=list)
    code: I32 = SUCCESS
    commit_index: I64 = -1
    count: object = 0
    entry: EntryBody | None | UnsetType = UNSET
    first_entry_index: object = -1
    group: Text = UNSET
    last_entry_index: object = -1
    leader_id: Text = UNSET
    local_id: Text = UNSET
    remote_id: Text = UNSET
    term: I64 = -1
    total_size: I64 = 0
    type: str | None = "APPEND"


class PushAnswerBody(msgspec.Struct, rename="camel", kw_only=True):
    """Answer to PUSH; `index` is left out when the request carried no entry."""

    begin_index: I64 = -1
    code: I32 = SUCCESS
    count: I32 = 0
    end_index: I64 = -1
    group: Text = UNSET
    index: I64 | None | UnsetType = UNSET
    leader_id: Text = UNSET
    local_id: Text = UNSET
    remote_id: Text = UNSET
    term: I64 = -1


class MetadataAnswerBody(RpcBody, kw_only=True):
    """Answer to METADATA: member id -> "host:port"."""

    peers: dict[str, str] = msgspec.field(default_factory=dict)


class AppendBody(RpcBody, kw_only=True):
    """Request APPEND of a client: one body."""

    body: bytes | None = None


class AppendAnswerBody(RpcBody, kw_only=True):
    """Answer to APPEND of a client."""

    index: I64 = -1
    pos: I64 = -1


class GetBody(RpcBody, kw_only=True):
    """Request GET of a client; only the first index is used, as upstream."""

    begin_index: I64 = -1


class GetAnswerBody(RpcBody, kw_only=True):
    """Answer to GET: at most one entry."""

    entries: list[EntryBody] = msgspec.field(default_factory=list)


class TransferBody(msgspec.Struct, rename="camel", kw_only=True):
    """Request LEADERSHIP_TRANSFER, of a tool to the leader and of the leader to the transferee."""

    code: I32 = SUCCESS
    group: Text = UNSET
    leader_id: Text = UNSET
    local_id: Text = UNSET
    remote_id: Text = UNSET
    take_leadership_ledger_index: I64 = 0
    term: I64 = -1
    transfer_id: Text = UNSET
    transferee_id: Text = UNSET


RequestBody = RpcBody | VoteBody | PushBody | AppendBody | GetBody | TransferBody
