"""The table of processors: each request code with the function that answers it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ledgermq.broker.access.guard import Guard
from ledgermq.broker.access.needs import Surroundings
from ledgermq.broker.access.own_addresses import own_addresses
from ledgermq.broker.access.processor import AccessProcessor
from ledgermq.broker.access.questions import may_be_asked
from ledgermq.broker.access.quotas import Quotas
from ledgermq.broker.access.rights import goes_on
from ledgermq.broker.admin.query import QueryProcessor
from ledgermq.broker.admin.runtime_info import AdminProcessor
from ledgermq.broker.admin.table_lists import TableLists
from ledgermq.broker.admin.topics import TopicProcessor
from ledgermq.broker.clients.creation_rates import CreationRates
from ledgermq.broker.clients.heartbeat import ClientProcessor
from ledgermq.broker.clients.reply import ReplyProcessor
from ledgermq.broker.clients.request_limits import with_limits
from ledgermq.broker.config.built_in_topics import built_in_topics
from ledgermq.broker.config.group_secret import find_group_secret
from ledgermq.broker.counts.statistics import Statistics
from ledgermq.broker.dispatch import AdmitsLarge, Processor, TakeFrames
from ledgermq.broker.ha.roles import waits_for_slaves
from ledgermq.broker.member_questions import MemberAnswers
from ledgermq.broker.offsets.processor import OffsetProcessor
from ledgermq.broker.pulls.offset_moved import OffsetMovedEvents
from ledgermq.broker.pulls.pull import PullProcessor
from ledgermq.broker.pulls.quick_pulls import QuickPulls
from ledgermq.broker.records.visible_records import VisibleRecords
from ledgermq.broker.sends.light_admission import LightAdmission
from ledgermq.broker.sends.send import SendProcessor
from ledgermq.broker.service.admin_table import admin_processors
from ledgermq.broker.service.parts import Parts
from ledgermq.broker.waits.delay import DelayedDelivery
from ledgermq.broker.waits.deliveries import Deliveries
from ledgermq.broker.waits.send_back import SendBackProcessor
from ledgermq.broker.waits.transaction_ends import ProducerQuestions, TransactionProcessor
from ledgermq.broker.waits.transactions import Rules, Transactions
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.group_secret import GroupSecret
from ledgermq.protocol.quick_frames import COMPILED
from ledgermq.protocol.signature_check import STRONG, SignatureCheck
from ledgermq.protocol.transport import CommandProtocol
from ledgermq.protocol.transport.sliced_answers import SlicedAnswers
from ledgermq.state import names
from ledgermq.state.errors import SystemBusyError

_HOUR_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Processors:
    """The bound processors that somebody besides the table needs."""

    pulls: PullProcessor
    clients: ClientProcessor
    delays: DelayedDelivery
    transactions: Transactions
    ends: TransactionProcessor
    statistics: Statistics
    # What the broker says of itself (code 28).
    runtime_table: Callable[[], dict[str, str]]
    table: dict[int, Processor]
    # The quick road of quick sends and pulls; None where there is none.
    take_frames: TakeFrames | None
    # Says which large requests of strangers come; None without access control.
    admits_large: AdmitsLarge | None


def bind_processors(parts: Parts) -> Processors:
    """Makes all processors and their table."""
    parts.state.creations = CreationRates(parts.config, parts.clock_ms)
    statistics = Statistics(parts.config.cluster_name, int(parts.clock_ms()))
    records = VisibleRecords(parts.messages)
    quotas = Quotas(parts.config, parts.clock_ms)
    pulls = _pulls(parts, statistics)
    clients = _clients(parts, pulls)
    delays = _delays(parts)
    admin = _admin(parts, pulls, delays)
    transactions = _transactions(parts)
    ends = _ends(parts, transactions, records)
    sends = _sends(parts, statistics)
    sliced = SlicedAnswers(parts.soon, parts.clock_ms, SystemBusyError)
    code = RequestCode
    table: dict[RequestCode, Processor] = {
        code.PULL_MESSAGE: pulls.pull,
        code.LITE_PULL_MESSAGE: pulls.pull,
        code.HEART_BEAT: clients.heart_beat,
        code.UNREGISTER_CLIENT: clients.unregister,
        code.GET_CONSUMER_LIST_BY_GROUP: clients.list_members,
        code.LOCK_BATCH_MQ: clients.lock,
        code.UNLOCK_BATCH_MQ: clients.unlock,
        code.CHECK_CLIENT_CONFIG: clients.check_client,
        code.GET_CONSUMER_CONNECTION_LIST: clients.list_consumers,
        code.GET_PRODUCER_CONNECTION_LIST: clients.list_producers,
        code.GET_ALL_PRODUCER_INFO: clients.list_all_producers,
        code.END_TRANSACTION: ends.end,
        code.RESUME_CHECK_HALF_MESSAGE: ends.resume,
        **_senders(parts, sends, statistics, records, quotas),
        **_offsets(parts),
        **_topics(parts),
        **_questions(parts, admin, statistics, records, sliced),
        **admin_processors(parts, statistics, records, sliced),
        **_access(parts),
    }
    guard = _guard(parts, records, quotas)
    by_number = {int(request_code): processor for request_code, processor in table.items()}
    return Processors(
        pulls=pulls,
        clients=clients,
        delays=delays,
        transactions=transactions,
        ends=ends,
        statistics=statistics,
        runtime_table=admin.runtime_table,
        table=_around(by_number, parts, guard),
        # Uncompiled the road is none.
        take_frames=_quick_road(parts, pulls, sends, guard) if _has_quick_road(parts) else None,
        admits_large=None if guard is None else guard.admits_large,
    )


def _follow_rules(parts: Parts, pulls: PullProcessor, clients: ClientProcessor) -> None:
    """What was let in under other rules does not go on by itself."""
    rules = parts.rules
    if rules is None:
        return

    former = rules.rules

    def other() -> None:
        nonlocal former
        before, former = former, rules.rules
        now = former
        pulls.end_waits("the rules of access control have changed")
        clients.close_others(lambda name, groups: goes_on(name, groups, before, now))

    rules.on_other = lambda: parts.soon(other)


def _has_quick_road(parts: Parts) -> bool:
    """The quick road knows stock signatures alone."""
    return COMPILED and (parts.rules is None or parts.config.signature_wanted != STRONG)


def _quick_road(
    parts: Parts, pulls: PullProcessor, sends: SendProcessor, guard: Guard | None
) -> TakeFrames:
    """Takes quick pulls from the front of a chunk, then quick sends; few clients mix them."""
    quick = None if guard is None else guard.of_quick_road()
    lets_pull, count_sends = (None, None) if quick is None else (quick.lets_pull, quick.count_sends)
    take_pulls, take_sends = (
        QuickPulls(pulls, parts.messages, lets_pull, parts.times).take,
        sends.send_quick,
    )

    def take(connection: CommandProtocol, frames: list[bytes]) -> int:
        taken = take_pulls(connection, frames)
        if taken == len(frames):
            return taken
        rest = frames[taken:] if taken else frames
        return taken + take_sends(connection, rest, count_sends)

    return take


def _pulls(parts: Parts, statistics: Statistics) -> PullProcessor:
    return PullProcessor(
        parts.config,
        parts.leadership,
        parts.state,
        parts.clients,
        parts.messages,
        parts.parked,
        parts.clock_ms,
        _near_bytes(parts),
        statistics,
        OffsetMovedEvents(
            parts.leadership,
            parts.proposals,
            broker_name=parts.config.broker_name,
            store_host=parts.store_host,
            now_ms=parts.now_ms,
            clock_ms=parts.clock_ms,
        ).note,
        parts.soon,
        parts.cold_reader,
    )


def _clients(parts: Parts, pulls: PullProcessor) -> ClientProcessor:
    clients = ClientProcessor(
        parts.config,
        parts.leadership,
        parts.state,
        parts.clients,
        parts.now_ms,
        parts.clock_ms,
        parts.soon,
    )
    _follow_rules(parts, pulls, clients)
    return clients


def _around(table: dict[int, Processor], parts: Parts, guard: Guard | None) -> dict[int, Processor]:
    """What stands around processors, from the inside: who notes, who refuses, who bounds."""
    if parts.audit is not None:
        table = parts.audit.around(table)
    guarded = table if guard is None else guard.protect(table)
    secret = find_group_secret(parts.config)
    if secret is not None:
        guarded = _member_answers(parts, secret).around(table, guarded)
    # Before the guard, which reads bodies, too.
    return with_limits(guarded, parts.config)


def _member_answers(parts: Parts, secret: GroupSecret) -> MemberAnswers:
    """Who follows this broker gets its tables by the group's secret, without an account."""
    return MemberAnswers(
        parts.config.broker_name,
        secret,
        f"{parts.config.address_host}:{parts.store_host[1]}",
        parts.now_ms,
        parts.clock_ms,
        None if parts.audit is None else parts.audit.refused,
    )


