"""Groups: list, describe, delete, and how far they are behind."""

from collections.abc import Mapping, Sequence

from ledgermq.client.admin.asking import Asking, each
from ledgermq.client.admin.dead_letters import DeadLetters
from ledgermq.client.admin.lag import is_system_group, lag_of, lags, settings_on
from ledgermq.client.admin.results import (
    GroupDescription,
    GroupLag,
    GroupSummary,
    Member,
    MemberQueue,
)
from ledgermq.client.admin.topics import delete_topic, names_of_topics
from ledgermq.client.errors import ClientError, NotFoundError, RefusedError
from ledgermq.protocol.bodies import (
    ConsumerConnection,
    MessageQueue,
    SubscriptionGroupConfig,
)
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.headers import (
    DeleteSubscriptionGroupRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
)
from ledgermq.protocol.names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from ledgermq.protocol.running_info import ConsumerRunningInfo


async def groups(asking: Asking, *, with_members: bool) -> list[GroupSummary]:
    """Returns all groups that have settings, a retry topic or offsets, sorted by name."""
    addresses = list((await asking.leaders()).values())
    settings = await each(lambda address: settings_on(asking, address), addresses)
    behind = {lag.group: lag for lag in await lags(asking)}
    retried = {
        topic.removeprefix(RETRY_PREFIX)
        for topic in await names_of_topics(asking)
        if topic.startswith(RETRY_PREFIX)
    }
    names = sorted(
        name
        for name in retried | behind.keys() | {name for table in settings for name in table}
        if not is_system_group(name)
    )
    counts: list[int | None] = [None] * len(names)
    if with_members:
        counts = await each(lambda name: _member_count(asking, addresses, name), names)
    summaries = []
    for name, count in zip(names, counts, strict=True):
        lag = behind.get(name) or GroupLag(group=name, queues=())
        topics = {one.queue.topic for one in lag.queues}
        summaries.append(
            GroupSummary(
                name=name,
                topics=tuple(sorted(t for t in topics if not t.startswith(RETRY_PREFIX))),
                member_count=count,
                behind=lag.behind,
            )
        )
    return summaries


async def describe_group(asking: Asking, name: str) -> GroupDescription:
    """Returns all about one group.

    Raises:
        NotFoundError: no broker knows the group.
    """
    lag = await lag_of(asking, name)
    leaders = await asking.leaders()
    settings: dict[str, SubscriptionGroupConfig] = {}
    for broker_name, address in leaders.items():
        if (found := (await settings_on(asking, address)).get(name)) is not None:
            settings[broker_name] = found
    told = await _members(asking, list(leaders.values()), name)
    members, mode = told
    dead = await DeadLetters(asking, name).waiting_max()
    return GroupDescription(
        name=name,
        settings=settings,
        mode=mode,
        members=members,
        lag=lag,
        dead_letter_count=dead,
        problems=tuple(problems_of(members, mode, lag, settings, dead)),
    )


def problems_of(
    members: Sequence[Member],
    mode: str | None,
    lag: GroupLag,
    settings: Mapping[str, SubscriptionGroupConfig],
    dead_letter_count: int,
) -> list[str]:
    """Returns what is wrong with a group, in sentences."""
    problems = []
    if broker_names := sorted(name for name, one in settings.items() if not one.consume_enable):
        problems.append(f"consumption is switched off on {', '.join(broker_names)}")
    if not members and lag.behind:
        problems.append(f"nobody consumes: no member is connected, {lag.behind} messages wait")
    problems += _different_subscriptions(members)
    for member in members:
        if member.failure is not None:
            problems.append(f"member {member.client_id} does not tell its state: {member.failure}")
    told = [member for member in members if member.failure is None]
    if told and len(told) == len(members) and mode != "BROADCASTING":
        held = [one.queue for member in told for one in member.queues]
        wanted = {topic for member in told for topic in member.subscriptions or {}}
        for one in lag.queues:
            if one.queue.topic in wanted and held.count(one.queue) != 1:
                count = held.count(one.queue)
                problems.append(
                    f"queue {_shown(one.queue)} has {count or 'no'} members that read it,"
                    f" {one.behind} messages wait"
                )
    if dead_letter_count:
        problems.append(f"{dead_letter_count} dead letters: ledgermq dlq list shows them")
    return problems


