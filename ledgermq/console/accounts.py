"""Accounts and rules of access, as brokers tell them (54); without secrets."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ledgermq.console.cluster import ClusterView, Target
from ledgermq.console.tally import Tally
from ledgermq.protocol import lenient_json
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.json_body import read_plain


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


def _read(answer: RemotingCommand) -> tuple[dict[str, AccountRules], tuple[str, ...]]:
    document = read_plain(lenient_json.read(answer.body), dict[str, Any])
    accounts = read_plain(document.get("plainAccessConfigs") or [], list[dict[str, Any]])
    addresses = read_plain(document.get("globalWhiteAddrs") or [], list[str])
    return (
        {str(one.get("accessKey") or ""): _account(one) for one in accounts},
        tuple(addresses),
    )


def _account(one: Mapping[str, Any]) -> AccountRules:
    return AccountRules(
        is_admin=one.get("admin") is True,
        addresses=str(one.get("whiteRemoteAddress") or ""),
        default_topic=str(one.get("defaultTopicPerm") or "DENY"),
        default_group=str(one.get("defaultGroupPerm") or "DENY"),
        topics=tuple(map(str, one.get("topicPerms") or ())),
        groups=tuple(map(str, one.get("groupPerms") or ())),
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
