"""The table of the API: what each address takes and gives.

`openapi.py` documents this table, and `handlers` serve it: neither has an address of its own. A
part of a path in braces is a value that the handler gets by that name.
"""

from enum import Enum
from typing import Any, Final, NamedTuple

from ledgermq.console.shapes import (
    access,
    actions,
    brokers,
    definitions,
    events,
    groups,
    messages,
    session,
    topics,
)
from ledgermq.console.shapes.elements import ListQuery, Nothing, Shape

API: Final = "/api/v1"
_CLUSTER: Final = API + "/clusters/{cluster}"


class Leave(Enum):
    """Who may ask."""

    # Anybody who reaches the port.
    ANYBODY = "anybody"
    # Whoever is signed in, or anybody where no account is asked for.
    READER = "reader"
    # Whose session may change something; the brokers judge each change besides.
    CHANGER = "changer"


class Gives(Enum):
    """What an answer is."""

    JSON = "application/json"
    # The bytes of a body, as a file to save.
    BYTES = "application/octet-stream"
    EVENTS = "text/event-stream"


class Route(NamedTuple):
    """One address of the API."""

    # Name of its handler, and the operationId.
    name: str
    method: str
    path: str
    summary: str
    # The 200 answer; for events what the data is one of.
    answer: Any
    query: type[Shape] | None = None
    # JSON.
    body: Any = None
    leave: Leave = Leave.READER
    gives: Gives = Gives.JSON


def _get(
    name: str, path: str, summary: str, answer: Any, query: type[Shape] | None = None
) -> Route:
    return Route(name, "GET", path, summary, answer, query)


_MESSAGE: Final = _CLUSTER + "/topics/{topic}/messages/{broker}/{queue}/{offset}"
_ACTION: Final = _CLUSTER + "/actions/{action}"
_SEARCH: Final = _CLUSTER + "/searches/{search}"

