"""The requests that change something, for the audit log: what each changes, and what that is now.

A row looks at the thing before the request is answered and after; what it shows goes into a file
that is kept, so nothing here shows a message or the secret of an account.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from ledgermq.broker.access.rules import AccessRules, Account
from ledgermq.broker.access.rules_table import RulesTable
from ledgermq.broker.config.broker_config import BrokerConfig, effective_properties
from ledgermq.protocol.bodies import SubscriptionGroupConfig
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers import (
    CloneGroupOffsetRequestHeader,
    CreateAccessConfigRequestHeader,
    CreateTopicRequestHeader,
    DeleteAccessConfigRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    DeleteTopicRequestHeader,
    ResetOffsetRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
)
from ledgermq.protocol.properties_file import parse_properties
from ledgermq.state.broker_state import BrokerState

# Settings of one request that are looked at.
_SETTINGS_MAX: Final = 50
_CODE = RequestCode


class Tables(NamedTuple):
    """What rows look at."""

    state: BrokerState
    config: BrokerConfig
    # None while access control is off.
    rules: RulesTable | None


class Target(NamedTuple):
    """What one request is about."""

    # A kind and a name: "topic orders".
    name: str
    # What it is at the moment; None: nothing that could be shown.
    look: Callable[[], Any]


# Raises any Exception for a request that does not say what it is about.
Find = Callable[[RemotingCommand, Tables], Target]


def _topic(name: str, tables: Tables) -> Target:
    def look() -> Any:
        topic = tables.state.topics.find(name)
        return None if topic is None else topic.to_json()

    return Target(f"topic {name}", look)


def _group(name: str, tables: Tables) -> Target:
    def look() -> Any:
        group = tables.state.groups.find(name)
        return None if group is None else group.to_json()

    return Target(f"group {name}", look)


def _offsets(group: str, topic: str, tables: Tables) -> Target:
    def look() -> Any:
        if not topic:
            return None
        offsets = tables.state.offsets.of_topic(group, topic)
        return {str(queue_id): offset for queue_id, offset in sorted(offsets.items())} or None

    where = f" on topic {topic}" if topic else ""
    return Target(f"offsets of group {group}{where}", look)


def _account(name: str, tables: Tables) -> Target:
    def look() -> Any:
        return None if tables.rules is None else _shown(tables.rules.rules.accounts.get(name))

    return Target(f"account {name}", look)


def _shown(account: Account | None) -> dict[str, Any] | None:
    """What an account may do, without its secret."""
    if account is None:
        return None
    return {key: value for key, value in account.source.items() if key != "secretKey"}


def differences(before: AccessRules, after: AccessRules) -> tuple[Any, Any]:
    """What two sets of rules have that is not the same; of a secret, that it is another one."""
    sides: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    for name in sorted(before.accounts.keys() | after.accounts.keys()):
        pair = before.accounts.get(name), after.accounts.get(name)
        known, found = pair
        if known is not None and found is not None and known.source == found.source:
            continue
        for side, account in zip(sides, pair, strict=True):
            side[name] = _shown(account)
        if known is not None and found is not None and known.secret_key != found.secret_key:
            sides[1][name]["secret"] = "another one"
    addresses = [[pattern.text for pattern in rules.white_addresses] for rules in (before, after)]
    if addresses[0] != addresses[1]:
        for side, texts in zip(sides, addresses, strict=True):
            side["addresses that need no account"] = texts
    return sides


def _white_addresses(command: RemotingCommand, tables: Tables) -> Target:
    def look() -> Any:
        if tables.rules is None:
            return None
        return [pattern.text for pattern in tables.rules.rules.white_addresses]

    return Target("addresses that need no account", look)


def _settings(command: RemotingCommand, tables: Tables) -> Target:
    names = sorted(parse_properties(command.body.decode("utf-8")))[:_SETTINGS_MAX]

    def look() -> Any:
        values = effective_properties(tables.config)
        return {name: values[name] for name in names if name in values}

    return Target(f"settings {', '.join(names)}", look)


def _nothing_shown(name: str) -> Find:
    return lambda command, tables: Target(name, lambda: None)


def _named_group(command: RemotingCommand, tables: Tables) -> Target:
    return _group(SubscriptionGroupConfig.decode(command.body).group_name, tables)


def _reset(command: RemotingCommand, tables: Tables) -> Target:
    header = command.header(ResetOffsetRequestHeader)
    return _offsets(header.group, header.topic, tables)


def _clone(command: RemotingCommand, tables: Tables) -> Target:
    header = command.header(CloneGroupOffsetRequestHeader)
    return _offsets(header.dest_group, header.topic or "", tables)


def _half_message(command: RemotingCommand, tables: Tables) -> Target:
    header = command.header(ResumeCheckHalfMessageRequestHeader)
    return Target(f"half message {header.msg_id}", lambda: None)


# By request code.
CHANGES: Final[Mapping[int, Find]] = {
    _CODE.UPDATE_AND_CREATE_TOPIC: lambda command, tables: _topic(
        command.header(CreateTopicRequestHeader).topic, tables
    ),
    _CODE.DELETE_TOPIC_IN_BROKER: lambda command, tables: _topic(
        command.header(DeleteTopicRequestHeader).topic, tables
    ),
    _CODE.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _named_group,
    _CODE.DELETE_SUBSCRIPTIONGROUP: lambda command, tables: _group(
        command.header(DeleteSubscriptionGroupRequestHeader).group_name, tables
    ),
    _CODE.UPDATE_BROKER_CONFIG: _settings,
    _CODE.UPDATE_AND_CREATE_ACL_CONFIG: lambda command, tables: _account(
        command.header(CreateAccessConfigRequestHeader).access_key, tables
    ),
    _CODE.DELETE_ACL_CONFIG: lambda command, tables: _account(
        command.header(DeleteAccessConfigRequestHeader).access_key, tables
    ),
    _CODE.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: _white_addresses,
    _CODE.INVOKE_BROKER_TO_RESET_OFFSET: _reset,
    _CODE.CLONE_GROUP_OFFSET: _clone,
    _CODE.RESUME_CHECK_HALF_MESSAGE: _half_message,
    _CODE.CLEAN_EXPIRED_CONSUMEQUEUE: _nothing_shown("queues without messages"),
    _CODE.CLEAN_UNUSED_TOPIC: _nothing_shown("queues of topics that are gone"),
    _CODE.DELETE_EXPIRED_COMMITLOG: _nothing_shown("messages that have expired"),
}