def _different_subscriptions(members: Sequence[Member]) -> list[str]:
    """Members of one group have to want the same, for any of them may get any queue."""
    retry = RETRY_PREFIX
    wants: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for member in members:
        if member.subscriptions is not None:
            want = tuple(
                sorted(one for one in member.subscriptions.items() if not one[0].startswith(retry))
            )
            wants.setdefault(want, []).append(member.client_id)
    if len(wants) < 2:
        return []
    shown = "; ".join(
        f"{', '.join(ids)}: {', '.join(f'{topic} {text!r}' for topic, text in want) or 'nothing'}"
        for want, ids in sorted(wants.items())
    )
    return [f"members subscribe to different things, so messages are not delivered: {shown}"]


def _shown(queue: MessageQueue) -> str:
    return f"{queue.topic} {queue.broker_name}/{queue.queue_id}"


async def delete_group(
    asking: Asking, group: str, *, cluster: str | None, with_offsets: bool, with_topics: bool
) -> list[str]:
    """Deletes a group on the leaders of a cluster; returns their addresses."""
    header = DeleteSubscriptionGroupRequestHeader(group_name=group, remove_offset=with_offsets)
    addresses = list((await asking.leaders(cluster)).values())
    for address in addresses:
        await asking.call(address, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
    if with_topics:
        for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
            await delete_topic(asking, prefix + group, cluster)
    return addresses


async def settings_of(asking: Asking, group: str) -> dict[str, SubscriptionGroupConfig]:
    """Returns the settings of a group by address of the broker that has them.

    Raises:
        NotFoundError: no broker has any.
    """
    found = {}
    for address in sorted((await asking.leaders()).values()):
        if (settings := (await settings_on(asking, address)).get(group)) is not None:
            found[address] = settings
    if not found:
        raise NotFoundError(f"no broker has a group {group!r}")
    return found


async def _connections(asking: Asking, address: str, group: str) -> ConsumerConnection | None:
    """Returns the members that are connected to a broker; None when there are none."""
    header = GetConsumerConnectionListRequestHeader(consumer_group=group)
    try:
        code = RequestCode.GET_CONSUMER_CONNECTION_LIST
        return ConsumerConnection.decode((await asking.call(address, code, header)).body)
    except RefusedError as error:
        if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
            raise
        return None


async def _member_count(asking: Asking, addresses: list[str], group: str) -> int:
    ids = set()
    for address in addresses:
        if (found := await _connections(asking, address, group)) is not None:
            ids |= {client.client_id for client in found.connection_set}
    return len(ids)


async def _members(
    asking: Asking, addresses: list[str], group: str
) -> tuple[tuple[Member, ...], str | None]:
    """Returns the members, each asked through the first broker that it is connected to, and the
    mode of the group."""
    found: dict[str, Member] = {}
    mode: str | None = None
    for address in addresses:
        connected = await _connections(asking, address, group)
        if connected is None:
            continue
        mode = connected.message_model.value
        for client in connected.connection_set:
            if client.client_id not in found:
                found[client.client_id] = await _told(
                    asking, address, group, client.client_id, client.client_addr, client.language
                )
    return tuple(found[client_id] for client_id in sorted(found)), mode


async def _told(
    asking: Asking, address: str, group: str, client_id: str, client_address: str, language: str
) -> Member:
    header = GetConsumerRunningInfoRequestHeader(consumer_group=group, client_id=client_id)
    try:
        answer = await asking.call(address, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
    except ClientError as error:
        return Member(
            client_id=client_id,
            address=client_address,
            language=language,
            subscriptions=None,
            failure=str(error),
        )
    info = ConsumerRunningInfo.decode(answer.body)
    return Member(
        client_id=client_id,
        address=client_address,
        language=language,
        subscriptions={one.topic: one.sub_string for one in info.subscription_set},
        queues=tuple(
            MemberQueue(
                queue=queue,
                committed_offset=state.commit_offset,
                cached_count=state.cached_msg_count,
                is_locked=state.locked,
                pulled_ms=state.last_pull_timestamp or None,
                consumed_ms=state.last_consume_timestamp or None,
            )
            for queue, state in sorted(info.mq_table.items())
        ),
    )