def _guard(parts: Parts, records: VisibleRecords, quotas: Quotas) -> Guard | None:
    if parts.rules is None:
        return None
    reply_topic = names.reply_topic(parts.config.cluster_name)
    told = None if parts.audit is None else parts.audit.refused
    signatures = SignatureCheck(parts.config.signature_wanted, parts.now_ms, parts.clock_ms)
    around = Surroundings(records, reply_topic)
    is_own = own_addresses(parts.config, parts.store_host[1])
    return Guard(parts.rules, around, quotas, told, signatures, is_own)


def _access(parts: Parts) -> dict[RequestCode, Processor]:
    """Rules of access control; nobody answers for them while it is off."""
    if parts.rules is None:
        return {}
    address = f"{parts.config.address_host}:{parts.store_host[1]}"
    access = AccessProcessor(parts.config, parts.leadership, parts.rules, address)
    return {
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: access.put_account,
        RequestCode.DELETE_ACL_CONFIG: access.delete_account,
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: access.put_addresses,
        RequestCode.GET_BROKER_CLUSTER_ACL_INFO: access.show_version,
        RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: access.list_accounts,
    }


def _has_room(parts: Parts) -> bool:
    """Own appends wait while messages are not taken, and leave half of what may wait to senders."""
    config, proposals = parts.config, parts.proposals
    return (
        parts.leadership.takes_messages
        and proposals.count * 2 < config.waiting_sends_max
        and proposals.bytes * 2 < config.waiting_bytes_max
    )


