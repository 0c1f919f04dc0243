"""Accounts and rules of access, as brokers tell them (54); without secrets."""

from collections.abc import Iterable, Mapping
from typing import ClassVar, NamedTuple

from ledgermq.console.answers import NAMES_MAX, check_objects
from ledgermq.console.cluster import ClusterView, Target
from ledgermq.console.tally import Tally
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.json_body import REQUEST_DIALECT_BYTES_MAX, JsonBody


class AccountRules(NamedTuple):
    """One account."""

    is_admin: bool
    addresses: str
    default_topic: str
    default_group: str
    topics: tuple[str, ...]
    groups: tuple[str, ...]


class Rules(NamedTuple):
    """The rules of one broker."""

    target: Target
    accounts: Mapping[str, AccountRules]
    open_addresses: tuple[str, ...]


async def load_rules(view: ClusterView, tally: Tally, targets: Iterable[Target]) -> list[Rules]:
    """Returns the rules of brokers that tell them."""
    found = await view.each(tally, targets, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG, read=_read)
    return [Rules(target, *told) for target, told in found]


class _Account(JsonBody, frozen=True):
    """PlainAccessConfig, without its secret."""

    access_key: str | None = None
    admin: bool | None = None
    white_remote_address: str | None = None
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: list[str] | None = None
    group_perms: list[str] | None = None


class _AccountTable(JsonBody, frozen=True):
    """AclConfig: the answer to 54."""

    dialect_bytes_max: ClassVar[int] = REQUEST_DIALECT_BYTES_MAX

    plain_access_configs: list[_Account] | None = None
    global_white_addrs: list[str] | None = None


def read_accounts(body: bytes) -> tuple[dict[str, AccountRules], tuple[str, ...]]:
    """Reads the answer to 54: the rules by access key, and addresses that need no account.

    Raises:
        RemoteProtocolError: it is none, or has too many of them.
    """
    check_objects(body, NAMES_MAX)
    table = _AccountTable.decode(body)
    return (
        {one.access_key or "": _account(one) for one in table.plain_access_configs or ()},
        tuple(table.global_white_addrs or ()),
    )


def _read(answer: RemotingCommand) -> tuple[dict[str, AccountRules], tuple[str, ...]]:
    return read_accounts(answer.body)


def _account(one: _Account) -> AccountRules:
    return AccountRules(
        is_admin=one.admin is True,
        addresses=one.white_remote_address or "",
        default_topic=one.default_topic_perm or "DENY",
        default_group=one.default_group_perm or "DENY",
        topics=tuple(one.topic_perms or ()),
        groups=tuple(one.group_perms or ()),
    )


def text_of_account(one: AccountRules | None) -> str:
    """Returns an account in words; nothing for none."""
    if one is None:
        return ""
    parts = ["admin: yes" if one.is_admin else "admin: no"]
    if one.addresses:
        parts.append(f"addresses: {one.addresses}")
    parts += [f"default topic: {one.default_topic}", f"default group: {one.default_group}"]
    if one.topics:
        parts.append(f"topics: {','.join(one.topics)}")
    if one.groups:
        parts.append(f"groups: {','.join(one.groups)}")
    return "; ".join(parts)
