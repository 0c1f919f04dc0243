"""Topics: list, create, change, delete, describe."""

import asyncio
from typing import Final

from ledgermq.client.admin.asking import Asking, each
from ledgermq.client.admin.results import QueueEnds, TopicDescription, TopicOnBroker, TopicSummary
from ledgermq.client.errors import ConfigError, NotFoundError, UnreachableError
from ledgermq.client.namespaces import is_system_name
from ledgermq.protocol.bodies import GroupList, TopicStatsTable
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.headers import (
    CreateTopicRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    DeleteTopicRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
)
from ledgermq.protocol.names import (
    DEAD_LETTER_PREFIX,
    DEFAULT_TOPIC,
    RETRY_PREFIX,
    ROUND_TRIP_TOPIC,
)
from ledgermq.protocol.route import MASTER_ID, TopicList

NORMAL: Final = "normal"
RETRY: Final = "retry"
DEAD_LETTERS: Final = "dead letters"
SYSTEM: Final = "system"
# Behind the name of a cluster: where replies to requests go.
_REPLY_TOPIC_SUFFIX: Final = "_REPLY_TOPIC"
# Between two looks whether a new topic is known.
_LOOK_S: Final = 0.05


def kind_of(topic: str, others: frozenset[str] = frozenset()) -> str:
    """Returns what a topic is for.

    Args:
        topic: its name.
        others: further names that are the system's: those of clusters and brokers.
    """
    if topic.startswith(RETRY_PREFIX):
        return RETRY
    if topic.startswith(DEAD_LETTER_PREFIX):
        return DEAD_LETTERS
    is_own = topic == ROUND_TRIP_TOPIC or topic.removesuffix(_REPLY_TOPIC_SUFFIX) in others
    return SYSTEM if is_own or is_system_name(topic) else NORMAL


async def names_of_topics(asking: Asking) -> list[str]:
    """Returns the names of all topics, sorted."""
    answer = await asking.ask_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    return sorted(TopicList.decode(answer.body).topic_list)


async def topics(asking: Asking) -> list[TopicSummary]:
    """Returns all topics, sorted by name."""
    info = await asking.clusters()
    others = frozenset(info.cluster_addr_table) | frozenset(info.broker_addr_table)
    return [
        TopicSummary(name=name, kind=kind_of(name, others))
        for name in await names_of_topics(asking)
    ]


async def put_topic(asking: Asking, address: str, header: CreateTopicRequestHeader) -> None:
    """Creates or changes a topic on one broker."""
    await asking.call(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header, topic=header.topic)


def topic_settings(
    topic: str,
    *,
    read_queue_count: int,
    write_queue_count: int,
    permission: int = 6,
    is_ordered: bool = False,
    attributes: str = "",
    sys_flag: int = 0,
) -> CreateTopicRequestHeader:
    """Returns all settings of a topic as a broker takes them."""
    return CreateTopicRequestHeader(
        topic=topic,
        default_topic=DEFAULT_TOPIC,
        read_queue_nums=read_queue_count,
        write_queue_nums=write_queue_count,
        perm=permission,
        topic_filter_type="SINGLE_TAG",
        topic_sys_flag=sys_flag,
        order=is_ordered,
        attributes=attributes or None,
    )


async def create_topic(
    asking: Asking, cluster: str | None, settings: CreateTopicRequestHeader, wait_s: float
) -> None:
    """Creates a topic on all leaders of a cluster, and waits until the name servers know it.

    Raises:
        ConfigError: it is there already.
    """
    name = settings.topic
    leaders = await asking.leaders(cluster)
    try:
        known = {data.broker_name: data for data in (await asking.route(name)).queue_datas}
    except NotFoundError:
        known = {}
    if there := sorted(known.keys() & leaders.keys()):
        queues = known[there[0]]
        raise ConfigError(
            f"topic {name!r} is there already, with {queues.write_queue_nums} queues on"
            f" {', '.join(there)}",
            topic=name,
        )
    await each(lambda address: put_topic(asking, address, settings), leaders.values())
    await _wait_until_known(asking, name, set(leaders), wait_s)