def _delays(parts: Parts) -> DelayedDelivery:
    return DelayedDelivery(
        parts.config.delay_levels,
        parts.messages,
        parts.state.progress,
        Deliveries(parts.proposals, parts.state.plan_body, parts.store_host, parts.now_ms),
        has_room=lambda: _has_room(parts),
        now_ms=parts.now_ms,
        clock_ms=parts.clock_ms,
        soon=parts.soon,
        body_bytes_max=parts.config.message_bytes_max,
    )


def _ends(
    parts: Parts, transactions: Transactions, records: VisibleRecords
) -> TransactionProcessor:
    return TransactionProcessor(
        parts.config, parts.leadership, transactions, parts.proposals, records, parts.now_ms
    )


def _transactions(parts: Parts) -> Transactions:
    config = parts.config
    return Transactions(
        parts.messages,
        parts.state,
        Deliveries(parts.proposals, parts.state.plan_body, parts.store_host, parts.now_ms),
        parts.proposals,
        ProducerQuestions(parts.clients, may_be_asked(parts.rules)).ask,
        Rules(
            check_interval_ms=config.transaction_check_ms,
            immunity_ms=config.transaction_immunity_ms,
            checks_max=config.transaction_checks_max,
            age_max_ms=config.retention_hours * _HOUR_MS,
            body_bytes_max=config.message_bytes_max,
        ),
        parts.store_host,
        has_room=lambda: _has_room(parts),
        now_ms=parts.now_ms,
        expiry_ms=parts.expiry_ms,
        soon=parts.soon,
    )


def _near_bytes(parts: Parts) -> int:
    """A record so near to the end of the log counts as read from memory, as upstream has it."""
    return parts.machine_memory_bytes * parts.config.memory_percent // 100


def _sends(parts: Parts, statistics: Statistics) -> SendProcessor:
    return SendProcessor(
        parts.config,
        parts.leadership,
        parts.state,
        parts.proposals,
        store_host=parts.store_host,
        now_ms=parts.now_ms,
        rng=parts.rng,
        statistics=statistics,
        light=LightAdmission(parts.config, parts.messages),
        waits_for_slaves=waits_for_slaves(parts.config, parts.messages),
    )


