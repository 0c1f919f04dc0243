"""Names of topics and groups: which are allowed, which belong to the system, and the prefixes with
a meaning.

Sources: `TopicValidator.java`, `MixAll.java`, `TopicConfigManager.java`.
"""

import re
from typing import Final

from ledgermq.commitlog import OWN_TOPIC_PREFIX, SCHEDULE_TOPIC
from ledgermq.commitlog import STATE_TOPIC as STATE_TOPIC
from ledgermq.protocol.names import DEAD_LETTER_PREFIX as DEAD_LETTER_PREFIX
from ledgermq.protocol.names import DEFAULT_TOPIC as DEFAULT_TOPIC
from ledgermq.protocol.names import LIGHT_QUEUE_PREFIX as LIGHT_QUEUE_PREFIX
from ledgermq.protocol.names import RETRY_PREFIX as RETRY_PREFIX
from ledgermq.state.errors import InvalidRequestError

SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
_SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"

TOPIC_CHARS_MAX: Final = 127
GROUP_CHARS_MAX: Final = 255

SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
OFFSET_MOVED_TOPIC: Final = "OFFSET_MOVED_EVENT"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
HALF_DONE_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
HALF_EXPIRED_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
_REPLY_TOPIC_SUFFIX: Final = "_REPLY_TOPIC"

SYSTEM_TOPICS: Final[frozenset[str]] = frozenset(
    (
        DEFAULT_TOPIC,
        SELF_TEST_TOPIC,
        BENCHMARK_TOPIC,
        SCHEDULE_TOPIC,
        OFFSET_MOVED_TOPIC,
        HALF_TOPIC,
        HALF_DONE_TOPIC,
        HALF_EXPIRED_TOPIC,
        TRACE_TOPIC,
    )
)
# Only the broker itself writes there.
_TOPICS_CLOSED_FOR_SENDS: Final = frozenset(
    (SCHEDULE_TOPIC, HALF_TOPIC, HALF_DONE_TOPIC, HALF_EXPIRED_TOPIC)
)
# Built in at every start; the first of them belongs to mqadmin.
SYSTEM_GROUPS: Final = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
)
_GROUP_TOPIC_PREFIXES: Final = (RETRY_PREFIX, DEAD_LETTER_PREFIX)
_ALLOWED: Final = re.compile(r"[%|a-zA-Z0-9_-]+")


def is_system_topic(topic: str) -> bool:
    """True for a topic that clients may not create, change or delete."""
    return topic in SYSTEM_TOPICS or topic.startswith(_SYSTEM_TOPIC_PREFIX)


def reply_topic(cluster_name: str) -> str:
    """Returns the topic of replies of a cluster."""
    return cluster_name + _REPLY_TOPIC_SUFFIX


def is_closed_for_sends(topic: str) -> bool:
    """True for a topic to which only the broker itself writes."""
    return topic in _TOPICS_CLOSED_FOR_SENDS or topic.startswith(OWN_TOPIC_PREFIX)


def gathers_messages(topic: str, replies: str) -> bool:
    """True for a topic to which clients may write, and in which messages, replies, traces or places
    of all of them stand together; `replies` is that of the cluster.
    """
    return topic in (TRACE_TOPIC, OFFSET_MOVED_TOPIC, replies) or topic.startswith(
        DEAD_LETTER_PREFIX
    )


def is_light_group(group: str) -> bool:
    """True for a group that is named as a light queue is."""
    return (
        group.startswith(LIGHT_QUEUE_PREFIX)
        and len(group) <= GROUP_CHARS_MAX
        and _ALLOWED.fullmatch(group) is not None
    )


def check_topic_name(topic: str) -> None:
    """Raises InvalidRequestError when the name may not be that of a topic."""
    _check_name("topic", topic, TOPIC_CHARS_MAX)
    for prefix in _GROUP_TOPIC_PREFIXES:
        if topic.startswith(prefix):
            _check_of_group("topic", topic, topic[len(prefix) :])


def check_group_name(group: str) -> None:
    """Raises InvalidRequestError when the name may not be that of a consumer group."""
    _check_name("group", group, GROUP_CHARS_MAX)
    _check_of_group("group", group, group)


def _check_of_group(kind: str, name: str, group: str) -> None:
    """A group is none of the topics that groups have: those would have topics, too, without end."""
    if not group or group.startswith(_GROUP_TOPIC_PREFIXES):
        prefixes = " and ".join(_GROUP_TOPIC_PREFIXES)
        raise InvalidRequestError(
            f"The specified {kind}[{name[:TOPIC_CHARS_MAX]}] is not allowed: {prefixes} stand"
            " before the name of a group, once"
        )


def _check_name(kind: str, name: str, chars_max: int) -> None:
    if not name.strip():
        raise InvalidRequestError(f"The specified {kind} is blank.")
    if not _ALLOWED.fullmatch(name):
        raise InvalidRequestError(
            f"The specified {kind}[{name[:chars_max]}] contains illegal characters,"
            " allowing only ^[%|a-zA-Z0-9_-]+$"
        )
    if len(name) > chars_max:
        raise InvalidRequestError(
            f"The specified {kind} has {len(name)} characters,"
            f" longer than {kind} max length {chars_max}."
        )