_SESSIONS: Final = (
    Route(
        "get_session", "GET", API + "/session", "who is signed in", session.Session,
        leave=Leave.ANYBODY,
    ),
    Route(
        "sign_in", "POST", API + "/session", "sign in with an account of the brokers",
        session.Session, body=session.SignIn, leave=Leave.ANYBODY,
    ),
    Route(
        "sign_out", "DELETE", API + "/session", "sign out", session.Session, leave=Leave.ANYBODY
    ),
    _get("get_clusters", API + "/clusters", "clusters to choose from", session.Clusters),
)  # fmt: skip
_BROKERS: Final = (
    _get("get_overview", _CLUSTER + "/overview", "how it is and what it does", brokers.Overview),
    _get(
        "get_broker_groups", _CLUSTER + "/broker-groups", "broker groups and their members",
        brokers.BrokerGroups,
    ),
    _get(
        "get_broker_group", _CLUSTER + "/broker-groups/{broker}", "one broker group",
        brokers.BrokerGroup,
    ),
    _get(
        "get_configuration", _CLUSTER + "/configuration", "settings in force, with differences",
        brokers.Configuration, brokers.ConfigurationQuery,
    ),
    _get("get_log", _CLUSTER + "/log", "last lines of the logs", brokers.Log, brokers.LogQuery),
    _get(
        "get_audit", _CLUSTER + "/audit", "what was done through the console", brokers.Audit,
        brokers.AuditQuery,
    ),
    _get(
        "get_history", _CLUSTER + "/history", "figures of the last hour", brokers.History,
        brokers.HistoryQuery,
    ),
)  # fmt: skip
_TOPICS: Final = (
    _get(
        "get_definitions", _CLUSTER + "/definitions",
        "topics and consumer groups as one document", definitions.Definitions,
    ),
    _get("get_topics", _CLUSTER + "/topics", "a page of topics", topics.Topics, topics.TopicsQuery),
    _get("get_topic", _CLUSTER + "/topics/{topic}", "one topic", topics.Topic),
    _get(
        "get_topic_queues", _CLUSTER + "/topics/{topic}/queues", "queues of a topic",
        topics.TopicQueues,
    ),
    _get(
        "get_topic_groups", _CLUSTER + "/topics/{topic}/groups", "groups of a topic",
        topics.TopicGroups, ListQuery,
    ),
)  # fmt: skip
_GROUPS: Final = (
    _get(
        "get_consumer_groups", _CLUSTER + "/consumer-groups", "a page of consumer groups",
        groups.ConsumerGroups, groups.GroupsQuery,
    ),
    _get(
        "get_consumer_group", _CLUSTER + "/consumer-groups/{group}", "one consumer group",
        groups.ConsumerGroup,
    ),
    _get(
        "get_group_queues", _CLUSTER + "/consumer-groups/{group}/queues", "where a group stands",
        groups.GroupQueues, groups.GroupQueuesQuery,
    ),
    _get(
        "get_group_history", _CLUSTER + "/consumer-groups/{group}/history",
        "how far a group was behind in the last hour", brokers.History,
    ),
    _get(
        "get_group_clients", _CLUSTER + "/consumer-groups/{group}/clients", "members of a group",
        groups.GroupClients,
    ),
    _get(
        "get_running", _CLUSTER + "/consumer-groups/{group}/clients/{client}",
        "what a member tells about itself", groups.Running, groups.RunningQuery,
    ),
    _get(
        "get_clients", _CLUSTER + "/clients", "a page of producers and consumers", groups.Clients,
        groups.ClientsQuery,
    ),
)  # fmt: skip
_MESSAGES: Final = (
    Route(
        "start_search", "POST", _CLUSTER + "/searches",
        "look for messages; a session may have four searches at a time", messages.Search,
        body=messages.SearchRequest,
    ),
    _get("get_search", _SEARCH, "how far a search is", messages.Search, messages.SearchQuery),
    Route("stop_search", "DELETE", _SEARCH, "stop a search", messages.Search),
    Route(
        "look_at_tail", "POST", _CLUSTER + "/topics/{topic}/tail",
        "what came to a topic since the last look; nothing is kept of it", messages.Tail,
        body=messages.TailRequest,
    ),
    _get("get_message", _MESSAGE, "one message", messages.MessageDetail),
    Route(
        "get_body", "GET", _MESSAGE + "/body", "the body of a message, decompressed, as a file",
        bytes, gives=Gives.BYTES,
    ),
    _get(
        "get_dead_letters", _CLUSTER + "/dead-letters", "groups with dead letters",
        messages.DeadLetters, messages.DeadLettersQuery,
    ),
    _get(
        "browse_dead_letters", _CLUSTER + "/dead-letters/{group}/messages",
        "dead letters of a group", messages.Letters, messages.LettersQuery,
    ),
    _get("get_delayed", _CLUSTER + "/delayed", "what waits for its time", messages.Delayed),
    _get(
        "browse_delayed", _CLUSTER + "/delayed/{level}/messages", "messages of a delay level",
        messages.Browsed, messages.BrowseQuery,
    ),
    _get(
        "browse_half", _CLUSTER + "/half/messages", "transactions that wait for their end",
        messages.Browsed, messages.BrowseQuery,
    ),
    _get(
        "get_trace", _CLUSTER + "/traces/{message_id}", "the way of a message", messages.Trace,
        messages.TraceQuery,
    ),
)  # fmt: skip
_ACCESS: Final = (
    _get("get_access", _CLUSTER + "/access", "accounts and their rules", access.Access),
    Route(
        "ask_may", "POST", _CLUSTER + "/access/may", "may an account do something",
        access.MayAnswer, body=access.MayQuestion,
    ),
)  # fmt: skip
_ACTIONS: Final = (
    Route(
        "preview_action", "POST", _CLUSTER + "/actions", "what a change would do", actions.Action,
        query=actions.ItemsQuery, body=actions.Wanted, leave=Leave.CHANGER,
    ),
    Route(
        "confirm_action", "POST", _ACTION, "carry a change out", actions.Action,
        query=actions.ItemsQuery, body=actions.Confirm, leave=Leave.CHANGER,
    ),
    _get("get_action", _ACTION, "how far a change is", actions.Action, actions.ItemsQuery),
    Route(
        "stop_action", "DELETE", _ACTION, "stop a change before its next item", actions.Action,
        query=actions.ItemsQuery, leave=Leave.CHANGER,
    ),
    _get("get_actions", _CLUSTER + "/actions", "changes of late", actions.Actions),
)  # fmt: skip
_STREAM: Final = (
    Route(
        "stream", "GET", _CLUSTER + "/events", "keeps the parts of a page fresh", Nothing,
        query=events.StreamQuery, gives=Gives.EVENTS,
    ),
)  # fmt: skip
ROUTES: Final = (
    *_SESSIONS, *_BROKERS, *_TOPICS, *_GROUPS, *_MESSAGES, *_ACCESS, *_ACTIONS, *_STREAM,
)  # fmt: skip
