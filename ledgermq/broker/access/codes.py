"""The table of request codes: what each takes, for the guard and for people.

Upstream checks a handful of codes and lets every account do all others, among them changing the
rules and reading any message by its place. Here a code has one of three kinds of row:

    touches    topics and groups named by the request, each with the permission it takes; the rows
               that upstream has mean the same here
    shows      any account may ask that has a right to something; the answer names what that account
               has a right to, as if nothing else were there (`broker/sight.py`)
    admin      an admin alone: changes, secrets, and what tells of the whole broker

A code without a row is refused, also to an admin: a new processor needs a row first.

Source: `PlainAccessValidator.java`.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeVar

from ledgermq.broker.access import needs
from ledgermq.broker.access.needs import Surroundings, Touches
from ledgermq.broker.access.rights import Need, group_needs, topic_needs
from ledgermq.broker.access.rules import Permission
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers import (
    CloneGroupOffsetRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumerListByGroupRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    GetConsumeStatsRequestHeader,
    GetEarliestMsgStoretimeRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    GetProducerConnectionListRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
    Header,
    PullMessageRequestHeader,
    QueryConsumeQueueRequestHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QueryMessageRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
    ResetOffsetRequestHeader,
    SearchOffsetRequestHeader,
    UnregisterClientRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from ledgermq.state.errors import AccessDeniedError

_H = TypeVar("_H", bound=Header)


class Row(NamedTuple):
    """What one request code takes."""

    # In words, for docs/security.md.
    wants: str
    # None: an admin.
    touches: Touches | None


def needs_of(command: RemotingCommand, around: Surroundings) -> Iterable[Need] | None:
    """Returns what a request touches; None when it takes an admin.

    They are found one by one, as far as somebody asks: nothing more is read for who has no right to
    the first. To ask raises BrokerError for a send that breaks a limit, and besides:

    Raises:
        AccessDeniedError: nothing says what the code takes, or it names a place in the log where
            nothing is that can be judged.
        RemoteProtocolError: the request does not say what is touched.
    """
    row = CODES.get(command.code)
    if row is None:
        raise no_row(command.code)
    return None if row.touches is None else row.touches(command, around)


def no_row(code: int) -> AccessDeniedError:
    """Returns why a code that is not in the table is refused."""
    return AccessDeniedError(f"request code={code} is none that an account may use")


def describe() -> str:
    """Returns the table as Markdown, in the order of the codes."""
    lines = ["| code | request | takes |", "|---|---|---|"]
    lines += [
        f"| {code} | `{RequestCode(code).name}` | {row.wants} |"
        for code, row in sorted(CODES.items())
    ]
    return "\n".join(lines) + "\n"


def _named(wants: str, header_class: type[_H], find: Callable[[_H], Iterable[Need]]) -> Row:
    """A row whose needs stand in the header."""
    return Row(wants, lambda command, around: find(command.header(header_class)))


def _any_of_topic(header_class: type[_H], name_of: Callable[[_H], str | None]) -> Row:
    return _named(
        "PUB or SUB on the topic",
        header_class,
        lambda header: topic_needs(name_of(header) or "", Permission.ANY),
    )


def _of_group(header_class: type[_H], name_of: Callable[[_H], str | None]) -> Row:
    return _named(
        "SUB on the group", header_class, lambda header: group_needs(name_of(header) or "")
    )


def _read_as(
    header_class: type[_H], names_of: Callable[[_H], tuple[str | None, str | None]]
) -> Row:
    return _named(
        "SUB on the topic and on the group",
        header_class,
        lambda header: needs.consume(*names_of(header)),
    )


_CODE = RequestCode
_ADMIN: Final = Row("admin", None)
_SHOWS_TOPICS: Final = Row(
    "any right; shows the topics that the account has a right to", needs.of_anybody
)
_SHOWS_GROUPS: Final = Row(
    "any right; shows the groups that the account has a right to", needs.of_anybody
)
_SHOWS_PAIRS: Final = Row(
    "any right; shows the groups and topics that the account has a right to", needs.of_anybody
)
_SEND: Final = Row(
    "PUB on the topic and on light queues that are named; SUB on the group of a retry topic, and on"
    " the topic that a retry or a dead letter names",
    needs.send,
)
_REPLY: Final = Row(
    "any right for the reply topic of the cluster, PUB on light queues that are named; else as a"
    " send",
    needs.reply,
)
_PULL: Final = _read_as(
    PullMessageRequestHeader, lambda header: (header.topic, header.consumer_group)
)
_LOCK: Final = Row("SUB on the group and on the topics", needs.lock)
# What clients do with messages and offsets.
_MESSAGES: Final[dict[int, Row]] = {
    _CODE.SEND_MESSAGE: _SEND,
    _CODE.SEND_MESSAGE_V2: _SEND,
    _CODE.SEND_BATCH_MESSAGE: _SEND,
    _CODE.SEND_REPLY_MESSAGE: _REPLY,
    _CODE.SEND_REPLY_MESSAGE_V2: _REPLY,
    _CODE.CONSUMER_SEND_MSG_BACK: Row(
        "SUB on the message's topic and on the group, PUB on the origin topic if named",
        needs.send_back,
    ),
    _CODE.END_TRANSACTION: Row(
        "PUB on the topic that the half message is for, which is of the same account",
        needs.end_transaction,
    ),
    _CODE.PULL_MESSAGE: _PULL,
    _CODE.LITE_PULL_MESSAGE: _PULL,
    _CODE.QUERY_CONSUMER_OFFSET: _read_as(
        QueryConsumerOffsetRequestHeader, lambda header: (header.topic, header.consumer_group)
    ),
    _CODE.UPDATE_CONSUMER_OFFSET: _read_as(
        UpdateConsumerOffsetRequestHeader, lambda header: (header.topic, header.consumer_group)
    ),
    _CODE.QUERY_MESSAGE: _named(
        "SUB on the topic",
        QueryMessageRequestHeader,
        lambda header: topic_needs(header.topic, Permission.SUB),
    ),
    _CODE.VIEW_MESSAGE_BY_ID: Row("SUB on the topics of the message", needs.view),
    _CODE.SEARCH_OFFSET_BY_TIMESTAMP: _any_of_topic(
        SearchOffsetRequestHeader, lambda header: header.topic
    ),
    _CODE.GET_MAX_OFFSET: _any_of_topic(GetMaxOffsetRequestHeader, lambda header: header.topic),
    _CODE.GET_MIN_OFFSET: _any_of_topic(GetMinOffsetRequestHeader, lambda header: header.topic),
    _CODE.GET_EARLIEST_MSG_STORETIME: _any_of_topic(
        GetEarliestMsgStoretimeRequestHeader, lambda header: header.topic
    ),
}
# What clients tell about themselves, and ask about their groups.
_CLIENTS: Final[dict[int, Row]] = {
    _CODE.HEART_BEAT: Row(
        "any right, SUB on each group and each topic that it subscribes to", needs.heart_beat
    ),
    _CODE.UNREGISTER_CLIENT: _named(
        "any right, SUB on the consumer group if named",
        UnregisterClientRequestHeader,
        lambda header: group_needs(header.consumer_group or None),
    ),
    _CODE.GET_CONSUMER_LIST_BY_GROUP: _of_group(
        GetConsumerListByGroupRequestHeader, lambda header: header.consumer_group
    ),
    _CODE.CHECK_CLIENT_CONFIG: Row("SUB on the topic and on the group", needs.check_client),
    _CODE.LOCK_BATCH_MQ: _LOCK,
    _CODE.UNLOCK_BATCH_MQ: _LOCK,
}
# What tools ask about what an account has a right to, or do with it.
_TOOLS: Final[dict[int, Row]] = {
    _CODE.INVOKE_BROKER_TO_RESET_OFFSET: _read_as(
        ResetOffsetRequestHeader, lambda header: (header.topic, header.group)
    ),
    _CODE.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _read_as(
        GetConsumerStatusRequestHeader, lambda header: (header.topic, header.group)
    ),
    _CODE.QUERY_CONSUME_QUEUE: _named(
        "SUB on the topic, and on the group if named",
        QueryConsumeQueueRequestHeader,
        lambda header: needs.consume(header.topic or "", header.consumer_group or None),
    ),
    _CODE.CONSUME_MESSAGE_DIRECTLY: Row(
        "SUB on the message's topics and on the group", needs.consume_directly
    ),
    _CODE.CLONE_GROUP_OFFSET: _named(
        "SUB on both groups, and on the topic if named; takes the offsets of topics that the"
        " account has a right to",
        CloneGroupOffsetRequestHeader,
        lambda header: [
            *group_needs(header.src_group),
            *needs.consume(header.topic or None, header.dest_group),
        ],
    ),
    _CODE.GET_TOPIC_CONFIG: _any_of_topic(GetTopicConfigRequestHeader, lambda h: h.topic),
    _CODE.GET_TOPIC_STATS_INFO: _any_of_topic(GetTopicStatsInfoRequestHeader, lambda h: h.topic),
    _CODE.QUERY_TOPIC_CONSUME_BY_WHO: _named(
        "PUB or SUB on the topic; shows the groups that the account has a right to",
        QueryTopicConsumeByWhoRequestHeader,
        lambda header: topic_needs(header.topic, Permission.ANY),
    ),
    _CODE.GET_SUBSCRIPTIONGROUP_CONFIG: _of_group(
        GetSubscriptionGroupConfigRequestHeader, lambda header: header.group
    ),
    _CODE.GET_CONSUMER_CONNECTION_LIST: _of_group(
        GetConsumerConnectionListRequestHeader, lambda header: header.consumer_group
    ),
    _CODE.GET_PRODUCER_CONNECTION_LIST: _of_group(
        GetProducerConnectionListRequestHeader, lambda header: header.producer_group
    ),
    _CODE.GET_CONSUMER_RUNNING_INFO: _of_group(
        GetConsumerRunningInfoRequestHeader, lambda header: header.consumer_group
    ),
    _CODE.GET_CONSUME_STATS: _named(
        "SUB on the group, PUB or SUB on the topic if named; shows the topics that the account has"
        " a right to",
        GetConsumeStatsRequestHeader,
        lambda header: [
            *group_needs(header.consumer_group),
            *topic_needs(header.topic or None, Permission.ANY),
        ],
    ),
    _CODE.QUERY_CONSUME_TIME_SPAN: _read_as(
        QueryConsumeTimeSpanRequestHeader, lambda header: (header.topic, header.group)
    ),
    _CODE.VIEW_BROKER_STATS_DATA: Row(
        "PUB or SUB on the topic of the counter, SUB on its group; admin for the broker's own",
        needs.stats,
    ),
    _CODE.GET_ALL_TOPIC_CONFIG: _SHOWS_TOPICS,
    _CODE.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: Row(
        "any right; the names are the same on every broker", needs.of_anybody
    ),
    _CODE.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _SHOWS_GROUPS,
    _CODE.GET_ALL_PRODUCER_INFO: _SHOWS_GROUPS,
    _CODE.GET_ALL_CONSUMER_OFFSET: _SHOWS_PAIRS,
    _CODE.GET_BROKER_CONSUME_STATS: _SHOWS_PAIRS,
}
_OF_ADMINS: Final = (
    _CODE.UPDATE_AND_CREATE_TOPIC,
    _CODE.DELETE_TOPIC_IN_BROKER,
    _CODE.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    _CODE.DELETE_SUBSCRIPTIONGROUP,
    _CODE.UPDATE_BROKER_CONFIG,
    _CODE.GET_BROKER_CONFIG,
    _CODE.GET_BROKER_RUNTIME_INFO,
    _CODE.GET_ALL_DELAY_OFFSET,
    _CODE.QUERY_CORRECTION_OFFSET,
    _CODE.RESUME_CHECK_HALF_MESSAGE,
    _CODE.CLEAN_EXPIRED_CONSUMEQUEUE,
    _CODE.CLEAN_UNUSED_TOPIC,
    _CODE.DELETE_EXPIRED_COMMITLOG,
    _CODE.UPDATE_AND_CREATE_ACL_CONFIG,
    _CODE.DELETE_ACL_CONFIG,
    _CODE.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
    _CODE.GET_BROKER_CLUSTER_ACL_INFO,
    _CODE.GET_BROKER_CLUSTER_ACL_CONFIG,
)
# By request code; exactly the codes that have a processor.
CODES: Final[dict[int, Row]] = {
    **_MESSAGES,
    **_CLIENTS,
    **_TOOLS,
    **dict.fromkeys(_OF_ADMINS, _ADMIN),
}
