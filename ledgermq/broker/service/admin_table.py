"""The part of the table of processors that tools use: offsets of groups, consumers behind the
broker, statistics, upkeep by hand.
"""

from ledgermq.broker.admin.inspection import InspectionProcessor
from ledgermq.broker.clients.forwarding import ForwardingProcessor
from ledgermq.broker.counts.statistics import Statistics
from ledgermq.broker.dispatch import Processor
from ledgermq.broker.offsets.group_offsets import GroupOffsetProcessor
from ledgermq.broker.records.visible_records import VisibleRecords
from ledgermq.broker.service.parts import Parts
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.transport.sliced_answers import SlicedAnswers


def admin_processors(
    parts: Parts, statistics: Statistics, records: VisibleRecords, sliced: SlicedAnswers
) -> dict[RequestCode, Processor]:
    """Makes the processors of tools."""
    config, state, clients, store = parts.config, parts.state, parts.clients, parts.messages
    forwarding = ForwardingProcessor(
        config, parts.leadership, state, clients, parts.questions, store, records, sliced
    )
    groups = GroupOffsetProcessor(
        config,
        parts.leadership,
        state,
        clients,
        store,
        get_rate=lambda topic, group: statistics.get_rate(topic, group, int(parts.clock_ms())),
        sliced=sliced,
        address=f"{config.address_host}:{parts.store_host[1]}",
        now_ms=parts.now_ms,
    )
    inspection = InspectionProcessor(
        config, state, clients, store, statistics, parts.clock_ms, parts.clean_soon
    )
    return {
        RequestCode.GET_CONSUMER_RUNNING_INFO: forwarding.running_info,
        RequestCode.CONSUME_MESSAGE_DIRECTLY: forwarding.consume_directly,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: forwarding.reset_offsets,
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: forwarding.consumer_status,
        RequestCode.QUERY_CONSUME_TIME_SPAN: groups.time_span,
        RequestCode.QUERY_CORRECTION_OFFSET: groups.corrections,
        RequestCode.CLONE_GROUP_OFFSET: groups.clone,
        RequestCode.GET_BROKER_CONSUME_STATS: groups.all_stats,
        RequestCode.VIEW_BROKER_STATS_DATA: inspection.view_stats,
        RequestCode.QUERY_CONSUME_QUEUE: inspection.query_queue,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: inspection.clean_queues,
        RequestCode.CLEAN_UNUSED_TOPIC: inspection.clean_topics,
        RequestCode.DELETE_EXPIRED_COMMITLOG: inspection.clean_log,
        RequestCode.UPDATE_BROKER_CONFIG: inspection.change_settings,
    }
