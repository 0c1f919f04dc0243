"""The topics that every broker makes at its start, by its configuration."""

from typing import Final

from ledgermq.broker.config.broker_config import BrokerConfig
from ledgermq.commitlog import SCHEDULE_TOPIC
from ledgermq.state import names
from ledgermq.state.topics import PERM_INHERIT, TopicConfig

_BENCHMARK_QUEUES: Final = 1024


_CLUSTER_TOPIC_QUEUES: Final = 16


_SCHEDULE_QUEUES: Final = 18


def built_in_topics(config: BrokerConfig) -> list[TopicConfig]:
    """Returns the topics that upstream's broker makes at every start."""
    cluster_permission = 7 if config.is_cluster_topic_open else PERM_INHERIT
    broker_permission = 7 if config.is_broker_topic_open else PERM_INHERIT
    topics = [
        TopicConfig(names.SELF_TEST_TOPIC, 1, 1),
        TopicConfig(names.BENCHMARK_TOPIC, _BENCHMARK_QUEUES, _BENCHMARK_QUEUES),
        TopicConfig(config.broker_name, 1, 1, broker_permission),
        TopicConfig(
            config.cluster_name, _CLUSTER_TOPIC_QUEUES, _CLUSTER_TOPIC_QUEUES, cluster_permission
        ),
        TopicConfig(names.OFFSET_MOVED_TOPIC, 1, 1),
        TopicConfig(SCHEDULE_TOPIC, _SCHEDULE_QUEUES, _SCHEDULE_QUEUES),
        TopicConfig(names.reply_topic(config.cluster_name), 1, 1),
    ]
    if config.auto_create_topics:
        count = config.default_queue_count
        topics.append(TopicConfig(names.DEFAULT_TOPIC, count, count, 7))
    if config.has_trace_topic:
        topics.append(TopicConfig(config.trace_topic, 1, 1))
    return topics