async def _wait_until_known(asking: Asking, topic: str, brokers: set[str], wait_s: float) -> None:
    """Brokers tell the name servers by themselves, a moment after they have answered."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + wait_s
    while True:
        try:
            data = (await asking.route(topic)).queue_datas
            missing = brokers - {queues.broker_name for queues in data}
        except NotFoundError:
            missing = brokers
        if not missing or wait_s <= 0:
            return
        if loop.time() > deadline_s:
            raise UnreachableError(
                f"the topic is created; the name server does not know it yet on"
                f" {', '.join(sorted(missing))} after {wait_s:g} s",
                retriable=True,
                topic=topic,
            )
        await asyncio.sleep(_LOOK_S)


async def update_topic(
    asking: Asking,
    name: str,
    *,
    queue_count: int | None,
    permission: int | None,
    is_ordered: bool | None,
    attributes: str,
) -> None:
    """Changes what is given of a topic, on all its brokers."""
    route = await asking.route(name)
    leaders = {b.broker_name: b.broker_addrs.get(MASTER_ID) for b in route.broker_datas}
    if missing := sorted(broker for broker, address in leaders.items() if not address):
        raise NotFoundError(f"no leader now: {', '.join(missing)}", retriable=True, topic=name)
    for data in route.queue_datas:
        address = leaders.get(data.broker_name)
        if address is None:
            continue
        settings = topic_settings(
            name,
            read_queue_count=data.read_queue_nums if queue_count is None else queue_count,
            write_queue_count=data.write_queue_nums if queue_count is None else queue_count,
            permission=data.perm if permission is None else permission,
            is_ordered=bool(is_ordered)
            if is_ordered is not None
            else f"{data.broker_name}:" in (route.order_topic_conf or ""),
            attributes=attributes,
            sys_flag=data.topic_sys_flag,
        )
        await put_topic(asking, address, settings)


async def delete_topic(asking: Asking, topic: str, cluster: str | None = None) -> None:
    """Deletes a topic on the leaders of a cluster, and then on the name servers."""
    header = DeleteTopicRequestHeader(topic=topic)
    for address in (await asking.leaders(cluster)).values():
        await asking.call(address, RequestCode.DELETE_TOPIC_IN_BROKER, header, topic=topic)
    known = DeleteTopicFromNamesrvRequestHeader(topic=topic)
    for address in asking.instance.name_servers.addresses:
        await asking.call(address, RequestCode.DELETE_TOPIC_IN_NAMESRV, known, topic=topic)


async def describe_topic(asking: Asking, name: str) -> TopicDescription:
    """Returns all about one topic."""
    route = await asking.route(name)
    brokers = {data.broker_name: data for data in route.broker_datas}
    addresses = list((await asking.brokers_of(name)).values())
    ends = await each(lambda address: queue_ends(asking, address, name), addresses)
    groups = await each(lambda address: _groups_of(asking, address, name), addresses)
    return TopicDescription(
        name=name,
        kind=kind_of(name, frozenset(data.cluster for data in route.broker_datas)),
        brokers=tuple(
            TopicOnBroker(
                cluster=brokers[queues.broker_name].cluster,
                broker_name=queues.broker_name,
                leader=brokers[queues.broker_name].broker_addrs.get(MASTER_ID),
                read_queue_count=queues.read_queue_nums,
                write_queue_count=queues.write_queue_nums,
                permission=queues.perm,
            )
            for queues in route.queue_datas
            if queues.broker_name in brokers
        ),
        queues=tuple(one for those in ends for one in those),
        groups=tuple(sorted({group for those in groups for group in those})),
    )


async def queue_ends(asking: Asking, address: str, topic: str) -> list[QueueEnds]:
    """Returns the ends of the queues of a topic on one broker."""
    header = GetTopicStatsInfoRequestHeader(topic=topic)
    answer = await asking.call(address, RequestCode.GET_TOPIC_STATS_INFO, header, topic=topic)
    return [
        QueueEnds(
            queue=queue,
            min_offset=ends.min_offset,
            max_offset=ends.max_offset,
            updated_ms=ends.last_update_timestamp or None,
        )
        for queue, ends in sorted(TopicStatsTable.decode(answer.body).offset_table.items())
    ]


async def _groups_of(asking: Asking, address: str, topic: str) -> list[str]:
    header = QueryTopicConsumeByWhoRequestHeader(topic=topic)
    code = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
    answer = await asking.call(address, code, header, topic=topic)
    return GroupList.decode(answer.body).group_list