def _senders(
    parts: Parts,
    sends: SendProcessor,
    statistics: Statistics,
    records: VisibleRecords,
    quotas: Quotas,
) -> dict[RequestCode, Processor]:
    replies = ReplyProcessor(
        parts.config,
        parts.clients,
        parts.questions,
        sends.send,
        store_address=f"{parts.config.address_host}:{parts.store_host[1]}",
        now_ms=parts.now_ms,
    )
    send_backs = SendBackProcessor(
        parts.config,
        parts.leadership,
        parts.state,
        parts.proposals,
        records,
        rng=parts.rng,
        statistics=statistics,
        use_bytes=quotas.use_bytes,
    )
    return {
        RequestCode.SEND_REPLY_MESSAGE: replies.reply,
        RequestCode.SEND_REPLY_MESSAGE_V2: replies.reply,
        RequestCode.SEND_MESSAGE: sends.send,
        RequestCode.SEND_MESSAGE_V2: sends.send,
        RequestCode.SEND_BATCH_MESSAGE: sends.send,
        RequestCode.CONSUMER_SEND_MSG_BACK: send_backs.send_back,
    }


def _offsets(parts: Parts) -> dict[RequestCode, Processor]:
    offsets = OffsetProcessor(
        parts.leadership,
        parts.state,
        parts.messages,
        _near_bytes(parts),
        parts.relay_offset,
    )
    return {
        RequestCode.QUERY_CONSUMER_OFFSET: offsets.query,
        RequestCode.UPDATE_CONSUMER_OFFSET: offsets.update,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: offsets.search,
        RequestCode.GET_MAX_OFFSET: offsets.max_offset,
        RequestCode.GET_MIN_OFFSET: offsets.min_offset,
        RequestCode.GET_EARLIEST_MSG_STORETIME: offsets.earliest_time,
    }


def _topics(parts: Parts) -> dict[RequestCode, Processor]:
    system_topics = frozenset(topic.name for topic in built_in_topics(parts.config))
    topics = TopicProcessor(
        parts.config, parts.leadership, parts.state, system_topics, parts.topics_told
    )
    return {
        RequestCode.UPDATE_AND_CREATE_TOPIC: topics.put_topic,
        RequestCode.DELETE_TOPIC_IN_BROKER: topics.delete_topic,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: topics.list_system_topics,
        RequestCode.GET_TOPIC_CONFIG: topics.show_topic,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: topics.put_group,
        RequestCode.DELETE_SUBSCRIPTIONGROUP: topics.delete_group,
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: topics.show_group,
    }


def _admin(parts: Parts, pulls: PullProcessor, delays: DelayedDelivery) -> AdminProcessor:
    return AdminProcessor(
        parts.config,
        parts.leadership,
        parts.state,
        parts.proposals,
        pulls,
        parts.parked,
        parts.rates,
        parts.messages,
        delays,
        parts.now_ms,
    )


def _questions(
    parts: Parts,
    admin: AdminProcessor,
    statistics: Statistics,
    records: VisibleRecords,
    sliced: SlicedAnswers,
) -> dict[RequestCode, Processor]:
    queries = QueryProcessor(
        parts.config,
        parts.state,
        parts.clients,
        parts.messages,
        records,
        lambda topic, group: statistics.get_rate(topic, group, int(parts.clock_ms())),
        sliced,
    )
    lists = TableLists(parts.state, sliced)
    return {
        RequestCode.GET_ALL_TOPIC_CONFIG: lists.list_topics,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: lists.list_groups,
        RequestCode.GET_ALL_CONSUMER_OFFSET: lists.list_offsets,
        RequestCode.QUERY_MESSAGE: queries.query,
        RequestCode.VIEW_MESSAGE_BY_ID: queries.view,
        RequestCode.GET_TOPIC_STATS_INFO: queries.topic_stats,
        RequestCode.GET_CONSUME_STATS: queries.consume_stats,
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: queries.consumers_of,
        RequestCode.GET_BROKER_CONFIG: admin.config,
        RequestCode.GET_BROKER_RUNTIME_INFO: admin.runtime_info,
        RequestCode.GET_ALL_DELAY_OFFSET: admin.delay_offsets,
    }
