"""The table: name of a route -> its handler."""

from collections.abc import Mapping
from typing import Final

from ledgermq.console.actions.definitions import get_definitions
from ledgermq.console.api.brokers import get_broker_group, get_broker_groups, get_configuration
from ledgermq.console.api.changes import (
    confirm_action,
    get_action,
    get_actions,
    preview_action,
    stop_action,
)
from ledgermq.console.api.clients import get_clients
from ledgermq.console.api.groups import (
    get_consumer_group,
    get_consumer_groups,
    get_group_clients,
    get_group_history,
    get_group_queues,
)
from ledgermq.console.api.letters import browse_dead_letters, get_dead_letters
from ledgermq.console.api.messages import (
    get_message,
    get_search,
    start_search,
    stop_search,
)
from ledgermq.console.api.overview import get_history, get_overview
from ledgermq.console.api.records import get_audit, get_log
from ledgermq.console.api.rules import ask_may, get_access
from ledgermq.console.api.running import get_running
from ledgermq.console.api.topics import (
    get_topic,
    get_topic_groups,
    get_topic_queues,
    get_topics,
)
from ledgermq.console.api.traces import get_trace
from ledgermq.console.api.waiting import browse_delayed, browse_half, get_delayed
from ledgermq.console.call import Handler
from ledgermq.console.tail import look_at_tail

HANDLERS: Final[Mapping[str, Handler]] = {
    "get_overview": get_overview,
    "get_broker_groups": get_broker_groups,
    "get_broker_group": get_broker_group,
    "get_configuration": get_configuration,
    "get_log": get_log,
    "get_audit": get_audit,
    "get_history": get_history,
    "get_definitions": get_definitions,
    "get_topics": get_topics,
    "get_topic": get_topic,
    "get_topic_queues": get_topic_queues,
    "get_topic_groups": get_topic_groups,
    "get_consumer_groups": get_consumer_groups,
    "get_consumer_group": get_consumer_group,
    "get_group_queues": get_group_queues,
    "get_group_history": get_group_history,
    "get_group_clients": get_group_clients,
    "get_running": get_running,
    "get_clients": get_clients,
    "start_search": start_search,
    "get_search": get_search,
    "stop_search": stop_search,
    "look_at_tail": look_at_tail,
    "get_message": get_message,
    "get_dead_letters": get_dead_letters,
    "browse_dead_letters": browse_dead_letters,
    "get_delayed": get_delayed,
    "browse_delayed": browse_delayed,
    "browse_half": browse_half,
    "get_trace": get_trace,
    "get_access": get_access,
    "ask_may": ask_may,
    "preview_action": preview_action,
    "confirm_action": confirm_action,
    "get_action": get_action,
    "stop_action": stop_action,
    "get_actions": get_actions,
}
